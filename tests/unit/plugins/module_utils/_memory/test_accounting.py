# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The account of memory, on recorded figures and on composed ones of a machine with unified memory."""

from __future__ import annotations

import json
import pathlib
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import driver_xml, zombies
from ansible_collections.gb10.cluster.plugins.module_utils._memory import accounting, node_memory
from ansible_collections.gb10.cluster.plugins.module_utils._memory.accounting import Conditions

FIXTURES = pathlib.Path(__file__).parents[3] / "fixtures"
SITUATIONS = FIXTURES / "gpu_situations"
GIB = 1024 * 1024
QUIET = Conditions(managed=0, live=0, movement="settled", baseline="")

BASELINE = {"schema": 1, "boot_id": "b1", "recorded_at": "2026-11-21T15:00:00Z", "unexplained_mb": 1500, "uptime_s": 100}


def recorded(path):
    return node_memory.parse_meminfo((FIXTURES / path).read_text())


def spark(lost_gib=0.0, **gib):
    """Composed: a node of 121 GiB with 2 GiB of programs, 1 GiB of the kernel's and 1.5 GiB that nothing explains when it is fresh."""
    figures = {"AnonPages": 2.0, "Shmem": 0.1, "SUnreclaim": 0.8, "KernelStack": 0.05, "PageTables": 0.05, "Hugetlb": 0.0, **gib}
    used = sum(figures.values()) + 1.5 + lost_gib
    return {"MemTotal": 121 * GIB, "MemAvailable": int((121 - used) * GIB), **{name: int(value * GIB) for name, value in figures.items()}}


# -- account ---------------------------------------------------------------------------------------------------------


def test_a_recorded_meminfo_by_hand():
    table = accounting.account(recorded("meminfo/x86_64.txt"), 0, True, None)
    # (24684092 - 21886488) - (2110072 + 10080 + 92252 + 14016 + 22304 + 0) KiB
    assert table["used_mb"] == 2797604 // 1024 and table["explained_mb"] == 2248724 // 1024
    assert table["unexplained_mb"] == table["before_baseline_mb"] == (2797604 - 2248724) // 1024
    assert table["calibrated"] is False and "MemAvailable" in table["formula"]


def test_what_gpu_processes_hold_counts_on_unified_memory_alone():
    assert accounting.account(spark(lost_gib=40), 40 * 1024, True, 1536)["unexplained_mb"] in (-1, 0)
    assert accounting.account(spark(lost_gib=40), 40 * 1024, False, 1536)["unexplained_mb"] in (40 * 1024 - 1, 40 * 1024)
    assert accounting.account(spark(), None, True, None)["unexplained_mb"] is None
    assert accounting.account(spark(), None, False, None)["unexplained_mb"] is not None


@pytest.mark.parametrize("situation", ["idle", "live", "orphan", "orphan_ended", "defunct", "pinned"])
def test_on_a_real_gpu_with_its_own_memory_nothing_is_missing(situation):
    """4 GiB of the GPU's are none of the machine's, and pinned memory counts as Shmem there."""
    gpus = driver_xml.parse_gpus((SITUATIONS / situation / "smi.xml").read_text())
    table = accounting.account(recorded(f"gpu_situations/{situation}/meminfo"), zombies.sum_mib(zombies.listed(gpus)), zombies.unified(gpus), None)
    idle = accounting.account(recorded("gpu_situations/idle/meminfo"), 0, False, None)
    assert abs(table["unexplained_mb"] - idle["unexplained_mb"]) < 256
    assert accounting.judge_leak(table, 1, QUIET)[0] == "not judged"


def test_managed_memory_of_a_living_process_is_why_a_live_one_is_a_doubt():
    before, during = (accounting.account(recorded(f"gpu_situations/managed/{name}"), 0, False, None) for name in ("meminfo_before", "meminfo"))
    assert 1024 <= during["unexplained_mb"] - before["unexplained_mb"] < 1024 + 256


# -- judging ---------------------------------------------------------------------------------------------------------


def judged(lost_gib, now=QUIET, baseline_mb=1536, gpu_mib=0, unified=True):
    return accounting.judge_leak(accounting.account(spark(lost_gib=lost_gib), gpu_mib, unified, baseline_mb), 4096, now)


def test_a_leak_is_proven_from_the_threshold_on():
    assert judged(3.9) == ("none", [])
    assert judged(4.1) == ("proven", [])
    assert judged(104) == ("proven", [])


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (QUIET._replace(live=1), "1 GPU process"),
        (QUIET._replace(managed=None), "it is unknown whether"),
        (QUIET._replace(movement="one sample"), "one sample"),
        (QUIET._replace(movement="rising"), "rising"),
        (QUIET._replace(baseline="no baseline of this boot was recorded"), "no baseline"),
    ],
)
def test_each_doubt_makes_it_a_suspicion(now, says):
    state, doubts = judged(40, now)
    assert state == "suspected" and len(doubts) == 1 and says in doubts[0]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"now": QUIET._replace(managed=1)}, "container"),
        ({"unified": False}, "memory of its own"),
        ({"unified": None}, "no GPU"),
        ({"gpu_mib": None}, "does not report"),
    ],
)
def test_a_leak_that_is_not_judged_has_a_reason(more, says):
    state, reasons = judged(40, **more)
    assert state == "not judged" and says in reasons[0]


@given(
    st.fixed_dictionaries({name: st.integers(0, 2**40) for name in ("MemTotal", "MemAvailable", *accounting.EXPLAINED.values())}),
    st.none() | st.integers(0, 10**6),
    st.sampled_from([True, False, None]),
    st.none() | st.integers(-1000, 10**6),
    st.builds(
        Conditions,
        st.none() | st.integers(0, 3),
        st.integers(0, 3),
        st.sampled_from(["one sample", "settled", "rising", "falling"]),
        st.sampled_from(["", "no baseline"]),
    ),
)
@settings(max_examples=300, deadline=None)
def test_a_leak_is_proven_under_no_doubt_and_never_without_unified_memory(meminfo, gpu_mib, unified, baseline, now):
    table = accounting.account(meminfo, gpu_mib, unified, baseline)
    state, reasons = accounting.judge_leak(table, 4096, now)
    assert (state in ("none", "proven")) == (not reasons)
    if state == "proven":
        assert unified and table["unexplained_mb"] >= 4096 and now == QUIET


# -- samples ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "tells"),
    [([5], "one sample"), ([100, 355], "settled"), ([100, 356], "rising"), ([500, 100], "falling"), ([1, 9000, 9001], "settled"), ([], "one sample")],
)
def test_how_samples_move(samples, tells):
    assert accounting.movement(samples, 256) == tells


def test_memory_after_a_real_process_ended_settles():
    rows = [json.loads(line) for line in (SITUATIONS / "orphan_ended" / "samples.jsonl").read_text().splitlines()]
    samples = [int(row["mem_available"].split()[0]) // 1024 for row in rows]
    assert accounting.movement(samples, 256) == "settled" and samples[-1] - samples[0] > 100


# -- baseline --------------------------------------------------------------------------------------------------------


def test_a_baseline_counts_for_its_boot_alone(tmp_path):
    path = accounting.baseline_path(str(tmp_path / "state"))
    assert accounting.baseline_of(path, "b1") == (None, "no baseline of this boot was recorded")
    accounting.write_baseline(path, BASELINE)
    assert accounting.baseline_of(path, "b1") == (BASELINE, "")
    baseline, why = accounting.baseline_of(path, "b2")
    assert baseline is None and "another boot" in why and BASELINE["recorded_at"] in why


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "\0", "[" * 100000, *(json.dumps({**BASELINE, **wrong}) for wrong in ({"schema": 2}, {"unexplained_mb": "1"}, {"uptime_s": True}))],
)
def test_a_broken_baseline_is_a_doubt_and_never_a_figure(tmp_path, text):
    (tmp_path / "baseline.json").write_text(text)
    baseline, why = accounting.baseline_of(str(tmp_path / "baseline.json"), "b1")
    assert baseline is None and "baseline" in why


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_mutated_baseline_is_one_or_unknown(data):
    text = list(json.dumps(BASELINE))
    for _change in range(data.draw(st.integers(1, 4))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.text(max_size=3))
    try:
        assert isinstance(accounting.parse_baseline("".join(text))["unexplained_mb"], int)
    except UnknownState as error:
        assert "raw" in error.details


def test_a_baseline_that_may_not_be_written_or_read(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ClusterError, match="cannot be written"):
        accounting.write_baseline(str(tmp_path / "file" / "baseline.json"), BASELINE)
    with pytest.raises(UnknownState, match="cannot be read"):
        accounting.read_baseline(str(tmp_path))


# -- what was stopped ------------------------------------------------------------------------------------------------


def note(root, cluster, ended_at, noted):
    (root / cluster / "run").mkdir(parents=True)
    (root / cluster / "run" / "exit.json").write_text(json.dumps({"ended_at": ended_at}))
    (root / cluster / "memory.json").write_text(json.dumps({"available_mb": noted}))


def test_the_last_stop_of_any_cluster(tmp_path):
    assert accounting.last_stop(str(tmp_path / "none")) == (None, None)
    now = time.time()
    note(tmp_path, "a", now - 500, 1000)
    note(tmp_path, "b", now - 20, 2000)
    note(tmp_path, "c", "yesterday", 3)
    (tmp_path / "baseline.json").write_text("{}")
    seconds, noted = accounting.last_stop(str(tmp_path))
    assert 20 <= seconds < 60 and noted == 2000
    note(tmp_path, "d", now + 9999, "much")
    assert accounting.last_stop(str(tmp_path)) == (0.0, None)
