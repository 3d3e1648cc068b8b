# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The answers of node_info and cuda_zombie_check on recorded machines, with the driver's answer and the processes of each situation restored.

Every directory ``fixtures/gpu_situations*`` is one machine, as tests/tools/record_gpu.py records it. A new one is tested by being there.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import types
import typing as t

import pytest
import through_ansible
import yaml
from node_roots import rooted

from ansible_collections.gb10.cluster.plugins.doc_fragments import _look
from ansible_collections.gb10.cluster.plugins.modules import cuda_zombie_check, node_info

ROOT = pathlib.Path(__file__).resolve().parents[2]
MACHINES = sorted((ROOT / "tests/unit/fixtures").glob("gpu_situations*"))

#: Situation → class of the process that holds GPU memory (None: the driver lists nothing), and the verdict of cuda_zombie_check.
EXPECTED: dict[str, tuple[str | None, str]] = {
    "idle": (None, "pass"),
    "live": ("live", "pass"),
    "pidns": ("live", "pass"),
    "pinned": ("live", "pass"),
    "managed": ("live", "pass"),
    "defunct_at_once": ("defunct", "warn"),
    "defunct": (None, "pass"),
    "orphan_before": ("live", "pass"),
    "orphan": ("orphan", "block"),
    "orphan_ended": (None, "pass"),
}
CASES = [pytest.param(machine, name, id=f"{machine.name}-{name}") for machine in MACHINES for name in EXPECTED if (machine / name / "smi.xml").exists()]


class Again:
    """A recorded situation, restored: a tool that prints the recorded output, and the processes with their ancestors."""

    def __init__(self, root: pathlib.Path, folder: pathlib.Path) -> None:
        self.root, self.proc, self.tool = root, root / "proc", root / "nvidia-smi"
        (self.proc / "sys/kernel/random").mkdir(parents=True)
        (self.proc / "sys/kernel/random/boot_id").write_text("00000000-0000-0000-0000-000000000000\n")
        (self.proc / "stat").write_text("btime 1790000000\n")
        shutil.copy(folder / "meminfo", self.proc / "meminfo")
        shutil.copy(folder.parent / "idle/vmstat", self.proc / "vmstat")
        (self.proc / "pressure").mkdir()
        shutil.copy(folder.parent / "idle/pressure_memory", self.proc / "pressure/memory")
        (self.proc / "sys/vm").mkdir()
        (self.proc / "sys/vm/swappiness").write_text("60\n")
        (self.proc / "self/ns").mkdir(parents=True)
        (self.proc / "self/ns/pid").symlink_to(json.loads((folder.parent / "machine.json").read_text())["pid_namespace"])
        (root / "kernel.log").write_text("[    0.000000] Linux version 6.18.44 (builder@x)\n")
        answers = {"-q": "smi.xml", "--query-compute-apps*": "compute_apps.csv", "--query-gpu*": "gpu.csv"}
        cases = "".join(f"{word}) cat {folder / name};;\n" for word, name in answers.items())
        self.tool.write_text(f'#!/bin/sh\ncase "$1" in\n{cases}esac\n')
        self.tool.chmod(0o755)
        self._add("1", f"1 (init) S 0 1 1 {'0 ' * 15}1 0 512 {'0 ' * 28}\n", "/sbin/init\0", "Name:\tinit\nNSpid:\t1\n")
        self.pid = self._processes(folder)

    def _processes(self, folder: pathlib.Path) -> int | None:
        if not (folder / "ancestors.txt").exists():
            return None
        rows = [line.split(" ", 3) for line in (folder / "ancestors.txt").read_text().splitlines()]
        for pid, state, ppid, name in rows[:-1]:
            # Only the ancestors' pid, state, parent and name were recorded; the name replaces their arguments.
            self._add(pid, f"{pid} ({name}) {state} {ppid} {pid} {pid} {'0 ' * 15}100 0 512 {'0 ' * 28}\n", f"{name}\0", f"Name:\t{name}\nNSpid:\t{pid}\n")
        for recorded in (folder, folder / "engine"):
            if (recorded / "stat").exists():
                stat = (recorded / "stat").read_text()
                self._add(stat.split()[0], stat, (recorded / "cmdline").read_bytes().decode(), (recorded / "status").read_text())
        return int(rows[0][0])

    def _add(self, pid: str, stat: str, cmdline: str, status: str) -> None:
        folder = self.proc / pid
        folder.mkdir(exist_ok=True)
        for name, text in {"stat": stat, "cmdline": cmdline, "status": status, "cgroup": "0::/\n", "environ": ""}.items():
            (folder / name).write_text(text)

    @property
    def options(self) -> dict[str, t.Any]:
        names = {"nvidia_smi": self.tool, "proc_root": self.proc, "kernel_log": self.root / "kernel.log", "docker_socket": self.root / "docker.sock"}
        return {name: str(path) for name, path in names.items()}

    def ask(self, module: types.ModuleType, **options: t.Any) -> dict[str, t.Any]:
        """Return a module's result for it, with the documented defaults."""
        texts = (module.DOCUMENTATION, _look.ModuleDocFragment.DOCUMENTATION, _look.ModuleDocFragment.DRIVER)
        params = {name: option.get("default") for text in texts for name, option in yaml.safe_load(text)["options"].items()}
        return module.work(types.SimpleNamespace(params=rooted({**params, "docker_timeout": 1, **self.options, **options}), check_mode=False))


@pytest.mark.parametrize(("machine", "situation"), CASES)
def test_each_situation_has_its_class(tmp_path, machine, situation):
    kind, verdict = EXPECTED[situation]
    here = Again(tmp_path, machine / situation)
    result = here.ask(cuda_zombie_check, fail_on=[], wait=False, wait_sleep=0, state_dir=str(tmp_path / "state"))
    seen = {name: pids for name, pids in result["classes"].items() if pids}
    assert seen == ({kind: [here.pid]} if kind else {}), result["msg"]
    assert result["verdict"] == verdict and not result["needs_reboot"] and not result["changed"]
    if kind == "orphan":
        assert f"sudo kill {here.pid}" in result["remedy"] and "4614 MiB" in result["msg"]
    if kind:
        (process,) = result["processes"]
        assert process["used_mib"] and process["name"] and process["listed"]


@pytest.mark.parametrize(("machine", "situation"), CASES)
def test_node_info_tells_gpu_and_processes_of_each(tmp_path, machine, situation):
    kind, _verdict = EXPECTED[situation]
    recorded, here = json.loads((machine / "machine.json").read_text()), Again(tmp_path, machine / situation)
    result = here.ask(node_info, sections=["gpus", "memory", "tenants"])
    (gpu,) = result["gpus"]
    assert (gpu["name"], gpu["driver_version"], gpu["cuda_version"], gpu["source"]) == (recorded["gpu"], recorded["driver"], recorded["cuda"], "xml")
    assert [process["pid"] for process in gpu["processes"]] == ([here.pid] if kind else [])
    assert result["memory"]["total_mb"] > 16 * 1024
    # A process that has ended is not a tenant: its memory is being returned.
    holders = {tenant["pid"]: tenant["gpu_mib"] for tenant in result["tenants"] if tenant["gpu_mib"]}
    assert holders == ({here.pid: gpu["processes"][0]["used_mib"]} if kind in ("live", "orphan") else {})
    assert [error for error in result["errors"] if error["section"].startswith(("gpus", "memory"))] == []


@pytest.mark.parametrize("situation", ["idle", "live", "orphan", "defunct_at_once"])
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_of_a_tool_that_stops_in_the_middle_the_short_answer_counts(tmp_path, machine, situation):
    """Half of the XML is not a valid answer; the short query at the same time replaces it."""
    here = Again(tmp_path, machine / situation)
    here.tool.write_text(here.tool.read_text().replace("-q) cat ", "-q) head -c 9000 "))
    (gpu,) = here.ask(node_info, sections=["gpus"])["gpus"]
    assert gpu["source"] == "csv" and gpu["name"] == json.loads((machine / "machine.json").read_text())["gpu"]


def test_through_ansible(tmp_path):
    here = Again(tmp_path, MACHINES[0] / "orphan")
    arguments = ["-m", "gb10.cluster.cuda_zombie_check", "-a", json.dumps(rooted({**here.options, "fail_on": ["block"], "wait": False}))]
    environment = {"ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}
    done = through_ansible.run("adhoc", "localhost", "-i", "localhost,", "-c", "local", *arguments, env=environment)
    result = json.loads("{" + done.stdout.partition("=> {")[2])
    assert done.rc == 2 and result["verdict"] == "block" and result["classes"]["orphan"] == [here.pid], done.stdout


def test_the_recordings_name_no_machine():
    """What was recorded carries no serial number, no UUID, no host name and no path of the machine it was recorded on."""
    for path in (path for machine in MACHINES for path in machine.rglob("*") if path.is_file() and path.name != "README.md"):
        text = path.read_bytes().decode()
        for mark in ("/work", "/home", "/opt", "/root", "/tmp"):
            assert mark not in text, f"{path}: {mark}"
        for line in text.splitlines():
            if "uuid>" in line and "N/A" not in line and "<" in line.strip()[1:]:
                assert "00000000-0000-0000-0000-000000000000" in line, f"{path}: {line}"
            if "<serial>" in line:
                assert line.strip() in ("<serial>0</serial>", "<serial>N/A</serial>"), f"{path}: {line}"


def test_what_the_modules_answered_on_the_machine_itself() -> None:
    answers = json.loads((MACHINES[0] / "answers.json").read_text())
    assert answers.keys() == EXPECTED.keys()
    # In this one the driver had let go of the process when it was asked.
    expected = {**EXPECTED, "defunct_at_once": (None, "pass")}
    for name, (kind, verdict) in expected.items():
        answer = answers[name]["cuda_zombie_check"]
        assert answer["verdict"] == verdict and [label for label, pids in answer["classes"].items() if pids] == ([kind] if kind else []), name
