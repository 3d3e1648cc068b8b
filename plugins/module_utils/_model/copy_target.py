# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fetches a model from another node's block server. This module util is PRIVATE to the collection.

All files in the cache are written as its owner, who could create links in root's path.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import errno
import functools
import os
import shutil
import threading
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import FULL, ClusterError, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._files import copy_job, owners, untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id, write_whole
from ansible_collections.gb10.cluster.plugins.module_utils._memory import page_cache
from ansible_collections.gb10.cluster.plugins.module_utils._model import blocks, copy_stage, copying, model_files
from ansible_collections.gb10.cluster.plugins.module_utils._model.block_client import Connection, Stopped, Trouble, Route
from ansible_collections.gb10.cluster.plugins.module_utils._model.copying import Entry

#: Seconds between two progress reports.
LOOK_SECONDS = 0.5
#: Seconds that dropping the page cache may take.
DROP_SECONDS = 600
#: Most files whose pages are dropped.
MAX_FILES = 100_000


# -- for the next node of a chain ------------------------------------------------------------------------------------


class Forward(blocks.Tree):
    """The part of a listing that this node has so far, for a server of :mod:`blocks`: its own files, and each block after its comparison.

    It answers in threads, as root: its own files are read below the hub's directory as its owner opened it, through no link.
    """

    def __init__(self, hub: str, listing: t.Sequence[t.Mapping[str, t.Any]]) -> None:
        super().__init__(hub, [])
        self._top, self._numbers, self._stack = "", copying.numbered(listing), contextlib.ExitStack()
        self._paths = {number: f"{model_files.repo_directory(repo)}/{path}" for (repo, path), number in self._numbers.items()}
        self._changed = threading.Condition()
        #: Descriptors and arrived blocks of the files that are being fetched; None until they are known.
        self._fetched: dict[int, tuple[int, set[int]]] | None = None

    def begin(self, fetched: t.Sequence[copy_stage.Staged]) -> None:
        """Set the files that are being fetched; the others exist."""
        with self._changed:
            self._top = self._stack.enter_context(owners.held(self._root))
            self._fetched = {
                self._numbers[staged.one.repo, entry.path]: (os.dup(staged.descriptors[entry.path]), staged.there[entry.path])
                for staged in fetched
                for entry in staged.one.lack.files
            }
            self._changed.notify_all()

    def arrived(self) -> None:
        """Notify the clients of a new block."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, number: int, offset: int) -> bool:
        with self._changed:
            return self._changed.wait_for(
                lambda: self._fetched is not None and (number not in self._fetched or offset in self._fetched[number][1]), blocks.PATIENCE
            )

    def open(self, number: int) -> int:
        if number in (self._fetched or {}):
            return os.dup(self._fetched[number][0])
        try:
            with untrusted.reader(self._top, self._paths.get(number, "absent"), own=False) as handle:
                return os.dup(handle.fileno())
        except untrusted.Tampered as error:
            raise PermissionError(errno.EACCES, str(error)) from error

    def is_same(self, _number: int, _descriptor: int) -> bool:
        """Each forwarded block was compared with the source's, and the source confirmed then that the file is the listed one."""
        return True

    def close(self) -> None:
        """Close the files."""
        with self._changed:
            for descriptor, _offsets in (self._fetched or {}).values():
                os.close(descriptor)
            self._fetched = None
            self._stack.close()


@contextlib.contextmanager
def forwarding(source: Forward, address: str, port: int, secret: str, clients: t.Sequence[str], streams: int) -> t.Iterator[blocks.Server]:
    """Serve the next nodes of a chain during the block. Raises OSError."""
    server = blocks.Server(blocks.listen(address, port), source, secret, clients, streams * len(clients) + blocks.MORE_CONNECTIONS)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.end()
        thread.join(blocks.SILENT_SECONDS)
        source.close()


def wait_for_clients(server: blocks.Server, until: float, note: t.Callable[[str], None]) -> None:
    """Wait until the next nodes of the chain have all blocks, as long as they request more."""
    began = time.monotonic()
    while not server.all_done.wait(LOOK_SECONDS) and time.monotonic() < until:
        waiting = server.waiting()
        # A failed client is silent, and its own result has the reason.
        if all(time.monotonic() - max(began, server.heard.get(client, 0.0)) > blocks.SILENT_SECONDS for client in waiting):
            return
        note(f"forwarding it to {', '.join(waiting)}")


# -- fetching --------------------------------------------------------------------------------------------------------


class Fetch:
    """Several connections that share the blocks to fetch."""

    def __init__(self, files: t.Sequence[copy_stage.Staged], numbers: t.Mapping[tuple[str, str], int], route: Route, forward: Forward | None) -> None:
        self._route, self._numbers, self._forward = route, numbers, forward
        self._parts = collections.deque((staged, entry, offset) for staged in files for entry, offset in staged.parts())
        self._first = self._parts[0][:2] if self._parts else ()
        self._lock, self._stop, self.over = threading.Lock(), threading.Event(), threading.Event()
        self._connections: list[Connection] = []
        self._running = self.done = 0
        #: The first failure, with its repository and file.
        self.failed: tuple[Trouble | OSError, str, str] | None = None

    def start(self, most: int, pool: concurrent.futures.Executor) -> list[concurrent.futures.Future[None]]:
        """Start at most so many connections, and no more than there are cores, but two."""
        self._running = min(most, len(self._parts), max(2, os.cpu_count() or 1))
        if not self._running:
            self.over.set()
        return [pool.submit(self._work) for _number in range(self._running)]

    def _work(self) -> None:
        # A failure before the first block names this file, which another connection may fetch.
        staged, entry = self._first
        try:
            connection = Connection(self._route, self._stop)
            with self._lock:
                self._connections.append(connection)
                # From now on end() cuts the connection.
                if self._stop.is_set():
                    raise Stopped
            connection.introduce()
            for staged, entry, offset in iter(self._next, None):
                self._fetch_block(connection, staged, entry, offset)
        except Stopped:
            pass
        except (Trouble, OSError) as error:
            self._fail(error, staged.one.repo, entry.path)
        finally:
            with self._lock:
                self._running -= 1
                if not self._running:
                    self.over.set()

    def _next(self) -> tuple[copy_stage.Staged, Entry, int] | None:
        with self._lock:
            return self._parts.popleft() if self._parts and not self._stop.is_set() else None

    def _fetch_block(self, connection: Connection, staged: copy_stage.Staged, entry: Entry, offset: int) -> None:
        where = (self._numbers[staged.one.repo, entry.path], staged.descriptors[entry.path], offset, min(blocks.BLOCK, entry.size - offset))
        if offset not in staged.doubtful[entry.path] or not connection.is_same(*where):
            connection.fetch(*where)
        with self._lock:
            staged.note(entry, offset)
            self.done += where[3]
        if self._forward:
            self._forward.arrived()

    def _fail(self, error: Trouble | OSError, repo: str, path: str) -> None:
        with self._lock:
            self.failed = self.failed or (error, repo, path)
        self.end()
        self.over.set()

    def end(self) -> None:
        """End all connections."""
        self._stop.set()
        with self._lock:
            for connection in self._connections:
                connection.cut()

    def close(self) -> None:
        """Close the connections after the threads have ended."""
        for connection in self._connections:
            connection.close()


def fetch(
    repositories: t.Sequence[copy_stage.Repository], numbers: t.Mapping[tuple[str, str], int], route: Route, most: int, until: float, owner: owners.Owner,
    note: t.Callable[[str], None], forward: Forward | None = None,
) -> None:
    """Fetch the blocks that the stage lacks, with at most ``most`` connections, until ``until`` (monotonic).

    Raises :class:`ClusterError` with the first cause, :class:`WaitTimeout`, OSError. Blocks that arrived stay in the stage.
    """  # fmt: skip
    rate, began, boot = copy_job.Rate(), time.monotonic(), boot_id("/proc")
    with contextlib.ExitStack() as stack:
        files = []
        with owners.acting_as(owner):
            for repository in repositories:
                files.append(copy_stage.Staged(repository, boot))
                stack.callback(files[-1].close)
        if forward:
            forward.begin(files)
        total = sum(repository.lack.size for repository in repositories)
        fetching = Fetch(files, numbers, route, forward)
        begun = total - sum(min(blocks.BLOCK, entry.size - offset) for staged in files for entry, offset in staged.parts())
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(most))
        working = fetching.start(most, pool)
        try:
            while not fetching.over.wait(LOOK_SECONDS):
                note(rate.text(time.monotonic() - began, begun + fetching.done, total))
                if time.monotonic() >= until:
                    raise WaitTimeout(
                        f"the copy did not end in time: {rate.text(time.monotonic() - began, begun + fetching.done, total)}",
                        remedy="Run again: it continues with the remaining blocks. Raise gb10_transfer_timeout for a slow link (doctor --tags fabric)",
                        reason="slow",
                    )
        finally:
            fetching.end()
            concurrent.futures.wait(working, blocks.SILENT_SECONDS)
            fetching.close()
        if fetching.failed:
            raise failure(*fetching.failed, route)
        for future in working:
            future.result()
        compare(repositories, numbers, route)
        for staged in files:
            staged.finish()


def failure(error: Trouble | OSError, repo: str, path: str, route: Route) -> ClusterError:
    """Return the error for a connection's failure."""
    reason = error.reason if isinstance(error, Trouble) else "disk full" if error.errno in FULL else "permission"
    detail = error.detail if isinstance(error, Trouble) else str(error.strerror)
    what, remedy = copying.CAUSES[reason]
    of_file = f"{path}: " if reason in ("wrong digest", "source changed", "permission") else ""
    return ClusterError(
        f"{repo} could not be copied from {route.address}: {what} ({of_file}{detail})",
        remedy=remedy,
        reason="refused" if reason == "stranger" else reason,
        **({"files": [path]} if of_file else {}),
    )


def compare(repositories: t.Sequence[copy_stage.Repository], numbers: t.Mapping[tuple[str, str], int], route: Route) -> None:
    """Raise :class:`ClusterError` if the source changed a file since it listed it, else report to the source that this node has finished."""
    files = [(repository.repo, entry.path) for repository in repositories for entry in repository.lack.files]
    try:
        with contextlib.closing(Connection(route, threading.Event())) as connection:
            connection.introduce()
            changed = [name for name in files if connection.has_changed(numbers[name])]
            if not changed:
                connection.goodbye()
    except Trouble as error:
        raise failure(error, *(files or [(repositories[0].repo, "")])[0], route) from error
    if changed:
        raise ClusterError(
            f"{changed[0][0]} was changed on the source while it was copied: {copying.named([path for _repo, path in changed])}; "
            "nothing of it was moved into the cache",
            remedy="Run again after the program that writes there (a download, a person) has ended.",
            reason="source changed",
            files=[path for _repo, path in changed],
        )


# -- into the cache --------------------------------------------------------------------------------------------------


def place(repository: copy_stage.Repository) -> None:
    """Move the files to their names, then make the links and refs; paths that appeared meanwhile stay. Raises :class:`ClusterError`, OSError."""
    for entry in repository.lack.entries:
        os.makedirs(os.path.dirname(os.path.join(repository.path, entry.path)), mode=0o755, exist_ok=True)
    for entry in repository.lack.files:
        path, staged = (os.path.join(top, entry.path) for top in (repository.path, repository.stage))
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
    for entry in repository.lack.links:
        with contextlib.suppress(FileExistsError):
            os.symlink(os.path.relpath(entry.target, os.path.dirname(entry.path)), os.path.join(repository.path, entry.path))
    for entry in repository.lack.refs:
        with contextlib.suppress(FileExistsError):
            write_whole(os.path.join(repository.path, entry.path), entry.target.encode(), entry.mode, replace=False)
    again = copying.lacking(repository.entries, repository.path)
    if again or again.other:
        wrong = [*again.other, *(entry.path for entry in again.entries)]
        raise ClusterError(
            f"{repository.repo} differs from the source's listing: {copying.named(wrong)}",
            remedy="Find out which process writes into this cache, and run again.",
            reason="other content",
            files=wrong,
        )


def _same_or_refuse(path: str, entry: Entry) -> None:
    if os.path.islink(path) or os.path.getsize(path) != entry.size:
        raise refusal([path])


def refusal(paths: t.Sequence[str]) -> ClusterError:
    """Return the error for files with the same name and other content, which are never replaced."""
    return ClusterError(
        f"{len(paths)} file(s) here have the name of a file to copy, and other content: {copying.named(paths)}; nothing was replaced",
        remedy="Move your own files away, remove those that a copy left, and run the play with --tags model.",
        reason="other content",
        files=list(paths),
    )


def clear(hub: str, repositories: t.Sequence[copy_stage.Repository]) -> None:
    """Remove the stage of these repositories. Raises OSError."""
    for path in (repository.stage for repository in repositories):
        if os.path.isdir(path):
            shutil.rmtree(path)
    # Not empty while another repository has files there.
    with contextlib.suppress(OSError):
        os.rmdir(os.path.join(hub, copying.STAGE))


def left(hub: str) -> dict[str, tuple[int, float]]:
    """Return the leftovers of unfinished copies by directory: bytes, and the last write in seconds since 1970. Raises OSError.

    Nothing for a stage that is a link, which is not followed.
    """
    leftovers: dict[str, tuple[int, float]] = {}
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, untrusted.Tampered):
        for entry in untrusted.walk(hub, copying.STAGE):
            path = os.path.join(hub, copying.STAGE, entry.path.split("/")[0])
            size, written = leftovers.get(path, (0, 0.0))
            leftovers[path] = (size + copying.staged(entry.status.st_size, entry.status), max(written, entry.status.st_mtime))
    return leftovers


def drop_pages(paths: t.Sequence[str]) -> dict[str, int]:
    """Drop exactly these files from the page cache, and return their bytes in it before and after.

    A cache full of newly copied weights takes memory from the process that loads them: reported by owners of Sparks. Mapped pages stay.
    """
    def act(descriptor: int, seen: page_cache.Residency | None) -> None:
        page_cache.write_back(descriptor, seen)
        page_cache.give_back(descriptor, seen)

    def visit(*acts: t.Callable[..., None]) -> int:
        read = functools.partial(page_cache.visit, paths, MAX_FILES, DROP_SECONDS, *acts)
        return page_cache.bounded("dropping the copied files from the page cache", read, DROP_SECONDS + 10)["cached"] if paths else 0

    return {"cached_bytes": visit(act), "left_bytes": visit()}
