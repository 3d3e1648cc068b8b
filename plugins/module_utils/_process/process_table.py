# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All processes of a node in one pass over ``/proc``. This module util is PRIVATE to the collection.

A process may end between any two reads: it is left out then. One pass opens three small files a process, none of which takes
rights, so thousands of processes take a fraction of a second.
"""

from __future__ import annotations

import mmap
import os
import pwd
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._gpu.driver import hides_processes
from ansible_collections.gb10.cluster.plugins.module_utils._network.listeners import container_id

#: Bytes of one file of ``/proc`` that are read; a longer command line is cut.
READ_LIMIT = 64 * 1024
#: Characters of a command line that are told.
CMDLINE_SHOWN = 500

#: Fields of ``/proc/PID/stat`` after the name, counted from 0 (proc_pid_stat(5): state is field 3, ppid 4, rss 24).
_STATE, _PPID, _RSS = 0, 1, 21


class Process(t.NamedTuple):
    """One process: ``name`` is the kernel's short one, ``argv`` is empty for kernel threads, ``container`` the full id or empty.

    ``rss_kib`` is what it has in memory, in KiB; ``uid`` whose it is.
    """

    pid: int
    ppid: int
    state: str
    name: str
    argv: tuple[str, ...]
    container: str
    uid: int
    rss_kib: int

    @property
    def command(self) -> str:
        """The command line as one text, or the title that the process gave itself."""
        return " ".join(self.argv)

    @property
    def ended(self) -> bool:
        """Whether it has ended and waits for its parent: it holds nothing any more."""
        return self.state in "ZX"


class Scan(t.NamedTuple):
    """The processes by pid, and how many there are besides that may not be looked at (None: nobody knows how many)."""

    processes: dict[int, Process]
    hidden: int | None


def parse_stat(text: str) -> tuple[str, int, str, int]:
    """Return (name, parent's pid, state, resident pages) of a ``/proc/PID/stat`` text. Raises :class:`UnknownState` for another shape."""
    # The name stands in parentheses and may hold any character: the last one closes it.
    head, _close, tail = text.rpartition(")")
    fields = tail.split()
    try:
        return head.split("(", 1)[1], int(fields[_PPID]), fields[_STATE], int(fields[_RSS])
    except (IndexError, ValueError):
        raise UnknownState(f"the kernel describes a process in a shape that cannot be read: {text[:200]!r}", raw=text[:2000]) from None


def parse_cmdline(raw: bytes) -> tuple[str, ...]:
    """Return the arguments of a ``/proc/PID/cmdline`` content; a title that overwrote them is one argument."""
    return tuple(raw.decode("utf-8", "replace").rstrip("\0 ").split("\0")) if raw.strip(b"\0 ") else ()


def read_bytes(path: str, limit: int = READ_LIMIT) -> bytes:
    """Return at most ``limit`` bytes of a file of ``/proc``. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, limit)
    finally:
        os.close(descriptor)


def read_whole(path: str, limit: int) -> bytes:
    """Return a file of ``/proc`` that the kernel gives page by page, at most ``limit`` bytes of it. Raises OSError."""
    with open(path, "rb") as stream:
        return stream.read(limit)


def open_files(pid: int, root: str) -> list[str]:
    """Return what a process has open, as the links in ``/proc/PID/fd`` name it.

    Raises PermissionError when it may not be asked, FileNotFoundError or ProcessLookupError when it is gone.
    """
    path = f"{root}/{pid}/fd"
    found = []
    for name in os.listdir(path):
        try:
            found.append(os.readlink(f"{path}/{name}"))
        except (FileNotFoundError, ProcessLookupError):
            continue  # closed meanwhile
    return found


def read_process(pid: int, root: str) -> Process:
    """Return one process. Raises FileNotFoundError or ProcessLookupError when it is gone, PermissionError when it is hidden."""
    base = f"{root}/{pid}"
    name, ppid, state, pages = parse_stat(read_bytes(f"{base}/stat").decode("utf-8", "replace"))
    try:
        container = container_id(read_bytes(f"{base}/cgroup").decode("utf-8", "replace"))
    except FileNotFoundError:
        container = ""  # a kernel without control groups has no containers; a process that is gone shows below
    return Process(
        pid=pid,
        ppid=ppid,
        state=state,
        name=name,
        argv=parse_cmdline(read_bytes(f"{base}/cmdline")),
        container=container,
        uid=os.stat(base).st_uid,
        rss_kib=pages * mmap.PAGESIZE // 1024,
    )


def own_container(root: str) -> str:
    """Return the id of the container that this very process runs in, empty outside of any: seen from there it is the node itself."""
    try:
        return container_id(read_bytes(f"{root}/self/cgroup").decode("utf-8", "replace"))
    except OSError:
        return ""


def scan(root: str = "/proc") -> Scan:
    """Return all processes that can be seen. Raises OSError when ``root`` cannot be listed, :class:`UnknownState` when it lists none."""
    found: dict[int, Process] = {}
    hidden = 0
    own = own_container(root)
    pids = [int(name) for name in os.listdir(root) if name.isdigit()]
    for pid in sorted(pids):
        try:
            process = read_process(pid, root)
            found[pid] = process._replace(container="") if process.container == own else process
        except (FileNotFoundError, ProcessLookupError, NotADirectoryError):
            continue  # it ended meanwhile
        except PermissionError:
            hidden += 1
    if not found:
        raise UnknownState(f"{root} shows no process", remedy="Say where the proc file system is mounted (roots.proc_root).")
    return Scan(found, None if not hidden and _hides(root) else hidden)


def _hides(root: str) -> bool:
    """Tell whether other users' processes are missing in ``root`` altogether (``hidepid``)."""
    if os.geteuid() == 0:
        return False
    try:
        return hides_processes(read_bytes(f"{root}/self/mounts", 1024 * 1024).decode("utf-8", "replace"), root)
    except FileNotFoundError:
        return False


def user_name(uid: int) -> str:
    """Return the name of an account, its number as text when it has none on this node."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def by_container(processes: t.Iterable[Process]) -> dict[str, list[int]]:
    """Return the pids of each container by its full id."""
    found: dict[str, list[int]] = {}
    for process in processes:
        if process.container:
            found.setdefault(process.container, []).append(process.pid)
    return found
