# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judging GPU processes and memory, with a fake tool and through Ansible."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import through_ansible
import time
import types
from node_roots import rooted

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import zombie_check, zombie_verdicts, zombies
from ansible_collections.gb10.cluster.plugins.modules import cuda_zombie_check

ROOT = pathlib.Path(__file__).resolve().parents[4]
FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures"
SMI = FIXTURES / "nvidia_smi"
GIB = 1024 * 1024
BOOT = "b6f1e0b4-6a3c-4f0e-9a51-0b0f1f0c2d11"

IDLE = (SMI / "composed_gb10_idle.xml").read_text()
ENTRY = (
    "<process_info><gpu_instance_id>N/A</gpu_instance_id><compute_instance_id>N/A</compute_instance_id>"
    "<pid>{}</pid><type>{}</type><process_name>{}</process_name><used_memory>{}</used_memory></process_info>"
)
QUIET_LOG = "[    0.000000] Linux version 6.17.0-1032-nvidia (buildd@x)\n[    3.0] NVRM: loading NVIDIA UNIX Open Kernel Module for aarch64  580.95.05\n"
NO_MEMORY = "[  512.112233] NVRM: nvAssertOkFailedNoLog: Assertion failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from f() @ mem.c:169\n"


def xml(*entries):
    """What a GB10 answers that lists ``(pid, type, name, MiB or None)``."""
    listing = "".join(ENTRY.format(pid, kind, name, "N/A" if used is None else f"{used} MiB") for pid, kind, name, used in entries)
    text, count = re.subn(r"<processes>.*?</processes>", lambda _match: f"<processes>{listing}</processes>", IDLE, flags=re.DOTALL)
    assert count == 1
    return text


def meminfo(lost_gib=0.0, **gib):
    """Composed: a node of 121 GiB; 1.5 GiB are unexplained when it is fresh."""
    figures = {"AnonPages": 2.0, "Shmem": 0.1, "SUnreclaim": 0.8, "KernelStack": 0.05, "PageTables": 0.05, **gib}
    total = {"MemTotal": 121.0, "MemAvailable": 121 - sum(figures.values()) - 1.5 - lost_gib, "Cached": 1.0, "Buffers": 0.1, **figures}
    return "".join(f"{name}: {int(value * GIB)} kB\n" for name, value in total.items())


class Machine:
    """A proc tree, and a tool that reads its answers in turn, the last one for ever."""

    def __init__(self, root):
        self.root, self.proc, self.tool, self.state = root, root / "proc", root / "nvidia-smi", root / "state"
        (self.proc / "self/ns").mkdir(parents=True)
        (self.proc / "self/ns/pid").symlink_to("pid:[4026531836]")
        (self.proc / "sys/kernel/random").mkdir(parents=True)
        (self.proc / "sys/kernel/random/boot_id").write_text(BOOT + "\n")
        (self.proc / "stat").write_text("btime 1790000000\n")
        self.memory(meminfo())
        self.log = root / "kernel.log"
        self.log.write_text(QUIET_LOG)
        self.tool.write_text(f"#!/bin/sh\ncd {root}\nset -- answer.*\ncat $1\n[ $# -gt 1 ] && rm $1\nexit 0\n")
        self.tool.chmod(0o755)
        self.process(1, 0, "/sbin/init")

    def memory(self, text):
        (self.proc / "meminfo").write_text(text)

    def process(self, pid, ppid, *argv, state="S", environ="", cgroup="0::/\n"):
        folder = self.proc / str(pid)
        folder.mkdir(exist_ok=True)
        rest = [state, ppid, pid, pid, *[0] * 15, 1000 + pid, 0, 512, *[0] * 28]
        (folder / "stat").write_text(f"{pid} ({os.path.basename(argv[0])[:15] if argv else 'x'}) {' '.join(map(str, rest))}\n")
        (folder / "cmdline").write_text("".join(f"{word}\0" for word in argv))
        (folder / "status").write_text(f"Name:\tx\nNSpid:\t{pid}\n")
        (folder / "cgroup").write_text(cgroup)
        (folder / "environ").write_text(environ)

    def baseline(self, mib=1536, boot=BOOT):
        self.state.mkdir(exist_ok=True)
        content = {"schema": 1, "boot_id": boot, "recorded_at": "2026-11-21T15:00:00Z", "unexplained_mb": mib, "uptime_s": 100}
        (self.state / "baseline.json").write_text(json.dumps(content))

    def answers(self, *texts):
        for number, text in enumerate(texts):
            (self.root / f"answer.{number}").write_text(text)

    def options(self, **params):
        return rooted({
            "nvidia_smi": str(self.tool),
            "tool_timeout": 10,
            "proc_root": str(self.proc),
            "meminfo": None,
            "kernel_log": str(self.log),
            "pid_namespace": "auto",
            "fail_on": [],
            "wait": False,
            "wait_timeout": 10,
            "wait_sleep": 0,
            "settle_mb": 256,
            "settle_sleep": 1,
            "settle_timeout": 20,
            "leak_threshold_mb": 4096,
            "state_dir": str(self.state),
            "baseline": None,
            "kill_orphans": False,
            "kill_grace": 1,
            "docker_socket": str(self.root / "docker.sock"),
            "docker_timeout": 1,
            "earlier": {},
            **params,
        })


@pytest.fixture
def machine(tmp_path):
    """A proc tree with process 411 alive and 437 defunct (as recorded when a parent did not reap it)."""
    assert "State:\tZ (zombie)" in (SMI / "zombie_defunct_status.txt").read_text()
    machine = Machine(tmp_path)
    machine.process(396, 1, "python3", "train.py")
    machine.process(411, 396, "python3")
    machine.process(437, 396, "python3", state="Z")
    return machine


def call(machine, *, check_mode=False, **params):
    return cuda_zombie_check.work(types.SimpleNamespace(params=machine.options(**params), check_mode=check_mode))


def ids(result):
    return [finding["id"] for finding in result["findings"]]


# -- processes -------------------------------------------------------------------------------------------------------


def test_an_idle_gpu_passes(machine):
    machine.answers((SMI / "recorded_h200_idle.xml").read_text())
    result = call(machine, fail_on=["warn", "block", "unknown"])
    assert result["verdict"] == "pass" and result["processes"] == [] and not result["needs_reboot"]
    assert result["pid_namespace"] == {"namespace": "pid:[4026531836]", "asserted": False} and not result["changed"]


def test_a_live_and_a_defunct_process(machine):
    machine.answers((SMI / "recorded_h200_two.xml").read_text())
    result = call(machine)
    assert result["classes"] == {"live": [411], "defunct": [437], "ghost": [], "orphan": [], "unknown": []}
    assert result["verdict"] == "warn" and not result["needs_reboot"]
    assert ids(result) == ["cuda_zombie.defunct"]
    assert "2566 MiB" in result["msg"] and "ps -o ppid= -p 437" in result["remedy"]
    assert result["held"] == [
        {"class": "live", "owner": "foreign", "pids": [411], "mib": 2566},
        {"class": "defunct", "owner": None, "pids": [437], "mib": 2566},
    ]


def test_a_ghost_blocks_and_asks_for_a_reboot(machine):
    machine.answers(xml((411, "C", "python3", 2566), (999, "C", "[Not Found]", None)))
    with pytest.raises(ClusterError, match="999 .* is gone.*an unknown amount") as caught:
        call(machine, fail_on=["block"])
    assert caught.value.details["verdict"] == "block" and caught.value.details["needs_reboot"]
    assert caught.value.details["classes"]["ghost"] == [999]
    assert "Reboot" in caught.value.remedy


@pytest.mark.parametrize("wait", [False, True])
def test_a_process_that_ended_meanwhile_is_no_ghost(machine, wait):
    machine.answers(xml((999, "C", "python3", 2566)), xml())
    result = call(machine, wait=wait)
    assert result["verdict"] == "pass" and result["processes"] == []
    assert len(result["reclaim"]["samples_mb"]) == (2 if wait else 1)


def test_a_process_that_was_killed_a_moment_ago_is_no_finding(machine):
    machine.answers(xml((437, "C", "", 2566)), xml())
    assert call(machine)["verdict"] == "pass"


def test_the_driver_gets_time_to_clear_up(machine):
    ghost, live = xml((999, "C", "python3", 2566)), xml((411, "C", "python3", 1))
    machine.answers(*[ghost] * 6, live)
    assert call(machine)["needs_reboot"]
    machine.answers(*[ghost] * 6, live)
    assert call(machine, wait=True)["classes"]["live"] == [411]


def test_one_process_listed_twice_counts_once(machine):
    machine.answers(xml((411, "C", "python3", 1000), (411, "G", "python3", 1000)))
    (process,) = call(machine)["processes"]
    assert (process["used_mib"], process["type"], process["class"]) == (1000, "C+G", "live")


def test_an_orphan_blocks_and_says_how_to_end_it(machine):
    machine.process(500, 1, "VLLM::EngineCore")
    machine.process(501, 500, "VLLM::Worker_TP0")
    machine.answers(xml((500, "C", "VLLM::EngineCore", 104000)))
    result = call(machine)
    assert result["classes"]["orphan"] == [500, 501] and result["verdict"] == "block" and not result["needs_reboot"]
    assert "104000 MiB" in result["msg"] and "adopted it" in result["msg"]
    assert "sudo kill 500" in result["remedy"] and "kill_orphans: true" in result["remedy"]
    assert [process["listed"] for process in result["processes"]] == [True, False]
    assert result["held"][0] == {"class": "orphan", "owner": None, "pids": [500, 501], "mib": None}


def test_a_core_whose_server_ends_a_moment_before_it_is_no_finding(machine):
    machine.process(500, 1, "VLLM::EngineCore")
    machine.answers(xml((500, "C", "VLLM::EngineCore", 1)), "")
    machine.tool.write_text(f"#!/bin/sh\ncd {machine.root}\nset -- answer.*\ncat $1\nrm -r proc/500 2>/dev/null\nexit 0\n")
    machine.answers(xml())
    assert call(machine)["verdict"] == "pass"


# -- whose ------------------------------------------------------------------------------------------------------------


def test_ours_are_known_by_the_mark_or_by_their_container(machine, monkeypatch):
    inside = "0::/system.slice/docker-" + "a" * 64 + ".scope\n"
    machine.process(601, 1, "python3", environ="X=1\0GB10_RUN_ID=/opt/gb10/run:20260101T000000Z-0001\0")
    machine.process(602, 1, "python3", cgroup=inside)
    machine.process(603, 1, "python3", cgroup=inside.replace("a" * 64, "b" * 64))
    machine.answers(xml(*((pid, "C", "python3", 10) for pid in (411, 601, 602, 603))))

    def owners(result):
        return {process["pid"]: process["owner"] for process in result["processes"]}

    assert owners(call(machine)) == {411: "foreign", 601: "ours", 602: None, 603: None}
    engine = types.SimpleNamespace(containers=lambda labels: [{"Id": "a" * 64, "State": "running"}])
    monkeypatch.setattr(zombie_check, "EngineApi", lambda socket, timeout: engine)
    result = call(machine)
    assert owners(result) == {411: "foreign", 601: "ours", 602: "ours", 603: "foreign"}
    assert [(row["owner"], row["pids"], row["mib"]) for row in result["held"]] == [("foreign", [411, 603], 20), ("ours", [601, 602], 20)]


def test_a_process_that_does_not_tell_has_no_owner(machine):
    (machine.proc / "411/environ").unlink()
    machine.answers(xml((411, "C", "python3", 10)))
    result = call(machine)
    assert result["processes"][0]["owner"] is None and result["held"][0]["owner"] is None and result["verdict"] == "pass"


def test_thousands_of_processes(machine):
    for pid in range(5000, 9000):
        machine.process(pid, 1, "/usr/bin/python3", "worker.py")
    machine.process(9500, 1, "VLLM::Worker_TP0")
    machine.answers(xml((8999, "C", "python3", 10)))
    began = time.monotonic()
    result = call(machine)
    assert result["classes"]["live"] == [8999] and result["classes"]["orphan"] == [9500]
    assert time.monotonic() - began < 20


# -- ending ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def ends(machine, monkeypatch):
    """Let an orphan be ended without a signal: the pids that were to end, and their outcome."""
    machine.process(500, 1, "VLLM::EngineCore")
    machine.answers(xml((411, "C", "python3", 10), (500, "C", "VLLM::EngineCore", 104000)))
    ending = types.SimpleNamespace(asked=[], outcome="term")

    def end(orphans, proc_root, grace):
        ending.asked += [orphan["pid"] for orphan in orphans]
        if ending.outcome != "remains":
            shutil.rmtree(machine.proc / "500")
            machine.answers(xml((411, "C", "python3", 10)))
        return {orphan["pid"]: ending.outcome for orphan in orphans}

    monkeypatch.setattr(zombies, "end", end)
    monkeypatch.setattr(zombies, "own_processes", lambda proc_root: True)
    return ending


def test_without_consent_nothing_is_ended(machine, ends):
    result = call(machine)
    assert ends.asked == [] and not result["changed"] and result["verdict"] == "block" and result["diff"] == {}


def test_with_consent_exactly_the_orphans_are_ended(machine, ends):
    result = call(machine, kill_orphans=True, wait=True, wait_timeout=1)
    assert ends.asked == [500] and result["changed"] and result["verdict"] == "pass"
    assert result["actions"] == ["ended process 500 (VLLM::EngineCore)"] and ids(result) == ["cuda_zombie.orphan", "cuda_zombie.none"]
    assert result["diff"] == {"before": {"orphans": ["500 VLLM::EngineCore (104000 MiB)"]}, "after": {"orphans": []}}
    assert result["ended"] == [{"pid": 500, "name": "VLLM::EngineCore", "used_mib": 104000, "outcome": "term"}]
    assert result["reclaim"]["why"] == ["an engine process was ended"] and len(result["reclaim"]["samples_mb"]) == 2
    again = call(machine, kill_orphans=True, wait=True)
    assert not again["changed"] and again["verdict"] == "pass" and again["ended"] == [] and ends.asked == [500]


def test_check_mode_tells_the_same_and_ends_nothing(machine, ends):
    result = call(machine, kill_orphans=True, check_mode=True, fail_on=["block", "unknown"])
    assert ends.asked == [] and result["changed"] and result["verdict"] == "warn"
    assert result["diff"]["after"] == {"orphans": []} and result["actions"] == ["end process 500 (VLLM::EngineCore)"]
    assert "would be ended" in result["msg"] and ids(result) == ["cuda_zombie.orphan"]


def test_what_does_not_end_needs_a_reboot(machine, ends):
    ends.outcome = "remains"
    result = call(machine, kill_orphans=True)
    assert result["verdict"] == "block" and result["needs_reboot"] and ids(result) == ["cuda_zombie.orphan"]
    assert result["diff"]["after"] == result["diff"]["before"] and "hangs in the kernel" in result["msg"]


def test_no_process_is_ended_through_a_proc_tree_of_another_namespace(machine):
    machine.process(500, 1, "VLLM::EngineCore")
    machine.answers(xml((500, "C", "VLLM::EngineCore", 104000)))
    with pytest.raises(ClusterError, match="another process"):
        call(machine, kill_orphans=True)


# -- memory ----------------------------------------------------------------------------------------------------------


def rising(machine, monkeypatch, *available):
    """Let each sample find another amount of available memory, in GiB, the last one for ever."""
    values = list(available)

    def sample(params):
        value = values.pop(0) if len(values) > 1 else values[0]
        return {"MemTotal": 121 * GIB, "MemAvailable": int(value * GIB), "AnonPages": 2 * GIB}

    monkeypatch.setattr(zombie_check, "sample", sample)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    ticks = iter(range(0, 100000))
    monkeypatch.setattr("time.monotonic", lambda: next(ticks))


def test_a_proven_leak(machine, monkeypatch):
    machine.memory(meminfo(lost_gib=50))
    machine.baseline()
    machine.answers(xml((411, "G", "Xorg", 90)))
    engine = types.SimpleNamespace(containers=lambda labels: [{"Id": "a", "State": "exited"}])
    monkeypatch.setattr(zombie_check, "EngineApi", lambda socket, timeout: engine)
    result = call(machine, wait=True)
    assert ids(result) == ["cuda_zombie.leak"] and result["verdict"] == "block" and result["needs_reboot"]
    assert "uncalibrated" in result["msg"] and "Reboot" in result["remedy"]
    assert result["accounting"]["leak"] == "proven" and result["accounting"]["baseline_mb"] == 1536 and result["accounting"]["calibrated"] is False
    assert abs(result["accounting"]["unexplained_mb"] - 50 * 1024 + 90) <= 2
    assert result["held"][-1] == {"class": "leak", "owner": None, "pids": [], "mib": result["accounting"]["unexplained_mb"]}
    assert result["reclaim"]["why"] == ["memory is used that nothing explains"] and result["reclaim"]["state"] == "settled"
    assert call(machine, wait=True, leak_threshold_mb=60000)["verdict"] == "pass"
    engine.containers = lambda labels: [{"Id": "a", "State": "running"}]
    managed = call(machine, wait=True)
    assert managed["verdict"] == "pass" and managed["accounting"]["leak"] == "not judged" and managed["reclaim"]["state"] == "one sample"


@pytest.mark.parametrize("boot", [None, "another"])
def test_without_a_baseline_of_this_boot_it_is_a_suspicion(machine, boot):
    machine.memory(meminfo(lost_gib=50))
    if boot:
        machine.baseline(boot=boot)
    machine.answers(xml())
    result = call(machine)
    assert result["verdict"] == "warn" and not result["needs_reboot"] and result["accounting"]["leak"] == "suspected"
    assert any("baseline" in doubt for doubt in result["accounting"]["doubts"]) and "only one sample" in result["msg"]


def test_memory_that_still_comes_back_is_waited_for(machine, monkeypatch):
    machine.answers(xml((999, "C", "[No data]", 60000)), xml())
    rising(machine, monkeypatch, 50, 80, 100, 115, 115.1)
    result = call(machine, wait=True)
    assert result["verdict"] == "pass" and result["reclaim"]["state"] == "settled" and result["reclaim"]["why"][0] == "a GPU process has ended"
    assert result["reclaim"]["samples_mb"] == [51200, 81920, 102400, 117760, 117862] and result["reclaim"]["risen_mb"] == 66662


def test_memory_that_does_not_settle_in_time_warns(machine, monkeypatch):
    machine.answers(xml((999, "C", "[No data]", 60000)), xml())
    rising(machine, monkeypatch, *range(10, 100))
    result = call(machine, wait=True, settle_timeout=6)
    assert result["verdict"] == "warn" and "cuda_zombie.slow_reclaim" in ids(result) and not result["needs_reboot"]
    assert {"class": "slow_reclaim", "owner": None, "pids": [], "mib": result["reclaim"]["risen_mb"]} in result["held"]


def test_a_healthy_node_is_sampled_once_and_asks_docker_nothing(machine, monkeypatch):
    machine.answers(xml((411, "C", "python3", 90)))
    monkeypatch.setattr(zombie_check, "EngineApi", lambda socket, timeout: pytest.fail("asked"))
    result = call(machine, wait=True)
    assert result["reclaim"] == {"state": "one sample", "why": [], "samples_mb": result["reclaim"]["samples_mb"], "risen_mb": 0}
    assert result["verdict"] == "pass"


@pytest.mark.parametrize(("ago", "noted_gib", "watched"), [(10, None, True), (10, 130, True), (10, 116, False), (500, None, False)])
def test_an_own_stop_is_a_reason_until_memory_is_back(machine, ago, noted_gib, watched):
    (machine.state / "gb10/run").mkdir(parents=True)
    (machine.state / "gb10/run/exit.json").write_text(json.dumps({"ended_at": time.time() - ago}))
    if noted_gib:
        (machine.state / "gb10/memory.json").write_text(json.dumps({"available_mb": noted_gib * 1024}))
    machine.answers(xml())
    result = call(machine, wait=True, settle_timeout=60)
    assert result["reclaim"]["why"] == (["an engine was stopped a short time ago"] if watched else [])


def test_memory_that_cannot_be_read_is_unknown_and_hides_nothing_else(machine):
    machine.memory("rubbish\n")
    machine.answers(xml((999, "C", "x", 1)))
    result = call(machine)
    assert set(ids(result)) == {"cuda_zombie.ghost", "cuda_zombie.memory"} and result["verdict"] == "block"
    assert result["accounting"] is None and "rubbish" in result["accounting_error"]


def test_a_later_call_goes_on_where_the_earlier_one_was(machine):
    machine.answers(xml((500, "C", "x", 1)))
    ended = {"pid": 500, "name": "VLLM::EngineCore", "used_mib": 7, "outcome": "term"}
    earlier = {"seconds": 1, "samples_mb": [10, 20000], "why": ["an engine process was ended"], "ended": [ended]}
    result = call(machine, wait=True, wait_timeout=60, kill_orphans=True, earlier=earlier, settle_timeout=60)
    assert result["changed"] and result["ended"] == [ended] and len(result["reclaim"]["samples_mb"]) == 3
    assert result["reclaim"]["state"] == "rising"


# -- kernel log ------------------------------------------------------------------------------------------------------


def test_failed_allocations_of_this_boot_are_routine_while_no_memory_is_missing(machine):
    machine.log.write_text(QUIET_LOG + NO_MEMORY * 3)
    machine.answers(xml())
    result = call(machine)
    assert result["verdict"] == "pass" and "cuda_zombie.suspect" in ids(result) and not result["needs_reboot"]
    assert result["kernel_log"]["failures"] == 3 and "NV_ERR_NO_MEMORY" in result["msg"] and "3 time(s)" in result["msg"]
    assert result["held"] == [{"class": "suspect", "owner": None, "pids": [], "mib": None}]


@pytest.mark.parametrize(
    ("table", "verdict"),
    [(None, "pass"), ({"leak": "proven"}, "warn"), ({"leak": "suspected"}, "warn"), ({"leak": "none"}, "pass"), ({"leak": "not judged"}, "pass")],
)
def test_failed_allocations_are_a_suspicion_where_memory_may_be_missing(table, verdict):
    log = {"error": "", "failures": 3, "events": [{"time": None, "text": "NVRM: NV_ERR_NO_MEMORY"}], "source": "journalctl"}
    (finding,) = zombie_verdicts.judge_log(log, table, "spark-1")
    assert (finding["id"], finding["verdict"]) == ("cuda_zombie.suspect", verdict)


def test_a_log_that_cannot_be_read_is_reported(machine):
    machine.answers(xml())
    result = call(machine, kernel_log="/nonexistent/log")
    assert result["verdict"] == "warn" and ids(result) == ["cuda_zombie.kernel_log"] and result["kernel_log"]["failures"] is None
    assert call(machine, kernel_log="none")["verdict"] == "pass"


def test_binary_in_the_log_is_no_event(machine):
    machine.log.write_bytes(b"\xff\x00\x80NVRM\n" * 100 + NO_MEMORY.encode()[:40])
    machine.answers(xml())
    assert call(machine)["verdict"] in ("pass", "warn")


# -- a tool and a kernel that do not answer --------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [(SMI / "recorded_h200_no_devices.txt").read_text(), "Segmentation fault\n", IDLE[: len(IDLE) // 2]])
def test_rubbish_is_unknown_with_the_raw_text(machine, answer):
    machine.answers(answer)
    result = call(machine)
    assert result["verdict"] == "unknown" and result["raw"] == answer[: len(result["raw"])] and result["raw"]
    assert not result["needs_reboot"] and result["accounting"] is None and result["held"] == []


def test_a_missing_a_failing_and_a_hanging_tool_are_unknown(machine):
    assert call(machine, nvidia_smi="/nonexistent/nvidia-smi")["reason"] == "tool missing"
    machine.tool.write_text("#!/bin/sh\necho No devices were found\nexit 6\n")
    failing = call(machine)
    assert failing["verdict"] == "unknown" and "status 6" in failing["msg"] and failing["raw"] == "No devices were found"
    machine.tool.write_text("#!/bin/sh\necho thinking\nsleep 30\n")
    hanging = call(machine, tool_timeout=1)
    assert hanging["verdict"] == "unknown" and hanging["reason"] == "tool hangs" and hanging["raw"] == "thinking"


def test_unknown_fails_by_default_and_keeps_its_evidence(machine):
    machine.answers("garble")
    with pytest.raises(ClusterError) as caught:
        call(machine, fail_on=["block", "unknown"])
    assert caught.value.details["verdict"] == "unknown" and caught.value.details["raw"] == "garble"
    assert [finding["verdict"] for finding in caught.value.details["findings"]] == ["unknown"]


def test_another_pid_namespace_is_not_judged_unless_asserted(machine):
    machine.answers(xml((411, "C", "python3", 1)))
    (machine.proc / "self/ns/pid").unlink()
    (machine.proc / "self/ns/pid").symlink_to("pid:[4026532338]")
    assert call(machine)["reason"] == "foreign pid namespace"
    asserted = call(machine, pid_namespace="host")
    assert asserted["verdict"] == "pass" and asserted["pid_namespace"] == {"namespace": "pid:[4026532338]", "asserted": True}
    assert "asserts" in asserted["msg"]


def test_a_ghost_is_graver_than_not_knowing():
    def of(*kinds):
        base = {"pid": 1, "name": "x", "used_mib": 1, "owner": None, "why": ""}
        table = {"leak": "none", "doubts": [], "unexplained_mb": 0, "threshold_mb": 1}
        evidence = zombie_check.NOTHING._replace(processes=[{**base, "class": kind} for kind in kinds], table=table)
        return zombie_check.outcome(evidence, "n")["verdict"]

    assert of("unknown", "ghost", "defunct") == "block" and of("unknown", "defunct") == "unknown" and of("live") == "pass"


@pytest.mark.parametrize("wrong", [{"settle_sleep": 0}, {"settle_mb": 0}, {"leak_threshold_mb": 0}, {"kill_grace": -1}])
def test_numbers_out_of_range_are_refused(machine, wrong):
    with pytest.raises(ClusterError, match=next(iter(wrong))):
        call(machine, **wrong)


# -- through Ansible -------------------------------------------------------------------------------------------------


AS_JSON = {"ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}


def ansible(arguments):
    """Run the module by the ad-hoc command; returns (what was printed, the module's result)."""
    answer = through_ansible.run("adhoc", "localhost", "-m", "gb10.cluster.cuda_zombie_check", "-a", json.dumps(arguments), env=AS_JSON)
    assert "=> {" in answer.stdout, answer.out
    return answer.stdout, json.loads(answer.stdout[answer.stdout.index("=> {") + 3:])


def plain(machine, **params):
    return {name: value for name, value in machine.options(**params).items() if value is not None and name != "earlier"}


def test_through_ansible_the_progress_is_shown_until_memory_has_settled(machine):
    lab_tool = ROOT / "tests/lab/node/files/nvidia_smi.py"
    template = machine.root / "template.xml"
    template.write_text((lab_tool.parent / "nvidia_smi.xml").read_text())
    state = machine.root / "gpu.json"
    state.write_text(json.dumps({"processes": [{"pid": 437, "type": "C", "name": "VLLM::EngineCore", "used_mib": 60000}]}))
    marker = machine.root / "asked"
    tool = f"#!/bin/sh\ntouch {marker}\nGB10_LAB_GPU_STATE={state} GB10_LAB_GPU_TEMPLATE={template} exec {sys.executable} {lab_tool} \"$@\"\n"
    machine.tool.write_text(tool)
    stop = threading.Event()

    def come_back():
        # Not before the module looks: a loaded machine starts it late.
        while not marker.exists() and not stop.wait(0.1):
            pass
        for gone in range(60, 0, -4):
            machine.memory(meminfo(AnonPages=float(gone)))
            if stop.wait(1):
                return

    machine.memory(meminfo(AnonPages=60.0))
    thread = threading.Thread(target=come_back)
    thread.start()
    try:
        output, result = ansible(plain(machine, wait=True, wait_timeout=0, settle_sleep=2, settle_timeout=120))
    finally:
        stop.set()
        thread.join()
    assert "memory is coming back" in output and "GiB available" in output
    assert result["verdict"] == "warn" and result["classes"]["defunct"] == [437] and result["changed"] is False
    assert result["reclaim"]["state"] == "settled" and result["reclaim"]["risen_mb"] > 30 * 1024 and len(result["reclaim"]["samples_mb"]) > 5


ORPHAN_AND_CHECK = """
import json, os, subprocess, sys
abandon, titled, python, arguments, tool, first, second = sys.argv[1:8]
made = subprocess.run([python, "-c", abandon, titled, "VLLM::EngineCore", "gentle"], capture_output=True, text=True, check=True)
other = subprocess.Popen([python, "-c", titled, "VLLM::EngineCore", "gentle", "x" * 40], stdout=subprocess.PIPE)
other.stdout.readline()
pid = int(made.stdout)
text = open(tool).read().replace("@PID@", str(pid)).replace("@OTHER@", str(other.pid))
open(tool, "w").write(text)
for name, more in ((first, ["--check", "--diff"]), (second, [])):
    command = [python, "-m", "ansible", "adhoc", "localhost", "-m", "gb10.cluster.cuda_zombie_check", "-a", arguments, *more]
    done = subprocess.run(command, capture_output=True, text=True)
    alive = os.path.exists(f"/proc/{pid}") and open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] not in "ZX"
    kept = other.poll() is None
    open(name, "w").write(json.dumps({"output": done.stdout, "errors": done.stderr, "alive": alive, "kept": kept, "pid": pid, "other": other.pid}))
other.kill()
"""


def test_through_ansible_only_a_real_orphan_is_ended(machine, monkeypatch):
    """In a pid namespace of its own, so that no engine of this machine can be meant."""
    namespace = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    try:
        subprocess.run([*namespace, "true"], capture_output=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        pytest.skip("no right to make a pid namespace here")
    titles = pathlib.Path(__file__).parents[1] / "module_utils/_gpu/test_zombies.py"
    source = titles.read_text()
    titled, abandon = (re.search(rf'^{name} = """\n(.*?)"""', source, re.MULTILINE | re.DOTALL)[1] for name in ("TITLED", "ABANDON"))
    answer = machine.root / "answer.xml"
    answer.write_text(xml(("@PID@", "C", "VLLM::EngineCore", 52310), ("@OTHER@", "C", "VLLM::EngineCore", 11)))
    # The driver forgets the orphan when the kernel has.
    machine.tool.write_text(
        f"#!{sys.executable}\nimport re, os\ntext = open({str(answer)!r}).read()\n"
        "state = lambda pid: open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[0] if os.path.exists(f'/proc/{pid}') else 'X'\n"
        "print(re.sub(r'<process_info>.*?<pid>(\\d+)</pid>.*?</process_info>', lambda m: '' if state(m[1]) in 'ZX' else m[0], text))\n"
    )
    consent = {"kill_orphans": True, "kill_grace": 20, "wait": True, "wait_timeout": 1, "wait_sleep": 1}
    arguments = plain(machine, proc_root="/proc", meminfo=str(machine.proc / "meminfo"), pid_namespace="host", **consent)
    for name, value in {**through_ansible.ENVIRONMENT, **AS_JSON}.items():
        monkeypatch.setenv(name, value)
    notes = [machine.root / name for name in ("check.json", "real.json")]
    script = [sys.executable, "-c", ORPHAN_AND_CHECK, abandon, titled, sys.executable, json.dumps(arguments), str(answer), *map(str, notes)]
    # The namespace's first process adopts orphans; the shell is that, so that the script's own child is not an orphan.
    subprocess.run([*namespace, "sh", "-c", '"$@"; exit $?', "sh", *script], capture_output=True, timeout=200, check=True)
    checked, real = (json.loads(note.read_text()) for note in notes)
    results = [json.loads(note["output"][note["output"].index("=> {") + 3:]) for note in (checked, real)]

    assert checked["alive"] and checked["kept"] and results[0]["changed"] and results[0]["verdict"] == "warn", checked
    assert [orphan["outcome"] for orphan in results[0]["ended"]] == ["would end"]
    assert "52310 MiB" in checked["output"] and "--- before" in checked["output"]
    assert not real["alive"] and real["kept"] and results[1]["changed"] and results[1]["verdict"] == "pass", real
    assert results[1]["ended"] == [{"pid": real["pid"], "name": "VLLM::EngineCore", "used_mib": 52310, "outcome": "term"}]
    assert results[1]["classes"]["live"] == [real["other"]] and results[1]["classes"]["orphan"] == []
