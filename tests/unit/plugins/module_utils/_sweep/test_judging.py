# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The messages of a sweep: one when something is wrong, one when it is over, and no others."""

from __future__ import annotations

import copy
import typing as t

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._engine import health
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import judging
from ansible_collections.gb10.cluster.plugins.module_utils._sweep.judging import ALERT, STILL, WELL

#: 2026-11-24T06:00:00Z, and the seconds between two sweeps.
NOW, QUARTER, HOUR = 1795500000.0, 900.0, 3600.0
DECLARED = {
    "cluster": "gb10", "node": "spark-1", "channels": ["ops", "mail"], "quiet_minutes": 120, "repeat_hours": 24, "floor_gib": 2, "starting_s": 3600,
    "silent_s": 600,
}  # fmt: skip
SINGLES = {
    "mode": "singles", "phase": "settled", "reason": "", "previous": {}, "changed_at": utc_text(NOW - 10 * HOUR), "events": [],
    "clusters": {"spark-1": {"profile": "tiny", "source": "tiny", "nodes": ["spark-1"]},
                 "spark-2": {"profile": "tiny", "source": "tiny", "nodes": ["spark-2"]}},
}  # fmt: skip
GOOD: judging.Seen = {
    **judging.nothing({"available_mb": 40000, "error": ""}, []), "mode": SINGLES,
}  # fmt: skip
SPEECH = {"id": "companion asr", "well": False, "text": "http://127.0.0.1:8765/health: Connection refused", "silent": False}
OLLAMA = {"id": "companion ollama", "well": False, "text": "status 503", "silent": False}
UNIT = {"name": "gb10-engine-spark-1.service", "installed": True, "state": "running", "reason": "", "at": "2026-11-24T02:00:00Z"}
NO_UNIT = {**UNIT, "installed": False, "state": ""}


def engine(state: str = "", **more: t.Any) -> dict[str, t.Any]:
    """What was seen of an engine: its health in a word, or that it does not run."""
    return {
        "cluster": "spark-1", "role": "head", "of_mode": True, "runs": bool(state), "error": "", "container": "", "unit": UNIT,
        "health": {"state": state, "text": f"{state}: so it is", "limit_s": 1957.3} if state else None,
        "engine": {"seconds": 60.0, "stopped_by": "", "last_end": "run 1 ended with exit code 1"}, **more,
    }  # fmt: skip


def seen(**more: t.Any) -> judging.Seen:
    return {**copy.deepcopy(GOOD), **more}


def sweep(
    what: judging.Seen, before: judging.State | None, now: float, lost: t.Collection[str] = (), **declared: t.Any
) -> tuple[dict[str, str], judging.State]:
    """One sweep whose messages are taken by all channels but ``lost``; what kind of message each got, and what is kept."""
    judged = judging.judge(what, {**DECLARED, **declared}, copy.deepcopy(before), now)
    state = judged.after
    for name, message in judged.messages.items():
        if name not in lost:
            state = judging.delivered(state, name, message, now)
    return {name: message.kind for name, message in judged.messages.items()}, state


def both(kind: str) -> dict[str, str]:
    return {"ops": kind, "mail": kind}


def firing(what: judging.Seen, before: judging.State | None = None, now: float = NOW, **declared: t.Any) -> list[str]:
    return [finding.id for finding in judging.judge(what, {**DECLARED, **declared}, before, now).firing]


# --- new, lasting, changed, over ----------------------------------------------------------------------------------------


def test_no_message_while_all_is_well():
    assert sweep(seen(engines=[engine(health.SERVING)], asked=[{**SPEECH, "well": True}]), None, NOW)[0] == {}


def test_one_message_for_all_that_is_wrong_then_silence_and_one_at_its_end():
    bad = seen(engines=[engine(health.DEAD)], asked=[SPEECH, OLLAMA])
    message = judging.judge(bad, DECLARED, None, NOW).messages["ops"]
    assert message.subject == "gb10 on spark-1: 3 problems" and [line.split(":")[0] for line in message.lines] == [
        "engine spark-1", "companion asr", "companion ollama",
    ]  # fmt: skip
    assert message.lines[1].endswith(f"Connection refused (since {utc_text(NOW)})")
    kinds, state = sweep(bad, None, NOW)
    assert kinds == both(ALERT)
    for later in range(1, 40):
        kinds, state = sweep(bad, state, NOW + later * QUARTER)
        assert kinds == {}
    over = judging.judge(GOOD, DECLARED, state, NOW + 41 * QUARTER).messages["ops"]
    assert over.kind == WELL and over.subject == "gb10 on spark-1: well again" and len(over.lines) == 3
    kinds, state = sweep(GOOD, state, NOW + 41 * QUARTER)
    assert kinds == both(WELL)
    assert sweep(GOOD, state, NOW + 42 * QUARTER)[0] == {}


def test_an_unclean_boot_is_reported_once_and_is_over_by_itself():
    back = seen(unclean_boot="2026-11-24T05:50:00Z")
    (line,) = judging.judge(back, DECLARED, None, NOW).messages["ops"].lines
    assert line.startswith("boot: the node came back after an unclean boot, seen 2026-11-24T05:50:00Z; until a unit has run for 60 minutes, another one")
    kinds, state = sweep(back, None, NOW)
    assert kinds == both(ALERT)
    assert sweep(back, state, NOW + QUARTER)[0] == {}
    assert sweep(GOOD, state, NOW + HOUR)[0] == both(WELL)


def test_a_new_problem_is_reported_with_all_others_and_marked():
    _kinds, state = sweep(seen(asked=[SPEECH]), None, NOW)
    more = judging.judge(seen(asked=[SPEECH, OLLAMA]), DECLARED, state, NOW + QUARTER).messages["ops"]
    assert more.kind == ALERT and more.subject == "gb10 on spark-1: 2 problems"
    assert f"(since {utc_text(NOW)})" in more.lines[0] and f"(since {utc_text(NOW + QUARTER)}, new)" in more.lines[1]


def test_another_text_of_the_same_trouble_is_not_new():
    _kinds, state = sweep(seen(engines=[engine(health.DEAD)]), None, NOW)
    assert sweep(seen(engines=[engine(health.STALLED)]), state, NOW + QUARTER)[0] == {}


def test_a_solved_problem_is_silent_and_reported_when_it_returns():
    _kinds, state = sweep(seen(asked=[SPEECH, OLLAMA]), None, NOW)
    kinds, state = sweep(seen(asked=[SPEECH]), state, NOW + QUARTER)
    assert kinds == {}
    kinds, state = sweep(seen(asked=[SPEECH, OLLAMA]), state, NOW + 2 * QUARTER)
    assert kinds == both(ALERT)
    assert sweep(GOOD, state, NOW + 3 * QUARTER)[0] == both(WELL)


def test_an_unresolved_problem_is_reported_again_after_the_declared_hours():
    _kinds, state = sweep(seen(asked=[SPEECH]), None, NOW)
    assert sweep(seen(asked=[SPEECH]), state, NOW + 24 * HOUR - 1)[0] == {}
    again = judging.judge(seen(asked=[SPEECH]), DECLARED, state, NOW + 24 * HOUR).messages["ops"]
    assert again.kind == STILL and again.subject == "gb10 on spark-1: still 1 problem" and f"since {utc_text(NOW)}" in again.lines[0]
    _kinds, state = sweep(seen(asked=[SPEECH]), state, NOW + 24 * HOUR)
    assert sweep(seen(asked=[SPEECH]), state, NOW + 47 * HOUR)[0] == {}
    assert sweep(seen(asked=[SPEECH]), state, NOW + 500 * HOUR, repeat_hours=0)[0] == {}


# --- channels -----------------------------------------------------------------------------------------------------------


def test_a_channel_that_fails_gets_it_at_the_next_sweep_and_the_others_do_not():
    kinds, state = sweep(seen(asked=[SPEECH]), None, NOW, lost=["ops"])
    assert kinds == both(ALERT)
    kinds, state = sweep(seen(asked=[SPEECH]), state, NOW + QUARTER, lost=["ops"])
    assert kinds == {"ops": ALERT}
    assert sweep(GOOD, state, NOW + 2 * QUARTER)[0] == {"mail": WELL}, "who was never told of it hears nothing of its end"


def test_the_end_is_reported_again_until_it_is_delivered():
    _kinds, state = sweep(seen(asked=[SPEECH]), None, NOW)
    kinds, state = sweep(GOOD, state, NOW + QUARTER, lost=["mail"])
    assert kinds == both(WELL)
    kinds, state = sweep(GOOD, state, NOW + 2 * QUARTER)
    assert kinds == {"mail": WELL}
    assert sweep(GOOD, state, NOW + 3 * QUARTER)[0] == {}


def test_a_new_channel_gets_the_unresolved_problems_and_a_removed_one_is_forgotten():
    _kinds, state = sweep(seen(asked=[SPEECH]), None, NOW)
    kinds, state = sweep(seen(asked=[SPEECH]), state, NOW + QUARTER, channels=["ops", "chat"])
    assert kinds == {"chat": ALERT} and set(state["told"]) == {"ops", "chat"}
    assert sweep(seen(asked=[SPEECH]), state, NOW + QUARTER, channels=[])[0] == {}


# --- what is known from before ------------------------------------------------------------------------------------------


def test_a_state_that_cannot_be_read_tells_once_too_often_rather_than_never():
    assert sweep(seen(asked=[SPEECH]), None, NOW)[0] == both(ALERT)


def test_a_clock_that_was_set_back_holds_nothing_back():
    _kinds, state = sweep(seen(asked=[SPEECH]), None, NOW)
    kinds, state = sweep(seen(asked=[SPEECH]), state, NOW - 1000 * HOUR)
    assert kinds == {}
    assert sweep(seen(asked=[SPEECH]), state, NOW - 976 * HOUR)[0] == both(STILL), "24 hours by the clock that is there now"
    assert sweep(GOOD, state, NOW - 999 * HOUR)[0] == both(WELL)


def test_a_clock_that_leaps_ahead_repeats_at_most():
    _kinds, state = sweep(seen(asked=[SPEECH]), None, NOW)
    assert sweep(seen(asked=[SPEECH]), state, NOW + 9000 * HOUR)[0] == both(STILL)


# --- a play is at work ------------------------------------------------------------------------------------------------


def switching(minutes: float) -> dict[str, t.Any]:
    return {**SINGLES, "phase": "switching", "changed_at": utc_text(NOW - minutes * 60)}


LOCK = {"name": "of cluster gb10", "id": "9f 2026-11-24T05:50:00Z", "who": "me@desk, process 7, since 2026-11-24T05:50:00Z", "age_s": 600, "error": ""}


@pytest.mark.parametrize("work", [{"mode": switching(20)}, {"locks": [LOCK]}], ids=["mode", "lock"])
def test_while_a_play_works_nothing_is_sent_and_nothing_ends(work: dict[str, t.Any]):
    judged = judging.judge(seen(asked=[SPEECH], **work), DECLARED, None, NOW)
    assert judged.messages == {} and judged.quiet and judged.after["problems"] == []
    _kinds, earlier = sweep(seen(asked=[SPEECH]), None, NOW - QUARTER)
    kinds, state = sweep(seen(**work), earlier, NOW)
    assert kinds == {} and state["told"] == earlier["told"]
    assert sweep(GOOD, state, NOW + QUARTER)[0] == both(WELL)


def test_work_that_lasts_too_long_is_a_trouble_itself_and_hides_nothing_more():
    assert firing(seen(mode=switching(119))) == []
    assert firing(seen(mode=switching(121), asked=[SPEECH]))[1:] == ["companion asr"]
    (long,) = judging.judge(seen(locks=[{**LOCK, "age_s": 7201}]), DECLARED, None, NOW).firing
    assert "the lock of cluster gb10 is held by me@desk, process 7" in long.text


def test_work_whose_beginning_lies_in_the_future_is_measured_by_the_sweeps():
    ahead = seen(mode={**SINGLES, "phase": "switching", "changed_at": utc_text(NOW + 99 * HOUR)})
    _kinds, state = sweep(ahead, None, NOW)
    assert firing(ahead, state, NOW + HOUR) == [] and len(firing(ahead, state, NOW + 2 * HOUR)) == 1


def test_the_lock_of_the_next_run_counts_from_its_own_beginning():
    _kinds, state = sweep(seen(locks=[LOCK]), None, NOW)
    assert firing(seen(locks=[{**LOCK, "id": "77 2026-11-24T08:00:00Z", "age_s": 5}]), state, NOW + 3 * HOUR) == []


def test_a_lock_that_cannot_be_read_is_reported():
    assert firing(seen(locks=[{**LOCK, "error": "lock.json cannot be read as a lock"}])) == ["lock of cluster gb10"]


# --- the mode -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["failed", "leak"])
def test_a_mode_that_is_not_settled_is_reported_with_its_reason(phase: str):
    (finding,) = judging.judge(seen(mode={**SINGLES, "phase": phase, "reason": "4 GiB did not come back"}), DECLARED, None, NOW).firing
    assert finding.id == "mode" and f"mode singles, {phase} since" in finding.text and "4 GiB did not come back" in finding.text


def test_a_mode_that_cannot_be_read_is_reported():
    assert firing(seen(mode=None, mode_error="mode.json is not JSON")) == ["mode"]


def test_what_is_expected_follows_from_the_mode():
    off = {**SINGLES, "mode": "off", "clusters": {}}
    pair = {**SINGLES, "mode": "cluster", "clusters": {"gb10": {"profile": "x", "source": "x", "nodes": ["spark-1", "spark-2"]}}}
    assert judging.clusters_of(SINGLES, "spark-2") == {"spark-2": "head"}
    assert judging.clusters_of(pair, "spark-1") == {"gb10": "head"} and judging.clusters_of(pair, "spark-2") == {"gb10": "worker"}
    assert judging.clusters_of(off, "spark-1") == {} and judging.mode_of(off) == "off"
    assert judging.clusters_of({**SINGLES, "phase": "failed"}, "spark-1") == {"spark-1": "head"}
    assert judging.clusters_of({**SINGLES, "phase": "switching"}, "spark-1") == {} and judging.mode_of({**SINGLES, "phase": "switching"}) == ""
    assert judging.clusters_of(None, "spark-1") is None and judging.mode_of(None) == ""
    # What a bring-up recorded without a declared mode declares nothing.
    assert judging.clusters_of({**pair, "mode": "serve"}, "spark-1") is None and judging.mode_of({**pair, "mode": "serve"}) == ""
    assert judging.mode_of({**pair, "mode": "day"}) == "day"


# --- engines ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "reported"),
    [
        (health.SERVING, False), (health.BUSY, False), (health.STARTING, False), (health.UNKNOWN, False), (health.DEAD, True), (health.HALTED, True),
        (health.STALLED, True),
    ],
)  # fmt: skip
def test_health_is_that_of_status_and_busy_is_no_failure(state: str, reported: bool):
    assert firing(seen(engines=[engine(state)])) == (["engine spark-1"] if reported else [])


def test_an_engine_without_a_token_and_a_reason_is_reported_once_it_would_be_a_stall():
    _kinds, state = sweep(seen(engines=[engine(health.UNKNOWN)]), None, NOW)
    for later in (QUARTER, 2 * QUARTER, 1957.0):
        kinds, state = sweep(seen(engines=[engine(health.UNKNOWN)]), state, NOW + later)
        assert kinds == {}
    assert sweep(seen(engines=[engine(health.UNKNOWN)]), state, NOW + 3 * QUARTER)[0] == both(ALERT)
    assert sweep(seen(engines=[engine(health.SERVING)]), state, NOW + 3 * QUARTER)[0] == {}


def test_an_engine_that_waits_to_count_again_is_not_over():
    _kinds, state = sweep(seen(engines=[engine(health.DEAD)]), None, NOW)
    kinds, state = sweep(seen(engines=[engine(health.STARTING)]), state, NOW + QUARTER)
    assert kinds == {}
    assert sweep(seen(engines=[engine(health.SERVING)]), state, NOW + 2 * QUARTER)[0] == both(WELL)


def test_a_start_that_takes_too_long_is_reported():
    slow = engine(health.STARTING, engine={"seconds": 3601.0, "stopped_by": "", "last_end": ""})
    assert firing(seen(engines=[slow])) == ["engine spark-1"]


def test_a_unit_that_starts_its_engine_is_waited_for_and_one_that_refused_says_why():
    starting = engine(unit={**UNIT, "state": "starting"})
    assert firing(seen(engines=[starting])) == []
    _kinds, state = sweep(seen(engines=[starting]), None, NOW)
    assert firing(seen(engines=[starting]), state, NOW + HOUR) == ["engine spark-1"]
    (finding,) = judging.judge(
        seen(engines=[engine(unit={**UNIT, "state": "refused", "reason": "the node did not shut down cleanly"})]), DECLARED, None, NOW
    ).firing
    assert "refused" in finding.text and "the node did not shut down cleanly" in finding.text


def test_what_the_mode_has_is_missed_no_matter_who_stopped_it():
    stopped = engine(unit=NO_UNIT, engine={"seconds": 9.0, "stopped_by": "teardown", "last_end": "run 1 was stopped by teardown"})
    (finding,) = judging.judge(seen(engines=[stopped]), DECLARED, None, NOW).firing
    assert "was stopped by teardown" in finding.text
    gone = engine(unit=NO_UNIT, engine={**stopped["engine"], "last_end": ""})
    assert "nothing of it is on this node" in judging.judge(seen(engines=[gone]), DECLARED, None, NOW).firing[0].text


@pytest.mark.parametrize(
    ("unit", "stopped_by", "reported"),
    [(NO_UNIT, "", True), (NO_UNIT, "teardown", False), ({**UNIT, "state": "stopped"}, "", False),
     ({**UNIT, "state": "failed", "reason": "it ended"}, "", True)],
)
def test_without_a_mode_an_engine_is_missed_unless_it_was_stopped(unit: dict[str, t.Any], stopped_by: str, reported: bool):
    ended = engine(of_mode=False, unit=unit, engine={"seconds": 9.0, "stopped_by": stopped_by, "last_end": "run 1 ended"})
    assert bool(firing(seen(mode=None, engines=[ended]))) is reported


def test_a_worker_beside_ray_is_well_while_its_container_runs():
    assert firing(seen(engines=[engine(role="worker", runs=True)])) == []
    assert firing(seen(engines=[engine(role="worker", container="container gb10-gb10-worker is exited")])) == ["engine spark-1"]


def test_what_cannot_be_found_out_is_no_pass():
    assert firing(seen(engines=[engine(error="its state is unknown: Docker does not answer")])) == ["engine spark-1"]
    (finding,) = judging.judge(seen(errors=["the engines of this node are not known", "it cannot write"]), DECLARED, None, NOW).firing
    assert finding == ("sweep", "the engines of this node are not known; it cannot write", 0, 0, False)
    assert firing(seen(memory={"available_mb": 0, "error": "the available memory is unknown"})) == ["memory"]


# --- memory and the others ----------------------------------------------------------------------------------------------


def test_memory_below_the_floor_is_reported_and_none_with_a_floor_of_nothing():
    low = seen(memory={"available_mb": 2047, "error": ""})
    assert firing(low) == ["memory"] and firing(seen(memory={"available_mb": 2048, "error": ""})) == [] and firing(low, floor_gib=0) == []


def test_a_node_that_is_gone_is_reported_and_one_that_may_be_busy_only_when_it_lasts():
    gone = {"id": "node spark-2", "well": False, "text": "it does not answer: 10.0.0.2 port 22: No route to host", "silent": False}
    assert firing(seen(asked=[gone])) == ["node spark-2"]
    busy = seen(asked=[{**gone, "silent": True}])
    _kinds, state = sweep(busy, None, NOW)
    assert firing(busy) == [] and firing(busy, state, NOW + QUARTER) == ["node spark-2"]


def test_a_text_of_many_lines_is_one_line_of_bearable_length():
    message = judging.judge(seen(asked=[{**SPEECH, "text": "a\nb " + "c" * 5000}]), DECLARED, None, NOW).messages["ops"]
    assert len(message.lines) == 1 and "\n" not in message.lines[0] and len(message.lines[0]) < 600
