# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Engines that make no progress for a while, or forever: a silent start, and failures of a live engine, which status names."""

from __future__ import annotations

import json
import time

import pytest

from .fault import STATE, Fault
from .injecting import HOLD, LIVE, TO_SERVE, Injection, in_container, make_holdable, noticed
from .lab import HEAD, RUN, WORKER, Lab, Once, Play
from .making import WORKER_CONTAINER, busy

pytestmark = pytest.mark.usefixtures("without_units")

#: The note that status leaves for its next run when it waited in vain for a token.
NOTE = f"{STATE}/no-progress.json"


@pytest.fixture(scope="module")
def silent(lab: Lab) -> Play:
    """A start that is silent for five minutes. Its ranks can be held again later, before they meet."""

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
    """No output and no reads, one rank idles and the other waits in a loop. It looks like the compilation of kernels, for which 254 s were reported."""
    assert silent.rc == 0, silent.failures
    fault.row.seconds, fault.row.where = "none", WORKER
    fault.left(live=True)
    assert not fault.completes().changed


def later(lab: Lab, seconds: float) -> None:
    """Move the note of a status run without a token back by this many seconds, if there is one."""
    if lab.run(HEAD, "find", STATE, "-name", "no-progress.json").strip():
        note = lab.json(HEAD, NOTE)
        lab.write(HEAD, NOTE, json.dumps({**note, "since": note["since"] - seconds}))


def test_an_hour_at_full_batch_is_busy(lab: Lab, silent: Play, fault: Fault) -> None:
    """Twice as many requests as the engine runs at a time, so that a new one has to wait. As in the next test, the note is moved back to simulate the hour."""
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
    """The note of the first status run is moved back to simulate the half hour."""
    in_container(lab, WORKER, "touch", HOLD)
    try:
        assert lab.play("status", __gb10_status_seconds=5).stat("gb10_health") == "unknown"
        # A healthy prefill of 1,232 s looks the same from outside.
        for further, state in ((1500, "unknown"), (300, "stalled")):
            later(lab, further)
            assert lab.play("status", __gb10_status_seconds=5).stat("gb10_health") == state
    finally:
        in_container(lab, WORKER, "rm", HOLD)
    assert lab.play("status").stat("gb10_health") == "serving"
    assert not fault.completes().changed


@pytest.mark.parametrize("injection", LIVE, ids=lambda injection: injection.id)
def test_status_names_what_happened_under_a_live_engine(lab: Lab, silent: Play, fault: Fault, injection: Injection) -> None:
    """A restarted engine can no longer be held, so the injections that kill an engine come last."""
    run = lab.json(HEAD, RUN)["run_id"]
    fault.now(time.time())
    try:
        outcome = noticed(lab, injection)
    finally:
        injection.undo(lab)
    fault.row.seconds, fault.row.where, fault.row.left = f"{outcome.seconds:.1f}", injection.host, outcome.play.stat("gb10_health")
    if injection.known or not injection.lasts:
        # A replaced container's rank can no longer be held, and the other rank would wait for it to meet.
        lab.clear()
    fault.completes()
    assert injection.known or not injection.lasts or lab.json(HEAD, RUN)["run_id"] == run
