# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A healthy pair as the preflight sees it, judged with one change at a time."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import jsonschema
from changes import changed

from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import profiles
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import judging, rule_table

HEALTHY = json.loads((Path(__file__).parent / "fixtures" / "node_info" / "healthy.json").read_text(encoding="utf-8"))
SCHEMA = json.loads(rule_table.TABLE.with_name("preflight.schema.json").read_text(encoding="utf-8"))
VALID = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)
PROFILE = profiles.load("nemotron_3_super_tp2")
RUN = {"cluster": "gb10", "tags": ["all"], "skip_tags": [], "time": "2026-11-21T15:00:00Z"}

SETTINGS = {
    "head": True,
    "cluster": "gb10",
    "address": "192.168.100.11",
    "peers": ["192.168.100.12"],
    "api_address": "192.168.100.11",
    "ports": {"gb10_api_port": 8000, "gb10_ray_port": 6379},
    "fabric_interfaces": ["enp1s0f0np0", "enP2p1s0f0np0"],
    "rdma_devices": ["rocep1s0f0", "roceP2p1s0f0"],
    "fabric_fallback": "none",
    "devices": ["/dev/infiniband"],
    "container_gpus": "all",
    "memlock": -1,
    "model_root": "/models",
    "offline": False,
    "hub_token": False,
    "image_copy": "required",
    "serve_arguments": {},
    "allow": [],
    "rules": {},
    "silenced": [],
}


def node(**changes: t.Any) -> dict[str, t.Any]:
    """Return the answer of ``node_info`` on a healthy Spark, with changes."""
    return changed(HEALTHY, changes)


def asked(info: dict[str, t.Any] | None = None, zombies: t.Sequence[dict[str, t.Any]] = (), **settings: t.Any) -> dict[str, t.Any]:
    """Return what the role notes for one node."""
    return {"info": info or node(), "zombies": {"findings": list(zombies)}, "settings": {**SETTINGS, **settings}}


def second(info: dict[str, t.Any] | None = None, **settings: t.Any) -> dict[str, t.Any]:
    """Return the same for the other node of the cluster, with addresses of its own."""
    text = json.dumps(info or node()).replace("192.168.100.11", "192.168.100.12").replace("192.168.101.11", "192.168.101.12")
    own = {"head": False, "address": "192.168.100.12", "peers": ["192.168.100.11"], "api_address": "", "ports": {}}
    return asked(json.loads(text), **{**own, **settings})


def judged(
    first: dict[str, t.Any] | None = None, other: dict[str, t.Any] | None = None, profile: dict[str, t.Any] | None = None, **run: t.Any
) -> dict[str, t.Any]:
    """Return the record of two nodes, judged against its schema."""
    record = judging.judge({"spark-1": first or asked(), "spark-2": other or second()}, profile or PROFILE, {**RUN, **run})
    VALID.validate(record)
    assert record["counts"]["pass"] + record["counts"]["not_judged"] <= 2 * len(record["matrix"])
    return record


def ids(record: dict[str, t.Any]) -> set[str]:
    return {finding["id"] for finding in record["findings"]}
