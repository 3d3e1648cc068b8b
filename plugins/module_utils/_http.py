# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One HTTP exchange with a deadline and a size limit. This module util is PRIVATE to the collection.

The timeout of Python's own clients applies to each read, so a slow server can make a request of two seconds last forever, and an
answer of any size is read. Here one deadline covers connecting, sending and the whole answer, and the size of an answer is limited.
No proxy is used, and no redirect is followed, so the content of a request, such as a token in its URL, only reaches the server that it was sent to.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import socket
import ssl
import time
import typing as t
import urllib.parse

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError

#: Maximum bytes of an answer, including its headers. Metrics of a busy engine are some hundred KiB.
ANSWER_LIMIT = 4 * 1024 * 1024
#: Maximum characters that a message shows of an answer that is not HTTP.
SHOWN = 200


class AnswerTooLarge(http.client.HTTPException):
    """The answer is larger than its limit."""


class Key(t.Protocol):
    """A secret that only some servers may get."""

    def headers(self, connected: socket.socket) -> t.Mapping[str, str]:
        """Return the headers that send the key over a connection. Raises :class:`ClusterError` when it must not be sent there."""


class Answer(t.NamedTuple):
    """An answer: ``status`` is None when no answer came or it was not HTTP. ``error`` is the reason, or why the body is not complete.

    ``silent``: no answer came at all, rather than one that could not be understood.
    """

    status: int | None
    body: bytes
    error: str = ""
    silent: bool = False

    @property
    def problem(self) -> str:
        """Return why this is not a complete answer of status 200, empty when it is."""
        return self.error or ("" if self.status == 200 else f"HTTP {self.status}")


class _Stream(io.RawIOBase):
    """The bytes received on a connection, up to its limit and deadline."""

    def __init__(self, connection: Connection, sock: socket.socket) -> None:
        self._connection, self._sock = connection, sock
        # Keeps the socket open when the connection is closed before its answer is read, as the standard library does.
        self._received = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: t.Any) -> int:
        self._sock.settimeout(self._connection.seconds_left())
        count = self._received.readinto(buffer) or 0
        self._connection.received += count
        if self._connection.received > self._connection.limit:
            raise AnswerTooLarge(f"the answer is larger than {self._connection.limit} bytes")
        return count

    def close(self) -> None:
        self._received.close()
        super().close()


class _Socket:
    """A socket as :mod:`http.client` uses one."""

    def __init__(self, connection: Connection, sock: socket.socket) -> None:
        self._connection, self._sock = connection, sock

    def sendall(self, content: t.Any) -> None:
        self._sock.settimeout(self._connection.seconds_left())
        self._sock.sendall(content)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Stream(self._connection, self._sock))

    def close(self) -> None:
        self._sock.close()


class Connection(http.client.HTTPConnection):
    """A connection for one exchange. ``connect`` returns the connected socket, given the seconds it may take.

    Every method raises TimeoutError when ``timeout`` seconds have passed since it was made, :class:`AnswerTooLarge` when more than
    ``limit`` bytes were received, and else what :mod:`http.client` raises: OSError and HTTPException.
    """

    def __init__(self, connect: t.Callable[[float], socket.socket], host: str, timeout: float, limit: int = ANSWER_LIMIT) -> None:
        super().__init__(host)
        self._connect = connect
        self._connected: socket.socket | None = None
        self._deadline = time.monotonic() + timeout
        self.limit, self.received = limit, 0

    def connect(self) -> None:
        self._connected = self._connect(self.seconds_left())
        self.sock = _Socket(self, self._connected)

    def key_headers(self, key: Key | None) -> t.Mapping[str, str]:
        """Connect, and return the headers that send a key over this connection, none without a key. Also raises what ``key`` raises."""
        if not key:
            return {}
        self.connect()
        # Only the checked connection is used: no other is opened in its place.
        self.auto_open = 0
        return key.headers(self._connected)

    def seconds_left(self) -> float:
        """Return the time left. Raises TimeoutError when there is none."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def base_url(address: str, port: int) -> str:
    """Return the URL of a server at an address; IPv6 gets its brackets."""
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def trusting(ca_file: str = "") -> ssl.SSLContext:
    """Return a context that verifies certificates by the system's authorities and those in a file. Raises OSError when the file cannot be read."""
    context = ssl.create_default_context()
    if ca_file:
        context.load_verify_locations(cafile=ca_file)
    return context


def connection_to(url: str, timeout: float, limit: int = ANSWER_LIMIT, tls: ssl.SSLContext | None = None) -> Connection:
    """Return a connection to the server of ``url``. With https its certificate is verified, by ``tls`` or else by the system's authorities."""
    parts = urllib.parse.urlsplit(url)
    host, is_https = parts.hostname or "", parts.scheme == "https"
    where = host, parts.port or (443 if is_https else 80)

    def connect(left: float) -> socket.socket:
        began = time.monotonic()
        plain = socket.create_connection(where, left)
        if not is_https:
            return plain
        with contextlib.ExitStack() as stack:
            stack.callback(plain.close)
            plain.settimeout(max(0.001, left - (time.monotonic() - began)))
            wrapped = (tls or trusting()).wrap_socket(plain, server_hostname=host)
            stack.pop_all()
            return wrapped

    return Connection(connect, parts.netloc, timeout, limit)


def read_body(answer: http.client.HTTPResponse, content: bytearray, enough: int | None = None) -> None:
    """Append the body to ``content``: all of it, or at least ``enough`` bytes if it has that many. Raises what the connection raises."""
    while enough is None or len(content) < enough:
        part = answer.read1(65536)
        if not part:
            if answer.length:
                raise http.client.IncompleteRead(b"", answer.length)
            return
        content += part


def ask(
    url: str,
    timeout: float,
    *,
    method: str = "GET",
    body: bytes | None = None,
    headers: t.Mapping[str, str] | None = None,
    limit: int = ANSWER_LIMIT,
    tls: ssl.SSLContext | None = None,
    key: Key | None = None,
) -> Answer:
    """Send a request and return the answer within ``timeout`` seconds in total. Never raises. Nothing is sent when ``key`` must not be."""
    content = bytearray()
    status: int | None = None
    error, silent = "", False
    try:
        connection = connection_to(url, timeout, limit, tls)
    except ValueError as problem:
        return Answer(None, b"", f"no HTTP: {problem!r}"[:SHOWN], True)
    try:
        with contextlib.closing(connection):
            path = url.partition("://")[2].partition("/")[2]
            sent = {"User-Agent": "gb10.cluster", "Accept": "*/*", "Connection": "close", **(headers or {}), **connection.key_headers(key)}
            connection.request(method, f"/{path}", body, sent)
            with connection.getresponse() as answer:
                status = answer.status
                read_body(answer, content)
            return Answer(status, bytes(content))
    except TimeoutError:
        error, silent = f"no answer within {timeout:g} s", not connection.received
    except http.client.RemoteDisconnected:
        error, silent = "the connection was closed without an answer", True
    except AnswerTooLarge as problem:
        error = str(problem)
    except ClusterError as problem:
        error, silent = str(problem), True
    except OSError as problem:
        error, silent = problem.strerror or str(problem), not connection.received
    except (http.client.HTTPException, ValueError) as problem:
        error = f"no HTTP: {problem!r}"[:SHOWN]
    return Answer(None, b"", error, silent) if status is None else Answer(status, bytes(content), f"the answer was cut off: {error}")
