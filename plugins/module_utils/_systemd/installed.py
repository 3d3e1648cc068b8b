# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of an installed unit, as data and as a line of text. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit

_STATE = {True: "active", False: "not active", None: "whether it is active is unknown"}
_BOOT = {True: "enabled", False: "not enabled", None: "whether it is enabled is unknown"}


def look(unit: Unit, timeout: float = 20) -> dict[str, t.Any]:
    """Return a unit's state: ``name``, ``installed``, ``files`` (whether its folder exists), ``enabled``, ``starting``, ``active`` and ``failed``
    (None when unknown)."""
    return {"name": unit.name, "installed": os.path.lexists(unit.path), "files": os.path.lexists(unit.folder), **unit.state(timeout)._asdict()}


def text(unit: t.Mapping[str, t.Any]) -> str:
    """Return a unit's state as a line, empty where there is no unit."""
    if unit.get("error"):
        return f"unit: {unit['error']}"
    if not unit.get("installed"):
        return f"unit: none, but its files remain ({unit['name']})" if unit.get("files") else ""
    state = "starting" if unit["starting"] else _STATE[unit["active"]]
    state_at = "" if unit["active"] else f"{unit['state']} {unit['at']}" if unit["state"] else "it never ran"
    why = "; ".join(filter(None, (state_at, unit["reason"])))
    again = f"; systemctl start {unit['name']} starts it" if unit["active"] is False and not unit["starting"] else ""
    return f"unit {unit['name']}: {state}, {_BOOT[unit['enabled']]}{f' ({why})' if why else ''}{again}"
