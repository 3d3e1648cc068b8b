# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lists what clusters left on their nodes, as a table. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.plugin_utils._text.table import aligned

HEADINGS = ("kind", "node", "age", "size", "name")

#: Seconds in each unit of an age, largest first.
AGES = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def age_text(seconds: int) -> str:
    """Return an age in its largest unit: ``13 d``, ``4 h``."""
    unit, name = next(((unit, name) for unit, name in AGES if seconds >= unit), AGES[-1])
    return f"{seconds // unit} {name}"


def size_text(size: int) -> str:
    """Return bytes in a unit that leaves a short number: ``1.2 GiB``."""
    number, unit = float(size), UNITS[0]
    for larger in UNITS[1:]:
        if number < 1024:
            break
        number, unit = number / 1024, larger
    return f"{number:.0f} {unit}" if unit == UNITS[0] else f"{number:.1f} {unit}"


def lines(answers: dict[str, dict[str, t.Any]]) -> list[str]:
    """Return the table for all nodes, its totals, and the entries that are kept in the same places; ``answers`` are cluster_prune's by node."""
    rows = [
        (entry["kind"], node, age_text(entry["age_seconds"]), size_text(entry["size_bytes"]), f"{entry['name']} ({entry['why']})")
        for node, answer in answers.items()
        for entry in answer["candidates"]
    ]
    stays = [f"stays: {entry['name']} on {node} ({entry['why']})" for node, answer in answers.items() for entry in answer["left"]]
    if not rows:
        return ["nothing to remove", *stays]
    kinds = ", ".join(f"{sum(row[0] == kind for row in rows)} {kind}(s)" for kind in dict.fromkeys(row[0] for row in rows))
    total = size_text(sum(answer["total_bytes"] for answer in answers.values()))
    return [*aligned([HEADINGS, *rows]), f"total: {kinds}, {total}", *stays]
