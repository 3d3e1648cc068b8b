# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which processes use GPU memory: living and ended ones, and engines whose server is gone. This module util is PRIVATE to the collection.

The first half judges values that were read; the second half reads them, and ends processes on request.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import signal
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import driver
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import Process, read_stat
from ansible_collections.gb10.cluster.plugins.module_utils._process.stacks import Stacks, stacks
from ansible_collections.gb10.cluster.plugins.module_utils._process.tenants import gpu_memory

#: Classes of a GPU process. ``unknown``: it exists but cannot be read.
CLASSES = ("live", "defunct", "ghost", "orphan", "unknown")

#: Seconds that the kernel gets to end killed processes. A process that still exists afterwards hangs in the kernel.
KILL_SECONDS = 10.0


# -- what the driver lists -------------------------------------------------------------------------------------------


def listed(gpus: t.Iterable[t.Mapping[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Return the processes of the GPUs of :func:`driver_xml.gpus`, each once, by pid: ``{pid, name, type, used_mib}``.

    On one GPU a process counts once with the larger figure, however often it is listed there (as C and as G). Over several GPUs its
    memory is the sum. ``used_mib`` is None where the driver reports it for none of them. Raises :class:`UnknownState` when the processes of
    a GPU are unknown.
    """
    entries: list[dict[str, t.Any]] = []
    for number, gpu in enumerate(gpus):
        if gpu["processes"] is None:
            message = f"nvidia-smi does not list the processes of GPU {gpu.get('index', number)}"
            raise UnknownState(message, remedy=driver.BY_HAND, reason="output not understood")
        entries += ({**entry, "gpu": number} for entry in gpu["processes"])
    used = gpu_memory(entries)
    by_pid: dict[int, dict[str, t.Any]] = {}
    for entry in entries:
        pid = entry["pid"]
        known = by_pid.setdefault(pid, {"pid": pid, "name": entry["name"], "type": entry["type"], "used_mib": used[pid]})
        types = {kind for text in (known["type"], entry["type"]) for kind in (text or "").split("+") if kind}
        known.update(name=known["name"] or entry["name"], type="+".join(sorted(types)) or None)
    return [by_pid[pid] for pid in sorted(by_pid)]


def unified(gpus: t.Sequence[t.Mapping[str, t.Any]]) -> bool | None:
    """Return whether the GPUs use the machine's memory: such GPUs report no memory of their own. None without a GPU."""
    return all(gpu["memory_total_mb"] is None for gpu in gpus) if gpus else None


def sum_mib(processes: t.Iterable[t.Mapping[str, t.Any]]) -> int | None:
    """Return the total MiB of some processes, None when it is unknown for one of them."""
    figures = [process["used_mib"] for process in processes]
    return None if None in figures else sum(figures)


# -- classes ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Look:
    """The state at one moment: the GPU processes with their classes, and the GPUs."""

    processes: list[dict[str, t.Any]]
    gpus: list[dict[str, t.Any]]

    def of(self, *kinds: str) -> list[dict[str, t.Any]]:
        """Return the processes of some classes."""
        return [process for process in self.processes if process["class"] in kinds]

    @property
    def unified(self) -> bool | None:
        return unified(self.gpus)


#: The values for a process that the driver does not list, or that does not exist.
_NOT_KNOWN: dict[str, t.Any] = {"owner": None, "container": "", "title": "", "rss_mb": None, "start_ticks": None, "why": ""}


def classified(entries: t.Iterable[t.Mapping[str, t.Any]], seen: Stacks, absent: t.Callable[[int], str]) -> list[dict[str, t.Any]]:
    """Return the driver's ``entries`` with class, title, container and memory of each, and the engine parts without a server that it does not list.

    ``absent`` gives the class of a pid that was not ``seen``. An engine's core that the driver does not list (yet) holds other
    memory of the node: the weights that it read.
    """
    by_pid = {}
    for entry in entries:
        process = seen.processes.get(entry["pid"])
        if process is None:
            by_pid[entry["pid"]] = {**entry, **_NOT_KNOWN, "listed": True, "class": absent(entry["pid"])}
            continue
        lineage = seen.parentage(process.pid)
        kind = "defunct" if process.ended else "orphan" if lineage.orphan else "live"
        # The driver has no name for a process that has ended.
        about = {"name": entry["name"] or process.name, "listed": True, "class": kind, "why": lineage.why}
        by_pid[process.pid] = {**entry, **_described(process), **about}
    unlisted = {pid: seen.parentage(pid) for pid in seen.parts.keys() - by_pid.keys()}
    for pid, lineage in ((pid, lineage) for pid, lineage in unlisted.items() if lineage.orphan):
        about = _described(seen.processes[pid])
        known = {"pid": pid, "name": about["title"], "type": None, "used_mib": None}
        by_pid[pid] = {**known, **about, "listed": False, "class": "orphan", "why": lineage.why}
    return [by_pid[pid] for pid in sorted(by_pid)]


def _described(process: Process) -> dict[str, t.Any]:
    rss_mb = process.rss_kib // 1024
    return {**_NOT_KNOWN, "title": process.title, "container": process.container, "rss_mb": rss_mb, "start_ticks": process.start_ticks}


# -- reading ---------------------------------------------------------------------------------------------------------


def look(cards: t.Callable[[], list[dict[str, t.Any]]], scan: t.Callable[[], t.Any], proc_root: str) -> Look:
    """Read the driver's ``cards``, then the kernel's processes. Raises :class:`UnknownState` when one of the answers cannot be read."""
    gpus = cards()
    entries = listed(gpus)
    try:
        seen = stacks(scan().processes, proc_root)
    except OSError as error:
        raise UnknownState(f"{proc_root} cannot be listed: {error.strerror}", reason="processes unseen", raw=str(error)) from error
    return Look(classified(entries, seen, lambda pid: driver.state_of(pid, proc_root)), gpus)


# -- ending ----------------------------------------------------------------------------------------------------------


def own_processes(proc_root: str) -> bool:
    """Return whether ``proc_root`` shows the pid namespace of this process, so that a signal reaches the process that was checked."""
    try:
        return os.readlink(os.path.join(proc_root, "self")) == str(os.getpid())
    except OSError:
        return False


class _Target:
    """A process to end, held by a descriptor: its number cannot pass to another one between the check and the signal."""

    def __init__(self, judged: t.Mapping[str, t.Any], proc_root: str) -> None:
        self.pid, self.start_ticks, self._proc_root = judged["pid"], judged["start_ticks"], proc_root
        self.outcome = "gone"
        self.descriptor: int | None = None
        try:
            self.descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        except OSError as error:
            remedy = f"End it by hand: sudo kill {self.pid}"
            raise UnknownState(f"process {self.pid} cannot be held fast: {error.strerror}", remedy=remedy, raw=str(error)) from error
        now = read_stat(self.pid, self._proc_root)
        if now is not None and now.state not in "ZX":
            self.outcome = "remains" if self.is_judged() else "another"

    def is_judged(self) -> bool:
        """Return whether the process still has the start time that was judged, and has not ended."""
        now = read_stat(self.pid, self._proc_root)
        return now is not None and self.start_ticks is not None and now.start_ticks == self.start_ticks and now.state not in "ZX"

    def send(self, number: signal.Signals) -> None:
        if self.descriptor is not None and self.is_judged():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.descriptor, number)

    def ended(self) -> bool:
        """The descriptor of a process becomes readable when it ends."""
        return self.descriptor is None or bool(select.select([self.descriptor], [], [], 0)[0])

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)


def _wait(targets: t.Sequence[_Target], seconds: float) -> list[_Target]:
    """Wait for all to end; return those that still exist after ``seconds``."""
    deadline = time.monotonic() + seconds
    left = [target for target in targets if not target.ended()]
    while left and time.monotonic() < deadline:
        select.select([target.descriptor for target in left], [], [], max(0.0, min(1.0, deadline - time.monotonic())))
        left = [target for target in left if not target.ended()]
    return left


def end(orphans: t.Sequence[t.Mapping[str, t.Any]], proc_root: str, grace: float) -> dict[int, str]:
    """End the judged processes, and no other: SIGTERM, after ``grace`` seconds SIGKILL. Return how each ended by its pid.

    ``term`` and ``kill``: by that signal. ``remains``: it still exists, and hangs in the kernel. ``gone``: it had ended before.
    ``another``: its number has another process now, which was left alone. Raises :class:`ClusterError` when a signal is not allowed.
    """
    targets: list[_Target] = []
    try:
        targets += (_Target(orphan, proc_root) for orphan in orphans)
        left = [target for target in targets if target.outcome == "remains"]
        for word, number, seconds in (("term", signal.SIGTERM, grace), ("kill", signal.SIGKILL, KILL_SECONDS)):
            for target in left:
                target.send(number)
            remaining = _wait(left, seconds)
            for target in left:
                if target not in remaining:
                    target.outcome = word
            left = remaining
    except PermissionError as error:
        raise ClusterError("no permission to end an orphaned engine process", remedy="Run the task with become: true.", reason="permission") from error
    finally:
        for target in targets:
            target.close()
    return {target.pid: target.outcome for target in targets}
