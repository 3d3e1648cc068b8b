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
    "mapped_mb": "Mapped",
    "shmem_mb": "Shmem",
    "swap_total_mb": "SwapTotal",
    "swap_free_mb": "SwapFree",
}

_LINE = re.compile(r"^(?P<name>[A-Za-z0-9_()]+):\s+(?P<value>\d+)(?: kB)?\s*$")

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

    Level 1 drops clean pages of files: ``Cached`` and ``Buffers``, less what is counted there and stays: ``Shmem`` (has no file
    behind it), ``Dirty`` (not yet written) and ``Mapped`` (in use by processes). Mapped shared memory is subtracted twice, so the
    prediction errs on the low side. Level 2 drops ``SReclaimable``, level 3 both.
    """
    pages = sum(meminfo.get(name, 0) for name in ("Cached", "Buffers")) - sum(meminfo.get(name, 0) for name in ("Shmem", "Dirty", "Mapped"))
    slab = meminfo.get("SReclaimable", 0)
    return (max(pages, 0) * (level & 1) + slab * (level >> 1 & 1)) // KIB_PER_MIB
