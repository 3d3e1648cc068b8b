# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Words of a command as typed arguments, with the placeholders of both formats."""

from __future__ import annotations

import shlex

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._import import arguments, template
from ansible_collections.gb10.cluster.plugins.plugin_utils._import.ledger import Ledger, RecipeError

VALUES = {"n": 3, "tp": 2, "spec": '{"method":"mtp","n":{n}}', "loop": "{loop}", "none": None, "words": "a b", "map": {"a": {"b": 1}}}


def parse(text, doubled_first=True, ledger=None):
    filled = template.fill(text, VALUES).text
    return arguments.parse(shlex.split(filled), "org/m", doubled_first, ledger or Ledger())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--max-model-len 262144 --gpu-memory-utilization 0.80", {"max_model_len": 262144, "gpu_memory_utilization": 0.8}),
        ("--max_model_len=4096 --dtype=auto", {"max_model_len": 4096, "dtype": "auto"}),
        ("--kv-cache-memory-bytes 8G --max-model-len 128k --max-num-batched-tokens 2K", {
            "kv_cache_memory_bytes": 8 * 1024**3, "max_model_len": 128000, "max_num_batched_tokens": 2048,
        }),
        ("--max-model-len 1.5M --max-num-seqs 64k", {"max_model_len": "1.5M", "max_num_seqs": "64k"}),
        ("--max-model-len auto --block-size 016", {"max_model_len": "auto", "block_size": "016"}),
        ("--seed -1 --temperature -0.5 --x 1e-3 --y 1.", {"seed": -1, "temperature": -0.5, "x": 0.001, "y": 1.0}),
        ("--enable-prefix-caching --no-async-scheduling --enforce-eager", {"enable_prefix_caching": True, "async_scheduling": False, "enforce_eager": True}),
        ("--no-enable-flashinfer-autotune", {"enable_flashinfer_autotune": False}),
        ("--served-model-name a 27 --cudagraph-capture-sizes 1 2 4", {"served_model_name": ["a", "27"], "cudagraph_capture_sizes": [1, 2, 4]}),
        ("-tp {tp} -pp 1 -dp 2 -ep -q fp8", {
            "tensor_parallel_size": 2, "pipeline_parallel_size": 1, "data_parallel_size": 2, "enable_expert_parallel": True, "quantization": "fp8",
        }),
        ("-O3 -cc.cudagraph_mode NONE", {"optimization_level": 3, "compilation_config": {"cudagraph_mode": "NONE"}}),
        ("--speculative_config.method mtp --speculative-config.num-speculative-tokens 3", {
            "speculative_config": {"method": "mtp", "num_speculative_tokens": 3},
        }),
        ("""--speculative-config '{{"method":"mtp"}}' --speculative-config.n {n}""", {"speculative_config": {"method": "mtp", "n": 3}}),
        ("--default-chat-template-kwargs.thinking=true", {"default_chat_template_kwargs": {"thinking": True}}),
        ("--hf-overrides.architectures+ A --hf-overrides.architectures+ B", {"hf_overrides": {"architectures": ["A", "B"]}}),
        ("""--c '{{"a":{{"b":{n}}}}}'""", {"c": {"a": {"b": 3}}}),
        ("""--c '{"a":{"b":{n}}}'""", {"c": {"a": {"b": 3}}}),
        ("--c '{spec}'", {"c": {"method": "mtp", "n": 3}}),
        ("--c '{map}'", {"c": {"a": {"b": 1}}}),
        ("--limit-mm-per-prompt image=2,video=1 --lora-modules a=x b=y", {"limit_mm_per_prompt": "image=2,video=1", "lora_modules": ["a=x", "b=y"]}),
        ("--list '[1, \"a\"]' --regex '[ab' --x-format string", {"list": [1, "a"], "regex": "[ab", "x_format": "string"}),
        ("--enable-prefix-caching true", {"enable_prefix_caching": True}),
        ("--max-num-seqs 4 --max-num-seqs 8", {"max_num_seqs": 8}),
        ("--x 1.2.3 --y 12.1a --z 0x10", {"x": "1.2.3", "y": "12.1a", "z": "0x10"}),
        ("--x 9999999999999999999999", {"x": "9999999999999999999999"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("doubled_first", [True, False])
def test_values_have_types(text, expected, doubled_first):
    parsed = parse(f"org/m {text}", doubled_first)
    assert parsed.arguments == expected and parsed.model == "org/m" and parsed.missing == {}


@pytest.mark.parametrize(
    "text", ["--trust-remote-code org/m", "org/m --trust-remote-code", "--model org/m --trust-remote-code", "--kind org/m --trust-remote-code"]
)
def test_the_model_is_found_at_any_position(text):
    parsed = parse(text)
    assert parsed.model == "org/m" and parsed.arguments["trust_remote_code"] is True


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("org/m --c '{{\"a\": }}'", '{{"a": }}', "braces"),
        ("org/m --a '{{ max_model_len }}'", "{{ max_model_len }}", "Jinja templates"),
        ("org/m --a '{{% if x %}}'", "{{% if x %}}", "Jinja templates"),
        ("org/m --a '{n!r}'", "{n!r}", "Jinja templates"),
        ("org/m --a 'x{n.real}'", "x{n.real}", "Jinja templates"),
        ("org/m --c '{\"a\": NaN}'", '{"a": NaN}', "braces"),
        ("org/m --enable-prefix-caching extra", "extra", "a value where none is expected"),
        ("org/m extra", "extra", "a value where none is expected"),
        ("org/m --generation-config vllm -- extra", "extra", "a value where none is expected"),
        ("org/m --a..b x", "--a..b", "not the name of an argument"),
        ("org/m --a 3 --a.b 4", "b", "whose value is not a mapping"),
    ],
)
def test_what_is_not_an_argument(text, where, what):
    with pytest.raises(RecipeError) as refused:
        parse(text)
    assert refused.value.where == where and what in refused.value.what and refused.value.remedy


def test_what_has_no_value_is_named_as_it_was_written():
    assert parse("org/m --node-rank {node_rank} --a x{none}y --c '{loop}'").missing == {"node_rank": "{node_rank}", "a": "{none}", "c": "{loop}"}


def test_the_last_one_wins_and_that_is_said():
    ledger = Ledger()
    parse("org/m --dtype float16 --dtype bfloat16", ledger=ledger)
    assert [(row.outcome, row.field, row.became) for row in ledger.rows] == [("changed", "--dtype", "bfloat16")]


def test_only_names_are_looked_up():
    """A Python format string can read attributes of a value; a placeholder of a recipe cannot."""
    assert template.fill("{n.__class__} {n[0]} {0} {}", VALUES).text == "{n.__class__} {n[0]} {0} {}"
    assert template.fill("{words} ${n} {n}", VALUES).text == "a b ${n} 3" and template.fill("{words}", VALUES).used == {"words"}
