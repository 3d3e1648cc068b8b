# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Recorded recipes with the memory plan's figures for them. As a program it prints the table of docs/plan.md."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.gb10.cluster.plugins.plugin_utils._plan import planning  # noqa: E402

RECORDS: list[dict[str, Any]] = planning.recipes()


def planned(record: dict[str, Any]) -> dict[str, Any]:
    nodes = [record["node"]] * record["nodes"] if "node" in record else None
    return planning.memory_plan(planning.recorded_profile(record), nodes=nodes)


def weights(plan: dict[str, Any]) -> float:
    return next(part["gib"] for part in plan["nodes"][0]["components"] if part["id"] == "weights")


def markdown() -> list[str]:
    """The rows of the table in docs/plan.md."""
    rows = ["| Recipe | Reported | Plan | Available, planned (reported) | KV cache, planned (reported) |", "|---|---|---|---|---|"]
    for record in RECORDS:
        plan = planned(record)
        node = plan["nodes"][0]
        serving = node["serving"]
        left = f"{serving['available_gib']:.1f} ± {serving['within_gib']:.1f}" + (f" ({record['available']:g})" if "available" in record else "")
        pool = f"{node['pool_gib']:.1f}" + (f" ({record['pool']:g})" if "pool" in record else "")
        rows.append(f"| {record['id']} | {'runs' if record['runs'] else 'fails'} | {plan['verdict']} | {left} | {pool} |")
    return rows


if __name__ == "__main__":
    print("\n".join(markdown()))
