# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The records of the guard, by boot. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id
from ansible_collections.gb10.cluster.plugins.module_utils._guard import guard_files, ring
from ansible_collections.gb10.cluster.plugins.module_utils._host import timekeeping
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least
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
        boots = [view(boot, current, params["seconds"], params["end"]) for boot in ring.boots(folder)]
    except OSError as error:
        raise ClusterError(f"{error.filename or folder}: {error.strerror or error}", remedy=BECOME, reason="ring") from error
    found = guard_files.guard(guard_files.unit_of(params["state_dir"], params["roots"]["etc_root"]))
    what = f"{len(boots)} boot(s) in the ring" if boots else "there is no ring on this node"
    return {"msg": what, "guard": found, "boot_id": current, "now": time.time(), "clock": clock(), "boots": boots}
