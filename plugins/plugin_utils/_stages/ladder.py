# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a climb ended. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.module_utils._records import climbs
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

#: Ids of findings that are made here.
IDS = ("ladder.end",)

#: Version of what is passed on and written.
SCHEMA = 1
READS = {
    "head": "gb10_head_host",
    "cluster": "gb10_cluster_name",
    "floor_gib": "gb10_ladder_floor_gib",
    "sshd_ms": "gb10_ladder_sshd_ms",
    "climb": "__ladder_climb",
    "error": "__ladder_error",
    "image": "__image_contract",
}
MIB_IN_GIB = 1024


def error_of(answers: Answers, word: str = "error") -> str:
    """Return what failed, by the nodes on which a task did; empty when none did."""
    return "; ".join(dict.fromkeys(str(answer[word]).strip() for answer in answers.values() if answer[word]))


def table(climb: climbs.Climb, nodes: t.Mapping[str, climbs.Climb]) -> list[str]:
    """Return the rungs of a climb, a line each."""
    out = []
    for number, one in enumerate(climb["rungs"]):
        found = {node: record["rungs"][number]["lowest_mb"] for node, record in nodes.items()}
        lows = [f"{node} {lowest / MIB_IN_GIB:.1f}" for node, lowest in found.items() if lowest is not None]
        prompt = f"; up after {one['start_seconds']:.0f} s, {one['prompt_tokens']} tokens read in {one['prompt_seconds']:.0f} s" if one["prompt_tokens"] else ""
        said = "good" if one["good"] else f"not good: {'; '.join(one['reasons'])}"
        out.append(f"  {one['context']}: {said}{prompt}; GiB available at the least: {', '.join(lows) or 'not known'}")
    return out


def judge(answers: Answers, run: Run) -> Outcome:
    """Say how a climb ended, pass it on, and write it to ``path``. ``settings`` has ``outcome`` and ``reason``."""
    outcome, reason = run.settings["outcome"], run.settings["reason"]
    records = {node: {**answer["climb"], "outcome": outcome, "reason": reason, "trying": 0} for node, answer in answers.items()}
    first = next(iter(records.values()))
    head = next(iter(answers.values()))["head"]
    ended = reason.rstrip(".")
    said = {
        climbs.TOP: ("pass", f"every rung was good; {first['rung']} tokens are served.", ""),
        climbs.RETURNED: ("warn", f"{first['rung']} tokens are served, the last good rung; it ended with {ended}.", "docs/ladder.md says what to do"),
        climbs.OFF: ("block", f"nothing is started: {ended}.", "see the playbook doctor; only a reboot releases memory that no process uses"),
    }[outcome]
    found = [finding("ladder.end", head, said[0], said[1], measured=first["rung"], remedy=said[2])]
    record = {
        "schema": SCHEMA,
        "climb_id": first["climb_id"],
        "profile": first["profile"],
        "outcome": outcome,
        "reason": reason,
        "rung": first["rung"],
        "nodes": {node: climbs.short(one) for node, one in records.items()},
    }
    files = {run.path: {**record, "nodes": records}} if run.path else {}
    return Outcome(
        "Ladder",
        found,
        lines=[f"Ladder of {first['profile']}, {first['climb_id']}:", *table(first, records), *(f"written: {path}" for path in files)],
        files=files,
        fresh=True,
        stats={"gb10_ladder_report": record, "gb10_verdict": said[0]},
        returns={"climbs": records},
    )
