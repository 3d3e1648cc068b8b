#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: memory_baseline
short_description: Record what a node's memory looks like right after its boot
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Records how much memory is used that neither the kernel nor a GPU process explains, while nothing runs yet. M(gb10.cluster.cuda_zombie_check)
    subtracts that later, in the same boot, so that what is left was lost since.
  - Waits until two samples of the available memory agree first.
  - Refuses when a container of this collection or an engine runs, and when the boot was more than O(max_uptime) ago. What was leaked until then
    would count as normal. O(force=true) records anyway, and RV(baseline.doubts) lists the reasons against it.
  - An existing baseline of this boot stays as it is.
  - RV(baseline) names no machine and no user, and holds no address and no serial number. It may be sent to the authors of this collection, who need
    such figures to calibrate the formula.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._docker
  - gb10.cluster._look
  - gb10.cluster._look.driver
attributes:
  check_mode:
    support: full
    details:
      - Looks, refuses and waits as otherwise, and writes nothing.
  diff_mode:
    support: full
options:
  state_dir:
    description:
      - Directory on the node that holds the state of this collection's clusters. The baseline is C(baseline.json) in it.
    type: path
    default: /var/lib/gb10
  max_uptime:
    description:
      - Seconds since boot after which a baseline is no longer taken, 1 or more.
    type: int
    default: 1800
  force:
    description:
      - Record although something speaks against it, also over a baseline of this boot.
    type: bool
    default: false
  settle_mb:
    description:
      - Two samples of the available memory that differ by less than this many MiB agree, 1 or more.
    type: int
    default: 256
  settle_sleep:
    description:
      - Seconds between two samples, 1 or more.
    type: int
    default: 5
  settle_timeout:
    description:
      - Seconds to wait for that at most. Memory that does not settle speaks against a baseline.
    type: int
    default: 60
seealso:
  - module: gb10.cluster.cuda_zombie_check
  - module: gb10.cluster.memory_watch
"""

EXAMPLES = r"""
- name: Record what is normal, right after the boot
  gb10.cluster.memory_baseline:
  become: true
  register: recorded

- name: Keep it as a file
  ansible.builtin.copy:
    content: "{{ recorded.baseline | to_nice_json }}"
    dest: "baseline-{{ inventory_hostname }}.json"
    mode: "0644"
  delegate_to: localhost
"""

RETURN = r"""
path:
  description: Where the baseline lies on the node.
  returned: success
  type: str
  sample: /var/lib/gb10/baseline.json
recorded:
  description: Whether this call recorded it, or would have in check mode; false when this boot had one already.
  returned: success
  type: bool
  sample: true
baseline:
  description: The baseline of this boot.
  returned: success
  type: dict
  contains:
    schema:
      description: The version of this shape.
      type: int
      sample: 1
    boot_id:
      description: The kernel's id of the boot. It is random and names no machine.
      type: str
      sample: 2a5dc1f5-3983-4f96-a958-ebff58fa47ab
    recorded_at:
      description: When it was recorded, UTC.
      type: str
      sample: "2026-11-21T15:04:05Z"
    uptime_s:
      description: Seconds since the boot.
      type: int
      sample: 190
    unexplained_mb:
      description: What neither the kernel nor a GPU process explains, in MiB.
      type: int
      sample: 1480
    kernel:
      description: The kernel's release and the architecture.
      type: dict
      sample: {"release": 6.17.0-1032-nvidia, "arch": aarch64}
    gpus:
      description: The GPUs by name and driver.
      type: list
      elements: dict
      sample: [{"name": NVIDIA GB10, "driver_version": 580.95.05, "memory_total_mb": null}]
    processes:
      description: The GPU processes by type and memory.
      type: list
      elements: dict
      sample: [{"type": G, "used_mib": 92}]
    accounting:
      description: The account as M(gb10.cluster.cuda_zombie_check) makes it, without a baseline.
      type: dict
      sample: {"total_mb": 124610, "available_mb": 119000}
    meminfo:
      description: All of meminfo, in KiB.
      type: dict
      sample: {"MemTotal": 127600640, "MemAvailable": 121856000}
    samples_mb:
      description: The samples of the available memory, in MiB.
      type: list
      elements: int
      sample: [118996, 119000]
    doubts:
      description: The reasons against recording it.
      type: list
      elements: str
      sample: []
"""

import os
import platform
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _module
from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import LABEL_OWNER, OWNER, EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._engine import at_work
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import driver_xml, zombies
from ansible_collections.gb10.cluster.plugins.module_utils._memory import accounting, node_memory
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

LEAST = {"max_uptime": 1, "settle_mb": 1, "settle_sleep": 1, "settle_timeout": 0, "tool_timeout": 1}

Params = dict[str, t.Any]


def running_containers(params: Params) -> list[str]:
    """Return the names of our containers that run. Raises :class:`ClusterError` when the Docker engine does not say."""
    entries = EngineApi(params["docker_socket"], params["docker_timeout"]).containers({LABEL_OWNER: OWNER}, statuses=("running", "paused", "restarting"))
    return sorted((entry.get("Names") or [entry.get("Id", "")])[0].lstrip("/") for entry in entries)


def reasons_against(params: Params, uptime: int, gpus: list[dict[str, t.Any]]) -> list[str]:
    """Return what speaks against a baseline now."""
    found = []
    if uptime > params["max_uptime"]:
        found.append(f"the boot was {uptime} s ago, expected {params['max_uptime']} s or less")
    try:
        names = running_containers(params)
    except ClusterError as error:
        found.append(f"it is unknown whether a container of this collection runs: {error}")
    else:
        if names:
            found.append(f"containers of this collection run: {', '.join(names)}")
    found += [f"an engine runs: {who}" for who in at_work.serving(params["state_dir"], params["roots"]["proc_root"])]
    compute = [process for process in zombies.listed(gpus) if "C" in (process["type"] or "C")]
    if compute:
        found.append(f"{len(compute)} GPU process(es) compute: {', '.join(process['name'] or str(process['pid']) for process in compute)}")
    if zombies.unified(gpus) is not True:
        found.append("the GPU has memory of its own, so nothing of it can be missing here" if gpus else "there is no GPU")
    return found


def watch(params: Params) -> tuple[dict[str, int], list[int]]:
    """Return (the last meminfo in KiB, samples of the available memory in MiB), taken until two agree or the time is over."""
    samples: list[int] = []
    last = -float(params["settle_sleep"])
    meminfo: dict[str, int] = {}
    for waited in clock(params["settle_timeout"], params["settle_sleep"]):
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
    uptime = accounting.uptime(params["roots"]["proc_root"])
    doubts = reasons_against(params, uptime, gpus)
    if doubts and not params["force"]:
        raise ClusterError(
            f"no baseline: {'; '.join(doubts)}",
            remedy="Reboot the node when nobody uses it and record the baseline right after, or record it anyway with force: true.",
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
        found = accounting.read_baseline(path)
    except UnknownState as error:
        if error.reason != "baseline broken":
            raise
        return None, {"broken": str(error)}
    return (found if found and found["boot_id"] == boot else None), for_diff(found)


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    _module.require_least(params, LEAST)
    path = accounting.baseline_path(params["state_dir"])
    boot = boot_id(params["roots"]["proc_root"])
    current, before = existing(path, boot)
    if current and not params["force"]:
        return {
            "msg": f"this boot has a baseline since {current['recorded_at']}: {current['unexplained_mb']} MiB",
            "reason": "recorded already",
            "path": path,
            "recorded": False,
            "baseline": current,
        }
    taken = take(params, boot)
    if not module.check_mode:
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
        "baseline": taken,
        "diff": {"before": before, "after": for_diff(taken)},
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "max_uptime": {"type": "int", "default": 1800},
            "force": {"type": "bool", "default": False},
            "settle_mb": {"type": "int", "default": 256},
            "settle_sleep": {"type": "int", "default": 5},
            "settle_timeout": {"type": "int", "default": 60},
            "roots": ROOTS,
            "tool_timeout": {"type": "int", "default": 30},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    _module.run(module, work)


if __name__ == "__main__":
    main()
