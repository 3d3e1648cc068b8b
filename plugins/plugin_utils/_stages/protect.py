# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The protection of the nodes: the changes that were made, and those that are missing. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._protect import protection
from ansible_collections.gb10.cluster.plugins.plugin_utils._protect import measures
from ansible_collections.gb10.cluster.plugins.plugin_utils._protect.facts import Facts
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import protect_plan
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

#: Version of the returned statistics.
SCHEMA = 1
READS = protect_plan.READS
REVERT = "-e gb10_protect=revert"


def text(kept: dict[str, t.Any]) -> str:
    """Return one line about a node's journal, empty if there is none."""
    if kept.get("error"):
        return f"protection: unknown: {kept['error']}"
    return f"protected: {', '.join(kept['measures'])} ({kept['changes']} change(s), {REVERT} takes them back)" if kept.get("changes") else ""


def remaining(kept: t.Mapping[str, dict[str, t.Any]]) -> list[str]:
    """Return one line with the nodes that stay protected after a teardown, and how to revert that. The list is empty if none does."""
    known = {node: journal for node, journal in kept.items() if journal.get("changes") or journal.get("error")}
    if not known:
        return []
    summary = "; ".join(f"{node}: {journal['error'] or ', '.join(journal['measures'])}" for node, journal in known.items())
    return [f"The nodes stay protected ({summary}); ansible-playbook -i inventories/NAME gb10.cluster.protect {REVERT} takes that back."]


def kept_of(facts: Facts) -> dict[str, t.Any]:
    """Return the short form of a node's record."""
    try:
        return protection.short(facts.measures, facts.record_path)
    except ClusterError as error:
        return {"measures": [], "changes": None, "path": facts.record_path, "error": str(error)}


def result_of(node: str, answer: dict[str, t.Any], run: Run, again: dict[str, list[str]]) -> dict[str, t.Any]:
    """Return the result of a node. ``again`` maps a measure to the changes that are still needed after all were made."""
    revert, failed = boolean(run.settings["revert"]), answer["failed"] or {}
    actions = [text for change in run.settings["plan"]["changes"][node] if change["measure"] not in failed for text in change["texts"]]
    rows = []
    for measure in measures.NAMES:
        texts = "; ".join(again.get(measure, []))
        if measure in failed:
            rows.append((measure, "block", failed[measure], "See the message; the next run continues from there."))
        elif texts and run.check_mode:
            rows.append((measure, "warn", f"not set up yet; would {texts}", "Run it without --check."))
        elif texts:
            rows.append((measure, "block", f"was done and is to be done again: {texts}", "See what takes it back."))
    would = "would be " if run.check_mode else ""
    msg = f"{len(actions)} change(s) {would}{'taken back' if revert else 'made'}"
    return {
        "changed": bool(actions),
        "msg": msg if actions else "there is nothing to take back" if revert else "nothing to change",
        "actions": actions,
        "findings": [measures.FINDINGS[name](node, verdict, message, remedy=remedy) for name, verdict, message, remedy in rows],
        "journal": kept_of(Facts(answer)),
    }


def lines(results: Answers, check_mode: bool) -> list[str]:
    """Return the changes on each node, and the path of their record."""
    would = "would " if check_mode else ""
    shown = []
    for node, result in results.items():
        kept = result["journal"]
        where = f"; {kept['changes']} change(s) in {kept['path']}, {REVERT} takes them back" if kept["changes"] else ""
        shown.append(f"{node}: {result['msg']}{where}")
        shown += [f"  {would}{text}" for text in result["actions"]]
    return shown


def reasons(findings: t.Iterable[table.Finding]) -> list[str]:
    """Return the purpose of each measure that has a finding other than pass, and what each costs that is off by default."""
    named = {(entry["id"].partition(".")[2], entry["verdict"] == "pass") for entry in findings}
    lines = [f"{name}: {measures.table()[name]['reason']}" for name in measures.NAMES if (name, False) in named]
    return [*lines, *(f"{name} costs: {text}" for name, text in measures.costs().items() if {(name, True), (name, False)} & named)]


def judge(answers: Answers, run: Run) -> Outcome:
    """Show the protection of the nodes and the changes to it. ``settings`` has ``revert``, and ``plan``, the result of protect_plan."""
    revert = boolean(run.settings["revert"])
    # After a revert, the remaining findings come from its plan. Otherwise the state of the nodes after the changes is judged.
    plans = protect_plan.plans(answers, run) if not revert else {node: {} for node in answers}
    results = {}
    for node, answer in answers.items():
        results[node] = result_of(node, answer, run, {name: plan.texts for name, plan in plans[node].items()})
        results[node]["findings"][:0] = run.settings["plan"]["said"][node] if revert else [entry for plan in plans[node].values() for entry in plan.findings]
    findings = [entry for result in results.values() for entry in result["findings"]]
    return Outcome(
        "Taken back" if revert else "Protection",
        findings if findings or not revert else None,
        lines=[*lines(results, run.check_mode), *([] if revert else reasons(findings))],
        stats=(
            {
                "gb10_protection": {"schema": SCHEMA, "reverted": revert, "nodes": results},
                "gb10_verdict": table.verdict(findings, run.silenced) if findings else "pass",
            }
        ),
    )


def page() -> list[str]:
    """Return the measures as lines of docs/protect.md."""
    page_lines = []
    for name, measure in measures.table().items():
        costs = ["", f"Off by default, since it has a cost: {measure['costs']}"] if "costs" in measure else []
        page_lines += [f"### {name}", "", measure["does"], "", measure["reason"], *costs, "", "| What | Why | Source |", "|---|---|---|"]
        page_lines += [f"| {' | '.join(part.replace('|', chr(92) + '|') for part in figure)} |" for figure in measure["figures"]]
        page_lines.append("")
    return page_lines
