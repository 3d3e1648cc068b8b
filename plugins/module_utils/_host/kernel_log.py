# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel's log lines about GPU, fabric and memory since it booted. This module util is PRIVATE to the collection.

Lines are distinguished by their own shape, so that a file may have any of these forms: records of ``/dev/kmsg``, ``dmesg``,
``dmesg --time-format iso``, ``journalctl -k`` in any of its forms. Only the kernel's own messages count: a program wrote the records of another facility.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import re
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import UTC
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import Section, strict
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool

#: Bytes of a log file that are read, from its end.
FILE_LIMIT = 16 * 1024 * 1024
#: Bytes that one read of /dev/kmsg is given; a record that does not fit makes the read fail (EINVAL).
_RECORD_SIZE = 64 * 1024
#: Records of /dev/kmsg that are read.
RECORD_LIMIT = 50_000
#: Lines of the journal that are read, the newest; as JSON they stay below the limit of a tool's output.
JOURNAL_LIMIT = 12_000
#: Different events that are reported; the same one again only raises its count.
EVENT_LIMIT = 200
_TEXT_LIMIT = 400

BY_HAND = "Look by hand: sudo journalctl -k -b | grep -E 'NVRM|Xid|AER|oom|mlx5'"

_WARNING = 4

#: The first line of every boot.
_BANNER = re.compile(r"^(Linux version \d|Booting Linux on physical CPU )")

_KMSG = re.compile(r"^(?P<prefix>\d{1,10}),(?P<sequence>\d{1,20}),(?P<us>\d{1,20}),[^;]*;(?P<text>.*)$", re.ASCII)
_PROGRAM = r"(?:\S+ kernel: )?(?P<program>\S+ [\w.@-]+\[\d+\]: )?"
_DMESG = re.compile(
    r"^(?:<(?P<prefix>\d{1,3})>|(?P<facility>[a-z]{3,8}) *:[a-z]{3,6} *: )?"
    rf"\[ *(?P<seconds>\d{{1,12}})\.(?P<micro>\d{{6}})\](?:\[ *[TC]\d+\])? {_PROGRAM}(?P<text>.*)$", re.ASCII
)
_STAMP = r"(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,6}))?(?P<zone>Z|[+-]\d\d:?\d\d)"
_ISO = re.compile(rf"^{_STAMP} {_PROGRAM}(?P<text>.*)$", re.ASCII)
_WALL = re.compile(r"^\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] (?P<text>.*)$", re.ASCII)
_SHORT = re.compile(
    r"^[A-Z][a-z]{2} (?:[ \d]\d|\d{4}-\d\d-\d\d) \d\d:\d\d:\d\d(?:\.\d{1,6})?(?: [A-Z]{2,5})? \S+ (?P<sender>[^:\s]+): (?P<text>.*)$", re.ASCII
)

#: The kinds of events; the first pattern that matches names the kind.
_KINDS = (
    ("nv_no_memory", re.compile(r"NV_ERR_NO_MEMORY")),
    ("xid", re.compile(r"NVRM: Xid \(")),
    ("gpu", re.compile(r"\bNVRM: .*(?:RmInitAdapter\b.*(?:failed|Cannot)|rm_init_adapter failed|fallen off the bus|NV_ERR_GPU_IN_FULLCHIP_RESET"
                       r"|None of the NVIDIA devices were initialized|NV_ERR_GPU_IS_LOST|present on the bus|[Hh]eartbeat timed out)")),
    ("nvrm", re.compile(r"\bNVRM:? |\bnvidia-modeset: ERROR: ")),
    ("aer", re.compile(r"\bAER: |PCIe Bus Error: |mlx5_pci_(?:err_detected|slot_reset)")),
    ("oops", re.compile(r"\bInternal error: |\bOops: |\bkernel BUG at |\bUnable to handle kernel "
                        r"|\bBUG: (?:kernel|unable) |\bSError Interrupt on |\bKernel panic - ")),
    # Where a fault was, in an Oops on arm64. The driver's own time-outs are routine.
    ("wifi", re.compile(r"\b(?:pc|lr) : mt79\w{1,60}\+0x")),
    ("stall", re.compile(r"\brcu: .*(?:detected stall|self-detected stall|kthread starved)"
                         r"|\bBUG: soft lockup|\bhard LOCKUP\b|: task .* blocked for more than \d")),
    ("pcie", re.compile(r"\bretraining (?:non-functional|failed)|\bbroken device, ")),
    ("removed", re.compile(r"\bcx7-pcie-hotplug \S+: Cable remov|\bpciehp: Slot\S+: (?:Link Down|Card not present)")),
    ("firmware", re.compile(r"\bmlx5_core\b(?!.*recovered after timeout).*(?:exec_timeout|leak of a command resource|No done completion"
                            r"|failed to allocate command entry|Fatal error \d|firmware internal error|mlx5_load_one failed|probe .*failed with error)")),
    ("smmu", re.compile(r"\barm-smmu-v3\b.*(?:CMD_SYNC timeout|ATC invalidate timeout|unexpected global error)")),
    ("suspend", re.compile(r"^PM: suspend entry ")),
    ("hardware", re.compile(r"\[Hardware Error\]: +event severity: (?!corrected)")),
    ("memory", re.compile(r"^Memory: \d+K/\d+K available ")),
    ("oom", re.compile(r"\binvoked oom-killer:|\boom-kill:|\bOut of memory: Kill|\bMemory cgroup out of memory: Kill|\boom_reaper: ")),
    ("mlx5", re.compile(r"\bmlx5_(?:core|ib)\b")),
)

#: Lines of a healthy machine at every boot.
_HARMLESS = re.compile(
    r"NVRM: loading NVIDIA|NVRM: Persistence mode is deprecated|NVRM: GSP firmware loaded|NVRM: GPU at PCI:\S+ GPU-"
    # Logged in every session of a profiler, and when the driver withdraws its request for a reset of the GPU.
    r"|refcntRequestReference_IMPL: Failed to enter state|recovery action changed from .* to 0x0 \(None\)"
    r"|AER: enabled with IRQ"
    # The log of the GPU's own firmware is for NVIDIA; no driver includes the file.
    r"|Failed to load gsp_log_"
    # Seen on systems with full bandwidth as well: the authors of a bandwidth check for NVIDIA's playbooks (pull request 108) warn of using it.
    r"|insufficient power on the PCIe slot"
)

#: Words that make a line of mlx5 an event where the log has no priorities; the driver's chatter at boot has none of these words.
_TROUBLE = re.compile(r"\berr(?:or)?s?\b|fail|timeout|timed out|unplugged|fatal|syndrome|health|reset|\blost\b|\bbad\b|\bhigh temp", re.IGNORECASE)
_MLX5_LINK = re.compile(r"\bmlx5_core \S+ (?P<netdev>[^\s:]+): Link (?P<way>up|down)$")

#: A card that was removed because no cable is plugged in comes back with the cable.
_CABLE_IN = re.compile(r"\bcx7-pcie-hotplug \S+: Cable plug")

_VARYING = re.compile(r"0x[0-9a-fA-F]+|\d+")


@dataclasses.dataclass(frozen=True)
class Line:
    """One message of the kernel. ``priority`` is 0 (emergency) to 7 (debug), None where the log does not have it.

    The time is ``boot_us``, microseconds since boot, or ``wall_us``, microseconds since 1970 UTC; neither where the log has none.
    """

    text: str
    priority: int | None = None
    boot_us: int | None = None
    wall_us: int | None = None


def _iso(match: re.Match[str]) -> int | None:
    zone = match["zone"].replace("Z", "+00:00")
    try:
        seconds = int(datetime.datetime.fromisoformat(f"{match['stamp']}{zone[:3]}:{zone[-2:]}").timestamp())
    except (ValueError, OverflowError):
        return None
    return seconds * 1_000_000 + int((match["fraction"] or "0").ljust(6, "0"))


def _whole(value: t.Any) -> int | None:
    """Return a number that the journal writes as a string of digits."""
    text = value if isinstance(value, str) else ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 20 else None


def parse_journal_entry(text: str) -> Line | None:
    """Return the kernel's message of one ``journalctl -o json`` line, None for one that is not the kernel's own.

    Raises ValueError for anything but a JSON object. A message that is not text is a list of numbers there.
    """
    entry = json.loads(text)
    if not isinstance(entry, dict):
        raise ValueError("no object")
    message = entry.get("MESSAGE")
    if isinstance(message, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in message):
        message = bytes(message).decode("utf-8", errors="replace")
    if not isinstance(message, str) or entry.get("_TRANSPORT", "kernel") != "kernel" or entry.get("SYSLOG_FACILITY", "0") != "0":
        return None
    return Line(message, _whole(entry.get("PRIORITY")), _whole(entry.get("_SOURCE_MONOTONIC_TIMESTAMP")), _whole(entry.get("__REALTIME_TIMESTAMP")))


def parse_line(text: str) -> Line | None:
    """Return the kernel's message in one line of a log, None for a line without one.

    That is an empty one, the key of a ``/dev/kmsg`` record, a program's message, or a boot mark of the journal. A line of no known shape
    counts as a message without a time: its text still counts.
    """
    if not text.strip() or text.startswith((" ", "-- ")):
        return None
    if text.startswith("{"):
        try:
            return parse_journal_entry(text)
        except (ValueError, RecursionError):
            return Line(text)
    if match := _KMSG.match(text):
        facility, priority = divmod(int(match["prefix"]), 8)
        return None if facility else Line(match["text"], priority, int(match["us"]))
    if match := _DMESG.match(text):
        facility, priority = divmod(int(match["prefix"] or "0"), 8)
        if facility or match["program"] or match["facility"] not in (None, "kern"):
            return None
        return Line(match["text"], priority if match["prefix"] else None, int(match["seconds"]) * 1_000_000 + int(match["micro"]))
    if match := _ISO.match(text):
        return None if match["program"] else Line(match["text"], None, None, _iso(match))
    if match := _SHORT.match(text):
        # "Nov 26 22:38:10" has neither a year nor a zone: no time is better than a guessed one.
        return Line(match["text"]) if match["sender"] == "kernel" else None
    match = _WALL.match(text)
    return Line(match["text"] if match else text)


class Collector:
    """Gathers the events of one log, line by line. A boot's first line discards the lines of an earlier boot."""

    def __init__(self, boot_time: int | None = None) -> None:
        """``boot_time``: when this boot began, in seconds since 1970, to turn times since boot into times of day."""
        self.boot_time = boot_time
        self.since_boot, self.truncated, self.lines = False, False, 0
        self._found: dict[tuple[str, str], dict[str, t.Any]] = {}
        self._links_up: set[str] = set()

    def add(self, line: Line | None) -> None:
        """Count one line; None is a line that is not the kernel's."""
        if line is None:
            return
        self.lines += 1
        if _BANNER.match(line.text):
            if not (self.since_boot and self.lines == 2):  # aarch64 says "Booting Linux" and then "Linux version"
                self._found.clear()
                self._links_up.clear()
                self.truncated = False
            self.since_boot, self.lines = True, 1
        if _CABLE_IN.search(line.text):
            self._found = {key: event for key, event in self._found.items() if "Cable remov" not in event["text"]}
        kind = self._kind(line)
        if kind is None:
            return
        text = _printable(line.text)
        key = (kind, _VARYING.sub("#", text))
        moment = self._time(line)
        known = self._found.get(key)
        if known is not None:
            known["count"] += 1
            known["last"] = moment or known["last"]
        elif len(self._found) < EVENT_LIMIT:
            self._found[key] = {"time": moment, "last": moment, "kind": kind, "text": text, "count": 1}
        else:
            self.truncated = True

    def events(self) -> list[dict[str, t.Any]]:
        """Return the events in the order of the log."""
        return list(self._found.values())

    def _kind(self, line: Line) -> str | None:
        kind = next((name for name, pattern in _KINDS if pattern.search(line.text)), None)
        return None if kind is None or _HARMLESS.search(line.text) or (kind == "mlx5" and not self._mlx5_trouble(line)) else kind

    def _mlx5_trouble(self, line: Line) -> bool:
        link = _MLX5_LINK.search(line.text)
        if link:
            # A cage without a cable is down from the start. One that was up and went down is an event.
            if link["way"] == "up":
                self._links_up.add(link["netdev"])
                return False
            return link["netdev"] in self._links_up
        return line.priority <= _WARNING if line.priority is not None else bool(_TROUBLE.search(line.text))

    def _time(self, line: Line) -> str | None:
        # The journal's own time of a kernel message is when it was read from the kernel, which may be long after.
        if line.boot_us is not None and self.boot_time is not None:
            return _utc(self.boot_time + line.boot_us // 1_000_000)
        return None if line.wall_us is None else _utc(line.wall_us // 1_000_000)


def _utc(seconds: int) -> str | None:
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime(UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _printable(text: str) -> str:
    """Return a message as one line without control characters for a terminal."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:_TEXT_LIMIT]).rstrip()


def parse_log(text: str, boot_time: int | None = None) -> Collector:
    """Return the events of a log's text. Never raises."""
    collector = Collector(boot_time)
    for line in text.split("\n"):
        collector.add(parse_line(line.rstrip("\r")))
    return collector


def read_boot_time(proc_root: str) -> int:
    """Return when the machine booted, in seconds since 1970. Raises OSError, :class:`UnknownState` when the kernel does not report it."""
    with open(os.path.join(proc_root, "stat"), encoding="ascii", errors="replace") as stream:
        stat = stream.read()
    match = re.search(r"^btime ([0-9]{1,12})$", stat, re.MULTILINE)
    if not match:
        raise UnknownState("the kernel does not report when it booted", raw=stat[:2000])
    return int(match[1])


class Log(t.NamedTuple):
    """A log: its text, the section ``kernel_log`` of ``node_info`` that follows from it, and how many of its lines are the kernel's."""

    text: str
    section: dict[str, t.Any]
    lines: int


def _log(source: str, text: str, boot_time: int | None, *, cut: bool, since_boot: bool | None = None) -> Log:
    """Return a log of which lines may be missing (``cut``). Without ``since_boot`` its lines show whether it begins with the boot."""
    collector = parse_log(text, boot_time)
    complete = collector.since_boot if since_boot is None else since_boot
    section = {"since_boot": complete, "source": source, "events": collector.events(), "truncated": (cut and not complete) or collector.truncated}
    return Log(text, section, collector.lines)


def from_file(path: str, boot_time: int | None) -> Log:
    """Return the log in a file, of which at most the last :data:`FILE_LIMIT` bytes are read. Raises OSError."""
    with open(path, "rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(size - FILE_LIMIT, 0))
        return _log(path, stream.read(FILE_LIMIT).decode("utf-8", errors="replace"), boot_time, cut=size > FILE_LIMIT)


def read_kmsg(path: str, timeout: float) -> tuple[list[str], bool]:
    """Return the records of the kernel's own buffer, without waiting for new ones, and whether some are missing. Raises OSError."""
    records: list[str] = []
    deadline = time.monotonic() + timeout
    cut = False
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        for _count in range(RECORD_LIMIT):
            try:
                record = os.read(descriptor, _RECORD_SIZE)
            except BlockingIOError:  # that was the last one
                break
            except BrokenPipeError:  # overwritten meanwhile; the next read continues with the oldest record
                cut = True
                continue
            if not record:
                break
            records.append(record.decode("utf-8", errors="replace").split("\n", 1)[0])
            if time.monotonic() > deadline:
                cut = True
                break
        else:
            cut = True
    finally:
        os.close(descriptor)
    if not records:
        raise UnknownState(f"{path} holds no message", remedy=BY_HAND, reason="no kernel log")
    return records, cut


def from_kmsg(path: str, boot_time: int | None, timeout: float) -> Log:
    """Return the kernel's own buffer. Raises OSError or :class:`UnknownState`."""
    records, cut = read_kmsg(path, timeout)
    first = _KMSG.match(records[0])
    # A buffer that was overwritten starts at a later sequence number.
    complete = bool(first) and first["sequence"] == "0" and not cut
    return _log(path, "\n".join(records) + "\n", boot_time, cut=cut, since_boot=complete)


def from_journal(tool: str, boot_time: int | None, timeout: float) -> Log:
    """Return the journal of this boot. Raises :class:`UnknownState` when it does not answer, or is empty.

    A user who may not read the journal gets an empty answer without an error, and a boot always leaves messages.
    """
    fields = "--output-fields=MESSAGE,PRIORITY,SYSLOG_FACILITY,_TRANSPORT,_SOURCE_MONOTONIC_TIMESTAMP"
    result = run_tool([tool, "-k", "-b", "-q", "--no-pager", "-o", "json", fields, "-n", str(JOURNAL_LIMIT)], timeout)
    if result.rc != 0:
        raise UnknownState(f"journalctl failed with status {result.rc}: {result.raw[:200]}", remedy=BY_HAND, reason="tool failed", raw=result.raw[:4000])
    log = _log("journalctl", result.stdout, boot_time, cut=True)
    if not log.lines:
        raise UnknownState(
            "the journal shows no message of the kernel", remedy="Run the task with become: true.", reason="no kernel log", raw=result.stdout[:4000]
        )
    return log


def _chosen(source: str, boot_time: int | None, timeout: float, kmsg: str, journalctl: str) -> Log:
    """Return the log in a file, or for ``auto`` the kernel's buffer; where that cannot be read or does not begin with the boot, the journal."""
    if source != "auto":
        return from_file(source, boot_time)
    buffer, failure = None, ""
    try:
        buffer = from_kmsg(kmsg, boot_time, timeout)
    except (OSError, UnknownState) as error:
        failure = f"{kmsg}: {error.strerror if isinstance(error, OSError) else error}"
    if buffer and buffer.section["since_boot"]:
        return buffer
    try:
        journal = from_journal(journalctl, boot_time, timeout)
    except UnknownState as error:
        if buffer:
            return buffer
        raise UnknownState(f"{failure}; {error}", remedy="Run the task with become: true.", reason="no kernel log", **error.details) from error
    return journal if journal.section["since_boot"] or not buffer else buffer


def kernel_log(
    source: str = "auto",
    proc_root: str = "/proc",
    timeout: float = 20.0,
    section: Section = strict,
    kmsg: str = "/dev/kmsg",
    journalctl: str = "journalctl",
) -> dict[str, t.Any]:
    """Return the section ``kernel_log`` of ``node_info``.

    ``{since_boot, source, events: [{time, last, kind, text, count}], truncated}``. ``source``: a file, or ``auto`` for the kernel's
    buffer, and where that is not readable or no longer begins with the boot, the journal. ``timeout`` is in seconds. ``time`` and
    ``last`` are the first and the last time of an event (ISO 8601, UTC, None where the log has none); messages that differ in
    numbers alone are one event, with the text of the first. ``since_boot``: whether the boot's first line is among those read.
    ``truncated``: whether something was left out. Without the time of the boot, which ``section`` notes, events count without their times.
    Raises OSError or :class:`UnknownState` when no source can be read.
    """
    return _chosen(source, section(lambda: read_boot_time(proc_root)), timeout, kmsg, journalctl).section


def whole_text(source: str = "auto", timeout: float = 20.0, kmsg: str = "/dev/kmsg", journalctl: str = "journalctl") -> str:
    """Return the text of the log that :func:`kernel_log` reads. Raises OSError or :class:`UnknownState`."""
    return _chosen(source, None, timeout, kmsg, journalctl).text
