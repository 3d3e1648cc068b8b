#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: guard_info
short_description: Read what the node's guard recorded
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Reads the ring that the node guard (M(gb10.cluster.node_guard)) keeps on the node's disk, also where the guard is gone. Changes nothing.
  - Tells of each boot in the ring when its first and last record was written and whether the guard was stopped in order then, and returns the records of
    a window of time.
  - A line that a power cut left torn is passed over and counted.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._look
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  state_dir:
    description:
      - Directory on the node that holds the state of the collection's clusters.
    type: path
    default: /var/lib/gb10
  seconds:
    description:
      - How many seconds before its end the window begins, 1 to 3600.
    type: int
    default: 60
  until:
    description:
      - The end of the window, in seconds since 1970. Without it each boot has a window of its own, which ends with its last record.
    type: float
seealso:
  - module: gb10.cluster.node_guard
"""

EXAMPLES = r"""
- name: Read the last minute of each boot
  gb10.cluster.guard_info:
  become: true
"""

RETURN = r"""
guard:
  description: What of the guard is on the node.
  returned: success
  type: dict
  contains:
    installed:
      description: Whether its unit is there.
      type: bool
    enabled:
      description: Whether it is started at boot; null when systemd does not say.
      type: bool
    active:
      description: Whether it runs; null when systemd does not say.
      type: bool
    ring:
      description: Where its ring lies.
      type: str
    ring_bytes:
      description: How many bytes the ring has. Null for whoever may not read it.
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
    active: true
    ring: /var/lib/gb10/guard/ring
    ring_bytes: 8734021
    older: false
    said: null
boot_id:
  description: The kernel's id of the boot that runs now.
  returned: success
  type: str
  sample: 5f1c2d9e-7b3a-4d0e-9a51-2f0c8f3b7a11
now:
  description: The node's clock, in seconds since 1970.
  returned: success
  type: float
  sample: 1795444512.084
clock:
  description: What the kernel says of the clock.
  returned: success
  type: dict
  contains:
    synchronized:
      description: Whether it is synchronized; null when the kernel does not say.
      type: bool
    offset_s:
      description: By how many seconds it is off; null when the kernel does not say.
      type: float
  sample:
    synchronized: true
    offset_s: 0.00012
boots:
  description: The boots in the ring, the oldest first, at most six.
  returned: success
  type: list
  elements: dict
  contains:
    boot_id:
      description: The kernel's id of the boot.
      type: str
    first:
      description: When the first record was written, in seconds since 1970.
      type: float
    last:
      description: When the last record was written.
      type: float
    stopped:
      description: Whether the guard was stopped in order at the end, as at a shutdown.
      type: bool
    current:
      description: Whether the boot runs now.
      type: bool
    records:
      description: The records of the window, as the guard wrote them.
      type: list
      elements: dict
    torn:
      description: Lines in the window's segments that cannot be read.
      type: int
  sample: []
"""

import os
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._guard import guard_files, ring
from ansible_collections.gb10.cluster.plugins.module_utils._host import timekeeping
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least, run
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME

#: Seconds of a window at most.
LONGEST = 3600


def clock() -> dict[str, t.Any]:
    """Return what the kernel says of the clock."""
    try:
        synchronized, offset = timekeeping.judge_kernel_clock(timekeeping.kernel_clock())
    except OSError:
        return {"synchronized": None, "offset_s": None}
    return {"synchronized": synchronized, "offset_s": offset / 1000}


def view(boot: ring.Boot, current: str, seconds: int, until: float | None) -> dict[str, t.Any]:
    """Return one boot with the records of its window."""
    end = boot.last if until is None else until
    records, torn = ring.window(boot, end - seconds, end)
    return {
        "boot_id": boot.boot_id,
        "first": boot.first,
        "last": boot.last,
        "stopped": boot.stopped,
        "current": boot.boot_id == current,
        "records": records,
        "torn": torn,
    }


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    require_least(params, {"seconds": 1})
    if params["seconds"] > LONGEST:
        raise ClusterError(f"seconds is {params['seconds']}, expected {LONGEST} or less", remedy="Correct seconds.", reason="input")
    current = boot_id(params["roots"]["proc_root"])
    folder = os.path.join(params["state_dir"], guard_files.FOLDER, guard_files.RING)
    try:
        boots = [view(boot, current, params["seconds"], params["until"]) for boot in ring.boots(folder)]
    except OSError as error:
        raise ClusterError(f"{error.filename or folder}: {error.strerror or error}", remedy=BECOME, reason="ring") from error
    found = guard_files.guard(guard_files.unit_of(params["state_dir"], params["roots"]["etc_root"]))
    what = f"{len(boots)} boot(s) in the ring" if boots else "there is no ring on this node"
    return {"msg": what, "guard": found, "boot_id": current, "now": time.time(), "clock": clock(), "boots": boots}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "seconds": {"type": "int", "default": 60},
            "until": {"type": "float"},
            "roots": ROOTS,
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
