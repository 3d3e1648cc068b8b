# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The list of profiles, through its playbook, on the controller alone; and the lookup's relative paths."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import through_ansible
import yaml

ROOT = Path(__file__).resolve().parents[2]
SMALL = {
    "schema": 1,
    "id": "small",
    "model": {"repo": "org/small"},
    "image": {"base": "registry.example/vllm:1", "layers": []},
    "parallel": {"tensor": 2},
    "switches": {"eager": {"description": "No CUDA graphs.", "serve": {"enforce_eager": True}}},
}


def ansible(program, *arguments, cwd, **variables):
    """Run Ansible without an inventory; returns its exit code, all it printed, and that on one line."""
    done = through_ansible.run(program, *arguments, "--extra-vars", json.dumps(variables), cwd=cwd)
    return done.rc, done.out, " ".join(done.out.split())


@pytest.fixture
def own(tmp_path):
    """A directory of the user's, with a good profile and one that has a typing error."""
    directory = tmp_path / "mine"
    directory.mkdir()
    (directory / "small.yml").write_text(yaml.safe_dump(SMALL), encoding="utf-8")
    (directory / "typo.yml").write_text(yaml.safe_dump({**SMALL, "id": "typo", "parallel": {"tensr": 2}}), encoding="utf-8")
    return directory


def test_the_list_needs_neither_inventory_nor_cluster(tmp_path):
    code, output, text = ansible("playbook", str(ROOT / "playbooks" / "profiles.yml"), cwd=tmp_path)
    assert code == 0, output
    for path in (ROOT / "playbooks" / "profiles").glob("*.yml"):
        assert path.stem in text
    assert "2, of 128 GB or more, all alike" in text
    assert "agentic: Speculation by n-grams" in text


def test_a_file_that_is_no_profile_hides_nothing_and_fails_the_play(own):
    code, output, text = ansible("playbook", str(ROOT / "playbooks" / "profiles.yml"), cwd=own.parent, gb10_profile_dirs=["mine"])
    assert code != 0
    assert "registry.example/vllm:1, as it is" in text, output
    assert "parallel.tensr: is not a known field (did you mean 'tensor'?)" in text, output
    assert f"→ correct {own}/typo.yml" in text, output


def test_one_profile_is_shown_whole(own):
    code, output, text = ansible("playbook", str(ROOT / "playbooks" / "profiles.yml"), cwd=own.parent, gb10_profile="./mine/small.yml")
    assert code == 0, output
    assert "served_names: - org/small" in text
    assert "Profiles: " in text


def test_a_relative_path_and_a_switch_reach_the_lookup(own):
    expression = "{{ lookup('gb10.cluster.profile', 'small', directories=['mine'], switches=['eager'])['serve'] }}"
    code, output, text = ansible("adhoc", "localhost", "-m", "ansible.builtin.debug", "-a", f'msg="{expression}"', cwd=own.parent)
    assert code == 0, output
    assert '"enforce_eager": true' in text or "enforce_eager: true" in text, output
