# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A memory plan in words: findings, figures and the table. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import json
import shlex
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._memory import components, plan
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding

#: The verdict of a finding by the verdict of a plan.
_VERDICTS = {plan.FITS: "pass", plan.TIGHT: "warn", plan.NO: "block", plan.UNKNOWN: "unknown"}


def findings(memory_plan: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    """Return one finding for each node of a plan. A plan for a class of Sparks also has those of each larger class that it fits; an unknown plan has one
    finding."""
    if memory_plan["missing"]:
        text = f"{memory_plan['profile']}: {'; '.join(memory_plan['reasons'])}"
        remedy = "Put the facts of the model's config.json into memory.config of the profile, or name a repository whose config.json is in a cache."
        if memory_plan["settings"]["unread"]:
            remedy = "Correct the value in gb10_serve_arguments, or in the profile."
        return [finding("plan.profile", "controller", "unknown", text, measured=memory_plan["missing"], remedy=remedy)]
    larger = [size_class for size_class in memory_plan["classes"] if size_class["class_gb"] > memory_plan["class_gb"]]
    others = [size_class for size_class in larger if size_class["verdict"] in (plan.FITS, plan.TIGHT)]
    go = "".join(
        f"On a Spark with {size_class['class_gb']} GB: {size_class['verdict']} (-e gb10_plan_nodes={size_class['total_gib']:g}). " for size_class in others
    )
    rows = []
    for node in memory_plan["nodes"]:
        words = would_go(memory_plan["would_fit"], memory_plan["given"], node["reported"])
        rows.append(_row(node, "" if node["verdict"] == plan.FITS else f"{go}{words}."))
    return rows + [_row(node, "") for size_class in others for node in size_class["nodes"]]


def _row(node: t.Mapping[str, t.Any], remedy: str) -> dict[str, t.Any]:
    why = "".join(f"; {reason}" for reason in node["reasons"])
    return finding(
        "plan.profile",
        node["node"],
        _VERDICTS[node["verdict"]],
        f"{node['verdict']}: {figures(node)}{why}",
        measured=node["serving"]["available_gib"],
        needed=components.CONSTANTS["unproven"].value,
        remedy=remedy,
        source="docs/plan.md",
    )


def spark(total_gib: float) -> str:
    """Return the kind of machine with this total memory, in words."""
    known = (size for size, usual in plan.CLASS_TOTAL.items() if 0.9 <= total_gib / usual <= 1.1)
    return next((f"Spark with {size} GB" for size in known), f"node with {total_gib:g} GiB")


def figures(node: t.Mapping[str, t.Any]) -> str:
    """Return the two figures of a node in words."""
    serving, loading = node["serving"], node["loading"]
    return (
        f"{serving['used_gib']:.1f} +/- {serving['within_gib']:.1f} GiB in use while it serves, "
        f"{loading['used_gib']:.1f} +/- {loading['within_gib']:.1f} once it is loaded, of {node['total_gib']:g} on a {spark(node['total_gib'])}"
    )


def would_go(would_fit: t.Sequence[t.Mapping[str, t.Any]], given: t.Mapping[str, t.Any], reported: str) -> str:
    """Return single changes that improve the verdict, as options to type; ``given`` are the arguments that each option has to keep."""
    if not would_fit and reported:
        return "No change that was tried fits better, and it is reported to run as it is"
    if not would_fit:
        return "No change that was tried fits better: use smaller weights or more nodes"
    typed = []
    for option in would_fit:
        line = f"-e {shlex.quote(json.dumps({'gb10_serve_arguments': {**given, option['change']: option['to']}}))}"
        typed.append(f"{option['to']} nodes ({option['verdict']})" if option["change"] == "nodes" else f"{line} ({option['verdict']})")
    return f"What would go: {'; '.join(typed)}"


class Column(t.NamedTuple):
    """Nodes with the same plan, and their common title."""

    title: str
    node: dict[str, t.Any]


def columns(memory_plan: t.Mapping[str, t.Any]) -> list[Column]:
    """Return the nodes of a plan, with equal ones merged. A plan without specific nodes has the nodes of each class of Sparks, side by side."""
    groups: list[tuple[str, dict[str, t.Any], list[str]]] = []
    by_class = [(f"Spark with {size_class['class_gb']} GB", size_class["nodes"]) for size_class in memory_plan["classes"]]
    for name, nodes in by_class or [("", memory_plan["nodes"])]:
        for node in nodes:
            values = {key: value for key, value in node.items() if key != "node"}
            known = next((names for where, other, names in groups if where == name and other == values), None)
            if known is None:
                groups.append((name, values, [node["node"]]))
            else:
                known.append(node["node"])
    alone = [name for name, _values, _names in groups]
    return [Column(name if name and alone.count(name) == 1 else ", ".join(filter(None, (name, *names))), values) for name, values, names in groups]


#: Width of the first column of a plan's table.
_NAMES = 44


def lines(memory_plan: t.Mapping[str, t.Any]) -> list[str]:
    """Return a plan as a table, with its arithmetic."""
    if memory_plan["missing"]:
        return [f"{memory_plan['profile']} ({memory_plan['repo']}): unknown", *(f"missing: {fact}" for fact in memory_plan["missing"])]
    use = memory_plan["settings"]
    pinned = f"KV cache of {use['kv_bytes']} bytes" if use["kv_bytes"] else f"utilization {use['utilization'] or 'left to the engine'}"
    ranks = f"{use['tensor']} x {use['pipeline']} x {use['data']}"
    verdicts = ", ".join(f"{size_class['verdict']} on a Spark with {size_class['class_gb']} GB" for size_class in memory_plan["classes"])
    rows = [
        f"{memory_plan['profile']} ({memory_plan['repo']}): {verdicts or memory_plan['verdict']}",
        f"{use['context']} tokens, {use['seqs'] or 'default'} sequences, {use['batched']} tokens a step, {pinned}, ranks {ranks} (tensor x pipeline x data)",
        "",
        *_table(columns(memory_plan)),
        "",
    ]
    rows += [f"why ({column.title}): {reason}" for column in columns(memory_plan) for reason in column.node["reasons"]]
    rows += [would_go(memory_plan["would_fit"], memory_plan["given"], "")] if memory_plan["would_fit"] else []
    for length in memory_plan["lengths"]:
        more = "" if length["more_gib"] is None else f", {length['more_gib']:g} more than the length before"
        reported = f"; reported: {length['reported']}" if length["reported"] else ""
        rows.append(f"length {length['context']}: {length['verdict']}, {length['kv_gib']:g} GiB a sequence{more}{reported}")
    if memory_plan["propose_kv_cache_memory_bytes"] and use["recorded"]:
        size = memory_plan["propose_kv_cache_memory_bytes"]
        rows.append(f"proposed, applied with gb10_kv_cache=recorded: --kv-cache-memory-bytes {size} ({size / components.GIB:.2f} GiB)")
    return [*rows, *(f"advice: {text}" for text in memory_plan["advice"])]


def _table(nodes: t.Sequence[Column]) -> list[str]:
    """Return parts, sums and verdicts of each column, in GiB."""
    parts = dict.fromkeys(part["id"] for column in nodes for part in column.node["components"])
    widths = [max(18, len(column.title)) for column in nodes]

    def row(name: str, cells: t.Iterable[str], *more: str) -> str:
        return "  ".join([name.ljust(_NAMES), *(cell.rjust(width) for cell, width in zip(cells, widths)), *more]).rstrip()

    rows = [row("GiB on each node", (column.title for column in nodes), "when    ", "how")]
    for name in parts:
        by_column = [next((part for part in column.node["components"] if part["id"] == name), None) for column in nodes]
        known = [(column.title, part) for column, part in zip(nodes, by_column) if part]
        how = dict.fromkeys(part["arithmetic"] for _title, part in known)
        words = next(iter(how)) if len(how) == 1 else "; ".join(f"{title}: {part['arithmetic']}" for title, part in known)
        when = {"loading": "loading ", "serving": "serving "}.get("".join(known[0][1]["when"]), "both    ")
        titles = dict.fromkeys(part["title"] for _title, part in known)
        rows.append(row(" / ".join(titles), ("" if part is None else _amount(part["gib"], part["within"]) for part in by_column), when, words))
    for name, words in (("loading", "once it is loaded"), ("serving", "while it serves")):
        figures_of = [column.node[name] for column in nodes]
        rows.append(row(f"= in use {words}", (_amount(figure["used_gib"], figure["within_gib"]) for figure in figures_of)))
        rows.append(row(f"  left {words}", (_amount(figure["available_gib"], figure["within_gib"]) for figure in figures_of)))
    start = [column.node["at_start"] for column in nodes]
    rows.append(row("the engine needs free at its start", (f"{figure['wanted_gib']:.2f}" for figure in start)))
    rows.append(row("  and would find, by MemAvailable", (_amount(figure["free_gib"], figure["within_gib"]) for figure in start)))
    rows.append(row("  where CUDA's own was reported to end", ("not known" if figure["cuda_gib"] is None else f"{figure['cuda_gib']:.2f}" for figure in start)))
    rows.append(row("sequences that the cache holds", (str(column.node["sequences"]) for column in nodes)))
    return [*rows, row("verdict", (column.node["verdict"] for column in nodes))]


def _amount(gib: float, within: float) -> str:
    return f"{gib:.2f} +/- {within:5.2f}"
