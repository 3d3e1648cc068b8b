# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Curves of available memory, replayed: no healthy one makes the guard act, each collapse does.

They are data, which says whose record each is; the lab's guard is shown the steepest seconds of the healthy ones, too.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
import yaml
from ansible_collections.gb10.cluster.plugins.module_utils._guard.trend import (
    KIB_PER_GIB,
    LOADING,
    NONE,
    SERVING,
    Order,
    Sample,
    Watch,
    rate,
    reaches,
)

CURVES = yaml.safe_load((Path(__file__).parents[3] / "fixtures" / "guard" / "curves.yml").read_text(encoding="utf-8"))
#: (seconds, GiB available) of points on a curve, by what was recorded.
HEALTHY = {one["name"]: one["points"] for one in CURVES["healthy"]}
COLLAPSES = {one["name"]: one["points"] for one in CURVES["collapses"]}


def curve(points: list[tuple[float, float]], seed: int = 0, noise: float = 0.02) -> list[Sample]:
    """Samples of every second on the lines between the points, with a little noise (GiB) and a clock that is never exact."""
    chance = random.Random(seed)
    found = []
    for (begin, level), (end, after) in itertools.pairwise(points):
        for step in range(int(begin), int(end)):
            share = (step - begin) / (end - begin)
            gib = level + (after - level) * share + chance.uniform(-noise, noise)
            found.append(Sample(step + chance.uniform(0, 0.02), int(gib * KIB_PER_GIB)))
    return [*found, Sample(points[-1][0], int(points[-1][1] * KIB_PER_GIB))]


def played(samples: list[Sample], phase: str = LOADING, act: str = "loading") -> list[tuple[Sample, Order]]:
    watch = Watch(act=act)
    orders = ((sample, watch.feed(sample.at, sample.available, phase)) for sample in samples)
    return [(sample, order) for sample, order in orders if order]


def test_there_are_enough_curves() -> None:
    assert len(HEALTHY) >= 10 and len(COLLAPSES) >= 4 and all(one["source"] for one in CURVES["healthy"])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_curve_causes_nothing(name: str, seed: int) -> None:
    for phase in (LOADING, SERVING):
        assert played(curve(HEALTHY[name], seed), phase, "always") == []


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", COLLAPSES)
def test_a_collapse_is_met_before_the_floor_and_ended_when_it_goes_on(name: str, seed: int) -> None:
    orders = played(curve([*COLLAPSES[name], (COLLAPSES[name][-1][0] + 8, 0.2)], seed))
    assert [order.what for _sample, order in orders[:2]] == ["term", "kill"]
    first, second = (sample for sample, _order in orders[:2])
    assert first.available > 2 * KIB_PER_GIB
    assert 5 <= second.at - first.at <= 6.1


def test_what_ends_when_it_is_asked_is_not_killed() -> None:
    points = [(0, 29), (20, 29), (26, 13.9), (27, 30), (60, 110)]
    assert [order.what for _sample, order in played(curve(points))] == ["term"]


def test_a_collapse_while_serving_is_only_told_unless_it_was_asked_for() -> None:
    points = COLLAPSES["29 to 6.3 GiB in 9 s"]
    assert [order.what for _sample, order in played(curve(points), SERVING)] == ["would"]
    assert [order.what for _sample, order in played(curve(points), SERVING, "always")][:1] == ["term"]
    assert [order.what for _sample, order in played(curve(points), LOADING, "never")] == ["would"]
    assert [order.what for _sample, order in played(curve(points), NONE)] == ["would"]


def test_a_second_collapse_is_met_as_well() -> None:
    once = curve([*COLLAPSES["29 to 6.3 GiB in 9 s"][:3], (30, 60), (90, 60)])
    later = [Sample(one.at + 100, one.available) for one in once]
    assert [order.what for _sample, order in played([*once, *later])] == ["term", "term"]


def test_samples_that_come_late_are_judged_by_their_times() -> None:
    """Under heavy I/O a second may take three."""
    level = [29, 29, 29, 23, 17, 11, 5]
    samples = [Sample(3.0 * index, gib * KIB_PER_GIB) for index, gib in enumerate(level)]
    assert [order.what for _sample, order in played(samples)][:1] == ["term"]


def test_sawteeth_that_are_seen_late_are_no_collapse() -> None:
    """In the lab, on a machine with six times the work that it had processors for, sawteeth ended a rank: falls were seen for longer than rises."""
    teeth = [8.0, 11.0, 12.0, 14.0]
    assert not reaches([Sample(at, int(gib * KIB_PER_GIB)) for at, gib in zip(teeth, (5, 3.2, 5, 3.2))], Watch().policy)
    for seed in range(500):
        chance = random.Random(seed)
        at, samples = 0.0, []
        while at < 30:
            samples.append(Sample(at, int((5 if int(at) % 4 < 2 else 3.2) * KIB_PER_GIB)))
            at += chance.choice([1, 1, 1, 1.3, 2, 3, 4, 6])
        assert played(samples) == [], seed


def test_a_rate_is_that_of_the_line_and_two_samples_are_no_trend() -> None:
    samples = [Sample(float(second), 1000 - 10 * second) for second in range(6)]
    assert rate(samples) == pytest.approx(-10)
    assert rate(samples[:1]) == 0
    assert not reaches(samples[:2], Watch().policy)
