# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node on which no module runs is a result where that is wanted; any other failure stays one."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.gb10.cluster.plugins.action import node_info

PING = "ansible.builtin.ping"
LOST = AnsibleConnectionFailure("Failed to connect to the host via ssh: No route to host")
FAILED = {"failed": True, "msg": "it broke"}


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> t.Callable[..., tuple[dict[str, t.Any], list[str]]]:
    monkeypatch.setattr(ActionBase, "run", lambda *_given: {})

    def ask(look: t.Any, ping: t.Any = None, **args: t.Any) -> tuple[dict[str, t.Any], list[str]]:
        """Run the action; return its result and the names of the modules that ran."""
        ran: list[str] = []

        def execute(module_name: str, **_given: t.Any) -> dict[str, t.Any]:
            ran.append(module_name)
            answer = ping if module_name == PING else look
            if isinstance(answer, Exception):
                raise answer
            return answer

        made = node_info.ActionModule.__new__(node_info.ActionModule)
        made._task = types.SimpleNamespace(args=args, async_val=0)
        made._connection = types.SimpleNamespace(get_option=lambda _name: "ada")
        made._execute_module = execute
        return made.run(task_vars={"inventory_hostname": "spark-1"}), ran

    return ask


def test_a_node_that_answers_costs_one_call(ask):
    assert ask({"memory": {}}, reach=True) == ({"memory": {}, "reached": True}, [node_info.MODULE])
    assert ask({"memory": {}}) == ({"memory": {}}, [node_info.MODULE])


@pytest.mark.parametrize("look", [LOST, FAILED])
def test_a_node_on_which_no_module_runs_is_a_result(ask, look):
    result, ran = ask(look, LOST, reach="true")
    assert not result["reached"] and not result.get("failed") and result["verdict"] == "block" and result["remedy"] and ran == [node_info.MODULE, PING]


def test_a_failure_of_the_module_itself_stays_one(ask):
    assert ask(FAILED, {"ping": "pong"}, reach=True)[0]["failed"]
    with pytest.raises(AnsibleConnectionFailure):
        ask(LOST, {"ping": "pong"}, reach=True)
    with pytest.raises(AnsibleConnectionFailure):
        ask(LOST)
