# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The image store of a Docker engine. This module util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t


def store_of(info: dict[str, t.Any]) -> str:
    """Return an engine's image store, ``classic`` or ``containerd``: an image has a different id in each."""
    status = [str(word) for row in info.get("DriverStatus") or [] for word in (row if isinstance(row, (list, tuple)) else [row])]
    return "containerd" if any(word.startswith("io.containerd.snapshotter") for word in status) else "classic"
