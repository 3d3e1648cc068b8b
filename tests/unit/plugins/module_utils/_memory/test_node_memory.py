# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""meminfo and what a cache drop would free."""

from __future__ import annotations

import pathlib

import hypothesis
import hypothesis.strategies as st
import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._memory import node_memory

FIXTURES = pathlib.Path(__file__).parents[3] / "fixtures/meminfo"
RECORDED = (FIXTURES / "x86_64.txt").read_text()
BUDDYINFO = (FIXTURES / "buddyinfo_x86_64.txt").read_text()

GIB = 1024 * 1024


def meminfo(**gib: float) -> dict[str, int]:
    return {"MemTotal": 128 * GIB, "MemAvailable": 100 * GIB, **{name: int(value * GIB) for name, value in gib.items()}}


def test_a_recorded_meminfo_is_read_whole():
    parsed = node_memory.parse_meminfo(RECORDED)
    assert len(parsed) == len(RECORDED.splitlines())
    assert parsed["MemTotal"] > parsed["MemAvailable"] > 0
    assert parsed["HugePages_Total"] == 0


def test_figures_are_mib_and_absent_fields_are_zero():
    figures = node_memory.figures({"MemTotal": 4096, "MemAvailable": 2047})
    assert figures["total_mb"] == 4 and figures["available_mb"] == 1 and figures["slab_reclaimable_mb"] == 0
    assert figures.keys() == node_memory.FIGURES.keys()


@pytest.mark.parametrize("text", ["", "MemTotal: 1 kB\n", "MemTotal 1 kB", RECORDED + "garbage\n", RECORDED.replace("MemAvailable", "MemGuess")])
def test_what_cannot_be_read_is_unknown(text):
    with pytest.raises(UnknownState) as caught:
        node_memory.parse_meminfo(text)
    assert caught.value.details["raw"] == text


def test_an_unreadable_file_is_unknown(tmp_path):
    with pytest.raises(UnknownState, match="cannot be read"):
        node_memory.read_meminfo(str(tmp_path))


@pytest.mark.parametrize(
    ("level", "gib"),
    [(1, 50 + 1 - 2 - 4 - 3 - 6), (2, 5), (3, 50 + 1 - 2 - 4 - 3 - 6 + 5)],
)
def test_the_prediction_of_each_level(level, gib):
    facts = meminfo(Cached=50, Buffers=1, Shmem=2, Dirty=4, Writeback=6, Mapped=3, SReclaimable=5)
    assert node_memory.reclaimable_mb(facts, level) == gib * 1024


def test_the_prediction_is_never_negative():
    assert node_memory.reclaimable_mb(meminfo(Cached=1, Buffers=0, Shmem=3), 1) == 0
    assert node_memory.reclaimable_mb(meminfo(Cached=1, Buffers=0, Shmem=3, SReclaimable=2), 3) == 2048


def test_a_recorded_buddyinfo_is_read_whole():
    zones = node_memory.parse_buddyinfo(BUDDYINFO)
    assert len(zones) == len(BUDDYINFO.splitlines()) and {len(counts) for counts in zones} == {11}


@pytest.mark.parametrize("text", ["", "Node 0, zone DMA\n", BUDDYINFO + "garbage\n", "Node 0, zone DMA 1 2 x\n"])
def test_a_buddyinfo_of_another_shape_is_unknown(text):
    with pytest.raises(UnknownState) as caught:
        node_memory.parse_buddyinfo(text)
    assert caught.value.details["raw"] == text


def test_an_unreadable_buddyinfo_is_unknown(tmp_path):
    with pytest.raises(UnknownState, match="cannot be read"):
        node_memory.read_buddyinfo(str(tmp_path))


@pytest.mark.parametrize(
    ("huge_kib", "page_kib", "mib"),
    # 4 KiB pages: a huge page of 2 MiB is a block of order 9; 64 KiB pages: one of 512 MiB is order 13, one of 2 MiB order 5.
    [(2048, 4, 3 * 2 + 5 * 4), (2048, 64, 7 * 2 + 3 * 32 + 5 * 64), (524288, 64, 0), (4, 4, (7 * 128 + 3 * 2048 + 5 * 4096) // 1024)],
)
def test_what_is_free_in_huge_blocks(huge_kib, page_kib, mib):
    counts = [0] * 11
    counts[5], counts[9], counts[10] = 7, 3, 5
    assert node_memory.huge_free_mb([counts], huge_kib, page_kib) == mib
    assert node_memory.huge_free_mb([counts, counts], huge_kib, page_kib) >= 2 * mib


VMSTAT = (FIXTURES / "vmstat_x86_64.txt").read_text()
PRESSURE = (FIXTURES / "composed_pressure_memory.txt").read_text()


def proc(root: pathlib.Path, **files: str) -> str:
    for name, content in {"meminfo": RECORDED, "vmstat": VMSTAT, "sys__vm__swappiness": "60\n", "pressure__memory": PRESSURE, **files}.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return str(root)


def test_a_recorded_vmstat_is_read_whole():
    counters = node_memory.parse_vmstat(VMSTAT)
    assert len(counters) == len(VMSTAT.splitlines()) and counters["pswpin"] == counters["pswpout"] == 0 and counters["pgfault"] > 0


@pytest.mark.parametrize("text", ["", "pswpin\n", "pswpin x\n", VMSTAT + "garbage\n", "pswpin " + "9" * 30])
def test_a_vmstat_of_another_shape_is_unknown(text):
    with pytest.raises(UnknownState):
        node_memory.parse_vmstat(text)


def test_pressure():
    assert node_memory.parse_pressure(PRESSURE) == {
        "some": {"avg10": 12.34, "avg60": 5.6, "avg300": 1.07, "total_us": 987654321},
        "full": {"avg10": 10.0, "avg60": 4.44, "avg300": 0.9, "total_us": 876543210},
    }


@pytest.mark.parametrize("text", ["", PRESSURE.splitlines()[1], PRESSURE.replace("total", "sum"), PRESSURE.replace("5.60", "nan"), PRESSURE + "x\n"])
def test_pressure_of_another_shape_is_unknown(text):
    with pytest.raises(UnknownState):
        node_memory.parse_pressure(text)


def test_the_section(tmp_path):
    figures = node_memory.memory(proc(tmp_path, vmstat="pswpin 12\npswpout 345\n"))
    assert figures.keys() == {*node_memory.FIGURES, *node_memory.MORE_FIGURES, "cma_total_mb", "swap_in_pages", "swap_out_pages", "swappiness", "pressure"}
    assert (figures["anon_mb"], figures["sunreclaim_mb"], figures["page_tables_mb"]) == (2110072 // 1024, 92252 // 1024, 22304 // 1024)
    assert (figures["swap_in_pages"], figures["swap_out_pages"], figures["swappiness"]) == (12, 345, 60)
    assert figures["pressure"]["some"]["avg10"] == 12.34


def test_meminfo_from_another_place(tmp_path):
    other = tmp_path / "other"
    other.write_text(RECORDED.replace("24684092", "128000000"))
    assert node_memory.memory(proc(tmp_path / "proc"), str(other))["total_mb"] == 125000


@pytest.mark.parametrize(("line", "mib"), [("CmaTotal:         131072 kB\n", 128), ("CmaTotal:              0 kB\n", 0), ("", None)])
def test_memory_in_one_piece_is_nothing_or_unknown(tmp_path, line, mib):
    """Recorded of a Spark that serves, and of kernel 7.0.0-1019."""
    other = tmp_path / "other"
    other.write_text("".join(row for row in RECORDED.splitlines(keepends=True) if not row.startswith("Cma")) + line)
    assert node_memory.memory(proc(tmp_path / "proc"), str(other))["cma_total_mb"] == mib


def test_a_kernel_without_pressure(tmp_path):
    root = proc(tmp_path)
    (tmp_path / "pressure/memory").unlink()
    assert node_memory.memory(root)["pressure"] is None


def test_what_cannot_be_read_of_a_section_hides_nothing_else(tmp_path):
    errors = []

    def section(reader, otherwise=None):
        try:
            return reader()
        except (UnknownState, OSError) as error:
            errors.append(error)
            return otherwise

    figures = node_memory.memory(proc(tmp_path, vmstat="x", sys__vm__swappiness="x", pressure__memory="x"), None, section)
    assert figures["total_mb"] and figures["swap_in_pages"] is None and figures["swappiness"] is None and figures["pressure"] is None and len(errors) == 3
    with pytest.raises(UnknownState):
        node_memory.memory(proc(tmp_path, meminfo="x"), None, section)


@st.composite
def mutated(draw):
    """A real text with a piece replaced."""
    text = draw(st.sampled_from([RECORDED, VMSTAT, PRESSURE, BUDDYINFO]))
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(len(text), start + 200)))
    return text[:start] + draw(st.one_of(st.text(max_size=20), st.sampled_from(["9" * 5000, "\0", "-", "٣", "²", text[start:end] * 3]))) + text[end:]


@hypothesis.settings(deadline=None, derandomize=True, database=None)
@hypothesis.given(mutated())
def test_mutated_texts_are_read_or_unknown(text):
    for parse in (node_memory.parse_meminfo, node_memory.parse_vmstat, node_memory.parse_pressure, node_memory.parse_buddyinfo):
        try:
            parse(text)
        except UnknownState:
            pass
