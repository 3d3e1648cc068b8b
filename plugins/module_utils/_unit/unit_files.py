# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of a unit is on a node, an engine's or that of the companions. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit, path_of
from ansible_collections.gb10.cluster.plugins.module_utils._unit import record

#: The files of one cluster's unit, below its state directory. Root alone may read them.
FOLDER, PROGRAM, RELEASE = "unit", "unit.pyz", "release"
#: The unit of a node's companions, and the directory of its files below the state directory.
COMPANIONS, COMPANIONS_FOLDER = "gb10-companions.service", "companions"


class Place(t.NamedTuple):
    """A unit by its name, where its files lie, and where it lies itself."""

    name: str
    folder: str
    path: str

    @property
    def unit(self) -> Unit:
        """Return what systemd is asked of; it says why it is not there in its record."""
        return Unit(self.name, (self.path,), why=self._reason)

    def _reason(self) -> str:
        with contextlib.suppress(ClusterError):
            return (record.read(self.folder) or {"reason": ""})["reason"]
        return ""


def of_engine(state_dir: str, cluster: str, etc_root: str = "/etc") -> Place:
    """Return the place of a cluster's unit."""
    return _place(unit_name(cluster), os.path.join(state_dir, cluster, FOLDER), etc_root)


def of_companions(state_dir: str, etc_root: str = "/etc") -> Place:
    """Return the place of the unit that starts a node's companions."""
    return _place(COMPANIONS, os.path.join(state_dir, COMPANIONS_FOLDER), etc_root)


def _place(name: str, folder: str, etc_root: str) -> Place:
    return Place(name, folder, path_of(name, etc_root))


def unit_name(cluster: str) -> str:
    """Return the name of a cluster's unit."""
    return f"gb10-engine-{cluster}.service"


def unit(place: Place, timeout: float = 20) -> dict[str, t.Any]:
    """Return what there is of a unit: ``name``, ``installed``, ``enabled``, ``starting``, ``active`` and ``failed`` (None where systemd does not say).

    ``state``, ``reason`` and ``at`` are the last that the unit itself recorded, empty where it never ran; ``error`` says why the record cannot be read.
    """
    about: dict[str, t.Any] = {
        "name": place.name, "installed": os.path.lexists(place.path), "files": os.path.lexists(place.folder), **place.unit.state(timeout)._asdict(),
        "state": "", "reason": "", "at": "", "error": "",
    }  # fmt: skip
    try:
        noted = record.read(place.folder)
        about.update({key: noted[key] for key in ("state", "reason", "at")} if noted else {})
    except ClusterError as error:
        about["error"] = str(error)
    return about
