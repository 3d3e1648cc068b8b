# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lease of the nodes: a mode that runs for one command of a controller, and ends when the controller stops renewing it. This module util is PRIVATE.

Each node has the record, readable by all accounts: it names the holder, and only the program of the command. Its time is the kernel's time since boot,
which clock corrections do not change. A reboot ends a lease, since its engines do not restart.
"""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import boot_seconds
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.documents import Document, lacking

#: The folder below the state directory, with the record and the program that watches it.
FOLDER, FILE, PROGRAM = "lease", "lease.json", "lease.pyz"
#: The unit of that program.
UNIT = "gb10-lease.service"

#: The caller renews it; the node ends it; the node ended it.
LIVE, ENDING, ENDED = "live", "ending", "ended"
STATES = (LIVE, ENDING, ENDED)

#: The reason of the error for a lease that is over, or has another holder.
OVER = "lease over"

#: ``id`` and ``holder`` are those of the mode's lock. ``clusters`` stop with the lease, ``restore`` are clusters whose stopped units the node restarts, and
#: ``whole`` is whether these are all former clusters. ``renewed_s`` are seconds since the boot ``boot_id``. ``awaits`` is the address at which the head
#: answers a worker while it runs (``address``, ``port``), and the longest wait for its end (``seconds``); it is empty on a head. ``memory`` has the options
#: of node_samples_info, ``companions`` is whether there are any.
KEYS: dict[str, type] = {
    "id": str, "holder": dict, "program": str, "mode": str, "began_at": str, "lost_seconds": int, "state": str, "reason": str, "boot_id": str,
    "renewed_s": float, "clusters": list, "restore": list, "whole": bool, "awaits": dict, "memory": dict, "companions": bool, "roots": dict,
}  # fmt: skip


def _wrong(lease: dict[str, t.Any]) -> str:
    """Return why a record is invalid, empty when it is valid."""
    return lacking(lease, KEYS) or ("" if lease["state"] in STATES else f"state is {lease['state']!r}")


DOCUMENT = Document("lease", "the record of a lease", 1, _wrong, "Inspect {path}. When no lease of this node is live, remove its directory and run again.")

Lease = dict[str, t.Any]


def folder_of(state_dir: str) -> str:
    """Return the directory of a node's lease."""
    return os.path.join(state_dir, FOLDER)


def path_of(state_dir: str) -> str:
    """Return the path of a node's lease record."""
    return os.path.join(folder_of(state_dir), FILE)


def read(state_dir: str) -> Lease | None:
    """Return the lease of a node, None when there is none. Raises :class:`UnknownState` when it is invalid or cannot be read."""
    return DOCUMENT.read_keys(path_of(state_dir), KEYS)


def write(state_dir: str, lease: Lease) -> None:
    """Write the lease record, readable by all accounts. Raises OSError."""
    os.makedirs(folder_of(state_dir), mode=0o755, exist_ok=True)
    DOCUMENT.write(path_of(state_dir), lease)


def why_lost(lease: t.Mapping[str, t.Any], boot_id: str, now_s: float) -> str:
    """Return why the node ends a live lease, empty when it does not; ``now_s`` are the seconds since the boot ``boot_id``."""
    if lease["boot_id"] != boot_id:
        return "the node was rebooted, and a lease's engines do not restart"
    silent = now_s - lease["renewed_s"]
    return f"it was not renewed for {round(silent)} s" if silent > lease["lost_seconds"] else ""


def renewed(lease: Lease | None, lease_id: str, boot_id: str, now_s: float) -> Lease:
    """Return the renewed lease. Raises :class:`ClusterError` when it is over, or has another holder."""
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
    raise ClusterError(f"the lease is over: {how}", remedy="Run the playbook status, which shows what runs now.", reason=OVER)


def of(lease: t.Mapping[str, t.Any]) -> str:
    """Return the holder of a lease and its start, for a message."""
    holder = lease["holder"]
    return f"{holder.get('user', '?')}@{holder.get('hostname', '?')}, process {holder.get('pid', '?')}, for {lease['program']}, since {lease['began_at']}"


def summary(lease: Lease | None, boot_id: str) -> dict[str, t.Any]:
    """Return the public part of a lease, empty without one. After ``left_seconds`` the nodes end it unless it is renewed."""
    if lease is None:
        return {}
    left = lease["renewed_s"] + lease["lost_seconds"] - boot_seconds() if lease["boot_id"] == boot_id else 0
    shown = {key: lease[key] for key in ("id", "holder", "program", "mode", "began_at", "state", "reason", "clusters", "restore")}
    return {**shown, "left_seconds": max(0, round(left)) if lease["state"] == LIVE else 0}
