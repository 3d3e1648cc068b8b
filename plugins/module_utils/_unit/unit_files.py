# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of a node's units for engine and companions, and their state. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import glob
import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import installed
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit, path_of
from ansible_collections.gb10.cluster.plugins.module_utils._unit import record

#: The files of a cluster's unit below its state directory. Only root may read them. While RELEASE exists, a stop leaves the engine or companions running.
FOLDER, PROGRAM, RELEASE = "unit", "unit.pyz", "release"
#: The unit of a node's companions, and the directory of its files below the state directory.
COMPANIONS, COMPANIONS_FOLDER = "gb10-companions.service", "companions"


def of_engine(state_dir: str, cluster: str, etc_root: str = "/etc") -> Unit:
    """Return a cluster's unit."""
    return _unit(unit_name(cluster), os.path.join(state_dir, cluster, FOLDER), etc_root)


def of_companions(state_dir: str, etc_root: str = "/etc") -> Unit:
    """Return the unit that starts a node's companions."""
    return _unit(COMPANIONS, os.path.join(state_dir, COMPANIONS_FOLDER), etc_root)


def _unit(name: str, folder: str, etc_root: str) -> Unit:
    def why() -> str:
        with contextlib.suppress(ClusterError):
            return (record.read(folder) or {"reason": ""})["reason"]
        return ""

    return Unit(name, (path_of(name, etc_root),), folder, PROGRAM, why=why)


def unit_name(cluster: str) -> str:
    """Return the name of a cluster's unit."""
    return f"gb10-engine-{cluster}.service"


def clusters(etc_root: str = "/etc") -> list[str]:
    """Return the clusters whose engine has a unit on this node."""
    begin, end = unit_name("*").split("*")
    return sorted(os.path.basename(path).removeprefix(begin).removesuffix(end) for path in glob.glob(path_of(unit_name("*"), etc_root)))


def unit(place: Unit, timeout: float = 20) -> dict[str, t.Any]:
    """Return the state of a unit (see ``installed.look``).

    ``state``, ``reason`` and ``at`` are the last that the unit recorded, empty where it never ran; ``error`` is the reason why the record cannot be read.
    """
    noted, unread = None, ""
    try:
        noted = record.read(place.folder)
    except ClusterError as error:
        unread = str(error)
    return {**installed.look(place, timeout), **{key: noted[key] if noted else "" for key in ("state", "reason", "at")}, "error": unread}
