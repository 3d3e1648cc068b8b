# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Watches a node while its engine starts, in addition to the engine's log. This plugin util is PRIVATE to the collection.

Each watch sees every poll of its node and returns the error that ends the wait, None while there is none. With ``suspected`` in an error, the engine may
recover by itself, so it is left running: a false alarm can cost a reboot.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._engine import health
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify
from ansible_collections.gb10.cluster.plugins.plugin_utils._progress.progress import minutes
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.events import CORE_ENDED, RANK_ENDED

Processes = t.Sequence[t.Mapping[str, t.Any]]

#: The part of a node's memory that has to stay available: below it, a Spark was reported to freeze without a message.
LEAST_AVAILABLE = 0.01

#: How many times the kernel retransmits before a peer counts as silent: the sixth follows some 13 s after the first. RDMA gives up by itself, too.
SENT_AGAIN = 6

#: The factor on the limit of a start without progress while processors work and nothing else shows progress: the longest recorded load took 1175 s,
#: with its download.
CPU_FACTOR = 3
#: Stages in which ranks wait for each other in a loop: busy processors show no progress there.
MEETING = ("joining ranks", "waiting for GPUs in ray")
#: Additional seconds for these stages: the engine gives up by itself after 600 s, and reports more of the reason.
MEETING_MARGIN = 60
#: Seconds of processor time per second from which on a process counts as working.
WORKS = 0.05
#: Lines that an engine repeats while it waits.
WAITING = re.compile(r"No available shared memory broadcast block found|[Ww]aiting for (?:creating|\d+ |other)|still waiting", re.ASCII)


def container_trouble(node: str, container: dict[str, t.Any], elapsed: float, executor: str) -> ClusterError | None:
    """Return the error for the node's container, None when it runs."""
    if container["running"]:
        return None
    if not container["exists"]:
        return ClusterError(f"the container of node {node} is gone {minutes(elapsed)} after the start", remedy=f"Bring it up again: --tags {executor}")
    memory = ", killed by the kernel because memory ran out" if container["oom_killed"] else ""
    return ClusterError(
        f"container {container['name']} of node {node} ended with exit code {container['exit_code']}{memory} {minutes(elapsed)} after the start",
        remedy=f"See docker logs {container['name']} on {node}, then bring it up again: --tags {executor}",
    )


class HaltWatch:
    """Whether no process of the engine on this node stays stopped. A profiler stops one for some milliseconds; two polls in a row do not see that."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._last: set[str] = set()

    def trouble(self, processes: Processes) -> ClusterError | None:
        """Return the error for processes that stay stopped, None when there is none."""
        halted = set(health.texts({self._node: processes}, "stopped").get(self._node, []))
        lasting, self._last = self._last & halted, halted
        if not lasting:
            return None
        return ClusterError(
            f"stopped on {self._node} by a signal or a debugger, so that the engine hangs: {'; '.join(sorted(lasting))}",
            remedy=f"Find out who did it; kill -CONT PID on {self._node} lets it go on. Then run again.",
            reason="process stopped",
            suspected=True,
        )


class RankWatch:
    """Whether every rank and core of the engine that was seen on this node still exists. If one ends during a start, the engine ends as well.

    A process that is seen in fewer than two polls is not a rank: Ray and the engine start some for a short time.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._known: dict[tuple[int, int], t.Mapping[str, t.Any]] = {}
        self._last: set[tuple[int, int]] = set()

    def trouble(self, processes: Processes, line: str = "") -> ClusterError | None:
        """Return the error for a rank that has ended, None while all live. ``line`` is the line of this node's logs that says why, empty without one."""
        alive = {(process["pid"], process["start_ticks"]): process for process in processes if process["state"] != "ended"}
        gone = [process for key, process in self._known.items() if key not in alive]
        ranks = {key for key, process in alive.items() if process["kind"] in (classify.RANK, classify.ENGINE_CORE)}
        self._known = {key: alive[key] for key in ranks if key in self._last or key in self._known}
        self._last = ranks
        if not gone:
            return None
        return ClusterError(
            f"ended on {self._node} while the engine started: {'; '.join(sorted(process['text'] for process in gone))}"
            + (f": {line}" if line else ""),
            remedy=f"When no line says why, a person or the kernel killed it: journalctl -k -b on {self._node} (out of memory?). Run again.",
            reason=CORE_ENDED if any(process["kind"] == classify.ENGINE_CORE for process in gone) else RANK_ENDED,
        )


def fabric_trouble(node: str, fabric: t.Mapping[str, t.Any], nodes: t.Mapping[str, str]) -> ClusterError | None:
    """Return the error for a node's interface to the others in one poll. ``nodes`` maps the nodes' addresses on the fabric to their names."""
    name = fabric["interface"]
    silent = [nodes[peer] for peer, count in fabric["unanswered"].items() if peer in nodes and count >= SENT_AGAIN]
    if not name:
        return ClusterError(
            f"the fabric address of node {node} is on no interface any more",
            remedy=f"Find out what removed it (journalctl -b on {node}), configure it again, then run again.",
            reason="fabric",
        )
    if not fabric["up"]:
        return ClusterError(
            f"interface {name} of node {node}, which carries the fabric, is {fabric['operstate'] or 'without a carrier'}",
            remedy=f"Look at its cable and at: ip link show {name}; journalctl -k -g {name}. Run again when it is up.",
            reason="fabric",
        )
    if silent:
        return ClusterError(
            f"nothing comes back to {node} from {', '.join(sorted(silent))} over interface {name}, which carries the fabric and is up",
            remedy=f"Find out who drops it, on both nodes and on a switch between them: ip -s link show {name}; nft list ruleset; doctor --tags fabric.",
            reason="fabric silent",
            suspected=True,
        )
    return None


class FabricWatch:
    """Whether this node's interface to the other nodes stays up, and they answer. One poll may hit a link that is being retrained, two in a row do not."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._last = ""

    def trouble(self, fabric: t.Mapping[str, t.Any] | None, elapsed: float, nodes: t.Mapping[str, str]) -> ClusterError | None:
        """Return the error for the fabric, None when it is up, or not watched."""
        error = fabric_trouble(self._node, fabric, nodes) if fabric else None
        before, self._last = self._last, error.reason if error else ""
        if not error or error.reason != before:
            return None
        return ClusterError(f"{error} {minutes(elapsed)} after the start", remedy=error.remedy, reason=error.reason, **error.details)


class MemoryWatch:
    """Whether the node has memory left. One poll may see a short peak, two in a row do not."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._was_low = False

    def trouble(self, available_mb: int, total_mb: int) -> ClusterError | None:
        """Return the error for a node whose memory is used up, None when there is enough."""
        low = available_mb < LEAST_AVAILABLE * total_mb
        lasting, self._was_low = low and self._was_low, low
        if not lasting:
            return None
        return ClusterError(
            f"{available_mb} of {total_mb} MiB of memory are left on {self._node}: it would freeze",
            remedy="Lower the context, the number of sequences or the memory budget of the engine, and see who else is there: playbook doctor.",
            reason="memory used up",
        )


class Work(t.NamedTuple):
    """When a node last showed work, and when it last showed work or processor time, in seconds of the controller's monotonic clock."""

    at: float
    cpu_at: float

    def to_dict(self) -> dict[str, float]:
        return self._asdict()


class WorkWatch:
    """Whether the engine works on this node, judged by stages and counts, lines, reads and writes, and processor time; never by silence."""

    def __init__(self, now: float) -> None:
        self.work = Work(now, now)
        self._seen_at = now
        self._stage: tuple[str, str] | None = None
        self._processes: dict[tuple[int, int], t.Mapping[str, t.Any]] = {}
        self.text = ""

    def update(self, now: float, stage: str, shards: str, lines: t.Iterable[str], processes: Processes) -> Work:
        """Process a poll at ``now``; return the times of the last work."""
        parts = {(process["pid"], process["start_ticks"]): process for process in processes if process["kind"] in classify.ENGINE_PARTS}
        seconds = max(now - self._seen_at, 0.001)
        before = {key: self._processes.get(key, {"cpu_s": process["cpu_s"], "io_mb": process["io_mb"]}) for key, process in parts.items()}
        cpu = {key: (process["cpu_s"] - before[key]["cpu_s"]) / seconds for key, process in parts.items()}
        moved_mb = {key: max(0, (process["io_mb"] or 0) - (before[key]["io_mb"] or 0)) for key, process in parts.items()}
        moved = self._stage is not None and (stage, shards) != self._stage
        shows = moved or parts.keys() - self._processes.keys() or any(not WAITING.search(line) for line in lines) or sum(moved_mb.values()) > 0
        works = any(share >= WORKS for share in cpu.values())
        self.work = Work(now if shows else self.work.at, now if shows or works else self.work.cpu_at)
        self.text = self._text(parts, cpu, sum(moved_mb.values()) / seconds)
        self._stage, self._processes, self._seen_at = (stage, shards), parts, now
        return self.work

    @staticmethod
    def _text(parts: t.Mapping[t.Any, t.Mapping[str, t.Any]], cpu: t.Mapping[t.Any, float], io_mb: float) -> str:
        """Return the work of this node's ranks as text, or that of all processes of the engine while it has no rank."""
        ranks = [key for key, process in parts.items() if process["kind"] == classify.RANK]
        if not parts:
            return "no process of the engine yet"
        who = f"{len(ranks)} rank(s)" if ranks else f"{len(parts)} process(es)"
        reads = f", {io_mb:.0f} MiB/s read or written" if io_mb >= 1 else ""
        return f"{who} at {100 * sum(cpu[key] for key in ranks or parts):.0f} % of a core{reads}"


def waited_for(works: t.Mapping[str, t.Mapping[str, float]], now: float, rests: float) -> str:
    """Return the node that has shown no work for ``rests`` seconds while others wait in a loop; empty when there is none, or all rest."""
    resting = [node for node in works if now - works[node]["cpu_at"] >= rests]
    return min(resting, key=lambda node: works[node]["cpu_at"]) if 0 < len(resting) < len(works) else ""


def stall(works: t.Mapping[str, t.Mapping[str, float]], stage: str, now: float, allowed: float) -> ClusterError | None:
    """Return the error for a start without work for longer than ``allowed``, by the last work of all nodes, None while there is some.

    Progress is judged by the stage: where ranks wait for each other, busy processors do not count.
    """
    if not works:
        return None
    quiet, without_cpu = (now - max(work[name] for work in works.values()) for name in ("at", "cpu_at"))
    if stage in MEETING:
        seconds, limit = quiet, allowed + MEETING_MARGIN
    else:
        seconds, limit = (without_cpu, allowed) if without_cpu >= allowed else (quiet, CPU_FACTOR * allowed)
    if seconds < limit:
        return None
    awaited = waited_for(works, now, allowed)
    first = awaited or min(works, key=lambda node: works[node]["at"])
    silent = now - works[first]["cpu_at" if awaited else "at"]
    return ClusterError(
        f"the start makes no progress ({stage or 'starting'}) for {minutes(seconds)}, {minutes(limit)} is the limit of this stage; "
        f"{first} was the first to fall silent, {minutes(silent)} ago",
        remedy=f"Look at what the ranks of {first} wait for (py-spy dump, docker exec), and at the fabric between the nodes: playbook fabric_probe.",
        reason="stalled",
        suspected=True,
        node=first,
    )
