# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The climbs that nodes recorded: their text, and the comparison with a node's present state. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._records import climbs

READS = {
    "cluster": "gb10_cluster_name",
    "profile": "__gb10_profile",
    "serve_arguments": "gb10_serve_arguments",
}


def now_of(look: t.Mapping[str, t.Any], tag: str) -> climbs.Now:
    """Return the present state of a node from a result of node_info. A value that could not be read matches nothing."""
    driver = next((gpu["driver_version"] for gpu in look.get("gpus") or [] if gpu["driver_version"]), "")
    image = (look.get("images") or {}).get(tag) or {}
    blind = {error["section"].partition(".")[0] for error in look.get("errors") or []}
    held = None if blind & {"tenants", "gpus"} else tenants_mb(look.get("tenants") or [])
    kernel, memory = look.get("kernel") or {}, look.get("memory") or {}
    return climbs.Now(image.get("id") or "", driver, kernel.get("release") or "", memory.get("total_mb") or 0, held)


def tenants_mb(tenants: t.Iterable[t.Mapping[str, t.Any]]) -> int:
    """Return the MiB of GPU memory that foreign processes use: as the driver lists it, or their resident memory where the driver does not report it."""
    return sum(tenant["rss_mb"] if tenant["gpu_mib"] is None else tenant["gpu_mib"] for tenant in tenants if tenant["cuda"])


def fixed(arguments: t.Mapping[str, t.Any]) -> bool:
    """Return whether the serve arguments set a context length."""
    return "max_model_len" in {name.replace("-", "_") for name in arguments}


def records(look: t.Mapping[str, t.Any], cluster: str) -> list[climbs.Climb]:
    """Return the climbs of a cluster on a node."""
    return [climb for climb in look.get("ladder") or [] if climb["cluster"] == cluster]


def text(climb: climbs.Climb) -> str:
    """Return a climb as one line."""
    ended = {
        climbs.CLIMBING: f"was interrupted, or is still running, at {climb['trying'] or 'its end'}",
        climbs.TOP: "reached its last rung",
        climbs.RETURNED: f"ended with {climb['reason']}",
        climbs.OFF: f"ended with nothing started: {climb['reason']}",
    }[climb["outcome"]]
    return f"ladder: {climb['profile']} is good for {climb['rung'] or 'no rung'}; the climb of {climb['began_at']} {ended}"


def status_lines(answer: t.Mapping[str, t.Any]) -> list[str]:
    """Return the lines about the climbs on a node, from a result of node_container_info."""
    return [f"ladder: {answer['error']}"] if answer.get("error") else [text(climb) for climb in answer.get("climbs") or []]


def remaining(answers: t.Mapping[str, t.Mapping[str, t.Any]]) -> list[str]:
    """Return one line about the nodes that still have recorded climbs after their cluster was removed; no line without any."""
    nodes = [node for node, answer in answers.items() if answer.get("climbs") or answer.get("error")]
    paths = {answer["path"] for answer in answers.values() if answer.get("path")}
    return [f"The ladder record remains on {', '.join(nodes)} ({', '.join(sorted(paths))}); the next bring-up uses it."] if nodes else []
