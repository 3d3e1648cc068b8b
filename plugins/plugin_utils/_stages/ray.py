# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The check of Ray's nodes. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.module_utils._node.ray import TOKEN_SINCE
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.checks import CLUSTER
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.table import Finding

#: Ids of findings that are made here.
IDS = ("ray.node", "ray.stranger", "ray.token")
READS = {"address": "gb10_fabric_address", "gpus": "gb10_ray_gpus"}
#: The versions of Ray that require the token, as text.
RAY_WITH_TOKEN = f"{'.'.join(map(str, TOKEN_SINCE))} or newer"


def gate(answer: dict[str, t.Any], addresses: dict[str, str], gpus_per_node: int) -> list[Finding]:
    """Ray must see every node alive, with its own address and its GPUs. Otherwise the start fails only after half an hour.

    ``answer`` is the answer of ``node_container_info`` on the head. ``addresses`` maps the nodes to their fabric addresses.
    """
    if answer["ray_error"]:
        remedy = "look at the head's container (docker logs), then run with --tags ray"
        return [finding("ray.node", CLUSTER, "unknown", f"Ray's head does not say which nodes it has: {answer['ray_error']}", remedy=remedy)]
    alive = {node["address"]: node for node in answer["nodes"] if node["alive"]}
    findings = [_token(answer["ray_without_token"], answer["ray_version"])]
    for name, address in addresses.items():
        node = alive.get(address)
        gpus = node["gpus"] if node else None
        fits = gpus == gpus_per_node
        if node is None:
            message, remedy = f"{address} is not registered with Ray (alive: {', '.join(sorted(alive)) or 'none'}).", "run with --tags ray"
        elif not fits:
            message, remedy = f"Ray sees {gpus:g} GPU(s) on {address}, {gpus_per_node} needed.", "check gb10_ray_gpus and gb10_container_gpus, then --tags ray"
        else:
            message, remedy = f"{address} is alive with {gpus:g} GPU(s).", ""
        findings.append(finding("ray.node", name, "pass" if fits else "block", message, measured=gpus, needed=gpus_per_node, remedy=remedy))
    return findings + [
        finding(
            "ray.stranger",
            CLUSTER,
            "block",
            f"{address} is registered with this Ray cluster and is not in the inventory; Ray could place ranks there.",
            measured=address,
            remedy="stop Ray on that machine, or add it to gb10_workers",
        )
        for address in sorted(set(alive) - set(addresses.values()))
    ]


def _token(came: str, version: str) -> Finding:
    """Ray must refuse requests without the token: anyone whose requests it accepts can run programs on every node."""
    wrong = functools.partial(finding, "ray.token", CLUSTER, measured=came, needed="refused")
    if came == "refused":
        return wrong("pass", "Ray refuses requests without the token.")
    if came == "answered":
        return wrong(
            "block",
            f"Ray {version} answers requests without the token: anyone who reaches it can run programs on every node.",
            remedy=f"use Ray {RAY_WITH_TOKEN} (gb10_ray_version, or another image.base), then --tags image,ray -e gb10_allow=restart",
        )
    return wrong(
        "unknown",
        f"whether Ray refuses requests without the token is unknown: {came or 'it was not asked'}.",
        remedy="run with --tags ray again; when it stays so, see docker logs of the head's container",
    )


def judge(answers: Answers, run: Run) -> Outcome:
    """Judge the nodes that Ray's head reports."""
    first = next(iter(answers.values()))
    if run.check_mode and not first["head"]["running"]:
        return Outcome("Ray (would be checked)", [])
    return Outcome("Ray", gate(first["head"], {node: answer["address"] for node, answer in answers.items()}, int(first["gpus"])))
