# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From an engine's log to the cause of a failure, by the table failures.yml. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
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

#: Lines of these levels are no failures, whatever they quote. One alternative for each way to write a level.
HARMLESS = re.compile(
    r"(?:^|[\s)|])(?:DEBUG|INFO|WARNING) +(?:\d\d-\d\d |\[\w+\.\w+:\d+\])"  # vLLM
    r"|^(?:[^\s|]+ +\| )?(?:\([^()]*\) )*(?:DEBUG|INFO|WARNING): "  # uvicorn, the banner of an image
    r"| - (?:DEBUG|INFO|WARNING) - |\[(?:INFO|WARNING)\]"  # FlashInfer, TensorRT-LLM
    r"|\d\d:\d\d:\d\d[,.]\d+Z?\s+(?:DEBUG|INFO|WARN(?:ING)?)\s|\[[\d-]+ [\d:,]+ [DIW] \d+ \d+\]"  # Ray in Python and in C++
    r"|(?:^|[\s:\])\[])[DIVW]\d{3,4} \d\d:\d\d:\d\d\."  # torch
    r"|\bNCCL (?:INFO|TRACE|VERSION)\b"
)
#: Errors in name only: a kernel that is tried and not taken, a download that is tried again, the note of an image that brings its own libcuda,
#: what pip says of packages that nobody loads, a library that is left out.
NO_ERROR = re.compile(
    r"Skipping tactic|retrying \d+ of \d+|This container was built for NVIDIA Driver Release|pip's dependency resolver|cannot be preloaded .*: ignored"
)
#: What vLLM says about one client's request, by the source file that says it.
OF_A_CLIENT = re.compile(r"\[(?:serving\w*|protocol|preprocess|chat_utils|hf|server_utils|\w*exception_handlers?|\w*_parser)\.py:\d+\]")
#: Reports of several lines that are not about the engine: a request that failed, what is left out while Python
#: or the engine starts, a kernel that is not taken, what went wrong while something was thrown away.
REPORT = re.compile(
    r"Exception in ASGI application|Failed to load plugin|Skipping tactic|Error processing line \d+ of |Error in \w+customize|Exception ignored in: "
)
#: The processes that a line names, and the source file of vLLM's that repeats itself in every line of a report.
WRITER = re.compile(r"^(?:[^\s|]+ +\| )?(?:\([^()]*\) )*(?:\([^()]*\)$)?")
SOURCE = re.compile(r"\b(?:ERROR|CRITICAL) \d\d-\d\d [\d:]+ (\[[^\]]+\])")
#: What a line of a traceback begins with, after its writer.
TRACEBACK = re.compile(r"\s|$|[|+]|Traceback |During handling |The above exception |Remainder of file |[\w.]+(?:Error|Exception|Warning|Timeout|Disconnect)\b")

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
    any_level: bool = False
    after: re.Pattern[str] | None = None
    weak: bool = False

    def told_by(self, line: str, quiet: bool, earlier: t.Iterable[str]) -> bool:
        """Return whether a line bears this failure; ``quiet`` is one of a level that is no failure, ``earlier`` are those just before it."""
        if quiet and self.verdict == "block" and not self.any_level:
            return False
        return bool(self.pattern.search(line)) and (self.after is None or any(self.after.search(one) for one in earlier))


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
    return tuple(
        Signature(**{**row, **{field: re.compile(row[field]) for field in ("pattern", "after") if field in row}}) for row in yaml_load(text)
    )


@functools.cache
def shipped() -> tuple[Signature, ...]:
    """Return the collection's own table."""
    return parsed(TABLE.read_text(encoding="utf-8"))


class Report:
    """Follows a report of several lines that is not about the engine, so that its traceback is not taken for the engine's."""

    def __init__(self) -> None:
        self._writer: str | None = None
        self._source = ""
        self._of_a_kernel = False

    def holds(self, line: str) -> bool:
        """Return whether a line begins such a report, or goes on with one."""
        named = SOURCE.search(line)
        writer, source = WRITER.match(line)[0], named[1] if named else ""
        if REPORT.search(line):
            self._writer, self._source, self._of_a_kernel = writer, source, "Skipping tactic" in line
            return True
        if writer != self._writer:
            return False
        if self._of_a_kernel:
            goes_on = "[TensorRT-LLM]" in line
        else:
            goes_on = source == self._source if source else bool(TRACEBACK.match(line[len(writer):]))
        if not goes_on:
            self._writer = None
        return goes_on


class Diagnosis:
    """Reads an engine's log as it grows, and remembers what tells why it fails."""

    def __init__(self, signatures: t.Iterable[Signature] | None = None) -> None:
        self._signatures = tuple(shipped() if signatures is None else signatures)
        self._matches: dict[str, Match] = {}
        self._exception = ""
        self._error = ""
        self._report = Report()
        self.tail: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)

    def feed(self, lines: t.Iterable[str]) -> None:
        """Take in new lines, in their order. Of each signature the first line counts."""
        for line in lines:
            if not self._report.holds(line) and not NO_ERROR.search(line) and not (OF_A_CLIENT.search(line) and "EngineDeadError" not in line):
                self._take(line)
            self.tail.append(line)

    def _take(self, line: str) -> None:
        quiet = bool(HARMLESS.search(line))
        if not self._exception and not quiet and EXCEPTION.search(line):
            self._exception = line
        if not self._error and not quiet and ERROR.search(line):
            self._error = line
        for row in self._signatures:
            if row.id not in self._matches and row.told_by(line, quiet, self.tail):
                self._matches[row.id] = Match(row, line)

    @property
    def fatal(self) -> Match | None:
        """The line that ends the wait: the first cause in the log, else the first echo in the table, where the generic ones stand last.

        A weak cause gives way to one whose line names it, and to an echo before it.
        """
        blocking = [match for match in self._matches.values() if match.signature.verdict == "block"]
        causes = [match for match in blocking if match.signature.rank_scope == "cause"]
        weak = next((match for match in causes if match.signature.weak), None)
        echoes = {match.signature.id: match for match in itertools.takewhile(lambda match: match is not weak, blocking) if match not in causes}
        named = next((match for match in causes if not match.signature.weak), None)
        return named or next((echoes[row.id] for row in self._signatures if row.id in echoes), weak)

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
        if fatal and fatal.signature.rank_scope == "cause" and not fatal.signature.weak:
            return fatal.line.strip()
        return (self.first_error or (fatal.line if fatal else "")).strip()
