# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A look of each node: what it publishes, what the others get of it, and every reason not to act."""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

import pytest
from recovering_pair import BOOT, HEAD, NO_TOKEN, WORKER, Pair, entry

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.module_utils._lease import record as leases
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._records import recoveries
from ansible_collections.gb10.cluster.plugins.module_utils._recover import looking


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    return Pair(tmp_path, monkeypatch)


def test_a_healthy_pair_raises_nothing(pair: Pair) -> None:
    pair.look()
    for _look in range(20):
        assert pair.look() == {HEAD: 0, WORKER: 0}
    state = pair.state(HEAD)
    assert (state["kind"], state["count"], state["seq"], state["hold"], state["stopped"]) == ("well", 0, 21, "", "")
    assert state["line"].startswith("recovery: restart, well at ") and state["line"].endswith("; budget left: 2 in 6 h, 3 in 24 h")
    assert (state["shown"], pair.state(WORKER)["shown"]) == (True, False)
    assert pair.calls == {HEAD: [], WORKER: []}
    # The first look is said, and then only what is not well.
    assert pair.said == ["look 1: well: a token came"] * 2


def test_the_first_look_names_a_fault(pair: Pair) -> None:
    pair.look()
    pair.look()
    pair.halt()
    assert pair.look() == {HEAD: 1, WORKER: 1}
    for name in (HEAD, WORKER):
        state = pair.state(name)
        assert (state["kind"], state["count"]) == ("fault", 1)
        assert recoveries.problem(state).startswith("halted: a signal") and "look 1 of 3" in state["line"]
    assert any("look 3: fault: halted: a signal" in line for line in pair.said)


def test_what_is_not_a_fault_is_no_problem(pair: Pair) -> None:
    pair.look()
    pair.evidence[HEAD] = entry(HEAD, probe=NO_TOKEN)
    assert pair.look() == {HEAD: 0, WORKER: 0} and pair.state(HEAD)["kind"] == "unknown"
    assert "no progress for 20 s" in pair.state(HEAD)["line"] and recoveries.problem(pair.state(HEAD)) == ""


def test_a_start_ends_the_count_and_an_unseen_node_too(pair: Pair) -> None:
    pair.look()
    pair.halt()
    pair.look()
    pair.look()
    assert pair.state(HEAD)["count"] == 2
    pair.silent = {WORKER}
    pair.look(HEAD)
    assert (pair.state(HEAD)["kind"], pair.state(HEAD)["count"]) == ("unknown", 0)
    pair.silent = set()
    pair.look(HEAD)
    assert pair.state(HEAD)["count"] == 1
    pair.evidence[WORKER]["run"] = "another"
    pair.look()
    assert pair.state(HEAD)["count"] == 1


def test_an_old_look_of_another_node_is_not_seen(pair: Pair) -> None:
    pair.look()
    pair.halt()
    pair.look()
    pair.look(HEAD, seconds=180.0)
    assert pair.state(HEAD)["kind"] == "fault"
    pair.look(HEAD, seconds=1.0)
    assert (pair.state(HEAD)["kind"], pair.state(HEAD)["text"]) == ("unknown", "spark-2: its last look was 181 s ago")


def test_a_node_that_holds_its_lock_does_not_look_meanwhile(pair: Pair) -> None:
    pair.look()
    pair.halt()
    pair.look()
    for phase, kind in (("locked", "fault"), ("up", "unknown"), ("", "unknown")):
        pair.recovery(WORKER).publish(phase=phase)
        pair.look(HEAD, seconds=181.0)
        assert pair.state(HEAD)["kind"] == kind


def test_a_factor_is_said_in_each_line(pair: Pair) -> None:
    pair.halt()
    pair.evidence[HEAD]["seconds"] = 60.0
    node = pair.recovery(HEAD, scale=60.0)
    pair.look(WORKER)
    node.look()
    assert node.now == (BOOT, pair.now, 60.0) and node.state["kind"] == "fault"
    assert pair.said[-1].startswith("(times divided by 60) look 1: fault: halted")
    pair.recovery(HEAD).look()
    assert pair.said[-1].startswith("look 2: young: halted")


def test_a_node_that_cannot_see_itself_is_unknown_to_all(pair: Pair) -> None:
    pair.look()
    pair.halt(HEAD)
    pair.evidence[WORKER] = "Docker does not answer"
    pair.look()
    pair.look()
    for name in (HEAD, WORKER):
        assert pair.state(name)["kind"] == "unknown" and "spark-2: Docker does not answer" in pair.state(name)["text"]
    assert pair.state(WORKER)["own"] == {} and pair.state(WORKER)["error"] == "Docker does not answer"


def test_without_the_key_no_node_is_seen(pair: Pair) -> None:
    os.unlink(f"{pair.config[HEAD]['secrets_dir']}/gb10/recover_key")
    pair.halt()
    pair.look(WORKER)
    pair.look(HEAD)
    assert pair.state(HEAD)["kind"] == "unknown" and "recover_key" in pair.state(HEAD)["text"]


def test_the_kernels_lines_are_those_since_the_engine_was_well(pair: Pair) -> None:
    pair.look()
    assert pair.state(HEAD)["kernel"] == {"booted": 1}
    pair.halt()
    pair.kernel = {"booted": 1, "xid: 79": 1}
    pair.look()
    assert pair.state(HEAD)["kernel"] == {"booted": 1}
    pair.evidence = {name: entry(name) for name in (HEAD, WORKER)}
    pair.look()
    assert pair.state(HEAD)["kernel"] == pair.kernel
    # An own part that cannot be read has none.
    pair.evidence[WORKER] = "Docker does not answer"
    pair.look()
    assert pair.state(WORKER)["kind"] == "well" and pair.state(WORKER)["kernel"] == pair.kernel


def test_an_answer_is_of_this_boot_and_of_this_look_alone(pair: Pair) -> None:
    with pytest.raises(UnknownState, match="there was no look in this boot"):
        looking.answer(pair.config[WORKER], b"")
    pair.look()
    pair.now += 7.0
    said = pair.ask("10.0.0.2", 20302, "k" * 43, "gb10", WORKER)
    assert said["age_s"] == 7.0 and said["state"]["own"]["run"] == "run-spark-2" and "history" not in said["state"] and "kernel" not in said["state"]
    (pair.path / WORKER / "proc/sys/kernel/random/boot_id").write_text("another")
    with pytest.raises(UnknownState, match="there was no look in this boot"):
        looking.answer(pair.config[WORKER], b"")


def test_what_is_published_has_no_secret(pair: Pair) -> None:
    pair.evidence[WORKER] = f"the log ends: {'k' * 43}"
    pair.look()
    assert "k" * 43 not in json.dumps(pair.state(WORKER)) and "<secret" in pair.state(WORKER)["error"]


# --- reasons not to act -------------------------------------------------------------------------------------------------


def write_mode(pair: Pair, phase: str) -> None:
    modes.write(pair.state_dir(WORKER), modes.following(None, {"mode": "cluster", "phase": phase, "reason": "", "clusters": {}}, "2026-11-24T01:00:00Z"))


def write_lease(pair: Pair, state: str) -> None:
    lease = {key: kind() for key, kind in leases.KEYS.items()}
    leases.write(pair.state_dir(WORKER), {**lease, "state": state})


def write_lock(pair: Pair, text: str) -> None:
    Path(cluster_locks.path_of(pair.state_dir(WORKER), "gb10")).write_text(text)


LOCK = json.dumps({"id": "x", "acquired_at": "2026", "holder": {"user": "ada", "hostname": "workbench", "pid": 1}})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda pair: None, ""),
        (lambda pair: pair.config[WORKER].update(act="observe"), "gb10_recover is observe"),
        (lambda pair: pair.config[WORKER].update(pause={"text": "2h upgrading", "boot_id": BOOT, "at_s": pair.now}), "a person paused it"),
        (lambda pair: pair.recovery(WORKER).publish(stopped="spark-1 lacks 4 GiB"), "a person has to start it"),
        (lambda pair: write_lock(pair, LOCK), "the lock of cluster gb10 is held by ada@workbench"),
        (lambda pair: write_lock(pair, "{"), "is not a valid lock"),
        (lambda pair: write_mode(pair, "switching"), "the mode is switching"),
        (lambda pair: write_mode(pair, "failed"), "the mode is failed"),
        (lambda pair: write_mode(pair, "settled"), ""),
        (lambda pair: Path(pair.state_dir(WORKER), "mode.json").write_text("{"), "mode.json is not JSON"),
        (lambda pair: write_lease(pair, "live"), "the nodes are leased"),
        (lambda pair: write_lease(pair, "ending"), "the nodes are leased"),
        (lambda pair: write_lease(pair, "ended"), ""),
        (lambda pair: pair.evidence[WORKER].update(kernel=["xid: Xid 13", "gpu: it fell off the bus"]), "off the bus. Reboot spark-2, then run mode"),
        (lambda pair: pair.evidence[WORKER].update(kernel=["xid: Xid 79 gpu: "]), ""),
        (lambda pair: Path(pair.state_dir(WORKER), "gb10/memory.json").unlink(), "the memory before the start was not noted in this boot"),
        (lambda pair: Path(pair.state_dir(WORKER), "gb10/memory.json").write_text('{"boot_id": "a"}'), "the memory before the start was not noted"),
        (lambda pair: Path(pair.state_dir(WORKER), "gb10/memory.json").write_text("{"), "memory.json is not JSON"),
    ],
)  # fmt: skip
def test_every_reason_of_any_node_holds_all_of_them(pair: Pair, change: t.Callable[[Pair], t.Any], why: str) -> None:
    pair.look()
    pair.halt()
    change(pair)
    pair.look()
    assert why in pair.state(WORKER)["hold"] and bool(why) is bool(pair.state(WORKER)["hold"])
    for _look in range(3 if why else 0):
        pair.look()
        state = pair.state(HEAD)
        assert "restart would take all nodes down and up again, but spark-2: " in state["text"] and why in state["text"]
        assert pair.calls == {HEAD: [], WORKER: []}


def test_a_used_budget_holds(pair: Pair) -> None:
    pair.look()
    pair.halt()
    node = pair.recovery(WORKER)
    past = {"boot_id": BOOT, "why": "halted", "outcome": "runs again"}
    node.publish(history=[{**past, "at_s": pair.now - 3600.0 * hours, "at": f"2026-11-2{hours}"} for hours in (3, 2)])
    pair.look(WORKER)
    state = pair.state(WORKER)
    assert "the budget of 2 recoveries within 6 h is used up" in state["hold"] and "last recovery 2026-11-22 (halted): runs again" in state["line"]
    # The last one stays, so that an incident does not become another one at that moment.
    for _look in range(2):
        pair.look(WORKER, seconds=86400.0)
    state = pair.state(WORKER)
    assert [entry["at"] for entry in state["history"]] == [state["own"]["last"]] == ["2026-11-22"]
    assert "budget left: 2 in 6 h, 3 in 24 h" in state["line"] and state["hold"] == ""


def test_a_state_that_cannot_be_read_has_an_unknown_budget(pair: Pair) -> None:
    Path(recoveries.path_of(pair.state_dir(HEAD), "gb10")).write_text("{")
    with pytest.raises(UnknownState, match="is not JSON"):
        pair.recovery(HEAD)
