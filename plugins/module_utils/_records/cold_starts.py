# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The seconds of a start by stage, beside the last start of the same image and profile. This module util is PRIVATE to the collection.

A stage that no line of the engine's log shows is absent: its seconds are unknown.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._files.documents import lacking

#: Everything from the engine's process to the first token.
READY = "ready"
#: The stages in order. ``image`` comes before the engine's process, and ``warmup`` is what the initialization takes beside ``compile`` and ``graphs``.
STAGES = ("image", "weights", "compile", "graphs", "warmup", "first_token")

_SECONDS = r"(\d{1,6}(?:\.\d{1,9})?)"
#: Lines of vLLM's log with seconds. Of two patterns for one stage the first one that is found counts: not every loader logs both.
TIMES = (
    ("weights", re.compile(rf"Loading weights took {_SECONDS} seconds")),
    ("weights", re.compile(rf"Model loading took [\d.]{{1,12}} GiB (?:memory )?and {_SECONDS} seconds")),
    ("compile", re.compile(rf"torch\.compile (?:takes|took) {_SECONDS} s in total")),
    ("graphs", re.compile(rf"Graph capturing finished in {_SECONDS} secs")),
    ("warmup", re.compile(rf"init engine \(profile, create kv cache, warmup model\) took {_SECONDS} s")),
)

#: Whether a start used the compiled code of an earlier one; empty where the log shows neither.
KEPT, NEW = "kept", "new"
_COMPILED = re.compile(r"(?P<new>Compiling a graph for |saved AOT compiled function )|Directly load (?:AOT compilation|the compiled graph)")
WORDS = {KEPT: ", compile cache used", NEW: ", compile cache not used", "": ""}

#: A start that took this many times its last one, and this many seconds longer, is slow.
TIMES_LAST, LEAST_SECONDS = 1.5, 30.0

#: The keys of a start. ``seconds`` has those of :data:`STAGES` and :data:`READY` that are known. ``last`` is the start before it, and empty without one.
#: ``reported`` has seconds of other owners, and ``by``. ``error`` is why the last start could not be read.
KEYS: dict[str, type] = {"seconds": dict, "compiled": str, "last": dict, "reported": dict, "error": str}
LAST_KEYS: dict[str, type] = {"seconds": dict, "compiled": str, "recorded_at": str}

Cold = dict[str, t.Any]


def problem_of(cold: t.Any) -> str:
    """Return why a recorded start is invalid, empty if it is valid."""
    if problem := lacking(cold, KEYS) or (cold["last"] and lacking(cold["last"], LAST_KEYS)):
        return str(problem)
    numbers = [*cold["seconds"].values(), *cold["last"].get("seconds", {}).values()]
    return "" if all(isinstance(number, (int, float)) for number in numbers) else "seconds: not numbers"


def of_log(lines: t.Iterable[str]) -> Cold:
    """Return the ``seconds`` of the stages that the lines of an engine's log show, and where its ``compiled`` code came from.

    Ranks work at the same time, so the slowest counts. One process can report a stage twice, for the model and its drafter.
    """
    sums: dict[tuple[int, str], float] = {}
    compiled = ""
    for line in lines:
        if found := _COMPILED.search(line):
            compiled = NEW if found["new"] or compiled == NEW else KEPT
        for number, (_stage, pattern) in enumerate(TIMES):
            if match := pattern.search(line):
                process = number, line.partition(" INFO ")[0]
                sums[process] = sums.get(process, 0.0) + float(match[1])
    # Backwards, so that the first pattern of a stage counts.
    slowest = {number: max(took for (other, _process), took in sums.items() if other == number) for number in sorted({key[0] for key in sums}, reverse=True)}
    seconds = {TIMES[number][0]: took for number, took in slowest.items()}
    if "warmup" in seconds:
        seconds["warmup"] = max(0.0, seconds["warmup"] - seconds.get("compile", 0.0) - seconds.get("graphs", 0.0))
    return {"seconds": {stage: round(seconds[stage], 1) for stage in STAGES if stage in seconds}, "compiled": compiled}


def start_of(lines: t.Iterable[str], known: t.Iterable[dict[str, t.Any]], run_id: str, image_id: str, profile: str) -> Cold:
    """Return a run's start: its own record, or what its log shows, beside the last of the ``known`` starts with this image and profile."""
    timed = [start for start in known if start.get("cold_start")]
    for start in timed:
        if start["run_id"] == run_id:
            return t.cast(Cold, start["cold_start"])
    cold: Cold = {**of_log(lines), "last": {}, "reported": {}, "error": ""}
    for start in timed:
        if (start["image_id"], start["profile"]) == (image_id, profile):
            before = start["cold_start"]
            last = {"seconds": before["seconds"], "compiled": before["compiled"], "recorded_at": start["recorded_at"]}
            cold.update(last=last, reported=before["reported"])
    return cold


def measured(cold: Cold, ready: float | None, stages: t.Mapping[str, float | None], reported: t.Mapping[str, t.Any]) -> Cold:
    """Return a start with the seconds that its caller measured. Without ``ready`` the caller did not see it, and a recorded one is complete."""
    if ready is None or READY in cold["seconds"]:
        return cold
    more = {name: round(value, 1) for name, value in {READY: ready, **stages}.items() if value is not None}
    return {**cold, "seconds": {**cold["seconds"], **more}, "reported": dict(reported or cold["reported"])}


def slow(cold: Cold) -> tuple[float, str] | None:
    """Return how many times its last one a slow start took, and the stage that explains at least half of it (else empty). None: it is not slow, or unknown.

    A start that had to compile takes longer, so it is compared only with one that had to, too.
    """
    now, last = cold["seconds"], cold["last"].get("seconds", {})
    if not now.get(READY) or not last.get(READY) or cold["compiled"] not in (KEPT, cold["last"]["compiled"]):
        return None
    longer, times = now[READY] - last[READY], now[READY] / last[READY]
    if longer < LEAST_SECONDS or times < TIMES_LAST:
        return None
    grown = {stage: now[stage] - last[stage] for stage in STAGES[1:] if stage in now and stage in last}
    stage = max(grown, key=lambda name: grown[name], default="")
    return times, stage if grown.get(stage, 0.0) >= longer / 2 else ""


def _figures(word: str, seconds: t.Mapping[str, t.Any], with_stages: bool) -> str:
    """Return seconds as text, with those of the stages in parentheses."""
    shown = [f"{stage.replace('_', ' ')} {seconds[stage]:.0f}" for stage in STAGES if with_stages and seconds.get(stage) is not None]
    stages, ready = ", ".join(shown), seconds.get(READY)
    whole = "" if ready is None else f"{ready:.0f} s"
    return f"{word}: " + (f"{whole} ({stages})" if whole and stages else whole or stages or "unknown")


def text(cold: Cold, own_stages: bool = True, other_stages: bool = True) -> str:
    """Return a start beside the last one, and beside what others reported, in one line."""
    last, reported = cold["last"], cold["reported"]
    parts = [_figures("start", cold["seconds"], own_stages) + WORDS.get(cold["compiled"], ""), cold["error"]]
    if last:
        parts.append(_figures("last", last["seconds"], other_stages) + (WORDS.get(last["compiled"], "") if other_stages else ""))
    if found := slow(cold):
        parts.append(f"{found[0]:.1f} times the last one{f', most of it {found[1]}' if found[1] else ''}")
    if any(reported.get(stage) is not None for stage in (READY, *STAGES)):
        parts.append(_figures(f"reported by {reported.get('by') or 'others'}", reported, other_stages))
    return "; ".join(filter(None, parts))
