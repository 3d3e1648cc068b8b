# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What vllm_serve decides, and what it says and does about it."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils import _docker, _engine, _launcher, _serve_spec
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.modules import vllm_serve

BASE = {name: option.get("default") for name, option in _serve_spec.ARGUMENT_SPEC.items()}


def options(**more):
    return {**BASE, "model": "org/m", "api_address": "10.0.0.1", **more}


class Api:
    """A node's Docker engine with one head container, and the launcher's answers in it."""

    timeout = 60

    def __init__(self, running=True, status=None, stop=None):
        self.running = running
        self.answers = {"status": status or {"live": False, "remaining": []}, "stop": stop}
        self.called = []

    def exec(self, container_id, argv, *, timeout):
        self.called.append((argv[2], argv[5:], timeout))
        answer = self.answers[argv[2]]
        return answer if isinstance(answer, _docker.ExecResult) else _docker.ExecResult(0, json.dumps(answer), "")


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A node whose last run is written by ``note``; starting an engine only notes it."""
    run = tmp_path / "state" / "gb10" / "run"
    launch = tmp_path / "state" / "gb10" / "launch"
    run.mkdir(parents=True)
    launch.mkdir()

    class Node:
        params = {"state_dir": str(tmp_path / "state"), "log_dir": str(tmp_path / "log")}
        started = []

        def note(self, desired, **more):
            spec = vllm_serve.engine_spec(options(), desired, "20260101T000000Z-0001")
            (run / "run.json").write_text(json.dumps({**spec, "pid": 57, "start_ticks": 1, "started_at": 1.0, **more}))
            (launch / "launcher.py").touch()

        def work(self, api, check_mode=False, **more):
            container = {"Id": "c" * 64, "Name": "/gb10-gb10-head", "State": {"Running": api.running, "ExitCode": 0 if api.running else 137}} if api else None
            monkeypatch.setattr(_docker, "find_node_container", lambda *_args: container)
            return vllm_serve.work_head(options(**self.params, **more), api, check_mode)

        def spec(self):
            return json.loads((launch / "engine.json").read_text())

    made = Node()
    made.launch = launch
    made.started = []
    monkeypatch.setattr(vllm_serve, "start_engine", lambda _params, _paths, _id, spec: made.started.append(spec["run_id"]))
    monkeypatch.setattr(_engine, "requests_running", lambda _url, _timeout: 3)
    return made


LIVE = {"live": True, "remaining": [57]}
SAME = vllm_serve.desired_engine(options())
OTHER = vllm_serve.desired_engine(options(arguments={"max_model_len": 1024}))
STOPPED = {"run_id": "20260101T000000Z-0001", "was_live": True, "signals": ["SIGTERM"], "killed": [], "remaining": [], "seconds": 3.4}


# -- decide ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "live", "remaining", "same", "stop", "start"),
    [
        ("started", False, [], False, False, True),
        ("started", True, [1], True, False, False),
        ("started", True, [1], False, True, True),
        ("started", False, [1], True, True, True),
        ("stopped", False, [], False, False, False),
        ("stopped", True, [1], False, True, False),
        ("stopped", False, [1], False, True, False),
    ],
)
def test_plan(state, live, remaining, same, stop, start):
    plan = vllm_serve.plan(state, live, remaining, "1:a", "1:a" if same else "1:b")
    assert (plan.stop, plan.start, plan.changed) == (stop, start, stop or start)
    assert plan.reason


def test_differences_name_options_with_their_values():
    before = vllm_serve.snapshot(True, ["vllm", "serve", "m", "--a", "1", "--list", "x", "y"], {}, ["A"])
    after = vllm_serve.snapshot(True, ["vllm", "serve", "m", "--a", "2", "--list", "x", "y", "--flag"], {}, ["A", "B"])
    assert vllm_serve.differences(before, after) == "- --a 1, + --a 2, + --flag, no_carry_env"


def test_a_mere_change_of_order_is_said():
    before, after = (vllm_serve.snapshot(True, argv, {}, []) for argv in (["m", "--a", "--b"], ["m", "--b", "--a"]))
    assert vllm_serve.differences(before, after) == "argv has another order"


def test_snapshots_have_one_shape():
    running, stopped = vllm_serve.snapshot(True, ["a"], {"B": "/b"}, ["C"]), vllm_serve.snapshot(False, ["a"], {"B": "/b"}, ["C"])
    assert running.keys() == stopped.keys()
    assert (stopped["argv"], stopped["secret_env"], stopped["no_carry_env"]) == ([], {}, [])


def test_run_ids_sort_by_time():
    assert vllm_serve.new_run_id()[:2] == "20"
    assert len(vllm_serve.new_run_id()) == len("20261121T015300Z-3f9a")


# -- act -------------------------------------------------------------------------------------------------------------


def test_start(node):
    result = node.work(Api())
    assert result["changed"]
    assert node.started == [result["run_id"]]
    assert result["endpoint"] == "http://10.0.0.1:8000/v1"
    assert result["log_path"].endswith(f"/log/gb10/engine/{result['run_id']}.log")
    assert result["diff"]["before"]["state"] == "stopped"
    assert node.spec()["argv"] == SAME.argv
    assert node.spec()["log_path"] == f"/var/log/gb10/engine/{result['run_id']}.log"


def test_the_shipped_launcher_is_the_launcher(node):
    node.work(Api())
    with open(_launcher.__file__, encoding="utf-8") as handle:
        assert (node.launch / "launcher.py").read_text() == handle.read()


def test_a_live_engine_with_the_same_arguments_is_left_alone(node):
    node.note(SAME)
    result = node.work(Api(status=LIVE))
    assert (result["changed"], result["engine_live"], node.started) == (False, True, [])
    assert result["diff"]["before"] == result["diff"]["after"]


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_live_engine_with_other_arguments_blocks(node, check_mode):
    node.note(OTHER)
    api = Api(status=LIVE)
    with pytest.raises(ClusterError, match="requests running: 3.*- --max-model-len 1024") as caught:
        node.work(api, check_mode)
    assert "allow_restart=true" in caught.value.remedy
    assert caught.value.details["requests_running"] == 3
    assert caught.value.details["diff"]["before"]["argv"] == OTHER.argv
    assert [name for name, _args, _timeout in api.called] == ["status"]


def test_a_restart_that_is_allowed_stops_first(node):
    node.note(OTHER)
    api = Api(status=LIVE, stop=STOPPED)
    result = node.work(api, allow_restart=True, stop_grace=180)
    assert api.called[1] == ("stop", ["--grace", "180"], 180 + vllm_serve.STOP_MARGIN)
    assert result["actions"] == ["stopped run 20260101T000000Z-0001 with SIGTERM in 3.4 s", f"started run {node.started[0]}"]
    assert result["stopped"] == STOPPED


def test_what_remains_of_a_dead_engine_is_cleared_before_a_start(node):
    node.note(SAME)
    api = Api(status={"live": False, "remaining": [60]}, stop={**STOPPED, "was_live": False})
    assert node.work(api)["changed"]
    assert [name for name, _args, _timeout in api.called] == ["status", "stop"]


def test_check_mode_predicts_and_touches_nothing(node):
    result = node.work(Api(), check_mode=True)
    assert (result["changed"], result["msg"], result["run_id"]) == (True, "would be started", "")
    assert (node.started, list(node.launch.iterdir())) == ([], [])


def test_check_mode_on_a_cold_node_predicts_a_start(node):
    assert node.work(None, check_mode=True)["msg"] == "would be started"


def test_check_mode_predicts_a_restart(node):
    node.note(OTHER)
    result = node.work(Api(status=LIVE), check_mode=True, allow_restart=True)
    assert (result["msg"], result["actions"]) == ("would be restarted", ["stop the engine", "start the engine"])


def test_without_a_container_the_remedy_is_the_stage_before(node):
    with pytest.raises(ClusterError, match="does not exist") as caught:
        node.work(None)
    assert "--tags ray" in caught.value.remedy


def test_a_container_that_does_not_run_is_named_with_its_exit_code(node):
    with pytest.raises(ClusterError, match="gb10-gb10-head does not run: it ended with code 137"):
        node.work(Api(running=False))


def test_a_missing_key_is_found_before_the_start(node):
    with pytest.raises(ClusterError, match="cannot read the API key"):
        node.work(Api(), api_key_file="/nowhere/key")
    assert node.started == []


def test_stop(node):
    node.note(SAME)
    result = node.work(Api(status=LIVE, stop=STOPPED), state="stopped")
    assert (result["changed"], result["engine_live"]) == (True, False)
    assert result["diff"]["after"]["state"] == "stopped"


@pytest.mark.parametrize("api", [None, Api(), Api(running=False)])
def test_stop_without_an_engine_changes_nothing(node, api):
    node.note(SAME)
    assert not node.work(api, state="stopped")["changed"]


def test_processes_that_cannot_be_ended_fail_the_stop(node):
    node.note(SAME)
    answer = _docker.ExecResult(_launcher.EXIT_REMAINS, json.dumps({**STOPPED, "remaining": [60]}), "")
    with pytest.raises(ClusterError, match=r"processes \[60\]") as caught:
        node.work(Api(status=LIVE, stop=answer), state="stopped")
    assert "reboot" in caught.value.remedy


@pytest.mark.parametrize("result", [_docker.ExecResult(127, "", "python3: not found"), _docker.ExecResult(0, "no JSON", "")])
def test_a_launcher_without_an_answer_is_unknown(result):
    with pytest.raises(UnknownState) as caught:
        vllm_serve.launcher_answer(result)
    assert caught.value.details["raw"]


@pytest.mark.parametrize(("state", "check_mode"), [("stopped", False), ("started", True)])
def test_a_worker_needs_nothing(state, check_mode):
    assert "changed" not in vllm_serve.work_worker(options(state=state, node_role="worker"), None, check_mode)


def test_a_worker_needs_its_container(monkeypatch):
    monkeypatch.setattr(_docker, "find_node_container", lambda *_args: None)
    with pytest.raises(ClusterError, match="the worker's container of cluster gb10 does not exist"):
        vllm_serve.work_worker(options(node_role="worker"), None, False)


# -- start -----------------------------------------------------------------------------------------------------------


class Sdk:
    """The Docker SDK's client as far as a start needs it."""

    def __init__(self, state):
        self.api = self
        self.state = state

    def exec_create(self, container_id, argv, **_more):
        self.argv = argv
        return {"Id": "e"}

    def exec_start(self, exec_id, detach):
        self.detached = detach

    def exec_inspect(self, exec_id):
        return self.state


@pytest.fixture
def launch(tmp_path, monkeypatch):
    paths = _engine.EnginePaths.of(str(tmp_path), str(tmp_path), "gb10")
    (tmp_path / "gb10" / "run").mkdir(parents=True)

    def start(state, **notes):
        client = Sdk(state)
        monkeypatch.setattr(_docker, "sdk_client", lambda _socket, _timeout: client)
        for name, note in notes.items():
            (tmp_path / "gb10" / "run" / f"{name}.json").write_text(json.dumps(note))
        vllm_serve.start_engine(options(docker_timeout=1), paths, "c" * 64, {"run_id": "r"})
        return client

    return start


def test_the_launcher_is_started_detached(launch):
    client = launch({"Running": True, "ExitCode": None}, run={"run_id": "r"})
    assert client.detached
    assert client.argv[2:4] == ["run", "--spec"]


def test_what_the_launcher_says_is_passed_on(launch):
    with pytest.raises(ClusterError, match="the image has no program vllm"):
        launch({"Running": False, "ExitCode": 127}, exit={"run_id": "r", "error": "the image has no program vllm"})


def test_a_launcher_that_says_nothing_is_unknown(launch):
    with pytest.raises(UnknownState, match="ended with code 126"):
        launch({"Running": False, "ExitCode": 126}, exit={"run_id": "another", "error": "old"})


def test_a_launcher_that_hangs_is_unknown(launch):
    with pytest.raises(UnknownState, match="within 1 s"):
        launch({"Running": True, "ExitCode": None})


# -- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"model": None}, "needs the options model"),
        ({"model": None, "api_address": None}, "needs the options model and api_address"),
        ({"command": []}, "command is empty"),
        ({"stop_grace": 0}, "stop_grace is 0, needed is 1 or more"),
        ({"keep_logs": 0}, "keep_logs is 0"),
    ],
)
def test_options_out_of_range(wrong, words):
    with pytest.raises(ClusterError, match=words):
        _serve_spec.check(options(**wrong))


@pytest.mark.parametrize("fine", [{}, {"state": "stopped", "model": None}, {"node_role": "worker", "model": None, "api_address": None}])
def test_options_that_fit(fine):
    _serve_spec.check(options(**fine))
