# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads a node section by section, so that what fails does not hide the rest. This module util is PRIVATE to the collection."""

from __future__ import annotations

import concurrent.futures
import functools
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import Section

BECOME = "Run the task with become: true."


def fail(error: Exception) -> t.NoReturn:
    """Raise ``error``, so that a section records an error that did not come from a failing reader."""
    raise error


def once(reader: t.Callable[[], t.Any]) -> t.Callable[[], t.Any]:
    """Return a function that calls ``reader`` only once, and on every call returns what it returned or raises what it raised."""
    outcome: concurrent.futures.Future[t.Any] = concurrent.futures.Future()

    def again() -> t.Any:
        if not outcome.done():
            try:
                outcome.set_result(reader())
            except (ClusterError, OSError) as error:
                outcome.set_exception(error)
        return outcome.result()

    return again


def pending(reader: t.Callable[[], t.Any]) -> t.Callable[[], t.Any]:
    """Start ``reader`` now, in parallel with the caller, and return a function that waits for it and returns or raises what it did."""
    pool = concurrent.futures.ThreadPoolExecutor(max_workers=1)
    answer = pool.submit(reader)
    pool.shutdown(wait=False)
    return answer.result


class Sections:
    """Reads one section after the other; one that fails is recorded in ``errors`` and does not keep the others from being read."""

    def __init__(self) -> None:
        self.errors: list[dict[str, str]] = []

    def read(self, section: str, reader: t.Callable[[], t.Any], otherwise: t.Any = None) -> t.Any:
        """Return what ``reader`` returns, ``otherwise`` when it raises :class:`ClusterError` or OSError."""
        try:
            return reader()
        except (ClusterError, OSError) as error:
            self._note(section, error)
        return otherwise

    def section(self, name: str) -> Section:
        """Return a function that runs the readers of one section, each of which may fail on its own; see :mod:`files`."""
        return functools.partial(self.read, name)

    def _note(self, section: str, error: ClusterError | OSError) -> None:
        """Record in ``errors``, once, that a section is empty, in whole or in part, because of ``error``."""
        if isinstance(error, ClusterError):
            entry = {"section": section, "verdict": error.verdict, "error": str(error), "remedy": error.remedy}
        else:
            remedy = BECOME if isinstance(error, PermissionError) else ""
            entry = {"section": section, "verdict": "unknown", "error": f"{error.filename or section}: {error.strerror or error}", "remedy": remedy}
        if entry not in self.errors:
            self.errors.append(entry)
