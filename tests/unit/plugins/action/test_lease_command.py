# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's part of a lease: the command runs, the lease is renewed, and whatever ends the run ends both."""

from __future__ import annotations

import base64
import json
import os
import threading
import time
import types
from unittest import mock

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.gb10.cluster.plugins.action import lease_command
from ansible_collections.gb10.cluster.plugins.module_utils import _http
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._lease.record import OVER

ENGINE = {"cluster": "gb10", "role": "head", "state": "running", "model": "org/pair", "endpoint": "http://0.0.0.0:8000/v1"}
KEY = "plantedKeyOfTheTest"


@pytest.fixture
def shown(monkeypatch):
    lines = []
    monkeypatch.setattr(lease_command, "display", types.SimpleNamespace(display=lines.append, warning=lines.append))
    return lines


@pytest.fixture
def action(tmp_path, monkeypatch, shown):
    """Makes the plugin of a node; its modules return ``answers``, by state."""
    monkeypatch.setattr(lease_command.C, "DEFAULT_LOCAL_TMP", str(tmp_path))
    monkeypatch.setattr(lease_command, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(lease_command, "RENEW_SECONDS", 0.02)
    monkeypatch.setattr(lease_command._http, "ask", lambda url, timeout, key=None: _http.Answer(200, b"{}"))
    # Signals are the main thread's.
    monkeypatch.setattr(lease_command.signal, "signal", lambda number, handler: handler)
    monkeypatch.setattr(lease_command, "time_limit", lambda seconds: mock.MagicMock())

    def make(command, node="spark-1", nodes=("spark-1",), engines=(ENGINE,), lease_id="abc", lost_seconds=300, limit=0, answers=None):
        args = {
            "command": list(command), "mode": "cluster", "clusters": ["gb10"], "nodes": list(nodes), "engines": list(engines), "address": "192.0.2.1",
            "beside": str(tmp_path / "logs" / "report.json"), "limit_seconds": limit, "lost_seconds": lost_seconds, "lease_id": lease_id,
        }  # fmt: skip
        plugin = lease_command.ActionModule(
            task=types.SimpleNamespace(args=args, async_val=0, check_mode=False, diff=False, _role=None, _uuid="uuid"),
            connection=mock.Mock(), play_context=mock.Mock(), loader=mock.Mock(), templar=mock.Mock(), shared_loader_obj=mock.Mock(),
        )  # fmt: skip
        plugin.states = []

        def execute(module_name, module_args, task_vars):
            if module_name == lease_command.ENGINE:
                assert module_args["api_key_file"] == "/etc/gb10/secrets/gb10/api_key"
                return {"key_withheld": "", **(answers or {}).get("engine", {})}
            if module_name == lease_command.SLURP:
                assert module_args["src"] == "/etc/gb10/secrets/gb10/api_key"
                return {"content": base64.b64encode(f"{KEY}\n".encode()).decode()}
            plugin.states.append(module_args["state"])
            if plugin.states.count("renewed") == 3:
                (tmp_path / f"renewed-{node}").touch()
            answer = (answers or {}).get(module_args["state"], {"changed": False})
            if isinstance(answer, Exception):
                raise answer
            return answer

        plugin._execute_module = execute
        monkeypatch.setattr(lease_command.ActionModule.__bases__[0], "run", lambda self, tmp, task_vars: {})
        plugin.play = lambda: plugin.run(task_vars={"inventory_hostname": node})
        return plugin

    return make


def test_the_command_gets_the_engine_and_its_key_as_a_file_and_its_output_is_shown_without_the_key(action, shown, tmp_path):
    script = 'echo "$GB10_ENDPOINT $GB10_MODEL"; cat "$GB10_API_KEY_FILE" "$GB10_SERVICES_FILE"; stat -c %a "$GB10_API_KEY_FILE"; env | grep -c planted; exit 3'
    plugin = action(["sh", "-c", script])
    result = plugin.play()
    assert result["exit_code"] == 3 and not result["limited"] and not result.get("failed") and "ended with exit code 3" in result["msg"]
    text = "\n".join(shown)
    assert "  http://192.0.2.1:8000/v1 org/pair" in shown and KEY not in text and "  600" in shown and "  0" in shown
    log = open(result["log"], encoding="utf-8").read()
    assert KEY in log and json.loads(log[log.index("{") : log.rindex("}") + 1])["gb10"]["model"] == "org/pair"
    # Nothing of the key is left.
    assert not list(tmp_path.rglob("*.key")) and result["tail"] and KEY not in str(result)


def until_renewed(place, node):
    """A command that ends when the lease of a node was renewed three times."""
    return ["timeout", "60", "sh", "-c", f"until [ -e {place}/renewed-{node} ]; do sleep 0.02; done"]


def test_the_lease_is_renewed_while_the_command_runs_and_not_where_there_is_none(action, tmp_path):
    plugin = action(until_renewed(tmp_path, "spark-1"))
    assert plugin.play()["exit_code"] == 0 and plugin.states.count("renewed") >= 3
    plain = action(["sleep", "0.1"], lease_id="")
    plain._task.args["cluster_name"] = "other"
    assert plain.play()["exit_code"] == 0 and plain.states == []


def test_a_command_is_ended_at_its_limit(action):
    result = action(["sleep", "600"], limit=1).play()
    assert result["limited"] and result["exit_code"] == 143 and "its limit" in result["msg"]


def test_a_lease_that_is_over_ends_the_command(action):
    over = {"failed": True, "msg": "the lease is over: ended", "reason": OVER, "remedy": "See the playbook status."}
    began = time.monotonic()
    result = action(["sleep", "600"], answers={"renewed": over}).play()
    assert result["failed"] and result["lost"] and "the lease is over" in result["msg"] and time.monotonic() - began < 60


def test_a_node_that_is_not_reached_for_too_long_loses_its_lease(shown):
    tells = mock.Mock(side_effect=AnsibleConnectionFailure("no route"))
    renewal = lease_command.Renewal(tells, 0, "spark-2")
    with pytest.raises(UnknownState, match="spark-2 heard nothing of its lease") as caught:
        renewal.check()
    assert caught.value.reason == OVER
    patient = lease_command.Renewal(tells, 300, "spark-2")
    patient._due = 0
    patient.check()
    patient._due = 0
    patient.check()
    assert len([line for line in shown if "was not renewed" in line]) == 1


def test_a_renewal_that_fails_without_a_message_is_not_a_success(shown):
    renewal = lease_command.Renewal(mock.Mock(return_value={"failed": True, "msg": ""}), 300, "spark-2")
    renewal._due = 0
    renewal.check()
    assert "it failed without a message" in " ".join(shown)


def test_renewals_come_often_enough_to_lose_some():
    assert lease_command.renew_every(300) == 30 and lease_command.renew_every(20) == 4


def test_when_the_run_is_interrupted_the_command_ends_and_the_nodes_are_notified(action):
    plugin = action(["sleep", "600"])
    threading.Timer(0.3, lambda: plugin._ask_to_stop(2, None)).start()
    began = time.monotonic()
    result = plugin.play()
    assert result["failed"] and "given_up" in plugin.states and time.monotonic() - began < 60


def test_when_the_process_of_the_run_is_gone_the_nodes_that_answer_are_notified(action, monkeypatch):
    plugin = action(["sleep", "600"], answers={"given_up": AnsibleConnectionFailure("no route")})
    parents = iter([7])
    monkeypatch.setattr(lease_command.os, "getppid", lambda: next(parents, 1))
    assert plugin.play()["failed"] and plugin.states[-1] == "given_up"


def test_an_engine_that_does_not_answer_this_controller_stops_before_the_command(action, monkeypatch, tmp_path):
    monkeypatch.setattr(lease_command._http, "ask", lambda url, timeout, key=None: _http.Answer(None, b"", "no route", True))
    result = action(["touch", str(tmp_path / "ran")]).play()
    assert result["failed"] and not result["lost"] and "http://192.0.2.1:8000/v1/models: no route" in result["msg"] and "gb10_api_address" in result["remedy"]
    assert not os.path.exists(tmp_path / "ran")


def test_an_engine_of_which_no_unit_says_where_it_is_stops_before_the_command(action, tmp_path):
    result = action(["touch", str(tmp_path / "ran")], engines=[{**ENGINE, "state": "stopped"}]).play()
    assert result["failed"] and "no unit says that gb10 serves" in result["msg"] and not os.path.exists(tmp_path / "ran")


def test_the_other_nodes_renew_until_the_command_has_ended(action, tmp_path):
    nodes = ("spark-1", "spark-2")
    other = action(["true"], node="spark-2", nodes=nodes, engines=())
    results = {}
    thread = threading.Thread(target=lambda: results.update(other=other.play()))
    thread.start()
    first = action(until_renewed(tmp_path, "spark-2"), nodes=nodes).play()
    thread.join(30)
    assert first["exit_code"] == 0 and results["other"]["msg"] == "the command has ended" and other.states.count("renewed") >= 3


def test_a_node_that_loses_its_lease_ends_the_command_of_all(action):
    nodes = ("spark-1", "spark-2")
    over = {"failed": True, "msg": "the lease is over", "reason": OVER}
    other = action(["sleep", "600"], node="spark-2", nodes=nodes, engines=(), answers={"renewed": over})
    results = {}
    thread = threading.Thread(target=lambda: results.update(other=other.play()))
    thread.start()
    first = action(["sleep", "600"], nodes=nodes).play()
    thread.join(30)
    assert first["failed"] and "spark-2 failed" in first["msg"] and results["other"]["lost"] and not first["lost"]


def test_where_one_node_loses_its_lease_the_others_give_theirs_up_and_nowhere_else(action, monkeypatch):
    nodes = ("spark-1", "spark-2")
    over = {"failed": True, "msg": "the lease is over", "reason": OVER}

    def play_both(answers):
        other = action(["sleep", "600"], node="spark-2", nodes=nodes, engines=(), answers=answers)
        thread = threading.Thread(target=other.play)
        thread.start()
        first = action(["sleep", "600"], nodes=nodes)
        assert first.play()["failed"]
        thread.join(30)
        return first.states, other.states

    first, other = play_both({"renewed": over})
    assert first[-1] == "given_up" and "given_up" not in other
    # The plays bring back what the nodes keep.
    monkeypatch.setattr(lease_command._http, "ask", lambda url, timeout, key=None: _http.Answer(None, b"", "no route", True))
    assert not any("given_up" in states for states in play_both({}))


@pytest.mark.parametrize(
    ("endpoint", "reached"),
    [
        ("http://0.0.0.0:8000/v1", "http://192.0.2.1:8000/v1"),
        ("http://[::]:8000/v1", "http://192.0.2.1:8000/v1"),
        ("http://198.51.100.1:8000/v1", "http://198.51.100.1:8000/v1"),
    ],
)
def test_an_engine_that_listens_everywhere_is_called_by_the_nodes_address(endpoint, reached):
    assert lease_command.reached_at(endpoint, "192.0.2.1") == reached


def test_check_mode_runs_nothing(action, tmp_path):
    plugin = action(["touch", str(tmp_path / "ran")])
    plugin._task.check_mode = True
    result = plugin.play()
    assert result["changed"] and "would run touch" in result["msg"] and not os.path.exists(tmp_path / "ran")


def test_no_key_is_asked_for_where_the_engine_wants_none(action):
    plugin = action(["sh", "-c", "exit ${GB10_API_KEY_FILE:+1}"])
    plugin._task.args["has_key"] = False
    assert plugin.play()["exit_code"] == 0


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ({"key_withheld": "the API's key was not sent: thief (pid 7) listens"}, "thief (pid 7) listens"),
        ({"key_withheld": None}, "no process answers at the port of the API"),
        ({"failed": True, "msg": "no permission"}, "no permission"),
    ],
)
def test_a_key_whose_engine_the_node_does_not_see_is_not_handed_out(action, tmp_path, seen, why):
    result = action(["touch", str(tmp_path / "ran")], answers={"engine": seen}).play()
    assert result["failed"] and "spark-1: the key of gb10 is not handed out: " in result["msg"] and why in result["msg"] and result["reason"] == "key"
    assert KEY not in str(result) and not (tmp_path / "ran").exists()


def test_a_key_that_cannot_be_read_is_said(action):
    plugin = action(["true"])
    answers = {lease_command.ENGINE: {"key_withheld": ""}}
    plugin._execute_module = lambda name, *args, **more: answers.get(name, {"failed": True, "msg": "permission denied"})
    result = plugin.play()
    assert result["failed"] and "api_key cannot be read on spark-1: permission denied" in result["msg"]
