# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Classes of GPU processes: on what a real GPU showed, on process trees as engines make them, and on real children."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import driver_xml, zombies
from ansible_collections.gb10.cluster.plugins.module_utils._process import process_table, stacks
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import Process, read_stat
from ansible_collections.gb10.cluster.plugins.module_utils._process.stacks import Stacks
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

RECORDED = pathlib.Path(__file__).parents[3] / "fixtures/gpu_situations"

#: Sets its own title as engines do (in the memory of its arguments), reports that it is ready, and waits.
TITLED = """
import ctypes, signal, sys, time
if sys.argv[2] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
start, end = int(fields[45]), int(fields[46])
text = sys.argv[1].encode()[:end - start - 1]
ctypes.memset(start, 0, end - start)
ctypes.memmove(start, text, len(text))
print("ready", flush=True)
time.sleep(60)
"""

#: Starts the program above and ends, so that another process adopts it.
ABANDON = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], *sys.argv[2:], "x" * 40], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
child.stdout.readline()
print(child.pid, flush=True)
import os
os._exit(0)
"""


def process(pid, ppid, *argv, state="S", container="", name=""):
    name = name or (os.path.basename(argv[0])[:15] if argv else "x")
    return Process(pid=pid, ppid=ppid, state=state, name=name, argv=argv, container=container, uid=0, rss_kib=2048)


def table(*processes):
    return {item.pid: item for item in processes}


INIT = process(1, 0, "/sbin/init")
CORE = ("VLLM::EngineCore",)
SERVE = ("/usr/bin/python3", "/usr/local/bin/vllm", "serve", "model")


# -- what the driver lists -------------------------------------------------------------------------------------------


def gpu(*entries, total=None):
    processes = [{"pid": pid, "type": kind, "name": name, "used_mib": used} for pid, kind, name, used in entries]
    return {"index": 0, "memory_total_mb": total, "processes": processes}


def test_one_process_counts_once_on_a_gpu_and_adds_up_over_gpus():
    assert zombies.listed([gpu((7, "C", "a", 100), (7, "G", "a", 100))]) == [{"pid": 7, "name": "a", "type": "C+G", "used_mib": 100}]
    two = zombies.listed([gpu((7, "C", "", 100), (9, "G", "x", None)), gpu((7, "C", "a", 50))])
    assert [(row["pid"], row["name"], row["used_mib"]) for row in two] == [(7, "a", 150), (9, "x", None)]
    assert zombies.sum_mib(two) is None and zombies.sum_mib(two[:1]) == 150 and zombies.sum_mib([]) == 0


def test_processes_that_the_driver_does_not_list_are_unknown():
    with pytest.raises(UnknownState, match="GPU 0"):
        zombies.listed([{"index": 0, "processes": None}])


def test_unified_memory_is_that_of_a_gpu_without_its_own():
    assert zombies.unified([gpu()]) is True
    assert zombies.unified([gpu(), gpu(total=143771)]) is False
    assert zombies.unified([]) is None


# -- classes ---------------------------------------------------------------------------------------------------------


def entry(pid, name="x", used=100):
    return {"pid": pid, "name": name, "type": "C", "used_mib": used}


def test_every_class():
    script, ended = process(10, 1, "python3", "train.py"), process(12, 10, "python3", state="Z")
    processes = table(INIT, script, process(11, 1, *CORE), ended, process(13, 1, "VLLM::Worker_TP0"))
    rows = zombies.classified([entry(10), entry(11), entry(12, ""), entry(99), entry(98)], Stacks(processes), {99: "ghost", 98: "unknown"}.__getitem__)
    assert [(row["pid"], row["class"], row["listed"]) for row in rows] == [
        (10, "live", True), (11, "orphan", True), (12, "defunct", True), (13, "orphan", False), (98, "unknown", True), (99, "ghost", True)
    ]  # fmt: skip
    assert rows[2]["name"] == "python3" and rows[3]["used_mib"] is None and rows[3]["rss_mb"] == 2


@pytest.mark.parametrize(
    ("situation", "parent", "kind"),
    [
        ("live", ("python3", "recorder.py"), "live"),
        ("pidns", ("unshare", "--pid"), "live"),
        ("defunct_at_once", ("python3", "recorder.py"), "defunct"),
        ("orphan", None, "orphan"),
    ],
)
def test_what_a_real_gpu_showed(tmp_path, situation, parent, kind):
    folder = RECORDED / situation
    stat = process_table.parse_stat((folder / "stat").read_text())
    name, ppid = stat["name"], stat["ppid"]
    pid = int((folder / "stat").read_text().split()[0])
    (tmp_path / str(pid)).mkdir()
    for file in ("stat", "status", "cmdline"):
        (tmp_path / str(pid) / file).write_bytes((folder / file).read_bytes())
    processes = table(process_table.read_process(pid, str(tmp_path)), process(ppid, 1, *parent) if parent else INIT)
    assert ppid == 1 if parent is None else ppid != 1
    entries = zombies.listed(driver_xml.parse_gpus((folder / "smi.xml").read_text()))
    (row,) = zombies.classified(entries, Stacks(processes), lambda _pid: "ghost")
    assert (row["pid"], row["used_mib"], row["class"], row["name"]) == (pid, 4614, kind, row["name"] or name)
    assert row["name"]
    assert stacks.first_of_namespace(pid, str(tmp_path)) is (situation == "pidns")


def test_a_zombie_is_no_longer_listed_after_a_while():
    assert zombies.listed(driver_xml.parse_gpus((RECORDED / "defunct" / "smi.xml").read_text())) == []
    assert process_table.parse_stat((RECORDED / "defunct" / "stat").read_text())["state"] == "Z"


# -- real processes --------------------------------------------------------------------------------------------------


def wait_for(condition):
    for _elapsed in clock(15, 0.02):
        answer = condition()
        if answer:
            return answer
    pytest.fail("waited in vain")


@pytest.fixture
def abandoned():
    """Return a function that makes a real orphan with an engine's title, which ends with the test."""
    made = []

    def make(title="VLLM::EngineCore", manner="gentle"):
        answer = subprocess.run([sys.executable, "-c", ABANDON, TITLED, title, manner], capture_output=True, text=True, timeout=30, check=True)
        pid = int(answer.stdout)
        made.append((pid, read_stat(pid)))
        return pid

    yield make
    for pid, stat in made:
        now = read_stat(pid)
        if now and now.start_ticks == stat.start_ticks:
            os.kill(pid, signal.SIGKILL)


def seen(pid):
    return zombies.classified([entry(pid)], stacks.stacks(process_table.scan().processes, "/proc"), lambda _pid: "ghost")


def of(pid):
    return next(row for row in seen(pid) if row["pid"] == pid)


def with_start(pid):
    return {**of(pid), "start_ticks": read_stat(pid).start_ticks}


@pytest.mark.parametrize(("manner", "outcome"), [("gentle", "term"), ("deaf", "kill")])
def test_a_real_orphan_is_judged_and_ended(abandoned, manner, outcome):
    pid, bystander = abandoned(manner=manner), abandoned(title="VLLM::Worker_TP1")
    judged_one = with_start(pid)
    assert judged_one["class"] == "orphan" and judged_one["title"] == "VLLM::EngineCore"
    assert zombies.end([judged_one], "/proc", 1) == {pid: outcome}
    assert wait_for(lambda: read_stat(pid) is None or read_stat(pid).state == "Z")
    assert read_stat(bystander).state not in "ZX"
    assert zombies.end([judged_one], "/proc", 1) == {pid: "gone"}


def test_a_number_with_another_process_is_left_alone(abandoned):
    pid = abandoned()
    later = {**with_start(pid), "start_ticks": 1}
    assert zombies.end([later, {**later, "start_ticks": None}], "/proc", 1) == {pid: "another"}
    assert read_stat(pid).state not in "ZX"


def test_a_child_of_a_living_script_is_not_an_orphan_and_a_zombie_is_defunct():
    child = subprocess.Popen([sys.executable, "-c", TITLED, "VLLM::EngineCore", "gentle", "x" * 40], stdout=subprocess.PIPE)
    try:
        child.stdout.readline()
        assert of(child.pid)["class"] == "live" and "may have started it" in of(child.pid)["why"]
        child.kill()
        wait_for(lambda: read_stat(child.pid).state == "Z")
        assert of(child.pid)["class"] == "defunct"
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_a_signal_needs_the_modules_own_pid_namespace(tmp_path):
    assert zombies.own_processes("/proc")
    assert not zombies.own_processes(str(tmp_path))
    (tmp_path / "self").symlink_to("1")
    assert not zombies.own_processes(str(tmp_path))


def test_a_signal_that_is_not_allowed(abandoned, monkeypatch):
    def refused(_descriptor, _number):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(signal, "pidfd_send_signal", refused)
    with pytest.raises(ClusterError, match="no permission") as caught:
        zombies.end([with_start(abandoned())], "/proc", 1)
    assert "become" in caught.value.remedy
