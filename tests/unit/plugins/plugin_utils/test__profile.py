# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Profiles: what is found, what is refused, and what follows for a node."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml

from ansible_collections.gb10.cluster.plugins.plugin_utils import _profile

SHIPPED = sorted(_profile.SHIPPED.glob("*.yml"))
MINIMAL = {
    "schema": 1,
    "id": "small",
    "model": {"repo": "org/small", "revision": "0" * 40, "side_files": ["parser.py"]},
    "image": {"base": "registry.example/vllm:1", "tag": "local/vllm:1"},
    "parallel": {"tensor": 2},
    "serve": {"max_model_len": 1024},
}


def changed(**paths):
    """MINIMAL with values set by dotted path (double underscores stand for dots); None as value removes the key."""
    profile = copy.deepcopy(MINIMAL)
    for path, value in paths.items():
        *parents, last = path.split("__")
        target = profile
        for parent in parents:
            target = target.setdefault(parent, {})
        target[last] = value
    return profile


def test_minimal_profile_gets_its_defaults():
    profile, problems = _profile.validate(MINIMAL, expected_id="small")
    assert problems == []
    assert profile["parallel"] == {"tensor": 2, "pipeline": 1, "data": 1, "expert": False}
    assert profile["image"]["layers"] == ["ray"]
    assert profile["executor"] == "ray"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_profiles_are_valid(path: Path):
    assert _profile.load(path.stem)["id"] == path.stem


@pytest.mark.parametrize(
    ("profile", "part"),
    [
        (changed(schema=2), "schema"),
        (changed(model__revision="main"), "model.revision: 'main' is no commit"),
        (changed(parallel__tensor=0), "parallel.tensor: is 0"),
        (changed(parallel__tensr=2), "tensr"),
        (changed(env__shared={"A B": "1"}), "env.shared.A B: is no valid variable name"),
        (changed(env__shared={"A": "1\n2"}), "env.shared.A: holds a line break"),
        (changed(env__shared={"A": ["1"]}), "env.shared.A: expected a string"),
        (changed(env__per_host={"NCCL_X": "fabric_adress"}), "env.per_host.NCCL_X: 'fabric_adress' is no fact"),
        (changed(serve__port=1), "serve.port: is set by the collection from gb10_api_port"),
        (changed(serve={"tensor-parallel-size": 2}), "serve.tensor_parallel_size: is set by the collection"),
        (changed(serve={"reasoning_parser_plugin": "side_file:other.py"}), "side file 'other.py' is not listed"),
        (changed(serve={"trust_remote_code": True}, model__revision=None), "serve.trust_remote_code: runs code"),
        (changed(memory={"class_gb": 96}), "class_gb"),
        (changed(image__layers=["sglang"]), "sglang"),
    ],
)
def test_problems_name_the_field(profile, part):
    _validated, problems = _profile.validate(profile)
    assert any(part in problem for problem in problems), problems


def test_id_must_be_the_file_name(tmp_path):
    (tmp_path / "other.yml").write_text(yaml.safe_dump(MINIMAL), encoding="utf-8")
    with pytest.raises(_profile.ProfileError, match="id: is 'small', but the file is named 'other'"):
        _profile.load("other", [str(tmp_path)])


def test_unknown_profile_lists_the_known_ones(tmp_path):
    (tmp_path / "small.yml").write_text(yaml.safe_dump(MINIMAL), encoding="utf-8")
    with pytest.raises(_profile.ProfileError, match="unknown profile 'x'. Known: .*nemotron_3_super_tp2, small"):
        _profile.load("x", [str(tmp_path)])


def test_own_directory_wins(tmp_path):
    mine = {**MINIMAL, "id": "nemotron_3_super_tp2"}
    (tmp_path / "nemotron_3_super_tp2.yml").write_text(yaml.safe_dump(mine), encoding="utf-8")
    assert _profile.load("nemotron_3_super_tp2", [str(tmp_path)])["model"]["repo"] == "org/small"


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", ""])
def test_file_that_is_no_mapping(tmp_path, text):
    (tmp_path / "bad.yml").write_text(text, encoding="utf-8")
    with pytest.raises(_profile.ProfileError, match="bad.yml"):
        _profile.load(str(tmp_path / "bad.yml"))


def test_serve_arguments_merge_and_resolve():
    profile, dummy = _profile.validate(changed(serve={"max-model-len": 1024, "reasoning_parser_plugin": "side_file:parser.py", "dtype": "auto"}))
    arguments = _profile.serve_arguments(profile, {"max_model_len": 2048, "dtype": None})
    assert arguments == {
        "revision": "0" * 40,
        "served_model_name": ["org/small"],
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 1,
        "distributed_executor_backend": "ray",
        "max_model_len": 2048,
        "reasoning_parser_plugin": f"/root/.cache/huggingface/hub/models--org--small/snapshots/{'0' * 40}/parser.py",
    }


def test_serve_arguments_refuse_what_the_collection_sets():
    profile, dummy = _profile.validate(MINIMAL)
    with pytest.raises(_profile.ProfileError, match="gb10_serve_arguments.api_key"):
        _profile.serve_arguments(profile, {"api-key": "x"})


FACTS = {"fabric_address": "192.168.100.1", "fabric_interfaces": "a,b", "control_interface": "a", "rdma_devices": "", "ucx_devices": ""}


@pytest.mark.parametrize(("fallback", "nodes", "net"), [("none", 2, "IB"), ("tcp", 2, None), ("none", 1, None)])
def test_several_nodes_use_infiniband_or_fail(fallback, nodes, net):
    profile, dummy = _profile.validate(MINIMAL)
    assert _profile.node_env(profile, FACTS, fabric_fallback=fallback, nodes=nodes).get("NCCL_NET") == net


def test_node_env_order_of_precedence():
    shared = {"A": "profile", "B": "profile", "VLLM_HOST_IP": "0.0.0.0"}
    profile, dummy = _profile.validate(changed(env__shared=shared, env__per_host={"MY_IF": "control_interface"}))
    env = _profile.node_env(profile, FACTS, fabric_fallback="tcp", nodes=2, shared={"B": True, "C": 1}, host={"C": "host"})
    assert (env["A"], env["B"], env["C"]) == ("profile", "1", "host")
    assert env["VLLM_HOST_IP"] == "192.168.100.1", "a node's own value wins over a shared one"
    assert env["MY_IF"] == "a"
    assert "NCCL_IB_HCA" not in env, "an empty fact leaves its variable out"
    assert all(isinstance(value, str) for value in env.values())


def test_per_host_names():
    profile, dummy = _profile.validate(changed(env__per_host={"MY_IF": "control_interface"}))
    assert {"MY_IF", "VLLM_HOST_IP", "NCCL_IB_HCA", "MINE"} <= set(_profile.per_host_names(profile, ["MINE"]))
