# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the log of the download program (``download.py`` of the role ``engine``). This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import json
import typing as t

#: Seconds that a download may take, and a node's directory for the collection's state.
TIMEOUT, STATE_DIR = 14400, "/var/lib/gb10"
#: In the name of the file with the download's progress.
KIND = "download"


def _lines(log: str, key: str) -> list[dict[str, t.Any]]:
    """Return the lines of a log that are JSON objects and begin with a key."""
    lines = []
    for line in log.splitlines():
        if line.startswith(f'{{"{key}": '):
            # An incomplete line is skipped.
            with contextlib.suppress(ValueError):
                lines.append(json.loads(line))
    return lines


def progress(log: str) -> tuple[int, int] | None:
    """Return (downloaded bytes, all bytes) by the last line of the log that has both, None without such a line."""
    lines = reversed(_lines(log, "progress"))
    return next(((line["progress"], line["of"]) for line in lines if isinstance(line.get("of"), int) and isinstance(line["progress"], int)), None)


def answer(log: str) -> dict[str, t.Any] | None:
    """Return a download's result (``failed``, ``seconds``, ``bytes``), None if it did not write one."""
    return next((line for line in reversed(_lines(log, "failed")) if {"seconds", "bytes"} <= line.keys()), None)
