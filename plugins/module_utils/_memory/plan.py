# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a model takes of each node's memory, while it loads and while it serves. This module util is PRIVATE to the collection.

One formula, pure, with nothing but Python's standard library, so that a node and the controller get the same answer. Everything is in GiB a node
unless a name says otherwise. A node runs one rank of the engine. Every figure comes with what it may be wrong by, as plus or minus; those of independent
parts add up as the root of their squares.

What the engine does with its two settings for memory (vLLM, gpu_worker.py):

- ``gpu_memory_utilization``: the engine measures weights, activations and graphs in a profiling run and gives the KV cache what is left of that share
  of the whole memory. It refuses to start when less than the share is free at the start, or when one sequence of ``max_model_len`` does not fit the cache.
- ``kv_cache_memory_bytes``: the cache gets exactly that. The share stays a check at the start and is no budget any more, profiling is skipped, and
  nothing holds back what weights, activations and the rest take on top. Starts with it were reported to die in the middle of a request
  (eugr/spark-vllm-docker, recipe copies of 2026-09-22), so it is never more than ``tight`` until a start of the same image, profile and driver is on record.

A node that runs out of unified memory freezes, and nobody can log in to see why. So ``no`` is said where the worst case leaves less than nothing, unless a
start is on record, be it the node's own or a recipe that was reported to run and asks for no less (:class:`Report`).
"""

from __future__ import annotations

import math
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._arguments import argument_values
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._memory import model_facts

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


# -- KV cache and state ------------------------------------------------------------------------------------------------


def kv_parts(facts: t.Mapping[str, t.Any], use: Settings) -> list[tuple[str, float, str]]:
    """Return (kind, bytes of one sequence of ``use.context`` tokens on one rank, arithmetic) for each kind of layer.

    Heads are split over tensor ranks, but each rank has one at least. Latent rows are on every rank. Both are split over ranks of a context group. A sliding
    layer keeps its window and what one step brings, never more than the sequence. The draft layer of MTP is one of full attention (or latent) more.
    """
    tokens, value, stages = use.context, use.kv_value, use.pipeline
    if facts.get("kv_bytes_per_token"):
        each = facts["kv_bytes_per_token"] / use.context_ranks
        return [("stated", each * tokens, f"{each:g} B a token and rank, as stated, x {tokens} tokens")]
    parts = []
    draft = (facts.get("draft_layers") or 1) if use.own_draft else 0
    heads, width = facts.get("num_key_value_heads") or 0, facts.get("head_dim") or 0
    full = model_facts.plain_layers(facts)
    if full:
        of_full, of_width = facts.get("global_num_key_value_heads") or heads, facts.get("global_head_dim") or width
        layers, mine = -(-full // stages) + draft, max(1, -(-of_full // use.tensor))
        size = 2 * layers * mine * of_width * value * tokens / use.context_ranks
        amount = f"({-(-full // stages)} + {draft} of the drafter)" if draft else str(full if stages == 1 else -(-full // stages))
        parts.append(("full", size, f"2 x {amount} layers x {mine} head(s) x {of_width} x {value:g} B x {tokens} tokens{_over(use)}"))
    sliding = facts.get("sliding_layers") or 0
    if sliding:
        kept, mine = min(tokens, (facts.get("sliding_window") or 0) + use.batched), max(1, -(-heads // use.tensor))
        layers = -(-sliding // stages)
        window = f"{kept} tokens (window {facts.get('sliding_window')} + {use.batched} of a step)"
        arithmetic = f"2 x {layers} layers x {mine} head(s) x {width} x {value:g} B x {window}"
        parts.append(("sliding", 2 * layers * mine * width * value * kept, arithmetic))
    for row in model_facts.latent(facts):
        layers = -(-row["layers"] // stages) + (draft if not row["window"] else 0)
        kept = min(tokens, row["window"]) if row["window"] else tokens / row["ratio"] / use.context_ranks
        ratio = f" / {row['ratio']}" if row["ratio"] > 1 else ""
        kind = "window" if row["window"] else "latent"
        words = f"{kept:g} tokens of the window" if row["window"] else f"{tokens} tokens{ratio}{_over(use)}"
        parts.append((kind, layers * row["width"] * value * kept, f"{layers} layers x {row['width']} x {value:g} B x {words}, on every rank"))
    return parts


def _over(use: Settings) -> str:
    return f" / {use.context_ranks} ranks of the context" if use.context_ranks > 1 else ""


def kv_bytes(facts: t.Mapping[str, t.Any], use: Settings) -> float:
    """Return the bytes of one sequence of ``use.context`` tokens in one rank's KV cache, without the constant state."""
    return sum(size for _kind, size, _arithmetic in kv_parts(facts, use))


def state_bytes(facts: t.Mapping[str, t.Any], use: Settings) -> float:
    """Return the bytes of constant state that one sequence has on one rank. Each draft token keeps a state of its own (vLLM's speculative blocks)."""
    return (model_facts.state_bytes(facts) or 0) / use.tensor / use.pipeline * (1 + use.drafts)


# -- components --------------------------------------------------------------------------------------------------------


def _constant(name: str, title: str, when: tuple[str, ...], inside: bool) -> Component:
    one = CONSTANTS[name]
    return Component(name, title, one.value, one.within, when, inside, f"{one.value:g}", one.source)


def outside(use: Settings, node: Node) -> list[Component]:
    """Return what is in use beside the engine's own share."""
    parts = []
    if node.free_at_start is not None:
        used = node.total - node.free_at_start
        found = f"{node.total:g} - {node.free_at_start:g} that the engine found free"
        parts.append(Component("os", "system and engine processes", used, 0.5, BOTH, False, found, "the engine's own word on this node"))
    else:
        if node.available is not None:
            found = f"{node.total:g} - {node.available:g} available before the start"
            parts.append(Component("os", "system and others", node.total - node.available, 0.5, BOTH, False, found, "measured on this node"))
        else:
            parts.append(_constant("os", "system", BOTH, False))
        parts.append(_constant("engine_host", "engine's processes and driver", BOTH, False))
    if node.tenants:
        parts.append(Component("tenants", "others, as declared", node.tenants, 0.0, BOTH, False, node.who or f"{node.tenants:g}", "declared for this node"))
    if use.ray:
        parts.append(_constant("ray", "Ray", BOTH, False))
    if use.pinned_gib:
        asked = "cpu_offload_gb, kv_offloading_size"
        parts.append(Component("pinned", "pinned host memory", use.pinned_gib, 0.0, SERVING, False, f"{use.pinned_gib:g}", asked))
    return parts


def weights(facts: t.Mapping[str, t.Any], use: Settings, declared: float | None) -> list[Component]:
    """Return what the weights take on one rank; ``declared`` is what a profile says that a node loads, drafters with it, used where the facts say nothing.

    Raises ValueError when neither says: :func:`plan` looks for that first.
    """
    ranks = use.tensor * use.pipeline * (use.data if use.expert else 1)
    spare = CONSTANTS["loaded"]
    known = model_facts.weights_bytes(facts)
    if facts.get("weights_gib_per_rank"):
        size, arithmetic, source, factor = facts["weights_gib_per_rank"], f"{facts['weights_gib_per_rank']:g}, as loaded", "the engine's own word", 1.0
    elif known is not None:
        factor, size = spare.value, known[0] / ranks / GIB * spare.value
        arithmetic = f"({known[1]}) / {ranks} rank(s) x {spare.value:g}"
        source = f"{facts.get('source') or 'the facts of the model'}; {spare.source}"
    elif declared is not None:
        size, arithmetic, source, factor = declared, f"{declared:.4g}, as the profile declares", "memory.weights_gb of the profile", 1.0
    else:
        raise ValueError("no size of the weights")
    within = size * spare.within
    found = []
    if use.online_fp8:
        # Loaded in 16 bits and made 8 afterwards; embeddings and head stay.
        plain = 4 * (facts.get("vocab_size") or 0) * facts["hidden_size"] / ranks / GIB * factor
        later = (size - plain) / 2 + plain
        found.append(Component("weights_read", "weights before FP8", size - later, within / 2, LOADING, True, f"{size - later:.2f} become free", source))
        size, arithmetic = later, f"{arithmetic}, all but embeddings halved by FP8 at run time"
    found.insert(0, Component("weights", "weights", size, within, BOTH, True, arithmetic, source))
    if use.draft_gib:
        split = use.tensor if use.draft_split else 1
        mine = use.draft_gib / split * spare.value
        words = f"{use.draft_gib:.2f} / {split} rank(s) x {spare.value:g}"
        found.append(Component("drafter", "drafter", mine, mine * spare.within, BOTH, True, words, "the size of its repository"))
    return found


def activation(facts: t.Mapping[str, t.Any], use: Settings) -> Component:
    """Return the peak of activations in a step of ``use.batched`` tokens, and of the sampler.

    A token has, in 16 bits: about 12 rows of the model's width that live at once (residual, norms, projections in and out), the inputs and outputs of its
    experts or of the MLP, and queries, keys and values twice. What tensor ranks split is split. Logits are 32 bits for each sequence (and draft), twice.
    """
    width = facts["hidden_size"]
    if facts.get("num_experts"):
        inner = (facts.get("num_experts_per_tok") or 8) * (
            2 * (facts.get("moe_intermediate_size") or width) // use.tensor + (facts.get("moe_latent_size") or width)
        )
    else:
        inner = 2 * (facts.get("intermediate_size") or 4 * width) // use.tensor
    heads = (facts.get("num_attention_heads") or 0) + 2 * (facts.get("num_key_value_heads") or 0)
    attention = 2 * heads * (facts.get("head_dim") or 128) // use.tensor
    rows = min(use.sequences, DEFAULTS["max_num_seqs"]) * (1 + use.drafts)
    logits = 2 * 4 * rows * (facts.get("vocab_size") or 0) / GIB
    factor = CONSTANTS["allocator"]
    step = use.batched * 2 * (12 * width + inner + attention) / GIB
    size = step * factor.value + logits
    arithmetic = f"{use.batched} tokens x 2 B x ({12 * width} + {inner} + {attention}) values x {factor.value:g} + {rows} rows of logits"
    return Component("activation", "activations", size, step * factor.within + logits / 2, SERVING, True, arithmetic, factor.source)


def fixed(facts: t.Mapping[str, t.Any], use: Settings, declared: float | None) -> list[Component]:
    """Return what the engine takes of its own share before the KV cache."""
    parts = [*weights(facts, use, declared), activation(facts, use), _constant("workspaces", "workspaces", SERVING, True)]
    if use.tensor * use.pipeline * use.data > 1:
        parts.append(_constant("fabric", "NCCL", BOTH, True))
    if use.vision:
        parts.append(_constant("vision", "images and video", SERVING, True))
    if use.graphs:
        graphs, more = CONSTANTS["graphs"], CONSTANTS["graphs_drafter"]
        size, within = (graphs.value + more.value, _root(graphs.within, more.within)) if use.drafts else (graphs.value, graphs.within)
        words = f"{graphs.value:g} + {more.value:g} of the drafter" if use.drafts else f"{graphs.value:g}"
        parts.append(Component("graphs", "CUDA graphs", size, within, SERVING, True, words, graphs.source))
    if use.kv_bytes is not None:
        parts.append(_constant("unprofiled", "not profiled", SERVING, True))
    return parts


def _root(*values: float) -> float:
    return math.sqrt(sum(value * value for value in values))


def _sum(parts: t.Iterable[Component]) -> tuple[float, float]:
    parts = list(parts)
    return sum(one.gib for one in parts), _root(*(one.within for one in parts))


# -- one node ----------------------------------------------------------------------------------------------------------


def node_plan(
    facts: t.Mapping[str, t.Any], use: Settings, node: Node, declared: float | None, concurrency: int, reports: t.Sequence[Report] = ()
) -> dict[str, t.Any]:
    """Return the plan of one node: components, the two figures, verdict and reasons. ``concurrency`` whole sequences are wanted in the cache at once."""
    beside, own = outside(use, node), fixed(facts, use, declared)
    out, out_within = _sum(beside)
    inner, inner_within = _sum(one for one in own if "serving" in one.when)
    page = CONSTANTS["page"] if model_facts.state_bytes(facts) else Constant(1.0, 0.0, "")
    one, state = kv_bytes(facts, use) / GIB * page.value, state_bytes(facts, use) / GIB * page.value
    seqs = use.sequences
    # One whole sequence has to fit, and each sequence needs a block of state; the two share the blocks, so the larger is the least.
    least = max(one + state, (use.seqs or 1) * state / (1 + use.drafts))
    easy = one + seqs * state
    if use.kv_bytes is not None:
        pool, pool_within = use.kv_bytes / GIB, 0.1 * least
    else:
        pool, pool_within = use.share * node.total - inner, inner_within
    taken = max(pool, least, 0.0)
    serving = out + inner + taken
    within = _root(out_within, inner_within) if use.kv_bytes is not None or pool < least else out_within
    load, load_within = _sum(part for part in [*beside, *own] if "loading" in part.when)
    staging = CONSTANTS["staging_files" if use.loader == "fastsafetensors" else "staging"]
    load, load_within = load + staging.value, _root(load_within, staging.within)
    recorded = []
    more, serving, within = _recorded(node, node.took, serving, within)
    if more:
        recorded.append(_more(node.took or 0.0, more, "recorded", SERVING))
    more, load, load_within = _recorded(node, node.peak, load, load_within)
    if more:
        recorded.append(_more(node.peak or 0.0, more, "recorded_peak", LOADING))
    files = model_facts.weights_bytes(facts)
    cache = max(0.0, min((files[0] / GIB if files else load), node.total - load))
    result: dict[str, t.Any] = {
        "node": node.name,
        "total_gib": node.total,
        "loading": _figure(node, load, load_within, page_cache_gib=round(cache, 2), driver_sees_gib=round(min(node.total, load + cache), 2)),
        "serving": _figure(node, serving, within),
        "pool_gib": round(pool, 2),
        "one_sequence_gib": round(one + state, 3),
        "sequences": max(0, int(pool / (one + state))) if one + state > 0 else None,
        "at_start": _at_start(use, node),
        "reported": reported(use, weights_gib(facts, use, declared), node, reports),
    }
    of = _Parts(own[0].gib, out, out_within, inner, pool, pool_within, least, easy, one, state, load, load_within)
    verdict, reasons = _judged(facts, use, node, of, result)
    title = f"KV cache of {concurrency} x {use.context} tokens"
    if concurrency > 1 and pool < concurrency * (one + state):
        verdict = _worse(verdict, TIGHT)
        held = max(0.0, pool / (one + state))
        title = f"KV cache, part of {concurrency} x {use.context} tokens"
        reasons.append(f"the cache holds {held:.1f} of {concurrency} sequences of {use.context} tokens at once; others wait or are computed again")
    kept = min(max(taken, 0.0), concurrency * one)
    states = min(max(taken - kept, 0.0), seqs * state)
    words = "; ".join(arithmetic for _kind, _size, arithmetic in kv_parts(facts, use))
    source = facts.get("source") or "the facts of the model"
    cache_parts = [Component("kv", title, kept, kept * page.within, SERVING, True, words or "none", source)]
    if state:
        per = f"{seqs} sequences x {state:.4f}"
        cache_parts.append(Component("state", "constant state", states, states * page.within, SERVING, True, per, source))
    rest = max(0.0, taken - kept - states)
    why = f"{use.kv_bytes} B" if use.kv_bytes is not None else f"{use.share:g} x {node.total:g} - {inner:.2f} of all the engine's own"
    cache_parts.append(Component("pool", "rest of the KV cache", rest, 0.0, SERVING, True, why, "as the engine is told"))
    loader = Component("staging", "loader", staging.value, staging.within, LOADING, True, f"{staging.value:g}", staging.source)
    seen = Component("page_cache", "page cache, given back when it is needed", cache, 0.0, LOADING, False, "the files, as far as there is room", "Linux")
    parts = [*beside, *own, *cache_parts, *recorded, loader, seen]
    result["components"] = [_shown(part) for part in parts if part.gib > 0]
    room = node.total - CONSTANTS["reserve"].value - _root(out_within, inner_within) - out - inner
    room -= 0 if use.kv_bytes is not None else CONSTANTS["unprofiled"].value
    # Up to the next quarter of a GiB, and what a cache in bytes may be short of by: a smaller one would be tight by this very plan.
    wanted = max(easy, concurrency * one + seqs * state) + 0.1 * least
    quarters = min(math.floor(room * 4), max(1, math.ceil(wanted * 4)))
    result["propose_kv_cache_memory_bytes"] = quarters * GIB // 4 if room >= least and quarters > 0 else None
    return {**result, "verdict": verdict, "reasons": reasons}


def _recorded(node: Node, took: float | None, planned: float, within: float) -> tuple[float, float, float]:
    """Return (GiB more than planned, GiB in use, by how much that may be wrong): the larger of plan and record, with the worse of their worst cases."""
    if took is None:
        return 0.0, planned, within
    before = node.total - node.available if node.available is not None else CONSTANTS["os"].value
    used = before + node.tenants + took
    if used <= planned:
        return 0.0, planned, within
    return used - planned, used, max(CONSTANTS["recorded"].within, planned + within - used)


def _more(took: float, more: float, name: str, when: tuple[str, ...]) -> Component:
    source = CONSTANTS["recorded"]
    return Component(name, "more than planned, by the record", more, source.within, when, False, f"a start on record took {took:.2f}", source.source)


class _Parts(t.NamedTuple):
    """What a verdict is made of; see :func:`node_plan`."""

    weights: float
    out: float
    out_within: float
    inner: float
    pool: float
    pool_within: float
    least: float
    easy: float
    one: float
    state: float
    load: float
    load_within: float


def _figure(node: Node, used: float, within: float, **more: float) -> dict[str, float]:
    return {"used_gib": round(used, 2), "within_gib": round(within, 2), "available_gib": round(node.total - used, 2), **more}


def _shown(part: Component) -> dict[str, t.Any]:
    return {**part._asdict(), "gib": round(part.gib, 3), "within": round(part.within, 3), "when": list(part.when)}


def _worse(first: str, second: str) -> str:
    return max(first, second, key=ORDER.index)


def _judged(facts: t.Mapping[str, t.Any], use: Settings, node: Node, of: _Parts, result: t.Mapping[str, t.Any]) -> tuple[str, list[str]]:
    """Return the verdict of a node and why.

    ``no`` where even the best case fails, and while no start is on record also where the worst case leaves less than nothing or the share is left to the
    engine. ``fits`` where the worst case leaves the margin; with a start of its own on record, where it leaves anything at all.
    """
    floor = CONSTANTS["floor"].value
    noes, risks, doubts = [], [], []
    serving, loading, start = result["serving"], result["loading"], result["at_start"]
    left = f"{serving['available_gib']:.1f} +/- {serving['within_gib']:.1f}"
    worst = node.total - serving["used_gib"] - serving["within_gib"]
    # The budget alone, and with what one sequence needs beyond it: each may be more than there is.
    budgets = [(of.out + of.inner + max(of.pool, 0.0), of.out_within), (serving["used_gib"], serving["within_gib"])]
    text = f"{serving['used_gib']:.1f} GiB would be in use while it serves, {left} left of {node.total:g}"
    if any(node.total - used + within < floor for used, within in budgets):
        noes.append(text)
    elif worst < floor:
        risks.append(text)
    elif worst < CONSTANTS["unproven"].value and not use.recorded:
        doubts.append(f"{left} GiB stay available while it serves, {CONSTANTS['unproven'].value:g} are wanted until a start is on record")
    text = f"{loading['available_gib']:.1f} +/- {of.load_within:.1f} GiB are left of {node.total:g} once the weights are loaded"
    if node.total - of.load + of.load_within < floor:
        noes.append(text)
    elif node.total - of.load - of.load_within < floor:
        risks.append(text)
    elif node.total - of.load - of.load_within < CONSTANTS["reserve"].value / 2 and not use.recorded:
        doubts.append(text)
    wanted = f"at its start the engine wants {start['wanted_gib']:.1f} GiB free ({use.share:g} of {node.total:g})"
    text = f"{wanted} and would find {start['free_gib']:.1f} +/- {start['within_gib']:.1f}"
    if start["wanted_gib"] > start["free_gib"] + start["within_gib"]:
        noes.append(text)
    elif start["wanted_gib"] > start["free_gib"] - start["within_gib"] and not use.recorded:
        doubts.append(text)
    elif start["cuda_gib"] is not None and start["wanted_gib"] > start["cuda_gib"] and not use.recorded:
        doubts.append(f"{wanted}, and CUDA's own free memory was reported to end near {start['cuda_gib']:.0f}, whatever MemAvailable says")
    what = f"one sequence of {use.context} tokens takes {of.one + of.state:.2f} GiB"
    if use.seqs and of.least > of.one + of.state:
        what = f"the state of {use.seqs} sequences takes {of.least:.2f} GiB"
    if of.pool + of.pool_within < of.least:
        noes.append(f"the engine would refuse: {what} and the KV cache has {of.pool:.2f} +/- {of.pool_within:.2f}{_left(use, node, of)}")
    elif of.pool - of.pool_within < of.easy:
        text = what if of.pool - of.pool_within < of.least else f"one sequence and the state of {_seqs(use)} take {of.easy:.2f} GiB"
        doubts.append(f"{text} and the KV cache has {of.pool:.2f} +/- {of.pool_within:.2f} GiB")
    mapped = facts.get("file_backed_gib") or 0
    if mapped and serving["available_gib"] < mapped:
        doubts.append(f"{mapped:g} GiB of tables are read from a mapped file, and only {serving['available_gib']:.1f} GiB are left for its pages")
    if use.kv_bytes is not None and not use.recorded:
        doubts.append("kv_cache_memory_bytes skips profiling, so nothing bounds what comes on top: wants a recorded start of this image, profile and driver")
    if use.unsized_draft and not use.recorded:
        doubts.append("how large the drafter is is not known: give its repository a size_gb")
    shared = f"gpu_memory_utilization is left to the engine, and its {use.default_share:g} is made for memory that the system does not share"
    unbounded = [shared] if use.left_to_engine else []
    if noes or ((risks or unbounded) and not (use.recorded or result["reported"])):
        could = max(0.0, node.total - of.out - of.inner)
        rest = (
            f"the weights take {of.weights:.1f} GiB and leave {node.total - of.weights:.1f}, of which the KV cache could have {could:.1f} "
            f"+/- {serving['within_gib']:.1f}"
        )
        return NO, [*noes, *risks, *unbounded, *([rest] if noes or risks else []), *doubts]
    doubts = [*risks, *unbounded, *doubts]
    if doubts and result["reported"]:
        doubts.append(f"it is reported to run: {result['reported']}")
    return (TIGHT, doubts) if doubts else (FITS, [])


def _seqs(use: Settings) -> str:
    return f"{use.seqs} sequences" if use.seqs else f"{use.sequences} sequences (max_num_seqs is left to the engine)"


def _left(use: Settings, node: Node, of: _Parts) -> str:
    """Say what share and own parts leave, where that is the reason."""
    if use.kv_bytes is not None:
        return " GiB, as pinned"
    return f" GiB: {use.share:g} of {node.total:g} GiB less {of.inner:.1f} for weights, activations and graphs"


def _at_start(use: Settings, node: Node) -> dict[str, float | None]:
    """Return what the engine's own check at its start wants free and would find, and where CUDA's own free memory was reported to end.

    The latter is None for a node of another size than those, and for one whose engine said itself what it finds.
    """
    system, engine, end = CONSTANTS["os"], CONSTANTS["engine_start"], CONSTANTS["cuda_end"]
    if node.free_at_start is not None:
        free, within = node.free_at_start, 0.3
    elif node.available is not None:
        free, within = node.available - engine.value - node.tenants, engine.within
    else:
        free, within = node.total - system.value - engine.value - node.tenants, _root(system.within, engine.within)
    alike = ALIKE <= node.total / CLASS_TOTAL[128] <= 1 / ALIKE and node.free_at_start is None
    cuda = round(min(free, end.value * node.total / CLASS_TOTAL[128]), 2) if alike else None
    return {"wanted_gib": round(use.share * node.total, 2), "free_gib": round(free, 2), "within_gib": round(within, 2), "cuda_gib": cuda}


# -- recipes that run --------------------------------------------------------------------------------------------------


def weights_gib(facts: t.Mapping[str, t.Any], use: Settings, declared: float | None) -> float:
    """Return the GiB that one rank loads, drafter and what becomes free afterwards with it."""
    return sum(part.gib for part in weights(facts, use, declared))


def reported(use: Settings, loads: float, node: Node, reports: t.Iterable[Report]) -> str:
    """Return who reported a recipe to run that takes no less of a node that has no more, empty without one. ``loads`` as :func:`weights_gib`.

    On a node with more in use than an idle one a report says nothing, unless what is in use is what others held there, too.
    """
    idle = CONSTANTS["os"]
    if node.free_at_start is not None or (node.available is not None and node.total - node.available > idle.value + idle.within):
        return ""
    for one in reports:
        fits = node.total >= ALIKE * one.total and node.tenants <= one.tenants and loads <= one.weights / ALIKE
        if fits and _takes_no_more(use, one.use):
            return one.source
    return ""


def _takes_no_more(use: Settings, than: Settings) -> bool:
    """Return whether settings take no more of a node than others do, as far as every one of them tells by itself."""
    same = ("tensor", "pipeline", "data", "context_ranks", "own_draft", "draft_split")
    most = ("context", "sequences", "batched", "kv_value", "drafts", "graphs", "vision", "ray", "online_fp8", "pinned_gib", "unsized_draft")
    if any(getattr(use, name) != getattr(than, name) for name in same) or any(getattr(use, name) > getattr(than, name) for name in most):
        return False
    if use.loader == "fastsafetensors" != than.loader:
        return False
    if use.kv_bytes is None or than.kv_bytes is None:
        return use.kv_bytes is than.kv_bytes and use.share <= than.share
    return use.kv_bytes <= than.kv_bytes


# -- the plan ----------------------------------------------------------------------------------------------------------


def lacking(facts: t.Mapping[str, t.Any], declared: float | None) -> list[str]:
    """Return what is wrong with the facts, or what they lack for a plan; ``declared`` as a profile says of the weights, None where it does not."""
    return model_facts.faults(facts) or model_facts.missing(facts, declared is not None or bool(facts.get("weights_gib_per_rank")))


def plan(
    facts: t.Mapping[str, t.Any],
    use: Settings,
    nodes: t.Sequence[Node],
    *,
    declared_gib: float | None = None,
    concurrency: int = 1,
    search: bool = True,
    reports: t.Sequence[Report] = (),
) -> dict[str, t.Any]:
    """Return the plan of a recipe on its nodes: verdict (that of the worst node), each node's figures, and with ``no`` or ``tight`` what would fit.

    ``facts`` as of :mod:`model_facts`; ``declared_gib`` is what a profile says that one node loads. Where facts are missing the verdict is ``unknown`` and
    ``missing`` names them, as it names the values of arguments that the engine would not read; nothing is guessed. ``search`` off leaves out what would fit.
    ``reports`` are recipes of the model that were reported to run.
    """
    without = [*use.unread, *lacking(facts, declared_gib)] or ([] if nodes else ["nodes"])
    if without:
        return {"verdict": UNKNOWN, "missing": without, "nodes": [], "would_fit": [], "kv": {}, "reasons": [f"unknown without {', '.join(without)}"]}
    found = [node_plan(facts, use, node, declared_gib, concurrency, reports) for node in nodes]
    verdict = max((one["verdict"] for one in found), key=ORDER.index)
    proposals = [one["propose_kv_cache_memory_bytes"] for one in found]
    return {
        "verdict": verdict,
        "missing": [],
        "nodes": found,
        "reasons": [f"{one['node']}: {reason}" for one in found for reason in one["reasons"]],
        "kv": {
            "context": use.context,
            "bytes_a_token": round((kv_bytes(facts, use) - kv_bytes(facts, use._replace(context=max(1, use.context - 1)))), 1),
            "one_sequence_gib": round(kv_bytes(facts, use) / GIB, 3),
            "state_bytes_a_sequence": round(state_bytes(facts, use)),
        },
        "propose_kv_cache_memory_bytes": min(proposals) if proposals and all(proposals) else None,
        "would_fit": would_fit(facts, use, nodes, declared_gib, concurrency, reports) if search and verdict != FITS else [],
    }


def would_fit(
    facts: t.Mapping[str, t.Any], use: Settings, nodes: t.Sequence[Node], declared: float | None, concurrency: int, reports: t.Sequence[Report] = ()
) -> list[dict[str, t.Any]]:
    """Return single changes that get a better verdict: a shorter context, fewer sequences, another share, more nodes. The first of each kind that does,
    the best verdicts first."""

    def verdict_of(changed: Settings, loaded: float | None) -> str:
        return str(plan(facts, changed, nodes, declared_gib=loaded, concurrency=concurrency, search=False, reports=reports)["verdict"])

    now = verdict_of(use, declared)
    changes: list[tuple[str, t.Any, Settings, float | None]] = []
    lengths = [use.context // 2**power // 1024 * 1024 for power in range(1, 8)]
    changes += [("max_model_len", one, use._replace(context=one), declared) for one in lengths if one >= 4096]
    seqs = [one for one in (256, 64, 32, 16, 8, 4, 2, 1) if one < use.sequences]
    changes += [("max_num_seqs", one, use._replace(seqs=one), declared) for one in seqs]
    if use.kv_bytes is None:
        shares = [one / 100 for one in (90, 87, 85, 82, 80, 78, 75, 70, 65, 60, 50, 40) if one / 100 < use.share]
        changes += [("gpu_memory_utilization", one, use._replace(utilization=one), declared) for one in shares]
    else:
        changes += [("kv_cache_memory_bytes", one, use._replace(kv_bytes=one), declared) for one in (use.kv_bytes // 2**power for power in range(1, 4))]
    heads = facts.get("num_attention_heads") or 0
    for factor in (2, 4, 8):
        wider = use.tensor * factor
        if heads and heads % wider == 0 and wider <= 16:
            changes.append(("nodes", wider * use.pipeline * use.data, use._replace(tensor=wider), declared and declared / factor))
    found: list[dict[str, t.Any]] = []
    for name, value, changed, loaded in changes:
        if any(one["change"] == name and one["verdict"] == FITS for one in found):
            continue
        verdict = verdict_of(changed, loaded)
        better = ORDER.index(verdict) < ORDER.index(now) and not any(one["change"] == name and one["verdict"] == verdict for one in found)
        if better:
            found.append({"change": name, "to": value, "verdict": verdict})
    return sorted(found, key=lambda one: ORDER.index(one["verdict"]))


# -- advice ------------------------------------------------------------------------------------------------------------

#: Published: one model over two Sparks against one replica on each, tokens a second in all by concurrency.
PUBLISHED = (
    {
        "model": "Nemotron-3-Super-120B-A12B NVFP4 (MoE, 12 B active)",
        "two_nodes": {1: 22.97, 8: 82.77, 32: 128.27},
        "two_replicas": {1: 16.43, 8: 73.81, 32: 124.21},
        "source": "https://kubis.ai/blog/dgx_series/benchmarks/nemotron3-super-120b-topology-benchmark (2026-03-30)",
    },
    {
        "model": "gpt-oss-120b MXFP4 (MoE, 5.1 B active); one node, twice it for two replicas",
        "two_nodes": {1: 69.0, 8: 231.0, 32: 471.7},
        "one_node": {1: 57.5, 8: 153.5, 32: 318.7},
        "source": "https://kubis.ai/blog/dgx_series/benchmarks (2026-03-22; 567.9 at 64 on two replicas)",
    },
    {
        "model": "Qwen3.8-27B NVFP4 with its drafter (dense)",
        "two_nodes": {1: 37.35},
        "one_node": {1: 24.27},
        "source": "https://github.com/NVIDIA/local-ai-inference-recipes (2026-09-03, 64 GB Sparks)",
    },
)
#: Bytes a second that a Spark reads in practice of its nominal 273 GB/s: 180 to 192 (spark-training-gotchas).
BANDWIDTH = (180e9, 192e9)


def advice(facts: t.Mapping[str, t.Any], use: Settings, single: str | None) -> list[str]:
    """Return sentences on dense or experts, and on one model over the nodes or a replica on each. ``single`` is the verdict on one node alone, None for one."""
    found = []
    read, known = model_facts.read_share(facts), model_facts.weights_bytes(facts)
    if read and known:
        bytes_a_token = known[0] * read
        ends = dict.fromkeys(f"{rate * use.tensor / bytes_a_token:.0f}" for rate in BANDWIDTH)
        kind = "experts" if facts.get("num_experts") else "a dense model"
        makes = f"steps/s for one user, each of up to {1 + use.drafts} tokens with the drafter" if use.drafts else "tokens/s for one user"
        found.append(
            f"{kind}: a step reads about {bytes_a_token / 1e9:.1f} GB of weights, so {use.tensor} node(s) make at most {' to '.join(ends)} {makes} "
            "(180 to 192 GB/s of a Spark's memory; spark-training-gotchas)"
        )
    if not facts.get("num_experts"):
        found.append(
            "dense models read all weights for each token: a second node or a drafter helps one user most (Qwen3.8-27B 24.27 to 37.35 tokens/s, NVIDIA)"
        )
    if single in (FITS, TIGHT):
        found.append(
            "it also goes on one node: over two nodes one user gets more, many users hardly (Nemotron-3-Super 22.97 against 16.43 tokens/s alone, 82.77 "
            "against 73.81 at 8, 128.27 against 124.21 at 32; kubis.ai), and two replicas outlive the death of one node"
        )
    elif single == NO:
        found.append("it does not go on one node, so there is no choice between one model over the nodes and a replica on each")
    return found
