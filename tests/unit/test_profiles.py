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
#: The list, by its playbook and tag.
LIST = (str(ROOT / "playbooks" / "plan.yml"), "--tags", "profiles")
SMALL = {
    "schema": 1,
    "id": "small",
    "model": {"repo": "org/small"},
    "image": {"base": "registry.example/vllm:1", "layers": []},
    "parallel": {"tensor": 2},
    "switches": {"eager": {"description": "No CUDA graphs.", "serve": {"enforce_eager": True}}},
}


def ansible(program, *arguments, cwd, env=None, **variables):
    """Run Ansible, without an inventory unless one is given; returns its exit code, its output, and the same on one line."""
    done = through_ansible.run(program, *arguments, "--extra-vars", json.dumps(variables), cwd=cwd, env=env)
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
    code, output, text = ansible("playbook", *LIST, cwd=tmp_path)
    assert code == 0, output
    for path in (ROOT / "playbooks" / "profiles").glob("*.yml"):
        assert path.stem in text
    assert "2 x 128 GB" in text and "enforce_eager" not in text


def test_a_file_that_is_no_profile_hides_nothing_and_fails_the_play(own):
    code, output, text = ansible("playbook", *LIST, cwd=own.parent, gb10_profile_dirs=["mine"])
    assert code != 0
    assert "small " in text, output
    assert "parallel.tensr: is not a known field (did you mean 'tensor'?)" in text, output
    assert f"→ correct {own}/typo.yml" in text, output


def test_one_profile_is_shown_whole(own):
    code, output, text = ansible("playbook", *LIST, cwd=own.parent, gb10_profile="./mine/small.yml")
    assert code == 0, output
    assert "served_names: - org/small" in text and "registry.example/vllm:1, as it is" in text
    assert "Profiles: 1 pass" in text


def test_a_relative_path_and_a_switch_reach_the_lookup(own):
    expression = "{{ lookup('gb10.cluster.profile', 'small', directories=['mine'], switches=['eager'])['serve'] }}"
    code, output, text = ansible("adhoc", "localhost", "-m", "ansible.builtin.debug", "-a", f'msg="{expression}"', cwd=own.parent)
    assert code == 0, output
    assert '"enforce_eager": true' in text or "enforce_eager: true" in text, output


# --- an inventory with nodes --------------------------------------------------------------------------------------------------

#: Runs what it is given as the same user, as a person's sudo would as root.
SUDO = """#!/usr/bin/env bash
while [ $# -gt 0 ]; do case $1 in -H|-S|-n) shift;; -u|-p) shift 2;; *) break;; esac; done
exec "$@"
"""


@pytest.fixture
def pair(tmp_path):
    """An inventory of this machine, and of an unreachable one. Returns the arguments that choose it."""
    sudo = tmp_path / "sudo"
    sudo.write_text(SUDO, encoding="utf-8")
    sudo.chmod(0o755)
    shared = {"gb10_hf_home": str(tmp_path / "hf"), "ansible_become_exe": str(sudo)}
    here = {"ansible_connection": "local", **shared}
    gone = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_ssh_timeout": 2, **shared}
    hosts = {"gb10_head": {"hosts": {"spark-1": here}}, "gb10_workers": {"hosts": {"spark-2": gone}}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"gb10_cluster": {"children": hosts}}), encoding="utf-8")
    return ("-i", "hosts.yml", *LIST)


SAME_USER = {"ANSIBLE_BECOME_ALLOW_SAME_USER": "true"}
#: Keeps it off the nodes of an inventory that ansible.cfg names.
NO_CLUSTER = ("-i", "localhost,")


def test_nodes_are_asked_and_one_that_is_gone_hides_nothing(own, pair):
    single = {**SMALL, "id": "one", "parallel": {"tensor": 1}, "model": {"repo": "org/small", "size_gb": 0.000001}}
    huge = {**single, "id": "huge", "model": {"repo": "org/huge", "size_gb": 1e9}}
    for wanted in (single, huge):
        (own / f"{wanted['id']}.yml").write_text(yaml.safe_dump(wanted), encoding="utf-8")
    (own / "typo.yml").unlink()
    settings = {"gb10_profile_dirs": ["mine"], "gb10_to": "profiles.json"}
    code, output, text = ansible("playbook", *pair, cwd=own.parent, env=SAME_USER, **settings)
    assert code == 0, output
    assert "spark-2 was not checked" in text, output
    record = json.loads((own.parent / "profiles.json").read_text(encoding="utf-8"))
    fits = {row["id"]: row["cluster"] for row in record["profiles"]}
    assert {id: fits[id]["fits"] for id in ("one", "huge", "small")} == {"one": "in part", "huge": "unknown", "small": "unknown"}
    assert record["nodes"]["spark-1"]["answered"] and not record["nodes"]["spark-2"]["answered"]
    assert fits["one"]["to_fetch"] == {"spark-1": {"org/small": 0.0}}
    code, output, text = ansible("playbook", *NO_CLUSTER, *LIST, cwd=own.parent, env=SAME_USER, **settings)
    assert code != 0 and "profiles.json exists on the controller, and is not replaced" in text, output


def test_an_inventory_without_the_cluster_asks_no_node(own, pair):
    code, output, text = ansible("playbook", *NO_CLUSTER, *LIST, cwd=own.parent, env=SAME_USER, gb10_to="new.json")
    assert code == 0 and "No node was asked what fits it" in text and "[spark-1" not in text, output
    assert json.loads((own.parent / "new.json").read_text(encoding="utf-8"))["nodes"] == {}


def test_check_mode_writes_no_file(own, pair):
    code, output, _text = ansible("playbook", *NO_CLUSTER, *LIST, "--check", cwd=own.parent, env=SAME_USER, gb10_to="new.json")
    assert code == 0 and not (own.parent / "new.json").exists(), output
