# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the rules need to know of a node apart from its answers, and the record of their findings. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

#: What the rules ask of a node, by the variable of the node that says it.
SETTINGS = {
    "head_host": "gb10_head_host",
    "cluster": "gb10_cluster_name",
    "address": "gb10_fabric_address",
    "api_address": "gb10_api_address",
    "api_port": "gb10_api_port",
    "ray_port": "gb10_ray_port",
    "master_port": "gb10_master_port",
    "fabric_interfaces": "gb10_fabric_interfaces",
    "rdma_devices": "gb10_rdma_devices",
    "fabric_fallback": "gb10_fabric_fallback",
    "devices": "gb10_container_devices",
    "container_gpus": "gb10_container_gpus",
    "memlock": "gb10_memlock",
    "capabilities": "gb10_container_capabilities",
    "model_root": "gb10_hf_home",
    "offline": "gb10_offline",
    "model_copy": "gb10_model_copy",
    "image_copy": "gb10_image_copy",
    "hub_token": "__gb10_hub_token",
    "disk_gib": "gb10_disk_floor_gib",
    "serve_arguments": "__gb10_asked_arguments",
    "replace_stale": "gb10_replace_stale",
    "allow_restart": "gb10_allow_restart",
    "kv_cache": "gb10_kv_cache",
    "tenants": "gb10_tenants",
    "companions": "gb10_companions",
    "mode": "__gb10_mode",
    "rules": "gb10_rules",
    "silenced": "gb10_silenced",
}


def of_nodes(answers: Answers, ports: t.Iterable[str] = ()) -> Answers:
    """Return what the rules ask of each node; ``ports`` are those (words of :data:`SETTINGS`) that the head must have free, or hold itself."""
    found = {}
    for node, answer in answers.items():
        head = node == answer["head_host"]
        found[node] = {
            **{word: answer[word] for word in SETTINGS},
            **{word: int(answer[word]) for word in ("memlock", "disk_gib")},
            **{word: boolean(answer[word]) for word in ("allow_restart", "offline", "replace_stale", "hub_token")},
            "head": head,
            "peers": [other["address"] for name, other in answers.items() if name != node],
            "api_address": answer["api_address"] if head else "",
            "ports": {SETTINGS[word]: int(answer[word]) for word in ports} if head else {},
        }
    return found


def of_run(answers: Answers, run: Run) -> dict[str, t.Any]:
    """Return what a record says of the run that it is from."""
    return {"cluster": next(iter(answers.values()))["cluster"] or "", "tags": run.tags, "skip_tags": run.skip_tags, "time": run.time}


def recorded(title: str, stat: str, record: dict[str, t.Any], run: Run) -> Outcome:
    """Return the outcome of a record that preflight.schema.json describes."""
    return Outcome(title, record["findings"], record["matrix"], files={run.path: record}, stats={stat: record, "gb10_verdict": record["verdict"]})
