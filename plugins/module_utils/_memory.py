# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node's memory holds, read from meminfo. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import re

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState

KIB_PER_MIB = 1024

#: Result key → meminfo name, for the figures that a person wants to see beside each other.
FIGURES = {
    "total_mb": "MemTotal",
    "free_mb": "MemFree",
    "available_mb": "MemAvailable",
    "cached_mb": "Cached",
    "buffers_mb": "Buffers",
    "slab_reclaimable_mb": "SReclaimable",
    "dirty_mb": "Dirty",
    "writeback_mb": "Writeback",
    "mapped_mb": "Mapped",
    "shmem_mb": "Shmem",
    "swap_total_mb": "SwapTotal",
    "swap_free_mb": "SwapFree",
}

_LINE = re.compile(r"^(?P<name>[A-Za-z0-9_()]+):\s+(?P<value>\d+)(?: kB)?\s*$")

_BUDDY = re.compile(r"^Node (?P<node>\d+), zone +(?P<zone>\S+) +(?P<counts>\d+(?: +\d+)*)\s*$")

#: Without these nothing can be judged, so their absence is an unreadable answer and not a zero.
_REQUIRED = ("MemTotal", "MemAvailable", "Cached", "Buffers")


def parse_meminfo(text: str) -> dict[str, int]:
    """Return the numbers of a meminfo text by name; sizes are KiB, as the kernel prints them.

    Raises :class:`UnknownState` for a line of another shape, or when a field is missing that no judgement can do without.
    """
    found: dict[str, int] = {}
    for line in filter(str.strip, text.splitlines()):
        match = _LINE.match(line)
        if not match:
            raise UnknownState(f"meminfo has a line that cannot be read: {line!r}", raw=text)
        found[match["name"]] = int(match["value"])
    missing = [name for name in _REQUIRED if name not in found]
    if missing:
        raise UnknownState(f"meminfo does not tell {', '.join(missing)}", raw=text)
    return found


def read_meminfo(proc_root: str = "/proc") -> dict[str, int]:
    """Return the meminfo of this node, in KiB. Raises :class:`UnknownState` when it cannot be read."""
    path = os.path.join(proc_root, "meminfo")
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            return parse_meminfo(stream.read())
    except OSError as error:
        raise UnknownState(f"{path} cannot be read: {error.strerror}", raw=str(error)) from error


def figures(meminfo: dict[str, int]) -> dict[str, int]:
    """Return the figures of :data:`FIGURES` in MiB (rounded down); a field this kernel does not have is 0."""
    return {key: meminfo.get(name, 0) // KIB_PER_MIB for key, name in FIGURES.items()}


def reclaimable_mb(meminfo: dict[str, int], level: int) -> int:
    """Predict how many MiB a cache drop of ``level`` (1, 2 or 3) gives back; never below 0.

    Level 1 drops clean pages of files: ``Cached`` and ``Buffers``, less what is counted there and stays. The kernel passes over
    pages that are dirty, under writeback or mapped (``invalidate_mapping_pages``, and ``drop_caches`` in its admin-guide
    ``sysctl/vm.rst``), and ``Shmem`` has no file behind it although ``Cached`` counts it. Mapped shared memory is subtracted twice
    and pages locked in memory are not known, so the prediction errs on the low side for the first and on the high side for the second.
    Level 2 drops ``SReclaimable``, of which some is in use and stays; level 3 both.
    """
    stays = sum(meminfo.get(name, 0) for name in ("Shmem", "Dirty", "Writeback", "Mapped"))
    pages = meminfo.get("Cached", 0) + meminfo.get("Buffers", 0) - stays
    slab = meminfo.get("SReclaimable", 0)
    return (max(pages, 0) * (level & 1) + slab * (level >> 1 & 1)) // KIB_PER_MIB


def parse_buddyinfo(text: str) -> list[list[int]]:
    """Return the free blocks of each zone by order: entry ``n`` counts blocks of ``2 ** n`` pages.

    Raises :class:`UnknownState` for a line of another shape, or when there is none.
    """
    zones = []
    for line in filter(str.strip, text.splitlines()):
        match = _BUDDY.match(line)
        if not match:
            raise UnknownState(f"buddyinfo has a line that cannot be read: {line!r}", raw=text)
        zones.append([int(count) for count in match["counts"].split()])
    if not zones:
        raise UnknownState("buddyinfo names no zone", raw=text)
    return zones


def read_buddyinfo(proc_root: str = "/proc") -> list[list[int]]:
    """Return the buddyinfo of this node. Raises :class:`UnknownState` when it cannot be read."""
    path = os.path.join(proc_root, "buddyinfo")
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            return parse_buddyinfo(stream.read())
    except OSError as error:
        raise UnknownState(f"{path} cannot be read: {error.strerror}", raw=str(error)) from error


def huge_free_mb(zones: list[list[int]], huge_kib: int, page_kib: int) -> int:
    """Return how many MiB are free in blocks that hold at least one huge page of ``huge_kib`` KiB; pages have ``page_kib``."""
    order = max(huge_kib // page_kib, 1).bit_length() - 1
    pages = sum(count << n for counts in zones for n, count in enumerate(counts) if n >= order)
    return pages * page_kib // KIB_PER_MIB
