# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node that failed first, how certain that is, and its last minute. This plugin util is PRIVATE to the collection.

Only the guards' records on each node are judged. If a node does not answer, its record stays on its disk, and its end is unknown.
"""

from __future__ import annotations

import dataclasses
import datetime
import typing as t

from ansible_collections.gb10.cluster.plugins.plugin_utils._report import black_box
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered

#: Version of the returned record.
SCHEMA = 1
#: Only the answers that the task names.
READS: dict[str, str] = {}
#: Seconds: the window before and after a death; the maximum between the ends of nodes that died of the same cause; and the time without a write after which
#: a guard counts as silent.
BEFORE, AFTER, TOGETHER, SILENT = 60, 15, 600, 15
#: Maximum seconds between a node's last record on its disk and its end: one sample each second, one write every two seconds.
RECORDED = 3.0

#: The states of a node: its boot ended while its guard ran; it does not answer; its guard stopped writing although the boot continues; its guard was stopped
#: normally; its guard runs; there is no record.
DIED, GONE, QUIET, STOPPED, RUNS, NOTHING = "died", "does not answer", "guard ended", "stopped in order", "runs on", "no record"


@dataclasses.dataclass(frozen=True)
class End:
    """The end of one node's record. ``at`` is the time of its last record in seconds since 1970, ``boot`` the id of its boot."""

    node: str
    how: str
    at: float | None = None
    boot: str = ""
    synchronized: bool | None = None
    offset: float | None = None


def ends(node: str, answer: dict[str, t.Any] | None) -> End:
    """Return how the newest record of a node ends. An earlier boot counts if it did not end normally."""
    if not answered(answer) or answer is None:
        return End(node, GONE)
    clock = {"synchronized": answer["clock"]["synchronized"], "offset": answer["clock"]["offset_s"]}
    boots = answer["boots"]
    died = [boot for boot in boots if not boot["current"] and not boot["stopped"]]
    if died:
        return End(node, DIED, died[-1]["last"], died[-1]["boot_id"], **clock)
    if not boots:
        return End(node, NOTHING, **clock)
    last = boots[-1]
    how = STOPPED if last["stopped"] else RUNS if last["current"] and answer["now"] - last["last"] <= SILENT else QUIET
    return End(node, how, last["last"], last["boot_id"], **clock)


class First(t.NamedTuple):
    """The node that failed first (empty: none did), the time, whether that is certain, and the reason for that."""

    node: str
    at: float | None
    sure: bool
    why: str


def uncertainty(end: End, other: End) -> float | None:
    """Return the possible error in seconds between the ends of two nodes, None if their clocks may not agree."""
    if not (end.synchronized and other.synchronized) or end.offset is None or other.offset is None:
        return None
    return RECORDED + abs(end.offset) + abs(other.offset)


def first(node_ends: t.Sequence[End]) -> First:
    """Return which node failed first."""
    dead = sorted((end for end in node_ends if end.how == DIED and end.at is not None), key=lambda end: end.at or 0.0)
    gone = [end.node for end in node_ends if end.how == GONE]
    # An end long before the newest end has another cause.
    dead = [end for end in dead if (dead[-1].at or 0.0) - (end.at or 0.0) <= TOGETHER]
    if not dead and gone:
        if len(gone) == 1 and len(node_ends) > 1:
            return First(gone[0], None, False, "it is the only one that does not answer; only its own record shows whether it died, once it answers")
        return First("", None, False, f"{', '.join(gone)} do not answer; their records can be read once they do")
    if not dead:
        return First("", None, False, "no boot in any ring ended without order")
    earliest, others = dead[0], dead[1:]
    if gone:
        return First(earliest.node, earliest.at, False, f"{', '.join(gone)} may have failed earlier: what does not answer cannot show its record")
    if not others:
        ran = [end.node for end in node_ends if end.node != earliest.node and end.how in (RUNS, STOPPED, QUIET)]
        unknown = [end.node for end in node_ends if end.how == NOTHING]
        if unknown:
            return First(earliest.node, earliest.at, False, f"nothing was recorded on {', '.join(unknown)}")
        return First(earliest.node, earliest.at, True, f"the record of {', '.join(ran)} continues in the same boot" if ran else "it is the only node")
    margin = (others[0].at or 0.0) - (earliest.at or 0.0)
    within = uncertainty(earliest, others[0])
    if within is None:
        return First(earliest.node, earliest.at, False, f"{others[0].node} ended {margin:.1f} s later, by clocks that may not agree")
    return First(earliest.node, earliest.at, margin > within, f"{others[0].node} ended {margin:.1f} s later, and the two times may be wrong by {within:.1f} s")


def utc(at: float | None) -> str:
    """Return a time as text."""
    return "not known" if at is None else datetime.datetime.fromtimestamp(at, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def records_of(answer: dict[str, t.Any] | None) -> list[dict[str, t.Any]]:
    """Return the records of a node in the window, of all its boots, by time."""
    boots = (answer or {}).get("boots") or []
    return sorted((record for boot in boots for record in boot["records"]), key=lambda record: record["t"])


def judge(answers: Answers, run: Run) -> Outcome:
    """Report which node failed first, and show its last minute. The answers are ``found`` (each boot's end) and ``window`` (one time on all nodes)."""
    node_ends = [ends(node, answer["found"]) for node, answer in answers.items()]
    went = first(node_ends)
    windows = {node: records_of(answer["window"]) for node, answer in answers.items() if answered(answer["window"])}
    given = float(run.settings.get("at") or 0)
    at = given or went.at or max((records[-1]["t"] for records in windows.values() if records), default=None)
    windows = {node: [record for record in records if at is None or at - BEFORE - 1 <= record["t"]] for node, records in windows.items()}
    subject = went.node if windows.get(went.node) else next((node for node in windows if windows[node]), "")
    first_line = f"{went.node} went first, at {utc(went.at)}; {'sure' if went.sure else 'not sure'}: {went.why}."
    lines = [first_line if went.node else f"No node is known to have died: {went.why}."]
    lines += [f"{end.node}: {end.how}{f', last record {utc(end.at)}' if end.at else ''}" for end in node_ends]
    lines += [f"Looked at: {utc(given)}"] if given else []
    signs = {
        node: black_box.signs([record for record in records if at is None or record["t"] <= at + (1 if node == subject else AFTER)])
        for node, records in windows.items()
    }
    lines += [f"{node}: {sign}" for node, node_signs in signs.items() for sign in node_signs]
    if subject and at is not None:
        lines += [
            f"The last {BEFORE} s of {subject}, seconds before its last record:" if went.node else f"{BEFORE} s of {subject}:",
            *black_box.rows([record for record in windows[subject] if record["t"] <= at + 1], at),
        ]
    record = {
        "schema": SCHEMA,
        "first": went.node,
        "at": went.at,
        "sure": went.sure,
        "why": went.why,
        "nodes": {end.node: {"how": end.how, "last": end.at, "boot_id": end.boot, "signs": signs.get(end.node, [])} for end in node_ends},
    }
    files = {run.path: {**record, "windows": windows}} if run.path else {}
    verdict = "unknown" if not went.node and any(end.how == GONE for end in node_ends) else "warn" if went.node else "pass"
    lost = "no node answers, so nothing is known of any. Remedy: see that ssh answers there, then run this again."
    return Outcome(
        "Post-mortem",
        lines=lines,
        failure=lost if all(end.how == GONE for end in node_ends) else "",
        files=files,
        fresh=True,
        stats={"gb10_postmortem": record, "gb10_verdict": verdict},
    )
