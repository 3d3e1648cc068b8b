# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ranks are killed and stopped in every stage of real starts, and ssh is lost: the play names the first that failed, on its node, and why."""

from __future__ import annotations

import time

import pytest

from .fault import BOTH, Fault
from .injecting import INJECTIONS, RANK, Injection, injected
from .lab import HEAD, RUN, WORKER, Lab, Once


@pytest.mark.parametrize("one", [one for one in INJECTIONS if one.signal == "KILL"], ids=lambda one: one.id)
def test_a_process_that_is_killed_is_the_first_to_fail(lab: Lab, no_cluster: None, fault: Fault, one: Injection) -> None:
    with injected(lab, one) as found:
        fault.now(found.at)
        fault.answered(found.play, f"First to fail: {one.host}", where=one.host)
        fault.row.seconds = f"{found.seconds:.1f}"
        assert found.first["node"] == one.host and found.known, found.first
        fault.left(stopped=BOTH)
    fault.completes()


@pytest.mark.parametrize("one", [one for one in INJECTIONS if one.signal == "STOP"], ids=lambda one: one.id)
def test_a_rank_that_is_stopped_is_named_and_the_engine_left_running(lab: Lab, no_cluster: None, fault: Fault, one: Injection) -> None:
    """Somebody did that, and may let it go on: the next run takes the engine over."""
    with injected(lab, one) as found:
        fault.now(found.at)
        fault.answered(found.play, f"First to fail: {one.host}", "The engine runs on: nothing proves that it cannot serve", where=one.host)
        fault.row.seconds = f"{found.seconds:.1f}"
        assert (found.first["node"], found.first["id"], found.known) == (one.host, "process stopped", False), found.first
        run = lab.json(HEAD, RUN)["run_id"]
        fault.left(live=True)
    fault.completes()
    assert lab.json(HEAD, RUN)["run_id"] == run


def test_a_minute_without_ssh_while_it_starts_is_waited_for(lab: Lab, no_cluster: None, fault: Fault) -> None:
    """As nodes that load weights were reported to do. The sessions that are there hang, and new ones do not come about."""
    rule = ("INPUT", "-p", "tcp", "--dport", "22", "-j", "DROP")

    def starve() -> None:
        lab.run(WORKER, "iptables", "-w", "-I", *rule)
        lab.run(WORKER, "systemd-run", "--quiet", "--on-active=60", "iptables", "-w", "-D", *rule)

    cut = Once(f"{HEAD}: starting", starve)
    try:
        played = lab.play(on_output=cut)
        cut.join()
    finally:
        # It is gone when the minute is over.
        lab.run(WORKER, "iptables", "-w", "-D", *rule, check=False)
    assert played.rc == 0, played.failures
    fault.row.seconds, fault.row.where = "none", WORKER
    fault.left(live=True)
    assert not fault.completes().changed


def test_status_names_a_rank_that_was_killed_under_a_live_engine(lab: Lab, live_cluster: None, fault: Fault) -> None:
    rank = lab.run(WORKER, "pgrep", "--oldest", "--full", RANK).strip()
    lab.run(WORKER, "kill", "-KILL", rank)
    fault.now(time.time())
    played = lab.play("status", gb10_status_seconds=5)
    assert played.stat("gb10_health") in ("dead", "none") and played.stat("gb10_endpoint") == ""
    fault.row.where, fault.row.left = WORKER, played.stat("gb10_health")
    fault.completes()
