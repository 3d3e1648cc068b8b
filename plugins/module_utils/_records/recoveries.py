# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of a cluster's recovery on a node: its last look, its recoveries, and how far one of them is. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._files.documents import Document, lacking

#: The folder below a cluster's state directory, and the file in it.
FOLDER, FILE = "recover", "state.json"

#: The beginning of the names of a cluster's units.
SERVICE = "gb10-recover-"

#: The result of a look: tokens flow or may flow, a fault, a fault shortly after a start, a start is under way, no engine is wanted, or not known.
WELL, FAULT, YOUNG, STARTING, OFF, UNKNOWN = "well", "fault", "young", "starting", "off", "unknown"
#: The results that are problems.
NAMED = (FAULT, YOUNG)

#: How far a recovery is on a node: it holds the lock and has kept evidence, it stops its part, that is stopped, its memory is available again, and it starts
#: again. Empty without a recovery, and where it was put off or stopped.
LOCKED, STOPPING, DOWN, BACK, UP = PHASES = ("locked", "stopping", "down", "back", "up")

#: The keys of a state. ``at_s`` is in seconds since the boot ``boot_id``. ``line`` is for status; ``shown`` is whether it shows it also while all is well.
#: ``own`` is what this node saw of itself, empty with an ``error``. ``incident`` identifies the fault, which ``count`` looks found; ``hold`` is why this node
#: would not act, and ``stopped`` why a person has to act. ``history`` has the recoveries of the last day, and at least the last one
#: (``boot_id``, ``at_s``, ``at``, ``why``, ``outcome``), and ``kernel`` how often each of the kernel's lines was logged when the engine was last well.
KEYS: dict[str, type] = {
    "boot_id": str, "at_s": float, "at": str, "seq": int, "line": str, "shown": bool, "kind": str, "text": str, "own": dict, "error": str, "incident": str,
    "count": int, "phase": str, "hold": str, "stopped": str, "history": list, "kernel": dict,
}  # fmt: skip
DOCUMENT = Document(
    "state", "the state of a recovery", 1, lambda state: lacking(state, KEYS), "Inspect {path}, then remove it: the next look writes it, with a new budget."
)


def path_of(state_dir: str, cluster: str) -> str:
    """Return the path of a cluster's state."""
    return os.path.join(state_dir, cluster, FOLDER, FILE)


def read(state_dir: str, cluster: str) -> dict[str, t.Any]:
    """Return a cluster's state, an empty one before the first look. Raises :class:`UnknownState` when it cannot be read: its budget is then unknown."""
    return DOCUMENT.read_keys(path_of(state_dir, cluster), KEYS) or {key: kind() for key, kind in KEYS.items()}


def problem(state: t.Mapping[str, t.Any]) -> str:
    """Return what a state reports to a person, empty when nothing."""
    return str(state["stopped"] or (state["text"] if state["kind"] in NAMED else ""))
