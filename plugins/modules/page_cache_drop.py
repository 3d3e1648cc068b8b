#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: page_cache_drop
short_description: Drop the kernel's caches when that frees enough memory
version_added: 0.1.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Frees memory that only contains caches before an engine starts. CPU and GPU share one memory on GB10, and an engine that counts
    free memory sees the cache of a freshly copied model as used.
  - Without O(paths), drops the caches of the whole machine, which requires root. With O(paths), advises the kernel that the pages of these
    files are not needed, which any user who can read them may do.
  - Predicts how much memory a drop would free, and drops only if that is at least O(min_reclaimable_mb).
  - The prediction for level 1 is C(Cached + Buffers - Shmem - Dirty - Writeback - Mapped), for level 2 C(SReclaimable), for level 3 the sum of both.
    C(Shmem) has no file behind it, C(Dirty) and C(Writeback) are not yet written and C(Mapped) is in use, so none of these is dropped.
    For O(paths) the module asks the kernel how much of each file is in the page cache.
  - A drop loses no data. Dirty pages stay in memory until they are written, with or without O(sync).
  - Refuses to drop while an engine serves on this node, because the engine would have to read its files again. Engines are found by the state
    of this collection's clusters below O(state_dir), and by their processes, no matter who started them. These are the processes of vLLM, SGLang,
    TensorRT-LLM, Triton, llama.cpp and TensorFold, and the runners of Ollama, whose server contains no model itself. Where the module may not see
    processes, it drops nothing.
  - Operations that can hang in the kernel (writing to a disk or file server that is gone, dropping, compacting) run in a child process. At its timeout
    the child is killed, or left running where it cannot be killed.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._look
attributes:
  check_mode:
    support: full
    details:
      - Predicts, and fails like the real run if the permission is missing or an engine serves.
  diff_mode:
    support: full
options:
  level:
    description:
      - The caches to drop. V(1) is the page cache, V(2) dentries and inodes, V(3) both.
      - Not used with O(paths).
    type: int
    choices: [1, 2, 3]
    default: 1
  paths:
    description:
      - Files, and directories with all files below them. Only their pages are freed.
      - A link to a file, such as those of a hub cache, counts as the file it points to. Links to directories are followed if they are in this list,
        and not below it. A path that does not exist counts as empty.
      - Pages that are dirty, locked, or mapped by a process stay.
    type: list
    elements: path
    default: []
    version_added: 0.2.0
  max_files:
    description:
      - Maximum number of files from O(paths). Further ones are left alone, and the verdict is then V(warn).
    type: int
    default: 10000
    version_added: 0.2.0
  min_reclaimable_mb:
    description:
      - Drop only if at least this many MiB are predicted to be freed.
    type: int
    default: 1024
  sync:
    description:
      - Write dirty pages to disk first, because only clean pages can be dropped. With O(paths), only those of these files.
    type: bool
    default: true
  sync_timeout:
    description:
      - Maximum seconds for writing dirty pages. After that, clean pages are still dropped and the verdict is V(warn).
    type: int
    default: 120
  drop_timeout:
    description:
      - Maximum seconds for each of reading O(paths), dropping and compacting.
      - A timeout gives the verdict V(unknown), except while reading O(paths), where the remaining files are left alone.
    type: int
    default: 300
    version_added: 0.2.0
  compact:
    description:
      - Compact memory after a drop, so that the freed pages are contiguous and huge pages become available.
      - A run that drops nothing compacts nothing.
    type: bool
    default: false
    version_added: 0.2.0
  if_serving:
    description:
      - What to do when a drop would free enough memory and an engine serves on this node.
      - V(fail) fails with the verdict V(block). V(skip) changes nothing and reports that in RV(reason).
    type: str
    choices: [fail, skip]
    default: fail
    version_added: 0.2.0
  state_dir:
    description:
      - Directory with the state of this collection's clusters on the node.
    type: path
    default: /var/lib/gb10
    version_added: 0.2.0
  drop_caches_path:
    description:
      - The file that the module writes to in order to drop caches.
      - Defaults to C(sys/vm/drop_caches) below O(roots.proc_root).
    type: path
"""

EXAMPLES = r"""
- name: Free the page cache before serving
  gb10.cluster.page_cache_drop:
    min_reclaimable_mb: 4096
  become: true

- name: Free the page cache of one model's files, as an ordinary user
  gb10.cluster.page_cache_drop:
    paths:
      - /home/spark/.cache/huggingface/hub/models--nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4

- name: Drop all caches, however little that frees, and compact memory for huge pages
  gb10.cluster.page_cache_drop:
    level: 3
    min_reclaimable_mb: 0
    compact: true
  become: true
"""

RETURN = r"""
before:
  description: The memory figures before the drop, in MiB.
  returned: success
  type: dict
  sample:
    {"total_mb": 122536, "free_mb": 9120, "available_mb": 108870, "cached_mb": 97204, "buffers_mb": 412, "slab_reclaimable_mb": 1290,
     "dirty_mb": 3, "writeback_mb": 0, "mapped_mb": 611, "shmem_mb": 44, "swap_total_mb": 0, "swap_free_mb": 0}
after:
  description: The same figures after the drop. Equal to RV(before) if nothing was dropped.
  returned: success
  type: dict
  sample:
    {"total_mb": 122536, "free_mb": 106002, "available_mb": 109012, "cached_mb": 702, "buffers_mb": 8, "slab_reclaimable_mb": 1288,
     "dirty_mb": 0, "writeback_mb": 0, "mapped_mb": 611, "shmem_mb": 44, "swap_total_mb": 0, "swap_free_mb": 0}
predicted_mb:
  description: How many MiB the drop was predicted to free.
  returned: success
  type: int
  sample: 96958
freed_mb:
  description:
    - How much free memory grew, in MiB. Negative if other processes took more at the same time.
    - This is free and not available memory, because available memory includes the cache and hardly changes.
  returned: success
  type: int
  sample: 96882
freed_cache_mb:
  description:
    - How much the caches to be dropped shrank, in MiB. With O(paths), those of these files. Otherwise C(Cached), C(Buffers) and C(SReclaimable), as
      far as O(level) covers them.
    - Negative if other processes filled them at the same time.
  returned: success
  type: int
  sample: 96906
  version_added: 0.2.0
reason:
  description: Why caches were dropped, or not.
  returned: success
  type: str
  sample: a drop frees about 96958 MiB
dropped:
  description: Whether caches were dropped, or would be in check mode.
  returned: success
  type: bool
  sample: true
sync:
  description:
    - V(done), V(timeout) if dirty pages could not be written in O(sync_timeout), or V(none) with O(sync=false).
    - After V(timeout) the drop continues. C(dirty_mb) and C(writeback_mb) of RV(before) and RV(after) show the unwritten pages.
  returned: success
  type: str
  sample: done
  version_added: 0.2.0
sync_seconds:
  description: Seconds that writing dirty pages took.
  returned: success
  type: float
  sample: 0.412
  version_added: 0.2.0
files:
  description: The cached pages of the files in O(paths). Null without O(paths).
  returned: success
  type: dict
  version_added: 0.2.0
  contains:
    count:
      description: Number of files. A file with several links counts once.
      type: int
    size_mb:
      description: Their size in MiB.
      type: int
    cached_before_mb:
      description: How many MiB of them were in the page cache before.
      type: int
    cached_after_mb:
      description: How many MiB of them are in the page cache now.
      type: int
    dirty_mb:
      description: How many of those MiB are not written yet. 0 on kernels before 6.5, which do not report it.
      type: int
    unmeasured_mb:
      description:
        - Size in MiB of the files whose cached size the kernel does not report to this user. It reports to root, a file's owner, and users who may write to it.
        - They are predicted to be cached as far as the machine's reclaimable cache allows, and are freed too.
      type: int
    unreadable:
      description: Number of files and directories that could not be read and were left alone.
      type: int
    special:
      description: Number of devices, named pipes and sockets, and of links to them, which were not opened.
      type: int
      version_added: 0.2.0
    absent:
      description: The paths that do not exist.
      type: list
      elements: str
    complete:
      description: Whether all files were read. V(false) if O(max_files) or O(drop_timeout) ended the reading.
      type: bool
  sample:
    {"count": 21, "size_mb": 76648, "cached_before_mb": 29696, "cached_after_mb": 0, "dirty_mb": 0, "unmeasured_mb": 0, "unreadable": 0, "special": 0,
     "absent": [], "complete": true}
compaction:
  description:
    - Free memory in blocks of at least one huge page, before and after compaction. Null if nothing was compacted.
  returned: success
  type: dict
  version_added: 0.2.0
  contains:
    huge_page_kb:
      description: Size of a huge page in KiB.
      type: int
    before_mb:
      description: MiB free in such blocks after the drop, before compaction.
      type: int
    after_mb:
      description: MiB free in such blocks after compaction.
      type: int
  sample: {"huge_page_kb": 2048, "before_mb": 61210, "after_mb": 104880}
serving:
  description: The engines that serve on this node, as text. Searched only when a drop would pay.
  returned: always
  type: list
  elements: str
  sample: []
  version_added: 0.2.0
findings:
  description: One finding for each step that did less than requested. Empty if there is none.
  returned: success
  type: list
  elements: dict
  version_added: 0.2.0
  sample:
    - id: page_cache.sync
      node: spark-2
      verdict: warn
      message: >-
        writing dirty pages did not end within 120 s (before 812 MiB dirty, 96 MiB under writeback; now 640 and 96);
        clean pages were still dropped
      measured: 736
      needed: 0
      remedy: See which processes hang in the kernel (ps -eo pid,stat,wchan:32,args), and whether a disk or a file server is gone (journalctl -k).
      source: /proc/meminfo
"""

import errno
import os
import platform
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._engine import at_work
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._memory import node_memory, page_cache
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding, run

MIB = 1 << 20

#: Seconds beyond its own limit after which reading the files counts as hung.
WALK_MARGIN = 10.0

Params = dict[str, t.Any]


# -- deciding --------------------------------------------------------------------------------------------------------


def plan(predicted_mb: int, params: Params) -> tuple[list[str], str]:
    """Return (actions, reason): drop, and compact if requested, when a drop frees enough, otherwise no actions."""
    if params["paths"] and not predicted_mb:
        return [], "the files in paths hold nothing of the page cache that can go"
    needed_mb = params["min_reclaimable_mb"]
    if predicted_mb < needed_mb:
        return [], f"a drop would free {predicted_mb} MiB; it pays from {needed_mb} MiB"
    what = "the pages of the files in paths" if params["paths"] else f"caches, level {params['level']}"
    return [f"drop {what}", *(["compact memory"] if params["compact"] else [])], f"a drop frees about {predicted_mb} MiB"


def predicted_of_files(survey: dict[str, t.Any], sync: bool, reclaimable_mb: int) -> int:
    """Return how many MiB the surveyed files are predicted to free.

    Files that the kernel does not report count as fully cached, up to the machine's ``reclaimable_mb``.
    """
    measured = survey["cached"] - (0 if sync else survey["dirty"])
    return max(measured, 0) // MIB + min(survey["unmeasured"] // MIB, reclaimable_mb)


# -- permission ------------------------------------------------------------------------------------------------------


def require_permission(path: str) -> None:
    """Raise :class:`ClusterError` unless ``path`` can be written. This is checked before acting so that check mode is correct."""
    if not os.path.exists(path):
        raise ClusterError(
            f"{path} does not exist on this machine",
            remedy="Run the task on the machine itself; inside a container mount the machine's /proc and set roots.proc_root or drop_caches_path.",
        )
    if not os.access(path, os.W_OK):
        raise _denied(path, "no permission")


def _denied(path: str, why: str) -> ClusterError:
    return ClusterError(
        f"{path} cannot be written: {why}",
        remedy="Run the task with become: true; a read-only /proc (inside a container) does not allow it at all. With paths, no root is needed.",
        reason="permission",
    )


# -- acting ----------------------------------------------------------------------------------------------------------


def write_kernel_file(path: str, text: str, timeout: float) -> None:
    """Write ``text`` to a file of the kernel. The kernel acts before the write returns."""
    try:
        page_cache.bounded(f"writing {text} to {path}", lambda: page_cache.write_setting(path, f"{text}\n"), timeout)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise _denied(path, error.strerror) from error
        raise ClusterError(f"{path} cannot be written: {error.strerror}") from error


def walk(doing: str, params: Params, timeout: float, to_each: page_cache.Act | None = None) -> dict[str, t.Any]:
    """Visit the files of ``paths`` in a child process, apply ``to_each``, and return its survey."""
    try:
        return page_cache.bounded(doing, lambda: page_cache.visit(params["paths"], params["max_files"], timeout, to_each), timeout + WALK_MARGIN)
    except OSError as error:
        where = error.filename or ", ".join(params["paths"])
        raise ClusterError(
            f"{doing}: {where}: {error.strerror}", remedy="Look for disk errors: journalctl -k -p err", reason="input/output"
        ) from error


def write_dirty(params: Params) -> tuple[str, float]:
    """Write dirty pages, only those of ``paths`` if given. Return (``done`` or ``timeout``, seconds)."""
    began = time.monotonic()
    try:
        if params["paths"]:
            done = walk("writing the files' dirty pages", params, params["sync_timeout"], page_cache.write_back)["ended_by"] != "time"
        else:
            page_cache.bounded("writing dirty pages", os.sync, params["sync_timeout"])
            done = True
    except page_cache.Hung:
        done = False
    return "done" if done else "timeout", round(time.monotonic() - began, 3)


def compact(params: Params, path: str, meminfo: dict[str, int]) -> dict[str, int]:
    """Compact memory, and return the result's ``compaction``."""
    huge = meminfo.get("Hugepagesize", 2048)
    page = os.sysconf("SC_PAGE_SIZE") // 1024
    before = node_memory.huge_free_mb(node_memory.read_buddyinfo(params["roots"]["proc_root"]), huge, page)
    write_kernel_file(path, "1", params["drop_timeout"])
    after = node_memory.huge_free_mb(node_memory.read_buddyinfo(params["roots"]["proc_root"]), huge, page)
    return {"huge_page_kb": huge, "before_mb": before, "after_mb": after}


# -- reporting -------------------------------------------------------------------------------------------------------


def files_view(before: dict[str, t.Any], after: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the surveys before and after as the result's ``files``."""
    return {
        "count": before["files"],
        "size_mb": before["size"] // MIB,
        "cached_before_mb": before["cached"] // MIB,
        "cached_after_mb": after["cached"] // MIB,
        "dirty_mb": after["dirty"] // MIB,
        "unmeasured_mb": before["unmeasured"] // MIB,
        "unreadable": before["unreadable"],
        "special": before["special"],
        "absent": before["absent"],
        "complete": not before["ended_by"] and not after["ended_by"],
    }


def judge(result: dict[str, t.Any], params: Params, node: str) -> list[dict[str, t.Any]]:
    """Return a warning for each step that did less than asked."""
    findings = []
    if result["sync"] == "timeout":
        before, after = result["before"], result["after"]
        message = (
            f"writing dirty pages did not end within {params['sync_timeout']} s (before {before['dirty_mb']} MiB dirty, {before['writeback_mb']} MiB "
            f"under writeback; now {after['dirty_mb']} and {after['writeback_mb']}); clean pages were still dropped"
        )
        left = after["dirty_mb"] + after["writeback_mb"]
        source = os.path.join(params["roots"]["proc_root"], "meminfo")
        findings.append(
            finding("page_cache.sync", node, "warn", message, measured=left, needed=0, remedy=page_cache.HUNG_REMEDY, source=source)
        )
    if result["files"] and not result["files"]["complete"]:
        message = f"only {result['files']['count']} of the files below {', '.join(params['paths'])} were read"
        findings.append(
            finding(
                "page_cache.files",
                node,
                "warn",
                message,
                measured=result["files"]["count"],
                remedy="Name fewer or smaller directories in paths, or raise max_files and drop_timeout.",
            )
        )
    return findings


# -- the module ------------------------------------------------------------------------------------------------------


class CacheSnapshot(t.NamedTuple):
    """The machine's state: its meminfo (KiB), the files' survey (bytes; None without paths), how much a drop would free (MiB)."""

    meminfo: dict[str, int]
    survey: dict[str, t.Any] | None
    reclaimable_mb: int

    @property
    def cache_kib(self) -> dict[int, int]:
        """Return the caches' sizes by the bit of the level that drops them."""
        return {1: self.meminfo.get("Cached", 0) + self.meminfo.get("Buffers", 0), 2: self.meminfo.get("SReclaimable", 0)}


def read_snapshot(params: Params) -> CacheSnapshot:
    meminfo = node_memory.read_meminfo(params["roots"]["proc_root"])
    if not params["paths"]:
        return CacheSnapshot(meminfo, None, node_memory.reclaimable_mb(meminfo, params["level"]))
    survey = walk("looking at the files", params, params["drop_timeout"])
    if survey["refused"]:
        what = f"in paths {', '.join(survey['refused'])}"
        raise ClusterError(what, expected="files and directories", remedy="Correct paths. The caches of a whole disk go without paths.", reason="no file")
    return CacheSnapshot(meminfo, survey, predicted_of_files(survey, params["sync"], node_memory.reclaimable_mb(meminfo, 1)))


def freed_cache_mb(before: CacheSnapshot, after: CacheSnapshot, level: int) -> int:
    """Return by how many MiB the caches to be dropped shrank."""
    if before.survey and after.survey and not before.survey["unmeasured"]:
        return (before.survey["cached"] - after.survey["cached"]) // MIB
    bits = [1] if before.survey else [bit for bit in (1, 2) if level & bit]
    return sum(before.cache_kib[bit] - after.cache_kib[bit] for bit in bits) // node_memory.KIB_PER_MIB


def act(params: Params, drop_path: str, compact_path: str) -> dict[str, t.Any]:
    """Write dirty pages, drop, compact; return the result of each."""
    sync, seconds = write_dirty(params) if params["sync"] else ("none", 0.0)
    if params["paths"]:
        walk("giving the files' pages back", params, params["drop_timeout"], page_cache.give_back)
    else:
        write_kernel_file(drop_path, str(params["level"]), params["drop_timeout"])
    compaction = compact(params, compact_path, node_memory.read_meminfo(params["roots"]["proc_root"])) if params["compact"] else None
    return {"sync": sync, "sync_seconds": seconds, "compaction": compaction}


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params, node = module.params, platform.node()
    drop_path = params["drop_caches_path"] or os.path.join(params["roots"]["proc_root"], "sys/vm/drop_caches")
    compact_path = os.path.join(params["roots"]["proc_root"], "sys/vm/compact_memory")

    before = after = read_snapshot(params)
    actions, reason = plan(before.reclaimable_mb, params)
    serving = at_work.serving(params["state_dir"], params["roots"]["proc_root"]) if actions else []
    if serving and params["if_serving"] == "fail":
        raise at_work.refusal(f"caches are not dropped on {node}", serving, "leave the caches: an engine that runs does not need the memory")
    if serving:
        actions, reason = [], f"an engine serves here: {serving[0]}"
    for path, needed in ((drop_path, not params["paths"]), (compact_path, params["compact"])):
        if actions and needed:
            require_permission(path)

    done: dict[str, t.Any] = {"sync": "none", "sync_seconds": 0.0, "compaction": None}
    left_mb = 0 if actions else before.reclaimable_mb
    changed = bool(actions)
    if actions and not module.check_mode:
        done = act(params, drop_path, compact_path)
        after = read_snapshot(params)
        left_mb = after.reclaimable_mb
        # A drop of files that freed nothing (pages mapped, locked, still dirty) changed nothing.
        changed = params["compact"] or not params["paths"] or freed_cache_mb(before, after, 1) > 0

    result = {
        "changed": changed,
        "dropped": changed,
        "actions": actions if changed else [],
        "reason": reason if changed == bool(actions) else f"{reason}, but all of it stayed: the pages are mapped, locked or not yet written",
        "before": node_memory.figures(before.meminfo),
        "after": node_memory.figures(after.meminfo),
        "predicted_mb": before.reclaimable_mb,
        "freed_cache_mb": freed_cache_mb(before, after, params["level"]),
        "files": files_view(before.survey, after.survey) if before.survey and after.survey else None,
        "serving": serving,
        **done,
        "diff": {"before": {"reclaimable_mb": before.reclaimable_mb}, "after": {"reclaimable_mb": left_mb}},
    }
    result["freed_mb"] = result["after"]["free_mb"] - result["before"]["free_mb"]
    findings = judge(result, params, node)
    summary = f"{result['reason']}; free memory grew by {result['freed_mb']} MiB" if after is not before else result["reason"]
    return {
        **result,
        "verdict": "warn" if findings else "pass",
        "msg": "; ".join([summary, *(entry["message"] for entry in findings)]),
        "remedy": findings[0]["remedy"] if findings else "",
        "findings": findings,
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "level": {"type": "int", "choices": [1, 2, 3], "default": 1},
            "paths": {"type": "list", "elements": "path", "default": []},
            "max_files": {"type": "int", "default": 10000},
            "min_reclaimable_mb": {"type": "int", "default": 1024},
            "sync": {"type": "bool", "default": True},
            "sync_timeout": {"type": "int", "default": 120},
            "drop_timeout": {"type": "int", "default": 300},
            "compact": {"type": "bool", "default": False},
            "if_serving": {"type": "str", "choices": ["fail", "skip"], "default": "fail"},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "roots": ROOTS,
            "drop_caches_path": {"type": "path"},
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
