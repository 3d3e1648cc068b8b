# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node's record before a cluster's start: the available memory, and the level that the start stays above. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import typing as t

#: The keys of the level that the start stays above (MiB, None where it is unknown), of the reason, and of the time of the record (seconds since boot).
LEVEL, WHY, UPTIME = "level_mb", "level_why", "uptime_s"


class Level(t.NamedTuple):
    """MiB of available memory that a start stays above, None where that is not known, and why."""

    mb: int | None
    why: str


def path_of(state_dir: str, cluster: str) -> str:
    """Return the path of the record."""
    return os.path.join(state_dir, cluster, "memory.json")


def level_of(note: t.Mapping[str, t.Any], boot: str, began: float) -> Level:
    """Return the level for ranks of which the first began so many seconds after the boot. The record of another start is ignored."""
    uptime, level, why = note.get(UPTIME), note.get(LEVEL), note.get(WHY)
    if not isinstance(uptime, int) or not isinstance(why, str) or not isinstance(level, (int, type(None))):
        return Level(None, "an older version of this collection noted the start")
    if note.get("boot_id") != boot or began < uptime - 1:
        return Level(None, "nothing was noted before this start")
    return Level(level, why)
