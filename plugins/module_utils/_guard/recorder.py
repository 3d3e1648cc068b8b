# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node guard: samples the node every second into a ring on disk, and acts when memory collapses. This module util is PRIVATE to the collection.

It is one of the commands of the units' program, which needs Python 3.10 and its standard library:

    python3 -I guard.pyz guard --config guard.json

``guard.json`` has ``ring`` (directory), ``served`` and ``said`` (paths of the list of serving ranks, and of the last action), ``state_dir`` (with the
clusters' notes of expected levels), ``act``, ``load_seconds``, ``addresses`` (of the fabric) and ``roots``.

The thread that decides reads one file of the kernel and never blocks. The disk, the driver, Docker and the process table may hang, so other threads
read them, and their last values are unknown after a few seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import platform
import signal
import sys
import threading
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id, required_text, write_json
from ansible_collections.gb10.cluster.plugins.module_utils._guard import ring, sources, trend
from ansible_collections.gb10.cluster.plugins.module_utils._memory import node_memory, note
from ansible_collections.gb10.cluster.plugins.module_utils._redact import cleaned, redacted, secrets_of

#: Seconds between two samples, between two writes to the disk, between two scans of all processes, and after which a thread's values are unknown.
INTERVAL, FLUSH, LOOK, STALE = 1.0, 2.0, 10.0, 5.0
#: Seconds after which a failed disk is tried again, and records that are kept in memory meanwhile: an hour of samples.
DISK_AGAIN, KEPT = 10.0, 3600
#: Bytes of stack of a thread.
STACK = 256 * 1024
#: Flags of mlockall (mman.h): current and future pages, each once it is used.
MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT = 1, 2, 4

Config = dict[str, t.Any]


def clean(records: list[ring.Record]) -> list[ring.Record]:
    """Return records without secrets. Only a record with text, its own or the kernel's, can contain one."""
    if not any("text" in record or "k" in record for record in records):
        return records
    secrets = secrets_of({})
    return [t.cast(ring.Record, cleaned(record, secrets)) if "text" in record or "k" in record else record for record in records]


class Disk(threading.Thread):
    """Writes records every two seconds. A failing disk is logged once; the newest hour of records is kept in memory meanwhile."""

    def __init__(self, writer: ring.Writer, action_path: str, say: t.Callable[[str], None]) -> None:
        super().__init__(name="disk", daemon=True)
        self._writer, self._said, self._say = writer, action_path, say
        self._kept: list[ring.Record] = []
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ending = False
        self._lost, self._refused = 0, ""

    def put(self, record: ring.Record, *, now: bool = False) -> None:
        """Add a record; with ``now`` it is written at once."""
        with self._lock:
            self._kept.append(record)
            self._lost += max(0, len(self._kept) - KEPT)
            del self._kept[:-KEPT]
        if now:
            self._wake.set()

    def finish(self, timeout: float) -> None:
        """Write the remaining records and end."""
        self._ending = True
        self._wake.set()
        self.join(timeout)

    def run(self) -> None:
        while True:
            ending, refused = self._ending, self._refused
            self.flush()
            if ending:
                return
            self._wake.wait(DISK_AGAIN if refused and self._refused else FLUSH)
            self._wake.clear()

    def flush(self) -> None:
        """Write the pending records."""
        with self._lock:
            records = list(self._kept)
        kept, records, now = len(records), clean(records), time.time()
        if not records:
            return
        if self._refused:
            records.append({"e": "disk", "t": round(now, 3), "text": f"the disk accepts records again; the error was: {self._refused}", "lost": self._lost})
        try:
            if acts := [record for record in records if record.get("e") in ring.ACTS]:
                write_json(self._said, {"t": acts[-1]["t"], "text": acts[-1]["text"]}, 0o644)
            self._writer.write(records, now)
        except OSError as error:
            if not self._refused:
                self._say(f"the ring cannot be written ({error.strerror}: {error.filename or self._writer.folder}); new records are kept in memory")
            self._refused = error.strerror or str(error)
            self._writer.close()
            return
        with self._lock:
            del self._kept[:kept]
            if self._refused:
                self._lost = 0
        if self._refused:
            self._refused = ""
            self._say("the ring is written again")


class Slow(threading.Thread):
    """Reads sources that may hang every second: links, the kernel's log, the ranks. Docker and the whole process table are read every ten seconds."""

    def __init__(self, links: sources.Links, kernel: sources.Kernel, ranks: sources.Ranks, gpu: sources.Gpu, put: t.Callable[[ring.Record], None]) -> None:
        super().__init__(name="slow", daemon=True)
        self._links, self._kernel, self._ranks, self._gpu, self._put = links, kernel, ranks, gpu, put
        self._found: tuple[float, ring.Record] = (float("-inf"), {})
        self._lines: list[list[str]] = []
        self._lock = threading.Lock()
        self._looked = float("-inf")
        self._seen: dict[int, str] = {}
        self._unread = False
        self.phase = trend.NONE
        self.level = note.Level(None, sources.NO_RANK)
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(INTERVAL):
            self.once()

    def once(self) -> None:
        """Read all sources once."""
        self._gpu.tend()
        if time.monotonic() - self._looked >= LOOK:
            self._ranks.refresh()
            self._looked = time.monotonic()
            self._compare()
        self._expect(self._ranks.phase(), self._ranks.level())
        lines = self._kernel.now()
        # An unreadable log is recorded once; it is not a log without lines.
        reported, self._unread = self._unread, lines is None
        if lines is None:
            lines = [] if reported else [["unknown", "the kernel's log cannot be read"]]
        values = {"l": self._links.now(), "r": self._ranks.states()}
        with self._lock:
            self._found = time.monotonic(), values
            self._lines = [*self._lines, *lines][:100]

    def take(self) -> ring.Record:
        """Return the last values unless they are stale, with the kernel's lines since the last call."""
        with self._lock:
            at, values = self._found
            lines, self._lines = self._lines, []
        fresh = time.monotonic() - at <= STALE
        return {**(values if fresh else {"l": None, "r": None}), "p": self.phase if fresh else None, **({"k": lines} if lines else {})}

    def _expect(self, phase: str, level: note.Level) -> None:
        """Record a change of our ranks' phase or of their expected level."""
        if phase != trend.NONE and (phase, level) != (self.phase, self.level):
            below = "the guard does not act without a level" if level.mb is None else f"a collapse counts below {level.mb / node_memory.KIB_PER_MIB:.1f} GiB"
            self._put(event("level", f"our ranks are {phase}: {below} ({level.why})", mb=level.mb))
        self.phase, self.level = phase, level

    def _compare(self) -> None:
        """Record which processes of engines started and ended."""
        now = {rank.pid: f"{rank.kind} (pid {rank.pid}{'' if rank.ours else ', not ours'})" for rank in self._ranks.found}
        changes = {
            word: ", ".join(side[pid] for pid in sorted(side.keys() - other.keys()))
            for word, side, other in (("started", now, self._seen), ("ended", self._seen, now))
        }
        if any(changes.values()):
            self._put(event("ranks", "; ".join(f"{word} {names}" for word, names in changes.items() if names)))
        self._seen = now


def event(kind: str, text: str, **more: t.Any) -> ring.Record:
    """Return the record of an event that happens now."""
    return {"e": kind, "t": round(time.time(), 3), "text": text, **more}


class Guard:
    """The guard of one node. ``say`` writes to the journal."""

    def __init__(self, config: Config, say: t.Callable[[str], None]) -> None:
        self.config, self.say = config, say
        roots = config["roots"]
        self.proc, self.meminfo = roots["proc_root"], roots.get("meminfo")
        boot = boot_id(self.proc)
        head = {"boot": boot, "node": platform.node(), "interval": INTERVAL, "total": sources.total(self.proc, self.meminfo)}
        self.disk = Disk(ring.Writer(config["ring"], head), config["said"], say)
        self.ranks = sources.Ranks(self.proc, boot, config)
        self.gpu = sources.Gpu(roots["nvidia_smi"])
        links = sources.Links(config["addresses"], roots["sysfs_root"], self.proc)
        self.slow = Slow(links, sources.Kernel(roots["kernel_log"], self.proc), self.ranks, self.gpu, lambda record: self.disk.put(record, now=True))
        self.watch = trend.Watch(act=config["act"])

    def note(self, kind: str, text: str, **more: t.Any) -> None:
        """Record an event in the ring and in the journal."""
        self.disk.put(event(kind, text, **more), now=True)
        self.say(text)

    def act(self, order: trend.Order, phase: str, level: note.Level) -> None:
        """Carry out an order of the trend. Only processes of this collection that hold a model are signaled."""
        gib, policy = trend.KIB_PER_GIB, self.watch.policy
        why = (
            f"{order.available / gib:.1f} GiB available, changing by {order.rate / gib:+.2f} GiB/s, reaches {policy.floor / gib:g} GiB within"
            f" {policy.horizon:g} s ({phase})"
        )
        if order.what == trend.WOULD:
            unknown = f"the level is unknown, {level.why}" if level.mb is None else f"gb10_guard_act is {self.config['act']}"
            self.note("would", f"{why}; no action: {sources.NO_RANK if phase == trend.NONE else unknown}")
            return
        number, more = (signal.SIGTERM, "") if order.what == trend.TERM else (signal.SIGKILL, f", {policy.grace:g} s after SIGTERM")
        sent = self.ranks.signal(number)
        text = f"{why}, below the expected {self.watch.under / gib:.1f} GiB; {number.name} to pids {sent}{more}"
        self.note("act", text, signal=number.name, pids=sent)

    def sample(self) -> ring.Record:
        """Take one sample, and decide first."""
        at, now = time.monotonic(), time.time()
        try:
            figures: dict[str, int] = sources.memory(self.proc, self.meminfo)
        except UnknownState:
            return {"t": round(now, 3), "a": None, **self.slow.take()}
        phase, level = self.slow.phase, self.slow.level
        order = self.watch.feed(at, figures["a"], phase, None if level.mb is None else level.mb * node_memory.KIB_PER_MIB)
        if order is not None:
            self.act(order, phase, level)
        pressed = {"pm": sources.pressure(self.proc, "memory"), "pi": sources.pressure(self.proc, "io")}
        return {"t": round(now, 3), **figures, **pressed, "g": self.gpu.now(), **self.slow.take()}

    def run(self, stopping: threading.Event) -> None:
        """Take samples until ``stopping`` is set."""
        self.note("start", f"the guard watches, gb10_guard_act is {self.config['act']}")
        self.disk.start()
        self.slow.start()
        due = time.monotonic()
        while not stopping.wait(max(0.0, due - time.monotonic())):
            self.disk.put(self.sample())
            due = max(due + INTERVAL, time.monotonic() - INTERVAL)
        self.slow.stopping.set()
        self.gpu.stop()
        self.note("stop", "the guard was stopped")
        self.disk.finish(FLUSH * 2)


def keep_in_memory() -> str:
    """Lock the memory of this process against reclaim; return the error, empty without one."""
    failed = ctypes.CDLL(None, use_errno=True).mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)
    return os.strerror(ctypes.get_errno()) if failed else ""


def main(argv: t.Sequence[str]) -> int:
    """Run the guard. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="gb10-guard", description="Samples this node every second into a ring on disk, and acts when memory collapses.")
    parser.add_argument("--config", required=True, help="guard.json, which the role gb10.cluster.protect writes")
    config = json.loads(required_text(parser.parse_args(argv).config))
    threading.stack_size(STACK)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stopping.set())

    # The deciding thread logs, too, and must not read files for that.
    secrets = secrets_of({})

    def say(text: str) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{redacted(text, secrets)}\n")
            sys.stderr.flush()

    if failed := keep_in_memory():
        say(f"this process may be swapped out: {failed}")
    try:
        Guard(config, say).run(stopping)
    except (ClusterError, OSError) as error:
        say(f"the guard cannot start: {error}")
        return 1
    return 0
