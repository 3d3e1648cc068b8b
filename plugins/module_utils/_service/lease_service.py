# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lease with its unit: begun, renewed, given up, or removed. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id
from ansible_collections.gb10.cluster.plugins.module_utils._lease import lease_files, record
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import install, python, setup
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit
from ansible_collections.gb10.cluster.plugins.module_utils._unit import unit_files as units

Params = dict[str, t.Any]

#: What each state needs.
NEEDS: dict[str, tuple[str, ...]] = {
    "present": ("lease_id", "holder", "mode", "clusters"), "renewed": ("lease_id",), "returning": ("lease_id",), "given_up": ("lease_id",), "absent": (),
}  # fmt: skip
OPTIONS: dict[str, t.Any] = {
    "lease_id": {"type": "str"},
    "holder": {"type": "dict"},
    "program": {"type": "str", "default": ""},
    "mode": {"type": "str", "choices": ["cluster", "singles"]},
    "lost_seconds": {"type": "int", "default": 300},
    "clusters": {"type": "list", "elements": "str"},
    "restore": {"type": "list", "elements": "str", "default": []},
    "whole": {"type": "bool", "default": True},
    "awaits": {"type": "dict", "default": {}},
    "tolerance_mb": {"type": "int", "default": 4096},
    "wait_timeout": {"type": "int", "default": 180},
    "companions": {"type": "bool", "default": False},
}


def begun(params: Params) -> record.Lease:
    """Return the lease that begins now. Raises :class:`ClusterError` when this node could not end it by itself."""
    etc_root = params["roots"]["etc_root"]
    missing = [name for name in params["clusters"] if not os.path.lexists(units.of_engine(params["state_dir"], name, etc_root).path)]
    if missing:
        raise ClusterError(
            f"{', '.join(missing)} has no unit on this node, so the node could not end the lease when its caller is gone",
            remedy="Let the bring-up set units up (gb10_unit: auto or present), with an executor that can have some.",
            reason="no unit",
        )
    restore = [name for name in params["restore"] if os.path.lexists(units.of_engine(params["state_dir"], name, etc_root).path)]
    return {
        "id": params["lease_id"],
        "holder": params["holder"],
        "program": params["program"],
        "mode": params["mode"],
        "began_at": utc_text(),
        "lost_seconds": params["lost_seconds"],
        "state": record.LIVE,
        "reason": "",
        "boot_id": boot_id(params["roots"]["proc_root"]),
        "renewed_s": record.boot_seconds(),
        "clusters": params["clusters"],
        "restore": restore,
        "whole": params["whole"] and restore == params["restore"],
        "awaits": params["awaits"],
        "memory": {"tolerance_mb": params["tolerance_mb"], "wait_timeout": params["wait_timeout"]},
        "companions": params["companions"],
        "roots": params["roots"],
    }


def job(params: Params, unit: Unit) -> install.Job:
    """Return how a lease begins, and ends."""
    first: list[tuple[str, t.Callable[[], None]]] = []
    if params["state"] == "present":
        lease = begun(params)
        first = [(f"lease the node for {params['program']}", lambda: record.write(params["state_dir"], {**lease, "renewed_s": record.boot_seconds()}))]
    return install.Job(unit, lambda: wanted(params, unit), [unit.folder], first=first, stale=lambda _differing: True)


def wanted(params: Params, unit: Unit) -> dict[str, bytes]:
    """Return the files of a lease beside its record."""
    return {unit.path: lease_files.unit_text(params["state_dir"], python.of_units()).encode()}


def spoken(params: Params, check_mode: bool) -> list[str]:
    """Renew a lease, leave its end to the way back, or give it up; return nothing, since who uses a node is no change of it."""
    state_dir = params["state_dir"]
    if not os.path.isdir(record.folder_of(state_dir)):
        if params["state"] == "renewed":
            record.renewed(None, params["lease_id"], "", 0)
        return []
    with cluster_locks.exclusive(record.folder_of(state_dir)):
        lease = record.read(state_dir)
        boot, now = boot_id(params["roots"]["proc_root"]), record.boot_seconds()
        try:
            after = record.renewed(lease, params["lease_id"], boot, now)
        except ClusterError:
            if params["state"] == "renewed":
                raise
            return []
        if params["state"] in ("renewed", "returning"):
            after = {**after, "lost_seconds": params["lost_seconds"]}
        if params["state"] == "returning":
            after = {**after, "clusters": [], "awaits": {}}
        if params["state"] == "given_up":
            after = {**after, "state": record.ENDING, "reason": "its caller gave it up before the command had ended"}
        if not check_mode:
            record.write(state_dir, after)
    return []


def readable(state_dir: str) -> record.Lease | None:
    """Return the lease of the node; None also for one that cannot be read, which is removed like any other."""
    try:
        return record.read(state_dir)
    except UnknownState:
        return None


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    require_least(params, {"lost_seconds": 20, "tool_timeout": 1, "tolerance_mb": 0, "wait_timeout": 1})
    state_dir, etc_root = params["state_dir"], params["roots"]["etc_root"]
    unit = lease_files.unit_of(state_dir, etc_root)
    with setup.failures(unit.folder):
        if params["state"] in ("present", "absent"):
            lease = readable(state_dir) if params["state"] == "absent" else None
            kept = {"kept": lease_files.kept_units(lease, state_dir, etc_root, params["tool_timeout"]) if lease else []}
            done = {**install.bring(module, job(params, unit), "lease"), "diff": {}, **(kept if params["state"] == "absent" else {})}
        else:
            done = setup.result_of(spoken(params, module.check_mode), module.check_mode, "the lease is as it should be")
    return {**done, "lease": record.summary(readable(state_dir), boot_id(params["roots"]["proc_root"]))}
