#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: proof_record
short_description: Record what the proof found of a run of the engine
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Records on the head's node whether a run of the engine passed its proof, and which rules it failed. The playbook status calls a run without such a
    record, or with one that failed, C(unproven).
  - Of the same run the last proof counts. A node keeps 32 of a cluster.
notes:
  - A record is not state of the node, so RV(ignore:changed) stays false.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._cluster
options:
  state_dir:
    description:
      - Directory on the node that holds the state of the collection's clusters. The records are C(proofs.json) in that of the cluster.
    type: path
    default: /var/lib/gb10
  run_id:
    description:
      - The engine's run.
    type: str
    required: true
  failed:
    description:
      - Ids of the rules that it failed. An empty list means that it passed.
    type: list
    elements: str
    required: true
attributes:
  check_mode:
    support: full
    details:
      - Looks, and writes nothing.
  diff_mode:
    support: none
seealso:
  - module: gb10.cluster.memory_record
  - module: gb10.cluster.node_container_info
    description: RV(gb10.cluster.node_container_info#module:last_proof) is the newest record of a node.
"""

EXAMPLES = r"""
- name: Record that the run passed
  gb10.cluster.proof_record:
    run_id: "{{ served.run_id }}"
    failed: []
  become: true
"""

RETURN = r"""
path:
  description: Where the records lie on the node.
  returned: success
  type: str
  sample: /var/lib/gb10/gb10/proofs.json
record:
  description: What is on record of the run, or would be in check mode.
  returned: success
  type: dict
  contains:
    run_id:
      description: The engine's run.
      type: str
      sample: 20261123T140000Z-1
    failed:
      description: Ids of the rules that it failed.
      type: list
      elements: str
      sample: [proof.fabric]
    recorded_at:
      description: When it was recorded, UTC.
      type: str
      sample: "2026-11-23T14:05:00Z"
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _module
from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._records import proofs


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    path = proofs.FILE.path_of(params["state_dir"], params["cluster_name"])
    failed = sorted(set(params["failed"]))
    known = proofs.FILE.read(path)
    record = {"run_id": params["run_id"], "failed": failed, "recorded_at": utc_text()}
    if not module.check_mode:
        proofs.FILE.write(path, proofs.with_proof(known, record))
    what = f"failed {', '.join(failed)}" if failed else "passed its proof"
    return {"msg": f"run {params['run_id']} {what}", "path": path, "record": record}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "cluster_name": {"type": "str", "default": "gb10"},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "run_id": {"type": "str", "required": True},
            "failed": {"type": "list", "elements": "str", "required": True},
        },
        supports_check_mode=True,
    )
    _module.run(module, work)


if __name__ == "__main__":
    main()
