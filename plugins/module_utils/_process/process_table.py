# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All processes of a node in one pass over ``/proc``. This module util is PRIVATE to the collection.

A process that ends between two reads is left out. One pass opens three small files a process, none of which needs
privileges, so thousands of processes take a fraction of a second.
"""

from __future__ import annotations

import mmap
import os
import pwd
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._network.listeners import container_id, parse_cmdline
from ansible_collections.gb10.cluster.plugins.module_utils._redact import shown_argv
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME

#: The errors for a process that has ended meanwhile.
GONE = (FileNotFoundError, ProcessLookupError, NotADirectoryError)

#: Bytes of one file of ``/proc`` that are read; a longer command line is cut.
READ_LIMIT = 64 * 1024
#: Characters of a command line that are shown, and of one within a message.
CMDLINE_SHOWN = 500
TITLE_SHOWN = 120

#: Fields of ``/proc/PID/stat`` after the name, counted from 0 (proc_pid_stat(5): state is field 3, ppid 4, session 6, utime 14, starttime 22, rss 24).
_STATE, _PPID, _SESSION, _UTIME, _STIME, _START, _RSS = 0, 1, 3, 11, 12, 19, 21

#: States of a process (proc_pid_stat(5)) that matter for its health.
_CONDITIONS = (("Tt", "stopped"), ("D", "uninterruptible"), ("ZX", "ended"))

#: Processes between one and the first; more are a loop in what was read.
_DEPTH = 64


class Process(t.NamedTuple):
    """One process: ``name`` is the kernel's short name, ``argv`` is empty for kernel threads, ``container`` is the full id or empty.

    ``rss_kib`` is its resident memory in KiB; ``uid`` is its owner. ``session`` is the pid of its session's leader, 0 for one outside of the visible pid
    namespace; processor time of all threads, and start since boot, are in clock ticks.
    """

    pid: int
    ppid: int
    state: str
    name: str
    argv: tuple[str, ...]
    container: str
    uid: int
    rss_kib: int
    session: int = 0
    cpu_ticks: int = 0
    start_ticks: int = 0

    @property
    def command(self) -> str:
        """The command line as one text, or the title that the process gave itself."""
        return " ".join(self.argv)

    @property
    def shown_command(self) -> str:
        """The command line as it may leave the node, before anything is cut off."""
        return " ".join(shown_argv(self.argv))[:CMDLINE_SHOWN]

    @property
    def title(self) -> str:
        """Its name in a message."""
        return (self.shown_command or self.name)[:TITLE_SHOWN]

    @property
    def program(self) -> str:
        """The last part of its program's path."""
        return os.path.basename(self.argv[0].split(" ", 1)[0]) if self.argv else self.name

    @property
    def ended(self) -> bool:
        """Whether it has ended and waits for its parent: it uses no resources any more."""
        return self.state in "ZX"

    @property
    def condition(self) -> str:
        """Its condition by the kernel: ``stopped``, ``uninterruptible`` (it waits in the kernel, and no signal reaches it), ``ended``, ``alive``."""
        return next((word for letters, word in _CONDITIONS if self.state in letters), "alive")


class Scan(t.NamedTuple):
    """The processes by pid, and how many more may not be read (None: unknown)."""

    processes: dict[int, Process]
    hidden: int | None


class Stat(t.NamedTuple):
    """Whether a process has ended, and what distinguishes it from the next one with its number: its start, in clock ticks since boot."""

    state: str
    start_ticks: int


def parse_stat(text: str) -> dict[str, t.Any]:
    """Return the fields of a process in a ``/proc/PID/stat`` text. Raises :class:`UnknownState` for another shape."""
    # The name is in parentheses and may contain any character: the last one closes it.
    head, _close, tail = text.rpartition(")")
    fields = tail.split()
    try:
        ppid, pages, session, utime, stime, start = (int(fields[at]) for at in (_PPID, _RSS, _SESSION, _UTIME, _STIME, _START))
        if min(utime, stime, start) < 0:
            raise ValueError("a time before the boot")
        values = {"ppid": ppid, "state": fields[_STATE], "name": head.split("(", 1)[1], "rss_kib": pages * mmap.PAGESIZE // 1024}
    except (IndexError, ValueError):
        raise UnknownState(f"the kernel describes a process in a shape that cannot be read: {text[:200]!r}", raw=text[:2000]) from None
    return {**values, "session": session, "cpu_ticks": utime + stime, "start_ticks": start}


def read_bytes(path: str, limit: int = READ_LIMIT) -> bytes:
    """Return at most ``limit`` bytes of a file of ``/proc``. Raises OSError."""
    with open(path, "rb") as stream:
        return stream.read(limit)


def read_stat(pid: int, root: str = "/proc") -> Stat | None:
    """Return the kernel's state of one process, None when there is none with this pid. Raises PermissionError when it is hidden."""
    try:
        stat = parse_stat(read_bytes(f"{root}/{pid}/stat").decode("utf-8", "replace"))
    except GONE:
        return None
    return Stat(stat["state"], stat["start_ticks"])


def namespace_pid(pid: int, root: str) -> int | None:
    """Return the pid that the innermost pid namespace gives to the host's process ``pid``."""
    try:
        status = read_bytes(f"{root}/{pid}/status").decode("utf-8", "replace")
    except GONE:
        return None
    match = re.search(r"^NSpid:.*\s(\d+)$", status, re.MULTILINE)
    return int(match[1]) if match else None


def read_process(pid: int, root: str) -> Process:
    """Return one process. Raises FileNotFoundError or ProcessLookupError when it is gone, PermissionError when it is hidden."""
    base = f"{root}/{pid}"
    stat = parse_stat(read_bytes(f"{base}/stat").decode("utf-8", "replace"))
    try:
        container = container_id(read_bytes(f"{base}/cgroup").decode("utf-8", "replace"))
    except FileNotFoundError:
        container = ""  # a kernel without control groups has no containers; a process that is gone shows below
    return Process(pid=pid, argv=parse_cmdline(read_bytes(f"{base}/cmdline")), container=container, uid=os.stat(base).st_uid, **stat)


def own_container(root: str) -> str:
    """Return the id of the container that this process itself runs in, empty outside of any: inside a container, that container is the node."""
    try:
        return container_id(read_bytes(f"{root}/self/cgroup").decode("utf-8", "replace"))
    except OSError:
        return ""


def scan(root: str = "/proc", pids: t.Iterable[int] | None = None) -> Scan:
    """Return all processes that can be seen, or only those of ``pids``.

    Raises OSError when ``root`` cannot be listed, :class:`UnknownState` when it lists none.
    """
    processes: dict[int, Process] = {}
    hidden = 0
    own = own_container(root)
    for pid in sorted((int(name) for name in os.listdir(root) if name.isdigit()) if pids is None else pids):
        try:
            process = read_process(pid, root)
            processes[pid] = process._replace(container="") if process.container == own else process
        except GONE:
            continue  # it ended meanwhile
        except PermissionError:
            hidden += 1
    if not processes and pids is None:
        raise UnknownState(f"{root} shows no process", remedy="Say where the proc file system is mounted (roots.proc_root).")
    # Where others' processes are missing altogether, their number is unknown.
    return Scan(processes, None if hides_others(root) else hidden)


def require_all_seen(seen: Scan, missed: str = "an engine") -> Scan:
    """Return ``seen``. Raises :class:`UnknownState` when there are processes that may not be seen: the wanted one could be among them."""
    if seen.hidden != 0:
        which = "other users' processes (hidepid)" if seen.hidden is None else f"{seen.hidden} processes"
        raise UnknownState(f"{which} may not be seen: {missed} among them would be missed", remedy=BECOME, reason="processes hidden")
    return seen


def hides_processes(mounts: str, root: str) -> bool:
    """Return whether a ``/proc/self/mounts`` text mounts ``root`` so that other users' processes are missing in it."""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) >= 4 and fields[1] == root and fields[2] == "proc":
            return bool({"hidepid=2", "hidepid=invisible", "hidepid=4", "hidepid=ptraceable"} & set(fields[3].split(",")))
    return False


def hides_others(root: str) -> bool:
    """Return whether other users' processes are missing in ``root`` altogether (``hidepid``)."""
    if os.geteuid() == 0:
        return False
    try:
        return hides_processes(read_bytes(f"{root}/self/mounts", 1024 * 1024).decode("utf-8", "replace"), root)
    except FileNotFoundError:
        return False


def ancestors(pid: int, processes: t.Mapping[int, Process]) -> t.Iterator[int]:
    """Yield a process's ancestors that can be seen, its parent first."""
    for _step in range(_DEPTH):
        process = processes.get(pid)
        if process is None or process.ppid in (0, pid) or process.ppid not in processes:
            return
        pid = process.ppid
        yield pid


def cpu_percent(before: Process, after: Process, seconds: float) -> float | None:
    """Return the share of one core that a process used between two looks; None when its number has another process by now."""
    if before.start_ticks != after.start_ticks or after.cpu_ticks < before.cpu_ticks or seconds <= 0:
        return None
    return round(100 * (after.cpu_ticks - before.cpu_ticks) / os.sysconf("SC_CLK_TCK") / seconds, 1)


def user_name(uid: int) -> str:
    """Return the name of an account, its number as text when it has none on this node."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def by_container(processes: t.Iterable[Process]) -> dict[str, list[int]]:
    """Return the pids of each container by its full id."""
    pids: dict[str, list[int]] = {}
    for process in processes:
        if process.container:
            pids.setdefault(process.container, []).append(process.pid)
    return pids
