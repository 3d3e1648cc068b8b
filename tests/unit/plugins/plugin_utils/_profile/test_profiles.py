# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Profiles: which are found, which are refused, and the resulting arguments and settings of a node."""

from __future__ import annotations

import copy
import hashlib
import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.gb10.cluster.plugins.module_utils._arguments.serve_arguments import Place, serve_argv
from ansible_collections.gb10.cluster.plugins.module_utils._records import cold_starts
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import derived, form, profiles, repositories, validation

SHIPPED = sorted(profiles.SHIPPED.glob("*.yml"))
LAB = sorted((Path(__file__).resolve().parents[5] / "lab" / "profiles").glob("*.yml"))
MINIMAL = {
    "schema": 1,
    "id": "small",
    "model": {"repo": "org/small", "revision": "0" * 40, "side_files": ["parser.py"]},
    "image": {"base": "registry.example/vllm:1", "tag": "local/vllm:1"},
    "parallel": {"tensor": 2},
    "serve": {"max_model_len": 1024},
}


def changed(**paths):
    """Return MINIMAL with values set by dotted path (a double underscore replaces a dot); the value None removes the key."""
    profile = copy.deepcopy(MINIMAL)
    for path, value in paths.items():
        *parents, last = path.split("__")
        target = profile
        for parent in parents:
            target = target.setdefault(parent, {})
        target[last] = value
    return profile


def test_minimal_profile_gets_its_defaults():
    profile, problems = validation.validate(MINIMAL, expected_id="small")
    assert problems == []
    assert profile["parallel"] == {"tensor": 2, "pipeline": 1, "data": 1, "expert": False}
    assert profile["image"]["layers"] == ["ray"]
    assert profile["executor"] == "ray"
    assert profile["model"]["license"] == {"id": None, "url": None, "accept": None} and profile["model"]["gated"] is None
    assert profile["evidence"] == "untested"
    assert profile["switches"] == {}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_profiles_are_valid(path: Path):
    assert profiles.load(path.stem)["id"] == path.stem


@pytest.mark.parametrize("path", [*SHIPPED, *LAB], ids=lambda path: path.stem)
def test_every_profile_names_its_evidence_or_is_untested(path: Path):
    raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    for part in (raw, *filter(None, raw.get("switches", {}).values())):
        assert part.get("evidence"), "list who measured what, or write `untested`"
        if part["evidence"] != "untested":
            assert all(item["who"].startswith("reported") for item in part["evidence"]), "figures of others are marked as reported"
            assert all(item.get("source", "").startswith("https://") and item.get("date") for item in part["evidence"]), "each row names its record"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_reported_speed_says_by_whom_and_on_what(path: Path):
    speed = yaml.safe_load(path.read_text(encoding="utf-8")).get("speed", {})
    assert not speed or (speed["one"] > 0 and speed["source"].startswith("https://") and speed["by"] and speed["setup"])
    assert ("many" in speed) == ("users" in speed)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_reported_start_says_by_whom_on_what_and_when(path: Path):
    start = yaml.safe_load(path.read_text(encoding="utf-8")).get("start", {})
    seconds = [start[name] for name in (cold_starts.READY, *cold_starts.STAGES) if name in start]
    assert not start or (seconds and min(seconds) > 0 and start["source"].startswith("https://") and start["by"] and re.search(r"\b2026-\d\d", start["setup"]))


@pytest.mark.parametrize("loader", ["auto", "safetensors", "fastsafetensors", "instanttensor", "runai_streamer"])
def test_a_profile_may_choose_its_loader(tmp_path: Path, loader: str):
    path = tmp_path / "mine.yml"
    own = {"schema": 1, "id": "mine", "extends": "nemotron_3_super_one", "serve": {"load_format": loader, "model_loader_extra_config": {"concurrency": 8}}}
    path.write_text(yaml.safe_dump({**own, "evidence": "untested"}), encoding="utf-8")
    assert profiles.load(str(path))["serve"]["load_format"] == loader


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_profiles_state_what_a_user_has_to_know(path: Path):
    profile = profiles.load(path.stem)
    assert profile["memory"]["class_gb"] in (64, 128)
    assert 0 < profile["memory"]["weights_gb"] < profile["memory"]["class_gb"]
    facts = profile["memory"]["config"]
    for name in ("num_hidden_layers", "attention_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings"):
        assert facts[name] > 0, name
    assert facts["num_attention_heads"] % profile["parallel"]["tensor"] == 0
    assert profile["requires"]["vllm"]
    assert profile["ladder"] == sorted(profile["ladder"])
    assert profile["serve"]["max_model_len"] in profile["ladder"]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_profiles_are_safe(path: Path):
    profile = profiles.load(path.stem)
    for name in ((), *((switch,) for switch in profile["switches"])):
        serve = profiles.switch(profile, name)["serve"]
        assert serve["gpu_memory_utilization"] <= 0.8, "more than two nodes should be asked for"
        assert serve["shutdown_timeout"] >= 30, "killed processes leak memory on this hardware"
        assert not serve.get("trust_remote_code") or profile["model"]["revision"], "remote code runs at a pinned commit only"
    for image in (profile["image"]["base"], profile["image"]["tag"]):
        assert ":" in image and not image.endswith(":latest"), "an image has a fixed tag"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_hybrid_serves_no_more_sequences_than_its_memory_has_states_for(path: Path):
    """vLLM's default is 1024 sequences on 70 GiB and more; the start fails with more sequences than blocks (vllm-project/vllm#49064)."""
    profile = profiles.load(path.stem)
    memory, facts = profile["memory"], profile["memory"]["config"]
    if not facts.get("mamba_layers") and not facts.get("linear_layers"):
        return
    state = facts.get("mamba_state_bytes_per_sequence") or facts["recurrent_state_bytes_per_sequence"]
    for name in ((), *((switch,) for switch in profile["switches"])):
        serve = profiles.switch(profile, name)["serve"]
        left = serve["gpu_memory_utilization"] * memory["class_gb"] * 1e9 - memory["weights_gb"] * 1e9
        assert serve["max_num_seqs"] * state / profile["parallel"]["tensor"] < left / 4, "most of the cache is for tokens"


def test_the_state_of_nemotron_is_kept_as_its_checkpoint_was_made():
    """NVIDIA's guide requires float32 for every precision of the checkpoint; the memory facts of the profile are computed with it."""
    profile = profiles.load("nemotron_3_super_tp2")
    assert profile["serve"]["mamba_ssm_cache_dtype"] == "float32"
    layers, heads, width, state, groups, kernel = 40, 128, 64, 128, 8, 4
    convolution = (heads * width + 2 * groups * state) * (kernel - 1) * 2
    assert profile["memory"]["config"]["mamba_state_bytes_per_sequence"] == layers * (heads * width * state * 4 + convolution)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_each_image_that_a_profile_may_get_has_its_own_row(path: Path):
    """A figure is only valid for its own image: 26.10 has a row with its versions, and so has the base when it was measured."""
    profile = profiles.load(path.stem)
    if profile["evidence"] == form.UNTESTED:
        assert not profile["image"]["base"].startswith("nvcr.io/")
        return
    newer = [item for item in profile["evidence"] if item["image"] == "nvcr.io/nvidia/vllm:26.10-py3"]
    assert len(newer) == profile["image"]["base"].startswith("nvcr.io/"), "an image of NVIDIA's has a successor"
    assert all(item["vllm"] == "==0.31.0" and ("not known to have been served" in item["figures"] or "outside" in item["figures"]) for item in newer)
    assert all(item["vllm"] for item in profile["evidence"] if item["image"].startswith(profile["image"]["base"])), "a row of the base says which vLLM"


@pytest.mark.parametrize(
    ("profile", "part"),
    [
        (changed(schema=2), "schema"),
        (changed(model__revision="main"), "model.revision: 'main' is not a commit"),
        (changed(parallel__tensor=0), "parallel.tensor: is 0"),
        (changed(parallel__tensr=2), "parallel.tensr: is not a known field (did you mean 'tensor'?)"),
        (changed(model__revision=12), "model.revision: found 12 (a whole number); expected a string"),
        (changed(executor="mp"), "executor: found 'mp' (a string); expected one of ray, native, auto"),
        (changed(image__tag=None), "image.tag: is missing; expected the name of registry.example/vllm:1 with ray added"),
        (changed(image__tag="registry.example/vllm:1"), "image.tag: is the base's own name"),
        (changed(image__layers=[]), "image.tag: is 'local/vllm:1', but without layers"),
        (changed(serve={"max_model_len": 1, "max-model-len": 2}), "serve.max_model_len: is given twice"),
        (changed(serve={"--dtype": "auto"}), "serve.--dtype: begins with dashes"),
        (changed(serve={"headless": True}), "serve.headless: is set by the collection from executor"),
        (changed(ladder=[0]), "ladder[0]: is 0"),
        (changed(ladder=[1024, 4096, 2048]), "ladder[2]: is 2048 after 4096; expected more than the length before it"),
        (changed(ladder=[1024, 1024]), "ladder[1]: is 1024 after 1024"),
        (changed(requires={"vllm": 0.18}), "requires.vllm: found 0.18 (a number); expected versions like"),
        (changed(requires={"vllm": "0.18 or newer"}), "requires.vllm: found '0.18 or newer'"),
        (changed(evidence=[{"who": "me", "image": "x", "figures": "1", "vllm": "new"}]), "evidence[0].vllm: found 'new'"),
        (changed(evidence="none"), "evidence: found 'none' (a string); expected a list, or the word untested"),
        (changed(evidence=[{"who": "me", "image": "x"}]), "evidence[0].figures: is missing; expected a string"),
        (
            changed(evidence=[{"who": "me", "image": "x", "figures": "y", "digest": "26.05"}]),
            "evidence[0].digest: '26.05' is not a digest; expected sha256: and 64 hexadecimal digits, or base_digest of the report",
        ),
        (changed(switches={"fast": {}}), "switches.fast.description: is missing"),
        (changed(switches={"Fast": {"description": "x"}}), "switches.Fast: is not a valid name of a switch"),
        (changed(switches={"fast": {"description": "x", "serve": {"port": 1}}}), "switches.fast.serve.port: is set by the collection"),
        (changed(switches={"fast": {"description": "x", "env": {"shared": {"A": None}}}}), "switches.fast.env.shared.A: is nothing; expected a string"),
        (changed(switches={"fast": {"description": "x", "parallel": {}}}), "switches.fast.parallel: is not a known field"),
        (changed(switches={"code": {"description": "x", "serve": {"trust_remote_code": True}}}, model__revision=None), "switches.code.serve.trust_remote_code"),
        (changed(env__shared={"A B": "1"}), "env.shared.A B: is not a valid variable name"),
        (changed(env__shared={"A": "1\n2"}), "env.shared.A: holds a line break"),
        (changed(env__shared={"A": ["1"]}), "env.shared.A: is a list; expected a string, a number or a boolean"),
        (changed(env__shared={1: "x"}), "env.shared: the key 1 is a whole number"),
        (changed(env__per_host={"NCCL_X": "fabric_adress"}), "env.per_host.NCCL_X: 'fabric_adress' is not a fact"),
        (changed(answers=["echo", "tool_call"]), "answers: 'tool_call' is asked for without serve.enable_auto_tool_choice"),
        (changed(answers=["speed"]), "answers[0]: "),
        (changed(serve={"served_model_name": ["x"]}), "serve.served_model_name: is set by the collection from model.served_names"),
        (changed(serve__port=1), "serve.port: is set by the collection from gb10_api_port"),
        (changed(serve={"tensor-parallel-size": 2}), "serve.tensor_parallel_size: is set by the collection"),
        (changed(serve={"reasoning_parser_plugin": "side_file:other.py"}), "side file 'other.py' is not listed"),
        (changed(serve={"trust_remote_code": True}, model__revision=None), "serve.trust_remote_code: runs code"),
        (changed(memory={"class_gb": 96}), "class_gb"),
        (changed(image__layers=["sglang"]), "sglang"),
    ],
)
def test_problems_name_the_field(profile, part):
    _validated, problems = validation.validate(profile)
    assert any(part in str(problem) for problem in problems), problems


def test_id_must_be_the_file_name(tmp_path):
    (tmp_path / "other.yml").write_text(yaml.safe_dump(MINIMAL), encoding="utf-8")
    with pytest.raises(form.ProfileError, match="id: is 'small', but the file is named 'other'"):
        profiles.load("other", [str(tmp_path)])


def test_unknown_profile_lists_the_known_ones(tmp_path):
    (tmp_path / "small.yml").write_text(yaml.safe_dump(MINIMAL), encoding="utf-8")
    with pytest.raises(form.ProfileError, match="unknown profile 'x'. Known: .*nemotron_3_super_tp2, .*, small"):
        profiles.load("x", [str(tmp_path)])


def test_near_miss_is_suggested():
    with pytest.raises(form.ProfileError, match=r"unknown profile 'nemotron_3_super' \(did you mean 'nemotron_3_super_tp2' or 'nemotron_3_super_one'\?\)"):
        profiles.load("nemotron_3_super")


def test_a_missing_directory_is_not_an_empty_one(tmp_path):
    with pytest.raises(form.ProfileError, match=f"gb10_profile_dirs: no directory {tmp_path}/none on the controller"):
        profiles.load("nemotron_3_super_tp2", [str(tmp_path / "none")])


def test_relative_paths_are_seen_from_the_first_root_that_has_them(tmp_path):
    (tmp_path / "play" / "mine").mkdir(parents=True)
    (tmp_path / "play" / "mine" / "small.yml").write_text(yaml.safe_dump(MINIMAL), encoding="utf-8")
    roots = [tmp_path, tmp_path / "play"]
    assert profiles.load("small", ["mine"], roots=roots)["path"] == str(tmp_path / "play" / "mine" / "small.yml")
    assert profiles.load("./mine/small.yml", roots=roots)["path"] == str(tmp_path / "play" / "mine" / "small.yml")
    with pytest.raises(form.ProfileError, match=f"no file {tmp_path}/other.yml or {tmp_path}/play/other.yml on the controller"):
        profiles.load("other.yml", roots=roots)


def test_without_roots_relative_paths_are_seen_from_the_current_directory(tmp_path, monkeypatch):
    (tmp_path / "small.yml").write_text(yaml.safe_dump(MINIMAL), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert profiles.load("./small.yml")["id"] == "small"


def test_roots_of_a_host(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    variables = {"playbook_dir": "/p", "inventory_dir": "/i"}
    assert profiles.roots(variables) == [tmp_path, Path("/i"), Path("/p")]
    assert profiles.roots({"inventory_dir": None}) == [tmp_path]


def test_own_directory_wins(tmp_path):
    mine = {**MINIMAL, "id": "nemotron_3_super_tp2"}
    (tmp_path / "nemotron_3_super_tp2.yml").write_text(yaml.safe_dump(mine), encoding="utf-8")
    assert profiles.load("nemotron_3_super_tp2", [str(tmp_path)])["model"]["repo"] == "org/small"


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", ""])
def test_file_that_is_not_a_mapping(tmp_path, text):
    (tmp_path / "bad.yml").write_text(text, encoding="utf-8")
    with pytest.raises(form.ProfileError, match="bad.yml"):
        profiles.load(str(tmp_path / "bad.yml"))


def test_serve_arguments_merge_and_resolve():
    profile, dummy = validation.validate(changed(serve={"max-model-len": 1024, "reasoning_parser_plugin": "side_file:parser.py", "dtype": "auto"}))
    arguments = derived.serve_arguments(profile, {"max_model_len": 2048, "dtype": None})
    assert arguments == {
        "revision": "0" * 40,
        "served_model_name": ["org/small"],
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 1,
        "distributed_executor_backend": "ray",
        "max_model_len": 2048,
        "reasoning_parser_plugin": f"/root/.cache/huggingface/hub/models--org--small/snapshots/{'0' * 40}/parser.py",
    }


@pytest.mark.parametrize(("own", "executor", "backend"), [("ray", None, "ray"), ("native", None, "mp"), ("ray", "native", "mp"), ("auto", "ray", "ray")])
def test_executor_becomes_the_engines_backend(own, executor, backend):
    profile, dummy = validation.validate(changed(executor=own))
    assert derived.serve_arguments(profile, executor=executor)["distributed_executor_backend"] == backend


@pytest.mark.parametrize("executor", [None, "auto"])
def test_an_executor_that_is_not_resolved_makes_no_arguments(executor):
    profile, dummy = validation.validate(changed(executor="auto"))
    with pytest.raises(form.ProfileError, match="executor: 'auto' .* expected one of ray, native"):
        derived.serve_arguments(profile, executor=executor)


def test_image_without_layers_is_the_base():
    raw = changed(image={"base": "registry.example/vllm:1", "layers": []})
    profile, problems = validation.validate(raw)
    assert (problems, profile["image"]["tag"]) == ([], "registry.example/vllm:1")


SWITCHES = {
    "eager": {"description": "x", "serve": {"enforce-eager": True, "max_model_len": None}, "requires": {"vllm": ">=0.19.0"}},
    "long": {"description": "x", "serve": {"max_model_len": 4096}, "env": {"shared": {"A": "long"}}, "ladder": [2048, 4096]},
    "cool": {"description": "x", "serve": {"enforce_eager": True}, "env": {"shared": {"A": "cool"}}},
}


def switched(*names):
    """Return MINIMAL with variables and requirements, and with these switches of SWITCHES turned on."""
    profile, problems = validation.validate(changed(switches=SWITCHES, env__shared={"A": "base", "B": "base"}, requires={"vllm": "<0.24.0"}))
    assert problems == []
    return profiles.switch(profile, names)


def test_no_switch_changes_nothing():
    profile = switched()
    assert profile["serve"] == {"max_model_len": 1024}
    assert profile["switches_used"] == []


def test_a_switch_overlays_and_null_removes():
    profile = switched("eager")
    assert profile["serve"] == {"enforce_eager": True}
    assert profile["requires"] == {"vllm": "<0.24.0,>=0.19.0"}
    assert profile["switches_used"] == ["eager"]
    assert "max_model_len" not in derived.serve_arguments(profile)


def test_a_switch_replaces_variables_and_ladder():
    profile = switched("long")
    assert profile["env"]["shared"] == {"A": "long", "B": "base"}
    assert profile["ladder"] == [2048, 4096]


def test_switches_that_agree_combine():
    profile = switched("cool", "eager", "cool")
    assert profile["serve"] == {"enforce_eager": True}
    assert profile["switches_used"] == ["cool", "eager"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("eager", "long"), "'eager' and 'long' of profile small contradict each other: serve.max_model_len is None and 4096"),
        (("long", "cool"), "'long' and 'cool' of profile small contradict each other: env.shared.A is 'long' and 'cool'"),
        (("eagr",), r"profile small has no switch 'eagr' \(did you mean 'eager'\?\). Its switches: eager, long, cool"),
    ],
)
def test_switches_that_cannot_be(names, message):
    with pytest.raises(form.ProfileError, match=message):
        switched(*names)


def test_switching_leaves_the_profile_alone():
    profile, dummy = validation.validate(changed(switches=SWITCHES))
    before = copy.deepcopy(profile)
    profiles.switch(profile, ["long"])
    assert profile == before


def test_minimax_is_stable_unless_switched():
    assert "speculative_config" not in profiles.load("minimax_m2_7_nvfp4_tp2")["serve"]
    assert profiles.load("minimax_m2_7_nvfp4_tp2", switches=["agentic"])["serve"]["speculative_config"]["method"] == "ngram"


def test_nemotron_eager_captures_no_graphs():
    serve = profiles.load("nemotron_3_super_tp2", switches=["eager", "mtp"])["serve"]
    assert serve["enforce_eager"] is True
    assert "max_cudagraph_capture_size" not in serve
    assert serve["speculative_config"]["moe_backend"] == "triton"


def test_serve_arguments_refuse_what_the_collection_sets():
    profile, dummy = validation.validate(MINIMAL)
    with pytest.raises(form.ProfileError, match="gb10_serve_arguments.api_key"):
        derived.serve_arguments(profile, {"api-key": "x"})


FACTS = {"fabric_address": "192.168.100.1", "fabric_interfaces": "a,b", "control_interface": "a", "rdma_devices": "", "ucx_devices": ""}


@pytest.mark.parametrize(("fallback", "nodes", "net"), [("none", 2, "IB"), ("tcp", 2, None), ("none", 1, None)])
def test_several_nodes_use_infiniband_or_fail(fallback, nodes, net):
    profile, dummy = validation.validate(MINIMAL)
    assert derived.node_env(profile, FACTS, fabric_fallback=fallback, nodes=nodes).get("NCCL_NET") == net


def test_node_env_order_of_precedence():
    shared = {"A": "profile", "B": "profile", "VLLM_HOST_IP": "0.0.0.0"}
    profile, dummy = validation.validate(changed(env__shared=shared, env__per_host={"MY_IF": "control_interface"}))
    env = derived.node_env(profile, FACTS, fabric_fallback="tcp", nodes=2, shared={"B": True, "C": 1}, host={"C": "host"})
    assert (env["A"], env["B"], env["C"]) == ("profile", "1", "host")
    assert env["VLLM_HOST_IP"] == "192.168.100.1", "a node's own value wins over a shared one"
    assert env["MY_IF"] == "a"
    assert "NCCL_IB_HCA" not in env, "an empty fact leaves its variable out"
    assert all(isinstance(value, str) for value in env.values())


def test_per_host_names():
    profile, dummy = validation.validate(changed(env__per_host={"MY_IF": "control_interface"}))
    assert {"MY_IF", "VLLM_HOST_IP", "NCCL_IB_HCA", "MINE"} <= set(derived.per_host_names(profile, ["MINE"]))


DRAFTED = {
    **MINIMAL,
    "repositories": {
        "drafter": {"repo": "org/drafter", "revision": "1" * 40, "purpose": "drafter", "size_gb": 4},
        "words": {"repo": "org/words", "revision": "2" * 40, "purpose": "tokenizer"},
        "tuned": {"repo": "org/tuned", "purpose": "adapter"},
    },
    "serve": {
        "speculative_config": {"method": "dflash", "model": "repository:drafter"},
        "tokenizer": "repository:words",
        "chat_template": "repository:model/chat.jinja",
        "lora_modules": [{"name": "tuned", "path": "repository:tuned"}],
        "reasoning_parser_plugin": "side_file:parser.py",
    },
}


def test_every_repository_is_found_in_the_cache_of_an_engine_that_asks_no_hub():
    profile, problems = validation.validate(DRAFTED)
    assert problems == []
    arguments = derived.serve_arguments(profile)
    hub = "/root/.cache/huggingface/hub/models--org--"
    assert arguments["speculative_config"] == {"method": "dflash", "model": f"{hub}drafter/snapshots/{'1' * 40}"}
    assert arguments["tokenizer"] == f"{hub}words/snapshots/{'2' * 40}"
    assert arguments["chat_template"] == f"{hub}small/snapshots/{'0' * 40}/chat.jinja"
    assert arguments["reasoning_parser_plugin"] == f"{hub}small/snapshots/{'0' * 40}/parser.py"
    # Not pinned: the reference `main` in the cache decides, which a download without a commit writes.
    assert arguments["lora_modules"] == [{"name": "tuned", "path": "org/tuned"}]


def test_all_repositories_are_downloaded_and_a_tokenizer_without_its_models_weights():
    profile, _problems = validation.validate(DRAFTED)
    rows = repositories.repositories(profile)
    assert [(row["name"], row["purpose"]) for row in rows] == [("model", "model"), ("drafter", "drafter"), ("words", "tokenizer"), ("tuned", "adapter")]
    assert rows[0]["side_files"] == ["parser.py"] and rows[1]["side_files"] == []
    downloads = {entry["repo_id"]: entry for entry in repositories.downloads(rows)}
    assert downloads["org/small"] == {"repo_id": "org/small", "revision": "0" * 40, "allow_patterns": None, "ignore_patterns": None}
    assert "*.json" in downloads["org/words"]["allow_patterns"] and downloads["org/words"]["ignore_patterns"] == ["*.safetensors.index.json"]
    assert downloads["org/tuned"]["revision"] is None


def beside(serve=None, **fields):
    """Return MINIMAL with a second repository, and with arguments that refer to it unless ``serve`` is given."""
    drafter = {"repo": "org/drafter", "purpose": "drafter", **fields}
    return {**MINIMAL, "repositories": {"drafter": drafter}, "serve": serve or {"speculative_config": {"model": "repository:drafter"}}}


@pytest.mark.parametrize(
    ("profile", "part"),
    [
        (beside(purpose="draft"), "repositories.drafter.purpose: found 'draft' (a string); expected one of drafter, assistant"),
        (beside(revison="1"), "repositories.drafter.revison: is not a known field (did you mean 'revision'?)"),
        (beside(revision="main"), "repositories.drafter.revision: 'main' is not a commit"),
        (beside(repo="drafter"), "repositories.drafter.repo: 'drafter' is not a repository of the hub"),
        (beside(repo="org/small"), "repositories.drafter.repo: 'org/small' is that of model, too"),
        (beside(size_gb=0), "repositories.drafter.size_gb: is 0"),
        (beside(license={"url": "https://example.com/l"}), "repositories.drafter.license.id: is missing"),
        (beside(license={"accept": False}), "repositories.drafter.license.id: is missing"),
        (beside(license={"id": " "}), "repositories.drafter.license.id: is empty"),
        (beside(license={"id": "mit", "url": "example.com/l"}), "repositories.drafter.license.url: found 'example.com/l' (a string); expected an address"),
        (beside(license={"id": "mit", "url": "https://"}), "repositories.drafter.license.url"),
        (beside(license={"id": "mit", "accept": "yes"}), "repositories.drafter.license.accept: found 'yes' (a string); expected true or false"),
        (beside(license={"name": "mit"}), "repositories.drafter.license.name: is not a known field"),
        (beside(license="mit"), "repositories.drafter.license: found 'mit' (a string); expected a mapping"),
        (beside(lisense={"id": "mit"}), "repositories.drafter.lisense: is not a known field (did you mean 'license'?)"),
        (beside(gated="auto"), "repositories.drafter.gated: found 'auto' (a string); expected true or false"),
        (beside(gated=False, license={"id": "mit", "accept": True}), "repositories.drafter.gated: is false, and the license has to be accepted"),
        (beside(purpose="files"), "repositories.drafter.files: is empty, and the purpose is files"),
        (beside({"max_model_len": 1}), "repositories.drafter: no argument refers to it"),
        (beside({"speculative_config": {"model": "repository:draftr"}}), "has no repository 'draftr' (did you mean 'drafter'?)"),
        (beside({"speculative_config": {"model": "repository:drafter/sub"}}), "serve.speculative_config.model: needs org/drafter pinned to a commit"),
        (beside({"tokenizer": "repository:drafter"}), "serve.tokenizer: needs org/drafter pinned to a commit"),
        (beside({"trust_remote_code": True, "tokenizer": "repository:drafter"}), "serve.trust_remote_code: runs code from org/drafter, too"),
        ({**DRAFTED, "repositories": {**DRAFTED["repositories"], "model": {"repo": "o/m", "purpose": "files"}}}, "is not a valid name of a repository"),
    ],
)
def test_problems_of_repositories_name_the_field(profile, part):
    _profile, problems = validation.validate(profile)
    assert any(part in str(problem) for problem in problems), problems


FOLDERS = {
    **MINIMAL,
    "model": {"path": "/home/spark/models/small", "side_files": ["parser.py"]},
    "repositories": {"drafter": {"path": "/home/spark/models/drafter", "purpose": "drafter", "size_gb": 4}},
    "serve": {
        "chat_template": "repository:model/chat.jinja",
        "reasoning_parser_plugin": "side_file:parser.py",
        "speculative_config": {"method": "dflash", "model": "repository:drafter"},
    },
}


def test_a_plain_directory_is_served_as_the_container_has_it():
    profile, problems = validation.validate(FOLDERS)
    assert problems == []
    assert repositories.model_argument(profile) == "/opt/gb10/models/model"
    arguments = derived.serve_arguments(profile)
    assert arguments["served_model_name"] == ["small"] and "revision" not in arguments
    assert arguments["chat_template"] == "/opt/gb10/models/model/chat.jinja"
    assert arguments["reasoning_parser_plugin"] == "/opt/gb10/models/model/parser.py"
    assert arguments["speculative_config"]["model"] == "/opt/gb10/models/drafter"
    assert repositories.model_mounts(profile) == [
        {"source": "/home/spark/models/small", "target": "/opt/gb10/models/model", "read_only": True},
        {"source": "/home/spark/models/drafter", "target": "/opt/gb10/models/drafter", "read_only": True},
    ]
    assert [repository["repo"] for repository in repositories.repositories(profile)] == ["/home/spark/models/small", "/home/spark/models/drafter"]
    assert repositories.downloads(repositories.repositories(profile)) == []
    assert repositories.snapshot_path(profile, "/hf") == "/home/spark/models/small" and repositories.snapshot_path(profile) == "/opt/gb10/models/model"


def test_a_directory_next_to_a_repository_of_the_hub():
    profile, problems = validation.validate({**FOLDERS, "model": MINIMAL["model"]})
    assert problems == []
    assert repositories.model_argument(profile) == "org/small" and derived.serve_arguments(profile)["revision"] == "0" * 40
    assert [entry["repo_id"] for entry in repositories.downloads(repositories.repositories(profile))] == ["org/small"]
    assert [mount["target"] for mount in repositories.model_mounts(profile)] == ["/opt/gb10/models/drafter"]
    assert repositories.model_mounts(validation.validate(MINIMAL)[0]) == []


def placed(**model):
    return {**FOLDERS, "model": {**FOLDERS["model"], **model}}


@pytest.mark.parametrize(
    ("profile", "part"),
    [
        (placed(repo="org/small"), "model.repo: and model.path are both given; expected one of them"),
        (placed(path=None), "model.repo: and model.path are missing; expected one of them: organization/name"),
        (placed(path="~/models/small"), "model.path: '~/models/small' would be root's home; expected the whole path on the nodes"),
        (placed(path="models/small"), "model.path: found 'models/small' (a string); expected the absolute path of a directory"),
        (placed(path="/"), "model.path: found '/'"),
        (placed(path="/models/"), "model.path: found '/models/'"),
        (placed(path="/models/../etc"), "model.path: found '/models/../etc'"),
        (placed(path="/models/a:b"), "model.path: found '/models/a:b'"),
        (placed(path=["/models"]), "model.path: found ['/models'] (a list); expected a string"),
        (placed(revision="0" * 40), "model.revision: is given, and a directory on the nodes has none"),
        (placed(gated=True), "model.gated: is given, and a directory on the nodes has none"),
        (placed(pth="/models/small"), "model.pth: is not a known field (did you mean 'path'?)"),
        ({**FOLDERS, "serve": {**FOLDERS["serve"], "trust_remote_code": True}}, "runs code from /home/spark/models/small, which no commit pins"),
        ({**MINIMAL, "repositories": {"words": {"purpose": "tokenizer"}}}, "repositories.words.repo: and repositories.words.path are missing"),
    ],
)
def test_problems_of_directories_name_the_field(profile, part):
    _profile, problems = validation.validate(profile)
    assert any(part in str(problem) for problem in problems), problems


def test_a_repository_that_a_switch_alone_uses_is_used():
    raw = {**beside({"max_model_len": 1}), "switches": {"fast": {"description": "x", "serve": {"speculative_config": {"model": "repository:drafter"}}}}}
    assert validation.validate(raw)[1] == []


def test_a_repository_of_the_hub_that_nothing_downloads_is_found():
    profile, _problems = validation.validate(MINIMAL)
    named = {"tokenizer": "org/words", "speculative-config": {"model": "org/drafter"}, "served_model_name": "org/any", "hf_config_path": "/models/a"}
    assert repositories.not_listed(profile, named) == {"tokenizer": "org/words", "speculative_config.model": "org/drafter"}
    assert repositories.not_listed(profile, {"tokenizer": "org/small"}) == {}


def variant(tmp_path, name="other", **fields):
    path = tmp_path / f"{name}.yml"
    path.write_text(yaml.safe_dump({"schema": 1, "id": name, **fields}), encoding="utf-8")
    return path


def test_a_variant_says_only_what_differs(tmp_path):
    switches = {"fast": {"description": "x", "evidence": [{"who": "me", "image": "i", "figures": "f"}]}}
    measured = [{"who": "me", "image": "i", "figures": "f"}]
    reported = {"speed": {"one": 9}, "start": {"ready": 9}}
    variant(tmp_path, "drafted", **{**DRAFTED, "id": "drafted", "switches": switches, "evidence": measured, "env": {"shared": {"A": "1"}}, **reported})
    path = variant(
        tmp_path,
        extends="drafted",
        parallel={"tensor": 1},
        repositories={"words": None, "tuned": None},
        serve={"tokenizer": None, "lora_modules": None, "speculative_config": {"method": "mtp", "model": "repository:drafter"}},
        env={"shared": {"B": "2"}},
    )
    profile, problems = profiles.read(path)
    assert problems == []
    assert (profile["id"], profile["model"]["repo"], profile["parallel"]["tensor"]) == ("other", "org/small", 1)
    assert profile["env"]["shared"] == {"A": "1", "B": "2"} and list(profile["repositories"]) == ["drafter"]
    # An argument's value is replaced as a whole, and a variant without measurements is untested.
    assert profile["serve"]["speculative_config"] == {"method": "mtp", "model": "repository:drafter"} and "tokenizer" not in profile["serve"]
    assert profile["evidence"] == "untested" and profile["switches"]["fast"]["evidence"] == "untested"
    assert profile["speed"]["one"] is None and profile["start"]["ready"] is None


def test_a_variant_of_another_repository_has_not_its_license(tmp_path):
    terms = {"license": {"id": "mit"}, "gated": True}
    base = {**MINIMAL, "model": {**MINIMAL["model"], **terms}, "serve": {"tokenizer": "repository:words"}}
    base["repositories"] = {"words": {"repo": "org/words", "revision": "1" * 40, "purpose": "tokenizer", **terms}}
    (tmp_path / "small.yml").write_text(yaml.safe_dump(base), encoding="utf-8")
    same, problems = profiles.read(variant(tmp_path, extends="small", parallel={"tensor": 1}, model={"size_gb": 3}))
    assert problems == [] and same["model"]["license"]["id"] == "mit" and same["model"]["gated"] and same["repositories"]["words"]["gated"]
    words = {"words": {"repo": "org/other"}}
    other, problems = profiles.read(variant(tmp_path, extends="small", model={"repo": "org/other-model", "gated": False}, repositories=words))
    assert problems == [] and other["model"]["license"]["id"] is None and other["model"]["gated"] is False
    assert other["repositories"]["words"]["license"]["id"] is None and other["repositories"]["words"]["gated"] is None
    assert other["repositories"]["words"]["purpose"] == "tokenizer"


def test_a_variant_of_a_variant_and_of_a_shipped_profile(tmp_path):
    variant(tmp_path, "first", extends="nemotron_3_super_tp2", serve={"max_num_seqs": 2})
    profile, problems = profiles.read(variant(tmp_path, "second", extends="first", memory={"weights_gb": 41}))
    assert problems == []
    assert (profile["serve"]["max_num_seqs"], profile["memory"]["weights_gb"], profile["memory"]["class_gb"]) == (2, 41, 128)


@pytest.mark.parametrize(
    ("extends", "words"),
    [
        ("nemotron_3_super_tp", "there is no profile 'nemotron_3_super_tp' (did you mean 'nemotron_3_super_tp2'?)"),
        ("other", "'other' extends this profile itself"),
        ("circle", "'other' extends this profile itself"),
        ("list", "is not a profile"),
    ],
)
def test_what_cannot_be_extended_is_named(tmp_path, extends, words):
    variant(tmp_path, "circle", extends="other")
    (tmp_path / "list.yml").write_text("[]", encoding="utf-8")
    (problem,) = profiles.read(variant(tmp_path, extends=extends))[1]
    assert problem.where == "extends" and words in str(problem)


@pytest.mark.parametrize("nodes", range(1, 9))
def test_ranks_of_one_to_eight_nodes_have_their_arguments(nodes):
    """For three to eight nodes only the arguments are tested; no such cluster was run."""
    profile, problems = validation.validate({**MINIMAL, "executor": "native", "parallel": {"tensor": nodes, "expert": True}})
    assert problems == []
    arguments = derived.serve_arguments(profile)
    argv = [serve_argv(["vllm", "serve"], "org/small", "10.0.0.1", 8000, arguments, Place(rank, nodes, "10.0.0.1", 29501)) for rank in range(nodes)]
    assert all(f"--tensor-parallel-size {nodes}" in " ".join(words) and "--enable-expert-parallel" in words for words in argv)
    assert ["--headless" in words for words in argv] == [rank > 0 for rank in range(nodes)]
    assert [words[words.index("--node-rank") + 1] if nodes > 1 else "0" for words in argv] == [str(rank) for rank in range(nodes)]


DIFF = "--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -1 +1 @@\n-a\n+b\n"


def modded(tmp_path, patch=None, **mod):
    """Write a profile with one mod: a patch next to the file, unless ``patch`` or ``mod`` changes it."""
    folder = tmp_path / "patches"
    folder.mkdir(exist_ok=True)
    (folder / "fix.patch").write_text(DIFF, encoding="utf-8")
    entry = {"file": "patches/fix.patch", "sha256": hashlib.sha256(DIFF.encode()).hexdigest(), **(patch or {})}
    image = {**MINIMAL["image"], "mods": {"fix": {"why": "vllm-project/vllm#1", "patches": [entry], **mod}}}
    return variant(tmp_path, "modded", **{**MINIMAL, "id": "modded", "image": image})


def test_a_mod_is_known_by_its_content_and_a_variant_elsewhere_has_it_too(tmp_path):
    profile, problems = profiles.read(modded(tmp_path, packages=["tilelang==0.1.9"]))
    assert problems == []
    assert profile["image"]["mods"]["fix"]["patches"][0]["file"] == str(tmp_path / "patches" / "fix.patch")
    (digest,) = derived.mod_digests(profile).values()
    inherited, problems = profiles.read(variant(tmp_path, extends="modded"))
    assert problems == [] and derived.mod_digests(inherited) == {"fix": digest}
    other, problems = profiles.read(modded(tmp_path, packages=["tilelang==0.1.10"]))
    assert problems == [] and derived.mod_digests(other) != {"fix": digest}


@pytest.mark.parametrize(
    ("patch", "mod", "words"),
    [
        ({"sha256": "0" * 64}, {}, "image.mods.fix.patches[0].sha256: fix.patch has the digest"),
        ({"sha256": "0"}, {}, "image.mods.fix.patches[0].sha256: '0' is not a digest"),
        ({"file": "patches/run.sh"}, {}, "run.sh is not a patch; expected a unified diff that ends in .patch or .diff; scripts are not run"),
        ({"file": "patches/none.patch"}, {}, "none.patch can't be read: No such file or directory"),
        ({"package": "vllm; rm -rf /"}, {}, "image.mods.fix.patches[0].package: 'vllm; rm -rf /' is not the name of a Python package"),
        ({}, {"packages": ["tilelang"]}, "image.mods.fix.packages[0]: 'tilelang' is not pinned"),
        ({}, {"packages": ["--index-url=http://x"]}, "is not pinned"),
        ({}, {"patches": []}, "image.mods.fix: changes nothing"),
        ({}, {"why": None}, "image.mods.fix.why: is missing"),
        ({}, {"run": "run.sh"}, "image.mods.fix.run: is not a known field"),
    ],
)
def test_a_mod_is_known_to_the_byte(tmp_path, patch, mod, words):
    _profile, problems = profiles.read(modded(tmp_path, patch, **mod))
    assert any(words in str(problem) for problem in problems), problems


def test_a_mod_makes_another_image_that_has_a_name_of_its_own(tmp_path):
    mods = {"fix": {"why": "x", "packages": ["tilelang==0.1.9"]}}
    assert any(problem.where == "image.tag" for problem in validation.validate({**MINIMAL, "image": {"base": "r/v:1", "layers": [], "mods": mods}})[1])
    assert validation.validate({**MINIMAL, "image": {"base": "r/v:1", "layers": [], "mods": mods, "tag": "local/v:1"}})[1] == []


# -- flags of a fork -----------------------------------------------------------------------------------------------------

FORK = {"why": "the kernel", "source": "https://example.com/recipe", "image": "org/fork:1"}
WITH_FORK = {"serve": {"gdn-decode-kernel": "b12x", "speculative_config": {"method": "mtp"}}, "env__shared": {"VLLM_FORKED": "1"}}
ROW = {"who": "reported by x", "image": "org/fork:1", "figures": "1 tok/s"}


def test_flags_of_a_fork_are_declared_by_argument_key_and_variable():
    names = ("gdn_decode_kernel", "speculative_config.method", "VLLM_FORKED")
    profile, problems = validation.validate(changed(**WITH_FORK, fork_flags=dict.fromkeys(names, FORK)))
    assert problems == [] and tuple(profile["fork_flags"]) == names and profile["evidence"] == "untested"


@pytest.mark.parametrize(
    ("flags", "more", "words"),
    [
        ({"gdn_decode_kernal": FORK}, {}, "fork_flags.gdn_decode_kernal: neither serve nor env.shared sets it (did you mean 'gdn_decode_kernel'?)"),
        ({"VLLM_FORKD": FORK}, {}, "fork_flags.VLLM_FORKD: neither serve nor env.shared sets it (did you mean 'VLLM_FORKED'?)"),
        ({"VLLM_FORKED": {**FORK, "wyh": "x"}}, {}, "fork_flags.VLLM_FORKED.wyh: is not a known field (did you mean 'why'?)"),
        ({"VLLM_FORKED": {"why": "x", "image": "y"}}, {}, "fork_flags.VLLM_FORKED.source: is missing"),
        ({"VLLM_FORKED": {**FORK, "source": "a forum"}}, {}, "fork_flags.VLLM_FORKED.source: found 'a forum' (a string); expected an address that begins with"),
        ({"VLLM_FORKED": {**FORK, "image": " "}}, {}, "fork_flags.VLLM_FORKED.image: is empty; expected the name of an image"),
        ({"VLLM_FORKED": FORK}, {"evidence": [ROW]}, "evidence: has rows, and VLLM_FORKED are flags that a fork alone knows; expected the word untested"),
        ({"VLLM_FORKED": FORK}, {"switches": {"fast": {"description": "x", "evidence": [ROW]}}}, "switches.fast.evidence: has rows"),
    ],
)
def test_problems_of_flags_of_a_fork_name_the_field(flags, more, words):
    _profile, problems = validation.validate(changed(**WITH_FORK, fork_flags=flags, **more))
    assert len(problems) == 1 and words in str(problems[0]), problems


def test_flash_next_weakens_no_container_and_says_what_its_table_needs():
    for name in ("qwen3_8_flash_next_nvfp4_one", "qwen3_8_flash_next_nvfp4_tp2", "glm_5_3_flash_nvfp4_tp2"):
        assert "Security:" in profiles.load(name)["notes"] and "Missing for evidence:" in profiles.load(name)["notes"]
    assert "gb10_container_capabilities" in profiles.load("qwen3_8_flash_next_nvfp4_one")["notes"]


def test_the_pair_of_flash_next_keeps_its_table_in_memory():
    single, pair = (profiles.load(f"qwen3_8_flash_next_nvfp4_{size}") for size in ("one", "tp2"))
    assert "VLLM_PLE_TABLE_MEMORY" in single["env"]["shared"] and "VLLM_PLE_TABLE_MEMORY" not in {*pair["env"]["shared"], *pair["fork_flags"]}
