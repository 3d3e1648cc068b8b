# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The directory of a model's incomplete files, and their blocks that arrived. This module util is PRIVATE to the collection."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import stat
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._model import blocks, copying, model_files
from ansible_collections.gb10.cluster.plugins.module_utils._model.copying import Entry, Lack

#: Most bytes of the record of blocks: about 150 for each 4 MiB.
PROGRESS_LIMIT = 64 << 20


@dataclasses.dataclass(frozen=True)
class Repository:
    """A repository to fetch: its directory, its incomplete files, the listing of the source, and the missing entries."""

    repo: str
    path: str
    stage: str
    entries: list[Entry]
    lack: Lack

    def directories(self) -> list[str]:
        """Return the directories that the missing entries are written to."""
        below = {str(folder) for entry in self.lack.entries for folder in pathlib.PurePath(entry.path).parents} - {"."}
        return [os.path.dirname(self.stage), self.stage, self.path, *(os.path.join(top, name) for top in (self.stage, self.path) for name in sorted(below))]


def arrived(repository: Repository, boot: str) -> dict[str, set[int]] | None:
    """Return the blocks that an earlier copy fetched and compared, by file; None if unknown. Raises OSError."""
    try:
        text = untrusted.read(repository.stage, copying.PROGRESS, PROGRESS_LIMIT)
    except (FileNotFoundError, untrusted.Tampered):
        # The collection's record is neither a link nor a FIFO, nor that long.
        return None
    return copying.progress(text.decode("utf-8", "replace"), boot, repository.lack.files)


def resumed(repositories: t.Sequence[Repository], boot: str) -> int:
    """Return the bytes that an earlier copy fetched, and that need no second fetch unless a reboot damaged them. Raises OSError."""
    total = 0
    for repository in repositories:
        there = arrived(repository, boot)
        for entry in repository.lack.files:
            status = model_files.status_of(os.path.join(repository.stage, entry.path))
            if there is None:
                total += copying.staged(entry.size, status)
            elif status is not None:
                total += sum(min(blocks.BLOCK, entry.size - offset) for offset in there[entry.path] if offset < entry.size)
    return total


def _file_or_nothing(path: str) -> os.stat_result | None:
    """Return the status of a file in the stage, None if it is absent; anything else with its name is removed. Raises OSError."""
    status = model_files.status_of(path)
    if status is not None and not stat.S_ISREG(status.st_mode):
        os.unlink(path)
        return None
    return status


class Staged:
    """The open files of a repository in the stage, and their blocks that arrived."""

    def __init__(self, repository: Repository, boot: str) -> None:
        self.one, self.descriptors, self.doubtful = repository, {}, {}
        there = arrived(repository, boot)
        try:
            os.makedirs(repository.stage, mode=0o700, exist_ok=True)
            for entry in repository.lack.files:
                path = os.path.join(repository.stage, entry.path)
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
                status = _file_or_nothing(path)
                self.descriptors[entry.path] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                # Blocks from before a reboot are compared before they count.
                self.doubtful[entry.path] = set(copying.offsets(status.st_size)) if status is not None and there is None else set()
                os.ftruncate(self.descriptors[entry.path], entry.size)
                if there is not None and status is None:
                    there[entry.path] = set()
            self.there = there or {entry.path: set() for entry in repository.lack.files}
            _file_or_nothing(os.path.join(repository.stage, copying.PROGRESS))
            mode = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_TRUNC if there is None else 0)
            self._progress = os.open(os.path.join(repository.stage, copying.PROGRESS), mode, 0o600)
        except OSError:
            self.close()
            raise
        # A new line after the incomplete last one of a killed copy.
        os.write(self._progress, copying.progress_header(boot).encode() if there is None else b"\n")

    def parts(self) -> list[tuple[Entry, int]]:
        """Return the blocks to fetch or compare, in the order of the files."""
        return [(entry, offset) for entry in self.one.lack.files for offset in copying.offsets(entry.size) if offset not in self.there[entry.path]]

    def note(self, entry: Entry, offset: int) -> None:
        """Record that a block arrived and was compared."""
        os.write(self._progress, copying.progress_line(entry, offset).encode())
        self.there[entry.path].add(offset)

    def finish(self) -> None:
        """Set the times of the complete files."""
        for entry in self.one.lack.files:
            os.utime(self.descriptors[entry.path], ns=(entry.mtime, entry.mtime))

    def close(self) -> None:
        """Close the files."""
        for descriptor in [*self.descriptors.values(), *([self._progress] if hasattr(self, "_progress") else [])]:
            os.close(descriptor)
