# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a change of mode ended, and what is started again when it failed. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import functools
import typing as t

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._lease import leasing
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import mode_plan
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered

Finding = dict[str, t.Any]

#: Ids of findings that are made here.
IDS = ("mode.down", "mode.lost", "mode.memory", "mode.returned", "mode.settled", "mode.up")

#: What each node says of the change: the plan, and that of a return; by ``down``, ``up``, ``lease`` and ``return`` what failed there (``said``, ``remedy``);
#: whether its memory was not released; how the command of a lease ended; and by the controller's clock, in seconds since the epoch, when the engine was
#: asked to stop and when the new one had answered.
READS = {
    **mode_plan.READS,
    "return_asked": "gb10_mode_return",
    "forget": "gb10_mode_forget",
    "decided": "__mode_decided",
    "returning": "__mode_returning",
    "errors": "__mode_errors",
    "leak": "__mode_leak",
    "leased": "__mode_leased",
    "down_at": "__mode_down_at",
    "served": "__vllm_server_result",
}


def asked_of(answers: Answers) -> dict[str, t.Any]:
    """Return the variables of a node that knows the plan: one that was lost from the beginning does not."""
    return next(answer for answer in answers.values() if answer["decided"])


def errors(answers: Answers, word: str) -> dict[str, dict[str, str]]:
    """Return by node what failed on the way ``down``, ``up``, in the ``lease`` or on the ``return``."""
    return {node: answer["errors"][word] for node, answer in answers.items() if (answer["errors"] or {}).get(word)}


def untouched(answers: Answers) -> bool:
    """Return whether nothing of what served before was stopped: the first thing that should go refused."""
    return bool(errors(answers, "down")) and not any(answer["down_at"] for answer in answers.values())


def leaked(answers: Answers) -> list[str]:
    """Return the nodes whose memory was not released."""
    return [node for node, answer in answers.items() if answer["leak"]]


def lost_nodes(answers: Answers) -> list[str]:
    """Return the nodes that could not be reached before the change, or were not any more after it."""
    before = asked_of(answers)["decided"]["lost"]
    # Ansible asks a node that was lost in an earlier play no more.
    return [node for node, answer in answers.items() if node in before or not answered(answer["answer"])]


def remaining(records: t.Mapping[str, modes.Record], cluster: str) -> list[str]:
    """Return in one line that a mode still has a cluster which was taken down alone; no line where none has, or while it changes."""
    phases = (modes.SETTLED, modes.LEASED)
    having = {node: one["mode"] for node, one in records.items() if one and one["phase"] in phases and cluster in one["clusters"]}
    mode = next(iter(having.values()), "")
    line = f"The declared mode remains {mode} on {', '.join(having)}, and has {cluster}: the playbook mode brings it up again, or -e gb10_mode=off ends it."
    return [line] if having else []


def seconds_down(answers: Answers) -> float | None:
    """Return the seconds from the first stop to the last first token, None where nothing was stopped or nothing answers since."""
    began = [answer["down_at"] for answer in answers.values() if answer["down_at"]]
    served = [(answer["served"] or {}).get("finished_at") for answer in answers.values()]
    ended = [float(one) for one in served if one and began and float(one) > min(began)]
    return round(max(ended) - min(began), 1) if began and ended else None


def findings(answers: Answers) -> list[Finding]:
    """Return what went wrong, on the way and on the return, and which nodes were lost."""
    leaks, lost = leaked(answers), lost_nodes(answers)
    found = []
    for node, error in errors(answers, "down").items():
        judged = functools.partial(finding, "mode.memory") if node in leaks else functools.partial(finding, "mode.down")
        found.append(
            judged(node, "block", error["said"], remedy=leasing.remedy_for(error, "fix that", "then run the same command again, which continues from here"))
        )
    found += [
        finding("mode.up", node, "block", error["said"], remedy=leasing.remedy_for(error, "see the failure above", "the same command continues from here"))
        for node, error in errors(answers, "up").items()
    ]
    found += [
        finding("mode.returned", node, "block", error["said"], remedy=leasing.remedy_for(error, "see the failure above", "nothing else is started"))
        for node, error in errors(answers, "return").items()
    ]
    found += leasing.findings(answers, errors(answers, "lease"))
    remedy = "bring it back and run the same again"
    return found + [finding("mode.lost", node, "block", "it could not be reached, and was left as it is.", remedy=remedy) for node in lost]


class End(t.NamedTuple):
    """What is declared at the end, and what happened, in one line."""

    mode: str
    phase: str
    clusters: dict[str, t.Any]
    reason: str
    event: str


def end_of(answers: Answers, found: t.Sequence[Finding]) -> End:
    """Return how a change ended, by what went wrong."""
    first = asked_of(answers)
    decided, back = first["decided"], first["returning"] or {}
    asked, before = decided["plan"]["mode"], decided["before"]
    reason = " ".join("; ".join(f"{one['node']}: {one['message']}" for one in found).split())
    if untouched(answers) and before:
        return End(before["mode"], before["phase"], before["clusters"], before["reason"], f"{asked} refused, nothing was stopped: {reason}")
    if leaked(answers):
        return End(modes.OFF, modes.LEAK, {}, reason, f"{asked} failed, memory is not back: {reason}")
    lease = decided["lease"]
    leased = f"the lease of {lease['program']}" if lease else ""
    if lease and (not found or (lease["keeps"] and all(one["id"] in leasing.IDS for one in found))):
        here = decided["plan"] if lease["keeps"] else back["plan"]
        how = f"failed ({reason})" if found else "is over"
        return End(here["mode"], modes.SETTLED, here["clusters"], "", f"{leased} {how}, {'still' if lease['keeps'] else 'back to'} {here['mode']}")
    if back.get("returns"):
        came = not errors(answers, "return") and not lost_nodes(answers)
        mode = back["plan"]["mode"]
        return End(
            mode,
            modes.SETTLED if came else modes.FAILED,
            back["plan"]["clusters"],
            "" if came else reason,
            f"{leased or asked} failed, {'back to' if came else 'and so did the return to'} {mode}: {reason}",
        )
    if found:
        return End(asked, modes.FAILED, decided["plan"]["clusters"], reason, f"{asked} failed: {reason}")
    return End(asked, modes.SETTLED, decided["plan"]["clusters"], "", f"{asked} is up" if asked != modes.OFF else "off: no engine of this collection runs")


def judge(answers: Answers, run: Run) -> Outcome:
    """Say what is declared now, and why it is not what was asked for where it is not.

    Returns ``record``, the suboptions of cluster_record's mode, and ``command``, how that of a lease failed, empty where it did not.

    The answer is ``answer`` (a ping): who is left.
    """
    first = asked_of(answers)
    found = findings(answers)
    end = end_of(answers, found)
    if not found:
        found.append(finding("mode.settled", "cluster", "pass", f"{end.event}."))
    elif end.phase == modes.SETTLED and (first["returning"] or {}).get("returns"):
        found.append(finding("mode.returned", "cluster", "warn", f"the mode is {end.mode} again, as before."))
    lease = first["decided"]["lease"]
    # Those of a lease are its command's more than the change's.
    gone = seconds_down(answers) if not lease or lease["keeps"] else None
    took = f"; {gone} s from the first stop to the last first token" if gone is not None else ""
    record = {"mode": end.mode, "phase": end.phase, "reason": end.reason, "clusters": end.clusters, "event": f"{end.event}{took}"}
    # What was never declared before a lease is not declared after it.
    undone = bool(lease) and not lease["keeps"] and not first["decided"]["before"]
    if end.phase == modes.SETTLED and end.mode == modes.OFF and (boolean(first["forget"]) or undone):
        record = {"state": "absent"}
    if run.check_mode:
        return Outcome(f"Mode {end.mode} (would be declared)", found, returns={"record": record, "command": ""})
    report = {"mode": end.mode, "phase": end.phase, "clusters": end.clusters, "reason": end.reason, "seconds_down": gone}
    report["lease"] = leasing.report(lease, answers, modes.former(first["decided"]["before"])["mode"], first["decided"]["plan"]["mode"], end.mode)
    return Outcome(
        "Mode",
        found,
        lines=[f"Mode: {end.mode}, {end.phase}{took}"],
        stats={"gb10_mode_report": report, "gb10_verdict": table.verdict(found, run.silenced)},
        returns={"record": record, "command": leasing.said(answers)},
    )
