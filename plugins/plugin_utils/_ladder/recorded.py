# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the nodes' recorded climbs say. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._records import climbs

READS = {
    "cluster": "gb10_cluster_name",
    "profile": "__gb10_profile",
    "serve_arguments": "gb10_serve_arguments",
}


def now_of(look: t.Mapping[str, t.Any], tag: str) -> climbs.Now:
    """Return what a node is now, by an answer of node_info. What could not be seen matches nothing."""
    driver = next((gpu["driver_version"] for gpu in look.get("gpus") or [] if gpu["driver_version"]), "")
    image = (look.get("images") or {}).get(tag) or {}
    blind = {error["section"].partition(".")[0] for error in look.get("errors") or []}
    held = None if blind & {"tenants", "gpus"} else tenants_mb(look.get("tenants") or [])
    kernel, memory = look.get("kernel") or {}, look.get("memory") or {}
    return climbs.Now(image.get("id") or "", driver, kernel.get("release") or "", memory.get("total_mb") or 0, held)


def tenants_mb(tenants: t.Iterable[t.Mapping[str, t.Any]]) -> int:
    """Return the MiB that foreign processes hold of the GPU: by the driver's list, or what they hold at all where it does not say."""
    return sum(one["rss_mb"] if one["gpu_mib"] is None else one["gpu_mib"] for one in tenants if one["cuda"])


def fixed(arguments: t.Mapping[str, t.Any]) -> bool:
    """Return whether the settings name a context length themselves."""
    return "max_model_len" in {name.replace("-", "_") for name in arguments}


def records(look: t.Mapping[str, t.Any], cluster: str) -> list[climbs.Climb]:
    """Return the climbs of a cluster on a node."""
    return [one for one in look.get("ladder") or [] if one["cluster"] == cluster]


def text(climb: climbs.Climb) -> str:
    """Return a climb in a line."""
    ended = {
        climbs.CLIMBING: f"was interrupted, or is still running, at {climb['trying'] or 'its end'}",
        climbs.TOP: "reached its last rung",
        climbs.RETURNED: f"ended with {climb['reason']}",
        climbs.OFF: f"ended with nothing started: {climb['reason']}",
    }[climb["outcome"]]
    return f"ladder: {climb['profile']} is good for {climb['rung'] or 'no rung'}; the climb of {climb['began_at']} {ended}"


def status_lines(found: t.Mapping[str, t.Any]) -> list[str]:
    """Return what the climbs on a node say, by an answer of node_container_info."""
    return [f"ladder: {found['error']}"] if found.get("error") else [text(one) for one in found.get("climbs") or []]


def remaining(found: t.Mapping[str, t.Mapping[str, t.Any]]) -> list[str]:
    """Return in one line where recorded climbs remain after their cluster is gone; no line where there is none."""
    nodes = [node for node, one in found.items() if one.get("climbs") or one.get("error")]
    paths = {one["path"] for one in found.values() if one.get("path")}
    return [f"The ladder record remains on {', '.join(nodes)} ({', '.join(sorted(paths))}); the next bring-up uses it."] if nodes else []
