# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The decisions of vllm_serve, with its messages and actions."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import types
from unittest.mock import ANY

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._docker import engine_api
from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_state, interruption, serve_options
from ansible_collections.gb10.cluster.plugins.module_utils._engine import launch as launch_util
from ansible_collections.gb10.cluster.plugins.module_utils._engine.interruption import Requests
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._launcher import gb10_api_guard, launcher
from ansible_collections.gb10.cluster.plugins.module_utils._node import ray
from ansible_collections.gb10.cluster.plugins.modules import vllm_serve

ASK = interruption.requests_of
BASE = {name: option.get("default") for name, option in serve_options.ARGUMENT_SPEC.items()}


def options(**more):
    return {**BASE, "model": "org/m", "api_address": "10.0.0.1", **more}


#: What the launcher answers of a node without an engine.
ANSWER = {"live": False, "remaining": [], "launcher": None, "starting": "", "stopping": False, "unreadable": ""}


class Api:
    """A node's Docker engine with one head container, and the launcher's answers in it."""

    timeout = 60

    def __init__(self, running=True, status=None, stop=None, paused=False):
        self.running, self.paused = running, paused
        self.answers = {"status": status if isinstance(status, engine_api.ExecResult) else {**ANSWER, **(status or {})}, "stop": stop}
        self.called, self.stopped = [], []

    def stop(self, container_id, grace):
        self.stopped.append((container_id, grace))

    def exec(self, container_id, argv, *, timeout):
        self.called.append((argv[2], argv[5:], timeout))
        answer = self.answers[argv[2]]
        return answer if isinstance(answer, engine_api.ExecResult) else engine_api.ExecResult(0, json.dumps(answer), "")


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
            (run / "run.json").write_text(json.dumps({**spec, "pid": 57, "start_ticks": 1, "container_start": 1, "boot_id": "b", "started_at": 1.0, **more}))
            (launch / "launcher.py").touch()
            (launch / "engine.json").write_text(json.dumps({**spec, **more}))

        def work(self, api, check_mode=False, **more):
            state = {"Running": api.running, "Paused": api.paused, "ExitCode": 0 if api.running else 137} if api else {}
            state.update(Status="running" if api and api.running else "exited", OOMKilled=False, StartedAt="2026-11-21T01:57:53Z")
            container = {"Id": "c" * 64, "Name": "/gb10-gb10-head", "State": state, "Config": {"Labels": {}}} if api else None
            monkeypatch.setattr(engine_api, "find_node_container", lambda *_args: container)
            return vllm_serve.work_engine(options(**self.params, **more), api, check_mode)

        def spec(self):
            return json.loads((launch / "engine.json").read_text())

    made = Node()
    made.launch, made.run = launch, run
    made.started = []
    monkeypatch.setattr(vllm_serve, "start_engine", lambda _params, _paths, _id, spec: made.started.append(spec["run_id"]))
    monkeypatch.setattr(interruption, "requests_of", lambda _engine, _timeout, _key: Requests(made.requests, "no answer within 5 s"))
    made.requests = 0
    monkeypatch.setenv("SUDO_USER", "ada")
    return made


LIVE = {"live": True, "remaining": [57]}
NOTHING = {
    "live": False, "remaining": [], "digest": "", "starting": "", "launcher": None, "stopping": False, "stopped_by": "", "last_end": "", "unreadable": "",
    "guarded": True,
}  # fmt: skip
SAME = vllm_serve.desired_engine(options())
OTHER = vllm_serve.desired_engine(options(arguments={"max_model_len": 1024}))
STOPPED = {"run_id": "20260101T000000Z-0001", "was_live": True, "prevented": "", "signals": ["SIGTERM"], "killed": [], "remaining": [], "seconds": 3.4}


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
    plan = vllm_serve.plan(state, {**NOTHING, "live": live, "remaining": remaining, "digest": "1:a"}, "1:a" if same else "1:b")
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
    with open(launcher.__file__, encoding="utf-8") as handle:
        assert (node.launch / "launcher.py").read_text() == handle.read()


def test_a_live_engine_with_the_same_arguments_is_left_alone(node):
    node.note(SAME)
    result = node.work(Api(status=LIVE))
    assert (result["changed"], result["engine_live"], node.started) == (False, True, [])
    assert result["diff"]["before"] == result["diff"]["after"]


@pytest.mark.parametrize("written", [{"max_model_len": 2048}, None])
def test_a_live_engine_that_was_started_with_other_arguments_than_both_blocks(node, written):
    node.note(OTHER)
    with pytest.raises(ClusterError, match="has other arguments: - --max-model-len 1024, [+] --attention-backend A"):
        node.work(Api(status=LIVE), arguments={"attention_backend": "A"}, same_arguments=written)


def test_a_live_engine_that_was_started_with_the_same_in_other_words_is_left_alone(node):
    node.note(OTHER)
    result = node.work(Api(status=LIVE), arguments={"attention_backend": "A"}, same_arguments={"max_model_len": 1024})
    assert (result["changed"], result["argv"], node.started) == (False, OTHER.argv, [])
    assert result["diff"]["before"] == result["diff"]["after"]


def test_a_start_uses_the_words_for_this_engine(node):
    node.work(Api(), arguments={"attention_backend": "A"}, same_arguments={"max_model_len": 1024})
    assert node.spec()["argv"][-2:] == ["--attention-backend", "A"]


KEYED = vllm_serve.desired_engine(options(secret_env={"VLLM_API_KEY": "/run/secrets/gb10/api_key"}))


def test_the_guard_of_the_api_comes_with_its_key(node):
    node.work(Api(), secret_env=KEYED.secret_env)
    assert node.spec()["guard"] == {"argv": ["--middleware", "gb10_api_guard.ApiGuard"], "python_path": "/opt/gb10/launch/guard"}
    assert node.spec()["argv"] == KEYED.argv and "--middleware" not in KEYED.argv
    assert (node.launch / "guard" / "gb10_api_guard.py").read_text() == pathlib.Path(gb10_api_guard.__file__).read_text()
    node.work(Api())
    assert node.spec()["guard"] == {}


@pytest.mark.parametrize(("guarded", "allow", "changed"), [(True, False, False), (True, True, False), (False, False, False), (False, True, True)])
def test_an_engine_without_the_guard_of_its_api_lives_on_until_it_may_be_restarted(node, guarded, allow, changed):
    node.note(KEYED)
    order = vllm_serve.engine_spec(options(), KEYED, "20260101T000000Z-0001")
    if not guarded:
        order.pop("guard")
    (node.launch / "engine.json").write_text(json.dumps(order))
    result = node.work(Api(status=LIVE, stop=STOPPED), secret_env=KEYED.secret_env, allow_restart=allow)
    assert result["changed"] is changed and bool(node.started) is changed
    assert ("without the guard" in result["reason"]) is changed


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_live_engine_with_other_arguments_blocks(node, check_mode):
    node.note(OTHER)
    node.requests = 3
    api = Api(status=LIVE)
    with pytest.raises(ClusterError, match="it has 3 request.*- --max-model-len 1024") as caught:
        node.work(api, check_mode)
    assert "gb10_allow=restart" in caught.value.remedy
    assert caught.value.details["requests_running"] == 3
    assert caught.value.details["diff"]["before"]["argv"] == OTHER.argv
    assert [name for name, _args, _timeout in api.called] == ["status"]


def test_a_restart_that_is_allowed_stops_first(node):
    node.note(OTHER)
    api = Api(status=LIVE, stop=STOPPED)
    result = node.work(api, allow_restart=True, stop_grace=180)
    assert api.called[1] == ("stop", ["--grace", "180", "--by", "user ada with vllm_serve"], 180 + launch_util.STOP_MARGIN)
    assert result["actions"] == ["stopped run 20260101T000000Z-0001 with SIGTERM in 3.4 s", f"started run {node.started[0]}"]
    assert result["stopped"] == {**STOPPED, "instead": ""}


def test_a_restart_that_fails_after_the_stop_has_changed_the_node(node, monkeypatch):
    def fail(*_args):
        raise ClusterError("no start")

    monkeypatch.setattr(vllm_serve, "start_engine", fail)
    node.note(OTHER)
    with pytest.raises(ClusterError, match="no start") as caught:
        node.work(Api(status=LIVE, stop=STOPPED), allow_restart=True)
    assert caught.value.details == {
        "changed": True, "engine_live": False, "stopped": {**STOPPED, "instead": ""}, "actions": ["stopped run 20260101T000000Z-0001 with SIGTERM in 3.4 s"],
        "run_id": ANY, "started_run": ANY, "log_path": ANY,
    }  # fmt: skip
    # It may have started, so the cleanup needs its run.
    assert caught.value.details["started_run"] > "20260101T000000Z-0001"


def test_a_start_that_fails_at_once_has_changed_nothing(node, monkeypatch):
    def fail(*_args):
        raise ClusterError("no room")

    monkeypatch.setattr(launch_util, "order", fail)
    with pytest.raises(ClusterError, match="no room") as caught:
        node.work(Api())
    assert (caught.value.details["changed"], caught.value.details["actions"]) == (False, [])


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize("wanted", [{"state": "stopped"}, {"allow_restart": True}])
def test_requests_are_interrupted_only_where_that_is_allowed(node, wanted, check_mode):
    node.note(OTHER)
    api = Api(status=LIVE, stop=STOPPED)
    for requests, why in ((3, "it has 3 request"), (None, "how many requests it has is unknown: no answer within 5 s")):
        node.requests = requests
        with pytest.raises(ClusterError, match=rf"the live engine \(run 20260101T000000Z-0001\) would be stopped, but {why}") as caught:
            node.work(api, check_mode, **wanted)
        assert "gb10_allow=interrupt" in caught.value.remedy
        assert caught.value.details["requests_running"] == requests
        assert caught.value.verdict == ("block" if requests else "unknown")
    assert {name for name, _args, _timeout in api.called} == {"status"}
    assert node.work(api, check_mode, interrupt_requests=True, **wanted)["changed"]


@pytest.mark.parametrize("known", [{"unready_runs": ["20260101T000000Z-0001"]}, {"lacks_rank": True}])
def test_an_engine_that_answers_no_request_is_stopped_without_consent(node, known):
    node.note(OTHER)
    node.requests = None
    assert node.work(Api(status=LIVE, stop=STOPPED), state="stopped", **known)["changed"]
    with pytest.raises(UnknownState):
        node.work(Api(status=LIVE, stop=STOPPED), state="stopped", unready_runs=["20260101T000000Z-0002"])


@pytest.mark.parametrize("wanted", [{"state": "stopped"}, {"allow_restart": True}])
def test_a_lock_that_was_broken_keeps_the_engine(node, wanted):
    node.note(OTHER)
    api = Api(status=LIVE, stop=STOPPED)
    with pytest.raises(ClusterError, match="this run lost the cluster's lock abc") as caught:
        node.work(api, lock_id="abc", **wanted)
    assert caught.value.details["changed"] is False
    assert [name for name, _args, _timeout in api.called] == ["status"]
    assert node.work(api, True, lock_id="abc", **wanted)["changed"], "check mode holds no lock"


def test_an_engine_that_ray_knows_to_lack_a_rank_is_stopped_without_consent(node, monkeypatch):
    node.note(OTHER)
    node.requests = 3
    monkeypatch.setattr(ray, "lacks_rank", lambda _docker, _container, argv, _timeout: argv == OTHER.argv)
    assert node.work(Api(status=LIVE, stop=STOPPED), state="stopped")["changed"]
    monkeypatch.setattr(ray, "lacks_rank", lambda *_args: False)
    with pytest.raises(ClusterError, match="it has 3 request"):
        node.work(Api(status=LIVE, stop=STOPPED), state="stopped")


@pytest.mark.parametrize(("answers", "stops"), [([2, 1, 0], True), ([2, 1, 1, 1, 1], False), ([2, None], False)])
def test_a_drain_waits_until_there_is_no_request(node, monkeypatch, answers, stops):
    node.note(OTHER)
    left = iter(answers)
    monkeypatch.setattr(interruption, "requests_of", lambda *_args: Requests(next(left), "no answer"))
    monkeypatch.setattr(vllm_serve, "clock", lambda timeout, _sleep: iter((0.0, 2.0, 4.0, 6.0) if timeout == 6 else (0.0,)))
    api = Api(status=LIVE, stop=STOPPED)
    if stops:
        assert node.work(api, state="stopped", drain_timeout=6)["changed"]
    else:
        with pytest.raises(ClusterError, match="it has 1 request|is unknown: no answer"):
            node.work(api, state="stopped", drain_timeout=6)
        assert [name for name, _args, _timeout in api.called] == ["status"]


def test_check_mode_waits_for_no_request(node, monkeypatch):
    node.note(OTHER)
    left = iter([2])
    monkeypatch.setattr(interruption, "requests_of", lambda *_args: Requests(next(left)))
    with pytest.raises(ClusterError, match="it has 2 request"):
        node.work(Api(status=LIVE, stop=STOPPED), True, state="stopped", drain_timeout=6)


def test_an_idle_engine_is_stopped_without_consent(node):
    node.note(OTHER)
    assert node.work(Api(status=LIVE, stop=STOPPED), state="stopped")["changed"]


def test_an_engine_that_is_as_wanted_is_not_asked_for_its_requests(node, monkeypatch):
    monkeypatch.setattr(interruption, "requests_of", lambda *_args: pytest.fail("asked"))
    node.note(SAME)
    assert not node.work(Api(status=LIVE))["changed"]
    assert node.work(Api(status={**LIVE, "stopping": True}, stop=STOPPED), state="stopped")["changed"]


def test_what_remains_of_a_dead_engine_is_cleared_before_a_start(node):
    node.note(SAME)
    api = Api(status={"live": False, "remaining": [60]}, stop={**STOPPED, "was_live": False})
    assert node.work(api)["changed"]
    assert [name for name, _args, _timeout in api.called] == ["status", "stop"]


# -- stop during start, start during stop ----------------------------------------------------------------------------


def test_a_start_that_has_not_begun_is_stopped(node):
    node.note(SAME)
    answer = {**STOPPED, "was_live": False, "signals": [], "prevented": "r2"}
    api = Api(status={"live": False, "remaining": [], "starting": "r2", "launcher": None}, stop=answer)
    result = node.work(api, state="stopped")
    assert (result["changed"], result["reason"], result["actions"]) == (True, "run r2 is being started", ["kept run r2 from starting"])


def test_a_start_beside_another_start_is_refused(node):
    node.note(SAME)
    with pytest.raises(ClusterError, match=r"another start works on this engine \(run r2\)") as caught:
        node.work(Api(status={"live": False, "remaining": [], "starting": "r2", "launcher": 99}))
    assert caught.value.reason == "start under way"
    assert node.started == []


def test_an_order_that_was_not_carried_out_prevents_no_start(node):
    """A controller that died between writing the description and starting the launcher."""
    node.note(SAME)
    assert node.work(Api(status={"live": False, "remaining": [], "starting": "r2", "launcher": None}))["run_id"] == node.started[0]


@pytest.mark.parametrize("desired", [SAME, OTHER])
def test_a_start_during_a_stop_joins_it_and_starts_again(node, desired):
    node.note(desired)
    noted = {"run_ids": ["20260101T000000Z-0001"], "by": "user bob with vllm_serve", "at": 1.0}
    (node.run.with_name("launch") / "stop.json").write_text(json.dumps(noted))
    api = Api(status={**LIVE, "stopping": True}, stop=STOPPED)
    result = node.work(api)
    assert result["reason"] == "the live engine was asked to stop by user bob with vllm_serve"
    assert [name for name, _args, _timeout in api.called] == ["status", "stop"]
    assert node.started == [result["run_id"]]


# -- what is found broken --------------------------------------------------------------------------------------------


def test_how_the_last_engine_ended_is_said(node):
    node.note(SAME)
    (node.run / "exit.json").write_text(
        json.dumps({"run_id": "20260101T000000Z-0001", "code": None, "signal": 9, "error": "", "ended_at": 1795226031.0, "seconds": 31.4})
    )
    log = node.run.parents[2] / "log" / "gb10" / "engine" / "20260101T000000Z-0001.log"
    log.parent.mkdir(parents=True)
    log.write_text("INFO fine\n\x1b[36m(EngineCore)\x1b[0m RuntimeError: out of memory\n\n")
    result = node.work(Api())
    assert result["last_end"] == (
        "run 20260101T000000Z-0001 was ended by SIGKILL at 2026-11-21T01:53:51Z after 31 s, its log ends: (EngineCore) RuntimeError: out of memory"
    )
    assert result["reason"] == f"no engine runs; the last one, {result['last_end']}"


@pytest.mark.parametrize("half", ["{", "[]", "{}"])
def test_a_broken_note_without_an_engine_prevents_nothing(node, half):
    node.note(SAME)
    (node.run / "run.json").write_text(half)
    api = Api(status={"live": False, "remaining": [], "unreadable": "run.json cannot be read"}, stop=STOPPED)
    assert node.work(api)["run_id"] == node.started[0]
    assert not node.work(api, state="stopped")["changed"]


def test_a_broken_note_of_a_live_engine_is_unknown(node):
    node.note(SAME)
    (node.run / "run.json").write_text("{")
    api = Api(status={**LIVE, "unreadable": "run.json cannot be read"}, stop=STOPPED)
    with pytest.raises(UnknownState, match="run.json is not JSON") as caught:
        node.work(api)
    assert "teardown" in caught.value.remedy and "gb10_allow=interrupt,restart" in caught.value.remedy
    node.requests = None
    assert node.work(api, state="stopped", interrupt_requests=True)["changed"]
    assert node.work(api, allow_restart=True, interrupt_requests=True)["run_id"] == node.started[0]


def test_a_paused_container_starts_nothing(node):
    with pytest.raises(ClusterError, match="gb10-gb10-head is paused") as caught:
        node.work(Api(paused=True))
    assert caught.value.remedy.endswith("docker unpause gb10-gb10-head")


def test_an_engine_in_a_paused_container_is_stopped(node, monkeypatch):
    node.note(SAME)
    pids = iter([48121, None])
    monkeypatch.setattr(engine_state, "host_pid", lambda _run, _run_dir, _proc: next(pids))
    api, unpaused = Api(paused=True, stop=STOPPED), []
    api.unpause = unpaused.append
    assert node.work(api, state="stopped")["changed"]
    assert unpaused == ["c" * 64]
    # Nothing can be run inside before that.
    assert [name for name, _args, _timeout in api.called] == ["stop"]


@pytest.mark.parametrize("check_mode", [True, False])
def test_over_what_was_planted_nothing_is_started_or_stopped(node, tmp_path, check_mode):
    node.note(SAME)
    (node.run / "run.lock").symlink_to("run.lock")
    api = Api(status={"live": True, "remaining": []}, stop=STOPPED)
    with pytest.raises(ClusterError, match=r"run\.lock was tampered with: a link is in the place of a file; by root in a container") as caught:
        node.work(api, check_mode, allow_restart=True, arguments={"max_model_len": 1})
    assert "playbook teardown" in caught.value.remedy and "run 20260101T000000Z-0001" in str(caught.value)
    assert [name for name, _args, _timeout in api.called] == ["status"] and node.started == []


@pytest.mark.parametrize("desired", [SAME, OTHER])
def test_without_room_for_a_log_nothing_is_started_or_stopped(node, monkeypatch, desired):
    def full(_handle, _directory, _needed):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    node.note(desired)
    monkeypatch.setattr(launcher, "reserve", full)
    monkeypatch.setattr(launcher, "free_bytes", lambda _directory: 4096)
    api = Api(status={"live": desired is OTHER, "remaining": []}, stop=STOPPED)
    with pytest.raises(ClusterError, match="/log/gb10/engine does not accept the engine's log: No space left on device; needs 16777216 bytes, 4096 are free"):
        node.work(api, allow_restart=True)
    assert [name for name, _args, _timeout in api.called] == ["status"]
    assert node.started == []


@pytest.mark.parametrize("planted", [".room", "directory"])
def test_the_check_for_room_writes_through_no_link(node, tmp_path, planted):
    node.note(SAME)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_text("not yours")
    log = tmp_path / "log" / "gb10" / "engine"
    log.parent.mkdir(parents=True)
    if planted == "directory":
        log.symlink_to(outside)
        with pytest.raises(UnknownState, match="engine was tampered with: a link") as caught:
            node.work(Api())
        assert caught.value.reason == "tampered" and node.started == []
    else:
        log.mkdir()
        (log / ".room").symlink_to(outside / "victim")
        assert node.work(Api())["run_id"] == node.started[0]
    assert (outside / "victim").read_text() == "not yours" and len(list(outside.iterdir())) == 1


@pytest.mark.parametrize("how", ["link", "fifo"])
def test_a_planted_note_is_named_and_keeps_no_stop_away(node, how):
    node.note(SAME)
    (node.run / "run.json").unlink()
    (node.run / "run.json").symlink_to("/etc/passwd") if how == "link" else os.mkfifo(node.run / "run.json")
    api = Api(status=LIVE, stop=STOPPED)
    with pytest.raises(UnknownState, match="run.json"):
        node.work(api)
    assert node.work(api, state="stopped")["changed"]


def test_a_launcher_that_lies_ends_no_engine(node, monkeypatch):
    """Another python3 was put in the container: the kernel still shows the process."""
    node.note(SAME)
    monkeypatch.setattr(engine_state, "host_pid", lambda _run, _run_dir, _proc: 48121)
    monkeypatch.setattr(interruption, "requests_of", lambda *_args: Requests(0, "idle"))
    api = Api(stop=STOPPED)
    with pytest.raises(UnknownState, match="the launcher reports that the engine ended, but its process 48121 still runs") as caught:
        node.work(api, state="stopped")
    assert caught.value.reason == "tampered" and not api.stopped
    assert "teardown with -e gb10_allow=interrupt" in caught.value.remedy
    result = node.work(api, state="stopped", interrupt_requests=True)
    assert api.stopped == [("c" * 64, BASE["stop_grace"])] and "its process 48121 still runs" in result["msg"]


@pytest.mark.parametrize("status", [engine_api.ExecResult(1, "", "MemoryError"), {**ANSWER, "live": True}])
def test_a_launcher_that_gives_no_answer_keeps_no_container_with_consent(node, status):
    """Root in the container replaced python3, or wrote a note without an end: Docker stops what it cannot be asked to."""
    node.note(SAME)
    api = Api(status=status, stop=engine_api.ExecResult(1, "", "MemoryError"))
    result = node.work(api, state="stopped", interrupt_requests=True)
    assert result["changed"] and not result["engine_live"] and api.stopped == [("c" * 64, BASE["stop_grace"])]
    assert result["msg"] == f"stopped the container as a whole: {result['stopped']['instead']}" and "ended with code 1 and no answer" in result["msg"]
    assert not node.work(Api(running=False), state="stopped", interrupt_requests=True)["changed"]


def test_a_launcher_that_gives_no_answer_keeps_its_container_without_consent(node):
    node.note(SAME)
    api = Api(status=engine_api.ExecResult(1, "", "MemoryError"))
    for more in ({"state": "stopped"}, {"interrupt_requests": True, "allow_restart": True}):
        with pytest.raises(UnknownState, match="ended with code 1 and no answer") as caught:
            node.work(api, **more)
        assert "teardown with -e gb10_allow=interrupt" in caught.value.remedy
    assert not api.stopped and node.started == []


@pytest.mark.parametrize("role", ["head", "worker"])
def test_changed_code_of_the_model_starts_nothing(node, tmp_path, role):
    snapshot = tmp_path / "hf/hub/models--org--drafter/snapshots" / ("0" * 40)
    blobs = snapshot.parents[1] / "blobs"
    for folder in (snapshot, blobs):
        folder.mkdir(parents=True)
    (blobs / ("a" * 40)).write_text("import os")
    (snapshot / "modeling.py").symlink_to(f"../../blobs/{'a' * 40}")
    # The model's code is sound here; that of its drafter is not.
    beside = [{"repo": "org/model", "revision": "1" * 40, "side_files": []}, {"repo": "org/drafter", "revision": "0" * 40, "side_files": []}]
    model = {"hf_home": str(tmp_path / "hf"), "repositories": beside}
    with pytest.raises(ClusterError, match="modeling.py was changed on this node.*nothing was started") as caught:
        node.work(Api(), **model) if role == "head" else vllm_serve.work_worker(options(node_role="worker", **model), None, True)
    assert caught.value.details["files"] == ["modeling.py"] and node.started == []


def test_a_full_state_directory_is_named(node, monkeypatch):
    def full(_handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ClusterError, match="launch: No space left on device, [0-9]+ bytes are free"):
        node.work(Api())
    assert list(node.launch.iterdir()) == []


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


def test_a_stop_is_noted_where_the_container_cannot_write(node):
    node.note(SAME)
    node.work(Api(status=LIVE, stop=STOPPED), state="stopped")
    noted = json.loads((node.run.with_name("launch") / "stop.json").read_text())
    assert noted["run_ids"] == ["20260101T000000Z-0001"] and noted["by"].endswith(" with vllm_serve") and noted["at"] > 1


def test_a_disk_that_takes_no_note_keeps_no_stop_away(node, monkeypatch):
    def full(*_given):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    node.note(SAME)
    monkeypatch.setattr(launch_util.files, "write_json", full)
    assert node.work(Api(status=LIVE, stop=STOPPED), state="stopped")["changed"]


@pytest.mark.parametrize("api", [None, Api(), Api(running=False)])
def test_stop_without_an_engine_changes_nothing(node, api):
    node.note(SAME)
    assert not node.work(api, state="stopped")["changed"]


def test_processes_that_cannot_be_ended_fail_the_stop(node):
    node.note(SAME)
    answer = engine_api.ExecResult(launcher.EXIT_REMAINS, json.dumps({**STOPPED, "remaining": [60]}), "")
    with pytest.raises(ClusterError, match=r"processes \[60\]") as caught:
        node.work(Api(status=LIVE, stop=answer), state="stopped")
    assert "reboot" in caught.value.remedy


#: What a python3 can print that replaced the image's own.
FORGED = [engine_api.ExecResult(0, text, "") for text in ("[]", "{}", json.dumps({**ANSWER, "remaining": "all"}), "[" * 100_000)]


@pytest.mark.parametrize("result", [engine_api.ExecResult(127, "", "python3: not found"), engine_api.ExecResult(0, "no JSON", ""), *FORGED])
def test_a_launcher_without_an_answer_is_unknown(result):
    with pytest.raises(UnknownState) as caught:
        launch_util.answer_of(result, launch_util.STATUS)
    assert caught.value.details["raw"]


def test_a_worker_beside_ray_needs_nothing():
    assert "changed" not in vllm_serve.work_worker(options(node_role="worker"), None, True)


def test_a_worker_beside_ray_has_nothing_to_stop(node):
    assert not node.work(Api(), state="stopped", node_role="worker")["changed"]


# -- without Ray -----------------------------------------------------------------------------------------------------

NATIVE = {"executor": "native", "node_count": 2, "master_address": "10.0.0.1"}
RANK = {**NATIVE, "node_role": "worker", "node_rank": 1, "api_address": None}


def test_a_worker_starts_its_own_rank(node):
    result = node.work(Api(), **RANK)
    assert (result["changed"], result["endpoint"]) == (True, "")
    assert result["argv"][:2] == ["vllm", "serve"]
    assert "--headless" in result["argv"]
    assert "--host" not in result["argv"]
    spec = node.spec()
    assert (spec["api_address"], spec["api_port"]) == ("", None)


def test_a_worker_needs_no_key_of_the_api(node):
    assert node.work(Api(), **RANK, api_key_file="/nowhere/key")["changed"]


def test_a_live_rank_with_other_arguments_blocks_without_asking_an_api(node, monkeypatch):
    monkeypatch.setattr(interruption, "requests_of", ASK)
    node.note(vllm_serve.desired_engine(options(**{**RANK, "node_rank": 1}, arguments={"dtype": "half"})), api_address="")
    with pytest.raises(ClusterError, match="the head's part is asked"):
        node.work(Api(status=LIVE), **RANK)


def test_a_rank_is_stopped_on_its_worker_once_its_head_has_ended(node, monkeypatch):
    monkeypatch.setattr(interruption, "requests_of", ASK)
    node.note(SAME, api_address="")
    with pytest.raises(UnknownState, match="the head's part is asked"):
        node.work(Api(status=LIVE, stop=STOPPED), state="stopped", node_role="worker")
    assert node.work(Api(status=LIVE, stop=STOPPED), state="stopped", node_role="worker", lacks_rank=True)["changed"]


def test_without_a_container_the_remedy_is_the_native_stage(node):
    with pytest.raises(ClusterError, match="the worker's container of cluster gb10 does not exist") as caught:
        node.work(None, **RANK)
    assert "--tags native" in caught.value.remedy


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"node_rank": None}, "executor native needs node_rank"),
        ({"node_rank": 0, "master_address": None}, "on several nodes master_address"),
        ({"node_rank": 2, "node_role": "worker"}, "node_rank is 2, expected 0 to 1"),
        ({"node_rank": 1}, "a head cannot have node_rank 1"),
        ({"node_rank": 0, "node_role": "worker"}, "a worker cannot have node_rank 0"),
        ({"node_rank": 0, "node_count": 0}, "node_count is 0, expected 1 or more"),
        ({"node_rank": 0, "arguments": {"distributed_executor_backend": "ray"}}, "distributed_executor_backend is ray, executor native needs mp"),
        ({"node_rank": 1, "node_role": "worker", "model": None}, "a started engine on the worker needs the options model"),
    ],
)
def test_places_that_do_not_fit(wrong, words):
    with pytest.raises(ClusterError, match=words):
        serve_options.check(options(**{**NATIVE, **wrong}))


def test_a_place_does_not_matter_beside_ray():
    serve_options.check(options(node_rank=7, node_count=2))


def test_a_worker_needs_its_container(monkeypatch):
    monkeypatch.setattr(engine_api, "find_node_container", lambda *_args: None)
    with pytest.raises(ClusterError, match="the worker's container of cluster gb10 does not exist"):
        vllm_serve.work_worker(options(node_role="worker"), None, False)


# -- start -----------------------------------------------------------------------------------------------------------


class Docker:
    """A node's Docker engine as far as a start needs it."""

    timeout = 1

    def __init__(self, code):
        self.code = code

    def start_program(self, container_id, argv):
        self.argv = argv
        return "e"

    def exit_code(self, program):
        return self.code


ORDERED = "20260101T000000Z-0002"


@pytest.fixture
def launch(tmp_path):
    paths = engine_state.EnginePaths.of(str(tmp_path), str(tmp_path), "gb10")
    (tmp_path / "gb10" / "run").mkdir(parents=True)

    def start(code, **notes):
        client = Docker(code)
        for name, note in notes.items():
            (tmp_path / "gb10" / "run" / f"{name}.json").write_text(json.dumps(note))
        vllm_serve.start_engine(client, paths, {"Id": "c" * 64, "Config": {"Labels": {}}}, {"run_id": ORDERED})
        return client

    return start


def test_the_launcher_is_started_detached(launch):
    note = {"run_id": ORDERED, "pid": 57, "start_ticks": 1, "container_start": 1, "boot_id": "b", "log_path": "/var/log/gb10/engine/x.log"}
    client = launch(None, run=note)
    assert client.argv[2:4] == ["run", "--spec"]
    assert client.argv[5:] == ["--run-id", ORDERED]


def test_what_the_launcher_says_is_passed_on(launch):
    with pytest.raises(ClusterError, match="the image has no program vllm"):
        launch(127, exit={"run_id": ORDERED, "error": "the image has no program vllm"})


@pytest.mark.parametrize(
    ("code", "error", "words", "reason"),
    [
        (launcher.EXIT_STOPPED, "stopped by user bob with vllm_serve before it began", f"run {ORDERED} did not start: stopped by user bob", "stopped"),
        (launcher.EXIT_LIVE, "", "another engine or start of one was quicker", "start under way"),
        (126, "/var/log/gb10/engine does not accept the engine's log: No space left on device", "/gb10/engine does not accept", "launcher"),
    ],
)
def test_why_nothing_was_started(launch, code, error, words, reason):
    with pytest.raises(ClusterError, match=words) as caught:
        launch(code, exit={"run_id": ORDERED, "error": error})
    assert caught.value.reason == reason
    assert "/var/log/gb10" not in str(caught.value)


def test_a_launcher_that_says_nothing_is_unknown(launch):
    with pytest.raises(UnknownState, match="ended with code 126"):
        launch(126, exit={"run_id": "20260101T000000Z-ffff", "error": "old"})


def test_a_launcher_that_hangs_is_unknown(launch):
    with pytest.raises(UnknownState, match="within 1 s"):
        launch(None)


# -- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"model": None}, "needs the options model"),
        ({"model": None, "api_address": None}, "needs the options model and api_address"),
        ({"command": []}, "command is empty"),
        ({"stop_grace": 0}, "stop_grace is 0, expected 1 or more"),
        ({"keep_logs": 0}, "keep_logs is 0"),
    ],
)
def test_options_out_of_range(wrong, words):
    with pytest.raises(ClusterError, match=words):
        serve_options.check(options(**wrong))


@pytest.mark.parametrize("fine", [{}, {"state": "stopped", "model": None}, {"node_role": "worker", "model": None, "api_address": None}])
def test_options_that_fit(fine):
    serve_options.check(options(**fine))


def test_what_the_node_has_sent_is_looked_at_before_and_after(monkeypatch):
    looks = iter([{"at": 1.0}, {"at": 2.0}, UnknownState("another shape"), {"at": 4.0}])

    def sample(sysfs_root, proc_root):
        look = next(looks)
        if isinstance(look, Exception):
            raise look
        return look

    monkeypatch.setattr(vllm_serve.traffic, "sample", sample)
    monkeypatch.setattr(vllm_serve, "Docker", lambda *_args: None)
    monkeypatch.setattr(vllm_serve, "work_worker", lambda *_args: {"msg": "done"})
    module = types.SimpleNamespace(params=options(node_role="worker", roots={"sysfs_root": "/sys", "proc_root": "/proc"}), check_mode=False)
    assert vllm_serve.work(module) == {"msg": "done", "traffic": [{"at": 1.0}, {"at": 2.0}]}
    # The proof reads it again and reports why it cannot be read.
    assert vllm_serve.work(module)["traffic"] is None
