# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decides whether an engine serves, for status, doctor, proof and the wait for a start. This module util is PRIVATE to the collection.

A token proves health. An engine without one in time may be busy and not hung: it generates other tokens, its cache grows, or its ranks send data to each
other. vLLM's counters do not change while it reads a prompt in parts (vllm-project/vllm#51261): during a healthy prefill of a million tokens, 471 s long,
they were flat for 230 s (reported by an owner of two Sparks).
"""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._engine.api_probe import Progress
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify

SERVING, BUSY, STARTING, STALLED, HALTED, DEAD, UNKNOWN = "serving", "busy", "starting", "stalled", "halted", "dead", "unknown"

#: The result of a request to the API: it answers, no program listens, no answer comes in time, or it reports that the engine is dead.
ANSWERS, REFUSED, SILENT, SAYS_DEAD = "answers", "refused", "silent", "says dead"

#: Seconds without progress after which an engine counts as stalled, or this multiple of the time that its longest prompt may take, if that is longer.
STALL_SECONDS = 1800.0
STALL_FACTOR = 1.5
#: The slowest healthy prefill that was measured, in tokens and seconds: GLM-5.3-Flash on two Sparks, from an empty cache, reported in
#: MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks#32. Others: 937,508 tokens in 673 s, and a million in 471 s.
SLOWEST_TOKENS, SLOWEST_SECONDS = 990_007, 1232.0
#: Percent of a core that a rank uses at least while it waits for its peers in a loop, and at most while it is idle: Ray's threads in it used 2 in the lab.
SPINS_PERCENT, RESTS_PERCENT = 50.0, 5.0


class Probe(t.NamedTuple):
    """One request for a token: how the API answered, whether a token came, and the progress meanwhile.

    ``grew`` is None if the metrics do not show it; ``still_s`` are the seconds without progress over all probes, ``limit_s`` those that make a stall.
    ``withheld`` is why the program that answers did not get the API's key, and so no request.
    """

    api: str
    token: bool
    grew: bool | None = None
    still_s: float = 0.0
    limit_s: float = STALL_SECONDS
    withheld: str = ""


class Health(t.NamedTuple):
    """A verdict, its reason, and the processes that it names, as texts by node."""

    state: str
    why: str
    named: dict[str, list[str]]

    @property
    def text(self) -> str:
        """Return verdict, reason and names for a message."""
        return f"{self.state}: {self.why}" + "".join(f"; {node}: {', '.join(texts)}" for node, texts in self.named.items())


Processes = t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]]


def grew(before: Progress | None, after: Progress | None) -> bool | None:
    """Return whether an engine worked between two readings of its metrics, None when one of them is missing."""
    if before is None or after is None:
        return None
    sent = before.fabric is not None and after.fabric is not None and after.fabric > before.fabric
    return sent or after.tokens > before.tokens or after.steps > before.steps or (after.kv_use or 0.0) > (before.kv_use or 0.0)


def stall_limit(progress: Progress | None, length: int | None) -> float:
    """Return the seconds without progress after which an engine of this context ``length`` counts as stalled.

    A longer prefill of its own counts like one that was measured elsewhere.
    """
    longest = max((length or 0) * SLOWEST_SECONDS / SLOWEST_TOKENS, progress.longest_prefill_s if progress else 0.0)
    return round(max(STALL_SECONDS, STALL_FACTOR * longest), 1)


class Still(t.NamedTuple):
    """Since when probes of one run of an engine have found no progress, in seconds since boot, and its metrics at that time."""

    run_id: str
    since: float
    progress: Progress

    @classmethod
    def of_note(cls, note: t.Mapping[str, t.Any] | None) -> Still | None:
        """Return the record of an earlier probe, None when it cannot be read. Earlier versions did not record the fabric."""
        try:
            figures = [None if value is None else float(value) for value in [*note["progress"], note.get("fabric")]] if note else []
            return cls(note["run_id"], float(note["since"]), Progress(*figures)) if note else None
        except (KeyError, TypeError, ValueError):
            return None

    def as_note(self) -> dict[str, t.Any]:
        """Return the record for the next probe, also one of an earlier version: that reads five figures, and ignores the fabric's."""
        *figures, fabric = self.progress
        return {"run_id": self.run_id, "since": self.since, "progress": figures, "fabric": fabric}


def still(earlier: Still | None, run_id: str, began: float, before: Progress | None, after: Progress | None) -> Still | None:
    """Return since when there is no progress, from this probe, which got no token, and the record of the previous one; None if there is progress.

    Between two probes without a token, and with equal counters, the engine produced nothing.
    """
    if before is None or after is None or grew(before, after):
        return None
    if earlier and earlier.run_id == run_id and earlier.since <= began and grew(earlier.progress, after) is False:
        return Still(run_id, earlier.since, after)
    return Still(run_id, began, after)


def texts(processes: Processes, *states: str) -> dict[str, list[str]]:
    """Return the processes in one of these states, as texts by node."""
    by_node = {node: [process["text"] for process in members if process["state"] in states] for node, members in processes.items()}
    return {node: named for node, named in by_node.items() if named}


def without_rank(processes: Processes) -> dict[str, list[str]]:
    """Return the nodes without a rank while another one has one."""
    ranks = {node: any(process["kind"] == classify.RANK and process["state"] != "ended" for process in members) for node, members in processes.items()}
    return {node: ["no rank runs there"] for node, there in ranks.items() if not there} if any(ranks.values()) else {}


def suspects(processes: Processes) -> dict[str, list[str]]:
    """Return the ranks that may block the others: those in the kernel that cannot be interrupted, else those that are idle while the others wait in a loop."""
    stuck = texts(processes, "uninterruptible")
    if stuck:
        return {node: [f"{text} is in the kernel and cannot be interrupted" for text in named] for node, named in stuck.items()}
    ranks = {
        node: [process for process in members if process["kind"] == classify.RANK and process["cpu_percent"] is not None] for node, members in processes.items()
    }
    if all(process["cpu_percent"] < SPINS_PERCENT for members in ranks.values() for process in members):
        return {}
    resting = {node: [process["text"] for process in members if process["cpu_percent"] < RESTS_PERCENT] for node, members in ranks.items()}
    return {node: [f"{text} uses almost no processor time while the others wait in a loop" for text in named] for node, named in resting.items() if named}


def verdict(probe: Probe, processes: Processes) -> Health:
    """Judge a live engine by one request for a token and by its processes on every node that was read. The first row that applies counts."""
    stopped, ended, missing = texts(processes, "stopped"), texts(processes, "ended"), without_rank(processes)
    still, suspected = f"no progress for {probe.still_s:.0f} s", suspects(processes)
    rows = (
        (stopped, HALTED, "a signal or a debugger stopped a process, so that the engine hangs; kill -CONT PID lets it go on", stopped),
        (ended, DEAD, "a process has ended, and its parent has not noticed", ended),
        (probe.token, SERVING, "it gave a token", {}),
        (probe.api == STARTING, STARTING, "its API is not up yet", {}),
        (probe.api == REFUSED, DEAD, "its API was up, and its port refuses connections now", {}),
        (probe.api == SAYS_DEAD, DEAD, "its API reports that the engine is dead", missing),
        (missing, DEAD, "it has lost a rank", missing),
        (probe.withheld, UNKNOWN, f"it was not asked for a token: {probe.withheld}", {}),
        (probe.grew, BUSY, "no token in time, but tokens of other requests flow or a prompt is being read", {}),
        (probe.grew is None, UNKNOWN, "no token in time, and its metrics do not show whether it works", suspected),
        (probe.still_s >= probe.limit_s, STALLED, still, suspected),
        (True, UNKNOWN, f"no token and {still}, which counts as stalled after {probe.limit_s:.0f} s", suspected),
    )
    return next(Health(*row) for applies, *row in rows if applies)
