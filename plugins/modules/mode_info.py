#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: mode_info
short_description: Read which mode a node was declared to be in, and which clusters are on it
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Reads the record that M(gb10.cluster.cluster_record) keeps, and what is on the node of the collection's clusters, whether it runs or not.
  - It fails where Docker does not answer, or the record cannot be read; what is not known must not pass for nothing.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
  - gb10.cluster._docker
  - gb10.cluster._look
options:
  state_dir:
    description:
      - Directory on the node that holds the state of the collection's clusters.
    type: path
    default: /var/lib/gb10
  log_dir:
    description:
      - Directory on the node that holds the logs of clusters.
    type: path
    default: /var/log/gb10
seealso:
  - module: gb10.cluster.cluster_record
  - module: gb10.cluster.vllm_serve_info
"""

EXAMPLES = r"""
- name: See what is there
  gb10.cluster.mode_info:
  become: true
  register: answer
"""

RETURN = r"""
record:
  description: The declared mode with its events, null when none was ever declared.
  returned: success
  type: dict
  sample: {"mode": "off", "phase": settled, "reason": "", "clusters": {}, "previous": {}, "changed_at": "2026-11-24T02:10:00Z", "events": []}
lease:
  description: The lease of the node, as RV(gb10.cluster.mode_lease#module:lease). Empty when there is none.
  returned: success
  type: dict
  sample: {}
clusters:
  description: The clusters that have a container on the node, by name.
  returned: success
  type: dict
  contains:
    role:
      description: Whether this node is its C(head) or a C(worker).
      type: str
    running:
      description: Whether the container runs.
      type: bool
    live:
      description: Whether the engine, or this node's part of it, lives. With Ray the head alone knows.
      type: bool
    run_id:
      description: The last run of the engine, empty when there was none.
      type: str
    argv:
      description: What the engine was started with, empty when that is not known.
      type: list
      elements: str
  sample: {"spark-1": {"role": "head", "running": true, "live": true, "run_id": "20261124T020000Z-3f9a", "argv": ["vllm", "serve", "Qwen/Qwen3-8B"]}}
companions_unit:
  description: Whether the unit that starts companions at a boot is on the node (M(gb10.cluster.companions_unit)).
  returned: success
  type: bool
  sample: false
"""

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _module
from ansible_collections.gb10.cluster.plugins.module_utils._docker import survey
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._engine.engine_state import EnginePaths, engine_state
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.module_utils._lease import record as leases
from ansible_collections.gb10.cluster.plugins.module_utils._unit import unit_files

#: What a container can be of a cluster; others of this collection serve no model.
ROLES = ("head", "worker")


def cluster_of(params: dict[str, t.Any], container: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return what is known of a container's cluster. A note that cannot be read says nothing of an engine that may live."""
    running = container["state"] in ("running", "paused")
    engine = engine_state(EnginePaths.of(params["state_dir"], params["log_dir"], container["cluster"]), lenient=True)
    return {
        "role": container["role"],
        "running": running,
        "live": running and (engine["live"] or bool(engine["unreadable"])),
        "run_id": engine["run_id"],
        "argv": engine["argv"],
    }


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    record = modes.read(params["state_dir"])
    entries = survey.entries_of(EngineApi(params["docker_socket"], params["docker_timeout"]).containers({}))
    there = [one for one in survey.ours(entries) if one["cluster"] and one["role"] in ROLES]
    clusters = {one["cluster"]: cluster_of(params, one) for one in there}
    return {
        "msg": f"{record['mode'] if record else 'no mode is declared'}; {', '.join(clusters) or 'no cluster'}",
        "record": record,
        "lease": leases.summary(leases.read(params["state_dir"]), boot_id(params["roots"]["proc_root"])),
        "clusters": clusters,
        "companions_unit": os.path.lexists(unit_files.of_companions(params["state_dir"]).path),
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "log_dir": {"type": "path", "default": "/var/log/gb10"},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
            "roots": ROOTS,
        },
        supports_check_mode=True,
    )
    _module.run(module, work)


if __name__ == "__main__":
    main()
