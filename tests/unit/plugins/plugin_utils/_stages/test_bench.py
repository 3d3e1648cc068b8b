# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a live engine may be measured, and how."""

from __future__ import annotations

import datetime
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import bench
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Outcome, Run

ARGV = ["vllm", "serve", "org/model", "--max-model-len", "2048", "--trust-remote-code"]
PROFILE = {"id": "p", "model": {"repo": "org/model", "revision": "a" * 40, "path": "", "served_names": ["m", "n"]}, "repositories": {}}


def judged(path: str = "", live: bool = True, healthy: bool = True, requests: int | None = 0, **settings: t.Any) -> Outcome:
    engine = {"live": live, "argv": ARGV, "digest": "1:a", "api_address": "192.0.2.1", "api_port": 8000}
    info = {"engine": engine, "healthy": healthy, "requests_running": requests, "engine_version": "0.32.0"}
    common = {
        "head": "spark-1", "reached": "192.0.2.1", "cluster": "gb10", "profile": PROFILE, "client": "", "suite": "short", "concurrency": "1, 4,8",
        "tokens": "1024/256", **settings,
    }  # fmt: skip
    image = {"container": {"image": "engine:1", "image_id": "sha256:aa"}}
    answers = {"spark-1": {**common, "engine": info, "container": image}, "spark-2": {**common, "engine": {"skipped": True}, "container": {"skipped": True}}}
    now = datetime.datetime(2026, 11, 23, 15, tzinfo=datetime.timezone.utc)
    return bench.judge(answers, Run({}, [], path, [], [], now, False))


def verdicts(outcome: Outcome) -> dict[str, str]:
    return {finding["id"]: finding["verdict"] for finding in outcome.findings or []}


def test_an_idle_engine_is_measured_from_the_head_with_a_warning() -> None:
    outcome = judged()
    assert verdicts(outcome) == {"bench.idle": "pass", "bench.client": "warn"}
    engine, about = outcome.returns["engine"], outcome.returns["about"]
    assert engine["url"] == "http://192.0.2.1:8000" and engine["model"] == "m" and engine["trust_remote_code"] and engine["image"] == "sha256:aa"
    assert engine["tokenizer"].endswith(f"/models--org--model/snapshots/{'a' * 40}")
    assert (about["place"], about["client"], about["run"], about["image"]) == ("head", "spark-1", "20261123T150000Z", "sha256:aa")
    assert [case["concurrency"] for case in outcome.returns["cases"]] == [1, 4, 8]


def test_a_host_outside_needs_the_image_by_its_name() -> None:
    outcome = judged(client="ada")
    assert verdicts(outcome)["bench.client"] == "pass"
    assert outcome.returns["engine"]["image"] == "engine:1" and outcome.returns["about"]["place"] == "outside"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"live": False}, {"bench.engine": "block"}),
        ({"healthy": False}, {"bench.engine": "block"}),
        ({"requests": 2}, {"bench.idle": "block"}),
        ({"requests": None}, {"bench.idle": "unknown"}),
        ({"tokens": "2000/256"}, {"bench.idle": "pass", "bench.client": "warn", "bench.length": "block"}),
    ],
)
def test_what_may_not_be_measured_stops(state: dict[str, t.Any], expected: dict[str, str]) -> None:
    outcome = judged(**state)
    assert verdicts(outcome) == expected and all(finding["remedy"] for finding in outcome.findings or [] if finding["verdict"] != "pass")


def test_a_foreign_directory_is_found_before_anything_is_measured(tmp_path: Path) -> None:
    assert judged(str(tmp_path)).failure == ""
    (tmp_path / "bench.json").write_text("mine", encoding="utf-8")
    assert "gb10_to" in judged(str(tmp_path)).failure


def test_a_tokenizer_of_its_own_wins() -> None:
    assert bench.tokenizer([*ARGV, "--tokenizer", "/x"], PROFILE) == "/x"
    assert bench.tokenizer(ARGV, {**PROFILE, "model": {**PROFILE["model"], "revision": ""}}) == "org/model"
