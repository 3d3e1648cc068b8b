# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What guards the nodes. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

#: Version of what is passed on.
SCHEMA = 1
#: Nothing but what the task names.
READS: dict[str, str] = {}
ABSENT = "-e gb10_guard=absent"


def size(count: int) -> str:
    """Return bytes in MiB."""
    return f"{count / (1 << 20):.1f} MiB"


def _ring(found: dict[str, t.Any]) -> str:
    """Return how large the ring is and where; it holds lines of the kernel's log, which not everybody may read."""
    known = found.get("ring_bytes")
    return f"in {found['ring']}, of an unknown size: only root and its group may read it" if known is None else f"{size(known)} in {found['ring']}"


def text(found: dict[str, t.Any]) -> str:
    """Return what of the guard is on a node in a line, empty where there is nothing."""
    if found.get("installed"):
        state = {True: "active", False: "not active", None: "state not known"}[found.get("active")]
        parts = [f"guard: {state}, ring {_ring(found)}, {ABSENT} takes it away"]
        if found.get("older"):
            parts.append("an older version set it up, which ends ranks by the trend alone; ansible-playbook -i inventories/NAME gb10.cluster.guard renews it")
        if said := found.get("said"):
            parts.append(f"{time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime(said['at']))}: {said['text']}")
        return "; ".join(parts)
    if found.get("ring_bytes", 0) != 0:
        return f"guard: none, its ring is left ({_ring(found)}), {ABSENT} -e gb10_guard_forget=true removes it"
    return ""


def stays(found: t.Mapping[str, dict[str, t.Any]]) -> list[str]:
    """Return in one line on which nodes the guard stays after their cluster is gone, and how it is taken away; no line where there is none."""
    nodes = [node for node, one in found.items() if one.get("installed")]
    return [f"The guard stays on {', '.join(nodes)}; ansible-playbook -i inventories/NAME gb10.cluster.guard {ABSENT} takes it away."] if nodes else []


def judge(answers: Answers, run: Run) -> Outcome:
    """Show it, and pass it on; the answers are those of node_guard."""
    found = {node: answer["guard"] for node, answer in answers.items()}
    said = [f"{node}: {'; '.join(filter(None, (answer['msg'], '' if run.check_mode else text(answer['guard']))))}" for node, answer in found.items()]
    nodes = {node: {"changed": answer["changed"], "actions": answer["actions"], **answer["guard"]} for node, answer in found.items()}
    return Outcome("Guard", lines=said, stats={"gb10_guard_report": {"schema": SCHEMA, "nodes": nodes}, "gb10_verdict": "pass"})
