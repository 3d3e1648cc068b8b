# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The guard's sources on a node. A source that fails or hangs is unknown and does not stop the others.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import LABEL_CLUSTER, LABEL_OWNER, OWNER, EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import optional_text, required_text
from ansible_collections.gb10.cluster.plugins.module_utils._guard import guard_files, trend
from ansible_collections.gb10.cluster.plugins.module_utils._host import kernel
from ansible_collections.gb10.cluster.plugins.module_utils._host.kernel_log import Collector, parse_line, read_boot_time
from ansible_collections.gb10.cluster.plugins.module_utils._memory import node_memory, note
from ansible_collections.gb10.cluster.plugins.module_utils._network import net_devices, traffic
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify, process_table

#: The fields that the driver's tool prints every second.
GPU_FIELDS = ("clocks.sm", "power.draw", "temperature.gpu", "utilization.gpu", "clocks_event_reasons.active")
#: Seconds after which the tool's last line is stale, and after which a silent tool is restarted.
GPU_STALE, GPU_AGAIN = 5.0, 60.0

#: Bits of the reasons for which a driver limits the clocks (nvml.h, nvmlClocksEventReasons).
REASONS = {
    0x4: "power cap", 0x8: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake",
}  # fmt: skip

#: The reason of a level without a rank.
NO_RANK = "no rank of this collection runs"
#: Processes that hold the model, and so the memory: only these are signaled.
HOLDERS = (classify.RANK, classify.ENGINE_CORE)

#: The most kernel lines of one sample; further lines are counted.
KERNEL_LINES = 20
_KMSG_RECORD = 8192

_NUMBER = re.compile(r"^-?[0-9]{1,9}(?:\.[0-9]{1,3})?$")
_HEX = re.compile(r"^0x[0-9a-fA-F]{1,16}$")

GpuSample = dict[str, t.Union[float, int, None]]


# -- memory ------------------------------------------------------------------------------------------------------------------


def memory(proc_root: str, meminfo: str | None = None) -> dict[str, int]:
    """Return the memory figures of a sample, in KiB. Raises :class:`UnknownState`."""
    figures = node_memory.read_meminfo(proc_root, meminfo)
    return {"a": figures["MemAvailable"], "f": figures.get("MemFree", 0), "c": figures["Cached"], "s": figures.get("SwapTotal", 0) - figures.get("SwapFree", 0)}


def total(proc_root: str, meminfo: str | None = None) -> int:
    """Return the node's MemTotal in KiB. Raises :class:`UnknownState`."""
    return node_memory.read_meminfo(proc_root, meminfo)["MemTotal"]


def pressure(proc_root: str, resource: str) -> list[float] | None:
    """Return the shares of the last 10 s (percent) in which some and all work waited for a resource, None when the kernel does not report them."""
    with contextlib.suppress(OSError, UnknownState):
        shares = node_memory.parse_pressure(optional_text(os.path.join(proc_root, "pressure", resource)) or "")
        return [float(shares[kind]["avg10"]) for kind in ("some", "full") if kind in shares] or None
    return None


# -- the GPU -----------------------------------------------------------------------------------------------------------------


def parse_gpu(line: str) -> GpuSample | None:
    """Return one line of the driver's tool: clock (MHz), power (W), temperature, use (%) and reasons; None for a line of another shape.

    A value that the driver does not report, or that cannot be parsed, is None: GB10 lacks some.
    """
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(GPU_FIELDS):
        return None
    numbers = [float(cell) if _NUMBER.match(cell) else None for cell in cells[:4]]
    sample: GpuSample = dict(zip(("sm", "w", "c", "u"), (int(number) if number is not None and number.is_integer() else number for number in numbers)))
    return {**sample, "why": int(cells[4], 16) if _HEX.match(cells[4]) else None}


class Gpu:
    """Keeps the driver's tool running and stores its last line."""

    def __init__(self, tool: str) -> None:
        self.tool = tool
        #: When the tool printed its last line, and that line.
        self._found: tuple[float, GpuSample | None] = float("-inf"), None
        self._process: subprocess.Popen[str] | None = None
        self._started = float("-inf")

    def now(self) -> GpuSample | None:
        """Return the driver's current values, None when the last line is stale."""
        at, sample = self._found
        return sample if time.monotonic() - at <= GPU_STALE else None

    def tend(self) -> None:
        """Start the tool when it does not run, and kill it when it hangs. A tool that cannot be killed gets no second instance."""
        now = time.monotonic()
        if self._process is None or self._process.poll() is not None:
            if now - self._started > (GPU_STALE if self._found[1] else GPU_AGAIN):
                self._start()
        elif now - max(self._started, self._found[0]) > GPU_AGAIN:
            self._process.send_signal(signal.SIGKILL)

    def stop(self) -> None:
        """Kill the tool."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()

    def _start(self) -> None:
        self._started, self._process = time.monotonic(), None
        argv = [self.tool, f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader,nounits", "-l", "1"]
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(  # pylint: disable=ansible-bad-function,consider-using-with
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, "LC_ALL": "C"}
            )
            threading.Thread(target=self._follow, args=(self._process,), daemon=True).start()

    def _follow(self, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            if sample := parse_gpu(line):
                self._found = time.monotonic(), sample
        process.wait()  # pylint: disable=ansible-bad-function


# -- the fabric --------------------------------------------------------------------------------------------------------------


class Links:
    """The interfaces with fabric addresses, the RDMA devices, and the interfaces of these devices."""

    #: Seconds between two lookups of their names.
    AGAIN = 60.0

    def __init__(self, addresses: t.Collection[str], sysfs_root: str, proc_root: str) -> None:
        self._addresses, self._sysfs, self._proc = addresses, sysfs_root, proc_root
        self._asked = float("-inf")
        self._names: list[str] = []
        self._devices: list[dict[str, t.Any]] = []

    def now(self) -> dict[str, list[t.Any]] | None:
        """Return ``[carrier, carrier changes, bytes sent]`` by interface, and ``[None, None, bytes sent]`` by RDMA device. None when unknown."""
        try:
            if time.monotonic() - self._asked > self.AGAIN:
                self._ask()
            sent = traffic.parse_net_dev(required_text(os.path.join(self._proc, "net", "dev")))
            by_interface: dict[str, list[t.Any]] = {}
            for name in self._names:
                about = net_devices.link(name, self._sysfs)
                up = False if about["carrier"] is None and about["operstate"] == "down" else about["carrier"]
                changes = optional_text(os.path.join(self._sysfs, "class", "net", name, "carrier_changes"))
                by_interface[name] = [up, int(changes) if changes and changes.isdecimal() else None, sent.get(name)]
            return {**by_interface, **{device["name"]: [None, None, traffic.rdma_sent(self._sysfs, device)] for device in self._devices}}
        except (OSError, ClusterError):
            return None

    def _ask(self) -> None:
        self._devices = net_devices.rdma_devices(self._sysfs)
        named = {name for device in self._devices for name in device["netdevs"]}
        # An interface that is down keeps its address; a removed interface stays in the list, so that its absence is recorded.
        self._names = sorted({*self._names, *named, *(entry["interface"] for entry in net_devices.ipv4_addresses() if entry["address"] in self._addresses)})
        self._asked = time.monotonic()


# -- the kernel --------------------------------------------------------------------------------------------------------------


class Kernel:
    """New relevant lines of the kernel's log, from the kernel's buffer or from a growing file."""

    def __init__(self, source: str, proc_root: str, kmsg: str = "/dev/kmsg") -> None:
        self._path, self._is_file = (kmsg, False) if source == "auto" else (source, True)
        self._handle = -1
        self._rest = b""
        with contextlib.suppress(OSError, UnknownState):
            self._boot_time: int | None = None
            self._boot_time = read_boot_time(proc_root)

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
        rows = [[event["kind"], event["text"] if event["count"] == 1 else f"{event['text']} ({event['count']} times)"] for event in events[:KERNEL_LINES]]
        return [*rows, ["more", f"{len(events) - KERNEL_LINES} more kinds of lines"]] if len(events) > KERNEL_LINES else rows

    def close(self) -> None:
        """Open the log again next time."""
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1

    def _lines(self) -> list[str]:
        if self._is_file:
            if os.fstat(self._handle).st_size < os.lseek(self._handle, 0, os.SEEK_CUR):
                os.lseek(self._handle, 0, os.SEEK_SET)  # the file was replaced
            *whole, self._rest = (self._rest + os.read(self._handle, 1024 * 1024)).split(b"\n")
            return [line.decode("utf-8", "replace") for line in whole]
        lines = []
        while len(lines) < 1000:
            try:
                record = os.read(self._handle, _KMSG_RECORD)
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue  # unread lines were overwritten; the next read returns the oldest line of the buffer
            lines += record.decode("utf-8", "replace").splitlines()[:1]
        return lines


# -- the ranks ---------------------------------------------------------------------------------------------------------------


class Rank(t.NamedTuple):
    """A process of an engine. ``ours`` is whether it is in a container of this collection, ``cluster`` is that container's cluster."""

    pid: int
    start_ticks: int
    kind: str
    container: str
    ours: bool
    cluster: str = ""


class Ranks:
    """The processes of engines on the node (see ``classify``), and which of them are in containers of this collection."""

    def __init__(self, proc_root: str, boot: str, config: t.Mapping[str, t.Any], docker_socket: str = "/var/run/docker.sock") -> None:
        self._proc, self._boot = proc_root, boot
        self._served, self._state_dir, self._load_seconds = config["served"], config["state_dir"], config["load_seconds"]
        self._docker = EngineApi(docker_socket, 10)
        self._ours: dict[str, str] = {}
        self._asked: frozenset[str] = frozenset()
        #: By cluster, when the note that counts for its ranks was written, and these ranks.
        self._noted: dict[str, tuple[t.Any, set[tuple[int, int]]]] = {}
        self.found: list[Rank] = []

    def look(self) -> list[Rank]:
        """Read all processes, without asking Docker. Raises OSError or :class:`UnknownState`."""
        parts = classify.parts(process_table.scan(self._proc).processes)
        places = [(pid, part, part.process.container) for pid, part in sorted(parts.items()) if part.kind in classify.ENGINE_PARTS]
        self.found = [
            Rank(pid, part.process.start_ticks, part.kind, container, container in self._ours, self._ours.get(container, "")) for pid, part, container in places
        ]
        return self.found

    def refresh(self) -> None:
        """Read all processes, and ask Docker about the owner of containers that are new. What fails is tried again at the next call."""
        with contextlib.suppress(OSError, ClusterError):
            containers = {rank.container for rank in self.look() if rank.container}
            if containers - self._asked:
                listed = self._docker.containers({LABEL_OWNER: OWNER})
                self._ours = {entry["Id"]: str((entry.get("Labels") or {}).get(LABEL_CLUSTER) or "") for entry in listed if isinstance(entry.get("Id"), str)}
                self._asked = frozenset(containers)
                self.look()

    def states(self) -> list[list[t.Any]]:
        """Return pid, kind, the kernel's state letter and ``ours`` of each rank; the letter is empty for a rank that is gone."""
        return [[rank.pid, rank.kind, self._state_of(rank), int(rank.ours)] for rank in self.found]

    def _state_of(self, rank: Rank) -> str:
        """Return the kernel's state letter of a rank, empty when it is gone or cannot be read."""
        with contextlib.suppress(OSError, UnknownState):
            stat = process_table.read_stat(rank.pid, self._proc)
            return stat.state if stat and stat.start_ticks == rank.start_ticks else ""
        return ""

    def phase(self) -> str:
        """Return the phase of our ranks. A rank loads until the bring-up recorded that it serves, or until it is older than any load takes."""
        holders = self._holders()
        if not holders:
            return trend.NONE
        ranks = guard_files.record(self._served).get("ranks")
        served = ranks if isinstance(ranks, list) else []
        try:
            up = kernel.uptime(self._proc)
        except (OSError, UnknownState):
            up = 0.0
        hertz = os.sysconf("SC_CLK_TCK")
        young = [rank for rank in holders if up - rank.start_ticks / hertz < self._load_seconds and [rank.pid, rank.start_ticks] not in served]
        return trend.LOADING if young else trend.SERVING

    def level(self) -> note.Level:
        """Return the level that an expected start stays above. Of several clusters the lowest level counts; one unknown level makes all unknown."""
        holders = self._holders()
        levels = [self._level_of(cluster, [rank for rank in holders if rank.cluster == cluster]) for cluster in sorted({rank.cluster for rank in holders})]
        return min(levels, key=lambda level: (level.mb is not None, level.mb or 0), default=note.Level(None, NO_RANK))

    def _level_of(self, cluster: str, ranks: t.Sequence[Rank]) -> note.Level:
        """Return the level in the note of a cluster. The note counts for the first ranks after it, until the last of them is gone."""
        if not cluster or os.path.basename(cluster) != cluster or cluster.startswith("."):
            return note.Level(None, "their container has no label with its cluster")
        content = guard_files.record(note.path_of(self._state_dir, cluster))
        level = note.level_of(content, self._boot, min(rank.start_ticks for rank in ranks) / os.sysconf("SC_CLK_TCK"))
        mine = {(rank.pid, rank.start_ticks) for rank in ranks}
        written, seen = self._noted.get(cluster, (None, mine))
        if written == content.get(note.UPTIME) and not seen & mine:
            return note.Level(None, "nothing was noted before this start")
        self._noted[cluster] = content.get(note.UPTIME), mine | (seen if written == content.get(note.UPTIME) else set())
        return level

    def _holders(self) -> list[Rank]:
        return [rank for rank in self.found if rank.ours and rank.kind in HOLDERS]

    def signal(self, number: int) -> list[int]:
        """Send a signal to every process of this collection that holds a model now, and return their pids."""
        with contextlib.suppress(OSError, ClusterError):
            self.look()
        sent = []
        for rank in self._holders():
            with contextlib.suppress(OSError, UnknownState):
                handle = os.pidfd_open(rank.pid)
                try:
                    # While the handle is open the pid is not reused, so the start time proves that this is the judged process.
                    stat = process_table.read_stat(rank.pid, self._proc)
                    if stat and stat.start_ticks == rank.start_ticks:
                        signal.pidfd_send_signal(handle, number)
                        sent.append(rank.pid)
                finally:
                    os.close(handle)
        return sent
