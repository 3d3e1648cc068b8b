#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_guard
short_description: Set up the node's guard with its black box, take it away, or tell it that the engine serves
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - The guard is one program of this collection, run by the unit C(gb10-guard.service). Every second it samples memory, pressure, swap, the GPU's clock, power
    and temperature, the fabric's links, the states of ranks and what the driver and the kernel say, into a ring on the disk that holds more than a day.
  - While ranks of this collection's containers load, less is available than their start was expected to leave (M(gb10.cluster.memory_watch)), and memory
    falls so that less than 2 GiB would be available within 10 seconds, it asks them to end, and ends them 5 seconds later if memory still falls. It signals
    no other process. Where nothing says what the start leaves, it only says what it would do, in the ring, in the journal, and as RV(guard.said).
  - Program, settings and ring are in C(guard) below O(state_dir).
  - With O(state=present) it is installed and runs. With O(state=absent) it is removed, and its ring stays unless O(forget_ring=true).
  - With O(state=serving) the guard is told that the ranks which are on the node now serve. That is a record and not state of the node, so
    RV(ignore:changed) stays false. Without a guard, nothing is done.
  - A unit of that name that this collection did not write, or that somebody edited, stays as it is, and the module fails.
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
    support: full
options:
  state:
    description:
      - Whether the guard is there, or that the engine serves.
    type: str
    choices: [present, absent, serving]
    default: present
  act:
    description:
      - When the guard may act. V(loading) while ranks load, V(always) then and while they serve, V(never) not at all.
    type: str
    choices: [loading, always, never]
    default: loading
  load_seconds:
    description:
      - Seconds after which a rank counts as serving although nobody said so, 60 or more.
    type: int
    default: 7200
  addresses:
    description:
      - Addresses of this node on the fabric. The interfaces that have them are watched, and those of RDMA devices.
    type: list
    elements: str
    default: []
  forget_ring:
    description:
      - With O(state=absent), whether the ring goes as well.
    type: bool
    default: false
  tool_timeout:
    description:
      - Seconds that systemd gets for one answer, and the guard for its first sample.
    type: int
    default: 30
seealso:
  - module: gb10.cluster.guard_info
  - module: gb10.cluster.node_protection
"""

EXAMPLES = r"""
- name: Watch the node
  gb10.cluster.node_guard:
    addresses: [192.168.100.10]
  become: true

- name: Take the guard away, with all it recorded
  gb10.cluster.node_guard:
    state: absent
    forget_ring: true
  become: true
"""

RETURN = r"""
guard:
  description: What of the guard is on the node afterwards, in check mode before.
  returned: success
  type: dict
  contains:
    name:
      description: The name of the unit.
      type: str
    installed:
      description: Whether the unit is there.
      type: bool
    files:
      description: Whether the directory of its files is there.
      type: bool
    enabled:
      description: Whether it is started at boot. Null when systemd does not say.
      type: bool
    starting:
      description: Whether it starts, and does not run yet. Null when systemd does not say.
      type: bool
    active:
      description: Whether it runs. Null when systemd does not say.
      type: bool
    failed:
      description: Whether it failed. Null when systemd does not say.
      type: bool
    ring:
      description: Where the ring lies.
      type: str
    ring_bytes:
      description: How many bytes it has. Null for whoever may not read it.
      type: int
    older:
      description: Whether an older version of this collection set it up, which ends ranks by the trend alone. The playbook guard renews it.
      type: bool
    said:
      description: What it did, or would have done, last within a day (C(text)), and when in seconds since 1970 (C(at)). Null where there is nothing.
      type: dict
  sample:
    installed: true
    enabled: true
    starting: false
    active: true
    failed: false
    ring: /var/lib/gb10/guard/ring
    ring_bytes: 8734021
    older: false
    said: null
serving:
  description: The ranks that were said to serve, each as pid and start in clock ticks since boot.
  returned: with O(state=serving)
  type: list
  elements: list
  sample: [[41270, 812345]]
needs_program:
  description: Whether the node has another program than O(program_digest). The action plugin sends it then.
  returned: with O(state=present) or O(state=absent)
  type: bool
  sample: false
"""

import os
import stat
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, file_error
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id, write_json
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._guard import guard_files, ring, trend, unit_text
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least, run
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify, process_table
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import install, python, setup
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: Seconds between two looks at whether the first sample is there.
LOOK_SECONDS = 0.5

Params = dict[str, t.Any]


def wanted(params: Params, unit: Unit) -> dict[str, bytes]:
    """Return the files of the guard by their paths, in the order in which they are written."""
    settings = unit_text.config(unit.folder, params["act"], params["load_seconds"], params["addresses"], params["roots"])
    return {
        os.path.join(unit.folder, guard_files.CONFIG): settings.encode(),
        unit.path: unit_text.unit(unit.folder, python.of_units()).encode(),
    }


def await_sample(params: Params, folder: str, since: float) -> None:
    """Wait until the guard has written a sample. Raises :class:`ClusterError` when it does not."""
    for _elapsed in clock(params["tool_timeout"], LOOK_SECONDS):
        boots = ring.boots(os.path.join(folder, guard_files.RING))
        if boots and boots[-1].boot_id == boot_id(params["roots"]["proc_root"]) and boots[-1].last >= since and not boots[-1].stopped:
            return
    remedy = f"See on the node: journalctl -u {guard_files.UNIT}"
    raise ClusterError(f"{guard_files.UNIT} was started and wrote no sample within {params['tool_timeout']} s", remedy=remedy, reason="unit")


def owned(path: str) -> bool:
    """Return whether a ring is for root and its group alone, and hands that group on to what is written there."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    return (stat.S_IMODE(found.st_mode), found.st_gid) == (stat.S_ISGID | ring.DIRECTORY_MODE, guard_files.ring_group())


def job(params: Params, unit: Unit) -> install.Job:
    """Return how the guard is set up, and seen to work."""
    rings = os.path.join(unit.folder, guard_files.RING)
    gone = [os.path.join(unit.folder, name) for name in (guard_files.PROGRAM, guard_files.CONFIG, guard_files.SERVED, guard_files.SAID)]

    def own() -> None:
        os.makedirs(rings, mode=ring.DIRECTORY_MODE, exist_ok=True)
        os.chown(rings, -1, guard_files.ring_group())
        os.chmod(rings, stat.S_ISGID | ring.DIRECTORY_MODE)

    return install.Job(
        unit,
        lambda: wanted(params, unit),
        [*gone, *([rings] if params["forget_ring"] else [])],
        mode=0o644,
        first=[] if owned(rings) else [(f"keep {rings} for root and its group", own)],
        started=lambda began: await_sample(params, unit.folder, began),
    )


def serving(module: AnsibleModule, folder: str) -> dict[str, t.Any]:
    """Tell the guard that the ranks which are there now serve."""
    params = module.params
    if not os.path.exists(os.path.join(folder, guard_files.CONFIG)):
        return {"msg": "there is no guard on this node", "serving": []}
    try:
        found = classify.parts(process_table.scan(params["roots"]["proc_root"]).processes)
        ranks = [[pid, part.process.start_ticks] for pid, part in sorted(found.items()) if part.kind in classify.ENGINE_PARTS]
        if not module.check_mode:
            write_json(os.path.join(folder, guard_files.SERVED), {"ranks": ranks})
    except (OSError, ClusterError) as error:
        # An engine that serves is not taken down for that: the guard only waits longer until it takes the ranks as serving.
        why = file_error(error, folder, BECOME) if isinstance(error, OSError) else error
        return {"msg": f"the guard was not told: {why}", "verdict": "warn", "remedy": why.remedy or BECOME, "serving": []}
    return {"msg": f"the guard knows of {len(ranks)} process(es) that serve", "serving": ranks}


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    require_least(params, {"load_seconds": 60, "tool_timeout": 1})
    unit = guard_files.unit_of(params["state_dir"], params["roots"]["etc_root"])
    if params["state"] == "serving":
        done = serving(module, unit.folder)
    else:
        with setup.failures(unit.folder):
            done = install.bring(module, job(params, unit), "guard")
    return {**done, "guard": guard_files.guard(unit, params["tool_timeout"])}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent", "serving"], "default": "present"},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "act": {"type": "str", "choices": list(trend.ACTS), "default": trend.ACT_LOADING},
            "load_seconds": {"type": "int", "default": 7200},
            "addresses": {"type": "list", "elements": "str", "default": []},
            "forget_ring": {"type": "bool", "default": False},
            "tool_timeout": {"type": "int", "default": 30},
            **install.PROGRAM_SPEC,
            "roots": ROOTS,
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
