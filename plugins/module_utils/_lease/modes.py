# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The declared mode of a node's cluster, on record: what serves there, what did before, and what happened last. This module util is PRIVATE to the collection.

Everybody may read the record, since a look at it should need no rights: it holds no secrets.
"""

from __future__ import annotations

import contextlib
import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, file_error
from ansible_collections.gb10.cluster.plugins.module_utils._files.documents import Document, lacking
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME

#: What a cluster can be declared to be: one engine over all nodes, one on each, or nothing.
CLUSTER, SINGLES, OFF = "cluster", "singles", "off"
MODES = (CLUSTER, SINGLES, OFF)

#: How far that is: everything was proven; a change is under way, or was interrupted; it failed; memory did not come back, so nothing was started; it is there
#: for a lease alone.
SETTLED, SWITCHING, FAILED, LEAK, LEASED = "settled", "switching", "failed", "leak", "leased"
PHASES = (SETTLED, SWITCHING, FAILED, LEAK, LEASED)

#: Events that a record keeps; the oldest go.
EVENTS = 20

Record = dict[str, t.Any]

#: ``clusters`` maps the name of each cluster that the mode has to ``profile`` (its id), ``source`` (the id or path that chose it) and ``nodes``. ``previous``
#: is the last record that was settled, without its own events and previous one; empty when there was none.
KEYS: dict[str, type] = {"mode": str, "phase": str, "reason": str, "clusters": dict, "previous": dict, "changed_at": str, "events": list}
#: What a record and the one before it have in common.
SHAPE = ("mode", "phase", "reason", "clusters")
CLUSTER_KEYS: dict[str, type] = {"profile": str, "source": str, "nodes": list}
EVENT_KEYS: dict[str, type] = {"at": str, "text": str}


def path_of(state_dir: str) -> str:
    """Return where a node keeps its mode."""
    return os.path.join(state_dir, "mode.json")


def wrong(record: t.Any) -> str:
    """Return what is missing or of another type in a record, empty when nothing is."""
    if problem := lacking(record, KEYS):
        return problem
    for word, known in (("mode", MODES), ("phase", PHASES)):
        if record[word] not in known:
            return f"{word} is {record[word]!r}, expected one of {', '.join(known)}"
    problems = [lacking(one, CLUSTER_KEYS) for one in record["clusters"].values()] + [lacking(one, EVENT_KEYS) for one in record["events"]]
    return next((problem for problem in problems if problem), "")


DOCUMENT = Document("mode", "the record of a mode", 1, wrong, "Look at {path}, remove it, and declare the mode again with the playbook mode.")


def read(state_dir: str) -> Record | None:
    """Return the record of a node, None when no mode was ever declared. Raises :class:`UnknownState` when it holds something else or may not be read."""
    content = DOCUMENT.read(path_of(state_dir))
    return {key: content[key] for key in KEYS} if content else None


def following(before: Record | None, wanted: Record, now: str, event: str = "") -> Record:
    """Return the record after ``before`` that says ``wanted`` (the keys of :data:`SHAPE`), with one more event unless it is empty.

    What was settled stays as ``previous`` until something else has settled.
    """
    events = [*(before["events"] if before else []), *([{"at": now, "text": event}] if event else [])][-EVENTS:]
    settled = before if before and before["phase"] == SETTLED else None
    previous = {key: settled[key] for key in SHAPE} if settled and not same(settled, wanted) else before["previous"] if before else {}
    changed_at = before["changed_at"] if before and same(before, wanted) else now
    return {**{key: wanted[key] for key in SHAPE}, "previous": previous, "changed_at": changed_at, "events": events}


def former(before: Record) -> dict[str, t.Any]:
    """Return mode and clusters of what was settled last; off where nothing was."""
    return before if before.get("phase") == SETTLED else before.get("previous") or {"mode": OFF, "clusters": {}}


def same(one: t.Mapping[str, t.Any], other: t.Mapping[str, t.Any]) -> bool:
    """Return whether two records say the same."""
    return all(one[key] == other[key] for key in SHAPE)


def write(state_dir: str, record: Record) -> None:
    """Write the record, for everybody to read. Raises :class:`ClusterError` when that is not possible."""
    path = path_of(state_dir)
    try:
        os.makedirs(state_dir, mode=0o755, exist_ok=True)
        DOCUMENT.write(path, record)
    except OSError as error:
        raise file_error(error, path, BECOME, "write", " cannot be written") from error


def remove(state_dir: str) -> None:
    """Remove the record, if there is one. Raises :class:`ClusterError` when that is not possible."""
    path = path_of(state_dir)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    except OSError as error:
        raise ClusterError(f"{path} cannot be removed: {error.strerror}", remedy=BECOME, reason="write") from error
