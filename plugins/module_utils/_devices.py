# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Device nodes, as a process sees them. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import stat
import typing as t


def device(path: str, root: str = "/") -> dict[str, t.Any]:
    """Return ``{path, exists, entries}`` of a device node, or of a directory of them, below ``root``; ``entries`` is what the directory holds.

    Raises OSError when it may not be looked at, so that a missing permission does not pass for a missing device.
    """
    full = os.path.join(root, path.lstrip("/"))
    try:
        mode = os.stat(full).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return {"path": path, "exists": False, "entries": []}
    return {"path": path, "exists": True, "entries": sorted(os.listdir(full)) if stat.S_ISDIR(mode) else []}
