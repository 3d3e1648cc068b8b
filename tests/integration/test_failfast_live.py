# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Engines that stand still for a while, or for good: a start that says nothing, and all that can happen to a live one, which status names."""

from __future__ import annotations

import json
import time

import pytest

from .fault import STATE, Fault
from .injecting import HOLD, LIVE, TO_SERVE, Injection, in_container, make_holdable, noticed
from .lab import HEAD, RUN, WORKER, Lab, Once, Play
from .making import WORKER_CONTAINER, busy

#: What a look that waited in vain for a token leaves for the next one.
NOTE = f"{STATE}/no-progress.json"


@pytest.fixture(scope="module")
def silent(lab: Lab) -> Play:
    """A start that says nothing for five minutes. The ranks of its engine can be held up again before they meet."""

    def hold() -> None:
        make_holdable(lab)
        in_container(lab, WORKER, "touch", HOLD)
        lab.run(WORKER, "systemd-run", "--quiet", "--on-active=300", "docker", "exec", WORKER_CONTAINER, "rm", HOLD)

    lab.clear()
    held = Once(TO_SERVE, hold)
    played = lab.play(on_output=held)
    held.join()
    return played


def test_a_start_that_says_nothing_for_minutes_is_waited_for(silent: Play, fault: Fault) -> None:
    """No line, nothing read, one rank rests and the other waits for it in a loop: as while kernels are compiled, for which 254 s were reported."""
    assert silent.rc == 0, silent.failures
    fault.row.seconds, fault.row.where = "none", WORKER
    fault.left(live=True)
    assert not fault.completes().changed


def later(lab: Lab, seconds: float) -> None:
    """Let so many seconds have passed since what a look without a token has noted, if one did."""
    if lab.run(HEAD, "find", STATE, "-name", "no-progress.json").strip():
        note = lab.json(HEAD, NOTE)
        lab.write(HEAD, NOTE, json.dumps({**note, "since": note["since"] - seconds}))


def test_an_hour_at_full_batch_is_busy(lab: Lab, silent: Play, fault: Fault) -> None:
    """Twice as many requests as the engine takes at a time, so that a new question waits in line. The hour is passed as the next test passes its minutes."""
    run = lab.json(HEAD, RUN)
    healths = []
    with busy(lab, f"http://{run['api_address']}:{run['api_port']}/v1", requests=16):
        for _quarter in range(4):
            healths.append(lab.play("status", __gb10_status_seconds=5).stat("gb10_health"))
            later(lab, 900)
    fault.row.seconds, fault.row.where = "none", f"both, {', '.join(healths)}"
    assert "busy" in healths and set(healths) <= {"busy", "serving"}, healths
    assert lab.play("status").stat("gb10_health") == "serving"
    assert not fault.completes().changed


def test_what_stands_still_is_stalled_after_half_an_hour_and_no_sooner(lab: Lab, silent: Play, fault: Fault) -> None:
    """The half hour is taken off what the first look has noted."""
    in_container(lab, WORKER, "touch", HOLD)
    try:
        assert lab.play("status", __gb10_status_seconds=5).stat("gb10_health") == "unknown"
        # A healthy prefill of 1,232 s looks like that from outside.
        for further, state in ((1500, "unknown"), (300, "stalled")):
            later(lab, further)
            assert lab.play("status", __gb10_status_seconds=5).stat("gb10_health") == state
    finally:
        in_container(lab, WORKER, "rm", HOLD)
    assert lab.play("status").stat("gb10_health") == "serving"
    assert not fault.completes().changed


@pytest.mark.parametrize("one", LIVE, ids=lambda one: one.id)
def test_status_names_what_happened_under_a_live_engine(lab: Lab, silent: Play, fault: Fault, one: Injection) -> None:
    """An engine that was killed is restarted without the way to hold its ranks up: those come last."""
    run = lab.json(HEAD, RUN)["run_id"]
    fault.now(time.time())
    try:
        found = noticed(lab, one)
    finally:
        one.undo(lab)
    fault.row.seconds, fault.row.where, fault.row.left = f"{found.seconds:.1f}", one.host, found.play.stat("gb10_health")
    if one.known or not one.lasts:
        # A node whose container is replaced loses the way to hold its rank up, and the other one would wait for it to meet.
        lab.clear()
    fault.completes()
    assert one.known or not one.lasts or lab.json(HEAD, RUN)["run_id"] == run
