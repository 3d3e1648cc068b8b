# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""meminfo and what a cache drop would give back."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils import _memory
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures/meminfo"
RECORDED = (FIXTURES / "x86_64.txt").read_text()
BUDDYINFO = (FIXTURES / "buddyinfo_x86_64.txt").read_text()

GIB = 1024 * 1024


def meminfo(**gib: float) -> dict[str, int]:
    return {"MemTotal": 128 * GIB, "MemAvailable": 100 * GIB, **{name: int(value * GIB) for name, value in gib.items()}}


def test_a_recorded_meminfo_is_read_whole():
    parsed = _memory.parse_meminfo(RECORDED)
    assert len(parsed) == len(RECORDED.splitlines())
    assert parsed["MemTotal"] > parsed["MemAvailable"] > 0
    assert parsed["HugePages_Total"] == 0


def test_figures_are_mib_and_absent_fields_are_zero():
    figures = _memory.figures({"MemTotal": 4096, "MemAvailable": 2047})
    assert figures["total_mb"] == 4 and figures["available_mb"] == 1 and figures["slab_reclaimable_mb"] == 0
    assert figures.keys() == _memory.FIGURES.keys()


@pytest.mark.parametrize("text", ["", "MemTotal: 1 kB\n", "MemTotal 1 kB", RECORDED + "garbage\n", RECORDED.replace("MemAvailable", "MemGuess")])
def test_what_cannot_be_read_is_unknown(text):
    with pytest.raises(UnknownState) as caught:
        _memory.parse_meminfo(text)
    assert caught.value.details["raw"] == text


def test_an_unreadable_file_is_unknown(tmp_path):
    with pytest.raises(UnknownState, match="cannot be read"):
        _memory.read_meminfo(str(tmp_path))


@pytest.mark.parametrize(
    ("level", "gib"),
    [(1, 50 + 1 - 2 - 4 - 3 - 6), (2, 5), (3, 50 + 1 - 2 - 4 - 3 - 6 + 5)],
)
def test_the_prediction_of_each_level(level, gib):
    facts = meminfo(Cached=50, Buffers=1, Shmem=2, Dirty=4, Writeback=6, Mapped=3, SReclaimable=5)
    assert _memory.reclaimable_mb(facts, level) == gib * 1024


def test_the_prediction_is_never_negative():
    assert _memory.reclaimable_mb(meminfo(Cached=1, Buffers=0, Shmem=3), 1) == 0
    assert _memory.reclaimable_mb(meminfo(Cached=1, Buffers=0, Shmem=3, SReclaimable=2), 3) == 2048


def test_a_recorded_buddyinfo_is_read_whole():
    zones = _memory.parse_buddyinfo(BUDDYINFO)
    assert len(zones) == len(BUDDYINFO.splitlines()) and {len(counts) for counts in zones} == {11}


@pytest.mark.parametrize("text", ["", "Node 0, zone DMA\n", BUDDYINFO + "garbage\n", "Node 0, zone DMA 1 2 x\n"])
def test_a_buddyinfo_of_another_shape_is_unknown(text):
    with pytest.raises(UnknownState) as caught:
        _memory.parse_buddyinfo(text)
    assert caught.value.details["raw"] == text


def test_an_unreadable_buddyinfo_is_unknown(tmp_path):
    with pytest.raises(UnknownState, match="cannot be read"):
        _memory.read_buddyinfo(str(tmp_path))


@pytest.mark.parametrize(
    ("huge_kib", "page_kib", "mib"),
    # 4 KiB pages: a huge page of 2 MiB is a block of order 9; 64 KiB pages: one of 512 MiB is order 13, one of 2 MiB order 5.
    [(2048, 4, 3 * 2 + 5 * 4), (2048, 64, 7 * 2 + 3 * 32 + 5 * 64), (524288, 64, 0), (4, 4, (7 * 128 + 3 * 2048 + 5 * 4096) // 1024)],
)
def test_what_is_free_in_huge_blocks(huge_kib, page_kib, mib):
    counts = [0] * 11
    counts[5], counts[9], counts[10] = 7, 3, 5
    assert _memory.huge_free_mb([counts], huge_kib, page_kib) == mib
    assert _memory.huge_free_mb([counts, counts], huge_kib, page_kib) >= 2 * mib
