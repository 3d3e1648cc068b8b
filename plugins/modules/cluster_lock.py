#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_lock
short_description: Let one run at a time work on a cluster
version_added: 0.1.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Takes or releases the lock of a cluster, one file on the node that the task runs on. Run it on the head.
  - Every task of one ansible-playbook run is the same holder. The run is recognized by its user, machine and process on the controller.
  - A lock whose run has ended on this same controller is taken over automatically. For a run of another controller that is unknown,
    so there a person says so with O(break_lock).
  - A lock is a record of who works here, not a state of the machine. So this module never reports a change.
extends_documentation_fragment:
  - gb10.cluster._attributes
attributes:
  check_mode:
    support: full
    details:
      - Reads and reports only. A lock that another run holds is the verdict V(warn) then, and not a failure.
  diff_mode:
    support: none
    details:
      - A lock is a record, not state.
  action:
    description: Has a corresponding action plugin, so that parts of it run on the controller.
    support: full
options:
  state:
    description:
      - With V(acquired), this run holds the lock afterwards, or the module fails and names the holder.
      - With V(released), this run does not hold it any more. The lock of another run is left alone.
    type: str
    choices: [acquired, released]
    default: acquired
  cluster_name:
    description:
      - The cluster to lock.
    type: str
    default: gb10
  state_dir:
    description:
      - The directory that holds the state of clusters on the node.
    type: path
    default: /var/lib/gb10
  path:
    description:
      - The lock's file.
      - Defaults to C(lock.json) in the cluster's directory below O(state_dir).
    type: path
  break_lock:
    description:
      - Take the lock, or remove it, although another run holds it. Make sure first that this run has ended.
    type: bool
    default: false
  only_id:
    description:
      - With O(break_lock), break only the lock of this id.
      - Set by the action plugin, so that a lock that has changed hands since is respected.
    type: str
  holder:
    description:
      - The run that wants the lock.
      - Set by the action plugin from the running ansible-playbook process.
    type: dict
"""

EXAMPLES = r"""
- name: Work on the cluster alone
  gb10.cluster.cluster_lock:
    cluster_name: gb10
    break_lock: "{{ gb10_break_lock | default(false) }}"
  become: true

- name: Let others work on it
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
  description: Whether this run holds the lock now.
  returned: success
  type: bool
  sample: true
reason:
  description: Why the lock was taken, taken over, kept, released or left alone.
  returned: always
  type: str
  sample: "taken over from ada@workbench, process 4711, since 2026-11-21T09:14:03Z (310 s ago): its process 4711 on this controller has ended"
taken_over:
  description: Whether the lock was taken over from another run. RV(reason) says from which, and why.
  returned: success
  type: bool
  sample: false
lock:
  description:
    - The lock as recorded on the node, null when there is none.
    - After a failure it is the other run's.
  returned: always, but not when the lock cannot be read
  type: dict
  sample:
    id: 0f3b8a2f6c1d4e57
    acquired_at: "2026-11-21T09:14:03Z"
    age: 0
    holder: {"user": "ada", "hostname": "workbench", "machine": "9b1c6f2d", "boot_id": "7f6d", "pid_namespace": "pid:[4026531836]", "pid": 4711,
      "pid_start": "1182733", "play": "Bring Nemotron up", "started_at": "2026-11-21T09:14:02Z"}
"""

import dataclasses
import datetime
import errno
import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._host import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._module import run


def read_breakable(path: str, *, break_lock: bool) -> cluster_locks.Lock | None:
    """Return the lock at ``path``; one that cannot be parsed may be broken as well, with ``break_lock``."""
    try:
        return cluster_locks.read(path)
    except UnknownState as error:
        if not break_lock or error.reason != cluster_locks.NOT_UNDERSTOOD:
            raise
        return cluster_locks.Lock(id="", holder={}, acquired_at="an unknown time", age=0)


def as_result(current: cluster_locks.Lock | None, path: str, holder: dict[str, t.Any], action: str | None, reason: str) -> dict[str, t.Any]:
    return {
        # A lock is a record: a second run would never be "unchanged" if taking it counted.
        "changed": False,
        "lock_path": path,
        "lock": dataclasses.asdict(current) if current else None,
        "held": current is not None and current.id == cluster_locks.holder_id(holder),
        "taken_over": action == "take over",
        "actions": [f"{action} lock {path}"] if action else [],
        "reason": reason,
        "msg": reason,
    }


def preview(params: dict[str, t.Any], path: str) -> dict[str, t.Any]:
    """Report without writing: what check mode does."""
    holder = params["holder"]
    current = read_breakable(path, break_lock=params["break_lock"])
    if params["state"] == "released":
        return as_result(current, path, holder, *cluster_locks.decide_release(current, holder, break_lock=params["break_lock"]))
    try:
        decision = cluster_locks.decide_acquire(current, holder, break_lock=params["break_lock"], only_id=params["only_id"])
    except ClusterError as error:
        return {**as_result(current, path, holder, None, str(error)), "verdict": "warn", "remedy": error.remedy}
    return as_result(current, path, holder, *decision)


def acquire(params: dict[str, t.Any], path: str) -> dict[str, t.Any]:
    holder = params["holder"]
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    with cluster_locks.exclusive(os.path.dirname(path)):
        current = read_breakable(path, break_lock=params["break_lock"])
        action, reason = cluster_locks.decide_acquire(current, holder, break_lock=params["break_lock"], only_id=params["only_id"])
        if action:
            cluster_locks.write(path, cluster_locks.dump(holder, datetime.datetime.now(datetime.timezone.utc)), replace=action == "take over")
        return as_result(cluster_locks.read(path), path, holder, action, reason)


def release(params: dict[str, t.Any], path: str) -> dict[str, t.Any]:
    holder = params["holder"]
    if not os.path.isdir(os.path.dirname(path)):
        return as_result(None, path, holder, None, "no run holds the lock")
    with cluster_locks.exclusive(os.path.dirname(path)):
        current = read_breakable(path, break_lock=params["break_lock"])
        action, reason = cluster_locks.decide_release(current, holder, break_lock=params["break_lock"])
        if action:
            os.unlink(path)
        return as_result(cluster_locks.read(path), path, holder, action, reason)


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    path = params["path"] or os.path.join(params["state_dir"], params["cluster_name"], "lock.json")
    if not params["holder"]:
        raise ClusterError("holder is missing", remedy="Call gb10.cluster.cluster_lock by its full name: its action plugin sets the holder.")
    if module.check_mode:
        return preview(params, path)
    try:
        return {"acquired": acquire, "released": release}[params["state"]](params, path)
    except OSError as error:
        where = error.filename or path
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = f"Free some space and run again: df -h {os.path.dirname(path)}"
            raise ClusterError(f"{where}: {error.strerror}, so the lock could not be written", remedy=remedy, reason="disk full") from error
        raise ClusterError(f"{where}: {error.strerror}", remedy="Run the task with become: true.", reason="permission") from error


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["acquired", "released"], "default": "acquired"},
            "cluster_name": {"type": "str", "default": "gb10"},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "path": {"type": "path"},
            "break_lock": {"type": "bool", "default": False},
            "only_id": {"type": "str"},
            "holder": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
