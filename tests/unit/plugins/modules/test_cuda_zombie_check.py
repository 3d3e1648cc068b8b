# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judging GPU processes, with a tool that answers what it is told."""

from __future__ import annotations

import pathlib
import types

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.modules import cuda_zombie_check

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures/nvidia_smi"


@pytest.fixture
def machine(tmp_path):
    """A proc tree with process 411 alive and 437 defunct (as recorded when a parent did not reap it), and a tool reading answers in turn."""
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/pid").symlink_to("pid:[4026531836]")
    assert "State:\tZ (zombie)" in (FIXTURES / "zombie_defunct_status.txt").read_text()
    for pid, state in ((411, "S"), (437, "Z")):
        (tmp_path / f"proc/{pid}").mkdir()
        (tmp_path / f"proc/{pid}/stat").write_text(f"{pid} (python3) {state} 396 396 396 0\n")
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncd {tmp_path}\nset -- answer.*\ncat $1\n[ $# -gt 1 ] && rm $1\nexit 0\n")
    tool.chmod(0o755)
    return types.SimpleNamespace(root=tmp_path, tool=tool)


def answers(machine, *texts):
    for number, text in enumerate(texts):
        (machine.root / f"answer.{number}").write_text(text)


def call(machine, **params):
    defaults = {
        "nvidia_smi": str(machine.tool),
        "tool_timeout": 10,
        "proc_root": str(machine.root / "proc"),
        "pid_namespace": "auto",
        "fail_on": [],
        "wait": False,
        "wait_timeout": 10,
        "wait_sleep": 0,
    }
    return cuda_zombie_check.work(types.SimpleNamespace(params={**defaults, **params}, check_mode=False))


def test_an_idle_gpu_passes(machine):
    answers(machine, (FIXTURES / "recorded_h200_idle_compute_apps.csv").read_text())
    result = call(machine, fail_on=["warn", "block", "unknown"])
    assert result["verdict"] == "pass" and result["processes"] == [] and not result["needs_reboot"]


def test_a_live_and_a_defunct_process(machine):
    answers(machine, (FIXTURES / "recorded_h200_two_compute_apps.csv").read_text())
    result = call(machine)
    assert result["classes"] == {"live": [411], "defunct": [437], "ghost": [], "unknown": []}
    assert result["verdict"] == "warn" and not result["needs_reboot"]
    assert [finding["id"] for finding in result["findings"]] == ["cuda_zombie.defunct"]
    assert "2566 MiB" in result["msg"] and "ps -o ppid= -p 437" in result["remedy"]


def test_a_ghost_blocks_and_asks_for_a_reboot(machine):
    answers(machine, "411, python3, 2566 MiB\n999, [Not Found], [N/A]\n")
    with pytest.raises(ClusterError, match="999 .* is gone.*an unknown amount") as caught:
        call(machine, fail_on=["block"])
    assert caught.value.details["verdict"] == "block" and caught.value.details["needs_reboot"]
    assert caught.value.details["classes"]["ghost"] == [999]
    assert "Reboot" in caught.value.remedy


@pytest.mark.parametrize("wait", [False, True])
def test_a_process_that_ended_meanwhile_is_no_ghost(machine, wait):
    answers(machine, "999, python3, 2566 MiB\n", "")
    result = call(machine, wait=wait)
    assert result["verdict"] == "pass" and result["processes"] == []


def test_a_process_that_was_killed_a_moment_ago_is_no_finding(machine):
    answers(machine, "437, [No data], 2566 MiB\n", "")
    assert call(machine)["verdict"] == "pass"


def test_the_driver_gets_time_to_clear_up(machine):
    answers(machine, *["999, python3, 2566 MiB\n"] * 6, "411, python3, 1 MiB\n")
    assert call(machine)["needs_reboot"]
    answers(machine, *["999, python3, 2566 MiB\n"] * 6, "411, python3, 1 MiB\n")
    assert call(machine, wait=True)["classes"]["live"] == [411]


def test_one_process_on_two_gpus_counts_once(machine):
    answers(machine, "411, python3, 1000 MiB\n411, python3, 1566 MiB\n")
    assert call(machine)["processes"] == [{"pid": 411, "name": "python3", "used_mib": 2566, "class": "live"}]


@pytest.mark.parametrize(
    ("answer", "says"),
    [((FIXTURES / "recorded_h200_no_devices.txt").read_text(), "shape that cannot be read"), ("Segmentation fault\n", "shape that cannot be read")],
)
def test_rubbish_is_unknown_with_the_raw_text(machine, answer, says):
    answers(machine, answer)
    result = call(machine)
    assert result["verdict"] == "unknown" and says in result["msg"] and result["raw"] == answer
    assert not result["needs_reboot"]


def test_a_missing_a_failing_and_a_hanging_tool_are_unknown(machine):
    assert call(machine, nvidia_smi="/nonexistent/nvidia-smi")["reason"] == "tool missing"
    machine.tool.write_text("#!/bin/sh\necho No devices were found\nexit 6\n")
    failing = call(machine)
    assert failing["verdict"] == "unknown" and "status 6" in failing["msg"] and failing["raw"] == "No devices were found"
    machine.tool.write_text("#!/bin/sh\necho thinking\nsleep 30\n")
    hanging = call(machine, tool_timeout=1)
    assert hanging["verdict"] == "unknown" and hanging["reason"] == "tool hangs" and hanging["raw"] == "thinking"


def test_unknown_fails_by_default_and_keeps_its_evidence(machine):
    answers(machine, "garble")
    with pytest.raises(ClusterError) as caught:
        call(machine, fail_on=["block", "unknown"])
    assert caught.value.details["verdict"] == "unknown" and caught.value.details["raw"] == "garble"
    assert [finding["verdict"] for finding in caught.value.details["findings"]] == ["unknown"]


def test_another_pid_namespace_is_not_judged_unless_asserted(machine):
    answers(machine, "411, python3, 1 MiB\n")
    (machine.root / "proc/self/ns/pid").unlink()
    (machine.root / "proc/self/ns/pid").symlink_to("pid:[4026532338]")
    assert call(machine)["reason"] == "foreign pid namespace"
    assert call(machine, pid_namespace="host")["verdict"] == "pass"


def test_a_ghost_is_graver_than_not_knowing():
    def process(kind):
        return {"pid": 1, "name": "x", "used_mib": 1, "class": kind}

    assert cuda_zombie_check.outcome([process("unknown"), process("ghost"), process("defunct")], "n")["verdict"] == "block"
    assert cuda_zombie_check.outcome([process("unknown"), process("defunct")], "n")["verdict"] == "unknown"
