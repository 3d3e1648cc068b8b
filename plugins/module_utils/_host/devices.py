# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Device nodes, as a process sees them. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import stat


def has_device(path: str, root: str = "/") -> bool:
    """Return whether a device node, or a directory that contains at least one, exists below ``root``.

    Raises OSError when it may not be read, so that a missing permission does not look like a missing device.
    """
    full = os.path.join(root, path.lstrip("/"))
    try:
        return bool(os.listdir(full)) if stat.S_ISDIR(os.stat(full).st_mode) else True
    except (FileNotFoundError, NotADirectoryError):
        return False
