# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of the guard is on a node. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import grp
import json
import os
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._guard import ring
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import installed
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit, path_of

#: Name of the unit, and the files below the state directory.
UNIT = "gb10-guard.service"
FOLDER, PROGRAM, CONFIG, RING, SERVED, SAID = "guard", "guard.pyz", "guard.json", "ring", "served.json", "said.json"
#: Bytes that are read of its settings and of what it said, and seconds for which the latter is told.
LIMIT, TOLD_SECONDS = 64 * 1024, 86400.0
#: What takes it away.
ABSENT = "-e gb10_guard=absent"
#: The line by which a unit file is known to be ours; the digest of all lines after it follows.
MARK = "# Written by gb10.cluster (playbook guard), "


def unit_of(state_dir: str, etc_root: str) -> Unit:
    """Return the unit."""
    return Unit(UNIT, (path_of(UNIT, etc_root),), os.path.join(state_dir, FOLDER), PROGRAM, MARK)


def ring_group() -> int:
    """Return the group that may read the ring: that of the journal, root's where there is none."""
    try:
        return grp.getgrnam("adm").gr_gid
    except KeyError:
        return 0


def ring_bytes(folder: str) -> int | None:
    """Return how many bytes a ring has, None where this process may not know."""
    found = 0
    try:
        paths = ring.segments(folder)
    except OSError:
        return None
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            found += os.stat(path).st_size
    return found


def _record(path: str) -> dict[str, t.Any] | None:
    """Return the mapping in a file of the guard's, None where there is none that can be read."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        with open(path, encoding="utf-8") as stream:
            found = json.loads(stream.read(LIMIT))
        return found if isinstance(found, dict) else None
    return None


def _said(path: str) -> dict[str, t.Any] | None:
    found = _record(path) or {}
    at, text = found.get("t"), found.get("text")
    fresh = isinstance(at, (int, float)) and isinstance(text, str) and abs(time.time() - at) <= TOLD_SECONDS
    return {"at": at, "text": text} if fresh else None


def guard(unit: Unit, timeout: float = 20) -> dict[str, t.Any]:
    """Return what there is (see ``installed.look``), ``ring`` and ``ring_bytes`` (None where it may not be read),
    ``older`` (an older version set it up, which knows no expected level), and what it did, or would have done, within a day (``said``)."""
    settings, rings = _record(os.path.join(unit.folder, CONFIG)), os.path.join(unit.folder, RING)
    older = settings is not None and "state_dir" not in settings
    return {
        **installed.look(unit, timeout), "ring": rings, "ring_bytes": ring_bytes(rings), "older": older, "said": _said(os.path.join(unit.folder, SAID)),
    }  # fmt: skip


def size(count: int) -> str:
    """Return bytes in MiB."""
    return f"{count / (1 << 20):.1f} MiB"


def _ring(found: dict[str, t.Any]) -> str:
    """Return how large the ring is and where; it holds lines of the kernel's log, which not everybody may read."""
    known = found.get("ring_bytes")
    return f"in {found['ring']}, of an unknown size: only root and its group may read it" if known is None else f"{size(known)} in {found['ring']}"


def text(found: dict[str, t.Any]) -> str:
    """Return what of the guard is on a node in a line, empty where there is nothing."""
    if found.get("installed"):
        state = {True: "active", False: "not active", None: "state not known"}[found.get("active")]
        parts = [f"guard: {state}, ring {_ring(found)}, {ABSENT} takes it away"]
        if found.get("older"):
            renew = "ansible-playbook -i inventories/NAME gb10.cluster.protect --tags guard"
            parts.append(f"an older version set it up, which ends ranks by the trend alone; {renew} renews it")
        if said := found.get("said"):
            parts.append(f"{time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime(said['at']))}: {said['text']}")
        return "; ".join(parts)
    if found.get("ring_bytes", 0) != 0:
        return f"guard: none, its ring is left ({_ring(found)}), {ABSENT} -e gb10_allow=forget removes it"
    return ""
