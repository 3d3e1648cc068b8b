# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records of the memory that successful starts needed on a node. This module util is PRIVATE to the collection.

A record is better than any plan for the same image, the same profile (by the digest of the values that memory depends on) and the same driver.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._files.documents import lacking
from ansible_collections.gb10.cluster.plugins.module_utils._records import cold_starts, records

#: Starts that a node keeps per cluster.
KEEP = 32

Start = dict[str, t.Any]

#: The keys of every record, with their types. ``before_mb`` was available before the start, ``lowest_mb`` is the minimum during the start, and
#: ``steady_mb`` was available after the first answer. ``context`` is the length in tokens (the rung). The head's also have ``cold_start``
#: (:mod:`cold_starts`), unless an older version of the collection wrote them.
KEYS: dict[str, type] = {
    "image_id": str, "profile": str, "profile_digest": str, "driver": str, "kernel": str, "boot_id": str, "run_id": str, "recorded_at": str,
    "context": int, "total_mb": int, "before_mb": int, "lowest_mb": int, "steady_mb": int,
}  # fmt: skip


def _problem_of(start: t.Any) -> str:
    return lacking(start, KEYS) or ("" if start.get("cold_start") is None else cold_starts.problem_of(start["cold_start"]))


#: Their file. 1 MiB is many times the size of :data:`KEEP` records.
FILE = records.RecordFile(
    "starts", "starts", 1 << 20, _problem_of, "the next bring-up records its start again",
    KEEP, lambda start: tuple(start[name] for name in ("image_id", "profile_digest", "driver", "context")),
)  # fmt: skip


def last(state_dir: str, cluster: str) -> dict[str, t.Any]:
    """Return a summary of a cluster's newest record, as :meth:`records.RecordFile.last` does."""
    start = FILE.last(state_dir, cluster)
    if not start or start["error"]:
        return start
    return {
        **{name: start[name] for name in ("profile", "context", "recorded_at", "error")},
        "took_mb": max(0, start["before_mb"] - start["steady_mb"]),
        "left_mb": start["steady_mb"],
    }


def same(start: Start, image_id: str, profile_digest: str, driver: str) -> bool:
    """Return whether a record has this image, profile and driver."""
    return (start["image_id"], start["profile_digest"], start["driver"]) == (image_id, profile_digest, driver)


def taken_gib(starts: t.Sequence[Start], context: int) -> tuple[float, float] | None:
    """Return the most GiB that starts of at most ``context`` tokens needed (after the first answer, at their peak), None without such a start.

    A longer context needs at least as much, so the record of a shorter one counts, and that of a longer one does not.
    """
    known = [start for start in starts if start["context"] <= context]
    if not known:
        return None
    steady = max(start["before_mb"] - start["steady_mb"] for start in known)
    peak = max(start["before_mb"] - min(start["lowest_mb"], start["steady_mb"]) for start in known)
    return max(0, steady) / 1024, max(0, peak) / 1024


def bears(starts: t.Sequence[Start], context: int) -> bool:
    """Return whether a start with at least ``context`` tokens is among these records."""
    return any(start["context"] >= context for start in starts)
