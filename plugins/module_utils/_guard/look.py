# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of the guard is on a node. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import os
import shutil
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._guard import ring
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool

#: Name of the unit, and the files below the state directory.
UNIT = "gb10-guard.service"
FOLDER, PROGRAM, CONFIG, RING, SERVED = "guard", "guard.pyz", "guard.json", "ring", "served.json"
#: The line by which a unit file is known to be ours.
MARK = "# Written by gb10.cluster (playbook guard)."

_LIMIT = 4 * 1024 * 1024


def unit_path(etc_root: str) -> str:
    """Return where the unit lies."""
    return os.path.join(etc_root, "systemd", "system", UNIT)


def content(path: str) -> bytes | None:
    """Return a small plain file, None when there is none. Raises OSError when it may not be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        if os.path.islink(path):
            return None
        raise
    with open(handle, "rb") as stream:
        return stream.read(_LIMIT)


def write(path: str, text: bytes) -> None:
    """Write a file that everybody may read, whole or not at all. Raises OSError."""
    beside = f"{path}.gb10-new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside)
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644), "wb") as stream:
        stream.write(text)
        stream.flush()
        os.fchmod(stream.fileno(), 0o644)
        os.fsync(stream.fileno())
    os.replace(beside, path)


def ring_bytes(folder: str) -> int:
    """Return how many bytes a ring has."""
    found = 0
    for path in ring.segments(folder):
        with contextlib.suppress(FileNotFoundError):
            found += os.stat(path).st_size
    return found


def guard(state_dir: str, etc_root: str = "/etc", timeout: float = 20) -> dict[str, t.Any]:
    """Return what there is: ``installed``, ``enabled``, ``active`` (None where systemd does not say), ``ring`` and ``ring_bytes``."""
    rings = os.path.join(state_dir, FOLDER, RING)
    about: dict[str, t.Any] = {"installed": os.path.lexists(unit_path(etc_root)), "enabled": False, "active": False, "ring": rings, "ring_bytes": 0}
    with contextlib.suppress(OSError):
        about["ring_bytes"] = ring_bytes(rings)
    if about["installed"] and shutil.which("systemctl"):
        try:
            said = run_tool(["systemctl", "show", "--property=ActiveState,UnitFileState", UNIT], timeout).stdout
        except ClusterError:
            return {**about, "enabled": None, "active": None}
        found = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
        about.update(enabled=found.get("UnitFileState") == "enabled", active=found.get("ActiveState") in ("active", "reloading"))
    return about
