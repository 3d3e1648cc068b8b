# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether an engine serves: a busy engine is not hung, a hung engine never serves, and missing answers are unknown."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._engine import health
from ansible_collections.gb10.cluster.plugins.module_utils._engine.api_probe import Progress
from ansible_collections.gb10.cluster.plugins.module_utils._engine.health import Probe, Still

CORE = {"text": "VLLM::EngineCore (pid 3)", "kind": "engine_core", "state": "alive", "cpu_percent": 100.0}


def rank(pid=7, state="alive", cpu=80.0):
    return {"text": f"ray::RayWorkerProc.run (pid {pid})", "kind": "rank", "state": state, "cpu_percent": cpu}


BOTH = {"spark-1": [CORE, rank(7)], "spark-2": [rank(8)]}
WAITED = Probe("answers", False, False, 15.0)


@pytest.mark.parametrize(
    ("probe", "processes", "state", "named"),
    [
        (Probe("answers", True), BOTH, "serving", {}),
        # /health answers and no token came: this alone proves neither health nor a fault.
        (WAITED, BOTH, "unknown", {}),
        (WAITED._replace(grew=True), BOTH, "busy", {}),
        (WAITED._replace(grew=None), BOTH, "unknown", {}),
        (WAITED._replace(still_s=1799.9), BOTH, "unknown", {}),
        (WAITED._replace(still_s=1800.0), BOTH, "stalled", {}),
        # One and a half times a prefill of a million tokens at the slowest pace.
        (WAITED._replace(still_s=1900.0, limit_s=1957.3), BOTH, "unknown", {}),
        (WAITED._replace(still_s=1957.3, limit_s=1957.3), BOTH, "stalled", {}),
        (WAITED, {**BOTH, "spark-2": [rank(8, "stopped")]}, "halted", {"spark-2": ["ray::RayWorkerProc.run (pid 8)"]}),
        # Even a token proves nothing about processes that were stopped right after it.
        (Probe("answers", True), {**BOTH, "spark-2": [rank(8, "stopped")]}, "halted", {"spark-2": ["ray::RayWorkerProc.run (pid 8)"]}),
        (WAITED, {**BOTH, "spark-2": [rank(8, "ended")]}, "dead", {"spark-2": ["ray::RayWorkerProc.run (pid 8)"]}),
        (WAITED, {**BOTH, "spark-2": []}, "dead", {"spark-2": ["no rank runs there"]}),
        # A single process does everything: no rank can be missing.
        (WAITED, {"spark-1": [CORE]}, "unknown", {}),
        (Probe("starting", False), {**BOTH, "spark-2": []}, "starting", {}),
        (Probe("refused", False), BOTH, "dead", {}),
        (Probe("says dead", False), {**BOTH, "spark-1": [CORE]}, "dead", {"spark-1": ["no rank runs there"]}),
        (Probe("silent", False), BOTH, "unknown", {}),
        # The rank that the others wait for.
        (
            WAITED._replace(still_s=1900.0),
            {**BOTH, "spark-2": [rank(8, "uninterruptible")]},
            "stalled",
            {"spark-2": ["ray::RayWorkerProc.run (pid 8) is in the kernel and cannot be interrupted"]},
        ),
        (
            WAITED,
            # Recorded in the lab: an idle rank in a Ray worker.
            {**BOTH, "spark-2": [rank(8, cpu=2.0)]},
            "unknown",
            {"spark-2": ["ray::RayWorkerProc.run (pid 8) uses almost no processor time while the others wait in a loop"]},
        ),
        (WAITED, {"spark-1": [rank(7, cpu=0.0)], "spark-2": [rank(8, cpu=0.5)]}, "unknown", {}),
    ],
)
def test_the_verdict(probe, processes, state, named):
    verdict = health.verdict(probe, processes)
    assert (verdict.state, verdict.named) == (state, named)
    assert verdict.text.startswith(f"{state}: ") and all(text in verdict.text for texts in named.values() for text in texts)


FLAT = Progress(1.0, 500.0, 0.25, fabric=4e9)


@pytest.mark.parametrize(
    ("after", "grew"),
    [
        (FLAT, False),
        (FLAT._replace(tokens=501.0), True),
        (FLAT._replace(kv_use=0.26), True),
        (FLAT._replace(steps=1.0), True),
        # The ranks exchange data, and vLLM has counted nothing yet.
        (FLAT._replace(fabric=4e9 + 4), True),
        # A device that was reset counts from zero. A device that cannot be read gives no evidence.
        (FLAT._replace(fabric=8.0), False),
        (FLAT._replace(fabric=None), False),
        # An aborted request frees cache without any output of the engine.
        (FLAT._replace(kv_use=0.1), False),
        (FLAT._replace(running=2.0), False),
        (FLAT._replace(kv_use=None), False),
        (None, None),
    ],
)
def test_work_is_tokens_or_a_prompt_that_is_being_read(after, grew):
    assert health.grew(FLAT, after) is grew


def test_missing_fabric_figures_of_an_earlier_probe_are_not_growth():
    assert health.grew(FLAT._replace(fabric=None), FLAT) is False


@pytest.mark.parametrize(
    ("longest", "length", "limit"),
    [
        (0.0, None, 1800.0),
        (0.0, 262_144, 1800.0),
        # 990,007 tokens in 1,232 s is the slowest prefill that was measured.
        (0.0, 964_291, 1800.0),
        (0.0, 990_007, 1848.0),
        (0.0, 1_048_576, 1957.3),
        # The engine's own slowest prefill counts if it took longer.
        (471.0, 262_144, 1800.0),
        (1400.0, 1_048_576, 2100.0),
    ],
)
def test_the_limit_is_half_an_hour_or_half_as_long_again_as_the_longest_prompt_takes(longest, length, limit):
    assert health.stall_limit(FLAT._replace(longest_prefill_s=longest), length) == limit
    assert health.stall_limit(None, length) == (limit if not longest else max(1800.0, health.stall_limit(FLAT, length)))


def test_a_stall_counts_from_the_first_look_that_waited_in_vain():
    first = health.still(None, "r", 1000.0, FLAT, FLAT)
    assert first == Still("r", 1000.0, FLAT)
    assert health.still(first, "r", 1400.0, FLAT, FLAT).since == 1000.0


@pytest.mark.parametrize(
    ("run", "began", "before", "after", "since"),
    [
        # Between the looks tokens flowed; another run; a note of a former boot.
        ("r", 1400.0, FLAT._replace(tokens=900.0), FLAT._replace(tokens=900.0), 1400.0),
        ("s", 1400.0, FLAT, FLAT, 1400.0),
        ("r", 10.0, FLAT, FLAT, 10.0),
        # There is progress, or progress is unknown.
        ("r", 1400.0, FLAT, FLAT._replace(kv_use=0.5), None),
        ("r", 1400.0, FLAT, None, None),
    ],
)
def test_what_ends_a_stall(run, began, before, after, since):
    stall = health.still(Still("r", 1000.0, FLAT), run, began, before, after)
    assert (stall and stall.since) == since


@pytest.mark.parametrize(
    "note",
    [
        None,
        {},
        {"run_id": "r"},
        {"run_id": "r", "since": "x", "progress": [1, 2, 3, 4, 5]},
        {"run_id": "r", "since": 1, "progress": [1] * 6},
        {"run_id": "r", "since": 1, "progress": 7},
    ],
)
def test_a_note_that_cannot_be_read_is_none(note):
    assert Still.of_note(note) is None


def test_a_note_comes_back_as_it_was_written():
    # Not every engine's metrics include the use of the cache.
    for progress in (FLAT, FLAT._replace(kv_use=None)):
        noted = Still("r", 5.0, progress)
        assert Still.of_note(json.loads(json.dumps(noted.as_note()))) == noted


def test_notes_are_readable_by_the_version_before_and_from_it():
    older = {"run_id": "r", "since": 5.0, "progress": [1.0, 500.0, None, 471.0, 7.0]}
    assert Still.of_note(older) == Still("r", 5.0, Progress(1.0, 500.0, None, 471.0, 7.0, None))
    # A Progress is made of the five known figures under this name; other names are skipped.
    assert Still("r", 5.0, FLAT).as_note() == {"run_id": "r", "since": 5.0, "progress": [1.0, 500.0, 0.25, 0.0, 0.0], "fabric": 4e9}
