# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of a node that rules need besides its results, and the record of their findings. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

#: Settings of a node for the rules, each with its variable.
SETTINGS = {
    "head_host": "gb10_head_host",
    "cluster": "gb10_cluster_name",
    "address": "gb10_fabric_address",
    "api_address": "gb10_api_address",
    "api_port": "gb10_api_port",
    "ray_port": "gb10_ray_port",
    "master_port": "__gb10_master_port",
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
    "serve_arguments": "__gb10_asked_arguments",
    "allow": "__gb10_allow",
    "kv_cache": "gb10_kv_cache",
    "tenants": "gb10_tenants",
    "companions": "gb10_companions",
    "mode": "__gb10_mode",
    "rules": "gb10_rules",
    "silenced": "gb10_silenced",
}


#: The variable for each port that a head may need.
PORTS = {"api_port": "gb10_api_port", "ray_port": "gb10_ray_port", "master_port": "gb10_ray_port_range"}


def of_nodes(answers: Answers, ports: t.Iterable[str] = ()) -> Answers:
    """Return the settings of each node for the rules; ``ports`` are those (keys of :data:`SETTINGS`) that must be free on the head, or in use by its own
    cluster."""
    needs = {}
    for node, answer in answers.items():
        head = node == answer["head_host"]
        needs[node] = {
            **{word: answer[word] for word in SETTINGS},
            "memlock": int(answer["memlock"]),
            **{word: boolean(answer[word]) for word in ("offline", "hub_token")},
            "head": head,
            "peers": [other["address"] for name, other in answers.items() if name != node],
            "api_address": answer["api_address"] if head else "",
            "ports": {PORTS[word]: int(answer[word]) for word in ports} if head else {},
        }
    return needs


def of_run(answers: Answers, run: Run) -> dict[str, t.Any]:
    """Return the fields of a record about its run."""
    return {"cluster": next(iter(answers.values()))["cluster"] or "", "tags": run.tags, "skip_tags": run.skip_tags, "time": run.time}


def recorded(title: str, stat: str, record: dict[str, t.Any], run: Run) -> Outcome:
    """Return the outcome of a record that preflight.schema.json describes."""
    return Outcome(title, record["findings"], record["matrix"], files={run.path: record}, stats={stat: record, "gb10_verdict": record["verdict"]})
