# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The seconds of a start by stage: from recorded logs, beside the last start, as text, and which start is slow."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_log
from ansible_collections.gb10.cluster.plugins.module_utils._records import cold_starts

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
HEALTHY = "field/logs/healthy"
H100 = "gpu/h100-vllm-0.26.0-2026-11-26"


def lines_of(name):
    return engine_log.plain_lines((FIXTURES / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "seconds", "compiled"),
    [
        # With a drafter, and a download in "Model loading took": only the weights count.
        (f"{HEALTHY}/nemotron-3-super-120b-nvfp4-0.19-cold.log", {"weights": 606.4, "compile": 21.8, "graphs": 15.0, "warmup": 36.7}, "new"),
        (f"{HEALTHY}/ngc-26.01-qwen-fp8.log", {"weights": 83.7, "compile": 9.4, "graphs": 11.0, "warmup": 20.6}, "kept"),
        (f"{HEALTHY}/ngc-26.01-qwen3-fp8.log", {"weights": 170.6, "compile": 92.2, "graphs": 6.0, "warmup": 20.4}, "new"),
        (f"{HEALTHY}/qwen36-dflash-fork.log", {"weights": 151.1, "compile": 105.9, "graphs": 13.0, "warmup": 201.3}, "new"),
        # A loader that logs only the whole.
        (f"{H100}/qwen3-small-cold.log", {"weights": 2.0, "compile": 13.0, "graphs": 1.0, "warmup": 84.4}, "new"),
        # Eager, on CPUs, over two nodes: nothing is compiled or captured.
        ("vllm/ready_ray_tp2.log", {"weights": 0.0, "warmup": 0.8}, ""),
        ("vllm/failed_unknown_argument.log", {}, ""),
    ],
)
def test_a_log_shows_its_stages_and_no_others(name, seconds, compiled):
    assert cold_starts.of_log(lines_of(name)) == {"seconds": pytest.approx(seconds, abs=0.11), "compiled": compiled}
    assert list(cold_starts.of_log(lines_of(name))["seconds"]) == [stage for stage in cold_starts.STAGES if stage in seconds]


def test_a_start_with_kept_and_new_code_had_to_compile_in_any_order():
    kept = "(EngineCore pid=1) INFO 11-26 06:32:49 [backends.py:292] Directly load the compiled graph(s) for compile range (1, 8192) from the cache"
    new = "(EngineCore pid=1) INFO 11-26 06:32:50 [backends.py:393] Compiling a graph for compile range (1, 2) takes 1.00 s"
    assert [cold_starts.of_log(lines)["compiled"] for lines in ([kept], [new], [kept, new], [new, kept], [])] == ["kept", "new", "new", "new", ""]


def test_the_slowest_rank_counts_and_not_the_sum_of_all():
    line = "(RayWorkerProc pid={0}) (Worker_TP{0} pid={0}) INFO 11-21 02:49:56 [default_loader.py:501] Loading weights took {1} seconds"
    lines = [line.format(0, "10.5"), line.format(1, "20"), line.format(0, "2.25"), line.format(2, "3")]
    assert cold_starts.of_log(lines)["seconds"] == {"weights": 20.0}
    assert cold_starts.of_log([*lines, line.format(0, "30")])["seconds"] == {"weights": 42.8}


@pytest.mark.parametrize("number", ["1" * 7, "1.2.3", "nan", "-5", "1e3"])
def test_a_number_that_no_engine_logs_is_unknown(number):
    assert cold_starts.of_log([f"x INFO y Loading weights took {number} seconds"])["seconds"] == {}


def test_the_rest_of_the_initialization_is_not_negative():
    assert cold_starts.of_log(
        ["INFO init engine (profile, create kv cache, warmup model) took 5.00 seconds", "INFO Graph capturing finished in 7 secs, took 1 GiB"]
    )["seconds"] == {"graphs": 7.0, "warmup": 0.0}


# -- beside the last start -----------------------------------------------------------------------------------------------

LOG = ["x INFO y Loading weights took 12.34 seconds"]
COLD = {"seconds": {"weights": 500.0, "ready": 700.0}, "compiled": "kept", "last": {}, "reported": {"ready": 900.0, "by": "an owner"}, "error": ""}


def known(run_id, image_id="sha256:1", profile="p", at="T", **cold):
    return {"run_id": run_id, "image_id": image_id, "profile": profile, "recorded_at": at, "cold_start": {**COLD, **cold}}


def start_of(*starts, run_id="r9"):
    return cold_starts.start_of(LOG, starts, run_id, "sha256:1", "p")


def test_without_a_record_the_log_counts_alone():
    older = {"run_id": "r1", "image_id": "sha256:1", "profile": "p", "recorded_at": "T"}
    assert start_of() == start_of(older) == {"seconds": {"weights": 12.3}, "compiled": "", "last": {}, "reported": {}, "error": ""}
    assert start_of(known("r1", image_id="sha256:2"), known("r2", profile="q")) == start_of()


def test_the_newest_start_of_the_same_image_and_profile_is_the_last_one():
    mine = start_of(known("r1", compiled="new"), known("r2", at="T2", seconds={"ready": 650.0}), known("r3", image_id="sha256:2"))
    assert mine["last"] == {"seconds": {"ready": 650.0}, "compiled": "kept", "recorded_at": "T2"}
    assert (mine["seconds"], mine["reported"]) == ({"weights": 12.3}, {"ready": 900.0, "by": "an owner"})
    assert "last" not in mine["last"], "each record has one start before it, not all of them"


def test_a_recorded_run_is_its_record():
    last = {"seconds": {"ready": 1.0}, "compiled": "", "recorded_at": "T0"}
    assert start_of(known("r9", image_id="sha256:2", last=last), known("r2")) == {**COLD, "last": last}


def test_what_the_caller_measured_is_added_once():
    cold = start_of(known("r1"))
    mine = cold_starts.measured(cold, 702.13, {"image": None, "first_token": 0.444}, {})
    assert mine["seconds"] == {"weights": 12.3, "ready": 702.1, "first_token": 0.4} and mine["reported"] == COLD["reported"]
    assert cold["seconds"] == {"weights": 12.3}, "a copy"
    assert cold_starts.measured(cold, 0.0, {}, {"weights": 1.0})["seconds"]["ready"] == 0.0
    assert cold_starts.measured(cold, 702.1, {"image": 3}, {"weights": 1.0})["reported"] == {"weights": 1.0}
    assert cold_starts.measured(cold, None, {"image": 3.0}, {"weights": 1.0}) is cold
    assert cold_starts.measured(COLD, 5.0, {}, {}) is COLD


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, ""),
        ({"last": {"seconds": {"ready": 1}, "compiled": "", "recorded_at": "T"}}, ""),
        ({"seconds": []}, "seconds: missing, or of another type"),
        ({"seconds": {"ready": "700"}}, "seconds: not numbers"),
        ({"seconds": {"ready": None}}, "seconds: not numbers"),
        ({"last": {"seconds": {"ready": "1"}, "compiled": "", "recorded_at": "T"}}, "seconds: not numbers"),
        ({"last": {"seconds": {}}}, "compiled, recorded_at: missing, or of another type"),
        ({"compiled": None}, "compiled: missing, or of another type"),
    ],
)
def test_what_is_wrong_with_a_record_is_named(change, problem):
    assert cold_starts.problem_of({**COLD, **change}) == problem


def test_a_record_that_is_no_mapping_is_named():
    assert cold_starts.problem_of([]) == "it is not a mapping"


# -- slow starts ---------------------------------------------------------------------------------------------------------


def pair(now, last, compiled="kept", before="kept"):
    return {**COLD, "seconds": now, "compiled": compiled, "last": {"seconds": last, "compiled": before, "recorded_at": "2026-11-26T05:30:00Z"}}


@pytest.mark.parametrize(
    ("now", "last", "slow"),
    [
        (150.0, 100.0, True),
        (149.9, 100.0, False),
        (90.0, 60.0, True),
        # Three times as long, and less than 30 s longer.
        (44.0, 15.0, False),
        (45.0, 15.0, True),
        (100.0, 150.0, False),
        (None, 100.0, False),
        (150.0, None, False),
    ],
)
def test_a_start_is_slow_from_one_and_a_half_times_and_30_seconds_on(now, last, slow):
    cold = pair({"ready": now} if now else {}, {"ready": last} if last else {})
    assert (cold_starts.slow(cold) is not None) is slow
    assert cold_starts.slow({**cold, "last": {}}) is None


@pytest.mark.parametrize(
    ("compiled", "before", "slow"),
    [
        ("kept", "kept", True),
        ("kept", "new", True),
        ("kept", "", True),
        ("new", "new", True),
        ("", "", True),
        ("new", "kept", False),
        ("", "kept", False),
        ("new", "", False),
    ],
)
def test_a_start_that_had_to_compile_is_compared_with_one_that_had_to(compiled, before, slow):
    assert (cold_starts.slow(pair({"ready": 300.0}, {"ready": 100.0}, compiled, before)) is not None) is slow


@pytest.mark.parametrize(
    ("now", "last", "stage"),
    [
        ({"weights": 200.0, "graphs": 30.0}, {"weights": 80.0, "graphs": 10.0}, "weights"),
        ({"weights": 80.0, "warmup": 150.0}, {"weights": 80.0, "warmup": 50.0}, "warmup"),
        # Less than half of the 200 s.
        ({"weights": 149.0}, {"weights": 50.0}, ""),
        ({"weights": 150.0}, {"weights": 50.0}, "weights"),
        # The image comes before the engine's process, and a stage that is unknown in one of them explains nothing.
        ({"image": 500.0}, {"image": 1.0}, ""),
        ({"weights": 500.0}, {}, ""),
        ({}, {}, ""),
    ],
)
def test_the_stage_that_grew_is_named_where_it_explains_the_difference(now, last, stage):
    assert cold_starts.slow(pair({**now, "ready": 300.0}, {**last, "ready": 100.0})) == (3.0, stage)


# -- text ----------------------------------------------------------------------------------------------------------------

NOW = {"image": 3.2, "weights": 606.4, "compile": 21.8, "graphs": 15.0, "warmup": 36.7, "first_token": 0.6, "ready": 702.4}


def test_a_start_is_shown_beside_the_last_one_and_the_reported_one():
    reported = {"weights": 496.0, "ready": None, "by": "an owner", "source": "https://x"}
    cold = {**pair(NOW, {"weights": 600.0, "ready": 695.0}, before="new"), "reported": reported}
    assert cold_starts.text(cold) == (
        "start: 702 s (image 3, weights 606, compile 22, graphs 15, warmup 37, first token 1), compile cache used; "
        "last: 695 s (weights 600), compile cache not used; reported by an owner: weights 496"
    )
    assert cold_starts.text(cold, other_stages=False) == (
        "start: 702 s (image 3, weights 606, compile 22, graphs 15, warmup 37, first token 1), compile cache used; last: 695 s; reported by an owner: unknown"
    )
    assert cold_starts.text({**cold, "reported": {}}, own_stages=False, other_stages=False) == "start: 702 s, compile cache used; last: 695 s"


def test_what_is_unknown_is_said_or_left_out():
    nothing = {"seconds": {}, "compiled": "", "last": {}, "reported": {"ready": None, "by": ""}, "error": ""}
    assert cold_starts.text(nothing) == "start: unknown"
    assert cold_starts.text({**nothing, "seconds": {"weights": 5.0}, "compiled": "odd"}) == "start: weights 5"
    assert cold_starts.text({**nothing, "error": "starts.json is not JSON"}) == "start: unknown; starts.json is not JSON"
    assert cold_starts.text({**nothing, "reported": {"ready": 900.0}}) == "start: unknown; reported by others: 900 s"


def test_a_slow_start_says_how_slow_and_why():
    grown = pair({"weights": 250.0, "ready": 320.0}, {"weights": 50.0, "ready": 100.0})
    assert cold_starts.text(grown).endswith("; 3.2 times the last one, most of it weights; reported by an owner: 900 s")
    unexplained = {**pair({"ready": 320.0}, {"ready": 100.0}), "reported": {}}
    assert cold_starts.text(unexplained) == "start: 320 s, compile cache used; last: 100 s, compile cache used; 3.2 times the last one"
