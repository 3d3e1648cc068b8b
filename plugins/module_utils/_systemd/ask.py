# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What systemd says of units. This module util is PRIVATE to the collection."""

from __future__ import annotations

import shutil
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool

#: States of a unit that runs (org.freedesktop.systemd1, ActiveState).
RUNS = ("active", "reloading", "refreshing")


class State(t.NamedTuple):
    """Whether a unit is started at boot, starts just now, runs, and failed. None where systemd does not say."""

    enabled: bool | None = False
    starting: bool | None = False
    active: bool | None = False
    failed: bool | None = False


def properties(names: t.Sequence[str], units: t.Sequence[str], timeout: float) -> list[dict[str, str]]:
    """Return these properties of each of the units, in their order. Raises :class:`UnknownState` when systemd does not say them."""
    said = run_tool(["systemctl", "show", f"--property={','.join(names)}", *units], timeout)
    # One block a unit, with an empty line between them.
    found = [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in said.stdout.strip().split("\n\n")]
    if said.rc or len(found) != len(units) or not all("ActiveState" in one for one in found):
        what = ", ".join(units)
        raise UnknownState(f"systemd does not say what {what} does", remedy=f"See on the node: systemctl status {' '.join(units)}", raw=said.raw[:2000])
    return found


def states(timeout: float, *units: str) -> list[State]:
    """Return what units do, in their order. On a node without systemd they do nothing."""
    if shutil.which("systemctl") is None:
        return [State()] * len(units)
    try:
        found = properties(("ActiveState", "UnitFileState"), units, timeout)
    except ClusterError:
        return [State(None, None, None, None)] * len(units)
    return [
        State(one.get("UnitFileState") == "enabled", one["ActiveState"] == "activating", one["ActiveState"] in RUNS, one["ActiveState"] == "failed")
        for one in found
    ]
