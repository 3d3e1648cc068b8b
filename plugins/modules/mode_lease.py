#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: mode_lease
short_description: Keep on a node for how long a mode is there for one command, and who holds that lease
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - A lease is a mode that the playbook C(mode) brought up for one command of the controller. While the command runs, the controller renews the lease on every
    node. Where it does not for O(lost_seconds), the node ends the lease by itself. A reboot ends it at once.
  - With O(state=present), the node gets the record of the lease and the unit C(gb10-lease.service), which watches it, at boot, too. The unit's program is the
    collection's own code, in C(lease) below O(state_dir).
  - To end a lease, that unit takes over the lock of the mode, stops the units of O(clusters), which drain their engines (a worker's waits for the head's), and
    waits until the node's memory is back. Then it starts the units of O(restore), and writes into the record of the mode (M(gb10.cluster.mode_info)) what it
    did.
  - The module itself starts and stops no engine.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._cluster.state_dir
  - gb10.cluster._look
  - gb10.cluster._unit
  - gb10.cluster._unit.program
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details:
      - A lease is a record of who uses the nodes, not a setting of theirs.
options:
  state:
    description:
      - With V(present), the lease begins. The lease of an earlier run is replaced.
      - With V(renewed), the caller says that it lives. It fails when the lease is over, or another's.
      - With V(returning), nothing is there for the lease any more, and the caller brings back what was there before. Where it is not heard of for
        O(lost_seconds), and no run works on a cluster of O(restore), the node starts its unit. A lease that is over, or another's, is left alone.
      - With V(given_up), the caller says that it needs the lease no more, so that the node ends it now. A lease that is over, or another's, is left alone.
      - With V(absent), nothing of a lease is left. What serves goes on.
    type: str
    choices: [present, renewed, returning, given_up, absent]
    default: present
  lease_id:
    description:
      - Id of the lease, which is that of the mode's lock (RV(gb10.cluster.cluster_lock#module:lock)). Required unless O(state=absent).
    type: str
  holder:
    description:
      - Who holds it, as the lock has it. Required with O(state=present).
    type: dict
  program:
    description:
      - Name of the command's program, for people. Its arguments stay on the controller.
    type: str
    default: ""
  mode:
    description:
      - The mode that is there for the command. Required with O(state=present).
    type: str
    choices: [cluster, singles]
  lost_seconds:
    description:
      - Seconds without a word of the caller after which the node ends the lease, 20 or more. V(renewed) and V(returning) replace what it was.
    type: int
    default: 300
  clusters:
    description:
      - Names of the clusters that have a part on this node for the lease. Each needs its unit (M(gb10.cluster.engine_unit)). Required with
        O(state=present).
    type: list
    elements: str
  restore:
    description:
      - Names of the clusters that were there before and whose units were kept on this node (O(gb10.cluster.engine_unit#module:state=kept)). One without a unit
        is left out, and the node says so when it ends the lease.
    type: list
    elements: str
    default: []
  whole:
    description:
      - Whether O(restore) names all that this node had before.
    type: bool
    default: true
  awaits:
    description:
      - For a worker, where the head answers as long as its part of the engine is there (C(address), C(port)), and how many C(seconds) the worker waits for its
        end. Empty for a node that waits for nobody.
    type: dict
    default: {}
  tolerance_mb:
    description:
      - How many MiB less than noted count as back, as O(gb10.cluster.memory_watch#module:tolerance_mb).
    type: int
    default: 4096
  wait_timeout:
    description:
      - Seconds to wait for the memory, as O(gb10.cluster.memory_watch#module:wait_timeout).
    type: int
    default: 180
  companions:
    description:
      - Whether companions are declared. The node leaves them as they are, so a mode with some is not settled when it ended a lease.
    type: bool
    default: false
seealso:
  - module: gb10.cluster.lease_command
  - module: gb10.cluster.cluster_record
  - module: gb10.cluster.engine_unit
"""

EXAMPLES = r"""
- name: Let the node watch over the lease
  gb10.cluster.mode_lease:
    lease_id: "{{ mode_lock['lock']['id'] }}"
    holder: "{{ mode_lock['lock']['holder'] }}"
    program: judge.sh
    mode: cluster
    clusters: [gb10]
    restore: [spark-1]
  become: true

- name: Say that the caller lives
  gb10.cluster.mode_lease:
    state: renewed
    lease_id: "{{ mode_lock['lock']['id'] }}"
  become: true
"""

RETURN = r"""
lease:
  description: The lease afterwards, in check mode before. Empty when there is none.
  returned: success
  type: dict
  contains:
    id:
      description: Its id.
      type: str
    holder:
      description: Who holds it.
      type: dict
    program:
      description: Name of the command's program.
      type: str
    mode:
      description: The mode that is there for it.
      type: str
    began_at:
      description: When it began, in UTC.
      type: str
    state:
      description: V(live), V(ending) while the node ends it by itself, or V(ended) after that.
      type: str
    reason:
      description: Why the node ended it, and what it did.
      type: str
    clusters:
      description: The clusters that have a part on this node for it.
      type: list
      elements: str
    restore:
      description: The clusters whose units the node starts again when it ends the lease.
      type: list
      elements: str
    left_seconds:
      description: Seconds after which the node ends it unless it is renewed, 0 when it is over.
      type: int
  sample:
    id: 0f3b8a2f6c1d4e57
    holder: {"user": "ada", "hostname": "workbench", "pid": 4711}
    program: judge.sh
    mode: cluster
    began_at: "2026-11-24T07:00:00Z"
    state: live
    reason: ""
    clusters: [gb10]
    restore: [spark-1]
    left_seconds: 288
kept:
  description: Clusters whose units were kept for the end of the lease and do not run. Nobody needs them after it.
  returned: with O(state=absent)
  type: list
  elements: str
  sample: []
needs_program:
  description: Whether the node has another program than O(program_digest). The action plugin sends it then.
  returned: with O(state=present) or O(state=absent)
  type: bool
  sample: false
"""

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._lease import lease_files, record
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least, run
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import install, python, setup
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit
from ansible_collections.gb10.cluster.plugins.module_utils._unit import unit_files as units

Params = dict[str, t.Any]


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
            done = setup.said(spoken(params, module.check_mode), module.check_mode, "the lease is as it should be")
    return {**done, "lease": record.summary(readable(state_dir), boot_id(params["roots"]["proc_root"]))}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "renewed", "returning", "given_up", "absent"], "default": "present"},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
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
            "tool_timeout": {"type": "int", "default": 60},
            **install.PROGRAM_SPEC,
            "roots": ROOTS,
        },
        required_if=[
            ("state", "present", ["lease_id", "holder", "mode", "clusters"]),
            ("state", "renewed", ["lease_id"]),
            ("state", "returning", ["lease_id"]),
            ("state", "given_up", ["lease_id"]),
        ],
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
