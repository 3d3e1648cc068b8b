# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rows of a bench as pictures. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import math
import typing as t
from xml.sax.saxutils import escape

from ansible_collections.gb10.cluster.plugins.plugin_utils._bench import rows
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.drawing import SERIES, frame, mark, text

_WIDTH, _LEFT, _PANEL, _TOP, _HIGH = 1100, 70, 440, 110, 260
#: Runs that the history shows, the latest.
_RUNS = 30

#: Colors of the lines, one after the other.
COLORS = (*SERIES, "#000000", "#999999")


class Series(t.NamedTuple):
    """A line: its name, its values by place (None where there is none), its color, and whether it is dashed."""

    name: str
    values: t.Sequence[float | None]
    color: str
    dashed: bool = False


def round_step(most: float) -> float:
    """Return the distance of four to eight marks from 0 to ``most``: 1, 2 or 5 times a power of ten."""
    power = 10 ** math.floor(math.log10(most / 4)) if most > 0 else 0.25
    return next(factor * power for factor in (1, 2, 5, 10) if most / (factor * power) <= 8)


def panel(box: tuple[float, float, float, float], title: str, places: t.Sequence[str], series: t.Sequence[Series]) -> t.Iterator[str]:
    """Yield a panel in ``box`` (left, top, width, height): lines over places, from 0 up, each place with its name below."""
    left, top, width, height = box
    most = max((value for one in series for value in one.values if value is not None), default=1.0) or 1.0
    step = round_step(most)
    ceiling = step * math.ceil(most / step)

    def across(place: int) -> float:
        return left + width * (place + 0.5) / max(1, len(places))

    def up(value: float) -> float:
        return top + height - height * value / ceiling

    yield text(left, top - 10, title, size=15)
    for number in range(round(ceiling / step) + 1):
        base = up(number * step)
        yield f'<line x1="{left:.1f}" x2="{left + width:.1f}" y1="{base:.1f}" y2="{base:.1f}" stroke="#dddddd" stroke-width="1"/>'
        yield text(left - 6, base + 4, f"{number * step:g}", anchor="end")
    for place, name in enumerate(places):
        yield text(across(place), top + height + 18, name, size=11, anchor="middle")
    for number, one in enumerate(series):
        points = [(across(place), up(value), value) for place, value in enumerate(one.values) if value is not None]
        dashed = ' stroke-dasharray="5 4"' if one.dashed else ""
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y, _value in points)
        yield f'<polyline points="{drawn}" fill="none" stroke="{one.color}" stroke-width="2"{dashed}/>'
        for x, y, value in points:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{one.color}"><title>{escape(f"{one.name}: {value:g}")}</title></circle>'
        base = top + height + 42 + number * 18
        yield f'<path d="M {left:.1f} {base - 4:.1f} h 24" stroke="{one.color}" stroke-width="3"{dashed}/>'
        yield text(left + 30, base, one.name)


def _short(image: str) -> str:
    return image.removeprefix("sha256:")[:12]


def _workloads(found: t.Iterable[rows.Row]) -> list[str]:
    return list(dict.fromkeys(one["workload"] for one in found))


def concurrency(found: t.Sequence[rows.Row]) -> str:
    """Return throughput and time to the first token of one run against concurrency."""
    first, places = found[0], sorted({one["concurrency"] for one in found})
    values = {(one["workload"], one["concurrency"]): one for one in found}

    def series(name: str, shown: str, offset: int = 0, dashed: bool = False) -> list[Series]:
        return [
            Series(
                f"{workload}{shown}",
                [values[workload, place][name] if (workload, place) in values else None for place in places],
                COLORS[(number + offset) % len(COLORS)],
                dashed,
            )
            for number, workload in enumerate(_workloads(found))
        ]

    times = [*series("ttft_p50_ms", ", median"), *series("ttft_p99_ms", ", 99 of 100", dashed=True)]
    height = _TOP + _HIGH + 60 + 18 * len(times)
    names = [str(place) for place in places]
    out = [
        *frame(_WIDTH, height, f"Bench of {first['profile']}"),
        text(10, 24, f"{first['profile']} on {first['cluster']}, {first['time']}", size=17),
        text(10, 46, f"image {_short(first['image'])}, vLLM {first['engine_version']}, client {first['client']} ({first['place']}); by requests at once"),
        *panel((_LEFT, _TOP, _PANEL, _HIGH), "Output tokens/s, all requests together", names, series("output_tok_s", "")),
        *panel((_LEFT + _PANEL + 90, _TOP, _PANEL, _HIGH), "Time to the first token in ms", names, times),
    ]
    return "\n".join([*out, "</svg>", ""])


def history(found: t.Sequence[rows.Row], like: rows.Row) -> str:
    """Return throughput of all runs of a profile, from where ``like`` was measured, in their order; where the image changes there is a line."""
    mine = [one for one in found if all(one.get(name) == like.get(name) for name in ("profile", "place", "client"))]
    runs = list(dict.fromkeys(one["run"] for one in mine))[-_RUNS:]
    image = {one["run"]: one["image"] for one in mine}
    cases = list(dict.fromkeys((one["workload"], one["concurrency"]) for one in mine if one["run"] in runs))
    values = {(one["run"], one["workload"], one["concurrency"]): one["output_tok_s"] for one in mine}
    series = [
        Series(f"{workload} at {at}", [values.get((run, workload, at)) for run in runs], COLORS[number % len(COLORS)], number >= len(COLORS))
        for number, (workload, at) in enumerate(cases)
    ]
    wide, height = _WIDTH - _LEFT - 40, _TOP + _HIGH + 60 + 18 * len(series)
    out = [
        *frame(_WIDTH, height, f"Benches of {like['profile']}"),
        text(10, 24, f"{like['profile']} on {like['cluster']}: output tokens/s run by run", size=17),
        text(10, 46, f"client {like['client']} ({like['place']}); a dashed line is where the image changed"),
        *panel((_LEFT, _TOP, wide, _HIGH), "", [str(number) for number in range(1, len(runs) + 1)], series),
    ]
    for number, run in enumerate(runs):
        if number == 0 or image[run] != image[runs[number - 1]]:
            across = _LEFT + wide * number / len(runs)
            if number:
                out.append(mark(across, _TOP - 12, _TOP + _HIGH, "#666666", "4 3"))
            out.append(text(across + 4, _TOP - 14, _short(image[run]), size=11))
    return "\n".join([*out, "</svg>", ""])
