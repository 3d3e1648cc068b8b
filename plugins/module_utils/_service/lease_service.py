# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lease with its unit: started, renewed, given up, or removed. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
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
    "mode": {"type": "str"},
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
    """Return the lease that begins now. Raises :class:`ClusterError` when this node could not end it without its caller."""

    def has_unit(name: str) -> bool:
        return os.path.lexists(units.of_engine(params["state_dir"], name, params["roots"]["etc_root"]).path)

    if missing := [name for name in params["clusters"] if not has_unit(name)]:
        raise ClusterError(
            f"{', '.join(missing)} has no unit on this node, so the node could not end the lease without its caller",
            remedy="Let the bring-up install units (gb10_unit: enabled or present), with an executor that supports them.",
            reason="no unit",
        )
    restore = list(filter(has_unit, params["restore"]))
    return {
        **{name: params[name] for name in ("holder", "program", "mode", "lost_seconds", "clusters", "awaits", "companions", "roots")},
        "id": params["lease_id"],
        "began_at": utc_text(),
        "state": record.LIVE,
        "reason": "",
        "boot_id": boot_id(params["roots"]["proc_root"]),
        "renewed_s": record.boot_seconds(),
        "restore": restore,
        "whole": params["whole"] and restore == params["restore"],
        "memory": {"tolerance_mb": params["tolerance_mb"], "wait_timeout": params["wait_timeout"]},
    }


def job(params: Params, unit: Unit) -> install.Job:
    """Return the installation of a lease's unit; the lease begins with it."""
    first: list[tuple[str, t.Callable[[], None]]] = []
    if params["state"] == "present":
        lease = begun(params)
        first = [(f"lease the node for {params['program']}", lambda: record.write(params["state_dir"], {**lease, "renewed_s": record.boot_seconds()}))]
    text = {unit.path: lease_files.unit_text(params["state_dir"], python.of_units()).encode()} if first else {}
    return install.Job(unit, lambda: text, [unit.folder], first=first, stale=lambda _differing: True)


def changes(params: Params) -> record.Lease:
    """Return the keys of a lease that a state changes, in addition to its renewal."""
    lost = {"lost_seconds": params["lost_seconds"]}
    return {
        "renewed": lost,
        "returning": {**lost, "clusters": [], "awaits": {}},
        "given_up": {"state": record.ENDING, "reason": "its caller gave it up before the command had ended"},
    }[params["state"]]


def renew(params: Params, check_mode: bool) -> None:
    """Renew a lease, leave its end to the return, or give it up. Raises :class:`ClusterError` when a lease to renew is over."""
    state_dir = params["state_dir"]
    folder = record.folder_of(state_dir)
    with contextlib.ExitStack() as stack:
        if os.path.isdir(folder):
            stack.enter_context(cluster_locks.exclusive(folder))
        try:
            after = record.renewed(record.read(state_dir), params["lease_id"], boot_id(params["roots"]["proc_root"]), record.boot_seconds())
        except ClusterError:
            if params["state"] == "renewed":
                raise
            return
        if not check_mode:
            record.write(state_dir, {**after, **changes(params)})


def readable(state_dir: str) -> record.Lease | None:
    """Return the lease of the node; None also when it cannot be read: it is removed like any other."""
    with contextlib.suppress(UnknownState):
        return record.read(state_dir)
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
            # Who uses a node is not a change of the node.
            renew(params, module.check_mode)
            done = setup.result_of([], module.check_mode, "the lease is as it should be")
    return {**done, "lease": record.summary(readable(state_dir), boot_id(params["roots"]["proc_root"]))}
