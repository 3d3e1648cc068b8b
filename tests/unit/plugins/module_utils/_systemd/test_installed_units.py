# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The line about a unit in a status."""

from __future__ import annotations

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import installed

NAME = "gb10-engine-gb10.service"
UNIT = {
    "name": NAME, "installed": True, "files": True, "enabled": True, "starting": False, "active": True, "failed": False, "state": "running", "reason": "",
    "at": "2026-11-24T02:10:00Z", "error": "",
}  # fmt: skip
GONE = {**UNIT, "installed": False, "enabled": False, "active": False}


@pytest.mark.parametrize(
    ("state", "line"),
    [
        ({}, ""),
        (UNIT, f"unit {NAME}: active, enabled"),
        ({**GONE, "files": False}, ""),
        (GONE, f"unit: none, but its files remain ({NAME})"),
        ({**UNIT, "error": "state.json is not JSON"}, "unit: state.json is not JSON"),
        ({**UNIT, "active": False, "starting": True, "state": "starting"}, f"unit {NAME}: starting, enabled (starting 2026-11-24T02:10:00Z)"),
        (
            {**UNIT, "active": False, "failed": True, "state": "failed", "reason": "the engine ended"},
            f"unit {NAME}: not active, enabled (failed 2026-11-24T02:10:00Z; the engine ended); systemctl start {NAME} starts it",
        ),
        ({**UNIT, "active": False, "enabled": False, "state": ""}, f"unit {NAME}: not active, not enabled (it never ran); systemctl start {NAME} starts it"),
        (
            {**UNIT, "enabled": None, "starting": None, "active": None},
            f"unit {NAME}: whether it is active is unknown, whether it is enabled is unknown (running 2026-11-24T02:10:00Z)",
        ),
    ],
)
def test_the_unit_of_a_node_is_one_line(state, line):
    assert installed.text(state) == line
