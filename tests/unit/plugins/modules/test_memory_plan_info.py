# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan where a module runs: of this node as it is, or of nodes that are named."""

from __future__ import annotations

import types

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.modules import memory_plan_info
from ansible_collections.gb10.cluster.plugins.plugin_utils._plan import planning
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import profiles
from node_roots import rooted

PROFILE = profiles.load("nemotron_3_super_tp2")
SERVE = PROFILE["serve"]


def call(**params):
    parallel = {"tensor": 2, "pipeline": 1, "data": 1, "expert": False}
    given = {
        "facts": planning.facts_of(PROFILE), "serve": SERVE, "parallel": parallel, "ray": True, "weights_gib": None, "drafter_gib": 0.0, "concurrency": 1,
        "recorded": False, "nodes": None,
    }  # fmt: skip
    return memory_plan_info.work(types.SimpleNamespace(params=rooted({**given, **params})))


def named(name, total, **more):
    return {"node": name, "total_gib": total, "tenants_gib": 0.0, "available_gib": None, "free_at_start_gib": None, **more}


def test_it_says_what_the_filter_says():
    result = call(nodes=[named("node-1", 121.7), named("node-2", 119.6)])
    planned = planning.memory_plan(PROFILE, nodes=[121.7, 119.6])
    said = [{**node, "reported": ""} for node in planned["nodes"]]
    assert result["plan"]["nodes"] == said and (result["verdict"], result["msg"]) == ("pass", "fits")


def test_the_node_is_taken_as_it_is(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 127600640 kB\nMemFree: 1 kB\nMemAvailable: 80000000 kB\nBuffers: 1 kB\nCached: 1 kB\n")
    result = call(proc_root=str(tmp_path))
    (node,) = result["plan"]["nodes"]
    assert node["total_gib"] == 121.69 and node["components"][0]["arithmetic"] == "121.69 - 76.29 available before the start"
    assert result["verdict"] == "block" and result["remedy"].startswith("What would go: ") and result["msg"].startswith("no: ")


def test_a_config_json_is_read_and_what_it_lacks_is_named():
    config = {"architectures": ["X"], "num_hidden_layers": 24, "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000}
    node = [named("a", 121.7)]
    assert call(facts=config, weights_gib=20.0, nodes=node)["verdict"] == "pass"
    unknown = call(facts={"num_hidden_layers": 24}, nodes=node)
    assert unknown["verdict"] == "unknown" and "memory.config.hidden_size" in unknown["plan"]["missing"]


@pytest.mark.parametrize(
    "params, words",
    [
        ({"concurrency": 0}, "concurrency is 0, expected 1 or more"),
        ({"parallel": {"tensor": 0, "pipeline": 1, "data": 1, "expert": False}}, "tensor is 0, expected 1 or more"),
        ({"nodes": [named("a", 4.0)]}, r"nodes\[0\].total_gib is 4, expected 8 GiB or more"),
    ],
)
def test_what_cannot_be_is_refused(params, words):
    with pytest.raises(ClusterError, match=words):
        call(**params)
