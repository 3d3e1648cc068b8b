# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads what an API of OpenAI's kind says of what it serves. This module util is PRIVATE to the collection.

Whoever answers may be anybody: what cannot be parsed is unknown, and is shown as it is.
"""

from __future__ import annotations

import json
import math
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState

#: Models that are told, and characters of a name.
MODELS_SHOWN, NAME_SHOWN = 50, 200

#: Names in vLLM's metrics, the same from 0.19.1 to 0.32.0 (v1/metrics/loggers.py of its releases): requests that run, tokens since the start,
#: how much of the cache is in use, and the engine's steps. A prompt counts once it is read to its end; cache and steps grow while it is being read.
_RUNNING = "vllm:num_requests_running"
_TOKENS = ("vllm:generation_tokens_total", "vllm:prompt_tokens_total")
_KV_USE = "vllm:kv_cache_usage_perc"
_STEPS = "vllm:iteration_tokens_total_count"
#: How long prefills took, as a histogram.
_PREFILL = "vllm:request_prefill_time_seconds"
_READ = (_RUNNING, *_TOKENS, _KV_USE, _STEPS, f"{_PREFILL}_bucket", f"{_PREFILL}_sum")
_BOUND = re.compile(r'[{,]le="([^"]+)"')
_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)(?:\{.*\})? (?P<value>\S+)(?: -?\d+)?$")


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


class Progress(t.NamedTuple):
    """What vLLM's metrics say of its work: requests that run now, tokens (read and written) since the start, the part of the cache that is in use (None
    where it is not there), what no prefill so far took longer than, in seconds, and the engine's steps since the start. Beside them ``fabric``, the bytes that
    the head has sent to the other ranks, which no metrics say.
    """

    running: float
    tokens: float
    kv_use: float | None = None
    longest_prefill_s: float = 0.0
    steps: float = 0.0
    fabric: float | None = None


def parse_progress(text: str) -> Progress | None:
    """Return what vLLM's metrics say of its work, None when this is no vLLM's. Raises :class:`UnknownState` when one of the figures cannot be read."""
    found: dict[str, list[float]] = {name: [] for name in _READ}
    counts: dict[float, float] = {}
    for line in text.splitlines():
        if not line.startswith("vllm:"):
            continue
        match = _SAMPLE.match(line.strip())
        name = match["name"] if match else line.split("{", 1)[0].split(" ", 1)[0]
        if name not in _READ:
            continue
        try:
            value = float(match["value"]) if match else math.nan
            bound = _BOUND.search(line)
            if bound:
                counts[float(bound[1])] = counts.get(float(bound[1]), 0.0) + value
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UnknownState(f"a figure of the metrics cannot be read: {line[:200]!r}", raw=line[:2000])
        found[name].append(value)
    tokens = [value for name in _TOKENS for value in found[name]]
    if not found[_RUNNING] or not tokens:
        return None
    kv_use = max(found[_KV_USE], default=None)
    return Progress(sum(found[_RUNNING]), sum(tokens), kv_use, _longest(counts, sum(found[f"{_PREFILL}_sum"])), sum(found[_STEPS]))


def _longest(counts: t.Mapping[float, float], total_s: float) -> float:
    """Return what no observation of a histogram is above: the bound that holds them all, or all of them together where that is less."""
    whole = max(counts.values(), default=0.0)
    return min([total_s, *(bound for bound, count in counts.items() if count >= whole)])
