# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What protects the nodes, what was changed for it and what was left. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gb10.cluster.plugins.module_utils._protect import measures
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

#: Version of what is passed on.
SCHEMA = 1
#: Nothing but what the task names.
READS: dict[str, str] = {}
REVERT = "-e gb10_protect=revert"


def text(kept: dict[str, t.Any]) -> str:
    """Return what one node's journal says in a line, empty where there is none."""
    if kept.get("error"):
        return f"protection: not known: {kept['error']}"
    return f"protected: {', '.join(kept['measures'])} ({kept['changes']} change(s), {REVERT} takes them back)" if kept.get("changes") else ""


def stays(kept: t.Mapping[str, dict[str, t.Any]]) -> list[str]:
    """Return in one line which nodes stay protected after their cluster is gone, and how that is taken back; no line where none does."""
    known = {node: one for node, one in kept.items() if one.get("changes") or one.get("error")}
    if not known:
        return []
    said = "; ".join(f"{node}: {one['error'] or ', '.join(one['measures'])}" for node, one in known.items())
    return [f"The nodes stay protected ({said}); ansible-playbook -i inventories/NAME gb10.cluster.protect {REVERT} takes that back."]


def lines(found: Answers, check_mode: bool) -> list[str]:
    """Return what was changed on each node, and where the journal of it lies."""
    would = "would " if check_mode else ""
    said = []
    for node, answer in found.items():
        kept = answer["journal"]
        where = f"; {kept['changes']} change(s) in {kept['path']}, {REVERT} takes them back" if kept["changes"] else ""
        said.append(f"{node}: {answer['msg']}{where}")
        said += [f"  {would}{text}" for text in answer["actions"]]
    return said


def reasons(found: t.Iterable[table.Finding]) -> list[str]:
    """Return why the measures are wanted that have something to say."""
    named = {entry["id"].partition(".")[2] for entry in found if entry["verdict"] != "pass"}
    return [f"{measure.id}: {measure.reason}" for measure in measures.MEASURES if measure.id in named]


def judge(answers: Answers, run: Run) -> Outcome:
    """Show what protects the nodes, what was changed and what was left. ``settings`` has ``revert``."""
    found, revert = {node: answer["protected"] for node, answer in answers.items()}, boolean(run.settings["revert"])
    findings = [one for node, answer in found.items() for one in table.on_node(answer["findings"], node)]
    record = {
        "schema": SCHEMA,
        "reverted": revert,
        "nodes": {node: {word: answer[word] for word in ("changed", "actions", "findings", "journal")} for node, answer in found.items()},
    }
    title = "Taken back" if revert else "Protection"
    said = [*lines(found, run.check_mode), *([] if revert else reasons(findings))]
    shown = findings if findings or not revert else None
    stats = {"gb10_protection": record, "gb10_verdict": table.verdict(findings, run.silenced) if findings else "pass"}
    return Outcome(title, shown, lines=said, stats=stats)


def page() -> list[str]:
    """Return the measures as docs/protect.md has them."""
    said = []
    for measure in measures.MEASURES:
        said += [f"### {measure.id}", "", measure.does, "", measure.reason, "", "| What | Why | Source |", "|---|---|---|"]
        said += [f"| {' | '.join(part.replace('|', chr(92) + '|') for part in figure)} |" for figure in measure.figures]
        said.append("")
    return said
