# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role init from what nodes answered to files on the controller, through Ansible itself. The answers are composed, nothing is contacted."""

from __future__ import annotations

import json
import sys
import typing as t
from pathlib import Path

import pytest
import through_ansible
import yaml

ROOT = Path(__file__).resolve().parents[2]
HEALTHY = (ROOT / "tests" / "unit" / "fixtures" / "node_info" / "healthy.json").read_text(encoding="utf-8")
FILES = ["group_vars/gb10_cluster/settings.yml", "hosts.yml"]

BOOK = [
    {
        "hosts": "all",
        "gather_facts": False,
        "tasks": [
            {"name": "Have the settings", "ansible.builtin.include_role": {"name": "gb10.cluster.gb10", "public": True, "rolespec_validate": False}},
            {
                "name": "Answer as the nodes would, and write",
                "ansible.builtin.include_role": {"name": "gb10.cluster.init", "tasks_from": "plan"},
                "vars": {
                    "__init_info": "{{ lookup('ansible.builtin.file', answers + '/' + inventory_hostname + '.json') | from_json }}",
                    "__init_refused": "{{ refused | default('') }}",
                    "__init_reached": "10.0.0.1{{ '12'[groups['all'].index(inventory_hostname)] }}",
                },
            }
        ],
    }
]


def run(*arguments: str, cwd: Path, **variables: t.Any) -> tuple[int, str]:
    """Run a playbook in a directory of the user's; returns its exit code and its output."""
    environment = {"ANSIBLE_BECOME_ALLOW_SAME_USER": "true"}
    done = through_ansible.run("playbook", *arguments, "--extra-vars", json.dumps(variables), cwd=cwd, env=environment)
    return done.rc, done.out


class Nodes:
    """Two hosts that are only names, and what they answer."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.directory = place / "gb10-inventory"
        other = HEALTHY.replace("192.168.100.11", "192.168.100.12").replace("192.168.101.11", "192.168.101.12").replace("10.0.0.11", "10.0.0.12")
        self.answers = {"spark1": json.loads(HEALTHY), "spark2": json.loads(other)}

    def link_of(self, node: str, netdev: str) -> list[dict[str, t.Any]]:
        """The entries of an interface in an answer."""
        info = self.answers[node]
        return [entry for entry in info["fabric"] if entry["netdev"] == netdev] + [entry for entry in info["interfaces"] if entry["name"] == netdev]

    def init(self, *arguments: str, **variables: t.Any) -> tuple[int, str]:
        for name, answer in self.answers.items():
            (self.place / f"{name}.json").write_text(json.dumps(answer), encoding="utf-8")
        (self.place / "book.yml").write_text(yaml.safe_dump(BOOK), encoding="utf-8")
        names = f"{','.join(self.answers)},"
        return run(str(self.place / "book.yml"), "-i", names, "-u", "nvidia", *arguments, cwd=self.place, answers=str(self.place), **variables)

    def written(self) -> list[str]:
        return sorted(str(path.relative_to(self.directory)) for path in self.directory.rglob("*") if path.is_file())


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path)


def judged(directory: Path, cwd: Path) -> tuple[int, str]:
    """Run the first stage of the main playbook, which contacts no node, on a written inventory."""
    return run(str(ROOT / "playbooks" / "serve.yml"), "-i", str(directory), "--tags", "validate", cwd=cwd)


def test_two_names_become_an_inventory_that_the_collection_accepts_and_a_second_run_changes_nothing(nodes: Nodes) -> None:
    code, output = nodes.init()
    assert code == 0, output
    assert "Next: ansible-playbook -i ./gb10-inventory gb10.cluster.doctor" in output
    assert nodes.written() == FILES
    cluster = yaml.safe_load((nodes.directory / "hosts.yml").read_text(encoding="utf-8"))["gb10_cluster"]
    assert cluster["vars"] == {"ansible_user": "nvidia", "ansible_python_interpreter": "/usr/bin/python3"}
    assert cluster["children"] == {
        "gb10_head": {"hosts": {"spark1": {"gb10_fabric_address": "192.168.100.11", "gb10_total_mb": 124610}}},
        "gb10_workers": {"hosts": {"spark2": {"gb10_fabric_address": "192.168.100.12", "gb10_total_mb": 124610}}},
    }
    code, output = judged(nodes.directory, nodes.place)
    assert code == 0, output
    assert "Inputs: 1 pass" in output
    before = {path: path.stat().st_mtime_ns for path in nodes.directory.rglob("*")}
    code, output = nodes.init()
    assert code == 0, output
    assert "changed=0" in output and "changed=1" not in output
    assert "all is there already" in output
    assert {path: path.stat().st_mtime_ns for path in nodes.directory.rglob("*")} == before


def test_an_unknown_profile_is_refused(nodes: Nodes) -> None:
    code, output = nodes.init(gb10_profile="no_such_thing")
    assert code != 0
    assert "unknown profile 'no_such_thing'" in output
    assert not nodes.directory.exists()


def test_check_mode_shows_all_and_writes_nothing(nodes: Nodes) -> None:
    code, output = nodes.init("--check", "--diff")
    assert code == 0, output
    assert "+          gb10_fabric_address: 192.168.100.12" in output
    assert "nothing is written in check mode" in output
    assert not nodes.directory.exists()


def test_a_foreign_file_is_named_and_the_inventory_is_written_elsewhere(nodes: Nodes) -> None:
    nodes.directory.mkdir()
    (nodes.directory / "hosts.yml").write_text("mine: {}\n", encoding="utf-8")
    code, output = nodes.init()
    assert code != 0
    assert "hosts.yml: there already, with another text" in output
    assert "-e gb10_to=DIRECTORY" in output
    assert nodes.written() == ["hosts.yml"]
    assert (nodes.directory / "hosts.yml").read_text(encoding="utf-8") == "mine: {}\n"
    code, output = nodes.init(gb10_profile="qwen3_5_122b_fp8_tp2", gb10_head_host="spark2", gb10_to="mine/one")
    assert code == 0, output
    assert "Next: ansible-playbook -i mine/one gb10.cluster.doctor" in output
    text = (nodes.place / "mine/one/hosts.yml").read_text(encoding="utf-8")
    assert list(yaml.safe_load(text)["gb10_cluster"]["children"]["gb10_head"]["hosts"]) == ["spark2"]
    assert "\ngb10_profile: qwen3_5_122b_fp8_tp2\n" in (nodes.place / "mine/one/group_vars/gb10_cluster/settings.yml").read_text(encoding="utf-8")
    code, output = judged(nodes.place / "mine" / "one", nodes.place)
    assert code == 0, output


def test_missing_addresses_stop_with_the_text_to_type(nodes: Nodes) -> None:
    for name in nodes.answers:
        for netdev in ("enp1s0f0np0", "enP2p1s0f0np0"):
            for entry in nodes.link_of(name, netdev):
                held = {"family": "ipv4", "address": f"169.254.{len(netdev)}.{name[-1]}7", "prefix": 16, "network": "169.254.0.0/16", "scope": "link"}
                entry["networks"], entry["addresses"] = [held], [held["address"]]
    code, output = nodes.init()
    assert code != 0
    assert "change at every boot" in output
    assert nodes.written() == ["netplan.md"]
    text = (nodes.directory / "netplan.md").read_text(encoding="utf-8")
    assert "192.168.100.11/24" in text and "192.168.101.12/24" in text
    assert "# spark2\nnetwork:\n  version: 2\n  ethernets:\n    enp1s0f0np0:\n" in output


def test_a_refused_sudo_is_reported_and_asked_for_next_time(nodes: Nodes) -> None:
    nodes.answers["spark1"]["errors"] = [{"section": "models", "verdict": "unknown", "error": "/home/a may not be read", "remedy": "use become"}]
    nodes.answers["spark1"]["models"] = []
    code, output = nodes.init(refused="sudo: a password is required\n")
    assert code == 0, output
    assert "looked without sudo, which was refused (sudo: a password is required)." in output
    assert "could not see models: /home/a may not be read" in output
    assert "gb10.cluster.doctor --ask-become-pass" in output


def test_text_from_a_node_is_never_evaluated(nodes: Nodes) -> None:
    """The owner of a node must not run code on the controller, neither now nor when the inventory is read."""
    trap = "{{ lookup('ansible.builtin.pipe', 'touch " + str(nodes.place / "trapped") + "') }}"
    for answer in nodes.answers.values():
        answer["gpus"][0]["name"] = f"{trap}\n- evil: 1"
        answer["models"] = [
            {**answer["models"][0], "path": f"/{trap}/hub/models--a--b/snapshots/1"},
            {**answer["models"][0], "repo": trap, "path": "/models\nevil: 1/hub/models--a--b/snapshots/1"},
        ]
        answer["environment"] = [{"where": f"x\n{trap}", "name": "HF_HOME", "value": trap}, {"where": f"x\n{trap}", "name": "HF_HOME", "value": "/data/hf"}]
        answer["fabric"][1]["device"] = trap
    code, output = nodes.init()
    assert code == 0, output
    code, output = judged(nodes.directory, nodes.place)
    assert code == 0, output
    assert not (nodes.place / "trapped").exists()
    settings = yaml.safe_load((nodes.directory / "group_vars/gb10_cluster/settings.yml").read_text(encoding="utf-8"))
    assert settings["gb10_hf_home"] == "/data/hf" and "evil" not in settings


# --- the playbook itself, on this machine -------------------------------------------------------------------------------------

INTERPRETER = {"ansible_python_interpreter": sys.executable}
PLAYBOOK = str(ROOT / "playbooks" / "init.yml")


def test_the_playbook_refuses_to_look_at_nothing(tmp_path: Path) -> None:
    code, output = run(PLAYBOOK, cwd=tmp_path)
    assert code != 0
    assert "No host was named" in output


def test_the_playbook_looks_once_and_falls_back_to_no_sudo(tmp_path: Path) -> None:
    """One machine under two names, and a sudo that refuses: nothing may be written."""
    sudo = tmp_path / "sudo"
    sudo.write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n", encoding="utf-8")
    sudo.chmod(0o755)
    code, output = run(
        PLAYBOOK, "-i", "one,two,", "-c", "local",
        cwd=tmp_path, ansible_become_exe=str(sudo), gb10_fabric_fallback="tcp", __init_model_roots=[], **INTERPRETER,
    )
    assert code != 0
    assert "looked without sudo, which was refused" in output
    assert "rescued=1" in output
    assert not (tmp_path / "gb10-inventory").exists()


def test_a_host_that_cannot_be_reached_is_named_among_the_others(tmp_path: Path) -> None:
    (tmp_path / "names").write_text("one ansible_connection=local\ntwo ansible_host=127.0.0.1 ansible_port=1\n", encoding="utf-8")
    code, output = run(PLAYBOOK, "-i", "names", cwd=tmp_path, __init_model_roots=[], **INTERPRETER)
    assert code != 0
    assert "Found: 1 block" in output and "two  could not be looked at: it does not answer over ssh (port 1: Connection refused)." in output
    assert "UNREACHABLE" not in output


def test_where_no_host_can_be_reached_it_is_one_table_and_a_failure(tmp_path: Path) -> None:
    code, output = run(PLAYBOOK, "-i", "one.invalid,two.invalid,", cwd=tmp_path, __init_model_roots=[], **INTERPRETER)
    assert code == 2 and "UNREACHABLE" not in output
    assert output.count("the node could not be looked at: its name has no address.") == 1 and "Nodes: 2 block" in output
    assert not (tmp_path / "gb10-inventory").exists()
