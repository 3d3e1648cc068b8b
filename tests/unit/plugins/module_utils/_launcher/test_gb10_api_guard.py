# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""No client passes the guard of the API without its key. The lab tests it with the real engine."""

from __future__ import annotations

import ast
import asyncio
import inspect
import sys

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._launcher import gb10_api_guard as guard

KEY = "Zk3v9PqL0aWb7"
BROWSER = {"origin": "https://chat.example", "access-control-request-method": "POST"}


def sent_through(monkeypatch, path="/v1/models", method="GET", kind="http", root_path="", **headers):
    """Return what the app behind the guard saw, and what was sent."""
    monkeypatch.setenv(guard.KEY_VARIABLE, KEY)
    seen, sent = [], []

    async def app(scope, receive, send):
        seen.append(scope["type"])

    async def receive():
        return {"type": f"{kind}.connect"}

    async def send(message):
        sent.append(message)

    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": kind, "path": path, "method": method, "root_path": root_path, "headers": pairs}
    asyncio.run(guard.ApiGuard(app)(scope, receive, send))
    return seen, sent


@pytest.mark.parametrize(
    "path",
    ["/", "/v1/models", "/invocations", "/metrics", "/docs", "/openapi.json", "/health/", "//health", "/Health", "/health2", "/v1/../health", "/ping", ""]
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "ANY"])
def test_nothing_answers_without_the_key(monkeypatch, path, method):
    seen, sent = sent_through(monkeypatch, path, method)
    assert seen == [] and sent[0]["status"] == 401 and len(sent) == 2
    seen, sent = sent_through(monkeypatch, path, method, authorization=f"Bearer {KEY}")
    assert seen == ["http"] and sent == []


@pytest.mark.parametrize(
    "header", ["", KEY, "Bearer", "Bearer ", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", f"Basic {KEY}", f"Bearer{KEY}", "Bearer \u00e9", f"Bearer x {KEY}"]
)
def test_another_key_is_none(monkeypatch, header):
    seen, sent = sent_through(monkeypatch, authorization=header)
    assert seen == [] and sent[0]["status"] == 401


def test_two_keys_are_none(monkeypatch):
    monkeypatch.setenv(guard.KEY_VARIABLE, KEY)
    right, wrong = (b"authorization", f"Bearer {KEY}".encode()), (b"Authorization", b"Bearer x")
    for pairs in ([right, wrong], [wrong, right], [right, right]):
        assert not guard.has_key({"headers": pairs}, KEY.encode())
    assert guard.has_key({"headers": [(b"Authorization", f"bearer {KEY}".encode())]}, KEY.encode())


@pytest.mark.parametrize(("method", "passes"), [("GET", True), ("HEAD", True), ("POST", False), ("DELETE", False)])
def test_the_health_answers_everybody(monkeypatch, method, passes):
    assert bool(sent_through(monkeypatch, "/health", method)[0]) is passes
    assert bool(sent_through(monkeypatch, "/prefix/health", method, root_path="/prefix")[0]) is passes


def test_a_browser_may_ask_whether_it_may_ask(monkeypatch):
    assert sent_through(monkeypatch, method="OPTIONS", **{name.replace("-", "_"): value for name, value in BROWSER.items()})[0] == ["http"]
    assert sent_through(monkeypatch, method="OPTIONS", origin="https://chat.example")[0] == []


def test_a_web_socket_without_the_key_is_closed_before_it_is_open(monkeypatch):
    seen, sent = sent_through(monkeypatch, "/v1/realtime", kind="websocket")
    assert seen == [] and sent == [{"type": "websocket.close", "code": 1008}]
    assert sent_through(monkeypatch, "/health", kind="websocket")[0] == []
    assert sent_through(monkeypatch, "/v1/realtime", kind="websocket", authorization=f"Bearer {KEY}")[0] == ["websocket"]


def test_lifespan_events_pass(monkeypatch):
    assert sent_through(monkeypatch, kind="lifespan")[0] == ["lifespan"]


def test_without_a_key_it_does_not_start(monkeypatch):
    monkeypatch.delenv(guard.KEY_VARIABLE, raising=False)
    with pytest.raises(RuntimeError, match="VLLM_API_KEY is not set"):
        guard.ApiGuard(None)


def test_it_needs_nothing_but_python():
    names = {alias.name for node in ast.walk(ast.parse(inspect.getsource(guard))) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(ast.parse(inspect.getsource(guard))) if isinstance(node, ast.ImportFrom)}
    assert names <= set(sys.stdlib_module_names)
