# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading the answers of an API that could be any process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils._engine import api_probe
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState


def test_models():
    body = json.dumps({"object": "list", "data": [{"id": "tiny", "max_model_len": 2048}, {"id": "lora"}]}).encode()
    assert api_probe.parse_models(body) == [{"id": "tiny", "max_model_len": 2048}, {"id": "lora", "max_model_len": None}]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"data": 7}', b'{"data": [7]}', b'{"data": [{"id": 7}]}', b"\xff", b"[" * 100000])
def test_models_of_another_shape_are_unknown(body):
    with pytest.raises(UnknownState):
        api_probe.parse_models(body)


def test_the_metrics_of_a_real_engine():
    """Of the lab's vLLM 0.32.0, which answered two requests of one token each."""
    text = (Path(__file__).parents[3] / "fixtures" / "vllm" / "metrics-0.32.0.txt").read_text(encoding="utf-8")
    assert api_probe.parse_progress(text) == (0.0, 4.0, 0.0, 0.0, 9.0, None)


def test_progress():
    text = (
        "# HELP vllm:num_requests_running Number of requests\n"
        'vllm:num_requests_running{engine="0",model_name="tiny"} 2.0\nvllm:num_requests_running{engine="1",model_name="tiny"} 1.0\n'
        'vllm:generation_tokens_total{engine="0",model_name="a b}"} 212.0\nvllm:prompt_tokens_total{engine="0"} 1.5e+06\nother 7\n'
    )
    assert api_probe.parse_progress(text) == (3.0, 1500212.0, None, 0.0, 0.0, None)
    text += 'vllm:kv_cache_usage_perc{engine="0"} 0.25\nvllm:kv_cache_usage_perc{engine="1"} 0.5\n'
    assert api_probe.parse_progress(text).kv_use == 0.5
    assert api_probe.parse_progress("process_cpu_seconds_total 7\n") is None


@pytest.mark.parametrize(
    ("counts", "total", "longest"),
    [
        ({"300.0": 2, "480.0": 2, "+Inf": 2}, 320.0, 300.0),
        # Together they were shorter than the limit.
        ({"300.0": 1, "480.0": 2, "+Inf": 2}, 331.0, 331.0),
        ({"300.0": 1, "+Inf": 2}, 5000.0, 5000.0),
        ({"300.0": 0, "+Inf": 0}, 0.0, 0.0),
    ],
)
def test_no_prefill_so_far_took_longer(counts, total, longest):
    lines = ["vllm:num_requests_running{} 0.0", "vllm:prompt_tokens_total{} 7.0", f"vllm:request_prefill_time_seconds_sum{{}} {total}"]
    lines += [f'vllm:request_prefill_time_seconds_bucket{{engine="0",le="{bound}"}} {count}' for bound, count in counts.items()]
    assert api_probe.parse_progress("\n".join(lines)).longest_prefill_s == longest


@pytest.mark.parametrize("line", ["vllm:num_requests_running nan", "vllm:num_requests_running", 'vllm:prompt_tokens_total{a="b"} many'])
def test_figures_that_cannot_be_read_are_unknown(line):
    with pytest.raises(UnknownState):
        api_probe.parse_progress(line)


@given(st.binary(max_size=300))
def test_no_answer_breaks_it(content):
    for parse, given_ in ((api_probe.parse_models, content), (api_probe.parse_progress, content.decode("utf-8", "replace"))):
        try:
            parse(given_)
        except UnknownState:
            pass


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["data", "id", "max_model_len"]), inner),
    )
)
def test_no_json_breaks_it(value):
    try:
        api_probe.parse_models(json.dumps(value).encode())
    except UnknownState:
        pass
