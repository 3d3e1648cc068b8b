# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The main process of a unit: its state record, its start at boot, and its end. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import types
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import boot_seconds
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, file_error
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit
from ansible_collections.gb10.cluster.plugins.module_utils._unit import boots, record, steps, unit_files
from ansible_collections.gb10.cluster.plugins.module_utils._unit.journal import log_uncaught_errors, notify, say


class StopAsked(Exception):
    """systemd requested the unit to stop."""


def reasoned(state: str, reason: str) -> str:
    """Return a state with its reason, if any, as one text."""
    return f"{state}: {reason}" if reason else state


class Service:
    """The main process of ``unit``, which runs the specification ``given``. ``run`` runs a module.

    ``leaves`` names what keeps running after the unit was released, ``writer`` the play that installs it.
    """

    leaves: t.ClassVar[str]
    writer: t.ClassVar[str]

    def __init__(self, given: t.Mapping[str, t.Any], unit: Unit, run: steps.Run) -> None:
        self.given = given
        self.unit, self.folder = unit.name, unit.folder
        self.run = run
        self.boot = boot_id(given["roots"]["proc_root"])
        self.asked = False
        #: Why it came back after an unclean boot, empty when it did not; and since when it runs, in seconds since the boot, 0 once an hour is recorded.
        self.came_back, self.since_s = "", boot_seconds()
        #: The record that could not be written, and why; None while all are.
        self.unnoted: tuple[str, str, OSError] | None = None

    def serve(self) -> int:
        """Watch what was started until it ends; return the exit code. Raises :class:`StopAsked`."""
        raise NotImplementedError

    def stop(self) -> str:
        """Stop what was started; return the failures, empty without one. Raises :class:`ClusterError`."""
        raise NotImplementedError

    def write(self, state: str, reason: str) -> None:
        """Record a state for a later boot and for readers. Raises OSError."""
        record.write(self.folder, self.boot, state, reason)

    def note(self, state: str, reason: str = "") -> None:
        """Record a state, and notify systemd. On a full disk the state goes to the journal, and :meth:`catch_up` records it later."""
        notify(f"STATUS={reasoned(state, reason)}")
        try:
            self.write(state, reason)
        except OSError as error:
            if not self.unnoted:
                say(f"not recorded, {error.filename or self.folder}: {error.strerror or error}: {reasoned(state, reason)}")
            self.unnoted = (state, reason, error)
        else:
            if self.unnoted:
                say("the state is recorded again")
            self.unnoted = None

    def catch_up(self) -> None:
        """Record the state that could not be written, and once, that the unit has run long enough for unclean boots to no longer count."""
        if self.unnoted:
            self.note(*self.unnoted[:2])
        if self.since_s and boot_seconds() - self.since_s >= boots.SECONDS:
            self.since_s = 0.0
            try:
                boots.outlast(self.given["state_dir"])
            except (ClusterError, OSError) as error:
                say(f"unclean boots still count: {error}")

    def require_noted(self) -> None:
        """Raise :class:`ClusterError` when the start could not be recorded: a later boot could not detect a power cut."""
        if self.unnoted:
            raise file_error(self.unnoted[2], self.folder, f"Run {self.writer} again.")

    def ask_to_stop(self, _number: int, _frame: types.FrameType | None) -> None:
        """Remember systemd's stop request. A running module is not interrupted."""
        self.asked = True

    def check_asked(self) -> None:
        """Raise :class:`StopAsked` after a stop request from systemd."""
        if self.asked:
            raise StopAsked

    def main(self) -> int:
        """Start, watch and stop; return the exit code."""
        try:
            try:
                self.begin()
                return self.serve()
            except StopAsked:
                return self.end()
        except ClusterError as error:
            return self.fail(str(error), error.remedy, record.REFUSED if error.reason == record.REFUSED else record.FAILED)
        except OSError as error:
            failure = file_error(error, self.folder, f"Run {self.writer} again.")
            return self.fail(str(failure), failure.remedy, record.FAILED)

    def begin(self) -> None:
        """Record the start. Raises :class:`ClusterError` when this boot follows an unclean shutdown after which it must not start."""
        once = self.given.get("unclean_boot") == boots.ONCE
        self.came_back = record.check_boot(self.folder, self.boot, self.given["state_dir"], self.unit, once)
        if self.came_back:
            say(self.came_back)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.folder, unit_files.RELEASE))
        self.note(record.STARTING, self.came_back)

    def fail(self, reason: str, remedy: str, state: str) -> int:
        say(f"{state}: {reason}{f' Remedy: {remedy}' if remedy else ''}")
        self.note(state, reason)
        return 1

    def end(self) -> int:
        """Stop what was started, and return the exit code. A released unit leaves it running. Raises :class:`ClusterError`."""
        notify("STOPPING=1")
        release, reason, line = os.path.join(self.folder, unit_files.RELEASE), "stopped by systemd", "stopped"
        if os.path.lexists(release):
            os.unlink(release)
            reason = line = f"released: {self.leaves}"
        else:
            self.asked = False
            if failed := self.stop():
                return self.fail(failed, "", record.FAILED)
        self.note(record.STOPPED, reason)
        say(line)
        return 0


def run(argv: t.Sequence[str], make: t.Callable[[str, steps.Run], Service]) -> int:
    """Run a unit with the specification that the command line names, and return the exit code. ``make`` takes its path and the runner of modules."""
    if len(argv) != 1:
        say("usage: SPECIFICATION")
        return 2
    log_uncaught_errors()
    try:
        service = make(argv[0], steps.runner(sys.argv[0]))
    except ClusterError as error:
        say(error.with_remedy())
        return 1
    signal.signal(signal.SIGTERM, service.ask_to_stop)
    signal.signal(signal.SIGINT, service.ask_to_stop)
    return service.main()
