# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit of a node's companions: starts at a boot the containers that the declared mode has, and stops them gently at a shutdown.

This module util is PRIVATE to the collection.
Each is started and stopped by the module ``companion`` with the arguments of the play that started it. A companion that does not come up keeps neither the
others nor the engine away.
"""

from __future__ import annotations

import os
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.documents import lacking
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import write_whole
from ansible_collections.gb10.cluster.plugins.module_utils._unit import record, service, specification, steps, unit_files
from ansible_collections.gb10.cluster.plugins.module_utils._unit.journal import notify, say
from ansible_collections.gb10.cluster.plugins.module_utils._unit.service import Service

MODULE = "companion"
#: Seconds between two looks whether systemd wants an end.
LOOK_SECONDS = 1.0

#: Seconds that the module may take beside waiting for a companion to answer or to end; half of them for the devices of the GPU to come.
MODULE_SECONDS = 240

#: The form of the specification, and what each companion in it has at least: it is the options of the module.
KEYS: dict[str, type] = {"companions": list, "state_dir": str, "roots": dict}
COMPANION_KEYS: dict[str, type] = {"name": str, "image": str, "health_timeout": int, "stop_timeout": int}


def wrong(given: t.Any) -> str:
    """Return what is wrong with a specification, empty when nothing is."""
    if problem := lacking(given, KEYS):
        return problem
    problems = (lacking(one, COMPANION_KEYS) for one in given["companions"])
    return next((f"companions: {problem}" for problem in problems if problem), "")


def read(path: str) -> specification.Specification:
    """Return the specification in a file. Raises UnknownState when it holds none."""
    return specification.read(path, wrong)


def names(given: specification.Specification) -> list[str]:
    """Return the names of the companions that the unit starts."""
    return [one["name"] for one in given["companions"]]


def seconds(one: t.Mapping[str, t.Any]) -> int:
    """Return the most seconds that a companion may take to be started, one that has to be replaced, or to be stopped."""
    return one["health_timeout"] + one["stop_timeout"] + MODULE_SECONDS


def path_of(state_dir: str) -> str:
    """Return where a node keeps the specification."""
    return os.path.join(unit_files.of_companions(state_dir).folder, specification.FILE)


def listed(state_dir: str, name: str) -> bool:
    """Return whether the unit of a node starts a companion. Raises UnknownState for a specification that cannot be read."""
    path = path_of(state_dir)
    return os.path.lexists(path) and name in names(read(path))


def leave_out(state_dir: str, name: str) -> None:
    """Let the unit of a node not start a companion any more. Raises OSError and UnknownState."""
    given = read(path_of(state_dir))
    kept = [one for one in given["companions"] if one["name"] != name]
    write_whole(path_of(state_dir), specification.dump({**given, "companions": kept}).encode())


class Companions(Service):
    """Runs one specification of companions. ``run`` runs a module."""

    leaves = "the companions run on"
    writer = "the playbook mode"

    def __init__(self, given: specification.Specification, run: steps.Run) -> None:
        super().__init__(given, unit_files.of_companions(given["state_dir"]), run)

    def begin(self) -> None:
        """Start the companions, and tell systemd that they are there, those that came up."""
        super().begin()
        self.require_noted()
        self.note(record.RUNNING, self.all_to("started", self.given["companions"]))
        notify("READY=1")

    def serve(self) -> int:
        """Wait until systemd wants an end."""
        while True:
            self.check_asked()
            self.catch_up()
            time.sleep(LOOK_SECONDS)

    def all_to(self, state: str, companions: t.Iterable[t.Mapping[str, t.Any]]) -> str:
        """Bring companions to a state; return what failed. One that fails keeps the others from nothing."""
        failed = []
        for one in companions:
            if self.asked and state == "started":
                break
            notify(f"STATUS={state}: {one['name']}")
            try:
                done = steps.require(one["name"], self.run(MODULE, {**one, "state": state, "comes_back": True}, seconds(one), False))
                say(done["msg"])
            except ClusterError as error:
                say(error.with_remedy())
                failed.append(str(error))
        return "; ".join(failed)

    def stop(self) -> str:
        """Stop the companions, those that were started last first, and return what failed. Those that a person or a play took out since are theirs."""
        path = os.path.join(self.folder, specification.FILE)
        left = read(path)["companions"] if os.path.lexists(path) else []
        return self.all_to("stopped", reversed(left))


def main(argv: t.Sequence[str]) -> int:
    """Run the unit of the companions by the specification that the command line names, and return the exit code."""
    return service.run(argv, lambda path, run: Companions(read(path), run))
