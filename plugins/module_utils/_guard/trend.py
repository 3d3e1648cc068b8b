# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Detects a collapse of available memory that would hang the host, and decides the guard's action. This module util is PRIVATE to the collection.

Pure: all decisions depend on samples only, so recorded curves can be replayed. Neither level nor trend is sufficient: healthy pairs were reported to serve
for hours with 3.5 to 4.4 GiB available, a collapse went from 29 to 6.3 GiB in 9 s, and a healthy start takes tens of GiB as fast. The expected end of the
start distinguishes them: a start below that level that keeps falling is not healthy.
"""

from __future__ import annotations

import dataclasses
import typing as t

KIB_PER_GIB = 1024 * 1024

#: The phase of the ranks: no rank of this collection runs, they load, they serve.
NONE, LOADING, SERVING = "none", "loading", "serving"
#: When the guard may act: while ranks load, while they load or serve, never.
ACT_LOADING, ACT_ALWAYS, ACT_NEVER = "loading", "always", "never"
ACTS = (ACT_LOADING, ACT_ALWAYS, ACT_NEVER)
#: The actions: SIGTERM, SIGKILL, or only a record of the action that is not allowed.
TERM, KILL, WOULD = "term", "kill", "would"


class Sample(t.NamedTuple):
    """Available memory at one time: seconds of the monotonic clock, and KiB."""

    at: float
    available: int


@dataclasses.dataclass(frozen=True)
class Policy:
    """When memory counts as collapsing.

    The trend of the last ``window`` seconds, with at least ``least`` samples, has to reach ``floor`` (KiB) within ``horizon`` (s). A ``share`` of that window,
    and the newest step, must fall that fast on their own: a single large allocation ends sooner. The same share of all movement must be lost at the end.
    Above ``near`` (KiB) there is time to wait. ``grace`` seconds after the first signal, remaining ranks are killed when memory still falls by more than
    ``noise`` KiB a second.
    """

    floor: int = 2 * KIB_PER_GIB
    horizon: float = 10.0
    window: float = 5.0
    least: int = 4
    share: float = 0.8
    near: int = 16 * KIB_PER_GIB
    grace: float = 5.0
    noise: int = 32 * 1024


def rate(samples: t.Sequence[Sample]) -> float:
    """Return the slope of the line that fits the samples best, in KiB a second (negative: memory falls). 0 for fewer than two samples."""
    if len(samples) < 2:
        return 0.0
    middle = sum(sample.at for sample in samples) / len(samples)
    level = sum(sample.available for sample in samples) / len(samples)
    spread = sum((sample.at - middle) ** 2 for sample in samples)
    return sum((sample.at - middle) * (sample.available - level) for sample in samples) / spread if spread > 0 else 0.0


def recent(samples: t.Sequence[Sample], seconds: float) -> list[Sample]:
    """Return the newest samples that reach ``seconds`` back, with a tolerance of half a second; late samples reach further."""
    first = next((at for at in range(len(samples) - 1, -1, -1) if samples[-1].at - samples[at].at >= seconds - 0.5), 0)
    return list(samples[first:])


def reaches(samples: t.Sequence[Sample], policy: Policy) -> bool:
    """Return whether the current trend reaches the floor within the horizon. Too few samples have no trend; late samples reach further back."""
    last = recent(samples, policy.window)
    if len(last) < policy.least:
        last = list(samples[-policy.least :])
    if len(last) < policy.least or last[-1].at - last[0].at < policy.window - 0.5:
        return False
    room = last[-1].available - policy.floor

    def soon(slope: float) -> bool:
        return slope < 0 and room + slope * policy.horizon <= 0

    steps = [(after.at - before.at, after.available - before.available) for before, after in zip(last, last[1:]) if after.at > before.at]
    falls = [soon(change / seconds) for seconds, change in steps]
    falling = sum(seconds for (seconds, _change), fast in zip(steps, falls) if fast)
    if not (falls and falls[-1]) or falling < policy.share * (last[-1].at - last[0].at) - 0.01:
        return False
    # Alternating allocations, sampled late, fall most of the time and rise in between. A collapse does not rise.
    moved = sum(abs(change) for _seconds, change in steps)
    return last[-1].available <= policy.near and soon(rate(last)) and last[0].available - last[-1].available >= policy.share * moved


def still_falls(samples: t.Sequence[Sample], policy: Policy) -> bool:
    """Return whether memory keeps falling by more than noise, over the last three seconds and in the last step. At the floor, whether it does not rise."""
    last = recent(samples, 3.0)
    if len(last) < 2:
        return False
    least = 0 if last[-1].available <= policy.floor else -policy.noise
    step = (last[-1].available - last[-2].available) / max(last[-1].at - last[-2].at, 0.001)
    return rate(last) <= least and step <= least


class Order(t.NamedTuple):
    """An action with its evidence: the available memory (KiB), and the trend (KiB a second)."""

    what: str
    available: int
    rate: float


class Watch:
    """Decides on one node's memory, sample by sample."""

    def __init__(self, policy: Policy = Policy(), act: str = ACT_LOADING) -> None:
        self.policy, self.act = policy, act
        self._samples: list[Sample] = []
        #: The level of the last SIGTERM.
        self.under = 0
        self._asked: float | None = None
        self._said = False

    def feed(self, at: float, available: int, phase: str, level: int | None = None) -> Order | None:
        """Add a sample and return an action, None for no action. Each action is ordered once a collapse.

        ``level`` (KiB) is the level that an expected start stays above, None when unknown: then the action is only recorded.
        """
        self._samples = [sample for sample in self._samples if sample.at > at - 4 * self.policy.window] + [Sample(at, available)]
        slope = rate(recent(self._samples, self.policy.window))
        if phase == NONE:
            # Other processes cause the fall.
            self._asked = None
        if self._asked is not None:
            if at - self._asked < self.policy.grace:
                return None
            self._asked = None
            return Order(KILL, available, slope) if available < self.under and still_falls(self._samples, self.policy) else None
        expected = phase != NONE and level is not None and available >= level
        if expected or not reaches(self._samples, self.policy):
            self._said = False
            return None
        if level is not None and (phase == LOADING and self.act != ACT_NEVER or phase == SERVING and self.act == ACT_ALWAYS):
            self._asked, self.under = at, level
            return Order(TERM, available, slope)
        reported, self._said = self._said, True
        return None if reported else Order(WOULD, available, slope)
