# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the guard recorded since a moment, as figures. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id
from ansible_collections.gb10.cluster.plugins.module_utils._guard import guard_files, ring, span
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least
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
