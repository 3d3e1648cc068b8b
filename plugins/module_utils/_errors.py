# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The collection's exceptions. This module util is PRIVATE to the collection.

Helpers raise one of these; only a module's ``main`` (through ``_module.run``) turns it into a failed result.
"""

from __future__ import annotations

import typing as t


class ClusterError(Exception):
    """Something stands in the way of what was asked.

    The message says what, where, and measured against needed. The remedy is the next thing to type or to do.
    ``details`` become keys of the failed result as they are.
    """

    verdict = "block"

    def __init__(self, msg: str, *, remedy: str = "", reason: str = "", **details: t.Any) -> None:
        super().__init__(msg)
        self.remedy = remedy
        self.reason = reason
        self.details = details


class UnknownState(ClusterError):
    """A tool is missing, hangs, or answers what nobody can parse: never a pass. Put the raw output in ``raw``."""

    verdict = "unknown"


class WaitTimeout(ClusterError):
    """What was waited for did not happen in time; the message says for what, how long, and what was last seen."""
