# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From an engine's log to the cause of a failure, by the table failures.yml. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import collections
import dataclasses
import functools
import pathlib
import re
import typing as t

from ansible.module_utils.common.yaml import yaml_load

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding

TABLE = pathlib.Path(__file__).with_name("failures.yml")

#: A line that a traceback ends with: the first one in a log names the cause, later ones are wrappers.
EXCEPTION = re.compile(
    r"(?:^|[\s)\]])"
    r"(?:(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Timeout|Interrupt)\b(?:\(.*\))?: (?!\d+ validation error)|Value error, )\S"
)
#: Any other line that calls itself an error.
ERROR = re.compile(r"\b(?:ERROR|CRITICAL|FATAL)\b|\b(?:fatal )?error: ")
#: Lines of these levels are no failures, whatever they quote.
HARMLESS = re.compile(r"(?:^|[\s)])(?:DEBUG|INFO|WARNING) \d\d-\d\d ")

#: Lines kept for a message and for the result.
TAIL_LINES = 20


@dataclasses.dataclass(frozen=True)
class Signature:
    """One row of the table; failures.yml says what each field means."""

    id: str
    where: str
    pattern: re.Pattern[str]
    rank_scope: str
    cause: str
    consequence: str
    remedy: str
    verdict: str
    needs_reboot: bool
    source: str
    example: str


@dataclasses.dataclass(frozen=True)
class Match:
    """A signature with the line of the log that bears it."""

    signature: Signature
    line: str

    def finding(self, node: str) -> dict[str, t.Any]:
        row = self.signature
        return finding(row.id, node, row.verdict, f"{row.cause}: {self.line}", measured=self.line, remedy=row.remedy, source=row.source)


def parsed(text: str) -> tuple[Signature, ...]:
    """Return the rows of a table. Raises :class:`ValueError` or :class:`TypeError` when one is not complete."""
    return tuple(Signature(**{**row, "pattern": re.compile(row["pattern"])}) for row in yaml_load(text))


@functools.cache
def shipped() -> tuple[Signature, ...]:
    """Return the collection's own table."""
    return parsed(TABLE.read_text(encoding="utf-8"))


class Diagnosis:
    """Reads an engine's log as it grows, and remembers what tells why it fails."""

    def __init__(self, signatures: t.Iterable[Signature] | None = None) -> None:
        self._signatures = tuple(shipped() if signatures is None else signatures)
        self._matches: dict[str, Match] = {}
        self._exception = ""
        self._error = ""
        self.tail: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)

    def feed(self, lines: t.Iterable[str]) -> None:
        """Take in new lines, in their order. Of each signature the first line counts."""
        for line in lines:
            self.tail.append(line)
            harmless = HARMLESS.search(line)
            if not self._exception and not harmless and EXCEPTION.search(line):
                self._exception = line
            if not self._error and not harmless and ERROR.search(line):
                self._error = line
            for row in self._signatures:
                if row.id not in self._matches and row.pattern.search(line):
                    self._matches[row.id] = Match(row, line)

    @property
    def fatal(self) -> Match | None:
        """The line that ends the wait: the first cause in the log, else the first echo in the table, where the generic ones stand last."""
        causes = [match for match in self._matches.values() if match.signature.verdict == "block" and match.signature.rank_scope == "cause"]
        echoes = (self._matches[row.id] for row in self._signatures if row.id in self._matches and row.verdict == "block")
        return next(iter(causes), None) or next(echoes, None)

    @property
    def warnings(self) -> list[Match]:
        return [match for match in self._matches.values() if match.signature.verdict == "warn"]

    @property
    def first_error(self) -> str:
        """The first line that reads like a cause, empty when no line does."""
        return self._exception or self._error

    @property
    def line(self) -> str:
        """The one line for a message: the known cause, else the first error, else an echo, else nothing.

        An echo says less than the exception that stands above it.
        """
        fatal = self.fatal
        if fatal and fatal.signature.rank_scope == "cause":
            return fatal.line.strip()
        return (self.first_error or (fatal.line if fatal else "")).strip()
