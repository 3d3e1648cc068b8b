# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the models and the progress that an OpenAI-like API reports. This module util is PRIVATE to the collection.

Any program may answer: an answer that cannot be parsed means an unknown state, and is shown unchanged.
"""

from __future__ import annotations

import json
import math
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState

#: Most models in a result, and most characters of a name.
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
#: A sample in Prometheus' text format. The rest of an incomplete or damaged line counts as a value that cannot be parsed.
_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)(?P<labels>\{.*\})?\s*(?P<value>\S*)")


def parse_models(body: bytes) -> list[dict[str, t.Any]]:
    """Return ``{id, max_model_len}`` of each model in an answer to ``/v1/models``; the length is None where the engine does not report it.

    Raises :class:`UnknownState` for another shape.
    """
    try:
        entries = json.loads(body)["data"]
        # Ollama without a model answers null.
        return [] if entries is None else [_model(entry["id"], entry.get("max_model_len")) for entry in entries[:MODELS_SHOWN]]
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise UnknownState(f"/v1/models answers in a shape that cannot be read: {error!r}", raw=repr(body[:500])) from error


def _model(name: t.Any, length: t.Any) -> dict[str, t.Any]:
    if not isinstance(name, str):
        raise TypeError(name)
    return {"id": name[:NAME_SHOWN], "max_model_len": length if isinstance(length, int) and not isinstance(length, bool) else None}


def samples(text: str, names: t.Container[str]) -> t.Iterator[tuple[str, str, float]]:
    """Yield (name, labels, value) of each sample of some metrics. Raises :class:`UnknownState` for a value that is not a number of 0 or more."""
    for line in text.splitlines():
        match = _SAMPLE.match(line.strip())
        if match and match["name"] in names:
            try:
                value = float(match["value"])
            except ValueError:
                value = math.nan
            if not (math.isfinite(value) and value >= 0):
                raise UnknownState(f"the value of {match['name']} is {match['value'][:40]!r}", raw=line[:2000])
            yield match["name"], match["labels"] or "", value


def metric(text: str, name: str) -> float | None:
    """Return the sum of a metric's samples, None when it has none."""
    values = [value for _name, _labels, value in samples(text, (name,))]
    return sum(values) if values else None


class Progress(t.NamedTuple):
    """What vLLM's metrics report: requests that run now, tokens (read and written) since the start, the used part of the cache (None where it is not
    reported), an upper bound of the longest prefill so far, in seconds, and the engine's steps since the start. ``fabric`` is the bytes that the head has
    sent to the other ranks, which vLLM's metrics do not have.
    """

    running: float
    tokens: float
    kv_use: float | None = None
    longest_prefill_s: float = 0.0
    steps: float = 0.0
    fabric: float | None = None


def parse_progress(text: str) -> Progress | None:
    """Return the work that vLLM's metrics report, None for metrics of another program. Raises :class:`UnknownState` when a figure cannot be read."""
    values: dict[str, list[float]] = {name: [] for name in _READ}
    counts: dict[float, float] = {}
    for name, labels, value in samples(text, _READ):
        values[name].append(value)
        if bound := _BOUND.search(labels):
            try:
                counts[float(bound[1])] = counts.get(float(bound[1]), 0.0) + value
            except ValueError:
                raise UnknownState(f"the metric {name} has the bound {bound[1][:40]!r}", raw=labels[:2000]) from None
    tokens = [value for name in _TOKENS for value in values[name]]
    if not values[_RUNNING] or not tokens:
        return None
    kv_use = max(values[_KV_USE], default=None)
    return Progress(sum(values[_RUNNING]), sum(tokens), kv_use, _longest(counts, sum(values[f"{_PREFILL}_sum"])), sum(values[_STEPS]))


def _longest(counts: t.Mapping[float, float], total_s: float) -> float:
    """Return an upper bound of a histogram's observations: the lowest bound that covers all, or their sum where that is less."""
    whole = max(counts.values(), default=0.0)
    return min([total_s, *(bound for bound, count in counts.items() if count >= whole)])
