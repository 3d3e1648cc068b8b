# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The life of a unit's main process: what it records, how it begins at a boot, and how it ends. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import types
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, file_error
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit
from ansible_collections.gb10.cluster.plugins.module_utils._unit import record, steps, unit_files
from ansible_collections.gb10.cluster.plugins.module_utils._unit.journal import notify, say, say_faults


class StopAsked(Exception):
    """systemd wants the unit to end."""


class Service:
    """The main process of ``unit``, which does what the specification ``given`` says. ``run`` runs a module.

    ``leaves`` is what goes on without it when the unit is released, ``writer`` the play that installs it.
    """

    leaves: t.ClassVar[str]
    writer: t.ClassVar[str]

    def __init__(self, given: t.Mapping[str, t.Any], unit: Unit, run: steps.Run) -> None:
        self.given = given
        self.unit, self.folder = unit.name, unit.folder
        self.run = run
        self.boot = boot_id(given["roots"]["proc_root"])
        self.asked = False
        #: The note that could not be written, and why; None while all are.
        self.unnoted: tuple[str, str, OSError] | None = None

    def serve(self) -> int:
        """Start what the specification says, and stay until it ends; return the exit code. Raises :class:`StopAsked`."""
        raise NotImplementedError

    def stop(self) -> str:
        """Stop what was started; return what failed, empty when nothing did. Raises :class:`ClusterError`."""
        raise NotImplementedError

    def write(self, state: str, reason: str) -> None:
        """Record a state for a later boot and for readers. Raises OSError."""
        record.write(self.folder, self.boot, state, reason)

    def note(self, state: str, reason: str = "") -> None:
        """Record a state, and tell systemd. A full disk ends nothing that runs: the journal has what could not be written, which :meth:`catch_up` writes."""
        notify(f"STATUS={state}{f': {reason}' if reason else ''}")
        try:
            self.write(state, reason)
        except OSError as error:
            if not self.unnoted:
                say(f"not noted, {error.filename or self.folder}: {error.strerror or error}: {state}{f': {reason}' if reason else ''}")
            self.unnoted = (state, reason, error)
        else:
            if self.unnoted:
                say("the state is noted again")
            self.unnoted = None

    def catch_up(self) -> None:
        """Write the note that could not be written."""
        if self.unnoted:
            self.note(*self.unnoted[:2])

    def require_noted(self) -> None:
        """Raise :class:`ClusterError` when the start could not be noted: a power cut would go unseen that ends what is started now."""
        if self.unnoted:
            raise file_error(self.unnoted[2], self.folder, f"Run {self.writer} again.")

    def ask_to_stop(self, _number: int, _frame: types.FrameType | None) -> None:
        """Remember that systemd wants an end. A module at work is left to end by itself."""
        self.asked = True

    def check_asked(self) -> None:
        """Raise :class:`StopAsked` when systemd wants an end."""
        if self.asked:
            raise StopAsked

    def main(self) -> int:
        """Start, stay and stop; return the exit code."""
        try:
            try:
                self.begin()
                return self.serve()
            except StopAsked:
                return self.end()
        except ClusterError as error:
            return self.fail(str(error), error.remedy, record.REFUSED if error.reason == record.REFUSED else record.FAILED)
        except OSError as error:
            return self.fail(f"{error.filename or self.folder}: {error.strerror or error}", f"Run {self.writer} again.", record.FAILED)

    def begin(self) -> None:
        """Record the start. Raises :class:`ClusterError` when this boot follows a shutdown that was not clean."""
        if said := record.check_boot(self.folder, self.boot, self.given["state_dir"], self.unit):
            say(said)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.folder, unit_files.RELEASE))
        self.note(record.STARTING)

    def fail(self, reason: str, remedy: str, state: str) -> int:
        say(f"{state}: {reason}{f' Remedy: {remedy}' if remedy else ''}")
        self.note(state, reason)
        return 1

    def end(self) -> int:
        """Stop what was started, and return the exit code. A unit that was released leaves it running. Raises :class:`ClusterError`."""
        notify("STOPPING=1")
        release = os.path.join(self.folder, unit_files.RELEASE)
        if os.path.lexists(release):
            os.unlink(release)
            say(f"released: {self.leaves}")
            self.note(record.STOPPED, f"released: {self.leaves}")
            return 0
        self.asked = False
        if failed := self.stop():
            return self.fail(failed, "", record.FAILED)
        self.note(record.STOPPED, "stopped by systemd")
        say("stopped")
        return 0


def run(argv: t.Sequence[str], make: t.Callable[[str, steps.Run], Service]) -> int:
    """Run a unit by the specification that the command line names, and return the exit code. ``make`` makes it of that path, and of what runs modules."""
    if len(argv) != 1:
        say("usage: SPECIFICATION")
        return 2
    say_faults()
    try:
        service = make(argv[0], steps.runner(sys.argv[0]))
    except ClusterError as error:
        say(error.with_remedy())
        return 1
    signal.signal(signal.SIGTERM, service.ask_to_stop)
    signal.signal(signal.SIGINT, service.ask_to_stop)
    return service.main()
