#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_unit
short_description: Set up the systemd unit of an engine on a node, or take it away
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - The unit C(gb10-engine-CLUSTER.service) stops the engine gently, and recreates container and engine after a reboot, without a controller. It runs
    the modules of this collection with the arguments in O(specification), which are those that the roles pass to them. No other command line exists.
  - With O(state=present), specification (mode 0600) and program are written into C(CLUSTER/unit) below O(state_dir), where root alone can look, and the unit is
    started. An engine that lives as specified is taken over as it is. One that the unit's specification changed under is not touched either.
  - With O(state=kept), a unit that is there stays with its files. It does not run, nor start at boot. Engine and container run on.
  - With O(state=absent), the unit and its files go. Engine and container run on.
  - A unit of that name that this collection did not write, or that somebody edited, stays as it is, and the module fails.
  - When the node was not shut down cleanly, the first start of the next boot is refused, with the reason in the journal and in RV(unit). A
    person's C(systemctl start) after that goes ahead. So does the first start when root made the file C(power_cycled) in O(state_dir) before, which is
    removed.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._cluster
  - gb10.cluster._cluster.state_dir
  - gb10.cluster._look
  - gb10.cluster._unit
  - gb10.cluster._unit.start
  - gb10.cluster._unit.program
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  state:
    description:
      - Whether the unit is there. With V(kept), one that is there can be started later, and none is set up.
    type: str
    choices: [present, kept, absent]
    default: present
  specification:
    description:
      - What the unit does, as the role P(gb10.cluster.engine#role) makes it. Required with O(state=present).
    type: dict
  log_dir:
    description:
      - Directory on the node that holds the logs of the collection's clusters.
    type: path
    default: /var/log/gb10
  lock_id:
    description:
      - Id of the cluster's lock that this run took (RV(gb10.cluster.cluster_lock#module:lock)). Before it writes, starts or removes anything, the module makes
        sure that the lock on this node still is that one. With an empty one nothing is checked.
    type: str
    default: ""
seealso:
  - module: gb10.cluster.vllm_serve
  - module: gb10.cluster.ray_cluster
  - module: gb10.cluster.node_container
"""

EXAMPLES = r"""
- name: Have the engine come back after a clean reboot
  gb10.cluster.engine_unit:
    enabled: true
    specification: "{{ __engine_unit_specification }}"
  become: true

- name: Take the unit away, and leave the engine running
  gb10.cluster.engine_unit:
    state: absent
  become: true
"""

RETURN = r"""
unit:
  description: What of the unit is on the node afterwards, in check mode before.
  returned: success
  type: dict
  contains:
    name:
      description: Its name.
      type: str
    installed:
      description: Whether it is there.
      type: bool
    files:
      description: Whether its specification and program are there.
      type: bool
    enabled:
      description: Whether it is started at boot. Null when systemd does not say.
      type: bool
    starting:
      description: Whether it starts, and has not come up yet. Null when systemd does not say.
      type: bool
    active:
      description: Whether it runs. Null when systemd does not say.
      type: bool
    failed:
      description: Whether it failed, or refused to start. Null when systemd does not say.
      type: bool
    state:
      description: What it recorded last, C(starting), C(running), C(stopped), C(refused) or C(failed). Empty when it never ran.
      type: str
    reason:
      description: Why.
      type: str
    at:
      description: When, in UTC.
      type: str
    error:
      description: Why its record cannot be read, empty when it can.
      type: str
  sample:
    name: gb10-engine-gb10.service
    installed: true
    files: true
    enabled: true
    starting: false
    active: true
    failed: false
    state: running
    reason: ""
    at: "2026-11-24T02:10:00Z"
    error: ""
needs_program:
  description: Whether the node has another program than O(program_digest). The action plugin sends it then.
  returned: success
  type: bool
  sample: false
"""

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._files import private
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._module import run
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import python
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit
from ansible_collections.gb10.cluster.plugins.module_utils._unit import glance, place, specification, specified, text, unit_files

Params = dict[str, t.Any]


def wanted(params: Params, where: Unit) -> dict[str, bytes]:
    """Return the files that are wanted. Raises :class:`ClusterError` for a specification that cannot be used."""
    given = dict(specification.check({**(params["specification"] or {}), "roots": params["roots"]}))
    container = specification.step(given, "start", "container") or {"arguments": {}}
    env, roots = container["arguments"].get("env") or {}, params["roots"]
    given["seen"] = place.seen(given["address"], env, roots["sysfs_root"], roots["proc_root"])
    return {
        os.path.join(where.folder, specification.FILE): specification.dump(given).encode(),
        where.path: text.engine(where.folder, python.of_units("docker"), given).encode(),
    }


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    unit = unit_files.of_engine(params["state_dir"], params["cluster_name"], params["roots"]["etc_root"])
    lock = cluster_locks.path_of(params["state_dir"], params["cluster_name"])

    def begin() -> None:
        cluster_locks.check_held(lock, params["lock_id"])
        private.make(os.path.dirname(unit.folder))

    beside = glance.paths_of(params["state_dir"], params["cluster_name"])
    return specified.bring(module, unit, "the engine", lambda: wanted(params, unit), *beside, locks=True, check_held=begin)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **specified.ARGUMENT_SPEC,
            "state": {"type": "str", "choices": ["present", "kept", "absent"], "default": "present"},
            "cluster_name": {"type": "str", "default": "gb10"},
            "log_dir": {"type": "path", "default": "/var/log/gb10"},
            "lock_id": {"type": "str", "default": ""},
        },
        required_if=[("state", "present", ["specification"])],
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
