#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_lock
short_description: Allow one run at a time on a cluster
version_added: 0.1.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Acquires or releases the lock of a cluster, one file on each node. Run it on all nodes of the cluster at once, so that two inventories
    with different heads exclude each other.
  - The nodes are locked one after the other, in the order of O(order), independent of the play's order. If two runs begin at the same moment,
    one gets all nodes. The other is refused at the first node, and has no lock.
  - Every task of one ansible-playbook run is the same holder. The run is recognized by its user, machine and process on the controller. A service on a
    node can also be a holder.
  - A lock whose holder is known to have ended is taken over automatically. That requires that its pid was assigned in this same boot and pid
    namespace, of the controller or of the node, and is now free or belongs to another process. A holder that cannot be seen (C(hidepid), another
    controller, a container, an earlier boot or a clone of this machine) counts as alive. Then a person must name the lock in O(break_lock).
  - A lock is a record of who works here, not a state of the machine. Acquiring and releasing it is therefore not a change.
  - With O(state=acquired), the cluster's directories for state and logs, below which its containers write, are closed to all accounts on the node except
    root. That is a change if an older version of the collection left one open. One that cannot be closed gives a warning.
extends_documentation_fragment:
  - gb10.cluster._attributes
attributes:
  check_mode:
    support: full
    details:
      - Only reads and reports. A lock of another run then gives the verdict V(warn), and is not a failure.
  diff_mode:
    support: partial
    details:
      - A lock is a record, not state. The modes of the cluster's directories are shown if they change.
  action:
    description: Has a corresponding action plugin, so that parts of it run on the controller.
    support: full
options:
  state:
    description:
      - With V(acquired), this run has the lock afterwards, or the module fails and names the holder.
      - With V(held), the module fails unless the lock has O(lock_id). For a task that stops or removes something.
      - With V(released), this run no longer has the lock. The lock of another run is left alone.
    type: str
    choices: [acquired, held, released]
    default: acquired
  cluster_name:
    description:
      - The cluster to lock.
    type: str
    default: gb10
  state_dir:
    description:
      - Directory for the state of clusters on the node.
    type: path
    default: /var/lib/gb10
  log_dir:
    description:
      - Directory for the logs of clusters on the node.
    type: path
    default: /var/log/gb10
    version_added: 0.2.0
  path:
    description:
      - The lock's file.
      - Defaults to C(lock.json) in the cluster's directory below O(state_dir).
    type: path
  break_lock:
    description:
      - Id of a lock to take over or remove, although it belongs to another run. The refusal names the id. First make sure that this run has ended.
      - A lock with another id is respected.
    type: str
    default: ""
  lock_id:
    description:
      - Id of the lock that this run acquired, for O(state=held). With an empty value nothing is checked.
    type: str
    default: ""
  nodes:
    description:
      - The nodes of the play to lock together. Without them only this node is locked.
    type: list
    elements: str
    default: []
  order:
    description:
      - The key by which this node is sorted among O(nodes), such as its address on the fabric. It should be the same in every inventory.
      - If two inventories order the nodes differently, two runs that begin at the same moment may both be refused, and never both admitted.
    type: str
    default: ""
  holder:
    description:
      - The run or service that requests the lock.
      - Set by the action plugin from the running ansible-playbook process.
    type: dict
"""

EXAMPLES = r"""
- name: Acquire the cluster's lock
  gb10.cluster.cluster_lock:
    cluster_name: gb10
    nodes: "{{ ansible_play_hosts }}"
    order: "{{ gb10_fabric_address }}"
  become: true

- name: Release the cluster's lock
  gb10.cluster.cluster_lock:
    cluster_name: gb10
    state: released
  become: true
"""

RETURN = r"""
lock_path:
  description: Path of the lock's file on the node.
  returned: success
  type: str
  sample: /var/lib/gb10/gb10/lock.json
held:
  description: Whether this run has the lock now.
  returned: success
  type: bool
  sample: true
reason:
  description: Why the lock was acquired, taken over, kept, released or left alone.
  returned: always
  type: str
  sample: "taken over from ada@workbench, process 4711, since 2026-11-21T09:14:03Z (310 s ago): its process 4711 has ended"
taken_over:
  description: Whether the lock was taken over from another run. RV(reason) names the run and the reason.
  returned: success
  type: bool
  sample: false
engine:
  description:
    - The last run of this node's engine when the lock was acquired, as RV(gb10.cluster.vllm_serve_info#module:engine). Only this run may start one after that.
    - Null if its note cannot be read. M(gb10.cluster.vllm_serve_info) shows the reason.
  returned: with O(state=acquired)
  type: dict
  version_added: 0.2.0
  sample: {"live": true, "run_id": 20261121T015300Z-3f9a}
finished_at:
  description: When the lock was acquired, in seconds since 1970 on the controller.
  returned: with O(state=acquired), without O(path)
  type: float
  version_added: 0.2.0
  sample: 1795600443.2
lock:
  description:
    - The lock as recorded on the node. Null if there is none.
    - After a failure it is the other run's.
  returned: always, but not when the lock cannot be read
  type: dict
  sample:
    id: 0f3b8a2f6c1d4e57
    acquired_at: "2026-11-21T09:14:03Z"
    age: 0
    holder: {"user": "ada", "hostname": "workbench", "machine": "9b1c6f2d", "boot_id": "7f6d", "pid_namespace": "pid:[4026531836]", "pid": 4711,
      "pid_start": "1182733", "run": "ansible-local-4711k3b1x7", "service": "", "play": "Serve Nemotron", "started_at": "2026-11-21T09:14:02Z"}
"""

import dataclasses
import datetime
import os
import stat
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._engine.engine_state import EnginePaths, engine_state
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState, file_error
from ansible_collections.gb10.cluster.plugins.module_utils._files import private
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._lock.lock_holder import Place, why_ended
from ansible_collections.gb10.cluster.plugins.module_utils._module import run
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME


def read_breakable(path: str, break_lock: str) -> cluster_locks.Lock | None:
    """Return the lock at ``path``. A lock that cannot be parsed can be broken too, by the id in the error."""
    try:
        return cluster_locks.read(path)
    except UnknownState as error:
        if error.reason != cluster_locks.NOT_UNDERSTOOD or break_lock != error.details["lock_id"]:
            raise
        return cluster_locks.Lock(id=break_lock, holder={}, acquired_at="an unknown time", age=0)


def decide(current: cluster_locks.Lock | None, params: dict[str, t.Any]) -> tuple[str | None, str]:
    """Return the action and its reason. This node checks whether the present holder has ended, because the holder can be a service on it."""
    if params["state"] == "released":
        return cluster_locks.decide_release(current, params["holder"], break_lock=params["break_lock"])
    ended = why_ended(current.holder, Place.here()) if current else ""
    return cluster_locks.decide_acquire(current, params["holder"], break_lock=params["break_lock"], ended=ended)


def as_result(current: cluster_locks.Lock | None, path: str, holder: dict[str, t.Any], action: str | None, reason: str) -> dict[str, t.Any]:
    return {
        # Taking the lock does not count as a change, otherwise no second run would be "unchanged".
        "changed": False,
        "lock_path": path,
        "lock": dataclasses.asdict(current) if current else None,
        "held": current is not None and current.id == cluster_locks.holder_id(holder),
        "taken_over": action == "take over",
        "actions": [f"{action} lock {path}"] if action else [],
        "reason": reason,
        "msg": reason,
    }


def to_close(params: dict[str, t.Any]) -> list[str]:
    """Return the cluster's directories that other accounts can enter. An older version of the collection left them open."""
    return [] if params["path"] else list(filter(private.is_open, EnginePaths.of(params["state_dir"], params["log_dir"], params["cluster_name"]).closed))


def closing(module: AnsibleModule, folders: list[str]) -> dict[str, t.Any]:
    """Close these directories and return the keys to add to the result. A directory that cannot be closed does not prevent a teardown."""
    before = {folder: f"{stat.S_IMODE(os.lstat(folder).st_mode):04o}" for folder in folders}
    closed = []
    for folder in folders:
        try:
            if not module.check_mode:
                private.close(folder)
            closed.append(folder)
        except ClusterError as error:
            module.warn(error.with_remedy())
    diff = {"before": {folder: before[folder] for folder in closed}, "after": dict.fromkeys(closed, f"{private.CLOSED:04o}")}
    return {"changed": True, "actions": [f"close {folder} to other accounts (mode {before[folder]})" for folder in closed], "diff": diff} if closed else {}


def preview(params: dict[str, t.Any], path: str) -> dict[str, t.Any]:
    """Return the result of check mode, without writing."""
    holder = params["holder"]
    current = read_breakable(path, params["break_lock"])
    try:
        return as_result(current, path, holder, *decide(current, params))
    except ClusterError as error:
        return {**as_result(current, path, holder, None, str(error)), "verdict": "warn", "remedy": error.remedy}


def acquire(params: dict[str, t.Any], path: str) -> dict[str, t.Any]:
    if params["path"]:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    else:
        private.make(os.path.dirname(path))
    with cluster_locks.exclusive(os.path.dirname(path)):
        action, reason = decide(read_breakable(path, params["break_lock"]), params)
        if action:
            text = cluster_locks.dump(params["holder"], datetime.datetime.now(datetime.timezone.utc))
            cluster_locks.write(path, text, replace=action == "take over")
        return as_result(cluster_locks.read(path), path, params["holder"], action, reason)


def release(params: dict[str, t.Any], path: str) -> dict[str, t.Any]:
    if not os.path.isdir(os.path.dirname(path)):
        return as_result(None, path, params["holder"], None, "no run holds the lock")
    with cluster_locks.exclusive(os.path.dirname(path)):
        action, reason = decide(read_breakable(path, params["break_lock"]), params)
        if action:
            os.unlink(path)
        return as_result(cluster_locks.read(path), path, params["holder"], action, reason)


def engine_of(params: dict[str, t.Any]) -> dict[str, t.Any] | None:
    """Return the last run of this node's engine, None when it is unknown. The lock is taken anyway; callers that need the run read it themselves."""
    try:
        return engine_state(EnginePaths.of(params["state_dir"], params["log_dir"], params["cluster_name"]))
    except UnknownState:
        return None


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    path = params["path"] or cluster_locks.path_of(params["state_dir"], params["cluster_name"])
    if params["state"] == "held":
        if not module.check_mode:
            cluster_locks.check_held(path, params["lock_id"])
        return as_result(cluster_locks.read(path), path, params["holder"] or {}, None, "the lock is as it was taken")
    if not params["holder"]:
        raise ClusterError("holder is missing", remedy="Call gb10.cluster.cluster_lock by its full name: its action plugin sets the holder.")
    try:
        if params["state"] == "released":
            return preview(params, path) if module.check_mode else release(params, path)
        result = preview(params, path) if module.check_mode else acquire(params, path)
        closed = closing(module, to_close(params))
        return {**result, **closed, "actions": [*result["actions"], *closed.get("actions", [])], "engine": engine_of(params)}
    except OSError as error:
        raise file_error(error, path, BECOME, "permission") from error


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["acquired", "held", "released"], "default": "acquired"},
            "cluster_name": {"type": "str", "default": "gb10"},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "log_dir": {"type": "path", "default": "/var/log/gb10"},
            "path": {"type": "path"},
            "break_lock": {"type": "str", "default": ""},
            "lock_id": {"type": "str", "default": ""},
            "nodes": {"type": "list", "elements": "str", "default": []},
            "order": {"type": "str", "default": ""},
            "holder": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
