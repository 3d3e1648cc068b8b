# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The clusters to stop and to start for a declared mode. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._companion import declared as companions
from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._lease import layouts, leasing
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import mode_declared
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.groups import grouped
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered

Finding = dict[str, t.Any]

#: Ids of findings that are made here.
IDS = ("mode.foreign", "mode.look")

READS = {
    **mode_declared.READS,
    **leasing.READS,
    "profile": "__mode_profile",
    "companions": "gb10_companions",
}


class Part(t.NamedTuple):
    """A cluster of a mode: the source of its profile, that profile's id, the model as the engine's argument, and its nodes.

    ``degraded`` are by node the clusters that serve alone there while this one is given up. Their units are kept.
    """

    source: str
    profile: str
    model: str
    nodes: list[str]
    degraded: t.Mapping[str, str] = {}

    @property
    def recorded(self) -> dict[str, t.Any]:
        """Return the cluster as it is stored in the record."""
        more = {"degraded": dict(self.degraded)} if self.degraded else {}
        return {"profile": self.profile, "source": self.source, "nodes": self.nodes, **more}


def wanted_parts(answers: Answers) -> dict[str, Part]:
    """Return by name the clusters of the declared mode, according to the inventory."""
    alone = layouts.degraded(answers, next(iter(answers.values()))["mode"])
    return {
        service.name: Part(
            service.profile,
            **answers[service.nodes[0]]["profile"],
            nodes=service.nodes,
            # An engine of one node that both layouts have is not given up for itself.
            degraded={node: alone[node] for node in service.nodes if alone.get(node, service.name) != service.name},
        )
        for service in layouts.services(answers)
    }


def record_of(answers: Answers) -> modes.Record | None:
    """Return the newest record of the nodes. A node that was lost during a change has an older one.

    What was brought up without a mode is only in the records of its own nodes, so these are taken together.
    """
    records = {node: answer["look"]["mode"] for node, answer in answers.items() if answered(answer["look"]) and answer["look"]["mode"]}
    newest = max(records.values(), key=lambda record: record["changed_at"], default=None)
    if newest is None or newest["mode"] != modes.SERVE:
        return newest
    has = {node: record["clusters"] for node, record in records.items() if record["mode"] == modes.SERVE}
    found = {name: cluster for clusters in has.values() for name, cluster in clusters.items()}
    return {
        **newest,
        "clusters": {name: cluster for name, cluster in found.items() if all(has.get(node, {}).get(name) == cluster for node in cluster["nodes"])},
    }


def known_clusters(answers: Answers, record: t.Mapping[str, t.Any]) -> dict[str, layouts.Service]:
    """Return by name every cluster that the inventory or the record has. The record says on which nodes a cluster was started."""
    recorded = {**record.get("previous", {}).get("clusters", {}), **record.get("clusters", {})}
    started = [layouts.Service(name, cluster["source"], cluster["nodes"]) for name, cluster in recorded.items() if set(cluster["nodes"]) <= set(answers)]
    return {service.name: service for service in [*layouts.every(answers), *started]}


def on_nodes(answers: Answers) -> dict[str, dict[str, dict[str, t.Any]]]:
    """Return the parts of each cluster, by its name and by node, as ``node_state_info`` answered."""
    seen = [(node, answer["look"]["clusters"]) for node, answer in answers.items() if answered(answer["look"])]
    return {name: dict(pairs) for name, pairs in grouped((name, (node, cluster)) for node, clusters in seen for name, cluster in clusters.items()).items()}


def idle(answers: Answers, stay: t.Container[str]) -> dict[str, dict[str, dict[str, t.Any]]]:
    """Return as :func:`on_nodes` does the clusters that have a unit on a node, except those that stay."""
    seen = [(node, answer["look"]["units"]) for node, answer in answers.items() if answered(answer["look"])]
    return {name: dict(pairs) for name, pairs in grouped((name, (node, {})) for node, names in seen for name in names if name not in stay).items()}


def serves(there: t.Mapping[str, dict[str, t.Any]], part: Part) -> bool:
    """Return whether the engine of a cluster is live on its nodes with the wanted model. The bring-up judges its other arguments."""
    return set(there) == set(part.nodes) and any(engine["role"] == "head" and engine["live"] and part.model in engine["argv"] for engine in there.values())


def other_model(there: t.Mapping[str, dict[str, t.Any]], part: Part) -> bool:
    """Return whether a live engine has a model other than the wanted one, or other nodes."""
    live = [engine for engine in there.values() if engine["live"]]
    return bool(live) and (not set(there) <= set(part.nodes) or any(engine["argv"] and part.model not in engine["argv"] for engine in live))


def refusals(answers: Answers, there: t.Mapping[str, t.Any], known: t.Container[str], lost: t.Sequence[str]) -> t.Iterator[Finding]:
    """Yield the reasons against a change on the nodes, before anything is changed."""
    for node, answer in answers.items():
        if node not in lost and not answered(answer["look"]):
            reason = (answer["look"] or {}).get("msg") or "it was not asked"
            yield finding("mode.look", node, "unknown", f"the clusters on the node are unknown: {reason}.", remedy="see why the node did not answer")
    for name in sorted(name for name in there if name not in known):
        yield finding(
            "mode.foreign",
            ", ".join(there[name]),
            "block",
            f"the cluster {name} has a container there, and this inventory has no such cluster.",
            remedy=f"take it down with its own inventory: the playbook teardown with -e gb10_cluster_name={name}",
        )


class Plan(t.NamedTuple):
    """A change of mode: by name, the clusters that are stopped with the reason, and those that are started."""

    down: dict[str, str]
    up: dict[str, Part]
    #: The clusters of ``up`` that already serve, so they are only checked.
    there: list[str]

    @property
    def changes(self) -> bool:
        """Return whether anything starts or stops."""
        return bool(self.down) or set(self.up) != set(self.there)


def plan(mode: str, wanted: t.Mapping[str, Part], there: t.Mapping[str, dict[str, dict[str, t.Any]]]) -> Plan:
    """Plan a change: a cluster that the mode does not have is stopped, and so is a live engine with another model."""
    down = {
        name: f"it has another model than {wanted[name].model}" if name in wanted else f"the mode {mode} does not have it"
        for name, seen in there.items()
        if name not in wanted or other_model(seen, wanted[name])
    }
    return Plan(down, dict(wanted), [name for name, part in wanted.items() if name not in down and name in there and serves(there[name], part)])


def plan_lines(mode: str, before: str, change: Plan, nodes: t.Mapping[str, t.Iterable[str]]) -> list[str]:
    """Return a plan as lines."""
    return [
        f"Mode: {before} -> {mode}" if before != mode else f"Mode: {mode}",
        *(f"  down: {name} on {', '.join(nodes[name])} ({why})" for name, why in change.down.items()),
        *(f"  {'there' if name in change.there else 'up'}: {name} on {', '.join(part.nodes)}, profile {part.profile}" for name, part in change.up.items()),
        *([] if change.changes else ["  no engine has to be stopped or started"]),
    ]


def companion_lines(mode: str, declared_on: t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]]) -> list[str]:
    """Return lines with the declared companions that a mode has, and those that it does not have."""
    up = {node: [companion["name"] for companion in companions.up_in(declared, mode)] for node, declared in declared_on.items()}
    names = grouped((companion["name"] in up[node], f"{companion['name']} on {node}") for node, declared in declared_on.items() for companion in declared)
    return [
        f"  {word}: {', '.join(listed)}{why}"
        for word, listed, why in [("companions", names[True], ""), ("without", names[False], " (companions that the mode does not have)")]
        if listed
    ]


def is_declared(record: modes.Record | None, mode: str, change: Plan) -> bool:
    """Return whether the record already matches the result of the plan. A record of an interrupted change or of another profile does not."""
    return record is not None and (record["mode"], record["phase"], record["clusters"]) == (
        mode,
        modes.SETTLED,
        {name: part.recorded for name, part in change.up.items()},
    )


def as_returns(mode: str, change: Plan, known: t.Mapping[str, layouts.Service], nodes: t.Collection[str]) -> dict[str, t.Any]:
    """Return the plan as the plays read it."""
    return {
        "mode": mode,
        "changes": change.changes,
        "down": layouts.turns([known[name] for name in change.down if name in known], nodes),
        "up": layouts.turns([layouts.Service(name, part.source, part.nodes) for name, part in change.up.items()], nodes),
        "clusters": {name: part.recorded for name, part in change.up.items()},
        # By node, the cluster whose unit stays.
        "kept": {node: name for part in change.up.values() for node, name in part.degraded.items()},
    }


def judge(answers: Answers, run: Run) -> Outcome:
    """Plan the change. ``settings`` has ``lost``, the nodes that could not be reached. The change continues without them.

    The answer is ``look`` (node_state_info).
    """
    first, lost = next(iter(answers.values())), run.settings["lost"]
    there, record = on_nodes(answers), record_of(answers)
    known = known_clusters(answers, record or {})
    wanted = {name: part for name, part in wanted_parts(answers).items() if not set(part.nodes) & set(lost)}
    alone = {node: name for part in wanted.values() for node, name in part.degraded.items()}
    units = idle(answers, {*there, *wanted, *alone.values()})
    found = {**there, **{name: nodes for name, nodes in units.items() if name in known}}
    change = plan(first["mode"], wanted, found)
    named = first["layouts"].get(first["mode"], {}).get(layouts.DEGRADED)
    unready = [node for node, name in alone.items() if name not in (answers[node]["look"] or {}).get("units", [name])]
    degraded_lines = [f"  degraded: {node} has no unit of {named}; run mode {named} once" for node in unready]
    before = record["mode"] if record else "not declared"
    undeclared = bool(there) and record is None
    lease = leasing.planned(
        leasing.words_of(first["lease"]), record or {}, first["mode"], {name: part.recorded for name, part in wanted.items()}, change.changes
    )
    back = lease["back"]["clusters"] if lease and not lease["keeps"] else {}
    returns = {
        "plan": as_returns(first["mode"], change, known, answers),
        # The inputs of the engines that return after a lease are judged before anything is touched.
        "back": layouts.turns([layouts.Service(name, cluster["source"], cluster["nodes"]) for name, cluster in back.items()], answers),
        "lost": lost,
        "event": f"{before} -> {first['mode']}" + (f", for the lease of {lease['program']}" if lease else ""),
        "before": record or {},
        "undeclared": undeclared,
        "declares": change.changes or not is_declared(record, first["mode"], change),
        "lease": lease,
        "degraded_lines": degraded_lines,
    }
    findings = [*refusals(answers, there, known, lost), *leasing.refusals(answers, undeclared, change.changes, lost)]
    lines = [*plan_lines(first["mode"], before, change, found), *degraded_lines]
    lines += companion_lines(first["mode"], {node: answer["companions"] for node, answer in answers.items() if node not in lost})
    return Outcome("Mode", findings or None, lines=[*lines, *leasing.plan_lines(lease)], returns=returns)
