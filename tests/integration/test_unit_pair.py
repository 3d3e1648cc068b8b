# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pair's units bring it back after a reboot of either node or both, with Ray and without, and once after a hard kill. Then they do not, and say why."""

from __future__ import annotations

import typing as t

import pytest

from .lab import HEAD, WORKER, Lab, Play
from .making import cut_power, reboot
from .test_unit import SECOND, active, await_settled, await_state, forget_boots, state, unit

CLUSTER = "gb10"
UNIT = unit(CLUSTER)
#: Seconds that the head waits at most for a worker that does not come back.
WAIT = 200


class Pair:
    """The pair with the units that every bring-up sets up, under one executor."""

    def __init__(self, lab: Lab, executor: str) -> None:
        self.lab = lab
        own = {"gb10_profile": "lab_tiny_native_tp2"} if executor == "native" else {}
        self.variables: dict[str, t.Any] = {"gb10_serve_timeout": WAIT, **own}

    def up(self) -> Play:
        played = self.lab.play("serve", **self.variables)
        assert played.rc == 0, played.failures
        return played

    def serves(self) -> bool:
        played = self.lab.play("status", **self.variables)
        assert played.rc == 0, played.failures
        return played.stat("gb10_health") == "serving"

    def both_active(self) -> bool:
        return (active(self.lab, HEAD, UNIT), active(self.lab, WORKER, UNIT)) == ("active", "active")

    def runs_again(self, host: str) -> bool:
        """Return whether a node's unit has started its part a second time since the boot."""
        noted = state(self.lab, host, CLUSTER)
        assert noted["state"] != "failed", noted
        return (noted["state"], noted["tries"]) == ("running", 2) and active(self.lab, host, UNIT) == "active"

    def await_again(self, host: str) -> None:
        await_state(self.lab, host, UNIT, lambda: self.runs_again(host))

    def await_failed(self, host: str, seconds: float) -> str:
        """Wait until a node's unit has failed, and return the reason."""
        await_state(self.lab, host, UNIT, lambda: active(self.lab, host, UNIT) == "failed", seconds)
        return state(self.lab, host, CLUSTER)["reason"]


@pytest.fixture(scope="module", params=["native", "ray"])
def pair(lab: Lab, request: pytest.FixtureRequest) -> t.Iterator[Pair]:
    lab.clear()
    made = Pair(lab, request.param)
    made.up()
    yield made
    gone = lab.play("teardown", gb10_allow="interrupt", **made.variables)
    assert gone.rc == 0, gone.failures
    for host in (HEAD, WORKER):
        assert lab.run(host, "sh", "-c", f"ls /etc/systemd/system/{UNIT} /var/lib/gb10/{CLUSTER}/unit 2>/dev/null || echo none").strip() == "none"


def test_a_second_run_changes_nothing(pair: Pair) -> None:
    assert pair.both_active()
    assert pair.up().changed == {}
    checked = pair.lab.play("serve", check=True, **pair.variables)
    assert (checked.rc, checked.changed) == (0, {}), checked.said


def test_the_worker_reboots_and_the_head_starts_the_engine_once_more(pair: Pair) -> None:
    reboot(WORKER)
    assert await_settled(pair.lab, WORKER, UNIT) == "active"
    pair.await_again(HEAD)
    assert pair.serves()
    assert pair.up().changed == {}


def test_both_reboot_and_come_back_in_order(pair: Pair) -> None:
    reboot(HEAD, WORKER)
    assert (await_settled(pair.lab, HEAD, UNIT), await_settled(pair.lab, WORKER, UNIT)) == ("active", "active")
    assert pair.serves()
    assert pair.up().changed == {}


def test_the_head_reboots_and_the_worker_joins_it_again(pair: Pair) -> None:
    reboot(HEAD)
    assert await_settled(pair.lab, HEAD, UNIT) == "active"
    pair.await_again(WORKER)
    assert pair.serves()
    assert pair.up().changed == {}


def test_a_play_brings_up_what_a_unit_waits_for(pair: Pair) -> None:
    pair.lab.run(WORKER, "systemctl", "disable", UNIT)
    reboot(HEAD, WORKER)
    await_state(pair.lab, HEAD, UNIT, lambda: WORKER in state(pair.lab, HEAD, CLUSTER)["reason"])
    assert active(pair.lab, HEAD, UNIT) == "activating"
    assert pair.lab.run(HEAD, "sh", "-c", f"ls /var/lib/gb10/{CLUSTER}/lock.json 2>/dev/null || echo none").strip() == "none"
    pair.up()
    assert pair.both_active() and pair.serves()
    assert pair.up().changed == {}


def test_a_worker_that_loses_its_power_comes_back_and_the_head_starts_the_engine_once_more(pair: Pair) -> None:
    forget_boots(pair.lab, HEAD, WORKER)
    cut_power(WORKER)
    assert await_settled(pair.lab, WORKER, UNIT) == "active"
    assert "did not shut down cleanly" in state(pair.lab, WORKER, CLUSTER)["reason"]
    pair.await_again(HEAD)
    assert pair.serves()
    assert pair.up().changed == {}


def test_both_lose_their_power_and_come_back_once_and_a_second_time_the_pair_stays_down_and_says_why(pair: Pair) -> None:
    forget_boots(pair.lab, HEAD, WORKER)
    cut_power(HEAD, WORKER)
    assert (await_settled(pair.lab, HEAD, UNIT), await_settled(pair.lab, WORKER, UNIT)) == ("active", "active")
    assert pair.serves()
    assert pair.up().changed == {}
    cut_power(WORKER)
    assert await_settled(pair.lab, WORKER, UNIT) == "failed"
    assert SECOND in state(pair.lab, WORKER, CLUSTER)["reason"]
    shown = pair.lab.play("status", **pair.variables)
    assert SECOND in shown.said and shown.stat("gb10_health") != "serving"
    why = pair.await_failed(HEAD, WAIT + 200)
    assert WORKER in why, why
