# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of the guard on a node, and its state. This module util is PRIVATE to the collection."""

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
#: The most bytes of one of its JSON files, and the seconds for which its last message is shown.
LIMIT, SHOWN_SECONDS = 1024 * 1024, 86400.0
#: The option that removes it.
ABSENT = "-e gb10_guard=absent"
#: The first line of its unit file; the digest of all lines after it follows.
MARK = "# Written by gb10.cluster (playbook guard), "


def unit_of(state_dir: str, etc_root: str) -> Unit:
    """Return the unit."""
    return Unit(UNIT, (path_of(UNIT, etc_root),), os.path.join(state_dir, FOLDER), PROGRAM, MARK)


def ring_group() -> int:
    """Return the group that may read the ring: the journal's group, root's where there is none."""
    try:
        return grp.getgrnam("adm").gr_gid
    except KeyError:
        return 0


def ring_bytes(folder: str) -> int | None:
    """Return the size of a ring in bytes, None where it may not be read."""
    try:
        return sum(os.stat(path).st_size for path in ring.segments(folder) if os.path.exists(path))
    except OSError:
        return None


def record(path: str) -> dict[str, t.Any]:
    """Return the mapping in a JSON file, empty when there is none or it cannot be read."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        with open(path, encoding="utf-8") as stream:
            content = json.loads(stream.read(LIMIT))
        return content if isinstance(content, dict) else {}
    return {}


def _last_message(path: str) -> dict[str, t.Any] | None:
    message = record(path)
    at, line = message.get("t"), message.get("text")
    fresh = isinstance(at, (int, float)) and isinstance(line, str) and abs(time.time() - at) <= SHOWN_SECONDS
    return {"at": at, "text": line} if fresh else None


def guard(unit: Unit, timeout: float = 20) -> dict[str, t.Any]:
    """Return the guard's state (see ``installed.look``), ``ring`` and ``ring_bytes`` (None where it may not be read),
    ``older`` (an older version without expected levels installed it), and its last action, or the action it would have taken, within a day (``said``)."""
    settings, rings = record(os.path.join(unit.folder, CONFIG)), os.path.join(unit.folder, RING)
    return {
        **installed.look(unit, timeout), "ring": rings, "ring_bytes": ring_bytes(rings), "older": bool(settings) and "state_dir" not in settings,
        "said": _last_message(os.path.join(unit.folder, SAID)),
    }  # fmt: skip


def _ring(facts: dict[str, t.Any]) -> str:
    """Return the ring's size and path. It contains lines of the kernel's log, which not all accounts may read."""
    known = facts.get("ring_bytes")
    return f"in {facts['ring']}, size unknown: only root and its group may read it" if known is None else f"{known / (1 << 20):.1f} MiB in {facts['ring']}"


def text(facts: dict[str, t.Any]) -> str:
    """Return the guard's state as a line, empty when neither the guard nor its ring exists."""
    if facts.get("installed"):
        state = {True: "active", False: "not active", None: "state unknown"}[facts.get("active")]
        parts = [f"guard: {state}, ring {_ring(facts)}, {ABSENT} removes it"]
        if facts.get("older"):
            renew = "ansible-playbook -i inventories/NAME gb10.cluster.protect --tags guard"
            parts.append(f"an older version installed it, which ends ranks based on the trend only; {renew} renews it")
        if message := facts.get("said"):
            parts.append(f"{time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime(message['at']))}: {message['text']}")
        return "; ".join(parts)
    return f"guard: none, but its ring remains ({_ring(facts)}), {ABSENT} -e gb10_allow=forget removes it" if facts.get("ring_bytes", 0) != 0 else ""
