# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the lines of all logs to the cause of a failure, by the tables of signatures. This plugin util is PRIVATE to the collection."""

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

#: A line that a traceback ends with: the first one in a log names the cause, later ones are wrappers.
EXCEPTION = re.compile(
    r"(?:^|[\s)\]])"
    r"(?:(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Timeout|Interrupt)\b(?:\(.*\))?: (?!\d+ validation error)|Value error, )\S"
)
#: Any other line that calls itself an error.
ERROR = re.compile(r"\b(?:ERROR|CRITICAL|FATAL)\b|\b(?:fatal )?error: ")

#: Reports of several lines that are not about the engine: a request that failed, usage that could not be reported, what is left out while Python
#: or the engine starts, a kernel that is not taken, what went wrong while something was thrown away.
REPORT = re.compile(
    r"Exception in ASGI application|Report event failed: "
    r"|Exception in thread \S+ \(_report_(?:continuous_)?usage|Failed to load plugin|Skipping tactic"
    r"|Error processing line \d+ of |Error in \w+customize|Exception ignored in: "
)
#: The processes that a line names, and the source file of vLLM's that repeats itself in every line of a report.
WRITER = re.compile(r"^(?:[^\s|]+ +\| )?(?:\([^()]*\) )*(?:\([^()]*\)$)?")
SOURCE = re.compile(r"\b(?:ERROR|CRITICAL) \d\d-\d\d [\d:]+ (\[[^\]]+\])")
#: What a line of a traceback begins with, after its writer.
TRACEBACK = re.compile(
    r"\s|$|[|+]|Traceback |During handling |The above exception |Remainder of file |[\w.]+(?:Error|Exception|Warning|Timeout|Disconnect)\b"
    r"|[a-z_][\w.]*\.[A-Z]\w+(?::|$)"
)

#: What is known of why: the cause itself, what usually has one of several, or nothing but that there was an error.
KNOWN, SUSPECTED, UNKNOWN = "known", "suspected", "unknown"
#: The id of the finding for a log with errors that no signature knows.
UNKNOWN_ID = "unknown"
#: Ids of findings that are made here; each signature's is another one.
IDS = (UNKNOWN_ID,)
#: What differs in lines that say the same.
_VARYING = re.compile(r"0x[0-9a-fA-F]+|\d+")
#: Seconds within which a failure of one rank shows on the others: what another rank says of it then counts as later.
SAME_MOMENT = 2.0
#: Lines before the one that bears a failure which a finding shows.
SHOWN_BEFORE = 4


@dataclasses.dataclass(frozen=True)
class Match:
    """A signature with the line of the log that bears it, and those just before it."""

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
    """Reads one log as it grows, and remembers what shows why the engine fails."""

    def __init__(self, signatures: t.Iterable[Signature] | None = None) -> None:
        self._signatures = tuple(shipped() if signatures is None else signatures)
        self._at_any_level = tuple(row for row in self._signatures if row.counts_when(quiet=True))
        self._matches: dict[str, Match] = {}
        self._exception: Line | None = None
        self._error: Line | None = None
        self._report = Report()
        self.tail: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)

    def feed(self, lines: t.Iterable[Line | str]) -> None:
        """Take in new lines, in their order. Of each signature the first line counts."""
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
        """The line that ends the wait: the first cause in the log, else the first echo in the table, where the generic ones stand last.

        A weak cause gives way to one whose line names it, and to an echo before it; what a rank says of another one gives way to a cause of
        the same moment.
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
        """Return whether a line only says that another rank failed, and that rank's own cause stands within the same moment."""
        own = (other.at.time for other in causes if not other.signature.of_peer)
        here = match.at.time
        return match.signature.of_peer and any(here is None or time is None or time - here <= SAME_MOMENT for time in own)

    def findings(self, node: str) -> list[dict[str, t.Any]]:
        """Return what the log says: the cause first, then the errors that no signature knows, what only repeats a failure, and what to mind."""
        fatal = self.fatal
        rest = sorted(self._matches.values(), key=lambda match: (match is not fatal, not match.signature.names_cause, match.signature.verdict != "block"))
        found = [match.finding(node) for match in rest]
        unexplained = self._exception or (None if fatal else self._error)
        if unexplained is None or (fatal and fatal.signature.names_cause) or any(match.line == unexplained.text for match in rest):
            return found
        return [_unknown(unexplained, node, [one for one in self.tail if ERROR.search(one) or EXCEPTION.search(one)]), *found]

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

        An echo says less than the exception that stands above it.
        """
        fatal = self.fatal
        if fatal and fatal.signature.rank_scope == "cause" and not fatal.signature.weak:
            return fatal.line.strip()
        return (self.first_error or (fatal.line if fatal else "")).strip()


def _unknown(line: Line, node: str, last_errors: t.Sequence[str]) -> dict[str, t.Any]:
    """Return the finding for a failure that no signature knows: its first error, and the last ones."""
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
    ``needs_reboot``, and ``certainty``: ``known``, ``suspected``, or ``unknown`` for an error that no signature knows. Known causes stand
    before suspected ones, and among each the earliest first; those without a time keep their order after it.
    """
    rows = tuple(shipped() if signatures is None else signatures)
    logs: dict[tuple[str, str], Diagnosis] = {}
    for line in lines:
        node = (addresses or {}).get(address_of(line.text), line.node)
        # A report of several lines is followed within one log of one node.
        if (node, line.source) not in logs:
            logs[node, line.source] = Diagnosis(rows)
        logs[node, line.source].feed([line])
    found = [one for (node, _source), log in logs.items() for one in log.findings(node)]
    return sorted(_worth_saying(found), key=lambda one: (_urgency(one), happened(one)))


def _worth_saying(found: t.Sequence[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Return findings without unknown errors that say nothing: those after a known cause, and those that another log of the node has, too."""
    known_at = min((_time(one) for one in found if one["verdict"] == "block" and one["certainty"] == KNOWN), default=None)
    kept: dict[t.Any, dict[str, t.Any]] = {}
    for number, one in enumerate(found):
        if one["id"] != UNKNOWN_ID:
            kept[number] = one
        elif known_at is None or _time(one) < known_at:
            kept.setdefault((one["node"], _VARYING.sub("#", one["measured"])), one)
    return list(kept.values())


def _time(one: t.Mapping[str, t.Any]) -> float:
    """Return when a finding's line was written; where that is unknown, later than all others."""
    return math.inf if one["time"] is None else one["time"]


def happened(one: t.Mapping[str, t.Any]) -> float:
    """Return when a failure came among others: what a rank says of another one counts as later than that one's own cause of the same moment."""
    return _time(one) + (SAME_MOMENT if one.get("of_peer") else 0.0)


def _urgency(one: t.Mapping[str, t.Any]) -> int:
    """Return the place of a finding among others: known causes, unknown errors and suspicions, warnings."""
    if one["verdict"] == "warn":
        return 2
    return 0 if one["certainty"] == KNOWN else 1
