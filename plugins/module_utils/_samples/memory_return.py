# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The available memory: recorded before a start, and awaited after the end. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import socket
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _module
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import private
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id, write_json
from ansible_collections.gb10.cluster.plugins.module_utils._host import kernel
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.notes import read_note
from ansible_collections.gb10.cluster.plugins.module_utils._memory import accounting, ending, node_memory, note
from ansible_collections.gb10.cluster.plugins.module_utils._records import starts
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

MINIMUM = {"tolerance_mb": 0, "settle_mb": 1, "wait_timeout": 1, "wait_sleep": 1}


def available_mb(roots: dict[str, t.Any]) -> int:
    return accounting.available_mb(node_memory.read_meminfo(roots["proc_root"], roots["meminfo"]))


def noted_mb(record: dict[str, t.Any] | None, boot: str) -> int | None:
    """Return the MiB in a note of this boot, None without one."""
    return int(record["available_mb"]) if record and record.get("boot_id") == boot else None


def level(params: dict[str, t.Any], available: int) -> note.Level:
    """Return the level that the start stays above. An unknown level does not prevent a start: the guard does less then."""
    expected = params["expected"]
    if not expected:
        return note.Level(None, "it is unknown what is started")
    try:
        known = starts.FILE.read(starts.FILE.path_of(params["state_dir"], params["cluster_name"]))
        image = EngineApi(params["docker_socket"], params["docker_timeout"]).image(params["image"]) if known and params["image"] else None
        by_starts = ending.of_starts(known, image["Id"] if image else "", expected["start_digest"], available)
        if by_starts:
            return by_starts
        total = node_memory.read_meminfo(params["roots"]["proc_root"], params["roots"]["meminfo"])["MemTotal"] // node_memory.KIB_PER_MIB
        return ending.of_plan(expected, total, available)
    except ClusterError as error:
        return note.Level(None, str(error))


def is_back(samples: list[int], noted: int | None, tolerance_mb: int) -> bool:
    """Return whether as much is available as was recorded, less the tolerance."""
    return noted is not None and samples[-1] >= noted - tolerance_mb


def rise_is_over(samples: list[int], noted: int | None, settle_mb: int) -> bool:
    """Return whether the rise is over. While memory is still missing, a pause does not count as the end: the rest may come late."""
    return accounting.settled(samples, settle_mb) and (noted is None or samples[-1] - samples[0] >= settle_mb)


def judged(node: str, samples: list[int], noted: int | None, tolerance_mb: int) -> dict[str, t.Any]:
    """Return the finding about memory that is, or is not, back."""
    now = samples[-1]
    if noted is None:
        return _module.finding(
            "memory.back",
            node,
            "unknown",
            f"{now} MiB available; whether that is all is unknown: nothing was noted in this boot before a start",
            measured=now,
            remedy="See what holds memory: run the doctor with the inventory. The next bring-up notes what is available before its start.",
        )
    if is_back(samples, noted, tolerance_mb):
        return _module.finding("memory.back", node, "pass", f"{now} MiB available, {noted} before the start", measured=now, needed=noted - tolerance_mb)
    return _module.finding(
        "memory.back",
        node,
        "warn",
        f"{noted - now} MiB have not come back: {now} MiB available, {noted} before the start",
        measured=now,
        needed=noted - tolerance_mb,
        remedy="See what holds it: run the doctor with the inventory. Memory that no process holds comes back only with a reboot.",
    )


def watched(params: dict[str, t.Any], noted: int | None, once: bool) -> tuple[list[int], float]:
    """Take samples until the memory is back or has settled; return them and the seconds that took."""
    samples: list[int] = []
    seconds = 0.0
    for seconds in clock(0 if once else params["wait_timeout"], params["wait_sleep"]):
        samples.append(available_mb(params["roots"]))
        if is_back(samples, noted, params["tolerance_mb"]) or rise_is_over(samples, noted, params["settle_mb"]):
            break
    return samples, round(seconds, 1)


def write_note(path: str, available: int, boot: str, uptime: int, expected: note.Level) -> None:
    content = {"available_mb": available, "boot_id": boot, "noted_at": time.time(), note.UPTIME: uptime, note.LEVEL: expected.mb, note.WHY: expected.why}
    try:
        private.make(os.path.dirname(path))
        write_json(path, content)
    except OSError as error:
        raise ClusterError(f"{path} cannot be written: {error.strerror}", remedy="Run the task with become: true, or free space there.") from error


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    _module.require_least(params, MINIMUM)
    path = note.path_of(params["state_dir"], params["cluster_name"])
    boot = boot_id(params["roots"]["proc_root"])
    if params["note"]:
        now = available_mb(params["roots"])
        above = level(params, now)
        if not module.check_mode:
            write_note(path, now, boot, int(kernel.uptime(params["roots"]["proc_root"])), above)
        stays = f"the start stays above {above.mb} MiB" if above.mb is not None else "the expected level of the start is unknown"
        levels = {"level_mb": above.mb, "level_why": above.why}
        return {"msg": f"{now} MiB available; {stays}: {above.why}", "available_mb": now, "noted_mb": now, "samples_mb": [now], "seconds": 0.0, **levels}
    noted = noted_mb(read_note(path), boot)
    samples, seconds = watched(params, noted, module.check_mode)
    finding = judged(socket.gethostname(), samples, noted, params["tolerance_mb"])
    return {
        "msg": finding["message"],
        "verdict": finding["verdict"],
        "remedy": finding["remedy"],
        "available_mb": samples[-1],
        "noted_mb": noted,
        "samples_mb": samples,
        "seconds": seconds,
        "findings": [finding],
    }
