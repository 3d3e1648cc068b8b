# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One look at a node's engine."""

from __future__ import annotations

import re

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_state, interruption, token_probe
from ansible_collections.gb10.cluster.plugins.module_utils._records import starts
from ansible_collections.gb10.cluster.plugins.modules import vllm_serve_info


def test_a_container_has_the_same_keys_there_or_not():
    there = vllm_serve_info.container_view({"Id": "c" * 64, "Name": "/gb10-gb10-head", "State": {"Running": False, "ExitCode": 137, "OOMKilled": True}})
    assert there == {"exists": True, "id": "c" * 12, "name": "gb10-gb10-head", "running": False, "exit_code": 137, "oom_killed": True}
    assert vllm_serve_info.container_view(None).keys() == there.keys()


def test_a_running_container_has_no_exit_code():
    assert vllm_serve_info.container_view({"Id": "c", "Name": "/n", "State": {"Running": True, "ExitCode": 0}})["exit_code"] is None


@pytest.fixture
def engine(tmp_path):
    path = tmp_path / "log"
    path.write_text("one\nStarting to load model x\nthr")
    argv = ["vllm", "serve", "m", "--tensor-parallel-size", "2"]
    return {"run_id": "r2", "live": True, "log_path": str(path), "argv": argv, "api_address": "10.0.0.1", "api_port": 8000}


@pytest.mark.parametrize(("offset", "run_id", "lines"), [(0, "r2", 2), (4, "r2", 1), (4, "r1", 2), (4, None, 1), (-1, "r2", 0)])
def test_the_log_is_read_from_its_offset_in_its_own_run(engine, offset, run_id, lines):
    assert len(vllm_serve_info.log_view(engine, offset, run_id)["log_lines"]) == lines


def test_a_dead_engines_log_is_read_to_its_end(engine):
    view = vllm_serve_info.log_view({**engine, "live": False}, 0, "r2")
    assert view["log_lines"][-1] == "thr"
    assert view["stage"] == ""


def test_the_stage_is_that_of_the_log(engine):
    assert vllm_serve_info.log_view(engine, -1, None)["stage"] == "loading model"
    with open(engine["log_path"], "w", encoding="utf-8") as handle:
        handle.write("Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:00<00:00]\n")
    view = vllm_serve_info.log_view(engine, -1, None)
    assert (view["stage"], view["shards"]) == ("loading weights", "1/2")


def test_without_a_run_there_is_no_log():
    assert vllm_serve_info.log_view({"run_id": ""}, -1, None) == {"log_lines": [], "log_offset": 0, "stage": "", "shards": ""}


PARAMS = {
    "state_dir": "/s", "cluster_name": "gb10", "probe": True, "probe_timeout": 5, "first_token_timeout": None, "prompt_letters": 0, "routes": True,
    "model": "m", "api_key_file": None, "roots": {"sysfs_root": "/s"},
}  # fmt: skip


def test_a_dead_engine_is_asked_nothing(engine, monkeypatch):
    monkeypatch.setattr(engine_state, "asked_health", lambda *_args: pytest.fail("asked"))
    assert vllm_serve_info.api_view({**engine, "live": False}, PARAMS, "")["healthy"] is False


@pytest.mark.parametrize(
    ("answer", "stage", "api"),
    [
        ("refused", "loading weights", "starting"),
        ("silent", "loading weights", "starting"),
        ("refused", "API is up", "refused"),
        ("silent", "API is up", "silent"),
        ("says dead", "starting", "says dead"),
    ],
)
def test_a_port_that_refuses_means_what_the_log_says(engine, monkeypatch, answer, stage, api):
    monkeypatch.setattr(engine_state, "asked_health", lambda *_args: answer)
    view = vllm_serve_info.api_view(engine, PARAMS, stage)
    assert (view["api"], view["healthy"]) == (api, False)


@pytest.mark.parametrize(
    ("probe", "answer", "completion"),
    [(True, engine_state.Completion(1, 0.4), {"tokens": 1, "seconds": 0.4, "prompt_tokens": 0}), (True, None, None), (False, None, None)],
)
def test_the_proof_is_only_asked_for_when_wanted(engine, monkeypatch, probe, answer, completion):
    outcome = token_probe.Asked("answers", answer, None if answer else {"grew": True})
    monkeypatch.setattr(engine_state, "asked_health", lambda *_args: "answers")
    monkeypatch.setattr(engine_state, "engine_version", lambda *_args: "0.32.0")
    monkeypatch.setattr(interruption, "requests_of", lambda *_args: interruption.Requests(0))
    monkeypatch.setattr(token_probe, "ask", lambda *_args: outcome if probe else pytest.fail("asked"))
    view = vllm_serve_info.api_view(engine, {**PARAMS, "probe": probe}, "API is up")
    assert (view["healthy"], view["engine_version"], view["requests_running"], view["completion"]) == (True, "0.32.0", 0, completion)
    assert view["progress"] == (outcome.progress if probe else None)


@pytest.mark.parametrize(("first_token_timeout", "waits"), [(None, 5), (600, 600)])
def test_only_the_token_is_waited_for_as_long_as_kernels_compile(engine, monkeypatch, first_token_timeout, waits):
    """An engine that hangs is noticed by every other answer, however long its first token may take."""
    timeouts = []
    monkeypatch.setattr(engine_state, "asked_health", lambda _url, timeout: timeouts.append(timeout) or "answers")
    monkeypatch.setattr(engine_state, "engine_version", lambda _url, timeout, _key: timeouts.append(timeout))
    monkeypatch.setattr(token_probe, "ask", lambda *args: timeouts.append(args[3:6]) or token_probe.Asked("answers", None, None))
    monkeypatch.setattr(interruption, "requests_of", lambda *_args: interruption.Requests(0))
    vllm_serve_info.api_view(engine, {**PARAMS, "first_token_timeout": first_token_timeout}, "API is up")
    assert timeouts == [5, 5, (5, waits, "/s")]


@pytest.mark.parametrize(("text", "why"), [("k", ""), ("k", "another process listens"), ("", "")])
def test_who_would_get_the_key_is_said(engine, monkeypatch, text, why):
    monkeypatch.setattr(engine_state, "asked_health", lambda *_args: "answers")
    monkeypatch.setattr(engine_state, "engine_version", lambda *_args: "")
    monkeypatch.setattr(engine_state, "read_key", lambda _path: text)
    monkeypatch.setattr(interruption, "requests_of", lambda *_args: interruption.Requests(0))
    monkeypatch.setattr(vllm_serve_info.api_key.ApiKey, "why_withheld", lambda *_args: why)
    view = vllm_serve_info.api_view(engine, {**PARAMS, "probe": False}, "API is up")
    assert view["key_withheld"] == (why if text else None)
    assert vllm_serve_info.api_view({**engine, "live": False}, PARAMS, "")["key_withheld"] is None


@pytest.mark.parametrize(("letters", "fits"), [(0, r"Hello"), (300, r"[a-z ]{300}")])
def test_a_long_prompt_is_another_one_each_time(engine, monkeypatch, letters, fits):
    prompts = []
    for name, answer in (("asked_health", "answers"), ("engine_version", ""), ("read_key", "k")):
        monkeypatch.setattr(engine_state, name, lambda *_args, answer=answer: answer)
    monkeypatch.setattr(interruption, "requests_of", lambda *_args: interruption.Requests(0))
    monkeypatch.setattr(token_probe, "progress_of", lambda *_args: None)
    monkeypatch.setattr(vllm_serve_info.open_routes, "ask", lambda *_args: pytest.fail("asked"))
    monkeypatch.setattr(engine_state, "first_token", lambda *args: prompts.append(args[-1]) or engine_state.Completion(1, 0.4, 280))
    for _time in range(2):
        view = vllm_serve_info.api_view(engine, {**PARAMS, "prompt_letters": letters, "routes": False}, "API is up")
        assert view["completion"]["prompt_tokens"] == 280 and view["routes"] is None
    assert all(re.fullmatch(fits, prompt) for prompt in prompts) and len(set(prompts)) == (2 if letters else 1)


KERNEL = """[    0.000000] Linux version 6.14.0
[  100.000000] NVRM: Xid (PCI:000f:01:00): 43, pid=1, early
[  200.000000] NVRM: Xid (PCI:000f:01:00): 79, pid=4711, GPU has fallen off the bus.
"""


def test_the_kernels_lines_since_a_moment(tmp_path):
    (tmp_path / "stat").write_text("btime 1795226000\n")
    (tmp_path / "log").write_text(KERNEL)
    roots = {"kernel_log": str(tmp_path / "log"), "proc_root": str(tmp_path)}
    view = vllm_serve_info.kernel_view({"kernel_since": 1795226150.0, "roots": roots})
    assert view["kernel_lines"] == ["2026-11-21T01:56:40Z NVRM: Xid (PCI:000f:01:00): 79, pid=4711, GPU has fallen off the bus."]
    assert vllm_serve_info.kernel_view({"kernel_since": None}) == {"kernel_lines": [], "kernel_error": ""}


def test_a_kernels_log_that_cannot_be_read_is_said(tmp_path):
    view = vllm_serve_info.kernel_view({"kernel_since": 1.0, "roots": {"kernel_log": str(tmp_path / "none"), "proc_root": str(tmp_path)}})
    assert view["kernel_lines"] == [] and view["kernel_error"]


# -- how long the start took ------------------------------------------------------------------------------------------------

LOADED = "(EngineCore pid=1) INFO 11-26 02:32:29 [default_loader.py:384] Loading weights took {} seconds\n"
START = {**{name: kind() for name, kind in starts.KEYS.items()}, "image_id": "sha256:1", "profile": "p", "run_id": "r1", "recorded_at": "T"}
COLD = {"seconds": {"ready": 700.0}, "compiled": "kept", "last": {}, "reported": {}, "error": ""}


@pytest.fixture
def started(engine, tmp_path):
    """Return how long the start took, with these records on the node and this log."""

    def ask(log, *known, run_id="r2", profile="p"):
        (tmp_path / "log").write_text(log)
        starts.FILE.write(starts.FILE.path_of(str(tmp_path), "gb10"), known)
        params = {**PARAMS, "state_dir": str(tmp_path)}
        return vllm_serve_info.cold_start({**engine, "run_id": run_id, "profile": profile}, params, "sha256:1")

    return ask


def test_the_log_of_a_start_is_read_from_its_beginning_to_the_end_of_the_start(started):
    served = "(APIServer pid=1) INFO:     Application startup complete.\n"
    whole = {"seconds": {"weights": 5.0}, "compiled": "", "last": {}, "reported": {}, "error": ""}
    assert started(LOADED.format("5.0") + served + LOADED.format("9.0")) == whole
    # What does not end yet, and what lies behind the largest start, is not read.
    long = "x" * 199 + "\n"
    assert started(long * 5 + LOADED.format("5.0") + long * (vllm_serve_info.START_BYTES // 200) + LOADED.format("9.0"))["seconds"] == {"weights": 5.0}


def test_a_start_is_seen_beside_the_last_one_and_a_recorded_one_is_its_record(started):
    record = {**START, "cold_start": COLD}
    assert started(LOADED.format("5.0"), START, record)["last"] == {"seconds": {"ready": 700.0}, "compiled": "kept", "recorded_at": "T"}
    assert started(LOADED.format("5.0"), record, profile="q")["last"] == {}
    assert started(LOADED.format("5.0"), record, run_id="r1") == COLD


def test_records_that_cannot_be_read_are_named_and_hide_nothing_else(started, tmp_path):
    (tmp_path / "gb10").mkdir()
    started("")
    (tmp_path / "gb10" / "starts.json").write_text("{")
    path = str(tmp_path / "log")
    (tmp_path / "log").write_text(LOADED.format("5.0"))
    cold = vllm_serve_info.cold_start({"run_id": "r2", "profile": "p", "log_path": path}, {**PARAMS, "state_dir": str(tmp_path)}, "sha256:1")
    assert cold["seconds"] == {"weights": 5.0} and "starts.json is not JSON" in cold["error"] and "Remedy: Remove " in cold["error"]
