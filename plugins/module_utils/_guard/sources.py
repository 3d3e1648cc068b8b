# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the guard reads of a node, each source by itself: one that fails or hangs is unknown, and the others go on.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import LABEL_CLUSTER, LABEL_OWNER, OWNER, EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import optional_text
from ansible_collections.gb10.cluster.plugins.module_utils._guard import trend
from ansible_collections.gb10.cluster.plugins.module_utils._host.kernel_log import Collector, parse_boot_time, parse_line
from ansible_collections.gb10.cluster.plugins.module_utils._memory import node_memory, note
from ansible_collections.gb10.cluster.plugins.module_utils._network import net_devices, traffic
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify, process_table

#: What the driver's tool is asked every second; the second list is for drivers that do not know the last field of the first.
GPU_FIELDS = ("clocks.sm", "power.draw", "temperature.gpu", "utilization.gpu", "clocks_event_reasons.active")
GPU_FIELDS_OLD = GPU_FIELDS[:-1]
#: Seconds after which what the tool said last is unknown, and after which one that says nothing is started again.
GPU_STALE, GPU_AGAIN = 5.0, 60.0
#: Bits of the reasons for which a driver holds the clocks down (nvml.h, nvmlClocksEventReasons).
REASONS = {
    0x4: "power cap", 0x8: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake",
}  # fmt: skip

#: Processes that hold the model, and so the memory: these are asked to end, and ended.
HOLDERS = (classify.RANK, classify.ENGINE_CORE)

#: Lines of the kernel that one sample takes; a storm is counted.
KERNEL_LINES = 20
_KMSG_RECORD = 8192

_NUMBER = re.compile(r"^-?[0-9]{1,9}(?:\.[0-9]{1,3})?$")
_HEX = re.compile(r"^0x[0-9a-fA-F]{1,16}$")


# -- memory ------------------------------------------------------------------------------------------------------------------


def memory(proc_root: str, meminfo: str | None = None) -> dict[str, int]:
    """Return what a sample has of memory, in KiB. Raises :class:`UnknownState`."""
    found = node_memory.read_meminfo(proc_root, meminfo)
    return {"a": found["MemAvailable"], "f": found.get("MemFree", 0), "c": found["Cached"], "s": found.get("SwapTotal", 0) - found.get("SwapFree", 0)}


def total(proc_root: str, meminfo: str | None = None) -> int:
    """Return the node's MemTotal in KiB. Raises :class:`UnknownState`."""
    return node_memory.read_meminfo(proc_root, meminfo)["MemTotal"]


def text(path: str) -> str:
    """Return a file of ours. Raises OSError."""
    with open(path, encoding="utf-8") as stream:
        return stream.read(1024 * 1024)


def record(path: str) -> dict[str, t.Any]:
    """Return the mapping in a file of ours, empty where there is none that can be read."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        found = json.loads(text(path))
        if isinstance(found, dict):
            return found
    return {}


def pressure(proc_root: str, resource: str) -> list[float] | None:
    """Return the shares of the last 10 s (percent) in which some and all work waited for a resource, None where the kernel does not say."""
    with contextlib.suppress(OSError, UnknownState):
        text = optional_text(os.path.join(proc_root, "pressure", resource))
        found = node_memory.parse_pressure(text) if text else {}
        if "some" in found:
            return [float(found[kind]["avg10"]) for kind in ("some", "full") if kind in found]
    return None


# -- the GPU -----------------------------------------------------------------------------------------------------------------


def parse_gpu(line: str, fields: t.Sequence[str] = GPU_FIELDS) -> dict[str, float | int | None] | None:
    """Return one line of the driver's tool: clock (MHz), power (W), temperature, use (%) and reasons; None for a line of another shape.

    What the driver does not say, and what nobody can read, is None: GB10 has no figure for some.
    """
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(fields):
        return None
    numbers = [float(cell) if _NUMBER.match(cell) else None for cell in cells[:4]]
    if len(cells) == 4 and not any(number is not None for number in numbers):
        return None
    found: dict[str, float | int | None] = dict(zip(("sm", "w", "c", "u"), (int(one) if one is not None and one.is_integer() else one for one in numbers)))
    if len(cells) == 5:
        found["why"] = int(cells[4], 16) if _HEX.match(cells[4]) else None
    return found


class Gpu:
    """Keeps the driver's tool running and has what it said last."""

    def __init__(self, tool: str, seconds: int = 1) -> None:
        self.tool, self.seconds = tool, seconds
        self._fields: tuple[str, ...] = GPU_FIELDS
        self._found: tuple[float, dict[str, float | int | None]] | None = None
        self._process: subprocess.Popen[str] | None = None
        self._started = float("-inf")

    def now(self) -> dict[str, float | int | None] | None:
        """Return what the driver says, None when it has not said anything for seconds."""
        at, found = self._found or (float("-inf"), None)
        return found if time.monotonic() - at <= GPU_STALE else None

    def tend(self) -> None:
        """Start the tool where it does not run, and again where it hangs. One that cannot be killed is waited for, never joined by another one."""
        running = self._process is not None and self._process.poll() is None
        quiet = time.monotonic() - max(self._started, self._found[0] if self._found else float("-inf"))
        if running and quiet > GPU_AGAIN and self._process:
            self._process.send_signal(signal.SIGKILL)
        elif not running and time.monotonic() - self._started > (GPU_AGAIN if self._found is None and self._fields == GPU_FIELDS_OLD else GPU_STALE):
            self._start()

    def stop(self) -> None:
        """End the tool."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()

    def _start(self) -> None:
        self._started = time.monotonic()
        argv = [self.tool, f"--query-gpu={','.join(self._fields)}", "--format=csv,noheader,nounits", "-l", str(self.seconds)]
        try:
            self._process = subprocess.Popen(  # pylint: disable=ansible-bad-function,consider-using-with
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, "LC_ALL": "C"}
            )
        except OSError:
            self._process = None
            return
        threading.Thread(target=self._follow, args=(self._process, self._fields), daemon=True).start()

    def _follow(self, process: subprocess.Popen[str], fields: tuple[str, ...]) -> None:
        for line in process.stdout or ():
            if "not a valid field" in line:
                self._fields, self._started = GPU_FIELDS_OLD, float("-inf")
            found = parse_gpu(line, fields)
            if found is not None:
                self._found = time.monotonic(), found
        process.wait()  # pylint: disable=ansible-bad-function


# -- the fabric --------------------------------------------------------------------------------------------------------------


class Links:
    """The interfaces with the fabric's addresses, those of RDMA devices, and the latter."""

    #: Seconds after which it is asked again which they are.
    AGAIN = 60.0

    def __init__(self, addresses: t.Collection[str], sysfs_root: str, proc_root: str) -> None:
        self._addresses, self._sysfs, self._proc = addresses, sysfs_root, proc_root
        self._asked = float("-inf")
        self._names: list[str] = []
        self._devices: list[dict[str, t.Any]] = []

    def now(self) -> dict[str, list[t.Any]] | None:
        """Return by interface whether it has a carrier, how often that changed and what it sent; by RDMA device what it sent. None when unknown."""
        try:
            if time.monotonic() - self._asked > self.AGAIN:
                self._ask()
            with open(os.path.join(self._proc, "net", "dev"), encoding="ascii", errors="replace") as stream:
                sent = traffic.parse_net_dev(stream.read())
            found: dict[str, list[t.Any]] = {}
            for name in self._names:
                about = net_devices.link(name, self._sysfs)
                up = about["carrier"] if about["carrier"] is not None else False if about["operstate"] == "down" else None
                changes = optional_text(os.path.join(self._sysfs, "class", "net", name, "carrier_changes"))
                found[name] = [up, int(changes) if changes and changes.isdecimal() else None, sent.get(name)]
            for device in self._devices:
                found[device["name"]] = [None, None, traffic.rdma_sent(self._sysfs, device)]
            return found
        except (OSError, ClusterError):
            return None

    def _ask(self) -> None:
        self._devices = net_devices.rdma_devices(self._sysfs)
        named = {name for device in self._devices for name in device["netdevs"]}
        # One that is down has lost no address; one that is gone stays known, so that it is seen to be gone.
        self._names = sorted({*self._names, *named, *(one["interface"] for one in net_devices.ipv4_addresses() if one["address"] in self._addresses)})
        self._asked = time.monotonic()


# -- the kernel --------------------------------------------------------------------------------------------------------------


class Kernel:
    """New lines of the kernel's log that are worth telling, from the kernel's own buffer or from a file that grows."""

    def __init__(self, source: str, proc_root: str, kmsg: str = "/dev/kmsg") -> None:
        self._path, self._is_file = (kmsg, False) if source == "auto" else (source, True)
        self._handle = -1
        self._rest = b""
        with contextlib.suppress(OSError, UnknownState):
            self._boot_time: int | None = None
            self._boot_time = parse_boot_time(optional_text(os.path.join(proc_root, "stat")) or "")

    def now(self) -> list[list[str]] | None:
        """Return the kind and the text of each, None when the log cannot be read."""
        try:
            if self._handle < 0:
                self._handle = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                os.lseek(self._handle, 0, os.SEEK_END)
            lines = self._lines()
        except OSError:
            self.close()
            return None
        collector = Collector(self._boot_time)
        for line in lines:
            collector.add(parse_line(line))
        events = collector.events()
        found = [[one["kind"], one["text"] if one["count"] == 1 else f"{one['text']} ({one['count']} times)"] for one in events[:KERNEL_LINES]]
        return [*found, ["more", f"{len(events) - KERNEL_LINES} more kinds of lines"]] if len(events) > KERNEL_LINES else found

    def close(self) -> None:
        """Open the log again next time."""
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1

    def _lines(self) -> list[str]:
        if self._is_file:
            if os.fstat(self._handle).st_size < os.lseek(self._handle, 0, os.SEEK_CUR):
                os.lseek(self._handle, 0, os.SEEK_SET)  # it was replaced
            *whole, self._rest = (self._rest + os.read(self._handle, 1024 * 1024)).split(b"\n")
            return [line.decode("utf-8", "replace") for line in whole]
        found = []
        while len(found) < 1000:
            try:
                record = os.read(self._handle, _KMSG_RECORD)
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue  # the buffer went over what was not read yet; the next read goes on with the oldest that is there
            found += record.decode("utf-8", "replace").splitlines()[:1]
        return found


# -- the ranks ---------------------------------------------------------------------------------------------------------------


class Rank(t.NamedTuple):
    """A process that is part of an engine. ``ours`` says whether it is in a container that this collection started, and ``cluster`` for which one."""

    pid: int
    start_ticks: int
    kind: str
    container: str
    ours: bool
    cluster: str = ""


class Ranks:
    """The parts of engines on the node, by the one judge of processes, and which of them are ours, by their container's labels."""

    def __init__(self, proc_root: str, boot: str, config: t.Mapping[str, t.Any], docker_socket: str = "/var/run/docker.sock") -> None:
        self._proc, self._boot = proc_root, boot
        self._served, self._state_dir, self._load_seconds = config["served"], config["state_dir"], config["load_seconds"]
        self._docker = EngineApi(docker_socket, 10)
        self._ours: dict[str, str] = {}
        self._asked: frozenset[str] = frozenset()
        #: By cluster, when the note was written that counts for its ranks, and which these are.
        self._noted: dict[str, tuple[t.Any, set[tuple[int, int]]]] = {}
        self.found: list[Rank] = []
        self.errors = ""

    def look(self) -> list[Rank]:
        """Look at all processes, without asking Docker. Raises OSError or :class:`UnknownState`."""
        parts = classify.parts(process_table.scan(self._proc).processes)
        places = [(pid, part, part.process.container) for pid, part in sorted(parts.items()) if part.kind in classify.ENGINE_PARTS]
        self.found = [
            Rank(pid, part.process.start_ticks, part.kind, container, container in self._ours, self._ours.get(container, "")) for pid, part, container in places
        ]
        return self.found

    def refresh(self) -> None:
        """Look at all processes; where an engine's part is in a container that nobody asked about yet, ask Docker whose it is."""
        self.errors = ""
        try:
            containers = {rank.container for rank in self.look() if rank.container}
            if containers - self._asked:
                listed = self._docker.containers({LABEL_OWNER: OWNER})
                self._ours = {one["Id"]: str((one.get("Labels") or {}).get(LABEL_CLUSTER) or "") for one in listed if isinstance(one.get("Id"), str)}
                self._asked = frozenset(containers)
                self.look()
        except (OSError, ClusterError) as error:
            self.errors = str(error)

    def states(self) -> list[list[t.Any]]:
        """Return pid, kind, the kernel's letter and whether it is ours, of each part; the letter is empty for one that is gone."""
        said = []
        for rank in self.found:
            try:
                stat = process_table.read_stat(rank.pid, self._proc)
            except (OSError, UnknownState):
                stat = None
            said.append([rank.pid, rank.kind, stat.state if stat and stat.start_ticks == rank.start_ticks else "", int(rank.ours)])
        return said

    def phase(self) -> str:
        """Return what our ranks do. One loads until the bring-up said that it serves, or it is older than any load takes."""
        holders = self._holders()
        if not holders:
            return trend.NONE
        ranks = record(self._served).get("ranks")
        told = ranks if isinstance(ranks, list) else []
        try:
            with open(os.path.join(self._proc, "uptime"), encoding="ascii") as stream:
                up = float(stream.read().split()[0])
        except (OSError, ValueError, IndexError):
            up = 0.0
        hertz = os.sysconf("SC_CLK_TCK")
        young = [rank for rank in holders if up - rank.start_ticks / hertz < self._load_seconds and [rank.pid, rank.start_ticks] not in told]
        return trend.LOADING if young else trend.SERVING

    def level(self) -> note.Level:
        """Return the level that our ranks' start stays above when it goes as expected. Of several clusters the lowest counts, and an unknown one for all."""
        holders = self._holders()
        found = [self._level_of(cluster, [rank for rank in holders if rank.cluster == cluster]) for cluster in sorted({rank.cluster for rank in holders})]
        return min(found, key=lambda one: (one.mb is not None, one.mb or 0), default=note.Level(None, "no rank of this collection is there"))

    def _level_of(self, cluster: str, ranks: t.Sequence[Rank]) -> note.Level:
        """Return the level by the note of a cluster. It counts for the ranks that come first after it, until the last of them is gone."""
        if not cluster or os.path.basename(cluster) != cluster or cluster.startswith("."):
            return note.Level(None, "their container does not say of which cluster it is")
        found = record(note.path_of(self._state_dir, cluster))
        level = note.level_of(found, self._boot, min(rank.start_ticks for rank in ranks) / os.sysconf("SC_CLK_TCK"))
        mine = {(rank.pid, rank.start_ticks) for rank in ranks}
        written, seen = self._noted.get(cluster, (None, mine))
        if written == found.get(note.UPTIME) and not seen & mine:
            return note.Level(None, "nothing was noted before this start")
        self._noted[cluster] = found.get(note.UPTIME), mine | (seen if written == found.get(note.UPTIME) else set())
        return level

    def _holders(self) -> list[Rank]:
        return [rank for rank in self.found if rank.ours and rank.kind in HOLDERS]

    def signal(self, number: int) -> list[int]:
        """Send a signal to every process of ours that holds a model, as they are now, and return their pids."""
        with contextlib.suppress(OSError, ClusterError):
            self.look()
        sent = []
        for rank in self._holders():
            with contextlib.suppress(OSError, UnknownState):
                handle = os.pidfd_open(rank.pid)
                try:
                    # The process behind the handle is the one that was judged: its number has no other one meanwhile.
                    stat = process_table.read_stat(rank.pid, self._proc)
                    if stat and stat.start_ticks == rank.start_ticks:
                        signal.pidfd_send_signal(handle, number)
                        sent.append(rank.pid)
                finally:
                    os.close(handle)
        return sent
