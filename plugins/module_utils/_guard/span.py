# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a guard's records of some hours come to: the curve of the memory, silences, what it did, lines of the kernel. This module util is PRIVATE to the
collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._guard import ring

#: Most lines and events that are returned.
TOLD = 40
_KIB = 1024


def curve(samples: t.Sequence[tuple[float, int]], began: float, points: int) -> list[list[float]]:
    """Return ``[seconds since began, MiB]`` for at most so many pieces of time, each with the least of its samples, so that no dip is lost."""
    if not samples:
        return []
    wide = max(1.0, (samples[-1][0] - began) / points)
    least: dict[int, tuple[float, int]] = {}
    for at, kib in samples:
        place = min(points - 1, int(max(0.0, at - began) / wide))
        if place not in least or kib < least[place][1]:
            least[place] = (at, kib)
    return [[round(at - began, 1), kib // _KIB] for at, kib in (least[place] for place in sorted(least))]


def summary(records: t.Sequence[ring.Record], began: float, until: float, points: int) -> dict[str, t.Any]:
    """Return what records of one boot say of the time from ``began`` until ``until`` (seconds since 1970).

    ``longest_silence_s`` is the longest time without a sample, from the beginning and to the end as well.
    """
    taken = [one for one in records if "e" not in one]
    known = [(one["t"], one["a"]) for one in taken if isinstance(one.get("a"), int)]
    times = [began, *(one["t"] for one in taken), until]
    lowest = min(known, key=lambda sample: sample[1]) if known else None
    lines = list(dict.fromkeys((kind, text) for one in taken for kind, text in one.get("k") or []))
    return {
        "samples": len(known),
        "curve": curve(known, began, points),
        "lowest_mb": lowest[1] // _KIB if lowest else None,
        "lowest_after_s": round(lowest[0] - began, 1) if lowest else None,
        "longest_silence_s": round(max(later - earlier for earlier, later in zip(times, times[1:])), 1),
        "kernel": [list(line) for line in lines[:TOLD]],
        "acts": [one["text"] for one in records if one.get("e") in ring.ACTS][:TOLD],
    }
