# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node that lacks a model fetches it from another one's server of blocks. This module util is PRIVATE to the collection.

Whatever is written in the cache is written as its owner: who owns it could put a link in root's way.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import errno
import os
import shutil
import threading
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._files import copy_job, owners, untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id
from ansible_collections.gb10.cluster.plugins.module_utils._memory import page_cache
from ansible_collections.gb10.cluster.plugins.module_utils._model import blocks, copy_stage, copying, model_files
from ansible_collections.gb10.cluster.plugins.module_utils._model.block_client import Connection, Stopped, Trouble, Way
from ansible_collections.gb10.cluster.plugins.module_utils._model.copying import Entry

#: Seconds between two looks at how far it is.
LOOK_SECONDS = 0.5
#: Seconds that dropping the page cache may take.
DROP_SECONDS = 600
#: Most files whose pages are dropped.
MAX_FILES = 100_000


# -- for the next node of a chain ------------------------------------------------------------------------------------


class Given:
    """What this node has of a list so far, for a server of :mod:`blocks`: what it had, and each block once it was compared.

    It answers in threads, as root: what this node had is read below the hub's directory as its owner opened it, over no link.
    """

    def __init__(self, hub: str, listing: t.Sequence[t.Mapping[str, t.Any]]) -> None:
        self._hub, self._numbers, self._stack = hub, copying.numbered(listing), contextlib.ExitStack()
        self._top = ""
        self._paths = {number: f"{model_files.repo_directory(repo)}/{path}" for (repo, path), number in self._numbers.items()}
        self._changed = threading.Condition()
        #: Descriptors of files that are being fetched, and their blocks that are there; None until that is known.
        self._fetched: dict[int, tuple[int, set[int]]] | None = None

    def begin(self, fetched: t.Sequence[copy_stage.Staged]) -> None:
        """Say which files are being fetched; the others are there."""
        files = [(one, entry) for one in fetched for entry in one.one.lack.files]
        with self._changed:
            self._top = self._stack.enter_context(owners.held(self._hub))
            self._fetched = {self._numbers[one.one.repo, entry.path]: (os.dup(one.descriptors[entry.path]), one.there[entry.path]) for one, entry in files}
            self._changed.notify_all()

    def tell(self) -> None:
        """Say that a block has come."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, number: int, offset: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._has(number, offset), blocks.PATIENCE)

    def _has(self, number: int, offset: int) -> bool:
        if self._fetched is None:
            return False
        return number not in self._fetched or offset in self._fetched[number][1]

    def open(self, number: int) -> int:
        if number in (self._fetched or {}):
            return os.dup(self._fetched[number][0])
        try:
            with untrusted.reader(self._top, self._paths.get(number, "absent"), own=False) as handle:
                return os.dup(handle.fileno())
        except untrusted.Tampered as error:
            raise PermissionError(errno.EACCES, str(error)) from error

    def is_same(self, _number: int, _descriptor: int) -> bool:
        """Each block that is given on was compared with the source's, and its source said then that the file is the one that was listed."""
        return True

    def close(self) -> None:
        """Close the files."""
        with self._changed:
            for descriptor, _offsets in (self._fetched or {}).values():
                os.close(descriptor)
            self._fetched = None
            self._stack.close()


@contextlib.contextmanager
def giving_on(given: Given, address: str, port: int, secret: str, clients: t.Sequence[str], streams: int) -> t.Iterator[blocks.Server]:
    """Be the source of the next nodes of a chain meanwhile. Raises OSError."""
    listener = blocks.listen(address, port)
    server = blocks.Server(listener, given, secret, clients, streams * len(clients) + blocks.MORE_CONNECTIONS)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.end()
        thread.join(blocks.SILENT_SECONDS)
        given.close()


def see_off(server: blocks.Server, until: float, note: t.Callable[[str], None]) -> None:
    """Wait for the next nodes of the chain to have all, as long as they ask for more."""
    began = time.monotonic()
    while not server.all_done.wait(LOOK_SECONDS) and time.monotonic() < until:
        waiting = server.waiting()
        # One that failed says nothing any more, and its own result says why.
        if all(time.monotonic() - max(began, server.heard.get(client, 0.0)) > blocks.SILENT_SECONDS for client in waiting):
            return
        note(f"giving it on to {', '.join(waiting)}")


# -- fetching --------------------------------------------------------------------------------------------------------


class Fetch:
    """Several connections that share the blocks to fetch."""

    def __init__(self, files: t.Sequence[copy_stage.Staged], numbers: t.Mapping[tuple[str, str], int], way: Way, given: Given | None) -> None:
        self._way, self._numbers, self._given = way, numbers, given
        self._parts = collections.deque((one, entry, offset) for one in files for entry, offset in one.parts())
        self._first = self._parts[0][:2] if self._parts else ()
        self._lock, self._stop, self.over = threading.Lock(), threading.Event(), threading.Event()
        self._connections: list[Connection] = []
        self._running = 0
        self.done = 0
        #: Why it failed, and the repository and file where; the first one counts.
        self.failed: tuple[Trouble | OSError, str, str] | None = None

    def start(self, most: int, pool: concurrent.futures.Executor) -> list[concurrent.futures.Future[None]]:
        """Start at most so many connections, and no more than there are cores for."""
        # More than there are cores would only take turns.
        self._running = min(most, len(self._parts), max(2, os.cpu_count() or 1))
        if not self._running:
            self.over.set()
        return [pool.submit(self._work) for _number in range(self._running)]

    def _work(self) -> None:
        # Named by what goes wrong before the first block; another connection may have taken that already.
        one, entry = self._first
        try:
            connection = Connection(self._way, self._stop)
            with self._lock:
                self._connections.append(connection)
                # From here on end() cuts it.
                if self._stop.is_set():
                    raise Stopped
            connection.introduce()
            for one, entry, offset in iter(self._next, None):
                self._one(connection, one, entry, offset)
        except Stopped:
            pass
        except (Trouble, OSError) as error:
            self._fail(error, one.one.repo, entry.path)
        finally:
            with self._lock:
                self._running -= 1
                if not self._running:
                    self.over.set()

    def _next(self) -> tuple[copy_stage.Staged, Entry, int] | None:
        with self._lock:
            return self._parts.popleft() if self._parts and not self._stop.is_set() else None

    def _one(self, connection: Connection, one: copy_stage.Staged, entry: Entry, offset: int) -> None:
        where = (self._numbers[one.one.repo, entry.path], one.descriptors[entry.path], offset, min(blocks.BLOCK, entry.size - offset))
        if offset not in one.doubtful[entry.path] or not connection.is_same(*where):
            connection.fetch(*where)
        with self._lock:
            one.note(entry, offset)
            self.done += where[3]
        if self._given:
            self._given.tell()

    def _fail(self, error: Trouble | OSError, repo: str, path: str) -> None:
        with self._lock:
            self.failed = self.failed or (error, repo, path)
        self.end()
        self.over.set()

    def end(self) -> None:
        """Have all connections end."""
        self._stop.set()
        with self._lock:
            for connection in self._connections:
                connection.cut()

    def close(self) -> None:
        """Close the connections, once the threads have ended."""
        for connection in self._connections:
            connection.close()


def fetch(
    found: t.Sequence[copy_stage.Repository], numbers: t.Mapping[tuple[str, str], int], way: Way, most: int, until: float, owner: owners.Owner,
    note: t.Callable[[str], None], given: Given | None = None,
) -> None:
    """Fetch what is not in the stage yet by at most ``most`` connections at once, until ``until`` (monotonic).

    Raises :class:`ClusterError` with the first cause, :class:`WaitTimeout`, OSError. What has arrived stays in the stage.
    """  # fmt: skip
    rate, began, boot = copy_job.Rate(), time.monotonic(), boot_id("/proc")
    with contextlib.ExitStack() as stack:
        files = []
        with owners.acting_as(owner):
            for one in found:
                files.append(copy_stage.Staged(one, boot))
                stack.callback(files[-1].close)
        if given:
            given.begin(files)
        total = sum(one.lack.size for one in found)
        fetching = Fetch(files, numbers, way, given)
        begun = total - sum(min(blocks.BLOCK, entry.size - offset) for one in files for entry, offset in one.parts())
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(most))
        working = fetching.start(most, pool)
        try:
            while not fetching.over.wait(LOOK_SECONDS):
                note(rate.text(time.monotonic() - began, begun + fetching.done, total))
                if time.monotonic() >= until:
                    raise WaitTimeout(
                        f"the copy did not end in time: {rate.text(time.monotonic() - began, begun + fetching.done, total)}",
                        remedy="Run again: it goes on with what is there. Raise gb10_transfer_timeout for a slow link (gb10.cluster.doctor --tags fabric)",
                        reason="slow",
                    )
        finally:
            fetching.end()
            concurrent.futures.wait(working, blocks.SILENT_SECONDS)
            fetching.close()
        if fetching.failed:
            raise failure(*fetching.failed, way)
        for one in working:
            one.result()
        compare(found, numbers, way)
        for one in files:
            one.finish()


def failure(error: Trouble | OSError, repo: str, path: str, way: Way) -> ClusterError:
    """Return what a trouble of a connection means, in words."""
    reason = error.reason if isinstance(error, Trouble) else {errno.ENOSPC: "disk full", errno.EDQUOT: "disk full"}.get(error.errno or 0, "permission")
    detail = error.detail if isinstance(error, Trouble) else str(error.strerror)
    what, remedy = copying.CAUSES[reason]
    of_file = f"{path}: " if reason in ("wrong digest", "source changed", "permission") else ""
    return ClusterError(
        f"{repo} could not be copied from {way.address}: {what} ({of_file}{detail})",
        remedy=remedy,
        reason="refused" if reason == "stranger" else reason,
        **({"files": [path]} if of_file else {}),
    )


def compare(found: t.Sequence[copy_stage.Repository], numbers: t.Mapping[tuple[str, str], int], way: Way) -> None:
    """Raise :class:`ClusterError` when the source has changed a file since it listed it, and tell the source that this node is done."""
    files = [(one.repo, entry.path) for one in found for entry in one.lack.files]
    try:
        connection = Connection(way, threading.Event())
        try:
            connection.introduce()
            changed = [name for name in files if connection.has_changed(numbers[name])]
            if not changed:
                connection.goodbye()
        finally:
            connection.close()
    except Trouble as error:
        raise failure(error, *(files or [(found[0].repo, "")])[0], way) from error
    if changed:
        raise ClusterError(
            f"{changed[0][0]} was changed on the source while it was copied: {copying.named([path for _repo, path in changed])}; "
            "nothing of it has its own name here",
            remedy="See what writes there (a download, a person), let it end, and run again.",
            reason="source changed",
            files=[path for _repo, path in changed],
        )


# -- giving the names ------------------------------------------------------------------------------------------------


def place(one: copy_stage.Repository) -> None:
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


def clear(hub: str, found: t.Sequence[copy_stage.Repository]) -> None:
    """Remove what is left of the stage. Raises OSError."""
    stage = os.path.join(hub, copying.STAGE)
    for path in (one.stage for one in found):
        if os.path.isdir(path):
            shutil.rmtree(path)
    # What another repository has there stays.
    with contextlib.suppress(OSError):
        os.rmdir(stage)


def left(hub: str) -> dict[str, int]:
    """Return the bytes that copies which did not end have left, by directory."""
    sizes: dict[str, int] = {}
    for entry in _staged(hub):
        path = os.path.join(hub, copying.STAGE, entry.path.split("/")[0])
        sizes[path] = sizes.get(path, 0) + copying.staged(entry.status.st_size, entry.status)
    return sizes


def written(hub: str, path: str) -> float:
    """Return when a directory of the stage was last written to, in seconds since 1970."""
    top = os.path.relpath(path, os.path.join(hub, copying.STAGE))
    return max((entry.status.st_mtime for entry in _staged(hub) if entry.path.split("/")[0] == top), default=0.0)


def _staged(hub: str) -> list[untrusted.Entry]:
    """Return all that lies in the stage; nothing when it is a link, which is followed by nobody. Raises OSError."""
    try:
        return list(untrusted.walk(hub, copying.STAGE))
    except (FileNotFoundError, NotADirectoryError, untrusted.Tampered):
        return []


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
