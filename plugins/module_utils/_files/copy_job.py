# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A copy onto this node: its lock, its progress and its space. This module util is PRIVATE to the collection."""

from __future__ import annotations

import collections
import contextlib
import fcntl
import hashlib
import os
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import open_lock, write_json
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: Seconds between two attempts to lock, and between two notes of a copy's progress.
LOOK_SECONDS, NOTE_SECONDS = 0.5, 2.0

GIB = 1 << 30


def note_path(state_dir: str, kind: str, cluster: str) -> str:
    """Return the file with the progress of a node's copy of one kind (``model-copy``)."""
    return os.path.join(state_dir, f"{kind}-{cluster}.json")


def lock_path(state_dir: str, kind: str, path: str) -> str:
    """Return the lock file that prevents two copies of one kind into the same path, also by different clusters."""
    return os.path.join(state_dir, f"{kind}-{hashlib.sha256(os.path.realpath(path).encode()).hexdigest()[:12]}.lock")


def duration_text(seconds: float) -> str:
    """Return a duration in minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d} min"


class Rate:
    """The rate at which bytes arrive, over the last samples."""

    #: Number of samples.
    WINDOW = 5

    def __init__(self) -> None:
        self._samples: collections.deque[tuple[float, int]] = collections.deque(maxlen=self.WINDOW)

    def text(self, now: float, done: int, total: int) -> str:
        """Add a sample (``now`` in seconds) and return the progress: bytes, rate and remaining time."""
        self._samples.append((now, done))
        first, before = self._samples[0]
        rate = (done - before) / (now - first) if now > first else 0.0
        text = f"{done / GIB:.1f} of {total / GIB:.1f} GiB"
        return f"{text}, {rate / 1e6:.0f} MB/s, {duration_text((total - done) / rate)} left" if rate > 0 else text


class Note:
    """Writes a copy's progress to a file on the node, which the controller reads."""

    def __init__(self, path: str) -> None:
        self._path, self._noted = path, float("-inf")

    def __call__(self, text: str) -> None:
        if time.monotonic() - self._noted >= NOTE_SECONDS:
            self._noted = time.monotonic()
            # Only people read it: a copy does not fail without it.
            with contextlib.suppress(OSError):
                os.makedirs(os.path.dirname(self._path), mode=0o755, exist_ok=True)
                write_json(self._path, {"text": text})

    def remove(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            os.remove(self._path)


def require_space(place: str, free: int, needed: int, floor_gib: int, what: str, remedy: str) -> None:
    """Raise :class:`ClusterError` unless a disk has room (bytes) for what is ``needed``, ``what`` names it, and for what must stay free (GiB)."""
    if free - needed < floor_gib * GIB:
        raise ClusterError(
            f"{place} has {free / GIB:.1f} GiB free",
            expected=f"{needed / GIB:.1f} GiB {what} and {floor_gib} GiB that stay free",
            remedy=remedy,
            reason="disk full",
            free_bytes=free,
            needed_bytes=needed,
        )


@contextlib.contextmanager
def alone(path: str, timeout: float, note: t.Callable[[str], None], into: str, after: str) -> t.Iterator[int]:
    """Lock a place (``into``) against other copies, and wait for a running one. A child process that inherits the descriptor holds the lock, too.

    Raises :class:`WaitTimeout` after ``timeout`` seconds; ``after`` continues its remedy.
    """
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    with open(open_lock(path), "rb") as lock:
        for elapsed in clock(timeout, LOOK_SECONDS):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                note(f"waiting for another copy into {into}, {duration_text(elapsed)} so far")
        else:
            raise WaitTimeout(
                f"another copy into {into} did not end within {timeout:g} s",
                remedy=f"See who copies: sudo lsof {path}. Then run again{after}.",
                reason="busy",
            )
        yield lock.fileno()
