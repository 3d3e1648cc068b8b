# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who holds GPU memory: the living, the dead, and engines whose server is gone. This module util is PRIVATE to the collection.

The first half decides on what was read; the second reads, and ends processes where that was asked for.
"""

from __future__ import annotations

import dataclasses
import os
import re
import select
import signal
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_state, launcher
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import driver
from ansible_collections.gb10.cluster.plugins.module_utils._process.engines import SERVING_TITLES, serves
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import Process

#: Classes of a GPU process. ``unknown``: it is there and may not be looked at.
CLASSES = ("live", "defunct", "ghost", "orphan", "unknown")

#: Titles of processes that answer requests, although they begin like those of engine cores and workers.
SERVER_TITLES = ("VLLM::APIServer",)
#: Programs that own workers and are no engine.
OWNERS = ("raylet",)

#: Programs that hold a container open, or start others, and never an engine's core: below one of these it was adopted.
INITS = frozenset(
    """
    init systemd tini tini-static docker-init dumb-init catatonit s6-svscan s6-overlay-suexec runsvdir runit supervisord
    sleep tail pause bash sh dash ash zsh
    """.split()
)
#: A helper process of Python's that starts workers for somebody else.
_HELPER = re.compile(r"multiprocessing\.(forkserver|resource_tracker|spawn)")

#: Seconds that the kernel gets to end killed processes. One that is still there then hangs in the kernel.
KILL_SECONDS = 10.0
#: Processes between an engine's worker and its server; more are a loop in what was read.
_DEPTH = 64
#: Characters of a title that are told.
TITLE_SHOWN = 120


# -- what the driver lists -------------------------------------------------------------------------------------------


def listed(gpus: t.Iterable[t.Mapping[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Return the processes of the GPUs of :func:`driver_xml.gpus`, each once, by pid: ``{pid, name, type, used_mib}``.

    On one GPU a process counts once, however often it is listed there (as C and as G): with the larger figure. Over several GPUs its
    memory is the sum. ``used_mib`` is None where the driver tells it for none of them. Raises :class:`UnknownState` when the processes of
    a GPU are not known.
    """
    found: dict[int, dict[str, t.Any]] = {}
    figures: dict[int, dict[int, int]] = {}
    for number, gpu in enumerate(gpus):
        if gpu["processes"] is None:
            raise UnknownState(f"nvidia-smi does not tell the processes of GPU {gpu.get('index', number)}", remedy=driver.BY_HAND, reason="output not understood")
        for entry in gpu["processes"]:
            pid, used = entry["pid"], entry["used_mib"]
            known = found.setdefault(pid, {"pid": pid, "name": entry["name"], "type": entry["type"], "used_mib": None})
            known["name"] = known["name"] or entry["name"]
            types = {kind for text in (known["type"], entry["type"]) for kind in (text or "").split("+") if kind}
            known["type"] = "+".join(sorted(types)) or None
            if used is not None:
                on_gpu = figures.setdefault(pid, {})
                on_gpu[number] = max(on_gpu.get(number, 0), used)
    for pid, entry in found.items():
        entry["used_mib"] = sum(figures[pid].values()) if pid in figures else None
    return [found[pid] for pid in sorted(found)]


def unified(gpus: t.Sequence[t.Mapping[str, t.Any]]) -> bool | None:
    """Say whether the GPUs use the machine's memory: those have none of their own to count. None without a GPU."""
    return all(gpu["memory_total_mb"] is None for gpu in gpus) if gpus else None


def sum_mib(processes: t.Iterable[t.Mapping[str, t.Any]]) -> int | None:
    """Return the MiB of some processes together, None when one of them does not tell."""
    figures = [process["used_mib"] for process in processes]
    return None if None in figures else sum(figures)


# -- whose child a process is ----------------------------------------------------------------------------------------


def is_part(argv: t.Sequence[str]) -> bool:
    """Say whether a title is that of an engine's core or of one of its workers."""
    return bool(argv) and argv[0].startswith(SERVING_TITLES) and not argv[0].startswith(SERVER_TITLES)


def is_owner(process: Process) -> bool:
    """Say whether a process is one that engine cores and workers belong to: an API server, or Ray's own on every node."""
    if not process.argv or is_part(process.argv):
        return False
    program = os.path.basename(process.argv[0].split(" ", 1)[0])
    return program in OWNERS or serves(process.argv) or process.argv[0].startswith(SERVER_TITLES) or _served_title(process.argv[0])


def _served_title(title: str) -> bool:
    """A server that gave itself its own command line as title has all words in one argument."""
    return " " in title and serves(title.split())


class Parentage(t.NamedTuple):
    """Whether a process lost the server that it belongs to, in words why, and the pids from its parent upwards as far as they were followed."""

    orphan: bool
    why: str
    chain: tuple[int, ...]


def parentage(
    process: Process,
    processes: t.Mapping[int, Process],
    is_first: t.Callable[[int], bool],
    session_lives: t.Callable[[int], bool],
) -> Parentage:
    """Judge an engine's core or worker by its living ancestors.

    It has lost its server when nobody but cores, workers and helpers is between it and a process that adopts: the machine's first process,
    ``systemd --user``, or the first of its container (``is_first``). The last may also have started it itself: it counts only when it is a
    program that starts no engine core (:data:`INITS`), or when the leader of the process's session is gone, which the first process outlived.
    Whatever cannot be seen, and any other living parent (a script that uses the engine as a library), means that it is not lost.
    """
    chain: list[int] = []
    current = process
    for _step in range(_DEPTH):
        if current.pid == 1 or is_first(current.pid):
            return Parentage(False, "it is the first process of its container", tuple(chain))
        parent = processes.get(current.ppid)
        if parent is None or parent.ended:
            return Parentage(False, f"its parent {current.ppid} cannot be seen", tuple(chain))
        chain.append(parent.pid)
        if is_owner(parent):
            return Parentage(False, f"process {parent.pid} serves with it: {title_of(parent)}", tuple(chain))
        if parent.pid != 1 and (is_part(parent.argv) or _HELPER.search(parent.command)):
            current = parent
            continue
        return _adopted(process, parent, is_first, session_lives, tuple(chain))
    return Parentage(False, "its ancestors have no end", tuple(chain))


def _adopted(
    process: Process, parent: Process, is_first: t.Callable[[int], bool], session_lives: t.Callable[[int], bool], chain: tuple[int, ...]
) -> Parentage:
    program = os.path.basename(parent.argv[0].split(" ", 1)[0]) if parent.argv else parent.name
    if parent.pid == 1:
        return Parentage(True, "no API server or raylet of it lives; the machine's first process adopted it", chain)
    if program == "systemd":
        return Parentage(True, f"no API server or raylet of it lives; {title_of(parent)} adopted it", chain)
    if is_first(parent.pid):
        if program in INITS or holds_open(parent.argv):
            return Parentage(True, f"no API server or raylet of it lives; the first process of its container adopted it ({title_of(parent)})", chain)
        if not session_lives(process.pid):
            return Parentage(True, "no API server or raylet of it lives, and who began its session is gone", chain)
    return Parentage(False, f"process {parent.pid} may have started it: {title_of(parent)}", chain)


def holds_open(argv: t.Sequence[str]) -> bool:
    """Say whether this is the program of this collection, or of Ray, that holds a container open: neither starts an engine's core itself."""
    words = [os.path.basename(word) for word in argv]
    return ("launcher.py" in words and "hold" in words) or words[:2] == ["ray", "start"] or words[1:3] == ["ray", "start"]


def title_of(process: Process) -> str:
    return (process.command or process.name)[:TITLE_SHOWN]


# -- classes ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Look:
    """One moment: the GPU processes with their classes, and the GPUs."""

    processes: list[dict[str, t.Any]]
    gpus: list[dict[str, t.Any]]

    def of(self, *kinds: str) -> list[dict[str, t.Any]]:
        """Return the processes of some classes."""
        return [process for process in self.processes if process["class"] in kinds]

    @property
    def unified(self) -> bool | None:
        return unified(self.gpus)


#: What is told of a process that the driver does not list, or the kernel does not have.
_NOT_KNOWN: dict[str, t.Any] = {"owner": None, "container": "", "title": "", "rss_mb": None, "start_ticks": None, "why": ""}


def classified(
    entries: t.Iterable[t.Mapping[str, t.Any]],
    processes: t.Mapping[int, Process],
    absent: t.Callable[[int], str],
    judge: t.Callable[[Process], Parentage],
) -> list[dict[str, t.Any]]:
    """Return the driver's ``entries`` with class, title, container and memory of each, and the engine parts without a server that it does not list.

    ``absent`` gives the class of a pid that is not among ``processes``. An engine's core that the driver does not list (yet) holds other
    memory of the node: the weights that it read.
    """
    found = []
    entries = list(entries)
    for entry in entries:
        process = processes.get(entry["pid"])
        if process is None:
            found.append({**entry, **_NOT_KNOWN, "listed": True, "class": absent(entry["pid"])})
            continue
        lineage = judge(process) if is_part(process.argv) and not process.ended else Parentage(False, "", ())
        kind = "defunct" if process.ended else "orphan" if lineage.orphan else "live"
        # The driver has no name for one that has ended.
        found.append({**entry, **_described(process), "name": entry["name"] or process.name, "listed": True, "class": kind, "why": lineage.why})
    known = {entry["pid"] for entry in entries}
    for process in processes.values():
        if process.pid not in known and not process.ended and is_part(process.argv):
            lineage = judge(process)
            if lineage.orphan:
                unlisted = {"pid": process.pid, "name": process.argv[0][:TITLE_SHOWN], "type": None, "used_mib": None}
                found.append({**unlisted, **_described(process), "listed": False, "class": "orphan", "why": lineage.why})
    return sorted(found, key=lambda process: process["pid"])


def _described(process: Process) -> dict[str, t.Any]:
    return {**_NOT_KNOWN, "title": title_of(process), "container": process.container, "rss_mb": process.rss_kib // 1024}


# -- reading ---------------------------------------------------------------------------------------------------------


def first_of_namespace(pid: int, proc_root: str) -> bool:
    """Say whether a process is number 1 in its innermost pid namespace."""
    try:
        return engine_state.namespace_pid(pid, proc_root) == 1
    except PermissionError:
        return False


def session_lives(pid: int, processes: t.Mapping[int, Process], proc_root: str) -> bool:
    """Say whether the leader of a process's session is there; also when the process itself is gone, for then nothing follows."""
    one = launcher.process(pid, proc_root)
    if one is None:
        return True
    leader = processes.get(one.session)
    # A session of 0 was begun outside of the pid namespace that we see.
    return one.session == 0 or (leader is not None and not leader.ended)


def look(cards: t.Callable[[], list[dict[str, t.Any]]], scan: t.Callable[[], t.Any], proc_root: str) -> Look:
    """Ask the driver for its ``cards``, then the kernel for its processes. Raises :class:`UnknownState` when one of them gives no readable answer."""
    gpus = cards()
    entries = listed(gpus)
    try:
        processes = scan().processes
    except OSError as error:
        raise UnknownState(f"{proc_root} cannot be listed: {error.strerror}", reason="processes unseen", raw=str(error)) from error

    def judge(process: Process) -> Parentage:
        return parentage(
            process, processes, lambda pid: first_of_namespace(pid, proc_root), lambda pid: session_lives(pid, processes, proc_root)
        )

    found = classified(entries, processes, lambda pid: driver.classify(pid, proc_root), judge)
    for process in found:
        if process["title"]:
            one = launcher.process(process["pid"], proc_root)
            process["start_ticks"] = one.start_ticks if one else None
    return Look(found, gpus)


# -- ending ----------------------------------------------------------------------------------------------------------


def own_processes(proc_root: str) -> bool:
    """Say whether the numbers below ``proc_root`` are those of this very process's pid namespace, so that a signal reaches who was looked at."""
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
        now = launcher.process(self.pid, self._proc_root)
        if now is not None and now.state not in "ZX":
            self.outcome = "remains" if self.is_judged() else "another"

    def is_judged(self) -> bool:
        """Say whether the process still has the start time that was judged, and has not ended."""
        now = launcher.process(self.pid, self._proc_root)
        return now is not None and self.start_ticks is not None and now.start_ticks == self.start_ticks and now.state not in "ZX"

    def send(self, number: signal.Signals) -> None:
        if self.descriptor is not None and self.is_judged():
            try:
                signal.pidfd_send_signal(self.descriptor, number)
            except ProcessLookupError:
                pass

    def ended(self) -> bool:
        """The descriptor of a process becomes readable when it ends."""
        return self.descriptor is None or bool(select.select([self.descriptor], [], [], 0)[0])

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)


def _wait(targets: t.Sequence[_Target], seconds: float) -> list[_Target]:
    """Wait for the end of all; return those that are there after ``seconds``."""
    deadline = time.monotonic() + seconds
    left = [target for target in targets if not target.ended()]
    while left and time.monotonic() < deadline:
        select.select([target.descriptor for target in left], [], [], max(0.0, min(1.0, deadline - time.monotonic())))
        left = [target for target in left if not target.ended()]
    return left


def end(orphans: t.Sequence[t.Mapping[str, t.Any]], proc_root: str, grace: float) -> dict[int, str]:
    """End the judged processes, and no other: SIGTERM, after ``grace`` seconds SIGKILL. Return how each ended by its pid.

    ``term`` and ``kill``: by that signal. ``remains``: it is still there, and hangs in the kernel. ``gone``: it had ended before.
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
