# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A new verb takes only its own files; the tool writes the lists."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs.renamed import RENAMED

ROOT = Path(__file__).resolve().parents[3]

#: A verb that reads the nodes' clocks: every file that a person writes for it, with two settings of its own.
VERB = {
    "playbooks/clocks.yml": """---
# Compare the clocks of all nodes. Reads only.
#
#   ansible-playbook -i inventories/NAME gb10.cluster.clocks
- name: Compare the clocks
  hosts: gb10_cluster
  roles:
    - role: gb10.cluster.clocks
""",
    "roles/clocks/tasks/main.yml": "---\n",
    "roles/clocks/defaults/main.yml": "---\n# Seconds by which they may differ.\ngb10_clocks_seconds: 5\n",
    "roles/clocks/meta/main.yml": "---\ndependencies:\n  - role: gb10.cluster.gb10\n",
    "roles/clocks/meta/argument_specs.yml": """---
argument_specs:
  main:
    short_description: Compare the clocks of all nodes
    options:
      gb10_clocks_seconds:
        description: Seconds by which they may differ.
        type: int
        default: 5
""",
    "roles/clocks/README.md": "# gb10.cluster.clocks\n",
    "plugins/plugin_utils/_stages/clocks.py": "def judge(answers, run):\n    pass\n",
    "docs/clocks.md": "# Clocks\n",
}
#: The most files that a person writes for a verb.
MOST = 8
#: The most modules that anybody may use, and that only the collection's roles call.
MOST_MODULES, MOST_INTERNAL = 25, 10
#: The most settings that a user can find.
MOST_SETTINGS = 110


@pytest.fixture
def lists(tmp_path, monkeypatch):
    """The tool, on a copy of what it reads."""
    spec = importlib.util.spec_from_file_location("lists", ROOT / "tests/tools/lists.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("docs", "playbooks", "roles", "meta", "awx", "completion", "plugins/modules", "plugins/plugin_utils/_stages"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("README.md", "gb10"):
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def test_a_verb_costs_its_own_files_alone(lists, tmp_path):
    before = lists.lists()
    for name, text in VERB.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    after = lists.lists()
    assert len(VERB) <= MOST
    made = {str(path): text for path, text in after.items() if text != before[path]}
    pages = {"docs/index.md", "docs/settings.md", "README.md"}
    assert set(made) == {*pages, "awx/job_templates.yml", "plugins/modules/judge.py", "completion/gb10.sh"}
    assert "[clocks](clocks.md) | Compare the clocks of all nodes. |  |" in made["docs/index.md"] and "`gb10_clocks_seconds`" in made["docs/settings.md"]
    assert "[clocks](docs/clocks.md)" in made["README.md"] and " clocks " in made["completion/gb10.sh"]
    assert 'playbook: "{{ gb10_awx_playbooks }}/clocks.yml"' in made["awx/job_templates.yml"] and "      - clocks\n" in made["plugins/modules/judge.py"]


def test_fifteen_verbs_stand_beside_the_missions_and_the_one_for_awx(lists):
    others = {"nemotron_tp2", "awx_configure"}
    names = {verb.name for verb in lists.verbs()}
    assert names == {path.stem for path in (ROOT / "playbooks").glob("*.yml")} and len(names - others) <= 15 and others <= names


def test_modules_are_few_and_internal_ones_are_in_no_list(lists):
    public, internal = lists.modules(), lists.modules(internal=True)
    assert len(public) <= MOST_MODULES and len(internal) <= MOST_INTERNAL
    assert {*public, *internal} == {path.stem for path in (ROOT / "plugins/modules").glob("*.py")}
    made = lists.lists()
    assert not [name for name in internal if f"    - {name}\n" in made[lists.RUNTIME] or f"| `{name}` |" in made[lists.INDEX]]


def test_settings_are_few_and_no_old_name_is_one(lists):
    assert len(lists.settings()) <= MOST_SETTINGS and not set(RENAMED) & set(lists.settings())


def test_the_lists_are_as_the_tool_writes_them(lists):
    assert {path: (ROOT / path).read_text(encoding="utf-8") for path in lists.lists()} == lists.lists()


def test_a_model_without_a_reported_speed_is_named_below_the_table(lists, tmp_path):
    path = tmp_path / "playbooks/profiles/gpt_oss_120b_one.yml"
    text = path.read_text(encoding="utf-8")
    assert "| `gpt_oss_120b_one` | 1 | 65 | 125K | 57.5 | 318.7 (32) | [kubis.ai](" in lists.model_list()
    path.write_text(text.replace("\nspeed:\n", "\nslow:\n"), encoding="utf-8")
    table, below = lists.model_list().split("Without a reported speed")
    assert "`gpt_oss_120b_one`" in below and "`gpt_oss_120b_one`" not in table


def test_each_setting_has_one_group_and_the_first_ones_exist(lists, monkeypatch):
    page = lists.settings_page()
    assert page.count("| `gb10_guard_act` |") == 1 and page.index("## Protect") < page.index("| `gb10_guard_act` |") < page.index("## Prune")
    monkeypatch.setattr(lists, "FIRST", ("gb10_gone",))
    with pytest.raises(SystemExit, match="gb10_gone"):
        lists.settings_page()


def test_the_readme_is_a_landing_page():
    lines = [line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if not line.startswith("| `")]
    assert len(lines) <= 92 and sum(line.startswith("## ") for line in lines) <= 7
