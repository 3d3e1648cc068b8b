# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's half of cuda_zombie_check. Its test through Ansible is beside the module's."""

from __future__ import annotations

import types

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.gb10.cluster.plugins.action import cuda_zombie_check
from ansible_collections.gb10.cluster.plugins.action.cuda_zombie_check import ActionModule, carried, moves, slice_seconds


def result(state, *samples, **more):
    return {"reclaim": {"state": state, "why": ["x"], "samples_mb": list(samples), "risen_mb": samples[-1] - min(samples)}, "ended": [], **more}


@pytest.fixture
def action(monkeypatch):
    """An action whose module returns the given answers in turn; records the arguments and what was printed."""
    module = types.SimpleNamespace(given=[], printed=[], answers=[])

    def execute(self, module_name, module_args, task_vars):
        module.given.append(module_args)
        return module.answers.pop(0)

    monkeypatch.setattr(ActionModule, "_execute_module", execute)
    monkeypatch.setattr(ActionModule.__mro__[1], "run", lambda self, tmp, task_vars: {})
    monkeypatch.setattr(cuda_zombie_check.display, "display", module.printed.append)

    def run(**arguments):
        plugin = object.__new__(ActionModule)
        plugin._task = types.SimpleNamespace(args=arguments)
        return plugin.run(None, {"inventory_hostname": "spark-1"})

    module.run = run
    return module


def test_a_call_takes_whole_samples():
    assert [slice_seconds(seconds) for seconds in (1, 3, 5, 7, 10, 30)] == [10, 9, 10, 7, 10, 30]


def test_one_call_when_nothing_moves(action):
    action.answers = [result("one sample", 5)]
    assert action.run(kill_orphans=True) == result("one sample", 5)
    assert action.given == [{"kill_orphans": True, "earlier": {"seconds": 10}}] and action.printed == []


def test_it_goes_on_while_memory_moves_whatever_the_verdict(action):
    ended = [{"pid": 5, "outcome": "term"}]
    action.answers = [result("rising", 10240, 20480, failed=True, ended=ended), result("falling", 10240, 20480, 15360), result("settled", 10240, 20480, 20481)]
    assert action.run()["reclaim"]["state"] == "settled"
    assert action.given[1]["earlier"] == {"seconds": 10, "samples_mb": [10240, 20480], "why": ["x"], "ended": ended}
    assert action.printed[0].startswith("spark-1: memory is coming back (+10240 MiB), 20.0 GiB available") and "being taken" in action.printed[1]


def test_it_ends_when_the_time_is_over(action):
    action.answers = [result("rising", 1, count * 1000) for count in range(1, 9)]
    action.run(settle_timeout="30", settle_sleep="5")
    assert len(action.given) == 3
    action.given.clear()
    action.run(settle_timeout=4)
    assert len(action.given) == 1


def test_an_answer_without_a_look_is_the_answer(action):
    assert not moves({"failed": True, "msg": "x"}) and not moves({"reclaim": None})
    assert carried({"reclaim": {"samples_mb": [1], "why": []}}) == {"samples_mb": [1], "why": [], "ended": []}
    with pytest.raises(AnsibleActionFail, match="settle_timeout"):
        action.run(settle_timeout="soon")
