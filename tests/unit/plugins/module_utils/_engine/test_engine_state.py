# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The engine's files, process, log and API, seen from its node."""

from __future__ import annotations

import http.server
import json
import os
import threading
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils import _redact
from ansible_collections.gb10.cluster.plugins.module_utils._engine import api_probe, engine_log, engine_state
from ansible_collections.gb10.cluster.plugins.module_utils._engine.api_key import KeyForElsewhere
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.notes import NOTE_LIMIT

RECORDED = Path(__file__).resolve().parents[3] / "fixtures" / "vllm"

RUN = {
    "run_id": "20260101T000000Z-0001",
    "pid": 57,
    "start_ticks": 987654,
    "container_start": 987000,
    "boot_id": "2a5dc1f5-3983-4f96-a958-ebff58fa47ab",
    "argv": ["vllm", "serve", "m"],
    "digest": "1:abc",
    "secret_env": {"VLLM_API_KEY": "/run/secrets/gb10/api_key"},
    "no_carry_env": ["VLLM_HOST_IP"],
    "api_address": "10.0.0.1",
    "api_port": 8000,
    "started_at": 1700000000.0,
    "log_path": "/var/log/gb10/engine/20260101T000000Z-0001.log",
}


def fake_process(proc, pid, inner, ticks=987654, state="S", run=None):
    """A process in the container of the fixture ``node``, or in a container with another directory ``run``."""
    place = proc / str(pid)
    place.mkdir(parents=True)
    (place / "root").symlink_to(run or proc.parent / "container")
    (place / "stat").write_text(f"{pid} (vllm serve) {state} 1 {pid} {pid} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {ticks} 0 0")
    (place / "status").write_text(f"Name:\tvllm\nNSpid:\t{pid}\t{inner}\n")


@pytest.fixture
def node(tmp_path):
    """A node with one container, which mounts the directory of notes at /opt/gb10/run."""
    run = tmp_path / "container" / "opt" / "gb10" / "run"
    run.mkdir(parents=True)
    paths = engine_state.EnginePaths.of(str(tmp_path / "state"), str(tmp_path / "log"), "gb10")._replace(run=str(run))
    (tmp_path / "state" / "gb10" / "launch").mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    order(paths, RUN)
    return paths, tmp_path / "proc", run


def order(paths, spec):
    """Write what the host ordered."""
    Path(paths.launch, "engine.json").write_text(json.dumps(spec))


def note(place, name, content):
    (place / f"{name}.json").write_text(json.dumps(content))


# -- process ---------------------------------------------------------------------------------------------------------


def test_without_a_run_every_key_is_there(node):
    paths, proc, _run = node
    state = engine_state.engine_state(paths, str(proc))
    assert (state["live"], state["run_id"], state["argv"], state["exit_code"], state["profile"]) == (False, "", [], None, "")


def test_a_live_engine_has_the_hosts_pid(node):
    paths, proc, run = node
    note(run, "run", RUN)
    fake_process(proc, 48121, 57)
    fake_process(proc, 48200, 58)
    state = engine_state.engine_state(paths, str(proc))
    assert (state["live"], state["pid"], state["digest"]) == (True, 48121, "1:abc")
    assert state["log_path"] == f"{paths.log}/engine/20260101T000000Z-0001.log"
    assert state["stopped_by"] == ""


@pytest.mark.parametrize("now", [0.0, 1700000042.0, 4000000000.0])
def test_the_age_of_an_engine_ignores_the_wall_clock(node, monkeypatch, now):
    paths, proc, run = node
    note(run, "run", RUN)
    fake_process(proc, 48121, 57)
    monkeypatch.setattr(engine_state.time, "time", lambda: now)
    monkeypatch.setattr(engine_state, "boot_seconds", lambda: RUN["start_ticks"] / os.sysconf("SC_CLK_TCK") + 42.04)
    assert engine_state.engine_state(paths, str(proc))["seconds"] == 42.0


def test_a_run_that_is_over_lasted_what_its_launcher_counted(node):
    paths, proc, run = node
    note(run, "run", RUN)
    assert engine_state.engine_state(paths, str(proc))["seconds"] is None
    note(run, "exit", {"run_id": RUN["run_id"], "code": 0, "signal": None, "ended_at": 1.0, "error": "", "seconds": 31.4})
    assert engine_state.engine_state(paths, str(proc))["seconds"] == 31.4


END = {
    "live": False, "start_error": "", "run_id": "r", "seconds": 31.4, "ended_at": 1795226031.0, "exit_code": None, "exit_signal": None,
    "stopped_by": "", "stopped_at": None,
}  # fmt: skip
AT = "at 2026-11-21T01:53:51Z after 31 s"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"live": True}, ""),
        ({"run_id": ""}, ""),
        ({"exit_code": 1}, f"ended with exit code 1 {AT}"),
        ({"exit_code": 0, "seconds": None, "ended_at": None}, "ended with exit code 0"),
        ({"exit_signal": 9}, f"was ended by SIGKILL {AT}"),
        ({"exit_signal": 40}, f"was ended by signal 40 {AT}"),
        ({"exit_signal": 15, "stopped_by": "user ada with vllm_serve", "stopped_at": 1795226031.0}, f"was stopped by user ada with vllm_serve {AT}"),
        ({"seconds": None, "ended_at": None}, "is gone, and nothing noted how it ended"),
    ],
)
def test_how_it_ended_in_words(how, words):
    assert engine_state.end_text({**END, **how}) == words


@pytest.mark.parametrize(("text", "line"), [("one\n\x1b[36mtwo\x1b[0m\n\n", ", its log ends: two"), ("", ""), (None, "")])
def test_the_last_end_quotes_the_logs_last_line(tmp_path, text, line):
    if text is not None:
        (tmp_path / "log").write_text(text)
    assert engine_state.last_end({**END, "exit_code": 1, "log_path": str(tmp_path / "log")}) == f"run r ended with exit code 1 {AT}{line}"
    assert engine_state.last_end({**END, "live": True, "log_path": str(tmp_path / "log")}) == ""


def test_no_part_of_a_secret_is_quoted_where_the_line_is_cut(tmp_path, monkeypatch):
    (tmp_path / "secrets/gb10").mkdir(parents=True)
    (tmp_path / "secrets/gb10/api_key").write_text("PlantedSecretOfTheApi")
    monkeypatch.setattr(_redact, "SECRETS_DIR", str(tmp_path / "secrets"))
    (tmp_path / "log").write_text(f"{'x ' * (engine_state.SHOWN_LINE // 2 - 8)}PlantedSecretOfTheApi")
    assert "Planted" not in engine_state.last_end({**END, "exit_code": 1, "log_path": str(tmp_path / "log")})


@pytest.mark.parametrize("before", [True, False])
def test_a_start_that_failed_is_the_last_end(node, before):
    paths, proc, run = node
    if before:
        note(run, "run", RUN)
    error = "/var/log/gb10/engine does not accept the engine's log"
    note(run, "exit", {"run_id": "20260101T000000Z-0002", "code": 126, "signal": None, "ended_at": 1.0, "error": error})
    state = engine_state.engine_state(paths, str(proc))
    assert engine_state.last_end(state) == f"run 20260101T000000Z-0002 did not start: {paths.log}/engine does not accept the engine's log"


@pytest.mark.parametrize(("run_ids", "by"), [([RUN["run_id"]], "user ada"), (["20260101T000000Z-ffff"], "")])
def test_a_stop_counts_for_the_runs_that_it_names(node, run_ids, by):
    paths, proc, run = node
    note(run, "run", RUN)
    note(Path(paths.launch), "stop", {"run_ids": run_ids, "by": by and "user ada", "at": 1.0})
    assert engine_state.engine_state(paths, str(proc))["stopped_by"] == by


def test_a_stop_recorded_by_the_container_is_ignored(node):
    paths, proc, run = node
    note(run, "run", RUN)
    note(run, "stop", {"run_ids": [RUN["run_id"]], "by": "user ada with vllm_serve", "at": 1.0})
    state = engine_state.engine_state(paths, str(proc))
    assert (state["stopped_by"], state["stopped_at"]) == ("", None)


def test_the_hosts_order_decides_which_run_was_ordered(node):
    paths, proc, run = node
    assert engine_state.engine_state(paths, str(proc))["ordered"] == RUN["run_id"]
    note(run, "run", {**RUN, "run_id": "20260101T000000Z-ffff"})
    state = engine_state.engine_state(paths, str(proc))
    assert (state["run_id"], state["ordered"], state["argv"]) == ("20260101T000000Z-ffff", RUN["run_id"], [])


# -- what the container forges -----------------------------------------------------------------------------------------


def test_a_note_that_names_a_process_elsewhere_is_not_believed(node, tmp_path):
    """A note can name any process of the node. Only a process in the note's own container is the engine."""
    paths, proc, run = node
    note(run, "run", RUN)
    (tmp_path / "elsewhere/opt/gb10/run").mkdir(parents=True)
    fake_process(proc, 48121, 57, run=tmp_path / "elsewhere")
    assert not engine_state.engine_state(paths, str(proc))["live"]


def test_what_was_started_is_what_the_host_ordered(node):
    paths, proc, run = node
    forged = {"argv": ["x"], "digest": "1:forged", "api_address": "169.254.169.254", "api_port": 80, "log_path": "/var/log/gb10/../../../etc/shadow"}
    note(run, "run", {**RUN, **forged})
    state = engine_state.engine_state(paths, str(proc))
    assert {name: state[name] for name in ("argv", "digest", "api_address", "api_port")} == {
        name: RUN[name] for name in ("argv", "digest", "api_address", "api_port")
    }
    assert state["log_path"] == f"{paths.log}/engine/{RUN['run_id']}.log"


def test_an_order_of_another_run_is_ignored(node):
    paths, proc, run = node
    note(run, "run", {**RUN, "run_id": "20260101T000000Z-0002"})
    assert engine_state.engine_state(paths, str(proc))["api_address"] == ""


@pytest.mark.parametrize(
    "forged",
    [
        {"run_id": "../../../etc/shadow"}, {"run_id": "20260101T000000Z-0001\n"}, {"run_id": ["x"]}, {"run_id": None}, {"pid": -1}, {"pid": "57"},
        {"start_ticks": float("nan")}, {"start_ticks": 10**400}, {"started_at": "yesterday"}, {"started_at": 1e300}, {"boot_id": "x" * 5000},
    ],
)  # fmt: skip
def test_a_forged_note_is_unknown_and_never_live(node, forged):
    paths, proc, run = node
    note(run, "run", {**RUN, **forged})
    with pytest.raises(UnknownState):
        engine_state.engine_state(paths, str(proc))
    state = engine_state.engine_state(paths, str(proc), lenient=True)
    assert not state["live"] and "run.json" in state["unreadable"]


@pytest.mark.parametrize("forged", [{"ended_at": 10**400}, {"code": "0"}, {"signal": -1}, {"seconds": float("inf")}, {"error": ["x"]}])
def test_a_forged_end_is_ignored(node, forged):
    paths, proc, run = node
    note(run, "run", RUN)
    note(run, "exit", {"run_id": RUN["run_id"], "code": 0, "signal": None, "ended_at": 1.0, "error": "", "seconds": 1.0, **forged})
    assert engine_state.last_end(engine_state.engine_state(paths, str(proc))).endswith("nothing noted how it ended")


def test_a_forged_end_does_not_end_what_lives(node):
    paths, proc, run = node
    note(run, "run", RUN)
    note(run, "exit", {"run_id": RUN["run_id"], "code": 0, "signal": None, "ended_at": 1.0, "error": "", "seconds": 1.0})
    fake_process(proc, 48121, 57)
    state = engine_state.engine_state(paths, str(proc))
    assert state["live"] and state["exit_code"] is None


@pytest.mark.parametrize("name", ["run", "exit", "stop"])
@pytest.mark.parametrize("how", ["link", "fifo", "folder", "huge"])
def test_a_planted_note_shows_and_hangs_nothing(node, tmp_path, name, how):
    paths, proc, run = node
    path = run / f"{name}.json"
    note(tmp_path, "outside", {**RUN, "run_id": "20260101T000000Z-beef", "by": "mallory", "run_ids": [RUN["run_id"]]})
    note(run, "run", RUN)
    path.unlink(missing_ok=True)
    if how == "link":
        path.symlink_to(tmp_path / "outside.json")
    elif how == "fifo":
        os.mkfifo(path)
    elif how == "folder":
        path.mkdir()
    else:
        path.write_text(json.dumps(RUN) + " " * NOTE_LIMIT)
    if name == "run":
        with pytest.raises(UnknownState, match=r"run\.json was tampered with") as caught:
            engine_state.engine_state(paths, str(proc))
        assert caught.value.reason == "tampered"
    state = engine_state.engine_state(paths, str(proc), lenient=True)
    assert "beef" not in json.dumps(state) and "mallory" not in json.dumps(state)


@pytest.mark.parametrize("linked", ["the log", "its directory"])
def test_a_log_that_is_a_link_is_not_shown(node, tmp_path, linked):
    paths, proc, run = node
    note(run, "run", RUN)
    secret = tmp_path / "outside" / f"{RUN['run_id']}.log"
    secret.parent.mkdir()
    secret.write_text("root:secret\n")
    engine = Path(paths.log, "engine")
    if linked == "its directory":
        engine.parent.mkdir(parents=True)
        engine.symlink_to(secret.parent)
    else:
        engine.mkdir(parents=True)
        (engine / secret.name).symlink_to(secret)
    state = engine_state.engine_state(paths, str(proc))
    for read in (lambda path: engine_log.read_log(path, 0), engine_log.log_stage, engine_log.last_line):
        with pytest.raises(UnknownState, match="was tampered with"):
            read(state["log_path"])
    text = engine_state.last_end(state)
    assert "was tampered with" in text and "secret" not in text


@pytest.mark.parametrize("other", [{"inner": 58}, {"ticks": 1}, {"state": "Z"}])
def test_another_process_is_not_the_engine(node, other):
    paths, proc, run = node
    note(run, "run", RUN)
    fake_process(proc, 48121, **{"inner": 57, **other})
    assert not engine_state.engine_state(paths, str(proc))["live"]


def test_without_namespaces_the_pid_is_the_pid(node):
    paths, proc, run = node
    note(run, "run", RUN)
    fake_process(proc, 57, 57)
    (proc / "57" / "status").write_text("NSpid:\t57\n")
    assert engine_state.engine_state(paths, str(proc))["pid"] == 57


@pytest.mark.parametrize(("run_id", "code"), [(RUN["run_id"], 2), ("another", None)])
def test_only_its_own_end_counts(node, run_id, code):
    paths, proc, run = node
    note(run, "run", RUN)
    note(run, "exit", {"run_id": run_id, "code": 2, "signal": None, "ended_at": 1.0, "error": ""})
    assert engine_state.engine_state(paths, str(proc))["exit_code"] == code


def test_a_broken_note_is_unknown_with_its_content(node):
    paths, proc, run = node
    (run / "run.json").write_text("{broken")
    with pytest.raises(UnknownState) as caught:
        engine_state.engine_state(paths, str(proc))
    assert caught.value.details["raw"] == "{broken"
    assert "teardown" in caught.value.remedy
    assert not engine_state.engine_state(paths, str(proc), lenient=True)["live"]


@pytest.mark.parametrize("content", ["[]", "{}", '{"run_id": "r"}', '{"run_id": "r", "pid": 57, "start_ticks": 987654}'])
def test_a_note_that_is_not_that_of_a_run_is_unknown(node, content):
    paths, proc, run = node
    (run / "run.json").write_text(content)
    with pytest.raises(UnknownState, match="not JSON, or not that of the launcher"):
        engine_state.engine_state(paths, str(proc))


@pytest.mark.parametrize("name", ["exit", "stop"])
def test_a_broken_additional_record_is_ignored(node, name):
    paths, proc, run = node
    note(run, "run", RUN)
    fake_process(proc, 48121, 57)
    (run / f"{name}.json").write_text("{broken")
    assert engine_state.engine_state(paths, str(proc))["live"]


# -- log -------------------------------------------------------------------------------------------------------------


def test_log_is_read_in_whole_lines(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"one\n\x1b[36mtwo\x1b[0m\r 10%\r 20%\rthr")
    lines, offset = engine_log.read_log(str(path), 0)
    assert lines == ["one", "two", " 10%", " 20%"]
    with path.open("ab") as handle:
        handle.write(b"ee\n")
    lines, offset = engine_log.read_log(str(path), offset)
    assert lines == ["three"]
    assert offset == path.stat().st_size
    assert engine_log.read_log(str(path), offset) == ([], offset)


def test_the_last_words_count_when_nothing_more_comes(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"Traceback\nKilled")
    assert engine_log.read_log(str(path), 0, to_end=True) == (["Traceback", "Killed"], 16)


def test_a_line_without_end_is_cut_instead_of_stopping_the_reading(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"x" * 100)
    lines, offset = engine_log.read_log(str(path), 0, limit=40)
    assert (lines, offset) == (["x" * 40], 40)


def test_after_a_cut_the_rest_of_the_old_log_comes_first(tmp_path):
    path = tmp_path / "log"
    (tmp_path / "log.1").write_bytes(b"read\nnot yet read\n")
    path.write_bytes(b"new\n")
    lines, offset = engine_log.read_log(str(path), 5)
    assert (lines, offset) == (["not yet read"], 0)
    assert engine_log.read_log(str(path), offset) == (["new"], 4)


def test_a_log_that_is_not_there_has_no_lines(tmp_path):
    assert engine_log.read_log(str(tmp_path / "none"), 0) == ([], 0)
    assert engine_log.log_stage(str(tmp_path / "none")) is None


def test_the_stages_of_a_recorded_start():
    seen = []
    for line in engine_log.plain_lines((RECORDED / "ready_ray_tp2.log").read_text()):
        stage = engine_log.stage_of([line])
        if stage and stage not in seen:
            seen.append(stage)
    assert seen == [
        ("initializing engine", 0, 0),
        ("connecting to ray", 0, 0),
        ("starting ranks", 0, 0),
        ("joining ranks", 0, 0),
        ("loading model", 0, 0),
        # Rank 1 was done before rank 0, which alone counts the shards.
        ("weights loaded", 0, 0),
        ("loading weights", 0, 2),
        ("loading weights", 2, 2),
        ("allocating KV cache", 0, 0),
        ("starting API", 0, 0),
        ("API is up", 0, 0),
    ]


@pytest.mark.parametrize(
    ("line", "stage"),
    [
        ("Loading safetensors checkpoint shards:  59% Completed | 10/17 [01:10<00:49,  7.05s/it]", ("loading weights", 10, 17)),
        ("Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  37%|###7      | 19/51 [00:05<00:08,  3.61it/s]", ("capturing graphs", 19, 51)),
        ("INFO 11-21 [backends.py:1] Dynamo bytecode transform time: 6.12 s", ("compiling", 0, 0)),
        ("INFO 11-21 [gpu_worker.py:760] Available KV cache memory: 24.10 GiB", ("allocating KV cache", 0, 0)),
        ("nothing of note", None),
    ],
)
def test_stage_of_a_line(line, stage):
    assert engine_log.stage_of([line]) == stage


def test_the_stage_is_read_from_the_logs_end(tmp_path):
    path = tmp_path / "log"
    path.write_text("Starting to load model x\n" + "noise\n" * 20000)
    assert engine_log.log_stage(str(path)) is None
    with path.open("a") as handle:
        handle.write("Loading weights took 3.1 seconds\n")
    assert engine_log.log_stage(str(path)).name == "weights loaded"


# -- memory, metrics -------------------------------------------------------------------------------------------------


METRICS = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 2.0
vllm:num_requests_running{engine="1",model_name="tiny {x}"} 1.0
vllm:num_requests_running_by{engine="1"} 7.0
process_start_time_seconds 1.7e+09
"""


@pytest.mark.parametrize(("name", "value"), [("vllm:num_requests_running", 3), ("process_start_time_seconds", 1.7e9), ("vllm:no", None)])
def test_metric(name, value):
    assert api_probe.metric(METRICS, name) == value


def test_a_metric_that_is_not_a_number_is_unknown():
    with pytest.raises(UnknownState):
        api_probe.metric("a b\n", "a")


@pytest.mark.parametrize(
    ("address", "url"),
    [("10.0.0.1", "http://10.0.0.1:1"), ("0.0.0.0", "http://127.0.0.1:1"), ("::", "http://[::1]:1"), ("fe80::1", "http://[fe80::1]:1")],
)
def test_base_url(address, url):
    assert engine_state.base_url(address, 1) == url


# -- API -------------------------------------------------------------------------------------------------------------


class Api(http.server.BaseHTTPRequestHandler):
    """The part of an engine's API that a look needs; the server's ``plan`` sets its answer to a completion."""

    def log_message(self, format, *args):
        pass

    def answer(self, code, body, kind="application/json"):
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        bodies = {"/health": b"", "/version": b'{"version":"0.32.0"}', "/metrics": METRICS.encode()}
        if self.path in bodies:
            self.answer(200, bodies[self.path])
        else:
            self.answer(404, b"")

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, request, self.headers.get("Authorization")))
        code, body = self.server.plan
        self.answer(code, body, "text/event-stream")
        if self.server.hang:
            self.wfile.flush()
            self.server.done.wait(10)


@pytest.fixture
def api():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
    server.asked, server.plan, server.hang, server.done = [], (200, b""), False, threading.Event()
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.done.set()
    server.shutdown()
    thread.join()
    server.server_close()


def event(tokens):
    return b"data: " + json.dumps({"choices": [{"text": ""}], "usage": {"completion_tokens": tokens, "prompt_tokens": 5}}).encode() + b"\n\n"


def test_a_token_is_a_token(api):
    api.plan = (200, event(0) + event(1) + event(2) + b"data: [DONE]\n\n")
    answer = engine_state.first_token(api.url, "tiny", KeyForElsewhere("k"), 5)
    assert (answer.tokens, answer.prompt_tokens) == (1, 5)
    assert 0 <= answer.seconds < 5
    path, request, authorization = api.asked[0]
    assert (path, request["model"], request["max_tokens"], authorization) == ("/v1/completions", "tiny", 8, "Bearer k")


def test_without_a_key_none_is_sent(api):
    engine_state.first_token(api.url, "tiny", None, 5)
    assert api.asked[0][2] is None


@pytest.mark.parametrize(
    "body", [b"", b"data: [DONE]\n\n", event(0) + b"data: [DONE]\n\n", b'data: {"error": {"message": "engine dead"}}\n\n', b": ping\n\n"]
)
def test_an_answer_without_a_token_proves_nothing(api, body):
    api.plan = (200, body)
    assert engine_state.first_token(api.url, "tiny", None, 5) is None


def test_a_hanging_engine_is_given_up(api):
    api.plan, api.hang = (200, event(0)), True
    assert engine_state.first_token(api.url, "tiny", None, 0.3) is None


def test_the_token_is_seen_before_the_answer_ends(api):
    api.plan, api.hang = (200, event(1)), True
    assert engine_state.first_token(api.url, "tiny", None, 5).tokens == 1


def test_something_else_on_the_port_is_unknown(api):
    api.plan = (200, b"data: hello\n\n")
    with pytest.raises(UnknownState):
        engine_state.first_token(api.url, "tiny", None, 5)


@pytest.mark.parametrize(("code", "remedy"), [(401, "api_key_file"), (404, "does not serve 'tiny'"), (400, "")])
def test_a_refusal_ends_the_waiting(api, code, remedy):
    api.plan = (code, b'{"error":"no"}')
    with pytest.raises(ClusterError, match=f"HTTP {code}") as caught:
        engine_state.first_token(api.url, "tiny", KeyForElsewhere("planted-secret"), 5)
    assert remedy in caught.value.remedy
    assert "planted-secret" not in str(caught.value) + caught.value.remedy


def test_an_engine_in_trouble_is_asked_again(api):
    api.plan = (503, b"")
    assert engine_state.first_token(api.url, "tiny", None, 5) is None


def test_small_questions(api):
    assert engine_state.asked_health(api.url, 5) == "answers"
    assert engine_state.engine_version(api.url, 5) == "0.32.0"


def test_no_answer():
    url = "http://127.0.0.1:9"
    assert engine_state.asked_health(url, 1) == "refused"
    assert engine_state.engine_version(url, 1) == ""
    assert engine_state.first_token(url, "tiny", None, 1) is None


def test_a_proxy_has_no_part_in_it(api, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert engine_state.asked_health(api.url, 5) == "answers"


def test_read_key(tmp_path):
    path = tmp_path / "key"
    assert engine_state.read_key(None) == ""
    with pytest.raises(ClusterError, match="cannot read"):
        engine_state.read_key(str(path))
    path.write_text("\n")
    with pytest.raises(ClusterError, match="is empty"):
        engine_state.read_key(str(path))
    path.write_text("k\n")
    assert engine_state.read_key(str(path)) == "k"
