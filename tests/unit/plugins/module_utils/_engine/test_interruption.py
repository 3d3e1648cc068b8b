# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether an engine may be taken away: what is unknown counts as work."""

from __future__ import annotations

import itertools
import socket
import threading
import types

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._engine import interruption
from ansible_collections.gb10.cluster.plugins.module_utils._engine.interruption import Requests, Situation
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState

IDLE, BUSY, UNKNOWN = Requests(0), Requests(2), Requests(None, "no answer within 5 s")

ENGINE_0 = 'vllm:num_requests_%s{engine="0",model_name="tiny"} %s\n'


def metrics(running="0.0", waiting="0.0"):
    return "".join(ENGINE_0 % (name, value) for name, value in (("running", running), ("waiting", waiting)) if value).encode()


@pytest.mark.parametrize(("live", "whole", "unready"), list(itertools.product([True, False], repeat=3)))
@pytest.mark.parametrize("requests", [IDLE, BUSY, UNKNOWN])
def test_only_a_whole_live_engine_that_may_have_requests_is_kept(live, whole, unready, requests):
    kept = live and whole and not unready and requests != IDLE
    situation = Situation(live, whole, unready, requests)
    assert bool(interruption.why_kept(situation)) is kept
    interruption.check(situation, True, "it would be stopped")
    if kept:
        with pytest.raises(ClusterError, match="it would be stopped, but ") as caught:
            interruption.check(situation, False, "it would be stopped")
        assert isinstance(caught.value, UnknownState) is (requests is UNKNOWN)
        assert (requests.unknown or "2 request(s)") in str(caught.value)
        assert "-e gb10_allow=interrupt" in caught.value.remedy


class Stops:
    """A module that waits for the requests up to a limit; ``left`` returns their number at a time."""

    def __init__(self, monkeypatch, left):
        self.now, self.left, self.waited, self.said = 0.0, left, [], []
        monkeypatch.setattr(interruption, "time", types.SimpleNamespace(monotonic=lambda: self.now))

    def stop(self, seconds):
        self.waited.append(seconds)
        self.now += seconds
        count = self.left(self.now)
        # The module and the connection to the node take time, too.
        self.now += 2
        if count == 0:
            return {"changed": True, "reason": "an engine runs"}
        return {"failed": True, "reason": "requests unknown" if count is None else "requests running", "requests_running": count}

    def drain(self, seconds):
        return interruption.drain(seconds, "gb10", self.stop, self.said.append)


def test_a_drain_counts_down_and_ends_with_the_last_request(monkeypatch):
    stops = Stops(monkeypatch, lambda now: 2 if now < 50 else 1 if now < 90 else 0)
    assert stops.drain(900)["changed"] and stops.waited == [0, 30, 30, 30]
    assert stops.said == [
        f"the engine of gb10 still has {count} request(s), running or waiting; they get {left} s more" for count, left in ((2, 898), (2, 866), (1, 834))
    ]


def test_a_drain_is_over_when_its_time_is(monkeypatch):
    stops = Stops(monkeypatch, lambda _now: 3)
    assert stops.drain(900)["requests_running"] == 3
    assert sum(stops.waited) <= 900 <= stops.now <= 904 and len(stops.said) == len(stops.waited) - 1
    again = Stops(monkeypatch, lambda _now: 3)
    assert again.drain(0)["failed"] and (again.waited, again.said) == ([0], [])


@pytest.mark.parametrize("count", [0, None])
def test_nothing_is_waited_for_without_requests_or_where_they_are_unknown(monkeypatch, count):
    stops = Stops(monkeypatch, lambda _now: count)
    stops.drain(900)
    assert (stops.waited, stops.said) == ([0], [])


class Server:
    """Answers every connection with some bytes; ``hold`` keeps it open instead of closing it."""

    def __init__(self, content, hold=False):
        self.content, self.hold, self.asked = content, hold, []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.open = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _peer = self.socket.accept()
            except OSError:
                return
            self.asked.append(connection.recv(65536))
            content = self.content(self.asked[-1]) if callable(self.content) else self.content
            connection.sendall(content)
            if self.hold:
                self.open.append(connection)
            else:
                connection.close()


@pytest.fixture
def served():
    servers = []

    def serve(content, hold=False):
        servers.append(Server(content, hold))
        return servers[-1]

    yield serve
    for server in servers:
        server.socket.close()
        for connection in server.open:
            connection.close()


def http(body, status="200 OK"):
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def ask(port, key_file=None, timeout=5, address="127.0.0.1"):
    return interruption.requests_of({"api_address": address, "api_port": port}, timeout, key_file)


@pytest.mark.parametrize(
    ("running", "waiting", "count"), [("0.0", "0.0", 0), ("2.0", "0.0", 2), ("0.0", "3.0", 3), ("1.0", "4.0", 5)]
)
def test_waiting_requests_are_work(served, running, waiting, count):
    assert ask(served(http(metrics(running, waiting))).port, address="0.0.0.0") == Requests(count)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (http(metrics(waiting="")), "has no vllm:num_requests_waiting"),
        (http(metrics(running="")), "has no vllm:num_requests_running"),
        (http(b"process_start_time_seconds 1.7e+09\n"), "has no vllm:num_requests_running"),
        (http(metrics(running="NaN")), "the value of vllm:num_requests_running is 'NaN'"),
        (http(metrics(waiting="-1.0")), "the value of vllm:num_requests_waiting is '-1.0'"),
        (http(b"", "401 Unauthorized"), "refuses the question (HTTP 401)"),
        (http(b"", "403 Forbidden"), "refuses the question (HTTP 403)"),
        (http(b"", "404 Not Found"), ": HTTP 404"),
        (http(b"", "503 Service Unavailable"), ": HTTP 503"),
        # The TLS alert that a TLS server returns to a request without TLS.
        (b"\x15\x03\x01\x00\x02\x02\x46", "does it use TLS?"),
        (b"", "the connection was closed without an answer"),
        (http(metrics())[:-4], "the answer was cut off"),
    ],
)
def test_an_answer_that_does_not_count_is_unknown(served, content, why):
    answer = ask(served(content).port)
    assert answer.count is None and why in answer.unknown


def test_an_api_that_hangs_is_unknown(served):
    answer = ask(served(b"", hold=True).port, timeout=0.2)
    assert answer.count is None and "no answer within 0.2 s" in answer.unknown


def test_an_api_without_a_listener_is_unknown():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    answer = ask(port)
    assert answer.count is None and "Connection refused" in answer.unknown


def test_a_rank_without_an_api_is_unknown():
    assert ask(None, address="").count is None


def test_the_key_is_sent_to_an_api_that_wants_one_and_to_no_other(served, tmp_path, monkeypatch):
    # test_api_key tests which processes may get the key.
    monkeypatch.setattr(interruption.api_key.ApiKey, "_check", lambda _key, _connected: None)
    key = tmp_path / "api_key"
    key.write_text("planted-secret\n")
    guarded = served(lambda request: http(metrics("1.0")) if b"Authorization: Bearer planted-secret\r\n" in request else http(b"", "401 Unauthorized"))
    open_one = served(http(metrics()))
    assert ask(guarded.port, str(key)) == Requests(1)
    assert ask(open_one.port, str(key)) == Requests(0)
    assert not any(b"planted-secret" in request for request in open_one.asked)
    unknown = ask(guarded.port, str(tmp_path / "none"))
    assert unknown.count is None and "planted-secret" not in unknown.unknown


def test_the_key_of_an_engine_is_the_file_that_its_container_mounts():
    fields = {"secret_files": {"api_key": "/etc/gb10/secrets/gb10/api_key"}}
    assert interruption.key_file(fields, {"secret_env": {"VLLM_API_KEY": "/run/secrets/gb10/api_key"}}) == "/etc/gb10/secrets/gb10/api_key"
    assert interruption.key_file(fields, {"secret_env": {}}) is None
    assert interruption.key_file({}, {"secret_env": {"VLLM_API_KEY": "/run/secrets/gb10/api_key"}}) is None
