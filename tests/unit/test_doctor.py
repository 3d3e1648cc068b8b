# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook doctor by its full name, without an inventory file, on the proc trees of two recorded nodes and on nodes that cannot be reached."""

from __future__ import annotations

import json
import sys
import typing as t
from pathlib import Path

import jsonschema
import pytest
import stack_tree
import through_ansible
import yaml

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "plugins" / "plugin_utils" / "_rules" / "preflight.schema.json").read_text(encoding="utf-8"))
HEALTHY_SMI = ROOT / "tests" / "unit" / "fixtures" / "nvidia_smi" / "composed_gb10_idle.xml"

#: The directories that the modules read instead of the machine's. Only a separate play can set them.
DEFAULTS = [
    {"gb10.cluster.node_info": {"nft": "/nonexistent", "docker_socket": "/nonexistent.sock", "state_dir": "{{ tree }}/state"}},
    {"gb10.cluster.stack_info": {"docker_socket": "/nonexistent.sock"}},
]
ROOTS = {
    "proc_root": "{{ tree }}/proc",
    "sysfs_root": "{{ tree }}/sys",
    "etc_root": "{{ tree }}/etc",
    "modules_root": "{{ tree }}/none",
    "boot_root": "{{ tree }}/none",
    "kernel_log": "{{ tree }}/kernel.log",
    "nvidia_smi": "{{ tree }}/nvidia-smi",
}
BOOK = [{"hosts": "all", "gather_facts": False, "module_defaults": DEFAULTS, "vars": {"gb10_node_roots": ROOTS}, "roles": ["gb10.cluster.doctor"]}]


class Doctor:
    """Plays it on this machine, with a home of its own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.record = place / ".cache" / "gb10" / "doctor.json"

    def node(self, name: str, recording: dict[str, t.Any] | None = None) -> str:
        """Make the trees of a node; return their directory."""
        tree = self.place / name
        proc = stack_tree.Tree(tree / "proc")
        if recording:
            proc.replay(recording)
        for directory in ("etc", "sys/class/net", "state", "none"):
            (tree / directory).mkdir(parents=True)
        (tree / "kernel.log").write_text("[    0.000000] Linux version 6.17.0-1032-nvidia\n")
        (tree / "nvidia-smi").write_text(f"#!/bin/sh\ncat {HEALTHY_SMI}\n")
        (tree / "nvidia-smi").chmod(0o755)
        return str(tree)

    def play(self, *arguments: str, **variables: t.Any) -> tuple[int, str]:
        (self.place / "ansible.cfg").touch()
        environment = {"HOME": str(self.place), "ANSIBLE_CONFIG": str(self.place / "ansible.cfg"), "ANSIBLE_SHOW_CUSTOM_STATS": "true"}
        mine = {"ansible_python_interpreter": sys.executable, "__doctor_sample_s": 0.1, "__doctor_probe_timeout": 1, "gb10_become": False, **variables}
        done = through_ansible.run("playbook", *arguments, "-e", json.dumps(mine), cwd=self.place, env=environment)
        return done.rc, done.out

    def trees(self, hosts: dict[str, str], *arguments: str, **variables: t.Any) -> tuple[int, str]:
        """Play it on proc trees."""
        inventory = {"all": {"hosts": {name: {"tree": tree, "ansible_connection": "local"} for name, tree in hosts.items()}}}
        (self.place / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
        (self.place / "book.yml").write_text(yaml.safe_dump(BOOK, sort_keys=False), encoding="utf-8")
        return self.play("-i", "hosts.yml", "book.yml", *arguments, doctor_probe="none", **variables)

    def written(self) -> dict[str, t.Any]:
        record = json.loads(self.record.read_text(encoding="utf-8"))
        jsonschema.validate(record, SCHEMA)
        return record


@pytest.fixture
def doctor(tmp_path: Path) -> Doctor:
    return Doctor(tmp_path)


def verdicts(record: dict[str, t.Any], *ids: str) -> set[tuple[str, str, str]]:
    return {(finding["id"], finding["node"], finding["verdict"]) for finding in record["findings"] if finding["id"] in ids}


def test_an_engine_that_was_started_with_differing_variables_is_found(doctor: Doctor) -> None:
    first, second = (stack_tree.recorded(f"ray_tp2_spark-{number}") for number in (1, 2))
    rank = next(process for process in second["processes"] if process["argv"][0].startswith("ray::RayWorker"))
    rank["env"]["VLLM_NVFP4_GEMM_BACKEND"] = "marlin"
    code, output = doctor.trees({"spark-1": doctor.node("a", first), "spark-2": doctor.node("b", second)})
    assert code == 0, output
    assert "changed=0" in output and "changed=1" not in output and "failed=0" in output
    record = doctor.written()
    assert verdicts(record, "stack.env_same") == {("stack.env_same", "cluster", "block")}
    finding = next(finding for finding in record["findings"] if finding["id"] == "stack.env_same")
    assert "VLLM_NVFP4_GEMM_BACKEND differs" in finding["message"] and "spark-1 (not set), spark-2 marlin" in finding["message"]
    assert "spark-1: vllm api_server, vllm serve (pid 381)" in output and "VLLM_NVFP4_GEMM_BACKEND differs" in output
    assert "gb10_doctor" in output


def test_the_recorded_stack_has_nothing_against_itself(doctor: Doctor) -> None:
    first, second = (stack_tree.recorded(f"ray_tp2_spark-{number}") for number in (1, 2))
    code, output = doctor.trees({"spark-1": doctor.node("a", first), "spark-2": doctor.node("b", second)})
    assert code == 0, output
    record = doctor.written()
    mine = [finding for finding in record["findings"] if finding["id"].startswith(("stack.", "ray."))]
    assert {finding["id"] for finding in mine if "is unknown, since" not in finding["message"]} == set()
    # Docker does not answer here, and no API was probed: both are reported.
    assert {finding["id"] for finding in record["findings"] if finding["id"].startswith("stack.")} == {"stack.image_same", "stack.api_answers", "stack.alone"}


def test_nodes_without_a_stack(doctor: Doctor) -> None:
    code, output = doctor.trees({"spark-1": doctor.node("a")})
    assert code == 0, output
    assert doctor.written()["found"] == ["spark-1: no engine and no Ray runs"]


def test_it_fails_only_when_asked(doctor: Doctor) -> None:
    tree = doctor.node("a")
    (Path(tree) / "kernel.log").write_text("[    0.000000] Linux version 6\n[    1.0] NVRM: Xid (PCI:000f:01:00): 79, pid=1, GPU has fallen off the bus.\n")
    assert doctor.trees({"spark-1": tree})[0] == 0
    assert ("log.xid_fatal", "spark-1", "block") in verdicts(doctor.written(), "log.xid_fatal")
    code, output = doctor.trees({"spark-1": tree}, gb10_fail_on="block")
    assert code != 0 and "fallen off the bus" in output
    (Path(tree) / "kernel.log").write_text("[    0.000000] Linux version 6\n")
    assert doctor.trees({"spark-1": tree}, gb10_fail_on="warn")[0] != 0


def test_a_node_that_cannot_be_reached_is_reported_and_the_other_judged(doctor: Doctor) -> None:
    """By the playbook's full name, with host names alone: one is this machine, the other has no ssh."""
    code, output = doctor.play(
        "gb10.cluster.doctor", "-i", "localhost,127.0.0.1,", "--ssh-common-args", "-o BatchMode=yes -o ConnectTimeout=2 -p 1", doctor_probe="none",
        ansible_connection="{{ 'local' if inventory_hostname == 'localhost' else 'ssh' }}",
    )  # fmt: skip
    assert code == 0, output
    record = doctor.written()
    assert record["nodes"] == ["localhost", "127.0.0.1"]
    assert verdicts(record, "node.answers") == {("node.answers", "127.0.0.1", "block")}
    assert "127.0.0.1: could not be looked at" in record["found"] and any(line.startswith("localhost: ") for line in record["found"])
    assert record["matrix"]["clock.synchronized"]["127.0.0.1"] == "not_judged" and record["matrix"]["clock.synchronized"]["localhost"] != "not_judged"


def test_a_node_without_root_is_reported(doctor: Doctor) -> None:
    code, output = doctor.trees(
        {"spark-1": doctor.node("a")}, gb10_become=True, ansible_become_user="nobody", ansible_become_exe="/nonexistent/sudo",
        ansible_become_method="ansible.builtin.sudo",
    )  # fmt: skip
    assert code == 2, output
    (finding,) = [finding for finding in doctor.written()["findings"] if finding["id"] == "node.answers"]
    assert "gb10_become=false" in finding["remedy"]
