# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A memory plan as a picture: two bars for each node, after loading and while it serves, divided into parts. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t
from xml.sax.saxutils import escape

from ansible_collections.gb10.cluster.plugins.module_utils._memory.components import CONSTANTS
from ansible_collections.gb10.cluster.plugins.plugin_utils._plan import wording
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.drawing import frame, mark, on, text

#: Widths and heights in units of the picture.
_WIDTH, _LEFT, _RIGHT = 1100, 300, 40
_BAR, _GAP, _TOP, _LINE = 22, 8, 70, 20
#: A part of at least this width is labeled with its GiB.
_LABELED = 30

#: Colors that are distinguishable with red-green color blindness (Okabe and Ito), with lighter and darker shades of them.
_COLORS = {
    "os": "#999999", "engine_host": "#bbbbbb", "tenants": "#555555", "ray": "#d4d4d4", "pinned": "#777777",
    "weights": "#0072b2", "weights_read": "#6bb5dc", "drafter": "#56b4e9",
    "activation": "#d55e00", "workspaces": "#e69f00", "fabric": "#f3c969", "vision": "#b5651d", "graphs": "#cc79a7", "unprofiled": "#8c4a6e",
    "kv": "#009e73", "state": "#66c7a8", "pool": "#c5e8dc", "staging": "#f0e442", "page_cache": "#eeeeee", "recorded": "#7b3294", "recorded_peak": "#a978bd",
}  # fmt: skip


def svg(memory_plan: t.Mapping[str, t.Any]) -> str:
    """Return the picture of a plan as SVG. A plan with missing facts has no picture; its text names them."""
    nodes = [{**column.node, "node": column.title} for column in wording.columns(memory_plan)]
    most = max((max(node["total_gib"], node["loading"]["driver_sees_gib"], node["serving"]["used_gib"]) for node in nodes), default=1.0) * 1.02
    scale = (_WIDTH - _LEFT - _RIGHT) / most
    legend = list(dict.fromkeys((part["id"], part["title"]) for node in nodes for part in node["components"]))
    columns, step = 3, (_WIDTH - _RIGHT) // 3
    bars = len(nodes) * (2 * (_BAR + _GAP) + _GAP)
    axis = _TOP + bars
    rows = [
        *frame(_WIDTH, axis + 45 + (-(-len(legend) // columns)) * _LINE + 20, f"Memory plan of {memory_plan['profile']}"),
        text(10, 24, f"{memory_plan['profile']}: {memory_plan['verdict']}", size=17),
        text(10, 46, _subtitle(memory_plan)),
    ]
    for index, node in enumerate(nodes):
        top = _TOP + index * (2 * (_BAR + _GAP) + _GAP)
        for place, when in enumerate(("loading", "serving")):
            rows += _bar(node, when, top + place * (_BAR + _GAP), scale)
        bottom = top + 2 * _BAR + _GAP
        rows.append(mark(_LEFT + node["total_gib"] * scale, top - 4, bottom + 4, "#000000", ""))
        rows.append(mark(_LEFT + (node["total_gib"] - CONSTANTS["unproven"].value) * scale, top - 4, bottom + 4, "#000000", "4 3"))
    rows += _axis(most, scale, axis)
    for index, (name, title) in enumerate(legend):
        left, base = 10 + index % columns * step, axis + 55 + index // columns * _LINE
        rows.append(f'<rect x="{left}" y="{base - 11}" width="12" height="12" fill="{_COLORS.get(name, "#000000")}" stroke="#666666" stroke-width="0.5"/>')
        rows.append(text(left + 18, base, title))
    return "\n".join([*rows, "</svg>", ""])


def _subtitle(memory_plan: t.Mapping[str, t.Any]) -> str:
    use = memory_plan["settings"]
    lines = "solid line: the node's memory; dashed: the limit until a start was recorded; line under the bar: the estimate's error"
    return f"{use['context']} tokens, GiB a node; {lines}"


def _bar(node: t.Mapping[str, t.Any], when: str, top: float, scale: float) -> t.Iterator[str]:
    """Yield one bar: its sum, its parts from left to right, and the error of the sum."""
    figure, left = node[when], 0.0
    yield text(10, top + _BAR - 6, f"{node['node']} {when}: {figure['used_gib']:.1f}, {figure['available_gib']:.1f} left")
    for part in node["components"]:
        if when not in part["when"]:
            continue
        words = escape(f"{part['title']}: {part['gib']:.2f} GiB")
        start, wide = _LEFT + left * scale, part["gib"] * scale
        color = _COLORS.get(part["id"], "#000000")
        box = f'x="{start:.1f}" y="{top}" width="{wide:.1f}" height="{_BAR}"'
        yield f'<rect {box} fill="{color}" stroke="#ffffff" stroke-width="0.5"><title>{words}</title></rect>'
        if wide >= _LABELED:
            yield text(start + wide / 2, top + _BAR - 6, f"{part['gib']:.0f}", anchor="middle", color=on(color))
        left += part["gib"]
    low, high = (_LEFT + max(0.0, figure["used_gib"] + sign * figure["within_gib"]) * scale for sign in (-1, 1))
    base = top + _BAR - 1
    yield f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{base}" y2="{base}" stroke="#000000" stroke-width="2"/>'


def _axis(most: float, scale: float, top: float) -> t.Iterator[str]:
    for gib in range(0, int(most) + 1, 20 if most > 80 else 10):
        left = _LEFT + gib * scale
        yield mark(left, top, top + 5, "#666666", "")
        yield text(left, top + 20, str(gib), anchor="middle")
    yield text(_WIDTH - _RIGHT, top + 36, "GiB", anchor="end")
