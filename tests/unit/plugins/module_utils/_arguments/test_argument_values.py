# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Numbers in serve arguments mean what they mean to vLLM's own parser."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._arguments import argument_values
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError


@pytest.mark.parametrize(
    ("name", "value", "number"),
    [
        ("max_model_len", 4096, 4096),
        ("max_model_len", "4096", 4096),
        ("max_model_len", " 4096 ", 4096),
        ("max_model_len", "1k", 1000),
        ("max_model_len", "1K", 1024),
        ("max_model_len", "1M", 1048576),
        ("max_model_len", "25.6k", 25600),
        ("max_model_len", "auto", argument_values.AUTO),
        ("max_model_len", -1, argument_values.AUTO),
        ("max_num_batched_tokens", "64k", 64000),
        ("kv_cache_memory_bytes", "3g", 3 * 10**9),
        ("kv_cache_memory_bytes", "8G", 8 * 1024**3),
        ("kv_cache_memory_bytes", "1t", 10**12),
        ("kv_cache_memory_bytes", "1T", 1024**4),
        ("max_num_seqs", "64", 64),
        ("gpu_memory_utilization", "0.95", 0.95),
        ("gpu_memory_utilization", 1, 1.0),
        ("device_memory_utilization", 0.8, 0.8),
        ("decode_context_parallel_size", 2, 2),
        ("cpu_offload_gb", 0, 0.0),
        ("kv_offloading_size", "12.5", 12.5),
    ],
)
def test_a_value_is_what_the_engine_reads(name, value, number):
    result = argument_values.read(name, value)
    assert result == number and isinstance(result, type(number))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_model_len", "huge"), ("max_model_len", ""), ("max_model_len", 0), ("max_model_len", -5), ("max_model_len", "1.5M"), ("max_model_len", "1e6"),
        ("max_model_len", 4096.0), ("max_model_len", "4 k"), ("max_model_len", "4kk"), ("max_model_len", True), ("max_model_len", [4096]),
        ("max_num_batched_tokens", "auto"), ("max_num_batched_tokens", 0), ("kv_cache_memory_bytes", "much"), ("kv_cache_memory_bytes", -1),
        ("max_num_seqs", "64k"), ("max_num_seqs", 0), ("max_num_seqs", 1.0), ("decode_context_parallel_size", "two"),
        ("gpu_memory_utilization", 1.5), ("gpu_memory_utilization", 95), ("gpu_memory_utilization", 0), ("gpu_memory_utilization", "95%"),
        ("gpu_memory_utilization", "nan"), ("gpu_memory_utilization", False), ("cpu_offload_gb", -1), ("kv_offloading_size", "inf"),
    ],
)  # fmt: skip
def test_what_the_engine_refuses_is_named(name, value):
    with pytest.raises(ClusterError) as caught:
        argument_values.read(name, value)
    error = caught.value
    assert (error.where, error.what, error.expected) == (name, f"is {value!r}", argument_values.KINDS[name].expected)


def test_sizes_are_those_that_take_letters():
    assert argument_values.SIZES == {"max_model_len", "max_num_batched_tokens", "kv_cache_memory_bytes"}
