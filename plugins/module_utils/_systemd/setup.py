# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Units of ours and their files: written where something differs, enabled and started, and taken away. This module util is PRIVATE to the collection.

Each piece is decided when it is made, and done when its methods are called, so that a module in check mode leaves out these calls alone.
"""

from __future__ import annotations

import contextlib
import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import file_error
from ansible_collections.gb10.cluster.plugins.module_utils._files import private
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import plain_content, write_whole
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool

#: What lies beside a unit file, for a message.
PROGRAMS = "the programs of root's units"


def shown(found: bytes | None) -> str:
    """Return a file's content for a diff."""
    return (found or b"").decode("utf-8", "replace")


class Files:
    """The files that a unit is to have, by their paths, in the order in which they are written, its unit files among them. ``mode`` is that of the others.

    Raises :class:`ClusterError` where a unit file is somebody else's, or was edited, and where another account could put another program in the place of one.
    """

    def __init__(self, unit: Unit, wanted: t.Mapping[str, bytes], mode: int = 0o600) -> None:
        unit.require_ours()
        for folder in {os.path.dirname(path) for path in wanted if path not in unit.paths}:
            private.check(folder, PROGRAMS)
        self._unit, self._wanted, self._mode = unit, wanted, mode
        self._before = {path: plain_content(path) for path in wanted}
        self.differing = [path for path in wanted if self._before[path] != wanted[path]]
        self.actions = [f"write {path}" for path in self.differing]

    @property
    def diff(self) -> dict[str, dict[str, str]]:
        before, after = ({path: shown(found[path]) for path in self.differing} for found in (self._before, self._wanted))
        return {"before": before, "after": after}

    def write(self, timeout: float) -> None:
        """Write those that differ, and tell systemd where a unit file is one of them. Raises :class:`ClusterError` and OSError."""
        for path in self.differing:
            write_whole(path, self._wanted[path], 0o644 if path in self._unit.paths else self._mode)
        if set(self._unit.paths) & set(self.differing):
            self._unit.systemctl(timeout, "daemon-reload")


class Start:
    """How a unit comes to be enabled, or disabled, and to run. One that runs is started again where ``stale``, and ``leaves`` something running then.

    ``again`` says that it has to end before. One that is only starting does where ``waits``, since it may wait for whoever asks, and goes on otherwise.
    """

    def __init__(self, unit: Unit, timeout: float, stale: bool, enabled: bool = True, leaves: str = "", waits: bool = False) -> None:
        self._unit, self._timeout = unit, timeout
        now = unit.state(timeout)
        self._enable = "" if now.enabled is enabled else "enable" if enabled else "disable"
        self.needed = stale or not now.active
        self.again = bool(now.active and stale or now.starting and (stale or waits))
        self.actions = [f"{self._enable} {unit.name}"] if self._enable else []
        if self.needed:
            self.actions.append(f"restart {unit.name}{leaving(leaves)}" if self.again else f"start {unit.name}")

    def apply(self, verb: str = "restart", seconds: float = 0) -> None:
        """Enable or disable and start it. Raises :class:`ClusterError`."""
        if self._enable:
            self._unit.systemctl(self._timeout, self._enable, "--quiet", self._unit.name)
        if self.needed:
            self._unit.systemctl(seconds or self._timeout, verb, self._unit.name)


def leaving(what: str) -> str:
    """Return how an action goes on that leaves something running."""
    return f", which leaves {what} running" if what else ""


def remove(unit: Unit, timeout: float) -> None:
    """Stop and disable a unit, and remove its unit files. Raises :class:`ClusterError`, also for somebody else's, and OSError."""
    there = unit.require_ours()
    if not there:
        return
    others = [name for name in map(os.path.basename, there) if name != unit.name]
    unit.systemctl(timeout, "disable", "--quiet", "--now", unit.name)
    if others:
        unit.systemctl(timeout, "stop", *others)
    for path in there:
        os.unlink(path)
    unit.systemctl(timeout, "daemon-reload")
    # Else systemd lists one that failed last for ever. One that did not is no unit that it knows any more, which it answers with an error.
    run_tool(["systemctl", "reset-failed", *map(os.path.basename, there)], timeout)


def gone(there: t.Mapping[str, bytes]) -> dict[str, dict[str, str]]:
    """Return the diff of unit files that go."""
    return {"before": {path: shown(there[path]) for path in there}, "after": {}}


@contextlib.contextmanager
def failures(place: str) -> t.Iterator[None]:
    """Turn an OSError into a :class:`ClusterError` that names the file, or ``place``."""
    try:
        yield
    except OSError as error:
        raise file_error(error, place, BECOME if isinstance(error, PermissionError) else "See the message; the next run goes on from there.") from error


def said(actions: t.Sequence[str], check_mode: bool, nothing: str) -> dict[str, t.Any]:
    """Return what a module's result says of actions, in words, too; ``nothing`` are those for none."""
    would = "would " if check_mode else ""
    return {"actions": actions, "changed": bool(actions), "msg": f"{would}{'; '.join(actions)}" if actions else nothing}
