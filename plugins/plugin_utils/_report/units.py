# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Describes the units on the nodes, as lines. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._service import table

#: By key of the table, the state of a unit on a node; empty where it was not checked.
Services = t.Mapping[str, t.Mapping[str, t.Any]]


#: Keys in the record of an active unit, each a reason to look at it.
TROUBLE = ("error", "failed", "older", "problems", "said", "undelivered")


def is_well(state: t.Mapping[str, t.Any]) -> bool:
    """Return whether a unit is installed and active, and has nothing to report."""
    return bool(state.get("installed") and state["active"]) and not any(state.get(word) for word in TROUBLE)


def lines(services: Services) -> list[tuple[str, bool]]:
    """Return the units of a node, each in a line, and whether it is well."""
    looked = ((service, dict(services.get(service.key) or {})) for service in table.SERVICES)
    return [(text, is_well(state)) for service, state in looked if (text := service.text(state))]


def remaining(answers: t.Mapping[str, Services]) -> list[str]:
    """Return lines about units that stay on nodes after their cluster is removed, with the command that removes each."""
    result = []
    for service in table.SERVICES:
        nodes = [node for node, services in answers.items() if (services.get(service.key) or {}).get("installed")]
        if nodes and service.absent:
            command = f"ansible-playbook -i inventories/NAME gb10.cluster.protect --tags {service.key} -e {service.absent}"
            result.append(f"The {service.key} stays on {', '.join(nodes)}; {command} takes it away.")
    return result


def left(services: Services) -> list[str]:
    """Return the units of a node that should have been removed with their cluster and are still there, or their files are."""
    there = [services[service.key] for service in table.SERVICES if service.goes and services.get(service.key)]
    return [state["name"] for state in there if state["installed"] or state["files"]]
