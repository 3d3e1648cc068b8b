# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's half of cluster_lock."""

from __future__ import annotations

import os
import types
from unittest import mock

import pytest

from ansible_collections.gb10.cluster.plugins.action import cluster_lock

BLOCKED = {"failed": True, "msg": "another run works on this cluster", "lock": {"id": "abc", "holder": {"pid": 12}}}
TAKEN = {"taken_over": True, "reason": "taken over from bob", "msg": "taken over from bob", "changed": False}


@pytest.fixture
def action(monkeypatch):
    plugin = cluster_lock.ActionModule(
        task=types.SimpleNamespace(args={"cluster_name": "gb10"}, async_val=0, check_mode=False, diff=False, _role=None),
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
    assert action.run(task_vars={"ansible_play_name": "Up"}) == {"held": True}
    (call,) = action._execute_module.call_args_list
    holder = call.kwargs["module_args"]["holder"]
    assert holder["pid"] == os.getppid() and holder["play"] == "Up"
    assert call.kwargs["module_args"]["cluster_name"] == "gb10"


def test_a_run_that_lives_or_cannot_be_judged_is_left_alone(action, monkeypatch):
    action._execute_module.return_value = BLOCKED
    monkeypatch.setattr(cluster_lock, "why_ended", lambda other, me: None)
    assert action.run(task_vars={}) == BLOCKED
    assert action._execute_module.call_count == 1


def test_a_run_that_has_ended_is_taken_over_and_the_reason_says_so(action, monkeypatch):
    action._execute_module.side_effect = [BLOCKED, TAKEN]
    monkeypatch.setattr(cluster_lock, "why_ended", lambda other, me: "its process 12 on this controller has ended")
    result = action.run(task_vars={})
    assert result["reason"] == result["msg"] == "taken over from bob: its process 12 on this controller has ended"
    second = action._execute_module.call_args_list[1].kwargs["module_args"]
    assert second["break_lock"] is True and second["only_id"] == "abc"


def test_check_mode_predicts_that_an_ended_run_is_replaced(action, monkeypatch):
    warned = {**BLOCKED, "failed": False, "verdict": "warn"}
    action._execute_module.side_effect = [warned, TAKEN]
    monkeypatch.setattr(cluster_lock, "why_ended", lambda other, me: "its process 12 on this controller has ended")
    assert action.run(task_vars={})["taken_over"]


def test_a_lock_that_has_changed_hands_still_blocks(action, monkeypatch):
    action._execute_module.side_effect = [BLOCKED, BLOCKED]
    monkeypatch.setattr(cluster_lock, "why_ended", lambda other, me: "it has ended")
    assert action.run(task_vars={}) == BLOCKED


def test_other_failures_are_passed_on(action):
    action._execute_module.return_value = {"failed": True, "msg": "unreadable"}
    assert action.run(task_vars={})["msg"] == "unreadable"
    assert action._execute_module.call_count == 1
