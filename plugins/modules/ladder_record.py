#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ladder_record
short_description: Keep on a node how far its context was raised
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Writes a climb of the playbook ladder to the node, with what it was made with (image, profile, driver, kernel, MemTotal, what others held), its last good
    rung, and each rung's verdict and memory curve.
  - A climb takes the place of itself as it was before, and of one that was made with the same things. A node keeps 16 of a cluster.
  - A bring-up of the same profile serves the last good rung, as long as image, driver, kernel and MemTotal are the same and others hold no more.
notes:
  - A record is not state of the node, so RV(ignore:changed) stays false.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._cluster
attributes:
  check_mode:
    support: full
    details:
      - Checks the climb, and writes nothing.
  diff_mode:
    support: none
options:
  state_dir:
    description:
      - Directory on the node that holds the state of the collection's clusters. The climbs are C(ladder.json) in that of the cluster.
    type: path
    default: /var/lib/gb10
  climb:
    description:
      - The climb. It has C(climb_id), C(image_id), C(profile), C(profile_digest), C(driver), C(kernel), C(boot_id), C(began_at), C(outcome) (C(climbing),
        C(top), C(returned) or C(off)), C(reason), C(total_mb), C(tenants_mb), C(tenants), C(rung) (the last good one), C(trying) and C(rungs), of which
        each has C(context), C(good), C(reasons) and C(curve) at least.
    type: dict
    required: true
seealso:
  - module: gb10.cluster.node_info
    description: RV(gb10.cluster.node_info#module:ladder) are the climbs of a node.
  - module: gb10.cluster.memory_record
"""

EXAMPLES = r"""
- name: Keep it
  gb10.cluster.ladder_record:
    climb: "{{ climb }}"
  become: true
"""

RETURN = r"""
path:
  description: Where the climbs lie on the node.
  returned: success
  type: str
  sample: /var/lib/gb10/gb10/ladder.json
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _module
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._records import climbs


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    climb = params["climb"]
    wrong = climbs.wrong(climb)
    if wrong:
        raise ClusterError(f"climb: {wrong}", remedy="Pass the climb as the playbook ladder makes it.", reason="input")
    path = climbs.FILE.path_of(params["state_dir"], params["cluster_name"])
    known = climbs.FILE.read(path)
    if not module.check_mode:
        climbs.FILE.write(path, climbs.with_climb(known, climb))
    state = f"{climb['trying']} is tried" if climb["trying"] else climb["outcome"]
    return {"msg": f"the last good rung is {climb['rung'] or 'none'}, {state}", "path": path}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "cluster_name": {"type": "str", "default": "gb10"},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "climb": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    _module.run(module, work)


if __name__ == "__main__":
    main()
