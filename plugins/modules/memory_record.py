#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: memory_record
short_description: Record what a start that went well took of a node's memory
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Records, once an engine has answered, how much memory the node had available before the start (the note of M(gb10.cluster.memory_watch)), how much
    at the least while it started, and how much now, together with the image of the cluster's container, the digest of the profile, driver and kernel.
  - The preflight's rule C(plan.fits) takes the larger of the memory plan and such a record of the same image, profile and driver.
  - Without a note of this boot from before the start nothing is recorded, RV(record) is null and the message says so.
  - Of the same image, profile, driver and context the last record counts. A node keeps 32 of a cluster.
notes:
  - A record is not state of the node, so RV(ignore:changed) stays false.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._docker
  - gb10.cluster._look
  - gb10.cluster._look.driver
  - gb10.cluster._cluster
options:
  state_dir:
    description:
      - Directory on the node that holds the state of the collection's clusters. The records are C(starts.json) in that of the cluster.
    type: path
    default: /var/lib/gb10
  profile:
    description:
      - Id of the profile that was started.
    type: str
    required: true
  profile_digest:
    description:
      - The digest of what memory follows from, as P(gb10.cluster.memory_plan_digest#filter) returns it.
    type: str
    required: true
  start_digest:
    description:
      - The digest of all that the start's memory follows from, also the context and the size of the cache, as
        P(gb10.cluster.memory_expected#filter) returns it. Without it the record says nothing of where a next start will end.
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
      - The least memory in MiB that was seen available while the engine started (RV(gb10.cluster.vllm_serve#module:lowest_available_mb)). What is
        available now without it.
    type: int
attributes:
  check_mode:
    support: full
    details:
      - Looks, and writes nothing.
  diff_mode:
    support: none
seealso:
  - module: gb10.cluster.memory_watch
  - module: gb10.cluster.node_info
    description: RV(gb10.cluster.node_info#module:starts) are the records of a node.
"""

EXAMPLES = r"""
- name: Record what the start took
  gb10.cluster.memory_record:
    profile: nemotron_3_super_tp2
    profile_digest: "{{ lookup('gb10.cluster.profile', 'nemotron_3_super_tp2') | gb10.cluster.memory_plan_digest }}"
    context: 262144
    run_id: "{{ served.run_id }}"
    lowest_mb: "{{ served.lowest_available_mb }}"
  become: true
"""

RETURN = r"""
path:
  description: Where the records lie on the node.
  returned: success
  type: str
  sample: /var/lib/gb10/gb10/starts.json
record:
  description: What was recorded, or would have been in check mode. Null where nothing could be.
  returned: success
  type: dict
  contains:
    image_id:
      description: Id of the image of the cluster's container.
      type: str
      sample: sha256:4b1d1b8e52b0f1c1
    profile:
      description: Id of the profile.
      type: str
      sample: nemotron_3_super_tp2
    profile_digest:
      description: Digest of what memory follows from.
      type: str
      sample: 9f86d081884c7d65
    start_digest:
      description: Digest of all that the start's memory follows from.
      type: str
      sample: 60303ae22b998861
    driver:
      description: Version of the GPU's driver, empty where there is no GPU.
      type: str
      sample: 580.159.03
    kernel:
      description: Release of the kernel.
      type: str
      sample: 6.17.0-1032-nvidia
    boot_id:
      description: The kernel's id of the boot. It is random and names no machine.
      type: str
      sample: 2a5dc1f5-3983-4f96-a958-ebff58fa47ab
    run_id:
      description: The engine's run.
      type: str
      sample: 20261123T140000Z-1
    recorded_at:
      description: When it was recorded, UTC.
      type: str
      sample: "2026-11-23T14:05:00Z"
    context:
      description: The context length in tokens.
      type: int
      sample: 262144
    total_mb:
      description: MemTotal in MiB.
      type: int
      sample: 124610
    before_mb:
      description: MiB that were available before the start; the rest of the total is what the system and others held.
      type: int
      sample: 118800
    lowest_mb:
      description: The least MiB that were seen available while it started.
      type: int
      sample: 20100
    steady_mb:
      description: MiB that were available once the engine had answered.
      type: int
      sample: 20800
"""

import platform
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _module
from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi, find_node_container
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import driver_xml
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.notes import read_note
from ansible_collections.gb10.cluster.plugins.module_utils._memory import accounting, node_memory
from ansible_collections.gb10.cluster.plugins.module_utils._memory.note import path_of as note_path
from ansible_collections.gb10.cluster.plugins.module_utils._records import starts

LEAST = {"context": 1, "tool_timeout": 1}

Params = dict[str, t.Any]


def image_of(params: Params) -> str:
    """Return the id of the image of the cluster's running container. Raises :class:`ClusterError` when there is none."""
    api = EngineApi(params["docker_socket"], params["docker_timeout"])
    for role in ("head", "worker"):
        found = find_node_container(api, params["cluster_name"], role)
        if found and found["State"]["Running"]:
            return str(found["Image"])
    what = f"cluster {params['cluster_name']} has no running container on this node, so there is no start to record"
    raise ClusterError(what, remedy="Bring the cluster up first.", reason="no container")


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    _module.require_least(params, LEAST)
    roots, path = params["roots"], starts.FILE.path_of(params["state_dir"], params["cluster_name"])
    note = read_note(note_path(params["state_dir"], params["cluster_name"]))
    boot = boot_id(roots["proc_root"])
    if note is None or note.get("boot_id") != boot:
        what = "nothing is recorded: what was available before the start was not noted in this boot"
        return {"msg": what, "reason": "no note", "path": path, "record": None}
    meminfo = node_memory.read_meminfo(roots["proc_root"], roots["meminfo"])
    now = accounting.available_mb(meminfo)
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
        "lowest_mb": now if params["lowest_mb"] is None else min(now, params["lowest_mb"]),
        "steady_mb": now,
    }
    known = starts.FILE.read(path)
    # A start is recorded once: what is available later is what its users do.
    earlier = next((one for one in known if one["run_id"] == record["run_id"]), None)
    if earlier:
        return {"msg": "this start is on record", "reason": "recorded already", "path": path, "record": earlier}
    if not module.check_mode:
        starts.FILE.write(path, starts.with_start(known, record))
    took = record["before_mb"] - record["steady_mb"]
    return {"msg": f"the start took {took} MiB, {record['before_mb'] - record['lowest_mb']} at its peak", "path": path, "record": record}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "cluster_name": {"type": "str", "default": "gb10"},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "profile": {"type": "str", "required": True},
            "profile_digest": {"type": "str", "required": True},
            "start_digest": {"type": "str", "default": ""},
            "context": {"type": "int", "required": True},
            "run_id": {"type": "str", "required": True},
            "lowest_mb": {"type": "int"},
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
