# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The guard's ring on the disk: a day of samples, one JSON object a line, in segments of bounded size. This module util is PRIVATE to the collection.

Each segment begins with a line that says which boot it is of. A node that loses its power leaves a torn last line at worst, which readers pass over.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import typing as t

#: Version of the lines.
SCHEMA = 1
#: A segment ends after this many bytes or seconds. The ring has the newest that fit into its bytes, and no more than so many, whatever they are dated:
#: clocks jump. A day of samples is 96 segments; a guard that starts again and again writes small ones.
SEGMENT_BYTES, SEGMENT_SECONDS = 1024 * 1024, 900.0
RING_BYTES, RING_SEGMENTS = 64 * 1024 * 1024, 1024
#: The kernel's log is in it, so it is for root and its group alone, which the directory hands on: adm where there is one, as for the journal.
DIRECTORY_MODE, MODE = 0o750, 0o640
#: Events that say what was done, or would have been.
ACTS = ("act", "would")
#: Bytes of a segment that are read at most, and of its end for its last line.
READ_LIMIT, TAIL_BYTES = 4 * SEGMENT_BYTES, 64 * 1024
#: Boots that a reader tells of, the newest.
BOOTS = 6

_NAME = re.compile(r"ring-(?P<number>[0-9]{10})\.jsonl")

Record = dict[str, t.Any]


def segments(folder: str) -> list[str]:
    """Return the paths of the segments, the oldest first; none where there is no ring. Raises OSError."""
    try:
        found = os.listdir(folder)
    except FileNotFoundError:
        return []
    return [os.path.join(folder, name) for name in sorted(found) if _NAME.fullmatch(name)]


def dumps(record: Record) -> bytes:
    """Return a record as its line."""
    return json.dumps(record, separators=(",", ":"), ensure_ascii=True).encode() + b"\n"


class Writer:
    """Appends to the ring. Every method raises OSError; what was written before is not harmed by that."""

    def __init__(self, folder: str, head: Record, size: int = RING_BYTES, count: int = RING_SEGMENTS, segment: int = SEGMENT_BYTES) -> None:
        """``head`` is what every segment begins with."""
        self.folder, self.head, self.size, self.count, self.segment = folder, head, size, count, segment
        self._handle: int | None = None
        self._bytes, self._began = 0, 0.0

    def write(self, records: t.Sequence[Record], now: float) -> None:
        """Put records on the disk: they are there when this returns. ``now`` is in seconds since 1970."""
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
            # What follows a torn line starts a segment of its own.
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
                raise OSError(28, os.strerror(28), path)
            folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError:
            os.close(handle)
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        self._handle, self._bytes, self._began = handle, len(content), now
        return handle

    def _trim(self, there: list[str]) -> None:
        """Remove the oldest segments, so that another whole one fits. The newest stays."""
        sizes = [os.stat(path).st_size for path in there]
        total, left = sum(sizes), len(there)
        for path, size in zip(there[:-1], sizes):
            if total + self.segment <= self.size and left < self.count:
                return
            os.unlink(path)
            total, left = total - size, left - 1


# -- reading -----------------------------------------------------------------------------------------------------------------


def parse(content: bytes) -> tuple[list[Record], int]:
    """Return the records of a segment, and how many lines are torn."""
    records, torn = [], 0
    for line in content.split(b"\n"):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            if not isinstance(record, dict) or not isinstance(record.get("t"), (int, float)):
                raise ValueError("no record")
        except (ValueError, RecursionError):
            torn += 1
            continue
        records.append(record)
    return records, torn


def _read(path: str, *, first: bool = False, last: bool = False) -> bytes:
    with open(path, "rb") as stream:
        if first:
            return stream.readline(TAIL_BYTES)
        if last:
            stream.seek(-TAIL_BYTES, os.SEEK_END)
            return stream.read(TAIL_BYTES).partition(b"\n")[2] or b""
        return stream.read(READ_LIMIT)


class Boot(t.NamedTuple):
    """What the ring has of one boot: ``paths`` are its segments; ``stopped`` says whether the guard was stopped in order at its end."""

    boot_id: str
    first: float
    last: float
    stopped: bool
    paths: tuple[str, ...]


def boots(folder: str) -> list[Boot]:
    """Return what boots the ring has, the oldest first. Segments without a readable first line count to the boot before. Raises OSError."""
    found: list[Boot] = []
    for path in segments(folder):
        try:
            heads, _torn = parse(_read(path, first=True))
            whole = os.stat(path).st_size <= TAIL_BYTES
            tail, _torn = parse(_read(path) if whole else _read(path, last=True))
        except FileNotFoundError:
            continue  # it went meanwhile
        boot = heads[0].get("boot") if heads else found[-1].boot_id if found else None
        if not isinstance(boot, str) or not (heads or tail):
            continue
        begins, ends = (heads or tail)[0]["t"], (tail or heads)[-1]["t"]
        stopped = bool(tail) and tail[-1].get("e") == "stop"
        if found and found[-1].boot_id == boot:
            before = found.pop()
            found.append(before._replace(last=ends, stopped=stopped, paths=(*before.paths, path)))
        else:
            found.append(Boot(boot, begins, ends, stopped, (path,)))
    return found[-BOOTS:]


def window(boot: Boot, since: float, until: float) -> tuple[list[Record], int]:
    """Return the records of a boot between two moments (seconds since 1970), and how many lines are torn. Raises OSError."""
    records: list[Record] = []
    torn = 0
    for path in boot.paths:
        try:
            if os.stat(path).st_mtime < since - 1:
                continue
            found, bad = parse(_read(path))
        except FileNotFoundError:
            continue
        records += [one for one in found if since <= one["t"] <= until and one.get("e") != "segment"]
        torn += bad
    return records, torn
