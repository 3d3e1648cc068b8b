# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How much space a path has, or would have. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import typing as t


def nearest_existing(path: str) -> str:
    """Return the path itself, or its nearest parent that exists."""
    while not os.path.exists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def disk(path: str) -> dict[str, t.Any]:
    """Return the disk space for a path, existing or not, in bytes; free is what an ordinary user may use. Raises OSError."""
    place = nearest_existing(os.path.abspath(path))
    space = os.statvfs(place)
    return {
        "measured_at": place,
        "total_bytes": space.f_blocks * space.f_frsize,
        "free_bytes": space.f_bavail * space.f_frsize,
    }
