# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Asks an API of OpenAI's kind what it serves, without a key and within a deadline. This module util is PRIVATE to the collection.

Whoever answers may be anybody: an answer is read up to a limit and a deadline that holds for all of it, however slowly it drips, and what
cannot be parsed is told as it is.
"""

from __future__ import annotations

import http.client
import io
import json
import math
import re
import socket
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState

#: Bytes of one answer that are read; metrics of a busy engine are some hundred KiB.
ANSWER_LIMIT = 4 * 1024 * 1024
#: Models that are told, and characters of a name.
MODELS_SHOWN, NAME_SHOWN = 50, 200

#: Lines of vLLM's metrics that tell progress (docs/usage/metrics of vLLM): requests that run, tokens since the start.
_RUNNING = "vllm:num_requests_running"
_TOKENS = ("vllm:generation_tokens_total", "vllm:prompt_tokens_total")
_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)(?:\{.*\})? (?P<value>\S+)(?: -?\d+)?$")


class Answer(t.NamedTuple):
    """What came back: ``status`` is None when nobody answered or it was no HTTP, and ``error`` says why.

    ``silent``: nobody answered at all, rather than something that could not be understood.
    """

    status: int | None
    body: bytes
    error: str = ""
    silent: bool = False


class _Received:
    """What was received, as the socket that :class:`http.client.HTTPResponse` reads from."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._content)


def _whole(content: bytes | bytearray) -> bool:
    """Return whether an answer that tells its length has all of it: a server may keep the connection open."""
    head, end, body = content.partition(b"\r\n\r\n")
    length = re.search(rb"^content-length:\s*(\d{1,12})\s*$", head, re.IGNORECASE | re.MULTILINE)
    return bool(end and length and len(body) >= int(length[1]))


def parse_answer(content: bytes) -> Answer:
    """Return the answer in what was received. Never raises: what is no HTTP has no status, and says so with its first bytes."""
    try:
        response = http.client.HTTPResponse(_Received(content), method="GET")  # type: ignore[arg-type]
        response.begin()
        try:
            return Answer(response.status, response.read(ANSWER_LIMIT))
        except http.client.IncompleteRead as error:
            return Answer(response.status, error.partial, "the answer was cut off")
    except (http.client.HTTPException, ValueError, OSError) as error:
        return Answer(None, b"", f"no HTTP: {type(error).__name__}, {content[:80]!r}")


def get(address: str, port: int, path: str, timeout: float) -> Answer:
    """Ask ``http://address:port/path`` within ``timeout`` seconds, all in all. Never raises."""
    deadline = time.monotonic() + timeout
    shown = f"[{address}]" if ":" in address else address
    request = f"GET {path} HTTP/1.0\r\nHost: {shown}:{port}\r\nUser-Agent: gb10.cluster\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    content = bytearray()
    try:
        with socket.create_connection((address, port), timeout) as sock:
            sock.sendall(request.encode("ascii"))
            while len(content) < ANSWER_LIMIT and not _whole(content):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                sock.settimeout(left)
                part = sock.recv(65536)
                if not part:
                    break
                content += part
    except TimeoutError:
        # Connections are taken by the kernel: a server that hangs shows here.
        if not content:
            return Answer(None, b"", f"no answer within {timeout:g} s", silent=True)
    except (OSError, UnicodeEncodeError) as error:
        if not content:
            return Answer(None, b"", getattr(error, "strerror", None) or str(error), silent=True)
    if not content:
        return Answer(None, b"", "the connection was closed without an answer", silent=True)
    return parse_answer(bytes(content))


def parse_models(body: bytes) -> list[dict[str, t.Any]]:
    """Return ``{id, max_model_len}`` of each model in an answer to ``/v1/models``; the length is None where the engine does not tell it.

    Raises :class:`UnknownState` for another shape.
    """
    try:
        entries = json.loads(body)["data"]
        if entries is None:  # Ollama without a model
            return []
        found = []
        for entry in entries[:MODELS_SHOWN]:
            length = entry.get("max_model_len")
            name = entry["id"]
            if not isinstance(name, str):
                raise TypeError(name)
            found.append({"id": name[:NAME_SHOWN], "max_model_len": length if isinstance(length, int) and not isinstance(length, bool) else None})
        return found
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise UnknownState(f"/v1/models answers in a shape that cannot be read: {error!r}", raw=repr(body[:500])) from error


def parse_progress(text: str) -> dict[str, float] | None:
    """Return ``{running, tokens}`` of vLLM's metrics: requests that run now, and tokens (read and written) since the start.

    None when this is no vLLM's. Raises :class:`UnknownState` when one of the figures cannot be read.
    """
    running: list[float] = []
    tokens: list[float] = []
    for line in text.splitlines():
        if not line.startswith("vllm:"):
            continue
        match = _SAMPLE.match(line.strip())
        name = match["name"] if match else line.split("{", 1)[0].split(" ", 1)[0]
        if name != _RUNNING and name not in _TOKENS:
            continue
        try:
            value = float(match["value"]) if match else math.nan
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UnknownState(f"a figure of the metrics cannot be read: {line[:200]!r}", raw=line[:2000])
        (running if name == _RUNNING else tokens).append(value)
    return {"running": sum(running), "tokens": sum(tokens)} if running and tokens else None
