# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Memory plans of profiles and of recorded recipes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from xml.etree import ElementTree
import plan_records

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._memory import components, ending, model_facts, plan
from ansible_collections.gb10.cluster.plugins.plugin_utils._plan import picture, planning, wording
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import profiles
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import drawing

ROOT = Path(__file__).resolve().parents[5]
NEMOTRON = "nemotron_3_super_tp2"
#: Allowed difference in GiB between the planned and the reported available memory.
NEAR = 4.0
PLANNED = {record["id"]: plan_records.planned(record) for record in plan_records.RECORDS}
NAMED = [pytest.param(record, id=record["id"]) for record in plan_records.RECORDS]


# -- on record ---------------------------------------------------------------------------------------------------------


def test_there_are_enough_records():
    assert sum(record["runs"] for record in plan_records.RECORDS) >= 12
    assert sum(not record["runs"] for record in plan_records.RECORDS) >= 4
    assert len(PLANNED) == len(plan_records.RECORDS) and all(record["source"] for record in plan_records.RECORDS)


@pytest.mark.parametrize("record", NAMED)
def test_a_recipe_that_runs_is_not_refused_and_one_that_fails_is_not_said_to_fit(record):
    verdict = PLANNED[record["id"]]["verdict"]
    assert verdict in ((plan.FITS, plan.TIGHT) if record["runs"] else (plan.TIGHT, plan.NO)), PLANNED[record["id"]]["reasons"]


@pytest.mark.parametrize("record", [param for param in NAMED if "available" in param.values[0]])
def test_what_stayed_available_is_met(record):
    assert PLANNED[record["id"]]["nodes"][0]["serving"]["available_gib"] == pytest.approx(record["available"], abs=NEAR)


@pytest.mark.parametrize("record", [param for param in NAMED if "weights" in param.values[0]])
def test_weights_are_those_reported(record):
    assert plan_records.weights(PLANNED[record["id"]]) == pytest.approx(record["weights"], rel=0.1)


@pytest.mark.parametrize("record", [param for param in NAMED if "pool" in param.values[0]])
def test_the_cache_that_was_left_is_near(record):
    """The tolerance is wider here: two of the logs do not contain the number of tokens per step or of sequences."""
    assert PLANNED[record["id"]]["nodes"][0]["pool_gib"] == pytest.approx(record["pool"], abs=6.0)


def test_the_reason_of_minimax_in_fp8_is_the_one_reported():
    reasons = PLANNED["MiniMax-M2.7 FP8, two nodes"]["reasons"]
    assert any("the weights take 108.8 GiB and leave 12.9" in reason for reason in reasons), reasons


def test_no_fact_is_of_one_recipe_alone():
    """Facts beyond those of the table come from an engine's own log. No figure was chosen to get the right verdict."""
    shapes = {name for name in model_facts.NAMES if name.startswith(("num_", "hidden", "inter"))}
    allowed = {"weights_gib_per_rank", "checkpoint_gb", "kv_bytes_per_token"} | shapes
    assert all(set(record.get("facts", {})) <= allowed | {"vocab_size", "head_dim"} for record in plan_records.RECORDS)


def test_the_documentation_has_the_table_as_it_is():
    text = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
    assert "\n".join(plan_records.markdown()) in text, "run python tests/unit/plan_records.py and put its table into docs/plan.md"


def test_the_documentation_counts_the_records():
    text = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
    runs = sum(record["runs"] for record in plan_records.RECORDS)
    assert f"{runs} recipes that were reported to serve and {len(plan_records.RECORDS) - runs} that were refused or ran out of memory" in text


def steps(title):
    """Return the last figure of each line of a calculation in the documentation, by the first words of the line."""
    text = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
    section = text[text.index(title) :].split("\n## ")[0].split("\n### ")[0]
    rows = re.findall(r"^(\S.*?)  +.*? (-?\d+\.\d+)$", section, re.MULTILINE)
    return {name: float(value) for name, value in rows}


def test_the_documentation_does_its_sums_as_the_plan_does():
    near = {"abs": 0.011}
    profile = profiles.load(NEMOTRON)
    node = planning.memory_plan(profile, context=1048576)["nodes"][0]
    parts = {part["id"]: part["gib"] for part in node["components"]}
    shown = steps("### Nemotron-3-Super, step by step")
    expected = {"weights": parts["weights"], "a sequence": parts["kv"], "state": parts["state"], "activations": parts["activation"]}
    expected |= {"the cache": node["pool_gib"], "serving": node["serving"]["used_gib"], "available": node["serving"]["available_gib"]}
    assert {name: shown[name] for name in expected} == pytest.approx(expected, **near)

    shown = steps("### Qwen3-235B and MiniMax, step by step")
    qwen = plan_records.weights(PLANNED["Qwen3-235B GPTQ-Int4, two nodes with Ray"])
    assert (shown["embeddings and head"] + shown["all the rest"]) / 2 * 1.015 == pytest.approx(qwen, **near)
    node = PLANNED["MiniMax-M2.7 FP8, two nodes"]["nodes"][0]
    parts = {part["id"]: part["gib"] for part in node["components"]}
    assert shown["left"] == pytest.approx(121.69 - parts["weights"], **near) and shown["a sequence"] == pytest.approx(parts["kv"], **near)
    assert shown["beside"] == pytest.approx(parts["os"] + parts["engine_host"] + parts["ray"], **near)
    own = sum(parts[name] for name in ("activation", "workspaces", "fabric", "graphs"))
    assert shown["its own"] == pytest.approx(own, **near)
    assert shown["the cache"] == pytest.approx(shown["left"] - shown["beside"] - own, abs=0.02)
    assert shown["the cache"] + node["serving"]["within_gib"] == pytest.approx(2.42, abs=0.02)


def test_the_documentation_names_every_constant_with_its_value():
    text = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
    for name, constant in components.CONSTANTS.items():
        assert f"| `{name}` | {constant.value:g} ± {constant.within:g} |" in text, name


# -- values, facts and nodes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text, tokens", [("1M", 1048576), ("64k", 64000), ("128K", 131072), ("4096", 4096)])
def test_a_length_in_words_is_the_length(text, tokens):
    profile = profiles.load("gpt_oss_120b_one")
    in_words, in_tokens = (planning.memory_plan(profile, serve={"max_model_len": value}) for value in (text, tokens))
    assert in_words["kv"]["context"] == tokens and {**in_words, "given": {}} == {**in_tokens, "given": {}}
    assert planning.memory_plan(profile, context=text)["kv"]["context"] == tokens
    dashed = planning.memory_plan(profile, serve={"max-model-len": text})
    assert dashed["kv"]["context"] == tokens


def test_numbers_as_text_are_the_numbers():
    arguments = {"gpu_memory_utilization": "0.6", "max_num_batched_tokens": "64k", "max_num_seqs": "8", "max_model_len": "auto"}
    use = planning.memory_plan(profiles.load("gpt_oss_120b_one"), serve=arguments)["settings"]
    assert (use["utilization"], use["batched"], use["seqs"], use["context"]) == (0.6, 64000, 8, 131072)
    alias = {"gpu_memory_utilization": None, "device_memory_utilization": 0.65}
    assert planning.memory_plan(profiles.load("gpt_oss_120b_one"), serve=alias)["settings"]["utilization"] == 0.65


@pytest.mark.parametrize("name, value", [("max_model_len", "huge"), ("max_model_len", "1.5M"), ("gpu_memory_utilization", 95), ("max_num_seqs", "64k")])
def test_a_value_that_the_engine_would_not_read_is_unknown_and_named(name, value):
    planned = planning.memory_plan(profiles.load("gpt_oss_120b_one"), serve={name: value})
    (row,) = wording.findings(planned)
    assert planned["verdict"] == plan.UNKNOWN and row["verdict"] == "unknown" and f"{name}: is {value!r}; expected" in row["message"]
    assert row["remedy"] == "Correct the value in gb10_serve_arguments, or in the profile." and f"{name}: is" in wording.lines(planned)[1]


@pytest.mark.parametrize(
    "requires, share",
    [
        (None, 0.92), (">=0.20.0", 0.92), (">=0.19.0,<0.33.0", 0.92), (">=0.17.0,<0.20.0", 0.9), ("<=0.19.1", 0.9), ("==0.19.0", 0.9), ("<=0.20", 0.92),
        ("==0.19.*", 0.9), ("===0.19.0", 0.9), ("==0.20.1", 0.92), (">=0.1.dev21553,<0.2", 0.92), (">=0.17.0, <0.20", 0.9),
    ],
)  # fmt: skip
def test_the_default_share_is_that_of_the_newest_allowed_vllm(requires, share):
    profile = {**profiles.load("gpt_oss_120b_one"), "requires": {"vllm": requires} if requires else {}}
    planned = planning.memory_plan(profile, serve={"gpu_memory_utilization": None})
    assert planning.default_share(profile) == share and planned["nodes"][0]["at_start"]["wanted_gib"] == round(share * 121.69, 2)
    assert planned["verdict"] == plan.NO and f"its {share:g} is made for memory that the system does not share" in " ".join(planned["reasons"])
    assert planned["would_fit"][0] == {"change": "gpu_memory_utilization", "to": 0.82, "verdict": plan.FITS}


def test_a_quantized_repository_has_the_shape_of_its_base_and_the_size_of_its_files():
    """The table has only the base of nvidia/Qwen3.6-27B-NVFP4."""
    memory = {"class_gb": 128, "weights_gb": None, "config": {}}
    profile = {**profiles.load("qwen3_6_35b_a3b_redhat_one"), "memory": memory, "model": {"repo": "nvidia/Qwen3.6-27B-NVFP4", "size_gb": 17.5}}
    planned = planning.memory_plan(profile)
    assert planned["verdict"] == plan.FITS and planned["facts"]["linear_layers"] == 48 and "(17.5 GB of files)" in str(planned["nodes"])
    assert planned["facts"]["source"].endswith("Qwen3.6-27B/blob/main/config.json, of which nvidia/Qwen3.6-27B-NVFP4 is a quantization by its name")
    unsized = planning.memory_plan({**profile, "model": {"repo": "nvidia/Qwen3.6-27B-NVFP4", "size_gb": None}})
    assert unsized["verdict"] == plan.UNKNOWN and len(unsized["missing"]) == 1 and "memory.weights_gb" in unsized["missing"][0]
    pruned = planning.memory_plan({**profile, "model": {"repo": "org/Qwen3.6-27B-REAP-NVFP4", "size_gb": 12}})
    assert pruned["verdict"] == plan.UNKNOWN and "memory.config.hidden_size" in pruned["missing"]


def test_a_name_is_of_one_model_however_its_weights_are_stored():
    table = planning.table()["repositories"]
    shapes = {}
    for repo, listed in table.items():
        shapes.setdefault(planning.model_of(repo), set()).add(listed["is"])
    assert all(len(kinds) == 1 for kinds in shapes.values()), shapes
    stored = ["-FP8", "-FP8-dynamic", "-NVFP4", "-NVFP4-GB10", "-NVFP4A16", "-AWQ", "-AWQ-4bit", "-GPTQ-Int4", "-W4A16", "-EXL3-TR3-4bpw", ""]
    stored += ["-int4-AutoRound", "_fp8"]
    assert {planning.model_of(f"someone/Qwen3.6-27B{end}") for end in stored} == {"qwen3.6-27b"}


@pytest.mark.parametrize("model", ["repository:drafter", "z-lab/Qwen3.8-27B-DFlash2"])
def test_a_drafter_recorded_has_its_size(model):
    profile = profiles.load("qwen3_8_27b_nvfp4_one")
    unsized = {"repositories": {"drafter": {**profile["repositories"]["drafter"], "size_gb": None}}}
    serve = {"speculative_config": {**profile["serve"]["speculative_config"], "model": model}}
    planned = planning.memory_plan({**profile, **unsized}, serve=serve)
    assert not planned["settings"]["unsized_draft"] and planned["settings"]["draft_gib"] == pytest.approx(4e9 / components.GIB)
    other = planning.memory_plan({**profile, "repositories": {}}, serve={"speculative_config": {"method": "dflash", "model": "org/other"}})
    assert other["settings"]["unsized_draft"]


def test_a_profile_is_planned_for_both_classes_side_by_side():
    """One profile fits on a Spark with 64 GB, the other does not."""
    planned = planning.memory_plan(profiles.load("qwen3_8_27b_nvfp4_one"))
    assert [(entry["class_gb"], entry["total_gib"], entry["verdict"]) for entry in planned["classes"]] == [(64, 60.84, "tight"), (128, 121.69, "fits")]
    assert planned["classes"][0]["nodes"] == planned["nodes"] and planned["class_gb"] == 64
    rows = wording.findings(planned)
    assert [row["verdict"] for row in rows] == ["warn", "pass"]
    assert "of 60.84 on a Spark with 64 GB" in rows[0]["message"] and "of 121.69 on a Spark with 128 GB" in rows[1]["message"]
    larger = "On a Spark with 128 GB: fits (-e gb10_plan_nodes=121.69)."
    assert rows[0]["remedy"] == f"{larger} No change that was tried fits better, and it is reported to run as it is."
    text = wording.lines(planned)
    assert text[0].endswith(": tight on a Spark with 64 GB, fits on a Spark with 128 GB")
    assert text[3].split("  ")[0] == "GiB on each node" and "Spark with 64 GB   Spark with 128 GB" in text[3]
    large = planning.memory_plan(profiles.load(NEMOTRON))
    assert [(entry["class_gb"], entry["verdict"]) for entry in large["classes"]] == [(64, "no"), (128, "fits")] and large["verdict"] == plan.FITS
    assert [row["verdict"] for row in wording.findings(large)] == ["pass", "pass"], "of a Spark that it is not made for nothing stops"
    assert wording.lines(large)[0].endswith(": no on a Spark with 64 GB, fits on a Spark with 128 GB")


def test_nodes_of_the_inventory_count_where_it_says_their_memory():
    profile = profiles.load("qwen3_8_27b_nvfp4_tp2")
    planned = planning.memory_plan(profile, inventory={"a": 124620, "b": "122470", "c": 124518})
    assert [(node["node"], node["total_gib"]) for node in planned["nodes"]] == [("b", 119.6), ("c", 121.6)] and planned["classes"] == []
    for short in ({"a": 124620}, {"a": 124620, "b": 0}, {}, None):
        assert len(planning.memory_plan(profile, inventory=short)["classes"]) == 2
    given = planning.memory_plan(profile, nodes="60.8, 60.9", inventory={"a": 124620, "b": 124620})
    assert [node["total_gib"] for node in given["nodes"]] == [60.8, 60.9] and given["class_gb"] is None


def test_a_shipped_profile_with_a_recipe_recorded_says_so():
    reported = {}
    for name in profiles.known():
        planned = planning.memory_plan(profiles.load(name))
        if planned["verdict"] == plan.TIGHT:
            reported[name] = "it is reported to run: https://" in " ".join(planned["reasons"])
    assert reported.pop("qwen3_30b_a3b_thinking_fp8_tp2") is False, "that was not reported"
    assert len(reported) == 7 and all(reported.values()), reported


def test_a_report_says_nothing_of_a_node_with_more_in_use_or_of_a_recipe_that_takes_more():
    profile = profiles.load("qwen3_8_27b_nvfp4_one")

    def verdict(node, serve=None):
        return planning.memory_plan(profile, nodes=[{"total_gib": 60.84, **node}], serve=serve)["verdict"]

    assert verdict({}) == verdict({"available_gib": 56.0}) == plan.TIGHT
    assert verdict({"available_gib": 54.0}) == verdict({"tenants_gib": 0.5}) == verdict({}, {"gpu_memory_utilization": 0.81}) == plan.NO


def test_lines_to_type_keep_what_was_given():
    profile = profiles.load(NEMOTRON)
    planned = planning.memory_plan(profile, serve={"gpu_memory_utilization": 0.99, "kv-cache-dtype": "fp8"}, context="512K", concurrency=40)
    assert planned["given"] == {"gpu_memory_utilization": 0.99, "kv_cache_dtype": "fp8", "max_model_len": 524288, "max_num_seqs": 40}
    line = '{"gb10_serve_arguments": {"gpu_memory_utilization": 0.82, "kv_cache_dtype": "fp8", "max_model_len": 524288, "max_num_seqs": 40}}'
    change = {"change": "gpu_memory_utilization", "to": 0.82, "verdict": "fits"}
    more = {"change": "nodes", "to": 4, "verdict": "fits"}
    assert wording.would_go([change, more], planned["given"], "") == f"What would go: -e '{line}' (fits); 4 nodes (fits)"
    quoted = wording.would_go([change], {"chat_template": "it's"}, "")
    assert shlex.split(quoted.removeprefix("What would go: "))[1] == '{"gb10_serve_arguments": {"chat_template": "it\'s", "gpu_memory_utilization": 0.82}}'
    assert wording.would_go([], {}, "").endswith("use smaller weights or more nodes")


def test_equal_nodes_stand_in_the_table_once_and_a_short_cache_says_so():
    planned = planning.memory_plan(profiles.load(NEMOTRON), nodes=121.69, context="1M", concurrency=64)
    text = wording.lines(planned)
    assert [column.title for column in wording.columns(planned)] == ["node-1, node-2"] and len([row for row in text if row.startswith("weights ")]) == 1
    for start in ("KV cache, part of 64 x 1048576 tokens ", "sequences that the cache holds "):
        assert len([row for row in text if row.startswith(start)]) == 1
    assert sum("the cache holds 22.2 of 64 sequences" in row for row in text) == 1
    claimed = planning.memory_plan(profiles.load(NEMOTRON), tenants=[{"name": "a", "node": "node-1", "gib": 1}])
    titles = ["Spark with 64 GB, node-1", "Spark with 64 GB, node-2", "Spark with 128 GB, node-1", "Spark with 128 GB, node-2"]
    assert [column.title for column in wording.columns(claimed)] == titles


def test_what_a_drafter_makes_of_a_step_is_said_and_no_range_has_one_number():
    advice = planning.memory_plan(profiles.load("qwen3_8_27b_nvfp4_one"))["advice"][0]
    assert "make at most 9 steps/s for one user, each of up to 9 tokens with the drafter" in advice
    assert "make at most 46 to 49 tokens/s for one user" in planning.memory_plan(profiles.load(NEMOTRON))["advice"][0]


# -- profiles ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", profiles.known())
def test_every_shipped_profile_has_a_plan(name):
    profile = profiles.load(name)
    planned = planning.memory_plan(profile)
    assert planned["verdict"] in (plan.FITS, plan.TIGHT), planned["reasons"] or planned["missing"]
    assert len(planned["nodes"]) == profile["parallel"]["tensor"] and wording.lines(planned) and wording.findings(planned)


@pytest.mark.parametrize("name", profiles.known())
def test_a_profile_and_the_table_do_not_disagree(name):
    profile = profiles.load(name)
    listed = dict(planning.table()["repositories"][profile["model"]["repo"]])
    shape = planning.table()["architectures"][listed.pop("is")]["facts"]
    both = {**shape, **listed}
    assert {key: value for key, value in profile["memory"]["config"].items() if key in both and both[key] != value} == {}


def test_the_table_is_sound():
    table = planning.table()
    for name, shape in table["architectures"].items():
        assert shape["source"].startswith("https://") and shape["read"], name
        assert set(shape["facts"]) <= set(model_facts.NAMES) and model_facts.faults(shape["facts"]) == [], name
        assert model_facts.missing(shape["facts"], True) == [], name
    for repo, listed in table["repositories"].items():
        facts = {**table["architectures"][listed["is"]]["facts"], **{key: value for key, value in listed.items() if key != "is"}}
        assert model_facts.faults(facts) == [] and set(listed) - {"is"} <= set(model_facts.NAMES), repo
        assert model_facts.weights_bytes(facts) is not None or "checkpoint_gb" in listed, repo


def test_nemotron_grows_by_a_gib_next_to_the_report():
    rows = planning.memory_plan(profiles.load(NEMOTRON))["lengths"]
    assert [(row["context"], row["kv_gib"]) for row in rows] == [(262144, 0.5), (524288, 1.0), (1048576, 2.0)]
    assert rows[2]["more_gib"] == 1.0 and "9 to 10 GB" in rows[2]["reported"] and rows[2]["reported"].endswith("unexplained")
    assert rows[1]["available_gib"] == rows[2]["available_gib"], "what nothing explains is not reckoned with"


def test_a_profile_of_an_unknown_model_is_unknown_and_says_what_it_lacks():
    profile = {**profiles.load(NEMOTRON), "model": {"repo": "someone/something"}, "memory": {"class_gb": 128, "weights_gb": None, "config": {}}}
    planned = planning.memory_plan(profile)
    assert planned["verdict"] == plan.UNKNOWN and "memory.config.hidden_size" in planned["missing"]
    rows = wording.findings(planned)
    assert [row["verdict"] for row in rows] == ["unknown"] and "memory.config" in rows[0]["remedy"]
    assert "unknown" in wording.lines(planned)[0] and picture.svg(planned).startswith("<svg")
    own = {"num_hidden_layers": 24, "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128}
    assert planning.memory_plan({**profile, "memory": {**profile["memory"], "weights_gb": 20.0, "config": own}})["verdict"] == plan.FITS


def test_a_config_json_takes_the_place_of_the_table():
    profile = {**profiles.load(NEMOTRON), "model": {"repo": "someone/something"}, "memory": {"class_gb": 128, "weights_gb": 40.0, "config": {}}}
    config = {"architectures": ["X"], "num_hidden_layers": 24, "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000}
    planned = planning.memory_plan(profile, config=config)
    assert planned["verdict"] == plan.FITS and "config.json" in planned["facts"]["source"] and planned["facts"]["head_dim"] == 128


def test_nodes_and_lengths_are_those_given():
    profile = profiles.load(NEMOTRON)
    planned = planning.memory_plan(profile, nodes=[{"node": "spark-a", "total_gib": 121.7}, {"node": "spark-b", "total_gib": 119.6, "tenants_gib": 16}])
    assert [(node["node"], node["total_gib"]) for node in planned["nodes"]] == [("spark-a", 121.7), ("spark-b", 119.6)]
    assert [part["id"] for part in planned["nodes"][1]["components"]].count("tenants") == 1
    assert [row["context"] for row in planning.memory_plan(profile, lengths="8192, 65536", context="32768")["lengths"]] == [8192, 32768, 65536]
    more = planning.memory_plan(profile, concurrency=64)
    assert more["settings"]["seqs"] == 64 and more["nodes"][0]["sequences"] < 100


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"nodes": [121.7]}, ["nodes: names 1; expected 2"]),
        ({"nodes": [{"total": 121.7}, "much"]}, ["nodes[0].total: is not a known field", "nodes[1].total_gib: is 'much'; expected GiB"]),
        ({"nodes": 4}, ["nodes: names 4; expected 2"]),
        ({"nodes": [{"node": "a"}, {"node": "a"}]}, ["nodes: names a more than once; expected each node once"]),
        ({"nodes": 5000}, ["nodes[0].total_gib: is 5000; expected GiB from 8 to 4096"]),
        ({"context": "long", "lengths": "1,x"}, ["context: is 'long'", "lengths: is 'x'"]),
        ({"concurrency": 0}, ["concurrency: is 0; expected a whole number of 1 or more"]),
    ],
)
def test_what_cannot_be_is_said_all_at_once(arguments, words):
    with pytest.raises(ClusterError) as error:
        planning.memory_plan(profiles.load(NEMOTRON), **arguments)
    assert all(word in str(error.value) for word in words), str(error.value)
    assert error.value.remedy


def test_a_plan_that_does_not_fit_stops_and_says_what_would():
    profile = profiles.load(NEMOTRON)
    rows = wording.findings(planning.memory_plan(profile, serve={"gpu_memory_utilization": 0.99}))
    assert {row["verdict"] for row in rows} == {"block"} and all(
        """-e '{"gb10_serve_arguments": {"gpu_memory_utilization": 0.8}}' (fits)""" in row["remedy"] for row in rows
    )


@pytest.mark.parametrize("recorded", [True, False])
def test_a_size_of_the_cache_is_proposed_once_a_start_is_recorded(recorded):
    planned = planning.memory_plan(profiles.load(NEMOTRON), recorded=recorded)
    size = planned["propose_kv_cache_memory_bytes"]
    rows = [line for line in wording.lines(planned) if "kv-cache-memory-bytes" in line]
    proposal = f"proposed, applied with gb10_kv_cache=recorded: --kv-cache-memory-bytes {size} ({size / components.GIB:.2f} GiB)"
    assert rows == ([proposal] if recorded else [])
    pinned = planning.memory_plan(profiles.load(NEMOTRON), serve={"kv_cache_memory_bytes": size}, recorded=recorded)
    assert pinned["verdict"] == (plan.FITS if recorded else plan.TIGHT)


def test_a_digest_is_of_what_memory_follows_from():
    profile = profiles.load(NEMOTRON)
    plain = planning.digest(profile)
    assert plain == planning.digest({**profile, "id": "other", "checks": []}, {"max-model-len": 8192, "kv_cache_memory_bytes": "8G"})
    for other in ({"max_num_seqs": 4}, {"gpu_memory_utilization": 0.8}):
        assert planning.digest(profile, other) != plain
    assert planning.digest({**profile, "model": {**profile["model"], "revision": "b" * 40}}) != plain
    assert planning.digest({**profile, "executor": "native"}) != plain


def test_starts_differ_by_everything_that_changes_their_memory():
    profile = profiles.load(NEMOTRON)
    plain = planning.expected(profile)["start_digest"]
    assert plain == planning.expected({**profile, "id": "other", "checks": []}, {"lora-modules": None}, [{"name": "x", "gib": 4}])["start_digest"]
    for other in ({"max_model_len": 8192}, {"kv_cache_memory_bytes": "8G"}, {"max_num_seqs": 4}):
        assert planning.expected(profile, other)["start_digest"] != plain
    assert planning.expected(profile, {"max-num-seqs": 4})["start_digest"] == planning.expected(profile, {"max_num_seqs": 4})["start_digest"]


def level_of(record, **more):
    """Return the expected memory of a recorded recipe and its level in MiB, on a node without other load."""
    expected = planning.expected(planning.recorded_profile(record), **more)
    total = plan.CLASS_TOTAL[record.get("class_gb", 128)]
    return expected, ending.of_plan(expected, int(total * 1024), int((total - 4) * 1024)).mb


@pytest.mark.parametrize("record", [param for param in NAMED if "available" in param.values[0] and param.values[0]["runs"]])
def test_what_stayed_available_is_above_the_level(record):
    expected, level = level_of(record)
    assert expected["lacks"] == [] and level is not None and level < record["available"] * 1024


def test_no_level_is_planned_where_more_was_reported_than_anything_explains():
    record = next(entry for entry in plan_records.RECORDS if entry["id"] == "Nemotron-3-Super NVFP4, 1M, two nodes with Ray")
    expected, level = level_of(record)
    assert level is None and expected["lacks"] == ["an explanation of what 1048576 tokens were reported to take"]
    assert level_of({**record, "serve": {**record["serve"], "max_model_len": 1048575}})[1] is not None


def test_what_others_claim_lowers_the_level_whatever_the_mode():
    record = next(entry for entry in plan_records.RECORDS if "available" in entry)
    tenants = [{"name": "speech", "gib": 4}, {"name": "other", "node": "spark-2", "gib": 8}]
    companions = [{"name": "embed", "memory_gib": 2.5, "modes": ["day"]}]
    expected, level = level_of(record, tenants=tenants, companions=companions, node="spark-1")
    assert expected["claims_gib"] == 6.5 and level == pytest.approx(level_of(record)[1] - 6.5 * 1024, abs=11)


def test_a_drafter_of_unknown_size_leaves_no_level():
    record = next(entry for entry in plan_records.RECORDS if "available" in entry)
    spec = {"speculative_config": {"method": "eagle3", "model": "some/drafter", "num_speculative_tokens": 3}}
    assert level_of({**record, "serve": {**record["serve"], **spec}})[0]["lacks"] == ["the size of the drafter"]


# -- picture -----------------------------------------------------------------------------------------------------------


def test_the_picture_has_every_part_of_every_node():
    planned = planning.memory_plan({**profiles.load(NEMOTRON), "id": "a<b&c"}, nodes=[121.7, 119.6])
    root = ElementTree.fromstring(picture.svg(planned))
    titles = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert sum(title.startswith("weights: 37.99 GiB") for title in titles) == 4, "loading and serving of two nodes"
    texts = " ".join(element.text for element in root.iter("{http://www.w3.org/2000/svg}text"))
    assert "a<b&c: fits" in texts and "node-2 serving" in texts and "rest of the KV cache" in texts
    ids = {part["id"] for entry in PLANNED.values() for node in entry["nodes"] for part in node["components"]}
    assert ids <= set(picture._COLORS), "every part has a color of its own"
    assert len(set(picture._COLORS.values())) == len(picture._COLORS)


def test_the_picture_of_the_pages_is_what_a_plan_draws():
    drawn = picture.svg(planning.memory_plan(profiles.load(NEMOTRON), nodes=[121.69, 121.69]))
    page = (ROOT / "docs/plan_nemotron.svg").read_text(encoding="utf-8")
    again = "gb10.cluster.plan -e gb10_profile=nemotron_3_super_tp2 -e gb10_plan_nodes=121.69,121.69 -e gb10_to=FILE.json"
    assert page == drawn, f"draw it again: ansible-playbook {again}, and copy FILE.svg there"


def test_words_on_a_color_can_be_read():
    assert (drawing.on("#0072b2"), drawing.on("#eeeeee"), drawing.on("#f0e442")) == ("#ffffff", "#000000", "#000000")


def test_bars_do_not_leave_the_picture():
    for planned in PLANNED.values():
        text = picture.svg(planned)
        width = float(re.search(r'viewBox="0 0 (\d+)', text)[1])
        bars = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', text)
        assert bars and all(float(left) + float(wide) <= width for left, wide in bars)
