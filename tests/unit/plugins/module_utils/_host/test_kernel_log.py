# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the kernel logged since it booted. Nothing here reads or writes the log of the machine that runs the tests."""

from __future__ import annotations

import errno
import json
import os
import pathlib

import hypothesis
import hypothesis.strategies as st
import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._host import kernel_log
from ansible_collections.gb10.cluster.plugins.module_utils._host.kernel_log import Line
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult

FIXTURES = pathlib.Path(__file__).parents[3] / "fixtures/kernel_log"
KMSG = (FIXTURES / "composed_spark_kmsg.txt").read_text()
#: 2026-11-21T00:00:00Z
BOOT = 1795219200
BANNER = "[    0.000000] Linux version 6.11.0-1016-nvidia (b@c)\n"
OUT_OF_MEMORY = "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from _memdescAllocInternal(pMemDesc)"
XID = "NVRM: Xid (PCI:000f:01:00): 43, pid=4711, name=python3, Ch 00000008"


def kinds(text):
    return [event["kind"] for event in kernel_log.parse_log(text, BOOT).events()]


def test_a_boot_with_everything():
    log = kernel_log.parse_log(KMSG, BOOT)
    events = log.events()
    assert [(event["kind"], event["count"]) for event in events] == [
        ("mlx5", 1),  # the link that was up and went down
        ("nv_no_memory", 3),
        ("nvrm", 1),
        ("xid", 1),
        ("aer", 1),
        ("firmware", 1),
        ("oom", 1),
        ("oom", 1),
        ("oom", 1),
    ]
    assert log.since_boot and not log.truncated
    assert (events[1]["time"], events[1]["last"]) == ("2026-11-21T01:01:40Z", "2026-11-21T01:02:40Z")
    assert events[1]["text"].startswith("NVRM: nvCheckOkFailedNoLog") and events[0]["text"].endswith("Link down")


def test_a_healthy_boot_has_no_event():
    healthy = "".join(line for line in KMSG.splitlines(keepends=True) if "," not in line or int(line.split(",")[1]) < 2000)
    assert kinds(healthy) == []
    assert kinds(healthy.replace("30,800,", "6,800,")) == ["xid"]  # the same words from the kernel itself


def test_a_recorded_healthy_boot():
    log = kernel_log.parse_log((FIXTURES / "recorded_h100_kmsg.txt").read_text(), BOOT)
    # Driver 580 clears an interrupt at every start of this kind of GPU.
    assert log.since_boot and [(event["kind"], event["time"]) for event in log.events()] == [("nvrm", "2026-11-21T00:00:01Z")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"[12345.678901] {XID}", Line(XID, None, 12345678901)),
        (f"<4>[   12.000001] {XID}", Line(XID, 4, 12000001)),
        (f"[   12.000001][  T511] {XID}", Line(XID, None, 12000001)),
        (f"4,1,12000001,-,caller=T511;{XID}", Line(XID, 4, 12000001)),
        (f"2026-11-21T01:00:00,000001+01:00 {XID}", Line(XID, None, None, BOOT * 1000000 + 1)),
        (f"2026-11-21T00:00:00+0000 spark1 kernel: {XID}", Line(XID, None, None, BOOT * 1000000)),
        (f"2026-11-21T00:00:00.5Z spark1 kernel: {XID}", Line(XID, None, None, BOOT * 1000000 + 500000)),
        (f"2026-99-21T00:00:00Z {XID}", Line(XID)),
        (f"Nov 21 00:00:00 spark1 kernel: {XID}", Line(XID)),
        (f"[Sat Nov 21 00:00:00 2026] {XID}", Line(XID)),
        (XID, Line(XID)),
        ("{" + XID, Line("{" + XID)),
        (f"30,1,12000001,-;{XID}", None),
        (f"<30>[   12.000001] {XID}", None),
        (f"Nov 21 00:00:00 spark1 logger[12]: {XID}", None),
        (f"2026-11-21T00:00:00+0000 spark1 logger[12]: {XID}", None),
        ("-- Boot 2a5dc1f5 --", None),
        (" SUBSYSTEM=pci", None),
        ("", None),
    ],
)
def test_lines_of_every_shape(line, expected):
    assert kernel_log.parse_line(line) == expected


def journal(message, **fields):
    return json.dumps({"MESSAGE": message, "_TRANSPORT": "kernel", "PRIORITY": "4", "__REALTIME_TIMESTAMP": str(BOOT * 1000000), **fields})


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (journal(XID), Line(XID, 4, None, BOOT * 1000000)),
        (journal(XID, _SOURCE_MONOTONIC_TIMESTAMP="12000001"), Line(XID, 4, 12000001, BOOT * 1000000)),
        (journal([78, 86, 82, 77, 58, 32, 255]), Line("NVRM: \ufffd", 4, None, BOOT * 1000000)),
        (journal(XID, PRIORITY=["4", "5"]), Line(XID, None, None, BOOT * 1000000)),
        (journal(None), None),
        (journal([1000]), None),
        (journal(XID, SYSLOG_FACILITY="3"), None),
        (journal(XID, _TRANSPORT="syslog"), None),
    ],
)
def test_lines_of_the_journal(line, expected):
    assert kernel_log.parse_line(line) == expected


def test_journal_times_are_those_of_the_kernel():
    (event,) = kernel_log.parse_log(journal(XID, _SOURCE_MONOTONIC_TIMESTAMP="60000000"), BOOT - 3600).events()
    assert event["time"] == "2026-11-20T23:01:00Z"
    (event,) = kernel_log.parse_log(journal(XID), None).events()
    assert event["time"] == "2026-11-21T00:00:00Z"


def test_only_this_boot_counts():
    log = kernel_log.parse_log(BANNER + f"[    5.000000] {XID}\n" + BANNER + "[    6.000000] " + OUT_OF_MEMORY)
    assert [event["kind"] for event in log.events()] == ["nv_no_memory"] and log.since_boot


def test_a_log_without_its_beginning_says_so():
    assert not kernel_log.parse_log(f"[    5.000000] {XID}\n").since_boot


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("pcieport 0000:00:00.0: AER: Correctable error message received from 0000:01:00.0", ["aer"]),
        ("mlx5_core 0000:01:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)", ["aer"]),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [irq/51-aerdrv:123]", ["stall"]),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [python3:123]", ["stall"]),
        ("rcu: INFO: rcu_preempt self-detected stall on CPU", ["stall"]),
        ("rcu: rcu_preempt kthread starved for 15000 jiffies! g123 f0x0 RCU_GP_WAIT_FQS(5)", ["stall"]),
        ("rcu: Hierarchical SRCU implementation.", []),
        ("INFO: task kworker/3:1:77 blocked for more than 120 seconds.", ["stall"]),
        ("Internal error: Oops - Undefined instruction: 0000000002000000 [#1] SMP", ["oops"]),
        ("Unable to handle kernel NULL pointer dereference at virtual address 0000000000000008", ["oops"]),
        ("kernel BUG at mm/slub.c:321!", ["oops"]),
        ("pcieport 0002:00:00.0: broken device, retraining non-functional downstream link at 2.5GT/s", ["pcie"]),
        ("pcieport 0002:00:00.0: retraining failed", ["pcie"]),
        ("cx7-pcie-hotplug MTKP0001:00: Cable removal", ["removed"]),
        ("pcieport 0000:00:00.0: pciehp: Slot(0): Card not present", ["removed"]),
        ("mlx5_core 0000:01:00.1: wait_func:1151:(pid 7): ACCESS_REG(0x805) timeout. Will cause a leak of a command resource", ["firmware"]),
        ("mlx5_core 0000:01:00.1: wait_func_handle_exec_timeout:1105:(pid 7): cmd[2]: 2ERR_QP(0x507) No done completion", ["firmware"]),
        ("mlx5_core 0000:01:00.1: wait_func_handle_exec_timeout:1105:(pid 7): cmd[2]: 2ERR_QP(0x507) recovered after timeout", ["mlx5"]),
        ("NVRM: Xid (PCI:000f:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", ["xid"]),
        ("NVRM: Xid (PCI:000f:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", []),
        ("mlx5_core 0000:01:00.0: mlx5_pci_err_detected Device state = 2 health sensors: 1 pci_status: 1. Enter", ["aer"]),
        ("mlx5_core 0000:01:00.0: Port module event[error]: module 0, Cable error, Bus stuck", ["mlx5"]),
        ("mlx5_core 0000:01:00.0: Port module event: module 0, Cable plugged", []),
        ("mlx5_core 0000:01:00.0: Port module event: module 0, Cable unplugged", ["mlx5"]),
        ("mlx5_core 0000:01:00.0: E-Switch: Total vports 2, per vport: max uc(128) max mc(2048)", []),
        ("Memory cgroup out of memory: Killed process 12 (python3)", ["oom"]),
        ("NVRM: GPU 000f:01:00.0: RmInitAdapter failed! (0x62:0x1a:2631)", ["gpu"]),
        ("NVRM cpuidInfoAMD: Unrecognized AMD processor in cpuidInfoAMD", ["nvrm"]),
        ("EXT4-fs (nvme0n1p2): mounted filesystem", []),
    ],
)
def test_kinds(line, expected):
    assert kinds(f"[   10.000000] {line}") == expected


def test_a_card_that_came_back_with_its_cable_was_not_removed():
    removal, insertion = "[   16.000000] cx7-pcie-hotplug MTKP0001:00: Cable removal\n", "[   17.000000] cx7-pcie-hotplug MTKP0001:00: Cable plugin\n"
    assert kinds(removal + insertion) == []
    assert kinds(removal + insertion + removal) == ["removed"]


def test_what_a_terminal_would_obey_is_taken_out():
    (event,) = kernel_log.parse_log(f"[   10.000000] {XID} \x1b[2J\r\x07\x00" + "x" * 5000).events()
    assert event["text"].isprintable() and len(event["text"]) <= 400


def test_many_different_events_are_bounded():
    words = [f"{first}{second}" for first in "abcdefghijklmnopqrstuvwxyz" for second in "abcdefghijklmnopqrstuvwxyz"]
    log = kernel_log.parse_log(BANNER + "".join(f"[   10.000000] NVRM: {word}\n" for word in words))
    assert len(log.events()) == kernel_log.EVENT_LIMIT and log.truncated


@pytest.fixture
def proc(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text(f"cpu 1 2 3\nbtime {BOOT}\nprocesses 4\n")
    return str(tmp_path / "proc")


def test_a_file_with_binary_in_it(tmp_path, proc):
    path = tmp_path / "log"
    path.write_bytes(b"\x00\xff\xfe" * 1000 + b"\n" + BANNER.encode() + b"\x80\x81\n" + f"[   60.000000] {XID} \xff\n".encode("latin-1"))
    result = kernel_log.kernel_log(str(path), proc)
    assert result.keys() == {"since_boot", "source", "events", "truncated"} and result["since_boot"] and result["source"] == str(path)
    assert [(event["kind"], event["time"], event["count"]) for event in result["events"]] == [("xid", "2026-11-21T00:01:00Z", 1)]
    assert result["events"][0].keys() == {"time", "last", "kind", "text", "count"}


def test_of_a_large_file_the_end_is_read(tmp_path, proc, monkeypatch):
    monkeypatch.setattr(kernel_log, "FILE_LIMIT", 1000)
    path = tmp_path / "log"
    path.write_text(BANNER + "[    1.000000] NVRM: early\n" + "[    2.000000] nothing\n" * 500 + f"[   60.000000] {XID}\n")
    result = kernel_log.kernel_log(str(path), proc)
    assert [event["kind"] for event in result["events"]] == ["xid"] and result["truncated"] and not result["since_boot"]


def test_a_missing_file_is_reported(tmp_path, proc):
    with pytest.raises(FileNotFoundError):
        kernel_log.kernel_log(str(tmp_path / "none"), proc)


def test_without_the_time_of_the_boot_events_count_without_a_time(tmp_path):
    path = tmp_path / "log"
    path.write_text(f"[   60.000000] {XID}\n")
    noted = []

    def section(reader, otherwise=None):
        try:
            return reader()
        except OSError as error:
            noted.append(error)
            return otherwise

    result = kernel_log.kernel_log(str(path), str(tmp_path), section=section)
    assert result["events"][0]["time"] is None and len(noted) == 1


@pytest.fixture
def buffer(monkeypatch, tmp_path):
    """In place of /dev/kmsg: one record for each read, then EAGAIN. A regular file would give everything in one read."""

    def buffer(records, end=errno.EAGAIN):
        path = tmp_path / "kmsg"
        path.write_text("")
        answers = iter([*records, end])

        def read(_descriptor, size):
            answer = next(answers)
            if isinstance(answer, int):
                raise OSError(answer, os.strerror(answer))
            return answer.encode("utf-8", errors="surrogateescape")[:size]

        monkeypatch.setattr(kernel_log.os, "read", read)
        return str(path)

    return buffer


def records(text):
    joined = []
    for line in text.splitlines(keepends=True):
        if line.startswith(" ") and joined:
            joined[-1] += line
        else:
            joined.append(line)
    return joined


def no_journal(*_args):
    raise UnknownState("journalctl cannot be run", reason="tool missing")


def test_the_kernels_buffer(buffer, proc, monkeypatch):
    monkeypatch.setattr(kernel_log, "run_tool", no_journal)
    path = buffer(records(KMSG))
    result = kernel_log.kernel_log("auto", proc, kmsg=path)
    assert result["source"] == path and result["since_boot"] and not result["truncated"] and len(result["events"]) == 9


def test_the_journal_replaces_an_overwritten_buffer(buffer, proc, monkeypatch):
    later = [record for record in records(KMSG) if int(record.split(",")[1]) >= 2100]
    calls = []

    def run_tool(argv, timeout):
        calls.append(argv)
        return ToolResult(0, journal("Linux version 6.11.0") + "\n" + journal("NVRM: early") + "\n", "")

    monkeypatch.setattr(kernel_log, "run_tool", run_tool)
    result = kernel_log.kernel_log("auto", proc, kmsg=buffer(later))
    assert result["source"] == "journalctl" and result["since_boot"] and [event["text"] for event in result["events"]] == ["NVRM: early"]
    assert calls[0][:3] == ["journalctl", "-k", "-b"]


def test_an_overwritten_buffer_is_better_than_nothing(buffer, proc, monkeypatch):
    monkeypatch.setattr(kernel_log, "run_tool", no_journal)
    result = kernel_log.kernel_log("auto", proc, kmsg=buffer(["4,77,1,-;x\n", errno.EPIPE, f"4,99,1,-;{XID}\n"]))
    assert not result["since_boot"] and result["truncated"] and [event["kind"] for event in result["events"]] == ["xid"]


def test_reading_the_buffer_is_bounded(buffer, proc, monkeypatch):
    monkeypatch.setattr(kernel_log, "run_tool", no_journal)
    monkeypatch.setattr(kernel_log, "RECORD_LIMIT", 3)
    assert kernel_log.kernel_log("auto", proc, kmsg=buffer(records(KMSG)))["truncated"]
    monkeypatch.setattr(kernel_log, "RECORD_LIMIT", 50)
    assert kernel_log.kernel_log("auto", proc, timeout=-1.0, kmsg=buffer(records(KMSG)))["truncated"]


@pytest.mark.parametrize(
    "answer", [ToolResult(1, "", "No journal files were opened due to insufficient permissions."), ToolResult(0, "", ""), ToolResult(0, "\n", "")]
)
def test_a_user_who_may_read_neither_is_reported(tmp_path, proc, monkeypatch, answer):
    monkeypatch.setattr(kernel_log, "run_tool", lambda argv, timeout: answer)
    with pytest.raises(UnknownState, match="No such file.*journal") as caught:
        kernel_log.kernel_log("auto", proc, kmsg=str(tmp_path / "none"))
    assert "become" in caught.value.remedy


def test_an_empty_buffer_is_unknown(buffer, proc, monkeypatch):
    monkeypatch.setattr(kernel_log, "run_tool", no_journal)
    with pytest.raises(UnknownState, match="holds no message"):
        kernel_log.kernel_log("auto", proc, kmsg=buffer([]))


def test_a_fifo_without_a_writer_does_not_hang(tmp_path, proc, monkeypatch):
    monkeypatch.setattr(kernel_log, "run_tool", no_journal)
    os.mkfifo(tmp_path / "kmsg")
    with pytest.raises(UnknownState):
        kernel_log.kernel_log("auto", proc, kmsg=str(tmp_path / "kmsg"))


@pytest.mark.parametrize("stat", ["", "btime x\n", "xbtime 12\n"])
def test_no_time_of_the_boot_is_unknown(tmp_path, stat):
    (tmp_path / "stat").write_text(stat)
    with pytest.raises(UnknownState):
        kernel_log.read_boot_time(str(tmp_path))


@st.composite
def mutated(draw):
    """A log with pieces cut, doubled or replaced."""
    text = draw(st.sampled_from([KMSG, BANNER + f"[   60.000000] {XID}\n", journal(XID, _SOURCE_MONOTONIC_TIMESTAMP="12") + "\n"]))
    for _step in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 300)))
        pieces = [text[start:end] * 2, "\0", "\n", "9" * 30, "٣", "{" * 5000, "[" * 5000, ":", "\x1b[2J"]
        text = text[:start] + draw(st.one_of(st.text(max_size=30), st.sampled_from(pieces))) + text[end:]
    return text


@hypothesis.settings(deadline=None, derandomize=True, database=None)
@hypothesis.given(mutated(), st.one_of(st.none(), st.integers(0, 10**12)))
def test_no_text_is_too_strange(text, boot):
    for event in kernel_log.parse_log(text, boot).events():
        assert event["kind"] and event["count"] >= 1 and event["text"].isprintable()


@hypothesis.settings(deadline=None, derandomize=True, database=None)
@hypothesis.given(st.binary(max_size=2000))
def test_no_bytes_are_too_strange(content):
    kernel_log.parse_log(content.decode("utf-8", errors="replace"), BOOT)
