# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ranks start and end together: all nodes decide the same, and no rank starts before the last one ended."""

from __future__ import annotations

import threading

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, WaitTimeout
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve import ranks, run_board
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.ranks import JointStart, predicted, reason_to_start
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.run_board import AnotherFailed, RunBoard

OFF = {"state": "stopped", "argv": []}
ON = {"state": "started", "argv": ["vllm"]}


def plan(live, changed, reason="no engine runs"):
    return {
        "changed": changed, "engine_live": live, "reason": reason, "actions": ["start the engine"] if changed else [], "msg": "",
        "diff": {"before": ON if live else OFF, "after": ON}, "run_id": "old" if live else "",
    }  # fmt: skip


LIVE, DEAD = plan(True, False, "the engine is live"), plan(False, True)


# -- decide ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "worker", "reason"),
    [
        ((True, False), (True, False), ""),
        ((False, True), (False, True), "mine"),
        ((True, True), (True, True), "mine"),
        ((True, False), (False, True), "an engine without all its ranks is not live: none lives on spark-2"),
        ((False, True), (True, False), "an engine without all its ranks is not live: none lives on spark-1"),
        # One node permits a restart, so the others have to restart too.
        ((True, True), (True, False), "mine"),
    ],
)
def test_reason_to_start(head, worker, reason):
    plans = {node: {"live": live, "changed": changed, "reason": "mine"} for node, (live, changed) in (("spark-1", head), ("spark-2", worker))}
    assert reason_to_start(plans) == reason


def test_a_prediction_for_a_live_rank_shows_a_difference():
    prediction = predicted(LIVE, "a rank is missing")
    assert (prediction["changed"], prediction["msg"]) == (True, "would be restarted: a rank is missing")
    assert prediction["diff"]["before"]["state"] == "incomplete"
    assert prediction["diff"]["before"] != prediction["diff"]["after"]


# -- joint start -----------------------------------------------------------------------------------------------------


class Nodes:
    """Head and worker as threads that share a board; the order of the module runs is recorded."""

    def __init__(self, root):
        self.root = root
        self.runs = []
        self.interrupted = set()
        self.asked = set()
        self.results = {}
        self.errors = {}

    def module(self, node, plan, fails=""):
        def run(state, predict, more):
            if predict:
                self.asked |= set() if more else {node}
                return dict(plan)
            self.runs.append((node, state))
            self.interrupted |= {node} if more.get("lacks_rank") else set()
            if state == fails:
                return {"failed": True, "msg": f"{state} failed", "changed": False}
            was = plan["engine_live"]
            if state == "stopped":
                return {"changed": was, "actions": ["stopped old"] if was else [], "diff": {}, "reason": "x", **({"stopped": {"run_id": "old"}} if was else {})}
            return {"changed": True, "actions": ["started new"], "diff": {"before": OFF, "after": ON}, "reason": "x", "run_id": "new", "msg": "started new"}

        return run

    def play(self, head, worker, check_mode=False, fails=(), count=2):
        threads = [
            threading.Thread(target=self.one, args=(node, role, plan, check_mode, dict(fails).get(node, ""), count))
            for node, role, plan in (("spark-1", "head", head), ("spark-2", "worker", worker))
            if plan
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def one(self, node, role, plan, check_mode, fails, count):
        board = RunBoard(str(self.root), "uuid", node, role)
        board.join()
        result = self.results[node] = {}
        try:
            JointStart(board, role == "head", count, 1, self.module(node, plan, fails)).start(result, check_mode)
            if result.get("failed"):
                board.fail(result["msg"])
        except ClusterError as error:
            self.errors[node] = error
            board.fail(str(error))
        finally:
            board.leave()


@pytest.fixture
def nodes(tmp_path, monkeypatch):
    monkeypatch.setattr(run_board, "POLL_SECONDS", 0.005)
    monkeypatch.setattr(ranks, "PLAN_SECONDS", 0.3)
    monkeypatch.setattr(ranks, "STOP_MARGIN", 5.0)
    return Nodes(tmp_path)


def test_live_ranks_are_left_alone(nodes):
    nodes.play(LIVE, LIVE)
    assert nodes.runs == []
    assert not any(result["changed"] for result in nodes.results.values())


@pytest.mark.parametrize(("head", "worker"), [(LIVE, DEAD), (DEAD, LIVE), (DEAD, DEAD), (plan(True, True), plan(True, True))])
def test_all_end_before_one_starts_and_the_head_ends_first(nodes, head, worker):
    nodes.play(head, worker)
    assert nodes.errors == {}
    assert nodes.runs[:2] == [("spark-1", "stopped"), ("spark-2", "stopped")]
    assert sorted(nodes.runs[2:]) == [("spark-1", "started"), ("spark-2", "started")]
    # Without all its ranks, an engine never answers requests. Requests to a complete engine wait for consent, which only its head needs.
    lacking = head["engine_live"] != worker["engine_live"]
    assert nodes.interrupted == ({"spark-1", "spark-2"} if lacking else {"spark-2"})
    assert nodes.asked == (set() if lacking else {"spark-1"})
    for node, was in (("spark-1", head), ("spark-2", worker)):
        result = nodes.results[node]
        assert (result["changed"], result["run_id"], result["msg"]) == (True, "new", "started new")
        assert result["actions"] == [*(["stopped old"] if was["engine_live"] else []), "started new"]
        assert ("stopped" in result) == was["engine_live"]
        assert result["diff"]["before"] != result["diff"]["after"]


def test_check_mode_predicts_for_all_and_runs_nothing(nodes):
    nodes.play(LIVE, DEAD, check_mode=True)
    assert nodes.runs == []
    assert [nodes.results[node]["changed"] for node in ("spark-1", "spark-2")] == [True, True]
    assert "none lives on spark-2" in nodes.results["spark-1"]["reason"]


def test_a_node_that_is_blocked_ends_all_before_anything_is_stopped(nodes):
    nodes.play({"failed": True, "msg": "restart not allowed"}, LIVE)
    assert nodes.runs == []
    assert nodes.results["spark-1"]["msg"] == "restart not allowed"
    assert isinstance(nodes.errors["spark-2"], AnotherFailed)
    assert "ended because spark-1 failed: restart not allowed" in str(nodes.errors["spark-2"])


@pytest.mark.parametrize("node", ["spark-1", "spark-2"])
def test_a_rank_that_cannot_be_stopped_keeps_all_from_starting(nodes, node):
    nodes.play(LIVE, plan(True, True), fails=[(node, "stopped")])
    assert not any(state == "started" for _node, state in nodes.runs)
    assert nodes.results[node]["failed"]


def test_a_start_that_fails_still_reports_what_was_stopped(nodes):
    nodes.play(LIVE, DEAD, fails=[("spark-1", "started")])
    result = nodes.results["spark-1"]
    assert (result["failed"], result["changed"], result["actions"]) == (True, True, ["stopped old"])


def test_the_wait_for_a_node_that_never_joins_is_bounded(nodes):
    nodes.play(DEAD, None)
    assert isinstance(nodes.errors["spark-1"], WaitTimeout)
    assert "only 1 of 2 nodes took part in this task" in str(nodes.errors["spark-1"])
    assert "as many forks as nodes" in nodes.errors["spark-1"].remedy
    assert nodes.runs == []


def test_a_node_that_ends_without_a_result_is_noticed(nodes):
    lost = RunBoard(str(nodes.root), "uuid", "spark-2", "worker")
    lost.join()
    lost.leave()
    nodes.one("spark-1", "head", DEAD, False, "", 2)
    assert "this task ended on spark-2 without a result" in str(nodes.errors["spark-1"])
