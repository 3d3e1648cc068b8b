# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All processes in one pass, on trees that change under the reader."""

from __future__ import annotations

import mmap
import os
import pathlib
import random
import shutil
import threading
import time

import hypothesis
import hypothesis.strategies as st
import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._process import process_table

FIXTURES = pathlib.Path(__file__).parents[3] / "fixtures/proc"
DOCKERD = (FIXTURES / "recorded_dockerd_stat.txt").read_text()
ID = "ab" * 32


def add(root, pid, *, argv=("sleep", "9"), name=None, ppid=1, state="S", pages=10, cgroup="0::/system.slice/x.service\n"):
    """Put a process into a proc tree."""
    base = pathlib.Path(root) / str(pid)
    base.mkdir()
    name = os.path.basename(argv[0])[:15] if name is None else name
    (base / "stat").write_text(f"{pid} ({name}) {state} {ppid} " + "0 " * 19 + f"{pages} 0 0\n")
    (base / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in argv))
    (base / "cgroup").write_text(cgroup)
    return base


def basics(stat):
    return stat["name"], stat["ppid"], stat["state"], stat["rss_kib"] * 1024 // mmap.PAGESIZE


def test_a_recorded_process():
    assert basics(process_table.parse_stat(DOCKERD)) == ("dockerd", 19550, "S", 20959)


@pytest.mark.parametrize("name", ["a b", "x) S 1", "((", ""])
def test_a_name_may_hold_any_character(name):
    assert basics(process_table.parse_stat(f"7 ({name}) R 1 " + "0 " * 19 + "5 0")) == (name, 1, "R", 5)


@pytest.mark.parametrize("text", ["", "7", "7 (x", "7 (x) S", "7 (x) S y " + "0 " * 30, "7 (x) S 1 7 7 0 -1 0 0 0 0 0 -5 1 0 0 20 0 1 0 5000 0 0"])
def test_a_process_in_another_shape_is_unknown(text):
    with pytest.raises(UnknownState):
        process_table.parse_stat(text)


@pytest.mark.parametrize(
    ("raw", "argv"),
    [
        (b"", ()),
        (b"\0\0", ()),
        (b"vllm\0serve\0", ("vllm", "serve")),
        (b"python3\0\0x\0", ("python3", "", "x")),
        (b"VLLM::EngineCore\0\0\0\0", ("VLLM::EngineCore",)),
        (b"sshd: /usr/sbin/sshd -D [listener] 0 of 10-100 startups\0", ("sshd: /usr/sbin/sshd -D [listener] 0 of 10-100 startups",)),
        (b"\xff\xfe\0", ("\ufffd\ufffd",)),
    ],
)
def test_command_lines(raw, argv):
    assert process_table.parse_cmdline(raw) == argv


def test_a_tree(tmp_path):
    add(tmp_path, 1, argv=("/sbin/init",), ppid=0)
    add(tmp_path, 2, argv=(), name="kthreadd", ppid=0, pages=0)
    add(tmp_path, 30, argv=("/usr/bin/vllm", "serve"), ppid=12, pages=256, cgroup=f"0::/system.slice/docker-{ID}.scope\n")
    add(tmp_path, 31, state="Z", argv=(), name="x")
    (tmp_path / "meminfo").write_text("")
    seen = process_table.scan(str(tmp_path))
    assert list(seen.processes) == [1, 2, 30, 31] and seen.hidden == 0
    engine = seen.processes[30]
    assert (engine.ppid, engine.command, engine.container) == (12, "/usr/bin/vllm serve", ID)
    assert engine.rss_kib == 256 * mmap.PAGESIZE // 1024 and engine.uid == os.getuid() and not engine.ended
    assert seen.processes[31].ended and seen.processes[2].argv == ()
    assert process_table.by_container(seen.processes.values()) == {ID: [30]}


def test_the_container_that_we_run_in_is_the_node(tmp_path):
    add(tmp_path, 1, cgroup=f"12:memory:/docker/{ID}\n")
    add(tmp_path, 2, cgroup=f"12:memory:/docker/{ID}/docker/{'cd' * 32}\n")
    (tmp_path / "self").symlink_to("1")
    seen = process_table.scan(str(tmp_path)).processes
    assert seen[1].container == "" and seen[2].container == "cd" * 32


def test_a_kernel_without_control_groups(tmp_path):
    (add(tmp_path, 5) / "cgroup").unlink()
    assert process_table.scan(str(tmp_path)).processes[5].container == ""


def test_no_process_is_not_an_answer(tmp_path):
    with pytest.raises(UnknownState, match="shows no process"):
        process_table.scan(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        process_table.scan(str(tmp_path / "absent"))


@pytest.mark.parametrize("error", [FileNotFoundError(2, "No such file"), ProcessLookupError(3, "No such process")])
@pytest.mark.parametrize("file", ["stat", "cmdline"])
def test_a_process_that_ends_between_two_reads_is_left_out(tmp_path, monkeypatch, error, file):
    add(tmp_path, 5)
    add(tmp_path, 6)
    read = process_table.read_bytes

    def vanishing(path, *limit):
        if path.endswith(f"/5/{file}"):
            raise error
        return read(path, *limit)

    monkeypatch.setattr(process_table, "read_bytes", vanishing)
    assert list(process_table.scan(str(tmp_path)).processes) == [6]


def test_processes_that_may_not_be_looked_at_are_counted(tmp_path, monkeypatch):
    for pid in (5, 6, 7):
        add(tmp_path, pid)
    read = process_table.read_bytes

    def denied(path, *limit):
        if "/6/" in path:
            raise PermissionError(13, "Permission denied", path)
        return read(path, *limit)

    monkeypatch.setattr(process_table, "read_bytes", denied)
    seen = process_table.scan(str(tmp_path))
    assert list(seen.processes) == [5, 7] and seen.hidden == 1


def test_the_number_of_hidden_processes_is_unknown(tmp_path, monkeypatch):
    (add(tmp_path, 5) / "mounts").write_text(f"proc {tmp_path} proc rw,nosuid,hidepid=invisible 0 0\n")
    (tmp_path / "self").symlink_to("5")
    monkeypatch.setattr(process_table.os, "geteuid", lambda: 1000)
    assert process_table.scan(str(tmp_path)).hidden is None
    monkeypatch.setattr(process_table.os, "geteuid", lambda: 0)
    assert process_table.scan(str(tmp_path)).hidden == 0


def test_four_thousand_processes_of_which_many_end_meanwhile(tmp_path):
    for pid in range(1, 4001):
        add(tmp_path, pid)
    doomed = random.Random(4).sample(range(2, 4001), 1000)
    ending = threading.Thread(target=lambda: [shutil.rmtree(tmp_path / str(pid)) for pid in doomed])
    began = time.monotonic()
    ending.start()
    seen = process_table.scan(str(tmp_path))
    took = time.monotonic() - began
    ending.join()
    assert set(range(1, 4001)) - set(doomed) <= set(seen.processes)
    assert took < 10, "a pass over 4,000 processes takes a fraction of a second on an idle machine"


def test_processor_time():
    before = process_table.parse_stat("7 (VLLM::Worker (x) y) S 1 7 7 0 -1 0 0 0 0 0 100 20 0 0 20 0 1 0 5000 0 0")
    assert (before["session"], before["cpu_ticks"], before["start_ticks"]) == (7, 120, 5000)
    ticks = os.sysconf("SC_CLK_TCK")
    entry = process_table.Process(7, 1, "S", "x", (), "", 0, 0, cpu_ticks=120, start_ticks=5000)
    assert process_table.cpu_percent(entry, entry._replace(cpu_ticks=120 + 2 * ticks), 2.0) == 100.0
    assert process_table.cpu_percent(entry, entry._replace(cpu_ticks=320, start_ticks=5001), 2.0) is None, "another process has the number"
    assert process_table.cpu_percent(entry, entry, 0) is None


def test_some_processes_alone(tmp_path):
    for pid in (5, 6, 7):
        add(tmp_path, pid)
    assert list(process_table.scan(str(tmp_path), [7, 5, 99]).processes) == [5, 7]
    assert process_table.scan(str(tmp_path), []).processes == {}


@pytest.mark.parametrize(("hidden", "says"), [(3, "3 processes"), (None, "hidepid")])
def test_what_may_not_be_seen_is_unknown(hidden, says):
    with pytest.raises(UnknownState, match=says) as caught:
        process_table.require_all_seen(process_table.Scan({}, hidden))
    assert "become" in caught.value.remedy
    assert process_table.require_all_seen(process_table.Scan({}, 0)).processes == {}


def test_this_machine():
    assert os.getpid() in process_table.scan().processes


def test_accounts():
    assert process_table.user_name(0) == "root" and process_table.user_name(4_000_000_000) == "4000000000"


@hypothesis.settings(deadline=None, derandomize=True, database=None)
@hypothesis.given(st.integers(0, len(DOCKERD)), st.integers(0, 40), st.text(max_size=20))
def test_a_mutated_process_is_read_or_unknown(start, length, put):
    try:
        name, ppid, state, pages = basics(process_table.parse_stat(DOCKERD[:start] + put + DOCKERD[start + length:]))
    except UnknownState:
        return
    assert isinstance(name, str) and isinstance(ppid, int) and state and isinstance(pages, int)


@hypothesis.settings(deadline=None, derandomize=True, database=None)
@hypothesis.given(st.binary(max_size=300))
def test_no_command_line_is_too_strange(raw):
    assert all(isinstance(word, str) for word in process_table.parse_cmdline(raw))
