# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Layouts: which engine a mode has on which nodes. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import Problem
from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers

#: The key of a layout that stands for all nodes.
ALL = "all"
#: The key of a layout that names another one: the engines of that one serve alone, each on its node, while an engine of this one is given up.
DEGRADED = "degraded"

#: The variables of each node that say which engines a mode has.
READS = {
    "mode": "gb10_mode",
    "layouts": "gb10_layouts",
    "pair": "gb10_cluster_name",
    "pair_source": "gb10_profile",
    "single": "gb10_single_name",
    "single_source": "gb10_single_profile",
}


class Service(t.NamedTuple):
    """An engine of a mode: the name of its cluster, the id or path of its profile, and its nodes, the head first."""

    name: str
    profile: str
    nodes: list[str]


def known(layouts: t.Iterable[str]) -> list[str]:
    """Return the modes that can be declared."""
    return [modes.CLUSTER, modes.SINGLES, modes.OFF, *layouts]


def _named(key: t.Any) -> list[str]:
    return [word.strip() for word in str(key).split(",")]


def _on(key: t.Any, nodes: t.Sequence[str]) -> t.Sequence[str]:
    """Return the nodes that a key names."""
    return nodes if _named(key) == [ALL] else _named(key)


def _engines(layout: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the profiles of a layout by key."""
    return {key: profile for key, profile in layout.items() if key != DEGRADED}


def _service(key: str, profile: str, answers: Answers) -> Service:
    """Return the engine of one entry of a layout. ``answers`` has the nodes in order, the cluster's head first.

    The name depends only on the nodes, so that layouts with the same engine on the same nodes have the same cluster.
    """
    names = _named(key)
    nodes = list(answers) if names == [ALL] else [node for node in answers if node in names]
    if names != [ALL] and len(nodes) == 1:
        name = answers[nodes[0]]["single"]
    elif len(nodes) == len(answers):
        name = answers[nodes[0]]["pair"]
    else:
        name = ".".join(sorted(answers[node]["single"] for node in nodes))
    return Service(name, profile, nodes)


def services(answers: Answers, mode: str | None = None) -> list[Service]:
    """Return the engines of a mode; without one, of the mode that the inventory declares."""
    first = next(iter(answers.values()))
    wanted = mode or first["mode"]
    if wanted == modes.CLUSTER:
        return [_service(ALL, first["pair_source"], answers)]
    if wanted == modes.SINGLES:
        return [_service(node, answer["single_source"], answers) for node, answer in answers.items() if answer["single_source"]]
    return [_service(key, profile, answers) for key, profile in _engines(first["layouts"].get(wanted, {})).items()]


def degraded(answers: Answers, mode: str) -> dict[str, str]:
    """Return by node the cluster that serves alone there while an engine of this mode is given up."""
    named = next(iter(answers.values()))["layouts"].get(mode, {}).get(DEGRADED)
    return {node: service.name for service in services(answers, named) for node in service.nodes} if named else {}


def every(answers: Answers) -> list[Service]:
    """Return an engine for each cluster that the inventory can have: of all nodes, of each node, and of each entry of a layout."""
    first = next(iter(answers.values()))
    return [
        *services(answers, modes.CLUSTER),
        *(_service(node, answer["single_source"], answers) for node, answer in answers.items()),
        *(service for layout in first["layouts"] for service in services(answers, layout)),
    ]


def turns(wanted: t.Sequence[Service], nodes: t.Iterable[str]) -> dict[str, t.Any]:
    """Return engines as the plays take them: ``clusters``, and ``batches`` of nodes that take their turn together.

    Clusters with a common node are in the same batch. The last batch has the nodes without a cluster.
    """
    batches: list[list[str]] = []
    for service in wanted:
        apart = [batch for batch in batches if not set(batch) & set(service.nodes)]
        joined = [node for batch in batches if batch not in apart for node in batch]
        batches = [*apart, list(dict.fromkeys([*joined, *service.nodes]))]
    idle = [node for node in nodes if not any(node in batch for batch in batches)]
    return {"clusters": [service._asdict() for service in wanted], "batches": [*batches, *([idle] if idle else [])]}


def _unfit(layouts: t.Mapping[str, t.Any], named: t.Any, nodes: t.Sequence[str]) -> str:
    """Return why the engines of a layout cannot serve alone, empty when they can."""
    other = layouts.get(named) if isinstance(named, str) else None
    if not isinstance(other, dict):
        return "which is not a layout"
    large = [key for key in _engines(other) if len(_on(key, nodes)) > 1]
    return f"which has the key {DEGRADED} itself" if DEGRADED in other else f"whose key {large[0]} is several nodes" if large else ""


def problems(layouts: t.Mapping[str, t.Any], nodes: t.Sequence[str]) -> t.Iterator[Problem]:
    """Yield the problems of the setting. Profiles and their sizes are judged with the other inputs of each engine."""
    for name, layout in layouts.items():
        wrong = functools.partial(Problem, "mode.layout", f"gb10_layouts.{name}", remedy="correct gb10_layouts in the inventory")
        if name in modes.RESERVED:
            yield wrong("is the name of a mode that always exists", f"another name than {', '.join(modes.RESERVED)}")
        elif not modes.NAME.match(str(name)):
            yield wrong("cannot be the name of a layout", modes.NAME_MEANS)
        engines = _engines(layout) if isinstance(layout, dict) else {}
        if not engines:
            yield wrong("has no nodes", "a mapping of nodes to profiles, such as {all: PROFILE}")
            continue
        if DEGRADED in layout and (why := _unfit(layouts, layout[DEGRADED], nodes)):
            yield wrong(f"has {DEGRADED}: {layout[DEGRADED]}, {why}", f"the name of a layout with one node a key; a node named {DEGRADED} cannot be a key")
        taken = [node for key in engines for node in _on(key, nodes)]
        for node in dict.fromkeys(taken):
            if node not in nodes:
                yield wrong(f"names {node or 'nothing'}, which is not a node of the cluster", f"{ALL}, or some of {', '.join(nodes)}")
            elif taken.count(node) > 1:
                yield wrong(f"names {node} {taken.count(node)} times", "each node once, since a node runs one engine")
        for key, profile in engines.items():
            if not isinstance(profile, str) or not profile:
                yield wrong(f"has no profile for {key}", "the id of a profile, or its path")
