# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The handling of a failed bring-up: an engine that served before the play is stopped only when it is known to have ended."""

from __future__ import annotations

import datetime
import typing as t

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import abort, abort_plan
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Run

OLD = {"engine": {"live": True, "run_id": "old"}}
NEW = {"engine": {"live": True, "run_id": "new"}}
NONE = {"engine": {"live": False, "run_id": ""}}
UNKNOWN: dict[str, t.Any] = {}


def lines(
    before: dict[str, t.Any] | None, now: dict[str, t.Any] | None, *, check_mode: bool = False, head: t.Any = (), worker: t.Any = (),
    why: str | None = "spark-2: it broke.",
) -> tuple[bool, str]:
    """Return whether everything is left alone, and the lines of the report. None: the node was never asked."""
    run = Run({}, [], "", ["all"], [], datetime.datetime(2026, 11, 22), check_mode)
    known = {"gb10_head_host": "spark-1", "gb10_cluster_name": "gb10", "__abort_dir": "/logs", "__gb10_engine_before": before}
    answered = {"__abort_logs": {"files": []}, "__abort_stop": {"failed": False}}
    nodes = {"spark-1": {"__abort_after": now, **dict(head)}, "spark-2": {"__abort_failed": {"msg": "it broke."}, **dict(worker)}}
    answers = {node: {word: {**known, **answered, **own}.get(name) for word, name in abort.READS.items()} for node, own in nodes.items()}
    outcome = abort.judge(answers, run)
    assert outcome.lines[0] == "The bring-up of cluster gb10 failed." and (why is None or outcome.lines[1] == why)
    assert outcome.lines[-1] == "Logs on this controller: /logs"
    assert outcome.failure == "The bring-up of cluster gb10 failed; see the lines above. Logs on this controller: /logs"
    return abort_plan.judge(answers, run).returns["kept"], "\n".join(outcome.lines)


@pytest.mark.parametrize(
    ("before", "now", "kept", "text"),
    [
        (OLD, OLD, True, "The engine that served before this play was left alone."),
        (OLD, NEW, False, "are stopped; the next run replaces them"),
        (OLD, NONE, False, "are stopped; the next run replaces them"),
        (OLD, UNKNOWN, True, "still serves is unknown, so nothing was stopped. Remedy: See that spark-1 and its Docker answer"),
        (OLD, None, True, "still serves is unknown, so nothing was stopped."),
        (NONE, NEW, False, "are stopped; the next run replaces them"),
        (NONE, UNKNOWN, False, "are stopped; the next run replaces them"),
        ({"unreachable": True, "msg": "no route"}, UNKNOWN, True, "Whether an engine served before this play is unknown, so nothing was stopped."),
        (None, NONE, True, "Whether an engine served before this play is unknown, so nothing was stopped."),
    ],
)
def test_what_may_be_foreign_is_left_alone(before, now, kept, text):
    verdict = lines(before, now)
    assert verdict[0] is kept and text in verdict[1]


def test_the_logs_are_named_when_the_head_is_not_reached():
    verdict = lines(OLD, None, head={"__abort_dir": None, "__abort_logs": None}, why=None)
    assert "Not reached any more, so what runs there is unknown: spark-1." in verdict[1]


@pytest.mark.parametrize(
    ("before", "now", "known", "kept", "text"),
    [
        # The reason for the missing token is unknown: the engine may still give one, and the next run takes it over.
        (NONE, NEW, False, True, "The engine runs on: nothing proves that it cannot serve"),
        (OLD, NEW, False, True, "To go on waiting run the same play again, which takes it over; to stop it run the playbook teardown"),
        (NONE, NEW, True, False, "are stopped; the next run replaces them"),
        (NONE, NONE, False, False, "are stopped; the next run replaces them"),
        (OLD, OLD, False, True, "The engine that served before this play was left alone."),
    ],
)
def test_an_engine_that_nothing_proves_dead_runs_on(before, now, known, kept, text):
    failed = {"__vllm_server_result": {"failed": True, "changed": True, "msg": "it broke.", "started_run": "new", "cause_known": known}}
    verdict = lines(before, now, worker=failed)
    assert verdict[0] is kept and text in verdict[1]


@pytest.mark.parametrize(
    ("before", "token", "kept", "text"),
    [
        (NONE, "pass", True, "The engine gives tokens and runs on, unproven."),
        (NONE, "block", False, "are stopped; the next run replaces them"),
        (NEW, "pass", True, "The engine that served before this play was left alone."),
    ],
)
def test_an_engine_that_gives_tokens_is_not_stopped_by_a_proof(before, token, kept, text):
    proved = {"findings": [{"id": "proof.completion", "verdict": token}, {"id": "proof.fabric", "verdict": "unknown"}]}
    verdict = lines(before, NEW, head={"__proof_judged": proved})
    assert verdict[0] is kept and text in verdict[1]


@pytest.mark.parametrize(
    ("start", "lost", "now", "kept"),
    [
        ({"failed": False, "changed": True, "seconds_to_first_token": 0.4}, True, NEW, True),
        # A node where a task failed still answers, and its answer counts.
        ({"failed": False, "changed": True, "seconds_to_first_token": 0.4}, False, NEW, False),
        ({"failed": False, "changed": True, "seconds_to_first_token": 0.4}, True, NONE, False),
        ({"failed": True, "changed": True, "cause_known": True}, True, NEW, False),
    ],
)
def test_an_engine_that_gave_its_token_is_not_stopped_because_a_node_is_lost(start, lost, now, kept):
    head = {"__vllm_server_result": start, "__abort_failed": {} if lost else None}
    worker = {"__abort_failed": None if lost else {"msg": "it broke."}}
    assert lines(NONE, now, head=head, worker=worker, why=None)[0] is kept


def test_the_first_failure_of_all_nodes_stands_above_the_others():
    first = {"node": "spark-2", "time": 1795228877.0, "id": "memory-out", "cause": "memory ran out", "consequence": "the rank ends", "remedy": "Drop it.",
             "lines": ["CUDA out of memory."], "certainty": "known"}  # fmt: skip
    why = (
        "First to fail: spark-2 at 02:41:17 UTC, memory-out (known): memory ran out. What follows: the rank ends. Remedy: Drop it. Lines: CUDA out of memory."
    )
    lines(NONE, NEW, head={"__vllm_server_result": {"failed": True, "msg": "echo", "first_failure": first, "cause_known": True}}, why=why)


@pytest.mark.parametrize(
    ("result", "runs"),
    [
        ({"failed": True, "started_run": "new"}, ["new"]),
        # An engine that gave a token may be answering a request by now. One that ran before the play does not belong to it.
        ({"failed": False, "started_run": "new"}, []),
        ({"failed": True, "started_run": "", "run_id": "old"}, []),
        ({"failed": True, "msg": "not reached"}, []),
        (None, []),
    ],
)
def test_only_a_run_of_this_play_that_gave_no_token_goes_without_consent(result, runs):
    assert abort.unready_runs({"spark-1": {"engine": result}, "spark-2": {"engine": None}}) == runs


@pytest.mark.parametrize("result", ["__ray_head_result", "__ray_worker_result", "__native_node_result", "__vllm_server_result"])
@pytest.mark.parametrize("changed", [True, False])
def test_what_this_play_put_in_its_place_is_its_own(result, changed):
    """The old engine was stopped with consent: what its successor left may go although the head is lost."""
    assert lines(OLD, UNKNOWN, worker={result: {"changed": changed, "failed": True, "msg": "it broke."}})[0] is not changed


def test_a_node_whose_container_was_not_stopped_is_named():
    text = lines(NONE, UNKNOWN, head={"__abort_stop": {"failed": True}})[1]
    assert "Not stopped: what runs on spark-1. Remedy: See that Docker answers there" in text and "are stopped on the other nodes" in text
    assert "Not stopped" not in lines(NONE, NONE)[1] and "on the other nodes" not in lines(NONE, NONE)[1]


@pytest.mark.parametrize("result", ["__abort_stop", "__abort_engine"])
def test_why_a_container_was_not_stopped_is_said(result):
    refused = {"failed": True, "msg": "it has 2 request(s)", "remedy": "Repeat when they are answered."}
    text = lines(NONE, UNKNOWN, head={"__abort_stop": None, result: refused})[1]
    assert "Not stopped: what runs on spark-1.\nspark-1: it has 2 request(s) Remedy: Repeat when they are answered.\n" in text and "Docker" not in text


def test_each_stop_that_failed_is_reported_once():
    stops = {"__abort_engine": {"failed": True, "msg": "it serves"}, "__abort_stop": {"failed": True, "msg": "Docker hangs"}}
    text = lines(NONE, UNKNOWN, head=stops)[1]
    assert "Not stopped: what runs on spark-1.\nspark-1: it serves\nspark-1: Docker hangs\n" in text
    text = lines(NONE, UNKNOWN, head=dict.fromkeys(stops, stops["__abort_stop"]))[1]
    assert text.count("spark-1: Docker hangs") == 1


def test_check_mode_claims_nothing():
    text = lines(NONE, NONE, check_mode=True, worker={"__abort_memory": {"verdict": "warn", "msg": "9 MiB are missing"}})[1]
    assert "Check mode started nothing, and stops nothing." in text and "MiB" not in text


def test_memory_that_did_not_come_back_is_reported_with_its_remedy():
    memory = {"verdict": "warn", "msg": "33100 MiB have not come back", "remedy": "See what holds it."}
    assert "spark-2: 33100 MiB have not come back Remedy: See what holds it." in lines(NONE, NONE, worker={"__abort_memory": memory})[1]
    assert "MiB" not in lines(NONE, NONE, worker={"__abort_memory": {**memory, "verdict": "pass"}})[1]


def test_of_an_engine_that_did_not_start_its_own_result_is_reported():
    result = {"failed": True, "msg": "no such argument", "remedy": "Leave it out."}
    text = lines(NONE, NONE, head={"__vllm_server_result": {**result, "msg": "ended because spark-2 failed", "reason": "another node failed"}}, worker={
        "__vllm_server_result": result, "__abort_failed": {"msg": "The engine did not start; see above."},
    }, why="spark-2: no such argument Remedy: Leave it out.")[1]  # fmt: skip
    assert "see above." not in text and "ended because" not in text
