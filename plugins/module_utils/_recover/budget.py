# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When a recovery may act: its budget, its pauses, and a person's pause. This module util is PRIVATE to the collection.

All times are those of the kernel's clock since boot, which cannot be set. What was recorded in an earlier boot is at least as old as this boot.
"""

from __future__ import annotations

import re
import typing as t

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
#: The most recoveries within so many seconds.
LIMITS = ((2, 6 * HOUR), (3, DAY))
#: Seconds from the last recovery to the next one, by the number of recoveries within a day.
PAUSES = (0.0, 5 * MINUTE, 30 * MINUTE)

#: A person's pause: its length, and its reason.
PAUSE = re.compile(r"(?P<count>[1-9][0-9]{0,3})(?P<unit>[mhd]) (?P<reason>\S.{0,199})\Z")
UNITS = {"m": MINUTE, "h": HOUR, "d": DAY}
#: What ``gb10_recover`` may be: one of these, or the word before a pause.
ACTS, PAUSED = ("observe", "restart", "none"), "paused "
EXPECTED = f"{', '.join(ACTS)}, or such as '{PAUSED}2h upgrading the switch' (a number with m, h or d, and the reason)"


class Moment(t.NamedTuple):
    """A time: seconds since a boot. ``scale`` is the factor by which tests shorten times."""

    boot_id: str
    at_s: float
    scale: float = 1.0

    def age(self, entry: t.Mapping[str, t.Any]) -> float:
        """Return the seconds since an entry, at least."""
        return max(0.0, self.at_s - (entry["at_s"] if entry["boot_id"] == self.boot_id else 0.0)) * self.scale


def is_act(text: str) -> bool:
    """Return whether this is a value of ``gb10_recover``."""
    return text in ACTS or (text.startswith(PAUSED) and PAUSE.match(text.removeprefix(PAUSED)) is not None)


def recent(history: t.Iterable[dict[str, t.Any]], now: Moment, seconds: float = DAY) -> list[dict[str, t.Any]]:
    """Return the recoveries within so many seconds."""
    return [entry for entry in history if now.age(entry) < seconds]


def left(history: t.Sequence[dict[str, t.Any]], now: Moment) -> str:
    """Return the remaining budget as text."""
    return "budget left: " + ", ".join(f"{max(0, most - len(recent(history, now, seconds)))} in {seconds / HOUR:g} h" for most, seconds in LIMITS)


def spent(history: t.Sequence[dict[str, t.Any]], now: Moment) -> str:
    """Return which budget is used up, empty when none is."""
    limits = [f"{most} recoveries within {seconds / HOUR:g} h" for most, seconds in LIMITS if len(recent(history, now, seconds)) >= most]
    return f"the budget of {limits[0]} is used up. Run the doctor, then mode" if limits else ""


def why_not(history: t.Sequence[dict[str, t.Any]], now: Moment) -> str:
    """Return why there may be no recovery now, empty when there may be one."""
    if used_up := spent(history, now):
        return used_up
    pause = PAUSES[len(recent(history, now))]
    since = min(map(now.age, history), default=pause)
    return f"the last recovery was {since:.0f} s ago, and the next one waits for {pause:.0f} s" if since < pause else ""


def paused(pause: t.Mapping[str, t.Any], now: Moment) -> str:
    """Return a person's pause (``text`` and its begin) as text, empty without one or when it is over. A reboot begins it again."""
    match = PAUSE.match(pause.get("text", ""))
    seconds = int(match["count"]) * UNITS[match["unit"]] - now.age(pause) if match else 0.0
    return f"a person paused it for {seconds / 60:.0f} min more: {match['reason']}" if match and seconds > 0 else ""
