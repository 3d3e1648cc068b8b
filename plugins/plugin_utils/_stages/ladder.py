# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The end of a climb. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.module_utils._records import climbs
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

#: Ids of findings that are made here.
IDS = ("ladder.end",)

#: Version of the record that is returned and written.
SCHEMA = 1
READS = {
    "head": "gb10_head_host",
    "cluster": "gb10_cluster_name",
    "climb": "__ladder_climb",
    "error": "__ladder_error",
    "image": "__image_contract",
}
MIB_IN_GIB = 1024
#: GiB that must stay available on each node on every rung: the ladder of a user with two Sparks stopped at 4.
FLOOR_GIB = 4
#: Time limit in milliseconds for the greeting of a node's sshd: half of Ansible's limit for a login. The time on a loaded Spark is unknown.
SSHD_MS = 5000


def error_of(answers: Answers, word: str = "error") -> str:
    """Return the errors of the nodes on which a task failed, empty if none failed."""
    return "; ".join(dict.fromkeys(str(answer[word]).strip() for answer in answers.values() if answer[word]))


def table(climb: climbs.Climb, nodes: t.Mapping[str, climbs.Climb]) -> list[str]:
    """Return one line for each rung of a climb."""
    out = []
    for number, rung in enumerate(climb["rungs"]):
        lowest_mb = {node: record["rungs"][number]["lowest_mb"] for node, record in nodes.items()}
        lows = [f"{node} {lowest / MIB_IN_GIB:.1f}" for node, lowest in lowest_mb.items() if lowest is not None]
        prompt = (
            f"; up after {rung['start_seconds']:.0f} s, {rung['prompt_tokens']} tokens read in {rung['prompt_seconds']:.0f} s" if rung["prompt_tokens"] else ""
        )
        verdict = "good" if rung["good"] else f"not good: {'; '.join(rung['reasons'])}"
        out.append(f"  {rung['context']}: {verdict}{prompt}; GiB available at the least: {', '.join(lows) or 'not known'}")
    return out


def judge(answers: Answers, run: Run) -> Outcome:
    """Report how a climb ended, return it, and write it to ``path``. ``settings`` has ``outcome`` and ``reason``."""
    outcome, reason = run.settings["outcome"], run.settings["reason"]
    records = {node: {**answer["climb"], "outcome": outcome, "reason": reason, "trying": 0} for node, answer in answers.items()}
    first = next(iter(records.values()))
    head = next(iter(answers.values()))["head"]
    ended = reason.rstrip(".")
    verdict, message, remedy = {
        climbs.TOP: ("pass", f"every rung was good; {first['rung']} tokens are served.", ""),
        climbs.RETURNED: ("warn", f"{first['rung']} tokens are served, the last good rung; it ended with {ended}.", "docs/ladder.md says what to do"),
        climbs.OFF: ("block", f"nothing is started: {ended}.", "see the playbook doctor; only a reboot releases memory that no process uses"),
    }[outcome]
    findings = [finding("ladder.end", head, verdict, message, measured=first["rung"], remedy=remedy)]
    record = {
        "schema": SCHEMA,
        "climb_id": first["climb_id"],
        "profile": first["profile"],
        "outcome": outcome,
        "reason": reason,
        "rung": first["rung"],
        "nodes": {node: climbs.short(climb) for node, climb in records.items()},
    }
    files = {run.path: {**record, "nodes": records}} if run.path else {}
    return Outcome(
        "Ladder",
        findings,
        lines=[f"Ladder of {first['profile']}, {first['climb_id']}:", *table(first, records), *(f"written: {path}" for path in files)],
        files=files,
        fresh=True,
        stats={"gb10_ladder_report": record, "gb10_verdict": verdict},
        returns={"climbs": records},
    )
