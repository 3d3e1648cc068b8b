# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory plan of a profile, through the playbook, on the controller alone."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
import through_ansible
import yaml

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments, cwd, env=None, **variables):
    """Run the playbook without an inventory; returns its exit code and its output on one line."""
    done = through_ansible.run("playbook", str(ROOT / "playbooks" / "plan.yml"), *arguments, "--extra-vars", json.dumps(variables), cwd=cwd, env=env)
    return done.rc, " ".join(done.out.split())


def test_a_plan_is_shown_and_written_with_a_picture_and_a_second_run_changes_nothing(tmp_path):
    given = {"gb10_plan_nodes": [121.7, 119.6], "gb10_plan_context": 1048576, "gb10_plan_concurrency": 4, "gb10_to": str(tmp_path / "plan.json")}
    code, text = run(cwd=tmp_path, env={"ANSIBLE_SHOW_CUSTOM_STATS": "true"}, **given)
    assert code == 0 and "pass plan.profile node-1" in text and "gb10_verdict: pass" in text and "kind: gb10.cluster.plan" in text, text
    assert "2 x 8 layers x 1 head(s) x 128 x 1 B x 1048576 tokens" in text and "unexplained" in text
    plan, picture = tmp_path / "plan.json", tmp_path / "plan.svg"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (plan, picture)] == [0o600, 0o600]
    content = json.loads(plan.read_text())
    assert (content["schema"], content["kind"], content["verdict"]) == (1, "gb10.cluster.plan", "fits")
    assert [node["total_gib"] for node in content["nodes"]] == [121.7, 119.6] and picture.read_text().startswith("<svg")
    assert "kv-cache-memory-bytes" not in text and "'nemotron" not in text, "no size without a start on record, and no list of quoted lines"
    assert f"written to {plan} and {picture}" in text and "GiB on each node node-1 node-2 when how" in text
    code, text = run(cwd=tmp_path, **given)
    assert code == 0 and "changed=0" in text, text
    code, text = run(cwd=tmp_path, **{**given, "gb10_plan_context": 262144})
    assert code != 0 and "plan.json: exists already, with another content; expected a new file" in text and json.loads(plan.read_text()) == content, text


def test_an_inventory_says_what_its_nodes_have(tmp_path):
    def text_of(*sizes):
        hosts = [f"spark-{index}{f' gb10_total_mb={size}' if size else ''}" for index, size in enumerate(sizes, 1)]
        (tmp_path / "hosts").write_text("\n".join(["[gb10_cluster]", *hosts, ""]))
        code, text = run("--inventory", str(tmp_path / "hosts"), cwd=tmp_path, gb10_profile="qwen3_8_27b_nvfp4_tp2")
        assert code == 0, text
        return text

    text = text_of(124620, 122470)
    assert "pass plan.profile spark-1 fits:" in text and "of 119.6 on a Spark with 128 GB" in text and "64 GB" not in text
    text = text_of(124620, 0)
    assert "warn plan.profile node-1, node-2 tight:" in text and "GiB on each node Spark with 64 GB Spark with 128 GB when how" in text


def test_a_plan_without_a_chosen_profile_says_so(tmp_path):
    code, text = run(cwd=tmp_path)
    assert code == 0 and "gb10_profile is not set, so this is for the default, nemotron_3_super_tp2; choose another with -e gb10_profile=ID" in text, text
    assert "is not set" not in run(cwd=tmp_path, gb10_profile="nemotron_3_super_tp2")[1]


def test_a_length_is_what_the_engine_takes_it_for(tmp_path):
    given = {"gb10_profile": "gpt_oss_120b_one", "gb10_plan_nodes": "121.69"}
    for words in ({"gb10_plan_context": "1M"}, {"gb10_serve_arguments": {"max_model_len": "1M"}}):
        code, text = run(cwd=tmp_path, **given, **words)
        assert code == 0 and "1048576 tokens, default sequences" in text and "warn plan.profile node-1 tight:" in text, text
    code, text = run(cwd=tmp_path, **given, gb10_serve_arguments={"max_model_len": "huge"})
    assert code != 0 and "block input.serve_arguments controller" in text and "max_model_len: is 'huge'; expected a whole number of 1 or more" in text, text
    code, text = run(cwd=tmp_path, **given, gb10_plan_context="long")
    assert code != 0 and "gb10_plan_context: is 'long'; expected a whole number of 1 or more" in text, text


def test_what_others_claim_counts_and_is_named(tmp_path):
    claims = [{"name": "speech", "node": "spark-1", "gib": 12}, {"name": "ollama", "gib": 2}]
    nodes = [{"node": "spark-1"}, {"node": "spark-2"}]
    code, text = run(cwd=tmp_path, gb10_plan_nodes=nodes, gb10_tenants=claims)
    assert code == 0 and "warn plan.profile spark-1 tight:" in text and "pass plan.profile spark-2 fits:" in text, text
    assert "speech 12 GiB declared, ollama 2 GiB declared" in text
    code, text = run(cwd=tmp_path, gb10_tenants=claims)
    assert code != 0 and "speech is on spark-1, expected one of the plan's nodes (node-1, node-2)" in text and "gb10_plan_nodes names the nodes" in text, text
    code, text = run(cwd=tmp_path, gb10_tenants=[{"name": "speech", "gib": -1}])
    assert code != 0 and "gb10_tenants[0].gib: is -1; expected GiB above 0" in text, text


def test_a_plan_that_does_not_fit_fails_after_it_is_written_and_says_what_would_go(tmp_path):
    given = {"gb10_profile": "qwen3_235b_gptq_int4_tp2", "gb10_plan_context": 1048576, "gb10_to": str(tmp_path / "plan.json")}
    code, text = run(cwd=tmp_path, **given)
    assert code != 0 and "block plan.profile node-1, node-2 no:" in text and """What would go: -e '{"gb10_serve_arguments": {"max_model_len": """ in text, text
    assert "remedy: ''" not in text and "actions:" not in text and "reason:" not in text, text
    assert json.loads((tmp_path / "plan.json").read_text())["verdict"] == "no"


def test_check_mode_writes_nothing_and_an_unknown_model_is_unknown(tmp_path):
    profile = {
        "schema": 1,
        "id": "mine",
        "model": {"repo": "someone/something"},
        "image": {"base": "nvcr.io/nvidia/vllm:26.04-py3", "layers": []},
        "parallel": {"tensor": 1},
        "executor": "native",
        "serve": {"max_model_len": 8192, "gpu_memory_utilization": 0.5},
    }
    (tmp_path / "mine.yml").write_text(json.dumps(profile))
    code, text = run("--check", cwd=tmp_path, gb10_profile="./mine.yml", gb10_to=str(tmp_path / "plan.json"))
    assert code != 0 and "unknown plan.profile controller" in text and "memory.config.hidden_size" in text and not (tmp_path / "plan.json").exists(), text


def test_wrong_input_is_one_clear_error(tmp_path):
    code, text = run(cwd=tmp_path, gb10_plan_nodes=[121.7, {"totl_gib": 1}, 3])
    assert code != 0 and "nodes[1].totl_gib: is not a known field" in text and "nodes: names 3; expected 2" in text, text


COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 64, "hidden_size": 5120, "intermediate_size": 25600, "vocab_size": 151936,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "torch_dtype": "bfloat16", "max_position_embeddings": 40960,
}  # fmt: skip


def cached(home, repo="org/name"):
    """A snapshot with a config.json and the index of its weights, as a download of those two files leaves it."""
    snapshot = home / "hub" / f"models--{repo.replace('/', '--')}" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot.parent.parent / "refs").mkdir()
    (snapshot.parent.parent / "refs" / "main").write_text(COMMIT)
    (snapshot / "config.json").write_text(json.dumps(CONFIG))
    (snapshot / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 65524246528}, "weight_map": {"a": "b.safetensors"}}))
    return snapshot


def test_a_model_in_a_hub_cache_needs_no_profile(tmp_path):
    cached(tmp_path / "cache")
    given = {"gb10_plan_model": "org/name"}
    arguments = {"gpu_memory_utilization": 0.7, "max_num_seqs": 8}
    cache = {"HF_HOME": str(tmp_path / "cache")}
    code, text = run(cwd=tmp_path, env=cache, **given, gb10_plan_nodes=2, gb10_serve_arguments=arguments)
    assert code == 0 and "org/name (org/name): tight on a Spark with 64 GB, fits on a Spark with 128 GB" in text, text
    assert "(65.524 GB of files) / 2 rank(s)" in text
    assert "2 x 64 layers x 4 head(s) x 128 x 2 B x 40960 tokens" in text and "a dense model: a step reads about 65.5 GB" in text
    code, text = run(cwd=tmp_path, env=cache, gb10_plan_model="org/other")
    assert code != 0 and "no config.json of org/other" in text and "hf download org/other config.json" in text, text


def test_only_what_this_run_started_is_recorded(tmp_path):
    """The task of the bring-up, without a node: it is skipped where nothing was started, and reports why nothing is recorded."""
    task = {"ansible.builtin.include_role": {"name": "gb10.cluster.engine", "tasks_from": "memory_record"}}
    settings = {
        "gb10_cluster_name": "gb10", "gb10_state_dir": str(tmp_path / "state"), "gb10_head_host": "localhost", "gb10_serve_arguments": {},
        "gb10_node_roots": {}, "__gb10_context": "262144",
        "__gb10_profile": "{{ lookup('gb10.cluster.profile', 'nemotron_3_super_tp2') }}", "ansible_become": False,
        "__gb10_memory_expected": "{{ __gb10_profile | gb10.cluster.memory_expected }}",
    }  # fmt: skip
    result = {"started_run": "{{ started }}", "lowest_available_mb": 20110}
    show = {"ansible.builtin.debug": {"msg": "{{ __memory_recorded['msg'] | default('skipped') }}"}}
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "vars": settings}
    tasks = [{"ansible.builtin.set_fact": {"__vllm_server_result": result}}, task, show]
    (tmp_path / "play.yml").write_text(json.dumps([{**play, "tasks": tasks}]))
    outputs = {}
    for started in ("", "20261123T140000Z-1"):
        done = through_ansible.run("playbook", str(tmp_path / "play.yml"), "--extra-vars", json.dumps({"started": started}), cwd=tmp_path)
        assert done.rc == 0, done.out
        outputs[started] = " ".join(done.out.split())
    assert "msg: skipped" in outputs[""]
    assert "nothing is recorded: what was available before the start was not noted in this boot" in outputs["20261123T140000Z-1"]


def test_before_a_start_it_is_noted_up_to_where_that_goes_as_expected(tmp_path):
    """The task of the bring-up with the collection's own settings, on this machine. A unit takes the same arguments."""
    (task,) = [task for task in yaml.safe_load((ROOT / "roles/engine/tasks/abort_before.yml").read_text()) if task["name"].startswith("Note the memory")]
    unit = yaml.safe_load((ROOT / "roles/engine/vars/main.yml").read_text())
    assert unit["__engine_unit_note"]["arguments"] == "{{ __gb10_memory_note }}"
    settings = {
        "gb10_profile": "nemotron_3_super_tp2", "gb10_state_dir": str(tmp_path), "gb10_head_host": "localhost", "gb10_tenants": [{"name": "x", "gib": 2}],
        "gb10_node_roots": {}, "__gb10_serve_arguments": {}, "__gb10_rung": 0, "__gb10_wanted_arguments": {"max_num_seqs": 4},
        "__abort_before": {"engine": {"live": False}}, "ansible_become": False,
    }  # fmt: skip
    files = [str(ROOT / "roles/gb10" / part / "main.yml") for part in ("defaults", "vars")]
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "vars_files": files, "tasks": [task]}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    done = through_ansible.run("playbook", str(tmp_path / "play.yml"), "--extra-vars", json.dumps(settings), cwd=tmp_path)
    assert done.rc == 0, done.out
    noted = json.loads((tmp_path / "gb10" / "memory.json").read_text())
    assert isinstance(noted["level_mb"], int) and noted["level_why"].startswith("the memory plan leaves ") and noted["uptime_s"] > 0, noted


@pytest.mark.parametrize(("length", "tokens"), [(4096, 4096), ("1M", 1048576), ("64k", 64000), ("auto", 2048), (-1, 2048), (None, 262144)])
def test_the_length_of_a_record_is_the_plans(length, tokens, tmp_path):
    """The collection's own settings, for an argument that the engine reads as a size. Nemotron's config.json says 262144."""
    files = [str(ROOT / "roles/gb10" / part / "main.yml") for part in ("defaults", "vars")]
    arguments = {} if length is None else {"max_model_len": length}
    settings = {"gb10_profile": "nemotron_3_super_tp2", "__gb10_serve_arguments": arguments, "__gb10_wanted_arguments": {"max_model_len": length}}
    task = {"ansible.builtin.debug": {"msg": "length {{ __gb10_context }}"}}
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "vars_files": files, "tasks": [task]}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    done = through_ansible.run("playbook", str(tmp_path / "play.yml"), "--extra-vars", json.dumps(settings), cwd=tmp_path)
    assert done.rc == 0 and f"length {tokens}\n" in done.out, done.out
