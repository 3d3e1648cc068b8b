# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures made in every stage of real starts: the play names the first that failed, on its node, and why. And none without one."""

from __future__ import annotations

import pytest

from .fault import BOTH, Fault
from .injecting import INJECTIONS, Injection, full_log_disk, injected
from .lab import HEAD, RUN, WORKER, Lab, Once, Play

#: Seconds of every start after a failure, each with all watches and without an alarm.
STARTS: list[float] = []


@pytest.fixture(scope="module", autouse=True)
def nodes_with_image(lab: Lab) -> None:
    """Image and model are on the nodes: the plays of these tests begin after those stages."""
    lab.up()


def comes_up(fault: Fault) -> Play:
    """The next run completes; a start of its own is counted."""
    played = fault.completes()
    if played.changed:
        STARTS.append(played.seconds)
    return played


@pytest.mark.parametrize("one", [one for one in INJECTIONS if one.known], ids=lambda one: one.id)
def test_a_failure_that_nothing_mends_is_the_first_and_the_engine_stopped(lab: Lab, no_cluster: None, fault: Fault, one: Injection) -> None:
    with injected(lab, one) as found:
        fault.now(found.at)
        fault.answered(found.play, "First to fail: ", where=one.host)
        fault.row.seconds = f"{found.seconds:.1f}"
        assert found.names(one.host) and found.first["id"] in one.ids and found.first["remedy"] and found.known, found.first
        fault.left(stopped=BOTH)
    comes_up(fault)


@pytest.mark.parametrize("one", [one for one in INJECTIONS if not one.known], ids=lambda one: one.id)
def test_what_may_go_on_is_named_and_the_engine_left_running(lab: Lab, no_cluster: None, fault: Fault, one: Injection) -> None:
    """A person did that, and may undo it: the next run takes the engine over."""
    with injected(lab, one) as found:
        fault.now(found.at)
        fault.answered(found.play, "First to fail: ", "The engine runs on: nothing proves that it cannot serve" if one.lasts else "", where=one.host)
        fault.row.seconds = f"{found.seconds:.1f}"
        assert found.names(one.host) and found.first["id"] in one.ids and found.first["remedy"] and not found.known, found.first
        run = lab.json(HEAD, RUN)["run_id"]
        if one.lasts:
            fault.left(live=True)
    comes_up(fault)
    assert not one.lasts or lab.json(HEAD, RUN)["run_id"] == run


def test_a_full_disk_for_logs_is_found_before_an_engine_starts(lab: Lab, no_cluster: None, fault: Fault) -> None:
    """No engine that fails later without a log of why; the play names the directory and what makes room."""
    with full_log_disk(lab, HEAD) as full:
        played = lab.play(tags="ray,serve", on_output=full)
        full.join()
        fault.now(full.at)
        fault.answered(played, "No space left on device", "no engine was started or stopped", "Make room on that file system", where=HEAD)
        fault.left(stopped=BOTH)
    comes_up(fault)


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


def test_ten_starts_without_a_false_alarm(lab: Lab, fault: Fault) -> None:
    """Those after the failures count; where these tests did not run, there are as many starts more."""
    while len(STARTS) < 10:
        lab.clear()
        comes_up(fault)
    fault.row.seconds, fault.row.where = "none", f"{len(STARTS)} starts, the longest {max(STARTS):.0f} s"
