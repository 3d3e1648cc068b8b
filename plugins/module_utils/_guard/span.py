# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A summary of the guard's records: the memory curve, silences, actions, and kernel lines. This module util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._guard import ring

#: The most lines and events that are returned.
MOST = 40
_KIB = 1024


def curve(samples: t.Sequence[tuple[float, int]], began: float, points: int) -> list[list[float]]:
    """Return ``[seconds since began, MiB]`` for at most ``points`` intervals, each with its lowest sample, so that no dip is lost."""
    if not samples:
        return []
    width = max(1.0, (samples[-1][0] - began) / points)
    lowest: dict[int, tuple[float, int]] = {}
    for at, kib in samples:
        interval = min(points - 1, int(max(0.0, at - began) / width))
        lowest[interval] = min(lowest.get(interval, (at, kib)), (at, kib), key=lambda sample: sample[1])
    return [[round(at - began, 1), kib // _KIB] for at, kib in (lowest[interval] for interval in sorted(lowest))]


def summary(records: t.Sequence[ring.Record], began: float, until: float, points: int) -> dict[str, t.Any]:
    """Return a summary of one boot's records from ``began`` until ``until`` (seconds since 1970).

    ``longest_silence_s`` is the longest time without a sample, including the time before the first and after the last sample.
    """
    taken = [record for record in records if "e" not in record]
    known = [(record["t"], record["a"]) for record in taken if isinstance(record.get("a"), int)]
    times = [began, *(record["t"] for record in taken), until]
    lowest = min(known, key=lambda sample: sample[1]) if known else None
    lines = list(dict.fromkeys((kind, text) for record in taken for kind, text in record.get("k") or []))
    return {
        "samples": len(known),
        "curve": curve(known, began, points),
        "lowest_mb": lowest[1] // _KIB if lowest else None,
        "lowest_after_s": round(lowest[0] - began, 1) if lowest else None,
        "longest_silence_s": round(max(later - earlier for earlier, later in zip(times, times[1:])), 1),
        "kernel": [list(line) for line in lines[:MOST]],
        "acts": [record["text"] for record in records if record.get("e") in ring.ACTS][:MOST],
    }
