# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decides whether an engine may be stopped without consent, for restart, stop and removal. This module util is PRIVATE to the collection.

A live engine that does not report its requests counts as busy.
"""

from __future__ import annotations

import math
import os
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils import _http
from ansible_collections.gb10.cluster.plugins.module_utils._engine import api_key, api_probe, engine_state
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState

#: Metrics of vLLM whose sum is the number of its requests. Requests that wait count like those that run.
COUNTED = ("vllm:num_requests_running", "vllm:num_requests_waiting")

CONSENT = "-e gb10_allow=interrupt"

#: The reason of a refusal because of requests that an engine is known to have.
RUNNING = "requests running"
#: Seconds between two lines about the remaining requests.
COUNTDOWN_SECONDS = 30


class Requests(t.NamedTuple):
    """The number of an engine's requests, running or waiting; ``count`` is None if it is unknown, and ``unknown`` is the reason."""

    count: int | None
    unknown: str = ""

    @property
    def text(self) -> str:
        """Return it as text for a message."""
        return f"how many requests it has is unknown: {self.unknown}" if self.count is None else f"it has {self.count} request(s), running or waiting"


class Situation(t.NamedTuple):
    """The state of an engine that would be stopped.

    ``whole``: it is not known to lack a rank. ``unready``: this run started it, and it was never ready.
    """

    live: bool
    whole: bool
    unready: bool
    requests: Requests


def why_kept(situation: Situation) -> str:
    """Return why an engine must not be stopped without consent, empty when no request can be lost."""
    may_end = not situation.live or not situation.whole or situation.unready or situation.requests.count == 0
    return "" if may_end else situation.requests.text


def check(situation: Situation, interrupt: bool, what: str) -> None:
    """Raise :class:`ClusterError` when requests would be lost, :class:`UnknownState` when they may be; ``interrupt`` is a person's consent to that.

    ``what`` is the action on the engine, for the message.
    """
    why = why_kept(situation)
    if not why or interrupt:
        return
    count = situation.requests.count
    raise (UnknownState if count is None else ClusterError)(
        f"{what}, but {why}",
        remedy=f"Find out whether the engine is in use. When it may be cut off: {CONSENT}"
        if count is None
        else f"Repeat when they are answered, or cut them off with {CONSENT}",
        reason="requests unknown" if count is None else RUNNING,
        requests_running=count,
    )


def drain(seconds: int, cluster: str, stop: t.Callable[[int], dict[str, t.Any]], say: t.Callable[[str], object]) -> dict[str, t.Any]:
    """Stop an engine once its requests are answered, within ``seconds``, with a countdown meanwhile; return the last result.

    ``stop`` waits for so many seconds at most, then stops the engine, and returns a module's result: a refusal if there are still requests.
    """
    end, result = time.monotonic() + seconds, stop(0)
    while result.get("reason") == RUNNING and (left := math.ceil(end - time.monotonic())) > 0:
        say(f"the engine of {cluster} still has {result['requests_running']} request(s), running or waiting; they get {left} s more")
        result = stop(min(COUNTDOWN_SECONDS, left))
    return result


def requests_of(engine: t.Mapping[str, t.Any], timeout: float, key_file: str | None = None) -> Requests:
    """Return the requests of the engine that :func:`engine_state.engine_state` describes. The key is sent only if its API requires one."""
    if not engine["api_address"] or not engine["api_port"]:
        return Requests(None, "this node's part of the engine has no API, the head's part is asked")
    url = f"{engine_state.base_url(engine['api_address'], engine['api_port'])}/metrics"
    key = api_key.of(engine, key_file) if key_file and os.path.exists(key_file) else None
    return counted(engine_state.asked(url, timeout, key), url)


def counted(answer: _http.Answer, where: str) -> Requests:
    """Return the requests in the answer of ``where``."""
    if answer.status in engine_state.KEY_WANTED:
        return Requests(None, f"{where} refuses the question (HTTP {answer.status})")
    if answer.problem:
        return Requests(None, f"{where}: {answer.problem}" + (" (does it use TLS?)" if answer.status is None and not answer.silent else ""))
    text = answer.body.decode("utf-8", "replace")
    try:
        counts = {name: api_probe.metric(text, name) for name in COUNTED}
    except UnknownState as error:
        return Requests(None, f"{where}: {error}")
    missing = [name for name, count in counts.items() if count is None]
    return Requests(None, f"{where} has no {missing[0]}") if missing else Requests(int(sum(counts.values())))


def key_file(fields: t.Mapping[str, t.Any], engine: t.Mapping[str, t.Any]) -> str | None:
    """Return the node's file with the API's key, from the fields of the engine's container; None without one."""
    mounted = engine["secret_env"].get("VLLM_API_KEY")
    return fields.get("secret_files", {}).get(os.path.basename(mounted)) if mounted else None
