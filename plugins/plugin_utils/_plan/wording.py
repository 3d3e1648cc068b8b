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

#: How a finding says what a plan does.
_VERDICTS = {plan.FITS: "pass", plan.TIGHT: "warn", plan.NO: "block", plan.UNKNOWN: "unknown"}


def findings(found: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    """Return one finding for each node of a plan, and of a plan for a class of Sparks those for each larger class on which it goes; one for no plan."""
    if found["missing"]:
        text = f"{found['profile']}: {'; '.join(found['reasons'])}"
        remedy = "Put the facts of the model's config.json into memory.config of the profile, or name a repository whose config.json is in a cache."
        if found["settings"]["unread"]:
            remedy = "Correct the value in gb10_serve_arguments, or in the profile."
        return [finding("plan.profile", "controller", "unknown", text, measured=found["missing"], remedy=remedy)]
    others = [one for one in found["classes"] if one["class_gb"] > found["class_gb"] and one["verdict"] in (plan.FITS, plan.TIGHT)]
    go = "".join(f"On a Spark with {one['class_gb']} GB: {one['verdict']} (-e gb10_plan_nodes={one['total_gib']:g}). " for one in others)
    rows = []
    for node in found["nodes"]:
        words = would_go(found["would_fit"], found["given"], node["reported"])
        rows.append(_row(node, "" if node["verdict"] == plan.FITS else f"{go}{words}."))
    return rows + [_row(node, "") for one in others for node in one["nodes"]]


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
    """Return what kind of machine shows so much memory, in words."""
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
    """Return single changes that get a better verdict, as what to type; ``given`` are the arguments that the line has to keep."""
    if not would_fit and reported:
        return "No change that was tried fits better, and it is reported to run as it is"
    if not would_fit:
        return "No change that was tried fits better: use smaller weights or more nodes"
    typed = []
    for one in would_fit:
        line = f"-e {shlex.quote(json.dumps({'gb10_serve_arguments': {**given, one['change']: one['to']}}))}"
        typed.append(f"{one['to']} nodes ({one['verdict']})" if one["change"] == "nodes" else f"{line} ({one['verdict']})")
    return f"What would go: {'; '.join(typed)}"


class Column(t.NamedTuple):
    """Nodes with one and the same plan, and what they are called together."""

    title: str
    node: dict[str, t.Any]


def columns(found: t.Mapping[str, t.Any]) -> list[Column]:
    """Return the nodes of a plan, equal ones once; of a plan for no nodes in particular those of each class of Sparks, side by side."""
    groups: list[tuple[str, dict[str, t.Any], list[str]]] = []
    for name, nodes in [(f"Spark with {one['class_gb']} GB", one["nodes"]) for one in found["classes"]] or [("", found["nodes"])]:
        for node in nodes:
            said = {key: value for key, value in node.items() if key != "node"}
            known = next((names for where, other, names in groups if where == name and other == said), None)
            if known is None:
                groups.append((name, said, [node["node"]]))
            else:
                known.append(node["node"])
    alone = [name for name, _said, _names in groups]
    return [Column(name if name and alone.count(name) == 1 else ", ".join(filter(None, (name, *names))), said) for name, said, names in groups]


#: Width of the first column of a plan's table.
_NAMES = 44


def lines(found: t.Mapping[str, t.Any]) -> list[str]:
    """Return a plan as a table, with its arithmetic."""
    if found["missing"]:
        return [f"{found['profile']} ({found['repo']}): unknown", *(f"missing: {one}" for one in found["missing"])]
    use = found["settings"]
    pinned = f"KV cache of {use['kv_bytes']} bytes" if use["kv_bytes"] else f"utilization {use['utilization'] or 'left to the engine'}"
    ranks = f"{use['tensor']} x {use['pipeline']} x {use['data']}"
    verdicts = ", ".join(f"{one['verdict']} on a Spark with {one['class_gb']} GB" for one in found["classes"])
    rows = [
        f"{found['profile']} ({found['repo']}): {verdicts or found['verdict']}",
        f"{use['context']} tokens, {use['seqs'] or 'default'} sequences, {use['batched']} tokens a step, {pinned}, ranks {ranks} (tensor x pipeline x data)",
        "",
        *_table(columns(found)),
        "",
    ]
    rows += [f"why ({column.title}): {reason}" for column in columns(found) for reason in column.node["reasons"]]
    rows += [would_go(found["would_fit"], found["given"], "")] if found["would_fit"] else []
    for one in found["lengths"]:
        more = "" if one["more_gib"] is None else f", {one['more_gib']:g} more than the length before"
        reported = f"; reported: {one['reported']}" if one["reported"] else ""
        rows.append(f"length {one['context']}: {one['verdict']}, {one['kv_gib']:g} GiB a sequence{more}{reported}")
    if found["propose_kv_cache_memory_bytes"] and use["recorded"]:
        size = found["propose_kv_cache_memory_bytes"]
        rows.append(f"proposed, applied with gb10_kv_cache=recorded: --kv-cache-memory-bytes {size} ({size / components.GIB:.2f} GiB)")
    return [*rows, *(f"advice: {one}" for one in found["advice"])]


def _table(nodes: t.Sequence[Column]) -> list[str]:
    """Return parts, sums and verdicts of each column, in GiB."""
    parts = dict.fromkeys(part["id"] for column in nodes for part in column.node["components"])
    widths = [max(18, len(column.title)) for column in nodes]

    def row(name: str, cells: t.Iterable[str], *more: str) -> str:
        return "  ".join([name.ljust(_NAMES), *(cell.rjust(width) for cell, width in zip(cells, widths)), *more]).rstrip()

    rows = [row("GiB on each node", (column.title for column in nodes), "when    ", "how")]
    for name in parts:
        found = [next((part for part in column.node["components"] if part["id"] == name), None) for column in nodes]
        known = [(column.title, part) for column, part in zip(nodes, found) if part]
        how = dict.fromkeys(part["arithmetic"] for _title, part in known)
        words = next(iter(how)) if len(how) == 1 else "; ".join(f"{title}: {part['arithmetic']}" for title, part in known)
        when = {"loading": "loading ", "serving": "serving "}.get("".join(known[0][1]["when"]), "both    ")
        titles = dict.fromkeys(part["title"] for _title, part in known)
        rows.append(row(" / ".join(titles), ("" if part is None else _amount(part["gib"], part["within"]) for part in found), when, words))
    for name, words in (("loading", "once it is loaded"), ("serving", "while it serves")):
        figures_of = [column.node[name] for column in nodes]
        rows.append(row(f"= in use {words}", (_amount(one["used_gib"], one["within_gib"]) for one in figures_of)))
        rows.append(row(f"  left {words}", (_amount(one["available_gib"], one["within_gib"]) for one in figures_of)))
    start = [column.node["at_start"] for column in nodes]
    rows.append(row("the engine needs free at its start", (f"{one['wanted_gib']:.2f}" for one in start)))
    rows.append(row("  and would find, by MemAvailable", (_amount(one["free_gib"], one["within_gib"]) for one in start)))
    rows.append(row("  where CUDA's own was reported to end", ("not known" if one["cuda_gib"] is None else f"{one['cuda_gib']:.2f}" for one in start)))
    rows.append(row("sequences that the cache holds", (str(column.node["sequences"]) for column in nodes)))
    return [*rows, row("verdict", (column.node["verdict"] for column in nodes))]


def _amount(gib: float, within: float) -> str:
    return f"{gib:.2f} +/- {within:5.2f}"
