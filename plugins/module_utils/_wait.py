# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one way to wait for an event. This module util is PRIVATE to the collection."""

from __future__ import annotations

import time
import typing as t


def clock(timeout: float, sleep: float) -> t.Iterator[float]:
    """Yield the seconds waited so far: at once, then every ``sleep`` seconds, and a last time when ``timeout`` is over.

    The caller checks for its event in the loop and leaves it when the event has come; a loop that runs out means
    that it never came. The last check comes when the time is over, so an event shortly before is not missed.
    """
    started = time.monotonic()
    while True:
        elapsed = time.monotonic() - started
        yield elapsed
        if elapsed >= timeout:
            return
        time.sleep(max(0.0, min(sleep, started + timeout - time.monotonic())))
