# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Typed serve arguments become argv."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._arguments import serve_arguments
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("max_model_len", 1024, ["--max-model-len", "1024"]),
        ("max-model-len", 1024, ["--max-model-len", "1024"]),
        ("gpu_memory_utilization", 0.75, ["--gpu-memory-utilization", "0.75"]),
        ("dtype", "auto", ["--dtype", "auto"]),
        ("enforce_eager", True, ["--enforce-eager"]),
        ("enable_prefix_caching", False, ["--no-enable-prefix-caching"]),
        ("quantization", None, []),
        ("middleware", [], []),
        ("served_model_name", ["a", "b c"], ["--served-model-name", "a", "b c"]),
        ("speculative_config", {"method": "mtp", "num_speculative_tokens": 2}, ["--speculative-config", '{"method":"mtp","num_speculative_tokens":2}']),
        ("limits", [{"a": 1}], ["--limits", '{"a":1}']),
        ("compilation_config.max_size", 3, ["--compilation-config.max_size", "3"]),
        ("seed", -1, ["--seed=-1"]),
        ("chat_template", "{{ it's }} \"$HOME\"; rm -rf /", ["--chat-template", "{{ it's }} \"$HOME\"; rm -rf /"]),
        ("title", "Grüße", ["--title", "Grüße"]),
        ("extra", {"k": "Grüße"}, ["--extra", '{"k":"Grüße"}']),
    ],
)
def test_option(name, value, words):
    assert serve_arguments.option(name, value) == words


@pytest.mark.parametrize("name", ["--dtype", "", "a b", "a;b", "-x"])
def test_a_name_is_a_name(name):
    with pytest.raises(ClusterError, match="is not a name"):
        serve_arguments.option(name, 1)


def test_a_list_holds_no_booleans():
    with pytest.raises(ClusterError, match="cannot hold True"):
        serve_arguments.option("names", [True])


def test_argv_is_whole_and_sorted():
    arguments = {"tensor_parallel_size": 2, "dtype": "bfloat16"}
    argv = serve_arguments.serve_argv(["vllm", "serve"], "org/model", "10.0.0.1", 8000, arguments)
    assert argv == ["vllm", "serve", "org/model", "--host", "10.0.0.1", "--port", "8000", "--dtype", "bfloat16", "--tensor-parallel-size", "2"]


@pytest.mark.parametrize("name", ["host", "port", "api_key", "api-key", "hf_token", "model"])
def test_reserved_arguments_are_refused_with_a_remedy(name):
    with pytest.raises(ClusterError) as caught:
        serve_arguments.serve_argv(["vllm", "serve"], "m", "a", 1, {name: "planted-secret"})
    assert caught.value.remedy
    assert "planted-secret" not in str(caught.value) + caught.value.remedy


@pytest.mark.parametrize(("name", "value"), [("config", "/opt/x.yml"), ("grpc", True), ("grpc-port", 0)])
def test_unchecked_arguments_are_refused(name, value):
    with pytest.raises(ClusterError, match=f"serve argument {name} ") as caught:
        serve_arguments.serve_argv(["vllm", "serve"], "m", "a", 1, {name: value})
    assert caught.value.remedy
    serve_arguments.serve_argv(["vllm", "serve"], "m", "a", 1, {name: None})


@pytest.mark.parametrize("word", ["--grpc-port", "--trust-remote-code", "-O3", "--api-key=planted-secret", "-"])
def test_a_list_brings_no_other_argument(word):
    with pytest.raises(ClusterError, match="names: a list cannot hold a word that begins with a dash") as caught:
        serve_arguments.serve_argv(["vllm", "serve"], "m", "a", 1, {"names": ["x", word, "9000"]})
    assert "planted" not in str(caught.value)
    assert serve_arguments.option("sizes", [-1, "-1", "-.5"]) == ["--sizes", "-1", "-1", "-.5"]


def test_a_model_is_not_an_option():
    with pytest.raises(ClusterError, match="the model's name begins with a dash"):
        serve_arguments.serve_argv(["vllm", "serve"], "--grpc-port=9000", "a", 1, {})


@pytest.mark.parametrize(("name", "full"), [("grpc-por", "grpc_port"), ("trust_remote", "trust_remote_code"), ("api_ke", "api_key"), ("hf-tok", "hf_token")])
def test_the_beginning_of_a_judged_name_is_none(name, full):
    with pytest.raises(ClusterError, match=f"serve argument {name} is the beginning of {full}"):
        serve_arguments.serve_argv(["vllm", "serve"], "m", "a", 1, {name: 1})
    whole = {"tokenizer": "x", "trust_remote_code": True, "max_model_len": 1}
    assert serve_arguments.serve_argv(["vllm", "serve"], "m", "a", 1, whole)[-1] == "--trust-remote-code"


HEAD, WORKER = (serve_arguments.Place(rank, 2, "10.0.0.1", 29501) for rank in (0, 1))
MEETING = ["--nnodes", "2", "--node-rank", "0", "--master-addr", "10.0.0.1", "--master-port", "29501"]


def test_the_head_of_ranks_that_spread_themselves():
    argv = serve_arguments.serve_argv(["vllm", "serve"], "m", "10.0.0.1", 8000, {"dtype": "bfloat16"}, HEAD)
    assert argv == ["vllm", "serve", "m", "--host", "10.0.0.1", "--port", "8000", *MEETING, "--dtype", "bfloat16"]


def test_the_other_ranks_have_no_api():
    arguments = {"dtype": "bfloat16", "api_server_count": 2, "served_model_name": ["m"]}
    argv = serve_arguments.serve_argv(["vllm", "serve"], "m", "10.0.0.1", 8000, arguments, WORKER)
    meeting = [*MEETING[:3], "1", *MEETING[4:], "--headless"]
    assert argv == ["vllm", "serve", "m", *meeting, "--dtype", "bfloat16", "--served-model-name", "m"]


def test_one_node_has_no_meeting_address():
    alone = serve_arguments.Place(0, 1, "", 29501)
    assert serve_arguments.serve_argv(["vllm", "serve"], "m", "a", 1, {}, alone) == serve_arguments.serve_argv(["vllm", "serve"], "m", "a", 1, {})


@pytest.mark.parametrize("name", ["nnodes", "node_rank", "master-addr", "master_port", "headless"])
def test_the_place_of_a_rank_is_not_an_argument(name):
    with pytest.raises(ClusterError, match="is not accepted among the arguments") as caught:
        serve_arguments.serve_argv(["vllm", "serve"], "m", "a", 1, {name: 1}, HEAD)
    assert "option" in caught.value.remedy


@pytest.mark.parametrize(
    ("arguments", "name"),
    [({}, "org/m"), ({"served_model_name": "x"}, "x"), ({"served-model-name": ["x", "y"]}, "x"), ({"served_model_name": []}, "org/m")],
)
def test_served_name(arguments, name):
    assert serve_arguments.served_name("org/m", arguments) == name


def test_digest_is_versioned_and_stable():
    digest = serve_arguments.digest(["vllm"], {"A": "/a", "B": "/b"}, ["X", "Y"])
    assert digest == serve_arguments.digest(["vllm"], {"B": "/b", "A": "/a"}, ["Y", "X"])
    # Written out, because a change of it would make every live engine look changed.
    assert digest == "1:48bfe666c2af26dde96dbf440ad9c49523466763cdb4916d24044e1767ee7c32"


@pytest.mark.parametrize("other", [(["vllm", "x"], {"A": "/a"}, []), (["vllm"], {"A": "/b"}, []), (["vllm"], {"A": "/a"}, ["X"])])
def test_digest_sees_every_field(other):
    assert serve_arguments.digest(*other) != serve_arguments.digest(["vllm"], {"A": "/a"}, [])
