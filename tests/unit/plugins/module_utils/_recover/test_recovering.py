# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Recoveries of a pair: together or not at all, evidence first, the head first, memory proven, and what is left when something goes wrong."""

from __future__ import annotations

import io
import json
import sys
import threading
import types
import typing as t
from pathlib import Path

import pytest
from recovering_pair import BOOT, HEAD, UNIT, WORKER, Pair, entry

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.module_utils._recover import looking, recovering
from ansible_collections.gb10.cluster.plugins.module_utils._unit import record, specification, text, unit_files

#: What each node does in a recovery.
OF_HEAD = [
    "cluster_lock acquired", "evidence", "vllm_serve", f"stop {UNIT}", "ray_cluster", "node_samples_info", "cluster_lock released", f"start {UNIT}",
]  # fmt: skip
OF_WORKER = [what for what in OF_HEAD if what != "vllm_serve"]
LOCK = json.dumps({"id": "x", "acquired_at": "2026", "holder": {"user": "ada", "hostname": "workbench", "pid": 1}})


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    made = Pair(tmp_path, monkeypatch)
    made.look()
    made.look()
    made.heals_at_a_start()
    return made


def fault(pair: Pair, looks: int = 3) -> None:
    pair.halt()
    for _look in range(looks):
        pair.look()


def test_three_looks_that_agree_take_all_down_and_up_again(pair: Pair) -> None:
    fault(pair, 2)
    assert pair.calls == {HEAD: [], WORKER: []}
    assert pair.look() == {HEAD: 0, WORKER: 0}
    assert pair.calls == {HEAD: OF_HEAD, WORKER: OF_WORKER}
    assert (pair.state(HEAD)["kind"], pair.state(HEAD)["text"], pair.state(HEAD)["phase"]) == ("starting", "recovery: runs again", "up")
    assert pair.look() == {HEAD: 0, WORKER: 0}
    for name in (HEAD, WORKER):
        state = pair.state(name)
        assert state["history"] == [{
            "why": state["history"][0]["why"], "boot_id": BOOT, "at_s": pair.now - 60.0, "at": state["history"][0]["at"], "outcome": "runs again",
        }]  # fmt: skip
        assert state["history"][0]["why"].startswith("halted: a signal")
        assert (state["kind"], state["count"], state["phase"], state["stopped"]) == ("well", 0, "", "")
        assert "1 in 6 h, 2 in 24 h" in state["line"] and ": runs again" in state["line"]


def test_evidence_of_both_sides_comes_before_any_stop_and_the_head_stops_first(pair: Pair) -> None:
    order: list[str] = []
    for name in (HEAD, WORKER):
        for what in ("evidence", f"stop {UNIT}", "node_samples_info", f"start {UNIT}"):
            before = pair.on.get((name, what))
            pair.on[name, what] = lambda name=name, what=what, before=before: (order.append(f"{name} {what.split()[0]}"), before and before())[0]
    fault(pair)
    assert set(order[:2]) == {f"{HEAD} evidence", f"{WORKER} evidence"}
    assert order.index(f"{HEAD} stop") < order.index(f"{WORKER} stop")
    assert max(order.index(f"{name} node_samples_info") for name in (HEAD, WORKER)) < min(order.index(f"{name} start") for name in (HEAD, WORKER))


def test_a_second_fault_waits_for_its_pause_and_a_third_for_its_budget(pair: Pair) -> None:
    fault(pair)
    assert pair.calls[HEAD] == OF_HEAD
    for name in (HEAD, WORKER):
        pair.evidence[name] = entry(name, run=f"run-3-{name}")
    pair.look()
    fault(pair, 1)
    assert "the last recovery was" in pair.state(HEAD)["hold"]
    pair.look(seconds=150.0)
    pair.look(seconds=150.0)
    assert pair.calls[HEAD] == OF_HEAD * 2
    for name in (HEAD, WORKER):
        pair.evidence[name] = entry(name, run=f"run-4-{name}")
    fault(pair, 5)
    assert "the budget of 2 recoveries within 6 h is used up. Run the doctor, then mode" in pair.state(HEAD)["text"]
    assert pair.calls[HEAD] == OF_HEAD * 2 and pair.look() == {HEAD: 1, WORKER: 1}


def test_a_young_engine_is_only_named(pair: Pair) -> None:
    pair.evidence[HEAD]["seconds"] = 60.0
    fault(pair, 5)
    assert pair.state(HEAD)["kind"] == "young" and pair.look() == {HEAD: 1, WORKER: 1} and pair.calls == {HEAD: [], WORKER: []}


def test_a_node_that_another_run_works_on_puts_it_off(pair: Pair) -> None:
    pair.held = {WORKER}
    recovering.TOGETHER_SECONDS = 0.2
    fault(pair)
    assert pair.calls == {HEAD: ["cluster_lock acquired", "evidence", "cluster_lock released"], WORKER: ["cluster_lock acquired"]}
    assert any(line == "put off: lock: another run works on this cluster: ada" for line in pair.said)
    assert any(line.startswith("put off: spark-2 did not get there within 0 s") and UNIT in line for line in pair.said)
    assert pair.state(HEAD)["history"] == [] and pair.state(HEAD)["phase"] == "" and pair.look() == {HEAD: 1, WORKER: 1}
    # It is tried again when the run has ended.
    pair.held, pair.calls = set(), {HEAD: [], WORKER: []}
    recovering.TOGETHER_SECONDS = 5.0
    pair.look()
    assert pair.calls == {HEAD: OF_HEAD, WORKER: OF_WORKER}


def test_a_fault_that_is_over_when_all_are_ready_stops_nothing(pair: Pair) -> None:
    begun = threading.Event()

    def healed() -> None:
        assert begun.wait(10)
        pair.evidence = {name: entry(name) for name in (HEAD, WORKER)}

    recovering.TOGETHER_SECONDS = 1.0
    pair.on[WORKER, "evidence"] = begun.set
    pair.on[HEAD, "evidence"] = healed
    fault(pair)
    assert set(map(tuple, pair.calls.values())) == {("cluster_lock acquired", "evidence", "cluster_lock released")}
    assert any(line.startswith("put off: the engine is well by now: a token came") for line in pair.said)
    assert any(line.startswith("put off: spark-1 ") for line in pair.said) and pair.state(WORKER)["history"] == []


def test_another_run_of_the_engine_is_another_incident(pair: Pair) -> None:
    def restarted() -> None:
        pair.evidence[HEAD]["run"] = "by a person"

    recovering.TOGETHER_SECONDS = 1.0
    pair.on[HEAD, "evidence"] = restarted
    fault(pair)
    assert f"stop {UNIT}" not in pair.calls[HEAD] + pair.calls[WORKER]
    assert any(line.startswith("put off: the engine is fault by now") for line in pair.said)


@pytest.mark.parametrize("verdict", ["warn", "unknown"])
def test_memory_that_does_not_come_back_leaves_all_down_and_says_what_to_type(pair: Pair, verdict: str) -> None:
    pair.results[WORKER, "node_samples_info"] = {"changed": False, "msg": "lacks", "verdict": verdict, "noted_mb": 100 * 1024, "available_mb": 59 * 1024}
    fault(pair)
    why = "spark-2 lacks 41 GiB. Reboot spark-2, then run mode"
    assert f"start {UNIT}" not in pair.calls[HEAD] + pair.calls[WORKER]
    for name in (HEAD, WORKER):
        state = pair.state(name)
        assert state["stopped"] == why and state["history"][-1]["outcome"] == f"stopped: {why}" and state["phase"] == ""
        noted = record.read(unit_files.of_engine(pair.state_dir(name), "gb10").folder)
        assert (noted["state"], noted["reason"], noted["boot_id"]) == ("failed", f"recovery: {why}", BOOT)
        pair.evidence[name] = entry(name, unit="off", why=f"{UNIT} failed", processes=[], probe=[])
    # It stays so until a person starts it.
    assert pair.look() == {HEAD: 1, WORKER: 1} and pair.state(HEAD)["stopped"] == why and why in pair.state(HEAD)["line"]
    pair.evidence = {name: entry(name, unit="starting", probe=[]) for name in (HEAD, WORKER)}
    assert pair.look() == {HEAD: 0, WORKER: 0} and pair.state(HEAD)["stopped"] == ""


def names_singles(pair: Pair, phase: str = "settled", **clusters: t.Any) -> None:
    """The mode names the engine of each node that serves alone, whose unit the nodes kept."""
    degraded = {"degraded": {HEAD: HEAD, WORKER: WORKER}}
    named = clusters or {"gb10": {"profile": "p", "source": "p", "nodes": [HEAD, WORKER], **degraded}}
    for name in (HEAD, WORKER):
        state_dir = pair.state_dir(name)
        modes.write(state_dir, modes.following(None, {"mode": "big", "phase": phase, "reason": "", "clusters": named}, "2026-11-24T01:00:00Z"))
        single = Path(unit_files.of_engine(state_dir, name).folder)
        single.mkdir(parents=True)
        given = {**specification.read(f"{unit_files.of_engine(state_dir, 'gb10').folder}/{specification.FILE}"), "cluster": name, "start_seconds": 700}
        (single / specification.FILE).write_text(specification.dump(given))


def lacks(pair: Pair, name: str = WORKER) -> str:
    """The memory of a node does not come back."""
    pair.results[name, "node_samples_info"] = {"changed": False, "msg": "lacks", "verdict": "warn", "noted_mb": 100 * 1024, "available_mb": 59 * 1024}
    return f"{name} lacks 41 GiB. Reboot {name}, then run mode"


ALONE = f"start gb10-engine-{HEAD}.service"


@pytest.mark.parametrize(("missing", "survivor"), [(WORKER, HEAD), (HEAD, WORKER)])
def test_the_node_whose_memory_is_back_serves_alone_where_the_mode_says_so(pair: Pair, missing: str, survivor: str) -> None:
    names_singles(pair)
    why = lacks(pair, missing)
    start = f"start gb10-engine-{survivor}.service"
    # What the other node reads meanwhile, and what this one would do.
    during: list[tuple[str, str]] = []
    pair.on[survivor, start] = lambda: during.append((pair.state(survivor)["stopped"], pair.state(survivor)["phase"]))
    fault(pair)
    # Without the lock, and after all that a recovery does.
    assert pair.calls[survivor][-2:] == ["cluster_lock released", start] and during == [(why, "")]
    assert not any(what.startswith("start ") for what in pair.calls[missing]) and f"start {UNIT}" not in pair.calls[survivor]
    said = f"{why}; meanwhile {survivor} serves alone, until it reboots"
    state = pair.state(survivor)
    assert (state["stopped"], state["history"][-1]["outcome"], state["phase"]) == (said, f"stopped: {said}", "") and len(state["history"]) == 1
    assert record.read(unit_files.of_engine(pair.state_dir(survivor), "gb10").folder)["reason"] == f"recovery: {said}"
    assert pair.state(missing)["stopped"] == why and f"recovery: stopped: {said}" in pair.said
    # Also where the pair's unit has failed, nothing more is done while it serves, and both say why.
    calls = {name: [*made] for name, made in pair.calls.items()}
    for name in (HEAD, WORKER):
        pair.evidence[name] = entry(name, unit="failed", why=f"{UNIT} failed", processes=[], probe=[])
    for _look in range(5):
        assert pair.look(seconds=3600.0) == {HEAD: 1, WORKER: 1}
    assert pair.calls == calls and pair.state(survivor)["count"] == 5 and said in pair.state(survivor)["line"]
    pair.evidence = {name: entry(name, run="by a person") for name in (HEAD, WORKER)}
    assert pair.look() == {HEAD: 0, WORKER: 0} and pair.state(survivor)["stopped"] == ""


def test_a_node_that_cannot_serve_alone_says_why(pair: Pair) -> None:
    names_singles(pair)
    why = lacks(pair)
    pair.fails = {f"{HEAD} {ALONE}"}
    record.write(unit_files.of_engine(pair.state_dir(HEAD), HEAD).folder, BOOT, record.FAILED, "the engine took 90.0 GiB at its peak")
    fault(pair)
    stopped = pair.state(HEAD)["stopped"]
    assert stopped.startswith(f"{why}; {HEAD} does not serve alone: systemctl {ALONE} ended with 1: the engine took 90.0 GiB")
    assert stopped in pair.state(HEAD)["text"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: (folder / f"{HEAD}/unit/{specification.FILE}").unlink(), "specification.json does not exist"),
        (lambda folder: (folder / "mode.lock.json").write_text(LOCK), "the lock of the mode is held by ada@workbench"),
        (lambda folder: (folder / "mode.lock.json").write_text("{"), "the lock of the mode is held by /"),
        (lambda folder: (folder / "mode.json").write_text("{"), "mode.json is not JSON"),
    ],
)
def test_nothing_is_started_under_a_lock_or_without_its_unit(pair: Pair, change: t.Callable[[Path], None], said: str) -> None:
    names_singles(pair)
    why = lacks(pair)
    pair.on[HEAD, "cluster_lock released"] = lambda: change(Path(pair.state_dir(HEAD)))
    fault(pair)
    assert ALONE not in pair.calls[HEAD] and pair.state(HEAD)["stopped"].startswith(f"{why}; {HEAD} does not serve alone: ")
    assert said in pair.state(HEAD)["stopped"]


OTHER = {"profile": "p", "source": "p", "nodes": [HEAD, WORKER]}


@pytest.mark.parametrize(
    "clusters", [{"gb10": OTHER}, {"gb10": {**OTHER, "degraded": {WORKER: WORKER}}}, {"other": {**OTHER, "degraded": {HEAD: HEAD}}}]
)
def test_a_mode_that_names_no_engine_for_a_node_leaves_it_down(pair: Pair, clusters: dict[str, t.Any]) -> None:
    names_singles(pair, **clusters)
    why = lacks(pair)
    fault(pair)
    assert ALONE not in pair.calls[HEAD] and pair.state(HEAD)["stopped"] == why


def test_a_mode_that_changes_meanwhile_starts_nothing_alone(pair: Pair) -> None:
    names_singles(pair)
    why = lacks(pair)

    def changes() -> None:
        mode = modes.read(pair.state_dir(HEAD))
        assert mode
        modes.write(pair.state_dir(HEAD), {**mode, "phase": "switching"})

    pair.on[HEAD, "cluster_lock released"] = changes
    fault(pair)
    assert ALONE not in pair.calls[HEAD] and pair.state(HEAD)["stopped"] == why


def test_only_a_node_whose_memory_was_proven_serves_alone(pair: Pair) -> None:
    names_singles(pair)
    pair.fails = {f"{HEAD} stop {UNIT}"}
    fault(pair)
    assert not any(what.startswith("start ") for what in pair.calls[HEAD]) and "alone" not in pair.state(HEAD)["stopped"]
    assert pair.calls[WORKER][-1] == ALONE.replace(HEAD, WORKER) and f"meanwhile {WORKER} serves alone" in pair.state(WORKER)["stopped"]


def test_with_its_budget_used_up_the_cluster_is_given_up_for_what_the_mode_names(pair: Pair) -> None:
    names_singles(pair, gb10={"profile": "p", "source": "p", "nodes": [HEAD, WORKER], "degraded": {HEAD: HEAD}})
    past = [{"boot_id": BOOT, "why": "halted", "outcome": "runs again", "at_s": pair.now - 3600.0 * hours, "at": f"2026-11-2{hours}"} for hours in (3, 2)]
    for name in (HEAD, WORKER):
        pair.recovery(name).publish(history=past)
    fault(pair, 2)
    assert pair.calls == {HEAD: [], WORKER: []} and pair.state(WORKER)["hold"] == ""
    assert pair.look() == {HEAD: 1, WORKER: 1}
    assert pair.calls == {HEAD: [*OF_HEAD[:-1], ALONE], WORKER: OF_WORKER[:-1]}
    why = "the budget of 2 recoveries within 6 h is used up. Run the doctor, then mode"
    assert pair.state(WORKER)["stopped"] == why and pair.state(HEAD)["stopped"] == f"{why}; meanwhile {HEAD} serves alone, until it reboots"
    assert [entry["outcome"][:8] for entry in pair.state(WORKER)["history"]] == ["runs aga", "runs aga", "stopped:"]
    for _look in range(3):
        pair.look(seconds=86400.0)
    assert pair.calls == {HEAD: [*OF_HEAD[:-1], ALONE], WORKER: OF_WORKER[:-1]}


def test_unknown_memory_before_the_start_is_not_a_size(pair: Pair) -> None:
    pair.results[HEAD, "node_samples_info"] = {"changed": False, "msg": "unknown", "verdict": "unknown", "noted_mb": None, "available_mb": 1024}
    fault(pair)
    assert pair.state(HEAD)["stopped"] == pair.state(WORKER)["stopped"] == "spark-1 may lack memory. Reboot spark-1, then run mode"


def test_a_stop_that_fails_is_a_stop(pair: Pair) -> None:
    pair.fails = {f"{HEAD} stop {UNIT}"}
    fault(pair)
    assert "systemctl stop" in pair.state(HEAD)["stopped"] and pair.state(HEAD)["history"][-1]["outcome"].startswith("stopped: ")
    # The worker goes down, too, and gives the head's reason.
    assert pair.calls[WORKER] == OF_WORKER[:-1] and pair.state(WORKER)["stopped"] == pair.state(HEAD)["stopped"]


def test_a_node_that_falls_silent_on_the_way_leaves_the_other_down(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> None:
        pair.silent.add(WORKER)

    pair.on[WORKER, f"stop {UNIT}"] = lost
    whole = recovering.Recovery.await_all

    def short(self: recovering.Recovery, phases: t.Any, peers: t.Any, seconds: float) -> None:
        whole(self, phases, peers, min(seconds, 0.5))

    monkeypatch.setattr(recovering.Recovery, "await_all", short)
    fault(pair)
    assert pair.state(HEAD)["stopped"].startswith("spark-2 did not get there within") and f"start {UNIT}" not in pair.calls[HEAD]


def test_a_start_that_fails_may_be_tried_again(pair: Pair) -> None:
    pair.fails = {f"{HEAD} start {UNIT}"}
    for name in (HEAD, WORKER):
        pair.on[name, f"start {UNIT}"] = lambda name=name: pair.evidence.update(
            {name: entry(name, unit="failed", why=f"{UNIT} failed: the engine failed to start", run="", processes=[], probe=[])}
        )
    fault(pair)
    state = pair.state(HEAD)
    assert state["history"][-1]["outcome"].startswith("failed: systemctl start") and state["stopped"] == ""
    assert (state["kind"], state["phase"]) == ("fault", "up") and state["text"].startswith("recovery: failed: systemctl start")
    pair.fails.clear()
    pair.heals_at_a_start()
    for _look in range(6):
        pair.look()
    assert len(pair.state(HEAD)["history"]) == 2 and pair.state(HEAD)["kind"] == "well"


@pytest.mark.parametrize(
    ("verdict", "outcome"), [("pass", "runs again"), ("block", "runs again, but answers wrongly: arithmetic: it is 5"), ("unknown", "runs again, but answers")]
)
def test_known_answers_are_asked_on_the_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: str, outcome: str) -> None:
    pair = Pair(tmp_path, monkeypatch, answers=["arithmetic", "echo"])
    pair.look()
    pair.heals_at_a_start()
    results = [{"check": "arithmetic", "verdict": verdict, "message": "it is 5"}, {"check": "echo", "verdict": "pass", "message": ""}]
    pair.results[HEAD, "engine_questions"] = {"changed": False, "msg": "2 questions", "results": results}
    fault(pair)
    assert pair.calls[HEAD] == [*OF_HEAD, "engine_questions"] and pair.calls[WORKER] == OF_WORKER
    assert pair.state(HEAD)["history"][-1]["outcome"].startswith(outcome) and pair.state(WORKER)["history"][-1]["outcome"] == "runs again"
    assert (pair.state(HEAD)["kind"], pair.state(WORKER)["kind"]) == ("starting" if verdict == "pass" else "fault", "starting")


def test_answers_that_cannot_be_asked_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(tmp_path, monkeypatch, answers=["echo"])
    pair.look()
    pair.heals_at_a_start()
    pair.results[HEAD, "engine_questions"] = {"failed": True, "msg": "no live engine", "verdict": "block"}
    fault(pair)
    assert pair.state(HEAD)["history"][-1]["outcome"].startswith("failed: engine_questions: no live engine")


def test_another_node_gets_the_time_that_its_steps_may_take(pair: Pair) -> None:
    assert pair.recovery(HEAD).seconds == text.stop_seconds(pair.recovery(HEAD).given) + 5 + 60


def test_what_held_a_node_in_its_last_look_holds_the_others(pair: Pair) -> None:
    fault(pair, 2)
    pair.recovery(WORKER).publish(hold="the lock of cluster gb10 is held by ada")
    pair.look(HEAD)
    assert pair.calls[HEAD] == [] and "spark-2: the lock of cluster gb10 is held by ada" in pair.state(HEAD)["text"]


def test_a_single_node_recovers_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(tmp_path, monkeypatch, nodes=(HEAD,))
    pair.look()
    pair.heals_at_a_start()
    pair.halt(HEAD)
    for _look in range(3):
        pair.look()
    assert pair.calls == {HEAD: OF_HEAD} and pair.state(HEAD)["history"][-1]["outcome"] == "runs again"


@pytest.mark.parametrize(("phase", "stopped"), [("locked", False), ("stopping", True), ("down", True), ("back", True), ("up", None), ("", None)])
def test_an_interrupted_recovery_is_found(pair: Pair, phase: str, stopped: bool | None) -> None:
    history = [] if phase in ("", "locked") else [{"boot_id": BOOT, "at_s": pair.now, "at": "2026", "why": "halted", "outcome": "began"}]
    pair.recovery(WORKER).publish(phase=phase, history=history)
    pair.evidence[WORKER] = entry(WORKER, unit="off", why=f"{UNIT} stopped", processes=[])
    pair.evidence[HEAD] = entry(HEAD, probe=[], processes=[], unit="off", why=f"{UNIT} stopped")
    pair.look(HEAD)
    assert pair.look(WORKER) == {WORKER: int(bool(stopped))}
    state = pair.state(WORKER)
    assert state["stopped"] == ("it was interrupted. Run the doctor, then mode" if stopped else "")
    # The lock of the interrupted process is taken over and released.
    assert pair.calls[WORKER] == ([] if stopped is None else ["cluster_lock acquired", "cluster_lock released"])


def test_a_reboot_ends_a_recovery(pair: Pair) -> None:
    pair.recovery(WORKER).publish(phase="down", boot_id="before")
    pair.look(together=False)
    assert pair.calls[WORKER] == [] and pair.state(WORKER)["stopped"] == "" and pair.state(WORKER)["phase"] == ""


def test_observe_says_what_restart_would_have_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(tmp_path, monkeypatch, act="observe")
    pair.look()
    pair.look()
    fault(pair, 6)
    said = "3 looks agree; restart would take all nodes down and up again, but spark-1: gb10_recover is observe; spark-2: gb10_recover is observe"
    assert said in pair.state(HEAD)["text"] and pair.calls == {HEAD: [], WORKER: []} and pair.look() == {HEAD: 1, WORKER: 1}


def test_a_jump_of_the_clock_changes_nothing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only texts have the time of the day."""
    for module in (looking, recovering):
        monkeypatch.setattr(module, "utc_text", lambda: "2036-01-01T00:00:00Z")
    assert pair.look() == {HEAD: 0, WORKER: 0} and pair.state(HEAD)["kind"] == "well"
    fault(pair, 2)
    monkeypatch.setattr(looking, "utc_text", lambda: "2001-01-01T00:00:00Z")
    assert pair.calls == {HEAD: [], WORKER: []} and pair.state(HEAD)["count"] == 2
    pair.look()
    assert pair.calls[HEAD] == OF_HEAD


def test_who_left_is_named_while_a_node_that_does_not_answer_is_waited_for(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    node = pair.recovery(HEAD)
    node.state["incident"] = "i"
    answers: list[dict[str, t.Any]] = []
    monkeypatch.setattr(node, "ask", lambda peer: answers.pop(0) if len(answers) > 1 else answers[0])
    answers[:] = [{"phase": None, "incident": "i"}, {"phase": "locked", "incident": "i"}, {"phase": "back", "incident": "i"}]
    node.await_all(("back", "up"), [WORKER], 5.0)
    answers[:] = [{"phase": "", "incident": "i", "stopped": ""}, {"phase": "locked", "incident": "j"}, {"phase": "locked", "incident": "i"}]
    node.await_all(("locked", "back"), [WORKER], 5.0)
    for phase, incident, stopped, why in (("", "i", "Reboot", "Reboot"), ("back", "j", "", "spark-2 put it off")):
        answers[:] = [{"phase": phase, "incident": incident, "stopped": stopped}]
        with pytest.raises(ClusterError, match=why):
            node.await_all(("back", "up"), [WORKER], 5.0)
    answers[:] = [{"phase": "", "incident": "j", "stopped": "Reboot"}, {"phase": "", "incident": "i", "stopped": "Reboot"}]
    node.await_all(("locked", recovering.GIVEN_UP), [WORKER], 5.0)
    answers[:] = [{"phase": None, "incident": "i"}]
    with pytest.raises(WaitTimeout, match="spark-2 did not get there within 0 s"):
        node.await_all(("back", "up"), [WORKER], 0.02)


# --- the program --------------------------------------------------------------------------------------------------------


def test_the_program_looks_with_the_factor_of_its_environment(pair: Pair, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    made: list[t.Any] = []

    class Looks:
        def __init__(self, config: t.Any, run: t.Any, scale: float) -> None:
            made.append((config["node"], scale))

        def main(self) -> int:
            return 1

    monkeypatch.setattr(recovering, "Recovery", Looks)
    path = pair.path / "recover.json"
    path.write_text(json.dumps(pair.config[HEAD]))
    for value in ("", "60", "0.5"):
        monkeypatch.setenv(recovering.SCALE, value)
        assert recovering.main(["run", str(path)]) == 1
    assert made == [(HEAD, 1.0), (HEAD, 60.0), (HEAD, 1.0)]
    monkeypatch.setenv(recovering.SCALE, "fast")
    for argv in (["run", str(path)], ["run", "/nowhere"], [], ["run", str(path), "more"]):
        assert recovering.main(argv) == 1
    assert capsys.readouterr().out == ""


def test_an_answer_is_all_that_goes_to_the_connection(pair: Pair, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    path = pair.path / "recover.json"
    path.write_text(json.dumps(pair.config[HEAD]))
    sent = io.BytesIO()

    def ask(question: bytes) -> int:
        monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(question)))
        monkeypatch.setattr(sys, "stdout", types.SimpleNamespace(buffer=sent))
        return recovering.main(["answer", str(path)])

    assert ask(b"GET /" + b"a" * 64 + b" HTTP/1.1\r\nHost: x\r\n\r\nmore") == 0
    head, _break, body = sent.getvalue().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 OK\r\n") and json.loads(body.partition(b"\n")[2])["node"] == HEAD
    sent.seek(0)
    sent.truncate()
    for question in (b"", b"GET / HTTP/1.1\r\n\r\n", b"restart\r\n\r\n"):
        assert ask(question) == 1 and sent.getvalue() == b""
    assert "this is not a question" in capsys.readouterr().err
