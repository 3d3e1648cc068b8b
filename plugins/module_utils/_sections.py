# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads a node section by section, so that what fails does not hide the rest. This module util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError

BECOME = "Run the task with become: true."

#: Takes what a section could not see, when it saw the rest.
Note = t.Callable[[t.Union[ClusterError, OSError]], None]


class Sections:
    """Reads one section after the other; one that fails is told in ``errors`` and does not keep the others from being read."""

    def __init__(self) -> None:
        self.errors: list[dict[str, str]] = []

    def read(self, section: str, reader: t.Callable[[], t.Any], otherwise: t.Any = None) -> t.Any:
        """Return what ``reader`` returns, ``otherwise`` when it raises :class:`ClusterError` or OSError."""
        try:
            return reader()
        except (ClusterError, OSError) as error:
            self.note(section, error)
        return otherwise

    def note(self, section: str, error: ClusterError | OSError) -> None:
        """Tell in ``errors`` that a section is empty, in whole or in part, because of ``error``; the same is told once."""
        if isinstance(error, ClusterError):
            entry = {"section": section, "verdict": error.verdict, "error": str(error), "remedy": error.remedy}
        else:
            remedy = BECOME if isinstance(error, PermissionError) else ""
            entry = {"section": section, "verdict": "unknown", "error": f"{error.filename or section}: {error.strerror or error}", "remedy": remedy}
        if entry not in self.errors:
            self.errors.append(entry)

    def noter(self, section: str) -> Note:
        """Return a function that notes for one section."""
        return lambda error: self.note(section, error)
