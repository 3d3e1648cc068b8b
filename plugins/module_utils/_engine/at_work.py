# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which processes work on a node: every guard checks this before it removes memory, network or a container. This module util is PRIVATE to the collection.

Idle is never concluded from what is missing: processes that may not be seen are unknown.
"""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_state
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import ancestors, read_bytes, require_all_seen, scan

#: How many serving processes a message names.
NAMED = 3


def serving(state_dir: str, proc: str) -> list[str]:
    """Return the processes that serve on this node, in words: the live engines of this collection's clusters, and any other part of an engine.

    A worker has no engine of its own under Ray, and a foreign engine has no state directory: both show as processes.
    """
    found, known = [], set()
    for cluster, engine in engine_state.on_node(state_dir, proc).items():
        if engine["live"]:
            known.add(engine["pid"])
            found.append(f"the engine of cluster {cluster} (run {engine['run_id']}, pid {engine['pid']})")
    return found + serving_processes(proc, known)


def serving_processes(proc: str, known: t.Container[int] = ()) -> list[str]:
    """Return the processes that are part of an engine, in words, but for those whose pids are ``known``. Raises :class:`UnknownState`."""
    found = classify.engines(classify.parts(require_all_seen(scan(proc)).processes).values())
    return [part.text for part in found if part.process.pid not in known]


class Found(t.NamedTuple):
    """The working processes of a container, in words: ``parts`` of engines whose main process was noted or runs elsewhere, and ``others``.

    ``others`` are main processes of engines that were started by other means (``docker exec``), and work of Ray outside engines.
    """

    parts: list[str]
    others: list[str]


def among(pids: t.Iterable[int], noted: int | None = None, proc: str = "/proc") -> Found:
    """Return which of these processes are at work; ``noted`` is the recorded main process of the engine.

    Raises :class:`UnknownState` when one may not be seen.
    """
    processes = require_all_seen(scan(proc, pids)).processes
    found = classify.parts(processes)

    def is_anothers(part: classify.Part) -> bool:
        above = [part.process.pid, *ancestors(part.process.pid, processes)]
        led = any(pid in found and found[pid].kind in classify.SERVERS for pid in above)
        # Ranks of Ray have no parent among engines: their owner is known to the process that requested them.
        return noted not in above and (led or part.kind in (classify.ENGINE_CORE, classify.RAY_WORKER))

    working = classify.at_work(found.values())
    return Found([part.text for part in working if not is_anothers(part)], [part.text for part in working if is_anothers(part)])


def members(pids: t.Iterable[int], proc: str = "/proc") -> list[dict[str, t.Any]]:
    """Return which of these processes are part of an engine or of Ray, with their state and what they have used so far.

    An engine's core or rank that has ended and that its parent has not waited for is one of them: it has a name left, and no arguments.
    Raises :class:`UnknownState` when one may not be seen.
    """
    processes = require_all_seen(scan(proc, pids)).processes
    found = {pid: part for pid, part in classify.parts(processes).items() if part.kind != classify.TENANT}
    for pid, process in processes.items():
        known = classify.judge((process.name,)) if process.ended else None
        if known and known[0] in (classify.ENGINE_CORE, classify.RANK):
            found[pid] = classify.Part(process, *known)
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
        for pid, part in sorted(found.items())
    ]


def io_mb(pid: int, proc: str = "/proc") -> int | None:
    """Return how many MiB a process has read and written so far, mapped files included, None when that may not be seen or it is gone."""
    try:
        text = read_bytes(f"{proc}/{pid}/io").decode("ascii", "replace")
    except OSError:
        return None
    return sum(int(count) for count in re.findall(r"^(?:rchar|wchar|read_bytes): (\d+)$", text, re.MULTILINE)) // (1024 * 1024)


def compared(before: t.Iterable[dict[str, t.Any]], after: t.Iterable[dict[str, t.Any]], seconds: float) -> list[dict[str, t.Any]]:
    """Return the later of two results of :func:`members`, ``seconds`` apart, with how much of a core each process used in between."""
    first = {(one["pid"], one["start_ticks"]): one["cpu_s"] for one in before}
    used = {key: round(100 * (one["cpu_s"] - first[key]) / seconds, 1) for one in after if (key := (one["pid"], one["start_ticks"])) in first and seconds > 0}
    return [{**one, "cpu_percent": used.get((one["pid"], one["start_ticks"]))} for one in after]


def by_container(proc: str = "/proc") -> dict[str, list[str]]:
    """Return the working processes of each container, in words, by its full id. Raises :class:`UnknownState` when a process may not be seen."""
    found: dict[str, list[str]] = {}
    for part in classify.at_work(classify.parts(require_all_seen(scan(proc)).processes).values()):
        found.setdefault(part.process.container, []).append(part.text)
    return found


def within(containers: t.Container[str], proc: str = "/proc") -> list[str]:
    """Return the working processes of these containers, in words. Raises :class:`UnknownState` when a process may not be seen."""
    return [text for container, texts in by_container(proc).items() if container in containers for text in texts]


def refusal(what: str, serving: t.Sequence[str], otherwise: str) -> ClusterError:
    """Return the error for an action that would take files, memory or the network from an engine that serves."""
    more = f" and {len(serving) - NAMED} more" if len(serving) > NAMED else ""
    return ClusterError(
        f"{what} while an engine serves: {'; '.join(serving[:NAMED])}{more}",
        remedy=f"Stop it first (gb10.cluster.teardown for a cluster of this collection), or {otherwise}.",
        reason="engine live",
        serving=list(serving),
    )
