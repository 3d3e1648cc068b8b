# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Curves of available memory, replayed: no healthy one makes the guard act, each collapse does.

Levels and durations of the healthy ones are those of public records; each says which. What lies between two recorded points is drawn as a line.
"""

from __future__ import annotations

import itertools
import random

import pytest
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

#: (seconds, GiB available) of points on a curve, by what was recorded.
HEALTHY = {
    # luisefigueroa/pulsar-gb10-vllm-stack, 2026-08-01: a pair that served for eight hours.
    "serving at 3.5 to 4.4 GiB": [(0, 4.4), (60, 3.9), (120, 4.2), (200, 3.5), (201, 4.0), (300, 3.5)],
    # The same stack, 2026-07-31: 17062880 kB, then 15889620 a minute later.
    "serving under load": [(0, 16.27), (60, 15.15), (120, 15.22), (180, 15.19), (240, 15.17)],
    # DeepSeek-V4-Flash on two nodes: 75.86 GiB a node in 146.9 s, the drafter in 19.9, graphs in 5.
    "a load of 75.86 GiB in 147 s": [(0, 117), (147, 41.1), (167, 38), (185, 38), (190, 36), (222, 12), (300, 12)],
    # Nemotron-3-Super-120B: 75.03 GiB in 529.8 s.
    "a load of 75 GiB in 530 s": [(0, 116), (530, 41), (607, 39), (680, 25), (760, 25)],
    # Qwen3.6-35B-A3B: 21.82 GiB in 167 s, then 73.13 GiB for the KV cache. How fast that is taken was not recorded: three seconds.
    "73 GiB for KV in three seconds": [(0, 117), (167, 95.2), (281, 93), (320, 93), (323, 19.9), (420, 19.9)],
    # The same in eight seconds, as it ends above 16 GiB.
    "73 GiB for KV in eight seconds": [(0, 95), (30, 93), (38, 19.9), (120, 19.9)],
    "40 GiB for KV in one second": [(0, 60), (30, 60), (31, 20), (90, 20)],
    # Triton and TileLang at the first request: eight seconds.
    "a first request that compiles": [(0, 12), (8, 10.5), (60, 10.5)],
    # Memory of a stopped engine comes back within six seconds, and the next one loads 34.22 GiB in 82.7 s.
    "stop and start": [(0, 6), (6, 117), (30, 117), (113, 82.8), (140, 82.8)],
    # Graphs and warm-up in sawteeth.
    "sawteeth of 2 GiB at 5 GiB": [(second, 5 if second % 4 < 2 else 3.2) for second in range(60)],
    "a slow leak of 1 GiB a minute down to 3 GiB": [(0, 20), (1020, 3)],
    "idle": [(0, 117.5), (300, 117.4)],
}  # fmt: skip

COLLAPSES = {
    # Reported: from 29 to 6.3 GiB in 9 s. The same fall goes on here.
    "29 to 6.3 GiB in 9 s": [(0, 29), (20, 29), (29, 6.3), (31, 1.3)],
    "in steps": [(0, 29), (10, 29), (11, 28.5), (12, 24), (13, 20), (14, 19.8), (15, 14), (16, 9), (17, 6.3), (18, 3)],
    "a slow one near the floor": [(0, 8), (30, 8), (60, 3.5), (90, 0.5)],
    "from far above": [(0, 100), (10, 100), (20, 20), (23, 0.5)],
}


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


def test_a_rate_is_that_of_the_line_and_two_samples_are_no_trend() -> None:
    samples = [Sample(float(second), 1000 - 10 * second) for second in range(6)]
    assert rate(samples) == pytest.approx(-10)
    assert rate(samples[:1]) == 0
    assert not reaches(samples[:2], Watch().policy)
