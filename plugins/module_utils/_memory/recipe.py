# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of a recipe from which memory follows, as the engine would read them. This module util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._arguments import argument_values
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError

#: vLLM's defaults (vllm/engine/arg_utils.py, 70 GiB and more): releases differ, and some take fewer sequences where the cache holds
#: fewer, so a plan uses these and never refuses because of a number of sequences that was not requested.
DEFAULTS = {"max_num_batched_tokens": 8192, "max_num_seqs": 1024}
#: Steps that run at once: with asynchronous scheduling, vLLM's default, the next one is scheduled while one runs, and a sliding layer keeps room for both
#: (VllmConfig.max_in_flight_tokens of 0.26.0; a start of gpt-oss with it). Earlier releases kept room for one, so this errs to the safe side there.
STEPS = 2
#: The default of gpu_memory_utilization by the first release that has it (vllm/config/cache.py of 0.19.0 and 0.20.0).
DEFAULT_SHARES = {(0,): 0.9, (0, 20): 0.92}

#: Bytes of a value in the KV cache. NVFP4 has one scale of a byte for 16 values.
_KV_BYTES = {"fp8": 1.0, "int8": 1.0, "nvfp4": 0.5625, "fp4": 0.5625, "bfloat16": 2.0, "float16": 2.0, "half": 2.0, "bf16": 2.0, "float32": 4.0}


class Settings(t.NamedTuple):
    """The settings of a recipe from which memory follows. ``seqs`` and ``utilization`` are None where the recipe leaves them to the engine, whose own share is
    ``default_share``. ``unread`` names the values of arguments that the engine would not read, so there is no plan with them."""

    tensor: int
    pipeline: int
    data: int
    context_ranks: int
    expert: bool
    ray: bool
    context: int
    seqs: int | None
    batched: int
    utilization: float | None
    default_share: float
    kv_bytes: int | None
    kv_value: float
    drafts: int
    draft_gib: float
    draft_split: bool
    own_draft: bool
    unsized_draft: bool
    graphs: bool
    vision: bool
    online_fp8: bool
    loader: str
    pinned_gib: float
    recorded: bool
    unread: tuple[str, ...]
    steps: int = STEPS
    one_layer_draft: bool = False

    @property
    def share(self) -> float:
        """The engine's share of the whole memory."""
        return self.default_share if self.utilization is None else self.utilization

    @property
    def sequences(self) -> int:
        """The maximum number of sequences of the engine."""
        return self.seqs or DEFAULTS["max_num_seqs"]

    @property
    def left_to_engine(self) -> bool:
        """Whether only the engine's own default decides how much memory it takes."""
        return self.utilization is None and self.kv_bytes is None


class Report(t.NamedTuple):
    """A recipe that was reported to run: its settings, GiB of its weights on a rank, its nodes' MemTotal, the memory of others there, and the source."""

    use: Settings
    weights: float
    total: float
    tenants: float
    source: str


def kv_value_bytes(dtype: t.Any, facts: t.Mapping[str, t.Any]) -> float:
    """Return the bytes of one value of the KV cache: by ``kv_cache_dtype``, for ``auto`` by the checkpoint, else 16 bits."""
    name = str(dtype or "auto").lower()
    return next((size for start, size in _KV_BYTES.items() if name.startswith(start)), (facts.get("kv_cache_bits") or 16) / 8)


def settings_of(
    serve: t.Mapping[str, t.Any],
    parallel: t.Mapping[str, t.Any],
    facts: t.Mapping[str, t.Any],
    *,
    ray: bool = False,
    draft_gib: float = 0.0,
    draft_in_weights: bool = False,
    context: int | None = None,
    seqs: int | None = None,
    recorded: bool = False,
    default_share: float = max(DEFAULT_SHARES.values()),
) -> Settings:
    """Return the settings of a recipe. ``serve`` are arguments of ``vllm serve`` in snake case; ``context`` and ``seqs`` win over them.

    ``draft_gib`` is the size on disk of a drafter with its own weights; ``draft_in_weights``: a profile's declared size already includes it. Without
    ``max_model_len`` (or with ``auto`` or -1) the model's own length counts. ``default_share`` is that of the image's vLLM.
    """
    numbers, unread = _read(serve)
    spec = serve.get("speculative_config")
    spec = spec if isinstance(spec, dict) else {}
    drafts = spec.get("num_speculative_tokens")
    length = numbers.get("max_model_len", argument_values.AUTO)
    graphs = serve.get("compilation_config")
    mode = str(graphs.get("cudagraph_mode") or "").upper() if isinstance(graphs, dict) else ""
    tensor = _int(parallel.get("tensor")) or 1
    return Settings(
        tensor=tensor,
        pipeline=_int(parallel.get("pipeline")) or 1,
        data=_int(parallel.get("data")) or 1,
        context_ranks=numbers.get("decode_context_parallel_size", 1),
        expert=bool(parallel.get("expert") or serve.get("enable_expert_parallel")),
        ray=ray,
        context=context or (length if length != argument_values.AUTO else _int(facts.get("max_position_embeddings"))) or 8192,
        seqs=seqs or numbers.get("max_num_seqs"),
        batched=numbers.get("max_num_batched_tokens", DEFAULTS["max_num_batched_tokens"]),
        utilization=numbers.get("gpu_memory_utilization", numbers.get("device_memory_utilization")),
        default_share=default_share,
        kv_bytes=numbers.get("kv_cache_memory_bytes"),
        kv_value=kv_value_bytes(serve.get("kv_cache_dtype"), facts),
        drafts=(_int(drafts) or 1) if spec and str(spec.get("method")) != "ngram" else 0,
        draft_gib=draft_gib,
        draft_split=_int(spec.get("draft_tensor_parallel_size")) not in (1, None) or "mtp" in str(spec.get("method")),
        one_layer_draft=bool(spec.get("model")) and str(spec.get("method")).startswith("eagle"),
        own_draft=bool(spec) and not spec.get("model") and str(spec.get("method")) != "ngram",
        unsized_draft=bool(spec.get("model")) and not draft_gib and not draft_in_weights,
        graphs=not serve.get("enforce_eager") and mode != "NONE",
        vision=bool(facts.get("multimodal")) and not serve.get("language_model_only") and not serve.get("skip_mm_profiling"),
        online_fp8=str(serve.get("quantization")) == "fp8" and facts.get("weights_bits") == 16,
        loader=str(serve.get("load_format") or "auto"),
        pinned_gib=numbers.get("cpu_offload_gb", 0.0) + numbers.get("kv_offloading_size", 0.0),
        recorded=recorded,
        unread=unread,
        steps=1 if serve.get("async_scheduling") is False or serve.get("no_async_scheduling") else STEPS,
    )


def _read(serve: t.Mapping[str, t.Any]) -> tuple[dict[str, t.Any], tuple[str, ...]]:
    """Return the numbers among arguments as the engine reads them, and a sentence for each value that it would refuse."""
    numbers, unread = {}, []
    for name in argument_values.KINDS:
        if serve.get(name) is None:
            continue
        try:
            numbers[name] = argument_values.read(name, serve[name])
        except ClusterError as error:
            unread.append(str(error))
    return numbers, tuple(unread)


def _int(value: t.Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
