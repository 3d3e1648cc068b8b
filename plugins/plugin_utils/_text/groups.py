# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Grouping of values by key. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import collections
import typing as t

Key = t.TypeVar("Key")
Value = t.TypeVar("Value")


def grouped(pairs: t.Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values by key, keys and values in the order of the pairs. A missing key has an empty list."""
    groups: dict[Key, list[Value]] = collections.defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups
