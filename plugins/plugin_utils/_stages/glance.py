# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The first screen of status: mode, models, tokens, memory and last events. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._lease import record
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import sweep_files
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered

#: Events that are shown, the newest of all nodes, each once.
EVENTS = 3
#: Nothing but what the task names.
READS: dict[str, str] = {}


def with_reason(text: str, one: t.Mapping[str, t.Any]) -> str:
    """Return a text with the reason that something has, if any."""
    return f"{text}: {one['reason']}" if one["reason"] else text


def engine_text(one: t.Mapping[str, t.Any]) -> str:
    """Return what a unit says of its engine, in one line."""
    what = with_reason(f"{one['cluster']} {one['role']} {one['state']} since {one['at']}", one)
    if one["role"] != "head":
        return what
    return ", ".join(
        text
        for text in (what, one["model"], one["endpoint"], f"token in {one['token']['seconds']} s at {one['token']['at']}" if one["token"] else "no token")
        if text
    )


def lease_text(lease: t.Mapping[str, t.Any]) -> str:
    """Return what there is of a lease in one line, empty without one."""
    if not lease:
        return ""
    if lease["state"] == record.LIVE:
        return f"leased to {record.of(lease)}; expires in {lease['left_seconds']} s unless it is renewed"
    return f"lease of {record.of(lease)}: {lease['state']}: {lease['reason']}"


def was_read(answer: dict[str, t.Any] | None) -> bool:
    """Return whether a node was reached and read."""
    return answered(answer) and answer is not None and answer.get("reached", True)


def node_lines(node: str, answer: dict[str, t.Any] | None) -> list[str]:
    """Return the lines about a node."""
    if answer is None or not was_read(answer):
        why = (answer or {}).get("what") or (answer or {}).get("msg")
        return [f"{node}: not reached: {why}" if why else f"{node}: not reached"]
    memory = answer["memory"]
    gib = f"{memory['available_mb'] / 1024:.1f} of {memory['total_mb'] / 1024:.1f} GiB available" if memory else "memory unknown"
    engines = [engine_text(one) for one in answer["engines"]] or ["no unit of an engine"]
    first, *more = table.packed(
        text
        for text in [f"{node}: {gib}", lease_text(answer["lease"]), *engines, f"sweep: {sweep_files.found_text(answer['sweep'])}" if answer["sweep"] else ""]
        if text
    )
    return [first, *(f"  {text}" for text in [*more, *answer["errors"]])]


def judge(answers: Answers, run: Run) -> Outcome:
    """Say what is declared and what serves. The answer is ``seen`` (node_state_info)."""
    records = [answer["seen"]["mode"] for answer in answers.values() if was_read(answer["seen"]) and answer["seen"]["mode"]]
    record = max(records, key=lambda one: one["changed_at"], default=None)
    declared = with_reason(f"{record['mode']}, {record['phase']} since {record['changed_at']}", record) if record else "none is declared"
    lines = [f"Mode: {declared}"]
    lines += [line for node, answer in answers.items() for line in node_lines(node, answer["seen"])]
    lines += table.packed(f"{one['at']} {one['text']}" for one in (record["events"][-EVENTS:] if record else []))
    return Outcome("Glance", lines=lines, stats={"gb10_glance": {node: answer["seen"] for node, answer in answers.items() if was_read(answer["seen"])}})
