# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One HTTP exchange within one deadline and one size, with any server."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils import _http

Handle = t.Callable[[socket.socket, threading.Event], object]


@contextlib.contextmanager
def server(handle: Handle) -> t.Iterator[str]:
    """Serve one connection with a function of it and of the test's end; yield the URL."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def run() -> None:
            with contextlib.suppress(OSError):
                connection, _address = listener.accept()
                with connection:
                    connection.recv(4096)
                    handle(connection, done)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield _http.base_url(*listener.getsockname())
        finally:
            done.set()
            thread.join()


def sends(*parts: bytes) -> Handle:
    """Send the parts and close the connection."""
    return lambda connection, _done: [connection.sendall(part) for part in parts]


def drips(beginning: bytes, drop: bytes) -> Handle:
    """Send a beginning, then a drop every now and then until the test ends."""

    def handle(connection: socket.socket, done: threading.Event) -> None:
        connection.sendall(beginning)
        while not done.wait(0.05):
            connection.sendall(drop)

    return handle


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.mark.parametrize(
    "content",
    [
        OK,
        OK.replace(b"1.1", b"1.0"),
        b"HTTP/1.0 200 OK\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
    ],
)
def test_an_answer(content):
    with server(sends(content)) as url:
        assert _http.ask(f"{url}/health", 5) == (200, b"ok", "", False)


def test_a_server_that_keeps_the_connection_open_is_not_waited_for():
    with server(lambda connection, done: (connection.sendall(OK), done.wait(10))) as url:
        assert _http.ask(f"{url}/health", 10) == (200, b"ok", "", False)


def test_what_is_sent():
    received = []

    def handle(connection: socket.socket, _done: threading.Event) -> None:
        received.append(connection.recv(4096))
        connection.sendall(OK)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        def run() -> None:
            connection, _address = listener.accept()
            with connection:
                handle(connection, threading.Event())

        thread = threading.Thread(target=run)
        thread.start()
        url = _http.base_url(*listener.getsockname())
        assert _http.ask(f"{url}/v1/models?a=b", 5, method="DELETE", headers={"Authorization": "Bearer k"}).status == 200
        thread.join()
    assert received[0].startswith(b"DELETE /v1/models?a=b HTTP/1.1\r\n") and b"Authorization: Bearer k\r\n" in received[0]
    assert f"Host: {url.partition('//')[2]}\r\n".encode() in received[0]


@pytest.mark.parametrize(
    ("handle", "seconds", "error", "silent"),
    [
        (lambda _connection, done: done.wait(10), 0.3, "no answer within 0.3 s", True),
        (drips(b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"), 1.5, "no answer within 1.5 s", False),
        (sends(), 20, "the connection was closed without an answer", True),
        (sends(b"\x15\x03\x01"), 20, "no HTTP: BadStatusLine", False),
        (sends(b"HTTP/1.1 200 OK\r\n", b"X" * 70000), 20, "no HTTP: LineTooLong", False),
    ],
)
def test_a_server_that_hangs_drips_or_uses_another_protocol_has_no_status(handle, seconds, error, silent):
    with server(handle) as url:
        answer = _http.ask(f"{url}/health", seconds)
    assert (answer.status, answer.body, answer.silent) == (None, b"", silent) and answer.error.startswith(error)


@pytest.mark.parametrize(
    "beginning",
    [b"HTTP/1.1 200 OK\r\n\r\nab", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nab", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nab"],
)
def test_a_body_that_drips_is_cut_off_and_says_so(beginning):
    with server(drips(beginning, b"x")) as url:
        answer = _http.ask(f"{url}/metrics", 1.5)
    assert (answer.status, answer.body[:2], answer.error) == (200, b"ab", "the answer was cut off: no answer within 1.5 s")


@pytest.mark.parametrize("length", [b"", b"Content-Length: 5000\r\n"])
def test_a_body_larger_than_its_limit_is_cut_off_and_says_so(length):
    with server(sends(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n" + b"x" * 5000)) as url:
        answer = _http.ask(f"{url}/metrics", 5, limit=1000)
    assert answer.status in (None, 200) and answer.error.endswith("the answer is larger than 1000 bytes")


def test_an_answer_shorter_than_it_says_is_not_complete():
    with server(sends(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok")) as url:
        answer = _http.ask(f"{url}/metrics", 5)
    assert (answer.status, answer.body) == (200, b"ok") and answer.error.startswith("the answer was cut off")


def test_no_listener():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = _http.base_url(*listener.getsockname())
    answer = _http.ask(url, 1)
    assert answer.status is None and answer.silent and "refused" in answer.error


def test_a_port_that_cannot_be_is_an_answer_too():
    answer = _http.ask("http://127.0.0.1:99999/", 1)
    assert answer.status is None and answer.error.startswith("no HTTP: ")


def test_a_proxy_has_no_part_in_it(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with server(sends(OK)) as url:
        assert _http.ask(url, 5).status == 200


@pytest.mark.parametrize(("address", "url"), [("10.0.0.1", "http://10.0.0.1:1"), ("::1", "http://[::1]:1")])
def test_base_url(address, url):
    assert _http.base_url(address, 1) == url


@given(st.binary(max_size=300) | st.binary(max_size=60).map(lambda tail: b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n" + tail))
def test_no_answer_breaks_it(content):
    ours, its = socket.socketpair()
    with its:
        its.sendall(content)
        its.shutdown(socket.SHUT_WR)
        with contextlib.closing(_http.Connection(lambda _left: ours, "localhost", 5)) as connection:
            connection.request("GET", "/")
            try:
                with connection.getresponse() as answer:
                    _http.read_body(answer, bytearray())
            except (OSError, http.client.HTTPException, ValueError):
                pass
    assert ours.fileno() == -1
