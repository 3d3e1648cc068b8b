# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Limits that affect RDMA and which process is killed first when memory runs out. This module util is PRIVATE to the collection.

Memory that an RDMA card writes to must be locked. A container without a limit of its own inherits that of the daemon that starts it, and
the host's ``limits.conf`` does not apply to daemons (reported by an owner of two Sparks and in NVIDIA's NIM guide). When memory runs out, a
node whose sshd is not protected answers pings but no logins (reported by the same owner).

earlyoom, by its manual and source: it acts once available memory is at most its memory threshold AND free swap at most its swap threshold.
Free swap counts as 0 % where there is no swap. On a GB10 the memory that CUDA holds is never swapped, so with swap and a low swap threshold it can
wait forever: the stock settings are reported inert (TechPreacher's repository, which sets ``-s 100,100``); others run ``-s 80``.

From 1.8 on its memory threshold is a share of MemAvailable plus AnonPages, also one that was given in KiB (``-M``: the share of MemTotal that it was at the
start; earlyoom(1), rfjakob/earlyoom 459d7629). What a driver holds is in neither, so on a node that is full of it such a version acts near nothing.
"""

from __future__ import annotations

import contextlib
import getopt
import glob
import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import Section, names, optional_number, optional_text, strict
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import Process, read_bytes
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool

#: The value for "no limit".
UNLIMITED = -1

_MEMLOCK = re.compile(r"^Max locked memory +(?P<soft>unlimited|\d+) +(?P<hard>unlimited|\d+) +bytes *$", re.MULTILINE)

KIB_PER_MIB = 1024

#: Where systemd records lingering users, and the ids of ordinary users (login.defs(5)): logind does not remove the objects of a system account.
LINGER = "/var/lib/systemd/linger"
ORDINARY = (1000, 60000)
_REMOVE_IPC = re.compile(r"^[ \t]*RemoveIPC[ \t]*=[ \t]*(\S+)", re.MULTILINE)

#: earlyoom's own defaults, in percent (earlyoom(1)).
EARLYOOM_PERCENT = 10.0
#: Its options (earlyoom(1), 1.8): those of one letter, a colon after those with a value, and the long ones.
_EARLYOOM_SHORT = "m:s:M:S:kinN:P:gdvr:pw:h"
_EARLYOOM_LONG = ["prefer=", "avoid=", "ignore=", "dryrun", "sort-by-rss", "syslog", "debug", "ignore-root-user", "help"]

#: The first version that counts in percent of used and available memory together (earlyoom(1), ``user mem total``), and seconds to print the version.
OF_USER_FROM, VERSION_SECONDS = (1, 8), 5
_VERSION = re.compile(r"(?:^|[ v:])(\d+)\.(\d+)")

#: From this swap threshold on (percent of swap that is still free) earlyoom acts while less than half of the swap is in use. Whether that much
#: will be swapped by the time memory runs out is unknown; below it, more would have to be swapped than is in ordinary memory now.
PLAUSIBLE_SWAP_PERCENT = 50.0


class Thresholds(t.NamedTuple):
    """The thresholds of earlyoom's command line, in percent; of two options for one threshold the smaller counts."""

    mem_percent: float
    swap_percent: float
    dry_run: bool


def parse_memlock(text: str) -> int:
    """Return how many bytes a process may lock, from a ``/proc/PID/limits`` text: the soft limit, -1 for none.

    Raises :class:`UnknownState` when it is missing.
    """
    match = _MEMLOCK.search(text)
    if not match:
        raise UnknownState("the kernel does not report how much memory a process may lock", raw=text[:2000])
    return UNLIMITED if match["soft"] == "unlimited" else int(match["soft"])


def parse_oom_score_adj(text: str) -> int:
    """Return the number in an ``oom_score_adj`` text (-1000 to 1000, -1000: never killed). Raises :class:`UnknownState` for another shape."""
    try:
        value = int(text)
    except ValueError:
        value = 1001
    if not -1000 <= value <= 1000:
        raise UnknownState(f"the kernel gives an OOM score adjustment that cannot be read: {text[:100]!r}", raw=text[:2000])
    return value


def daemon(processes: t.Iterable[Process], name: str) -> Process | None:
    """Return the host's process with this short name whose parent is the first process, else the oldest; None when there is none."""
    candidates = [process for process in processes if process.name == name and not process.container and not process.ended]
    return min(candidates, key=lambda process: (process.ppid > 1, process.pid), default=None)


def memlock(processes: t.Iterable[Process], name: str, proc_root: str) -> int | None:
    """Return how many bytes the daemon of this name may lock (-1: no limit), None when it does not run. Raises OSError and :class:`UnknownState`."""
    process = daemon(processes, name)
    text = _file_of(process, "limits", proc_root) if process else None
    return parse_memlock(text) if text is not None else None


def _file_of(process: Process, name: str, proc_root: str) -> str | None:
    """Return a file of a process, None when the process is gone. Raises OSError."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return read_bytes(os.path.join(proc_root, str(process.pid), name)).decode("utf-8", "replace")
    return None


def sshd(processes: t.Iterable[Process], proc_root: str) -> dict[str, int | None]:
    """Return pid and OOM score adjustment of the sshd that accepts connections, None for both when none runs (a socket of systemd may start it).

    The processes of single logins have the same name and are its children. Raises OSError and :class:`UnknownState`.
    """
    process = daemon(processes, "sshd")
    text = _file_of(process, "oom_score_adj", proc_root) if process and process.ppid <= 1 else None
    return {"pid": process.pid, "oom_score_adj": parse_oom_score_adj(text)} if process and text is not None else {"pid": None, "oom_score_adj": None}


def parse_earlyoom(argv: t.Sequence[str], mem_total_kib: int, swap_total_kib: int) -> Thresholds:
    """Return the thresholds of an earlyoom that was started as ``argv``; of ``PERCENT,KILL_PERCENT`` the first, at which it begins to act.

    ``-M`` and ``-S`` are KiB, turned into percent of all memory and of all swap; of two options the lower counts, and ``-S`` is ignored without
    swap (earlyoom(1)). Raises :class:`UnknownState` for arguments that this version of the collection does not support.
    """
    given: dict[str, list[float]] = {"m": [], "s": []}
    try:
        options, _rest = getopt.gnu_getopt(list(argv[1:]), _EARLYOOM_SHORT, _EARLYOOM_LONG)
        for option, value in options:
            if option in ("-m", "-s"):
                given[option[1]].append(_first_number(value))
            elif option == "-M":
                given["m"].append(_first_number(value) * 100 / mem_total_kib)
            elif option == "-S" and swap_total_kib:
                given["s"].append(_first_number(value) * 100 / swap_total_kib)
    except (getopt.GetoptError, ValueError, ZeroDivisionError) as error:
        raise UnknownState(
            f"earlyoom runs with arguments that cannot be read: {error}", remedy="See what it was started with: ps -C earlyoom -o args", raw=" ".join(argv)
        ) from error
    return Thresholds(
        min(given["m"], default=EARLYOOM_PERCENT),
        min(given["s"], default=EARLYOOM_PERCENT),
        any(option == "--dryrun" for option, _value in options),
    )


def _first_number(text: str) -> float:
    number = text.split(",", 1)[0]
    if not re.fullmatch(r"\d{1,15}(\.\d*)?", number):
        raise ValueError(f"{text!r} is not a threshold")
    return float(number)


def _percent(value: float) -> str:
    return f"{value:.4g} %"


def judge_earlyoom(thresholds: Thresholds, meminfo: t.Mapping[str, int], swappiness: int | None) -> tuple[bool | None, str]:
    """Return whether earlyoom can take effect with the swap there is, and why.

    None when that is not known in advance. ``meminfo`` is in KiB, ``swappiness`` is vm.swappiness, None when unknown.

    * True: there is no swap, or the threshold is met with all swap free, or the pages in ordinary memory now are enough to reach it.
    * False: it runs with --dryrun; or the kernel does not swap before memory runs out (vm.swappiness 0, the kernel's admin-guide
      sysctl/vm.rst); or more would have to be in swap than there is ordinary memory to put there (anonymous and shared pages, and what is
      swapped already), and less than half of the swap would be free then.
    """
    total, free = meminfo.get("SwapTotal", 0), meminfo.get("SwapFree", 0)
    memory, swap = _percent(thresholds.mem_percent), _percent(thresholds.swap_percent)
    if thresholds.dry_run:
        return False, "it runs with --dryrun and ends nothing"
    if thresholds.mem_percent <= 0:
        return False, f"its memory threshold is {memory}"
    if total == 0:
        return True, f"there is no swap: it acts at {memory} of available memory"
    if thresholds.swap_percent >= 100:
        return True, f"its swap threshold ({swap}) always holds: it acts at {memory} of available memory"
    needed = total - total * thresholds.swap_percent / 100
    swappable = meminfo.get("AnonPages", 0) + meminfo.get("Shmem", 0) + total - free
    facts = (
        f"it acts only when {needed / KIB_PER_MIB:.0f} MiB of the {total / KIB_PER_MIB:.0f} MiB of swap are in use (-s {thresholds.swap_percent:g});"
        f" {(total - free) / KIB_PER_MIB:.0f} MiB are, and what could be swapped comes to {swappable / KIB_PER_MIB:.0f} MiB"
    )
    if total - free >= needed:
        return True, f"enough swap is in use: it acts at {memory} of available memory; {facts}"
    if swappiness == 0:
        return False, f"vm.swappiness is 0, so the kernel does not swap before memory runs out; {facts}"
    if needed <= swappable:
        return True, facts
    if thresholds.swap_percent >= PLAUSIBLE_SWAP_PERCENT:
        return None, f"{facts} now; memory that CUDA holds is never swapped"
    return False, f"{facts}; memory that CUDA holds is never swapped"


def acts_below_mb(thresholds: Thresholds, meminfo: t.Mapping[str, int]) -> dict[str, int]:
    """Return at how many MiB of MemAvailable earlyoom's memory threshold is reached now, by the two ways its versions count.

    ``of_total``: percent of MemTotal, before 1.8. ``of_user``: percent of MemAvailable + AnonPages, from 1.8 on; memory that a driver holds is in
    neither, so on a node full of CUDA memory this is far less.
    """
    share = min(thresholds.mem_percent, 100.0) / 100
    # available = share * (available + anonymous), solved for available.
    user = meminfo.get("AnonPages", 0) * share / (1 - share) if share < 1 else meminfo["MemTotal"]
    return {
        "of_total": int(meminfo["MemTotal"] * share) // KIB_PER_MIB,
        "of_user": int(min(user, meminfo["MemTotal"])) // KIB_PER_MIB,
    }


def earlyoom_version() -> str:
    """Return the version of the installed earlyoom, empty when it is unknown. It is found by name: another program may have the same name."""
    with contextlib.suppress(UnknownState):
        answer = run_tool(["earlyoom", "-v"], VERSION_SECONDS)
        return next((line.removeprefix("earlyoom ") for line in (answer.stderr + answer.stdout).splitlines() if line.startswith("earlyoom ")), "")
    return ""


def counts_of_user(version: str) -> bool:
    """Return whether this version of earlyoom ignores a driver's memory. An unknown version may."""
    match = _VERSION.search(version)
    return not match or (int(match[1]), int(match[2])) >= OF_USER_FROM


def earlyoom(
    processes: t.Iterable[Process], meminfo: t.Mapping[str, int], swappiness: int | None, version: t.Callable[[], str] = earlyoom_version
) -> dict[str, t.Any]:
    """Return the known facts about earlyoom on this node: ``{running, version, args, mem_percent, swap_percent, acts_below_mb, effective, why}``.

    One in a container sees only that container's processes and does not count. Raises :class:`UnknownState` for arguments that cannot be read.
    """
    process = daemon(processes, "earlyoom")
    if process is None:
        absent: dict[str, t.Any] = dict.fromkeys(("version", "args", "mem_percent", "swap_percent", "acts_below_mb"))
        return {"running": False, **absent, "effective": False, "why": "it does not run on this node"}
    thresholds = parse_earlyoom(process.argv, meminfo["MemTotal"], meminfo.get("SwapTotal", 0))
    effective, why = judge_earlyoom(thresholds, meminfo, swappiness)
    running, below = version(), acts_below_mb(thresholds, meminfo)
    if effective is not False and counts_of_user(running):
        effective = False if running else None
        which = f"{running} has no effect here" if running else "its version is unknown"
        why = (
            f"{which}: from 1.8 on earlyoom's threshold is a share of available memory and processes' memory, without a driver's memory; such a version"
            f" acts at {below['of_user']} MiB of available memory now, not at {below['of_total']}"
        )
    return {
        "running": True,
        "version": running,
        "args": " ".join(process.argv[1:]),
        "mem_percent": round(thresholds.mem_percent, 2),
        "swap_percent": round(thresholds.swap_percent, 2),
        "acts_below_mb": below,
        "effective": effective,
        "why": why,
    }


def ipc_removed_of(etc_root: str, linger: str = LINGER) -> list[str]:
    """Return the ordinary users whose semaphores and shared memory go when their last session ends (RemoveIPC of logind.conf(5), on by default).

    Those of a user who lingers stay. Raises OSError when files may not be read.
    """
    places = [os.path.join(etc_root, "systemd", "logind.conf"), *sorted(glob.glob(os.path.join(glob.escape(etc_root), "systemd/logind.conf.d/*.conf")))]
    values = [value for place in places for value in _REMOVE_IPC.findall(optional_text(place) or "")]
    if values and values[-1].lower() in ("no", "false", "0", "off"):
        return []
    lingering = set(names(linger))
    accounts = [line.split(":") for line in (optional_text(os.path.join(etc_root, "passwd")) or "").splitlines()]
    ordinary = [fields[0] for fields in accounts if len(fields) > 2 and fields[2].isdigit() and ORDINARY[0] <= int(fields[2]) <= ORDINARY[1]]
    return sorted(set(ordinary) - lingering)


def limits(
    processes: t.Collection[Process], meminfo: t.Callable[[], t.Mapping[str, int]], proc_root: str, section: Section = strict, etc_root: str = "/etc"
) -> dict[str, t.Any]:
    """Return the section ``limits`` of ``node_info``; what cannot be read is None and noted by ``section``.

    ``{docker_memlock_bytes, containerd_memlock_bytes, sshd: {pid, oom_score_adj}, earlyoom: {...}}``; bytes are -1 without a limit and None when the
    daemon does not run. ``meminfo`` reads meminfo, in KiB. ``ipc_removed_of`` as :func:`ipc_removed_of`.
    """
    swappiness = os.path.join(proc_root, "sys", "vm", "swappiness")
    return {
        "docker_memlock_bytes": section(lambda: memlock(processes, "dockerd", proc_root)),
        "containerd_memlock_bytes": section(lambda: memlock(processes, "containerd", proc_root)),
        "sshd": section(lambda: sshd(processes, proc_root)),
        "earlyoom": section(lambda: earlyoom(processes, meminfo(), optional_number(swappiness))),
        "ipc_removed_of": section(lambda: ipc_removed_of(etc_root)),
    }
