# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings as text. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import re
import textwrap
import typing as t

Finding = dict[str, t.Any]

#: Verdicts from harmless to severe; ``unknown`` stops a run as ``block`` does.
ORDER = ("pass", "silenced", "warn", "unknown", "block")
STOPPING = ("block", "unknown")

#: The node name of findings about the controller, which has the inputs, profiles and recipes.
CONTROLLER = "controller"


def worst(findings: t.Iterable[Finding]) -> str:
    """Return the most severe verdict of ``findings``; ``pass`` without findings."""
    return max((finding["verdict"] for finding in findings), key=ORDER.index, default="pass")


def silence(findings: t.Iterable[Finding], silenced: t.Container[str]) -> list[Finding]:
    """Return ``findings``, with the verdict ``silenced`` for those that have an id in ``silenced`` and did not pass."""
    return [{**finding, "verdict": "silenced"} if finding["id"] in silenced and finding["verdict"] != "pass" else finding for finding in findings]


def verdict(findings: t.Sequence[Finding], silenced: t.Container[str] = ()) -> str:
    """Return the most severe verdict of ``findings``, those in ``silenced`` lowered; ``unknown`` without findings."""
    return worst(silence(findings, silenced)) if findings else "unknown"


def tally(findings: t.Sequence[Finding], matrix: t.Mapping[str, t.Mapping[str, str]] | None = None) -> dict[str, int]:
    """Return the number of findings by verdict; ``lowered`` counts those that the user lowered.

    With a ``matrix`` (rule to node to verdict), its cells with ``pass`` and ``not_judged`` are counted too.
    """
    numbers = {verdict: sum(finding["verdict"] == verdict for finding in findings) for verdict in reversed(ORDER)}
    cells = [verdict for by_node in (matrix or {}).values() for verdict in by_node.values()]
    numbers["pass"] += cells.count("pass")
    return {**numbers, "not_judged": cells.count("not_judged"), "lowered": sum(finding.get("was") is not None for finding in findings)}


def counts(findings: t.Sequence[Finding]) -> str:
    """Return one line with the number of findings by verdict, the most severe first."""
    return summary(tally(findings))


def summary(numbers: t.Mapping[str, int], words: t.Sequence[str] = (*reversed(ORDER), "not_judged")) -> str:
    """Return one line with the numbers in a record of all nodes, without those that are 0."""
    counted = [f"{numbers[word]} {word.replace('_', ' ')}" for word in words if numbers.get(word)]
    lowered = f" ({numbers['lowered']} of them lowered by hand)" if numbers.get("lowered") else ""
    return (", ".join(counted) or "nothing judged") + lowered


#: Maximum number of columns in a table of rules and nodes; for a larger cluster, node names are listed by verdict.
MOST_COLUMNS = 8


def grid(matrix: t.Mapping[str, t.Mapping[str, str]]) -> list[str]:
    """Return the lines of a table of rules (rows) and nodes (columns), without rules that passed everywhere; ``.`` is a pass."""
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
    """Return ``block: spark-1, spark-9; warn: spark-2``, the most severe verdict first."""
    by_verdict = {verdict: [node for node, cell in cells.items() if cell == verdict] for verdict in reversed(ORDER[1:])}
    if len(cells) in map(len, by_verdict.values()):
        return f"{next(iter(cells.values()))}: all {len(cells)} nodes"
    return "; ".join(f"{verdict}: {', '.join(nodes)}" for verdict, nodes in by_verdict.items() if nodes)


#: Maximum width of the node column; a longer list of nodes is shown below the message.
NODES_WIDTH = 24
#: Width of the lines that name many nodes, below the messages.
LINE_WIDTH = 100


def without_node(text: str, node: str) -> str:
    """Return ``text`` with NODE in place of the node's name, so that texts of several nodes can be compared."""
    return re.sub(rf"(?<![\w.-]){re.escape(node)}(?!\.?[\w-])", "NODE", text)


def shared(findings: t.Iterable[Finding]) -> list[tuple[Finding, list[str]]]:
    """Return the findings with their nodes, the most severe first. Findings that differ only in the node are merged."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in sorted(findings, key=lambda finding: (-ORDER.index(finding["verdict"]), finding["id"])):
        texts = (without_node(str(finding.get(word) or ""), finding["node"]) for word in ("message", "remedy"))
        groups.setdefault((finding["verdict"], finding["id"], *texts), []).append(finding)
    return [
        (group[0] if len(group) == 1 else {**group[0], "message": message, "remedy": remedy}, list(dict.fromkeys(finding["node"] for finding in group)))
        for (_verdict, _id, message, remedy), group in groups.items()
    ]


def render(findings: t.Iterable[Finding], every: t.Sequence[str] = ()) -> list[str]:
    """Return the lines of a table, the most severe finding first: verdict, id, nodes, message; the remedy on the next line. ``every`` are all nodes, in
    order."""
    rows = []
    for finding, nodes in shared(findings):
        names = ", ".join(sorted(nodes, key=list(every).index) if set(nodes) <= set(every) else nodes)
        fits = len(nodes) == 1 or len(names) <= NODES_WIDTH
        all_of_them = set(nodes) == set(every)
        where = names if fits else f"{'all ' if all_of_them else ''}{len(nodes)} nodes"
        rows.append((finding, (finding["verdict"], finding["id"], where), "" if fits or all_of_them else f"on {names}"))
    widths = [max((len(cells[column]) for _finding, cells, _below in rows), default=0) for column in range(3)]
    margin = " " * (sum(widths) + 6)
    lines = []
    for finding, cells, below in rows:
        lines.append("  ".join([*(cell.ljust(width) for cell, width in zip(cells, widths)), finding["message"]]))
        lines += textwrap.wrap(below, len(margin) + LINE_WIDTH, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False)
        if finding["verdict"] != "pass" and finding.get("remedy"):
            lines.append(f"{margin}→ {finding['remedy']}")
    return lines


def on_node(findings: list[Finding], node: str) -> list[Finding]:
    """Return findings of a module on a node, with the node's inventory name in place of its hostname."""
    return [{**finding, "node": node} for finding in findings]


def some(texts: list[str], between: str = ", ") -> str:
    """Return the first five texts, and how many more there are."""
    return between.join(texts[:5]) + (f" and {len(texts) - 5} more" if len(texts) > 5 else "")


def packed(texts: t.Iterable[str], width: int = 156) -> list[str]:
    """Return short texts in as few lines as possible, in order. A wide text, or one with a remedy, has its own line."""
    lines: list[str] = []
    for text in texts:
        if lines and len(lines[-1]) + 2 + len(text) <= width and "Remedy: " not in lines[-1] + text:
            lines[-1] += f"; {text}"
        else:
            lines.append(text)
    return lines


def aligned(rows: t.Sequence[t.Sequence[str]]) -> list[str]:
    """Return rows as lines with aligned columns; the last column is not padded."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join([*(cell.ljust(width) for cell, width in zip(row[:-1], widths)), row[-1]]) for row in rows]
