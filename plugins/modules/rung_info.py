#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rung_info
short_description: Read what a node's guard recorded since a moment
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Reads the ring of the node guard (M(gb10.cluster.node_guard)) from a moment of this boot on, and returns what some hours of it come to, namely the curve of
    the available memory, silences, what the guard did, and lines of the kernel that are worth telling.
  - The ladder (C(bench --tags ladder)) judges by it how a node bore a context length.
  - A ring without samples of that time leaves the figures null. Nothing is changed.
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
  since:
    description:
      - The moment, in seconds since 1970 by the node's clock. Without it nothing is read but the clock, the boot and the guard.
    type: float
  points:
    description:
      - Points of the curve at most, 10 to 2000. Each is the least of its piece of time.
    type: int
    default: 240
seealso:
  - module: gb10.cluster.guard_info
    description: Has the records themselves, of an hour at most.
"""

EXAMPLES = r"""
- name: See what time it is there
  gb10.cluster.rung_info:
  become: true
  register: before

- name: Read what happened since
  gb10.cluster.rung_info:
    since: "{{ before.now }}"
  become: true
"""

RETURN = r"""
guard:
  description: What of the guard is on the node, as M(gb10.cluster.guard_info) has it.
  returned: success
  type: dict
  sample: {"installed": true, "enabled": true, "active": true, "ring": /var/lib/gb10/guard/ring, "ring_bytes": 8734021}
now:
  description: The node's clock, in seconds since 1970.
  returned: success
  type: float
  sample: 1795444512.084
boot_id:
  description: The kernel's id of the boot that runs now.
  returned: success
  type: str
  sample: 5f1c2d9e-7b3a-4d0e-9a51-2f0c8f3b7a11
seen:
  description: What the ring has of the time since then. Null without O(since).
  returned: success
  type: dict
  contains:
    samples:
      description: How many samples know the available memory.
      type: int
      sample: 1240
    curve:
      description: C([seconds since then, MiB available]), each the least of its piece of time.
      type: list
      elements: list
      sample: [[0.4, 118800], [5.1, 96120]]
    lowest_mb:
      description: The least MiB that were available; null where no sample knows it.
      type: int
      sample: 20100
    lowest_after_s:
      description: When that was.
      type: float
      sample: 311.2
    longest_silence_s:
      description: The longest time without a sample. The guard takes one a second, so a long one means that the node stood still.
      type: float
      sample: 2.0
    kernel:
      description: Kind and text of the kernel's lines, each once.
      type: list
      elements: list
      sample: [["xid", "NVRM: Xid (PCI:000f:01:00): 43, pid=7, name=VLLM"]]
    acts:
      description: What the guard did, or would have done.
      type: list
      elements: str
      sample: []
"""

import os
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._guard import guard_files, ring, span
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least, run
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME

MOST_POINTS = 2000


def seen(folder: str, boot: str, since: float, now: float, points: int) -> dict[str, t.Any]:
    """Return what the ring has of this boot since a moment. Raises :class:`ClusterError` when it may not be read."""
    try:
        records = [record for one in ring.boots(folder) if one.boot_id == boot for record in ring.window(one, since, now)[0]]
    except OSError as error:
        raise ClusterError(f"{error.filename or folder}: {error.strerror or error}", remedy=BECOME, reason="ring") from error
    return span.summary(records, since, now, points)


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    require_least(params, {"points": 10})
    if params["points"] > MOST_POINTS:
        raise ClusterError(f"points is {params['points']}, expected {MOST_POINTS} or less", remedy="Correct points.", reason="input")
    boot, now = boot_id(params["roots"]["proc_root"]), time.time()
    about = {"guard": guard_files.guard(guard_files.unit_of(params["state_dir"], params["roots"]["etc_root"])), "now": now, "boot_id": boot}
    if params["since"] is None:
        return {**about, "msg": "the clock, the boot and the guard", "seen": None}
    found = seen(os.path.join(params["state_dir"], guard_files.FOLDER, guard_files.RING), boot, params["since"], now, params["points"])
    return {**about, "msg": f"{found['samples']} sample(s) in {now - params['since']:.0f} s", "seen": found}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "since": {"type": "float"},
            "points": {"type": "int", "default": 240},
            "roots": ROOTS,
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
