# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The units of a cluster's recovery: set up, or removed. This module util is PRIVATE to the collection."""

from __future__ import annotations

import json
import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _http
from ansible_collections.gb10.cluster.plugins.module_utils._clock import boot_seconds
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.notes import read_side
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._recover import budget, recover_files
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import sweep_files
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import install, python
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit
from ansible_collections.gb10.cluster.plugins.module_utils._unit import specification

#: What each state needs.
NEEDS: dict[str, tuple[str, ...]] = {"present": ("specification", "node", "head"), "absent": ()}
OPTIONS: dict[str, t.Any] = {
    "node": {"type": "str"},
    "head": {"type": "str"},
    "act": {"type": "str", "choices": ["observe", "restart"], "default": "observe"},
    "pause": {"type": "str", "default": ""},
    "port": {"type": "int", "default": 20302},
    "secrets_dir": {"type": "path", "default": "/etc/gb10/secrets", "no_log": False},
    "answers": {"type": "list", "elements": "str", "default": []},
    "model": {"type": "str"},
    "tolerance_mb": {"type": "int", "default": 4096},
    "wait_timeout": {"type": "int", "default": 180},
}
#: The options that are settings of the program unchanged.
KEPT = ("node", "head", "act", "port", "state_dir", "secrets_dir", "answers", "model")


def wanted(params: dict[str, t.Any], unit: Unit) -> dict[str, bytes]:
    """Return the files by path. A pause that is on stays as it began. Raises :class:`ClusterError` for an invalid specification."""
    given, path = specification.check({**params["specification"], "roots": params["roots"]}), os.path.join(unit.folder, recover_files.CONFIG)
    now, pause = budget.Moment(boot_id(params["roots"]["proc_root"]), boot_seconds()), read_side(path).get("pause", {})
    if pause.get("text", "") != params["pause"] or not budget.paused(pause, now):
        pause = {"text": params["pause"], "boot_id": now.boot_id, "at_s": now.at_s} if params["pause"] else {}
    config = {
        **{name: params[name] for name in KEPT}, "cluster": given["cluster"], "pause": pause, "proc_root": params["roots"]["proc_root"],
        "memory": {name: params[name] for name in ("tolerance_mb", "wait_timeout")},
    }  # fmt: skip
    listen = _http.base_url(given["address"], params["port"]).removeprefix("http://")
    texts = recover_files.texts(unit, given["cluster"], python.of_units("docker"), listen, sweep_files.SERVICE, len(given["nodes"]) > 1)
    return {path: f"{json.dumps(config, indent=1, sort_keys=True)}\n".encode(), **texts}


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    unit = recover_files.unit_of(params["state_dir"], params["cluster_name"], params["roots"]["etc_root"])
    job = install.Job(
        unit,
        lambda: wanted(params, unit),
        [unit.folder],
        closed=True,
        # The service reads its settings at each look; a running timer and socket keep theirs.
        stale=lambda differing: bool({*unit.paths} & {*differing}),
        check_held=lambda: cluster_locks.check_held(cluster_locks.path_of(params["state_dir"], params["cluster_name"]), params["lock_id"]),
    )
    return {**install.bring(module, job, "recovery"), "recover": recover_files.look(unit, params["tool_timeout"])}
