# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings as text. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import re
import textwrap
import typing as t

Finding = dict[str, t.Any]

#: From harmless to what stops; ``unknown`` stops like ``block``.
ORDER = ("pass", "silenced", "warn", "unknown", "block")
STOPPING = ("block", "unknown")

#: The node of findings about the controller: inputs, profiles and recipes are there.
CONTROLLER = "controller"


def worst(findings: t.Iterable[Finding]) -> str:
    """The gravest verdict among ``findings``; ``pass`` when there is none."""
    return max((finding["verdict"] for finding in findings), key=ORDER.index, default="pass")


def silence(findings: t.Iterable[Finding], silenced: t.Container[str]) -> list[Finding]:
    """``findings``, those with an id among ``silenced`` with the verdict ``silenced`` unless they passed."""
    return [{**finding, "verdict": "silenced"} if finding["id"] in silenced and finding["verdict"] != "pass" else finding for finding in findings]


def verdict(findings: t.Sequence[Finding], silenced: t.Container[str] = ()) -> str:
    """The gravest verdict of a look; ``unknown`` when nothing was looked at."""
    return worst(silence(findings, silenced)) if findings else "unknown"


def tally(findings: t.Sequence[Finding], matrix: t.Mapping[str, t.Mapping[str, str]] | None = None) -> dict[str, int]:
    """How many findings there are of each verdict; ``lowered`` counts those that the user lowered.

    With a ``matrix`` (rule to node to verdict) what passed is counted in it, and what was not judged.
    """
    numbers = {verdict: sum(finding["verdict"] == verdict for finding in findings) for verdict in reversed(ORDER)}
    cells = [verdict for by_node in (matrix or {}).values() for verdict in by_node.values()]
    numbers["pass"] += cells.count("pass")
    return {**numbers, "not_judged": cells.count("not_judged"), "lowered": sum(finding.get("was") is not None for finding in findings)}


def counts(findings: t.Sequence[Finding]) -> str:
    """One line: how many findings of each verdict, gravest first."""
    return summary(tally(findings))


def summary(numbers: t.Mapping[str, int], words: t.Sequence[str] = (*reversed(ORDER), "not_judged")) -> str:
    """One line of the numbers that a record of all nodes counts, those that are 0 left out."""
    counted = [f"{numbers[word]} {word.replace('_', ' ')}" for word in words if numbers.get(word)]
    lowered = f" ({numbers['lowered']} of them lowered by hand)" if numbers.get("lowered") else ""
    return (", ".join(counted) or "nothing judged") + lowered


#: Most columns of a table of rules and nodes; a larger cluster gets the names of the nodes instead.
MOST_COLUMNS = 8


def grid(matrix: t.Mapping[str, t.Mapping[str, str]]) -> list[str]:
    """Lines of a table of rules (rows) and nodes (columns), only with rules that did not pass everywhere; ``.`` is a pass."""
    quiet = ("pass", "not_judged")
    rows = {rule: cells for rule, cells in matrix.items() if any(verdict not in quiet for verdict in cells.values())}
    if not rows:
        return []
    columns = list(dict.fromkeys(node for cells in rows.values() for node in cells))
    width = max(len(rule) for rule in rows)
    if len(columns) > MOST_COLUMNS:
        return [f"{rule.ljust(width)}  {_by_verdict(cells)}" for rule, cells in rows.items()]
    widths = {node: max(len(node), *(len(_cell(cells.get(node))) for cells in rows.values())) for node in columns}
    lines = [" " * width + "".join(f"  {node.ljust(widths[node])}" for node in columns)]
    lines += [rule.ljust(width) + "".join(f"  {_cell(cells.get(node)).ljust(widths[node])}" for node in columns) for rule, cells in rows.items()]
    return [line.rstrip() for line in lines]


def _cell(verdict: str | None) -> str:
    return {None: "", "pass": ".", "not_judged": "-"}.get(verdict, str(verdict))


def _by_verdict(cells: t.Mapping[str, str]) -> str:
    """``block: spark-1, spark-9; warn: spark-2``, gravest first."""
    by_verdict = {verdict: [node for node, cell in cells.items() if cell == verdict] for verdict in reversed(ORDER[1:])}
    if len(cells) in map(len, by_verdict.values()):
        return f"{next(iter(cells.values()))}: all {len(cells)} nodes"
    return "; ".join(f"{verdict}: {', '.join(nodes)}" for verdict, nodes in by_verdict.items() if nodes)


#: Longest list of nodes in the column of nodes; a longer one is below the message.
NODES_WIDTH = 24
#: Width of the lines that name many nodes, below the messages.
LINE_WIDTH = 100


def without_node(text: str, node: str) -> str:
    """``text`` with NODE in place of the node's name, so that what several nodes say can be compared."""
    return re.sub(rf"(?<![\w.-]){re.escape(node)}(?!\.?[\w-])", "NODE", text)


def shared(findings: t.Iterable[Finding]) -> list[tuple[Finding, list[str]]]:
    """Findings that differ in nothing but the node as one, each with its nodes, gravest first."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for found in sorted(findings, key=lambda found: (-ORDER.index(found["verdict"]), found["id"])):
        said = (without_node(str(found.get(word) or ""), found["node"]) for word in ("message", "remedy"))
        groups.setdefault((found["verdict"], found["id"], *said), []).append(found)
    return [
        (group[0] if len(group) == 1 else {**group[0], "message": message, "remedy": remedy}, list(dict.fromkeys(one["node"] for one in group)))
        for (_verdict, _id, message, remedy), group in groups.items()
    ]


def render(findings: t.Iterable[Finding], every: t.Sequence[str] = ()) -> list[str]:
    """Lines of a table, gravest first: verdict, id, nodes, message; the remedy on the next line. ``every`` are all nodes, in their order."""
    rows = []
    for found, nodes in shared(findings):
        names = ", ".join(sorted(nodes, key=list(every).index) if set(nodes) <= set(every) else nodes)
        fits = len(nodes) == 1 or len(names) <= NODES_WIDTH
        all_of_them = set(nodes) == set(every)
        where = names if fits else f"{'all ' if all_of_them else ''}{len(nodes)} nodes"
        rows.append((found, (found["verdict"], found["id"], where), "" if fits or all_of_them else f"on {names}"))
    widths = [max((len(cells[column]) for _found, cells, _below in rows), default=0) for column in range(3)]
    margin = " " * (sum(widths) + 6)
    lines = []
    for found, cells, below in rows:
        lines.append("  ".join([*(cell.ljust(width) for cell, width in zip(cells, widths)), found["message"]]))
        lines += textwrap.wrap(below, len(margin) + LINE_WIDTH, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False)
        if found["verdict"] != "pass" and found.get("remedy"):
            lines.append(f"{margin}→ {found['remedy']}")
    return lines


def on_node(findings: list[Finding], node: str) -> list[Finding]:
    """Return findings that a module made on a node, under the name the inventory has for it instead of the machine's own."""
    return [{**found, "node": node} for found in findings]


def some(texts: list[str], between: str = ", ") -> str:
    """Return the first five texts, and how many more there are."""
    return between.join(texts[:5]) + (f" and {len(texts) - 5} more" if len(texts) > 5 else "")


def packed(texts: t.Iterable[str], width: int = 156) -> list[str]:
    """Return short texts in as few lines as they fit into, in their order. A wide one, and one with a remedy, has its own line."""
    lines: list[str] = []
    for text in texts:
        if lines and len(lines[-1]) + 2 + len(text) <= width and "Remedy: " not in lines[-1] + text:
            lines[-1] += f"; {text}"
        else:
            lines.append(text)
    return lines


def aligned(rows: t.Sequence[t.Sequence[str]]) -> list[str]:
    """Return rows as lines with columns of one width each; the last column is as wide as its text."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join([*(cell.ljust(width) for cell, width in zip(row[:-1], widths)), row[-1]]) for row in rows]
