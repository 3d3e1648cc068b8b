# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The guard's ring on disk: a day of samples, one JSON object a line, in segments of limited size. This module util is PRIVATE to the collection.

The first line of each segment has its boot id. A power loss leaves at worst a torn last line, which readers skip.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._files.files import sync_directory

#: Version of the lines.
SCHEMA = 1
#: A segment ends after this many bytes or seconds. The ring keeps the newest segments within its bytes and its count, independent of their dates:
#: clocks jump. A day of samples is 96 segments; a guard that restarts repeatedly writes small ones.
SEGMENT_BYTES, SEGMENT_SECONDS = 1024 * 1024, 900.0
RING_BYTES, RING_SEGMENTS = 64 * 1024 * 1024, 1024
#: The ring contains the kernel's log, so only root and its group may read it. Files inherit the directory's group: adm if it exists, as for the journal.
DIRECTORY_MODE, MODE = 0o750, 0o640
#: Events of an action, or of one that was not allowed.
ACTS = ("act", "would")
#: The most bytes of a segment that are read, and of its end for its last line.
READ_LIMIT, TAIL_BYTES = 4 * SEGMENT_BYTES, 64 * 1024
#: The number of newest boots that a reader returns.
BOOTS = 6

_NAME = re.compile(r"ring-(?P<number>[0-9]{10})\.jsonl")

Record = dict[str, t.Any]


def segments(folder: str) -> list[str]:
    """Return the paths of the segments, the oldest first; none without a ring. Raises OSError."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    return [os.path.join(folder, name) for name in names if _NAME.fullmatch(name)]


def dumps(record: Record) -> bytes:
    """Return a record as its line."""
    return json.dumps(record, separators=(",", ":"), ensure_ascii=True).encode() + b"\n"


class Writer:
    """Appends to the ring. Every method raises OSError, which does not affect earlier records."""

    def __init__(self, folder: str, head: Record, size: int = RING_BYTES, count: int = RING_SEGMENTS, segment: int = SEGMENT_BYTES) -> None:
        """``head`` is part of the first record of every segment."""
        self.folder, self.head, self.size, self.count, self.segment = folder, head, size, count, segment
        self._handle: int | None = None
        self._bytes, self._began = 0, 0.0

    def write(self, records: t.Sequence[Record], now: float) -> None:
        """Write records and sync them to the disk. ``now`` is in seconds since 1970."""
        handle = self._handle
        if handle is None or self._bytes >= self.segment or not 0 <= now - self._began < SEGMENT_SECONDS:
            handle = self._next(now)
        content = b"".join(map(dumps, records))
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(handle, view):]
            os.fdatasync(handle)
        except OSError:
            # Records after a torn line start a new segment.
            self.close()
            raise
        self._bytes += len(content)

    def close(self) -> None:
        """End the segment; the next write begins another one."""
        if self._handle is not None:
            with contextlib.suppress(OSError):
                os.close(self._handle)
        self._handle = None

    def _next(self, now: float) -> int:
        self.close()
        os.makedirs(self.folder, mode=DIRECTORY_MODE, exist_ok=True)
        there = segments(self.folder)
        self._trim(there)
        last = _NAME.fullmatch(os.path.basename(there[-1])) if there else None
        path = os.path.join(self.folder, f"ring-{int(last['number']) + 1 if last else 1:010}.jsonl")
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, MODE)
        try:
            content = dumps({"e": "segment", "v": SCHEMA, "t": round(now, 3), **self.head})
            if os.write(handle, content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            sync_directory(self.folder)
        except OSError:
            os.close(handle)
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        self._handle, self._bytes, self._began = handle, len(content), now
        return handle

    def _trim(self, there: list[str]) -> None:
        """Remove the oldest segments until a whole new one fits. The newest one is kept."""
        sizes = [os.stat(path).st_size for path in there]
        total, left = sum(sizes), len(there)
        for path, size in zip(there[:-1], sizes):
            if total + self.segment <= self.size and left < self.count:
                return
            os.unlink(path)
            total, left = total - size, left - 1


# -- reading -----------------------------------------------------------------------------------------------------------------


def parse(content: bytes) -> tuple[list[Record], int]:
    """Return the records of a segment, and the number of invalid lines."""
    lines = [line for line in content.split(b"\n") if line.strip()]
    records = []
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            record = json.loads(line)
            if isinstance(record, dict) and isinstance(record.get("t"), (int, float)):
                records.append(record)
    return records, len(lines) - len(records)


def _ends(path: str) -> tuple[bytes, bytes]:
    """Return the first line of a segment, and its last lines. Raises OSError."""
    with open(path, "rb") as stream:
        first = stream.readline(TAIL_BYTES)
        size = os.fstat(stream.fileno()).st_size
        stream.seek(max(0, size - TAIL_BYTES))
        tail = stream.read(TAIL_BYTES)
        return first, tail if size <= TAIL_BYTES else tail.partition(b"\n")[2]


class Boot(t.NamedTuple):
    """The segments of one boot (``paths``), and the times of its first and last record; ``stopped`` is whether the guard was stopped at its end."""

    boot_id: str
    first: float
    last: float
    stopped: bool
    paths: tuple[str, ...]


def boots(folder: str) -> list[Boot]:
    """Return the boots in the ring, the oldest first. A segment without a readable first line belongs to the boot before. Raises OSError."""
    result: list[Boot] = []
    for path in segments(folder):
        try:
            heads, tail = (parse(content)[0] for content in _ends(path))
        except FileNotFoundError:
            continue  # it was removed meanwhile
        boot = heads[0].get("boot") if heads else result[-1].boot_id if result else None
        if not isinstance(boot, str) or not (heads or tail):
            continue
        ends, stopped = (tail or heads)[-1]["t"], bool(tail) and tail[-1].get("e") == "stop"
        if result and result[-1].boot_id == boot:
            result[-1] = result[-1]._replace(last=ends, stopped=stopped, paths=(*result[-1].paths, path))
        else:
            result.append(Boot(boot, (heads or tail)[0]["t"], ends, stopped, (path,)))
    return result[-BOOTS:]


def window(boot: Boot, since: float, until: float) -> tuple[list[Record], int]:
    """Return the records of a boot between two times (seconds since 1970), and the number of torn lines. Raises OSError."""
    records: list[Record] = []
    torn = 0
    for path in boot.paths:
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as stream:
            if os.fstat(stream.fileno()).st_mtime >= since - 1:
                parsed, bad = parse(stream.read(READ_LIMIT))
                records += [record for record in parsed if since <= record["t"] <= until and record.get("e") != "segment"]
                torn += bad
    return records, torn
