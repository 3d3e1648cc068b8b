# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of a climb, the judgment of a rung, the end, and the use of the record, from answers in the format of the nodes."""

from __future__ import annotations

import copy
import datetime
import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._records import climbs
from ansible_collections.gb10.cluster.plugins.plugin_utils._ladder import recorded
from ansible_collections.gb10.cluster.plugins.plugin_utils._plan import planning as memory_planning
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import profiles
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import ladder, ladder_down, ladder_plan, ladder_rung, report
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import rung as rung_stage
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Outcome, Run

NOW = datetime.datetime(2026, 11, 23, 14, tzinfo=datetime.timezone.utc)
BOOT = "b6f1e0b4-6a3c-4f0e-9a51-0b0f1f0c2d11"
PROFILE = profiles.load("nemotron_3_super_tp2")
TAG = PROFILE["image"]["tag"]
GUARD = {"installed": True, "enabled": True, "active": True, "ring": "/r", "ring_bytes": 1}
LOOK = {
    "memory": {"total_mb": 124610}, "kernel": {"release": "6.17.0-1032-nvidia"}, "images": {TAG: {"id": "sha256:1a"}}, "errors": [],
    "gpus": [{"driver_version": "580.159.03"}], "ladder": [],
    "tenants": [
        {"name": "ollama", "kind": "ollama", "cuda": True, "gpu_mib": 700, "rss_mb": 900},
        {"name": "idle", "kind": "asr", "cuda": False, "gpu_mib": None, "rss_mb": 50},
    ],
}  # fmt: skip
SETTINGS = {
    "head": "a", "cluster": "gb10", "profile": PROFILE, "serve_arguments": {}, "rungs": "", "allow": ["ladder"],
    "prompt_s": 3600, "start_s": 3600, "memory_s": 180, "grace_s": 120, "answer_s": 600,
}  # fmt: skip
ENGINE = {"engine": {"live": False}, "requests_running": None}


def plan_answers(**nodes: dict[str, t.Any]) -> dict[str, dict[str, t.Any]]:
    """Return the answers of two nodes for the plan, with changes by node and key."""
    sshd = {"samples_ms": [4], "worst_ms": 4, "address": "127.0.0.1", "errors": []}
    seen = {"guard": GUARD, "boot_id": BOOT, "now": 1.0, "seen": None}
    answers = {node: {**SETTINGS, "look": LOOK, "seen": seen, "sshd": sshd, "engine": ENGINE if node == "a" else {"skipped": True}} for node in ("a", "b")}
    return {node: {**answer, **nodes.get(node, {}), **nodes.get("both", {})} for node, answer in answers.items()}


def run(path: str = "", settings: dict[str, t.Any] | None = None, silenced: t.Sequence[str] = ()) -> Run:
    return Run(settings or {}, list(silenced), path, [], [], NOW, False)


def verdicts(outcome: Outcome) -> dict[tuple[str, str], str]:
    return {(finding["id"], finding["node"]): finding["verdict"] for finding in outcome.findings or []}


def stops(outcome: Outcome) -> set[str]:
    return {finding["id"] for finding in outcome.findings or [] if finding["verdict"] in ("block", "unknown")}


# --- the plan -----------------------------------------------------------------------------------------------------------


def test_the_plan_names_rungs_starts_minutes_and_the_risk() -> None:
    outcome = ladder_plan.judge(plan_answers(), run())
    assert stops(outcome) == set() and outcome.returns["rungs"] == PROFILE["ladder"]
    shown = "\n".join(outcome.lines)
    for text in ("262144, 524288, 1048576 tokens", "Starts: 4 at most", "73 to 85 minutes", "at most", "Risk: ", "a prompt of 943718 tokens"):
        assert text in shown, shown
    climb = outcome.returns["climbs"]["b"]
    assert climbs.problem_of(climb) == "" and (climb["tenants_mb"], climb["tenants"]) == (700, [{"name": "ollama", "kind": "ollama", "mb": 700}])
    assert (climb["climb_id"], climb["driver"], climb["total_mb"]) == ("20261123T140000Z", "580.159.03", 124610)
    assert "To climb" not in shown and "To climb: -e gb10_allow=ladder" in ladder_plan.judge(plan_answers(both={"allow": []}), run()).lines


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"b": {"seen": {"guard": {**GUARD, "active": False}, "boot_id": BOOT}}}, "ladder.no_guard"),
        ({"b": {"seen": {"guard": {"installed": False, "active": False}, "boot_id": BOOT}}}, "ladder.no_guard"),
        ({"b": {"seen": {"guard": {**GUARD, "active": None}, "boot_id": BOOT}}}, "ladder.no_guard"),
        ({"b": {"seen": {"failed": True}}}, "ladder.no_guard"),
        ({"a": {"engine": {"engine": {"live": True}, "requests_running": 2}}}, "ladder.idle"),
        ({"a": {"engine": {"engine": {"live": True}, "requests_running": None}}}, "ladder.idle"),
        ({"a": {"engine": {"failed": True, "msg": "x"}}}, "ladder.idle"),
        ({"b": {"sshd": {"samples_ms": [None], "worst_ms": None, "address": "127.0.0.1", "errors": ["timed out"]}}}, "ladder.sshd_before"),
        ({"b": {"sshd": {"samples_ms": [], "worst_ms": None, "address": "", "errors": ["refused"]}}}, "ladder.sshd_before"),
        ({"b": {"sshd": {"samples_ms": [5001], "worst_ms": 5001, "address": "127.0.0.1", "errors": []}}}, "ladder.sshd_before"),
        ({"b": {"look": {"failed": True}}}, "ladder.look"),
        ({"b": {"look": {**LOOK, "ladder": None, "errors": [{"section": "ladder", "error": "it is not JSON"}]}}}, "ladder.look"),
        ({"both": {"serve_arguments": {"max-model-len": 65536}}}, "ladder.arguments"),
        ({"both": {"profile": {**PROFILE, "ladder": [], "serve": {}}}}, "ladder.rungs"),
    ],
)
def test_what_keeps_it_from_beginning(changes: dict[str, t.Any], wrong: str) -> None:
    outcome = ladder_plan.judge(plan_answers(**changes), run())
    assert stops(outcome) == {wrong}
    assert all(finding["remedy"] for finding in outcome.findings or [] if finding["verdict"] != "pass")


def test_an_engine_without_requests_is_stopped_first() -> None:
    outcome = ladder_plan.judge(plan_answers(a={"engine": {"engine": {"live": True}, "requests_running": 0}}), run())
    assert stops(outcome) == set() and any("the engine that serves now is stopped first" in line for line in outcome.lines)


def test_rungs_that_were_asked_for_win_over_the_profiles_own() -> None:
    assert ladder_plan.rungs_of(PROFILE, {}, "65536, 131072") == [65536, 131072]
    assert ladder_plan.rungs_of(PROFILE, {}, 65536) == [65536]
    assert ladder_plan.rungs_of({**PROFILE, "ladder": []}, {}, "") == [PROFILE["serve"]["max_model_len"]]
    assert ladder_plan.rungs_of({**PROFILE, "ladder": [], "serve": {"max_model_len": "1M"}}, {}, "") == []


def test_rungs_that_do_not_fit_by_the_memory_plan_are_not_tried() -> None:
    rows = {1: {"verdict": "fits"}, 2: {"verdict": "no"}, 3: {"verdict": "no"}}
    assert ladder_plan.climbable([1, 2, 3], rows, ()) == [1]
    assert ladder_plan.climbable([1, 2, 3], rows, ("plan.fits",)) == [1, 2, 3]
    assert ladder_plan.climbable([1, 2], {}, ()) == [1, 2], "without a plan nothing is known against it"
    small = {**LOOK, "memory": {"total_mb": 60000}}
    outcome = ladder_plan.judge(plan_answers(both={"look": small}), run())
    assert stops(outcome) == {"ladder.plan"} and outcome.returns["rungs"] == [] and "262144: the memory plan says no" in "\n".join(outcome.lines)


def test_minutes_go_by_the_climb_before() -> None:
    limits = {"start_s": 3600, "memory_s": 180, "grace_s": 120, "prompt_s": 3600, "answer_s": 600}
    assert ladder_plan.minutes([1, 2], None, limits, 0) == ("45 to 54 minutes, by what was reported of large models on two Sparks", 315)
    assert ladder_plan.minutes([1, 2], {"rungs": [{"seconds": 600.0}]}, limits, 1) == ("about 30 minutes, by the slowest rung of the climb before", 335)


def test_a_file_that_exists_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "ladder.json").write_text("")
    assert "is not replaced" in ladder_plan.judge(plan_answers(), run(str(tmp_path / "ladder.json"))).failure


# --- a rung -------------------------------------------------------------------------------------------------------------

SEEN = {
    "samples": 900, "curve": [[0.5, 118800], [300.0, 20100]], "lowest_mb": 20100, "lowest_after_s": 300.0, "longest_silence_s": 2.1, "kernel": [], "acts": [],
}  # fmt: skip
PROMPT = {"prompt_tokens": 235000, "seconds": 141.0, "findings": [{"id": "ladder.prompt", "node": "spark", "verdict": "pass", "message": "came", "remedy": ""}]}


def tried(**nodes: dict[str, t.Any]) -> dict[str, dict[str, t.Any]]:
    """Return the answers of two nodes after a good rung, with changes by node."""
    climb = ladder_plan.judge(plan_answers(), run()).returns["climbs"]["a"]
    sshd = {"samples_ms": [4, 30], "worst_ms": 30, "address": "127.0.0.1", "errors": []}
    answers = {
        node: {
            "head": "a", "cluster": "gb10", "climb": climb, "error": "", "image": {"image_id": "sha256:2b"}, "sshd": sshd,
            "seen": {"guard": GUARD, "boot_id": BOOT, "now": 2.0, "seen": SEEN}, "prompt": PROMPT if node == "a" else {"skipped": True},
            "questions": {"skipped": True},
        }
        for node in ("a", "b")
    }  # fmt: skip
    return {node: {**answer, **nodes.get(node, {})} for node, answer in answers.items()}


def judged(silenced: t.Sequence[str] = (), **nodes: dict[str, t.Any]) -> Outcome:
    settings = {"step": {"context": 262144, "climbing": True}, "rungs": [262144, 524288], "at_s": 12.0, "seconds": 800.0, "start_seconds": 600.0}
    return ladder_rung.judge(tried(**nodes), run(settings=settings, silenced=silenced))


def seen(guard: dict[str, t.Any] | None = None, boot: str = BOOT, **changes: t.Any) -> dict[str, t.Any]:
    return {"seen": {"guard": guard or GUARD, "boot_id": boot, "now": 2.0, "seen": {**SEEN, **changes}}}


def test_a_good_rung_goes_into_the_record() -> None:
    outcome = judged()
    assert outcome.returns["next"] == {"context": 524288, "climbing": True} and outcome.returns["against"] == ""
    climb = outcome.returns["climbs"]["b"]
    assert climbs.problem_of(climb) == "" and (climb["rung"], climb["trying"], climb["image_id"]) == (262144, 0, "sha256:2b")
    (rung,) = climb["rungs"]
    assert (rung["good"], rung["curve"], rung["lowest_mb"], rung["sshd_ms"], rung["prompt_tokens"]) == (True, SEEN["curve"], 20100, 30, 235000)


FAILED = {"id": "ladder.prompt", "node": "spark", "verdict": "block", "message": "HTTP 500", "remedy": ""}


@pytest.mark.parametrize(
    ("changes", "wrong", "reason"),
    [
        ({"a": {"error": "The engine did not start."}, "b": {"error": "The engine did not start."}}, "ladder.start", "a: The engine did not start"),
        ({"a": {"prompt": {**PROMPT, "findings": [FAILED]}}}, "ladder.prompt", "a: HTTP 500"),
        ({"a": {"questions": {"findings": [{**FAILED, "id": "answer.echo", "message": "garbage"}]}}}, "answer.echo", "a: garbage"),
        ({"b": seen(lowest_mb=4095)}, "ladder.memory", "b: 4.0 GiB were available at the least"),
        ({"b": seen(lowest_mb=None)}, "ladder.memory", "b: the guard recorded no memory"),
        ({"b": seen(acts=["29 to 2 GiB; SIGTERM to pids [7]"])}, "ladder.guard", "b: the guard acted: 29 to 2 GiB"),
        ({"b": seen(guard={**GUARD, "active": False})}, "ladder.guard", "b: the guard has stopped"),
        ({"b": seen(guard={**GUARD, "active": None})}, "ladder.guard", "b: whether the guard runs is unknown"),
        ({"b": seen(longest_silence_s=15.5)}, "ladder.silence", "b: the node recorded nothing for 16 s"),
        ({"b": seen(kernel=[["xid", "NVRM: Xid 43"]])}, "ladder.kernel", "b: the kernel said: NVRM: Xid 43"),
        ({"b": seen(kernel=[["unknown", "the kernel's log cannot be read"]])}, "ladder.kernel", "cannot be read"),
        ({"b": seen(boot="another")}, "ladder.reboot", "b: the node rebooted"),
        ({"b": {"seen": {"unreachable": True}}}, "ladder.guard", "b: what the guard recorded could not be read"),
        ({"b": {"sshd": {"samples_ms": [4, 5001], "worst_ms": 5001}}}, "ladder.sshd", "b: sshd greeted after 5001 ms"),
        ({"b": {"sshd": {"samples_ms": [4, None], "worst_ms": None}}}, "ladder.sshd", "b: 1 of 2 greetings of sshd did not come"),
        ({"b": {"sshd": {"failed": True, "msg": "time out"}}}, "ladder.sshd", "b: sshd's response time is unknown: time out"),
    ],
)
def test_each_bad_sign_ends_the_climb(changes: dict[str, t.Any], wrong: str, reason: str) -> None:
    outcome = judged(**changes)
    assert stops(outcome) == {wrong} and outcome.returns["next"] == {"context": 0, "climbing": False}
    assert reason in outcome.returns["against"] and outcome.returns["against"].startswith("262144: ")
    assert outcome.returns["climbs"]["a"]["rungs"][0]["good"] is False


def test_a_silenced_finding_is_not_a_bad_sign() -> None:
    assert judged(("ladder.sshd",), b={"sshd": {"samples_ms": [5001], "worst_ms": 5001}}).returns["next"]["climbing"]


def test_cables_say_nothing_of_memory() -> None:
    assert judged(b=seen(kernel=[["mlx5", "mlx5_core 0000:01:00.0 eth1: Link down"]])).returns["next"]["climbing"]


def test_a_start_that_fails_is_not_asked_for_its_sshd() -> None:
    outcome = judged(a={"error": "no", "prompt": {}, "sshd": {}}, b={"prompt": {}, "sshd": {}})
    assert stops(outcome) == {"ladder.start"}


@pytest.mark.parametrize(
    ("step", "good", "last_good", "follows"),
    [
        ((1, True), True, 1, (2, True)),
        ((2, True), True, 2, None),
        ((2, True), False, 1, (1, False)),
        ((1, True), False, 0, (0, False)),
        ((1, False), True, 1, None),
        ((1, False), False, 1, (0, False)),
    ],
)
def test_each_step_has_one_that_follows(step: tuple[int, bool], good: bool, last_good: int, follows: tuple[int, bool] | None) -> None:
    words = ("context", "climbing")
    assert ladder_rung.following(dict(zip(words, step)), good, [1, 2], last_good) == dict(zip(words, follows or ()))


def test_the_return_is_not_a_rung() -> None:
    settings = {"step": {"context": 262144, "climbing": False}, "rungs": [262144, 524288]}
    before = {node: {**answer, "climb": {**answer["climb"], "rung": 262144, "reason": "524288: too slow"}} for node, answer in tried().items()}
    outcome = ladder_rung.judge(before, run(settings=settings))
    assert outcome.findings is None and outcome.returns["next"] == {} and outcome.returns["outcome"] == climbs.RETURNED
    assert outcome.returns["climbs"]["a"]["rungs"] == [] and outcome.returns["against"] == "524288: too slow"
    failed = {node: {**answer, "error": "no port"} for node, answer in before.items()}
    assert ladder_rung.judge(failed, run(settings=settings)).returns["next"] == {"context": 0, "climbing": False}


# --- down, and the end --------------------------------------------------------------------------------------------------


def downed(memory: dict[str, t.Any], error: str = "", rungs: int = 1, context: int = 1, **climbed: t.Any) -> str:
    climb = {"rungs": [{}] * rungs, "rung": 0, "reason": "", **climbed}
    back = {"verdict": "pass", "msg": "back"}
    answers = {node: {"memory": memory if node == "b" else back, "error": error, "climb": climb, "fault": "no port"} for node in ("a", "b")}
    return ladder_down.judge(answers, run(settings={"context": context})).returns["off"]


def test_memory_that_is_not_back_ends_it() -> None:
    missing = {"verdict": "warn", "msg": "33000 MiB have not come back"}
    assert downed({"verdict": "pass", "msg": "back"}) == ""
    assert downed(missing) == "b: 33000 MiB have not come back"
    assert downed(missing, rungs=0) == "b: 33000 MiB have not come back"
    assert downed({"verdict": "unknown", "msg": "nothing was noted"}, rungs=0) == "", "before the first start there may be no note"
    assert "nothing was noted" in downed({"verdict": "unknown", "msg": "nothing was noted"})
    assert "whether memory was released is unknown" in downed({"unreachable": True})
    assert downed({"skipped": True}, "the engine has requests") == "the cluster could not be taken down: the engine has requests"


def test_without_a_length_to_start_nothing_is_started() -> None:
    back = {"verdict": "pass", "msg": "back"}
    assert downed(back, context=0, reason="1: too slow") == "no rung was good: 1: too slow"
    assert downed(back, context=0, rung=1) == "the last good rung, 1, did not start again: no port"
    assert downed({"verdict": "warn", "msg": "1 MiB is missing"}, context=0, rung=1).endswith("no port; b: 1 MiB is missing")


def ended(outcome: str, reason: str = "", path: str = "") -> Outcome:
    good = judged().returns["climbs"]["a"]
    bad = copy.deepcopy(good)
    other = {"context": 524288, "good": False, "reasons": ["b: the guard acted"], "at_s": 900.0, "curve": [[0.0, 118800], [9.0, 900]]}
    bad["rungs"].append({**bad["rungs"][0], **other})
    answers = {node: {"head": "a", "climb": bad} for node in ("a", "b")}
    return ladder.judge(answers, run(path, {"outcome": outcome, "reason": reason}))


@pytest.mark.parametrize(("outcome", "verdict"), [("top", "pass"), ("returned", "warn"), ("off", "block")])
def test_the_end_is_said_and_passed_on(outcome: str, verdict: str) -> None:
    result = ended(outcome, "524288: b: the guard acted", "/to/ladder.json")
    assert [finding["verdict"] for finding in result.findings or []] == [verdict] and result.stats["gb10_verdict"] == verdict
    report = result.stats["gb10_ladder_report"]
    assert (report["outcome"], report["rung"]) == (outcome, 262144) and "curve" not in json.dumps(report)
    assert result.returns["climbs"]["a"]["outcome"] == outcome and result.fresh
    assert set(result.files) == {"/to/ladder.json"} and result.files["/to/ladder.json"]["nodes"]["a"]["rungs"][1]["curve"]
    assert any("524288: not good: b: the guard acted" in line for line in result.lines)


# --- the record at a bring-up -------------------------------------------------------------------------------------------


def at_bring_up(look: dict[str, t.Any] | None = None, **settings: t.Any) -> Outcome:
    digest = memory_planning.digest(PROFILE, settings.get("serve_arguments"))
    climb = {**ladder_plan.judge(plan_answers(), run()).returns["climbs"]["a"], "rung": 524288, "outcome": "top", "profile_digest": digest, "cluster": "gb10"}
    full_look = {**LOOK, "ladder": [climb], **(look or {})}
    return rung_stage.judge({node: {**SETTINGS, **settings, "look": full_look} for node in ("a", "b")}, run())


def test_the_last_good_rung_is_served_and_said() -> None:
    outcome = at_bring_up()
    assert outcome.returns["context"] == 524288 and outcome.returns["image_ids"] == {"a": "sha256:1a", "b": "sha256:1a"}
    assert "Context: 524288 tokens, the last good rung of the ladder" in outcome.lines[0]


def test_the_settings_win() -> None:
    outcome = at_bring_up(serve_arguments={"max_model_len": 65536})
    assert outcome.returns["context"] == 0 and outcome.lines == []
    assert at_bring_up(serve_arguments={"max-model-len": 65536}).returns["context"] == 0


@pytest.mark.parametrize(
    ("look", "why"),
    [
        ({"images": {TAG: {"id": "sha256:2b"}}}, "the image is sha256:2b"),
        ({"gpus": [{"driver_version": "590.44.01"}]}, "the driver is 590.44.01"),
        ({"kernel": None}, "the kernel is none"),
        ({"memory": None}, "MemTotal is 0 MiB"),
        ({"errors": [{"section": "tenants", "error": "hidden"}]}, "the memory of other processes is unknown"),
        ({"tenants": [{"name": "x", "kind": "other", "cuda": True, "gpu_mib": None, "rss_mb": 9000}]}, "other processes hold 9000 MiB"),
    ],
)
def test_a_record_of_something_else_is_not_used_and_says_so(look: dict[str, t.Any], why: str) -> None:
    outcome = at_bring_up(look)
    assert outcome.returns["context"] == 0 and "is not used" in outcome.lines[0] and why in outcome.lines[0]


def test_nodes_that_could_not_be_looked_at_have_no_rung() -> None:
    assert at_bring_up({"failed": True}).returns["context"] == 0
    assert at_bring_up({"ladder": None}).returns["context"] == 0
    assert at_bring_up({"images": {TAG: None}}).lines == []


def test_the_report_says_whose_length_it_is() -> None:
    climbed = report.context({"arguments": {"max_model_len": 524288}, "rung": at_bring_up().returns})
    assert climbed == {"tokens": 524288, "ladder": "20261123T140000Z", "not_used": ""}
    assert report.context_text(climbed) == "context: 524288, from the ladder 20261123T140000Z"
    other = report.context({"arguments": {}, "rung": at_bring_up({"gpus": [{"driver_version": "590.44.01"}]}).returns})
    assert other["ladder"] == "" and "the driver is 590.44.01" in report.context_text(other)
    assert report.context_text(report.context({})) == "context: left to the engine"


def test_a_climb_in_a_line() -> None:
    climb = judged().returns["climbs"]["a"]
    assert "was interrupted, or is still running, at 524288" in recorded.text({**climb, "trying": 524288})
    assert "reached its last rung" in recorded.text({**climb, "outcome": "top"})
    assert recorded.status_lines({"error": "it is not JSON", "climbs": []}) == ["ladder: it is not JSON"]
    assert recorded.remaining({"a": {"climbs": [climb], "path": "/s/ladder.json"}, "b": {}}) == [
        "The ladder record remains on a (/s/ladder.json); the next bring-up uses it."
    ]
    assert recorded.remaining({"a": {}}) == []
