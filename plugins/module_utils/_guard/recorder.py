# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node guard: samples the node every second into a ring on the disk, and acts when memory collapses. This module util is PRIVATE to the collection.

It is one of the commands of the units' program, which needs Python 3.10 and its standard library:

    python3 -I guard.pyz guard --config guard.json

``guard.json`` holds ``ring`` (directory), ``served`` and ``said`` (paths of the note of who serves, and of what was done or would have been last),
``state_dir`` (where clusters note up to where a start goes as expected), ``act``, ``load_seconds``, ``addresses`` (of the fabric) and ``roots``.

What decides and acts reads one file of the kernel's and waits for nobody. Whatever may hang, the disk, the driver, Docker, the process table, has a thread
of its own, and what it said last is unknown after a few seconds.
"""

from __future__ import annotations

import argparse
import collections
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
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id, write_json
from ansible_collections.gb10.cluster.plugins.module_utils._guard import ring, sources, trend
from ansible_collections.gb10.cluster.plugins.module_utils._memory import node_memory, note
from ansible_collections.gb10.cluster.plugins.module_utils._redact import cleaned, redacted, secrets_of

#: Seconds between two samples, between two writes to the disk, between two looks at all processes, and after which what a thread found is unknown.
INTERVAL, FLUSH, LOOK, STALE = 1.0, 2.0, 10.0, 5.0
#: Seconds after which a disk that refused is tried again, and records that are kept in memory meanwhile: an hour of samples.
DISK_AGAIN, KEPT = 10.0, 3600
#: Bytes of stack of a thread.
STACK = 256 * 1024
#: Pages of this process that the kernel shall not take back (mman.h): what there is and what comes, each once it is used.
MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT = 1, 2, 4

Config = dict[str, t.Any]


def clean(records: list[ring.Record]) -> list[ring.Record]:
    """Return records as everybody may read them. Only what has words, its own and the kernel's, can hold a secret."""
    if not any("text" in record or "k" in record for record in records):
        return records
    secrets = secrets_of({})
    return [t.cast(ring.Record, cleaned(record, secrets)) if "text" in record or "k" in record else record for record in records]


class Disk(threading.Thread):
    """Writes what it is given every two seconds. A disk that refuses is told once, and what comes meanwhile is kept in memory, the newest hour of it."""

    def __init__(self, writer: ring.Writer, said: str, say: t.Callable[[str], None]) -> None:
        super().__init__(name="disk", daemon=True)
        self._writer, self._said, self._say = writer, said, say
        self._kept: collections.deque[ring.Record] = collections.deque()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ending = False
        self._lost, self._refused = 0, ""

    def put(self, record: ring.Record, *, now: bool = False) -> None:
        """Take a record; with ``now`` it is written at once."""
        with self._lock:
            self._kept.append(record)
            if len(self._kept) > KEPT:
                self._kept.popleft()
                self._lost += 1
        if now:
            self._wake.set()

    def finish(self, timeout: float) -> None:
        """Write what is left and end."""
        self._ending = True
        self._wake.set()
        self.join(timeout)

    def run(self) -> None:
        while True:
            ending = self._ending
            refused = bool(self._refused)
            self.flush()
            if ending:
                return
            self._wake.wait(DISK_AGAIN if refused and self._refused else FLUSH)
            self._wake.clear()

    def flush(self) -> None:
        """Write what there is."""
        with self._lock:
            records = list(self._kept)
        records = clean(records)
        kept = len(records)
        if not records:
            return
        now = time.time()
        if self._refused:
            records.append({"e": "disk", "t": round(now, 3), "text": f"the disk takes records again; it refused them: {self._refused}", "lost": self._lost})
        try:
            if told := [one for one in records if one.get("e") in ring.ACTS]:
                write_json(self._said, {"t": told[-1]["t"], "text": told[-1]["text"]}, 0o644)
            self._writer.write(records, now)
        except OSError as error:
            if not self._refused:
                self._say(f"the ring cannot be written ({error.strerror}: {error.filename or self._writer.folder}); what comes is kept in memory")
            self._refused = error.strerror or str(error)
            self._writer.close()
            return
        with self._lock:
            for _written in range(min(kept, len(self._kept))):
                self._kept.popleft()
            if self._refused:
                self._lost = 0
        if self._refused:
            self._refused = ""
            self._say("the ring is written again")


class Slow(threading.Thread):
    """Reads every second what may hang: links, the kernel's log, the ranks. Docker and the whole process table are asked every ten seconds."""

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
        self.level = note.Level(None, "no rank of this collection was seen yet")
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(INTERVAL):
            self.once()

    def once(self) -> None:
        """Read all of it once."""
        self._gpu.tend()
        if time.monotonic() - self._looked >= LOOK:
            self._ranks.refresh()
            self._looked = time.monotonic()
            self._compare()
        self._expect(self._ranks.phase(), self._ranks.level())
        lines = self._kernel.now()
        # A log that cannot be read is not one without lines. That is told once.
        told, self._unread = self._unread, lines is None
        if lines is None:
            lines = [] if told else [["unknown", "the kernel's log cannot be read"]]
        found = {"l": self._links.now(), "r": self._ranks.states()}
        with self._lock:
            self._found = time.monotonic(), found
            self._lines = [*self._lines, *lines][:100]

    def take(self) -> ring.Record:
        """Return what was found, with the kernel's lines since the last time; without what is stale."""
        with self._lock:
            at, found = self._found
            lines, self._lines = self._lines, []
        fresh = time.monotonic() - at <= STALE
        return {**(found if fresh else {"l": None, "r": None}), "p": self.phase if fresh else None, **({"k": lines} if lines else {})}

    def _expect(self, phase: str, level: note.Level) -> None:
        """Note what our ranks do and up to where that goes as expected, where it is another than before."""
        if phase != trend.NONE and (phase, level) != (self.phase, self.level):
            below = "nothing is done while no level is known" if level.mb is None else f"a collapse counts below {level.mb / node_memory.KIB_PER_MIB:.1f} GiB"
            self._put({"e": "level", "t": round(time.time(), 3), "text": f"our ranks are {phase}: {below} ({level.why})", "mb": level.mb})
        self.phase, self.level = phase, level

    def _compare(self) -> None:
        """Note which parts of engines came and went."""
        now = {rank.pid: f"{rank.kind} (pid {rank.pid}{'' if rank.ours else ', not ours'})" for rank in self._ranks.found}
        came, went = ([side[pid] for pid in sorted(side.keys() - other.keys())] for side, other in ((now, self._seen), (self._seen, now)))
        if came or went:
            texts = [f"{word} {', '.join(names)}" for word, names in (("came", came), ("gone", went)) if names]
            self._put({"e": "ranks", "t": round(time.time(), 3), "text": "; ".join(texts)})
        self._seen = now


class Guard:
    """One node's guard. ``say`` is for the journal."""

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

    def note(self, event: str, text: str, **more: t.Any) -> None:
        """Note what happened, in the ring and in the journal."""
        self.disk.put({"e": event, "t": round(time.time(), 3), "text": text, **more}, now=True)
        self.say(text)

    def act(self, order: trend.Order, phase: str, level: note.Level) -> None:
        """Do what the trend asks for. Processes of ours that hold a model are all that is ever signalled."""
        gib = trend.KIB_PER_GIB
        why = f"{order.available / gib:.1f} GiB available, changing by {order.rate / gib:+.2f} GiB/s, reaches {self.watch.policy.floor / gib:g} GiB within"
        why = f"{why} {self.watch.policy.horizon:g} s ({phase})"
        if order.what == trend.WOULD:
            whose = "no rank of this collection is there" if phase == trend.NONE else f"gb10_guard_act is {self.config['act']}"
            unknown = phase != trend.NONE and level.mb is None
            self.note("would", f"{why}; nothing is done: {f'no level is known, {level.why}' if unknown else whose}")
            return
        why = f"{why}, below the expected {self.watch.under / gib:.1f} GiB"
        number = signal.SIGTERM if order.what == trend.TERM else signal.SIGKILL
        sent = self.ranks.signal(number)
        more = "" if order.what == trend.TERM else f", {self.watch.policy.grace:g} s after SIGTERM"
        self.note("act", f"{why}; {signal.Signals(number).name} to pids {sent}{more}", signal=signal.Signals(number).name, pids=sent)

    def sample(self) -> ring.Record:
        """Take one sample. What decides comes first."""
        at, now = time.monotonic(), time.time()
        try:
            found: dict[str, int] = sources.memory(self.proc, self.meminfo)
        except UnknownState:
            return {"t": round(now, 3), "a": None, **self.slow.take()}
        phase, level = self.slow.phase, self.slow.level
        order = self.watch.feed(at, found["a"], phase, None if level.mb is None else level.mb * node_memory.KIB_PER_MIB)
        if order is not None:
            self.act(order, phase, level)
        pressed = {"pm": sources.pressure(self.proc, "memory"), "pi": sources.pressure(self.proc, "io")}
        return {"t": round(now, 3), **found, **pressed, "g": self.gpu.now(), **self.slow.take()}

    def run(self, stopping: threading.Event) -> None:
        """Work until ``stopping`` is set."""
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
    """Keep this process out of what the kernel takes back when memory is short; return why that failed, empty otherwise."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT):
        return os.strerror(ctypes.get_errno())
    return ""


def main(argv: t.Sequence[str]) -> int:
    """Run the guard. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="gb10-guard", description="Samples this node every second into a ring on the disk, and acts when memory collapses.")
    parser.add_argument("--config", required=True, help="guard.json, which the role gb10.cluster.protect writes")
    config = json.loads(sources.text(parser.parse_args(argv).config))
    threading.stack_size(STACK)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stopping.set())

    # What decides says something, too, and reads no file for it.
    secrets = secrets_of({})

    def say(text: str) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{redacted(text, secrets)}\n")
            sys.stderr.flush()

    failed = keep_in_memory()
    if failed:
        say(f"this process may be swapped out: {failed}")
    try:
        Guard(config, say).run(stopping)
    except (ClusterError, OSError) as error:
        say(f"the guard cannot work: {error}")
        return 1
    return 0
