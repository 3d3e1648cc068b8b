# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How pages of the repository become pages of the documentation."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
spec = importlib.util.spec_from_file_location("docs_build", ROOT / "tests" / "docs" / "build.py")
docs_build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(docs_build)


@pytest.mark.parametrize(("path", "page"), [
    ("docs/rules.md", "rules.md"),
    ("tests/lab/hub/README.md", "lab_hub.md"),
    ("README.md", "readme.md"),
    ("plugins/modules/node_info.py", "reference/node_info_module.rst"),
    ("roles/doctor/README.md", "reference/doctor_role.rst"),
    ("playbooks/profiles/nemotron_3_super_tp2.yml", "shipped_profiles.md#nemotron_3_super_tp2"),
    ("playbooks/serve.yml", "playbooks.md#serve"),
    ("galaxy.yml", ""),
])
def test_where_a_file_has_its_page(path: str, page: str) -> None:
    assert docs_build.page_for(path) == page


@pytest.mark.parametrize("path", ["nothing.yml", "tests/unit/fixtures/cdi/README.md"])
def test_a_page_that_is_missing_is_said(path: str) -> None:
    with pytest.raises(docs_build.NoPage):
        docs_build.page_for(path)


def test_links_move_with_their_page_and_code_stays() -> None:
    page = "[a](../README.md#top) [b](rules.md) [c](https://x.y/z) [d](#here) [e](../galaxy.yml)\n```\n[a](../nothing.md)\n```\n"
    assert docs_build.moved(page, "docs") == "[a](readme.md#top) [b](rules.md) [c](https://x.y/z) [d](#here) e\n```\n[a](../nothing.md)\n```\n"


def test_a_playbooks_comment_becomes_prose_and_commands(tmp_path: Path) -> None:
    playbook = tmp_path / "verb.yml"
    comment = "# What it does.\n#\n#   ansible-playbook a\n#   ansible-playbook b\n#\n# More.\n"
    playbook.write_text(f"---\n{comment}- name: No comment\n  # Not this.\n", encoding="utf-8")
    text = docs_build.prose_and_code(docs_build.header(playbook))
    assert text == "What it does.\n\n```console\n$ ansible-playbook a\n$ ansible-playbook b\n```\n\nMore.\n"


def test_the_front_pages_groups_are_those_of_the_table_of_contents() -> None:
    page = "# T\n\n[a](above.md)\n\n## Start here\n\n[a](one.md) [b](two.md#x) [c](https://x/three.md)\n\n## More\n\n[e](reference/index.rst)\n"
    assert docs_build.groups(page) == {"Start here": ["one", "two"], "More": ["reference/index"]}


def test_all_pages_can_be_written(tmp_path: Path) -> None:
    docs_build.write_sources(tmp_path)
    written = {path.name for path in tmp_path.iterdir()}
    assert {path.name for kind in ("*.md", "*.svg") for path in (ROOT / "docs").glob(kind)} <= written and {"playbooks.md", "shipped_profiles.md"} <= written
