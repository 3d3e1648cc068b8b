# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One question for a token, and what it leaves for the next look."""

from __future__ import annotations

import http.server
import json
import threading

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._engine import token_probe

RUN = "20261122T100000Z-3f9a"
EVENT = b'data: {"usage": {"completion_tokens": 1}}\n\n'


@pytest.fixture
def api():
    """An engine: its tokens at each look, the lines of its completion, the status of its health and of its metrics."""

    class Api(http.server.BaseHTTPRequestHandler):
        tokens, completion, health, metrics = [100.0], b"", 200, 200

        def answer(self, status, body):
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            if self.path == "/health":
                return self.answer(self.health, b"")
            if self.metrics == 401 and self.headers.get("Authorization") != "Bearer key":
                return self.answer(401, b"")
            count = Api.tokens.pop(0) if len(Api.tokens) > 1 else Api.tokens[0]
            return self.answer(200, f"vllm:num_requests_running{{}} 1.0\nvllm:generation_tokens_total{{}} {count}\n".encode())

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
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
    found = token_probe.ask(api.url, "m", "", 5, 5, RUN, str(note)).as_result()
    assert (found["api"], found["completion"]["tokens"], found["progress"]) == ("answers", 1, None)
    assert not note.exists()


def test_looks_that_wait_in_vain_add_up(api, tmp_path, monkeypatch):
    monkeypatch.setattr(token_probe.engine_state, "boot_seconds", iter([1000.0, 1015.0, 1700.0, 1715.0, 1800.0, 1815.0]).__next__)
    note = str(tmp_path / "no-progress.json")
    first = token_probe.ask(api.url, "m", "", 5, 5, RUN, note)
    assert (first.completion, first.progress) == (None, {"grew": False, "still_s": 15.0, "limit_s": 600.0})
    assert token_probe.ask(api.url, "m", "", 5, 5, RUN, note).progress["still_s"] == 715.0
    api.tokens[:] = [100.0, 107.0]
    assert token_probe.ask(api.url, "m", "", 5, 5, RUN, note).progress == {"grew": True, "still_s": 0.0, "limit_s": 600.0}
    assert list(tmp_path.iterdir()) == []


def test_without_a_note_one_look_alone_counts(api, tmp_path):
    assert token_probe.ask(api.url, "m", "", 5, 5).progress["still_s"] < 600
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("key", "grew"), [("key", False), ("", None)])
def test_metrics_that_want_the_key_get_it(api, key, grew):
    api.metrics = 401
    assert token_probe.ask(api.url, "m", key, 5, 5).progress["grew"] is grew


def test_an_engine_that_says_itself_that_it_is_dead(api):
    api.health = 503
    assert token_probe.ask(api.url, "m", "", 5, 5).api == "says dead"
