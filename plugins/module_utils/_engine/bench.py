# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The arguments of the engine's benchmark client, and the figures of its result. This module util is PRIVATE to the collection."""

from __future__ import annotations

import math
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils import _http
from ansible_collections.gb10.cluster.plugins.module_utils._engine import api_probe, engine_state, interruption
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState

#: The times that the client reports, and the figures of each that are returned, in milliseconds.
TIMES = ("ttft", "tpot", "itl")
SHARES = ("mean", "p50", "p90", "p99")

#: The name of each figure in the module's result → in the client's result.
FIGURES = {
    "duration_s": "duration",
    "requests_s": "request_throughput",
    "output_tok_s": "output_throughput",
    "total_tok_s": "total_token_throughput",
    "input_tokens": "total_input_tokens",
    "output_tokens": "total_output_tokens",
    **{f"{time}_{share}_ms": f"{share}_{time}_ms" for time in TIMES for share in SHARES},
}

#: Metrics of vLLM: drafts that were made, tokens of them that were accepted, and requests that were answered (v1/metrics and v1/spec_decode of 0.32.0).
DRAFTS, ACCEPTED = "vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_accepted_tokens_total"
ANSWERED = "vllm:request_success_total"


class Counters(t.NamedTuple):
    """An engine's counters since its start; None for a counter that it does not have."""

    answered: float | None
    drafts: float | None
    accepted: float | None


def arguments(case: t.Mapping[str, t.Any], engine: t.Mapping[str, t.Any]) -> list[str]:
    """Return the client's arguments for a case. ``engine`` has ``url``, ``model``, ``tokenizer``, ``trust_remote_code`` and ``seed``."""
    lengths = (
        ("custom", "--custom-output-len", str(case["output_len"]))
        if case["texts"]
        else ("random", "--random-input-len", str(case["input_len"]), "--random-output-len", str(case["output_len"]))
    )
    return [
        # Completions instead of chats: for a model that thinks, older clients count the first word after its thinking as its first token.
        *("--backend", "openai", "--endpoint", "/v1/completions", "--base-url", engine["url"]),
        *("--model", engine["model"], "--served-model-name", engine["model"], "--tokenizer", engine["tokenizer"]),
        *("--num-prompts", str(case["prompts"]), "--max-concurrency", str(case["concurrency"]), "--seed", str(engine["seed"])),
        # The same length for every answer, and the same words from a model that samples.
        *("--ignore-eos", "--temperature", "0", "--disable-tqdm"),
        *("--percentile-metrics", ",".join(TIMES), "--metric-percentiles", "50,90,99"),
        *("--dataset-name", *lengths),
        *(["--trust-remote-code"] if engine["trust_remote_code"] else []),
    ]


def optional(case: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return options that an older client may lack: requests before the measured ones, during which an engine compiles its code for this batch."""
    return {"--num-warmups": case["concurrency"]}


def texts(case: t.Mapping[str, t.Any], seed: int) -> list[str]:
    """Return the prompts of a case with texts, as many as it has requests, each with a unique beginning, so that no prefix cache has it."""
    return [f"({seed}-{number}) {case['texts'][number % len(case['texts'])]}" for number in range(case["prompts"])] if case["texts"] else []


def figures(result: t.Any, case: t.Mapping[str, t.Any]) -> dict[str, float]:
    """Return the figures of a client's result. Raises :class:`UnknownState` where it lacks one, :class:`ClusterError` where requests failed."""
    if not isinstance(result, dict) or not isinstance(result.get("completed"), int):
        raise UnknownState("the result of vllm bench serve has no number of answered requests", raw=str(result)[:2000])
    if result["completed"] < case["prompts"]:
        missing = case["prompts"] - result["completed"]
        raise ClusterError(f"{missing} of {case['prompts']} requests were not answered", remedy="See the engine's log.", reason="requests failed")
    values: dict[str, float] = {}
    for name, theirs in FIGURES.items():
        value = result.get(theirs)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise UnknownState(f"the result of vllm bench serve has no {theirs}", raw=str(value)[:200], remedy="Report this with the engine's version.")
        values[name] = round(float(value), 3)
    return values


def counters(url: str, key: _http.Key | None, timeout: float) -> Counters:
    """Return the engine's counters. Raises :class:`UnknownState` when its metrics cannot be read."""
    answer = engine_state.asked(f"{url}/metrics", timeout, key)
    if answer.problem:
        raise UnknownState(f"the metrics at {url} cannot be read: {answer.problem}", remedy="See whether the engine serves.")
    text = answer.body.decode("utf-8", "replace")
    return Counters(*(api_probe.metric(text, name) for name in (ANSWERED, DRAFTS, ACCEPTED)))


def require_idle(url: str, key: _http.Key | None, timeout: float) -> None:
    """Raise :class:`ClusterError` where the engine has requests, :class:`UnknownState` where it does not report them."""
    requests = interruption.counted(engine_state.asked(f"{url}/metrics", timeout, key), f"{url}/metrics")
    if requests.count == 0:
        return
    raise (UnknownState if requests.count is None else ClusterError)(
        f"the engine at {url} is not known to be idle: {requests.text}; a bench would slow that down, and measure it, too",
        remedy="Repeat when the engine is idle." if requests.count else "See whether the engine serves, then repeat.",
        reason="requests running" if requests.count else "requests unknown",
        requests_running=requests.count,
    )


def acceptance(before: Counters, after: Counters) -> float | None:
    """Return the average number of tokens per step of an engine with a drafter, None without one."""
    if None in (before.drafts, before.accepted, after.drafts, after.accepted):
        return None
    drafts = after.drafts - before.drafts
    return round(1 + (after.accepted - before.accepted) / drafts, 3) if drafts > 0 else None


def foreign(before: Counters, after: Counters, own: int) -> int | None:
    """Return the number of other clients' requests that were answered meanwhile, None if the engine does not count them."""
    return None if before.answered is None or after.answered is None else max(0, int(after.answered - before.answered) - own)
