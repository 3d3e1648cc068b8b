# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A climb as a picture. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import math
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._records import climbs
from ansible_collections.gb10.cluster.plugins.plugin_utils._bench.pictures import round_step
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import drawing

_WIDTH, _LEFT, _RIGHT, _TOP, _PANEL, _STEP = 1100, 60, 30, 90, 200, 280
_MIB_IN_GIB = 1024
_GOOD, _BAD, _FLOOR = "#e5f4ee", "#fbe6dc", "#cc0000"


def climb(nodes: t.Mapping[str, climbs.Climb], floor_gib: int) -> str:
    """Return a panel for each node: memory available over the whole climb, a band for each rung, and the floor."""
    first = next(iter(nodes.values()))
    ends = [one["at_s"] + one["seconds"] for record in nodes.values() for one in record["rungs"]]
    span = max([*ends, 60.0])
    wide = _WIDTH - _LEFT - _RIGHT
    height = _TOP + len(nodes) * _STEP

    def across(moment: float) -> float:
        return _LEFT + min(moment, span) / span * wide

    title = f"Ladder of {first['profile']}, {first['began_at']}"
    ends_as = {climbs.TOP: "every rung was good", climbs.RETURNED: f"back to {first['rung']}", climbs.OFF: "nothing is started"}
    said = ends_as.get(first["outcome"], "interrupted")
    out = [
        *drawing.frame(_WIDTH, height, title),
        drawing.text(10, 24, title, size=17),
        drawing.text(10, 46, f"memory available in GiB; {said}. Green bands: good rungs, orange: the one that ended it; red line: {floor_gib} GiB"),
    ]
    for number, (node, record) in enumerate(nodes.items()):
        out += _panel(node, record, _TOP + number * _STEP, across, span, floor_gib)
    return "\n".join([*out, "</svg>", ""])


def _panel(node: str, record: climbs.Climb, top: float, across: t.Callable[[float], float], span: float, floor_gib: int) -> t.Iterator[str]:
    values = [mib / _MIB_IN_GIB for one in record["rungs"] for _at, mib in one["curve"]]
    most = max([*values, floor_gib * 2.0]) * 1.05
    step = round_step(most)
    ceiling = step * math.ceil(most / step)

    def up(gib: float) -> float:
        return top + _PANEL * (1 - gib / ceiling)

    yield drawing.text(_LEFT, top - 24, f"{node}, {record['total_mb'] / _MIB_IN_GIB:.1f} GiB", size=15)
    for one in record["rungs"]:
        left, right = across(one["at_s"]), across(one["at_s"] + one["seconds"])
        color = _GOOD if one["good"] else _BAD
        yield f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(1.0, right - left):.1f}" height="{_PANEL}" fill="{color}"/>'
        yield drawing.text((left + right) / 2, top - 6, str(one["context"]), size=12, anchor="middle")
    for mark in range(round(ceiling / step) + 1):
        base = up(mark * step)
        yield f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{base:.1f}" y2="{base:.1f}" stroke="#dddddd" stroke-width="1"/>'
        yield drawing.text(_LEFT - 6, base + 4, f"{mark * step:g}", anchor="end")
    yield f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{up(floor_gib):.1f}" y2="{up(floor_gib):.1f}" stroke="{_FLOOR}" stroke-width="1.2"/>'
    for one in record["rungs"]:
        yield from drawing.curve([(across(one["at_s"] + at), up(mib / _MIB_IN_GIB)) for at, mib in one["curve"]], drawing.SERIES[0])
    minutes = round_step(span / 60)
    for tick in range(int(span / 60 / minutes) + 1):
        yield drawing.text(across(tick * minutes * 60), top + _PANEL + 18, f"{tick * minutes:g} min", size=11, anchor="middle")
