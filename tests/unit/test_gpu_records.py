# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real starts on a GPU against the plan, the stages of a start, the signatures and the reader of metrics."""

from __future__ import annotations

import json
from pathlib import Path

import gpu_records
import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._engine import api_probe, engine_log, health
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import zombies
from ansible_collections.gb10.cluster.plugins.module_utils._memory import components
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import Process
from ansible_collections.gb10.cluster.plugins.module_utils._process.stacks import stacks
from ansible_collections.gb10.cluster.plugins.modules import rank_info
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve import failures

RECORDS = gpu_records.records()
LOADED = [record for record in RECORDS if "tokens" in record.said]
MEASURED = [record for record in RECORDS if "peak" in record.said]
HEALTHY = [record for record in RECORDS if record.healthy]
GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "plan.md").read_text(encoding="utf-8")

#: The diagnosis of each start with an injection: the cause or its echo. A killed core writes nothing, so only its front end's echo exists.
NAMED = {
    "wrong-flag": "engine-unknown-argument",
    "missing-shard": "model-files-missing",
    "qwen3-next-no-kernel": "kernel-not-available",
    "memory-taken": "memory-out",
    "core-stopped": "engine-interrupted",
    "share-beside": "memory-not-free",
    "core-killed": "engine-dead",
}
STAGES = ["initializing engine", "joining ranks", "loading model", "weights loaded", "compiling", "allocating KV cache"]
STAGES += ["tuning kernels", "capturing graphs", "starting API", engine_log.API_IS_UP]


def name(record):
    return f"{record.directory.name}/{record.name}"


def lines(record):
    return engine_log.plain_lines(record.log)


def test_models_of_five_kinds_are_recorded():
    kinds = {record.shape["config"]["model_type"] for record in LOADED}
    assert {"qwen3", "qwen3_moe", "gpt_oss", "nemotron_h", "deepseek_v2"} <= kinds
    assert any(record.directory.name.endswith("2026-11-24") for record in MEASURED)


@pytest.mark.parametrize("record", LOADED, ids=name)
def test_weights_are_as_planned(record):
    assert record.part("weights")[0] + record.part("drafter")[0] == pytest.approx(record.said["weights"], rel=0.02)


@pytest.mark.parametrize("record", LOADED, ids=name)
def test_the_tokens_of_a_cache_are_as_planned(record):
    """A cache of the engine's reported size holds as many tokens as the engine reports."""
    assert record.tokens(record.said["available"]) == pytest.approx(record.said["tokens"], rel=0.001)


@pytest.mark.parametrize("record", MEASURED, ids=name)
def test_the_rest_is_within_its_band(record):
    for part, measured in {"activation": "peak", "workspaces": "other", "graphs": "graphs"}.items():
        planned, within = record.part(part)
        assert abs(planned - record.said[measured]) <= within <= 2, (part, planned, within, record.said[measured])


@pytest.mark.parametrize("record", MEASURED, ids=name)
def test_a_cache_is_never_planned_larger_than_it_is(record):
    assert 0 <= record.said["available"] - record.plan["pool_gib"] <= 4


@pytest.mark.parametrize("record", MEASURED, ids=name)
def test_what_the_engine_says_adds_up(record):
    """The share less weights, peak and what is not torch's is the cache, but for graphs that one of its two model runners estimates before."""
    rest = record.use.share * record.said["total"] - sum(record.said[part] for part in ("weights", "peak", "other", "available"))
    assert -0.02 <= rest <= 0.4


@pytest.mark.parametrize("record", HEALTHY, ids=name)
def test_a_healthy_start_is_clean_at_every_line(record):
    diagnosis = failures.Diagnosis()
    for line in lines(record):
        if "[shutdown] API server: shutdown triggered" in line:
            break
        diagnosis.feed([line])
        assert (diagnosis.fatal, diagnosis.first_error, diagnosis.warnings) == (None, "", []), line


@pytest.mark.parametrize("record", HEALTHY, ids=name)
def test_a_healthy_start_shows_its_stages_in_order(record):
    seen = []
    for line in lines(record):
        stage = engine_log.stage_of([line])
        if stage and seen[-1:] != [stage.name]:
            seen.append(stage.name)
    assert seen == STAGES


def test_a_long_warm_up_is_a_stage():
    record = next(record for record in RECORDS if record.name == "qwen3-8b-fp8")
    shown = [engine_log.stage_of([line]) for line in lines(record) if line.startswith("DeepGEMM warmup")]
    assert record.found["not_ready"].startswith("no answer") and shown[-1] == ("tuning kernels", 1167, 1167)


@pytest.mark.parametrize("record", [record for record in RECORDS if "inject" in record.found and record.log], ids=name)
def test_a_failure_is_named(record):
    diagnosis = failures.Diagnosis()
    diagnosis.feed(lines(record))
    assert diagnosis.fatal.signature.id == NAMED[record.name]


def classes(listed, seen):
    """The zombie check's classes of a record's processes, by pid, with the driver's list of them."""
    entries = []
    for line in listed.splitlines():
        pid, title, used = line.split(", ")
        entries.append({"pid": int(pid), "name": title, "type": "C", "used_mib": int(used.split()[0])})
    init = Process(pid=1, ppid=0, state="S", name="init", argv=("/sbin/init",), container="", uid=0, rss_kib=1)
    table = [
        Process(row["pid"], row["parent"], row["state"], row["name"][:15], tuple(row["command"].split()), "", 0, row["VmRSS"])
        for row in seen
        if "gone" not in row
    ]
    findings = zombies.classified(entries, stacks({process.pid: process for process in [init, *table]}, "/nowhere"), lambda _pid: "ghost")
    return {finding["name"]: (finding["class"], finding["used_mib"]) for finding in findings}


@pytest.mark.parametrize("record", [record for record in HEALTHY if record.found.get("compute_apps")], ids=name)
def test_the_zombie_check_sees_a_living_engine(record):
    classified = classes(record.found["compute_apps"], record.found["processes"])
    assert {kind for kind, _used in classified.values()} == {"live"}


def test_the_zombie_check_sees_a_core_whose_server_was_killed():
    """The module itself blocked there: the core lost its server and still held 48706 MiB."""
    record = next(record for record in RECORDS if record.name == "server-killed").found
    assert classes(record["compute_apps_after"], record["processes_after"]) == {"VLLM::EngineCore": ("orphan", 48706)}


def test_a_stopped_core_is_healthy_to_all_but_a_request():
    record = next(record for record in RECORDS if record.name == "core-stopped").found
    assert (record["health_stopped"][0], record["asked_stopped"]["status"], record["asked_after"]["status"]) == (200, 0, 200)
    assert [process["state"] for process in record["processes_stopped"] if "EngineCore" in process["command"]] == ["T"]


def test_an_engine_without_a_kernel_says_that_it_is_ready_and_ends_at_the_first_request():
    record = next(record for record in RECORDS if record.name == "qwen3-next-no-kernel").found
    assert record["ready_seconds"] and record["asked"]["status"] == 500


def test_what_is_left_of_an_engine_whose_core_was_killed():
    record = next(record for record in RECORDS if record.name == "core-killed").found
    assert (record["asked_after"]["status"], record["health_after"][0], record["ended_by_itself"]) == (500, 503, True)
    assert not [process for process in record["processes_after"] if "EngineCore" in process["command"]]


@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "qwen3-8b-eagle3"])
@pytest.mark.parametrize(("when", "running"), [("idle", 0.0), ("load", 8.0)])
def test_metrics_tell_whether_it_works(model, when, running):
    text = (gpu_records.GPU / "h100-vllm-0.26.0-2026-11-26" / f"{model}.{when}.prom").read_text(encoding="utf-8")
    progress = api_probe.parse_progress(text)
    assert progress[0] == running and progress.kv_use is not None and (progress.kv_use > 0) == (running > 0)


def test_two_steps_are_under_way_in_a_sliding_window():
    record = next(record for record in RECORDS if record.name == "gpt-oss-120b")
    parts = {kind: words for kind, _size, words in components.kv_parts(record.facts, record.use)}
    assert parts["sliding"].endswith("x 16512 tokens (window 128 + 16384 of 2 step(s))")


def test_the_documentation_has_the_table_as_it_is():
    assert "\n".join(gpu_records.markdown()) in GUIDE, "run python tests/unit/gpu_records.py and put its table into docs/plan.md"


# -- what the collection's own programs and readers made of a live engine -------------------------------------------------

LOOK = json.loads(gpu_records.LOOK.read_text())
LOOK_LINES = engine_log.plain_lines(gpu_records.LOOK.with_suffix(".log").read_text())


def test_the_launcher_starts_and_stops_a_real_engine():
    assert LOOK["state"]["live"] and LOOK["state"]["run_id"] == LOOK["state_after"]["run_id"] == LOOK["stop"]["run_id"]
    assert (LOOK["stop"]["signals"], LOOK["stop"]["remaining"], LOOK["launcher_exit"]) == (["SIGTERM"], [], 0)
    assert not LOOK["state_after"]["live"] and LOOK["state_after"]["exit_code"] == 0 and {process["state"] for process in LOOK["left"]} <= {"ended"}


def test_the_stages_of_a_start_are_seen_while_it_loads():
    seen = list(dict.fromkeys(look["stage"][0] for look in LOOK["loading"] if look["stage"]))
    order = ["starting ranks", *STAGES]
    assert seen == [stage for stage in order if stage in seen]
    assert {"loading model", "compiling", "capturing graphs", engine_log.API_IS_UP} <= set(seen)
    assert any("VLLM::Worker" in text and "alive" in text for text in LOOK["loading"][-1]["processes"])


def test_the_log_of_an_engine_that_the_launcher_started_is_clean_until_it_answers():
    diagnosis = failures.Diagnosis()
    end = next(number for number, line in enumerate(LOOK_LINES) if (stage := engine_log.stage_of([line])) and stage.name == engine_log.API_IS_UP)
    diagnosis.feed(LOOK_LINES[: end + 1])
    assert (diagnosis.fatal, diagnosis.first_error, diagnosis.warnings) == (None, "", [])


@pytest.mark.parametrize(("when", "state"), [("serving", "serving"), ("stopped", "halted"), ("continued", "serving")])
def test_the_health_of_a_live_engine_is_judged_by_its_token_and_its_processes(when, state):
    look = LOOK[when]
    probe = health.Probe(look["asked"]["api"], bool(look["asked"]["completion"]), **(look["asked"]["progress"] or {}))
    judged = health.verdict(probe, {"node": look["processes"]})
    assert judged.state == look["verdict"]["state"] == state and look["asked"]["api"] == health.ANSWERS
    assert bool(judged.named) == (when == "stopped")


def test_a_live_rank_has_the_environment_that_the_launcher_got():
    (rank,) = LOOK["ranks"]
    assert (rank["source"], len(rank["libcuda"]), rank["present"]) == ("live", 1, [])
    assert rank["env"] == {**LOOK["given"], "GB10_RUN_ID": f"/opt/gb10/run:{LOOK['state']['run_id']}"}
    assert rank_info.verdict_of(LOOK["ranks"], "the node")["verdict"] == "pass"


def test_the_guards_sources_read_the_gpu_and_the_engines_processes():
    assert {kind for _pid, kind, _state, _ours in LOOK["guard"]["ranks"]} == {"api_server", "helper", "engine_core", "rank"}
    assert LOOK["guard"]["gpu"]["sm"] > 0 and LOOK["guard"]["gpu"]["w"] > 0 and 0 < LOOK["guard"]["memory"]["a"] < LOOK["guard"]["total"]


def test_no_question_with_a_known_answer_is_passed_by_an_engine_with_dummy_weights():
    assert LOOK["answers"] and "pass" not in {answer["verdict"] for answer in LOOK["answers"]}
