# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One request for a token, and its note for the next look."""

from __future__ import annotations

import http.server
import json
import threading

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._engine import health, token_probe
from ansible_collections.gb10.cluster.plugins.module_utils._engine.api_key import KeyForElsewhere

RUN = "20261122T100000Z-3f9a"
EVENT = b'data: {"usage": {"completion_tokens": 1}}\n\n'


@pytest.fixture
def api():
    """An engine: its tokens at each look, the lines of its completion, the status of its health and of its metrics."""

    class Api(http.server.BaseHTTPRequestHandler):
        tokens, completion, health, metrics = [100.0], b"", 200, 200
        #: If set, the metrics at a time of the simulated clock. Each request without a token advances the clock by its wait.
        figures, now, waits = None, 0.0, 0.0
        #: The context length that it serves.
        length = 2048

        def answer(self, status, body):
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            if self.path == "/health":
                return self.answer(self.health, b"")
            if self.path == "/v1/models":
                return self.answer(200, json.dumps({"data": [{"id": "m", "max_model_len": self.length}]}).encode())
            if self.metrics == 401 and self.headers.get("Authorization") != "Bearer key":
                return self.answer(401, b"")
            if Api.figures:
                return self.answer(200, Api.figures(Api.now).encode())
            count = Api.tokens.pop(0) if len(Api.tokens) > 1 else Api.tokens[0]
            return self.answer(200, f"vllm:num_requests_running{{}} 1.0\nvllm:generation_tokens_total{{}} {count}\n".encode())

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            Api.now += Api.waits
            self.answer(200, Api.completion)

        def log_message(self, *_arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Api.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield Api
    server.shutdown()
    server.server_close()


def test_a_token_is_all_that_is_needed_and_ends_a_note(api, tmp_path):
    note = tmp_path / "no-progress.json"
    note.write_text(json.dumps({"run_id": RUN, "since": 1.0, "progress": [1.0, 100.0, None, 0.0]}))
    api.completion = EVENT
    result = token_probe.ask(api.url, "m", None, 5, 5, "", RUN, str(note)).as_result()
    assert (result["api"], result["completion"]["tokens"], result["progress"]) == ("answers", 1, None)
    assert not note.exists()


def test_looks_that_wait_in_vain_add_up(api, tmp_path, monkeypatch):
    monkeypatch.setattr(token_probe, "boot_seconds", iter([1000.0, 1015.0, 1700.0, 1715.0, 1800.0, 1815.0]).__next__)
    note = str(tmp_path / "no-progress.json")
    first = token_probe.ask(api.url, "m", None, 5, 5, "", RUN, note)
    assert (first.completion, first.progress) == (None, {"grew": False, "still_s": 15.0, "limit_s": 1800.0, "withheld": ""})
    assert token_probe.ask(api.url, "m", None, 5, 5, "", RUN, note).progress["still_s"] == 715.0
    api.tokens[:] = [100.0, 107.0]
    assert token_probe.ask(api.url, "m", None, 5, 5, "", RUN, note).progress == {"grew": True, "still_s": 0.0, "limit_s": 1800.0, "withheld": ""}
    assert list(tmp_path.iterdir()) == []


def test_without_a_note_one_look_alone_counts(api, tmp_path):
    assert token_probe.ask(api.url, "m", None, 5, 5).progress["still_s"] < 600
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("key", "grew"), [(KeyForElsewhere("key"), False), (None, None)])
def test_metrics_that_want_the_key_get_it(api, key, grew):
    api.metrics = 401
    assert token_probe.ask(api.url, "m", key, 5, 5).progress["grew"] is grew


def test_an_engine_that_reports_its_own_death(api):
    api.health = 503
    assert token_probe.ask(api.url, "m", None, 5, 5).api == "says dead"


# --- no false alarm, by the hour --------------------------------------------------------------------------------------------

RANKS = {
    "spark-1": [{"text": "ray::RayWorkerProc.run (pid 7)", "kind": "rank", "state": "alive", "cpu_percent": 100.0}],
    "spark-2": [{"text": "ray::RayWorkerProc.run (pid 8)", "kind": "rank", "state": "alive", "cpu_percent": 99.0}],
}


def figures(running=1.0, tokens=500.0, kv_use=0.5, steps=900.0, prefill_s=0.0):
    """Metrics in the form of vLLM 0.32.0, recorded in the lab."""
    return "".join(
        f"{name} {value}\n"
        for name, value in (
            ('vllm:num_requests_running{engine="0",model_name="m"}', running),
            ('vllm:generation_tokens_total{engine="0",model_name="m"}', tokens),
            ('vllm:kv_cache_usage_perc{engine="0",model_name="m"}', kv_use),
            ('vllm:iteration_tokens_total_count{engine="0",model_name="m"}', steps),
            ('vllm:request_prefill_time_seconds_bucket{engine="0",le="+Inf",model_name="m"}', 1.0),
            ('vllm:request_prefill_time_seconds_sum{engine="0",model_name="m"}', prefill_s),
        )
    )


def full_batch(second):
    """Every sequence is in use and the cache is full; tokens flow, and a new request waits."""
    return figures(256.0, 500.0 + 800.0 * second, 1.0, 900.0 + 3.0 * second)


def prefill_of_471_s(second):
    """A long prompt is read: all figures stay the same for 230 s (reported by an owner of two Sparks), then the cache fills."""
    return figures(kv_use=0.01 + max(0.0, second - 230.0) / 1000.0, steps=900.0 + max(0, int(second) - 230) // 30)


def still(second):
    return figures(8.0)


def still_after_long_prefills(second):
    return figures(8.0, prefill_s=1500.0)


def sends(second):
    return int(4e9 + 1e8 * second)


def sends_nothing(second):
    return int(4e9)


MILLION = 1_048_576


def looked_at(api, monkeypatch, note, figures_at, seconds, length=2048, sent_at=sends_nothing):
    """The verdicts of consecutive looks with 15 s for each request, until ``seconds`` are over, and of a last look that gets its token."""
    monkeypatch.setattr(token_probe, "boot_seconds", lambda: 5000.0 + api.now)
    monkeypatch.setattr(token_probe.traffic, "all_rdma_sent", lambda _root: sent_at(api.now))
    api.figures, api.waits, api.now, api.length = figures_at, 15.0, 0.0, length
    states = []
    while api.now < seconds:
        outcome = token_probe.ask(api.url, "m", None, 5, 5, "/sys", RUN, str(note))
        states.append(health.verdict(health.Probe(outcome.api, False, **outcome.progress), RANKS).state)
    api.waits, api.completion = 0.0, EVENT
    outcome = token_probe.ask(api.url, "m", None, 5, 5, "/sys", RUN, str(note))
    return states, health.verdict(health.Probe(outcome.api, bool(outcome.completion)), RANKS).state


@pytest.mark.parametrize(
    ("figures_at", "seconds", "length", "sent_at", "states"),
    [
        (full_batch, 3600, 2048, sends_nothing, {"busy"}),
        (prefill_of_471_s, 471, MILLION, sends_nothing, {"unknown", "busy"}),
        (prefill_of_471_s, 471, MILLION, sends, {"busy"}),
        # Healthy, reported by owners. Composed: vLLM counts nothing of such a prompt until it is read.
        (still, 673, MILLION, sends_nothing, {"unknown"}),
        (still, 1232, MILLION, sends_nothing, {"unknown"}),
        (still, 1232, MILLION, sends, {"busy"}),
        (still, 1950, MILLION, sends_nothing, {"unknown"}),
        # Kernels are compiled for a new shape: no figure changes.
        (still, 254, 2048, sends_nothing, {"unknown"}),
        (still_after_long_prefills, 2230, 2048, sends_nothing, {"unknown"}),
    ],
    ids=[
        "an hour at full batch", "a prefill of 471 s", "a prefill of 471 s by RDMA", "937,508 tokens in 673 s", "990,007 tokens in 1,232 s",
        "990,007 tokens in 1,232 s by RDMA", "just below the limit of a million", "a pause of 254 s to compile",
        "as long as one and a half of the longest prefill",
    ],
)  # fmt: skip
def test_an_engine_that_works_is_never_called_stalled(api, tmp_path, monkeypatch, figures_at, seconds, length, sent_at, states):
    note = tmp_path / "no-progress.json"
    verdicts, last = looked_at(api, monkeypatch, note, figures_at, seconds, length, sent_at)
    assert (len(verdicts), set(verdicts), last) == (-(-seconds // 15), states, "serving")
    assert not note.exists()


@pytest.mark.parametrize(("length", "looks"), [(2048, 120), (MILLION, 131)])
def test_what_stands_still_for_longer_than_its_longest_prompt_takes_is(api, tmp_path, monkeypatch, length, looks):
    """Requests run, and neither counters nor the fabric move: from 1800 s on, or from 1957.3 s on."""
    verdicts, _last = looked_at(api, monkeypatch, tmp_path / "no-progress.json", still, 15 * (looks + 2), length)
    assert verdicts == ["unknown"] * (looks - 1) + ["stalled"] * 3


@pytest.mark.parametrize(
    ("argv", "root"),
    [
        (["vllm", "serve", "m", "--tensor-parallel-size", "2"], "/sys"),
        (["vllm", "serve", "m", "--pipeline-parallel-size=2"], "/sys"),
        (["vllm", "serve", "m", "--tensor-parallel-size", "1"], ""),
        (["vllm", "serve", "m"], ""),
        ([], ""),
    ],
)
def test_what_a_node_sends_counts_for_an_engine_of_several_ranks_alone(argv, root):
    assert token_probe.fabric_root(argv, "/sys") == root


@pytest.mark.parametrize("count", ["1000\n", "N/A (no PMA)\n", None])
def test_an_unreadable_fabric_is_unknown(tmp_path, count):
    counters = tmp_path / "class/infiniband/rocep1s0f0/ports/1/counters"
    counters.mkdir(parents=True)
    if count:
        (counters / "port_xmit_data").write_text(count)
    assert token_probe.fabric_of(str(tmp_path)) == (4000 if count == "1000\n" else None)
    assert token_probe.fabric_of("") is None


def test_a_note_that_a_full_disk_refuses_ends_no_look(api, tmp_path, monkeypatch):
    """A unit would mistake this for the end of its engine's start."""

    def full(*_given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(token_probe.files, "write_json", full)
    assert token_probe.ask(api.url, "m", "", 5, 5, "", RUN, str(tmp_path / "no-progress.json")).progress["grew"] is False


@pytest.mark.parametrize(
    ("running", "tokens", "flow"),
    [
        (1, [100.0, 101.0], True),
        (1, [100.0, 100.0, 100.0, 107.0], True),
        (1, [100.0], False),
        (1, [100.0, 90.0], False),
        # Without a request nothing is waited for.
        (0, [100.0, 101.0], False),
    ],
)
def test_tokens_that_flow_are_seen_by_the_engines_own_counters(api, monkeypatch, running, tokens, flow):
    monkeypatch.setattr(token_probe, "FLOW_SLEEP", 0.01)
    left = list(tokens)
    api.figures = lambda _now: f"vllm:num_requests_running{{}} {running}\nvllm:generation_tokens_total{{}} {left.pop(0) if len(left) > 1 else left[0]}\n"
    assert token_probe.flows(api.url, None, 5, 0.1) is flow


def test_metrics_that_cannot_be_read_are_no_flow(api, monkeypatch):
    monkeypatch.setattr(token_probe, "FLOW_SLEEP", 0.01)
    api.metrics = 401
    assert not token_probe.flows(api.url, None, 5, 0.05)
    assert not token_probe.flows("http://127.0.0.1:9", None, 1, 0.05)
