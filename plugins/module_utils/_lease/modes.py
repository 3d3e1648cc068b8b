# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The record of a node's declared mode: the current clusters, the former ones, and the last events. This module util is PRIVATE to the collection.

All accounts may read the record: it contains no secrets.
"""

from __future__ import annotations

import contextlib
import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, file_error
from ansible_collections.gb10.cluster.plugins.module_utils._files.documents import Document, lacking
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME

#: The modes that every inventory has: one engine over all nodes, one engine on each node, or none.
CLUSTER, SINGLES, OFF = "cluster", "singles", "off"
#: The mode of a record that a bring-up without a declared mode writes. It declares nothing: any bring-up stays allowed.
SERVE = "serve"
#: Names that no layout can have.
RESERVED = (CLUSTER, SINGLES, OFF, SERVE)
#: The name of a mode.
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,31}\Z")
NAME_MEANS = "1 to 32 of a-z, 0-9, '_', '.' and '-', a letter or digit first"

#: The phases: everything was verified; a change is in progress or was interrupted; it failed; memory was not released, so nothing was started; the mode is
#: for a lease only.
SETTLED, SWITCHING, FAILED, LEAK, LEASED = "settled", "switching", "failed", "leak", "leased"
PHASES = (SETTLED, SWITCHING, FAILED, LEAK, LEASED)

#: The number of newest events in a record.
EVENTS = 20

Record = dict[str, t.Any]

#: ``clusters`` maps the name of each cluster of the mode to ``profile`` (its id), ``source`` (the id or path that selected it) and ``nodes``, optionally
#: also to ``degraded``: by node, the cluster that serves alone there while this one is given up. ``previous`` is the last settled record, without its own
#: events and previous record; empty without one.
KEYS: dict[str, type] = {"mode": str, "phase": str, "reason": str, "clusters": dict, "previous": dict, "changed_at": str, "events": list}
#: The keys of a record that its ``previous`` has, too.
SHAPE = ("mode", "phase", "reason", "clusters")
CLUSTER_KEYS: dict[str, type] = {"profile": str, "source": str, "nodes": list}
EVENT_KEYS: dict[str, type] = {"at": str, "text": str}


def path_of(state_dir: str) -> str:
    """Return the path of a node's mode record."""
    return os.path.join(state_dir, "mode.json")


def wrong(record: t.Any) -> str:
    """Return why a record is invalid, empty when it is valid."""
    if problem := lacking(record, KEYS):
        return problem
    if not NAME.match(record["mode"]):
        return f"mode is {record['mode']!r}, expected {NAME_MEANS}"
    if record["phase"] not in PHASES:
        return f"phase is {record['phase']!r}, expected one of {', '.join(PHASES)}"
    problems = [lacking(entry, CLUSTER_KEYS) for entry in record["clusters"].values()] + [lacking(entry, EVENT_KEYS) for entry in record["events"]]
    return next((problem for problem in problems if problem), "")


DOCUMENT = Document("mode", "the record of a mode", 1, wrong, "Inspect {path}, remove it, and declare the mode again with the playbook mode.")


def read(state_dir: str) -> Record | None:
    """Return the record of a node, None when no mode was declared. Raises :class:`UnknownState` when it is invalid or cannot be read."""
    return DOCUMENT.read_keys(path_of(state_dir), KEYS)


def degraded(record: Record | None, cluster: str) -> dict[str, str]:
    """Return, by node, the cluster that serves alone there while this one is given up; empty without such, and while the mode is not settled."""
    settled = record["clusters"] if record and record["phase"] == SETTLED else {}
    return dict(settled.get(cluster, {}).get("degraded", {}))


def following(before: Record | None, wanted: Record, now: str, event: str = "") -> Record:
    """Return the record after ``before`` with ``wanted`` (the keys of :data:`SHAPE`), and with one more event unless it is empty.

    The last settled record stays as ``previous`` until another one is settled.
    """
    events = [*(before["events"] if before else []), *([{"at": now, "text": event}] if event else [])][-EVENTS:]
    settled = before if before and before["phase"] == SETTLED else None
    previous = {key: settled[key] for key in SHAPE} if settled and not same(settled, wanted) else before["previous"] if before else {}
    changed_at = before["changed_at"] if before and same(before, wanted) else now
    return {**{key: wanted[key] for key in SHAPE}, "previous": previous, "changed_at": changed_at, "events": events}


def former(before: Record) -> dict[str, t.Any]:
    """Return mode and clusters of the last settled record; off without one."""
    return before if before.get("phase") == SETTLED else before.get("previous") or {"mode": OFF, "clusters": {}}


def same(record: t.Mapping[str, t.Any], other: t.Mapping[str, t.Any]) -> bool:
    """Return whether two records are equal in the keys of :data:`SHAPE`."""
    return all(record[key] == other[key] for key in SHAPE)


def write(state_dir: str, record: Record) -> None:
    """Write the record, readable by all accounts. Raises :class:`ClusterError` when it cannot be written."""
    path = path_of(state_dir)
    try:
        os.makedirs(state_dir, mode=0o755, exist_ok=True)
        DOCUMENT.write(path, record)
    except OSError as error:
        raise file_error(error, path, BECOME, "write", " cannot be written") from error


def remove(state_dir: str) -> None:
    """Remove the record, if there is one. Raises :class:`ClusterError` when it cannot be removed."""
    path = path_of(state_dir)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    except OSError as error:
        raise ClusterError(f"{path} cannot be removed: {error.strerror}", remedy=BECOME, reason="write") from error
