# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node that lacks a model fetches it from another one's daemon. This module util is PRIVATE to the collection.

Whatever is written in the cache is written as its owner: who owns it could put a link in root's way.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._host import copy_job
from ansible_collections.gb10.cluster.plugins.module_utils._memory import page_cache
from ansible_collections.gb10.cluster.plugins.module_utils._model import copying
from ansible_collections.gb10.cluster.plugins.module_utils._model.copying import Entry, Lack
from ansible_collections.gb10.cluster.plugins.module_utils._model.model_files import Writer
from ansible_collections.gb10.cluster.plugins.module_utils._tool import OUTPUT_LIMIT
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: Seconds between two looks at the streams.
LOOK_SECONDS = 0.5
#: Seconds that a stream gets to end after SIGTERM.
STOP_SECONDS = 5.0
#: Seconds that comparing with the source, and dropping the page cache, may take.
COMPARE_SECONDS, DROP_SECONDS = 120, 600
#: Most files whose pages are dropped.
MAX_FILES = 100_000


@dataclasses.dataclass(frozen=True)
class Repository:
    """A repository that is fetched: the daemon's module of it, where it lies here, its files until they are whole, the list of the source, what is lacking."""

    repo: str
    module: str
    path: str
    stage: str
    entries: list[Entry]
    lack: Lack


@dataclasses.dataclass(frozen=True)
class Way:
    """How the source is reached, and from which address. The secret never becomes an argument."""

    rsync: str
    own: str
    address: str
    port: int
    secret: str = dataclasses.field(repr=False)


@contextlib.contextmanager
def acting_as(owner: Writer) -> t.Iterator[None]:
    """Be the owner of the cache for a while. Who is not root is who they are."""
    if os.geteuid() != 0 or owner.uid == 0:
        yield
        return
    groups, gid = os.getgroups(), os.getegid()
    # What everybody may read in the source's cache is so here: the engine's container reads it as another user.
    mask = os.umask(0o022)
    os.setgroups([owner.gid])
    os.setegid(owner.gid)
    os.seteuid(owner.uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(gid)
        os.setgroups(groups)
        os.umask(mask)


def alone(path: str, timeout: float, note: t.Callable[[str], None]) -> contextlib.AbstractContextManager[int]:
    """Keep other copies into this cache out; one that a play left behind is waited for. Its streams hold the lock as long as they live.

    Raises :class:`WaitTimeout` after ``timeout`` seconds.
    """
    return copy_job.alone(path, timeout, note, "this cache", ": it goes on with what is there")


# -- before the first byte -------------------------------------------------------------------------------------------


def have(found: t.Sequence[Repository]) -> dict[str, dict[str, int]]:
    """Return the bytes that lie in the stage already, by repository and file."""
    return {one.repo: {entry.path: copying.staged(entry, _status(one, entry)) for entry in one.lack.files} for one in found}


def _status(one: Repository, entry: Entry) -> os.stat_result | None:
    try:
        return os.lstat(os.path.join(one.stage, entry.path))
    except OSError:
        return None


def free_bytes(path: str) -> int:
    """Return the bytes that a user may still write where ``path`` lies, or the nearest directory above it that is there."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def prepare(one: Repository) -> list[Entry]:
    """Make room in the stage, and return the files that are not whole there.

    rsync takes a file that is as long as the source's for whole. One that was killed before its digest was compared loses its last byte, so
    that it is fetched, and all of it compared.
    """
    wanted = []
    for entry in one.lack.files:
        path = os.path.join(one.stage, entry.path)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        status = _status(one, entry)
        if status is not None and not stat.S_ISREG(status.st_mode):
            os.unlink(path)
        elif status is not None and not copying.is_whole(entry, status) and status.st_size >= entry.size:
            os.truncate(path, max(0, entry.size - 1))
        if not copying.is_whole(entry, _status(one, entry)):
            wanted.append(entry)
    return wanted


# -- fetching --------------------------------------------------------------------------------------------------------


class Stream:
    """One rsync that fetches some files. Its output goes to files, so that nobody has to read it while it runs."""

    def __init__(self, argv: t.Sequence[str], secret: str, owner: Writer, lock: int) -> None:
        self.argv = list(argv)
        self._output, self._errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # pylint: disable=consider-using-with
        as_owner: dict[str, t.Any] = {"user": owner.uid, "group": owner.gid, "extra_groups": []} if os.geteuid() == 0 and owner.uid else {}
        # run_command waits, and streams run at once.
        self._process = subprocess.Popen(  # pylint: disable=ansible-bad-function,consider-using-with
            self.argv,
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=self._errors,
            env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C"},
            start_new_session=True,
            pass_fds=(lock,),
            **as_owner,
        )
        with contextlib.suppress(BrokenPipeError), self._process.stdin or contextlib.nullcontext() as pipe:
            pipe.write(f"{secret}\n".encode())

    def poll(self) -> int | None:
        """Return how it ended, None while it runs."""
        return self._process.poll()

    def printed(self) -> str:
        """Return what it printed."""
        return self._read(self._output)

    def said(self) -> str:
        """Return what it said went wrong."""
        return self._read(self._errors)

    @staticmethod
    def _read(stream: t.BinaryIO) -> str:
        stream.seek(0)
        return stream.read(OUTPUT_LIMIT).decode("utf-8", "replace")

    def end(self) -> None:
        """End it, and its own children."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(STOP_SECONDS)
        self._output.close()
        self._errors.close()


def fetch(found: t.Sequence[Repository], way: Way, most: int, timeout: float, owner: Writer, lock: int, note: t.Callable[[str], None]) -> None:
    """Fetch what is not in the stage yet, by at most ``most`` streams at once, a repository at a time.

    Raises :class:`ClusterError` with the cause of the first stream that failed, :class:`WaitTimeout`. What has arrived stays in the stage.
    """
    rate, began = copy_job.Rate(), time.monotonic()
    total = sum(entry.size for one in found for entry in one.lack.files)
    for one in found:
        with acting_as(owner):
            wanted = prepare(one)
            lists = write_lists(one, wanted, most)
        running = []
        try:
            for listed in lists:
                argv = copying.client_argv(way.rsync, way.own, way.address, way.port, one.module, listed, one.stage)
                running.append(Stream(argv, way.secret, owner, lock))
            for elapsed in clock(max(0.0, began + timeout - time.monotonic()), LOOK_SECONDS):
                note(rate.text(elapsed, sum(size for sizes in have(found).values() for size in sizes.values()), total))
                if all(stream.poll() is not None for stream in running):
                    break
            else:
                raise WaitTimeout(
                    f"the copy did not end within {timeout:g} s: {rate.text(timeout, sum(sum(sizes.values()) for sizes in have(found).values()), total)}",
                    remedy="Run again: it goes on with what is there. Raise gb10_copy_timeout for a slow link, or see why it is: gb10.cluster.fabric",
                    reason="slow",
                )
            failures = [copying.why(rc, stream.said()) for stream in running if (rc := stream.poll())]
            if failures:
                first = failures[0]
                raise ClusterError(f"{one.repo} could not be copied from {way.address}: {first.what} ({first.line})", remedy=first.remedy, reason=first.reason)
        finally:
            for stream in running:
                stream.end()
        compare(one, way, owner, lock)


def write_lists(one: Repository, wanted: t.Sequence[Entry], most: int) -> list[str]:
    """Write the list of each stream's files, and return where they are."""
    lists = os.path.join(os.path.dirname(one.stage), copying.LISTS)
    os.makedirs(lists, mode=0o700, exist_ok=True)
    sizes = {entry.path: entry.size - copying.staged(entry, _status(one, entry)) for entry in wanted}
    paths = []
    for number, entries in enumerate(copying.streams(wanted, sizes, most)):
        paths.append(os.path.join(lists, f"{one.module}-{number}"))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(paths[-1])
        with open(paths[-1], "x", encoding="utf-8") as handle:
            handle.write("".join(f"{entry.path}\0" for entry in entries))
    return paths


def compare(one: Repository, way: Way, owner: Writer, lock: int) -> None:
    """Raise :class:`ClusterError` when a file in the stage is not what the source listed, or the source has changed it since."""
    if not one.lack.files:
        return
    with acting_as(owner):
        (listed,) = write_lists(one, one.lack.files, 1)
    argv = copying.client_argv(way.rsync, way.own, way.address, way.port, one.module, listed, one.stage)
    stream = Stream(copying.compare_argv(argv), way.secret, owner, lock)
    try:
        for _elapsed in clock(COMPARE_SECONDS, 0.1):
            rc = stream.poll()
            if rc is not None:
                break
        else:
            raise WaitTimeout(f"{one.repo} could not be compared with {way.address} within {COMPARE_SECONDS} s", remedy="Run again.", reason="slow")
        printed, said = stream.printed(), stream.said()
    finally:
        stream.end()
    if rc:
        failure = copying.why(rc, said)
        raise ClusterError(f"{one.repo} cannot be compared with {way.address}: {failure.what} ({failure.line})", remedy=failure.remedy, reason=failure.reason)
    changed = copying.changed_names(printed)
    other = [entry.path for entry in one.lack.files if not copying.is_whole(entry, _status(one, entry))]
    if changed or other:
        raise ClusterError(
            f"{one.repo} was changed on the source while it was copied: {copying.named(sorted({*changed, *other}))}; nothing of it has its own name here",
            remedy="See what writes there (a download, a person), let it end, and run again.",
            reason="source changed",
            files=sorted({*changed, *other}),
        )


# -- giving the names ------------------------------------------------------------------------------------------------


def place(one: Repository) -> None:
    """Give the files their own names, then the links and refs theirs; what appeared there meanwhile stays. Raises :class:`ClusterError`, OSError."""
    for entry in one.lack.files:
        path = os.path.join(one.path, entry.path)
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        staged = os.path.join(one.stage, entry.path)
        if not os.path.lexists(staged) and os.path.lexists(path):
            # Another revision of the repository has it, too.
            _same_or_refuse(path, entry)
            continue
        os.chmod(staged, entry.mode)
        try:
            # A rename would replace what is there.
            os.link(staged, path, follow_symlinks=False)
        except FileExistsError:
            _same_or_refuse(path, entry)
        os.unlink(staged)
    for entry in one.lack.links:
        path = os.path.join(one.path, entry.path)
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.symlink(os.path.relpath(entry.target, os.path.dirname(entry.path)), path)
    for entry in one.lack.refs:
        path = os.path.join(one.path, entry.path)
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        staged = os.path.join(one.stage, "ref")
        os.makedirs(one.stage, mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(staged)
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, entry.mode)
        with open(descriptor, "w", encoding="utf-8") as handle:
            handle.write(entry.target)
        with contextlib.suppress(FileExistsError):
            os.link(staged, path, follow_symlinks=False)
        os.unlink(staged)
    again = copying.lacking(one.entries, one.path)
    if again or again.other:
        wrong = [*again.other, *(entry.path for entry in [*again.files, *again.links, *again.refs])]
        raise ClusterError(
            f"{one.repo} is not here as the source lists it: {copying.named(wrong)}",
            remedy="Somebody else writes into this cache. Find out who, and run again.",
            reason="other content",
            files=wrong,
        )


def _same_or_refuse(path: str, entry: Entry) -> None:
    if not os.path.islink(path) and os.path.getsize(path) == entry.size:
        return
    raise refusal([path])


def refusal(paths: t.Sequence[str]) -> ClusterError:
    """Return the error for files of the same name and other content; they are never replaced."""
    return ClusterError(
        f"{len(paths)} file(s) here have the name of one that would be copied, and other content: {copying.named(paths)}; nothing was replaced",
        remedy="If they are yours, move them away. If they are what is left of a copy, remove them. Then run the play with --tags model.",
        reason="other content",
        files=list(paths),
    )


def clear(hub: str, found: t.Sequence[Repository]) -> None:
    """Remove what is left of the stage. Raises OSError."""
    stage = os.path.join(hub, copying.STAGE)
    for path in [*(one.stage for one in found), os.path.join(stage, copying.LISTS)]:
        if os.path.isdir(path):
            shutil.rmtree(path)
    # What another repository has there stays.
    with contextlib.suppress(OSError):
        os.rmdir(stage)


def left(hub: str) -> dict[str, int]:
    """Return the bytes that copies which did not end have left, by directory."""
    stage = os.path.join(hub, copying.STAGE)
    try:
        names = sorted(name for name in os.listdir(stage) if name != copying.LISTS)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    sizes = {}
    for name in names:
        entries = [os.path.join(folder, file) for folder, _folders, files in os.walk(os.path.join(stage, name)) for file in files]
        sizes[os.path.join(stage, name)] = sum(status.st_size for path in entries if (status := _lstat(path)))
    return sizes


def written(path: str) -> float:
    """Return when a directory of the stage was last written to, in seconds since 1970."""
    found = [path, *(os.path.join(folder, name) for folder, folders, files in os.walk(path) for name in [*folders, *files])]
    return max((status.st_mtime for one in found if (status := _lstat(one))), default=0.0)


def _lstat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def drop_pages(paths: t.Sequence[str]) -> dict[str, int]:
    """Take exactly these files out of the page cache, and return the bytes of them that were in it and are left there.

    A cache full of freshly copied weights starves what loads them: reported by owners of Sparks. What a process has mapped stays.
    """
    def act(descriptor: int, seen: page_cache.Residency | None) -> None:
        page_cache.write_back(descriptor, seen)
        page_cache.give_back(descriptor, seen)

    cached = {"cached_bytes": 0, "left_bytes": 0}
    if paths:
        doing = "dropping the copied files from the page cache"
        before = page_cache.bounded(doing, lambda: page_cache.visit(paths, MAX_FILES, DROP_SECONDS, act), DROP_SECONDS + 10)
        after = page_cache.bounded(doing, lambda: page_cache.visit(paths, MAX_FILES, DROP_SECONDS), DROP_SECONDS + 10)
        cached = {"cached_bytes": before["cached"], "left_bytes": after["cached"]}
    return cached
