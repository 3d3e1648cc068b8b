# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The end of a change of mode, and the state that is declared after it. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._lease import leasing
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import mode_plan
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered

Finding = dict[str, t.Any]

#: Ids of findings that are made here.
IDS = ("mode.down", "mode.lost", "mode.memory", "mode.returned", "mode.settled", "mode.up")

#: The variables of each node about the change: the plan, and the plan of a return; the errors (``said``, ``remedy``) by ``down``, ``up``, ``lease`` and
#: ``return``; whether its memory was not released; how the command of a lease ended. Two times are by the controller's clock, in seconds since the epoch:
#: when the engine was asked to stop, and when the new one answered.
READS = {
    **mode_plan.READS,
    "return_asked": "gb10_mode_return",
    "allow": "__gb10_allow",
    "decided": "__mode_decided",
    "returning": "__mode_returning",
    "errors": "__mode_errors",
    "leak": "__mode_leak",
    "leased": "__mode_leased",
    "down_at": "__mode_down_at",
    "served": "__vllm_server_result",
}


def asked_of(answers: Answers) -> dict[str, t.Any]:
    """Return the variables of a node that has the plan. A node that was lost from the beginning has none."""
    return next(answer for answer in answers.values() if answer["decided"])


def errors(answers: Answers, word: str) -> dict[str, dict[str, str]]:
    """Return by node the error of one part of the change: ``down``, ``up``, ``lease`` or ``return``."""
    return {node: answer["errors"][word] for node, answer in answers.items() if (answer["errors"] or {}).get(word)}


def untouched(answers: Answers) -> bool:
    """Return whether no earlier engine was stopped, because the first stop was refused."""
    return bool(errors(answers, "down")) and not any(answer["down_at"] for answer in answers.values())


def leaked(answers: Answers) -> list[str]:
    """Return the nodes whose memory was not released."""
    return [node for node, answer in answers.items() if answer["leak"]]


def lost_nodes(answers: Answers) -> list[str]:
    """Return the nodes that could not be reached before the change or after it."""
    before = asked_of(answers)["decided"]["lost"]
    # Ansible skips nodes that were lost in an earlier play.
    return [node for node, answer in answers.items() if node in before or not answered(answer["answer"])]


def remaining(records: t.Mapping[str, modes.Record], cluster: str) -> list[str]:
    """Return one line if the declared mode still has a cluster that was taken down alone.

    The list is empty if it has not, or while the mode changes.
    """
    phases = (modes.SETTLED, modes.LEASED)
    declared = {node: record for node, record in records.items() if record and record["mode"] != modes.SERVE}
    having = {node: record["mode"] for node, record in declared.items() if record["phase"] in phases and cluster in record["clusters"]}
    mode = next(iter(having.values()), "")
    line = f"The declared mode remains {mode} on {', '.join(having)}, and has {cluster}: the playbook mode brings it up again, or -e gb10_mode=off ends it."
    return [line] if having else []


def seconds_down(answers: Answers) -> float | None:
    """Return the seconds from the first stop to the last first token. None: nothing was stopped, or nothing has answered since."""
    began = [answer["down_at"] for answer in answers.values() if answer["down_at"]]
    served = [(answer["served"] or {}).get("finished_at") for answer in answers.values()]
    ended = [float(finished) for finished in served if finished and began and float(finished) > min(began)]
    return round(max(ended) - min(began), 1) if began and ended else None


def services(answers: Answers) -> dict[str, str]:
    """Return by cluster how its start ended, as text. Empty if a stop failed, since then nothing is started."""
    first = asked_of(answers)
    back = first["returning"] or {}
    word, plan = ("return", back["plan"]) if back.get("returns") else ("up", first["decided"]["plan"])
    if word == "up" and errors(answers, "down"):
        return {}
    failed = [*errors(answers, word), *lost_nodes(answers)]
    troubled = {name: [node for node in cluster["nodes"] if node in failed] for name, cluster in plan["clusters"].items()}
    return {name: f"failed on {', '.join(nodes)}" if nodes else "serves" for name, nodes in troubled.items()}


def findings(answers: Answers) -> list[Finding]:
    """Return the failures of the change and of the return, and the lost nodes."""
    leaks, lost = leaked(answers), lost_nodes(answers)
    problems = []
    for node, error in errors(answers, "down").items():
        judged = functools.partial(finding, "mode.memory") if node in leaks else functools.partial(finding, "mode.down")
        problems.append(
            judged(node, "block", error["said"], remedy=leasing.remedy_for(error, "fix that", "then run the same command again, which continues from here"))
        )
    problems += [
        finding("mode.up", node, "block", error["said"], remedy=leasing.remedy_for(error, "see the failure above", "the same command continues from here"))
        for node, error in errors(answers, "up").items()
    ]
    problems += [
        finding("mode.returned", node, "block", error["said"], remedy=leasing.remedy_for(error, "see the failure above", "nothing else is started"))
        for node, error in errors(answers, "return").items()
    ]
    problems += leasing.findings(answers, errors(answers, "lease"))
    remedy = "bring it back and run the same again"
    return problems + [finding("mode.lost", node, "block", "it could not be reached, and was left as it is.", remedy=remedy) for node in lost]


class End(t.NamedTuple):
    """The mode that is declared at the end, and one line about the change."""

    mode: str
    phase: str
    clusters: dict[str, t.Any]
    reason: str
    event: str


def end_of(answers: Answers, problems: t.Sequence[Finding]) -> End:
    """Return how a change ended, derived from its problems."""
    first = asked_of(answers)
    decided, back = first["decided"], first["returning"] or {}
    planned, before = decided["plan"]["mode"], decided["before"]
    reason = " ".join("; ".join(f"{entry['node']}: {entry['message']}" for entry in problems).split())
    if untouched(answers) and before:
        return End(before["mode"], before["phase"], before["clusters"], before["reason"], f"{planned} refused, nothing was stopped: {reason}")
    if leaked(answers):
        return End(modes.OFF, modes.LEAK, {}, reason, f"{planned} failed, memory is not back: {reason}")
    lease = decided["lease"]
    leased = f"the lease of {lease['program']}" if lease else ""
    if lease and (not problems or (lease["keeps"] and all(entry["id"] in leasing.IDS for entry in problems))):
        here = decided["plan"] if lease["keeps"] else back["plan"]
        how = f"failed ({reason})" if problems else "is over"
        return End(here["mode"], modes.SETTLED, here["clusters"], "", f"{leased} {how}, {'still' if lease['keeps'] else 'back to'} {here['mode']}")
    if back.get("returns"):
        came = not errors(answers, "return") and not lost_nodes(answers)
        mode = back["plan"]["mode"]
        return End(
            mode,
            modes.SETTLED if came else modes.FAILED,
            back["plan"]["clusters"],
            "" if came else reason,
            f"{leased or planned} failed, {'back to' if came else 'and so did the return to'} {mode}: {reason}",
        )
    if problems:
        return End(planned, modes.FAILED, decided["plan"]["clusters"], reason, f"{planned} failed: {reason}")
    event = f"{planned} is up" if planned != modes.OFF else "off: no engine of this collection runs"
    return End(planned, modes.SETTLED, decided["plan"]["clusters"], "", event)


def judge(answers: Answers, run: Run) -> Outcome:
    """Show the declared mode, and if it is not the requested one, why.

    Returns ``record``, the suboptions of cluster_record's mode, and ``command``, the failure of a lease's command (empty if it did not fail).

    The answer is ``answer`` (a ping), which shows the nodes that are still reachable.
    """
    first = asked_of(answers)
    results = findings(answers)
    end = end_of(answers, results)
    if not results:
        results.append(finding("mode.settled", "cluster", "pass", f"{end.event}."))
    elif end.phase == modes.SETTLED and (first["returning"] or {}).get("returns"):
        results.append(finding("mode.returned", "cluster", "warn", f"the mode is {end.mode} again, as before."))
    lease = first["decided"]["lease"]
    # During a lease, the downtime comes from its command more than from the change.
    gone = seconds_down(answers) if not lease or lease["keeps"] else None
    took = f"; {gone} s from the first stop to the last first token" if gone is not None else ""
    record = {"mode": end.mode, "phase": end.phase, "reason": end.reason, "clusters": end.clusters, "event": f"{end.event}{took}"}
    # If no mode was declared before a lease, none is declared after it.
    undone = bool(lease) and not lease["keeps"] and not first["decided"]["before"]
    if end.phase == modes.SETTLED and end.mode == modes.OFF and ("forget" in first["allow"] or undone):
        record = {"state": "absent"}
    if run.check_mode:
        return Outcome(f"Mode {end.mode} (would be declared)", results, returns={"record": record, "command": ""})
    each, degraded = services(answers), first["decided"]["degraded_lines"] if end.mode == first["mode"] else []
    report = {"mode": end.mode, "phase": end.phase, "clusters": end.clusters, "services": each, "reason": end.reason, "seconds_down": gone}
    report["lease"] = leasing.report(lease, answers, modes.former(first["decided"]["before"])["mode"], first["decided"]["plan"]["mode"], end.mode)
    return Outcome(
        "Mode",
        results,
        lines=[f"Mode: {end.mode}, {end.phase}{took}", *(f"  {name}: {state}" for name, state in each.items()), *degraded],
        stats={"gb10_mode_report": report, "gb10_verdict": table.verdict(results, run.silenced)},
        returns={"record": record, "command": leasing.said(answers)},
    )
