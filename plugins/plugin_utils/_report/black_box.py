# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Summarizes the records of a node's guard: signs and a table. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import collections
import datetime
import itertools
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._guard import trend
from ansible_collections.gb10.cluster.plugins.module_utils._guard.sources import REASONS
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.groups import grouped

Record = dict[str, t.Any]

#: GiB per minute that count as a leak if they continue, and the share of the minute in which memory has to fall.
LEAK_GIB, LEAK_SHARE = 0.5, 0.7
#: Seconds without a sample that count as a stall.
STALL = 3.5
#: Percent of ten seconds in which all work waited for memory, from which it is reported.
PRESSED = 10.0
#: Reported for a GPU that is stuck at low power: 96 % busy at about 800 MHz and 19.5 W, where 2280 to 2400 MHz and 92 W are healthy.
STUCK_USE, STUCK_MHZ = 90, 1000
#: The largest number of kernel lines and of events that are shown.
SHOWN = 12


def samples(records: t.Iterable[Record]) -> list[Record]:
    """Return the samples among the records."""
    return [record for record in records if "e" not in record]


def signs(records: t.Sequence[Record]) -> list[str]:
    """Return the signs of trouble in a window, each as a sentence."""
    taken = samples(records)
    return [*_memory(taken), *_gpu(taken), *_links(taken), *_stalls(taken), *_events(records), *_kernel(taken)]


def _gib(kib: float) -> str:
    return f"{kib / trend.KIB_PER_GIB:.1f} GiB"


def _memory(taken: t.Sequence[Record]) -> t.Iterator[str]:
    known = [trend.Sample(sample["t"], sample["a"]) for sample in taken if sample.get("a") is not None]
    if len(known) < 3:
        return
    met = next((at for at in range(3, len(known) + 1) if trend.reaches(known[:at], trend.Policy())), None)
    if met:
        at, last = _gib(known[met - 1].available), _gib(known[-1].available)
        yield f"memory collapsed: its trend reached 2 GiB within 10 s at {at}, and {last} were available at last"
        return
    span = known[-1].at - known[0].at
    marks = [known[len(known) * step // 10] for step in range(10)] + [known[-1]]
    falls = sum(after.available < before.available for before, after in itertools.pairwise(marks))
    # The median of ten steps: memory that was taken at one moment is not a leak.
    drops = sorted(before.available - after.available for before, after in itertools.pairwise(marks))
    minute = drops[len(drops) // 2] * 600 / span if span else 0.0
    if span >= 20 and minute >= LEAK_GIB * trend.KIB_PER_GIB and falls >= LEAK_SHARE * 10:
        fell = f"from {_gib(known[0].available)} to {_gib(known[-1].available)} in {span:.0f} s"
        yield f"memory went down slowly, {_gib(minute)} a minute, {fell}"
    pressed = max((sample["pm"][1] for sample in taken if sample.get("pm") and len(sample["pm"]) > 1), default=0.0)
    if pressed >= PRESSED:
        yield f"all work waited for memory for up to {pressed:.0f} % of 10 s"


def _gpu(taken: t.Sequence[Record]) -> t.Iterator[str]:
    answers = [sample["g"] for sample in taken if sample.get("g")]
    for bit, name in REASONS.items():
        count = sum(bool((answer.get("why") or 0) & bit) for answer in answers)
        if count:
            low = min((answer["sm"] for answer in answers if (answer.get("why") or 0) & bit and answer.get("sm") is not None), default=None)
            hot = max((answer["c"] for answer in answers if answer.get("c") is not None), default=None)
            more = [f"down to {low} MHz"] if low is not None else []
            more += [f"at up to {hot} °C"] if hot is not None else []
            yield f"the driver held the GPU's clock down for {count} s: {name}{', ' if more else ''}{', '.join(more)}"
    slow = [answer for answer in answers if answer.get("sm") is not None and answer["sm"] < STUCK_MHZ and not (answer.get("why") or 0) & ~1]
    stuck = [answer for answer in slow if (answer.get("u") or 0) >= STUCK_USE]
    if len(stuck) >= 5:
        yield f"the GPU was busy at {min(answer['sm'] for answer in stuck)} MHz for {len(stuck)} s and the driver gave no reason: stuck at low power"
    if taken and not answers:
        yield "the driver's tool said nothing"
    elif answers and not any(sample.get("g") for sample in taken[-5:]) and len(taken) > 10:
        yield "the driver's tool fell silent before the end"


def _links(taken: t.Sequence[Record]) -> t.Iterator[str]:
    for name in sorted({name for sample in taken for name in sample.get("l") or {}}):
        states = [(sample["t"], sample["l"][name][0], sample["l"][name][1]) for sample in taken if name in (sample.get("l") or {})]
        downs = [at for (at, up, _changes), before in zip(states, [None, *states]) if up is False and (before is None or before[1] is not False)]
        counts = [changes for _at, _up, changes in states if changes is not None]
        flaps = counts[-1] - counts[0] if counts else 0
        if downs or flaps:
            lost = sum(up is False for _at, up, _changes in states)
            often = f"{len(downs)} time(s), for {lost} s of the window" if downs else f"{flaps} change(s) of its carrier between samples"
            yield f"link {name} went down: {often}{'; it was down at last' if states[-1][1] is False else ''}"


def _stalls(taken: t.Sequence[Record]) -> t.Iterator[str]:
    long = [gap for before, after in itertools.pairwise(taken) if (gap := after["t"] - before["t"]) > STALL]
    if long:
        yield f"no sample for {max(long):.0f} s at the longest, {len(long)} time(s): the node was stuck, or its clock was set"


def _events(records: t.Sequence[Record]) -> t.Iterator[str]:
    events = [record for record in records if record.get("e") in ("act", "would", "ranks", "disk")]
    for event in events[-SHOWN:]:
        yield f"guard, {_clock(event['t'])}: {event['text']}"
    ended = sorted({f"{kind} (pid {pid})" for sample in samples(records) for pid, kind, letter, _ours in sample.get("r") or [] if letter in ("", "Z", "X")})
    if ended:
        yield f"ended in the window: {', '.join(ended[:SHOWN])}"


def _kernel(taken: t.Sequence[Record]) -> t.Iterator[str]:
    lines = [(sample["t"], kind, words) for sample in taken for kind, words in sample.get("k") or []]
    for (kind, words), moments in list(grouped(((kind, words), at) for at, kind, words in lines).items())[:SHOWN]:
        often = f" ({len(moments)} times)" if len(moments) > 1 else ""
        yield f"kernel, {_clock(moments[0])}: {kind}: {words}{often}"


def _clock(at: float) -> str:
    return datetime.datetime.fromtimestamp(at, datetime.timezone.utc).strftime("%H:%M:%S UTC")


# -- the table ---------------------------------------------------------------------------------------------------------------

_HEAD = ("s", "avail", "free", "cached", "swap", "psi mem", "psi io", "MHz", "W", "°C", "%", "links", "ranks")


def rows(records: t.Sequence[Record], at: float) -> list[str]:
    """Return the samples as a table, each with its seconds before ``at``; memory in GiB, pressure in percent, and unknown values as ``-``."""
    cells = [_HEAD, *(_row(sample, at) for sample in samples(records))]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEAD))]
    return ["  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in cells]


def _row(sample: Record, at: float) -> tuple[str, ...]:
    gpu = sample.get("g") or {}
    links = sample.get("l")
    states = [f"{name}={'up' if up else 'DOWN'}" for name, (up, _changes, _sent) in (links or {}).items() if up is not None]
    letters = collections.Counter(letter or "gone" for _pid, _kind, letter, _ours in sample.get("r") or [])
    ranks = "-" if sample.get("r") is None else " ".join(f"{letter}{count}" for letter, count in sorted(letters.items())) or "none"
    memory = [f"{sample[key] / trend.KIB_PER_GIB:.2f}" if sample.get(key) is not None else "-" for key in ("a", "f", "c", "s")]
    pressed = [f"{sample[key][0]:.0f}" if sample.get(key) else "-" for key in ("pm", "pi")]
    return (
        str(round(sample["t"] - at)),
        *memory,
        *pressed,
        *["-" if gpu.get(key) is None else f"{gpu[key]:g}" for key in ("sm", "w", "c", "u")],
        " ".join(states) or "-",
        ranks,
    )
