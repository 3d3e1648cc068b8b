# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What our units on the nodes say of themselves. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

_STATE = {True: "active", False: "not active", None: "whether it is active is not known"}
_BOOT = {True: "enabled", False: "not enabled", None: "whether it is enabled is not known"}


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
