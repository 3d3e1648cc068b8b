# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What starts that went well took of a node's memory, on record. This module util is PRIVATE to the collection.

A record is worth more than any plan, for what it is of: the same image, the same profile (by the digest of what memory follows from) and the same driver.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.documents import lacking
from ansible_collections.gb10.cluster.plugins.module_utils._records import records

#: Starts that a node keeps of a cluster; the oldest go.
KEEP = 32

Start = dict[str, t.Any]

#: What every record has, with its type. ``before_mb`` was available before the start, ``lowest_mb`` is the least that was seen while it started and
#: ``steady_mb`` what was available once it had answered; ``context`` is the length in tokens (the rung).
KEYS: dict[str, type] = {
    "image_id": str, "profile": str, "profile_digest": str, "driver": str, "kernel": str, "boot_id": str, "run_id": str, "recorded_at": str,
    "context": int, "total_mb": int, "before_mb": int, "lowest_mb": int, "steady_mb": int,
}  # fmt: skip


#: Where they lie: 1 MiB is many times what :data:`KEEP` records take.
FILE = records.RecordFile(
    "starts", "starts", 1 << 20, lambda start: lacking(start, KEYS), "the next bring-up records its start again"
)


def last(state_dir: str, cluster: str) -> dict[str, t.Any]:
    """Return the newest record of a cluster in short, empty without one. What is wrong with the file is its ``error``."""
    try:
        known = FILE.read(FILE.path_of(state_dir, cluster))
    except UnknownState as error:
        return {"error": f"{error}. Remedy: {error.remedy}"}
    if not known:
        return {}
    one = known[-1]
    short = {"took_mb": max(0, one["before_mb"] - one["steady_mb"]), "left_mb": one["steady_mb"]}
    return {**{name: one[name] for name in ("profile", "context", "recorded_at")}, **short, "error": ""}


def same(one: Start, image_id: str, profile_digest: str, driver: str) -> bool:
    """Return whether a record is of this image, profile and driver."""
    return (one["image_id"], one["profile_digest"], one["driver"]) == (image_id, profile_digest, driver)


def with_start(starts: t.Sequence[Start], new: Start) -> list[Start]:
    """Return the records with a new one, which takes the place of that of the same image, profile, driver and context."""
    alike = (one for one in starts if one["context"] == new["context"] and same(one, new["image_id"], new["profile_digest"], new["driver"]))
    replaced = [id(one) for one in alike]
    return [*(one for one in starts if id(one) not in replaced), new][-KEEP:]


def taken_gib(starts: t.Sequence[Start], context: int) -> tuple[float, float] | None:
    """Return the most GiB that starts of at most ``context`` tokens took (once they had answered, at their peak), None without one.

    A longer context takes no less, so a shorter one's record counts, and a longer one's does not.
    """
    known = [one for one in starts if one["context"] <= context]
    if not known:
        return None
    steady = max(one["before_mb"] - one["steady_mb"] for one in known)
    peak = max(one["before_mb"] - min(one["lowest_mb"], one["steady_mb"]) for one in known)
    return max(0, steady) / 1024, max(0, peak) / 1024


def bears(starts: t.Sequence[Start], context: int) -> bool:
    """Return whether a start with at least ``context`` tokens is among these records."""
    return any(one["context"] >= context for one in starts)
