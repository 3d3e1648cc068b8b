# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The clock that every wait runs on."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils import _wait


class Time:
    """A clock that only moves when someone sleeps or works."""

    def __init__(self):
        self.now = 100.0
        self.slept = []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def time(monkeypatch):
    fake = Time()
    monkeypatch.setattr(_wait, "time", fake)
    return fake


def test_looks_at_once_then_every_sleep_and_at_the_end(time):
    assert list(_wait.clock(5, 2)) == [0, 2, 4, 5]
    assert time.slept == [2, 2, 1]


def test_no_time_means_one_look(time):
    assert list(_wait.clock(0, 2)) == [0]
    assert time.slept == []


def test_a_slow_look_still_gets_a_last_one(time):
    seen = []
    for elapsed in _wait.clock(5, 2):
        seen.append(elapsed)
        time.now += 4
    assert seen == [0, 5]


def test_leaving_the_loop_sleeps_no_more(time):
    for _elapsed in _wait.clock(60, 2):
        break
    assert time.slept == []
