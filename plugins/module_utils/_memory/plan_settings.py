# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a memory plan is made of: its constants with who measured them, the nodes, and what the engine is asked for. This module util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._arguments import argument_values
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError

GIB = 1024**3
FITS, TIGHT, NO, UNKNOWN = "fits", "tight", "no", "unknown"
#: From best to worst; of several nodes the worst counts.
ORDER = (FITS, TIGHT, UNKNOWN, NO)


class Constant(t.NamedTuple):
    """A number that no config.json has: GiB or a factor, by how much it may be wrong, and who saw it."""

    value: float
    within: float
    source: str


CONSTANTS = {
    "os": Constant(
        4.0, 2.0, "idle Sparks: 3.7 GiB (ThomasKaiser/sbc-bench, Dell FCM1253, 2025-11), 4.7 (minefield, after a cache drop), 8.6 (XuehaiPan/nvitop#208)"
    ),
    "engine_host": Constant(
        5.5,
        3.5,
        "used beyond the engine's own share, less the system: 12.2 of 121.7 GiB (corti.com, Ray, 0.75), 11.1 and 8.3 (Qwen3.8-Flash-Next on one Spark at 0.78 "
        "and 0.80: MiaAI-Lab, tonyd2wild), 12.9 in use when the engine starts (MiaAI-Lab, two Sparks), at most 6.1 (djangodevreng, starts at 0.95)",
    ),
    "engine_start": Constant(3.0, 3.0, "the part of it that is there before the engine looks what is free: the same records, from 2 to 9 GiB"),
    "ray": Constant(1.0, 0.5, "eugr/spark-vllm-docker: without Ray an engine holds less; the object store is 1 GiB in its recipes"),
    "loaded": Constant(
        1.015,
        0.03,
        "loaded against files: 75.03 of 74.80 GiB, 48.5 of 48.07, 22.83 of 22.28, 21.93 of 21.82, 22.84 of 22.63, 64.69 of 66.97 (without its vision part), "
        "on each of two nodes 75.86 of 74.33 and 62.7 to 64.5 of 61.75 (logs of djangodevreng/dgx-spark-benchmarks; MiaAI-Lab)",
    ),
    "workspaces": Constant(
        1.7, 1.0, "a share's rest on small models: 2.2 GiB (Nemotron Nano 4B), 3.0 (Qwen2.5 14B), 3.4 (Qwen3 30B), NGC 26.01 (guardkit/guardkit)"
    ),
    "fabric": Constant(1.0, 0.5, "NCCL's buffers: budget's rest of two-node starts 5.1 to 6.9 GiB against 4.3 to 6.6 on one node (MiaAI-Lab, tonyd2wild)"),
    "vision": Constant(
        2.5, 1.5, "a share's rest of gemma-4-26B at 4096 tokens 8.2 GiB, of its text alone about 4 (djangodevreng/dgx-spark-benchmarks, 2026-06)"
    ),
    "allocator": Constant(
        1.5, 0.5, "activations on record against the arithmetic here: 17.8 GiB at 65536 tokens (Qwen3.6 35B), 14.9 at 32768 (gemma-4-26B), djangodevreng"
    ),
    "graphs": Constant(
        1.0,
        0.7,
        "captured graphs of seven starts took 0.10 to 1.64 GiB (djangodevreng, guardkit). The engine's own estimate, which since 0.21 comes off the cache, was "
        "0.34 to 1.7, and 5.1 where 0.80 was reported to act as 0.758",
    ),
    "graphs_drafter": Constant(0.6, 0.4, "the same starts with a drafter: 1.62 and 1.64 GiB"),
    "unprofiled": Constant(
        3.0,
        3.0,
        "beyond weights, cache and this arithmetic where the cache is pinned: GLM-5.3-Flash 6 GiB cache, 1 GiB left (eugr recipe), 5.5 left (LimeChain); "
        "Qwen3.8-Flash-Next 14 GiB cache, 13.9 left (ursuciprian); DeepSeek-V4.1 2.5 GiB cache, 4.1 and 2.1 left (MiaAI-Lab)",
    ),
    "staging": Constant(1.0, 1.0, "buffers of the loader: nothing measured; InstantTensor's defaults in eugr's recipes hold 3 x 64 MiB and more"),
    "staging_files": Constant(5.0, 3.0, "fastsafetensors takes whole files to the device before it splits them; shards are about 5 GB"),
    "page": Constant(1.05, 0.05, "hybrid models: pages are rounded to the state's size, 0.35 to 0.8 % and whole groups of layers (vLLM's logs)"),
    "reserve": Constant(6.0, 0.0, "TechPreacher/dgx-spark-vllm-cluster warns below 6 GiB; healthy pairs serve for hours with 3.5 to 4.4 (pulsar, sparkring)"),
    "unproven": Constant(
        8.0,
        0.0,
        "MemAvailable was seen to fall from 29 to 6 GiB within 10 s after 550 s of loading (vllm-project/vllm#56824), so the reserve alone is no margin for "
        "what nobody started before",
    ),
    "cuda_end": Constant(
        102.0,
        0.0,
        "of 121.69 GiB, with drivers 580 and 610 alike, headless and with dropped caches, on two installs; other boots of the same kit found 110.4 free "
        "(MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks#47)",
    ),
    "recorded": Constant(
        0.0, 1.0, "a start's own record: memory that came back late or was boosted away, up to 0.87 GiB (report of 2026-10), and what others took meanwhile"
    ),
    "floor": Constant(
        0.0, 0.0, "kits kill the engine below 1 GiB themselves (gb10-services, 0xSero); healthy pairs serve with 3.5, so nothing above nothing is refused"
    ),
}
#: MemTotal in GiB by memory class. 128: 127600748 kB, the usual value (119.6 to 121.7 are on record). 64: in proportion, none was found.
CLASS_TOTAL = {128: 121.69, 64: 60.84}
#: What vLLM takes where a recipe says nothing (vllm/engine/arg_utils.py, 70 GiB and more): releases differ, and some take fewer sequences where the cache holds
#: fewer, so a plan counts with these and never says no for a number of sequences that nobody asked for.
DEFAULTS = {"max_num_batched_tokens": 8192, "max_num_seqs": 1024}
#: The default of gpu_memory_utilization by the first release that has it (vllm/config/cache.py of 0.19.0 and 0.20.0).
DEFAULT_SHARES = {(0,): 0.9, (0, 20): 0.92}
#: By how much the MemTotal of equal Sparks differs: 119.6 to 121.7 GiB are on record.
ALIKE = 0.97
#: Bytes of a value in the KV cache. NVFP4 has one scale of a byte for 16 values.
_KV_BYTES = {"fp8": 1.0, "int8": 1.0, "nvfp4": 0.5625, "fp4": 0.5625, "bfloat16": 2.0, "float16": 2.0, "half": 2.0, "bf16": 2.0, "float32": 4.0}


class Component(t.NamedTuple):
    """A part of a node's memory. ``inside``: of the engine's own share. ``when``: in which of the two figures it counts, ``loading``, ``serving`` or both."""

    id: str
    title: str
    gib: float
    within: float
    when: tuple[str, ...]
    inside: bool
    arithmetic: str
    source: str


BOTH, SERVING, LOADING = ("loading", "serving"), ("serving",), ("loading",)


class Node(t.NamedTuple):
    """A node: its MemTotal; what others hold there by their own word; what was available before the start, or what the engine itself found free at its start,
    where either was measured; what starts of the same image, profile and driver took there, once they had answered and at their peak; and who the others
    are. Where something was measured, ``tenants`` is what they have yet to take."""

    name: str
    total: float
    tenants: float = 0.0
    available: float | None = None
    free_at_start: float | None = None
    took: float | None = None
    peak: float | None = None
    who: str = ""


class Settings(t.NamedTuple):
    """What of a recipe memory follows from. ``seqs`` and ``utilization`` are None where the recipe leaves them to the engine, whose own share is
    ``default_share``. ``unread`` says which values of arguments the engine would not read, so that nobody can plan with them."""

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

    @property
    def share(self) -> float:
        """The part of the whole memory that the engine takes for its own."""
        return self.default_share if self.utilization is None else self.utilization

    @property
    def sequences(self) -> int:
        """How many sequences the engine has at most."""
        return self.seqs or DEFAULTS["max_num_seqs"]

    @property
    def left_to_engine(self) -> bool:
        """Whether nothing but the engine's own default says how much memory it takes."""
        return self.utilization is None and self.kv_bytes is None


class Report(t.NamedTuple):
    """A recipe that was reported to run: its settings, GiB of its weights on a rank, its nodes' MemTotal and what others held there, and who says so."""

    use: Settings
    weights: float
    total: float
    tenants: float
    source: str


def kv_value_bytes(dtype: t.Any, facts: t.Mapping[str, t.Any]) -> float:
    """Return the bytes of one value of the KV cache: of ``kv_cache_dtype``, for ``auto`` what the checkpoint brings, else 16 bits."""
    name = str(dtype or "auto").lower()
    found = next((size for start, size in _KV_BYTES.items() if name.startswith(start)), None)
    return found if found is not None else (facts.get("kv_cache_bits") or 16) / 8


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

    ``draft_gib`` is what a drafter with weights of its own takes on disk; ``draft_in_weights``: what a profile declares holds it already. Without
    ``max_model_len`` (or with ``auto`` or -1) the model's own length counts. ``default_share`` is that of the image's vLLM.
    """
    said, unread = _read(serve)
    spec = serve.get("speculative_config")
    spec = spec if isinstance(spec, dict) else {}
    drafts = spec.get("num_speculative_tokens")
    length = said.get("max_model_len", argument_values.AUTO)
    graphs = serve.get("compilation_config")
    mode = str(graphs.get("cudagraph_mode") or "").upper() if isinstance(graphs, dict) else ""
    tensor = _int(parallel.get("tensor")) or 1
    return Settings(
        tensor=tensor,
        pipeline=_int(parallel.get("pipeline")) or 1,
        data=_int(parallel.get("data")) or 1,
        context_ranks=said.get("decode_context_parallel_size", 1),
        expert=bool(parallel.get("expert") or serve.get("enable_expert_parallel")),
        ray=ray,
        context=context or (length if length != argument_values.AUTO else _int(facts.get("max_position_embeddings"))) or 8192,
        seqs=seqs or said.get("max_num_seqs"),
        batched=said.get("max_num_batched_tokens", DEFAULTS["max_num_batched_tokens"]),
        utilization=said.get("gpu_memory_utilization", said.get("device_memory_utilization")),
        default_share=default_share,
        kv_bytes=said.get("kv_cache_memory_bytes"),
        kv_value=kv_value_bytes(serve.get("kv_cache_dtype"), facts),
        drafts=(_int(drafts) or 1) if spec and str(spec.get("method")) != "ngram" else 0,
        draft_gib=draft_gib,
        draft_split=_int(spec.get("draft_tensor_parallel_size")) not in (1, None) or "mtp" in str(spec.get("method")),
        own_draft=bool(spec) and not spec.get("model") and str(spec.get("method")) != "ngram",
        unsized_draft=bool(spec.get("model")) and not draft_gib and not draft_in_weights,
        graphs=not serve.get("enforce_eager") and mode != "NONE",
        vision=bool(facts.get("multimodal")) and not serve.get("language_model_only") and not serve.get("skip_mm_profiling"),
        online_fp8=str(serve.get("quantization")) == "fp8" and facts.get("weights_bits") == 16,
        loader=str(serve.get("load_format") or "auto"),
        pinned_gib=said.get("cpu_offload_gb", 0.0) + said.get("kv_offloading_size", 0.0),
        recorded=recorded,
        unread=unread,
    )


def _read(serve: t.Mapping[str, t.Any]) -> tuple[dict[str, t.Any], tuple[str, ...]]:
    """Return the numbers among arguments as the engine reads them, and a sentence for each that it would not."""
    said, unread = {}, []
    for name in argument_values.KINDS:
        if serve.get(name) is None:
            continue
        try:
            said[name] = argument_values.read(name, serve[name])
        except ClusterError as error:
            unread.append(str(error))
    return said, tuple(unread)


def _int(value: t.Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
