#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: page_cache_drop
short_description: Drop the kernel's caches when it pays
version_added: 0.1.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Gives memory that only holds caches back before an engine starts. CPU and GPU share one memory on GB10, and an engine that counts
    free memory sees the cache of a freshly copied model as used.
  - Predicts what a drop would give back, and drops only when that is at least O(min_reclaimable_mb).
  - The prediction for level 1 is C(Cached + Buffers - Shmem - Dirty - Mapped), for level 2 C(SReclaimable), for level 3 the sum of both.
    C(Shmem) has no file behind it, C(Dirty) is not yet written and C(Mapped) is in use, so none of the three goes. The prediction errs on the low side.
  - Never run it while an engine serves, since the engine would have to read its files again.
extends_documentation_fragment:
  - gb10.cluster._attributes
attributes:
  check_mode:
    support: full
    details:
      - Predicts, and fails as the real run would when the permission is missing.
  diff_mode:
    support: full
options:
  level:
    description:
      - What to drop. V(1) is the page cache, V(2) dentries and inodes, V(3) both.
    type: int
    choices: [1, 2, 3]
    default: 1
  min_reclaimable_mb:
    description:
      - Drop only when at least this many MiB are predicted to come back.
    type: int
    default: 1024
  sync:
    description:
      - Write dirty pages to disk first, since only clean pages can be dropped.
    type: bool
    default: true
  sync_timeout:
    description:
      - Seconds that writing dirty pages may take.
    type: int
    default: 120
  proc_root:
    description:
      - Where the proc file system is mounted.
    type: path
    default: /proc
  drop_caches_path:
    description:
      - The file that drops caches when it is written to.
      - Defaults to C(sys/vm/drop_caches) below O(proc_root).
    type: path
"""

EXAMPLES = r"""
- name: Give the page cache back before serving
  gb10.cluster.page_cache_drop:
    min_reclaimable_mb: 4096
  become: true

- name: Drop everything whatever it gives back
  gb10.cluster.page_cache_drop:
    level: 3
    min_reclaimable_mb: 0
  become: true
"""

RETURN = r"""
before:
  description: The memory figures before the drop, in MiB.
  returned: success
  type: dict
  sample:
    {"total_mb": 122536, "free_mb": 9120, "available_mb": 108870, "cached_mb": 97204, "buffers_mb": 412, "slab_reclaimable_mb": 1290,
     "dirty_mb": 3, "mapped_mb": 611, "shmem_mb": 44, "swap_total_mb": 0, "swap_free_mb": 0}
after:
  description: The same figures after the drop; equal to RV(before) when nothing was dropped.
  returned: success
  type: dict
  sample:
    {"total_mb": 122536, "free_mb": 106002, "available_mb": 109012, "cached_mb": 702, "buffers_mb": 8, "slab_reclaimable_mb": 1288,
     "dirty_mb": 0, "mapped_mb": 611, "shmem_mb": 44, "swap_total_mb": 0, "swap_free_mb": 0}
predicted_mb:
  description: How many MiB the drop was predicted to give back.
  returned: success
  type: int
  sample: 96958
freed_mb:
  description:
    - By how many MiB free memory grew. Below zero when others took more meanwhile.
    - Free and not available memory, because available memory counts the cache as well and hardly moves.
  returned: success
  type: int
  sample: 96882
reason:
  description: Why caches were dropped, or not.
  returned: success
  type: str
  sample: a drop gives back about 96958 MiB
dropped:
  description: Whether caches were dropped, or would be in check mode.
  returned: success
  type: bool
  sample: true
"""

import errno
import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _memory
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._module import run
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool


def plan(predicted_mb: int, needed_mb: int, level: int) -> tuple[list[str], str]:
    """Return (actions, reason): one action when a drop of ``level`` pays, none otherwise."""
    if predicted_mb < needed_mb:
        return [], f"a drop would give back {predicted_mb} MiB; it pays from {needed_mb} MiB"
    return [f"drop caches, level {level}"], f"a drop gives back about {predicted_mb} MiB"


def require_permission(path: str) -> None:
    """Raise :class:`ClusterError` unless ``path`` may be written to; asked before acting so that check mode tells the truth."""
    if not os.path.exists(path):
        raise ClusterError(
            f"{path} does not exist, so caches cannot be dropped here",
            remedy="Run the task on the machine itself; inside a container mount the machine's /proc and set drop_caches_path.",
        )
    if not os.access(path, os.W_OK):
        raise _denied(path, "no permission")


def _denied(path: str, why: str) -> ClusterError:
    return ClusterError(
        f"{path} cannot be written: {why}",
        remedy="Run the task with become: true; a read-only /proc (inside a container) does not allow it at all.",
        reason="permission",
    )


def write_back(timeout: float) -> None:
    """Write dirty pages to disk, for at most ``timeout`` seconds."""
    result = run_tool(["sync"], timeout)
    if result.rc != 0:
        raise ClusterError(f"sync failed with status {result.rc}: {result.raw}", remedy="Look for disk errors: journalctl -k -p err")


def drop(path: str, level: int) -> None:
    """Drop the kernel's caches."""
    try:
        descriptor = os.open(path, os.O_WRONLY)
        try:
            os.write(descriptor, f"{level}\n".encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise _denied(path, error.strerror) from error
        raise ClusterError(f"{path} cannot be written: {error.strerror}") from error


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    path = params["drop_caches_path"] or os.path.join(params["proc_root"], "sys/vm/drop_caches")
    level = params["level"]

    meminfo = _memory.read_meminfo(params["proc_root"])
    before = after = _memory.figures(meminfo)
    predicted = _memory.reclaimable_mb(meminfo, level)
    left = predicted
    actions, reason = plan(predicted, params["min_reclaimable_mb"], level)

    if actions:
        require_permission(path)
        left = 0
    if actions and not module.check_mode:
        if params["sync"]:
            write_back(params["sync_timeout"])
        drop(path, level)
        meminfo = _memory.read_meminfo(params["proc_root"])
        after = _memory.figures(meminfo)
        left = _memory.reclaimable_mb(meminfo, level)

    freed = after["free_mb"] - before["free_mb"]
    return {
        "changed": bool(actions),
        "dropped": bool(actions),
        "actions": actions,
        "reason": reason,
        "msg": f"{reason}; free memory grew by {freed} MiB" if after is not before else reason,
        "before": before,
        "after": after,
        "predicted_mb": predicted,
        "freed_mb": freed,
        "diff": {"before": {"reclaimable_mb": predicted}, "after": {"reclaimable_mb": left}},
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "level": {"type": "int", "choices": [1, 2, 3], "default": 1},
            "min_reclaimable_mb": {"type": "int", "default": 1024},
            "sync": {"type": "bool", "default": True},
            "sync_timeout": {"type": "int", "default": 120},
            "proc_root": {"type": "path", "default": "/proc"},
            "drop_caches_path": {"type": "path"},
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
