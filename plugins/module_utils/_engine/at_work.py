# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lists the working processes of a node, for guards of memory, network and containers. This module util is PRIVATE to the collection.

Missing information never means idle: processes that cannot be read are unknown.
"""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_state
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import ancestors, read_bytes, require_all_seen, scan

#: Most serving processes in a message.
NAMED = 3


def serving(state_dir: str, proc: str) -> list[str]:
    """Return the serving processes of this node as texts: the live engines of this collection's clusters, and all other parts of engines.

    With Ray a worker has no engine of its own, and another program's engine has no state directory: both are found as processes.
    """
    engines, known = [], set()
    for cluster, engine in engine_state.on_node(state_dir, proc).items():
        if engine["live"]:
            known.add(engine["pid"])
            engines.append(f"the engine of cluster {cluster} (run {engine['run_id']}, pid {engine['pid']})")
    return engines + serving_processes(proc, known)


def serving_processes(proc: str, known: t.Container[int] = ()) -> list[str]:
    """Return the processes that are part of an engine as texts, without those whose pids are ``known``. Raises :class:`UnknownState`."""
    parts = classify.engines(classify.parts(require_all_seen(scan(proc)).processes).values())
    return [part.text for part in parts if part.process.pid not in known]


class Found(t.NamedTuple):
    """The working processes of a container as texts: ``parts`` of engines whose main process was recorded or runs elsewhere, and ``others``.

    ``others`` are main processes of engines that were started by other means (``docker exec``), and Ray's work outside of engines.
    """

    parts: list[str]
    others: list[str]


def among(pids: t.Iterable[int], noted: int | None = None, proc: str = "/proc") -> Found:
    """Return which of these processes are working; ``noted`` is the recorded main process of the engine.

    Raises :class:`UnknownState` if one cannot be read.
    """
    processes = require_all_seen(scan(proc, pids)).processes
    parts = classify.parts(processes)

    def is_anothers(part: classify.Part) -> bool:
        above = [part.process.pid, *ancestors(part.process.pid, processes)]
        led = any(pid in parts and parts[pid].kind in classify.SERVERS for pid in above)
        # Ray's ranks are not children of an engine: only the process that requested them can identify their owner.
        return noted not in above and (led or part.kind in (classify.ENGINE_CORE, classify.RAY_WORKER))

    working = classify.at_work(parts.values())
    return Found([part.text for part in working if not is_anothers(part)], [part.text for part in working if is_anothers(part)])


def members(pids: t.Iterable[int], proc: str = "/proc") -> list[dict[str, t.Any]]:
    """Return which of these processes are part of an engine or of Ray, with their state and their usage so far.

    A core or rank of an engine that has ended counts until its parent has waited for it: it still has a name, but no arguments.
    Raises :class:`UnknownState` if one cannot be read.
    """
    processes = require_all_seen(scan(proc, pids)).processes
    parts = {pid: part for pid, part in classify.parts(processes).items() if part.kind != classify.TENANT}
    for pid, process in processes.items():
        known = classify.judge((process.name,)) if process.ended else None
        if known and known[0] in (classify.ENGINE_CORE, classify.RANK):
            parts[pid] = classify.Part(process, *known)
    return [
        {
            "pid": pid,
            "text": part.text,
            "kind": part.kind,
            "state": part.process.condition,
            "start_ticks": part.process.start_ticks,
            "cpu_s": round(part.process.cpu_ticks / os.sysconf("SC_CLK_TCK"), 2),
            "cpu_percent": None,
            "io_mb": io_mb(pid, proc),
        }
        for pid, part in sorted(parts.items())
    ]


def io_mb(pid: int, proc: str = "/proc") -> int | None:
    """Return the MiB that a process has read and written so far, including mapped files; None if it has ended or cannot be read."""
    try:
        text = read_bytes(f"{proc}/{pid}/io").decode("ascii", "replace")
    except OSError:
        return None
    return sum(int(count) for count in re.findall(r"^(?:rchar|wchar|read_bytes): (\d+)$", text, re.MULTILINE)) // (1024 * 1024)


def compared(before: t.Iterable[dict[str, t.Any]], after: t.Iterable[dict[str, t.Any]], seconds: float) -> list[dict[str, t.Any]]:
    """Return the later of two results of :func:`members`, ``seconds`` apart, with the percent of a core that each process used in between."""
    first = {(process["pid"], process["start_ticks"]): process["cpu_s"] for process in before}
    used = {
        key: round(100 * (process["cpu_s"] - first[key]) / seconds, 1)
        for process in after
        if (key := (process["pid"], process["start_ticks"])) in first and seconds > 0
    }
    return [{**process, "cpu_percent": used.get((process["pid"], process["start_ticks"]))} for process in after]


def by_container(proc: str = "/proc") -> dict[str, list[str]]:
    """Return the working processes of each container as texts, by its full id. Raises :class:`UnknownState` if a process cannot be read."""
    working: dict[str, list[str]] = {}
    for part in classify.at_work(classify.parts(require_all_seen(scan(proc)).processes).values()):
        working.setdefault(part.process.container, []).append(part.text)
    return working


def within(containers: t.Container[str], proc: str = "/proc") -> list[str]:
    """Return the working processes of these containers as texts. Raises :class:`UnknownState` if a process cannot be read."""
    return [text for container, texts in by_container(proc).items() if container in containers for text in texts]


def refusal(what: str, serving: t.Sequence[str], otherwise: str) -> ClusterError:
    """Return the error for an action that would take files, memory or the network from a serving engine."""
    more = f" and {len(serving) - NAMED} more" if len(serving) > NAMED else ""
    return ClusterError(
        f"{what} while an engine serves: {'; '.join(serving[:NAMED])}{more}",
        remedy=f"Stop it first (gb10.cluster.teardown for a cluster of this collection), or {otherwise}.",
        reason="engine live",
        serving=list(serving),
    )
