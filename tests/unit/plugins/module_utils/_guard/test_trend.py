# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Curves of available memory, replayed: no healthy one makes the guard act, each collapse does below the level that its start was expected to end at.

The curves are data with a source for each. The lab's guard also gets the steepest seconds of the healthy ones.
"""

from __future__ import annotations

import random
from pathlib import Path

import guard_curves
import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._guard.trend import (
    KIB_PER_GIB,
    KILL,
    LOADING,
    NONE,
    SERVING,
    TERM,
    WOULD,
    Policy,
    Sample,
    Watch,
    rate,
    reaches,
    recent,
    still_falls,
)
from ansible_collections.gb10.cluster.plugins.module_utils._memory import ending
from guard_curves import CURVES, STEADY, composed, level, played, sampled

#: (seconds, GiB available) of points on a curve, by what was recorded.
HEALTHY = {curve["name"]: curve["points"] for curve in CURVES["healthy"]}
COLLAPSES = {curve["name"]: curve["points"] for curve in CURVES["collapses"]}
FAST = COLLAPSES["29 to 6.3 GiB in 9 s"]
#: Seconds until the memory is back after the signal, and where starts were expected to end, for the table of docs/guard.md.
DELAYS, ENDS = (0.5, 6, 30), (16, 12, 8, 4)


def whats(orders):
    return [order.what for _sample, order in orders]


def test_there_are_enough_curves() -> None:
    assert len(HEALTHY) >= 10 and len(COLLAPSES) >= 4 and all(curve["source"] for curve in CURVES["healthy"])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", HEALTHY)
def test_a_recorded_healthy_curve_ends_no_rank(name: str, seed: int) -> None:
    samples, end = sampled(HEALTHY[name], seed), min(gib for _at, gib in HEALTHY[name])
    for phase in (LOADING, SERVING):
        assert played(samples, level(end), phase, "always") == []
        assert set(whats(played(samples, None, phase, "always"))) <= {WOULD}


@pytest.mark.parametrize("seed", range(200))
def test_a_composed_healthy_start_ends_no_rank(seed: int) -> None:
    """20 to 73 GiB in 2 to 32 s, which end for good at 3.5 to 15 GiB, with samples that are up to 3 s late. The plan may be off by all of its error."""
    start, chance = composed(seed), random.Random(-seed)
    samples, within = sampled(start.points, seed, late=start.late), chance.uniform(0, 8)
    by_plan = ending.below(start.end + chance.uniform(-within, within) - within, "").mb
    assert by_plan is not None
    assert played(samples, level(start.end)) == [] and played(samples, by_plan * 1024) == []
    assert set(whats(played(samples, None))) <= {WOULD}


@pytest.mark.parametrize("start", STEADY)
def test_a_steady_fall_that_ends_low_ends_no_rank(start: guard_curves.Healthy) -> None:
    samples = sampled(start.points)
    assert played(samples, level(start.end)) == [] and set(whats(played(samples, None))) <= {WOULD}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", COLLAPSES)
def test_a_collapse_is_met_before_the_floor_and_ended_when_it_goes_on(name: str, seed: int) -> None:
    samples = sampled([*COLLAPSES[name], (COLLAPSES[name][-1][0] + 8, 0.2)], seed)
    orders = played(samples, level(16))
    assert whats(orders)[:2] == [TERM, KILL]
    first, second = (sample for sample, _order in orders[:2])
    assert 2 * KIB_PER_GIB < first.available < level(16)
    assert 5 <= second.at - first.at <= 6.1


def test_the_level_is_what_is_acted_below() -> None:
    samples = sampled(FAST)
    for end in (16.0, 12.0, 10.0):
        first, order = played(samples, level(end))[0]
        before = max(sample for sample in samples if sample.at < first.at)
        assert order.what == TERM and first.available < level(end) <= before.available
    exact = played(samples, None)[0][0].available
    assert played(samples, exact + 1)[0][0].available == exact and played(samples, exact)[0][0].available < exact, "at the level is not below it"
    assert played(samples, -1) == [], "a start that was expected to take everything looks like none that does"


def test_memory_that_is_back_above_the_level_ends_no_rank_whatever_falls_then() -> None:
    samples = sampled([(0, 29), (20, 29), (27, 11.4), (28, 40), (60, 20)])
    assert whats(played(samples, level(16))) == [TERM] and still_falls([sample for sample in samples if sample.at < 34], Policy())


def test_what_ends_when_it_is_asked_is_not_killed() -> None:
    points = [(0, 29), (20, 29), (27, 11.4), (28, 30), (60, 110)]
    assert whats(played(sampled(points), level(16))) == [TERM]


def test_five_seconds_after_the_signal_what_still_falls_is_killed() -> None:
    samples = falling(29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1)
    (first, _term), (second, _kill) = played(samples, 15 * KIB_PER_GIB)[:2]
    assert (first.at, second.at) == (8.0, 13.0)
    back = falling(29, 27, 25, 23, 21, 19, 17, 15, 13, 19, 18, 17, 16, 15, 15)
    assert whats(played(back, 15 * KIB_PER_GIB)) == [TERM], "at the level is not below it"


def test_ranks_that_are_gone_are_not_killed() -> None:
    """What continues to fall then is foreign."""
    watch, orders = Watch(), []
    for sample in sampled([*FAST, (45, 0.2)]):
        phase = NONE if any(order.what == TERM for order in orders) else LOADING
        if order := watch.feed(sample.at, sample.available, phase, level(16)):
            orders.append(order)
    assert [order.what for order in orders][:1] == [TERM] and KILL not in [order.what for order in orders]


def test_without_a_level_or_consent_it_is_reported_once() -> None:
    samples = sampled(FAST)
    assert whats(played(samples, None)) == [WOULD]
    assert whats(played(samples, None, SERVING, "always")) == [WOULD]
    assert whats(played(samples, level(16), SERVING)) == [WOULD]
    assert whats(played(samples, level(16), SERVING, "always"))[:1] == [TERM]
    assert whats(played(samples, level(16), LOADING, "never")) == [WOULD]
    assert whats(played(samples, level(16), NONE)) == [WOULD] == whats(played(samples, None, NONE))


def test_a_second_collapse_is_met_as_well() -> None:
    once = sampled([*FAST[:3], (30, 60), (90, 60)])
    twice = [*once, *(Sample(sample.at + 100, sample.available) for sample in once)]
    assert whats(played(twice, level(16))) == [TERM, TERM] and whats(played(twice, None)) == [WOULD, WOULD]


def test_samples_that_come_late_are_judged_by_their_times() -> None:
    """Under heavy I/O a second may take three."""
    samples = [Sample(3.0 * index, gib * KIB_PER_GIB) for index, gib in enumerate([29, 29, 29, 23, 17, 11, 5])]
    assert whats(played(samples, level(16)))[:1] == [TERM]


def test_sawteeth_that_are_seen_late_are_no_collapse() -> None:
    """In the lab, on a machine with six times more work than processors, sawteeth ended a rank: falls had more samples than rises."""
    teeth = [8.0, 11.0, 12.0, 14.0]
    assert not reaches([Sample(at, int(gib * KIB_PER_GIB)) for at, gib in zip(teeth, (5, 3.2, 5, 3.2))], Policy())
    for seed in range(500):
        chance = random.Random(seed)
        at, samples = 0.0, []
        while at < 30:
            samples.append(Sample(at, int((5 if int(at) % 4 < 2 else 3.2) * KIB_PER_GIB)))
            at += chance.choice([1, 1, 1, 1.3, 2, 3, 4, 6])
        assert played(samples, level(16)) == [], seed


def falling(*gib: float, step: float = 1.0) -> list[Sample]:
    return [Sample(step * index, int(value * KIB_PER_GIB)) for index, value in enumerate(gib)]


def test_a_rate_is_that_of_the_line_and_two_samples_are_no_trend() -> None:
    samples = [Sample(float(second), 1000 - 10 * second) for second in range(6)]
    assert rate(samples) == pytest.approx(-10)
    assert rate(samples[:2]) == pytest.approx(-10) and rate(samples[:1]) == 0 and rate([]) == 0
    assert rate([Sample(5.0, 100), Sample(5.0, 50)]) == 0
    assert rate(falling(0, 0, 3, 0, 0)) == pytest.approx(0, abs=1e-6) and rate(falling(0, 0, 0, 1)) == pytest.approx(0.3 * KIB_PER_GIB)
    assert not reaches(samples[:2], Policy())


def test_the_newest_samples_reach_back_give_or_take_half_a_second() -> None:
    samples = falling(*range(10))
    assert [sample.at for sample in recent(samples, 3.0)] == [6.0, 7.0, 8.0, 9.0]
    assert [sample.at for sample in recent(falling(0, 1, 2, 3, step=1.25), 3.0)] == [1.25, 2.5, 3.75]
    assert recent(samples, 100.0) == samples


def test_a_trend_needs_its_window_its_samples_and_most_of_its_seconds() -> None:
    policy = Policy()
    steep = falling(15, 13, 11, 9, 7, 5)
    assert reaches(steep, policy) and reaches([Sample(sample.at + 1000, sample.available) for sample in steep], policy)
    assert not reaches(steep[1:4], policy), "three samples"
    assert not reaches([Sample(sample.at + 1000, sample.available) for sample in falling(15, 13, 11, 9, step=1.4)], policy)
    assert not reaches(falling(15, 13, 11, 9, step=1.4), policy) and reaches(falling(15, 13, 11, 9, step=1.5), policy), "less than five seconds, less a half"
    assert not reaches(falling(17, 16.9, 16.8, 16.7, 16.4, 16.1), policy) and not reaches(falling(26, 24, 22, 20, 18, 16.01), policy), "above 16 GiB"
    assert reaches(falling(26, 24, 22, 20, 18, 16), policy)
    assert not reaches(falling(15, 13, 11, 9, 7, 7), policy), "the newest step does not fall"
    assert reaches(falling(13, 13, 11, 9, 7, 5), policy) and not reaches(falling(11, 11, 11, 9, 7, 5), policy), "four seconds of five, three seconds of five"
    assert not reaches(falling(9, 8.9, 8.8, 8.7, 8.6, 8.5), policy), "too slow to reach 2 GiB within 10 s"
    assert reaches(falling(3.5, 3.3, 3.1, 2.9, 2.7, 2.5), policy) and not reaches(falling(5.5, 5.3, 5.1, 4.9, 4.7, 4.5), policy)
    assert reaches(falling(14, 11, 9, 10, 8, 6), policy) and not reaches(falling(14, 11, 9, 10.1, 8, 6), policy), "four fifths of what moved are gone"
    assert reaches(falling(1.9, 1.8, 1.7, 1.6, 1.5, 1.4), policy), "below it already"


def test_what_still_falls_is_judged_by_line_and_newest_step() -> None:
    policy = Policy()
    assert still_falls(falling(8, 7, 6, 5), policy) and not still_falls(falling(8, 7, 6, 6), policy) and not still_falls(falling(5, 6, 7, 6), policy)
    assert not still_falls(falling(5), policy) and still_falls(falling(6, 5), policy)
    assert still_falls(falling(1, 9, 8, 7, 6), policy) and not still_falls(falling(9, 1, 2, 3, 4), policy), "the last three seconds"
    noise = policy.noise / KIB_PER_GIB
    assert not still_falls(falling(*(5 - noise / 2 * step for step in range(4))), policy)
    assert still_falls(falling(*(5 - noise * step for step in range(4))), policy)
    late = [*falling(9, 8, 7), Sample(4.0, int((7 - 1.5 * noise) * KIB_PER_GIB))]
    assert not still_falls(late, policy) and still_falls([*late[:3], late[3]._replace(available=int((7 - 2.5 * noise) * KIB_PER_GIB))], policy)
    assert still_falls(falling(1.9, 1.9, 1.9, 1.9), policy) and not still_falls(falling(2.1, 2.1, 2.1, 2.1), policy), "at the floor it has to rise"
    assert not still_falls([Sample(float(second), 1000 + second) for second in range(4)], policy)
    assert still_falls(falling(2, 2, 2, 2), policy) and not still_falls(falling(1.5, 1.6, 1.7, 1.8), policy)


def table() -> list[str]:
    """The rows of the table in docs/guard.md: where the guard signals, and whether the host lives with each delay."""
    rows = []
    for curve in (*CURVES["collapses"], *CURVES["wedges"]):
        cells = []
        for end in ENDS:
            signalled, lives = guard_curves.saved(curve, end, DELAYS)
            cells.append("no signal" if signalled is None else f"{signalled:.1f}: {' / '.join('yes' if alive else 'no' for alive in lives)}")
        rows.append(f"| {curve['name']} | {curve.get('lost', guard_curves.LOST):g} | {' | '.join(cells)} |")
    return rows


def test_the_page_says_who_would_have_been_saved() -> None:
    page = (Path(__file__).parents[5] / "docs" / "guard.md").read_text(encoding="utf-8")
    head = f"| {' | '.join(f'{end} GiB' for end in ENDS)} |\n"
    assert page.partition(head)[2].splitlines()[1 : len(table()) + 1] == table(), "\n".join(table())
    by_trend = sum(TERM in whats(played(sampled(start.points, seed, late=start.late), 1 << 40)) for seed, start in enumerate(map(composed, range(200))))
    assert f"By the trend alone {by_trend} of them were" in page
    assert f"{', '.join(f'{delay:g}' for delay in DELAYS[:-1])} and {DELAYS[-1]} s" in page
