#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: glance_info
short_description: Read without any rights what a node serves
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Reads what a node shows to everybody, which is the declared mode with its last events, what the units of its engines say of themselves, and memory.
  - It asks no engine, no Docker and no driver, needs no C(become), and answers within a moment. An engine without a unit is not seen.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
  - gb10.cluster._look
options:
  state_dir:
    description:
      - Directory on the node that holds the state of the collection's clusters.
    type: path
    default: /var/lib/gb10
seealso:
  - module: gb10.cluster.mode_info
  - module: gb10.cluster.vllm_serve_info
    description: Asks the engine itself.
"""

EXAMPLES = r"""
- name: See what the node serves
  gb10.cluster.glance_info:
  register: answer
"""

RETURN = r"""
mode:
  description: The declared mode, as RV(gb10.cluster.mode_info#module:record). Null when none was ever declared.
  returned: success
  type: dict
  sample: {"mode": "off", "phase": settled, "reason": "", "clusters": {}, "previous": {}, "changed_at": "2026-11-24T02:10:00Z", "events": []}
lease:
  description: The lease of the node, as RV(gb10.cluster.mode_lease#module:lease). Empty when there is none.
  returned: success
  type: dict
  sample: {}
engines:
  description:
    - What the unit of each engine says of itself. C(state) is V(starting), V(running), V(stopped), V(refused), V(failed), or V(unknown) where it was written
      before the node's present boot and nothing was since. C(token) has the C(seconds) to the last token that was asked for, and C(at) when that was.
  returned: success
  type: list
  elements: dict
  sample:
    - cluster: gb10
      role: head
      state: running
      reason: ""
      at: "2026-11-24T02:10:00Z"
      model: nvidia/nemotron-3-super
      endpoint: http://192.168.100.10:8000/v1
      token: {"seconds": 0.41, "at": "2026-11-24T02:10:00Z"}
sweep:
  description:
    - What the last health sweep of the node found, with C(last_sweep), C(quiet), C(problems), C(last_alert) and C(undelivered) of
      RV(gb10.cluster.health_sweep#module:sweep). Empty where there was none.
  returned: success
  type: dict
  sample: {"last_sweep": "2026-11-24T02:10:00Z", "quiet": "", "problems": [], "last_alert": "", "undelivered": {}}
memory:
  description: C(total_mb) and C(available_mb) of the node, in MiB.
  returned: success
  type: dict
  sample: {"total_mb": 124610, "available_mb": 18200}
errors:
  description: What could not be read, as text.
  returned: success
  type: list
  elements: str
  sample: []
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _module
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.module_utils._lease import record as leases
from ansible_collections.gb10.cluster.plugins.module_utils._memory import accounting, node_memory
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import sweep_files as sweep_look
from ansible_collections.gb10.cluster.plugins.module_utils._unit import glance


def engine(one: glance.Glance, boot: str) -> dict[str, t.Any]:
    """Return what a unit said, as it may be taken now: what ran in another boot runs no more until its unit says so."""
    shown = {key: value for key, value in one.items() if key != "boot_id"}
    if one["boot_id"] != boot and one["state"] in ("starting", "running"):
        return {**shown, "state": "unknown", "reason": f"it was {one['state']} before the last boot", "token": {}}
    return shown


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params, roots, errors = module.params, module.params["roots"], []

    def seen(read: t.Callable[[], t.Any], otherwise: t.Any) -> t.Any:
        try:
            return read()
        except (ClusterError, OSError) as error:
            errors.append(str(error))
            return otherwise

    def memory() -> dict[str, int]:
        figures = node_memory.read_meminfo(roots["proc_root"], roots.get("meminfo"))
        return {"total_mb": figures["MemTotal"] // 1024, "available_mb": accounting.available_mb(figures)}

    def sweep() -> dict[str, t.Any]:
        state = sweep_look.read_state(sweep_look.folder_of(params["state_dir"]))
        return sweep_look.shown(state) if state else {}

    def engines() -> list[dict[str, t.Any]]:
        for cluster in glance.hidden(params["state_dir"], roots["etc_root"]):
            errors.append(f"the unit of cluster {cluster} is of an older version, and shows what it does to root alone until a bring-up of {cluster} renews it")
        return [engine(one, boot) for one in glance.on_node(params["state_dir"])]

    boot = seen(lambda: boot_id(roots["proc_root"]), "")
    result = {
        "mode": seen(lambda: modes.read(params["state_dir"]), None),
        "lease": seen(lambda: leases.summary(leases.read(params["state_dir"]), boot), {}),
        "engines": seen(engines, []),
        "sweep": seen(sweep, {}),
        "memory": seen(memory, {}),
        "errors": errors,
    }
    return {**result, "msg": "; ".join(errors) or "all was seen"}


def main() -> None:
    module = AnsibleModule(argument_spec={"state_dir": {"type": "path", "default": "/var/lib/gb10"}, "roots": ROOTS}, supports_check_mode=True)
    _module.run(module, work)


if __name__ == "__main__":
    main()
