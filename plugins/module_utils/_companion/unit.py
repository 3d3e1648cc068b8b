# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An existing unit of the owner's that is a companion. This module util is PRIVATE to the collection.

It is started and stopped, and nothing else: it is never written, enabled or disabled.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import GONE, READ_LIMIT, read_whole
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.ask import RUNS, properties
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool

_PROPERTIES = ("LoadState", "ActiveState", "SubState", "UnitFileState", "Result")

#: States of a unit that is about to end or to begin (org.freedesktop.systemd1, ActiveState).
MOVES = ("activating", "deactivating")


class State(t.NamedTuple):
    """A unit by systemd's own words: whether its file was found, what it does, and how it ended."""

    load: str
    active: str
    sub: str
    enabled: str
    result: str

    @property
    def running(self) -> bool:
        return self.active in RUNS

    @property
    def holds_processes(self) -> bool:
        return self.active in (*RUNS, *MOVES)


def state(unit: str, timeout: float) -> State:
    """Return what systemd says of a unit. Raises :class:`UnknownState` when it does not say it."""
    found = properties(_PROPERTIES, [unit], timeout)[0]
    return State(*(found.get(name, "") for name in _PROPERTIES))


def require(unit: str, found: State, node: str) -> None:
    """Raise :class:`ClusterError` for a unit that is not there, or cannot be started."""
    if found.load == "not-found":
        raise ClusterError(
            f"{unit} is not a unit of {node}", remedy="Correct unit in gb10_companions (systemctl list-units --type service), or install it.", reason="no unit"
        )
    if found.load != "loaded":
        raise ClusterError(f"{unit} on {node} is {found.load}", remedy=f"See on the node: systemctl status {unit}", reason="unit")


def ask(unit: str, *words: str, timeout: float) -> None:
    """Have systemd do something, and do not wait for it. Raises :class:`ClusterError` when it refuses."""
    answer = run_tool(["systemctl", *words, unit], timeout)
    if answer.rc:
        raise ClusterError(f"systemctl {' '.join(words)} {unit} ended with {answer.rc}: {answer.raw[:300]}", remedy=f"systemctl status {unit}", reason="unit")


def processes(unit: str, pids: t.Iterable[int], root: str) -> list[int]:
    """Return those of the processes that run in a unit's own control group, or below it."""
    return [pid for pid in pids if unit in _groups(pid, root)]


def _groups(pid: int, root: str) -> set[str]:
    """Return the names in the paths of a process's control groups; none when it is gone or may not be seen."""
    try:
        text = read_whole(f"{root}/{pid}/cgroup", READ_LIMIT).decode("utf-8", "replace")
    except (*GONE, PermissionError):
        return set()
    # HIERARCHY:CONTROLLERS:PATH (cgroups(7)); a unit's name may hold a colon.
    return {part for line in text.splitlines() for part in line.split(":", 2)[-1].split("/") if part}
