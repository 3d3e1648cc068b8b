# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Benchmark cases and rows: which rows count as slower, and which rows are stored."""

from __future__ import annotations

import csv
import datetime
import random
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._engine import bench
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.plugin_utils._bench import history, rows
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import bench_rows
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Outcome, Run

WANTED = {"suite": "short", "concurrency": [1, 4, 8], "input": 1024, "output": 256, "context": 131072}


def row(speed: float = 100.0, first: float = 500.0, **changes: t.Any) -> rows.Row:
    figures = {**dict.fromkeys(bench.FIGURES, 1.0), "output_tok_s": speed, "ttft_p50_ms": first, "ttft_p99_ms": 2 * first}
    about = {
        "run": "20261123T150000Z", "time": "2026-11-23T15:00:00Z", "cluster": "gb10", "profile": "lab_tiny_tp2", "image": "sha256:aa",
        "engine_version": "0.32.0", "engine_digest": "1:a", "place": "head", "client": "spark-1",
        "workload": "random", "concurrency": 4, "prompts": 16, "input_len": 1024, "output_len": 256,
    }  # fmt: skip
    around = {"power_w": None, "temperature_c": None, "nodes": {}, "acceptance_length": None, "foreign_requests": 0, "regressed": False}
    return {"schema": 1, **about, **figures, **around, **changes}


# --- cases --------------------------------------------------------------------------------------------------------------------


def test_the_short_suite_is_small_and_the_sweep_is_whole() -> None:
    assert [(case["concurrency"], case["prompts"]) for case in rows.cases(WANTED)] == [(1, 8), (4, 16), (8, 32)]
    sweep = rows.cases({**WANTED, "suite": "sweep"})
    assert [case["concurrency"] for case in sweep] == [1, 2, 4, 8, 16, 32, 1, 4] and {case["input_len"] for case in sweep[6:]} == {32768}
    assert rows.cases({**WANTED, "suite": "sweep", "context": 16384})[-1]["input_len"] == 16384 * 3 // 4 - 256
    assert len(rows.cases({**WANTED, "suite": "sweep", "context": 1536})) == 6
    assert rows.cases({**WANTED, "suite": "all"}) == sweep + rows.cases({**WANTED, "suite": "workloads"})


def test_the_workloads_are_those_of_the_table() -> None:
    cases = rows.cases({**WANTED, "suite": "workloads"})
    assert [(case["workload"], case["output_len"], case["concurrency"]) for case in cases] == [
        ("medium", 300, 3), ("long", 600, 3), ("code", 300, 3), ("reasoning", 300, 3),
    ]  # fmt: skip
    assert all(len(set(case["texts"])) == 3 for case in cases)


# --- power and temperature ----------------------------------------------------------------------------------------------------


def samples(*figures: tuple[float, float | None, int | None]) -> dict[str, t.Any]:
    return {"samples": [{"t": at, "power_w": power, "temperature_c": heat} for at, power, heat in figures]}


def test_power_is_of_all_nodes_and_what_one_does_not_say_is_unknown() -> None:
    first, second = samples((9, 99.0, 99), (10, 30.0, 50), (12, 50.0, 60), (21, 99.0, 99)), samples((11, 20.0, 70))
    figures = rows.around({"spark-1": first, "spark-2": second}, 10, 20)
    assert (figures["power_w"], figures["temperature_c"]) == (60.0, 70) and figures["nodes"]["spark-1"] == {"power_w": 40.0, "temperature_c": 60}
    figures = rows.around({"spark-1": first, "spark-2": samples((11, None, 70))}, 10, 20)
    assert (figures["power_w"], figures["temperature_c"]) == (None, 70)
    assert rows.around({"spark-1": first, "spark-2": None}, 10, 20)["temperature_c"] is None
    assert rows.around({}, 10, 20)["power_w"] is None


# --- slower -------------------------------------------------------------------------------------------------------------------


def test_five_equal_runs_are_no_regression() -> None:
    kept: list[rows.Row] = []
    for _run in range(5):
        new, findings = rows.judged([row()], kept)
        assert findings == []
        kept += new


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.05])
def test_noise_is_not_a_regression_and_twice_the_threshold_is(noise: float) -> None:
    chance = random.Random(7)
    kept = [row(100 * (1 + chance.uniform(-noise, noise)), 500 * (1 + chance.uniform(-noise, noise))) for _run in range(5)]
    assert rows.compare(row(100 * (1 - noise), 500 * (1 + noise)), kept) == []
    for name, slowed in (("output_tok_s", lambda by: row(speed=100 / (1 + by))), ("ttft_p50_ms", lambda by: row(first=500 * (1 + by)))):
        limit = rows.limit_of([entry[name] for entry in kept])
        assert limit == pytest.approx(0.1) if noise == 0 else limit >= 0.1
        (finding,) = rows.compare(slowed(2 * limit), kept)
        assert finding["id"] == "bench.regression" and finding["verdict"] == "block" and finding["node"] == "spark-1"
        assert "random at 4" in finding["message"] and "slower than" in finding["message"] and finding["needed"] and finding["remedy"]


def test_of_few_runs_the_noise_is_not_known_so_it_warns() -> None:
    assert [finding["verdict"] for finding in rows.compare(row(50), [row(), row()])] == ["warn"]
    assert [finding["verdict"] for finding in rows.compare(row(50), [row()])] == ["warn"]


def test_rows_of_another_client_image_or_case_are_never_compared() -> None:
    kept = [row() for _run in range(5)]
    for change in ({"place": "outside", "client": "ada"}, {"profile": "x"}, {"concurrency": 8}, {"prompts": 8}, {"workload": "code"}, {"input_len": 8}):
        assert rows.judged([row(10, **change)], kept)[1] == []


def test_a_slower_row_and_a_disturbed_one_count_for_nothing_later() -> None:
    kept = [row() for _run in range(3)]
    marked, findings = rows.judged([row(50)], kept)
    assert marked[0]["regressed"] and findings[0]["verdict"] == "block"
    disturbed, foreign = rows.judged([row(50, foreign_requests=2)], kept)
    assert [finding["id"] for finding in foreign] == ["bench.foreign"] and not disturbed[0]["regressed"]
    assert rows.comparable([*kept, *marked, *disturbed], rows.key_of(row())) == kept


def test_what_changed_since_is_named() -> None:
    (finding,) = rows.compare(row(50, engine_digest="1:b"), [row() for _run in range(3)])
    assert "arguments or variables changed" in finding["remedy"]


def test_the_first_row_on_a_slower_image_warns() -> None:
    kept = [row() for _run in range(3)]
    _marked, findings = rows.judged([row(70, image="sha256:bb")], kept)
    assert [(finding["id"], finding["verdict"]) for finding in findings] == [("bench.image", "warn")]
    assert rows.judged([row(95, image="sha256:bb")], kept)[1] == []
    assert rows.compare_images(row(70, image="sha256:bb"), [*kept, row(70, image="sha256:bb")]) == []


# --- what is kept -------------------------------------------------------------------------------------------------------------


def test_rows_are_appended_and_nothing_is_replaced(tmp_path: Path) -> None:
    place = tmp_path / "new" / "place"
    first = history.record(str(place), [row(), row(concurrency=8)])
    assert sorted(Path(name).name for name in first.files) == ["bench.csv", "bench.json"]
    history.record(str(place), [row(run="20261123T160000Z")])
    kept = history.load(str(place))
    assert kept[:2] == first.rows and len(kept) == 3
    with (place / "bench.csv").open(encoding="utf-8", newline="") as stream:
        lines = list(csv.DictReader(stream))
    assert [line["concurrency"] for line in lines] == ["4", "8", "4"] and lines[0]["power_w"] == "" and tuple(lines[0]) == rows.COLUMNS
    assert not list(place.glob(".bench.json*")) and (place / "bench.json").stat().st_mode & 0o777 == 0o600


def test_check_mode_and_no_directory_write_nothing(tmp_path: Path) -> None:
    assert history.record(str(tmp_path / "x"), [row()], check_mode=True).files == [] and history.record("", [row()]).files == []
    assert list(tmp_path.iterdir()) == [] and history.record(str(tmp_path), []).files == []


@pytest.mark.parametrize("spoil", ["csv", "json", "row", "alone"])
def test_a_file_that_was_changed_is_left_as_it_is(tmp_path: Path, spoil: str) -> None:
    history.record(str(tmp_path), [row()])
    path = tmp_path / ("bench.csv" if spoil in ("csv", "alone") else "bench.json")
    path.unlink() if spoil == "alone" else path.write_text({"csv": "mine", "json": "[", "row": '{"rows": [{}]}'}[spoil], encoding="utf-8")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(ClusterError) as raised:
        history.record(str(tmp_path), [row(run="20261123T160000Z")])
    assert "gb10_to" in raised.value.remedy and {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_two_benches_do_not_write_at_once(tmp_path: Path) -> None:
    with history.alone(str(tmp_path)), pytest.raises(ClusterError, match="another bench writes"):
        history.record(str(tmp_path), [row()])


def test_the_table_says_what_is_unknown() -> None:
    title, line = rows.table([row()])
    assert title.split()[0] == "case" and line.startswith("random at 4") and line.split()[-1] == "-" and len(title) == len(line)


# --- the stage ----------------------------------------------------------------------------------------------------------------


def kept_of(tmp_path: Path, results: list[dict[str, t.Any]], check_mode: bool = False) -> Outcome:
    entry = row()
    about = {name: entry[name] for name in ("run", "time", "cluster", "profile", "image", "engine_version", "engine_digest", "place", "client")}
    run = Run({"results": results, "about": about}, [], str(tmp_path / "benches"), [], [], datetime.datetime.now(datetime.timezone.utc), check_mode)
    return bench_rows.judge({"spark-1": {"samples": {"unreachable": True}}, "spark-2": {"samples": samples((11, 20.0, 70))}}, run)


def measured(speed: float = 100.0) -> dict[str, t.Any]:
    entry = row(speed)
    figures = {name: entry[name] for name in bench.FIGURES}
    case = {name: entry[name] for name in ("workload", "concurrency", "prompts", "input_len", "output_len")}
    return {"case": case, "figures": figures, "began": 10, "ended": 20, "acceptance_length": None, "foreign_requests": 0}


def test_the_stage_keeps_rows_and_names_what_was_not_measured(tmp_path: Path) -> None:
    failed = {"failed": True, "item": {"workload": "code", "concurrency": 3}, "msg": "time over.", "verdict": "block", "remedy": "more minutes"}
    outcome = kept_of(tmp_path, [measured(), failed, {"skipped": True, "item": {}}])
    assert [finding["id"] for finding in outcome.findings or []] == ["bench.case", "bench.case"] and not outcome.failure
    assert outcome.findings[0]["message"] == "code at 3: time over." and outcome.findings[0]["remedy"] == "more minutes"
    passed_on = outcome.stats["gb10_bench"]
    assert outcome.stats["gb10_verdict"] == "block" and passed_on["rows"] == history.load(str(tmp_path / "benches")) and len(passed_on["files"]) == 2
    assert passed_on["rows"][0]["power_w"] is None and passed_on["rows"][0]["nodes"]["spark-2"]["power_w"] == 20.0
    assert any(line.startswith("random at 4") for line in outcome.lines) and sum(line.startswith("written: ") for line in outcome.lines) == 2


def test_rows_that_cannot_be_kept_are_passed_on(tmp_path: Path) -> None:
    kept_of(tmp_path, [measured()])
    (tmp_path / "benches" / "bench.csv").write_text("mine", encoding="utf-8")
    outcome = kept_of(tmp_path, [measured()])
    assert "was changed" in outcome.failure and "Remedy: " in outcome.failure
    assert len(outcome.stats["gb10_bench"]["rows"]) == 1 and outcome.stats["gb10_verdict"] == "block"


def test_check_mode_keeps_nothing(tmp_path: Path) -> None:
    assert kept_of(tmp_path, [measured()], check_mode=True).stats["gb10_bench"]["files"] == [] and not (tmp_path / "benches").exists()
