# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program that ends a lease on its node when the caller is silent. This module util is PRIVATE to the collection.

It stops the engines of the lease through their units, the head's first, proves the node's memory, starts the units of the mode before again where the node
kept them, and writes into the record of the mode what it did. While it does it holds the lock of the mode, which it takes over from the silent caller alone.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id
from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes, record
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._lock.lock_holder import lock_holder
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool
from ansible_collections.gb10.cluster.plugins.module_utils._unit import specification, steps, text, unit_files
from ansible_collections.gb10.cluster.plugins.module_utils._unit import record as units
from ansible_collections.gb10.cluster.plugins.module_utils._unit.journal import clean, say, log_uncaught_errors
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: Seconds between two looks at the lease or the head, for one answer of systemd, and for one of the head's port.
LOOK_SECONDS, SYSTEMD_SECONDS, PORT_SECONDS = 2.0, 60.0, 5.0
#: Seconds beyond what a unit's own step may take.
MARGIN = 60.0


def lock_path(state_dir: str) -> str:
    """Return where the lock of the mode lies."""
    return os.path.join(state_dir, "mode.lock.json")


def utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


def listens(address: str, port: int) -> bool:
    """Return whether somebody answers there."""
    try:
        socket.create_connection((address, port), PORT_SECONDS).close()
    except OSError:
        return False
    return True


class Result(t.NamedTuple):
    """How an end went: what failed on the way, and what is said of memory that did not come back."""

    troubles: list[str]
    leak: str = ""


def closing(lease: t.Mapping[str, t.Any], before: modes.Record, result: Result) -> tuple[dict[str, t.Any] | None, str]:
    """Return what the record of the mode says after an end, None for one that was never declared, and the event."""
    target = modes.former(before)
    shape = {"mode": target["mode"], "clusters": target["clusters"], "reason": ""}
    if result.leak:
        why = f"the lease for {lease['program']} ended, and its memory is not back: {result.leak}"
        return {"mode": modes.OFF, "clusters": {}, "phase": modes.LEAK, "reason": why}, why
    why = "; ".join(result.troubles)
    if not why and not lease["whole"]:
        why = f"nothing of {target['mode']} was started again, since this node kept no unit of it"
    if not why and lease["companions"]:
        why = "engines are as before, companions as the lease left them"
    if why:
        return {**shape, "phase": modes.FAILED, "reason": f"{why}; the playbook mode goes on from here"}, f"back to {target['mode']}: {why}"
    event = f"back to {target['mode']}, the lease for {lease['program']} is over"
    return ({**shape, "phase": modes.SETTLED} if before["previous"] or before["phase"] == modes.SETTLED else None), event


class Keeper:
    """Watches the lease of one node. ``systemctl`` runs that with words and seconds, ``runner`` makes what runs a cluster's modules out of an archive."""

    def __init__(
        self,
        state_dir: str,
        systemctl: t.Callable[[t.Sequence[str], float], t.Any] = lambda words, seconds: run_tool(["systemctl", *words], seconds),
        runner: t.Callable[[str], steps.Run] = steps.runner,
    ) -> None:
        self.state_dir = state_dir
        self.systemctl = systemctl
        self.runner = runner
        self.told = ""

    def watch(self) -> int:
        """Look at the lease until it is over; return the exit code."""
        while True:
            try:
                if self.look():
                    return 0
            except (ClusterError, OSError) as error:
                say(f"{error}")
                return 1
            time.sleep(LOOK_SECONDS)

    def look(self) -> bool:
        """End the lease when its caller is silent; return whether nothing is left to watch."""
        lease = record.read(self.state_dir)
        if lease is None or lease["state"] == record.ENDED:
            return True
        if not self.why_due(lease) or self.comes_back(lease) or not self.claim():
            return False
        self.end(lease)
        return True

    def why_due(self, lease: record.Lease) -> str:
        """Return why the node has to end a lease, or to go on with that; empty where it has not."""
        if lease["state"] == record.ENDING:
            return lease["reason"]
        return record.why_lost(lease, boot_id(lease["roots"]["proc_root"]), record.boot_seconds())

    def comes_back(self, lease: record.Lease) -> bool:
        """Return whether a run works on what the node would start, once nothing of the lease is left to stop: its caller, for all that is known here."""
        for name in () if lease["clusters"] else lease["restore"]:
            path = cluster_locks.path_of(self.state_dir, name)
            try:
                current = cluster_locks.read(path)
            except UnknownState as error:
                self.tell(f"{name} is left alone: {error}")
                return True
            if current:
                self.tell(f"a run works on {name}: {current.describe()}")
                return True
        return False

    def claim(self) -> bool:
        """Take the mode's lock over from the silent caller, and say that the lease ends; False where another run works here, or the caller came back."""
        try:
            with cluster_locks.exclusive(record.folder_of(self.state_dir)), cluster_locks.exclusive(self.state_dir):
                lease = record.read(self.state_dir)
                reason = self.why_due(lease) if lease else ""
                if lease is None or not reason:
                    return False
                path = lock_path(self.state_dir)
                current = cluster_locks.read(path)
                if current and current.id != lease["id"] and current.holder.get("service") != record.UNIT:
                    self.tell(f"the lease is lost, and another run works here: {current.describe()}")
                    return False
                cluster_locks.write(path, cluster_locks.dump(self.holder, utc_now()), replace=current is not None)
                record.write(self.state_dir, {**lease, "state": record.ENDING, "reason": reason})
                say(f"the lease of {record.of(lease)} ends: {reason}")
                return True
        except (ClusterError, OSError) as error:
            # Somebody takes or releases the lock at this moment, or the disk is full: the next look tries it again.
            self.tell(str(error))
            return False

    @property
    def holder(self) -> dict[str, t.Any]:
        return lock_holder(os.getpid(), service=record.UNIT)

    def tell(self, message: str) -> None:
        """Write a line to the journal, once."""
        if message != self.told:
            say(message)
        self.told = message

    def end(self, lease: record.Lease) -> None:
        """End a lease that was claimed, and leave the record and the lock as they should be. Raises :class:`ClusterError` and OSError."""
        reason = (record.read(self.state_dir) or lease)["reason"]
        target = modes.former(self.mode())
        switching = {"mode": target["mode"], "clusters": target["clusters"], "phase": modes.SWITCHING, "reason": ""}
        try:
            self.declare(switching, f"the lease ends: {reason}")
        except ClusterError as error:
            # A full disk keeps nothing from being stopped and started.
            say(f"record of the mode: {error}")
        result = self.undo(lease)
        after, event = closing(lease, self.mode(), result)
        say(event)
        # A second end would stop what is there again now: what a full disk does not take is tried until it does.
        self.insist("record of the mode", lambda: modes.remove(self.state_dir) if after is None else self.declare(after, event))
        self.insist("record of the lease", lambda: record.write(self.state_dir, {**lease, "state": record.ENDED, "reason": clean(f"{reason}; {event}")}))
        with contextlib.suppress(FileNotFoundError), cluster_locks.exclusive(self.state_dir):
            current = cluster_locks.read(lock_path(self.state_dir))
            if current and current.id == cluster_locks.holder_id(self.holder):
                os.unlink(lock_path(self.state_dir))
        self.systemctl(("disable", "--quiet", record.UNIT), SYSTEMD_SECONDS)

    def mode(self) -> modes.Record:
        """Return the record of the mode; the shape of one where somebody removed it."""
        nothing = {"mode": modes.OFF, "phase": modes.SWITCHING, "reason": "", "clusters": {}, "previous": {}, "changed_at": "", "events": []}
        return modes.read(self.state_dir) or nothing

    def declare(self, wanted: dict[str, t.Any], event: str) -> None:
        """Write into the record of the mode what is so now."""
        said = {**wanted, "reason": clean(wanted["reason"])}
        modes.write(self.state_dir, modes.following(self.mode(), said, utc_text(), clean(event)))

    def insist(self, what: str, write: t.Callable[[], None]) -> None:
        """Write something, again and again until it is written, and say once why it is not."""
        while True:
            try:
                return write()
            except (ClusterError, OSError) as error:
                self.tell(f"{what}: {error}; tried again until it is written")
            time.sleep(LOOK_SECONDS)

    def undo(self, lease: record.Lease) -> Result:
        """Stop what the lease had, prove the memory, and start what there was before. After an unclean shutdown, that waits for a person."""
        self.await_head(lease["awaits"])
        troubles, leaks = [], []
        for name in lease["clusters"]:
            troubles += self.unclean(lease, name)
            troubles += self.attempt(f"stop {unit_files.unit_name(name)}", lambda name=name: self.stop(lease, name))
            troubles += self.attempt(f"memory of {name}", lambda name=name: leaks.extend(self.missing(lease, name)))
        if not troubles and not leaks:
            for name in lease["restore"]:
                troubles += self.attempt(f"start {unit_files.unit_name(name)}", lambda name=name: self.start(name))
        return Result(troubles, "; ".join(leaks))

    @staticmethod
    def attempt(what: str, act: t.Callable[[], None]) -> list[str]:
        """Do something, and return what failed in one line, none when nothing did."""
        try:
            act()
        except (ClusterError, OSError) as error:
            say(f"{what}: {error}")
            return [f"{what}: {error}"]
        say(f"{what}: done")
        return []

    def await_head(self, awaits: t.Mapping[str, t.Any]) -> None:
        """Let the head drain and stop its part first: a worker that goes before it cuts its requests off."""
        if not awaits:
            return
        for _elapsed in clock(awaits["seconds"], LOOK_SECONDS):
            if not listens(awaits["address"], awaits["port"]):
                return
        say(f"the head's part at {awaits['address']} is still there after {awaits['seconds']} s; this node's part is stopped all the same")

    def specified(self, name: str) -> specification.Specification:
        """Return what the unit of a cluster does."""
        return specification.read(os.path.join(unit_files.of_engine(self.state_dir, name).folder, specification.FILE))

    def run(self, words: t.Sequence[str], seconds: float) -> None:
        """Run systemctl. Raises :class:`ClusterError` when that fails."""
        answer = self.systemctl(words, seconds)
        if answer.rc:
            raise ClusterError(f"systemctl {' '.join(words)} ended with {answer.rc}: {answer.raw[:300]}")

    def unclean(self, lease: record.Lease, name: str) -> list[str]:
        """Return in one line why a cluster's own unit would not start at this boot, none when it would: its part here did not end before the node did."""
        unit, boot = unit_files.of_engine(self.state_dir, name), boot_id(lease["roots"]["proc_root"])
        try:
            said = units.check_boot(unit.folder, boot, self.state_dir, unit.name)
        except (ClusterError, OSError) as error:
            say(f"{error}")
            # As the unit itself would, which is not started: whoever starts it after this has looked.
            with contextlib.suppress(OSError):
                units.write(unit.folder, boot, units.REFUSED, str(error))
            return [str(error)]
        if said:
            say(said)
        return []

    def stop(self, lease: record.Lease, name: str) -> None:
        """Stop a cluster's part here through its unit, which drains it. Without a unit somebody took it down. Raises :class:`ClusterError`."""
        unit = unit_files.of_engine(self.state_dir, name, lease["roots"]["etc_root"])
        if not os.path.lexists(unit.path):
            return
        self.run(("disable", "--quiet", unit.name), SYSTEMD_SECONDS)
        self.run(("stop", unit.name), text.stop_seconds(self.specified(name)) + MARGIN)

    def missing(self, lease: record.Lease, name: str) -> list[str]:
        """Return what is said of memory that did not come back, none when it did, or when nothing noted what there was."""
        program = unit_files.of_engine(self.state_dir, name).program
        if not os.path.exists(program):
            return []
        asked = {"source": "memory", "cluster_name": name, "state_dir": self.state_dir, "roots": lease["roots"], **lease["memory"]}
        found = steps.require("memory", self.runner(program)("node_samples_info", asked, lease["memory"]["wait_timeout"] + MARGIN, False))
        say(f"memory: {found['msg']}")
        return [found["msg"]] if found["verdict"] in ("warn", "block") else []

    def start(self, name: str) -> None:
        """Start a cluster's unit as it was before; it proves a token. Raises :class:`ClusterError`."""
        unit = unit_files.unit_name(name)
        self.run(("enable", "--quiet", unit), SYSTEMD_SECONDS)
        self.run(("start", unit), text.start_seconds(self.specified(name)) + MARGIN)


def main(argv: t.Sequence[str]) -> int:
    """Watch the lease below the state directory that the command line names, and return the exit code."""
    if len(argv) != 1:
        say("usage: STATE_DIRECTORY")
        return 2
    log_uncaught_errors()
    return Keeper(argv[0]).watch()
