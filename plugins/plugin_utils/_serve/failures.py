# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finds the cause of a failure in the lines of all logs, by the tables of signatures. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.log_lines import Line, address_of, is_about_engine, is_quiet, rank_of, unprefixed
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.signature import TAIL_LINES, Signature, shipped

#: The last line of a traceback. The first one in a log names the cause, later ones are wrappers.
EXCEPTION = re.compile(
    r"(?:^|[\s)\]])"
    r"(?:(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Timeout|Interrupt)\b(?:\(.*\))?: (?!\d+ validation error)|Value error, )\S"
)
#: Any other line with the level or the prefix of an error.
ERROR = re.compile(r"\b(?:ERROR|CRITICAL|FATAL)\b|\b(?:fatal )?error: ")

#: Reports of several lines that are not about the engine: a failed request, usage that could not be reported, parts that are skipped while Python
#: or the engine starts, a kernel that is not chosen, an error while an object is deleted.
REPORT = re.compile(
    r"Exception in ASGI application|Report event failed: "
    r"|Exception in thread \S+ \(_report_(?:continuous_)?usage|Failed to load plugin|Skipping tactic"
    r"|Error processing line \d+ of |Error in \w+customize|Exception ignored in: "
)
#: The process names before a line, and the vLLM source file that every line of a report repeats.
WRITER = re.compile(r"^(?:[^\s|]+ +\| )?(?:\([^()]*\) )*(?:\([^()]*\)$)?")
SOURCE = re.compile(r"\b(?:ERROR|CRITICAL) \d\d-\d\d [\d:]+ (\[[^\]]+\])")
#: How a line of a traceback begins, after the process names.
TRACEBACK = re.compile(
    r"\s|$|[|+]|Traceback |During handling |The above exception |Remainder of file |[\w.]+(?:Error|Exception|Warning|Timeout|Disconnect)\b"
    r"|[a-z_][\w.]*\.[A-Z]\w+(?::|$)"
)

#: How certain the cause is: the line names it, the line has one of several usual causes, or only the error itself is known.
KNOWN, SUSPECTED, UNKNOWN = "known", "suspected", "unknown"
#: The id of the finding for a log with errors that no signature matches.
UNKNOWN_ID = "unknown"
#: Ids of findings that are made here; each signature has its own id.
IDS = (UNKNOWN_ID,)
#: The parts that differ between lines with the same message.
_VARYING = re.compile(r"0x[0-9a-fA-F]+|\d+")
#: Seconds within which the failure of one rank shows on the others: a message of another rank about it then counts as later.
SAME_MOMENT = 2.0
#: Number of lines before the matched one that a finding shows.
SHOWN_BEFORE = 4


@dataclasses.dataclass(frozen=True)
class Match:
    """A signature with the log line that it matches, and the lines just before it."""

    signature: Signature
    at: Line
    before: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        return self.at.text

    def finding(self, node: str) -> dict[str, t.Any]:
        row = self.signature
        return {
            **finding(row.id, node, row.verdict, f"{row.cause}: {self.line}", measured=self.line, remedy=row.remedy, source=row.source),
            "cause": row.cause,
            "consequence": row.consequence,
            "certainty": KNOWN if row.names_cause or row.verdict == "warn" else SUSPECTED,
            "needs_reboot": row.needs_reboot,
            "of_peer": row.of_peer,
            "lines": [*self.before, self.line],
            **_place(self.at),
        }


def _place(line: Line) -> dict[str, t.Any]:
    """Return where and when a line was written, as fields of a finding."""
    return {"rank": rank_of(line.text), "time": line.time, "log": line.source}


class Report:
    """Follows a report of several lines that is not about the engine, so that its traceback is not treated as the engine's."""

    def __init__(self) -> None:
        self._writer: str | None = None
        self._source = ""
        self._of_a_kernel = False

    def holds(self, line: str) -> bool:
        """Return whether a line begins such a report, or continues one."""
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
    """Reads one log as it grows, and collects the lines that explain why the engine fails."""

    def __init__(self, signatures: t.Iterable[Signature] | None = None) -> None:
        self._signatures = tuple(shipped() if signatures is None else signatures)
        self._at_any_level = tuple(row for row in self._signatures if row.counts_when(quiet=True))
        self._matches: dict[str, Match] = {}
        self._exception: Line | None = None
        self._error: Line | None = None
        self._report = Report()
        self.tail: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)

    def feed(self, lines: t.Iterable[Line | str]) -> None:
        """Process new lines, in their order. Only the first line for each signature counts."""
        for entry in lines:
            line = Line(entry) if isinstance(entry, str) else entry
            text = unprefixed(line.text)
            if not self._report.holds(text) and is_about_engine(text):
                self._take(line, text)
            self.tail.append(line.text)

    def _take(self, line: Line, text: str) -> None:
        quiet = is_quiet(text)
        if not self._exception and not quiet and EXCEPTION.search(text):
            self._exception = line
        if not self._error and not quiet and ERROR.search(text):
            self._error = line
        explained = False
        for row in self._at_any_level if quiet else self._signatures:
            if (row.general and explained) or not row.is_in(text, self.tail):
                continue
            explained = True
            self._matches.setdefault(row.id, Match(row, line, tuple(self.tail)[-SHOWN_BEFORE:]))

    @property
    def fatal(self) -> Match | None:
        """The match that ends the wait: the first cause in the log, else the first echo in the table, where the generic ones are last.

        A cause that a line names, or an echo before it, takes precedence over a weak cause. A cause of the same moment takes precedence over a message
        of a rank about another one.
        """
        blocking = [match for match in self._matches.values() if match.signature.verdict == "block"]
        causes = [match for match in blocking if match.signature.rank_scope == "cause"]
        weak = next((match for match in causes if match.signature.weak), None)
        echoes = {match.signature.id: match for match in itertools.takewhile(lambda match: match is not weak, blocking) if match not in causes}
        strong = [match for match in causes if not match.signature.weak]
        named = next((match for match in strong if not self._is_of_peer(match, strong)), None)
        return named or next((echoes[row.id] for row in self._signatures if row.id in echoes), weak)

    @staticmethod
    def _is_of_peer(match: Match, causes: t.Sequence[Match]) -> bool:
        """Return whether a line only reports that another rank failed, and that rank's own cause is in the log within the same moment."""
        own = (other.at.time for other in causes if not other.signature.of_peer)
        here = match.at.time
        return match.signature.of_peer and any(here is None or time is None or time - here <= SAME_MOMENT for time in own)

    def findings(self, node: str) -> list[dict[str, t.Any]]:
        """Return the findings of the log: an error that no signature matches where nothing names the cause, then the cause, its echoes, and warnings."""
        fatal = self.fatal
        rest = sorted(self._matches.values(), key=lambda match: (match is not fatal, not match.signature.names_cause, match.signature.verdict != "block"))
        findings = [match.finding(node) for match in rest]
        unexplained = self._exception or (None if fatal else self._error)
        if unexplained is None or (fatal and fatal.signature.names_cause) or any(match.line == unexplained.text for match in rest):
            return findings
        return [_unknown(unexplained, node, [line for line in self.tail if ERROR.search(line) or EXCEPTION.search(line)]), *findings]

    @property
    def warnings(self) -> list[Match]:
        return [match for match in self._matches.values() if match.signature.verdict == "warn"]

    @property
    def first_error(self) -> str:
        """The first line that reads like a cause, empty when no line does."""
        line = self._exception or self._error
        return line.text if line else ""

    @property
    def line(self) -> str:
        """The one line for a message: the known cause, else the first error, else an echo, else nothing.

        An echo is less specific than the exception above it.
        """
        fatal = self.fatal
        if fatal and fatal.signature.rank_scope == "cause" and not fatal.signature.weak:
            return fatal.line.strip()
        return (self.first_error or (fatal.line if fatal else "")).strip()


def _unknown(line: Line, node: str, last_errors: t.Sequence[str]) -> dict[str, t.Any]:
    """Return the finding for a failure that no signature matches: its first error, and the last ones."""
    return {
        **finding(
            UNKNOWN_ID,
            node,
            "unknown",
            f"no signature knows this error: {line.text.strip()}",
            measured=line.text,
            remedy="Read the lines around it, and those of the other ranks at that time.",
        ),
        "cause": "",
        "consequence": "",
        "certainty": UNKNOWN,
        "needs_reboot": False,
        "of_peer": False,
        "lines": list(dict.fromkeys([line.text, *last_errors])),
        **_place(line),
    }


def diagnose(
    lines: t.Iterable[Line], signatures: t.Iterable[Signature] | None = None, addresses: t.Mapping[str, str] | None = None
) -> list[dict[str, t.Any]]:
    """Return the findings of all logs of a cluster, the first cause first.

    ``lines`` may come in any order between logs; those of one log (``node`` and ``source``) in their own. ``addresses`` maps the nodes'
    addresses to their names: Ray prints lines of other nodes in the head's log. A finding has the common fields and ``rank`` (None where
    the line names none), ``time`` (seconds since 1970, None where unknown), ``log``, ``cause``, ``consequence``, ``lines``,
    ``needs_reboot``, and ``certainty``: ``known``, ``suspected``, or ``unknown`` for an error that no signature matches. Known causes come
    before suspected ones, and in each group the earliest is first; findings without a time are last, in their order.
    """
    rows = tuple(shipped() if signatures is None else signatures)
    logs: dict[tuple[str, str], Diagnosis] = {}
    for line in lines:
        node = (addresses or {}).get(address_of(line.text), line.node)
        # A report of several lines is followed within one log of one node.
        if (node, line.source) not in logs:
            logs[node, line.source] = Diagnosis(rows)
        logs[node, line.source].feed([line])
    findings = [entry for (node, _source), log in logs.items() for entry in log.findings(node)]
    return sorted(_without_redundant(findings), key=lambda entry: (_urgency(entry), happened(entry)))


def _without_redundant(findings: t.Sequence[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Return findings without redundant unknown errors: those after a known cause, and those that are in another log of the node as well."""
    known_at = min((_time(entry) for entry in findings if entry["verdict"] == "block" and entry["certainty"] == KNOWN), default=None)
    kept: dict[t.Any, dict[str, t.Any]] = {}
    for number, entry in enumerate(findings):
        if entry["id"] != UNKNOWN_ID:
            kept[number] = entry
        elif known_at is None or _time(entry) < known_at:
            kept.setdefault((entry["node"], _VARYING.sub("#", entry["measured"])), entry)
    return list(kept.values())


def _time(entry: t.Mapping[str, t.Any]) -> float:
    """Return when a finding's line was written; infinity where that is unknown."""
    return math.inf if entry["time"] is None else entry["time"]


def happened(failure: t.Mapping[str, t.Any]) -> float:
    """Return the time that failures are sorted by: a message about another rank counts as later than that rank's own cause of the same moment."""
    return _time(failure) + (SAME_MOMENT if failure.get("of_peer") else 0.0)


def _urgency(entry: t.Mapping[str, t.Any]) -> int:
    """Return the sort key of a finding: known causes come first, then unknown errors and suspicions, then warnings."""
    if entry["verdict"] == "warn":
        return 2
    return 0 if entry["certainty"] == KNOWN else 1
