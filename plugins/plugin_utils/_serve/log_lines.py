# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads one line of a log: its time, its node, its rank, and whether it can be a failure. This plugin util is PRIVATE to the collection.

Engines, Ray, NCCL, torch, Docker and the kernel write the time in different formats, and the lines of a traceback have none.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
import typing as t

#: Characters at the beginning of a line that contain its time and its writer.
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
#: What Python's logging adds before a line of another program: the time, a level, and the words before the line's own level.
_PASSED_ON = re.compile(
    r"^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - (?:\S{1,64} - )?(?:DEBUG|INFO|WARNING) - "
    r"(?=(?:\[[^\]]{1,64}\] )?(?:\([^()]{1,64}\) )*(?:ERROR|CRITICAL)[ :])"
)
#: Lines that only look like errors: a kernel that is tried and not chosen, a download that is retried, the note of an image with its own libcuda,
#: pip's warnings about packages that are not loaded, a library that is left out, Ray's messages about agents.
_NO_ERROR = re.compile(
    r"Skipping tactic|retrying \d+ of \d+|This container was built for NVIDIA Driver Release|pip's dependency resolver|cannot be preloaded .*: ignored"
    # What torch tries and does not choose while it tunes; every line of such a report names this file.
    r"|torch/_inductor/select_algorithm\.py:\d+\]"
    # NGC images print this for every GPU that is newer than the image, and serve.
    r"|No supported GPU\(s\) detected to run this container"
    # Ray logs these in every cluster without a dashboard, and whenever it ends: counters, missing agents, its own events as JSON.
    r"|services\.py:\d+ -- (?:Failed to start the dashboard|Error should be written to 'dashboard|The last \d+ lines of \S+dashboard)"
    r"|plasma error: 0|metrics exporter agent|Cannot connect to host 127\.0\.0\.1:8265|^\{\"custom_fields\":|process_watcher\.py:\d+ -- Raylet is terminated"
)
#: vLLM's messages about one client's request, by the source file that prints them.
_OF_A_CLIENT = re.compile(
    r"\[(?:[\w./]*/)?(?:serving\w*|protocol|preprocess|chat_utils|hf|server_utils|backend_xgrammar|\w*exception_handlers?|\w*_parser)\.py:\d+\]"
)
#: The prefix of a line that went through ``docker logs -t`` or the journal (in its forms short, short-iso, short-full, short-monotonic).
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
    """Return when a line was written, in seconds since 1970; None if it has no time.

    Without a year, it is the latest such time before ``reference`` plus one day. Without a zone it is UTC, as in containers.
    """
    head = text[:_HEAD]
    match = next(filter(None, (stamp.search(head) for stamp in _STAMPS)), None)
    if match is None:
        return None
    parts = match.groupdict()
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
    """Return the text of a line, and its time if the wrapping has one: Docker's files and ``journalctl -o json`` write each line as JSON."""
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
    """Yield the lines of one log with their times. A line without a time gets that of the line before it.

    ``reference`` is the current time, or that of the log's last change. ``ahead`` is by how many seconds the node's clock is ahead of the common one.
    """
    last: float | None = None
    for wrapped in texts:
        text, own = unwrapped(wrapped)
        own = moment(text, reference) if own is None else own
        last = last if own is None else own - ahead
        yield Line(text, node, last, source)


def unprefixed(text: str) -> str:
    """Return a line as its program wrote it, without the prefix of ``docker logs -t`` or the journal."""
    return _WRAPPING.sub("", text, count=1)


def rank_of(text: str) -> int | None:
    """Return the rank that wrote a line or that it is about; None if it names none, or names it by its place in a stage of a pipeline."""
    match = _RANK.search(text)
    return int(match[match.lastgroup]) if match and match.lastgroup else None


def address_of(text: str) -> str:
    """Return the address of the node whose process wrote a line that Ray forwarded, empty if there is none."""
    match = _ADDRESS.search(text[:_HEAD])
    return match["address"] if match else ""


def is_quiet(text: str) -> bool:
    """Return whether a line has a level below that of a failure. If a supervisor or a benchmark forwarded it, its own level counts."""
    return bool(_QUIET.search(_PASSED_ON.sub("", text, count=1)))


def is_about_engine(text: str) -> bool:
    """Return whether a line can explain a failure of the engine: not if it only looks like an error, or is about one client's request."""
    return not _NO_ERROR.search(text) and not (_OF_A_CLIENT.search(text) and "EngineDeadError" not in text)
