# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures are injected into every stage of real starts. The play names the first failure, its node and its cause, and reports none without a failure."""

from __future__ import annotations

import pytest

from .fault import BOTH, Fault
from .injecting import INJECTIONS, Injection, full_log_disk, injected
from .lab import HEAD, RUN, WORKER, Lab, Once, Play

pytestmark = pytest.mark.usefixtures("without_units")

#: Seconds of every start after a failure. Each start had all checks active and raised no alarm.
STARTS: list[float] = []


@pytest.fixture(scope="module", autouse=True)
def nodes_with_image(lab: Lab) -> None:
    """Nodes with image and model. The plays of these tests begin after those stages."""
    lab.up()


def comes_up(fault: Fault) -> Play:
    """Assert that the next run completes. Record its seconds if it started an engine."""
    played = fault.completes()
    if played.changed:
        STARTS.append(played.seconds)
    return played


@pytest.mark.parametrize("injection", [injection for injection in INJECTIONS if injection.known], ids=lambda injection: injection.id)
def test_a_failure_that_nothing_mends_is_the_first_and_the_engine_stopped(lab: Lab, no_cluster: None, fault: Fault, injection: Injection) -> None:
    with injected(lab, injection) as outcome:
        fault.now(outcome.at)
        fault.answered(outcome.play, "First to fail: ", where=injection.host)
        fault.row.seconds = f"{outcome.seconds:.1f}"
        assert outcome.names(injection.host) and outcome.first["id"] in injection.ids and outcome.first["remedy"] and outcome.known, outcome.first
        fault.left(stopped=BOTH)
    comes_up(fault)


@pytest.mark.parametrize("injection", [injection for injection in INJECTIONS if not injection.known], ids=lambda injection: injection.id)
def test_what_may_go_on_is_named_and_the_engine_left_running(lab: Lab, no_cluster: None, fault: Fault, injection: Injection) -> None:
    """A person caused the failure and may undo it, so the next run takes over the engine."""
    with injected(lab, injection) as outcome:
        fault.now(outcome.at)
        fault.answered(
            outcome.play, "First to fail: ", "The engine runs on: nothing proves that it cannot serve" if injection.lasts else "", where=injection.host
        )
        fault.row.seconds = f"{outcome.seconds:.1f}"
        assert outcome.names(injection.host) and outcome.first["id"] in injection.ids and outcome.first["remedy"] and not outcome.known, outcome.first
        run = lab.json(HEAD, RUN)["run_id"]
        if injection.lasts:
            fault.left(live=True)
    comes_up(fault)
    assert not injection.lasts or lab.json(HEAD, RUN)["run_id"] == run


def test_a_full_disk_for_logs_is_found_before_an_engine_starts(lab: Lab, no_cluster: None, fault: Fault) -> None:
    """No engine is started that would later fail without a log. The play names the directory and how to make room."""
    with full_log_disk(lab, HEAD) as full:
        played = lab.play(tags="ray,serve", on_output=full)
        full.join()
        fault.now(full.at)
        fault.answered(played, "No space left on device", "no engine was started or stopped", "Make room on that file system", where=HEAD)
        fault.left(stopped=BOTH)
    comes_up(fault)


def test_a_minute_without_ssh_while_it_starts_is_waited_for(lab: Lab, no_cluster: None, fault: Fault) -> None:
    """As reported of nodes that load weights: existing sessions hang and new ones are not accepted."""
    rule = ("INPUT", "-p", "tcp", "--dport", "22", "-j", "DROP")

    def starve() -> None:
        lab.run(WORKER, "iptables", "-w", "-I", *rule)
        lab.run(WORKER, "systemd-run", "--quiet", "--on-active=60", "iptables", "-w", "-D", *rule)

    cut = Once(f"{HEAD}: starting", starve)
    try:
        played = lab.play(on_output=cut)
        cut.join()
    finally:
        # The rule is already removed after the minute.
        lab.run(WORKER, "iptables", "-w", "-D", *rule, check=False)
    assert played.rc == 0, played.failures
    fault.row.seconds, fault.row.where = "none", WORKER
    fault.left(live=True)
    assert not fault.completes().changed


def test_ten_starts_without_a_false_alarm(lab: Lab, fault: Fault) -> None:
    """The starts after the failures count. If those tests did not run, more starts are made here."""
    while len(STARTS) < 10:
        lab.clear()
        comes_up(fault)
    fault.row.seconds, fault.row.where = "none", f"{len(STARTS)} starts, the longest {max(STARTS):.0f} s"
