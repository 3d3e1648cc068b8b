# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finds the routes of the engine's API that answer without its key. This module util is PRIVATE to the collection.

The engine is live, so no request may have an effect: each is a GET, or has a body that the handler has to reject. Routes that act without a body are left
out; the lab requests those, too.
"""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils import _http
from ansible_collections.gb10.cluster.plugins.module_utils._engine.api_key import ApiKey
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.gb10_api_guard import OPEN_PATH

#: The engine's list of its routes.
LIST_PATH = "/openapi.json"

#: Always requested. The engine (0.32) lists neither its metrics nor its documentation, and not that its handlers for SageMaker require a body. The last
#: one is not a route: an API that checks the key first refuses it, too.
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

#: A body that no handler of JSON accepts.
REJECTED_BODY = b"{"
#: Answers that refuse a request without the key.
REFUSALS = (401, 403)
#: Most routes to request (an engine has about sixty), and the number of missing answers after which no more are requested.
ROUTE_LIMIT = 300
UNKNOWN_LIMIT = 3

_PARAMETER = re.compile(r"\{[^{}]*\}")

Route = tuple[str, str]


class Routes(t.NamedTuple):
    """The routes that an engine lists: those that can be requested without an effect, and the others."""

    askable: list[Route]
    acting: list[Route]


def parse_routes(body: bytes) -> Routes | None:
    """Return the routes of an OpenAPI document, None for anything else."""
    try:
        listed = [(method.upper(), path, about) for path, methods in json.loads(body)["paths"].items() for method, about in methods.items()]
        routes = [((method, path), method == "GET" or bool((about.get("requestBody") or {}).get("required"))) for method, path, about in listed]
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return None
    return Routes([route for route, askable in routes if askable and route[1] != OPEN_PATH], [route for route, askable in routes if not askable])


def ask(url: str, key: ApiKey, timeout: float) -> dict[str, t.Any]:
    """Request every route of the API at ``url`` without the key, and return ``{listed, asked, left_out, open, unknown}``.

    ``listed``: the engine listed its routes. ``open`` has those that did not require the key, ``unknown`` those that did not answer, ``left_out``
    those that would act.
    """
    answer = _http.ask(f"{url}{LIST_PATH}", timeout, key=key)
    listed = None if answer.problem else parse_routes(answer.body)
    routes = listed or Routes([], [])
    wanted = list(dict.fromkeys([*ALWAYS, *routes.askable]))[:ROUTE_LIMIT]
    result: dict[str, t.Any] = {
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
            result["unknown"].append(f"{' '.join(route)}: {answer.error}")
            if len(result["unknown"]) >= UNKNOWN_LIMIT:
                break
        elif answer.status not in REFUSALS:
            result["open"].append(" ".join(route))
    return result
