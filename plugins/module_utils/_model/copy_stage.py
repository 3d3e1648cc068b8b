# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a model lies on a node until all of it has arrived, and what is there of it already. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import stat
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._files import copy_job, untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._model import blocks, copying
from ansible_collections.gb10.cluster.plugins.module_utils._model.copying import Entry, Lack

#: Most bytes of the note of the blocks that have come: some 150 for each 4 MiB.
PROGRESS_LIMIT = 64 << 20


@dataclasses.dataclass(frozen=True)
class Repository:
    """A repository that is fetched: where it lies here, its files until they are whole, the list of the source, what is lacking."""

    repo: str
    path: str
    stage: str
    entries: list[Entry]
    lack: Lack

    def directories(self) -> list[str]:
        """Return the directories that what is lacking is written to."""
        found = dict.fromkeys([os.path.dirname(self.stage), self.stage, self.path])
        for entry in [*self.lack.files, *self.lack.links, *self.lack.refs]:
            for top in (self.stage, self.path):
                below = entry.path.split("/")[:-1]
                found.update(dict.fromkeys(os.path.join(top, *below[:number]) for number in range(1, len(below) + 1)))
        return list(found)


def alone(path: str, timeout: float, note: t.Callable[[str], None]) -> contextlib.AbstractContextManager[int]:
    """Keep other copies into this cache out; one that a play left behind is waited for.

    Raises :class:`WaitTimeout` after ``timeout`` seconds.
    """
    return copy_job.alone(path, timeout, note, "this cache", ": it goes on with what is there")


def _status(one: Repository, entry: Entry) -> os.stat_result | None:
    try:
        return os.lstat(os.path.join(one.stage, entry.path))
    except OSError:
        return None


def arrived(one: Repository, boot: str) -> dict[str, set[int]] | None:
    """Return the blocks that an earlier copy fetched and compared, by file; None when it is unknown. Raises OSError."""
    try:
        text = untrusted.read(one.stage, copying.PROGRESS, PROGRESS_LIMIT)
    except (FileNotFoundError, untrusted.Tampered):
        # No note of ours is a link, a FIFO or that long.
        return None
    return copying.progress(text.decode("utf-8", "replace"), boot, one.lack.files)


def resumed(found: t.Sequence[Repository], boot: str) -> int:
    """Return the bytes that an earlier copy has fetched, and that are not fetched again unless a reboot spoiled them. Raises OSError."""
    total = 0
    for one in found:
        there = arrived(one, boot)
        for entry in one.lack.files:
            if there is None:
                total += copying.staged(entry.size, _status(one, entry))
            elif _status(one, entry) is not None:
                total += sum(min(blocks.BLOCK, entry.size - offset) for offset in there[entry.path] if offset < entry.size)
    return total


def free_bytes(path: str) -> int:
    """Return the bytes that a user may still write where ``path`` lies, or the nearest directory above it that is there."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def _file_or_nothing(path: str) -> os.stat_result | None:
    """Return the status of a file in the stage, None when there is none; what else has its name goes. Raises OSError."""
    status = copying.status_of(path)
    if status is not None and not stat.S_ISREG(status.st_mode):
        os.unlink(path)
        return None
    return status


class Staged:
    """The files of a repository in the stage, open, and the blocks of them that are there."""

    def __init__(self, one: Repository, boot: str) -> None:
        self.one, self.descriptors, self.doubtful = one, {}, {}
        there = arrived(one, boot)
        try:
            os.makedirs(one.stage, mode=0o700, exist_ok=True)
            for entry in one.lack.files:
                path = os.path.join(one.stage, entry.path)
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
                status = _file_or_nothing(path)
                self.descriptors[entry.path] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                # Of before a reboot, or of an older version: each block of it is compared before it counts.
                self.doubtful[entry.path] = set(copying.offsets(status.st_size)) if status is not None and there is None else set()
                os.ftruncate(self.descriptors[entry.path], entry.size)
                if there is not None and status is None:
                    there[entry.path] = set()
            self.there = there or {entry.path: set() for entry in one.lack.files}
            _file_or_nothing(os.path.join(one.stage, copying.PROGRESS))
            mode = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_TRUNC if there is None else 0)
            self._progress = os.open(os.path.join(one.stage, copying.PROGRESS), mode, 0o600)
        except OSError:
            self.close()
            raise
        # What a copy that was killed left of its last line must not swallow the next one.
        os.write(self._progress, copying.progress_header(boot).encode() if there is None else b"\n")

    def parts(self) -> list[tuple[Entry, int]]:
        """Return the blocks that are to be fetched or compared, in the order of the files."""
        return [(entry, offset) for entry in self.one.lack.files for offset in copying.offsets(entry.size) if offset not in self.there[entry.path]]

    def note(self, entry: Entry, offset: int) -> None:
        """Note that a block is there and was compared."""
        os.write(self._progress, copying.progress_line(entry, offset).encode())
        self.there[entry.path].add(offset)

    def finish(self) -> None:
        """Give the files, all of whose blocks are there, their times."""
        for entry in self.one.lack.files:
            os.utime(self.descriptors[entry.path], ns=(entry.mtime, entry.mtime))

    def close(self) -> None:
        """Close the files."""
        for descriptor in [*self.descriptors.values(), *([self._progress] if hasattr(self, "_progress") else [])]:
            os.close(descriptor)
