# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What one line of a log says about itself: when, where, by which rank, and whether it can be a failure. This plugin util is PRIVATE to the collection.

Engines, Ray, NCCL, torch, Docker and the kernel each write the time in their own way, and the lines of a traceback carry none.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
import typing as t

#: Characters at the beginning of a line in which its time and its writer stand.
_HEAD = 160
_DAY = 86400.0

_MONTHS = {name: number for number, name in enumerate("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
_MONTH_NAME = rf"(?P<name>{'|'.join(_MONTHS)})"
#: The ways in which programs write the time, the most complete one first.
_STAMPS = (
    re.compile(rf"(?<![\d-])(?P<year>20\d\d)-(?P<month>\d\d)-(?P<day>\d\d)[T ]{_CLOCK}(?P<zone>Z|[+-]\d\d:?\d\d)?"),  # Docker, journal, Ray, NCCL
    re.compile(rf"\[[A-Z][a-z][a-z] {_MONTH_NAME} (?P<day>[ \d]\d) {_CLOCK} (?P<year>20\d\d)\]"),  # dmesg -T
    re.compile(rf"\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) +(?P<month>\d\d)-(?P<day>\d\d) {_CLOCK}"),  # vLLM
    re.compile(rf"(?:^|[\s:\])\[])[DIVWEF](?P<month>\d\d?)(?P<day>\d\d) {_CLOCK}"),  # torch
    re.compile(rf"^{_MONTH_NAME} (?P<day>[ \d]\d) {_CLOCK} "),  # journalctl
)

_RANK = re.compile(r"\[rank(?P<bracket>\d{1,4})\]|\brank=\[?(?P<option>\d{1,4})\b|\b(?:Vllm)?Worker[_ ]TP(?P<tensor>\d{1,4})(?!\d|_(?!EP))")
_ADDRESS = re.compile(r"\([\w:.]{1,64} pid=\d{1,10}, ip=(?P<address>[\da-fA-F.:]{2,45})\)")

#: Lines of these levels are not failures, whatever they quote. One alternative for each way to write a level.
_QUIET = re.compile(
    r"(?:^|[\s)|])(?:DEBUG|INFO|WARNING) +(?:\d\d-\d\d |\[\w+\.\w+:\d+\])"  # vLLM
    r"|^(?:[^\s|]+ +\| )?(?:\([^()]*\) )*(?:DEBUG|INFO|WARNING): "  # uvicorn, the banner of an image
    r"| - (?:DEBUG|INFO|WARNING) - |\[(?:INFO|WARNING)\]"  # FlashInfer, TensorRT-LLM
    r"|\d\d:\d\d:\d\d[,.]\d+Z?\s+(?:DEBUG|INFO|WARN(?:ING)?)\s|\[[\d-]+ [\d:,]+ [DIW] \d+ \d+\]"  # Ray in Python and in C++
    r"|(?:^|[\s:\])\[])[DIVW]\d{3,4} \d\d:\d\d:\d\d\."  # torch
    r"|\bNCCL (?:INFO|TRACE|VERSION)\b"
)
#: What Python's logging puts before a line that another program wrote: the time, a level, and the words up to a line that begins with a level of its own.
_PASSED_ON = re.compile(
    r"^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - (?:\S{1,64} - )?(?:DEBUG|INFO|WARNING) - "
    r"(?=(?:\[[^\]]{1,64}\] )?(?:\([^()]{1,64}\) )*(?:ERROR|CRITICAL)[ :])"
)
#: Errors in name only: a kernel that is tried and not taken, a download that is tried again, the note of an image that brings its own libcuda,
#: what pip says of packages that are not loaded, a library that is left out, what Ray says of agents.
_NO_ERROR = re.compile(
    r"Skipping tactic|retrying \d+ of \d+|This container was built for NVIDIA Driver Release|pip's dependency resolver|cannot be preloaded .*: ignored"
    # What torch tries and does not choose while it tunes; every line of such a report names this file.
    r"|torch/_inductor/select_algorithm\.py:\d+\]"
    # NGC images say so of every GPU that is newer than themselves, and serve.
    r"|No supported GPU\(s\) detected to run this container"
    # What Ray's own logs say of every cluster without a dashboard, and at every end: counters, agents that are not there, its own events as JSON.
    r"|services\.py:\d+ -- (?:Failed to start the dashboard|Error should be written to 'dashboard|The last \d+ lines of \S+dashboard)"
    r"|plasma error: 0|metrics exporter agent|Cannot connect to host 127\.0\.0\.1:8265|^\{\"custom_fields\":|process_watcher\.py:\d+ -- Raylet is terminated"
)
#: What vLLM says about one client's request, by the source file that says it.
_OF_A_CLIENT = re.compile(
    r"\[(?:[\w./]*/)?(?:serving\w*|protocol|preprocess|chat_utils|hf|server_utils|backend_xgrammar|\w*exception_handlers?|\w*_parser)\.py:\d+\]"
)
#: What stands before a line that went through ``docker logs -t`` or the journal (in its forms short, short-iso, short-full, short-monotonic).
_WRAPPING = re.compile(
    r"^(?:20\d\d-\d\d-\d\dT[\d:]{8}(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d) "
    rf"|(?:{'|'.join(_MONTHS)}) [ \d]\d [\d:]{{8}}(?:\.\d{{1,6}})? |[A-Z][a-z][a-z] 20\d\d-\d\d-\d\d [\d:]{{8}} [A-Z]{{2,5}} |\[ *\d{{1,10}}\.\d{{6}}\] )?"
    r"(?:\S{1,64} [\w.@/-]{1,64}\[\d{1,10}\]: )?"
)


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of a log, without colors.

    ``time`` is in seconds since 1970, by one clock for all nodes; None where it is unknown. ``source`` names the log: lines of one node
    and source are read in their order.
    """

    text: str
    node: str = ""
    time: float | None = None
    source: str = ""


def moment(text: str, reference: float) -> float | None:
    """Return when a line was written, in seconds since 1970; None when it does not say.

    A time without a year is the last one before a day after ``reference``, and one without a zone is UTC, as in containers.
    """
    head = text[:_HEAD]
    found = next(filter(None, (stamp.search(head) for stamp in _STAMPS)), None)
    if found is None:
        return None
    parts = found.groupdict()
    month = int(parts["month"]) if parts.get("month") else _MONTHS[parts["name"]]
    latest = datetime.datetime.fromtimestamp(reference + _DAY, datetime.timezone.utc)
    years = (int(parts["year"]),) if parts.get("year") else (latest.year, latest.year - 1)
    moments = (_seconds(year, month, parts) for year in years)
    return next((seconds for seconds in moments if seconds is not None and (parts.get("year") or seconds <= latest.timestamp())), None)


def _seconds(year: int, month: int, parts: t.Mapping[str, str | None]) -> float | None:
    zone = (parts.get("zone") or "Z").replace("Z", "+00:00")
    zone = zone if ":" in zone else f"{zone[:3]}:{zone[3:]}"
    text = f"{year:04}-{month:02}-{int(parts['day'] or 0):02}T{parts['hour']}:{parts['minute']}:{parts['second']}{zone}"
    try:
        whole = datetime.datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None
    return whole + float(f"0.{parts['fraction'] or 0}")


def unwrapped(text: str) -> tuple[str, float | None]:
    """Return what a line says, and when where its wrapping says so: Docker's files and ``journalctl -o json`` write each line as JSON."""
    if not text.startswith('{"'):
        return text, None
    try:
        entry = json.loads(text)
        if isinstance(entry.get("log"), str):
            return entry["log"].rstrip("\r\n"), moment(str(entry.get("time", "")), 0.0)
        if isinstance(entry.get("MESSAGE"), str):
            return entry["MESSAGE"], int(entry["__REALTIME_TIMESTAMP"]) / 1_000_000
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return text, None
    return text, None


def timed(texts: t.Iterable[str], node: str, reference: float, *, source: str = "", ahead: float = 0.0) -> t.Iterator[Line]:
    """Yield the lines of one log with their times. A line that does not say when has the time of the one before it.

    ``reference`` is the present, or the log's last change. ``ahead`` is by how many seconds the node's clock is before the common one.
    """
    last: float | None = None
    for wrapped in texts:
        text, own = unwrapped(wrapped)
        own = moment(text, reference) if own is None else own
        last = last if own is None else own - ahead
        yield Line(text, node, last, source)


def unprefixed(text: str) -> str:
    """Return a line as its program wrote it, without what ``docker logs -t`` or the journal put before it."""
    return _WRAPPING.sub("", text, count=1)


def rank_of(text: str) -> int | None:
    """Return the rank that a line is by or about, None when it names none, or names it by a place among stages of a pipeline."""
    found = _RANK.search(text)
    return int(found[found.lastgroup]) if found and found.lastgroup else None


def address_of(text: str) -> str:
    """Return the address of the node whose process wrote a line that Ray forwarded, empty when it does not say."""
    found = _ADDRESS.search(text[:_HEAD])
    return found["address"] if found else ""


def is_quiet(text: str) -> bool:
    """Return whether a line is of a level below a failure. Where a supervisor or a benchmark passed it on, its own level counts."""
    return bool(_QUIET.search(_PASSED_ON.sub("", text, count=1)))


def is_about_engine(text: str) -> bool:
    """Return whether a line can say why the engine fails: errors in name only cannot, nor those of one client's request."""
    return not _NO_ERROR.search(text) and not (_OF_A_CLIENT.search(text) and "EngineDeadError" not in text)
