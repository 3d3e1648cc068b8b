# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory plan to the last digit: its sums repeated by hand, and each limit of a verdict with its message."""

from __future__ import annotations

import math

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._memory import components, plan, recipe

GIB = 1024**3
#: A made-up dense model with round numbers: 32 GiB of files.
DENSE = {
    "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 16384, "vocab_size": 131072, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "checkpoint_gb": 32 * GIB / 1e9,
}  # fmt: skip
#: The same with experts and with a state of 64 MiB a sequence.
HYBRID = {
    **DENSE, "attention_layers": 8, "linear_layers": 24, "recurrent_state_bytes_per_sequence": 2**26, "num_experts": 64, "num_experts_per_tok": 4,
    "moe_intermediate_size": 2048, "moe_latent_size": 512, "draft_layers": 2,
}  # fmt: skip
TOTAL = 121.69
C = components.CONSTANTS
#: GiB of a page of that model on one rank: 688 tokens of its 8 attention layers, the least multiple of 16 that holds a layer's state.
PAGE = 688 * 2 * 8 * 128 * 2 * 8 / 1024**3


def use(facts=None, tensor=1, pipeline=1, data=1, **serve):
    return recipe.settings_of(serve, {"tensor": tensor, "pipeline": pipeline, "data": data}, DENSE if facts is None else facts)


def node(total=TOTAL, **more):
    return components.Node("a", total, **more)


def planned(facts=None, on=None, settings=None, declared=None, concurrency=1, search=False, reports=(), **serve):
    facts = DENSE if facts is None else facts
    return plan.plan(
        facts, settings or use(facts, **serve), [on or node()], declared_gib=declared, concurrency=concurrency, search=search, reports=reports
    )


def sheet(outcome):
    """Each part of the only node, by id: GiB, by how much that may be wrong, and when it counts."""
    (node_plan,) = outcome["nodes"]
    return {part["id"]: (part["gib"], part["within"], "+".join(part["when"]), part["inside"]) for part in node_plan["components"]}


def root(*values):
    return math.sqrt(sum(value**2 for value in values))


# -- settings ----------------------------------------------------------------------------------------------------------

DEFAULT = recipe.Settings(
    tensor=1, pipeline=1, data=1, context_ranks=1, expert=False, ray=False, context=8192, seqs=None, batched=8192, utilization=None, default_share=0.92,
    kv_bytes=None, kv_value=2.0, drafts=0, draft_gib=0.0, draft_split=False, own_draft=False, unsized_draft=False, graphs=True, vision=False,
    online_fp8=False, loader="auto", pinned_gib=0.0, recorded=False, unread=(),
)  # fmt: skip


@pytest.mark.parametrize(
    ("serve", "facts", "changes"),
    [
        ({}, {}, {}),
        ({"max_model_len": "auto"}, {"max_position_embeddings": 40960}, {"context": 40960}),
        ({"max_model_len": 4096}, {"max_position_embeddings": 40960}, {"context": 4096}),
        ({"max_num_seqs": 4, "max_num_batched_tokens": "2k", "decode_context_parallel_size": 2}, {}, {"seqs": 4, "batched": 2000, "context_ranks": 2}),
        ({"gpu_memory_utilization": "0.8", "device_memory_utilization": 0.7}, {}, {"utilization": 0.8}),
        ({"kv_cache_memory_bytes": "1G", "kv_cache_dtype": "fp8_e4m3"}, {}, {"kv_bytes": GIB, "kv_value": 1.0}),
        ({"kv_cache_dtype": "nvfp4_ds_mla"}, {}, {"kv_value": 0.5625}),
        ({"kv_cache_dtype": "float32"}, {"kv_cache_bits": 8}, {"kv_value": 4.0}),
        ({"kv_cache_dtype": "auto"}, {"kv_cache_bits": 8}, {"kv_value": 1.0}),
        ({"cpu_offload_gb": 4, "kv_offloading_size": "2.5"}, {}, {"pinned_gib": 6.5}),
        ({"enforce_eager": True}, {}, {"graphs": False}),
        ({"compilation_config": {"cudagraph_mode": "none"}}, {}, {"graphs": False}),
        ({"compilation_config": {"cudagraph_mode": "FULL"}}, {}, {}),
        ({"compilation_config": "3"}, {}, {}),
        ({}, {"multimodal": True}, {"vision": True}),
        ({"language_model_only": True}, {"multimodal": True}, {}),
        ({"skip_mm_profiling": True}, {"multimodal": True}, {}),
        ({"quantization": "fp8"}, {"weights_bits": 16}, {"online_fp8": True}),
        ({"quantization": "fp8"}, {"weights_bits": 8}, {}),
        ({"quantization": "awq"}, {"weights_bits": 16}, {}),
        ({"load_format": "fastsafetensors"}, {}, {"loader": "fastsafetensors"}),
        ({"enable_expert_parallel": True}, {}, {"expert": True}),
        ({"speculative_config": {"method": "mtp", "num_speculative_tokens": 3}}, {}, {"drafts": 3, "draft_split": True, "own_draft": True}),
        ({"speculative_config": {"method": "eagle"}}, {}, {"drafts": 1, "own_draft": True}),
        ({"speculative_config": {"method": "ngram", "num_speculative_tokens": 5}}, {}, {}),
        ({"speculative_config": "none"}, {}, {}),
        (
            {"speculative_config": {"method": "dflash", "model": "a/b", "num_speculative_tokens": 8, "draft_tensor_parallel_size": 1}}, {},
            {"drafts": 8, "unsized_draft": True},
        ),
        (
            {"speculative_config": {"method": "dflash", "model": "a/b", "num_speculative_tokens": 8, "draft_tensor_parallel_size": 2}}, {},
            {"drafts": 8, "unsized_draft": True, "draft_split": True},
        ),
        (
            {"max_model_len": "huge", "gpu_memory_utilization": 95}, {},
            {"unread": (
                "max_model_len: is 'huge'; expected a whole number of 1 or more, also with k, m, g or t (1000s) or K, M, G or T (1024s, without a decimal part)"
                ", or auto",
                "gpu_memory_utilization: is 95; expected a number above 0, up to 1",
            )},
        ),
    ],
)  # fmt: skip
def test_settings_follow_from_arguments(serve, facts, changes):
    assert recipe.settings_of(serve, {}, facts) == DEFAULT._replace(**changes)


def test_what_is_asked_for_wins_over_arguments():
    given = recipe.settings_of(
        {"max_model_len": 4096, "max_num_seqs": 2, "speculative_config": {"model": "a/b"}},
        {"tensor": 2, "pipeline": 3, "data": 4, "expert": True},
        {},
        ray=True, draft_gib=3.5, draft_in_weights=False, context=1024, seqs=7, recorded=True, default_share=0.9,
    )  # fmt: skip
    expected = DEFAULT._replace(tensor=2, pipeline=3, data=4, expert=True, ray=True, context=1024, seqs=7, recorded=True, default_share=0.9)
    assert given == expected._replace(draft_gib=3.5, drafts=1)
    whole = recipe.settings_of({"speculative_config": {"model": "a/b"}}, {}, {}, draft_in_weights=True)
    assert (whole.unsized_draft, whole.draft_gib) == (False, 0.0)


def test_missing_shares_and_sequences_are_left_to_the_engine():
    assert (DEFAULT.share, DEFAULT.sequences, DEFAULT.left_to_engine) == (0.92, 1024, True)
    defaults = DEFAULT._replace(utilization=0.5, seqs=3)
    assert (defaults.share, defaults.sequences, defaults.left_to_engine) == (0.5, 3, False)
    assert not DEFAULT._replace(kv_bytes=1).left_to_engine


# -- cache and state ---------------------------------------------------------------------------------------------------


def test_the_cache_of_each_kind_of_layer_is_counted():
    parts = {kind: (size, words) for kind, size, words in components.kv_parts(DENSE, use(max_model_len=1000))}
    assert parts == {"full": (2 * 32 * 8 * 128 * 2 * 1000, "2 x 32 layers x 8 head(s) x 128 x 2 B x 1000 tokens")}
    staged = components.kv_parts(DENSE, use(tensor=3, pipeline=3, max_model_len=1000, decode_context_parallel_size=2))
    assert staged == [("full", 2 * 11 * 3 * 128 * 2 * 1000 / 2, "2 x 11 layers x 3 head(s) x 128 x 2 B x 1000 tokens / 2 ranks of the context")]
    spec = {"method": "mtp", "num_speculative_tokens": 3}
    drafted = components.kv_parts(HYBRID, use(HYBRID, max_model_len=1000, speculative_config=spec))
    assert drafted == [("full", 2 * 10 * 8 * 128 * 2 * 1000, "2 x (8 + 2 of the drafter) layers x 8 head(s) x 128 x 2 B x 1000 tokens")]
    plain = {name: value for name, value in HYBRID.items() if name != "draft_layers"}
    assert components.kv_parts(plain, use(HYBRID, max_model_len=1000, speculative_config=spec))[0][1] == 2 * 9 * 8 * 128 * 2 * 1000
    stated = components.kv_parts({"kv_bytes_per_token": 3000}, use(max_model_len=1000, decode_context_parallel_size=2))
    assert stated == [("stated", 1500000.0, "1500 B a token and rank, as stated, x 1000 tokens")]


def test_windows_and_latent_rows_are_counted():
    facts = {**DENSE, "attention_layers": 2, "sliding_layers": 31, "sliding_window": 100, "global_num_key_value_heads": 4, "global_head_dim": 256}
    parts = components.kv_parts(facts, use(facts, tensor=2, pipeline=2, max_model_len=50000, max_num_batched_tokens=400))
    assert parts == [
        ("full", 2 * 1 * 2 * 256 * 2 * 50000, "2 x 1 layers x 2 head(s) x 256 x 2 B x 50000 tokens"),
        ("sliding", 2 * 16 * 4 * 128 * 2 * 900, "2 x 16 layers x 4 head(s) x 128 x 2 B x 900 tokens (window 100 + 800 of 2 step(s))"),
    ]
    latent = [{"layers": 9, "width": 512, "ratio": 4}, {"layers": 5, "width": 64, "window": 128}, {"layers": 1, "width": 8}]
    rows = {"num_hidden_layers": 9, "latent_layers": latent}
    spec = {"method": "mtp", "num_speculative_tokens": 1}
    parts = components.kv_parts(rows, use(rows, pipeline=2, max_model_len=1000, decode_context_parallel_size=2, speculative_config=spec))
    assert parts == [
        ("latent", (5 + 1) * 512 * 2 * 1000 / 4 / 2, "6 layers x 512 x 2 B x 1000 tokens / 4 / 2 ranks of the context, on every rank"),
        ("window", 3 * 64 * 2 * 128, "3 layers x 64 x 2 B x 128 tokens of the window, on every rank"),
        ("latent", (1 + 1) * 8 * 2 * 1000 / 2, "2 layers x 8 x 2 B x 1000 tokens / 2 ranks of the context, on every rank"),
    ]


def test_each_draft_keeps_a_state_of_its_own():
    spec = {"method": "mtp", "num_speculative_tokens": 3}
    assert components.state_bytes(HYBRID, use(HYBRID, tensor=2, pipeline=2, speculative_config=spec)) == 2**26 / 4 * 4
    assert components.state_bytes(DENSE, use()) == 0


# -- parts -------------------------------------------------------------------------------------------------------------


def test_every_part_of_a_plain_start():
    """32 GiB on one rank, a share of 0.8, four sequences of 8192 tokens."""
    outcome = planned(max_model_len=8192, max_num_seqs=4, gpu_memory_utilization=0.8)
    step = 8192 * 2 * (12 * 4096 + 2 * 16384 + 2 * (32 + 16) * 128) / GIB
    logits = 2 * 4 * 4 * 131072 / GIB
    weights, activations = 32 * 1.015, max(step * 1.5, logits)
    inner = weights + activations + 1.7 + 1.0
    pool = 0.8 * TOTAL - inner
    kv = 2 * 32 * 8 * 128 * 2 * 8192 / GIB
    page_cache = 32.0
    assert sheet(outcome) == {
        "os": (4.0, 2.0, "loading+serving", False),
        "engine_host": (5.5, 3.5, "loading+serving", False),
        "weights": (round(weights, 3), round(weights * 0.03, 3), "loading+serving", True),
        "activation": (round(activations, 3), round(max(step * 0.7, logits / 2), 3), "serving", True),
        "workspaces": (1.7, 1.5, "serving", True),
        "graphs": (1.0, 0.9, "serving", True),
        "kv": (kv, 0.0, "serving", True),
        "pool": (round(pool - kv, 3), 0.0, "serving", True),
        "staging": (1.0, 1.0, "loading", True),
        "page_cache": (page_cache, 0.0, "loading", False),
    }
    (node_plan,) = outcome["nodes"]
    load = 4 + 5.5 + weights + 1
    assert node_plan["loading"] == {
        "used_gib": round(load, 2), "within_gib": round(root(2, 3.5, weights * 0.03, 1), 2), "available_gib": round(TOTAL - load, 2),
        "page_cache_gib": page_cache, "driver_sees_gib": round(load + page_cache, 2),
    }  # fmt: skip
    assert node_plan["serving"] == {
        "used_gib": round(9.5 + 0.8 * TOTAL, 2), "within_gib": round(root(2, 3.5), 2), "available_gib": round(TOTAL - 9.5 - 0.8 * TOTAL, 2),
    }  # fmt: skip
    assert (node_plan["pool_gib"], node_plan["one_sequence_gib"], node_plan["sequences"]) == (round(pool, 2), kv, int(pool / kv))
    assert node_plan["at_start"] == {"wanted_gib": round(0.8 * TOTAL, 2), "free_gib": 114.69, "within_gib": round(root(2, 3), 2), "cuda_gib": 102.0}
    assert outcome["kv"] == {"context": 8192, "bytes_a_token": 2 * 32 * 8 * 128 * 2, "one_sequence_gib": kv, "state_bytes_a_sequence": 0}
    assert (outcome["verdict"], outcome["reasons"], node_plan["reported"]) == (plan.FITS, [], "")
    words = {part["id"]: part["arithmetic"] for part in node_plan["components"]}
    assert words["kv"] == "2 x 32 layers x 8 head(s) x 128 x 2 B x 8192 tokens" and words["page_cache"] == "the files, as far as there is room"
    uneven = planned({**DENSE, "checkpoint_gb": 33.333}, gpu_memory_utilization=0.8)["nodes"][0]["loading"]
    assert (uneven["page_cache_gib"], uneven["driver_sees_gib"]) == (31.04, round(10.5 + 33.333e9 / GIB * 2.015, 2))


def test_every_part_of_a_start_with_all_there_is():
    """Two ranks with Ray, tenants, pinned memory, a drafter, images, FP8 at run time and another loader, on a node that was measured."""
    facts = {**HYBRID, "multimodal": True, "weights_bits": 16}
    spec = {"method": "dflash", "model": "a/b", "num_speculative_tokens": 3, "draft_tensor_parallel_size": 2}
    serve = {
        "max_model_len": 8192, "max_num_seqs": 4, "gpu_memory_utilization": 0.6, "speculative_config": spec, "quantization": "fp8", "cpu_offload_gb": 2,
        "load_format": "fastsafetensors", "max_num_batched_tokens": 4096,
    }  # fmt: skip
    settings = recipe.settings_of(serve, {"tensor": 2}, facts, ray=True, draft_gib=3.0)
    outcome = planned(facts, on=node(available=110.0, tenants=5.0), settings=settings)
    whole = 16 * 1.015
    plain = 4 * 131072 * 4096 / 2 / GIB * 1.015
    later = (whole - plain) / 2 + plain
    step = 4096 * 2 * (12 * 4096 + 4 * (2 * 2048 // 2 + 512) + 2 * 48 * 128 // 2) / GIB
    logits = 2 * 4 * 4 * (1 + 3) * 131072 / GIB
    # A page: the tokens, 16 at a time, whose keys and values are no smaller than a layer's state, of as many layers as attention has.
    page = 16 * math.ceil(2**26 / 2 / 24 / 2048 / 16) * 2048 * 8 / GIB
    kv, state = math.ceil(8192 / 688) * page, 24 / 8 * 4 * page
    inner = later + 1.5 * 1.015 + max(step * 1.5, logits) + 1.7 + 1 + 2.5 + 1.6
    pool = 0.6 * TOTAL - inner
    load = 11.69 + 5.5 + 5 + 1 + whole + 1.5 * 1.015 + 1 + 5
    expected = {
        "os": (11.69, 0.5, "loading+serving", False),
        "engine_host": (5.5, 3.5, "loading+serving", False),
        "tenants": (5.0, 0.0, "loading+serving", False),
        "ray": (1.0, 0.5, "loading+serving", False),
        "pinned": (2.0, 0.0, "serving", False),
        "weights": (later, whole * 0.03, "loading+serving", True),
        "weights_read": (whole - later, whole * 0.03 / 2, "loading", True),
        "drafter": (1.5 * 1.015, 1.5 * 1.015 * 0.03, "loading+serving", True),
        "activation": (max(step * 1.5, logits), max(step * 0.7, logits / 2), "serving", True),
        "workspaces": (1.7, 1.5, "serving", True),
        "fabric": (1.0, 0.5, "loading+serving", True),
        "vision": (2.5, 1.5, "serving", True),
        "graphs": (1.6, root(0.9, 0.4), "serving", True),
        "kv": (kv, kv * 0.01, "serving", True),
        "state": (4 * state, 4 * state * 0.01, "serving", True),
        "pool": (pool - kv - 4 * state, 0.0, "serving", True),
        "staging": (5.0, 3.0, "loading", True),
        "page_cache": (32.0, 0.0, "loading", False),
    }
    assert sheet(outcome) == {name: (round(gib, 3), round(within, 3), when, inside) for name, (gib, within, when, inside) in expected.items()}
    (entry,) = outcome["nodes"]
    assert entry["loading"]["used_gib"] == round(load, 2) and entry["pool_gib"] == round(pool, 2) and entry["one_sequence_gib"] == round(kv + state, 3)
    within = root(0.5, 3.5, 0.5, whole * 0.03, whole * 0.015, 1.5 * 1.015 * 0.03, 0.5, 3.0)
    assert entry["loading"]["within_gib"] == round(within, 2)
    assert entry["serving"]["used_gib"] == round(11.69 + 5.5 + 5 + 1 + 2 + 0.6 * TOTAL, 2) and entry["serving"]["within_gib"] == round(root(0.5, 3.5, 0.5), 2)
    assert entry["at_start"] == {"wanted_gib": round(0.6 * TOTAL, 2), "free_gib": 102.0, "within_gib": 3.0, "cuda_gib": 102.0}
    assert entry["sequences"] == int(pool / (kv + state))
    words = {part["id"]: part["arithmetic"] for part in entry["components"]}
    assert words["os"] == "121.69 - 110 available before the start" and words["tenants"] == "5" and words["drafter"] == "3.00 / 2 rank(s) x 1.015"
    assert words["graphs"] == "1 + 0.6 of the drafter" and words["weights_read"] == f"{whole - later:.2f} become free"
    assert words["weights"].endswith("/ 2 rank(s) x 1.015, all but embeddings halved by FP8 at run time")
    assert words["state"] == f"4 sequences x {state:.4f}" and words["pool"] == f"0.6 x 121.69 - {inner:.2f} of all the engine's own"


def test_what_the_engine_found_takes_the_place_of_system_and_processes():
    outcome = planned(on=node(free_at_start=100.0, available=110.0), max_model_len=8192, max_num_seqs=4, gpu_memory_utilization=0.5)
    parts = sheet(outcome)
    assert parts["os"] == (21.69, 0.5, "loading+serving", False) and "engine_host" not in parts
    assert outcome["nodes"][0]["at_start"] == {"wanted_gib": 60.84, "free_gib": 100.0, "within_gib": 0.3, "cuda_gib": None}


def test_where_the_size_of_the_weights_comes_from():
    parts = sheet(planned({**DENSE, "weights_gib_per_rank": 20.0}, gpu_memory_utilization=0.8))
    assert parts["weights"][:2] == (20.0, 0.6)
    unsized = {name: value for name, value in DENSE.items() if name != "checkpoint_gb"}
    declared = planned(unsized, declared=30.0, gpu_memory_utilization=0.8)
    assert sheet(declared)["weights"][:2] == (30.0, 0.9) and declared["nodes"][0]["components"][2]["arithmetic"] == "30, as the profile declares"
    # Without a size of files the page cache fills with what is loaded.
    assert sheet(declared)["page_cache"][0] == 30 + 9.5 + 1
    with pytest.raises(ValueError, match="no size of the weights"):
        components.weights(unsized, use(), None)
    loaded = {**DENSE, "weights_gib_per_rank": 20.0, "weights_bits": 16}
    halved = components.weights(loaded, use(loaded, tensor=2, quantization="fp8"), None)
    assert [weight.gib for weight in halved] == pytest.approx([10.5, 9.5]), "1 GiB of 20 is embeddings and head, on each of two ranks"
    ranks = [sheet(plan.plan(DENSE, use(tensor=2, data=2, gpu_memory_utilization=0.8, **more), [node()], search=False))["weights"][0]
             for more in ({}, {"enable_expert_parallel": True})]  # fmt: skip
    assert ranks == [16.24, 8.12]
    split = [components.weights(DENSE, use(tensor=2)._replace(draft_gib=3.0, draft_split=is_split), None)[1].gib for is_split in (False, True)]
    assert split == pytest.approx([3.0 * 1.015, 1.5 * 1.015])
    assert plan.weights_gib(DENSE, use(tensor=2)._replace(draft_gib=3.0), None) == pytest.approx(19 * 1.015)


def test_a_page_cache_takes_what_room_there_is():
    outcome = planned({**DENSE, "checkpoint_gb": 100 * GIB / 1e9}, gpu_memory_utilization=0.95)
    (node_plan,) = outcome["nodes"]
    assert node_plan["loading"]["page_cache_gib"] == round(TOTAL - 9.5 - 101.5 - 1, 2) and node_plan["loading"]["driver_sees_gib"] == TOTAL
    over = planned({**DENSE, "checkpoint_gb": 200 * GIB / 1e9}, gpu_memory_utilization=0.95)["nodes"][0]["loading"]
    assert (over["page_cache_gib"], over["driver_sees_gib"]) == (0.0, TOTAL)


def test_a_model_that_says_little_is_counted_with_usual_numbers():
    little = {"num_hidden_layers": 2, "hidden_size": 1000, "latent_layers": [{"layers": 2, "width": 64}], "checkpoint_gb": 1}
    part = components.activation(little, use(little, max_num_batched_tokens=1000))
    assert part.arithmetic == "1000 tokens x 2 B x (12000 + 8000 + 0) values x 1.5, or 1024 rows of logits"
    assert part.gib == pytest.approx(1000 * 2 * 20000 * 1.5 / GIB) and part.within == pytest.approx(1000 * 2 * 20000 * 0.7 / GIB)
    mixed = {**little, "num_experts": 4, "num_attention_heads": 3}
    experts = components.activation(mixed, use(little, tensor=2, max_num_batched_tokens=1000, max_num_seqs=4096))
    assert experts.arithmetic == "1000 tokens x 2 B x (12000 + 16000 + 384) values x 1.5, or 1024 rows of logits"


# -- a cache in bytes, and its proposal --------------------------------------------------------------------------------


def test_a_cache_in_bytes_is_what_it_says():
    outcome = planned(HYBRID, max_model_len=8192, max_num_seqs=4, kv_cache_memory_bytes="8G", gpu_memory_utilization=0.5)
    (node_plan,) = outcome["nodes"]
    step = 8192 * 2 * (12 * 4096 + 4 * (2 * 2048 + 512) + 2 * 48 * 128) / GIB
    logits = 2 * 4 * 4 * 131072 / GIB
    inner = 32.48 + step * 1.5 + logits + 1.7 + 1 + 3
    within = root(2, 3.5, 32.48 * 0.03, step * 0.7 + logits / 2, 1.5, 0.9, 3)
    assert sheet(outcome)["unprofiled"] == (3.0, 3.0, "serving", True) and node_plan["pool_gib"] == 8.0
    assert node_plan["serving"]["used_gib"] == round(9.5 + inner + 8, 2) and node_plan["serving"]["within_gib"] == round(within, 2)
    assert outcome["reasons"] == [
        "a: kv_cache_memory_bytes skips profiling, so nothing bounds what comes on top: it takes a recorded start of this image, profile and driver"
    ]
    kv, state = 12 * PAGE, 3 * PAGE
    wanted = kv + 4 * state + 0.1 * (kv + state)
    assert outcome["propose_kv_cache_memory_bytes"] == math.ceil(wanted * 4) * GIB // 4
    short = planned(HYBRID, max_model_len=2**20, max_num_seqs=4, kv_cache_memory_bytes="8G", concurrency=3)
    room = TOTAL - 6 - within - 9.5 - inner
    assert short["propose_kv_cache_memory_bytes"] == math.floor(room * 4) * GIB // 4
    assert planned(HYBRID, max_model_len=2**22, max_num_seqs=4, kv_cache_memory_bytes="8G")["propose_kv_cache_memory_bytes"] is None


def test_a_share_is_proposed_a_cache_that_leaves_what_is_not_profiled():
    outcome = planned(max_model_len=2**20, max_num_seqs=1, gpu_memory_utilization=0.8, kv_cache_dtype="nvfp4", concurrency=2)
    step = 8192 * 2 * (12 * 4096 + 2 * 16384 + 2 * 48 * 128) / GIB
    logits = 2 * 4 * 131072 / GIB
    inner = 32.48 + step * 1.5 + logits + 2.7
    within = root(2, 3.5, 32.48 * 0.03, step * 0.7 + logits / 2, 1.5, 0.9)
    room = TOTAL - 6 - within - 9.5 - inner - 3
    assert outcome["propose_kv_cache_memory_bytes"] == math.floor(room * 4) * GIB // 4


@pytest.mark.parametrize(("seqs", "drafts", "holds"), [(200, 0, True), (600, 0, False), (600, 3, False), (None, 0, True)])
def test_each_sequence_needs_a_block_of_state(seqs, drafts, holds):
    """25 GiB of cache for states of 64 MiB: 380 of them with their pages, whatever a drafter keeps besides."""
    spec = {"speculative_config": {"method": "mtp", "num_speculative_tokens": drafts}} if drafts else {}
    seqs_of = {"max_num_seqs": seqs} if seqs else {}
    outcome = planned(HYBRID, max_model_len=1024, kv_cache_memory_bytes="25G", gpu_memory_utilization=0.1, **seqs_of, **spec)
    refused = f"a: the engine would refuse: the state of {seqs} sequences takes"
    assert any(reason.startswith(refused) for reason in outcome["reasons"]) is not holds, outcome["reasons"]


# -- records -----------------------------------------------------------------------------------------------------------


def test_a_record_takes_the_place_of_the_plan_where_it_is_more():
    serve = {"max_model_len": 8192, "max_num_seqs": 4, "gpu_memory_utilization": 0.5}
    on = node(available=110.0, tenants=2.0, took=80.0, peak=70.0)
    (node_plan,) = planned(on=on, **serve)["nodes"]
    used, within = 11.69 + 5.5 + 2 + 0.5 * TOTAL, root(0.5, 3.5)
    assert node_plan["serving"]["used_gib"] == round(11.69 + 2 + 80, 2)
    assert node_plan["serving"]["within_gib"] == round(max(1.0, used + within - (11.69 + 2 + 80)), 2) == 1.0
    assert node_plan["loading"]["used_gib"] == round(11.69 + 2 + 70, 2)
    parts = {part["id"]: part for part in node_plan["components"]}
    assert parts["recorded"]["gib"] == round(11.69 + 2 + 80 - used, 3) and parts["recorded"]["when"] == ["serving"]
    assert parts["recorded_peak"]["when"] == ["loading"] and parts["recorded_peak"]["arithmetic"] == "a recorded start took 70.00"
    (near,) = planned(on=on._replace(took=66.5), **serve)["nodes"]
    assert near["serving"]["within_gib"] == round(used + within - (11.69 + 2 + 66.5), 2) > 1
    # Nothing was measured before that start: an idle system is taken.
    (idle,) = planned(on=node(took=80.0), **serve)["nodes"]
    assert idle["serving"]["used_gib"] == 84.0
    equal = planned(on=node(available=110.0, took=5.5 + 0.5 * TOTAL), **serve)["nodes"][0]
    assert "recorded" not in {part["id"] for part in equal["components"]}


# -- verdicts ----------------------------------------------------------------------------------------------------------

#: Six GiB are in use beside the engine's share, 3.5 or so may be wrong: a share of which each end can be hit.
FOUND = {"max_model_len": 1024, "max_num_seqs": 1, "max_num_batched_tokens": 1024}


def share_that_leaves(worst, on):
    """The share with which the worst case of the serving figure leaves so much."""
    out, within = (on.total - on.available + 5.5, root(0.5, 3.5))
    return (on.total - out - within - worst) / on.total


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize(
    ("worst", "verdict", "borne", "message"),
    [
        (8.02, plan.FITS, plan.FITS, ""),
        (7.98, plan.TIGHT, plan.FITS, "GiB stay available while it serves, expected 8 until a start is recorded"),
        (0.02, plan.TIGHT, plan.FITS, "GiB stay available while it serves, expected 8 until a start is recorded"),
        (-0.02, plan.NO, plan.TIGHT, "GiB would be in use while it serves"),
        (-7.05, plan.NO, plan.TIGHT, "GiB would be in use while it serves"),
        (-7.1, plan.NO, plan.NO, "GiB would be in use while it serves"),
    ],
)
def test_the_worst_case_decides_and_with_a_record_the_best(worst, verdict, borne, message, recorded):
    """On a node of 60 GiB, where neither CUDA's limit nor the check at the start gives a reason earlier."""
    on = node(60.0, available=58.0)
    share = share_that_leaves(worst, on)
    small = {**DENSE, "checkpoint_gb": 8}
    outcome = planned(small, on=on, settings=use(small, **FOUND, gpu_memory_utilization=share)._replace(recorded=recorded))
    assert outcome["verdict"] == (borne if recorded else verdict), outcome["reasons"]
    reasons = [reason for reason in outcome["reasons"] if "at its start" not in reason]
    if message and not (recorded and borne == plan.FITS):
        assert message in reasons[0] and f"{worst + root(0.5, 3.5):.1f} +/- 3.5" in reasons[0], reasons
        rest = "a: the weights take 7.6 GiB and leave 52.4, of which the KV cache could have"
        assert any(reason.startswith(rest) for reason in reasons) is (outcome["verdict"] == plan.NO)
    else:
        assert not any("while it serves" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("size", "verdict", "borne"),
    [
        (46.3, plan.FITS, plan.FITS), (46.7, plan.TIGHT, plan.FITS), (49.2, plan.TIGHT, plan.FITS), (49.6, plan.NO, plan.TIGHT), (57.6, plan.NO, plan.TIGHT),
        (58.0, plan.NO, plan.NO),
    ],
)
def test_what_is_left_once_the_weights_are_loaded_decides_too(size, verdict, borne):
    """Weights that are half as large once they are FP8, on 60 GiB: 6.5 are in use beside them and may be 3.7 more."""
    facts = {**DENSE, "vocab_size": 0, "weights_bits": 16, "weights_gib_per_rank": size}
    for recorded, expected in ((False, verdict), (True, borne)):
        settings = use(facts, **FOUND, gpu_memory_utilization=0.6, quantization="fp8", enforce_eager=True)._replace(recorded=recorded)
        outcome = planned(facts, on=node(60.0, available=60.0), settings=settings)
        assert outcome["verdict"] == expected, (size, recorded, outcome["reasons"])
        loaded = [reason for reason in outcome["reasons"] if reason.endswith("GiB are left of 60 once the weights are loaded")]
        within = root(0.5, 3.5, size * 0.03, size * 0.015, 1.0)
        assert loaded == ([] if expected == plan.FITS else [f"a: {60 - 6.5 - size:.1f} +/- {within:.1f} GiB are left of 60 once the weights are loaded"])


@pytest.mark.parametrize(
    ("free", "verdict", "borne"), [(61.2, plan.FITS, plan.FITS), (61.1, plan.TIGHT, plan.FITS), (60.6, plan.TIGHT, plan.FITS), (60.5, plan.NO, plan.NO)]
)
def test_the_check_at_the_start_wants_the_share_free(free, verdict, borne):
    """0.5 of 121.69 is 60.85, and what the engine found may be 0.3 off."""
    for recorded, expected in ((False, verdict), (True, borne)):
        settings = use(**FOUND, gpu_memory_utilization=0.5)._replace(recorded=recorded)
        # Ten GiB of what is in use goes once it has started: the figures themselves fit.
        outcome = planned(settings=settings, on=node(free_at_start=free), declared=None)
        start = [reason for reason in outcome["reasons"] if "at its start" in reason]
        assert start == ([] if expected == plan.FITS else [
            f"a: at its start the engine wants 60.8 GiB free (0.5 of 121.69) and would find {free:.1f} +/- 0.3"
        ]) and (outcome["verdict"] == plan.NO) >= (expected == plan.NO)  # fmt: skip


def test_a_share_beyond_the_end_of_cudas_own_memory_is_doubted_until_a_start_is_recorded():
    small = {**DENSE, "checkpoint_gb": 8}

    def reasons_at(share, on=None, recorded=False):
        outcome = planned(small, on=on or node(available=121.0), settings=use(small, **FOUND, gpu_memory_utilization=share)._replace(recorded=recorded))
        return [reason for reason in outcome["reasons"] if "CUDA" in reason]

    wants = "a: at its start the engine wants 102.2 GiB free (0.84 of 121.69)"
    assert reasons_at(0.84) == [f"{wants}, and CUDA's own free memory was reported to end near 102, whatever MemAvailable says"]
    assert reasons_at(0.838) == reasons_at(0.84, recorded=True) == []
    assert reasons_at(0.84, on=node(243.0)) == reasons_at(0.84, on=node(60.84)) == reasons_at(0.84, on=node(free_at_start=121.0)) == []
    ends = [planned(small, on=node(total))["nodes"][0]["at_start"]["cuda_gib"] for total in (118.0, 118.1, 125.4, 125.5)]
    assert ends == [None, round(118.1 * 102 / 121.69, 2), round(125.4 * 102 / 121.69, 2), None]


def test_a_share_left_to_the_engine_does_not_fit():
    small = {**DENSE, "checkpoint_gb": 8}
    text = "a: gpu_memory_utilization is left to the engine, and its 0.5 is made for memory that the system does not share"
    plain = use(small, **FOUND)._replace(default_share=0.5)
    assert (planned(small, settings=plain)["verdict"], planned(small, settings=plain)["reasons"]) == (plan.NO, [text])
    borne = planned(small, settings=plain._replace(recorded=True))
    assert (borne["verdict"], borne["reasons"]) == (plan.TIGHT, [text])
    assert planned(small, settings=plain._replace(kv_bytes=GIB, recorded=True))["verdict"] == plan.FITS


def test_a_cache_that_is_too_small_is_refused_and_one_that_may_be_is_doubted():
    """A sequence of 16384 tokens takes 2 GiB; what the parts before the cache may be wrong by is 0.5 or so."""
    outcomes = {}
    for kv in (1.9, 1.99, 2.1, 2.5):
        settings = use(max_model_len=16384, max_num_seqs=1, gpu_memory_utilization=0.5)._replace(kv_bytes=int(kv * GIB), recorded=True)
        outcome = planned(settings=settings)
        outcomes[kv] = (outcome["verdict"], outcome["reasons"])
    refused = "a: the engine would refuse: one sequence of 16384 tokens takes 2.00 GiB and the KV cache has 1.{} +/- 0.20 GiB, as pinned"
    assert outcomes[2.5] == (plan.FITS, [])
    assert outcomes[2.1] == (plan.TIGHT, ["a: one sequence of 16384 tokens takes 2.00 GiB and the KV cache has 2.10 +/- 0.20 GiB"])
    assert outcomes[1.9][0] == plan.TIGHT
    less = planned(settings=settings._replace(kv_bytes=int(1.7 * GIB)))
    assert less["verdict"] == plan.NO and less["reasons"][0] == refused.format("70")


def test_messages_about_states_and_unrequested_sequences():
    shared = {"max_model_len": 1024, "gpu_memory_utilization": 0.45}
    requested = planned(HYBRID, **shared, max_num_seqs=400)
    state, sequence = 3 * PAGE, 2 * PAGE
    (text,) = [reason for reason in requested["reasons"] if "sequences" in reason]
    assert text.startswith(f"a: the engine would refuse: the state of 400 sequences takes {400 * state:.2f} GiB and the KV cache has ")
    assert ": 0.45 of 121.69 GiB less " in text and text.endswith("for weights, activations and graphs")
    left = planned(HYBRID, **shared)
    (text,) = left["reasons"]
    takes = f"take {sequence + 1024 * state:.2f} GiB and the KV cache has "
    assert text.startswith(f"a: one sequence and the state of 1024 sequences (max_num_seqs is left to the engine) {takes}")
    some = planned(HYBRID, **shared, max_num_seqs=280)
    (text,) = some["reasons"]
    assert some["verdict"] == plan.TIGHT and text.startswith(f"a: the state of 280 sequences takes {280 * state:.2f} GiB and the KV cache has ")
    few = planned(HYBRID, **shared, max_num_seqs=1)
    assert (few["verdict"], few["reasons"]) == (plan.FITS, [])


def test_a_mapped_table_and_an_unsized_drafter_are_doubted():
    mapped = {**DENSE, "checkpoint_gb": 80 * GIB / 1e9, "file_backed_gib": 50.0}
    outcome = planned(mapped, **FOUND, gpu_memory_utilization=0.6)
    left = TOTAL - 9.5 - 0.6 * TOTAL
    assert outcome["reasons"] == [f"a: 50 GiB of tables are read from a mapped file, and only {left:.1f} GiB are left for its pages"]
    assert planned({**mapped, "file_backed_gib": 30.0}, **FOUND, gpu_memory_utilization=0.6)["verdict"] == plan.FITS
    spec = {"speculative_config": {"method": "dflash", "model": "a/b", "num_speculative_tokens": 2}}
    outcome = planned(**FOUND, **spec, gpu_memory_utilization=0.6)
    assert outcome["reasons"] == ["a: the size of the drafter is not known: give its repository a size_gb"]
    assert planned(settings=use(**FOUND, **spec, gpu_memory_utilization=0.6)._replace(recorded=True))["verdict"] == plan.FITS


def test_a_cache_for_fewer_sequences_than_are_wanted_is_tight_and_says_how_many():
    outcome = planned(max_model_len=131072, max_num_seqs=4, gpu_memory_utilization=0.8, concurrency=4)
    (node_plan,) = outcome["nodes"]
    held = node_plan["pool_gib"] / node_plan["one_sequence_gib"]
    assert outcome["verdict"] == plan.TIGHT and node_plan["sequences"] == 3
    assert outcome["reasons"] == [f"a: the cache holds {held:.1f} of 4 sequences of 131072 tokens at once; others wait or are computed again"]
    titles = {part["id"]: part["title"] for part in node_plan["components"]}
    assert titles["kv"] == "KV cache, part of 4 x 131072 tokens" and sheet(outcome)["kv"][0] == pytest.approx(node_plan["pool_gib"], abs=0.01)
    enough = planned(max_model_len=131072, max_num_seqs=4, gpu_memory_utilization=0.8, concurrency=3)
    assert enough["verdict"] == plan.FITS and {part["title"] for part in enough["nodes"][0]["components"]} >= {"KV cache of 3 x 131072 tokens"}


def test_without_nodes_or_facts_or_readable_values_there_is_no_plan():
    assert plan.plan(DENSE, use(gpu_memory_utilization=0.5), []) == {
        "verdict": plan.UNKNOWN, "missing": ["nodes"], "nodes": [], "would_fit": [], "kv": {}, "reasons": ["unknown without nodes"],
    }  # fmt: skip
    outcome = planned({"hidden_size": 1, "checkpoint_gb": 1, "kv_bytes_per_token": 1}, settings=use(max_num_seqs="many"))
    assert outcome["missing"] == ["max_num_seqs: is 'many'; expected a whole number of 1 or more", "memory.config.num_hidden_layers"]
    assert plan.lacking({"hidden_size": 1}, None)[0].startswith("memory.weights_gb") and plan.lacking({**DENSE, "weights_gib_per_rank": 1.0}, None) == []


# -- what would go -----------------------------------------------------------------------------------------------------


def go(facts=None, on=None, declared=None, **serve):
    outcome = planned(facts, on=on, declared=declared, search=True, **serve)
    return outcome["verdict"], [tuple(change.values()) for change in outcome["would_fit"]]


def test_single_changes_that_would_do_are_found():
    assert go(max_model_len=500000, max_num_seqs=1, gpu_memory_utilization=0.8) == (plan.TIGHT, [("max_model_len", 249856, plan.FITS), ("nodes", 2, plan.FITS)])
    shares = [("gpu_memory_utilization", 0.82, plan.FITS), ("gpu_memory_utilization", 0.87, plan.TIGHT)]
    assert go(max_model_len=8192, max_num_seqs=1, gpu_memory_utilization=0.99) == (plan.NO, shares)
    assert go(max_model_len=8192, max_num_seqs=1) == (plan.NO, shares)
    fewer = [("max_num_seqs", 256, plan.FITS), ("nodes", 2, plan.FITS)]
    assert go(HYBRID, max_model_len=8192, max_num_seqs=600, gpu_memory_utilization=0.5) == (plan.NO, fewer)
    assert go(HYBRID, max_model_len=8192, gpu_memory_utilization=0.5) == (plan.TIGHT, fewer)
    half = [("kv_cache_memory_bytes", 40 * GIB, plan.TIGHT), ("nodes", 2, plan.TIGHT)]
    assert go(max_model_len=8192, max_num_seqs=1, kv_cache_memory_bytes="80G", gpu_memory_utilization=0.5) == (plan.NO, half)
    small = go(max_model_len=8192, max_num_seqs=1, kv_cache_memory_bytes=int(0.6 * GIB), gpu_memory_utilization=0.5)
    assert small == (plan.NO, [("max_model_len", 4096, plan.TIGHT), ("nodes", 2, plan.TIGHT)])
    single = go(HYBRID, max_model_len=64, max_num_seqs=2, kv_cache_memory_bytes="110m", gpu_memory_utilization=0.5)
    assert single == (plan.NO, [("max_num_seqs", 1, plan.TIGHT), ("nodes", 2, plan.TIGHT)])
    large = {**DENSE, "checkpoint_gb": 200}
    assert go(large, max_model_len=8192, max_num_seqs=1, gpu_memory_utilization=0.8) == (plan.NO, [("nodes", 4, plan.FITS), ("nodes", 2, plan.TIGHT)])
    unsized = {name: value for name, value in DENSE.items() if name != "checkpoint_gb"}
    assert go(unsized, declared=200.0, max_model_len=8192, max_num_seqs=1, gpu_memory_utilization=0.8) == (plan.NO, [("nodes", 4, plan.FITS)])
    assert go(max_model_len=8192, max_num_seqs=1, gpu_memory_utilization=0.5) == (plan.FITS, [])
    short = plan.plan(large, use(large, max_model_len=8000, max_num_seqs=1, gpu_memory_utilization=0.8), [node()])
    assert {change["change"] for change in short["would_fit"]} == {"nodes"}, "less than 4096 tokens are no proposal"
    odd = {**large, "num_attention_heads": 6}
    assert go(odd, max_model_len=8192, max_num_seqs=1, gpu_memory_utilization=0.8)[1] == [("nodes", 2, plan.TIGHT)], "6 heads go on 2 ranks and not on 4"
    assert plan.plan(DENSE, use(max_model_len=8192, gpu_memory_utilization=0.99), [node()], search=False)["would_fit"] == []


def test_more_nodes_are_all_ranks_of_the_plan():
    large = {**DENSE, "checkpoint_gb": 400}
    staged = plan.plan(large, use(large, pipeline=2, max_model_len=8192, max_num_seqs=1, gpu_memory_utilization=0.8), [node()])
    assert [change["to"] for change in staged["would_fit"] if change["change"] == "nodes"] == [8, 4], "ranks of both stages"
    replicas = plan.plan({**DENSE, "checkpoint_gb": 200}, use(data=3, max_model_len=8192, max_num_seqs=1, gpu_memory_utilization=0.8), [node()])
    assert {change["to"] for change in replicas["would_fit"] if change["change"] == "nodes"} == {6, 12}, "ranks of all replicas"


def test_the_smallest_proposal_is_a_quarter_of_a_gib():
    settings = use(max_model_len=64, max_num_seqs=1, gpu_memory_utilization=0.5)
    assert planned(settings=settings)["propose_kv_cache_memory_bytes"] == GIB // 4


@pytest.mark.parametrize(("sequences", "first"), [(300, 256), (100, 64), (40, 32), (20, 16), (10, 8), (6, 4), (3, 2), (2, 1)])
def test_fewer_sequences_are_tried_in_steps(sequences, first):
    """Each sequence has a state of 1/16 GiB, and a cache sized in bytes has room for only a few of the requested sequences."""
    size = int((first + 0.5) * 3 * PAGE * GIB)
    outcome = planned(HYBRID, max_model_len=64, max_num_seqs=sequences, kv_cache_memory_bytes=size, gpu_memory_utilization=0.4, search=True)
    assert next(change["to"] for change in outcome["would_fit"] if change["change"] == "max_num_seqs") == first


def test_the_proposal_is_that_of_the_smallest_node():
    settings = use(max_model_len=2**20, max_num_seqs=1, gpu_memory_utilization=0.7, kv_cache_dtype="nvfp4")
    both = [components.Node("a", 121.69), components.Node("b", 98.0)]
    alone = [plan.plan(DENSE, settings, [place], search=False)["propose_kv_cache_memory_bytes"] for place in both]
    assert alone[1] < alone[0] and plan.plan(DENSE, settings, both, search=False)["propose_kv_cache_memory_bytes"] == alone[1]
    assert plan.plan(DENSE, settings, [*both, components.Node("c", 60.0)], search=False)["propose_kv_cache_memory_bytes"] is None


# -- recipes that run --------------------------------------------------------------------------------------------------

RUNS = use(HYBRID, max_model_len=8192, max_num_seqs=8, gpu_memory_utilization=0.9, max_num_batched_tokens=4096, cpu_offload_gb=1,
           speculative_config={"method": "mtp", "num_speculative_tokens": 2})._replace(vision=True, ray=True, online_fp8=True)  # fmt: skip
PINNED = RUNS._replace(utilization=None, kv_bytes=4 * GIB)


@pytest.mark.parametrize(
    ("changes", "covered"),
    [
        ({}, True),
        ({"context": 8193}, False), ({"context": 4096}, True), ({"seqs": 9}, False), ({"seqs": None}, False), ({"seqs": 1}, True), ({"batched": 4097}, False),
        ({"batched": 1}, True), ({"utilization": 0.901}, False), ({"utilization": 0.5}, True), ({"utilization": None}, False),
        ({"utilization": None, "default_share": 0.9}, True), ({"utilization": None, "kv_bytes": GIB}, False), ({"kv_value": 4.0}, False),
        ({"kv_value": 1.0}, True),
        ({"drafts": 3}, False), ({"drafts": 1}, True), ({"pinned_gib": 1.1}, False), ({"pinned_gib": 0.0}, True), ({"unsized_draft": True}, False),
        ({"graphs": False}, True), ({"vision": False}, True), ({"ray": False}, True), ({"online_fp8": False}, True), ({"tensor": 2}, False),
        ({"pipeline": 2}, False), ({"data": 2}, False), ({"context_ranks": 2}, False), ({"own_draft": False}, False), ({"draft_split": False}, False),
        ({"loader": "fastsafetensors"}, False), ({"loader": "safetensors"}, True),
    ],
)  # fmt: skip
def test_a_report_counts_for_what_takes_no_more(changes, covered):
    reports = [recipe.Report(RUNS, 32.0, TOTAL, 0.0, "an owner")]
    assert plan.reported(RUNS._replace(**changes), 32.0, node(), reports) == ("an owner" if covered else "")


@pytest.mark.parametrize(
    ("field", "more"), [("graphs", True), ("vision", True), ("ray", True), ("online_fp8", True), ("unsized_draft", True), ("loader", "fastsafetensors")]
)
def test_a_report_without_something_counts_for_nothing_with_it(field, more):
    less = RUNS._replace(**{"graphs": False, "vision": False, "ray": False, "online_fp8": False, "loader": "auto"})
    reports = [recipe.Report(less, 32.0, TOTAL, 0.0, "an owner")]
    assert plan.reported(less, 32.0, node(), reports) == "an owner" and plan.reported(less._replace(**{field: more}), 32.0, node(), reports) == ""
    with_it = [recipe.Report(less._replace(**{field: more}), 32.0, TOTAL, 0.0, "an owner")]
    assert plan.reported(less._replace(**{field: more}), 32.0, node(), with_it) == "an owner"


def test_a_report_of_a_cache_in_bytes_counts_for_an_equal_or_smaller_one():
    reports = [recipe.Report(RUNS._replace(context=1), 32.0, TOTAL, 0.0, "another owner"), recipe.Report(PINNED, 32.0, TOTAL, 0.0, "an owner")]
    for changes, who in (({}, "an owner"), ({"kv_bytes": 4 * GIB + 1}, ""), ({"kv_bytes": GIB}, "an owner"), ({"kv_bytes": None, "utilization": 0.1}, "")):
        assert plan.reported(PINNED._replace(**changes), 32.0, node(), reports) == who, changes


@pytest.mark.parametrize(
    ("loads", "on", "covered"),
    [
        (32.0, node(), True), (32.98, node(), True), (33.0, node(), False), (1.0, node(), True), (32.0, node(118.1), True), (32.0, node(118.0), False),
        (32.0, node(243.0), True), (32.0, node(tenants=2.0), True), (32.0, node(tenants=2.1), False), (32.0, node(available=115.69), True),
        (32.0, node(available=115.6), False), (32.0, node(free_at_start=121.0), False),
    ],
)  # fmt: skip
def test_a_report_counts_for_a_node_like_those(loads, on, covered):
    reports = [recipe.Report(RUNS, 32.0, TOTAL, 2.0, "an owner")]
    assert plan.reported(RUNS, loads, on, reports) == ("an owner" if covered else "")


def test_a_report_keeps_from_no_and_makes_nothing_fit():
    settings = use(max_model_len=8192, max_num_seqs=1, gpu_memory_utilization=0.9)
    reports = [recipe.Report(settings, 40.0, TOTAL, 0.0, "an owner")]
    outcome = planned(settings=settings, reports=reports, search=True)
    (node_plan,) = outcome["nodes"]
    assert (outcome["verdict"], node_plan["reported"]) == (plan.TIGHT, "an owner") and outcome["reasons"][-1] == "a: it is reported to run: an owner"
    assert outcome["reasons"][0] == "a: 119.0 GiB would be in use while it serves, 2.7 +/- 4.0 left of 121.69"
    assert outcome["would_fit"] == [{"change": "gpu_memory_utilization", "to": 0.82, "verdict": plan.FITS}]
    assert planned(settings=settings)["verdict"] == plan.NO
    fits = planned(settings=settings._replace(utilization=0.6), reports=reports)
    assert (fits["verdict"], fits["reasons"]) == (plan.FITS, [])
    large = planned({**DENSE, "checkpoint_gb": 150}, settings=settings, reports=[reports[0]._replace(weights=200.0)])
    assert large["verdict"] == plan.NO and large["nodes"][0]["reported"] == "an owner" and "reported to run" not in str(large["reasons"])


# -- advice ------------------------------------------------------------------------------------------------------------


def test_advice_to_the_letter():
    dense = plan.advice(DENSE, use(tensor=2), None)
    assert dense == [
        "a dense model: a step reads about 34.4 GB of weights, so 2 node(s) make at most 10 to 11 tokens/s for one user "
        "(180 to 192 GB/s of a Spark's memory; spark-training-gotchas)",
        "dense models read all weights for each token: a second node or a drafter helps one user most (Qwen3.8-27B 24.27 to 37.35 tokens/s, NVIDIA)",
    ]
    experts = {**HYBRID, "parameters": 16 * 10**9, "parameters_active": 10**9}
    spec = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 3}}
    drafted = plan.advice(experts, use(experts, **spec), plan.NO)
    assert drafted == [
        "experts: a step reads about 2.1 GB of weights, so 1 node(s) make at most 84 to 89 steps/s for one user, each of up to 4 tokens with the drafter "
        "(180 to 192 GB/s of a Spark's memory; spark-training-gotchas)",
        "it does not fit one node, so there is no choice between one model over the nodes and a replica on each",
    ]
    slow = plan.advice({**DENSE, "checkpoint_gb": 100.0}, use(), None)[0]
    assert "1 node(s) make at most 2 tokens/s for one user" in slow
    unknown = plan.advice({"num_experts": 4}, use(), plan.FITS)
    assert len(unknown) == 1 and unknown[0].startswith("it also fits one node: over two nodes one user gets more")
    assert plan.advice({"num_experts": 4}, use(), plan.TIGHT) == unknown and plan.advice({"num_experts": 4}, use(), None) == []
