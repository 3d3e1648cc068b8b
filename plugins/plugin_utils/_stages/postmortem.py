# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which node went first, how sure that is, and what its last minute says. This plugin util is PRIVATE to the collection.

What the guards recorded on each node is all that is judged here. A node that does not answer keeps its record on its own disk, so nothing is known of its end.
"""

from __future__ import annotations

import dataclasses
import datetime
import typing as t

from ansible_collections.gb10.cluster.plugins.plugin_utils._report import black_box
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered

#: Version of what is passed on.
SCHEMA = 1
#: Nothing but what the task names.
READS: dict[str, str] = {}
#: Seconds: of the window before a death and after it, between the ends of nodes that died of one thing, and after which a guard that should write is silent.
BEFORE, AFTER, TOGETHER, SILENT = 60, 15, 600, 15
#: Seconds between a node's last record on its disk and its end, at most: a sample each second, a write every two.
RECORDED = 3.0

#: How a node ended, or did not: its boot ended without its guard being stopped; it does not answer; its guard stopped writing although the boot continues; the
#: guard was stopped in order; it works; there is no record.
DIED, GONE, QUIET, STOPPED, RUNS, NOTHING = "died", "does not answer", "guard ended", "stopped in order", "runs on", "no record"


@dataclasses.dataclass(frozen=True)
class End:
    """How one node's record ends; ``at`` is its last record in seconds since 1970, ``boot`` which boot it is of."""

    node: str
    how: str
    at: float | None = None
    boot: str = ""
    synchronized: bool | None = None
    offset: float | None = None


def ends(node: str, answer: dict[str, t.Any] | None) -> End:
    """Return how the newest record of a node ends: the boot before counts where it ended without order."""
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
    """Which node went first (empty: none did), when, whether that is sure, and why it is or is not."""

    node: str
    at: float | None
    sure: bool
    why: str


def uncertainty(one: End, other: End) -> float | None:
    """Return by how many seconds the ends of two nodes may be wrong against each other, None when their clocks are not known to agree."""
    if not (one.synchronized and other.synchronized) or one.offset is None or other.offset is None:
        return None
    return RECORDED + abs(one.offset) + abs(other.offset)


def first(found: t.Sequence[End]) -> First:
    """Return which node went first."""
    dead = sorted((end for end in found if end.how == DIED and end.at is not None), key=lambda end: end.at or 0.0)
    gone = [end.node for end in found if end.how == GONE]
    # An end long before the newest one has another cause.
    dead = [end for end in dead if (dead[-1].at or 0.0) - (end.at or 0.0) <= TOGETHER]
    if not dead and gone:
        if len(gone) == 1 and len(found) > 1:
            return First(gone[0], None, False, "it is the only one that does not answer; only its own record shows whether it died, once it answers")
        return First("", None, False, f"{', '.join(gone)} do not answer; their records can be read once they do")
    if not dead:
        return First("", None, False, "no boot in any ring ended without order")
    one, others = dead[0], dead[1:]
    if gone:
        return First(one.node, one.at, False, f"{', '.join(gone)} may have failed earlier: its record cannot be read while it does not answer")
    if not others:
        ran = [end.node for end in found if end.node != one.node and end.how in (RUNS, STOPPED, QUIET)]
        unknown = [end.node for end in found if end.how == NOTHING]
        if unknown:
            return First(one.node, one.at, False, f"nothing was recorded on {', '.join(unknown)}")
        return First(one.node, one.at, True, f"the record of {', '.join(ran)} continues in the same boot" if ran else "it is the only node")
    margin = (others[0].at or 0.0) - (one.at or 0.0)
    within = uncertainty(one, others[0])
    if within is None:
        return First(one.node, one.at, False, f"{others[0].node} ended {margin:.1f} s later, by clocks that may not agree")
    return First(one.node, one.at, margin > within, f"{others[0].node} ended {margin:.1f} s later, and the two times may be wrong by {within:.1f} s")


def utc(at: float | None) -> str:
    """Return a time as text."""
    return "not known" if at is None else datetime.datetime.fromtimestamp(at, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def records_of(answer: dict[str, t.Any] | None) -> list[dict[str, t.Any]]:
    """Return what was recorded on a node in the window, of whichever boots, in order."""
    boots = (answer or {}).get("boots") or []
    return sorted((record for boot in boots for record in boot["records"]), key=lambda record: record["t"])


def judge(answers: Answers, run: Run) -> Outcome:
    """Say which node went first, and show the last minute. The answers are ``found`` (each boot's end) and ``window`` (all at one time)."""
    found = [ends(node, answer["found"]) for node, answer in answers.items()]
    went = first(found)
    windows = {node: records_of(answer["window"]) for node, answer in answers.items() if answered(answer["window"])}
    given = float(run.settings.get("at") or 0)
    at = given or went.at or max((records[-1]["t"] for records in windows.values() if records), default=None)
    windows = {node: [one for one in records if at is None or at - BEFORE - 1 <= one["t"]] for node, records in windows.items()}
    subject = went.node if windows.get(went.node) else next((node for node in windows if windows[node]), "")
    first_line = f"{went.node} went first, at {utc(went.at)}; {'sure' if went.sure else 'not sure'}: {went.why}."
    lines = [first_line if went.node else f"No node is known to have died: {went.why}."]
    lines += [f"{end.node}: {end.how}{f', last record {utc(end.at)}' if end.at else ''}" for end in found]
    lines += [f"Looked at: {utc(given)}"] if given else []
    signs = {
        node: black_box.signs([one for one in records if at is None or one["t"] <= at + (1 if node == subject else AFTER)])
        for node, records in windows.items()
    }
    lines += [f"{node}: {sign}" for node, found_signs in signs.items() for sign in found_signs]
    if subject and at is not None:
        lines += [
            f"The last {BEFORE} s of {subject}, seconds before its last record:" if went.node else f"{BEFORE} s of {subject}:",
            *black_box.rows([one for one in windows[subject] if one["t"] <= at + 1], at),
        ]
    record = {
        "schema": SCHEMA,
        "first": went.node,
        "at": went.at,
        "sure": went.sure,
        "why": went.why,
        "nodes": {end.node: {"how": end.how, "last": end.at, "boot_id": end.boot, "signs": signs.get(end.node, [])} for end in found},
    }
    files = {run.path: {**record, "windows": windows}} if run.path else {}
    verdict = "unknown" if not went.node and any(end.how == GONE for end in found) else "warn" if went.node else "pass"
    lost = "no node answers, so nothing is known of any. Remedy: see that ssh answers there, then run this again."
    return Outcome(
        "Post-mortem",
        lines=lines,
        failure=lost if all(one.how == GONE for one in found) else "",
        files=files,
        fresh=True,
        stats={"gb10_postmortem": record, "gb10_verdict": verdict},
    )
