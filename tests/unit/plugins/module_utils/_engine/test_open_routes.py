# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The routes that answer without the key are found with harmless requests alone."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._engine import open_routes
from ansible_collections.gb10.cluster.plugins.module_utils._engine.api_key import KeyForElsewhere

KEY = "Zk3v9PqL0aWb7"
BODY = {"requestBody": {"required": True, "content": {}}}
DOCUMENT = {
    "paths": {
        "/health": {"get": {}},
        "/load": {"get": {}},
        "/v1/responses/{response_id}": {"get": {}},
        "/v1/completions": {"post": BODY},
        "/sleep": {"post": {}},
        "/pause": {"post": {"requestBody": {"content": {}}}},
        "/v1/files/{id}": {"delete": {}},
    }
}


@contextlib.contextmanager
def api(open_paths=(), document=json.dumps(DOCUMENT), silent=()):
    """An API that needs its key except below ``open_paths``; yields its address and the requests without the key."""
    requests = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers["Authorization"] != f"Bearer {KEY}":
                requests.append((self.command, self.path, body))
                if self.path in silent:
                    return
                if not self.path.startswith(tuple(open_paths)):
                    self.send_error(401)
                    return
            content = document.encode() if self.path == "/openapi.json" else b"{}"
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = answer

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_all_that_is_listed_is_asked_and_nothing_acts():
    with api() as (url, requests):
        result = open_routes.ask(url, KeyForElsewhere(KEY), 5)
    assert result == {"listed": True, "asked": len(requests), "left_out": ["POST /sleep", "POST /pause", "DELETE /v1/files/{id}"], "open": [], "unknown": []}
    assert {("GET", "/load", b""), ("GET", "/v1/responses/gb10", b""), ("POST", "/v1/completions", b"{"), ("GET", "/metrics", b"")} <= set(requests)
    assert not [path for _method, path, _body in requests if path in ("/sleep", "/pause", "/health") or path.startswith("/v1/files")]
    assert all(body == open_routes.REJECTED_BODY for method, _path, body in requests if method == "POST")
    with pytest.raises(ValueError):
        json.loads(open_routes.REJECTED_BODY)


def test_an_open_route_is_named():
    with api(open_paths=("/metrics", "/invocations")) as (url, _requests):
        assert open_routes.ask(url, KeyForElsewhere(KEY), 5)["open"] == ["GET /metrics", "POST /invocations"]


def test_a_route_that_does_not_exist_shows_who_is_asked_first():
    with api(open_paths=("/gb10/",)) as (url, _requests):
        assert open_routes.ask(url, KeyForElsewhere(KEY), 5)["open"] == ["GET /gb10/no/such/route"]


@pytest.mark.parametrize("document", ["", "[]", '{"paths": []}', '{"paths": {"/x": 1}}', "{" * 100])
def test_without_a_list_the_known_routes_are_asked(document):
    with api(document=document) as (url, _requests):
        result = open_routes.ask(url, KeyForElsewhere(KEY), 5)
    assert not result["listed"] and result["asked"] == len(open_routes.ALWAYS) and result["open"] == []


def test_what_does_not_answer_is_unknown():
    with api(silent=("/metrics",)) as (url, _requests):
        assert open_routes.ask(url, KeyForElsewhere(KEY), 5)["unknown"] == ["GET /metrics: the connection was closed without an answer"]


def test_a_dead_api_is_not_asked_on_and_on():
    result = open_routes.ask("http://127.0.0.1:1", KeyForElsewhere(KEY), 1)
    assert len(result["unknown"]) == open_routes.UNKNOWN_LIMIT and result["open"] == []
