# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The formula of the memory plan: its sums, its refusals, and that larger inputs never need less memory."""

from __future__ import annotations

import ast
import itertools
import random
import sys
from pathlib import Path

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._memory import components, model_facts, plan, recipe

ROOM = Path(plan.__file__).parent

NEMOTRON = {
    "num_hidden_layers": 88, "hidden_size": 4096, "vocab_size": 131072, "attention_layers": 8, "mamba_layers": 40, "num_attention_heads": 32,
    "num_key_value_heads": 2, "head_dim": 128, "num_experts": 512, "num_experts_per_tok": 22, "moe_intermediate_size": 2688, "moe_latent_size": 1024,
    "mamba_state_bytes_per_sequence": 170229760, "checkpoint_gb": 80.37,
}  # fmt: skip
QWEN_235B = {
    "num_hidden_layers": 94, "hidden_size": 4096, "vocab_size": 151936, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128,
    "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1536, "weights_bits": 4, "weights_group": 128,
}  # fmt: skip
MINIMAX_FP8 = {
    "num_hidden_layers": 62, "hidden_size": 3072, "vocab_size": 200064, "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128,
    "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 1536, "checkpoint_gb": 230.14,
}  # fmt: skip
DENSE = {
    "num_hidden_layers": 48, "hidden_size": 5120, "intermediate_size": 13824, "vocab_size": 152064, "num_attention_heads": 40, "num_key_value_heads": 8,
    "head_dim": 128, "weights_bits": 8,
}  # fmt: skip
SLIDING = {
    "num_hidden_layers": 30, "hidden_size": 2816, "vocab_size": 262144, "attention_layers": 5, "sliding_layers": 25, "sliding_window": 1024,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256, "global_num_key_value_heads": 2, "global_head_dim": 512, "checkpoint_gb": 51.6,
}  # fmt: skip
LATENT = {
    "num_hidden_layers": 43, "hidden_size": 4096, "vocab_size": 129280, "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512,
    "latent_layers": [{"layers": 21, "width": 640, "ratio": 4}, {"layers": 20, "width": 512, "ratio": 128}, {"layers": 43, "width": 512, "window": 128}],
    "checkpoint_gb": 159.6,
}  # fmt: skip
MODELS = {"nemotron": NEMOTRON, "qwen": QWEN_235B, "minimax": MINIMAX_FP8, "dense": DENSE, "sliding": SLIDING, "latent": LATENT}


def use(facts, tensor=2, **serve):
    return recipe.settings_of(serve, {"tensor": tensor}, facts)


def pair(total=121.69, **more):
    return [components.Node("a", total, **more), components.Node("b", total, **more)]


def planned(facts, tensor=2, nodes=None, concurrency=1, declared=None, **serve):
    return plan.plan(facts, use(facts, tensor, **serve), nodes or pair(), concurrency=concurrency, declared_gib=declared, search=False)


def part(outcome, name):
    return next((component["gib"] for component in outcome["nodes"][0]["components"] if component["id"] == name), 0.0)


# -- against what was reported -----------------------------------------------------------------------------------------


def test_the_weights_of_qwen3_235b_in_gptq_are_those_reported():
    outcome = planned(QWEN_235B, kv_cache_dtype="fp8", max_model_len=40960, gpu_memory_utilization=0.87)
    assert part(outcome, "weights") == pytest.approx(57.64, rel=0.1)
    assert part(outcome, "weights") == pytest.approx(57.64, rel=0.02), "the arithmetic alone is within 2 %"


@pytest.mark.parametrize("serve", [{"gpu_memory_utilization": 0.85}, {"gpu_memory_utilization": 0.9}, {"kv_cache_memory_bytes": "5G"}, {}])
def test_minimax_in_fp8_is_refused_on_two_nodes_because_its_weights_leave_nothing_for_the_cache(serve):
    outcome = planned(MINIMAX_FP8, kv_cache_dtype="fp8", max_model_len=196608, **serve)
    assert outcome["verdict"] == plan.NO
    assert part(outcome, "weights") == pytest.approx(107.2, rel=0.03)
    assert any("the weights take 108.8 GiB and leave 12.9" in reason for reason in outcome["reasons"]), outcome["reasons"]
    assert outcome["nodes"][0]["one_sequence_gib"] == pytest.approx(11.625)


def test_a_refusal_names_what_would_be_lost():
    serve = use(MINIMAX_FP8, kv_cache_dtype="fp8", max_model_len=196608, gpu_memory_utilization=0.8)
    outcome = plan.plan(MINIMAX_FP8, serve, pair())
    assert outcome["verdict"] == plan.NO and {"change": "nodes", "to": 4} in [{name: item[name] for name in ("change", "to")} for item in outcome["would_fit"]]
    longer = plan.plan(QWEN_235B, use(QWEN_235B, max_model_len=1048576, gpu_memory_utilization=0.8), pair())
    assert longer["verdict"] == plan.NO and [change for change in longer["would_fit"] if change["change"] == "max_model_len"]


def test_the_cache_of_nemotron_grows_by_one_gib_a_node_from_512k_to_1m():
    sizes = [components.kv_bytes(NEMOTRON, use(NEMOTRON, kv_cache_dtype="fp8", max_model_len=length)) for length in (524288, 1048576)]
    assert (sizes[1] - sizes[0]) / components.GIB == 1.0


def test_a_request_uses_the_engines_devices():
    """From the log of a start: 36.25 GiB are enough for 27.81 sequences of 131072 tokens, with MTP of three tokens."""
    facts = {**NEMOTRON, "draft_layers": 1}
    used = use(facts, 1, kv_cache_dtype="fp8", max_model_len=131072, speculative_config={"method": "mtp", "num_speculative_tokens": 3})
    assert sum(components.paged_bytes(facts, used)[:2]) / components.GIB == pytest.approx(36.25 / 27.81, rel=0.03)


def test_a_start_that_was_measured_on_an_h100_is_planned_as_it_went():
    """vLLM 0.26.0, a model of Qwen3-8B's shape: 30.73 GiB of cache for 6.83 sequences of 32768 tokens. That GPU has memory of its own, so its log is a
    record of what the engine counts, and none of what the system takes."""
    facts = {
        "num_hidden_layers": 36, "hidden_size": 4096, "intermediate_size": 12288, "vocab_size": 151936, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 128, "weights_gib_per_rank": 15.27,
    }  # fmt: skip
    outcome = planned(facts, 1, nodes=[components.Node("h100", 79.18, free_at_start=78.66)], max_model_len=32768, max_num_seqs=64, gpu_memory_utilization=0.6)
    (node_plan,) = outcome["nodes"]
    assert outcome["verdict"] == plan.FITS and node_plan["one_sequence_gib"] == pytest.approx(30.73 / 6.83, abs=0.01)
    assert node_plan["at_start"]["wanted_gib"] == 47.51 and node_plan["pool_gib"] == pytest.approx(30.73, abs=4.0) and node_plan["pool_gib"] < 30.73


def test_a_sliding_layer_keeps_its_window_and_a_step():
    """The log of one start, of a release that kept room for one step: 40.61 GiB are enough for 35.75 sequences of 8192 tokens at 4096 tokens a step."""
    step = {"max_num_batched_tokens": 4096, "async_scheduling": False}
    size = components.kv_bytes(SLIDING, use(SLIDING, 1, max_model_len=8192, **step)) / components.GIB
    assert size == pytest.approx(40.61 / 35.75, rel=0.01)
    for scheduling, kept in ({"async_scheduling": False}, 5120), ({"no_async_scheduling": True}, 5120), ({}, 9216), ({"async_scheduling": True}, 9216):
        long = components.kv_parts(SLIDING, use(SLIDING, 1, max_model_len=262144, max_num_batched_tokens=4096, **scheduling))
        assert dict((kind, amount) for kind, amount, _text in long)["sliding"] == 2 * 25 * 8 * 256 * 2 * kept


def test_latent_rows_are_on_every_rank():
    single, two = (components.kv_bytes(LATENT, use(LATENT, tensor, max_model_len=1048576)) for tensor in (1, 2))
    assert single == two == 6880 * 1048576 + 5636096
    split = use(LATENT, 2, max_model_len=1048576, decode_context_parallel_size=2)
    assert components.kv_bytes(LATENT, split) == 6880 * 1048576 / 2 + 5636096


def test_heads_are_never_split_below_one():
    assert components.kv_bytes(NEMOTRON, use(NEMOTRON, 2, max_model_len=1024)) == components.kv_bytes(NEMOTRON, use(NEMOTRON, 4, max_model_len=1024))


# -- more is never less ------------------------------------------------------------------------------------------------

WAYS = [{"gpu_memory_utilization": 0.7}, {"gpu_memory_utilization": 0.85}, {"kv_cache_memory_bytes": 8 * components.GIB}, {}]


def rises(plans):
    """Whether nothing falls from one plan to the next: no figure of use, no verdict, no GiB that one sequence takes."""
    for before, after in itertools.pairwise(plans):
        assert plan.ORDER.index(before["verdict"]) <= plan.ORDER.index(after["verdict"]), (before, after)
        for first, second in zip(before["nodes"], after["nodes"], strict=True):
            for when in ("loading", "serving"):
                assert first[when]["used_gib"] <= second[when]["used_gib"] + 1e-9
                assert first[when]["available_gib"] >= second[when]["available_gib"] - 1e-9
    return True


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_a_longer_context_never_takes_less(name, way):
    lengths = [2**power for power in range(10, 23)]
    assert rises([planned(MODELS[name], max_model_len=length, max_num_seqs=8, **way) for length in lengths])
    sizes = [components.kv_bytes(MODELS[name], use(MODELS[name], max_model_len=length)) for length in lengths]
    assert all(first < second for first, second in itertools.pairwise(sizes))


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_more_at_once_never_takes_less(name, way):
    assert rises([planned(MODELS[name], max_model_len=32768, max_num_seqs=seqs, **way) for seqs in (1, 2, 4, 8, 32, 128, 512, 1024)])
    assert rises([planned(MODELS[name], max_model_len=32768, max_num_seqs=64, concurrency=wanted, **way) for wanted in (1, 2, 8, 64, 512)])


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("name", ["qwen", "dense"])
def test_more_layers_never_take_less(name, way):
    facts = [{**MODELS[name], "num_hidden_layers": layers} for layers in (1, 8, 24, 48, 94, 128, 256)]
    plans = [planned(model, max_model_len=65536, max_num_seqs=8, **way) for model in facts]
    assert rises(plans)
    assert all(part(first, "weights") < part(second, "weights") for first, second in itertools.pairwise(plans))


def test_random_recipes_never_take_less_for_more():
    source = random.Random(20261123)
    for _round in range(300):
        facts = dict(source.choice(list(MODELS.values())))
        serve = {
            "max_model_len": source.randrange(1024, 2**20),
            "max_num_seqs": source.randrange(1, 512),
            "max_num_batched_tokens": source.choice([1024, 2048, 8192, 32768]),
            "kv_cache_dtype": source.choice(["auto", "fp8", "nvfp4_ds_mla"]),
            **source.choice(WAYS),
        }
        if source.random() < 0.4:
            serve["speculative_config"] = {"method": "mtp", "num_speculative_tokens": source.randrange(1, 8)}
        what = source.choice(["max_model_len", "max_num_seqs", "max_num_batched_tokens"])
        more = {**serve, what: serve[what] * source.randrange(2, 9)}
        tensor = source.choice([1, 2])
        assert rises([planned(facts, tensor, **serve), planned(facts, tensor, **more)]), (facts, serve, what)


@pytest.mark.parametrize("measured", [{}, {"available": 112.0}, {"took": 90.0, "peak": 95.0}, {"available": 112.0, "took": 90.0, "peak": 95.0}], ids=str)
def test_others_never_make_it_better(measured):
    """Whatever was measured or recorded, each GiB that other processes claim counts as one more in use."""
    claims = (0.0, 1.0, 4.0, 16.0, 64.0)
    plans = [planned(NEMOTRON, nodes=pair(tenants=claim, **measured), max_model_len=262144, max_num_seqs=8, gpu_memory_utilization=0.7) for claim in claims]
    assert rises(plans)
    used = [outcome["nodes"][0]["serving"]["used_gib"] for outcome in plans]
    assert [round(gib - used[0], 6) for gib in used] == list(claims)


def test_more_memory_is_never_worse():
    for name, way in itertools.product(MODELS, WAYS[2:3]):
        plans = [planned(MODELS[name], nodes=pair(total), max_model_len=65536, max_num_seqs=8, **way) for total in (60.8, 119.6, 121.7, 243.0)]
        assert [plan.ORDER.index(outcome["verdict"]) for outcome in plans] == sorted([plan.ORDER.index(outcome["verdict"]) for outcome in plans], reverse=True)


# -- verdicts ----------------------------------------------------------------------------------------------------------


def test_the_worst_node_counts():
    nodes = [components.Node("a", 121.69), components.Node("b", 121.69, tenants=40.0)]
    outcome = planned(NEMOTRON, nodes=nodes, max_model_len=262144, max_num_seqs=8, gpu_memory_utilization=0.75)
    assert [node_plan["verdict"] for node_plan in outcome["nodes"]] == [plan.FITS, plan.NO] and outcome["verdict"] == plan.NO
    assert all(reason.startswith("b: ") for reason in outcome["reasons"])


def test_a_pinned_cache_is_tight_until_a_start_is_recorded():
    serve = {"max_model_len": 262144, "max_num_seqs": 8, "kv_cache_memory_bytes": "4G", "kv_cache_dtype": "fp8"}
    assert planned(NEMOTRON, **serve)["verdict"] == plan.TIGHT
    recorded = recipe.settings_of(serve, {"tensor": 2}, NEMOTRON, recorded=True)
    assert plan.plan(NEMOTRON, recorded, pair())["verdict"] == plan.FITS
    small = planned(NEMOTRON, **{**serve, "kv_cache_memory_bytes": "100M"})
    assert small["verdict"] == plan.NO and any("the engine would refuse" in reason for reason in small["reasons"])


def test_a_pinned_cache_makes_the_share_a_check_at_the_start():
    serve = {"max_model_len": 262144, "max_num_seqs": 8, "kv_cache_memory_bytes": "4G"}
    low, high = (planned(NEMOTRON, **serve, gpu_memory_utilization=share) for share in (0.01, 0.85))
    assert low["nodes"][0]["serving"] == high["nodes"][0]["serving"]
    refused = planned(NEMOTRON, nodes=pair(free_at_start=90.0), **serve, gpu_memory_utilization=0.85)
    assert refused["verdict"] == plan.NO and any("at its start the engine wants 103.4 GiB free" in reason for reason in refused["reasons"])


def test_the_larger_of_plan_and_record_counts():
    serve = {"max_model_len": 262144, "max_num_seqs": 8, "gpu_memory_utilization": 0.75}
    plain = planned(NEMOTRON, nodes=pair(available=116.0), **serve)["nodes"][0]
    used = plain["serving"]["used_gib"]
    less = planned(NEMOTRON, nodes=pair(available=116.0, took=50.0, peak=20.0), **serve)["nodes"][0]
    assert less == plain
    more = planned(NEMOTRON, nodes=pair(available=116.0, took=111.0, peak=112.0), **serve)["nodes"][0]
    assert more["serving"]["used_gib"] == pytest.approx(121.69 - 116 + 111, abs=0.01)
    assert more["loading"]["used_gib"] == pytest.approx(121.69 - 116 + 112, abs=0.01)
    assert more["verdict"] == plan.TIGHT and plain["verdict"] == plan.FITS
    parts = {component["id"]: component["gib"] for component in more["components"]}
    assert parts["recorded"] == pytest.approx(more["serving"]["used_gib"] - used, abs=0.01)
    # The worst case of either is the worst case of both.
    assert all(
        more[when]["used_gib"] + more[when]["within_gib"] >= plain[when]["used_gib"] + plain[when]["within_gib"] - 0.01 for when in ("loading", "serving")
    )


def test_a_larger_record_is_never_better():
    serve = {"max_model_len": 262144, "max_num_seqs": 8, "gpu_memory_utilization": 0.75}
    for way in ("took", "peak"):
        assert rises([planned(NEMOTRON, nodes=pair(available=110.0, **{way: size}), **serve) for size in (None, 0.0, 60.0, 90.0, 100.0, 105.0, 110.0, 120.0)])


def test_nothing_is_guessed_where_facts_are_missing():
    outcome = planned({"num_hidden_layers": 10})
    assert outcome["verdict"] == plan.UNKNOWN and outcome["nodes"] == []
    assert "memory.config.hidden_size" in outcome["missing"] and any("weights_gb" in path for path in outcome["missing"])
    states = {name: value for name, value in NEMOTRON.items() if name != "mamba_state_bytes_per_sequence"}
    assert planned(states)["missing"] == ["memory.config.recurrent_state_bytes_per_sequence"]
    assert planned({**NEMOTRON, "head_dim": "128"})["missing"] == ["head_dim is '128', expected a whole number"]
    assert planned({**LATENT, "latent_layers": [{"layers": 0, "width": 512}]})["verdict"] == plan.UNKNOWN


def test_a_declared_size_counts_where_the_facts_say_nothing():
    facts = {name: value for name, value in NEMOTRON.items() if name != "checkpoint_gb"}
    assert part(planned(facts, declared=40.0), "weights") == pytest.approx(40.0)


def test_a_drafter_is_on_the_bill():
    serve = {"max_model_len": 32768, "max_num_seqs": 4, "gpu_memory_utilization": 0.8}
    spec = {"method": "dflash", "model": "repository:drafter", "num_speculative_tokens": 8}
    plain = planned(DENSE, 1, nodes=pair()[:1], **serve)
    unknown = planned(DENSE, 1, nodes=pair()[:1], **serve, speculative_config=spec)
    sized = plan.plan(DENSE, recipe.settings_of({**serve, "speculative_config": spec}, {"tensor": 1}, DENSE, draft_gib=3.7), pair()[:1], search=False)
    assert plain["verdict"] == plan.FITS and unknown["verdict"] == plan.TIGHT and any("drafter" in reason for reason in unknown["reasons"])
    assert part(sized, "drafter") > 3.7 and sized["nodes"][0]["pool_gib"] < plain["nodes"][0]["pool_gib"]


def test_what_a_table_in_a_file_wants_of_the_page_cache_makes_it_tight():
    serve = {"max_model_len": 65536, "max_num_seqs": 4, "gpu_memory_utilization": 0.8}
    assert planned({**QWEN_235B, "checkpoint_gb": 120}, **serve)["verdict"] == plan.FITS
    mapped = planned({**QWEN_235B, "checkpoint_gb": 150, "file_backed_gib": 26.8}, **serve)
    assert mapped["verdict"] == plan.TIGHT and any("mapped file" in reason for reason in mapped["reasons"])


def test_sums_are_those_of_the_parts():
    for name, way in itertools.product(MODELS, WAYS):
        for node in planned(MODELS[name], max_model_len=65536, max_num_seqs=8, **way)["nodes"]:
            parts = [component for component in node["components"] if component["id"] != "page_cache"]
            for when in ("loading", "serving"):
                total = sum(component["gib"] for component in parts if when in component["when"])
                # A share smaller than what the engine needs before its cache leaves no cache.
                assert total == pytest.approx(node[when]["used_gib"], abs=0.02), (name, way, when)
            assert all(component["source"] and component["arithmetic"] for component in parts)


def test_every_constant_has_a_source():
    assert all(constant.source and constant.within >= 0 for constant in components.CONSTANTS.values())


@pytest.mark.parametrize("name", ["plan.py", "model_facts.py"])
def test_a_node_needs_nothing_but_the_standard_library(name):
    tree = ast.parse((ROOM / name).read_text(encoding="utf-8"), feature_version=(3, 10))
    names = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert all(item.split(".")[0] in sys.stdlib_module_names or item.startswith("ansible_collections.gb10.cluster.plugins.module_utils.") for item in names)


def test_advice_has_published_figures():
    facts = {**NEMOTRON, "parameters": 123611012096, "parameters_active": 12000000000}
    text = " ".join(plan.advice(facts, use(facts), plan.FITS))
    assert "experts" in text and "22.97 against 16.43" in text and "kubis.ai" in text
    assert "dense" in " ".join(plan.advice(DENSE, use(DENSE), None))


def test_a_token_reads_all_of_a_dense_model_and_the_active_experts_of_others():
    assert model_facts.read_share(DENSE) == 1.0
    assert model_facts.read_share({**QWEN_235B, "parameters": 235093634560, "parameters_active": 22000000000}) == pytest.approx(0.0936, abs=0.001)
    # 22 B of 235 B by the shape alone.
    assert model_facts.read_share(QWEN_235B) == pytest.approx(22.2 / 235.1, rel=0.02)
    assert model_facts.read_share({"num_experts": 8}) is None
    text = " ".join(plan.advice(DENSE, use(DENSE), plan.TIGHT))
    assert "a dense model: a step reads about" in text and "two replicas outlive the death of one node" in text
    assert "no choice between" in " ".join(plan.advice(NEMOTRON, use(NEMOTRON), plan.NO))


# -- config.json -------------------------------------------------------------------------------------------------------


def test_a_hybrid_config_is_read():
    config = {
        "architectures": ["NemotronHForCausalLM"], "hybrid_override_pattern": "MEMEM*E" * 2, "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 2, "head_dim": 128, "mamba_num_heads": 128, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4,
        "n_routed_experts": 512, "num_experts_per_tok": 22, "moe_intermediate_size": 2688, "moe_latent_size": 1024, "vocab_size": 131072,
        "num_nextn_predict_layers": 1, "quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "kv_cache_scheme": {"num_bits": 8}},
    }  # fmt: skip
    facts = model_facts.from_config(config)
    assert (facts["attention_layers"], facts["mamba_layers"], facts["num_hidden_layers"]) == (2, 6, 14)
    assert facts["mamba_state_bytes_per_sequence"] == 6 * 170229760 // 40
    assert facts["kv_cache_bits"] == 8 and "weights_bits" not in facts and facts["num_experts"] == 512 and facts["draft_layers"] == 1


def test_a_config_with_a_text_part_is_read():
    text = {
        "num_hidden_layers": 40, "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 248320,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 10, "linear_num_value_heads": 32, "linear_num_key_heads": 16,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "num_experts": 256, "num_experts_per_tok": 8,
        "moe_intermediate_size": 512, "mtp_num_hidden_layers": 1, "mamba_ssm_dtype": "float32",
    }  # fmt: skip
    facts = model_facts.from_config({"architectures": ["X"], "text_config": text, "vision_config": {"hidden_size": 1}, "torch_dtype": "bfloat16"})
    assert (facts["attention_layers"], facts["linear_layers"]) == (10, 30) and facts["recurrent_state_bytes_per_sequence"] == 64389120
    assert facts["multimodal"] is True and facts["draft_layers"] == 1 and facts["weights_bits"] == 16


def test_sliding_and_latent_configs_are_read():
    gemma = {"num_hidden_layers": 6, "layer_types": ["sliding_attention"] * 5 + ["full_attention"], "sliding_window": 1024, "num_global_key_value_heads": 2}
    facts = model_facts.from_config({"text_config": gemma, "architectures": ["G"]})
    assert (facts["attention_layers"], facts["sliding_layers"], facts["sliding_window"], facts["global_num_key_value_heads"]) == (1, 5, 1024, 2)
    plain = model_facts.from_config({"num_hidden_layers": 4, "sliding_window": 4096, "use_sliding_window": False, "hidden_size": 64, "num_attention_heads": 8})
    assert plain["attention_layers"] == 4 and "sliding_window" not in plain and plain["head_dim"] == 8 and plain["num_key_value_heads"] == 8
    deepseek = model_facts.from_config({"num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "hidden_size": 7168, "num_attention_heads": 128})
    assert model_facts.latent(deepseek) == [{"layers": 61, "width": 576, "ratio": 1, "window": 0}] and model_facts.plain_layers(deepseek) == 0


@pytest.mark.parametrize(
    "quantization, expected",
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, {"weights_bits": 4, "weights_group": 128}),
        ({"quant_method": "mxfp4"}, {"weights_bits": 4, "weights_group": 32}),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, {"weights_bits": 8}),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": {"num_bits": 8}}, {"weights_bits": 4, "weights_group": 16, "kv_cache_bits": 8}),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 16}}}},
            {"weights_bits": 4, "weights_group": 16},
        ),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, {}),
        ("nonsense", {}),
    ],
)
def test_how_weights_are_stored_is_read(quantization, expected):
    facts = model_facts.from_config({"architectures": ["X"], "quantization_config": quantization})
    assert {name: facts[name] for name in ("weights_bits", "weights_group", "kv_cache_bits") if name in facts} == expected


def test_the_parameters_of_qwen3_235b_are_counted():
    assert model_facts.parameters_of(QWEN_235B) == pytest.approx(235093634560, rel=1e-4)
    assert model_facts.parameters_of(NEMOTRON) is None
