# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The guard's records: by boot, or a summary of some hours. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import os
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id
from ansible_collections.gb10.cluster.plugins.module_utils._guard import guard_files, ring, span
from ansible_collections.gb10.cluster.plugins.module_utils._host import timekeeping
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least, require_most
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME

#: Seconds of a window, and points of a curve, at most.
LONGEST, MOST_POINTS = 3600, 2000

Params = dict[str, t.Any]


def clock() -> dict[str, t.Any]:
    """Return the kernel's clock state."""
    try:
        synchronized, offset = timekeeping.judge_kernel_clock(timekeeping.kernel_clock())
    except OSError:
        return {"synchronized": None, "offset_s": None}
    return {"synchronized": synchronized, "offset_s": offset / 1000}


def about(params: Params) -> dict[str, t.Any]:
    """Return the guard's state, the current boot, and the node's clock."""
    guard = guard_files.guard(guard_files.unit_of(params["state_dir"], params["roots"]["etc_root"]))
    return {"guard": guard, "boot_id": boot_id(params["roots"]["proc_root"]), "now": time.time()}


@contextlib.contextmanager
def read(params: Params) -> t.Iterator[list[ring.Boot]]:
    """Yield the boots in the ring. Raises :class:`ClusterError` when they or their records may not be read."""
    folder = os.path.join(params["state_dir"], guard_files.FOLDER, guard_files.RING)
    try:
        yield ring.boots(folder)
    except OSError as error:
        raise ClusterError(f"{error.filename or folder}: {error.strerror or error}", remedy=BECOME, reason="ring") from error


def view(boot: ring.Boot, current: str, seconds: int, end: float) -> dict[str, t.Any]:
    """Return one boot with the records of its window."""
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


def records(module: AnsibleModule) -> dict[str, t.Any]:
    """Return the records of a window, by boot."""
    params = module.params
    require_least(params, {"seconds": 1})
    require_most(params, {"seconds": LONGEST})
    facts = about(params)
    with read(params) as there:
        boots = [view(boot, facts["boot_id"], params["seconds"], boot.last if params["end"] is None else params["end"]) for boot in there]
    what = f"{len(boots)} boot(s) in the ring" if boots else "there is no ring on this node"
    return {**facts, "msg": what, "clock": clock(), "boots": boots}


def summary(module: AnsibleModule) -> dict[str, t.Any]:
    """Return the summary of this boot's records since a moment."""
    params = module.params
    require_least(params, {"points": 10})
    require_most(params, {"points": MOST_POINTS})
    facts, since = about(params), params["since"]
    if since is None:
        return {**facts, "msg": "the clock, the boot and the guard", "seen": None}
    now = facts["now"]
    with read(params) as there:
        taken = [record for boot in there if boot.boot_id == facts["boot_id"] for record in ring.window(boot, since, now)[0]]
    seen = span.summary(taken, since, now, params["points"])
    return {**facts, "msg": f"{seen['samples']} sample(s) in {now - since:.0f} s", "seen": seen}
