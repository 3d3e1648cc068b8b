#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: companions_unit
short_description: Set up the systemd unit of a node's companions, or take it away
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - The unit C(gb10-companions.service) starts containers of companions at a boot, before the engine's units, and stops them gently at a shutdown. It starts
    those of O(specification) that are there; the role P(gb10.cluster.companions#role) creates them.
  - With O(state=present), specification (mode 0600) and program are written into C(companions) below O(state_dir), where root alone can look, and the unit is
    started. Companions that run as specified are taken over as they are.
  - With O(state=absent), the unit and its files go. The companions run on.
  - A unit of that name that this collection did not write, or that somebody edited, stays as it is, and the module fails.
  - A companion that does not come up is named in the journal and in RV(unit), and keeps neither the others nor an engine away.
  - When the node was not shut down cleanly, the first start of the next boot is refused, as that of M(gb10.cluster.engine_unit) is. The file C(power_cycled)
    counts for both.
requirements:
  - Docker Engine 20.10 or newer, with its command line.
extends_documentation_fragment:
  - gb10.cluster._attributes
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
      - Whether the unit is there.
    type: str
    choices: [present, absent]
    default: present
  specification:
    description:
      - What the unit starts, as the role P(gb10.cluster.companions#role) makes it. Required with O(state=present).
      - C(companions) is a list of C(name), C(port), C(health_path), C(gpus), C(health_timeout) and C(stop_timeout).
    type: dict
seealso:
  - module: gb10.cluster.engine_unit
"""

EXAMPLES = r"""
- name: Have companions come back after a clean reboot
  gb10.cluster.companions_unit:
    enabled: true
    specification:
      companions:
        - name: ollama
          port: 11434
          health_path: /api/tags
          health_timeout: 120
          stop_timeout: 120
          gpus: true
  become: true

- name: Take the unit away, and leave them running
  gb10.cluster.companions_unit:
    state: absent
  become: true
"""

RETURN = r"""
unit:
  description: What of the unit is on the node afterwards, in check mode before, as RV(gb10.cluster.engine_unit#module:unit).
  returned: success
  type: dict
  sample:
    name: gb10-companions.service
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

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._module import run
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import python
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit
from ansible_collections.gb10.cluster.plugins.module_utils._unit import beside, specification, specified, text, unit_files


def wanted(params: dict[str, t.Any], where: Unit) -> dict[str, bytes]:
    """Return the files that are wanted. Raises :class:`ClusterError` for a specification that cannot be used."""
    given = {**(params["specification"] or {}), "state_dir": params["state_dir"], "roots": params["roots"]}
    if why := beside.wrong(given):
        raise ClusterError(f"the specification cannot be used: {why}", remedy="Let the role companions write it.", reason="input")
    return {
        os.path.join(where.folder, specification.FILE): specification.dump(given).encode(),
        where.path: text.companions(where.folder, python.of_units("docker"), given).encode(),
    }


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    unit = unit_files.of_companions(params["state_dir"], params["roots"]["etc_root"])
    return specified.bring(module, unit, "the companions", lambda: wanted(params, unit))


def main() -> None:
    module = AnsibleModule(argument_spec=specified.ARGUMENT_SPEC, required_if=[("state", "present", ["specification"])], supports_check_mode=True)
    run(module, work)


if __name__ == "__main__":
    main()
