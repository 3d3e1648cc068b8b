# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of the guard is on a node. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._guard import ring
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit, path_of

#: Name of the unit, and the files below the state directory.
UNIT = "gb10-guard.service"
FOLDER, PROGRAM, CONFIG, RING, SERVED = "guard", "guard.pyz", "guard.json", "ring", "served.json"
#: The line by which a unit file is known to be ours; the digest of all lines after it follows.
MARK = "# Written by gb10.cluster (playbook guard), "


def unit_of(etc_root: str) -> Unit:
    """Return the unit."""
    return Unit(UNIT, (path_of(UNIT, etc_root),), MARK)


def ring_bytes(folder: str) -> int:
    """Return how many bytes a ring has."""
    found = 0
    for path in ring.segments(folder):
        with contextlib.suppress(FileNotFoundError):
            found += os.stat(path).st_size
    return found


def guard(state_dir: str, etc_root: str = "/etc", timeout: float = 20) -> dict[str, t.Any]:
    """Return what there is: ``installed``, what systemd says of it (None where it does not), ``ring`` and ``ring_bytes``."""
    rings, unit = os.path.join(state_dir, FOLDER, RING), unit_of(etc_root)
    about = {"installed": os.path.lexists(unit.path), **unit.state(timeout)._asdict(), "ring": rings, "ring_bytes": 0}
    with contextlib.suppress(OSError):
        about["ring_bytes"] = ring_bytes(rings)
    return about
