# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Requests a token from an engine, and measures the progress of one that does not answer in time. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import pathlib
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import boot_seconds
from ansible_collections.gb10.cluster.plugins.module_utils._engine import api_probe, engine_log, engine_state, health
from ansible_collections.gb10.cluster.plugins.module_utils._engine.api_key import ApiKey, Withheld
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import files
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.notes import read_side
from ansible_collections.gb10.cluster.plugins.module_utils._network import traffic
from ansible_collections.gb10.cluster.plugins.module_utils._process import command_line
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: Seconds between two readings of the counters of tokens.
FLOW_SLEEP = 0.5


class Asked(t.NamedTuple):
    """The result of the request: the API's answer about its health, the completion as proof, and without it the engine's progress."""

    api: str
    completion: engine_state.Completion | None
    progress: dict[str, t.Any] | None

    def as_result(self) -> dict[str, t.Any]:
        """Return it as part of a module's result."""
        return {**self._asdict(), "completion": self.completion and self.completion._asdict()}


def fabric_root(argv: t.Sequence[str], sysfs_root: str) -> str:
    """Return the root of the kernel's counters of traffic between an engine's ranks; empty for one rank, as all traffic is that of other programs."""
    return sysfs_root if command_line.ranks(argv) > 1 else ""


def fabric_of(sysfs_root: str) -> int | None:
    """Return how much this node has sent by RDMA, None if that is unknown. TCP does not count: Ray's nodes use it even while the engine hangs."""
    try:
        return traffic.all_rdma_sent(sysfs_root) if sysfs_root else None
    except (OSError, UnknownState):
        return None


def progress_of(url: str, key: ApiKey | None, timeout: float, sysfs_root: str = "") -> api_probe.Progress | None:
    """Return the progress that an engine's metrics and the fabric show, None when the metrics are missing or cannot be read.

    The key is sent only when the API asks for it.
    """
    answer = engine_state.asked(f"{url}/metrics", timeout, key)
    try:
        progress = None if answer.problem else api_probe.parse_progress(answer.body.decode("utf-8", "replace"))
    except UnknownState:
        return None
    return progress and progress._replace(fabric=fabric_of(sysfs_root))


def flows(url: str, key: ApiKey | None, timeout: float, seconds: float) -> bool:
    """Return whether an engine's own counters show tokens that flow now. While it has requests, they are read until they grow, at most ``seconds``."""
    first = progress_of(url, key, timeout)
    later = (progress_of(url, key, timeout) for _elapsed in clock(seconds, FLOW_SLEEP)) if first and first.running else ()
    return any(progress.tokens > first.tokens for progress in later if progress and first)


def length_of(url: str, key: ApiKey | None, timeout: float) -> int | None:
    """Return the context length that an API serves, None when it does not report it. The key is sent only when the API asks for it."""
    answer = engine_state.asked(f"{url}/v1/models", timeout, key)
    try:
        models = [] if answer.problem else api_probe.parse_models(answer.body)
    except UnknownState:
        return None
    return max((model["max_model_len"] for model in models if model["max_model_len"]), default=None)


def api_of(url: str, timeout: float, stage: str) -> str:
    """Return how the API of a live engine answers, as a constant of :mod:`health`. ``stage`` is the stage of the start in its log."""
    api = engine_state.asked_health(url, timeout)
    # Until its log shows an answer, it is still starting.
    return api if api in (health.ANSWERS, health.SAYS_DEAD) or stage == engine_log.API_IS_UP else health.STARTING


def ask(
    url: str,
    model: str | None,
    key: ApiKey | None,
    timeout: float,
    token_timeout: float,
    sysfs_root: str = "",
    run_id: str = "",
    note: str = "",
    prompt: str = engine_state.PROMPT,
) -> Asked:
    """Request a token from an API that answers, within ``token_timeout`` seconds. Raises :class:`ClusterError` if it refuses the request.

    A program that must not get the key gets no request. ``sysfs_root`` is the root of the kernel's counters of the ranks' traffic, empty to ignore them.
    ``note`` is a file that records between probes since when run ``run_id`` has made no progress; without it only this probe counts.
    """
    began, before = boot_seconds(), progress_of(url, key, timeout, sysfs_root)
    try:
        completion = engine_state.first_token(url, model, key, token_timeout, prompt)
    except Withheld as error:
        return Asked(health.ANSWERS, None, {"grew": None, "still_s": 0.0, "limit_s": health.STALL_SECONDS, "withheld": error.with_remedy()})
    earlier = health.Still.of_note(read_side(note)) if note else None
    if completion:
        if earlier:
            pathlib.Path(note).unlink(missing_ok=True)
        return Asked(health.ANSWERS, completion, None)
    after = progress_of(url, key, timeout, sysfs_root)
    still = health.still(earlier, run_id, began, before, after)
    if note and still:
        # On a full disk only this probe counts.
        with contextlib.suppress(OSError):
            files.write_json(note, still.as_note())
    elif earlier and after:
        pathlib.Path(note).unlink(missing_ok=True)
    seconds = round(boot_seconds() - still.since, 1) if still else 0.0
    limit = health.stall_limit(after, length_of(url, key, timeout))
    progress = {"grew": health.grew(before, after), "still_s": seconds, "limit_s": limit, "withheld": ""}
    return Asked(engine_state.asked_health(url, timeout), None, progress)
