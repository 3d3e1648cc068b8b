# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory that each part of an engine needs on a node, in GiB, and the error of each figure. This module util is PRIVATE to the collection."""

from __future__ import annotations

import math
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._memory import model_facts, recipe

GIB = 1024**3
#: Tokens of the smallest block of a KV cache.
BLOCK = 16


class Constant(t.NamedTuple):
    """A number that no config.json has: GiB or a factor, its error, and its source."""

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
        1.7,
        1.5,
        "a share's rest on small models: 2.2 GiB (Nemotron Nano 4B), 3.0 (Qwen2.5 14B), 3.4 (Qwen3 30B), NGC 26.01 (guardkit/guardkit); what is not torch's "
        "took 0.22 to 0.24 in seven starts on an H100, which has memory of its own",
    ),
    "fabric": Constant(1.0, 0.5, "NCCL's buffers: budget's rest of two-node starts 5.1 to 6.9 GiB against 4.3 to 6.6 on one node (MiaAI-Lab, tonyd2wild)"),
    "vision": Constant(
        2.5, 1.5, "a share's rest of gemma-4-26B at 4096 tokens 8.2 GiB, of its text alone about 4 (djangodevreng/dgx-spark-benchmarks, 2026-06)"
    ),
    "allocator": Constant(
        1.5,
        0.7,
        "recorded activations against the arithmetic here: 17.8 GiB at 65536 tokens (Qwen3.6 35B), 14.9 at 32768 (gemma-4-26B), djangodevreng; 0.82 to 1.04 "
        "times it at 8192 tokens in seven starts on an H100",
    ),
    "graphs": Constant(
        1.0,
        0.9,
        "captured graphs of seven starts took 0.10 to 1.64 GiB (djangodevreng, guardkit), of seven on an H100 0.14 to 0.42. "
        "The engine's own estimate, which since 0.21 comes off the cache, was "
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
    "page": Constant(
        1.05, 0.05, "hybrid models with rows of several kinds: pages are rounded to the state's size, 0.35 to 0.8 % and whole groups of layers (vLLM's logs)"
    ),
    "reserve": Constant(6.0, 0.0, "TechPreacher/dgx-spark-vllm-cluster warns below 6 GiB; healthy pairs serve for hours with 3.5 to 4.4 (pulsar, sparkring)"),
    "unproven": Constant(
        8.0,
        0.0,
        "MemAvailable was seen to fall from 29 to 6 GiB within 10 s after 550 s of loading (vllm-project/vllm#56824), so the reserve alone is too small for "
        "what was not started before",
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


class Component(t.NamedTuple):
    """A part of a node's memory. ``inside``: part of the engine's own share. ``when``: the figures in which it counts, ``loading``, ``serving`` or both."""

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
    """A node: its MemTotal; the declared memory of others there; the memory that was available before the start, or that the engine itself found free at its
    start, where either was measured; the memory that starts of the same image, profile and driver took there, once they had answered and at their peak; and
    the names of the others. Where something was measured, ``tenants`` is only the memory that they have not taken yet."""

    name: str
    total: float
    tenants: float = 0.0
    available: float | None = None
    free_at_start: float | None = None
    took: float | None = None
    peak: float | None = None
    who: str = ""


# -- KV cache and state ------------------------------------------------------------------------------------------------


def kv_parts(facts: t.Mapping[str, t.Any], use: recipe.Settings) -> list[tuple[str, float, str]]:
    """Return (kind, bytes of one sequence of ``use.context`` tokens on one rank, arithmetic) for each kind of layer.

    Heads are split over tensor ranks, with at least one on each. Latent rows are on every rank. Both are split over ranks of a context group. A sliding
    layer keeps its window and the tokens of the steps that run, never more than the sequence. The layer of a drafter that reads the model's own rows (MTP,
    EAGLE) counts as one more layer of full attention (or latent).
    """
    tokens, value, stages = use.context, use.kv_value, use.pipeline
    if facts.get("kv_bytes_per_token"):
        each = facts["kv_bytes_per_token"] / use.context_ranks
        return [("stated", each * tokens, f"{each:g} B a token and rank, as stated, x {tokens} tokens")]
    parts = []
    draft = draft_layers(facts, use)
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
        step, mine = use.steps * use.batched, max(1, -(-heads // use.tensor))
        kept = min(tokens, (facts.get("sliding_window") or 0) + step)
        layers = -(-sliding // stages)
        window = f"{kept} tokens (window {facts.get('sliding_window')} + {step} of {use.steps} step(s))"
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


def draft_layers(facts: t.Mapping[str, t.Any], use: recipe.Settings) -> int:
    """Return how many layers of a drafter keep keys and values in the model's own cache: those of MTP, or the one of EAGLE."""
    return (facts.get("draft_layers") or 1) if use.own_draft else int(use.one_layer_draft)


def _over(use: recipe.Settings) -> str:
    return f" / {use.context_ranks} ranks of the context" if use.context_ranks > 1 else ""


def kv_bytes(facts: t.Mapping[str, t.Any], use: recipe.Settings) -> float:
    """Return the bytes of one sequence of ``use.context`` tokens in one rank's KV cache, without the constant state."""
    return sum(size for _kind, size, _arithmetic in kv_parts(facts, use))


def state_bytes(facts: t.Mapping[str, t.Any], use: recipe.Settings) -> float:
    """Return the bytes of constant state that one sequence has on one rank. Each draft token keeps a state of its own (vLLM's speculative blocks)."""
    return (model_facts.state_bytes(facts) or 0) / use.tensor / use.pipeline * (1 + use.drafts)


def paged_bytes(facts: t.Mapping[str, t.Any], use: recipe.Settings) -> tuple[float, float, float]:
    """Return (KV cache, state) in bytes that one sequence of ``use.context`` tokens takes on one rank, in whole pages, and the relative error of both.

    The layers of a hybrid model share pages as large as one layer's state, rounded up to a block of tokens. Its groups have as many layers as the rarer kind,
    or as the commoner one where that has less than half as many again (vllm/v1/core/kv_cache_utils.py and vllm/platforms/interface.py of 0.26.0; four starts
    on an H100 had the resulting number of tokens, within 0.1 %). Several kinds of attention next to a state were not measured. A page of another model is
    16 tokens.
    """
    kv, state, page = kv_bytes(facts, use), state_bytes(facts, use), CONSTANTS["page"]
    if not state:
        return kv, state, 0.0
    if {kind for kind, _size, _arithmetic in kv_parts(facts, use)} != {"full"}:
        return kv * page.value, state * page.value, page.within
    attention = -(-model_facts.plain_layers(facts) // use.pipeline) + draft_layers(facts, use)
    others = -(-((facts.get("linear_layers") or 0) + (facts.get("mamba_layers") or 0)) // use.pipeline)
    token, copies = kv / use.context / attention, 1 + use.drafts
    block = BLOCK * math.ceil(state / copies / others / token / BLOCK)
    fewer, more = sorted((attention, others))
    group = more if more < 1.5 * fewer else fewer
    size = block * token * group
    return math.ceil(attention / group) * math.ceil(use.context / block) * size, math.ceil(others / group) * copies * size, 0.01


# -- components --------------------------------------------------------------------------------------------------------


def constant(name: str, title: str, when: tuple[str, ...], inside: bool) -> Component:
    entry = CONSTANTS[name]
    return Component(name, title, entry.value, entry.within, when, inside, f"{entry.value:g}", entry.source)


def outside(use: recipe.Settings, node: Node) -> list[Component]:
    """Return the memory in use outside the engine's own share."""
    parts = []
    if node.free_at_start is not None:
        used = node.total - node.free_at_start
        arithmetic = f"{node.total:g} - {node.free_at_start:g} that the engine found free"
        parts.append(Component("os", "system and engine processes", used, 0.5, BOTH, False, arithmetic, "the engine's own word on this node"))
    else:
        if node.available is not None:
            arithmetic = f"{node.total:g} - {node.available:g} available before the start"
            parts.append(Component("os", "system and others", node.total - node.available, 0.5, BOTH, False, arithmetic, "measured on this node"))
        else:
            parts.append(constant("os", "system", BOTH, False))
        parts.append(constant("engine_host", "engine's processes and driver", BOTH, False))
    if node.tenants:
        parts.append(Component("tenants", "others, as declared", node.tenants, 0.0, BOTH, False, node.who or f"{node.tenants:g}", "declared for this node"))
    if use.ray:
        parts.append(constant("ray", "Ray", BOTH, False))
    if use.pinned_gib:
        source = "cpu_offload_gb, kv_offloading_size"
        parts.append(Component("pinned", "pinned host memory", use.pinned_gib, 0.0, SERVING, False, f"{use.pinned_gib:g}", source))
    return parts


def weights(facts: t.Mapping[str, t.Any], use: recipe.Settings, declared: float | None) -> list[Component]:
    """Return the memory of the weights on one rank; ``declared`` is a profile's size of what a node loads, drafters included, for facts without a size.

    Raises ValueError when both are unknown: :func:`plan` checks that first.
    """
    ranks = use.tensor * use.pipeline * (use.data if use.expert else 1)
    spare = CONSTANTS["loaded"]
    known = model_facts.weights_bytes(facts)
    if facts.get("weights_gib_per_rank"):
        size, arithmetic, source, factor = facts["weights_gib_per_rank"], f"{facts['weights_gib_per_rank']:g}, as loaded", "the engine's own word", 1.0
    elif known is not None:
        tables = (facts.get("rotary_bytes") or 0) / GIB
        factor, size = spare.value, known[0] / ranks / GIB * spare.value + tables
        arithmetic = f"({known[1]}) / {ranks} rank(s) x {spare.value:g}{f' + {tables:.2f} of rotary tables' if tables >= 0.005 else ''}"
        source = f"{facts.get('source') or 'the facts of the model'}; {spare.source}"
    elif declared is not None:
        size, arithmetic, source, factor = declared, f"{declared:.4g}, as the profile declares", "memory.weights_gb of the profile", 1.0
    else:
        raise ValueError("no size of the weights")
    within = size * spare.within
    parts = []
    if use.online_fp8:
        # Loaded in 16 bits and converted to 8 afterwards, except embeddings and head.
        plain = 4 * (facts.get("vocab_size") or 0) * facts["hidden_size"] / ranks / GIB * factor
        later = (size - plain) / 2 + plain
        parts.append(Component("weights_read", "weights before FP8", size - later, within / 2, LOADING, True, f"{size - later:.2f} become free", source))
        size, arithmetic = later, f"{arithmetic}, all but embeddings halved by FP8 at run time"
    parts.insert(0, Component("weights", "weights", size, within, BOTH, True, arithmetic, source))
    if use.draft_gib:
        split = use.tensor if use.draft_split else 1
        mine = use.draft_gib / split * spare.value
        words = f"{use.draft_gib:.2f} / {split} rank(s) x {spare.value:g}"
        parts.append(Component("drafter", "drafter", mine, mine * spare.within, BOTH, True, words, "the size of its repository"))
    return parts


def activation(facts: t.Mapping[str, t.Any], use: recipe.Settings) -> Component:
    """Return the peak of activations in a step of ``use.batched`` tokens, and of the sampler.

    The sampler runs after the step, so the larger of the two counts.

    A token has, in 16 bits: about 12 rows of the model's width at the same time (residual, norms, projections in and out), the inputs and outputs of its
    experts or of the MLP, and queries, keys and values twice. Parts that tensor ranks share are divided. Logits are 32 bits for each sequence (and draft),
    twice.
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
    rows = min(use.sequences, recipe.DEFAULTS["max_num_seqs"]) * (1 + use.drafts)
    logits = 2 * 4 * rows * (facts.get("vocab_size") or 0) / GIB
    factor = CONSTANTS["allocator"]
    step = use.batched * 2 * (12 * width + inner + attention) / GIB
    size = max(step * factor.value, logits)
    arithmetic = f"{use.batched} tokens x 2 B x ({12 * width} + {inner} + {attention}) values x {factor.value:g}, or {rows} rows of logits"
    return Component("activation", "activations", size, max(step * factor.within, logits / 2), SERVING, True, arithmetic, factor.source)


def fixed(facts: t.Mapping[str, t.Any], use: recipe.Settings, declared: float | None) -> list[Component]:
    """Return the parts of the engine's own share that are not KV cache."""
    parts = [*weights(facts, use, declared), activation(facts, use), constant("workspaces", "workspaces", SERVING, True)]
    if use.tensor * use.pipeline * use.data > 1:
        parts.append(constant("fabric", "NCCL", BOTH, True))
    if use.vision:
        parts.append(constant("vision", "images and video", SERVING, True))
    if use.graphs:
        graphs, more = CONSTANTS["graphs"], CONSTANTS["graphs_drafter"]
        size, within = (graphs.value + more.value, root_of_squares(graphs.within, more.within)) if use.drafts else (graphs.value, graphs.within)
        words = f"{graphs.value:g} + {more.value:g} of the drafter" if use.drafts else f"{graphs.value:g}"
        parts.append(Component("graphs", "CUDA graphs", size, within, SERVING, True, words, graphs.source))
    if use.kv_bytes is not None:
        parts.append(constant("unprofiled", "not profiled", SERVING, True))
    return parts


def root_of_squares(*values: float) -> float:
    return math.sqrt(sum(value * value for value in values))


def total_of(parts: t.Iterable[Component]) -> tuple[float, float]:
    parts = list(parts)
    return sum(part.gib for part in parts), root_of_squares(*(part.within for part in parts))
