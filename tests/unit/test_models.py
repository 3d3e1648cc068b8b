# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook models on this machine, with a made cache and the processes of a made node."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
import stack_tree
import through_ansible
import yaml

ROOT = Path(__file__).resolve().parents[2]
COMMIT, OTHER = "0123456789abcdef" * 2 + "01234567", "f" * 40

#: Runs what it is given as the same user, as a person's sudo would as root.
SUDO = """#!/usr/bin/env bash
while [ $# -gt 0 ]; do case $1 in -H|-S|-n) shift;; -u|-p) shift 2;; *) break;; esac; done
exec "$@"
"""


class Machine:
    """A head alone: this machine, seen through made directories."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.tree = stack_tree.Tree(place / "proc")
        self.sudo = place / "sudo"
        self.sudo.write_text(SUDO, encoding="utf-8")
        self.sudo.chmod(0o755)
        settings = {
            "gb10_fabric_address": "192.168.100.1",
            "gb10_fabric_interfaces": ["eth1"],
            "gb10_hf_home": str(place / "hf"),
            **{f"gb10_{name}_dir": str(place / name) for name in ("state", "log", "secrets")},
            "gb10_node_roots": {"proc_root": str(place / "proc")},
            "gb10_profile_dirs": [str(ROOT / "tests" / "lab" / "profiles")],
            "gb10_profile": "lab_tiny_one",
            "ansible_become_exe": str(self.sudo),
        }
        head = {"hosts": {"spark-1": {"ansible_connection": "local", **settings}}}
        inventory = {"all": {"children": {"gb10_cluster": {"children": {"gb10_head": head}}}}}
        (place / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")

    def revision(self, repo: str, commit: str, content: str) -> Path:
        """Put a revision into the cache that shares a file with every other one of its repository."""
        base = self.place / "hf/hub" / f"models--{repo.replace('/', '--')}"
        snapshot = base / "snapshots" / commit
        (base / "blobs").mkdir(parents=True, exist_ok=True)
        snapshot.mkdir(parents=True)
        for name, blob, text in (("config.json", f"config-{commit}", content), ("weights.gguf", "weights", "shared")):
            (base / "blobs" / blob).write_text(text)
            (snapshot / name).symlink_to(f"../../blobs/{blob}")
        return snapshot

    def play(self, *arguments: str, **variables: t.Any) -> through_ansible.Ran:
        playbook = str(ROOT / "playbooks" / "models.yml")
        environment = {"ANSIBLE_BECOME_ALLOW_SAME_USER": "true"}
        extra = json.dumps(variables)
        return through_ansible.run("playbook", playbook, "-i", "hosts.yml", *arguments, "-e", extra, cwd=self.place, env=environment)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_what_is_named_goes_and_the_list_says_what_could(machine: Machine) -> None:
    old, new = machine.revision("org/name", COMMIT, "{}"), machine.revision("org/name", OTHER, "{ }")
    request = f"org/name@{COMMIT}"
    removed = machine.play("-e", "gb10_to=list.json", gb10_models_remove=request)
    assert removed.rc == 0 and "changed=1" in removed.out, removed.out
    assert not old.exists() and (new / "weights.gguf").read_text() == "shared" and f"{request} frees" in removed.out
    content = json.loads((machine.place / "list.json").read_text(encoding="utf-8"))
    assert {row["request"] for row in content["models"]} == {request, f"org/name@{OTHER}"}

    again = machine.play("-e", "gb10_to=list.json", gb10_models_remove=request)
    assert again.rc != 0 and "list.json exists on the controller, and is not replaced" in again.out, again.out
    again = machine.play(gb10_models_remove=request)
    assert again.rc == 0 and "changed=0" in again.out and "changed=1" not in again.out and f"{request} is on no node" in again.out, again.out
    assert not (machine.place / "state/gb10/lock.json").exists()


def test_what_is_served_stays_and_with_it_all_that_was_asked_for(machine: Machine) -> None:
    old, served = machine.revision("org/name", COMMIT, "{}"), machine.revision("org/served", COMMIT, "{}")
    machine.tree.process(10, 1, ["vllm", "serve", "org/served"])
    ran = machine.play(gb10_models_remove=f"org/name@{COMMIT}, org/served@{COMMIT}")
    assert ran.rc != 0 and "models.in_use" in ran.out and "vllm serve org/served (pid 10)" in ran.out, ran.out
    assert old.exists() and served.exists() and not (machine.place / "state/gb10/lock.json").exists()


def test_the_directory_that_an_own_profile_names_is_listed_and_keeps_what_it_leads_to(machine: Machine) -> None:
    profiles = machine.place / "profiles"
    profiles.mkdir()
    old = machine.revision("org/name", COMMIT, "{}")
    for name, path in (("of_cache", old), ("of_none", machine.place / "none")):
        raw = {"schema": 1, "id": name, "model": {"path": str(path)}, "image": {"base": "x:1", "layers": []}, "parallel": {"tensor": 1}}
        (profiles / f"{name}.yml").write_text(yaml.safe_dump(raw), encoding="utf-8")
    directories = [str(ROOT / "tests" / "lab" / "profiles"), str(profiles)]
    ran = machine.play("-e", "gb10_to=list.json", gb10_profile_dirs=directories)
    assert ran.rc == 0 and "missing for profile of_none" in ran.out, ran.out
    (row,) = json.loads((machine.place / "list.json").read_text(encoding="utf-8"))["models"]
    assert row["wanted_by"] == ["of_cache"] and row["state"].startswith("wanted by its path: of_cache")
    refused = machine.play(gb10_profile_dirs=directories, gb10_models_remove=f"org/name@{COMMIT}")
    assert refused.rc != 0 and "models.in_use" in refused.out and old.exists(), refused.out


def test_a_request_without_a_whole_commit_reaches_no_node(machine: Machine) -> None:
    ran = machine.play(gb10_models_remove="org/name@main")
    assert ran.rc != 0 and "gb10_models_remove: is 'org/name@main'" in ran.out and "copy it from the list" in ran.out, ran.out
    assert not (machine.place / "state").exists()
