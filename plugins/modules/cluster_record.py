#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_record
short_description: Keep a record on a node - a start, a proof, a climb, the declared mode or a memory baseline (internal)
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Keeps records that a later run of the playbooks reads. The option selects the record. One of them is required.
  - O(start) records how much of the node's memory an engine that has answered uses. The preflight's rule C(plan.fits) uses the larger of the memory plan
    and such a record of the same image, profile and driver. Without a note of this boot from before the start (M(gb10.cluster.node_samples_info)) nothing is
    recorded and RV(record) is null. A node keeps 32 starts of a cluster. For the same image, profile, driver and context the last one counts.
  - O(proof) records on the head's node whether a run of the engine passed its proof. The playbook status shows a run without such a record, or with
    a failed one, as C(unproven). For the same run the last proof counts. A node keeps 32 for a cluster.
  - O(climb) records how far the ladder (C(bench --tags ladder)) raised the context. A bring-up of the same profile serves the last good rung, as long as image,
    driver, kernel and MemTotal are the same and other programs use no more memory. A climb replaces its own earlier record, and one that was made
    under the same conditions. A node keeps 16 for a cluster.
  - O(mode) declares what serves on the node, in a file that every account may read. From then on a bring-up of anything else is refused. The previous settled
    mode stays in the record as C(previous) until another mode has settled. The last 20 events stay as well. It starts and stops nothing.
  - O(baseline) records how much used memory neither the kernel nor a GPU process explains, while nothing runs yet.
    M(gb10.cluster.cuda_zombie_check) subtracts it later, in the same boot, so that the remainder was lost since. It waits until two samples of the
    available memory agree. It refuses if a container of this collection or an engine runs, and if the boot was too long ago, because memory
    leaked until then would count as normal. An existing baseline of this boot stays. It contains no machine name, user name, address or serial
    number.
notes:
  - A start, a proof and a climb are not state of the node, so RV(ignore:changed) stays false for them.
extends_documentation_fragment:
  - gb10.cluster._attributes.internal
  - gb10.cluster._docker
  - gb10.cluster._look
  - gb10.cluster._look.driver
  - gb10.cluster._cluster
attributes:
  check_mode:
    support: full
    details:
      - Checks, refuses and waits as usual, and writes nothing.
  diff_mode:
    support: partial
    details:
      - For O(mode) and O(baseline).
options:
  state_dir:
    description:
      - Directory on the node for the state of the collection's clusters. The records are C(mode.json) and C(baseline.json) in it, and
        C(starts.json), C(proofs.json) and C(ladder.json) in the cluster's directory.
    type: path
    default: /var/lib/gb10
  start:
    description:
      - A successful start of the engine.
    type: dict
    suboptions:
      profile:
        description:
          - Id of the profile that was started.
        type: str
        required: true
      profile_digest:
        description:
          - The digest of the inputs of the memory plan, as P(gb10.cluster.memory_plan_digest#filter) returns it.
        type: str
        required: true
      start_digest:
        description:
          - The digest of all inputs of the start's memory, also the context and the size of the cache, as
            P(gb10.cluster.memory_expected#filter) returns it. Without it the record cannot predict the memory of a next start.
        type: str
        default: ""
      context:
        description:
          - The context length in tokens that the engine was started with, 1 or more.
        type: int
        required: true
      run_id:
        description:
          - The engine's run.
        type: str
        required: true
      lowest_mb:
        description:
          - The lowest available memory in MiB during the engine's start
            (RV(gb10.cluster.vllm_serve#module:lowest_available_mb)). Without it, the memory available now.
        type: int
      cold_start:
        description:
          - The seconds of the start by stage (RV(gb10.cluster.vllm_serve_info#module:cold_start)). The next start of the same image and profile is
            compared with it.
        type: dict
  proof:
    description:
      - The result of a run's proof.
    type: dict
    suboptions:
      run_id:
        description:
          - The engine's run.
        type: str
        required: true
      failed:
        description:
          - Ids of the rules that it failed. An empty list means that it passed.
        type: list
        elements: str
        required: true
  climb:
    description:
      - A climb of the ladder. It has C(climb_id), C(image_id), C(profile), C(profile_digest), C(driver), C(kernel), C(boot_id), C(began_at),
        C(outcome) (C(climbing), C(top), C(returned) or C(off)), C(reason), C(total_mb), C(tenants_mb), C(tenants), C(rung) (the last good one),
        C(trying) and C(rungs), of which each has C(context), C(good), C(reasons) and C(curve) at least.
    type: dict
  mode:
    description:
      - The declared mode.
    type: dict
    suboptions:
      state:
        description:
          - Whether the record exists. Without one no mode is declared, and any bring-up is allowed.
          - V(served) records the mode C(serve) with O(mode.clusters) after a bring-up, unless a mode is declared. V(ended) removes such a record of one of
            O(mode.clusters) after a teardown. A record of C(serve) declares no mode, but a change of the mode can return to it.
        type: str
        choices: [present, absent, served, ended]
        default: present
      mode:
        description:
          - The declared mode. Required with O(mode.state=present).
        type: str
      phase:
        description:
          - The progress of the mode. V(settled) means that all of it was proven, V(switching) that a change is in progress or was interrupted, V(failed) that
            it failed, V(leak) that memory was not freed, so that nothing was started, and V(leased) that it exists only for a lease
            (M(gb10.cluster.node_service)).
        type: str
        choices: [settled, switching, failed, leak, leased]
        default: settled
      reason:
        description:
          - Why it failed, in one line.
        type: str
        default: ""
      clusters:
        description:
          - The clusters of the mode, by name. Each has C(profile) (its id), C(source) (the id or path that selected it) and C(nodes). C(degraded)
            optionally has, by node, the cluster that serves alone there while this one is given up.
        type: dict
        default: {}
      event:
        description:
          - What happened, in one line. It is added to the events only when the record changes.
        type: str
        default: ""
  baseline:
    description:
      - A baseline of this boot. V({}) uses the defaults.
    type: dict
    suboptions:
      max_uptime:
        description:
          - Seconds since boot after which a baseline is no longer recorded, 1 or more.
        type: int
        default: 1800
      force:
        description:
          - Record even if a check fails, also over a baseline of this boot. C(doubts) of the record lists the reasons.
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
          - Maximum seconds to wait for that. Memory that does not settle prevents a baseline.
        type: int
        default: 60
seealso:
  - module: gb10.cluster.node_samples_info
  - module: gb10.cluster.node_state_info
  - module: gb10.cluster.cuda_zombie_check
  - module: gb10.cluster.node_info
    description: RV(gb10.cluster.node_info#module:starts) and RV(gb10.cluster.node_info#module:ladder) are the records of a node.
  - module: gb10.cluster.node_container_info
    description: RV(gb10.cluster.node_container_info#module:last_proof) is the newest proof.
"""

EXAMPLES = r"""
- name: Record the memory of the start
  gb10.cluster.cluster_record:
    start:
      profile: nemotron_3_super_tp2
      profile_digest: "{{ lookup('gb10.cluster.profile', 'nemotron_3_super_tp2') | gb10.cluster.memory_plan_digest }}"
      context: 262144
      run_id: "{{ served.run_id }}"
      lowest_mb: "{{ served.lowest_available_mb }}"
  become: true

- name: Record that the run passed
  gb10.cluster.cluster_record:
    proof:
      run_id: "{{ served.run_id }}"
      failed: []
  become: true

- name: Declare that one engine runs over both nodes
  gb10.cluster.cluster_record:
    mode:
      mode: cluster
      clusters:
        gb10: {profile: nemotron_3_super_tp2, source: nemotron_3_super_tp2, nodes: [spark-1, spark-2]}
      event: cluster is up
  become: true

- name: Record the normal state, right after the boot
  gb10.cluster.cluster_record:
    baseline: {}
  become: true
"""

RETURN = r"""
path:
  description: Path of the record on the node.
  returned: success
  type: str
  sample: /var/lib/gb10/gb10/starts.json
record:
  description:
    - The record, or the one that would be written in check mode. Null if there is none.
    - Figures named C(_mb) are MiB; C(recorded_at) is in UTC.
  returned: success
  type: dict
  sample:
    image_id: sha256:4b1d1b8e52b0f1c1
    profile: nemotron_3_super_tp2
    profile_digest: 9f86d081884c7d65
    start_digest: 60303ae22b998861
    driver: 580.159.03
    kernel: 6.17.0-1032-nvidia
    boot_id: 2a5dc1f5-3983-4f96-a958-ebff58fa47ab
    run_id: 20261123T140000Z-1
    recorded_at: "2026-11-23T14:05:00Z"
    context: 262144
    total_mb: 124610
    before_mb: 118800
    lowest_mb: 20100
    steady_mb: 20800
recorded:
  description: Whether this call recorded the baseline, or would have in check mode. False if this boot had one already.
  returned: success, with O(baseline)
  type: bool
  sample: true
"""

import platform
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _module
from ansible_collections.gb10.cluster.plugins.module_utils._calibrate import baseline
from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi, find_node_container
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import driver_xml
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.notes import read_note
from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.module_utils._memory import accounting, node_memory
from ansible_collections.gb10.cluster.plugins.module_utils._memory.note import path_of as note_path
from ansible_collections.gb10.cluster.plugins.module_utils._records import climbs, cold_starts, proofs, starts

Params = dict[str, t.Any]
Result = dict[str, t.Any]

#: The options of each record, by the module option that selects it. :func:`climbs.problem_of` validates those of a climb.
OPTIONS: dict[str, dict[str, t.Any]] = {
    "start": {
        "profile": {"type": "str", "required": True},
        "profile_digest": {"type": "str", "required": True},
        "start_digest": {"type": "str", "default": ""},
        "context": {"type": "int", "required": True},
        "run_id": {"type": "str", "required": True},
        "lowest_mb": {"type": "int"},
        "cold_start": {"type": "dict"},
    },
    "proof": {
        "run_id": {"type": "str", "required": True},
        "failed": {"type": "list", "elements": "str", "required": True},
    },
    "mode": {
        "state": {"type": "str", "choices": ["present", "absent", "served", "ended"], "default": "present"},
        "mode": {"type": "str"},
        "phase": {"type": "str", "choices": list(modes.PHASES), "default": modes.SETTLED},
        "reason": {"type": "str", "default": ""},
        "clusters": {"type": "dict", "default": {}},
        "event": {"type": "str", "default": ""},
    },
    "baseline": {
        "max_uptime": {"type": "int", "default": 1800},
        "force": {"type": "bool", "default": False},
        "settle_mb": {"type": "int", "default": 256},
        "settle_sleep": {"type": "int", "default": 5},
        "settle_timeout": {"type": "int", "default": 60},
    },
}


def image_of(params: Params) -> str:
    """Return the id of the image of the cluster's running container. Raises :class:`ClusterError` when there is none."""
    api = EngineApi(params["docker_socket"], params["docker_timeout"])
    for role in ("head", "worker"):
        container = find_node_container(api, params["cluster_name"], role)
        if container and container["State"]["Running"]:
            return str(container["Image"])
    what = f"cluster {params['cluster_name']} has no running container on this node, so there is no start to record"
    raise ClusterError(what, remedy="Bring the cluster up first.", reason="no container")


def record_start(params: Params, check_mode: bool) -> Result:
    """Record once how much of the node's memory a start took. Later figures depend on what its users do."""
    _module.require_least(params, {"context": 1, "tool_timeout": 1})
    cold = {"cold_start": params["cold_start"]} if params["cold_start"] else {}
    if cold and (problem := cold_starts.problem_of(params["cold_start"])):
        raise ClusterError(f"start.cold_start: {problem}", remedy="Pass it as vllm_serve returns it.", reason="input")
    roots, path = params["roots"], starts.FILE.path_of(params["state_dir"], params["cluster_name"])
    note = read_note(note_path(params["state_dir"], params["cluster_name"]))
    boot = boot_id(roots["proc_root"])
    if note is None or note.get("boot_id") != boot:
        what = "nothing is recorded: what was available before the start was not noted in this boot"
        return {"msg": what, "reason": "no note", "path": path, "record": None}
    meminfo = node_memory.read_meminfo(roots["proc_root"], roots["meminfo"])
    available = accounting.available_mb(meminfo)
    gpus = driver_xml.gpus_or_none(roots["nvidia_smi"], params["tool_timeout"])
    record = {
        "image_id": image_of(params),
        **{name: params[name] for name in ("profile", "profile_digest", "start_digest", "context", "run_id")},
        "driver": next((gpu["driver_version"] for gpu in gpus if gpu["driver_version"]), ""),
        "kernel": platform.release(),
        "boot_id": boot,
        "recorded_at": utc_text(),
        "total_mb": meminfo["MemTotal"] // 1024,
        "before_mb": int(note["available_mb"]),
        "lowest_mb": available if params["lowest_mb"] is None else min(available, params["lowest_mb"]),
        "steady_mb": available,
        **cold,
    }
    known = starts.FILE.read(path)
    if earlier := next((start for start in known if start["run_id"] == record["run_id"]), None):
        return {"msg": "this start is recorded already", "reason": "recorded already", "path": path, "record": earlier}
    if not check_mode:
        starts.FILE.write(path, starts.FILE.with_new(known, record))
    took = record["before_mb"] - record["steady_mb"]
    return {"msg": f"the start took {took} MiB, {record['before_mb'] - record['lowest_mb']} at its peak", "path": path, "record": record}


def record_proof(params: Params, check_mode: bool) -> Result:
    """Record which rules a run failed."""
    path, failed = proofs.FILE.path_of(params["state_dir"], params["cluster_name"]), sorted(set(params["failed"]))
    known = proofs.FILE.read(path)
    record = {"run_id": params["run_id"], "failed": failed, "recorded_at": utc_text()}
    if not check_mode:
        proofs.FILE.write(path, proofs.FILE.with_new(known, record))
    what = f"failed {', '.join(failed)}" if failed else "passed its proof"
    return {"msg": f"run {params['run_id']} {what}", "path": path, "record": record}


def record_climb(params: Params, check_mode: bool) -> Result:
    """Record a climb of the ladder. Raises :class:`ClusterError` when it is incomplete."""
    climb = params["climb"]
    if problem := climbs.problem_of(climb):
        raise ClusterError(f"climb: {problem}", remedy="Pass the climb as bench --tags ladder makes it.", reason="input")
    path = climbs.FILE.path_of(params["state_dir"], params["cluster_name"])
    known = climbs.FILE.read(path)
    if not check_mode:
        climbs.FILE.write(path, climbs.with_climb(known, climb))
    state = f"{climb['trying']} is being tried" if climb["trying"] else climb["outcome"]
    return {"msg": f"the last good rung is {climb['rung'] or 'none'}, {state}", "path": path, "record": climbs.short(climb)}


def wanted_mode(params: Params, before: modes.Record | None) -> modes.Record | None:
    """Return the wanted record, None for none. Raises :class:`ClusterError` when it would be invalid."""
    state = params["state"]
    is_served = before is not None and before["mode"] == modes.SERVE
    if state == "absent" or (state == "ended" and before and is_served and params["clusters"].keys() & before["clusters"].keys()):
        return None
    if state == "ended" or (state == "served" and before and not is_served):
        return before
    shape = {**params, "mode": modes.SERVE} if state == "served" else params
    wanted = modes.following(before, {key: shape[key] for key in modes.SHAPE}, utc_text(), params["event"])
    if problem := modes.wrong(wanted):
        raise ClusterError(f"the record would be wrong: {problem}", remedy="Pass it as the playbook mode does.", reason="input")
    return before if before and modes.same(before, wanted) else wanted


def record_mode(params: Params, check_mode: bool) -> Result:
    """Write the record of a mode, or remove it."""
    state_dir = params["state_dir"]
    before, path = modes.read(state_dir), modes.path_of(state_dir)
    wanted = wanted_mode(params, before)
    changed = before != wanted
    if changed and not check_mode:
        if wanted is None:
            modes.remove(state_dir)
        else:
            modes.write(state_dir, wanted)
    verb = "would be " if changed and check_mode else ""
    what = f"mode {wanted['mode']}, {wanted['phase']}" if wanted else "no mode"
    return {
        "changed": changed,
        "msg": f"{what}{f' ({verb}written)' if changed else ''}",
        "actions": [f"{'write' if wanted else 'remove'} {path}"] if changed else [],
        "diff": {"before": before or {}, "after": wanted or {}},
        "path": path,
        "record": wanted,
    }


RECORD: dict[str, t.Callable[[Params, bool], Result]] = {
    "start": record_start,
    "proof": record_proof,
    "climb": record_climb,
    "mode": record_mode,
    "baseline": baseline.record,
}


def work(module: AnsibleModule) -> Result:
    kind = next(name for name in RECORD if module.params[name] is not None)
    options = module.params[kind] if kind in OPTIONS else {}
    return RECORD[kind]({**module.params, **options}, module.check_mode)


def main() -> None:
    records = {name: {"type": "dict", "options": options} for name, options in OPTIONS.items()}
    records["mode"]["required_if"] = [("state", "present", ["mode"])]
    module = AnsibleModule(
        argument_spec={
            "cluster_name": {"type": "str", "default": "gb10"},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            **records,
            "climb": {"type": "dict"},
            "roots": ROOTS,
            "tool_timeout": {"type": "int", "default": 30},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
        },
        required_one_of=[tuple(RECORD)],
        mutually_exclusive=[tuple(RECORD)],
        supports_check_mode=True,
    )
    _module.run(module, work)


if __name__ == "__main__":
    main()
