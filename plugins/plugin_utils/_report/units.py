# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The units on the nodes, in lines. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._service import table

#: By key of the table, what there is of a unit on a node; empty where they were not checked.
Services = t.Mapping[str, t.Mapping[str, t.Any]]


def lines(found: Services) -> list[str]:
    """Return the units of a node, each in a line."""
    return [line for one in table.SERVICES if (line := one.text(dict(found.get(one.key) or {})))]


def remaining(found: t.Mapping[str, Services]) -> list[str]:
    """Return which units stay on which nodes after their cluster is gone, and how each is taken away."""
    nodes = {one: [node for node, services in found.items() if (services.get(one.key) or {}).get("installed")] for one in table.SERVICES if one.absent}
    return [
        f"The {one.key} stays on {', '.join(names)}; ansible-playbook -i inventories/NAME gb10.cluster.protect --tags {one.key} -e {one.absent} takes it away."
        for one, names in nodes.items()
        if names
    ]


def left(found: Services) -> list[str]:
    """Return the units of a node that are still there, or their files, and should be gone with their cluster."""
    there = [found[one.key] for one in table.SERVICES if one.goes and found.get(one.key)]
    return [one["name"] for one in there if one["installed"] or one["files"]]
