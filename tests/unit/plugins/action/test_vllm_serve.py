# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The wait on head and workers, with scripted snapshots instead of nodes."""

from __future__ import annotations

import itertools
import signal
import time
import types

import pytest
from ansible.errors import AnsibleConnectionFailure

from ansible_collections.gb10.cluster.plugins.action import vllm_serve
from ansible_collections.gb10.cluster.plugins.module_utils._engine import serve_options
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve import token_question
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.run_board import RunBoard

ENGINE = {
    "live": True,
    "run_id": "r",
    "seconds": 42.2,
    "exit_code": None,
    "exit_signal": None,
    "ended_at": None,
    "stopped_at": None,
    "stopped_by": "",
    "log_path": "/var/log/gb10/gb10/engine/r.log",
}
CONTAINER = {"exists": True, "running": True, "name": "gb10-gb10-head", "exit_code": None, "oom_killed": False}
SNAPSHOT = {
    "engine": ENGINE,
    "container": CONTAINER,
    "fabric": {"interface": "eth1", "operstate": "up", "up": True, "unanswered": {}},
    "log_lines": [],
    "log_offset": 0,
    "stage": "loading weights",
    "shards": "1/2",
    "healthy": False,
    "engine_version": "",
    "last_end": "",
    "processes": [],
    "ray_lines": {},
    "kernel_lines": [],
    "kernel_error": "",
    "ray_offsets": {},
    "now": 0.0,
    "memory_total_mb": 124609,
    "api": "answers",
    "progress": None,
    "requests_running": None,
    "memory_available_mb": 42188,
    "completion": None,
    "routes": None,
    "cold_start": None,
}
LAST = {"seconds": {"ready": 40.0}, "compiled": "new", "recorded_at": "T"}
COLD = {"seconds": {"weights": 30.0}, "compiled": "new", "last": LAST, "reported": {}, "error": ""}
STARTED = {
    "changed": True,
    "run_id": "r",
    "endpoint": "http://10.0.0.1:8000/v1",
    "log_path": ENGINE["log_path"],
    "engine_live": True,
    "actions": ["started run r"],
}
TOKEN = {"healthy": True, "engine_version": "0.32.0", "completion": {"tokens": 1, "seconds": 0.4}, "cold_start": COLD}


def snapshot(**more):
    return {**SNAPSHOT, **more}


def dead(*lines, **how):
    return snapshot(engine={**ENGINE, "live": False, **how}, log_lines=list(lines))


class Time:
    """A clock that moves when someone sleeps, and a little with each reading."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        self.now += 0.001
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    time = staticmethod(time.time)


@pytest.fixture
def play(tmp_path, monkeypatch):
    """Run the action on one host. ``script`` are the answers of the module and then of each poll; the last one repeats."""
    clock = Time()
    monkeypatch.setattr(vllm_serve, "time", clock)
    monkeypatch.setattr("ansible_collections.gb10.cluster.plugins.module_utils._wait.time", clock)
    monkeypatch.setattr("ansible_collections.gb10.cluster.plugins.module_utils._module.time", clock)
    monkeypatch.setattr(vllm_serve.C, "DEFAULT_LOCAL_TMP", str(tmp_path), raising=False)

    class Play:
        shown = []
        calls = []
        #: Answers about the question for a token; without these it is answered as soon as a snapshot has a token.
        jobs = []
        last = {}

        def board(self, node, role):
            made = RunBoard(str(tmp_path), "uuid", node, role)
            made.join()
            return made

        def run(self, *script, node="spark-1", check_mode=False, task="uuid", **options):
            answers = list(script)

            def execute(name, module_args=None, task_vars=None, wrap_async=False):
                self.asked.append((name, module_args))
                if wrap_async:
                    assert module_args["probe"] and action._task.async_val > module_args["first_token_timeout"]
                    return {"ansible_job_id": f"j{len(self.asked)}", "started": True, "finished": False}
                if name == token_question.JOB:
                    return job(module_args["mode"])
                answer = answers.pop(0) if len(answers) > 1 else answers[0]
                if isinstance(answer, Exception):
                    raise answer
                self.last = dict(answer() if callable(answer) else answer)
                # Without a request there is no token.
                return {**self.last, "completion": None} if name == vllm_serve.INFO and not module_args.get("probe") else self.last

            def job(mode):
                answer = self.jobs.pop(0) if mode == "status" and self.jobs else self.last if self.last.get("completion") else {}
                if isinstance(answer, Exception):
                    raise answer
                return {"started": True, "finished": bool(answer), **answer}

            action = vllm_serve.ActionModule.__new__(vllm_serve.ActionModule)
            action._task = types.SimpleNamespace(_uuid=task, check_mode=check_mode, args={}, async_val=0)
            action._connection = types.SimpleNamespace(reset=lambda: self.shown.append("reset"))
            defaults = {name: option.get("default") for name, option in serve_options.ARGUMENT_SPEC.items()}
            monkeypatch.setattr(vllm_serve.ActionBase, "run", lambda *_args: {})
            monkeypatch.setattr(action, "validate_argument_spec", lambda _spec: (None, {**defaults, "model": "m", "api_address": "10.0.0.1", **options}))
            monkeypatch.setattr(action, "_execute_module", execute)
            monkeypatch.setattr(action, "get_shell_option", lambda _name, default: default)
            return action.run(task_vars={"inventory_hostname": node})

    made = Play()
    made.shown, made.asked, made.jobs = [], [], []
    show = {"display": made.shown.append, "warning": made.shown.append, "vv": lambda _text: None, "vvv": lambda _text: None}
    monkeypatch.setattr(vllm_serve, "display", types.SimpleNamespace(**show))
    made.clock = clock
    return made


# -- head ------------------------------------------------------------------------------------------------------------


def test_ready_is_a_token(play):
    result = play.run(STARTED, snapshot(stage="starting", shards=""), snapshot(), snapshot(healthy=True), snapshot(**TOKEN))
    assert (result["failed"], result["changed"], result["engine_version"]) == (False, True, "0.32.0")
    assert (result["seconds_to_ready"], result["seconds_to_first_token"]) == (42.2, 0.4)
    timed = {**COLD, "seconds": {"weights": 30.0, "ready": 42.2, "first_token": 0.4}}
    assert result["seen"] == {name: {**snapshot(**TOKEN), "cold_start": timed}[name] for name in vllm_serve.SEEN}
    assert play.shown[-1] == "spark-1: start: 42 s (weights 30, first token 0), compile cache not used; last: 40 s, compile cache not used"
    assert play.shown[0].startswith("spark-1: starting, no process of the engine yet, 41.2 GiB available, 00:0")
    assert play.shown[1].startswith("spark-1: loading weights 1/2, no process of the engine yet, 41.2 GiB available, 00:0")
    assert play.board("spark-2", "worker").success().node == "spark-1"


def test_an_engine_that_served_already_has_no_time_to_ready(play):
    result = play.run({**STARTED, "changed": False, "actions": []}, snapshot(**TOKEN))
    assert (result["changed"], result["seconds_to_ready"], result["seconds_to_first_token"]) == (False, None, 0.4)
    assert result["seen"]["cold_start"] == COLD and not any("start: " in line for line in play.shown), "nobody saw its start"


def test_a_start_is_shown_beside_what_owners_report_and_with_the_images_seconds(play):
    reported = {"ready": 900.0, "weights": None, "by": "an owner"}
    result = play.run(STARTED, snapshot(**TOKEN), image_seconds=3.21, reported_start=reported)
    assert result["seen"]["cold_start"]["seconds"]["image"] == 3.2 and result["seen"]["cold_start"]["reported"] == reported
    assert play.shown[-1].startswith("spark-1: start: 42 s (image 3, weights 30, first token 0), ") and play.shown[-1].endswith("; reported by an owner: 900 s")


def test_an_engine_that_served_already_is_asked_the_proofs_question_once_all_nodes_have_looked(play):
    worker = play.board("spark-2", "worker")
    served = {**STARTED, "changed": False, "actions": []}

    def poll():
        assert set(worker.published(vllm_serve.LOOKED)) == {"spark-1", "spark-2"}
        return snapshot(**TOKEN)

    def look():
        worker.publish(vllm_serve.LOOKED, {})
        return served

    result = play.run(look, poll, prompt_letters=512, node_count=2)
    assert not result["failed"] and (play.asked[1][1]["probe"], play.asked[1][1]["prompt_letters"]) == (True, 512)


def test_the_proofs_question_waits_for_every_node_and_a_start_is_not_asked_it(play):
    lonely = play.run({**STARTED, "changed": False, "actions": []}, snapshot(**TOKEN), prompt_letters=512, node_count=2)
    assert lonely["failed"] and "only 1 of 2 nodes took part" in lonely["msg"]
    assert not any(name == vllm_serve.INFO and arguments.get("prompt_letters") for name, arguments in play.asked)
    play.run(STARTED, snapshot(**TOKEN), prompt_letters=512, node_count=2, task="another")
    assert not any(name == vllm_serve.INFO and arguments.get("prompt_letters") for name, arguments in play.asked)


@pytest.mark.parametrize("executor", ["ray", "native"])
def test_what_an_earlier_task_started_is_awaited_and_not_started_again(play, executor):
    """A joint start of all ranks would wait for the plans of the others."""
    result = play.run(snapshot(), snapshot(**TOKEN), begun={**STARTED, "started_run": "r"}, executor=executor, node_count=2, prompt_letters=512)
    assert (result["failed"], result["changed"], result["started_run"], result["seconds_to_ready"]) == (False, True, "r", 42.2)
    assert {name for name, _arguments in play.asked} == {vllm_serve.INFO, token_question.JOB}
    failed = play.run(dead(exit_code=1), begun={**STARTED, "started_run": "r"}, task="another")
    assert failed["failed"] and failed["started_run"] == "r" and vllm_serve.MODULE not in {name for name, _arguments in play.asked}


def test_an_engine_that_is_still_starting_is_waited_for(play):
    result = play.run({**STARTED, "changed": False, "actions": []}, snapshot(), snapshot(**TOKEN))
    assert (result["changed"], result["seconds_to_ready"]) == (False, 42.2)


def test_a_poll_reads_the_log_from_where_the_last_one_ended(play):
    play.run(STARTED, snapshot(log_offset=100), snapshot(log_offset=250), snapshot(**TOKEN))
    offsets = [arguments["log_offset"] for name, arguments in play.asked if name == vllm_serve.INFO and "log_offset" in arguments]
    assert offsets == [0, 100, 250]
    assert play.asked[1][1]["model"] == "m"


def test_an_exit_names_code_cause_line_and_remedy(play):
    result = play.run(STARTED, dead("usage: vllm", "vllm: error: unrecognized arguments: --x", exit_code=2))
    assert result["failed"]
    assert result["msg"] == (
        "the engine on spark-1 ended with exit code 2 after 42 s (this version of the engine does not know an argument): "
        "vllm: error: unrecognized arguments: --x"
    )
    assert result["log_lines"] == ["usage: vllm", "vllm: error: unrecognized arguments: --x"]
    assert ENGINE["log_path"] in result["remedy"]
    assert (result["reason"], result["failed_node"], result["changed"]) == ("engine-unknown-argument", "spark-1", True)
    assert result["findings"][0]["id"] == "engine-unknown-argument"
    assert "engine_live" not in result
    assert play.board("spark-2", "worker").failure().message == result["msg"]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"exit_code": 0}, "ended with exit code 0 after 42 s; its log names no error"),
        ({"exit_signal": 9}, "was ended by SIGKILL"),
        ({}, "is gone, and nothing noted how it ended"),
    ],
)
def test_an_exit_without_an_error_in_the_log(play, how, words):
    result = play.run(STARTED, dead("INFO all fine", **how))
    assert words in result["msg"]
    assert ("journalctl -k" in result["remedy"]) == (how == {"exit_signal": 9})


@pytest.mark.parametrize("live", [True, False])
def test_an_engine_that_is_stopped_on_request_ends_the_wait_at_once(play, live):
    """Even if it generates a token in its grace period, no client can use it. The last lines of its log are not a separate failure."""
    engine = {**ENGINE, "live": live, "stopped_by": "user bob with vllm_serve", "stopped_at": 1795226031.0}
    result = play.run(STARTED, snapshot(), snapshot(engine=engine, log_lines=["RuntimeError: Engine core died"], **TOKEN))
    assert result["failed"]
    assert result["msg"] == "the engine on spark-1 was stopped by user bob with vllm_serve at 2026-11-21T01:53:51Z, while this play waited for it"
    assert (result["reason"], result["remedy"]) == ("stopped", "Run again when it should serve.")
    assert "was stopped by user bob" in play.board("spark-2", "worker").failure().message


def test_a_fatal_line_ends_the_wait_at_the_next_snapshot(play):
    line = "Waiting for creating a placement group of specs for 30 seconds. specs=[]"
    result = play.run(STARTED, snapshot(log_lines=[line]), snapshot())
    assert result["reason"] == "ray-no-gpus"
    assert "cannot serve" in result["msg"]
    # The start, two polls, and the last look at all logs.
    assert len(play.asked) == 4


def test_an_echo_waits_for_its_cause(play):
    cause = "ValueError: No available memory for the cache blocks."
    result = play.run(STARTED, snapshot(log_lines=["EngineCore failed to start."]), snapshot(log_lines=[cause]))
    assert result["reason"] == "memory-none-for-cache"


def test_health_without_a_token_is_not_ready(play):
    result = play.run(STARTED, snapshot(healthy=True), first_token_timeout=20)
    assert "answers /health but generated no token within 20 s" in result["msg"]
    assert (result["first_failure"]["id"], result["first_failure"]["node"], result["cause_known"]) == ("no token", "spark-1", False)
    assert 20 <= play.clock.now < 30


def test_why_who_answers_was_not_given_the_key_is_said(play):
    answers = snapshot(healthy=True, progress={"grew": None, "still_s": 0.0, "limit_s": 600.0, "withheld": "the API's key was not sent: thief (pid 7) listens"})
    result = play.run(STARTED, answers, first_token_timeout=20)
    assert "generated no token within 20 s: the API's key was not sent: thief (pid 7) listens" in result["msg"]


def test_the_rank_that_the_first_token_waits_for_is_named(play):
    """The ranks of the head wait in a loop for one of the worker's, which rests."""
    play.board("spark-2", "worker").update("work", {"at": 0.0, "cpu_at": 0.0})
    loop = itertools.count(1)
    result = play.run(STARTED, lambda: snapshot(healthy=True, processes=[{**RANK_PROCESS, "cpu_s": 2.0 * next(loop)}]), first_token_timeout=60)
    assert "the ranks of spark-2 rest while the others wait in a loop" in result["msg"]
    assert (result["first_failure"]["id"], result["first_failure"]["node"]) == ("no token", "spark-2")


def job_calls(play):
    """Return what was done with jobs, in order: ask (with its arguments), status, cleanup."""
    jobs = [(name, arguments) for name, arguments in play.asked if name == token_question.JOB or (arguments or {}).get("first_token_timeout")]
    return [arguments["mode"] if name == token_question.JOB else "ask" for name, arguments in jobs]


def test_the_first_token_is_one_question_that_goes_on_between_the_polls(play):
    """Each attempt that is aborted while kernels compile would leave the engine another request."""
    waits = [snapshot(healthy=True)] * 5
    result = play.run(STARTED, snapshot(), *waits, snapshot(**TOKEN), first_token_timeout=300)
    assert not result["failed"]
    assert job_calls(play) == ["ask", *["status"] * 6, "cleanup"]
    request = next(arguments for _name, arguments in play.asked if (arguments or {}).get("first_token_timeout"))
    assert (request["first_token_timeout"], request["model"], request["cluster_name"]) == (300, "m", "gb10")
    assert not any(arguments.get("probe") for name, arguments in play.asked if name == vllm_serve.INFO and "first_token_timeout" not in arguments)


@pytest.mark.parametrize(
    "answer",
    [
        snapshot(healthy=True),
        {"failed": True, "verdict": "unknown", "msg": "docker hangs"},
        {"failed": True, "msg": "could not find job"},
    ],
    ids=["no token", "unknown", "the node was rebooted"],
)
def test_a_question_that_ended_without_a_token_is_asked_again(play, answer):
    play.jobs = [{}, {"finished": True, **answer}]
    result = play.run(STARTED, snapshot(healthy=True), snapshot(healthy=True), snapshot(**TOKEN))
    assert not result["failed"]
    assert job_calls(play) == ["ask", "status", "status", "cleanup", "ask", "status", "cleanup"]


def test_a_question_outlives_a_lost_connection(play):
    play.jobs = [AnsibleConnectionFailure("lost")]
    assert not play.run(STARTED, snapshot(healthy=True), snapshot(**TOKEN))["failed"]
    assert job_calls(play) == ["ask", "status", "status", "cleanup"]


def test_a_refused_question_ends_the_wait(play):
    play.jobs = [{"finished": True, "failed": True, "verdict": "block", "msg": "the API refuses a completion: HTTP 401", "remedy": "Give api_key_file"}]
    result = play.run(STARTED, snapshot(healthy=True))
    assert (result["failed"], result["remedy"]) == (True, "Give api_key_file")
    assert job_calls(play) == ["ask", "status", "cleanup"]


def test_an_engine_that_ends_over_the_question_leaves_no_job(play):
    result = play.run(STARTED, snapshot(healthy=True), dead("RuntimeError: Engine core died", exit_code=1))
    assert result["failed"]
    assert job_calls(play) == ["ask", "status", "cleanup"]


def test_the_wait_is_bounded(play):
    result = play.run(STARTED, snapshot(), wait_timeout=90)
    assert (result["failed"], result["verdict"]) == (True, "block")
    assert "no token within 90 s; last seen on spark-1: loading weights" in result["msg"]
    assert 90 <= play.clock.now < 95


def test_a_refused_key_ends_the_wait(play):
    refused = {"failed": True, "verdict": "block", "msg": "the API refuses a completion: HTTP 401", "remedy": "Give api_key_file"}
    result = play.run(STARTED, refused)
    assert (result["failed"], result["remedy"]) == (True, "Give api_key_file")


def test_a_connection_that_comes_back_is_not_a_failure(play):
    result = play.run(STARTED, AnsibleConnectionFailure("lost"), {"failed": True, "verdict": "unknown", "msg": "docker hangs"}, snapshot(**TOKEN))
    assert not result["failed"]
    assert play.shown.count("reset") == 2


def test_the_least_memory_that_was_seen_is_reported(play):
    result = play.run(STARTED, snapshot(memory_available_mb=90000), snapshot(memory_available_mb=20110), snapshot(**TOKEN, memory_available_mb=21000))
    assert not result["failed"] and result["lowest_available_mb"] == 20110


def test_a_node_that_starves_for_minutes_while_it_loads_is_waited_for(play):
    """Minutes without ssh, as reported for loads; the play shows this while it waits."""
    lost = [AnsibleConnectionFailure("timed out")] * 150
    result = play.run(STARTED, snapshot(), *lost, snapshot(**TOKEN))
    assert not result["failed"] and play.clock.now > 290 and 290 < result["longest_silence_seconds"] <= play.clock.now
    lines = [line for line in play.shown if "no answer for" in line]
    assert lines[0] == "spark-1: no answer for 00:30, which a node that loads may need; failed from 10:00 on" and len(lines) >= 9


def test_a_node_that_stays_silent_is_named_and_its_engine_left_running(play):
    result = play.run(STARTED, AnsibleConnectionFailure("lost"), silent_timeout=90)
    assert (result["failed"], result["verdict"], result["reason"]) == (True, "unknown", "connection")
    assert "node spark-1 does not answer: lost; it has been silent for 01:3" in result["msg"] and "power spark-1 off" in result["remedy"]
    assert 90 <= play.clock.now < 100 and result["cause_known"] is False


def test_a_node_with_unreadable_answers_is_not_waited_for_that_long(play):
    play.run(STARTED, {"failed": True, "verdict": "unknown", "msg": "docker hangs"})
    assert vllm_serve.UNKNOWN_SECONDS <= play.clock.now < vllm_serve.UNKNOWN_SECONDS + 10


def test_a_node_that_is_silent_when_the_head_succeeds_is_waited_for(play):
    """The stages after this one would find it unreachable."""

    def lost():
        play.board("spark-1", "head").succeed("ready after 00:42")
        raise AnsibleConnectionFailure("lost")

    result = on_worker(play, snapshot(), *[lost] * 10, snapshot())
    assert (result["failed"], result["msg"]) == (False, "spark-1: ready after 00:42") and len(play.asked) == 13


def test_a_node_that_stays_silent_after_the_heads_success_is_named(play):
    play.board("spark-1", "head").succeed("ready after 00:42")
    lost = AnsibleConnectionFailure("lost")
    assert not on_worker(play, lost)["failed"], "it was never found silent"

    def succeed():
        play.board("spark-1", "head").succeed("ready after 00:42")
        raise lost

    result = on_worker(play, snapshot(), succeed, lost, silent_timeout=90)
    assert (result["failed"], result["reason"], result["cause_known"]) == (True, "connection", False) and 90 <= play.clock.now < 110


def test_a_failed_start_is_published(play):
    result = play.run({"failed": True, "msg": "blocked", "reason": "restart not allowed"})
    assert result["reason"] == "restart not allowed"
    assert play.board("spark-2", "worker").failure().message == "blocked"


@pytest.mark.parametrize(
    ("why", "id"),
    [
        ("/var/log/gb10/gb10/engine does not accept the engine's log: No space left on device; needs 16777216 bytes, 0 are free", "disk-full"),
        ("no such program: vllm", "launcher"),
    ],
)
def test_a_node_that_starts_nothing_is_the_first_to_fail(play, why, id):
    result = play.run({"failed": True, "msg": f"the engine could not be started: {why}", "reason": "launcher", "changed": False})
    first = result["first_failure"]
    assert (result["failed"], result["cause_known"], first["node"], first["id"]) == (True, True, "spark-1", id)
    assert why in (first["lines"] or [first["cause"]])[-1]


@pytest.mark.parametrize(("verdict", "is_known"), [("block", True), ("unknown", False)])
def test_what_a_worker_refuses_is_known_to_the_head(play, verdict, is_known):
    """The head's engine cannot serve without the worker, unless the worker's state is only unknown."""
    head = play.board("spark-1", "head")
    refusal = {"failed": True, "msg": "container gb10-gb10-worker does not run", "reason": "", "verdict": verdict, "changed": False}
    result = play.run(refusal, node="spark-2", node_role="worker")
    assert (result["failed"], result["cause_known"], result["first_failure"]["node"]) == (True, is_known, "spark-2")
    (failure,) = head.gather(vllm_serve.EVIDENCE, 1)["spark-2"]["failures"]
    assert failure == result["first_failure"] and failure["cause"] == refusal["msg"]


def test_an_unreachable_head_is_published(play):
    with pytest.raises(AnsibleConnectionFailure):
        play.run(AnsibleConnectionFailure("no route"))
    assert play.board("spark-2", "worker").failure().message == "no route"


@pytest.mark.parametrize("options", [{"wait": False}, {"state": "stopped"}, {"check_mode": True}])
def test_nothing_to_wait_for(play, options):
    assert play.run(STARTED, **options) == STARTED
    assert [name for name, _arguments in play.asked] == [vllm_serve.MODULE]


def test_a_drain_says_how_many_requests_are_left_and_ends_with_the_last(play, monkeypatch):
    monkeypatch.setattr(vllm_serve.interruption, "time", play.clock)

    def busy(count):
        def answer():
            play.clock.now += play.asked[-1][1]["drain_timeout"]
            return {"failed": True, "reason": "requests running", "requests_running": count, "msg": f"it has {count} request(s)"}

        return answer

    stopped = {"changed": True, "msg": "stopped"}
    assert play.run(busy(2), busy(1), stopped, state="stopped", drain_timeout=900) == stopped
    assert play.asked == [(vllm_serve.MODULE, {"state": "stopped", "drain_timeout": seconds}) for seconds in (0, 30, 30)]
    assert play.shown == [
        f"spark-1: the engine of gb10 still has {count} request(s), running or waiting; they get {left} s more" for count, left in ((2, 900), (1, 870))
    ]


def test_check_mode_waits_for_no_request(play):
    refused = {"failed": True, "reason": "requests running", "requests_running": 2}
    assert play.run(refused, state="stopped", drain_timeout=900, check_mode=True) == refused
    assert (len(play.asked), play.shown) == (1, [])


# -- workers ---------------------------------------------------------------------------------------------------------

WORKER = {"changed": False, "actions": []}


def on_worker(play, *script, **options):
    return play.run(WORKER, *script, node="spark-2", node_role="worker", **options)


def test_the_heads_success_ends_the_wait(play):
    head = play.board("spark-1", "head")

    def succeed():
        head.succeed("ready after 00:42")
        return snapshot()

    result = on_worker(play, snapshot(), succeed, snapshot())
    assert (result["failed"], result["changed"], result["msg"]) == (False, False, "spark-1: ready after 00:42")
    assert len(play.asked) == 3


def test_the_heads_failure_ends_the_wait(play):
    head = play.board("spark-1", "head")

    def fail():
        head.fail("the engine ended")
        return snapshot()

    result = on_worker(play, snapshot(), fail, snapshot())
    assert result["msg"] == "ended because spark-1 failed: the engine ended"
    assert result["failed_node"] == "spark-1"


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ({"running": False, "exit_code": 137}, "container gb10-gb10-worker of node spark-2 ended with exit code 137 00:"),
        ({"running": False, "exit_code": 137, "oom_killed": True}, "killed by the kernel because memory ran out"),
        ({"exists": False, "running": False, "name": ""}, "the container of node spark-2 is gone"),
    ],
)
def test_a_worker_that_loses_its_container_fails_at_once(play, container, words):
    play.board("spark-1", "head")
    result = on_worker(play, snapshot(container={**CONTAINER, "name": "gb10-gb10-worker", **container}))
    assert words in result["msg"]
    assert result["failed_node"] == "spark-2"
    assert play.board("spark-3", "worker").failure().node == "spark-2"


DOWN = {"interface": "eth1", "operstate": "down", "up": False, "unanswered": {}}


@pytest.mark.parametrize(
    ("fabric", "words"),
    [
        (DOWN, "interface eth1 of node spark-2, which carries the fabric, is down 00:"),
        ({**DOWN, "operstate": ""}, "is without a carrier 00:"),
        ({"interface": "", "operstate": "", "up": False, "unanswered": {}}, "the fabric address of node spark-2 is on no interface any more"),
    ],
)
def test_a_fabric_that_stays_down_is_named(play, fabric, words):
    play.board("spark-1", "head")
    result = on_worker(play, snapshot(), snapshot(fabric=fabric), fabric_address="10.0.0.2")
    assert words in result["msg"]
    assert (result["reason"], result["failed_node"]) == ("fabric", "spark-2")
    assert [arguments["fabric_address"] for name, arguments in play.asked if name == vllm_serve.INFO] == ["10.0.0.2"] * 3


def test_the_heads_own_fabric_counts_too(play):
    assert "interface eth1 of node spark-1" in play.run(STARTED, snapshot(fabric=DOWN))["msg"]


def test_a_node_that_answers_nothing_over_the_fabric_is_named(play):
    """Packets are dropped on the way and the link is up. What other machines do not answer, or not for some seconds, is no failure of the cluster."""
    play.board("spark-2", "worker").publish("address", {"address": "10.0.0.2"})
    polls = [snapshot(fabric={**SNAPSHOT["fabric"], "unanswered": again}) for again in ({"10.0.0.2": 5, "10.9.9.9": 15}, {"10.0.0.2": 6}, {}, {"10.0.0.2": 6})]
    result = play.run(STARTED, *polls, snapshot(fabric={**SNAPSHOT["fabric"], "unanswered": {"10.0.0.2": 7}}))
    assert "nothing comes back to spark-1 from spark-2 over interface eth1, which carries the fabric and is up" in result["msg"]
    # It may come back, and Ray waits for a minute.
    assert (result["reason"], result["cause_known"]) == ("fabric silent", False) and len(play.asked) == 7


@pytest.mark.parametrize("fabric", [DOWN, None])
def test_a_link_that_comes_back_or_is_not_watched_is_not_a_failure(play, fabric):
    assert not play.run(STARTED, snapshot(fabric=fabric), snapshot(), snapshot(fabric=fabric), snapshot(**TOKEN))["failed"]


RANK_PROCESS = {
    "pid": 1104, "start_ticks": 7, "text": "ray::RayWorkerProc.run (pid 1104)", "kind": "rank", "state": "alive", "cpu_s": 1.0, "cpu_percent": None,
    "io_mb": 1,
}  # fmt: skip
HALTED = snapshot(processes=[{**RANK_PROCESS, "state": "stopped"}])


def test_a_rank_that_stays_stopped_ends_the_wait_within_two_polls(play):
    play.board("spark-1", "head")
    result = on_worker(play, snapshot(), HALTED)
    assert "stopped on spark-2 by a signal or a debugger, so that the engine hangs: ray::RayWorkerProc.run (pid 1104)" in result["msg"]
    assert (result["reason"], result["failed_node"]) == ("process stopped", "spark-2") and "kill -CONT" in result["remedy"]
    assert play.clock.now < 10 + vllm_serve.EVIDENCE_SECONDS
    # It may be continued: it is left running.
    assert result["cause_known"] is False


def test_a_process_that_a_profiler_stops_for_a_moment_is_no_failure(play):
    assert not play.run(STARTED, HALTED, snapshot(), HALTED, snapshot(**TOKEN))["failed"]


def test_a_rank_that_is_killed_is_named_by_the_next_poll(play):
    head = play.board("spark-1", "head")
    head.publish("begun", {})
    there = snapshot(processes=[RANK_PROCESS])
    result = on_worker(play, there, there, there, snapshot())
    assert result["msg"] == "ended on spark-2 while the engine started: ray::RayWorkerProc.run (pid 1104)"
    assert (result["reason"], result["cause_known"], result["first_failure"]["node"]) == ("rank ended", True, "spark-2")


def test_a_core_that_ended_is_named_with_the_line_that_says_why(play):
    """A line that no signature knows does not end the wait, and its process may end before the front end does."""
    core = {**RANK_PROCESS, "kind": classify.ENGINE_CORE, "text": "VLLM::EngineCore (pid 275)"}
    there = snapshot(processes=[core])
    line = "(EngineCore pid=275) ERROR 11-26 18:00:40 [core.py:1512] RuntimeError: no kernel for the first completion, cmpl-a69420e8"
    result = play.run(STARTED, there, there, there, snapshot(log_lines=[line]))
    assert result["msg"] == f"ended on spark-1 while the engine started: VLLM::EngineCore (pid 275): {line}"
    assert (result["reason"], result["cause_known"]) == ("core ended", True) and line in result["first_failure"]["cause"]


def test_ranks_of_the_engine_before_may_end_until_the_head_has_begun(play):
    head = play.board("spark-1", "head")
    there = snapshot(processes=[RANK_PROCESS], ray_lines={"worker-a.err": ["CUDA error: out of memory"]})

    def begin():
        head.publish("begun", {})
        return snapshot()

    def succeed():
        head.succeed("ready")
        return snapshot()

    result = on_worker(play, there, there, there, begin, snapshot(), snapshot(), succeed, snapshot())
    assert not result["failed"]
    ends = [arguments["ray_from_end"] for name, arguments in play.asked if name == vllm_serve.INFO]
    # The first look after the head has begun is the last one that leaves out what is there already.
    assert ends == [True] * 5 + [False] * (len(ends) - 5)


def test_a_cause_in_the_log_of_a_rank_of_ray_ends_the_wait_on_its_own_node(play):
    head = play.board("spark-1", "head")
    head.publish("begun", {})
    line = "(RayWorkerProc pid=277) ERROR 11-21 02:41:17 [x.py:1] torch.OutOfMemoryError: CUDA out of memory."
    result = on_worker(play, snapshot(), snapshot(ray_lines={"worker-a.err": [line]}), snapshot())
    assert (result["reason"], result["failed_node"], result["cause_known"]) == ("memory-out", "spark-2", True)
    assert result["first_failure"]["lines"] == [line]


XID = "2026-11-21T01:53:40Z NVRM: Xid (PCI:000f:01:00): 79, pid=4711, GPU has fallen off the bus."


def test_the_kernels_log_is_read_now_and_then_and_ends_the_wait(play):
    quiet = [snapshot(now=1795226000.0)] * 5
    result = play.run(STARTED, *quiet, snapshot(now=1795226030.0, kernel_lines=[XID]), snapshot(now=1795226032.0, kernel_lines=[XID]))
    assert (result["reason"], result["cause_known"], result["first_failure"]["lines"]) == ("kernel-gpu-lost", True, [XID])
    since = [arguments.get("kernel_since") for name, arguments in play.asked if name == vllm_serve.INFO]
    # From the first poll on, every fifth one, and the last look.
    assert since == [None] * 5 + [1795226000.0, None, 1795226000.0]


def test_the_last_look_finds_in_the_kernels_log_why_a_rank_ended(play):
    there = snapshot(processes=[RANK_PROCESS], now=1795226000.0)
    killed = "2026-11-21T01:53:19Z Out of memory: Killed process 1104 (ray::RayWorkerP) total-vm:1kB"
    result = play.run(STARTED, there, there, there, snapshot(now=1795226008.0), snapshot(now=1795226009.0, kernel_lines=[killed]))
    assert result["msg"].startswith("ended on spark-1 while the engine started")
    assert (result["first_failure"]["id"], result["first_failure"]["node"]) == ("kernel-oom-engine", "spark-1")


def test_a_kernels_log_that_cannot_be_read_is_said_and_ends_nothing(play):
    assert not play.run(STARTED, snapshot(kernel_error="no permission"), snapshot(**TOKEN))["failed"]
    play.run(STARTED, snapshot(kernel_error="no permission"), dead("x", exit_code=1), task="second")
    assert "spark-1: the kernel's log could not be read, so it may hold the cause: no permission" in play.shown


def test_a_signature_of_the_users_own_names_the_cause(play, tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own/mine.yml").write_text(
        """---
- id: flurb-gone
  where: vllm
  patterns: [the flurb is gone]
  rank_scope: cause
  cause: the flurb is gone
  consequence: nothing works
  remedy: Bring the flurb back.
  source: this test
  examples: ["FlurbError: the flurb is gone"]
"""
    )
    line = "FlurbError: the flurb is gone"
    result = play.run(STARTED, snapshot(log_lines=[line]), snapshot(), signature_dirs=[str(tmp_path / "own")])
    assert (result["reason"], result["cause_known"]) == ("flurb-gone", True) and result["remedy"].startswith("Bring the flurb back.")
    missing = play.run(STARTED, snapshot(), signature_dirs=[str(tmp_path / "none")], task="second")
    assert missing["failed"] and "none on the controller" in missing["msg"]


def test_memory_that_is_used_up_ends_the_wait_before_the_node_freezes(play):
    low = snapshot(memory_available_mb=900)
    assert not play.run(STARTED, low, snapshot(), low, snapshot(**TOKEN))["failed"]
    result = play.run(STARTED, low, low, task="second")
    assert result["msg"] == "900 of 124609 MiB of memory are left on spark-1: it would freeze"


def test_a_start_without_any_progress_is_named_and_left_running(play):
    result = play.run(STARTED, snapshot(stage="joining ranks", shards=""), wait_timeout=3600)
    assert (result["reason"], result["cause_known"]) == ("stalled", False)
    assert "makes no progress (joining ranks) for 11:0" in result["msg"] and "11:00 is the limit" in result["msg"]
    assert 660 <= play.clock.now < 700


def test_the_limit_of_progress_is_a_setting(play):
    result = play.run(STARTED, snapshot(), wait_timeout=3600, stall_timeout=90)
    assert result["reason"] == "stalled" and "01:30 is the limit" in result["msg"] and 90 <= play.clock.now < 120


@pytest.mark.parametrize("seconds", [254, 540])
def test_a_pause_while_kernels_are_compiled_is_no_stall(play, seconds):
    """No line, no shard, nothing read, and the ranks rest while the compiler works in processes that are not theirs: 254 s were reported."""
    waits = [snapshot(processes=[RANK_PROCESS], stage="compiling", shards="")] * (seconds // 2)
    result = play.run(STARTED, snapshot(), *waits, snapshot(**TOKEN))
    assert not result["failed"] and play.clock.now >= seconds - 10


def test_what_an_echo_shows_is_only_suspected(play):
    result = play.run(STARTED, snapshot(log_lines=["EngineCore failed to start."]), snapshot())
    assert (result["failed"], result["cause_known"], result["first_failure"]["certainty"]) == (True, False, "suspected")


def test_a_head_ends_when_a_worker_failed(play):
    worker = play.board("spark-2", "worker")

    def fail():
        worker.fail("container gone")
        return snapshot()

    result = play.run(STARTED, fail, snapshot())
    assert (result["failed"], result["msg"]) == (True, "ended because spark-2 failed: container gone")
    assert play.clock.now < 5 + vllm_serve.EVIDENCE_SECONDS


# -- ranks without Ray -----------------------------------------------------------------------------------------------

RANK = {**STARTED, "changed": False, "actions": [], "reason": "live", "endpoint": "", "diff": {"before": {}, "after": {}}}
CAUSE = "vllm: error: unrecognized arguments: --x"
ECHO = "RuntimeError: Engine core initialization failed. See root cause above."


def on_rank(play, *script, head=None, **options):
    """Run a worker whose head published a live rank."""
    head = head or play.board("spark-1", "head")
    head.publish("plan", {"live": True, "changed": False, "reason": "live"})
    given = {"executor": "native", "node_count": 2, "node_rank": 1, "master_address": "10.0.0.1"}
    return play.run(RANK, *script, node="spark-2", node_role="worker", **{**given, **options})


def test_a_worker_is_not_looked_at_whose_head_has_its_token_at_once(play):
    play.board("spark-1", "head").succeed("the engine served already")
    result = play.run({"changed": False, "msg": "a worker starts no engine of its own"}, node="spark-2", node_role="worker")
    assert not result["failed"] and [name for name, _arguments in play.asked] == [vllm_serve.MODULE]


def test_a_rank_waits_for_the_heads_token(play):
    head = play.board("spark-1", "head")

    def succeed():
        head.succeed("ready after 00:42")
        return snapshot()

    result = on_rank(play, snapshot(), succeed, snapshot(), head=head)
    assert (result["failed"], result["changed"], result["msg"]) == (False, False, "spark-1: ready after 00:42")
    assert play.asked[1][1]["log_offset"] == 0
    assert "probe" not in play.asked[1][1]
    assert any("spark-2: loading weights 1/2" in line for line in play.shown)


def test_a_rank_that_ends_is_reported_with_its_own_line(play):
    result = on_rank(play, dead(CAUSE, exit_code=2))
    assert "the rank on spark-2 ended with exit code 2" in result["msg"]
    assert CAUSE in result["msg"]
    assert play.board("spark-3", "worker").failure().node == "spark-2"


def test_a_last_poll_finds_the_cause_of_what_another_rank_saw(play):
    head = play.board("spark-1", "head")

    def fail():
        head.fail(f"the engine on spark-1 ended: {ECHO}")
        return snapshot()

    result = on_rank(play, fail, dead(CAUSE, exit_code=2), head=head)
    assert result["msg"].startswith("the rank on spark-2 cannot serve (this version of the engine does not know an argument)")
    assert result["failed_node"] == "spark-1"


@pytest.mark.parametrize("last", [snapshot(), dead(ECHO, exit_code=1), AnsibleConnectionFailure("no route")])
def test_a_last_poll_without_a_cause_reports_the_first_failure(play, last):
    head = play.board("spark-1", "head")

    def fail():
        head.fail("no memory")
        return snapshot()

    result = on_rank(play, fail, last, head=head)
    assert result["msg"] == "ended because spark-1 failed: no memory"


def test_ranks_share_the_board_even_when_nothing_is_waited_for(play):
    result = on_rank(play, wait=False)
    assert (result["changed"], result["failed"]) == (False, False)
    assert [name for name, _arguments in play.asked] == [vllm_serve.MODULE]


def test_check_mode_predicts_what_the_others_bring_about(play):
    head = play.board("spark-1", "head")
    head.publish("plan", {"live": False, "changed": True, "reason": "no engine runs"})
    result = on_rank(play, head=head, check_mode=True)
    assert result["changed"]
    assert result["msg"] == "would be restarted: an engine without all its ranks is not live: none lives on spark-1"
    assert [arguments["state"] for _name, arguments in play.asked] == ["started"]


def test_without_a_head_a_worker_does_not_wait_forever(play):
    result = on_worker(play, snapshot())
    assert "did not begin within 60 s" in result["msg"]
    assert "forks" in result["remedy"]


def test_a_head_that_vanished_is_noticed(play):
    play.board("spark-1", "head").leave()
    assert "without a result" in on_worker(play, snapshot())["msg"]


def test_a_head_that_never_ends_does_not_hold_its_workers(play):
    play.board("spark-1", "head")
    result = on_worker(play, snapshot(), wait_timeout=100)
    assert "the head published no result within 160 s" in result["msg"]


# -- time limit ------------------------------------------------------------------------------------------------------


def test_a_poll_that_hangs_is_given_up():
    began = time.monotonic()
    with pytest.raises(vllm_serve.PollTimeout), vllm_serve.time_limit(1):
        signal.pause()
    assert time.monotonic() - began < 5
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


def test_a_tasks_own_timeout_keeps_its_alarm():
    before = signal.signal(signal.SIGALRM, lambda *_args: None)
    try:
        with vllm_serve.time_limit(1):
            assert signal.alarm(0) == 0
    finally:
        signal.signal(signal.SIGALRM, before)
