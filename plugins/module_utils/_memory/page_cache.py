# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page cache: how much of it files use, and how it is freed. This module util is PRIVATE to the collection.

Any access to a disk here can hang in the kernel, where no signal reaches it: writing dirty pages back, opening a file of a
server that is gone, dropping pages. So each such step runs in a child process (:func:`bounded`) that is left behind when its time is over.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import json
import os
import select
import signal
import stat
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: Ids of the findings about the page cache that can stop or warn.
IDS = ("page_cache.files", "page_cache.sync")

#: Seconds that a killed child gets to end before it is left running.
KILL_GRACE = 1.0

#: The same number on every architecture; in Linux since 6.5.
SYS_CACHESTAT = 451

PROT_READ = 1
MAP_SHARED = 1
MAP_FAILED = ctypes.c_void_p(-1).value

#: How much of a file is mapped at a time to ask which of its pages are cached; one byte of answer for each page.
MINCORE_STEP = 1 << 30

#: Kinds of paths that are neither a file nor a directory.
SPECIAL = ((stat.S_ISBLK, "a block device"), (stat.S_ISCHR, "a character device"), (stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"))

#: The remedy for a step that hangs.
HUNG_REMEDY = "See which processes hang in the kernel (ps -eo pid,stat,wchan:32,args), and whether a disk or a file server is gone (journalctl -k)."


# -- a strict deadline -----------------------------------------------------------------------------------------------


class Hung(UnknownState):
    """A step did not end in time; it was killed, or left behind where it cannot die."""


def bounded(doing: str, work: t.Callable[[], t.Any], timeout: float) -> t.Any:
    """Call ``work`` in a child process and return its result, which must be JSON data; ``doing`` describes it for messages.

    Raises :class:`Hung` when ``timeout`` (seconds) is over, the OSError that ``work`` raised, and :class:`UnknownState` when the
    child ended without an answer.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(work, write_end)
    os.close(write_end)
    try:
        text = _read_all(read_end, time.monotonic() + timeout)
    finally:
        os.close(read_end)
    if text is None:
        _leave(child)
        raise Hung(f"{doing} did not end within {timeout:g} s", remedy=HUNG_REMEDY, reason="hangs")
    _pid, status = os.waitpid(child, 0)
    try:
        answer = json.loads(text)
    except ValueError as error:
        raise UnknownState(f"{doing} ended without an answer (wait status {status})", raw=text.decode(errors="replace")[:2000]) from error
    if "errno" in answer:
        raise OSError(answer["errno"], os.strerror(answer["errno"]), answer["filename"])
    return answer["result"]


def _answer(work: t.Callable[[], t.Any], write_end: int) -> t.NoReturn:
    """Run in the child: in its own session, and without the parent's streams, since a reader of these would wait for the child."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        try:
            answer = {"result": work()}
        except OSError as error:
            answer = {"errno": error.errno, "filename": error.filename}
        with open(write_end, "w", encoding="utf-8") as pipe:
            json.dump(answer, pipe)
    finally:
        os._exit(0)


def _read_all(descriptor: int, deadline: float) -> bytes | None:
    """Return the bytes that come until the other end is closed, None when ``deadline`` (monotonic) passes first."""
    parts = [b"-"]
    while parts[-1]:
        ready, _w, _x = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        parts.append(os.read(descriptor, 65536))
    return b"".join(parts[1:])


def _leave(child: int) -> None:
    """Kill a child; one that is stuck in the kernel ends when the kernel releases it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    for _waited in clock(KILL_GRACE, KILL_GRACE / 20):
        if os.waitpid(child, os.WNOHANG)[0]:
            return


def write_setting(path: str, text: str) -> None:
    """Write ``text`` to a file of the kernel's. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


# -- files in the cache ------------------------------------------------------------------------------------------------


class Residency(t.NamedTuple):
    """How much of a file is in the page cache, in bytes; ``dirty`` is None where the kernel does not report it."""

    cached: int
    dirty: int | None


class _Range(ctypes.Structure):
    _fields_ = [("off", ctypes.c_uint64), ("len", ctypes.c_uint64)]


class _Stat(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("cache", "dirty", "writeback", "evicted", "recently_evicted")]


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    libc.mmap.restype = ctypes.c_void_p
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    libc.syscall.restype = ctypes.c_long
    return libc


def cachestat(libc: ctypes.CDLL, descriptor: int) -> Residency | None:
    """Ask Linux 6.5 or newer; None where the call does not exist, is filtered, or does not support this file."""
    whole, counts = _Range(0, 0), _Stat()
    done = libc.syscall(
        ctypes.c_long(SYS_CACHESTAT), ctypes.c_long(descriptor), ctypes.byref(whole), ctypes.byref(counts), ctypes.c_long(0)
    )
    if done != 0:
        if ctypes.get_errno() in (errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP):
            return None
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    page = os.sysconf("SC_PAGE_SIZE")
    return Residency(counts.cache * page, (counts.dirty + counts.writeback) * page)


def mincore(libc: ctypes.CDLL, descriptor: int, size: int) -> Residency:
    """Ask an older kernel. The file must be writable: the kernel reports any other as fully cached."""
    page = os.sysconf("SC_PAGE_SIZE")
    cached = 0
    for offset in range(0, size, MINCORE_STEP):
        length = min(MINCORE_STEP, size - offset)
        address = libc.mmap(None, length, PROT_READ, MAP_SHARED, descriptor, offset)
        if address == MAP_FAILED:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        try:
            pages = ctypes.create_string_buffer(-(-length // page))
            if libc.mincore(address, length, pages) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            cached += sum(byte & 1 for byte in pages.raw) * page
        finally:
            libc.munmap(address, length)
    return Residency(cached, None)


def residency(libc: ctypes.CDLL, descriptor: int, path: str, status: os.stat_result) -> Residency | None:
    """Return how much of an open file is cached, None when the kernel does not report it to this user.

    The pages of a file on overlayfs belong to the file below it. ``cachestat`` does not look there and counts none; ``mincore`` does.
    """
    reading = cachestat(libc, descriptor)
    if reading and (reading.cached or not status.st_size):
        return reading
    if os.geteuid() in (0, status.st_uid) or os.access(path, os.W_OK):
        mapped = mincore(libc, descriptor, status.st_size)
        return reading if reading and not mapped.cached else mapped
    return reading


#: An action on a file, given its descriptor and how much of it is cached.
Act = t.Callable[[int, "Residency | None"], None]


@dataclasses.dataclass
class Survey:
    """How much of the page cache the files below some paths use. Sizes are in bytes.

    ``unmeasured`` is the size of the files that the kernel does not report on, ``unreadable`` the number of files or directories that
    may not be read, ``special`` that of devices, pipes and sockets, which are skipped, ``absent`` the paths that do not exist, ``refused`` those that
    are special themselves. ``ended_by`` names the limit that ended the survey early: max_files or time.
    """

    files: int = 0
    size: int = 0
    cached: int = 0
    dirty: int = 0
    unmeasured: int = 0
    unreadable: int = 0
    special: int = 0
    absent: list[str] = dataclasses.field(default_factory=list)
    refused: list[str] = dataclasses.field(default_factory=list)
    ended_by: str = ""

    def count(self, size: int, reading: Residency | None) -> None:
        self.files += 1
        self.size += size
        self.unmeasured += 0 if reading else size
        self.cached += reading.cached if reading else 0
        self.dirty += (reading.dirty or 0) if reading else 0


def regular_files(paths: t.Sequence[str], survey: Survey) -> t.Iterator[str]:
    """Yield the files that ``paths`` name and all below those that are directories.

    A link to a file, such as those in a hub cache's snapshots, counts as the file. A link to a directory is followed when it
    is one of ``paths`` itself, and never below, where it might lead anywhere.
    """
    def unreadable(_error: OSError) -> None:
        survey.unreadable += 1

    for path in paths:
        if not os.path.exists(path):
            survey.absent.append(path)
        elif kind := special_kind(path):
            survey.refused.append(f"{path} is {kind}")
        elif os.path.isdir(path):
            for directory, _directories, names in os.walk(path, onerror=unreadable):
                yield from (os.path.join(directory, name) for name in sorted(names))
        else:
            yield path


def visit(paths: t.Sequence[str], max_files: int, seconds: float, to_each: Act | None = None) -> dict[str, t.Any]:
    """Measure every file once, then apply ``to_each``, and return the :class:`Survey` (from before that) as a dict.

    Ends early after ``max_files`` files or ``seconds``. Raises OSError for anything but a file that is gone or may not be read.
    """
    libc, survey, seen = _libc(), Survey(), set()
    deadline = time.monotonic() + seconds
    for path in regular_files(paths, survey):
        if time.monotonic() > deadline:
            survey.ended_by = "time"
            break
        descriptor = _open(path, survey)
        if descriptor is None:
            continue
        try:
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) in seen:
                continue
            if survey.files >= max_files:
                survey.ended_by = "max_files"
                break
            seen.add((status.st_dev, status.st_ino))
            reading = residency(libc, descriptor, path, status)
            survey.count(status.st_size, reading)
            if to_each:
                to_each(descriptor, reading)
        finally:
            os.close(descriptor)
    return dataclasses.asdict(survey)


def _open(path: str, survey: Survey) -> int | None:
    """Return a descriptor, None for what may not be read or is not a file (both counted), is gone by now, or is a link in a circle.

    Where a user's link leads root to what that user may not read, root may not either.
    """
    try:
        descriptor = untrusted.regular(path)
        survey.special += descriptor is None
        return descriptor
    except (PermissionError, ClusterError):
        survey.unreadable += 1
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP):
            raise
    return None


def special_kind(path: str) -> str:
    """Return the kind of a path, or of its target, that is a device, a named pipe or a socket. Empty for anything else, and for a missing path."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return ""
    return next((text for matches, text in SPECIAL if matches(mode)), "")


def write_back(descriptor: int, reading: Residency | None) -> None:
    """Write a file's dirty pages to disk, unless the kernel reports that there are none."""
    if reading is None or reading.dirty != 0:
        os.fdatasync(descriptor)


def give_back(descriptor: int, reading: Residency | None) -> None:
    """Tell the kernel that a file's pages are not needed. It keeps those that are dirty, mapped by a process or locked."""
    if reading is None or reading.cached:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
