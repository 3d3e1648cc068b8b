# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory plan of profiles, and what it says of recipes on record."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import plan_records
import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._memory import ending, model_facts, plan
from ansible_collections.gb10.cluster.plugins.plugin_utils._plan import picture, planning
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import profiles

ROOT = Path(__file__).resolve().parents[5]
NEMOTRON = "nemotron_3_super_tp2"
#: Gibibytes by which the available memory of a plan may miss what was reported.
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


@pytest.mark.parametrize("record", [one for one in NAMED if "available" in one.values[0]])
def test_what_stayed_available_is_met(record):
    assert PLANNED[record["id"]]["nodes"][0]["serving"]["available_gib"] == pytest.approx(record["available"], abs=NEAR)


@pytest.mark.parametrize("record", [one for one in NAMED if "weights" in one.values[0]])
def test_weights_are_those_reported(record):
    assert plan_records.weights(PLANNED[record["id"]]) == pytest.approx(record["weights"], rel=0.1)


@pytest.mark.parametrize("record", [one for one in NAMED if "pool" in one.values[0]])
def test_the_cache_that_was_left_is_near(record):
    """Wider than the rest: two of the logs do not say how many tokens a step or sequences there were."""
    assert PLANNED[record["id"]]["nodes"][0]["pool_gib"] == pytest.approx(record["pool"], abs=6.0)


def test_the_reason_of_minimax_in_fp8_is_the_one_reported():
    reasons = PLANNED["MiniMax-M2.7 FP8, two nodes"]["reasons"]
    assert any("the weights take 108.8 GiB and leave 12.9" in reason for reason in reasons), reasons


def test_no_fact_is_of_one_recipe_alone():
    """Facts over those of the table are what an engine said of itself, never a figure that makes a verdict come out."""
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
    """The last figure of each line of a calculation in the documentation, by the line's first words."""
    text = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
    section = text[text.index(title) :].split("\n## ")[0].split("\n### ")[0]
    rows = re.findall(r"^(\S.*?)  +.*? (-?\d+\.\d+)$", section, re.MULTILINE)
    return {name: float(value) for name, value in rows}


def test_the_documentation_does_its_sums_as_the_plan_does():
    near = {"abs": 0.011}
    profile = profiles.load(NEMOTRON)
    node = planning.memory_plan(profile, context=1048576)["nodes"][0]
    parts = {one["id"]: one["gib"] for one in node["components"]}
    shown = steps("### Nemotron-3-Super, step by step")
    expected = {"weights": parts["weights"], "a sequence": parts["kv"], "state": parts["state"], "activations": parts["activation"]}
    expected |= {"the cache": node["pool_gib"], "serving": node["serving"]["used_gib"], "available": node["serving"]["available_gib"]}
    assert {name: shown[name] for name in expected} == pytest.approx(expected, **near)

    shown = steps("### Qwen3-235B and MiniMax, step by step")
    qwen = plan_records.weights(PLANNED["Qwen3-235B GPTQ-Int4, two nodes with Ray"])
    assert (shown["embeddings and head"] + shown["all the rest"]) / 2 * 1.015 == pytest.approx(qwen, **near)
    node = PLANNED["MiniMax-M2.7 FP8, two nodes"]["nodes"][0]
    parts = {one["id"]: one["gib"] for one in node["components"]}
    assert shown["left"] == pytest.approx(121.69 - parts["weights"], **near) and shown["a sequence"] == pytest.approx(parts["kv"], **near)
    assert shown["beside"] == pytest.approx(parts["os"] + parts["engine_host"] + parts["ray"], **near)
    own = sum(parts[name] for name in ("activation", "workspaces", "fabric", "graphs"))
    assert shown["its own"] == pytest.approx(own, **near)
    assert shown["the cache"] == pytest.approx(shown["left"] - shown["beside"] - own, abs=0.02)
    assert shown["the cache"] + node["serving"]["within_gib"] == pytest.approx(0.86, abs=0.02)


def test_the_documentation_names_every_constant_with_its_value():
    text = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
    for name, one in plan.CONSTANTS.items():
        assert f"| `{name}` | {one.value:g} ± {one.within:g} |" in text, name


# -- profiles ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", profiles.known())
def test_every_shipped_profile_has_a_plan(name):
    profile = profiles.load(name)
    found = planning.memory_plan(profile)
    assert found["verdict"] in (plan.FITS, plan.TIGHT), found["reasons"] or found["missing"]
    assert len(found["nodes"]) == profile["parallel"]["tensor"] and planning.lines(found) and planning.findings(found)


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


def test_nemotron_grows_by_a_gib_and_the_report_stands_beside_it():
    rows = planning.memory_plan(profiles.load(NEMOTRON))["lengths"]
    assert [(row["context"], row["kv_gib"]) for row in rows] == [(262144, 0.5), (524288, 1.0), (1048576, 2.0)]
    assert rows[2]["more_gib"] == 1.0 and "9 to 10 GB" in rows[2]["reported"] and rows[2]["reported"].endswith("unexplained")
    assert rows[1]["available_gib"] == rows[2]["available_gib"], "what nothing explains is not reckoned with"


def test_a_profile_of_an_unknown_model_is_unknown_and_says_what_it_lacks():
    profile = {**profiles.load(NEMOTRON), "model": {"repo": "somebody/something"}, "memory": {"class_gb": 128, "weights_gb": None, "config": {}}}
    found = planning.memory_plan(profile)
    assert found["verdict"] == plan.UNKNOWN and "memory.config.hidden_size" in found["missing"]
    rows = planning.findings(found)
    assert [row["verdict"] for row in rows] == ["unknown"] and "memory.config" in rows[0]["remedy"]
    assert "unknown" in planning.lines(found)[0] and picture.svg(found).startswith("<svg")
    own = {"num_hidden_layers": 24, "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128}
    assert planning.memory_plan({**profile, "memory": {**profile["memory"], "weights_gb": 20.0, "config": own}})["verdict"] == plan.FITS


def test_a_config_json_takes_the_place_of_the_table():
    profile = {**profiles.load(NEMOTRON), "model": {"repo": "somebody/something"}, "memory": {"class_gb": 128, "weights_gb": 40.0, "config": {}}}
    config = {"architectures": ["X"], "num_hidden_layers": 24, "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000}
    found = planning.memory_plan(profile, config=config)
    assert found["verdict"] == plan.FITS and "config.json" in found["facts"]["source"] and found["facts"]["head_dim"] == 128


def test_nodes_and_lengths_are_those_given():
    profile = profiles.load(NEMOTRON)
    found = planning.memory_plan(profile, nodes=[{"node": "spark-a", "total_gib": 121.7}, {"node": "spark-b", "total_gib": 119.6, "tenants_gib": 16}])
    assert [(one["node"], one["total_gib"]) for one in found["nodes"]] == [("spark-a", 121.7), ("spark-b", 119.6)]
    assert [one["id"] for one in found["nodes"][1]["components"]].count("tenants") == 1
    assert [row["context"] for row in planning.memory_plan(profile, lengths="8192, 65536", context="32768")["lengths"]] == [8192, 32768, 65536]
    more = planning.memory_plan(profile, concurrency=64)
    assert more["settings"]["seqs"] == 64 and more["nodes"][0]["sequences"] < 100


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"nodes": [121.7]}, ["nodes: found 1, expected 2"]),
        ({"nodes": [{"total": 121.7}, "much"]}, ["nodes[0].total: is not a known field", "nodes[1].total_gib: found 'much'"]),
        ({"nodes": 4}, ["nodes[0].total_gib: found 4, expected GiB from 8 to 4096"]),
        ({"context": "long", "lengths": "1,x"}, ["context: found 'long'", "lengths: found 'x'"]),
        ({"concurrency": 0}, ["concurrency: found 0, expected a whole number of 1 or more"]),
    ],
)
def test_what_cannot_be_is_said_all_at_once(arguments, words):
    with pytest.raises(ClusterError) as error:
        planning.memory_plan(profiles.load(NEMOTRON), **arguments)
    assert all(word in str(error.value) for word in words), str(error.value)
    assert error.value.remedy


def test_a_plan_that_does_not_fit_stops_and_says_what_would():
    profile = profiles.load(NEMOTRON)
    rows = planning.findings(planning.memory_plan(profile, serve={"gpu_memory_utilization": 0.99}))
    assert {row["verdict"] for row in rows} == {"block"} and all("gpu_memory_utilization 0.8" in row["remedy"] for row in rows)


@pytest.mark.parametrize(
    "recorded, words",
    [(True, "proposed, applied with gb10_kv_cache=recorded: --kv-cache-memory-bytes"), (False, "a figure, not proposed until a start")],
)
def test_a_size_of_the_cache_is_proposed_once_a_start_is_on_record(recorded, words):
    found = planning.memory_plan(profiles.load(NEMOTRON), recorded=recorded)
    size = found["propose_kv_cache_memory_bytes"]
    (row,) = [one for one in planning.lines(found) if "--kv-cache-memory-bytes" in one]
    assert row.startswith(words) and str(size) in row
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


def test_a_start_is_told_from_another_by_all_that_its_memory_follows_from():
    profile = profiles.load(NEMOTRON)
    plain = planning.expected(profile)["start_digest"]
    assert plain == planning.expected({**profile, "id": "other", "checks": []}, {"lora-modules": None}, [{"name": "x", "gib": 4}])["start_digest"]
    for other in ({"max_model_len": 8192}, {"kv_cache_memory_bytes": "8G"}, {"max_num_seqs": 4}):
        assert planning.expected(profile, other)["start_digest"] != plain
    assert planning.expected(profile, {"max-num-seqs": 4})["start_digest"] == planning.expected(profile, {"max_num_seqs": 4})["start_digest"]


def level_of(record, **more):
    """The level in GiB of a recipe on record, on a node where nothing else runs."""
    asked = planning.expected(plan_records.profile_of(record), **more)
    total = plan.CLASS_TOTAL[record.get("class_gb", 128)]
    return asked, ending.of_plan(asked, int(total * 1024), int((total - 4) * 1024)).mb


@pytest.mark.parametrize("record", [one for one in NAMED if "available" in one.values[0] and one.values[0]["runs"]])
def test_what_stayed_available_is_above_the_level(record):
    asked, level = level_of(record)
    assert asked["lacks"] == [] and level is not None and level < record["available"] * 1024


def test_no_level_is_planned_where_more_was_reported_than_anything_explains():
    record = next(one for one in plan_records.RECORDS if one["id"] == "Nemotron-3-Super NVFP4, 1M, two nodes with Ray")
    asked, level = level_of(record)
    assert level is None and asked["lacks"] == ["an explanation of what 1048576 tokens were reported to take"]
    assert level_of({**record, "serve": {**record["serve"], "max_model_len": 1048575}})[1] is not None


def test_what_others_claim_lowers_the_level_whatever_the_mode():
    record = next(one for one in plan_records.RECORDS if "available" in one)
    tenants = [{"name": "speech", "gib": 4}, {"name": "other", "node": "spark-2", "gib": 8}]
    companions = [{"name": "embed", "memory_gib": 2.5, "modes": ["day"]}]
    asked, level = level_of(record, tenants=tenants, companions=companions, node="spark-1")
    assert asked["claims_gib"] == 6.5 and level == pytest.approx(level_of(record)[1] - 6.5 * 1024, abs=11)


def test_a_drafter_of_unknown_size_leaves_no_level():
    record = next(one for one in plan_records.RECORDS if "available" in one)
    spec = {"speculative_config": {"method": "eagle3", "model": "some/drafter", "num_speculative_tokens": 3}}
    assert level_of({**record, "serve": {**record["serve"], **spec}})[0]["lacks"] == ["the size of the drafter"]


# -- picture -----------------------------------------------------------------------------------------------------------


def test_the_picture_has_every_part_of_every_node():
    found = planning.memory_plan({**profiles.load(NEMOTRON), "id": "a<b&c"}, nodes=[121.7, 119.6])
    root = ElementTree.fromstring(picture.svg(found))
    titles = [one.text for one in root.iter("{http://www.w3.org/2000/svg}title")]
    assert sum(title.startswith("weights: 37.99 GiB") for title in titles) == 4, "loading and serving of two nodes"
    texts = " ".join(one.text for one in root.iter("{http://www.w3.org/2000/svg}text"))
    assert "a<b&c: fits" in texts and "node-2 serving" in texts and "rest of the KV cache" in texts
    ids = {part["id"] for one in PLANNED.values() for node in one["nodes"] for part in node["components"]}
    assert ids <= set(picture._COLORS), "every part has a color of its own"
    assert len(set(picture._COLORS.values())) == len(picture._COLORS)


def test_bars_do_not_leave_the_picture():
    for found in PLANNED.values():
        text = picture.svg(found)
        width = float(re.search(r'viewBox="0 0 (\d+)', text)[1])
        assert all(float(left) + float(wide) <= width for left, wide in re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', text))
