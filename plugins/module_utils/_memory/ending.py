# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The level of available memory that a start stays above when it goes as expected. This module util is PRIVATE to the collection.

It is based on the memory that starts of the same specification took on this node, else on the memory plan less its whole error. It is calculated once,
before the start, and recorded with the memory that is available then; the node's guard reads it there, and acts only below it.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._memory import components, plan, recipe
from ansible_collections.gb10.cluster.plugins.module_utils._memory.note import Level
from ansible_collections.gb10.cluster.plugins.module_utils._records import starts

#: GiB by which a healthy start may end lower than expected: memory that the kernel leaves out of MemAvailable for minutes after a load (up to 0.87 GiB were
#: reported), and memory that other programs take meanwhile. The plan allows the same to a start's own record.
MARGIN = components.CONSTANTS["recorded"].within


def of_starts(known: t.Sequence[starts.Start], image_id: str, start_digest: str, available_mb: int) -> Level | None:
    """Return the level derived from starts of this image and specification, None without one.

    It is the lowest level of any of them, or, if lower, the memory available now less the most that one of them took. So neither memory that came back late
    before one of them, nor other processes that use more now, make a healthy start look too low.
    """
    mine = [start for start in known if start["image_id"] == image_id and start.get("start_digest") == start_digest]
    if not mine or not image_id or not start_digest:
        return None
    lowest = [min(start["lowest_mb"], start["steady_mb"]) for start in mine]
    took = max(start["before_mb"] - least for start, least in zip(mine, lowest))
    end = min(*lowest, available_mb - took)
    return below(end / 1024, f"the start of {mine[-1]['recorded_at'][:10]} took {took / 1024:.1f} GiB")


def of_plan(expected: t.Mapping[str, t.Any], total_mb: int, available_mb: int) -> Level:
    """Return the level by the memory plan of the expected start (``facts``, ``use``, ``declared_gib``, ``claims_gib``, ``lacks``), less the plan's error."""
    if expected["lacks"]:
        return Level(None, f"no such start is recorded, and there is no memory plan without {', '.join(expected['lacks'])}")
    node = components.Node("", total_mb / 1024, expected["claims_gib"], available=available_mb / 1024)
    planned = plan.node_plan(expected["facts"], recipe.Settings(**expected["use"]), node, expected["declared_gib"], 1)
    figures = min((planned["serving"], planned["loading"]), key=lambda phase: phase["available_gib"] - phase["within_gib"])
    why = f"the memory plan leaves {figures['available_gib']:.1f} +/- {figures['within_gib']:.1f} GiB"
    return below(figures["available_gib"] - figures["within_gib"], why)


def below(end_gib: float, why: str) -> Level:
    """Return the level of a start that is expected to end with so much available memory."""
    return Level(int((end_gib - MARGIN) * 1024), f"{why}, less {MARGIN:g}")
