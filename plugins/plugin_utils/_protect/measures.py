# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Defines the figures of the measures that protect a node; measures.yml has their reasons and sources. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import functools
import pathlib
import typing as t

from ansible.module_utils.common.yaml import yaml_load

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify

#: The function that makes the findings of each measure, in the order in which the measures are set up.
FINDINGS = {
    "sshd": functools.partial(finding, "protect.sshd"),
    "journal": functools.partial(finding, "protect.journal"),
    "earlyoom": functools.partial(finding, "protect.earlyoom"),
    "swap": functools.partial(finding, "protect.swap"),
    "holds": functools.partial(finding, "protect.holds"),
    "unattended": functools.partial(finding, "protect.unattended"),
    "watchdog": functools.partial(finding, "protect.watchdog"),
    "panic": functools.partial(finding, "protect.panic"),
    "ups": functools.partial(finding, "protect.ups"),
}
NAMES = tuple(FINDINGS)
#: Ids of findings that are made here.
IDS = (
    "protect.earlyoom", "protect.holds", "protect.journal", "protect.panic", "protect.sshd", "protect.swap", "protect.unattended", "protect.ups",
    "protect.watchdog",
)  # fmt: skip

#: The OOM score of a process that the kernel never kills; OpenSSH's listener sets it itself (openssh-portable, openbsd-compat/port-linux.c, oom_adjust_setup).
NEVER_KILLED = -1000
#: Seconds after which the journal is synced to the disk. Stock are 300 (journald.conf(5)).
SYNC_SECONDS = 10
#: The kernel's value of each measure that sets one. vm.swappiness is the remedy in reports of thrashing. Not 0: with that the kernel does not swap before
#: memory runs out (admin-guide/sysctl/vm.rst). kernel.panic are the seconds from a panic to the reboot; stock is 0, never (admin-guide/sysctl/kernel.rst).
SYSCTLS = {"swap": ("vm.swappiness", "1"), "panic": ("kernel.panic", "10")}
#: How long systemd may hang before the hardware resets the node, in systemd's own words. ssh was reported away for up to 600 s during loads.
WATCHDOG, WATCHDOG_DEVICE = "15min", "/dev/watchdog"
#: NUT's timer, which has the name of the file that its end makes (NUT's user can write there). The lines that this needs in NUT's files, each as the pattern
#: of a line that does, and the line to add. Another CMDSCRIPT than touch is a program of the owner's, and cannot be judged.
ON_BATTERY = "/run/nut/gb10-on-battery"
NUT = (
    ("/etc/nut/upssched.conf: CMDSCRIPT .+", "/etc/nut/upssched.conf: CMDSCRIPT /usr/bin/touch"),
    ("/etc/nut/upssched.conf: PIPEFN .+", "/etc/nut/upssched.conf: PIPEFN /run/nut/upssched.pipe"),
    ("/etc/nut/upssched.conf: LOCKFN .+", "/etc/nut/upssched.conf: LOCKFN /run/nut/upssched.lock"),
    (
        "/etc/nut/upssched.conf: AT ONBATT .+ START-TIMER /run/nut/gb10-on-battery [0-9]+",
        "/etc/nut/upssched.conf: AT ONBATT * START-TIMER /run/nut/gb10-on-battery 60",
    ),
    (
        "/etc/nut/upssched.conf: AT ONLINE .+ CANCEL-TIMER /run/nut/gb10-on-battery",
        "/etc/nut/upssched.conf: AT ONLINE * CANCEL-TIMER /run/nut/gb10-on-battery",
    ),
    ("/etc/nut/upsmon.conf: NOTIFYCMD .*/upssched", "/etc/nut/upsmon.conf: NOTIFYCMD /sbin/upssched"),
    (r"/etc/nut/upsmon.conf: NOTIFYFLAG ONBATT (.+\+)?EXEC(\+.+)?", "/etc/nut/upsmon.conf: NOTIFYFLAG ONBATT SYSLOG+EXEC"),
    (r"/etc/nut/upsmon.conf: NOTIFYFLAG ONLINE (.+\+)?EXEC(\+.+)?", "/etc/nut/upsmon.conf: NOTIFYFLAG ONLINE SYSLOG+EXEC"),
)
TOUCH = "/etc/nut/upssched.conf: CMDSCRIPT (/usr)?/bin/touch"
#: earlyoom acts below the smaller of this (KiB of MemAvailable, 2 GiB) and of MemTotal / :data:`SHARE`: the same share of a node of half the size.
ACTS_BELOW_KIB = 2097152
SHARE = 60
#: KiB of MemAvailable on a healthy node that serves, the least that was reported (one of three Sparks, 2026-09-12); two had 3.9 and 4.1 GiB after 8 h.
HEALTHY_KIB = 3659708
#: The effect of earlyoom's option -p, as its manual suggests it for its unit: the unit has no capabilities for -p, and from 1.8 on is ended for the attempt.
EARLYOOM_FIRST = "Nice=-20\nOOMScoreAdjust=-100\n"
#: comm of processes (15 bytes at most) that are not worth ending; earlyoom subtracts 300 from their score.
AVOIDED = (
    "sshd", "sshd-session", "systemd", "systemd-journal", "systemd-logind", "systemd-udevd", "systemd-network", "systemd-resolve", "dockerd", "containerd",
    "containerd-shim", "dbus-daemon",
)  # fmt: skip
#: The length to which the kernel cuts the name of a process (proc_pid_comm(5)).
COMM = 15


@functools.cache
def table() -> dict[str, dict[str, t.Any]]:
    """Return the measures by their names, each as ``{id, does, reason, figures: [[text, why, source]]}``; those that are off by default have ``costs``."""
    return {measure["id"]: measure for measure in yaml_load(pathlib.Path(__file__).with_suffix(".yml").read_text(encoding="utf-8"))}


def costs() -> dict[str, str]:
    """Return what each measure costs that is off by default."""
    return {name: measure["costs"] for name, measure in table().items() if "costs" in measure}


def held_patterns() -> list[str]:
    """Return the patterns of packages that are held: those that an update would replace under a running engine."""
    return [pattern for figure in table()["holds"]["figures"] for pattern in figure[0].split(", ")]


def preferred() -> tuple[str, ...]:
    """Return the beginnings of the names of engine processes that hold a model in memory, as the kernel cuts them."""
    kinds = (classify.ENGINE_CORE, classify.RANK)
    return tuple(title[:COMM] for how, title, kind, _engine in classify.TABLE if how == classify.TITLE and kind in kinds)


def earlyoom_arguments(mem_total_kib: int) -> str:
    """Return earlyoom's arguments for a node; one line, without quotes and with single spaces."""
    acts = min(ACTS_BELOW_KIB, mem_total_kib // SHARE)
    return f"-r 3600 -M {acts},{acts // 2} -s 100,100 --prefer ^({'|'.join(preferred())}) --avoid ^({'|'.join(AVOIDED)})$"
