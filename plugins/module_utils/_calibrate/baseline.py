# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Takes a baseline of a node's memory at rest. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import platform
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import LABEL_OWNER, OWNER, EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._engine import at_work
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import driver_xml, zombies
from ansible_collections.gb10.cluster.plugins.module_utils._host import kernel
from ansible_collections.gb10.cluster.plugins.module_utils._memory import accounting, node_memory
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: The least that each number may be.
LEAST = {"max_uptime": 1, "settle_mb": 1, "settle_sleep": 1, "settle_timeout": 0, "tool_timeout": 1}

Params = dict[str, t.Any]


def running_containers(params: Params) -> list[str]:
    """Return the names of this collection's running containers. Raises :class:`ClusterError` when Docker does not answer."""
    entries = EngineApi(params["docker_socket"], params["docker_timeout"]).containers({LABEL_OWNER: OWNER}, statuses=("running", "paused", "restarting"))
    return sorted((entry.get("Names") or [entry.get("Id", "")])[0].lstrip("/") for entry in entries)


def reasons_against(params: Params, uptime: int, gpus: list[dict[str, t.Any]]) -> list[str]:
    """Return the reasons against a baseline now."""
    reasons = [f"the boot was {uptime} s ago, expected {params['max_uptime']} s or less"] if uptime > params["max_uptime"] else []
    try:
        if names := running_containers(params):
            reasons.append(f"containers of this collection run: {', '.join(names)}")
    except ClusterError as error:
        reasons.append(f"it is unknown whether a container of this collection runs: {error}")
    reasons += [f"an engine runs: {who}" for who in at_work.serving(params["state_dir"], params["roots"]["proc_root"])]
    if compute := [process for process in zombies.listed(gpus) if "C" in (process["type"] or "C")]:
        reasons.append(f"{len(compute)} GPU process(es) compute: {', '.join(process['name'] or str(process['pid']) for process in compute)}")
    if zombies.unified(gpus) is not True:
        reasons.append("the GPU has its own memory, so none of it is missing in the node's memory" if gpus else "there is no GPU")
    return reasons


def watch(params: Params) -> tuple[dict[str, int], list[int]]:
    """Return (the last meminfo in KiB, samples of the available memory in MiB), taken until two agree or the time is over."""
    samples: list[int] = []
    last = -float(params["settle_sleep"])
    meminfo: dict[str, int] = {}
    for waited in clock(params["settle_timeout"], params["settle_sleep"]):
        # The clock's last tick may come early.
        if waited - last >= params["settle_sleep"]:
            last = waited
            meminfo = node_memory.read_meminfo(params["roots"]["proc_root"], params["roots"]["meminfo"])
            samples.append(accounting.available_mb(meminfo))
            if accounting.settled(samples, params["settle_mb"]):
                break
    return meminfo, samples


def take(params: Params, boot: str) -> dict[str, t.Any]:
    """Return a baseline of this moment. Raises :class:`UnknownState` when the driver or the kernel does not report what it needs."""
    gpus = driver_xml.gpus(params["roots"]["nvidia_smi"], params["tool_timeout"])
    uptime = int(kernel.uptime(params["roots"]["proc_root"]))
    doubts = reasons_against(params, uptime, gpus)
    if doubts and not params["force"]:
        raise ClusterError(
            f"no baseline: {'; '.join(doubts)}",
            remedy="Reboot the node when it is idle and record the baseline right after, or record it anyway with force: true.",
            reason="not at rest",
        )
    meminfo, samples = watch(params)
    if not accounting.settled(samples, params["settle_mb"]):
        doubts.append("the available memory did not settle")
        if not params["force"]:
            raise ClusterError(
                f"no baseline: the available memory did not settle within {params['settle_timeout']} s, samples in MiB: {samples}",
                remedy="Wait until the node has finished its boot, or raise settle_timeout.",
                reason="not at rest",
            )
    processes = zombies.listed(gpus)
    table = accounting.account(meminfo, zombies.sum_mib(processes), zombies.unified(gpus), None)
    if table["unexplained_mb"] is None:
        raise UnknownState("no baseline: the driver does not report what its processes hold", remedy="Stop the GPU processes.", reason="figures missing")
    return {
        "schema": accounting.BASELINE_SCHEMA,
        "boot_id": boot,
        "recorded_at": utc_text(),
        "uptime_s": uptime,
        "unexplained_mb": table["unexplained_mb"],
        "kernel": {"release": platform.release(), "arch": platform.machine()},
        "gpus": [{key: gpu[key] for key in ("name", "driver_version", "memory_total_mb")} for gpu in gpus],
        "processes": [{"type": process["type"], "used_mib": process["used_mib"]} for process in processes],
        "accounting": table,
        "meminfo": meminfo,
        "samples_mb": samples,
        "doubts": doubts,
    }


def for_diff(content: t.Mapping[str, t.Any] | None) -> dict[str, t.Any]:
    """Return what the diff shows of a baseline."""
    return {} if content is None else {key: content[key] for key in ("boot_id", "recorded_at", "unexplained_mb")}


def existing(path: str, boot: str) -> tuple[dict[str, t.Any] | None, dict[str, t.Any]]:
    """Return (the baseline of this boot, None when there is none, what the diff shows of any existing one).

    A file that is not a baseline counts as none and is replaced. One that may not be read stops the module.
    """
    try:
        baseline = accounting.read_baseline(path)
    except UnknownState as error:
        if error.reason != "baseline broken":
            raise
        return None, {"broken": str(error)}
    return (baseline if baseline and baseline["boot_id"] == boot else None), for_diff(baseline)


def record(params: Params, check_mode: bool) -> dict[str, t.Any]:
    """Record the baseline of this boot, unless there is one, and return the module's result.

    ``params`` are those of the module's option baseline, its roots and its timeouts. Raises :class:`ClusterError` where the node is not at rest.
    """
    require_least(params, LEAST)
    path = accounting.baseline_path(params["state_dir"])
    boot = boot_id(params["roots"]["proc_root"])
    current, before = existing(path, boot)
    if current and not params["force"]:
        return {
            "msg": f"this boot has a baseline since {current['recorded_at']}: {current['unexplained_mb']} MiB",
            "reason": "recorded already",
            "path": path,
            "recorded": False,
            "record": current,
        }
    taken = take(params, boot)
    if not check_mode:
        accounting.write_baseline(path, taken)
    doubts = f"; reasons against it: {'; '.join(taken['doubts'])}" if taken["doubts"] else ""
    return {
        "changed": True,
        "actions": [f"write {os.path.basename(path)}"],
        "msg": f"{taken['unexplained_mb']} MiB are unexplained {taken['uptime_s']} s after the boot{doubts}",
        "verdict": "warn" if taken["doubts"] else "pass",
        "reason": "forced" if params["force"] else "this boot has none",
        "path": path,
        "recorded": True,
        "record": taken,
        "diff": {"before": before, "after": for_diff(taken)},
    }
