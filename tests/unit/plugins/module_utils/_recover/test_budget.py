# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When a recovery may act: budget, pauses and a person's pause, by a clock that cannot be set."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._recover import budget
from ansible_collections.gb10.cluster.plugins.module_utils._recover.budget import Moment

BOOT = "b"
HOUR = 3600.0
#: Three days after a boot.
NOW = Moment(BOOT, 72 * HOUR)


def ago(*seconds: float) -> list[dict[str, t.Any]]:
    """Recoveries so many seconds ago, the oldest first."""
    return [{"boot_id": BOOT, "at_s": NOW.at_s - since} for since in seconds]


@pytest.mark.parametrize(
    ("history", "why"),
    [
        (ago(), ""),
        (ago(299), "the last recovery was 299 s ago, and the next one waits for 300 s"),
        (ago(300), ""),
        (ago(5 * HOUR), ""),
        (ago(7 * HOUR, 1799), "the last recovery was 1799 s ago, and the next one waits for 1800 s"),
        (ago(7 * HOUR, 1800), ""),
        (ago(6 * HOUR - 1, 1800), "the budget of 2 recoveries within 6 h is used up. Run the doctor, then mode"),
        (ago(6 * HOUR, 1800), ""),
        (ago(20 * HOUR, 10 * HOUR, 7 * HOUR), "the budget of 3 recoveries within 24 h is used up. Run the doctor, then mode"),
        (ago(24 * HOUR - 1, 10 * HOUR, 7 * HOUR), "the budget of 3 recoveries within 24 h is used up. Run the doctor, then mode"),
        (ago(24 * HOUR, 10 * HOUR, 7 * HOUR), ""),
        (ago(20 * HOUR, 5 * HOUR, 1 * HOUR), "the budget of 2 recoveries within 6 h is used up. Run the doctor, then mode"),
        # What is older than a day does not count for the pauses either.
        (ago(30 * HOUR, 26 * HOUR, 400), ""),
    ],
)
def test_a_budget_and_its_pauses(history: list[dict[str, t.Any]], why: str) -> None:
    assert budget.why_not(history, NOW) == why


def test_an_earlier_boot_is_at_least_as_old_as_this_one() -> None:
    earlier = [{"boot_id": "a", "at_s": 9e9}, {"boot_id": "a", "at_s": 9e9}]
    assert "2 recoveries within 6 h" in budget.why_not(earlier, Moment(BOOT, 6 * HOUR - 1))
    assert budget.why_not(earlier, Moment(BOOT, 6 * HOUR)) == ""
    # A clock that runs backwards does not make an entry older.
    assert Moment(BOOT, 10.0).age({"boot_id": BOOT, "at_s": 20.0}) == 0.0


def test_shortened_times() -> None:
    assert NOW._replace(scale=60.0).age(ago(9)[0]) == 540.0
    assert "the last recovery was 240 s ago" in budget.why_not(ago(4), NOW._replace(scale=60.0))
    assert budget.why_not(ago(5), NOW._replace(scale=60.0)) == ""


def test_what_is_left_and_what_is_forgotten() -> None:
    history = ago(25 * HOUR, 10 * HOUR, 1 * HOUR)
    assert budget.left(history, NOW) == "budget left: 1 in 6 h, 1 in 24 h"
    assert budget.left([], NOW) == "budget left: 2 in 6 h, 3 in 24 h"
    assert budget.left(ago(4, 3, 2, 1), NOW) == "budget left: 0 in 6 h, 0 in 24 h"
    assert budget.recent(history, NOW) == history[1:]


@pytest.mark.parametrize(
    ("text", "since", "shown"),
    [
        ("2h upgrading the switch", 0, "a person paused it for 120 min more: upgrading the switch"),
        ("2h upgrading the switch", 7140, "a person paused it for 1 min more: upgrading the switch"),
        ("2h upgrading the switch", 7200, ""),
        ("30m x", 600, "a person paused it for 20 min more: x"),
        ("1d x", 0, "a person paused it for 1440 min more: x"),
    ],
)
def test_a_pause_ends(text: str, since: float, shown: str) -> None:
    assert budget.paused({"text": text, **ago(since)[0]}, NOW) == shown


def test_a_reboot_begins_a_pause_again_and_there_may_be_none() -> None:
    pause = {"text": "2h x", "boot_id": "a", "at_s": 5.0}
    assert budget.paused(pause, Moment(BOOT, 7199.0)) and not budget.paused(pause, Moment(BOOT, 7200.0))
    assert budget.paused({}, NOW) == ""
    assert budget.paused({**pause, "text": "2h upgrading"}, Moment("a", 65.0, 60.0)).startswith("a person paused it for 60 min more")


@pytest.mark.parametrize("text", ["2h", "2h ", "h x", "0h x", "2 h x", "2w x", "2h  x", "12345h x", "2h x\ny", "-2h x", " 2h x"])
def test_another_form_is_not_a_pause(text: str) -> None:
    assert not budget.PAUSE.match(text) and not budget.is_act(f"paused {text}")


def test_what_the_setting_may_be() -> None:
    assert all(map(budget.is_act, ("observe", "restart", "none", "paused 2h x")))
    assert not any(map(budget.is_act, ("", "paused", "paused ", "Paused 2h x", "2h x", "restart 2h x")))
