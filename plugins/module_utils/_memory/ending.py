# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The level of available memory that a start stays above when it goes as expected. This module util is PRIVATE to the collection.

It comes from what starts of the same specification took on this node, else from the memory plan, whose whole error counts against it. It is decided once,
before the start, and recorded with the memory that is available then; the node's guard reads it there, and acts only below it.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._memory import components, plan, recipe
from ansible_collections.gb10.cluster.plugins.module_utils._memory.note import Level
from ansible_collections.gb10.cluster.plugins.module_utils._records import starts

#: GiB by which a healthy start may end lower than expected: what the kernel keeps from MemAvailable for minutes after a load (up to 0.87 GiB were
#: reported), and what other programs take meanwhile. The plan allows the same to a start's own record.
MARGIN = components.CONSTANTS["recorded"].within


def of_starts(known: t.Sequence[starts.Start], image_id: str, start_digest: str, available_mb: int) -> Level | None:
    """Return the level by starts of this image and specification, None without one.

    The lowest that any of them saw counts, and what the largest of them took of what is available now: neither memory that came back late before one of
    them nor others that hold more by now make a healthy start look too low.
    """
    mine = [one for one in known if one["image_id"] == image_id and one.get("start_digest") == start_digest]
    if not mine or not image_id or not start_digest:
        return None
    lowest = [min(one["lowest_mb"], one["steady_mb"]) for one in mine]
    took = max(one["before_mb"] - least for one, least in zip(mine, lowest))
    end = min(*lowest, available_mb - took)
    return below(end / 1024, f"the start of {mine[-1]['recorded_at'][:10]} took {took / 1024:.1f} GiB")


def of_plan(asked: t.Mapping[str, t.Any], total_mb: int, available_mb: int) -> Level:
    """Return the level by the memory plan of what is asked (``facts``, ``use``, ``declared_gib``, ``claims_gib``, ``lacks``), at the worst of its error."""
    if asked["lacks"]:
        return Level(None, f"no such start is recorded, and there is no memory plan without {', '.join(asked['lacks'])}")
    node = components.Node("", total_mb / 1024, asked["claims_gib"], available=available_mb / 1024)
    found = plan.node_plan(asked["facts"], recipe.Settings(**asked["use"]), node, asked["declared_gib"], 1)
    figures = min((found["serving"], found["loading"]), key=lambda one: one["available_gib"] - one["within_gib"])
    why = f"the memory plan leaves {figures['available_gib']:.1f} +/- {figures['within_gib']:.1f} GiB"
    return below(figures["available_gib"] - figures["within_gib"], why)


def below(end_gib: float, why: str) -> Level:
    """Return the level of a start that is expected to end there."""
    return Level(int((end_gib - MARGIN) * 1024), f"{why}, less {MARGIN:g}")
