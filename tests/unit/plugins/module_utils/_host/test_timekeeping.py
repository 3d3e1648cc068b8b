# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a node keeps its time."""

from __future__ import annotations

import pathlib

import hypothesis
import hypothesis.strategies as st
import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._host import timekeeping
from ansible_collections.gb10.cluster.plugins.module_utils._host.timekeeping import STA_NANO, STA_UNSYNC, TIME_ERROR, KernelClock
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult

#: Composed after the fields that chrony's manual names for "tracking"; the fifth is the correction that is left, in seconds.
TRACKING = "A9FEA97B,169.254.169.123,4,1795219200.353000000,0.000123456,-0.000002000,0.000013000,-12.345,0.001,0.050,0.000310,0.000120,64.2,Normal\n"
#: As chrony answers before it has chosen a source.
UNSYNCED = "00000000,,0,0.000000000,0.000000000,0.000000000,0.000000000,0.000,0.000,0.000,1.000000000,1.000000000,0.0,Not synchronised\n"
SYNCED = KernelClock(0, STA_NANO, 1_500_000)


def tree(root: pathlib.Path, **files: str) -> dict[str, str]:
    source = "sys/devices/system/clocksource/clocksource0/current_clocksource"
    for name, content in {source: "arch_sys_counter\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (root / "proc").mkdir(exist_ok=True)
    return {"proc_root": str(root / "proc"), "sysfs_root": str(root / "sys")}


def unit(name: str) -> str:
    return f"sys/fs/cgroup/system.slice/{name}/cgroup.procs"


def test_this_machines_kernel_answers():
    clock = timekeeping.kernel_clock()
    assert 0 <= clock.state <= 5
    synchronized, offset = timekeeping.judge_kernel_clock(clock)
    assert synchronized in (True, False) and abs(offset) < 1000


@pytest.mark.parametrize(
    ("clock", "expected"),
    [
        (SYNCED, (True, 1.5)),
        (KernelClock(0, 0, -1500), (True, -1.5)),
        (KernelClock(TIME_ERROR, 0, 0), (False, 0.0)),
        (KernelClock(0, STA_UNSYNC, 0), (False, 0.0)),
    ],
)
def test_the_kernels_answer(clock, expected):
    assert timekeeping.judge_kernel_clock(clock) == expected


@pytest.mark.parametrize(("text", "expected"), [(TRACKING, (True, 0.123456)), (UNSYNCED, (False, 0.0))])
def test_tracking(text, expected):
    synchronized, offset = timekeeping.parse_tracking(text)
    assert (synchronized, round(offset, 9)) == expected


@pytest.mark.parametrize(
    "text",
    ["", "506 Cannot talk to daemon", TRACKING * 2, TRACKING.replace("0.000123456", "nan"), TRACKING.replace("0.000123456", "x"), TRACKING + "x"],
)
def test_tracking_in_another_shape_is_unknown(text):
    with pytest.raises(UnknownState) as caught:
        timekeeping.parse_tracking(text)
    assert caught.value.remedy


def test_timesyncd_and_the_kernel(tmp_path):
    roots = tree(tmp_path, **{unit("systemd-timesyncd.service"): "612\n", unit("chrony.service"): ""})
    assert timekeeping.clock(**roots, ask_kernel=lambda: SYNCED) == {
        "source": "arch_sys_counter",
        "synchronized": True,
        "offset_ms": 1.5,
        "daemon": "systemd-timesyncd",
    }


def test_chrony_is_asked_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(timekeeping, "run_tool", lambda argv, timeout: ToolResult(0, TRACKING, ""))
    roots = tree(tmp_path, **{unit("chrony.service"): "612\n"})
    assert timekeeping.clock(**roots, ask_kernel=lambda: KernelClock(0, 0, 0)) == {
        "source": "arch_sys_counter",
        "synchronized": True,
        "offset_ms": 0.123456,
        "daemon": "chrony",
    }


def test_a_failed_chrony_is_noted_and_the_kernels_answer_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(timekeeping, "run_tool", lambda argv, timeout: ToolResult(1, "506 Cannot talk to daemon", ""))
    noted = []

    def section(reader, otherwise=None):
        try:
            return reader()
        except (UnknownState, OSError) as error:
            noted.append(error)
            return otherwise

    result = timekeeping.clock(**tree(tmp_path, **{unit("chronyd.service"): "612\n"}), section=section, ask_kernel=lambda: SYNCED)
    assert result["synchronized"] is True and result["offset_ms"] is None and "506" in str(noted[0])

    def denied():
        raise PermissionError(1, "Operation not permitted")

    result = timekeeping.clock(**tree(tmp_path), section=section, ask_kernel=denied)
    assert result["synchronized"] is None


def test_without_systemd_the_processes_are_searched(tmp_path):
    roots = tree(tmp_path, **{"proc/12/comm": "python3\n", "proc/13/comm": "ntpd\n", "proc/self/comm": "chronyd\n"})
    assert timekeeping.daemon(**roots) == "ntpd"


def test_a_process_may_vanish_while_it_is_read(tmp_path, monkeypatch):
    roots = tree(tmp_path, **{"proc/12/comm": "x", "proc/13/comm": "chronyd\n"})
    real = timekeeping.optional_text

    def vanishing(path):
        if "/12/" in path:
            raise ProcessLookupError(3, "No such process", path)
        return real(path)

    monkeypatch.setattr(timekeeping, "optional_text", vanishing)
    assert timekeeping.daemon(**roots) == "chrony"


def test_no_daemon_keeps_the_time(tmp_path):
    assert timekeeping.daemon(**tree(tmp_path)) is None
    assert timekeeping.daemon(**tree(tmp_path, **{unit("ssh.service"): "1\n"})) is None


@hypothesis.settings(deadline=None, derandomize=True, database=None)
@hypothesis.given(st.one_of(st.text(max_size=200), st.lists(st.one_of(st.text(max_size=12), st.floats().map(str)), min_size=14, max_size=14).map(",".join)))
def test_strange_tracking_is_read_or_unknown(text):
    try:
        synchronized, offset = timekeeping.parse_tracking(text)
    except UnknownState:
        return
    assert synchronized in (True, False) and abs(offset) < 1e16
