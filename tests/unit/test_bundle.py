# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook bundle on this machine: what it refuses before any host is touched, and what it reports about an existing bundle."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import docker_store
import pytest
import through_ansible
import yaml

from ansible_collections.gb10.cluster.plugins.module_utils._bundle import content

ROOT = Path(__file__).resolve().parents[2]

#: Runs what it is given as the same user, as a person's sudo would as root.
SUDO = """#!/usr/bin/env bash
while [ $# -gt 0 ]; do case $1 in -H|-S|-n) shift;; -u|-p) shift 2;; *) break;; esac; done
exec "$@"
"""


class Machine:
    """A head alone: this machine."""

    def __init__(self, place: Path) -> None:
        self.place = place
        sudo = place / "sudo"
        sudo.write_text(SUDO, encoding="utf-8")
        sudo.chmod(0o755)
        settings = {
            "gb10_fabric_address": "192.168.100.1",
            "gb10_fabric_interfaces": ["eth1"],
            "gb10_hf_home": str(place / "hf"),
            **{f"gb10_{name}_dir": str(place / name) for name in ("state", "log", "secrets")},
            "gb10_profile_dirs": [str(ROOT / "tests" / "lab" / "profiles")],
            "gb10_profile": "lab_tiny_one",
            "ansible_become_exe": str(sudo),
        }
        head = {"hosts": {"spark-1": {"ansible_connection": "local", **settings}}}
        inventory = {"all": {"children": {"gb10_cluster": {"children": {"gb10_head": head}}}}}
        (place / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")

    def bundle(self) -> Path:
        """Write a bundle, and return a file of it."""
        place, text = self.place / "bundle", b"id: lab_tiny_one\n"
        path, image = place / "profile/lab_tiny_one.yml", {"tag": "gb10/engine:ray", "archive": "image/0.tar", "store": "classic"}
        made = {"made_by": "gb10.cluster 0.2.0", "made_at": "then"}
        about = {"format": content.FORMAT, "profile": "lab_tiny_one", **made, "image": image, "models": [], "wheels": []}
        config = b'{"rootfs": {"diff_ids": []}}'
        listed = json.dumps([{"Config": "8.json", "RepoTags": ["gb10/engine:ray"], "Layers": []}]).encode()
        archive = docker_store.tar_of({"8.json": config, "manifest.json": listed})
        files = {"profile/lab_tiny_one.yml": text, "bundle.json": content.text_of(about), "image/0.tar": archive}
        for name, data in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(data)
        (place / "SHA256SUMS").write_bytes(content.sums_text({name: content.sha256_of(data) for name, data in files.items()}))
        self.config = content.sha256_of(config)
        return path

    def play(self, **variables: t.Any) -> through_ansible.Ran:
        playbook, environment = str(ROOT / "playbooks" / "bundle.yml"), {"ANSIBLE_BECOME_ALLOW_SAME_USER": "true"}
        return through_ansible.run("playbook", playbook, "-i", "hosts.yml", "-e", json.dumps(variables), cwd=self.place, env=environment)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, "gb10_bundle_dir is ''"),
        ({"gb10_bundle_dir": "spark-9:/mnt/ssd"}, "gb10_bundle_dir is 'spark-9:/mnt/ssd'; expected a directory on one of spark-1"),
        ({"gb10_bundle_dir": "ssd"}, "gb10_bundle_dir: is 'ssd'; expected an absolute path"),
        ({"gb10_bundle_dir": "/mnt/ssd", "gb10_bundle_signers": "signers"}, "gb10_bundle_signers: is 'signers'; expected an absolute path"),
        ({"gb10_bundle_dir": "/mnt/ssd", "gb10_bundle": "send"}, "gb10_bundle: is 'send'; expected export or export_without_packages or import or verify"),
    ],
)
def test_what_is_missing_is_said_before_any_host_is_touched(machine: Machine, variables: dict[str, t.Any], words: str) -> None:
    ran = machine.play(**variables)
    assert ran.rc != 0 and words in " ".join(ran.out.split()), ran.out
    assert not (machine.place / "state").exists()


def test_a_bundle_is_read_and_a_flipped_byte_named(machine: Machine) -> None:
    path = machine.bundle()
    ran = machine.play(gb10_bundle_dir=str(machine.place / "bundle"))
    assert ran.rc == 0 and "all 3 file(s) of" in ran.out and f"image gb10/engine:ray (sha256:{machine.config[:12]})" in ran.out, ran.out
    signers = machine.place / "signers"
    signers.write_text("maker@example.org ssh-ed25519 AAAA\n", encoding="utf-8")
    ran = machine.play(gb10_bundle_dir=str(machine.place / "bundle"), gb10_bundle_signers=str(signers))
    assert ran.rc != 0 and "is not signed: it has no SHA256SUMS.sig" in " ".join(ran.out.split()), ran.out
    path.write_bytes(b"id: lab_tiny_onf\n")
    ran = machine.play(gb10_bundle_dir=str(machine.place / "bundle"))
    assert ran.rc != 0 and "differ from the export: profile/lab_tiny_one.yml" in " ".join(ran.out.split()), ran.out
