# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a stage shows, writes and passes on, given the answers of all nodes."""

from __future__ import annotations

import copy
import datetime
import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.module_utils._node import description
from ansible_collections.gb10.cluster.plugins.module_utils._records import cold_starts
from ansible_collections.gb10.cluster.plugins.module_utils._redact import redacted
from ansible_collections.gb10.cluster.plugins.plugin_utils._plan import planning
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import profiles
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import node_settings
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import abort, registry, report, status
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Run

ROOT = Path(__file__).resolve().parents[5]
HEALTHY = json.loads((ROOT / "tests" / "unit" / "fixtures" / "node_info" / "healthy.json").read_text(encoding="utf-8"))
PROFILE = profiles.load("nemotron_3_super_tp2")
NOW = datetime.datetime(2026, 11, 22, 10, 0, 42, tzinfo=datetime.timezone.utc)
ENGINE = {"live": True, "api_address": "10.0.0.1", "api_port": 8000, "run_id": "r", "log_path": "/l"}


def run(check_mode: bool = False, silenced: t.Sequence[str] = (), path: str = "/r.json", **settings: t.Any) -> Run:
    return Run(settings, list(silenced), path, ["all"], [], NOW, check_mode)


# --- status -----------------------------------------------------------------------------------------------------------------


#: The answers of the head node for a working engine.
ANSWERS = {"requests_running": 0, "last_end": "", "last_lines": [], "now": 1795228877.0, "api": "answers", "completion": {"tokens": 1, "seconds": 0.4}}
NO_PROGRESS = {"fabric": None, "progress": None}
RANK = {"text": "ray::RayWorkerProc.run (pid 1104)", "kind": "rank", "state": "alive", "cpu_percent": 3.0}


def state(executor: str, *live: bool) -> dict[str, dict[str, t.Any]]:
    """The answers that the status role gathers from nodes with live or dead ranks."""
    shared = {"head": "spark-1", "cluster": "gb10", "reached": "spark-1.local", "probe_seconds": 15}
    container = {"exists": True, "executor": executor, "container": {"name": "c", "state": "running", "created": "now", "image": "i"}, "nodes": []}
    return {
        f"spark-{number}": {
            **shared,
            "address": f"10.77.1.1{number}",
            "container": container,
            "engine": {"engine": {**ENGINE, "live": lives}, **ANSWERS, "stage": "API is up", "shards": "", "processes": [RANK], **NO_PROGRESS},
        }
        for number, lives in enumerate(live, 1)
    }


@pytest.mark.parametrize(
    ("executor", "live", "endpoint"),
    [
        ("ray", (True, False), "http://10.0.0.1:8000/v1"),
        ("ray", (False, False), ""),
        ("native", (True, True), "http://10.0.0.1:8000/v1"),
        # An engine that lost a rank answers no request, whatever its head reports.
        ("native", (True, False), ""),
        ("native", (False, False), ""),
    ],
)
def test_the_endpoint_is_one_that_answers(executor: str, live: tuple[bool, bool], endpoint: str) -> None:
    assert status.judge(state(executor, *live), run()).stats["gb10_endpoint"] == endpoint


def test_status_says_what_runs_on_each_node() -> None:
    outcome = status.judge(state("ray", True, False), run())
    assert outcome.stats["gb10_status"] == {
        "spark-1": [
            "c running since now from i",
            "Ray none, Python none",
            "Ray nodes: none",
            "unproven: there is no recorded proof of run r; the tag proof of the bring-up asks it",
            "engine: http://10.0.0.1:8000, a token in 0.4 s, 0 request(s) running or waiting, log /l",
        ],
        "spark-2": ["c running since now from i", "Ray none, Python none"],
    }
    assert outcome.details == [
        "spark-1:",
        "  c running since now from i; Ray none, Python none; Ray nodes: none; unproven: there is no recorded proof of run r; "
        "the tag proof of the bring-up asks it",
        "  engine: http://10.0.0.1:8000, a token in 0.4 s, 0 request(s) running or waiting, log /l",
        "spark-2:",
        "  c running since now from i; Ray none, Python none",
    ]
    assert outcome.lines == [
        "spark-1: unproven: there is no recorded proof of run r; the tag proof of the bring-up asks it",
        "spark-1: c running since now from i; Ray none, Python none; Ray nodes: none",
        "  engine: http://10.0.0.1:8000, a token in 0.4 s, 0 request(s) running or waiting, log /l",
        "spark-2: c running since now from i; Ray none, Python none",
    ]


UNIT = {"installed": True, "files": True, "enabled": True, "starting": False, "active": True, "failed": False}
#: A healthy pair with an engine, its unit, guard and sweep: one node as printed in the lab, plus what only a real node has.
SERVICES = {
    "guard": {**UNIT, "ring": "/var/lib/gb10/guard", "ring_bytes": 12582912, "older": False, "said": None},
    "sweep": {**UNIT, "error": "", "last_sweep": "2026-11-26T05:30:00Z", "quiet": "", "problems": [], "undelivered": {}, "last_alert": ""},
    "engine": {**UNIT, "name": "gb10-engine-gb10.service", "error": "", "state": "running", "at": "2026-11-21T18:53:31Z", "reason": ""},
}
START = {"profile": "nemotron_3_super_tp2", "context": 262144, "took_mb": 98000, "left_mb": 20800, "recorded_at": "2026-11-23T18:20:41Z", "error": ""}
CLIMB = {"profile": "nemotron_3_super_tp2", "rung": 524288, "began_at": "2026-11-23T18:20:41Z", "outcome": "top", "trying": 0, "reason": ""}
#: Lines around these: the command, two plays, the count of checked inputs, and the recap of three hosts, with blank lines.
CHROME = 12


def well_pair() -> dict[str, dict[str, t.Any]]:
    answers = state("ray", True, False)
    for node, role in {"spark-1": "head", "spark-2": "worker"}.items():
        named = {"name": f"gb10-gb10-{role}", "state": "running", "created": "2026-11-21T18:53:31Z", "image": "vllm/vllm-openai:v0.30.0-aarch64-cu130"}
        cache = {"path": "/var/lib/gb10/gb10/cache/0.30.0-arm64-1f0c", "size_bytes": 1288490188, "files": 4711, "in_use": True}
        answers[node]["container"] = {
            **answers[node]["container"], "container": named, "services": SERVICES, "last_start": START, "caches": [cache], "ray_version": "2.60.0",
            "python_version": "3.12.3", "nodes": [{"address": "192.168.100.11"}, {"address": "192.168.100.12"}], "ladder": {"climbs": [CLIMB]},
            "protection": {"measures": ["holds", "swap"], "changes": 3},
            "last_proof": {"run_id": "r", "failed": [], "recorded_at": NOW.isoformat(), "error": ""},
        }  # fmt: skip
    answers["spark-1"]["engine"]["routes"] = {"asked": 58, "listed": True, "unknown": [], "open": []}
    last = {"seconds": {"ready": 1095.0}, "compiled": "kept", "recorded_at": "2026-11-26T05:30:00Z"}
    seconds = {"image": 3.0, "weights": 850.4, "compile": 21.8, "graphs": 15.0, "warmup": 136.7, "first_token": 0.6, "ready": 1102.4}
    reported = {"ready": 1080.0, "by": "al-engr.com"}
    answers["spark-1"]["engine"]["cold_start"] = {"seconds": seconds, "compiled": "kept", "last": last, "reported": reported, "error": ""}
    answers["spark-1"]["engine"]["engine"] = {**ENGINE, "guarded": True, "log_path": "/var/log/gb10/gb10/engine/20261121T185346Z-9cc6.log"}
    return answers


def test_status_of_a_pair_fits_on_a_screen_where_all_is_well() -> None:
    outcome = status.judge(well_pair(), run())
    assert len(outcome.lines) + CHROME <= 18, "\n".join(outcome.lines)
    assert outcome.lines[0].startswith("spark-1: gb10-gb10-head running") and "guard: active; sweep: active; last " in "\n".join(outcome.lines)
    assert len(outcome.details) > len(outcome.lines) and "compiled for its images: " in "\n".join(outcome.details)


@pytest.mark.parametrize(
    ("unit", "more", "line"),
    [
        ("guard", {"active": False}, "spark-2: guard: not active, ring "),
        ("guard", {"said": {"at": 1795500000.0, "text": "would end rank 1"}}, "spark-2: guard: active, ring "),
        ("sweep", {"problems": [{"id": "memory", "text": "1.2 GiB are available"}]}, "spark-2: sweep: active; last 2026-11-26T05:30:00Z: memory: 1.2 GiB"),
        ("engine", {"active": False, "state": "failed"}, "spark-2: unit gb10-engine-gb10.service: not active, enabled (failed "),
    ],
)
def test_status_names_first_what_is_wrong(unit: str, more: dict[str, t.Any], line: str) -> None:
    answers = well_pair()
    answers["spark-2"]["container"]["services"] = {**SERVICES, unit: {**SERVICES[unit], **more}}
    assert status.judge(answers, run()).lines[0].startswith(line)


@pytest.mark.parametrize(
    ("fabric", "line"),
    [
        ({"up": False, "operstate": "down"}, "interface eth1 of node spark-2, which carries the fabric, is down. Remedy: Look at its cable"),
        ({"unanswered": {"10.77.1.11": 7}}, "nothing comes back to spark-2 from spark-1 over interface eth1, which carries the fabric and is up. Remedy: "),
    ],
)
def test_status_says_what_is_wrong_with_the_fabric(fabric: dict[str, t.Any], line: str) -> None:
    answers = state("ray", True, False)
    whole = {"interface": "eth1", "operstate": "up", "up": True, "unanswered": {}}
    answers["spark-1"]["engine"]["fabric"], answers["spark-2"]["engine"]["fabric"] = whole, {**whole, **fabric}
    by_node = status.judge(answers, run()).stats["gb10_status"]
    assert by_node["spark-2"][-1].startswith(line) and not any("fabric" in text for text in by_node["spark-1"])


def test_status_says_which_node_failed_first_under_an_engine_that_died() -> None:
    """The log lines were recorded in the lab after a rank was killed."""
    answers = state("ray", False, False)
    answers["spark-1"]["engine"] |= {
        "last_end": "run r ended with exit code 1, its log ends: RuntimeError: Engine core initialization failed",
        "last_lines": [
            "(EngineCore pid=281) ERROR 11-21 02:41:17 [core.py:1510] ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
            "(EngineCore pid=281) ERROR 11-21 02:41:17 [core.py:1510] ip: 10.77.1.12",
        ],
    }
    last_line = status.judge(answers, run()).stats["gb10_status"]["spark-1"][-1]
    assert last_line.startswith("engine: none; the last one, run r ended with exit code 1, its log ends: RuntimeError: Engine core initialization failed. ")
    assert "First to fail: spark-2 at 02:41:17 UTC, rank-died (known): " in last_line and "Remedy: Look at that node's container" in last_line


def test_status_says_what_the_newest_start_took_on_each_node() -> None:
    answers = state("ray", True, False)
    last_start = {"profile": "nemotron", "context": 262144, "took_mb": 98000, "left_mb": 20800, "recorded_at": "2026-11-23T18:20:41Z", "error": ""}
    for node, last in {"spark-1": {"error": "starts.json is not JSON. Remedy: Remove it."}, "spark-2": last_start}.items():
        answers[node]["container"] = {**answers[node]["container"], "last_start": last}
    by_node = status.judge(answers, run()).stats["gb10_status"]
    assert by_node["spark-2"][-1] == "last proven start: nemotron with 262144 tokens took 95.7 GiB and left 20.3, 2026-11-23"
    assert "recorded starts: starts.json is not JSON. Remedy: Remove it." in by_node["spark-1"]
    first, *rest = status.judge(answers, run()).lines
    assert "starts.json is not JSON" in first and "last proven start" not in "".join(rest), "an error is shown, a detail only with -v"


@pytest.mark.parametrize(
    ("last", "word", "line"),
    [
        ({}, "unproven", "unproven: there is no recorded proof of run RUN; the tag proof of the bring-up asks it"),
        ({"run_id": "other", "failed": [], "recorded_at": "T", "error": ""}, "unproven", "unproven: there is no recorded proof of run RUN"),
        ({"run_id": "RUN", "failed": [], "recorded_at": "2026-11-23T18:20:41Z", "error": ""}, "proven", "proven: 2026-11-23T18:20:41Z"),
        ({"run_id": "RUN", "failed": ["proof.fabric"], "recorded_at": "T", "error": ""}, "unproven", "unproven: it failed proof.fabric at T"),
        ({"error": "proofs.json is not JSON. Remedy: Remove it."}, "unknown", "whether it was proven is unknown: proofs.json is not JSON. Remedy: Remove"),
    ],
)
def test_status_says_whether_what_lives_was_proven(last: dict[str, t.Any], word: str, line: str) -> None:
    answers = state("ray", True, False)
    run_id = answers["spark-1"]["engine"]["engine"]["run_id"]
    last = {**last, "run_id": run_id} if last.get("run_id") == "RUN" else last
    answers["spark-1"]["container"] = {**answers["spark-1"]["container"], "last_proof": last}
    stats = status.judge(answers, run()).stats
    assert stats["gb10_proof"] == word and any(text.startswith(line.replace("RUN", run_id)) for text in stats["gb10_status"]["spark-1"])
    answers["spark-1"]["engine"] = {"unreachable": True, "msg": "no route"}
    assert status.judge(answers, run()).stats["gb10_proof"] == "unknown"
    gone = status.judge(state("ray", False, False), run()).stats
    assert gone["gb10_proof"] == "none" and not any("proven" in text for text in gone["gb10_status"]["spark-1"])


COLD = {
    "seconds": {"weights": 606.4, "ready": 702.1}, "compiled": "kept", "error": "", "reported": {"ready": 480.0, "by": "an owner"},
    "last": {"seconds": {"weights": 200.0, "ready": 300.0}, "compiled": "kept", "recorded_at": "2026-11-26T05:30:00Z"},
}  # fmt: skip


def test_status_says_on_the_head_how_long_the_start_took() -> None:
    answers = state("ray", True, False)
    answers["spark-1"]["engine"]["cold_start"] = COLD
    outcome = status.judge(answers, run())
    whole = (
        "start: 702 s (weights 606), compile cache used; last: 300 s (weights 200), compile cache used; "
        "2.3 times the last one, most of it weights; reported by an owner: 480 s"
    )
    assert outcome.stats["gb10_status"]["spark-1"][-2] == whole and not any("start: " in text for text in outcome.stats["gb10_status"]["spark-2"])
    shown = "\n".join(outcome.lines)
    assert "start: 702 s, compile cache used; last: 300 s; 2.3 times the last one, most of it weights; reported by an owner: 480 s" in shown
    answers["spark-1"]["engine"]["cold_start"] = None
    assert not any("start: " in text for text in status.judge(answers, run()).stats["gb10_status"]["spark-1"])


def test_status_says_how_much_lies_compiled_on_each_node() -> None:
    answers = state("ray", True, False)
    cache = {"path": "/var/lib/gb10/gb10/cache/0.20.1-arm64-1f0c", "size_bytes": 1288490188, "files": 4711, "in_use": True}
    other = {**cache, "path": "/var/lib/gb10/gb10/cache/0.19.0-arm64-2e1d", "size_bytes": 4096, "in_use": False}
    answers["spark-2"]["container"] = {**answers["spark-2"]["container"], "caches": [cache, other]}
    by_node = status.judge(answers, run()).stats["gb10_status"]
    assert by_node["spark-2"][-1] == (
        "compiled for its images: 1.2 GiB in /var/lib/gb10/gb10/cache/0.20.1-arm64-1f0c, 4.0 KiB in /var/lib/gb10/gb10/cache/0.19.0-arm64-2e1d (not in use)"
    )
    assert not any("compiled" in line for line in by_node["spark-1"])


def test_status_names_a_directory_that_other_accounts_may_enter_with_what_to_type() -> None:
    answers = state("ray", True, False)
    opened = [{"path": "/var/lib/gb10/old", "mode": "0755", "remedy": "chmod 0700 /var/lib/gb10/old"}]
    answers["spark-2"]["container"] = {**answers["spark-2"]["container"], "open_directories": opened}
    by_node = status.judge(answers, run()).stats["gb10_status"]
    line = "/var/lib/gb10/old can be entered by other accounts (mode 0755), and containers write there. Remedy: chmod 0700 /var/lib/gb10/old"
    assert line in by_node["spark-2"] and line not in by_node["spark-1"]


WAITED = {"grew": False, "still_s": 15.0, "limit_s": 600.0}
NONE = "gave no token in 15 s, 0 request(s) running or waiting: "


@pytest.mark.parametrize(
    ("answer", "line", "endpoint", "word"),
    [
        ({"progress": WAITED}, NONE + "unknown: no token and no progress for 15 s, which counts as stalled after 600 s, log /l", False, "unknown"),
        ({"progress": {**WAITED, "still_s": 601.0}}, NONE + "stalled: no progress for 601 s, log /l", False, "stalled"),
        ({"progress": {**WAITED, "grew": None}, "requests_running": None}, "its metrics do not show whether it works, log /l", False, "unknown"),
        ({"progress": {**WAITED, "grew": True}, "requests_running": 3}, "tokens of other requests flow or a prompt is being read, log /l", True, "busy"),
        ({"api": "starting", "stage": "loading weights", "shards": "1/2"}, "does not answer yet (loading weights 1/2), log /l", True, "starting"),
        ({"api": "refused"}, NONE + "dead: its API was up, and its port refuses connections now, log /l", False, "dead"),
    ],
)
def test_an_engine_that_gives_no_token_is_not_said_to_run(answer: dict[str, t.Any], line: str, endpoint: bool, word: str) -> None:
    answers = state("ray", True, False)
    answers["spark-1"]["engine"].update({"completion": None, **answer})
    outcome = status.judge(answers, run())
    last_line = outcome.stats["gb10_status"]["spark-1"][-1]
    assert last_line.partition(". Remedy: ")[0].endswith(line) and ("Run the play again" in last_line) == (word == "dead")
    assert (bool(outcome.stats["gb10_endpoint"]), outcome.stats["gb10_health"]) == (endpoint, word)


def test_a_stopped_process_is_named_on_its_node() -> None:
    answers = state("ray", True, False)
    answers["spark-2"]["engine"]["processes"] = [{**RANK, "state": "stopped"}]
    outcome = status.judge(answers, run())
    by_node = outcome.stats["gb10_status"]
    assert by_node["spark-2"][-1] == (
        "stopped by a signal or a debugger, so that the engine hangs: ray::RayWorkerProc.run (pid 1104); kill -CONT PID lets it go on"
    )
    assert "halted: " in by_node["spark-1"][-1] and "spark-2: ray::RayWorkerProc.run (pid 1104)" in by_node["spark-1"][-1]
    assert (outcome.stats["gb10_health"], outcome.stats["gb10_endpoint"]) == ("halted", "")


def test_a_silent_node_makes_the_cause_of_no_token_unknown() -> None:
    answers = state("ray", True, False)
    answers["spark-1"]["engine"].update(completion=None, progress=WAITED)
    answers["spark-2"]["engine"] = {"unreachable": True, "msg": "no route"}
    outcome = status.judge(answers, run())
    assert outcome.stats["gb10_health"] == "unknown" and "spark-2 did not answer" in outcome.stats["gb10_status"]["spark-1"][-1]


@pytest.mark.parametrize(
    ("routes", "line"),
    [
        ({"open": []}, "34 routes asked without the API's key, none answers."),
        ({"open": ["GET /metrics"]}, "34 routes asked without the API's key, 1 answer: GET /metrics."),
    ],
)
def test_status_says_what_the_api_answers_without_its_key(routes: dict[str, t.Any], line: str) -> None:
    answers = state("ray", True, False)
    answers["spark-1"]["engine"]["engine"]["guarded"] = True
    answers["spark-1"]["engine"]["routes"] = {"asked": 34, "listed": True, "unknown": [], **routes}
    assert status.judge(answers, run()).stats["gb10_status"]["spark-1"][-1] == line


def test_an_engine_that_cannot_be_asked_is_unknown_and_says_why() -> None:
    answers = state("ray", True, False)
    answers["spark-1"]["engine"] = {"failed": True, "msg": "cannot read the API key in /k: No such file or directory"}
    assert status.judge(answers, run()).stats["gb10_status"]["spark-1"] == ["not reached: cannot read the API key in /k: No such file or directory"]


def test_status_names_the_ranks_that_a_dead_engine_lacks() -> None:
    by_node = status.judge(state("native", True, False), run()).stats["gb10_status"]
    assert by_node["spark-1"][-1].startswith("the engine is dead: no rank lives on spark-2.")
    assert by_node["spark-2"][-1] == "rank 1 of executor native: not live; none was started"


@pytest.mark.parametrize("word", ["failed", "unreachable"])
@pytest.mark.parametrize("answer", ["container", "engine"])
def test_a_node_that_did_not_answer_was_not_reached(word: str, answer: str) -> None:
    answers = state("native", True, True)
    answers["spark-2"][answer] = {word: True, "msg": "no route"}
    outcome = status.judge(answers, run())
    why = ": no route" if answer == "engine" else ""
    assert outcome.stats["gb10_status"]["spark-2"] == [f"not reached{why}"] and outcome.stats["gb10_endpoint"] == ""


def test_a_head_that_was_not_reached_has_no_endpoint() -> None:
    answers = state("ray", True, False)
    answers["spark-1"]["container"] = answers["spark-1"]["engine"] = {"unreachable": True}
    assert status.judge(answers, run()).stats["gb10_endpoint"] == ""


@pytest.mark.parametrize(
    ("listens", "url"),
    [
        ("10.0.0.11", "http://10.0.0.11:8000"),
        ("0.0.0.0", "http://spark-1:8000"),
        ("fd00::1", "http://[fd00::1]:8000"),
        ("::", "http://spark-1:8000"),
    ],
)
def test_where_others_reach_the_api(listens: str, url: str) -> None:
    assert status.api_url({"api_address": listens, "api_port": 8000}, "spark-1") == url


# --- teardown and proof -----------------------------------------------------------------------------------------------------


def left(*verdicts: str) -> dict[str, dict[str, t.Any]]:
    nothing = {"errors": [], "containers": [], "listeners": []}
    memory = ([] if verdict == "pass" else [finding("memory.back", "x", verdict, "m")] for verdict in verdicts)
    kept = {"protection": {"measures": [], "changes": 0, "error": ""}}
    return {
        f"spark-{number}": {"cluster": "gb10", "node": nothing, "memory": {"findings": findings}, "kept": kept} for number, findings in enumerate(memory, 1)
    }


@pytest.mark.parametrize(
    ("verdicts", "verdict"),
    [(("pass", "pass"), "pass"), (("pass", "warn"), "warn"), (("unknown", "pass"), "warn"), (("unknown", "block"), "block")],
)
def test_the_verdict_of_a_teardown_is_the_gravest(verdicts: tuple[str, ...], verdict: str) -> None:
    outcome = registry.stage("teardown").judge(left(*verdicts), run(lost=[]))
    assert outcome.stats["gb10_verdict"] == table.worst(outcome.findings or []) == verdict and outcome.stats["gb10_endpoint"] == ""
    assert outcome.stats["gb10_teardown"] == outcome.findings
    assert registry.stage("teardown").judge(left(*verdicts), run(silenced=["memory.back"], lost=[])).stats["gb10_verdict"] in ("pass", "silenced")


def test_a_teardown_without_a_lost_node_is_incomplete() -> None:
    outcome = registry.stage("teardown").judge(left("pass"), run(lost=["spark-2"]))
    (lost,) = [entry for entry in outcome.findings or [] if entry["id"] == "teardown.lost"]
    assert (lost["node"], lost["verdict"]) == ("spark-2", "block")
    assert outcome.stats["gb10_verdict"] == "block"
    assert [entry["id"] for entry in registry.stage("teardown").judge(left("pass"), run(check_mode=True, lost=["spark-2"])).findings or []] == ["teardown.lost"]


@pytest.mark.parametrize(("ignore", "verdict"), [(False, "block"), ("no", "block"), (True, "warn"), ("true", "warn")])
def test_a_lost_node_stops_a_teardown_without_consent(ignore: object, verdict: str) -> None:
    gone = {"unreachable": True, "msg": "Failed to connect to the host via ssh:\nno route"}
    reached = {"spark-1": {"reached": {"ping": "pong"}}, "spark-2": {"reached": gone}}
    outcome = registry.stage("reach").judge(reached, run(ignore=ignore))
    (lost,) = outcome.findings or []
    assert (lost["node"], lost["verdict"], outcome.returns) == ("spark-2", verdict, {"lost": ["spark-2"]})
    assert lost["message"].endswith("unknown: Failed to connect to the host via ssh: no route")
    assert ("gb10_allow=lost_node" in lost["remedy"]) == (verdict == "block")


def test_nothing_is_known_of_a_teardown_in_check_mode() -> None:
    outcome = registry.stage("teardown").judge(left("pass"), run(check_mode=True, lost=[]))
    assert (outcome.title, outcome.findings, outcome.stats) == ("Left (would be checked)", [], {})


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_teardown_says_in_one_line_which_nodes_stay_protected(check_mode: bool) -> None:
    answers = left("pass", "pass", "pass", "pass")
    assert registry.stage("teardown").judge(answers, run(check_mode, lost=[])).lines == []
    answers["spark-2"]["kept"] = {"protection": {"measures": ["holds", "swap"], "changes": 3, "error": ""}}
    answers["spark-3"]["kept"] = {"protection": {"measures": [], "changes": None, "error": "it cannot be read"}}
    answers["spark-4"]["kept"] = {"failed": True}
    (line,) = registry.stage("teardown").judge(answers, run(check_mode, lost=[])).lines
    assert line.startswith("The nodes stay protected (spark-2: holds, swap; spark-3: it cannot be read); ") and "-e gb10_protect=revert" in line


TOKEN = {"tokens": 1, "seconds": 1}
#: The settings that a proof reads, except those that a test sets.
SETTINGS = {"own_names": [], "rules": {}, "arguments": {}, "address": "", "fabric_fallback": "none", "fabric_interfaces": [], "rdma_devices": []}
NO_RANKS = {
    "ranks": [], "nccl_nets": {},
    "container": {"devices": [], "capabilities": [], "memlock_bytes": -1, "entrypoint_bypassed": [], "hub_tokens": [], "libcuda": None},
}  # fmt: skip


@pytest.mark.parametrize(
    ("live", "changed", "check_mode", "predicted"),
    [(False, False, True, True), (True, True, True, True), (True, False, True, False), (True, True, False, False), (False, False, False, False)],
)
def test_a_proof_is_only_predicted_of_what_is_not_there_yet(live: bool, changed: bool, check_mode: bool, predicted: bool) -> None:
    info = {"engine": {"live": live}, "api": "answers", "last_end": "ended", "completion": None, "progress": WAITED}
    node = {
        "head": "spark-1", "profile": PROFILE, "executor": "ray", "env": {}, "secrets": [], "devices": [], "gpus": "all", "memlock": "-1",
        "started": {"changed": changed}, "engine": info, "ranks": NO_RANKS, **SETTINGS,
    }  # fmt: skip
    outcome = registry.stage("proof").judge({"spark-1": node}, run(check_mode))
    assert (outcome.title == "Proof (would be checked)") is predicted
    assert outcome.stats["gb10_verdict"] == ("unknown" if predicted else "block")
    if not predicted:
        completion = next(entry for entry in outcome.findings or [] if entry["id"] == "proof.completion")
        why = "unknown: no token and no progress for 15 s" if live else "no engine is live; the last one, ended"
        assert completion["message"].startswith(f"no completion: {why}")


@pytest.mark.parametrize(
    ("progress", "halted", "verdict", "words"),
    [
        ({**WAITED, "grew": True}, False, "unknown", "busy: no token in time"),
        (WAITED, True, "block", "halted: a signal or a debugger stopped a process, so that the engine hangs; kill -CONT PID lets it go on; spark-1: r (pid 7)"),
        ({**WAITED, "still_s": 900.0}, False, "block", "stalled: no progress for 900 s"),
    ],
)
def test_a_proof_without_a_token_says_what_the_engine_does(progress: t.Any, halted: bool, verdict: str, words: str) -> None:
    """A busy engine has proven nothing, but that is not a failure."""
    info = {"engine": {"live": True}, "api": "answers", "last_end": "", "completion": None, "progress": progress}
    rank = {
        "pid": 7, "title": "r", "env": {}, "environ": {}, "present": [], "source": "live", "halted": halted, "capabilities": [], "memlock_bytes": -1,
        "devices": [], "libcuda": [],
    }  # fmt: skip
    node = {
        "head": "spark-1", "profile": PROFILE, "executor": "ray", "env": {}, "secrets": [], "devices": [], "gpus": "all", "memlock": "-1", "started": None,
        "engine": info, "ranks": {**NO_RANKS, "ranks": [rank]}, **SETTINGS,
    }  # fmt: skip
    outcome = registry.stage("proof").judge({"spark-1": node}, run())
    completion = next(entry for entry in outcome.findings or [] if entry["id"] == "proof.completion")
    assert completion["verdict"] == verdict and words in completion["message"]


@pytest.mark.parametrize(
    ("secret_env", "completion", "verdicts"), [({}, TOKEN, []), ({"VLLM_API_KEY": "/x"}, None, []), ({"VLLM_API_KEY": "/x"}, TOKEN, ["unknown"])]
)
def test_an_api_with_a_key_is_asked_for_its_routes(secret_env: dict[str, str], completion: t.Any, verdicts: list[str]) -> None:
    engine = {"live": True, "secret_env": secret_env, "guarded": True}
    info = {"engine": engine, "api": "answers", "last_end": "", "completion": completion, "progress": None, "routes": None}
    node = {
        "head": "spark-1", "profile": PROFILE, "executor": "ray", "env": {}, "secrets": [], "devices": [], "gpus": "all", "memlock": "-1", "started": None,
        "engine": info, "ranks": NO_RANKS, **SETTINGS,
    }  # fmt: skip
    outcome = registry.stage("proof").judge({"spark-1": node}, run(False))
    assert [entry["verdict"] for entry in outcome.findings or [] if entry["id"] == "proof.auth"] == verdicts


# --- engine -----------------------------------------------------------------------------------------------------------------


def asked_engine(arguments: dict[str, t.Any], image: dict[str, t.Any], check_mode: bool = False) -> t.Any:
    contract = {"versions": {"vllm": "0.20.1"}, "engine": None, "engine_error": "no answer", "image_env": []}
    node = {"profile": PROFILE, "executor": "ray", "image": {"contract": contract, **image}, "arguments": arguments, "env": {"NCCL_X": "1"}}
    return registry.stage("engine").judge({"spark-1": node, "spark-2": {**node, "env": {"VLLM_RPC_TIMEOUT": "9"}}}, run(check_mode))


def test_what_the_engine_is_given_is_passed_on_as_changes() -> None:
    outcome = asked_engine({"linear_backend": "marlin", "dtype": "auto"}, {"exists": True})
    assert outcome.returns["changes"] == {"without": ["linear_backend"], "arguments": {}, "env": {"VLLM_NVFP4_GEMM_BACKEND": "marlin"}}
    assert outcome.returns["diff"] == {"before": {"linear_backend": "marlin"}, "after": {"VLLM_NVFP4_GEMM_BACKEND": "marlin"}}
    assert [entry["verdict"] for entry in outcome.findings or []] == ["warn", "pass"]
    assert outcome.returns["steps"][1] == "--linear-backend marlin becomes VLLM_NVFP4_GEMM_BACKEND=marlin."


def test_a_removed_argument_stops_before_any_container() -> None:
    outcome = asked_engine({"swap_space": 4}, {"exists": True})
    (refused,) = (entry for entry in outcome.findings or [] if entry["verdict"] == "block")
    assert refused["id"] == "engine.flags" and "--swap-space; it was removed in 0.18.0" in refused["message"]


@pytest.mark.parametrize(("check_mode", "verdicts"), [(True, []), (False, ["unknown"])])
def test_an_image_that_is_not_there_yet_is_only_predicted(check_mode: bool, verdicts: list[str]) -> None:
    outcome = asked_engine({}, {"exists": False}, check_mode)
    assert [entry["verdict"] for entry in outcome.findings or []] == verdicts and "changes" not in outcome.returns


# --- report and abort -------------------------------------------------------------------------------------------------------


def test_the_report_is_shown_written_and_passed_on() -> None:
    key = {"key": "generate", "key_file": "/k"}
    shared = {"head": "spark-1", "cluster": "gb10", "reached": "spark-1", **key, "profile": PROFILE, "container": {**description.NOTHING, "exists": True}}
    ends = {"begin": 30.0, "image": 50.0, "model": None, "engine": 51.0, "proof": 61.0}
    executor = {"executor": "native", "reason": "r"}
    proofs = {"findings": [{"verdict": "pass"}, {"verdict": "warn"}]}
    built = {"image_id": "sha256:b", "recipe": "r", "lock": ["ray==2.60.0 --hash=sha256:e2"]}
    labels = {"io.gb10.mods": '{"fix": "aaaaaaaaaaaabbbb"}'}
    image = {"exists": True, "labels": labels, "image_id": "sha256:i", "base": built, "base_image_id": "sha256:other", "base_digest": "r/vllm@sha256:d"}
    given = {"steps": ["--linear-backend marlin becomes VLLM_NVFP4_GEMM_BACKEND=marlin."]}
    cache = {"arguments": {"kv_cache_memory_bytes": 3758096384}, "why": "3758096384 bytes"}
    rest = {"executor": executor, "engine": {"engine": ENGINE}, "proof": proofs, "given": given, "cache": cache}
    answers = {node: {**shared, "ends": ends, **rest, "image": node_image} for node, node_image in (("spark-1", image), ("spark-2", {"skipped": True}))}
    outcome = report.judge(answers, run())
    names = ", ".join(PROFILE["model"]["served_names"])
    assert outcome.lines == [
        f"gb10: serving {names}",
        "endpoint: http://10.0.0.1:8000",
        "executor: native (r)",
        "context: left to the engine",
        f"repositories: {PROFILE['model']['repo']}@{PROFILE['model']['revision'][:12]}",
        f"image: {PROFILE['image']['tag']} with fix@aaaaaaaaaaaa on r/vllm@sha256:d",
        "API key: /k on spark-1",
        "for this engine: --linear-backend marlin becomes VLLM_NVFP4_GEMM_BACKEND=marlin.",
        "KV cache: 3758096384 bytes",
        "stages: image 20.0 s, proof 10.0 s",
        "longest: image 20.0 s, proof 10.0 s",
        "proven: 1 of 2",
        "report: /r.json",
        outcome.lines[-1],
    ]
    says = f"""-d '{{"model": "{PROFILE['model']['served_names'][0]}", "messages": [{{"role": "user", "content": "Say hello."}}]}}'"""
    json_is = "-H 'Content-Type: application/json'"
    sent = f"curl -s -H @- {json_is} {says} http://10.0.0.1:8000/v1/chat/completions"
    assert outcome.lines[-1] == f"try it: ssh spark-1 sudo cat /k | sed 's/^/: Bearer /; s/^/Authorization/' | {sent}"
    assert redacted(outcome.lines[-1], {}) == outcome.lines[-1]
    assert report.request(outcome.stats["gb10_report"], {"key": "none"}) == sent.replace("-H @- ", "")
    assert outcome.stats["gb10_endpoint"] == "http://10.0.0.1:8000/v1" and outcome.mode == 0o644
    assert outcome.files == {"/r.json": outcome.stats["gb10_report"]}
    assert outcome.stats["gb10_report"]["nodes"]["spark-2"] == {name: shared["container"][name] for name in report.OF_CONTAINER} | {"rank": ENGINE}
    assert outcome.stats["gb10_report"]["kv_cache"] == {"bytes": 3758096384, "why": "3758096384 bytes"}
    skipped = report.judge({node: {**answer, "cache": {"skipped": True}} for node, answer in answers.items()}, run())
    assert not any(line.startswith("KV cache") for line in skipped.lines) and skipped.stats["gb10_report"]["kv_cache"]["bytes"] is None
    assert outcome.stats["gb10_report"]["ray"] is None and outcome.stats["gb10_report"]["arguments_changed"] == given["steps"]
    names_of = {"tag": PROFILE["image"]["tag"], "base": PROFILE["image"]["base"]}
    known = {"id": "sha256:i", "base_id": "sha256:b", "base_digest": "r/vllm@sha256:d", "added": built["lock"], "ray_wanted": None}
    known["mods"] = {"fix": "aaaaaaaaaaaabbbb"}
    assert outcome.stats["gb10_report"]["images"] == {"spark-1": {**names_of, **known}, "spark-2": None}
    assert report.image_names({"a": None}) == "none here"
    assert report.image_names({"a": {"tag": "l/e:1", "base_digest": None, "mods": {}}}) == "l/e:1, no digest of a registry is known"
    # A Docker engine has a digest only for images that it pulled; a copy is still the same image.
    copied = {"changed": True, "how": "layers", "layers_sent": 2, "bytes": 5, "seconds": 0.5, "msg": "m"}
    again = {**answers, "spark-2": {**answers["spark-2"], "image": {**image, "base_digest": None}, "image_copied": copied}}
    content = report.content(again, run())
    assert content["images"]["spark-1"] == content["images"]["spark-2"] and list(content["image_copies"]) == ["spark-2"]
    assert content["image_copies"]["spark-2"] == {"how": "layers", "layers_sent": 2, "bytes": 5, "seconds": 0.5}
    wanted = {"version": "2.60.0", "why": "ray 2.60.0 depends on packaging>=24.2, and the image has packaging 23.2"}
    older = {**image, "contract": {"versions": {"ray": "2.52.1", "vllm": "0.21.0"}}, "base": {**built, "ray_wanted": wanted}}
    beside_ray = {node: {**answer, "executor": {"executor": "ray", "reason": "r"}, "image": older} for node, answer in answers.items()}
    with_ray = report.judge(beside_ray, run())
    assert with_ray.stats["gb10_report"]["ray"] == {name: description.NOTHING[name] for name in report.OF_RAY}
    assert with_ray.stats["gb10_report"]["images"]["spark-1"]["ray_wanted"] == wanted
    assert f"Ray 2.52.1 in place of 2.60.0: {wanted['why']}; untested together with vLLM 0.21.0" in with_ray.lines
    assert set(report.OF_RAY) | set(report.OF_CONTAINER) == set(description.NOTHING)


def reported(cold: t.Any, silenced: t.Sequence[str] = ()) -> t.Any:
    """The report of an engine with these seconds of its start."""
    shared = {"head": "spark-1", "cluster": "gb10", "reached": "spark-1", "key": "none", "profile": PROFILE, "container": {**description.NOTHING}}
    rest = {"executor": {"executor": "ray", "reason": "r"}, "engine": {"engine": ENGINE, "cold_start": cold}, "proof": None, "given": None, "cache": None}
    return report.judge({"spark-1": {**shared, **rest, "ends": {}, "image": {"skipped": True}}}, run(silenced=silenced))


def test_the_report_says_how_long_the_start_took() -> None:
    outcome = reported({**COLD, "last": {}, "reported": {}})
    assert "start: 702 s (weights 606), compile cache used" in outcome.lines and outcome.findings is None
    assert outcome.stats["gb10_report"]["cold_start"] == {**COLD, "last": {}, "reported": {}}
    unknown = reported(None)
    assert unknown.findings is None and unknown.stats["gb10_report"]["cold_start"] is None and not any(line.startswith("start") for line in unknown.lines)


def test_a_slow_start_is_a_warning_with_the_stage_that_grew() -> None:
    (found,) = reported(COLD).findings or []
    assert (found["id"], found["node"], found["verdict"], found["measured"], found["needed"]) == ("start.slow", "spark-1", "warn", 702.1, 300.0)
    assert found["message"] == (
        "the start took 702 s, 2.3 times the last one of the same image and profile (300 s); most of it: weights, 606 s after 200."
    )
    assert found["remedy"] == report.REMEDIES["weights"] and found["id"] in report.IDS
    (unexplained,) = reported({**COLD, "seconds": {"ready": 702.1}}).findings or []
    assert unexplained["message"].endswith("(300 s); no stage in its log explains it.") and unexplained["remedy"] == report.REMEDIES[""]
    assert table.worst(table.silence(reported(COLD).findings or [], ["start.slow"])) == "silenced"


def test_every_stage_of_a_start_has_a_remedy() -> None:
    assert set(report.REMEDIES) == {*cold_starts.STAGES[1:], ""}


def test_stage_seconds_skip_what_did_not_run() -> None:
    assert report.stage_seconds({"begin": 10.0, "image": 30.5, "model": None, "engine": 31.0, "ray": 42}) == {"image": 20.5, "ray": 11.0}
    times = {"validate": 1.0, "preflight": 4.0, "begin": 10.0, "image": 30.5}
    assert report.stage_seconds(times) == {"preflight": 3.0, "image": 20.5}
    # A play with one tag: only the duration of its first stage is unknown.
    assert report.stage_seconds({"begin": None, "engine": 1.0, "serve": None, "proof": 3.0}) == {"proof": 2.0}
    assert report.stage_seconds({"engine": 1.0}) == {} == report.stage_seconds({})


def test_the_critical_path_names_the_node_that_was_last() -> None:
    done = {"changed": True, "duration": 12.34, "seconds": 12.3}
    loaded = {"changed": False, "seconds": 61.5, "bytes": 9000, "exit_code": 0}
    answers = {
        "spark-1": {"pulled": {"changed": True, "duration": 40.0}, "downloaded": loaded, "copied": {"skipped": True}, "verified": None},
        "spark-2": {"pulled": {"changed": True, "duration": 50.04}, "downloaded": {"skipped": True}, "copied": done, "verified": {"verified": {"seconds": 3}}},
    }
    path = report.critical_path(answers, {"image": 70.0, "model": 90.0, "ray": 5.0, "serve": 80.0})
    assert path == [
        {"stage": "image", "seconds": 70.0, "steps": [{"step": "pull", "node": "spark-2", "seconds": 50.0, "overlapped": False}]},
        {
            "stage": "model",
            "seconds": 90.0,
            "steps": [
                {"step": "download", "node": "spark-1", "seconds": 61.5, "overlapped": False},
                {"step": "copy", "node": "spark-2", "seconds": 12.3, "overlapped": False},
                {"step": "verify", "node": "spark-2", "seconds": 3, "overlapped": False},
            ],
        },
        {"stage": "ray", "seconds": 5.0, "steps": []},
        {"stage": "serve", "seconds": 80.0, "steps": []},
    ]
    text = "model 90.0 s (download on spark-1 61.5 s, copy on spark-2 12.3 s, verify on spark-2 3 s), serve 80.0 s, image 70.0 s (pull on spark-2 50.0 s)"
    assert report.path_text(path) == text
    assert report.downloaded(loaded) == {"seconds": 61.5, "bytes": 9000}
    assert report.downloaded({"skipped": True}) is None is report.downloaded(None)
    early = report.critical_path(answers, {"image": 70.0, "model": 20.0})
    assert early[1]["steps"][0]["overlapped"] and "download on spark-1 61.5 s, begun in an earlier stage" in report.path_text(early)


def test_failure_lines_tell_causes_and_remedies() -> None:
    failed = {
        "spark-1": {"msg": "ended because spark-2 failed: boom", "reason": "another node failed"},
        "spark-2": {"msg": "boom", "remedy": "look"},
        "spark-3": {},
        "spark-4": {"msg": "bang", "remedy": ""},
    }
    assert abort.failure_lines(failed) == ["spark-2: boom Remedy: look", "spark-4: bang"]
    assert abort.failure_lines({"spark-1": failed["spark-1"]}) == ["spark-1: ended because spark-2 failed: boom"]


# --- what is not there yet, and files ---------------------------------------------------------------------------------------


def test_check_mode_judges_no_image_and_no_model_that_would_come() -> None:
    image = {"spark-1": {"contract": {"exists": False}}}
    assert registry.stage("image").judge(image, run(check_mode=True, profile=PROFILE)).title == "Image (as it is; would be built)"
    copied = {"changed": True, "msg": "i:1: 1 of 2 layer(s) would be copied, 5.0 MB"}
    image = {"spark-1": {"contract": {"exists": True}}, "spark-2": {"contract": {"exists": False}, "image_copied": copied}}
    outcome = registry.stage("image").judge(image, run(check_mode=True, profile=PROFILE))
    assert (outcome.title, outcome.lines) == ("Image (as it is; would be copied)", [f"spark-2: {copied['msg']}"])
    model = {"spark-1": {"model": {"complete": False, "repositories": [{"repo": "org/m", "complete": False}]}, "offline": False}}
    assert registry.stage("model").judge(model, run(check_mode=True, profile=PROFILE)).title == "Model (would be downloaded)"
    ray = {"spark-1": {"head": {"running": False}}}
    assert registry.stage("ray").judge(ray, run(check_mode=True)).title == "Ray (would be checked)"


def fetches(profile: dict[str, t.Any], *free_gib: float, offline: bool = False, token: bool = False) -> list[dict[str, t.Any]]:
    """Return what stops or warns when nodes with this space lack a model of 80.4 GB and half of its drafter of 10."""
    rows = [
        {"repo": profile["model"]["repo"], "revision": None, "complete": False, "missing": [], "size_bytes": 0, "unfinished_bytes": 0},
        {"repo": "org/d", "revision": "d" * 40, "complete": False, "missing": ["x"], "size_bytes": 3 * 10**9, "unfinished_bytes": 2 * 10**9},
    ]
    answers = {
        f"spark-{number}": {
            "model": {"repositories": copy.deepcopy(rows), "free_bytes": int(free * 1024**3)},
            "model_root": f"/models/{number}",
            "offline": offline,
            "hub_token": token,
        }
        for number, free in enumerate(free_gib, 1)
    }
    return [entry for entry in registry.stage("download").judge(answers, run(profile=profile)).findings or [] if entry["verdict"] != "pass"]


DRAFTER = {"repo": "org/d", "revision": "d" * 40, "purpose": "drafter", "files": [], "size_gb": 10.0}
WITH_DRAFTER = {**PROFILE, "repositories": {"drafter": DRAFTER}}


def test_a_download_is_refused_on_all_nodes_before_its_first_byte() -> None:
    """80.4 GB of the model and 5 of the drafter are 79.5 GiB; one node without that space stops all nodes."""
    assert fetches(WITH_DRAFTER, 80, 80) == []
    (refused,) = fetches(WITH_DRAFTER, 80, 79)
    assert (refused["id"], refused["node"], refused["verdict"]) == ("model.disk", "spark-2", "block")
    assert "79.0 GiB free under /models/2, 79.5 GiB are missing of" in refused["message"] and "org/d" in refused["message"]
    assert fetches(WITH_DRAFTER, 80, 79, offline=True) == []


def test_a_gate_and_a_license_are_judged_before_a_download() -> None:
    terms = {"gated": True, "license": {"id": "some-license", "url": "https://example.com/license", "accept": True}}
    gated = {**PROFILE, "repositories": {"drafter": {**DRAFTER, **terms}}}
    by_id = {entry["id"]: entry for entry in fetches(gated, 90, 90)}
    assert {id: entry["verdict"] for id, entry in by_id.items()} == {"model.gated": "block", "model.license": "warn"}
    assert "spark-1, spark-2 would fetch it, and no token is set" in by_id["model.gated"]["message"]
    assert "org/d is under some-license" in by_id["model.license"]["message"] and "https://example.com/license" in by_id["model.license"]["remedy"]
    assert [entry["id"] for entry in fetches(gated, 90, 90, token=True)] == ["model.license"]


def test_memory_is_shown_where_something_was_left_undone() -> None:
    answers = {node: {"files": {"findings": []}, "caches": {"findings": []}} for node in ("spark-1", "spark-2")}
    assert registry.stage("memory").judge(answers, run()).findings is None
    answers["spark-2"]["caches"] = {"findings": [finding("page_cache.left", "its-own-name", "warn", "m")]}
    assert [entry["node"] for entry in registry.stage("memory").judge(answers, run()).findings or []] == ["spark-2"]


def test_baselines_have_a_file_for_each_node() -> None:
    answers = {node: {"answer": {"record": {"of": node}, "msg": "recorded"}} for node in ("spark-1", "spark-2")}
    outcome = registry.stage("baseline").judge(answers, run(path="/b"))
    assert outcome.files == {"/b/baseline-spark-1.json": {"of": "spark-1"}, "/b/baseline-spark-2.json": {"of": "spark-2"}} and outcome.mode == 0o644
    assert outcome.stats == {"gb10_baseline": {"spark-1": {"of": "spark-1"}, "spark-2": {"of": "spark-2"}}}
    assert outcome.lines[0] == "spark-1: recorded; on the controller: /b/baseline-spark-1.json"
    assert "would be written to" in registry.stage("baseline").judge(answers, run(check_mode=True, path="/b")).lines[0]


@pytest.mark.parametrize(("candidates", "remove", "advised"), [(1, False, True), (1, "true", False), (0, False, False)])
def test_prune_says_how_to_remove_what_it_shows(candidates: int, remove: t.Any, advised: bool) -> None:
    entry = {"kind": "file", "name": "/x", "age_seconds": 1, "size_bytes": 1, "why": "old"}
    answers = {"spark-1": {"found": {"candidates": [entry] * candidates, "left": [], "total_bytes": 1}}}
    assert ("To remove all of it: -e gb10_allow=remove" in registry.stage("prune").judge(answers, run(remove=remove)).lines) is advised


# --- preflight --------------------------------------------------------------------------------------------------------------


def answers_of(count: int, **changes: t.Any) -> dict[str, dict[str, t.Any]]:
    """Return the preflight answers of ``count`` healthy nodes, with the same changes on each."""
    settings = {
        "head_host": "spark-1", "cluster": "gb10", "api_address": "192.168.100.11", "api_port": "8000", "ray_port": 6379, "master_port": 29501,
        "fabric_interfaces": ["enp1s0f0np0", "enP2p1s0f0np0"], "rdma_devices": ["rocep1s0f0", "roceP2p1s0f0"], "fabric_fallback": "none",
        "devices": ["/dev/infiniband"], "container_gpus": "all", "memlock": "-1", "model_root": "/models", "offline": "false", "hub_token": "false",
        "model_copy": "preferred", "image_copy": "preferred", "capabilities": [],
        "serve_arguments": {}, "allow": [], "rules": {}, "silenced": [], "kv_cache": "profile", "tenants": [],
        "companions": [], "mode": "cluster",
    }  # fmt: skip
    answers = {}
    for number in range(count):
        text = json.dumps(HEALTHY).replace("192.168.100.11", f"192.168.100.{11 + number}").replace("192.168.101.11", f"192.168.101.{11 + number}")
        info = {**json.loads(text), "zombies": {"findings": []}, **copy.deepcopy(changes)}
        answers[f"spark-{number + 1}"] = {**settings, "address": f"192.168.100.{11 + number}", "info": info, "waited": {"skipped": True}}
    return answers


@pytest.mark.parametrize(("executor", "ports"), [("ray", {6379, 8000}), ("native", {29501, 8000}), ("", {8000})])
def test_the_head_needs_the_ports_of_its_executor(executor: str, ports: set[int]) -> None:
    answers = answers_of(2)
    words = {"ray": ["api_port", "ray_port"], "native": ["api_port", "master_port"], "": ["api_port"]}[executor]
    settings = node_settings.of_nodes(answers, words)
    assert set(settings["spark-1"]["ports"].values()) == ports and settings["spark-2"]["ports"] == {}
    assert settings["spark-2"]["peers"] == ["192.168.100.11"] and settings["spark-2"]["api_address"] == ""
    assert (settings["spark-1"]["memlock"], settings["spark-1"]["offline"]) == (-1, False)


def test_a_size_of_the_cache_is_said_and_passed_on_with_the_starts_that_bear_it_out() -> None:
    image = HEALTHY["images"][PROFILE["image"]["tag"]]["id"]
    start = {
        "cluster": "gb10", "image_id": image, "profile_digest": planning.digest(PROFILE), "driver": HEALTHY["gpus"][0]["driver_version"],
        "context": PROFILE["serve"]["max_model_len"], "recorded_at": "2026-11-23T18:20:41Z", "before_mb": 118800, "lowest_mb": 30000, "steady_mb": 30000,
    }  # fmt: skip
    answers = answers_of(2, starts=[start])
    nobody = registry.stage("cache").judge(answers, run(profile=PROFILE))
    assert nobody.returns == {"arguments": {}, "why": ""} and nobody.findings == []
    for answer in answers.values():
        answer["kv_cache"] = "recorded"
    outcome = registry.stage("cache").judge(answers, run(profile=PROFILE))
    size = outcome.returns["arguments"]["kv_cache_memory_bytes"]
    assert outcome.findings is None and size % 2**28 == 0
    assert outcome.lines == [f"KV cache: {outcome.returns['why']}"] and f"{size} bytes" in outcome.lines[0]
    assert "spark-1 2026-11-23 with 262144 tokens, spark-2 2026-11-23" in outcome.lines[0]
    answers["spark-2"]["info"]["starts"] = []
    refused = registry.stage("cache").judge(answers, run(profile=PROFILE))
    assert [(entry["id"], entry["node"], entry["verdict"]) for entry in refused.findings or []] == [("plan.recorded", "spark-2", "block")]
    assert refused.returns["arguments"] == {}


def test_what_was_waited_for_counts_instead_of_the_first_look() -> None:
    answers = answers_of(2)
    ghost = finding("cuda_zombie.new", "x", "block", "still there.")
    answers["spark-1"]["info"]["zombies"] = {"findings": [ghost]}
    assert registry.stage("preflight").judge(answers, run(profile=PROFILE, executor="ray")).stats["gb10_verdict"] == "block"
    answers["spark-1"]["waited"] = {"findings": []}
    assert registry.stage("preflight").judge(answers, run(profile=PROFILE, executor="ray")).stats["gb10_verdict"] == "pass"


def test_32_nodes_without_a_driver_stay_on_one_screen() -> None:
    """Each finding names its nodes; with separate entries for every node this printed 545 lines."""
    sections = ("gpus", "tenants", "containers", "images", "models", "kernel_log")
    errors = [{"section": section, "verdict": "unknown", "error": "nvidia-smi is not installed", "remedy": "install the driver"} for section in sections]
    outcome = registry.stage("preflight").judge(answers_of(32, **dict.fromkeys(sections), errors=errors), run(profile=PROFILE, executor="ray"))
    assert outcome.stats["gb10_verdict"] == "unknown" and len(outcome.findings or []) >= 10 * 32
    lines = [*table.grid(outcome.matrix), *table.render(outcome.findings or [], list(answers_of(32)))]
    # For any number of nodes: a grid row, an entry and its remedy for each rule, and two headings.
    assert len(lines) <= 3 * len({finding["id"] for finding in outcome.findings or []}) + 2, "\n".join(lines)
    assert sum("all 32 nodes" in line for line in lines) >= 20
    assert outcome.files == {"/r.json": outcome.stats["gb10_preflight"]} and len(outcome.stats["gb10_preflight"]["nodes"]) == 32


@pytest.mark.parametrize("name", registry.NAMES)
def test_every_stage_judges_and_says_what_it_reads(name: str) -> None:
    stage = registry.stage(name)
    assert callable(stage.judge) and all(isinstance(word, str) and variable.startswith(("gb10_", "__")) for word, variable in stage.READS.items())


def test_one_stage_makes_a_finding() -> None:
    made = [id for name in registry.NAMES for id in getattr(registry.stage(name), "IDS", ())]
    assert sorted(made) == sorted(registry.ids())
