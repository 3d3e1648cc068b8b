# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Asking an API that may be anybody."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils._engine import api_probe
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState

MODELS = json.dumps({"object": "list", "data": [{"id": "tiny", "max_model_len": 2048}, {"id": "lora", "max_model_len": None}]}).encode()
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"


@pytest.fixture
def server():
    """Serve one connection with a function of it; return the port."""
    sockets = []

    def serve(handle):
        listener = socket.create_server(("127.0.0.1", 0))
        sockets.append(listener)

        def run():
            try:
                connection, _address = listener.accept()
                with connection:
                    connection.recv(4096)
                    handle(connection)
            except OSError:
                pass

        threading.Thread(target=run, daemon=True).start()
        return listener.getsockname()[1]

    yield serve
    for one in sockets:
        one.close()


def test_an_answer(server):
    answer = api_probe.get("127.0.0.1", server(lambda one: one.sendall(OK % (len(MODELS), MODELS))), "/v1/models", 5)
    assert answer.status == 200 and api_probe.parse_models(answer.body) == [{"id": "tiny", "max_model_len": 2048}, {"id": "lora", "max_model_len": None}]


def test_a_server_that_keeps_the_connection_open_is_not_waited_for(server):
    started = time.monotonic()
    answer = api_probe.get("127.0.0.1", server(lambda one: (one.sendall(OK % (2, b"ok")), time.sleep(3))), "/health", 10)
    assert (answer.status, answer.body) == (200, b"ok") and time.monotonic() - started < 2


def drip(one):
    for _count in range(100):
        one.sendall(b"X-A: b\r\n" if _count else b"HTTP/1.1 200 OK\r\n")
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("handle", "silent"), [(lambda one: time.sleep(5), True), (drip, False), (lambda one: None, True), (lambda one: one.sendall(b"\x15\x03\x01"), False)]
)
def test_whoever_hangs_drips_or_speaks_another_language(server, handle, silent):
    started = time.monotonic()
    answer = api_probe.get("127.0.0.1", server(handle), "/health", 0.5)
    assert time.monotonic() - started < 2
    assert answer.silent is silent and answer.error if answer.status is None else not silent


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    answer = api_probe.get("127.0.0.1", port, "/health", 1)
    assert answer.status is None and answer.silent and "refused" in answer.error


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"data": 7}', b'{"data": [7]}', b'{"data": [{"id": 7}]}', b"\xff", b"[" * 100000])
def test_models_of_another_shape_are_unknown(body):
    with pytest.raises(UnknownState):
        api_probe.parse_models(body)


def test_progress():
    text = (
        "# HELP vllm:num_requests_running Number of requests\n"
        'vllm:num_requests_running{engine="0",model_name="tiny"} 2.0\nvllm:num_requests_running{engine="1",model_name="tiny"} 1.0\n'
        'vllm:generation_tokens_total{engine="0",model_name="a b}"} 212.0\nvllm:prompt_tokens_total{engine="0"} 1.5e+06\nother 7\n'
    )
    assert api_probe.parse_progress(text) == {"running": 3.0, "tokens": 1500212.0}
    assert api_probe.parse_progress("process_cpu_seconds_total 7\n") is None


@pytest.mark.parametrize("line", ["vllm:num_requests_running nan", "vllm:num_requests_running", 'vllm:prompt_tokens_total{a="b"} many'])
def test_figures_that_cannot_be_read_are_unknown(line):
    with pytest.raises(UnknownState):
        api_probe.parse_progress(line)


@given(st.binary(max_size=300) | st.binary(max_size=60).map(lambda tail: b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n" + tail))
def test_no_answer_breaks_it(content):
    answer = api_probe.parse_answer(content)
    assert answer.status is not None or answer.error
    for parse, given_ in ((api_probe.parse_models, content), (api_probe.parse_progress, content.decode("utf-8", "replace"))):
        try:
            parse(given_)
        except UnknownState:
            pass


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["data", "id", "max_model_len"]), inner),
    )
)
def test_no_json_breaks_it(value):
    try:
        api_probe.parse_models(json.dumps(value).encode())
    except UnknownState:
        pass
