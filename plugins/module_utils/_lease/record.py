# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lease of the nodes: a mode that is there for one command of a controller, and how long the nodes wait for its next word. This module util is PRIVATE.

The record lies on each node, where everybody may read it: it names who holds the lease, and of the command its program alone. Its time is that of the kernel
since the boot, which no correction of the clock moves. A reboot ends a lease, since what is there for it does not come back.
"""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import boot_seconds
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.documents import Document, lacking

#: What lies below the state directory: the folder, the record, and the program that watches it.
FOLDER, FILE, PROGRAM = "lease", "lease.json", "lease.pyz"
#: The unit of that program.
UNIT = "gb10-lease.service"

#: The caller renews it; the nodes end it by themselves; they did.
LIVE, ENDING, ENDED = "live", "ending", "ended"
STATES = (LIVE, ENDING, ENDED)

#: The reason of the error for a lease that is not there any more, or is another's.
OVER = "lease over"

#: ``id`` and ``holder`` are those of the mode's lock, ``clusters`` are those that go with the lease, ``restore`` those whose stopped units the node starts
#: again, and ``whole`` says whether that is all that it had. ``renewed_s`` are seconds since the boot ``boot_id``. ``awaits`` is where the head answers a
#: worker while its part is there (``address``, ``port``) and for how long it is waited for (``seconds``), empty on a head. ``memory`` has the options of
#: node_samples_info, ``companions`` whether there are some.
KEYS: dict[str, type] = {
    "id": str, "holder": dict, "program": str, "mode": str, "began_at": str, "lost_seconds": int, "state": str, "reason": str, "boot_id": str,
    "renewed_s": float, "clusters": list, "restore": list, "whole": bool, "awaits": dict, "memory": dict, "companions": bool, "roots": dict,
}  # fmt: skip


def _wrong(lease: dict[str, t.Any]) -> str:
    """Return what is wrong with a record, empty when nothing is."""
    return lacking(lease, KEYS) or ("" if lease["state"] in STATES else f"state is {lease['state']!r}")


DOCUMENT = Document("lease", "the record of a lease", 1, _wrong, "Look at {path}. When nobody holds a lease of this node, remove its directory and run again.")

Lease = dict[str, t.Any]


def folder_of(state_dir: str) -> str:
    """Return where the files of a lease lie on a node."""
    return os.path.join(state_dir, FOLDER)


def path_of(state_dir: str) -> str:
    """Return where the record of a lease lies on a node."""
    return os.path.join(folder_of(state_dir), FILE)


def read(state_dir: str) -> Lease | None:
    """Return the lease of a node, None when there is none. Raises :class:`UnknownState` when it cannot be read or is something else."""
    content = DOCUMENT.read(path_of(state_dir))
    return {key: content[key] for key in KEYS} if content else None


def write(state_dir: str, lease: Lease) -> None:
    """Write the record of a lease for everybody to read. Raises OSError."""
    os.makedirs(folder_of(state_dir), mode=0o755, exist_ok=True)
    DOCUMENT.write(path_of(state_dir), lease)


def why_lost(lease: t.Mapping[str, t.Any], boot_id: str, now_s: float) -> str:
    """Return why the node ends a lease that lives, empty where it does not; ``now_s`` are the seconds since the boot ``boot_id``."""
    if lease["boot_id"] != boot_id:
        return "the node was rebooted, and what is there for a lease does not come back"
    silent = now_s - lease["renewed_s"]
    return f"nobody renewed it for {round(silent)} s" if silent > lease["lost_seconds"] else ""


def renewed(lease: Lease | None, lease_id: str, boot_id: str, now_s: float) -> Lease:
    """Return the lease as its caller renews it. Raises :class:`ClusterError` when it is over, or another's."""
    if lease is None:
        how = "it is gone"
    elif lease["id"] != lease_id:
        how = f"{of(lease)} has one now"
    elif lease["state"] != LIVE:
        how = f"{lease['state']}: {lease['reason']}"
    elif lease["boot_id"] != boot_id:
        how = why_lost(lease, boot_id, now_s)
    else:
        return {**lease, "renewed_s": now_s}
    raise ClusterError(f"the lease is over: {how}", remedy="See the playbook status for what runs now.", reason=OVER)


def of(lease: t.Mapping[str, t.Any]) -> str:
    """Return who holds a lease and since when, for a message."""
    holder = lease["holder"]
    return f"{holder.get('user', '?')}@{holder.get('hostname', '?')}, process {holder.get('pid', '?')}, for {lease['program']}, since {lease['began_at']}"


def summary(lease: Lease | None, boot_id: str) -> dict[str, t.Any]:
    """Return what others need to know of a lease, empty where there is none. ``left_seconds`` is when the nodes would end it unless it is renewed."""
    if lease is None:
        return {}
    left = lease["renewed_s"] + lease["lost_seconds"] - boot_seconds() if lease["boot_id"] == boot_id else 0
    shown = {key: lease[key] for key in ("id", "holder", "program", "mode", "began_at", "state", "reason", "clusters", "restore")}
    return {**shown, "left_seconds": max(0, round(left)) if lease["state"] == LIVE else 0}
