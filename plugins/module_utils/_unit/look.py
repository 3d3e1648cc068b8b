# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of an engine's unit is on a node, and whose it is. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._guard.look import content
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool
from ansible_collections.gb10.cluster.plugins.module_utils._unit import glance, record

#: The files of one cluster's unit, below its state directory. Root alone may read them.
FOLDER, PROGRAM, RELEASE = "unit", "unit.pyz", "release"
#: The line by which a unit file is known to be ours; the digest of all lines after it follows.
MARK = "# Written by gb10.cluster (unit of an engine), "


def unit_name(cluster: str) -> str:
    """Return the name of a cluster's unit."""
    return f"gb10-engine-{cluster}.service"


def folder_of(state_dir: str, cluster: str) -> str:
    """Return where the files of a cluster's unit lie."""
    return os.path.join(state_dir, cluster, FOLDER)


def unit_path(etc_root: str, cluster: str) -> str:
    """Return where the unit itself lies."""
    return os.path.join(etc_root, "systemd", "system", unit_name(cluster))


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


def unit(state_dir: str, cluster: str, etc_root: str = "/etc", timeout: float = 20) -> dict[str, t.Any]:
    """Return what there is: ``name``, ``installed``, ``enabled``, ``active`` and ``failed`` (None where systemd does not say), and what it recorded.

    ``state`` and ``reason`` are the last that the unit itself recorded, empty where it never ran; ``error`` says why the record cannot be read.
    """
    name, path = unit_name(cluster), unit_path(etc_root, cluster)
    about: dict[str, t.Any] = {
        "name": name, "installed": os.path.lexists(path), "files": os.path.lexists(folder_of(state_dir, cluster)), "enabled": False, "active": False,
        "failed": False, "state": "", "reason": "", "at": "", "error": "",
    }  # fmt: skip
    try:
        noted = record.read(folder_of(state_dir, cluster))
        about.update({key: noted[key] for key in ("state", "reason", "at")} if noted else {})
    except ClusterError as error:
        about["error"] = str(error)
    if about["installed"] and shutil.which("systemctl"):
        try:
            said = run_tool(["systemctl", "show", "--property=ActiveState,UnitFileState", name], timeout).stdout
        except ClusterError:
            return {**about, "enabled": None, "active": None, "failed": None}
        found = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
        state = found.get("ActiveState")
        about.update(enabled=found.get("UnitFileState") == "enabled", active=state in ("active", "reloading"), failed=state == "failed")
    return about


def left(state_dir: str, cluster: str, etc_root: str = "/etc") -> list[str]:
    """Return the paths that there are of a unit."""
    paths = (unit_path(etc_root, cluster), folder_of(state_dir, cluster), glance.path_of(state_dir, cluster))
    return [path for path in paths if os.path.lexists(path)]


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
