# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program that ends a lease on its node when the caller is silent. This module util is PRIVATE to the collection.

It stops the lease's engines through their units, the head's first, verifies the node's memory, restarts the units of the former mode where the node kept
them, and updates the mode record. Meanwhile it holds the lock of the mode, which it only takes over from the silent caller.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id
from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes, record
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._lock.lock_holder import lock_holder
from ansible_collections.gb10.cluster.plugins.module_utils._network import listeners
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool
from ansible_collections.gb10.cluster.plugins.module_utils._unit import boots, specification, steps, text, unit_files
from ansible_collections.gb10.cluster.plugins.module_utils._unit import record as units
from ansible_collections.gb10.cluster.plugins.module_utils._unit.journal import clean, say, log_uncaught_errors
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: Seconds between two checks of the lease or the head, for one answer of systemd, and for one of the head's port.
LOOK_SECONDS, SYSTEMD_SECONDS, PORT_SECONDS = 2.0, 60.0, 5.0
#: Seconds beyond the limit of a unit's own step.
MARGIN = 60.0


def lock_path(state_dir: str) -> str:
    """Return the path of the mode's lock."""
    return os.path.join(state_dir, "mode.lock.json")


def utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


class Result(t.NamedTuple):
    """The result of an end: its failures, and the message about memory that was not released."""

    troubles: list[str]
    leak: str = ""


def closing(lease: t.Mapping[str, t.Any], before: modes.Record, result: Result) -> tuple[dict[str, t.Any] | None, str]:
    """Return the content of the mode record after an end, None for a mode that was never declared, and the event."""
    target = modes.former(before)
    shape = {"mode": target["mode"], "clusters": target["clusters"], "reason": ""}
    if result.leak:
        why = f"the lease for {lease['program']} ended, but its memory was not released: {result.leak}"
        return {"mode": modes.OFF, "clusters": {}, "phase": modes.LEAK, "reason": why}, why
    unrestored = "" if lease["whole"] else f"nothing of {target['mode']} was restarted, since this node kept no unit of it"
    companions = "engines are as before, companions as the lease left them" if lease["companions"] else ""
    if why := "; ".join(result.troubles) or unrestored or companions:
        return {**shape, "phase": modes.FAILED, "reason": f"{why}; run the playbook mode to continue"}, f"back to {target['mode']}: {why}"
    event = f"back to {target['mode']}, the lease for {lease['program']} is over"
    return ({**shape, "phase": modes.SETTLED} if before["previous"] or before["phase"] == modes.SETTLED else None), event


class Keeper:
    """Watches the lease of one node. ``systemctl`` takes words and seconds, ``runner`` returns the function that runs a cluster's modules of an archive."""

    def __init__(
        self,
        state_dir: str,
        systemctl: t.Callable[[t.Sequence[str], float], t.Any] = lambda words, seconds: run_tool(["systemctl", *words], seconds),
        runner: t.Callable[[str], steps.Run] = steps.runner,
    ) -> None:
        self.state_dir = state_dir
        self.systemctl = systemctl
        self.runner = runner
        self.reported = ""

    def watch(self) -> int:
        """Check the lease until it is over; return the exit code."""
        while True:
            try:
                if self.look():
                    return 0
            except (ClusterError, OSError) as error:
                say(f"{error}")
                return 1
            time.sleep(LOOK_SECONDS)

    def look(self) -> bool:
        """End the lease when its caller is silent; return whether there is nothing left to watch."""
        lease = record.read(self.state_dir)
        if lease is None or lease["state"] == record.ENDED:
            return True
        if not self.why_due(lease) or self.is_restored_by_run(lease) or not self.claim():
            return False
        self.end(lease)
        return True

    def why_due(self, lease: record.Lease) -> str:
        """Return why the node has to end a lease, or to continue its end; empty when it does not have to."""
        if lease["state"] == record.ENDING:
            return lease["reason"]
        return record.why_lost(lease, boot_id(lease["roots"]["proc_root"]), record.boot_seconds())

    def is_restored_by_run(self, lease: record.Lease) -> bool:
        """Return whether a run works on a cluster that the node would start, after the lease's clusters stopped. It may be the caller."""
        for name in () if lease["clusters"] else lease["restore"]:
            blocker = ""
            try:
                if current := cluster_locks.read(cluster_locks.path_of(self.state_dir, name)):
                    blocker = f"a run works on {name}: {current.describe()}"
            except UnknownState as error:
                blocker = f"{name} is not started: {error}"
            if blocker:
                self.report(blocker)
                return True
        return False

    def claim(self) -> bool:
        """Take over the mode's lock from the silent caller, and record the end of the lease; False where another run works here, or the caller returned."""
        try:
            with cluster_locks.exclusive(record.folder_of(self.state_dir)), cluster_locks.exclusive(self.state_dir):
                lease = record.read(self.state_dir)
                reason = self.why_due(lease) if lease else ""
                if lease is None or not reason:
                    return False
                path = lock_path(self.state_dir)
                current = cluster_locks.read(path)
                if current and current.id != lease["id"] and current.holder.get("service") != record.UNIT:
                    self.report(f"the lease is lost, but another run works here: {current.describe()}")
                    return False
                cluster_locks.write(path, cluster_locks.dump(self.holder, utc_now()), replace=current is not None)
                record.write(self.state_dir, {**lease, "state": record.ENDING, "reason": reason})
                say(f"the lease of {record.of(lease)} ends: {reason}")
                return True
        except (ClusterError, OSError) as error:
            # Another program takes or releases the lock now, or the disk is full: the next check tries again.
            self.report(str(error))
            return False

    @property
    def holder(self) -> dict[str, t.Any]:
        return lock_holder(os.getpid(), service=record.UNIT)

    def report(self, message: str) -> None:
        """Write a line to the journal unless it repeats the last one."""
        if message != self.reported:
            say(message)
        self.reported = message

    def end(self, lease: record.Lease) -> None:
        """End a claimed lease, and update the mode record and the lock. Raises :class:`ClusterError` and OSError."""
        reason = (record.read(self.state_dir) or lease)["reason"]
        target = modes.former(self.mode())
        switching = {"mode": target["mode"], "clusters": target["clusters"], "phase": modes.SWITCHING, "reason": ""}
        try:
            self.declare(switching, f"the lease ends: {reason}")
        except ClusterError as error:
            # A full disk does not prevent the stop and the start.
            say(f"record of the mode: {error}")
        after, event = closing(lease, self.mode(), self.undo(lease))
        say(event)
        # A second end would stop the restored engines: writing is repeated until it succeeds.
        self.insist("record of the mode", lambda: modes.remove(self.state_dir) if after is None else self.declare(after, event))
        self.insist("record of the lease", lambda: record.write(self.state_dir, {**lease, "state": record.ENDED, "reason": clean(f"{reason}; {event}")}))
        with contextlib.suppress(FileNotFoundError), cluster_locks.exclusive(self.state_dir):
            current = cluster_locks.read(lock_path(self.state_dir))
            if current and current.id == cluster_locks.holder_id(self.holder):
                os.unlink(lock_path(self.state_dir))
        self.systemctl(("disable", "--quiet", record.UNIT), SYSTEMD_SECONDS)

    def mode(self) -> modes.Record:
        """Return the mode record, an empty one where it was removed."""
        nothing = {"mode": modes.OFF, "phase": modes.SWITCHING, "reason": "", "clusters": {}, "previous": {}, "changed_at": "", "events": []}
        return modes.read(self.state_dir) or nothing

    def declare(self, wanted: dict[str, t.Any], event: str) -> None:
        """Update the mode record."""
        modes.write(self.state_dir, modes.following(self.mode(), {**wanted, "reason": clean(wanted["reason"])}, utc_text(), clean(event)))

    def insist(self, what: str, write: t.Callable[[], None]) -> None:
        """Repeat a write until it succeeds, and log an error once."""
        while True:
            try:
                return write()
            except (ClusterError, OSError) as error:
                self.report(f"{what}: {error}; tried again until it is written")
            time.sleep(LOOK_SECONDS)

    def undo(self, lease: record.Lease) -> Result:
        """Stop the lease's engines, verify the memory, and start the former engines, unless a unit would not start after an unclean shutdown."""
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
        """Run a step, and return its failure as a line, none when it succeeds."""
        failed = []
        try:
            act()
        except (ClusterError, OSError) as error:
            failed = [f"{what}: {error}"]
        say(failed[0] if failed else f"{what}: done")
        return failed

    def await_head(self, awaits: t.Mapping[str, t.Any]) -> None:
        """Wait until the head has drained and stopped: a worker that stops first would interrupt its requests."""
        if not awaits:
            return
        for _elapsed in clock(awaits["seconds"], LOOK_SECONDS):
            if listeners.answers(awaits["address"], awaits["port"], PORT_SECONDS):
                return
        say(f"the head at {awaits['address']} still runs after {awaits['seconds']} s; this node's engine is stopped anyway")

    def specified(self, name: str) -> specification.Specification:
        """Return the specification of a cluster's unit."""
        return specification.read(os.path.join(unit_files.of_engine(self.state_dir, name).folder, specification.FILE))

    def run(self, words: t.Sequence[str], seconds: float) -> None:
        """Run systemctl. Raises :class:`ClusterError` when that fails."""
        answer = self.systemctl(words, seconds)
        if answer.rc:
            raise ClusterError(f"systemctl {' '.join(words)} ended with {answer.rc}: {answer.raw[:300]}")

    def unclean(self, lease: record.Lease, name: str) -> list[str]:
        """Return why a cluster's unit would not start at this boot, as a line, none when it would: its engine did not stop before the shutdown."""
        unit, boot = unit_files.of_engine(self.state_dir, name), boot_id(lease["roots"]["proc_root"])
        state = units.STOPPED
        try:
            once = os.path.lexists(os.path.join(unit.folder, specification.FILE)) and self.specified(name).get("unclean_boot") == boots.ONCE
            why = units.check_boot(unit.folder, boot, self.state_dir, unit.name, once)
        except (ClusterError, OSError) as error:
            state, why = units.REFUSED, str(error)
        if why:
            say(why)
            # The unit, which is not started, would record the same: a later start is a person's decision.
            with contextlib.suppress(OSError):
                units.write(unit.folder, boot, state, why)
        return [why] if state == units.REFUSED else []

    def stop(self, lease: record.Lease, name: str) -> None:
        """Stop a cluster's engine here through its unit, which drains it. Without a unit it was removed already. Raises :class:`ClusterError`."""
        unit = unit_files.of_engine(self.state_dir, name, lease["roots"]["etc_root"])
        if not os.path.lexists(unit.path):
            return
        self.run(("disable", "--quiet", unit.name), SYSTEMD_SECONDS)
        self.run(("stop", unit.name), text.stop_seconds(self.specified(name)) + MARGIN)

    def missing(self, lease: record.Lease, name: str) -> list[str]:
        """Return the message about memory that was not released, none when it was, or when nothing was noted before the start."""
        program = unit_files.of_engine(self.state_dir, name).program
        if not os.path.exists(program):
            return []
        arguments = {"source": "memory", "cluster_name": name, "state_dir": self.state_dir, "roots": lease["roots"], **lease["memory"]}
        result = steps.require("memory", self.runner(program)("node_samples_info", arguments, lease["memory"]["wait_timeout"] + MARGIN, False))
        say(f"memory: {result['msg']}")
        return [result["msg"]] if result["verdict"] in ("warn", "block") else []

    def start(self, name: str) -> None:
        """Enable and start a cluster's unit, which verifies a token. Raises :class:`ClusterError`."""
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
