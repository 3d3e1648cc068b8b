# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An unreachable node gives a result; nothing else is requested from it."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.gb10.cluster.plugins.action import node_state_info

PING = "ansible.builtin.ping"


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> t.Callable[..., tuple[dict[str, t.Any], list[tuple[str, t.Any]]]]:
    monkeypatch.setattr(ActionBase, "run", lambda *_given: {})

    def ask(answer: t.Any, **args: t.Any) -> tuple[dict[str, t.Any], list[tuple[str, t.Any]]]:
        """Run the action with these options; return its result, and what ran on the node with which options."""
        calls: list[tuple[str, t.Any]] = []

        def execute(module_name: str, module_args: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
            calls.append((module_name, module_args))
            if module_name != PING:
                return {"mode": None, "msg": "read: mode", "verdict": "pass"}
            if isinstance(answer, Exception):
                raise answer
            return answer

        made = node_state_info.ActionModule.__new__(node_state_info.ActionModule)
        made._task = types.SimpleNamespace(args=args)
        made._connection = types.SimpleNamespace(get_option=lambda _name: "ada")
        made._execute_module = execute
        return made.run(task_vars={"inventory_hostname": "spark-1"}), calls

    return ask


def test_the_node_is_tried_before_it_is_read(ask):
    result, calls = ask({"ping": "pong"}, want=["reach", "mode"], state_dir="/s")
    assert result["reached"] and result["msg"] == "read: mode" and calls == [(PING, {}), (node_state_info.MODULE, {"want": ["mode"], "state_dir": "/s"})]
    result, calls = ask({"ping": "pong"}, want="reach")
    assert result["reached"] and (result["verdict"], result["cause"]) == ("pass", "") and calls == [(PING, {})]


def test_without_that_wish_the_module_alone_runs(ask):
    assert ask({}, state_dir="/s")[1] == [(node_state_info.MODULE, {"state_dir": "/s"})]


@pytest.mark.parametrize("answer", [AnsibleConnectionFailure("Failed to connect to the host via ssh: No route to host"), {"failed": True, "msg": "no python"}])
def test_a_node_that_cannot_be_reached_is_a_result(ask, answer):
    result, calls = ask(answer, want=["reach", "mode"])
    assert not result["reached"] and result["verdict"] == "block" and result["cause"] and result["remedy"] and calls == [(PING, {})]
