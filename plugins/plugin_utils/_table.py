# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings as text. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

Finding = dict[str, t.Any]

#: From harmless to what stops; ``unknown`` stops like ``block``.
ORDER = ("pass", "silenced", "warn", "unknown", "block")
STOPPING = ("block", "unknown")


def worst(findings: t.Iterable[Finding]) -> str:
    """The gravest verdict among ``findings``; ``pass`` when there is none."""
    return max((finding["verdict"] for finding in findings), key=ORDER.index, default="pass")


def counts(findings: t.Sequence[Finding]) -> str:
    """One line: how many findings of each verdict, gravest first."""
    numbers = {verdict: sum(finding["verdict"] == verdict for finding in findings) for verdict in reversed(ORDER)}
    return ", ".join(f"{number} {verdict}" for verdict, number in numbers.items() if number) or "nothing judged"


def render(findings: t.Sequence[Finding]) -> list[str]:
    """Lines of a table, gravest first: verdict, id, node, message; the remedy on a line of its own below."""
    rows = sorted(findings, key=lambda finding: (-ORDER.index(finding["verdict"]), finding["id"], finding["node"]))
    widths = [max((len(str(row[column])) for row in rows), default=0) for column in ("verdict", "id", "node")]
    lines = []
    for row in rows:
        head = "  ".join(str(row[column]).ljust(width) for column, width in zip(("verdict", "id", "node"), widths))
        lines.append(f"{head}  {row['message']}")
        if row["verdict"] != "pass" and row.get("remedy"):
            lines.append(f"{' ' * (sum(widths) + 6)}→ {row['remedy']}")
    return lines


def reasons(findings: t.Sequence[Finding], stopping: t.Sequence[str] = STOPPING) -> str:
    """What stops, as one message: each finding with its remedy."""
    return "\n".join(
        f"{finding['node']}: {finding['message'].rstrip('.')}." + (f" Remedy: {finding['remedy']}" if finding.get("remedy") else "")
        for finding in findings
        if finding["verdict"] in stopping
    )
