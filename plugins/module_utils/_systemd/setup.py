# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Units and their files: written where they differ, enabled, started and removed. This module util is PRIVATE to the collection.

Each object decides when it is created, and acts when its methods are called: a module in check mode only omits these calls.
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

#: The files of a unit's folder, for a message.
PROGRAMS = "the programs of root's units"


def shown(content: bytes | None) -> str:
    """Return a file's content for a diff."""
    return (content or b"").decode("utf-8", "replace")


class Files:
    """The wanted files of a unit by path, in the order in which they are written, its unit files among them. ``mode`` is the mode of the other files.

    Raises :class:`ClusterError` for a foreign or edited unit file, and where another account could replace a program.
    """

    def __init__(self, unit: Unit, wanted: t.Mapping[str, bytes], mode: int = 0o600) -> None:
        unit.require_ours()
        for folder in {os.path.dirname(path) for path in wanted if path not in unit.paths}:
            private.check(folder, PROGRAMS)
        self._unit, self._wanted, self._mode = unit, wanted, mode
        self._before = {path: plain_content(path) for path in wanted}
        self.differing = [path for path in wanted if self._before[path] != wanted[path]]

    @property
    def diff(self) -> dict[str, dict[str, str]]:
        before, after = ({path: shown(contents[path]) for path in self.differing} for contents in (self._before, self._wanted))
        return {"before": before, "after": after}

    def write(self, timeout: float) -> None:
        """Write the differing files, and reload systemd when a unit file is among them. Raises :class:`ClusterError` and OSError."""
        for path in self.differing:
            write_whole(path, self._wanted[path], 0o644 if path in self._unit.paths else self._mode)
        if set(self._unit.paths) & set(self.differing):
            self._unit.systemctl(timeout, "daemon-reload")


class Start:
    """Enables or disables a unit, and starts it. A running unit is restarted when ``stale``, and ``leaves`` names what keeps running meanwhile.

    With ``again`` it has to stop first. A starting unit has to when it ``waits``, since it may wait for a lock of the calling run.
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
    """Return the end of an action's text that leaves something running."""
    return f", which leaves {what} running" if what else ""


def remove(unit: Unit, timeout: float) -> None:
    """Stop and disable a unit, and remove its unit files. Raises :class:`ClusterError`, also for a foreign unit file, and OSError."""
    paths = unit.require_ours()
    if not paths:
        return
    names = list(map(os.path.basename, paths))
    unit.systemctl(timeout, "disable", "--quiet", "--now", unit.name)
    if others := [name for name in unit.others if name in names]:
        unit.systemctl(timeout, "stop", *others)
    for path in paths:
        os.unlink(path)
    unit.systemctl(timeout, "daemon-reload")
    # Otherwise systemd lists a failed unit forever. For a unit that did not fail this command returns an error, which is ignored.
    run_tool(["systemctl", "reset-failed", *names], timeout)


@contextlib.contextmanager
def failures(place: str) -> t.Iterator[None]:
    """Turn an OSError into a :class:`ClusterError` that names the file, or ``place``."""
    try:
        yield
    except OSError as error:
        raise file_error(error, place, BECOME if isinstance(error, PermissionError) else "Correct the cause; the next run continues.") from error


def result_of(actions: t.Sequence[str], check_mode: bool, nothing: str) -> dict[str, t.Any]:
    """Return the part of a module's result about its actions; ``nothing`` is the message without one."""
    return {"actions": actions, "changed": bool(actions), "msg": f"{'would ' if check_mode else ''}{'; '.join(actions)}" if actions else nothing}
