# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which routes of the engine's API answer without its key. This module util is PRIVATE to the collection.

Routes are asked on a live engine, so nothing may act: with GET, or with a body that the handler has to reject. What acts without a body is left out; the
lab asks that, too.
"""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils import _http
from ansible_collections.gb10.cluster.plugins.module_utils._engine.api_key import ApiKey
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.gb10_api_guard import OPEN_PATH

#: Where the engine lists its routes.
LIST_PATH = "/openapi.json"

#: Asked in any case. The engine (0.32) lists neither its metrics nor its documentation, and does not say that its handlers for SageMaker want a body. The
#: last is not a route: an API that asks for the key first refuses it, too.
ALWAYS = (
    ("GET", "/metrics"),
    ("GET", "/docs"),
    ("GET", LIST_PATH),
    ("GET", "/version"),
    ("GET", "/v1/models"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/invocations"),
    ("POST", "/tokenize"),
    ("GET", "/gb10/no/such/route"),
)

#: A body that no handler of JSON takes.
REJECTED_BODY = b"{"
#: Answers that refuse a request without the key.
REFUSALS = (401, 403)
#: Most routes that are asked; an engine has some sixty. After so many without an answer no more are asked.
ROUTE_LIMIT = 300
UNKNOWN_LIMIT = 3

_PARAMETER = re.compile(r"\{[^{}]*\}")

Route = tuple[str, str]


class Routes(t.NamedTuple):
    """The routes that an engine lists: those that can be asked without an effect, and the others."""

    askable: list[Route]
    acting: list[Route]


def parse_routes(body: bytes) -> Routes | None:
    """Return the routes of an OpenAPI document, None for anything else."""
    try:
        listed = [(method.upper(), path, about) for path, methods in json.loads(body)["paths"].items() for method, about in methods.items()]
        found = [((method, path), method == "GET" or bool((about.get("requestBody") or {}).get("required"))) for method, path, about in listed]
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return None
    return Routes([route for route, askable in found if askable and route[1] != OPEN_PATH], [route for route, askable in found if not askable])


def ask(url: str, key: ApiKey, timeout: float) -> dict[str, t.Any]:
    """Ask every route of the API at ``url`` without the key, and return ``{listed, asked, left_out, open, unknown}``.

    ``listed``: the engine said which routes it has. ``open`` names those that did not ask for the key, ``unknown`` those that did not answer, ``left_out``
    those that would act.
    """
    answer = _http.ask(f"{url}{LIST_PATH}", timeout, key=key)
    listed = None if answer.problem else parse_routes(answer.body)
    routes = listed or Routes([], [])
    wanted = list(dict.fromkeys([*ALWAYS, *routes.askable]))[:ROUTE_LIMIT]
    found: dict[str, t.Any] = {
        "listed": listed is not None,
        "asked": len(wanted),
        "left_out": [" ".join(route) for route in routes.acting],
        "open": [],
        "unknown": [],
    }
    for route in wanted:
        # A GET, or a body that the handler rejects, so that nothing happens.
        rejected = {} if route[0] == "GET" else {"body": REJECTED_BODY, "headers": {"Content-Type": "application/json"}}
        answer = _http.ask(f"{url}{_PARAMETER.sub('gb10', route[1])}", timeout, method=route[0], **rejected)
        if answer.status is None:
            found["unknown"].append(f"{' '.join(route)}: {answer.error}")
            if len(found["unknown"]) >= UNKNOWN_LIMIT:
                break
        elif answer.status not in REFUSALS:
            found["open"].append(" ".join(route))
    return found
