# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's live engine is measured by its own client. Results from two cores say nothing about a Spark."""

from __future__ import annotations

import csv
import json
import re
import statistics
import subprocess
import typing as t
from pathlib import Path

import pytest

from .lab import HEAD, WORKER, Lab
from .making import HEAD_CONTAINER, WORKER_CONTAINER

SMALL = {"gb10_bench_concurrency": "1,2", "gb10_bench_tokens": "128/16"}
KEY = "/etc/gb10/secrets/gb10/api_key"
#: A client that streams one long answer and ends when its input is closed. Its arguments contain no secret.
OTHER_CLIENT = r"""
import json, sys, urllib.request
url, key = sys.argv[1], open(sys.argv[2]).read().strip()
body = {"model": "tiny", "prompt": "a", "max_tokens": 1900, "ignore_eos": True, "stream": True}
asked = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json", "Authorization": "Bearer " + key})
with urllib.request.urlopen(asked, timeout=300) as answer:
    answer.readline()
    print("begun", flush=True)
    sys.stdin.read()
"""


def probes(lab: Lab) -> list[str]:
    return lab.run(HEAD, "docker", "ps", "-aq", "--filter", "label=io.gb10.role=probe").split()


def rows(directory: Path) -> list[dict[str, t.Any]]:
    return json.loads((directory / "bench.json").read_text(encoding="utf-8"))["rows"]


def test_rows_are_measured_kept_and_appended(lab: Lab, live_cluster: None, tmp_path: Path) -> None:
    checked = lab.play("bench", check=True, gb10_to=str(tmp_path / "checked"), **SMALL)
    assert checked.rc == 0 and checked.changed == {} and not (tmp_path / "checked").exists(), checked.failures

    place = tmp_path / "benches"
    first = lab.play("bench", verbosity=3, gb10_to=str(place), **SMALL)
    assert first.rc == 0, first.failures
    measured = rows(place)
    assert [(row["workload"], row["concurrency"], row["prompts"], row["output_tokens"]) for row in measured] == [("random", 1, 8, 128), ("random", 2, 8, 128)]
    for row in measured:
        assert row["output_tok_s"] > 0 and row["ttft_p50_ms"] > 0 and row["tpot_p99_ms"] > 0 and row["itl_p90_ms"] > 0
        assert row["foreign_requests"] == 0 and row["acceptance_length"] is None and not row["regressed"]
        assert row["place"] == "head" and row["client"] == HEAD and row["image"].startswith("sha256:") and row["engine_version"] == "0.32.0"
        # The simulated driver reports 3.74 W and 36 degrees on each of the two nodes.
        assert row["power_w"] == pytest.approx(7.48) and row["temperature_c"] == 36
    assert "takes part of what it measures" in first.said
    assert first.stat("gb10_bench")["rows"] == measured and first.stat("gb10_verdict") == "pass"

    key = lab.run(HEAD, "cat", KEY).strip()
    assert key not in first.stdout and key not in json.dumps(first.events)
    assert probes(lab) == []

    again = lab.play("bench", gb10_to=str(place), gb10_silenced=["bench.regression"], **SMALL)
    assert again.rc == 0, again.failures
    kept = rows(place)
    assert kept[:2] == measured and len(kept) == 4
    with (place / "bench.csv").open(encoding="utf-8", newline="") as stream:
        assert [(line["run"], line["concurrency"]) for line in csv.DictReader(stream)] == [(row["run"], str(row["concurrency"])) for row in kept]
    assert sorted(path.name for path in place.glob("*")) == ["bench.csv", "bench.json"]

    (place / "bench.csv").write_text("mine\n", encoding="utf-8")
    refused = lab.play("bench", gb10_to=str(place), **SMALL)
    assert refused.rc != 0 and "was changed" in refused.failures and ("bench", "Measure case by case") not in refused.tasks()
    assert (place / "bench.csv").read_text(encoding="utf-8") == "mine\n" and rows(place) == kept


def limit(lab: Lab, quota: int) -> None:
    """Limit the engine's containers to this many microseconds of processor time in each 100000. -1 means no limit."""
    for host, container in ((HEAD, HEAD_CONTAINER), (WORKER, WORKER_CONTAINER)):
        lab.run(host, "docker", "update", "--cpu-period=100000", f"--cpu-quota={quota}", container)


def test_five_equal_runs_pass_and_an_engine_that_is_slowed_down_fails(lab: Lab, live_cluster: None, tmp_path: Path) -> None:
    """The client's processor time is not limited. The rows of the equal runs give the threshold for noise, and the slowed engine exceeds it twice over."""
    place = tmp_path / "benches"
    settings = {"gb10_bench_concurrency": "1", "gb10_bench_tokens": "512/64", "gb10_to": str(place)}
    for number in range(5):
        equal = lab.play("bench", **settings)
        assert equal.rc == 0, f"run {number + 1}: {equal.failures}\n{(place / 'bench.csv').read_text(encoding='utf-8')}"
    before = rows(place)
    assert len(before) == 5 and not any(row["regressed"] for row in before)

    speeds = [row["output_tok_s"] for row in before]
    threshold = max(0.1, 3 * statistics.stdev(speeds) / statistics.fmean(speeds))
    slowed, slower = None, 0.0
    try:
        # A machine with other work has more noise, so it needs a lower limit.
        for quota in (40000, 20000, 10000):
            limit(lab, quota)
            slowed = lab.play("bench", **settings)
            slower = statistics.median(speeds) / rows(place)[-1]["output_tok_s"] - 1
            if slower >= 2 * threshold:
                break
    finally:
        limit(lab, -1)
    assert slowed is not None and slower >= 2 * threshold, f"{slower:.2f} slower, fails beyond {threshold:.2f}: {speeds}"
    assert slowed.rc != 0 and rows(place)[-1]["regressed"] and rows(place)[:5] == before
    assert "bench.regression" in slowed.said and "tokens/s" in slowed.said and slowed.stat("gb10_verdict") == "block"

    after = lab.play("bench", **settings)
    assert after.rc == 0 and not rows(place)[-1]["regressed"], after.failures


def test_an_engine_with_a_foreign_request_is_left_alone(lab: Lab, live_cluster: None) -> None:
    engine = json.loads(lab.run(HEAD, "cat", "/var/lib/gb10/gb10/run/run.json"))
    url = f"http://{engine['api_address']}:{engine['api_port']}"
    argv = ["docker", "exec", "-i", f"gb10-lab-{HEAD}", "python3", "-c", OTHER_CLIENT, url, KEY]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        try:
            assert client.stdout is not None and client.stdout.readline().strip() == "begun"
            refused = lab.play("bench", **SMALL)
        finally:
            client.communicate(timeout=60)
    assert refused.rc != 0 and ("bench", "Measure case by case") not in refused.tasks()
    assert re.search(r"it has 1 request\(s\), running or waiting", refused.said) and "repeat while the engine is idle" in refused.said


def test_workloads_are_measured_by_a_client_on_another_host(lab: Lab, tmp_path: Path) -> None:
    """The other node does not belong to this cluster of one node, and has no key file."""
    lab.down()
    alone = {"gb10_cluster_group": "gb10_head", "gb10_profile": "lab_tiny_one"}
    assert lab.play("serve", **alone).rc == 0
    try:
        lab.run(WORKER, "rm", "-f", KEY)
        ran = lab.play("bench", verbosity=3, gb10_bench_suite="workloads", gb10_bench_host=WORKER, gb10_to=str(tmp_path / "w"), **alone)
        assert ran.rc == 0, ran.failures
        assert "outside of the cluster" in ran.said and lab.run(HEAD, "cat", KEY).strip() not in ran.stdout
    finally:
        assert lab.play("teardown", **alone).rc == 0
    measured = rows(tmp_path / "w")
    wanted = [("medium", 1800), ("long", 3600), ("code", 1800), ("reasoning", 1800)]
    assert [(row["workload"], row["output_tokens"]) for row in measured] == wanted and {row["concurrency"] for row in measured} == {3}
    assert {(row["client"], row["place"]) for row in measured} == {(WORKER, "outside")}
    assert lab.run(WORKER, "sh", "-c", "ls /tmp | grep gb10-bench- || echo none").strip() == "none"


def test_no_engine_is_nothing_to_measure(lab: Lab, no_cluster: None) -> None:
    refused = lab.play("bench", **SMALL)
    assert refused.rc != 0 and "there is nothing to measure" in refused.said
