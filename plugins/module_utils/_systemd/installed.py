# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What there is of a unit on its node, and how that is said. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit

_STATE = {True: "active", False: "not active", None: "whether it is active is not known"}
_BOOT = {True: "enabled", False: "not enabled", None: "whether it is enabled is not known"}


def look(unit: Unit, timeout: float = 20) -> dict[str, t.Any]:
    """Return what there is of a unit: ``name``, ``installed``, ``files`` (whether its folder is there), ``enabled``, ``starting``, ``active`` and ``failed``
    (None where systemd does not say)."""
    return {"name": unit.name, "installed": os.path.lexists(unit.path), "files": os.path.lexists(unit.folder), **unit.state(timeout)._asdict()}


def text(found: t.Mapping[str, t.Any]) -> str:
    """Return the unit of a node in a line, empty where there is none."""
    if found.get("error"):
        return f"unit: {found['error']}"
    if not found.get("installed"):
        return f"unit: none, its files are left ({found['name']})" if found.get("files") else ""
    state = "starting" if found["starting"] else _STATE[found["active"]]
    state_at = "" if found["active"] else f"{found['state']} {found['at']}" if found["state"] else "it never ran"
    why = "; ".join(filter(None, (state_at, found["reason"])))
    again = f"; systemctl start {found['name']} starts it" if found["active"] is False and not found["starting"] else ""
    return f"unit {found['name']}: {state}, {_BOOT[found['enabled']]}{f' ({why})' if why else ''}{again}"
