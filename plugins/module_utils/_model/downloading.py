# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the program that downloads a model (``download.py`` of the role ``engine``) writes. This module util is PRIVATE to the collection."""

from __future__ import annotations

import json
import os
import typing as t

#: Seconds that a download may take, and where a node keeps the collection's state.
TIMEOUT, STATE_DIR = 14400, "/var/lib/gb10"


def note_path(state_dir: str, cluster: str) -> str:
    """Return where a node notes how far its download is."""
    return os.path.join(state_dir, f"download-{cluster}.json")


def _lines(log: str, key: str) -> list[dict[str, t.Any]]:
    """Return the lines of a log that are JSON objects and begin with a key."""
    found = []
    for line in log.splitlines():
        if line.startswith(f'{{"{key}": '):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue  # cut off: the line after it says more
    return found


def progress(log: str) -> tuple[int, int] | None:
    """Return how many bytes of how many are there, as the last line of the log that says so has it; None when none does."""
    said = [(one["progress"], one["of"]) for one in _lines(log, "progress") if isinstance(one.get("of"), int) and isinstance(one["progress"], int)]
    return said[-1] if said else None


def answer(log: str) -> dict[str, t.Any] | None:
    """Return how a download ended (``failed``, ``seconds``, ``bytes``), None when it did not come to say so."""
    said = [one for one in _lines(log, "failed") if {"seconds", "bytes"} <= one.keys()]
    return said[-1] if said else None
