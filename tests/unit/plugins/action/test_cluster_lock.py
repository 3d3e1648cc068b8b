# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's half of cluster_lock."""

from __future__ import annotations

import os
import threading
import types
from unittest import mock

import pytest

from ansible_collections.gb10.cluster.plugins.action import cluster_lock
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve import run_board

BLOCKED = {"failed": True, "msg": "another run works on this cluster", "lock": {"id": "abc", "holder": {"pid": 12, "pid_start": "9"}}}
TAKEN = {"taken_over": True, "reason": "taken over from bob", "msg": "taken over from bob", "changed": False}


@pytest.fixture
def action(monkeypatch):
    plugin = cluster_lock.ActionModule(
        task=types.SimpleNamespace(args={"cluster_name": "gb10"}, async_val=0, check_mode=False, diff=False, _role=None, _uuid="uuid"),
        connection=mock.Mock(),
        play_context=mock.Mock(),
        loader=mock.Mock(),
        templar=mock.Mock(),
        shared_loader_obj=mock.Mock(),
    )
    plugin._execute_module = mock.Mock()
    monkeypatch.setattr(cluster_lock.ActionModule.__bases__[0], "run", lambda self, tmp, task_vars: {})
    return plugin


def test_says_who_this_run_is(action):
    action._execute_module.return_value = {"held": True}
    result = action.run(task_vars={"ansible_play_name": "Up"})
    assert result.pop("finished_at") > 0 and result.pop("ansible_stats")["data"] == {"gb10_verdict": "unknown"}
    assert result == {"held": True}
    (call,) = action._execute_module.call_args_list
    holder = call.kwargs["module_args"]["holder"]
    assert holder["pid"] == os.getppid() and holder["play"] == "Up"
    assert call.kwargs["module_args"]["cluster_name"] == "gb10"


def test_a_run_that_lives_or_cannot_be_judged_is_left_alone(action, monkeypatch):
    action._execute_module.return_value = BLOCKED
    monkeypatch.setattr(cluster_lock, "why_ended", lambda other, here: "")
    assert action.run(task_vars={}) == BLOCKED
    assert action._execute_module.call_count == 1


def test_a_run_that_has_ended_is_taken_over_and_the_reason_says_so(action, monkeypatch):
    action._execute_module.side_effect = [BLOCKED, TAKEN]
    monkeypatch.setattr(cluster_lock, "why_ended", lambda other, here: "its process 12 has ended")
    result = action.run(task_vars={})
    assert result["reason"] == result["msg"] == "taken over from bob: its process 12 has ended"
    second = action._execute_module.call_args_list[1].kwargs["module_args"]
    assert second["break_lock"] == "abc"


def test_check_mode_predicts_that_an_ended_run_is_replaced(action, monkeypatch):
    warned = {**BLOCKED, "failed": False, "verdict": "warn"}
    action._execute_module.side_effect = [warned, TAKEN]
    monkeypatch.setattr(cluster_lock, "why_ended", lambda other, here: "its process 12 has ended")
    assert action.run(task_vars={})["taken_over"]


def test_a_lock_that_has_changed_hands_still_blocks(action, monkeypatch):
    action._execute_module.side_effect = [BLOCKED, BLOCKED]
    monkeypatch.setattr(cluster_lock, "why_ended", lambda other, here: "it has ended")
    assert action.run(task_vars={}) == BLOCKED


def test_other_failures_are_passed_on(action):
    action._execute_module.return_value = {"failed": True, "msg": "unreadable"}
    assert action.run(task_vars={})["msg"] == "unreadable"
    assert action._execute_module.call_count == 1


# -- all nodes, in one order -----------------------------------------------------------------------------------------


class Cluster:
    """Nodes with their locks, and runs that lock them; each run's tasks are threads, as they are processes with Ansible."""

    def __init__(self, root, monkeypatch):
        self.root, self.monkeypatch, self.locks, self.guard = root, monkeypatch, {}, threading.Lock()
        self.tried = []

    def node(self, run, name, inventory, results, barrier):
        board = run_board.RunBoard(str(self.root / run), "uuid", name, "node")
        board.join()
        plugin = object.__new__(cluster_lock.ActionModule)

        def lock(_args):
            with self.guard:
                self.tried.append((run, name))
                held = self.locks.setdefault(name, run) == run
            return {"held": held} if held else {"failed": True, "msg": f"another run works on this cluster: {self.locks[name]}"}

        plugin._lock = lock
        barrier.wait()
        try:
            results[run, name] = plugin._lock_in_turn(board, name, len(inventory), {"order": inventory[name]})
        except ClusterError as error:
            board.fail(str(error))
            results[run, name] = {"failed": True, "msg": str(error)}
        finally:
            board.leave()

    def play(self, **runs):
        results = {}
        barrier = threading.Barrier(sum(len(inventory) for inventory in runs.values()))
        threads = [
            threading.Thread(target=self.node, args=(run, name, inventory, results, barrier)) for run, inventory in runs.items() for name in inventory
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    monkeypatch.setattr(run_board, "POLL_SECONDS", 0.002)
    monkeypatch.setattr(cluster_lock, "ORDER_SECONDS", 5.0)
    return Cluster(tmp_path, monkeypatch)


FABRIC = {"spark-1": "10.0.0.1", "spark-2": "10.0.0.2"}


@pytest.mark.parametrize("number", range(10))
def test_of_two_inventories_with_swapped_heads_one_gets_all_nodes(cluster, number):
    swapped = dict(reversed(FABRIC.items()))
    results = cluster.play(ada=FABRIC, bob=swapped)
    winner = cluster.locks["spark-1"]
    assert cluster.locks == {"spark-1": winner, "spark-2": winner}
    loser = ({"ada", "bob"} - {winner}).pop()
    assert not any(results[winner, name].get("failed") for name in FABRIC)
    assert "another run works on this cluster" in results[loser, "spark-1"]["msg"]
    assert "ended because spark-1 failed: another run works" in results[loser, "spark-2"]["msg"]
    assert (loser, "spark-2") not in cluster.tried, "who is refused holds nothing"


def test_inventories_that_order_the_nodes_differently_never_both_get_them(cluster):
    other = {"spark-1": "10.1.0.9", "spark-2": "10.1.0.2"}
    results = cluster.play(ada=FABRIC, bob=other)
    won = [run for run in ("ada", "bob") if not any(results[run, name].get("failed") for name in FABRIC)]
    assert len(won) < 2


def test_one_node_needs_no_order(action):
    action._execute_module.return_value = {"held": True}
    action._task.args = {"nodes": ["spark-1"], "order": "10.0.0.1"}
    assert action.run(task_vars={"inventory_hostname": "spark-1"})["held"]


def test_the_lock_of_a_mode_leaves_the_verdict_as_it_is(action):
    action._execute_module.return_value = {"held": True}
    action._task.args = {"path": "/var/lib/gb10/mode.lock.json"}
    assert action.run(task_vars={"inventory_hostname": "spark-1"}) == {"held": True}


def test_a_release_does_not_wait(action):
    action._execute_module.return_value = {"held": False}
    action._task.args = {"state": "released", "nodes": ["spark-1", "spark-2"]}
    assert action.run(task_vars={"inventory_hostname": "spark-1"}) == {"held": False}
