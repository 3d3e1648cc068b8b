# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of units according to systemd. This module util is PRIVATE to the collection."""

from __future__ import annotations

import shutil
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool

#: States of a running unit (org.freedesktop.systemd1, ActiveState).
RUNS = ("active", "reloading", "refreshing")


class State(t.NamedTuple):
    """Whether a unit starts at boot, is starting now, runs, and failed. None when unknown."""

    enabled: bool | None = False
    starting: bool | None = False
    active: bool | None = False
    failed: bool | None = False


def properties(names: t.Sequence[str], units: t.Sequence[str], timeout: float) -> list[dict[str, str]]:
    """Return these properties of each unit, in order. Raises :class:`UnknownState` when systemd does not answer."""
    answer = run_tool(["systemctl", "show", f"--property={','.join(names)}", *units], timeout)
    # One block a unit, with an empty line between them.
    blocks = [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in answer.stdout.strip().split("\n\n")]
    if answer.rc or len(blocks) != len(units) or not all("ActiveState" in block for block in blocks):
        remedy = f"Run on the node: systemctl status {' '.join(units)}"
        raise UnknownState(f"systemd does not report the state of {', '.join(units)}", remedy=remedy, raw=answer.raw[:2000])
    return blocks


def states(timeout: float, *units: str) -> list[State]:
    """Return the state of units, in order. On a node without systemd none runs."""
    if shutil.which("systemctl") is None:
        return [State()] * len(units)
    try:
        blocks = properties(("ActiveState", "UnitFileState"), units, timeout)
    except ClusterError:
        return [State(None, None, None, None)] * len(units)
    return [
        State(block.get("UnitFileState") == "enabled", block["ActiveState"] == "activating", block["ActiveState"] in RUNS, block["ActiveState"] == "failed")
        for block in blocks
    ]
