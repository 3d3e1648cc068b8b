# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sizes and numbers in serve arguments, read as the engine reads them. This module util is PRIVATE to the collection.

An argument counts as the engine gets it on its command line, so a number and a text with the same digits are equal. vLLM reads sizes by
``human_readable_int`` (vllm/utils/argparse_utils.py, before that vllm/engine/arg_utils.py): a whole number, one with k, m, g or t for powers of 1000 and
maybe a decimal part, or one with K, M, G or T for powers of 1024 and no decimal part.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError

#: The value for a length of -1 or ``auto``: the longest that the model supports, or that fits in memory.
AUTO = -1

_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kmgtKMGT])")


def size(text: str) -> int:
    """Return a size such as 128k as a number. Raises ValueError for anything else."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return int(text)
    power = "kmgt".index(match[2].lower()) + 1
    return int(match[1]) * 1024**power if match[2].isupper() else int(float(match[1]) * 1000**power)


def length(text: str) -> int:
    """Return a context length in tokens, :data:`AUTO` where the engine determines it. Raises ValueError for anything else."""
    return AUTO if text.strip().lower() in ("auto", "-1") else size(text)


class Kind(t.NamedTuple):
    """The values of an argument: how they are read, which are in range, and both as text."""

    read: t.Callable[[str], float]
    accepts: t.Callable[[float], bool]
    expected: str


_WORDS = "a whole number of 1 or more, also with k, m, g or t (1000s) or K, M, G or T (1024s, without a decimal part)"
_COUNT = Kind(int, lambda number: number >= 1, "a whole number of 1 or more")
_SIZED = Kind(size, lambda number: number >= 1, _WORDS)
_SHARE = Kind(float, lambda number: 0 < number <= 1, "a number above 0, up to 1")
_GIB = Kind(float, lambda number: 0 <= number < float("inf"), "GiB of 0 or more")

#: The numeric arguments that affect memory, by name with underscores.
KINDS = {
    "max_model_len": Kind(length, lambda number: number == AUTO or number >= 1, f"{_WORDS}, or auto"),
    "max_num_batched_tokens": _SIZED,
    "kv_cache_memory_bytes": _SIZED,
    "max_num_seqs": _COUNT,
    "decode_context_parallel_size": _COUNT,
    "gpu_memory_utilization": _SHARE,
    "device_memory_utilization": _SHARE,
    "cpu_offload_gb": _GIB,
    "kv_offloading_size": _GIB,
}
#: Those that accept a size such as 128k.
SIZES = frozenset(name for name, kind in KINDS.items() if kind.read in (size, length))


def read(name: str, value: t.Any) -> t.Any:
    """Return the value of an argument in :data:`KINDS` as the engine reads it, an integer where the engine accepts only integers.

    Raises :class:`ClusterError` with where, what and expected for a value that the engine would refuse.
    """
    kind = KINDS[name]
    try:
        number = kind.read(str(value)) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        number = None
    if number is None or not kind.accepts(number):
        raise ClusterError(f"is {value!r}", where=name, expected=kind.expected, reason="input")
    return number
