# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An existing unit of the owner that is a companion. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import GONE, READ_LIMIT, read_bytes
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.ask import RUNS, properties
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool

_PROPERTIES = ("LoadState", "ActiveState", "Job")

#: States of a unit that starts or stops (org.freedesktop.systemd1, ActiveState).
MOVES = ("activating", "deactivating")
#: Lines of a unit's journal in a message about it.
JOURNAL_LINES = 20


class State(t.NamedTuple):
    """A unit's state according to systemd: its load state, its active state, and its pending job, empty without one."""

    load: str
    active: str
    job: str = ""

    @property
    def holds_processes(self) -> bool:
        """Return whether it has processes, or will have some."""
        return self.active in (*RUNS, *MOVES) or bool(self.job)


def state(unit: str, timeout: float) -> State:
    """Return the state of a unit. Raises :class:`UnknownState` when systemd does not report it."""
    values = properties(_PROPERTIES, [unit], timeout)[0]
    return State(*(values.get(name, "") for name in _PROPERTIES))


def journal(unit: str, timeout: float) -> str:
    """Return the last lines of a unit's journal. Raises :class:`UnknownState` when journalctl does not answer."""
    return run_tool(["journalctl", "--unit", unit, "--lines", str(JOURNAL_LINES), "--no-pager", "--output", "cat"], timeout).stdout.strip()


def processes(unit: str, pids: t.Iterable[int], root: str) -> list[int]:
    """Return the processes that run in a unit's own control group, or below it."""
    return [pid for pid in pids if unit in _groups(pid, root)]


def _groups(pid: int, root: str) -> set[str]:
    """Return the names in the paths of a process's control groups; none when it is gone or cannot be read."""
    with contextlib.suppress(*GONE, PermissionError):
        text = read_bytes(f"{root}/{pid}/cgroup", READ_LIMIT).decode("utf-8", "replace")
        # HIERARCHY:CONTROLLERS:PATH (cgroups(7)); a unit's name may contain a colon.
        return {part for line in text.splitlines() for part in line.split(":", 2)[-1].split("/") if part}
    return set()
