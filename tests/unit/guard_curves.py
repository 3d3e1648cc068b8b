# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Curves of available memory, as the guard sees them: those of the fixture, composed healthy ones, and what a signal saves."""

from __future__ import annotations

import itertools
import random
import typing as t
from pathlib import Path

import yaml
from ansible_collections.gb10.cluster.plugins.module_utils._guard.trend import KIB_PER_GIB, LOADING, TERM, Order, Sample, Watch
from ansible_collections.gb10.cluster.plugins.module_utils._memory import ending

CURVES = yaml.safe_load((Path(__file__).parent / "fixtures" / "guard" / "curves.yml").read_text(encoding="utf-8"))
#: GiB below which a host counts as lost when its record has no level.
LOST = 1.0

Points = t.Sequence[t.Sequence[float]]


def at(points: Points, moment: float) -> float:
    """The GiB of a curve at a moment; before its first point as there, and after its last one as its last line goes on."""
    for (begin, level), (end, after) in itertools.pairwise(points):
        if moment <= end or end == points[-1][0]:
            return level if moment <= begin else level + (after - level) * (moment - begin) / (end - begin)
    raise AssertionError("a curve has two points")


def sampled(points: Points, seed: int = 0, noise: float = 0.02, late: float = 0.02) -> list[Sample]:
    """Samples of a curve, a second apart and up to ``late`` seconds late, with some noise (GiB)."""
    chance = random.Random(seed)
    samples, moment = [], float(points[0][0])
    while moment < points[-1][0]:
        samples.append(Sample(moment, int((at(points, moment) + chance.uniform(-noise, noise)) * KIB_PER_GIB)))
        moment += 1 + chance.choice([0.0, 0.0, 0.0, chance.uniform(0, late)])
    return [*samples, Sample(float(points[-1][0]), int(points[-1][1] * KIB_PER_GIB))]


def played(samples: t.Iterable[Sample], level: int | None, phase: str = LOADING, act: str = "loading") -> list[tuple[Sample, Order]]:
    """What a guard orders, with a level in KiB."""
    watch = Watch(act=act)
    orders = ((sample, watch.feed(sample.at, sample.available, phase, level)) for sample in samples)
    return [(sample, order) for sample, order in orders if order]


def level(end_gib: float) -> int:
    """The level in KiB of a start that is expected to end there."""
    level_mb = ending.below(end_gib, "").mb
    assert level_mb is not None
    return level_mb * 1024


class Healthy(t.NamedTuple):
    """A healthy start: its curve, and where it ends for good (GiB)."""

    points: Points
    end: float
    late: float


def composed(seed: int) -> Healthy:
    """A start that takes 20 to 73 GiB in 2 to 32 s and ends at 3.5 to 15 GiB; its samples may be up to 3 s late."""
    chance = random.Random(seed)
    takes, seconds, end = chance.uniform(20, 73), chance.uniform(2, 32), chance.uniform(3.5, 15)
    return Healthy([(0, end + takes), (15, end + takes), (15 + seconds, end), (75 + seconds, end)], end, chance.choice([0.02, 3.0]))


#: Steady falls (GiB/s) with where they end.
STEADY = [Healthy([(0, end + 60 * rate), (60, end), (120, end)], end, 0.02) for rate, end in ((0.2, 3.5), (0.4, 5), (0.7, 8), (1.0, 12))]


def saved(curve: dict[str, t.Any], end_gib: float, delays: t.Sequence[float]) -> tuple[float | None, list[bool]]:
    """The GiB at which the guard signals the ranks of a start that was expected to end at ``end_gib``, None where it does not, and whether the host lives when
    the memory is back so many seconds later."""
    points = [*curve["points"], (curve["points"][-1][0] + 30, at(curve["points"], curve["points"][-1][0] + 30))]
    samples = [Sample(float(second), int(max(0.0, at(points, second)) * KIB_PER_GIB)) for second in range(int(points[-1][0]) + 1)]
    term = next((sample for sample, order in played(samples, level(end_gib)) if order.what == TERM), None)
    if term is None:
        return None, [False] * len(delays)
    lost = curve.get("lost", LOST)
    return term.available / KIB_PER_GIB, [at(points, term.at) > lost and at(points, term.at + delay) > lost for delay in delays]
