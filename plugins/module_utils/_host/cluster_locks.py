# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one lock a cluster has while a run works on it. This module util is PRIVATE to the collection.

A lock is a record of who works here, not a state of the machine: taking and releasing it changes nothing that a user asked for.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import fcntl
import hashlib
import json
import os
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState

SCHEMA = 1

#: The reason of the error for a lock that exists but cannot be parsed.
NOT_UNDERSTOOD = "lock not understood"

#: The fields of a holder that distinguish one run from another. The others are for people.
IDENTITY = ("user", "machine", "boot_id", "pid_namespace", "pid", "pid_start")


@dataclasses.dataclass(frozen=True)
class Lock:
    """A lock as recorded on the node; ``age`` is in seconds by the node's own clock."""

    id: str
    holder: dict[str, t.Any]
    acquired_at: str
    age: int

    def describe(self) -> str:
        """Return who holds the lock and since when, for a message."""
        holder = self.holder
        who = f"{holder.get('user', '?')}@{holder.get('hostname', '?')}, process {holder.get('pid', '?')}"
        play = f", play {holder['play']!r}" if holder.get("play") else ""
        return f"{who}{play}, since {self.acquired_at} ({self.age} s ago)"


def holder_id(holder: dict[str, t.Any]) -> str:
    """Return the identity of a run: the same for every task of it, another one for every other run."""
    fields = {name: str(holder.get(name, "")) for name in IDENTITY}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


def dump(holder: dict[str, t.Any], now: datetime.datetime) -> str:
    """Return the text of a lock that ``holder`` takes at ``now`` (UTC)."""
    record = {"schema": SCHEMA, "id": holder_id(holder), "acquired_at": now.strftime("%Y-%m-%dT%H:%M:%SZ"), "holder": holder}
    return json.dumps(record, indent=2, sort_keys=True) + "\n"


def parse(text: str, path: str, age: int) -> Lock:
    """Return the lock that a text describes. Raises :class:`UnknownState` for anything else."""
    try:
        record = json.loads(text)
        return Lock(id=str(record["id"]), holder=dict(record["holder"]), acquired_at=str(record["acquired_at"]), age=age)
    except (ValueError, KeyError, TypeError) as error:
        raise UnknownState(
            f"{path} cannot be read as a lock, so it is unknown who works here",
            remedy=f"Look at {path}. When no other run works on this cluster: -e gb10_break_lock=true",
            reason=NOT_UNDERSTOOD,
            raw=text[:2000],
        ) from error


def read(path: str) -> Lock | None:
    """Return the lock at ``path``, None when there is none. Raises :class:`UnknownState` when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            age = max(0, int(time.time() - os.fstat(stream.fileno()).st_mtime))
            return parse(stream.read(), path, age)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnknownState(f"{path} cannot be read: {error.strerror}", remedy="Run the task with become: true.", raw=str(error)) from error


def decide_acquire(current: Lock | None, holder: dict[str, t.Any], *, break_lock: bool, only_id: str | None) -> tuple[str | None, str]:
    """Return (action, reason) for a run that wants the lock: ``take``, ``take over``, or None when it holds it already.

    ``break_lock`` allows taking over another run's lock; ``only_id`` restricts that to the lock of this id, so that a lock
    that has changed hands since is respected. Raises :class:`ClusterError` when another run holds it.
    """
    if current is None:
        return "take", "taken, it was free"
    if current.id == holder_id(holder):
        return None, "this run holds the lock already"
    if break_lock and only_id in (None, current.id):
        return "take over", f"taken over from {current.describe()}"
    raise ClusterError(
        f"another run works on this cluster: {current.describe()}",
        remedy="Wait for it to end. When you have made sure that it no longer runs: -e gb10_break_lock=true",
        reason="held by another run",
        lock=dataclasses.asdict(current),
    )


def decide_release(current: Lock | None, holder: dict[str, t.Any], *, break_lock: bool) -> tuple[str | None, str]:
    """Return (action, reason) for a run that is done: ``release``, or None when there is nothing of its own to release."""
    if current is None:
        return None, "no run holds the lock"
    if current.id == holder_id(holder) or break_lock:
        return "release", "released"
    return None, f"left alone, another run holds the lock: {current.describe()}"


@contextlib.contextmanager
def exclusive(directory: str) -> t.Iterator[None]:
    """Keep other runs from reading, deciding and writing at the same moment; held only while this takes place.

    Raises :class:`ClusterError` when another run does so right now.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ClusterError(
                f"another run takes or releases the lock in {directory} at this moment",
                remedy="Run again when it is done.",
                reason="held by another run",
            ) from error
        yield
    finally:
        os.close(descriptor)


def write(path: str, text: str, *, replace: bool) -> None:
    """Write a lock whole or not at all. Without ``replace`` it must not exist yet; with it a reader sees the old one or the new one."""
    fresh = f"{path}.new"
    try:
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        if replace:
            os.replace(fresh, path)
        else:
            os.link(fresh, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh)
