# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of a unit of ours is on a node, an engine's or that of the companions, and whose it is. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._guard.look import content
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool
from ansible_collections.gb10.cluster.plugins.module_utils._unit import record

#: The files of one cluster's unit, below its state directory. Root alone may read them.
FOLDER, PROGRAM, RELEASE = "unit", "unit.pyz", "release"
#: The unit of a node's companions, and the directory of its files below the state directory.
COMPANIONS, COMPANIONS_FOLDER = "gb10-companions.service", "companions"
#: The line by which a unit file is known to be ours; the digest of all lines after it follows.
MARK = "# Written by gb10.cluster, "


class Place(t.NamedTuple):
    """A unit by its name, where its files lie, and where it lies itself."""

    name: str
    folder: str
    path: str


def of_engine(state_dir: str, cluster: str, etc_root: str = "/etc") -> Place:
    """Return the place of a cluster's unit."""
    return _place(unit_name(cluster), os.path.join(state_dir, cluster, FOLDER), etc_root)


def of_companions(state_dir: str, etc_root: str = "/etc") -> Place:
    """Return the place of the unit that starts a node's companions."""
    return _place(COMPANIONS, os.path.join(state_dir, COMPANIONS_FOLDER), etc_root)


def _place(name: str, folder: str, etc_root: str) -> Place:
    return Place(name, folder, os.path.join(etc_root, "systemd", "system", name))


def unit_name(cluster: str) -> str:
    """Return the name of a cluster's unit."""
    return f"gb10-engine-{cluster}.service"


def marked(body: str, mark: str = MARK) -> str:
    """Return a unit's text with the mark that says whose it is, and that nobody edited it since."""
    return f"{mark}sha256 {hashlib.sha256(body.encode()).hexdigest()}\n{body}"


def whose(text: bytes, mark: str = MARK) -> str:
    """Return ``ours``, ``edited`` for one of ours that somebody changed, or ``foreign``."""
    first, _end, body = text.decode("utf-8", "replace").partition("\n")
    if not first.startswith(mark):
        return "foreign"
    return "ours" if marked(body, mark).partition("\n")[0] == first else "edited"


def require_ours(path: str, mark: str = MARK) -> bytes | None:
    """Return the unit file, None when there is none. Raises :class:`ClusterError` for somebody else's, and for one that was edited."""
    there = content(path)
    if there is None and os.path.lexists(path):
        raise ClusterError(f"{path} is not a plain file", remedy=f"Look at it, and remove it when nobody needs it: {path}", reason="foreign unit")
    found = whose(there, mark) if there is not None else "ours"
    if found == "foreign":
        raise ClusterError(f"{path} is not this collection's", remedy=f"Look at it, and remove it when nobody needs it: {path}", reason="foreign unit")
    if found == "edited":
        raise ClusterError(
            f"{path} was edited by hand",
            remedy=f"Move your lines to {path}.d/local.conf, where they stay, remove {path}, and run again.",
            reason="unit edited",
        )
    return there


def unit(place: Place, timeout: float = 20) -> dict[str, t.Any]:
    """Return what there is of a unit: ``name``, ``installed``, ``enabled``, ``starting``, ``active`` and ``failed`` (None where systemd does not say).

    ``state``, ``reason`` and ``at`` are the last that the unit itself recorded, empty where it never ran; ``error`` says why the record cannot be read.
    """
    about: dict[str, t.Any] = {
        "name": place.name, "installed": os.path.lexists(place.path), "files": os.path.lexists(place.folder), "enabled": False, "starting": False,
        "active": False, "failed": False, "state": "", "reason": "", "at": "", "error": "",
    }  # fmt: skip
    try:
        noted = record.read(place.folder)
        about.update({key: noted[key] for key in ("state", "reason", "at")} if noted else {})
    except ClusterError as error:
        about["error"] = str(error)
    if about["installed"] and shutil.which("systemctl"):
        try:
            said = run_tool(["systemctl", "show", "--property=ActiveState,UnitFileState", place.name], timeout).stdout
        except ClusterError:
            return {**about, "enabled": None, "starting": None, "active": None, "failed": None}
        found = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
        state = found.get("ActiveState")
        about.update(
            enabled=found.get("UnitFileState") == "enabled",
            starting=state == "activating",
            active=state in ("active", "reloading"),
            failed=state == "failed",
        )
    return about


def write_private(path: str, text: bytes) -> None:
    """Write a file that root alone may read, whole or not at all. Raises OSError."""
    beside = f"{path}.gb10-new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside)
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(beside, path)
