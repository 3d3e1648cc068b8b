# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Requires the API key on every path of the engine except its health check. This module util is PRIVATE to the collection.

vLLM (0.32) requires its key only below ``/v1``, ``/v2``, ``/inference`` and ``/cohere``: without a key, ``/invocations`` answers a chat, ``/tokenize``
returns tokens, and ``/scale_elastic_ep`` reaches its handler. The collection writes this file into a directory that is read-only in the container, and vLLM
loads it as ``--middleware gb10_api_guard.ApiGuard``. Standard library only, Python 3.10 or newer, whatever the image has.

The key is in the engine's environment, where vLLM itself reads it. It is compared in constant time.
"""

from __future__ import annotations

import hmac
import json
import os
import typing as t

#: The variable that vLLM reads its key from.
KEY_VARIABLE = "VLLM_API_KEY"
#: The one path that answers without the key, and its methods: it shows only that the engine runs.
OPEN_PATH = "/health"
OPEN_METHODS = ("GET", "HEAD")
#: The code that closes a refused web socket (RFC 6455: policy violation).
POLICY_VIOLATION = 1008

REFUSAL = json.dumps({"error": "Unauthorized"}).encode()

Scope = dict[str, t.Any]
Send = t.Callable[[dict[str, t.Any]], t.Awaitable[None]]
Receive = t.Callable[[], t.Awaitable[dict[str, t.Any]]]
App = t.Callable[[Scope, Receive, Send], t.Awaitable[None]]


def path_of(scope: Scope) -> str:
    """Return the path of a request without the prefix that the engine is published under."""
    path, prefix = scope.get("path", ""), scope.get("root_path", "")
    return path[len(prefix):] if prefix and path.startswith(f"{prefix}/") else path


def values_of(scope: Scope, name: bytes) -> list[bytes]:
    """Return all values of a header."""
    return [value for header, value in scope.get("headers", ()) if header.lower() == name]


def is_open(scope: Scope) -> bool:
    """Return whether a request needs no key: the health check, and a browser's preflight request, which reaches no handler."""
    if scope["type"] != "http":
        return False
    if scope.get("method") == "OPTIONS":
        return bool(values_of(scope, b"origin") and values_of(scope, b"access-control-request-method"))
    return scope.get("method") in OPEN_METHODS and path_of(scope) == OPEN_PATH


def has_key(scope: Scope, key: bytes) -> bool:
    """Return whether a request has the key, in a single ``Authorization: Bearer KEY`` header."""
    values = values_of(scope, b"authorization")
    if len(values) != 1:
        return False
    scheme, _blank, given = values[0].partition(b" ")
    return hmac.compare_digest(given.strip(), key) and scheme.lower() == b"bearer"


async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer 401, or close a web socket before it was accepted."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        return
    headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer"), (b"content-length", str(len(REFUSAL)).encode())]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": REFUSAL})


class ApiGuard:
    """ASGI middleware that refuses requests without the key."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.key = os.environ.get(KEY_VARIABLE, "").encode()
        if not self.key:
            raise RuntimeError(f"{KEY_VARIABLE} is not set, so every request would be refused")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The server's own start and end are not requests.
        allowed = scope["type"] == "lifespan" or is_open(scope) or has_key(scope, self.key)
        await (self.app if allowed else refuse)(scope, receive, send)
