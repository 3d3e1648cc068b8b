#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: mode_record
short_description: Keep on a node which mode it was declared to be in
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Writes the declared mode to the node, where everybody may read it. A bring-up of something that the mode does not have is refused from then on.
  - What was settled before stays in the record as C(previous) until another mode has settled. The last 20 events stay as well.
  - It starts and stops nothing.
extends_documentation_fragment:
  - gb10.cluster._attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  state:
    description:
      - Whether the record is there. Without one no mode is declared, and any bring-up may go on.
    type: str
    choices: [present, absent]
    default: present
  state_dir:
    description:
      - Directory on the node that holds the state of the collection's clusters. The record is C(mode.json) in it.
    type: path
    default: /var/lib/gb10
  mode:
    description:
      - The declared mode. Required with O(state=present).
    type: str
    choices: [cluster, singles, "off"]
  phase:
    description:
      - How far it is. V(settled) means that all of it was proven, V(switching) that a change is under way or was interrupted, V(failed) that it failed,
        V(leak) that memory did not come back, so that nothing was started, and V(leased) that it is there for a lease alone (M(gb10.cluster.mode_lease)).
    type: str
    choices: [settled, switching, failed, leak, leased]
    default: settled
  reason:
    description:
      - Why it failed, in one line.
    type: str
    default: ""
  clusters:
    description:
      - What the mode has, by the name of the cluster. Each has C(profile) (its id), C(source) (the id or path that chose it) and C(nodes).
    type: dict
    default: {}
  event:
    description:
      - What happened, in one line. It is added to the events only when the record changes.
    type: str
    default: ""
seealso:
  - module: gb10.cluster.mode_info
"""

EXAMPLES = r"""
- name: Declare that one engine runs over both nodes
  gb10.cluster.mode_record:
    mode: cluster
    clusters:
      gb10: {profile: nemotron_3_super_tp2, source: nemotron_3_super_tp2, nodes: [spark-1, spark-2]}
    event: cluster is up
  become: true
"""

RETURN = r"""
record:
  description: The record afterwards, null when there is none.
  returned: success
  type: dict
  sample: {"mode": "off", "phase": settled, "reason": "", "clusters": {}, "previous": {}, "changed_at": "2026-11-24T02:10:00Z", "events": []}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _module
from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes


def plan(params: dict[str, t.Any], before: modes.Record | None, now: str) -> modes.Record | None:
    """Return the record that should be there. Raises :class:`ClusterError` for one that is not a record."""
    if params["state"] == "absent":
        return None
    wanted = modes.following(before, {key: params[key] for key in modes.SHAPE}, now, params["event"])
    if problem := modes.wrong(wanted):
        raise ClusterError(f"the record would be wrong: {problem}", remedy="Pass it as the playbook mode does.", reason="input")
    return before if before and modes.same(before, wanted) else wanted


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    before = modes.read(params["state_dir"])
    wanted = plan(params, before, utc_text())
    changed = before != wanted
    if changed and not module.check_mode:
        if wanted is None:
            modes.remove(params["state_dir"])
        else:
            modes.write(params["state_dir"], wanted)
    verb = "would be " if changed and module.check_mode else ""
    said = f"mode {wanted['mode']}, {wanted['phase']}" if wanted else "no mode"
    return {
        "changed": changed,
        "msg": f"{said}{f' ({verb}written)' if changed else ''}",
        "actions": [f"write {modes.path_of(params['state_dir'])}" if wanted else f"remove {modes.path_of(params['state_dir'])}"] if changed else [],
        "diff": {"before": before or {}, "after": wanted or {}},
        "record": wanted,
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "mode": {"type": "str", "choices": list(modes.MODES)},
            "phase": {"type": "str", "choices": list(modes.PHASES), "default": modes.SETTLED},
            "reason": {"type": "str", "default": ""},
            "clusters": {"type": "dict", "default": {}},
            "event": {"type": "str", "default": ""},
        },
        required_if=[("state", "present", ["mode"])],
        supports_check_mode=True,
    )
    _module.run(module, work)


if __name__ == "__main__":
    main()
