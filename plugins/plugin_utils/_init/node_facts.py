# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads what an inventory needs from a node's answer: its size, its address, its models. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import collections
import ipaddress
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.plugin_utils._init import texts
from ansible_collections.gb10.cluster.plugins.plugin_utils._init.links import VIRTUAL, Answer
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import rule_table

MIB_IN_GIB = 1024
#: Sizes of Spark, in GB, the largest first.
CLASSES_GB = (128, 64)
PLAIN_PATH = re.compile(r"(/[A-Za-z0-9_.@+-]+)+\Z")


def limit(rule: str, name: str) -> t.Any:
    """Return a limit of one of the preflight's rules, so that both use the same limits."""
    return next(row.limits[name] for row in rule_table.shipped() if row.id == rule)


def memory_class(total_mb: int) -> int | None:
    """Return the size of a Spark, in GB, for a total in MiB; None for less than the smallest."""
    return next((size for size in CLASSES_GB if total_mb / MIB_IN_GIB >= size * limit("memory.class", "shown")), None)


def api_address(info: Answer, reached: str, fabric: t.Collection[str]) -> tuple[str, str, bool] | None:
    """Return (address, interface, whether Ansible uses it) for the API; None if the node has no address except those of its ``fabric`` interfaces.

    It is the address that Ansible reached. If that is unknown, or not the node's, it is the first one that is not on a link of the fabric.
    """
    for interface in info["interfaces"]:
        held = [network for network in interface["networks"] if network["address"] == reached]
        if held and interface["name"] != "lo":
            best = next((network for network in interface["networks"] if network["family"] == "ipv4"), held[0])
            address = reached if held[0]["family"] == "ipv4" else best["address"]
            if not ipaddress.ip_address(address.partition("%")[0]).is_link_local:
                return address, interface["name"], address == reached
    cabled = [interface for interface in info["interfaces"] if interface["carrier"] and not VIRTUAL.match(interface["name"])]
    others = [interface for interface in cabled if interface["name"] not in fabric]
    networks = ((interface["name"], network["address"]) for interface in others for network in interface["networks"] if network["family"] == "ipv4")
    return next(((address, name, False) for name, address in networks if not ipaddress.ip_address(address).is_link_local), None)


def cache_of(path: str) -> str | None:
    """Return the hub cache (``HF_HOME``) of a model's path; None outside of one, or when its path cannot be written to an inventory."""
    cache, hub, _rest = path.partition("/hub/models--")
    return cache if hub and PLAIN_PATH.match(cache) and ".." not in cache.split("/") else None


def on_disk(profile: Answer, info: Answer) -> str | None:
    """Return the cache in which a node has a profile's model, complete and in its revision; None without one."""
    repo, revision = profile["model"]["repo"], profile["model"]["revision"]
    whole = [model for model in info["models"] or [] if model["repo"] == repo and model["complete"] and revision in (None, model["revision"])]
    return next((cache for cache in map(cache_of, (model["path"] for model in whole)) if cache), None)


def hub_cache(profile: Answer | None, info: Answer) -> tuple[str, str] | None:
    """Return (hub cache, reason) of a node: the one with the profile's model, else the one with the most bytes of models, else the value of HF_HOME."""
    if profile and on_disk(profile, info):
        return t.cast(str, on_disk(profile, info)), "the profile's model is there"
    sizes: dict[str, int] = collections.defaultdict(int)
    for model in [model for model in info["models"] or [] if cache_of(model["path"])]:
        sizes[t.cast(str, cache_of(model["path"]))] += model["bytes"] or 0
    if sizes:
        return max(sizes, key=lambda cache: sizes[cache]), "other models are there"
    entries = [entry for entry in info["environment"] or [] if entry["name"] == "HF_HOME" and PLAIN_PATH.match(entry["value"])]
    return (entries[-1]["value"], f"HF_HOME in {texts.one_line(entries[-1]['where'])}") if entries else None
