# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A copy onto this node: one at a time, and it says how far it is. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import open_lock, write_json
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: Seconds between two looks at the lock, and between two notes of how far a copy is.
LOOK_SECONDS, NOTE_SECONDS = 0.5, 2.0

GIB = 1 << 30


def duration_text(seconds: float) -> str:
    """Return a time to wait in minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d} min"


class Rate:
    """How fast bytes arrive, over the last looks."""

    #: Looks that the rate is taken over.
    WINDOW = 5

    def __init__(self) -> None:
        self._looks: list[tuple[float, int]] = []

    def text(self, now: float, done: int, total: int) -> str:
        """Take a look (``now`` in seconds) and return how far it is: bytes, rate and what is left of the time."""
        self._looks = [*self._looks, (now, done)][-self.WINDOW:]
        (first, before), (last, after) = self._looks[0], self._looks[-1]
        rate = (after - before) / (last - first) if last > first else 0.0
        told = f"{done / GIB:.1f} of {total / GIB:.1f} GiB"
        return f"{told}, {rate / 1e6:.0f} MB/s, {duration_text((total - done) / rate)} left" if rate > 0 else told


class Note:
    """Says on the node how far a copy is, for the controller to read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._noted = float("-inf")

    def __call__(self, text: str) -> None:
        if time.monotonic() - self._noted >= NOTE_SECONDS:
            self._noted = time.monotonic()
            # Only for people to read: a copy does not fail for it.
            with contextlib.suppress(OSError):
                write_json(self._path, {"text": text})

    def remove(self) -> None:
        """Leave no note behind."""
        with contextlib.suppress(OSError):
            os.remove(self._path)


def no_space(place: str, free: int, needed: int, floor_gib: int, what: str, remedy: str) -> ClusterError:
    """Return the error for a disk with too little room (bytes) for ``what`` is needed and what must stay free (GiB)."""
    return ClusterError(
        f"{place} has {free / GIB:.1f} GiB free",
        expected=f"{needed / GIB:.1f} GiB {what} and {floor_gib} GiB that stay free",
        remedy=remedy,
        reason="disk full",
        free_bytes=free,
        needed_bytes=needed,
    )


@contextlib.contextmanager
def alone(path: str, timeout: float, note: t.Callable[[str], None], into: str, after: str) -> t.Iterator[int]:
    """Keep other copies into the same place out (``into`` says which); one that a play left behind is waited for. Who inherits the lock holds it, too.

    Raises :class:`WaitTimeout` after ``timeout`` seconds; ``after`` says what comes once the other one has ended.
    """
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    descriptor = open_lock(path)
    try:
        for elapsed in clock(timeout, LOOK_SECONDS):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                note(f"waiting for another copy into {into}, {duration_text(elapsed)} so far")
        else:
            raise WaitTimeout(
                f"another copy into {into} did not end within {timeout:g} s",
                remedy=f"See who copies: sudo lsof {path}. Then run again{after}.",
                reason="busy",
            )
        yield descriptor
    finally:
        os.close(descriptor)
