# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The collection's exceptions. This module util is PRIVATE to the collection.

Helpers raise one of these; only a module's ``main`` (through ``_module.run``) turns it into a failed result.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import typing as t

#: The kernel's errors for a full disk or a full quota.
FULL = (errno.ENOSPC, errno.EDQUOT)


def sentence(where: str, what: str, expected: str) -> str:
    """Return the parts of a problem as one sentence without its period: ``gb10_api_port: is 80; expected 1024 to 65535``."""
    text = f"{where}: {what}" if where else what
    return f"{text}; expected {expected}" if expected else text


@dataclasses.dataclass(frozen=True)
class Problem:
    """One problem in a person's input, before it is shown.

    ``where`` is the setting or the field. ``needed`` is ``expected`` as data, if it is more than a text. ``node`` is the node
    concerned, if known.
    """

    id: str
    where: str
    what: str
    expected: str = ""
    remedy: str = ""
    verdict: str = "block"
    measured: t.Any = None
    needed: t.Any = None
    node: str = ""

    def __str__(self) -> str:
        return sentence(self.where, self.what, self.expected)


class ClusterError(Exception):
    """The request cannot be carried out.

    The message contains the problem, its place, and measured against needed. ``where`` and ``expected`` are separate if another layer
    may have to word them differently. The remedy is the next step of the user. ``details`` become keys of the failed result unchanged.
    """

    verdict = "block"

    def __init__(self, what: str, *, where: str = "", expected: str = "", remedy: str = "", reason: str = "", **details: t.Any) -> None:
        super().__init__(sentence(where, what, expected))
        self.what, self.where, self.expected = what, where, expected
        self.remedy, self.reason, self.details = remedy, reason, details

    def with_remedy(self) -> str:
        """Return message and remedy as one text."""
        return f"{str(self).rstrip('.')}. Remedy: {self.remedy}" if self.remedy else str(self)


class UnknownState(ClusterError):
    """A tool is missing, hangs, or prints output that cannot be parsed: never a pass. Put the raw output in ``raw``."""

    verdict = "unknown"


class WaitTimeout(ClusterError):
    """An awaited event did not happen in time; the message names it, the seconds, and the last state."""


def file_error(error: OSError, place: str, remedy: str, reason: str = "", what: str = "") -> ClusterError:
    """Return the error for a file, or for ``place``. ``what`` may name what failed. If the disk is full, the remedy is to free space."""
    where = error.filename or place
    if error.errno in FULL:
        remedy, reason = f"Free some space and run again: df -h {os.path.dirname(str(where)) or where}", "disk full"
    return ClusterError(f"{where}{what}: {error.strerror or error}", remedy=remedy, reason=reason)
