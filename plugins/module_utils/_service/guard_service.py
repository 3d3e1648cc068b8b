# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit of the guard: installed, removed, or notified of the serving ranks. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import os
import stat
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, file_error
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id, write_json
from ansible_collections.gb10.cluster.plugins.module_utils._guard import guard_files, ring, trend, unit_text
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify, process_table
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import install, python, setup
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: Seconds between two checks for the first sample.
LOOK_SECONDS = 0.5

Params = dict[str, t.Any]

#: What each state needs.
NEEDS: dict[str, tuple[str, ...]] = {"present": (), "absent": (), "serving": ()}
OPTIONS: dict[str, t.Any] = {
    "act": {"type": "str", "choices": list(trend.ACTS), "default": trend.ACT_LOADING},
    "load_seconds": {"type": "int", "default": 7200},
    "addresses": {"type": "list", "elements": "str", "default": []},
    "forget_ring": {"type": "bool", "default": False},
}


def wanted(params: Params, unit: Unit) -> dict[str, bytes]:
    """Return the guard's files by path, in the order in which they are written."""
    settings = unit_text.config(unit.folder, params["act"], params["load_seconds"], params["addresses"], params["roots"])
    return {
        os.path.join(unit.folder, guard_files.CONFIG): settings.encode(),
        unit.path: unit_text.unit(unit.folder, python.of_units()).encode(),
    }


def await_sample(params: Params, folder: str, since: float) -> None:
    """Wait until the guard has written a sample. Raises :class:`ClusterError` when it does not."""
    for _elapsed in clock(params["tool_timeout"], LOOK_SECONDS):
        boots = ring.boots(os.path.join(folder, guard_files.RING))
        if boots and boots[-1].boot_id == boot_id(params["roots"]["proc_root"]) and boots[-1].last >= since and not boots[-1].stopped:
            return
    remedy = f"Run on the node: journalctl -u {guard_files.UNIT}"
    raise ClusterError(f"{guard_files.UNIT} was started but wrote no sample within {params['tool_timeout']} s", remedy=remedy, reason="unit")


def owned(path: str) -> bool:
    """Return whether only root and its group may read a ring, and new files inherit the group."""
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(path)
        return (stat.S_IMODE(status.st_mode), status.st_gid) == (stat.S_ISGID | ring.DIRECTORY_MODE, guard_files.ring_group())
    return False


def job(params: Params, unit: Unit) -> install.Job:
    """Return the installation of the guard, which ends with a first sample."""
    rings = os.path.join(unit.folder, guard_files.RING)
    gone = [os.path.join(unit.folder, name) for name in (guard_files.PROGRAM, guard_files.CONFIG, guard_files.SERVED, guard_files.SAID)]

    def own() -> None:
        os.makedirs(rings, mode=ring.DIRECTORY_MODE, exist_ok=True)
        os.chown(rings, -1, guard_files.ring_group())
        os.chmod(rings, stat.S_ISGID | ring.DIRECTORY_MODE)

    return install.Job(
        unit,
        lambda: wanted(params, unit),
        [*gone, *([rings] if params["forget_ring"] else [])],
        mode=0o644,
        first=[] if owned(rings) else [(f"restrict {rings} to root and its group", own)],
        started=lambda began: await_sample(params, unit.folder, began),
    )


def serving(module: AnsibleModule, folder: str) -> dict[str, t.Any]:
    """Write the list of ranks that serve now, for the guard."""
    params = module.params
    if not os.path.exists(os.path.join(folder, guard_files.CONFIG)):
        return {"msg": "there is no guard on this node", "serving": []}
    try:
        parts = classify.parts(process_table.scan(params["roots"]["proc_root"]).processes)
        ranks = [[pid, part.process.start_ticks] for pid, part in sorted(parts.items()) if part.kind in classify.ENGINE_PARTS]
        if not module.check_mode:
            write_json(os.path.join(folder, guard_files.SERVED), {"ranks": ranks})
    except (OSError, ClusterError) as error:
        # A serving engine keeps running: the guard only treats its ranks as loading for longer.
        why = file_error(error, folder, BECOME) if isinstance(error, OSError) else error
        return {"msg": f"the guard was not notified: {why}", "verdict": "warn", "remedy": why.remedy or BECOME, "serving": []}
    return {"msg": f"the guard was notified of {len(ranks)} serving process(es)", "serving": ranks}


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    require_least(params, {"load_seconds": 60, "tool_timeout": 1})
    unit = guard_files.unit_of(params["state_dir"], params["roots"]["etc_root"])
    if params["state"] == "serving":
        done = serving(module, unit.folder)
    else:
        with setup.failures(unit.folder):
            done = install.bring(module, job(params, unit), "guard")
    return {**done, "guard": guard_files.guard(unit, params["tool_timeout"])}
