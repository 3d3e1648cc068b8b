# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What there is of a unit on its node. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit


def look(unit: Unit, timeout: float = 20) -> dict[str, t.Any]:
    """Return what there is of a unit: ``name``, ``installed``, ``files`` (whether its folder is there), ``enabled``, ``starting``, ``active`` and ``failed``
    (None where systemd does not say)."""
    return {"name": unit.name, "installed": os.path.lexists(unit.path), "files": os.path.lexists(unit.folder), **unit.state(timeout)._asdict()}
