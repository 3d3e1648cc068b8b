# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The text of environment variables, for profiles, inventories and modules alike. This module util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError


def env_text(name: str, value: t.Any) -> str:
    """Return a variable's value as text; booleans become 1 and 0, as these engines read their variables.

    Raises :class:`ClusterError` for null, lists and mappings, which can be spelled in more than one way.
    """
    if isinstance(value, bool):
        return str(int(value))
    if not isinstance(value, (str, int, float)):
        remedy = f"Quote the value of {name} as the program expects it."
        raise ClusterError(f"env {name} is of type {type(value).__name__}, which can be spelled in more than one way", remedy=remedy, reason="input")
    return str(value)
