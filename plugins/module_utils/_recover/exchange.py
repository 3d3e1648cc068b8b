# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each node's state of its recovery, for the other nodes: one question, one signed answer. This module util is PRIVATE to the collection.

The question is a random number, which the signature includes. So an answer proves that its sender has the cluster's key now: no clocks are compared, and an
older answer is refused. There is nothing else to ask for, and an answer has no secret.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils import _http
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState

#: Seconds for a whole answer, its most bytes, and the bytes of the random number.
SECONDS, LIMIT, NONCE_BYTES = 5.0, 65536, 32
#: The first line of a question.
QUESTION = re.compile(rb"GET /(?P<nonce>[0-9a-f]{64}) HTTP/1\.[01]\r?\n\Z")
#: What the signature includes first, so that no other use of the key, and no other version of an answer, has the same one.
PURPOSE = "gb10.cluster recovery 1"
#: The keys of a state (see ``recoveries``) that other nodes get.
SHARED = ("seq", "at", "own", "error", "incident", "count", "phase", "hold", "stopped")


def signature(key: str, nonce: str, body: str) -> str:
    """Return the signature of an answer to a question."""
    return hmac.new(key.encode(), "\n".join((PURPOSE, nonce, body)).encode(), hashlib.sha256).hexdigest()


def answered(line: bytes, key: str, answer: t.Mapping[str, t.Any]) -> bytes:
    """Return the signed answer to the first line of a question. Raises :class:`UnknownState` for any other line.

    An answer has ``cluster``, ``node``, ``state`` with the keys of :data:`SHARED`, and ``age_s``, the seconds since the last look by the node's own clock.
    """
    match = QUESTION.match(line)
    if not match:
        raise UnknownState("this is not a question")
    body = json.dumps(answer)
    return f"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n{signature(key, match['nonce'].decode(), body)}\n{body}".encode()


def ask(address: str, port: int, key: str, cluster: str, node: str) -> dict[str, t.Any]:
    """Return the answer of a node. Raises :class:`UnknownState` without one that is signed for this question, and is that node's."""
    nonce = secrets.token_hex(NONCE_BYTES)
    came = _http.ask(f"{_http.base_url(address, port)}/{nonce}", SECONDS, limit=LIMIT)
    signed, _break, body = came.body.decode("utf-8", "replace").partition("\n")
    if came.problem or not hmac.compare_digest(signed.encode(), signature(key, nonce, body).encode()):
        raise UnknownState(f"no answer from {address} port {port}: {came.problem or 'it is not signed with the key of this cluster for this question'}")
    try:
        answer = json.loads(body)
        if (answer["cluster"], answer["node"], sorted(answer["state"])) == (cluster, node, sorted(SHARED)):
            return dict(answer)
        raise UnknownState(f"{address} port {port} answers as {answer['node']} of cluster {answer['cluster']}, or as another version")
    except (ValueError, KeyError, TypeError) as error:
        raise UnknownState(f"{address} port {port} answers as another version: {error!r}") from error
