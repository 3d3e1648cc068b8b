# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The first screen of status: mode, models, tokens, memory and latest events. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._lease import record
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import sweep_files
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered

#: The number of events that are shown, from the newest record of all nodes.
EVENTS = 3
#: Lines of the screen; -v shows the others, too.
SCREEN = 18
#: The line about a node without an engine's unit.
NO_UNIT = "no engine unit (the full status shows engines without one)"
#: Only the answers that the task names.
READS: dict[str, str] = {}


def with_reason(text: str, item: t.Mapping[str, t.Any]) -> str:
    """Return a text followed by the reason of an item, if it has one."""
    return f"{text}: {item['reason']}" if item["reason"] else text


def engine_text(engine: t.Mapping[str, t.Any]) -> str:
    """Return one line about the engine of a unit."""
    state = with_reason(f"{engine['cluster']} {engine['role']} {engine['state']} since {engine['at']}", engine)
    if engine["role"] != "head":
        return state
    token = f"token in {engine['token']['seconds']} s at {engine['token']['at']}" if engine["token"] else "no token"
    return ", ".join(text for text in (state, engine["model"], engine["endpoint"], token) if text)


def lease_text(lease: t.Mapping[str, t.Any]) -> str:
    """Return one line about a lease, empty without one."""
    if not lease:
        return ""
    if lease["state"] == record.LIVE:
        return f"leased to {record.of(lease)}; expires in {lease['left_seconds']} s unless it is renewed"
    return f"lease of {record.of(lease)}: {lease['state']}: {lease['reason']}"


def was_read(answer: dict[str, t.Any] | None) -> bool:
    """Return whether a node was reached and read."""
    return answered(answer) and answer is not None and answer.get("reached", True)


def is_well(answer: dict[str, t.Any] | None) -> bool:
    """Return whether a node was read completely, and neither an engine nor the sweep reports a problem. A running engine's reason says how it came back."""
    if answer is None or not was_read(answer):
        return False
    troubled = [engine for engine in answer["engines"] if engine["reason"] and engine["state"] != "running"]
    return not (answer["errors"] or answer["sweep"].get("problems") or troubled)


def without(answer: dict[str, t.Any] | None, cluster: str | None) -> dict[str, t.Any] | None:
    """Return the answer of a node without the stopped engine of ``cluster``, whose unit is kept."""
    if answer is None or not was_read(answer):
        return answer
    return {**answer, "engines": [engine for engine in answer["engines"] if (engine["cluster"], engine["state"]) != (cluster, "stopped")]}


def alone(answer: dict[str, t.Any] | None, cluster: str | None) -> bool:
    """Return whether the engine of ``cluster`` runs on a node."""
    return was_read(answer) and any((engine["cluster"], engine["state"]) == (cluster, "running") for engine in (answer or {})["engines"])


def node_lines(node: str, answer: dict[str, t.Any] | None) -> list[str]:
    """Return the lines about a node."""
    if answer is None or not was_read(answer):
        why = (answer or {}).get("what") or (answer or {}).get("msg")
        return [f"{node}: not reached: {why}" if why else f"{node}: not reached"]
    memory = answer["memory"]
    gib = f"{memory['available_mb'] / 1024:.1f} of {memory['total_mb'] / 1024:.1f} GiB available" if memory else "memory unknown"
    engines = [text for engine in answer["engines"] for text in (engine_text(engine), engine["start"])]
    unclean = [f"unclean boot at {boot['at']}" for boot in answer["unclean_boots"] if not boot["over"]]
    swept = f"sweep: {sweep_files.found_text(answer['sweep'])}" if answer["sweep"] else ""
    first, *more = table.packed(text for text in [f"{node}: {gib}", lease_text(answer["lease"]), *(engines or [NO_UNIT]), *unclean, swept] if text)
    return [first, *(f"  {text}" for text in [*more, *answer["errors"]])]


def judge(answers: Answers, run: Run) -> Outcome:
    """Show the declared mode and the state of each node. The answer is ``seen`` (node_state_info)."""
    records = [answer["seen"]["mode"] for answer in answers.values() if was_read(answer["seen"]) and answer["seen"]["mode"]]
    newest = max(records, key=lambda entry: entry["changed_at"], default=None)
    declared = with_reason(f"{newest['mode']}, {newest['phase']} since {newest['changed_at']}", newest) if newest else "none is declared"
    clusters = newest["clusters"].values() if newest else ()
    kept = {node: name for cluster in clusters for node, name in cluster.get("degraded", {}).items()}
    shown_of = {node: without(answer["seen"], kept.get(node)) for node, answer in answers.items()}
    lines = [f"Mode: {declared}", *(f"degraded: {node} serves alone" for node, answer in shown_of.items() if alone(answer, kept.get(node)))]
    troubled_first = sorted(answers, key=lambda node: is_well(shown_of[node]))
    lines += [line for node in troubled_first for line in node_lines(node, shown_of[node])]
    lines += table.packed(f"{event['at']} {event['text']}" for event in (newest["events"][-EVENTS:] if newest else []))
    shown = lines if len(lines) <= SCREEN else [*lines[: SCREEN - 1], f"{len(lines) - SCREEN + 1} more lines: -v shows them"]
    seen = {node: answer["seen"] for node, answer in answers.items() if was_read(answer["seen"])}
    return Outcome("Glance", lines=shown, details=lines, stats={"gb10_glance": seen})
