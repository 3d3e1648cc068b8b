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

#: Lines of vLLM's metrics that tell progress (docs/usage/metrics of vLLM): requests that run, tokens since the start.
_RUNNING = "vllm:num_requests_running"
_TOKENS = ("vllm:generation_tokens_total", "vllm:prompt_tokens_total")
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
