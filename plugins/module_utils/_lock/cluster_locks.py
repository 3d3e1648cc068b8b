# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lock of a cluster while a run works on it: a file on each of its nodes. This module util is PRIVATE to the collection.

A lock records the current run, not a state of the machine: taking and releasing it is not a change.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import json
import os
import platform
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import UTC
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import files

SCHEMA = 1

#: The reason of the error for a lock that exists but cannot be parsed.
NOT_UNDERSTOOD = "lock not understood"
#: The reason of the error for a lock that the run no longer holds.
LOST = "lock lost"

#: The fields that identify a holder. The others are for people.
IDENTITY = ("user", "hostname", "machine", "boot_id", "pid_namespace", "pid", "pid_start", "run", "service")

#: The file in a lock's directory that is locked while the lock is taken or released.
ALONE = ".lock"

#: The option that breaks a lock.
BREAK = "-e gb10_break_lock="
#: The reason of the error for a lock that another run holds, or takes or releases now.
HELD = "held by another run"


@dataclasses.dataclass(frozen=True)
class Lock:
    """A lock as recorded on the node; ``age`` is in seconds by the node's own clock."""

    id: str
    holder: dict[str, t.Any]
    acquired_at: str
    age: int

    def describe(self) -> str:
        """Return the holder and the time of the lock, for a message."""
        holder, host = self.holder, self.holder.get("hostname", "?")
        who = f"service {holder['service']} on {host}" if holder.get("service") else f"{holder.get('user', '?')}@{host}"
        play = f", play {holder['play']!r}" if holder.get("play") else ""
        return f"{who}, process {holder.get('pid', '?')}{play}, since {self.acquired_at} ({self.age} s ago)"


def holder_id(holder: dict[str, t.Any]) -> str:
    """Return the identity of a run: the same for all its tasks, and unique among runs."""
    fields = {name: str(holder.get(name, "")) for name in IDENTITY}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


def dump(holder: dict[str, t.Any], now: datetime.datetime) -> str:
    """Return the text of a lock that ``holder`` takes at ``now`` (UTC)."""
    record = {"schema": SCHEMA, "id": holder_id(holder), "acquired_at": now.strftime(UTC), "holder": holder}
    return json.dumps(record, indent=2, sort_keys=True) + "\n"


def unreadable_id(text: str) -> str:
    """Return the id of an unreadable lock, derived from its content: it differs after any change."""
    return f"unreadable-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def path_of(state_dir: str, cluster: str) -> str:
    """Return the path of a cluster's lock on each of its nodes."""
    return os.path.join(state_dir, cluster, "lock.json")


def parse(text: str, path: str, age: int) -> Lock:
    """Return the lock that a text describes. Raises :class:`UnknownState` for anything else."""
    try:
        record = json.loads(text)
        return Lock(id=str(record["id"]), holder=dict(record["holder"]), acquired_at=str(record["acquired_at"]), age=age)
    except (ValueError, KeyError, TypeError) as error:
        raise UnknownState(
            f"{path} is not a valid lock, so its holder is unknown",
            remedy=f"Inspect {path}. When no other run works on this cluster: {BREAK}{unreadable_id(text)}",
            reason=NOT_UNDERSTOOD,
            raw=text[:2000],
            lock_id=unreadable_id(text),
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


def decide_acquire(current: Lock | None, holder: dict[str, t.Any], *, break_lock: str, ended: str) -> tuple[str | None, str]:
    """Return (action, reason) for a run that wants the lock: ``take``, ``take over``, or None when it holds it already.

    ``break_lock`` is the id of another holder's lock that may be taken over; a lock with a new holder has another id. ``ended`` is the reason why the current
    holder is known to have ended. Raises :class:`ClusterError` when another run holds it.
    """
    if current is None:
        return "take", "taken, it was free"
    if current.id == holder_id(holder):
        return None, "this run holds the lock already"
    if ended or break_lock == current.id:
        return "take over", f"taken over from {current.describe()}" + (f": {ended}" if ended else "")
    other = f"; {break_lock} is not the id of its lock" if break_lock else ""
    # A unit may start an engine for as long as one may take to load.
    service = current.holder.get("service")
    wait = f"Wait for it to end, or stop it on {current.holder.get('hostname', 'its node')}: systemctl stop {service}." if service else "Wait for it to end."
    raise ClusterError(
        f"another run works on this cluster: {current.describe()}{other}",
        remedy=f"{wait} When you have made sure that it no longer runs: {BREAK}{current.id}",
        reason=HELD,
        lock=dataclasses.asdict(current),
    )


def decide_release(current: Lock | None, holder: dict[str, t.Any], *, break_lock: str) -> tuple[str | None, str]:
    """Return (action, reason) for a run that is done: ``release``, or None when it does not hold the lock."""
    if current is None:
        return None, "no run holds the lock"
    if current.id in (holder_id(holder), break_lock):
        return "release", "released"
    return None, f"left alone, another run holds the lock: {current.describe()}"


def check_held(path: str, lock_id: str) -> None:
    """Raise :class:`ClusterError` when the run no longer holds its lock: it was broken, and another run may work here.

    Without an id there is no lock to check.
    """
    current = read(path) if lock_id else None
    if lock_id and (current is None or current.id != lock_id):
        raise ClusterError(
            f"this run lost the cluster's lock {lock_id} on {platform.node()}, " + (f"{current.describe()} holds it now" if current else "it is gone"),
            remedy="This task started, stopped and removed nothing. Find out who broke the lock, and why, before you run again.",
            reason=LOST,
            lock=dataclasses.asdict(current) if current else None,
            changed=False,
            actions=[],
        )


@contextlib.contextmanager
def exclusive(directory: str) -> t.Iterator[None]:
    """Prevent other runs from reading, deciding and writing at the same time.

    Raises :class:`ClusterError` when another run does so now.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(files.alone(os.path.join(directory, ALONE)))
        except BlockingIOError as error:
            raise ClusterError(
                f"another run takes or releases the lock in {directory} at this moment", remedy="Run again when it is done.", reason=HELD
            ) from error
        yield


def write(path: str, text: str, *, replace: bool) -> None:
    """Write a lock atomically. Without ``replace`` it must not exist yet."""
    files.write_whole(path, text.encode(), 0o644, replace=replace)
