# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The directory of a bundle: files are written whole or not at all, and read through no link. This module util is PRIVATE to the collection.

What is written belongs to the owner of the directory, who could put a link in root's way: the names are made as that user.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._bundle import content
from ansible_collections.gb10.cluster.plugins.module_utils._bundle.content import Row
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._files import owners, untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._files.copy_job import GIB, Rate
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import write_whole
from ansible_collections.gb10.cluster.plugins.module_utils._memory import page_cache

#: Bytes that are read at once.
CHUNK = 4 << 20
#: Bytes after which what was written goes to the disk, and out of the page cache.
SETTLE = 256 << 20

Chunks = t.Callable[[], t.Iterator[bytes | memoryview]]


class Item(t.NamedTuple):
    """A file that a bundle is to have: its path there, its bytes, the time of what it is copied from (0: it has none), and its content.

    ``sha256``, and git's id of it (``git``), are empty where nobody knows them before it was read.
    """

    path: str
    size: int
    chunks: Chunks
    sha256: str = ""
    mtime: int = 0
    git: str = ""


class Progress:
    """Counts bytes for who waits, and ends what takes too long."""

    def __init__(self, total: int, until: float, note: t.Callable[[str], None]) -> None:
        self._total, self._until, self._note = total, until, note
        self._rate, self._began = Rate(), time.monotonic()
        self.done = 0

    def __call__(self, count: int) -> None:
        """Count. Raises :class:`WaitTimeout`."""
        self.done += count
        now = time.monotonic()
        text = self._rate.text(now - self._began, self.done, max(self._total, self.done))
        self._note(text)
        if now > self._until:
            raise WaitTimeout(
                f"the bundle was not done in time: {text}",
                remedy="Run again: it goes on with what is whole. Raise gb10_bundle_timeout for a slow disk.",
                reason="slow",
            )


def written(descriptor: int, chunks: t.Iterable[bytes | memoryview], tick: t.Callable[[int], None], *hashes: t.Any) -> int:
    """Write what comes to a file, have it on the disk and out of the page cache, and return its bytes. Raises OSError."""
    size, settled = 0, 0
    for chunk in chunks:
        for one in hashes:
            one.update(chunk)
        left = memoryview(chunk)
        while left:
            left = left[os.write(descriptor, left):]
        size += len(chunk)
        if size - settled >= SETTLE:
            settled = size
            page_cache.write_back(descriptor, None)
            page_cache.give_back(descriptor, None)
        tick(len(chunk))
    os.fsync(descriptor)
    page_cache.give_back(descriptor, None)
    return size


def chunks_of(stream: t.BinaryIO) -> t.Iterator[memoryview]:
    """Yield what an open file has, and take what was read out of the page cache. Raises OSError."""
    buffer = bytearray(CHUNK)
    view = memoryview(buffer)
    done, given = 0, 0
    while count := stream.readinto(view):  # type: ignore[attr-defined]
        yield view[:count]
        done += count
        if done - given >= SETTLE:
            given = done
            page_cache.give_back(stream.fileno(), None)
    page_cache.give_back(stream.fileno(), None)


def full(error: OSError, path: str) -> ClusterError | None:
    """Return the error for a disk that is full or a file system that cannot hold a file, None for any other trouble."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "Free some, or take a larger disk, and run again: it goes on with what is whole."
        return ClusterError(f"the disk of {path} is full", remedy=remedy, reason="disk full")
    if error.errno == errno.EFBIG:
        remedy = "Format the disk with ext4, xfs or exFAT: FAT32 ends at 4 GiB a file."
        return ClusterError(f"the file system of {path} cannot hold a file of this size", remedy=remedy, reason="file system")
    return None


def require_space(path: str, free: int, needed: int, floor: int, what: str) -> None:
    """Raise :class:`ClusterError` when a disk has not enough room for what is missing and what must stay free, all in bytes."""
    if free - needed < floor:
        raise ClusterError(
            f"{path} has {free / GIB:.1f} GiB free",
            expected=f"{needed / GIB:.1f} GiB for {what} and {floor / GIB:.0f} GiB that stay free",
            remedy="Take a larger disk, or see what could go: ansible-playbook -i INVENTORY gb10.cluster.models, and gb10.cluster.prune",
            reason="disk full",
            free_bytes=free,
            needed_bytes=needed,
        )


class Place:
    """A bundle's directory."""

    def __init__(self, path: str, seen: content.Seen) -> None:
        self.path, self.seen = path, seen

    # -- writing ---------------------------------------------------------------------------------------------------

    def _as_owner(self) -> contextlib.AbstractContextManager[None]:
        """Be the owner of the directory for a while. Raises :class:`ClusterError` where somebody else could lead them elsewhere."""
        return owners.acting_as(owners.owner_of(self.path))

    def has(self, item: Item) -> Row | None:
        """Return the row of a file that is there as it is wanted, by its list, its size, and the digest or time of what it is copied from."""
        row = self.seen.files.get(item.path)
        if row is None or row.size != item.size or (item.sha256 and row.sha256 != item.sha256) or row.mtime != item.mtime:
            return None
        return row if self._size(item.path) == row.size else None

    def _size(self, path: str) -> int | None:
        """Return the bytes of a file of the bundle, None when it is not there. Raises :class:`ClusterError` for a link on the way."""
        folder, _slash, name = path.rpartition("/")
        try:
            with untrusted.directory(self.path, folder) as handle:
                status = os.stat(name, dir_fd=handle, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except untrusted.Tampered as error:
            raise content.irregular(error.details["raw"], error) from error
        if not stat.S_ISREG(status.st_mode):
            raise ClusterError(
                f"{os.path.join(self.path, path)} is not a file",
                expected="files and directories alone, as an export writes them",
                remedy="Copy the bundle again, with what copies files and no links.",
                reason="link",
                files=[path],
            )
        return status.st_size

    def strangers(self, items: t.Iterable[Item]) -> list[str]:
        """Return the paths that are wanted and taken by files of nobody's list. In a bundle that is being written all are its own."""
        if self.seen.what == "unfinished":
            return []
        return [item.path for item in items if item.path not in self.seen.files and self._size(item.path) is not None]

    def begin(self) -> None:
        """Make this a bundle that is being written, with what it has. Raises OSError."""
        with self._as_owner():
            os.makedirs(self.path, mode=0o755, exist_ok=True)
            if self.seen.what != "unfinished":
                self._replace(content.JOURNAL, "".join(map(content.journal_line, self.seen.files.values())))
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.path, content.MANIFEST))

    def write(self, item: Item, tick: t.Callable[[int], None]) -> Row:
        """Write a file under its name once its content is known to be what it should be. Raises :class:`ClusterError`, OSError."""
        sha256, hashes = hashlib.sha256(), []
        git = hashlib.sha1(b"blob %d\0" % item.size, usedforsecurity=False) if item.git else None
        hashes = [sha256, *([git] if git else [])]
        folder, _slash, name = item.path.rpartition("/")
        with self._as_owner():
            part = self._part()
        try:
            size = written(part, item.chunks(), tick, *hashes)
        finally:
            os.close(part)
        row = Row(item.path, size, sha256.hexdigest(), item.mtime)
        if size != item.size or (item.sha256 and row.sha256 != item.sha256) or (git and git.hexdigest() != item.git):
            raise ClusterError(
                f"{item.path}: what was read has {size} bytes and the sha256 {row.sha256[:12]}",
                expected=f"{item.size} bytes and the {'git id ' + item.git[:12] if item.git else 'sha256 ' + (item.sha256 or row.sha256)[:12]}",
                remedy="Read all of it on this node: --tags model -e gb10_model_verify=full names what is damaged and says how it is mended.",
                reason="wrong digest",
                files=[item.path],
            )
        with self._as_owner():
            self._append(content.journal_line(row))
            with untrusted.directory(self.path) as top, untrusted.directory(self.path, folder, create=True, mode=0o755) as handle:
                os.rename(content.PART, name, src_dir_fd=top, dst_dir_fd=handle)
        return row

    def finish(self, manifest: content.Manifest) -> None:
        """Say that the bundle is whole. Raises OSError."""
        with self._as_owner():
            self._replace(content.MANIFEST, content.text_of(manifest))
            for name in (content.JOURNAL, content.PART):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self.path, name))

    def _part(self) -> int:
        """Begin the one file that is being written; what a run that was killed left of one, or anybody put there, goes."""
        with untrusted.directory(self.path) as top:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(content.PART, dir_fd=top)
            return untrusted.create(top, content.PART, 0o644)

    def _replace(self, name: str, text: str) -> None:
        write_whole(os.path.join(self.path, name), text.encode(), 0o644)

    def _append(self, text: str) -> None:
        path = os.path.join(self.path, content.JOURNAL)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
        with open(descriptor, "w", encoding="utf-8") as handle:
            # What an export that was killed left of its last line must not swallow this one.
            handle.write(f"\n{text}")
            handle.flush()
            os.fsync(handle.fileno())

    # -- reading ---------------------------------------------------------------------------------------------------

    def require_there(self, rows: t.Iterable[Row]) -> None:
        """Raise :class:`ClusterError` unless these files are there with their sizes; nothing of them is read."""
        wrong = []
        for row in rows:
            size = self._size(row.path)
            if size != row.size:
                wrong.append(f"{row.path} ({'absent' if size is None else f'{size} bytes instead of {row.size}'})")
        if wrong:
            raise ClusterError(
                f"the bundle {self.path} lacks {len(wrong)} file(s) that it lists: {content.named(wrong)}",
                remedy="Copy the bundle again; nothing was imported.",
                reason="incomplete",
                files=wrong,
            )

    def chunks(self, row: Row) -> t.Iterator[memoryview]:
        """Yield a file, the last of it once all of it is known to be what was exported. Raises :class:`ClusterError`, OSError."""
        found, kept = hashlib.sha256(), memoryview(b"")
        try:
            stream = untrusted.reader(self.path, row.path, own=False)
        except untrusted.Tampered as error:
            raise content.irregular(error.details["raw"], error) from error
        with stream:
            left = os.fstat(stream.fileno()).st_size
            for chunk in chunks_of(stream):
                found.update(chunk)
                left -= len(chunk)
                if left > 0:
                    yield chunk
                else:
                    kept = chunk
            if found.hexdigest() != row.sha256:
                raise damaged(self.path, [row.path])
            yield kept

    def wrong(self, rows: t.Iterable[Row], tick: t.Callable[[int], None]) -> list[str]:
        """Read files, and return the paths of those that are not what was exported. Raises :class:`ClusterError`, OSError."""
        found = []
        for row in rows:
            try:
                for chunk in self.chunks(row):
                    tick(len(chunk))
            except ClusterError as error:
                if error.reason != "wrong digest":
                    raise
                found.append(row.path)
        return found


def damaged(path: str, files: list[str]) -> ClusterError:
    """Return the error for files of a bundle that were changed since the export."""
    return ClusterError(
        f"{len(files)} file(s) of the bundle {path} are not what was exported: {content.named(files)}; nothing of them was imported",
        remedy="Copy these files again from where the bundle was made. When they come back damaged, the disk is at fault: see journalctl -k.",
        reason="wrong digest",
        files=files,
    )
