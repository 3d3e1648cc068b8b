# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node's memory figures, read from meminfo. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import Section, optional_number, optional_text, required_text, strict

#: Ids of the findings about returned memory that can stop or warn.
IDS = ("memory.back",)

KIB_PER_MIB = 1024

#: Result key → meminfo name, for the figures that are shown side by side.
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

#: The same for other uses of memory than the page cache; ``node_info`` shows them as well.
MORE_FIGURES = {
    "anon_mb": "AnonPages",
    "sunreclaim_mb": "SUnreclaim",
    "kernel_stack_mb": "KernelStack",
    "page_tables_mb": "PageTables",
    "hugetlb_mb": "Hugetlb",
    "committed_as_mb": "Committed_AS",
}

_LINE = re.compile(r"^(?P<name>[A-Za-z0-9_()]+):\s+(?P<value>[0-9]{1,20})(?: kB)?\s*$")

_VMSTAT = re.compile(r"^(?P<name>[A-Za-z0-9_]+) (?P<value>-?[0-9]{1,20})$")

#: One line of a pressure file: percent of the time, then microseconds since boot (the kernel's ``Documentation/accounting/psi.rst``).
_PRESSURE = re.compile(
    r"^(?P<kind>some|full) avg10=(?P<avg10>[0-9]{1,3}\.[0-9]{2}) avg60=(?P<avg60>[0-9]{1,3}\.[0-9]{2}) avg300=(?P<avg300>[0-9]{1,3}\.[0-9]{2})"
    r" total=(?P<total_us>[0-9]{1,20})$"
)

_BUDDY = re.compile(r"^Node (?P<node>\d+), zone +(?P<zone>\S+) +(?P<counts>[0-9]{1,20}(?: +[0-9]{1,20})*)\s*$")

#: The required fields: without one of them the text counts as unreadable, not the field as zero.
_REQUIRED = ("MemTotal", "MemAvailable", "Cached", "Buffers")


def _lines(text: str, pattern: re.Pattern[str], source: str) -> list[re.Match[str]]:
    """Return the match of each line that is not empty. Raises :class:`UnknownState` for a line of another shape."""
    lines = [line for line in text.splitlines() if line.strip()]
    matches = [match for match in map(pattern.match, lines) if match]
    if len(matches) < len(lines):
        wrong = next(line for line in lines if not pattern.match(line))
        raise UnknownState(f"{source} has a line that cannot be read: {wrong[:200]!r}", raw=text[:4000])
    return matches


def _read(path: str, parse: t.Callable[[str], t.Any]) -> t.Any:
    """Return the parsed content of a file. Raises :class:`UnknownState` when it cannot be read."""
    try:
        return parse(required_text(path))
    except OSError as error:
        raise UnknownState(f"{path} cannot be read: {error.strerror}", raw=str(error)) from error


def parse_meminfo(text: str) -> dict[str, int]:
    """Return the numbers of a meminfo text by name; sizes are KiB, as the kernel prints them.

    Raises :class:`UnknownState` for a line of another shape, or when a required field is missing.
    """
    values = {match["name"]: int(match["value"]) for match in _lines(text, _LINE, "meminfo")}
    missing = [name for name in _REQUIRED if name not in values]
    if missing:
        raise UnknownState(f"meminfo does not report {', '.join(missing)}", raw=text)
    return values


def read_meminfo(proc_root: str = "/proc", path: str | None = None) -> dict[str, int]:
    """Return the meminfo of this node, in KiB, from ``path`` where one is given. Raises :class:`UnknownState` when it cannot be read."""
    return _read(path or os.path.join(proc_root, "meminfo"), parse_meminfo)


def figures(meminfo: t.Mapping[str, int], fields: t.Mapping[str, str] | None = None) -> dict[str, int]:
    """Return some figures of meminfo in MiB (rounded down), without ``fields`` those of :data:`FIGURES`; a field that this kernel does not have is 0."""
    return {key: meminfo.get(name, 0) // KIB_PER_MIB for key, name in (fields or FIGURES).items()}


def reclaimable_mb(meminfo: dict[str, int], level: int) -> int:
    """Predict how many MiB a cache drop of ``level`` (1, 2 or 3) frees; never below 0.

    Level 1 drops clean pages of files: ``Cached`` and ``Buffers``, less the pages that are counted there and stay. The kernel skips
    pages that are dirty, under writeback or mapped (``invalidate_mapping_pages``, and ``drop_caches`` in its admin-guide
    ``sysctl/vm.rst``), and ``Shmem`` has no file behind it although ``Cached`` counts it. Mapped shared memory is subtracted twice
    and pages locked in memory are unknown, so the prediction errs on the low side for the first and on the high side for the second.
    Level 2 drops ``SReclaimable``, of which some is in use and stays; level 3 both.
    """
    stays = sum(meminfo.get(name, 0) for name in ("Shmem", "Dirty", "Writeback", "Mapped"))
    pages = meminfo.get("Cached", 0) + meminfo.get("Buffers", 0) - stays
    return (max(pages, 0) * (level & 1) + meminfo.get("SReclaimable", 0) * (level >> 1 & 1)) // KIB_PER_MIB


def parse_buddyinfo(text: str) -> list[list[int]]:
    """Return the free blocks of each zone by order: entry ``n`` counts blocks of ``2 ** n`` pages.

    Raises :class:`UnknownState` for a line of another shape, or without any.
    """
    zones = [[int(count) for count in match["counts"].split()] for match in _lines(text, _BUDDY, "buddyinfo")]
    if not zones:
        raise UnknownState("buddyinfo names no zone", raw=text)
    return zones


def read_buddyinfo(proc_root: str = "/proc") -> list[list[int]]:
    """Return the buddyinfo of this node. Raises :class:`UnknownState` when it cannot be read."""
    return _read(os.path.join(proc_root, "buddyinfo"), parse_buddyinfo)


def huge_free_mb(zones: list[list[int]], huge_kib: int, page_kib: int) -> int:
    """Return how many MiB are free in blocks that hold at least one huge page of ``huge_kib`` KiB; pages have ``page_kib``."""
    order = max(huge_kib // page_kib, 1).bit_length() - 1
    return page_kib * sum(count << n for counts in zones for n, count in enumerate(counts) if n >= order) // KIB_PER_MIB


def parse_vmstat(text: str) -> dict[str, int]:
    """Return the counters of a ``/proc/vmstat`` text by name. Raises :class:`UnknownState` for a line of another shape, or without any."""
    counters = {match["name"]: int(match["value"]) for match in _lines(text, _VMSTAT, "vmstat")}
    if not counters:
        raise UnknownState("vmstat counts nothing", raw=text[:4000])
    return counters


def parse_pressure(text: str) -> dict[str, dict[str, float | int]]:
    """Return a pressure file as ``{some|full: {avg10, avg60, avg300, total_us}}``: percent of the last seconds, and microseconds since boot.

    Raises :class:`UnknownState` for a line of another shape, or when ``some`` is missing. Not every resource has ``full``.
    """
    shares: dict[str, dict[str, float | int]] = {
        match["kind"]: {**{name: float(match[name]) for name in ("avg10", "avg60", "avg300")}, "total_us": int(match["total_us"])}
        for match in _lines(text, _PRESSURE, "the kernel's pressure file")
    }
    if "some" not in shares:
        raise UnknownState("the kernel shows no pressure", raw=text[:4000])
    return shares


def _swap_activity(proc_root: str) -> dict[str, int]:
    counters = parse_vmstat(required_text(os.path.join(proc_root, "vmstat")))
    # A kernel built without swap counts neither, and has moved nothing.
    return {"swap_in_pages": counters.get("pswpin", 0), "swap_out_pages": counters.get("pswpout", 0)}


def _pressure(proc_root: str) -> dict[str, dict[str, float | int]] | None:
    text = optional_text(os.path.join(proc_root, "pressure", "memory"))
    return None if text is None else parse_pressure(text)


def memory(proc_root: str = "/proc", meminfo: str | None = None, section: Section = strict) -> dict[str, t.Any]:
    """Return the section ``memory`` of ``node_info``.

    :data:`FIGURES` and :data:`MORE_FIGURES` in MiB from meminfo; ``cma_total_mb``, None where the kernel has no such memory; ``swap_in_pages`` and
    ``swap_out_pages``, pages since boot, from ``vmstat``; ``swappiness`` (0 to 200); ``pressure`` as :func:`parse_pressure`, None where the kernel has no
    PSI. Raises :class:`UnknownState` when meminfo cannot be read; what else cannot be read is None and noted by ``section``.
    """
    known = read_meminfo(proc_root, meminfo)
    swap = section(lambda: _swap_activity(proc_root), {"swap_in_pages": None, "swap_out_pages": None})
    return {
        **figures(known),
        **figures(known, MORE_FIGURES),
        "cma_total_mb": known["CmaTotal"] // KIB_PER_MIB if "CmaTotal" in known else None,
        **swap,
        "swappiness": section(lambda: optional_number(os.path.join(proc_root, "sys", "vm", "swappiness"))),
        "pressure": section(lambda: _pressure(proc_root)),
    }
