# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node's clock and the daemon that synchronizes it. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import Section, names, optional_text, strict
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool

#: Bits of ``timex.status``, and the clock state that means "not synchronized" (the kernel's ``include/uapi/linux/timex.h``).
STA_UNSYNC = 0x0040
STA_NANO = 0x2000
TIME_ERROR = 5

#: systemd unit → its name in the result.
UNITS = {
    "chrony.service": "chrony",
    "chronyd.service": "chrony",
    "systemd-timesyncd.service": "systemd-timesyncd",
    "ntp.service": "ntpd",
    "ntpd.service": "ntpd",
    "ntpsec.service": "ntpsec",
    "ntpd-rs.service": "ntpd-rs",
    "openntpd.service": "openntpd",
}
#: The same for the names of processes, for a node without systemd.
PROCESSES = {"chronyd": "chrony", "systemd-timesyn": "systemd-timesyncd", "ntpd": "ntpd", "ntp-daemon": "ntpd-rs"}

#: Seconds for an answer of chronyc, which asks a daemon on this node.
CHRONYC_TIMEOUT = 5.0
_CHRONYC_FIELDS = 14


class _Timex(ctypes.Structure):
    """struct timex on 64-bit Linux."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("time_sec", ctypes.c_long),
        ("time_usec", ctypes.c_long),
        ("tick", ctypes.c_long),
        ("pps", ctypes.c_long * 9),
        ("tai", ctypes.c_int),
        ("reserved", ctypes.c_int * 11),
    ]


@dataclasses.dataclass(frozen=True)
class KernelClock:
    """What the kernel reports: ``state`` is adjtimex's answer, ``offset`` in microseconds, or nanoseconds with STA_NANO in ``status``."""

    state: int
    status: int
    offset: int


def kernel_clock() -> KernelClock:
    """Ask the kernel, changing nothing (``modes`` is 0, which needs no privilege). Raises OSError."""
    timex = _Timex()
    libc = ctypes.CDLL(None, use_errno=True)
    state = libc.adjtimex(ctypes.byref(timex))
    if state < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "adjtimex")
    return KernelClock(state, timex.status, timex.offset)


def judge_kernel_clock(clock: KernelClock) -> tuple[bool, float]:
    """Return whether the kernel counts its clock as synchronized, and the remaining correction in milliseconds, positive when the clock is behind."""
    synchronized = clock.state != TIME_ERROR and not clock.status & STA_UNSYNC
    return synchronized, clock.offset / (1_000_000 if clock.status & STA_NANO else 1_000)


def parse_tracking(text: str) -> tuple[bool, float]:
    """Return (synchronized, remaining correction in milliseconds, positive when the clock is behind) of a ``chronyc -c tracking`` answer.

    The fifth field is the remaining correction in seconds; the last field is the leap status. Raises :class:`UnknownState` for another shape.
    """
    fields = text.strip().split(",")
    try:
        if len(fields) != _CHRONYC_FIELDS or "\n" in text.strip():
            raise ValueError(f"{len(fields)} fields")
        offset = float(fields[4])
        if not -1e12 < offset < 1e12:
            raise ValueError(fields[4])
    except ValueError as error:
        raise UnknownState(
            f"chronyc answers in a shape that cannot be read: {text[:200]!r}", remedy="Run by hand: chronyc tracking", raw=text[:4000]
        ) from error
    return fields[13] != "Not synchronised", offset * 1000


def ask_chrony(tool: str = "chronyc") -> tuple[bool, float]:
    """Ask this node's chrony daemon, and return the values of :func:`parse_tracking`. Raises :class:`UnknownState` when it does not answer."""
    result = run_tool([tool, "-c", "-n", "tracking"], CHRONYC_TIMEOUT)
    if result.rc != 0:
        raise UnknownState(f"chronyc failed with status {result.rc}: {result.raw[:200]}", remedy="Run by hand: chronyc tracking", raw=result.raw[:4000])
    return parse_tracking(result.stdout)


def daemon(proc_root: str, sysfs_root: str) -> str | None:
    """Return the daemon that synchronizes the clock, None when none of the known ones runs.

    A systemd unit runs when its control group has processes; where systemd has no such groups the processes are searched.
    """
    slice_root = os.path.join(sysfs_root, "fs", "cgroup", "system.slice")
    if os.path.isdir(slice_root):
        return next((name for unit, name in UNITS.items() if optional_text(os.path.join(slice_root, unit, "cgroup.procs"))), None)
    for pid in filter(str.isdecimal, names(proc_root)):
        with contextlib.suppress(ProcessLookupError):  # it ended between the listing and the reading
            name = optional_text(os.path.join(proc_root, pid, "comm"))
            if name in PROCESSES:
                return PROCESSES[name]
    return None


def clock(
    proc_root: str = "/proc",
    sysfs_root: str = "/sys",
    section: Section = strict,
    ask_kernel: t.Callable[[], KernelClock] = kernel_clock,
    chronyc: str = "chronyc",
) -> dict[str, t.Any]:
    """Return ``clock`` of ``node_info``'s section ``kernel``: ``{source, synchronized, offset_ms, daemon}``.

    ``source`` is the kernel's clock source (``arch_sys_counter``, ``tsc``). ``offset_ms`` is the remaining correction, positive when
    the clock is behind: chrony's own figure where chrony runs, since the kernel does not report the offset then, else the kernel's. It is the clock's
    own estimate: the controller compares two nodes. Facts that cannot be read are None and noted by ``section``.
    """
    keeper = section(lambda: daemon(proc_root, sysfs_root))
    synchronized, offset = section(lambda: judge_kernel_clock(ask_kernel()), (None, None))
    if keeper == "chrony":
        synchronized, offset = section(lambda: ask_chrony(chronyc), (synchronized, None))
    return {
        "source": section(lambda: optional_text(os.path.join(sysfs_root, "devices", "system", "clocksource", "clocksource0", "current_clocksource"))),
        "synchronized": synchronized,
        "offset_ms": None if offset is None else round(offset, 6),
        "daemon": keeper,
    }
