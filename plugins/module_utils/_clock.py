# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The time, as records and people read it. This module util is PRIVATE to the collection."""

from __future__ import annotations

import datetime
import re
import time

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState

#: The format of a time in UTC in records: ``2026-11-21T01:52:59Z``.
UTC = "%Y-%m-%dT%H:%M:%SZ"

#: Docker's times: ``2026-11-21T01:57:53.754100254Z``.
_OF_DOCKER = re.compile(r"^(?P<seconds>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(?P<zone>Z|[+-]\d\d:\d\d)$")


def utc_text(seconds: float | None = None) -> str:
    """Return a time in seconds since 1970, by default now, as a text in UTC."""
    return time.strftime(UTC, time.gmtime(seconds))


def boot_seconds() -> float:
    """Return the seconds since boot, including those in suspend. The kernel's clock ticks use this clock, which cannot be set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def seconds_of(timestamp: str) -> float:
    """Return Docker's time in seconds since 1970, truncated to whole seconds. Raises :class:`UnknownState` when it cannot be parsed."""
    match = _OF_DOCKER.match(timestamp)
    if not match:
        raise UnknownState(f"Docker reports a time that cannot be read: {timestamp!r}", raw=timestamp)
    return datetime.datetime.fromisoformat(match["seconds"] + match["zone"].replace("Z", "+00:00")).timestamp()
