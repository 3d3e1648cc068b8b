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
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils._engine import launcher
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import driver_xml, zombies
from ansible_collections.gb10.cluster.plugins.module_utils._process import process_table
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import Process
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

RECORDED = pathlib.Path(__file__).parents[3] / "fixtures/gpu_situations"

#: Sets its own title as engines do (in the memory of its arguments), says that it is ready, and waits.
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

#: Starts the one above and ends, so that somebody else adopts it.
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
    return {one.pid: one for one in processes}


def judged(pid, processes, firsts=(), dead_sessions=()):
    return zombies.parentage(processes[pid], processes, lambda other: other in firsts, lambda other: other not in dead_sessions)


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
    assert [(one["pid"], one["name"], one["used_mib"]) for one in two] == [(7, "a", 150), (9, "x", None)]
    assert zombies.sum_mib(two) is None and zombies.sum_mib(two[:1]) == 150 and zombies.sum_mib([]) == 0


def test_processes_that_the_driver_does_not_tell_are_unknown():
    with pytest.raises(UnknownState, match="GPU 0"):
        zombies.listed([{"index": 0, "processes": None}])


def test_unified_memory_is_that_of_a_gpu_without_its_own():
    assert zombies.unified([gpu()]) is True
    assert zombies.unified([gpu(), gpu(total=143771)]) is False
    assert zombies.unified([]) is None


# -- parentage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "server",
    [
        SERVE,
        ("/usr/bin/python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"),
        ("vllm serve /models/m --port 8000",),
        ("VLLM::APIServer_1",),
        ("/opt/ray/core/src/ray/raylet/raylet", "--raylet_socket_name=x"),
        ("python3", "-m", "sglang.launch_server"),
    ],
)
def test_a_living_server_keeps_its_core_and_the_workers_below_it(server):
    processes = table(INIT, process(10, 1, *server), process(11, 10, *CORE), process(12, 11, "VLLM::Worker_TP0"))
    for pid in (11, 12):
        lineage = judged(pid, processes)
        assert not lineage.orphan and "process 10 serves" in lineage.why


def test_without_its_server_a_core_and_its_workers_are_orphans():
    processes = table(INIT, process(11, 1, *CORE), process(12, 11, "VLLM::Worker_TP0"), process(13, 1, "ray::RayWorkerProc.run"))
    assert [judged(pid, processes).orphan for pid in (11, 12, 13)] == [True, True, True]
    assert judged(12, processes).chain == (11, 1)


def test_a_script_that_uses_the_engine_as_a_library_keeps_its_core():
    processes = table(INIT, process(10, 1, "python3", "batch.py"), process(11, 10, *CORE))
    lineage = judged(11, processes)
    assert not lineage.orphan and "python3 batch.py" in lineage.why


def test_a_helper_of_python_is_looked_through():
    fork = ("python3", "-c", "from multiprocessing.forkserver import main; main(3, 4)")
    assert judged(12, table(INIT, process(11, 1, *fork), process(12, 11, *CORE))).orphan
    assert not judged(12, table(INIT, process(10, 1, *SERVE), process(11, 10, *fork), process(12, 11, *CORE))).orphan


@pytest.mark.parametrize(
    "first",
    [
        ("sleep", "infinity"),
        ("/sbin/tini", "--"),
        ("/bin/bash",),
        ("python3", "/opt/gb10/launch/launcher.py", "hold", "--spec", "x"),
        ("/usr/bin/python3", "/usr/local/bin/ray", "start", "--block"),
    ],
)
def test_in_a_container_the_first_process_adopts(first):
    processes = table(INIT, process(500, 400, *first, container="c"), process(511, 500, *CORE, container="c"))
    assert judged(511, processes, firsts=(500,)).orphan
    # The same program elsewhere is no adopter: it started the core.
    assert not judged(511, processes).orphan


def test_a_container_whose_first_process_may_be_the_engine_itself():
    processes = table(INIT, process(500, 400, "python3", "batch.py", container="c"), process(511, 500, *CORE, container="c"))
    assert not judged(511, processes, firsts=(500,)).orphan
    assert judged(511, processes, firsts=(500,), dead_sessions=(511,)).orphan
    served = table(INIT, process(500, 400, *SERVE, container="c"), process(511, 500, *CORE, container="c"))
    assert not judged(511, served, firsts=(500,), dead_sessions=(511,)).orphan


def test_what_cannot_be_seen_is_no_orphan():
    assert not judged(11, table(process(11, 10, *CORE))).orphan
    assert not judged(11, table(INIT, process(10, 1, *SERVE, state="Z"), process(11, 10, *CORE))).orphan
    assert not judged(11, table(process(11, 0, *CORE))).orphan
    assert not judged(11, table(process(11, 1, *CORE), INIT), firsts=(11,)).orphan


def test_a_loop_ends():
    processes = table(process(11, 12, *CORE), process(12, 11, *CORE))
    assert "no end" in judged(11, processes).why


def test_the_users_own_systemd_adopts():
    processes = table(INIT, process(900, 1, "/usr/lib/systemd/systemd", "--user"), process(911, 900, *CORE))
    assert judged(911, processes).orphan


def test_servers_and_parts_are_told_apart():
    assert zombies.is_part(CORE) and not zombies.is_part(("VLLM::APIServer",)) and not zombies.is_part(())
    assert not zombies.is_part(("grep", "VLLM::EngineCore"))
    assert not zombies.is_owner(process(5, 1, "grep", "vllm serve")) and not zombies.is_owner(process(5, 1, *CORE)) and not zombies.is_owner(process(5, 1))


@given(
    st.lists(
        st.tuples(
            st.integers(0, 8),
            st.integers(0, 8),
            st.sampled_from([CORE, SERVE, ("sleep",), (), ("python3", "x.py"), ("raylet",), ("VLLM::Worker_TP0",)]),
            st.sampled_from("SZDX"),
        ),
        min_size=1,
        max_size=9,
    ),
    st.sets(st.integers(0, 8)),
    st.sets(st.integers(0, 8)),
)
@settings(max_examples=300, deadline=None)
def test_no_process_tree_makes_an_orphan_of_a_core_below_a_living_server(rows, firsts, dead):
    processes = table(*(process(pid, ppid, *argv, state=state) for pid, ppid, argv, state in rows))
    for pid in processes:
        lineage = judged(pid, processes, firsts, dead)
        assert lineage.why
        if lineage.orphan:
            assert not any(zombies.is_owner(processes[one]) for one in lineage.chain)


# -- classes ---------------------------------------------------------------------------------------------------------


def entry(pid, name="x", used=100):
    return {"pid": pid, "name": name, "type": "C", "used_mib": used}


def test_every_class():
    script, ended = process(10, 1, "python3", "train.py"), process(12, 10, "python3", state="Z")
    processes = table(INIT, script, process(11, 1, *CORE), ended, process(13, 1, "VLLM::Worker_TP0"))
    found = zombies.classified(
        [entry(10), entry(11), entry(12, ""), entry(99), entry(98)], processes, {99: "ghost", 98: "unknown"}.__getitem__, lambda one: judged(one.pid, processes)
    )
    assert [(one["pid"], one["class"], one["listed"]) for one in found] == [
        (10, "live", True), (11, "orphan", True), (12, "defunct", True), (13, "orphan", False), (98, "unknown", True), (99, "ghost", True)
    ]  # fmt: skip
    assert found[2]["name"] == "python3" and found[3]["used_mib"] is None and found[3]["rss_mb"] == 2


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
    name, ppid, _state, _pages = process_table.parse_stat((folder / "stat").read_text())
    pid = int((folder / "stat").read_text().split()[0])
    (tmp_path / str(pid)).mkdir()
    for file in ("stat", "status", "cmdline"):
        (tmp_path / str(pid) / file).write_bytes((folder / file).read_bytes())
    processes = table(process_table.read_process(pid, str(tmp_path)), process(ppid, 1, *parent) if parent else INIT)
    assert ppid == 1 if parent is None else ppid != 1
    entries = zombies.listed(driver_xml.parse_gpus((folder / "smi.xml").read_text()))
    (found,) = zombies.classified(entries, processes, lambda _pid: "ghost", lambda one: judged(one.pid, processes))
    assert (found["pid"], found["used_mib"], found["class"], found["name"]) == (pid, 4614, kind, found["name"] or name)
    assert found["name"]
    assert zombies.first_of_namespace(pid, str(tmp_path)) is (situation == "pidns")


def test_a_zombie_is_no_longer_listed_after_a_while():
    assert zombies.listed(driver_xml.parse_gpus((RECORDED / "defunct" / "smi.xml").read_text())) == []
    assert process_table.parse_stat((RECORDED / "defunct" / "stat").read_text())[2] == "Z"


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
        made.append(launcher.process(pid))
        return pid

    yield make
    for one in made:
        if one:
            launcher.send(one, signal.SIGKILL)


def seen(pid):
    return zombies.classified([entry(pid)], process_table.scan().processes, lambda _pid: "ghost", judge_real)


def judge_real(one):
    processes = process_table.scan().processes
    return zombies.parentage(
        one, processes, lambda pid: zombies.first_of_namespace(pid, "/proc"), lambda pid: zombies.session_lives(pid, processes, "/proc")
    )


def of(pid):
    return next(one for one in seen(pid) if one["pid"] == pid)


def with_start(pid):
    return {**of(pid), "start_ticks": launcher.process(pid).start_ticks}


@pytest.mark.parametrize(("manner", "outcome"), [("gentle", "term"), ("deaf", "kill")])
def test_a_real_orphan_is_judged_and_ended(abandoned, manner, outcome):
    pid, bystander = abandoned(manner=manner), abandoned(title="VLLM::Worker_TP1")
    judged_one = with_start(pid)
    assert judged_one["class"] == "orphan" and judged_one["title"] == "VLLM::EngineCore"
    assert zombies.end([judged_one], "/proc", 1) == {pid: outcome}
    assert wait_for(lambda: launcher.process(pid) is None or launcher.process(pid).state == "Z")
    assert launcher.process(bystander).state not in "ZX"
    assert zombies.end([judged_one], "/proc", 1) == {pid: "gone"}


def test_a_number_with_another_process_is_left_alone(abandoned):
    pid = abandoned()
    later = {**with_start(pid), "start_ticks": 1}
    assert zombies.end([later, {**later, "start_ticks": None}], "/proc", 1) == {pid: "another"}
    assert launcher.process(pid).state not in "ZX"


def test_a_real_child_of_a_living_script_is_no_orphan_and_a_real_zombie_is_defunct():
    child = subprocess.Popen([sys.executable, "-c", TITLED, "VLLM::EngineCore", "gentle", "x" * 40], stdout=subprocess.PIPE)
    try:
        child.stdout.readline()
        assert of(child.pid)["class"] == "live" and "may have started it" in of(child.pid)["why"]
        child.kill()
        wait_for(lambda: launcher.process(child.pid).state == "Z")
        assert of(child.pid)["class"] == "defunct"
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_a_signal_only_goes_where_the_numbers_are_ours(tmp_path):
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
