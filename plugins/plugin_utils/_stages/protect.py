# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What protects the nodes, what was changed for it and what was left. This plugin util is PRIVATE to the collection."""

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

#: Version of what is passed on.
SCHEMA = 1
READS = protect_plan.READS
REVERT = "-e gb10_protect=revert"


def text(kept: dict[str, t.Any]) -> str:
    """Return what one node's journal says in a line, empty where there is none."""
    if kept.get("error"):
        return f"protection: unknown: {kept['error']}"
    return f"protected: {', '.join(kept['measures'])} ({kept['changes']} change(s), {REVERT} takes them back)" if kept.get("changes") else ""


def remaining(kept: t.Mapping[str, dict[str, t.Any]]) -> list[str]:
    """Return in one line which nodes stay protected after their cluster is gone, and how that is taken back; no line where none does."""
    known = {node: one for node, one in kept.items() if one.get("changes") or one.get("error")}
    if not known:
        return []
    said = "; ".join(f"{node}: {one['error'] or ', '.join(one['measures'])}" for node, one in known.items())
    return [f"The nodes stay protected ({said}); ansible-playbook -i inventories/NAME gb10.cluster.protect {REVERT} takes that back."]


def kept_of(facts: Facts) -> dict[str, t.Any]:
    """Return what the record of a node says in short."""
    try:
        return protection.short(facts.measures, facts.record_path)
    except ClusterError as error:
        return {"measures": [], "changes": None, "path": facts.record_path, "error": str(error)}


def result_of(node: str, answer: dict[str, t.Any], run: Run, again: dict[str, list[str]]) -> dict[str, t.Any]:
    """Return the result of a node. ``again`` has by measure the changes that are still needed after all were made."""
    revert, failed = boolean(run.settings["revert"]), answer["failed"] or {}
    actions = [text for one in run.settings["plan"]["changes"][node] if one["measure"] not in failed for text in one["texts"]]
    said = []
    for measure in measures.NAMES:
        texts = "; ".join(again.get(measure, []))
        if measure in failed:
            said.append((measure, "block", failed[measure], "See the message; the next run continues from there."))
        elif texts and run.check_mode:
            said.append((measure, "warn", f"not set up yet; would {texts}", "Run it without --check."))
        elif texts:
            said.append((measure, "block", f"was done and is to be done again: {texts}", "See what takes it back."))
    would = "would be " if run.check_mode else ""
    msg = f"{len(actions)} change(s) {would}{'taken back' if revert else 'made'}"
    return {
        "changed": bool(actions),
        "msg": msg if actions else "there is nothing to take back" if revert else "nothing to change",
        "actions": actions,
        "findings": [measures.FINDINGS[name](node, verdict, message, remedy=remedy) for name, verdict, message, remedy in said],
        "journal": kept_of(Facts(answer)),
    }


def lines(found: Answers, check_mode: bool) -> list[str]:
    """Return what was changed on each node, and where the record of it is."""
    would = "would " if check_mode else ""
    said = []
    for node, result in found.items():
        kept = result["journal"]
        where = f"; {kept['changes']} change(s) in {kept['path']}, {REVERT} takes them back" if kept["changes"] else ""
        said.append(f"{node}: {result['msg']}{where}")
        said += [f"  {would}{text}" for text in result["actions"]]
    return said


def reasons(found: t.Iterable[table.Finding]) -> list[str]:
    """Return why the measures are wanted that have something to say."""
    named = {entry["id"].partition(".")[2] for entry in found if entry["verdict"] != "pass"}
    return [f"{name}: {measures.table()[name]['reason']}" for name in measures.NAMES if name in named]


def judge(answers: Answers, run: Run) -> Outcome:
    """Show what protects the nodes, what was changed and what was left. ``settings`` has ``revert``, and ``plan``, the result of protect_plan."""
    revert = boolean(run.settings["revert"])
    # What a revert left is known from before it alone; what holds is judged by what is live afterwards.
    plans = protect_plan.plans(answers, run) if not revert else {node: {} for node in answers}
    found = {}
    for node, answer in answers.items():
        found[node] = result_of(node, answer, run, {name: one.texts for name, one in plans[node].items()})
        found[node]["findings"][:0] = run.settings["plan"]["said"][node] if revert else [entry for one in plans[node].values() for entry in one.findings]
    findings = [entry for result in found.values() for entry in result["findings"]]
    return Outcome(
        "Taken back" if revert else "Protection",
        findings if findings or not revert else None,
        lines=[*lines(found, run.check_mode), *([] if revert else reasons(findings))],
        stats=(
            {
                "gb10_protection": {"schema": SCHEMA, "reverted": revert, "nodes": found},
                "gb10_verdict": table.verdict(findings, run.silenced) if findings else "pass",
            }
        ),
    )


def page() -> list[str]:
    """Return the measures as docs/protect.md has them."""
    said = []
    for name, measure in measures.table().items():
        said += [f"### {name}", "", measure["does"], "", measure["reason"], "", "| What | Why | Source |", "|---|---|---|"]
        said += [f"| {' | '.join(part.replace('|', chr(92) + '|') for part in figure)} |" for figure in measure["figures"]]
        said.append("")
    return said
