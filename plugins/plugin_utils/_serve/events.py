# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which of the failures on all nodes came first. This plugin util is PRIVATE to the collection.

Each node has its own clock. Its offset is measured at every poll, and all times here are the controller's. A failure has the fields of a finding that
:mod:`failures` makes from a log line, whether it comes from a line or from a watch.
"""

from __future__ import annotations

import math
import re
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.failures import KNOWN, SUSPECTED, happened

Failure = dict[str, t.Any]

#: Ray's message about an actor that died, and the address of its node, which follows some lines below.
DIED = re.compile(r"ActorDiedError|died unexpectedly")
ADDRESS = re.compile(r"\bip[:=] ?(?P<address>[\da-fA-F.:]{2,45})\b")
RANK = re.compile(r"\brank=\[?(?P<rank>\d{1,4})\]? died unexpectedly")
#: Ids for the end of a rank and of the engine's core. When one ends, the others end within less time than two polls are apart.
RANK_ENDED, CORE_ENDED = "rank ended", "core ended"
#: Signatures of the messages by which Ray and the engine report a lost node or rank, the most specific first. No poll needs to have seen the loss: a rank
#: may end right after its start, and a node that does not answer shows nothing.
DEATHS = ("ray-node-dead", "ray-worker-gone", "rank-died")
#: Ids of two failures that explain the end of every rank: the engine was stopped, or its main process ended without a message.
STOPPED, ENGINE_ENDED = "stopped", "ended"


class Clock:
    """How far a node's clock is ahead of the controller's, measured by the poll with the shortest round trip."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self._uncertain = math.inf

    def measure(self, sent: float, theirs: float, received: float) -> None:
        """Process one poll: when it was sent and received here, and the time of the node's clock in between."""
        uncertain = (received - sent) / 2
        if uncertain < self._uncertain:
            self.ahead, self._uncertain = theirs - (sent + received) / 2, uncertain


def of_error(node: str, error: ClusterError, at: float) -> Failure:
    """Return the error of a watch of ``node`` as a failure; of another node if the error names one.

    When a wait of the collection itself timed out, a failure of the engine is only suspected.
    """
    suspected = error.verdict == "unknown" or bool(error.details.get("suspected"))
    return {
        "id": error.reason or ENGINE_ENDED,
        "node": error.details.get("node", node),
        "verdict": "block",
        "cause": str(error),
        "consequence": "the start ends on all nodes",
        "remedy": error.remedy,
        "certainty": SUSPECTED if suspected else KNOWN,
        "lines": [],
        "time": at,
    }


class Deaths:
    """Reads a log as it grows, and collects the ranks (numbers) and node addresses that Ray and the engine report as dead, in order."""

    def __init__(self) -> None:
        self._died = False
        self.told: list[int | str] = []

    def feed(self, lines: t.Iterable[str]) -> None:
        """Process new lines. An address counts only after a line that reports a death."""
        for line in lines:
            if named := RANK.search(line):
                self._add(int(named["rank"]))
            self._died = self._died or bool(DIED.search(line))
            if self._died and (match := ADDRESS.search(line)):
                self._add(match["address"])

    def _add(self, who: int | str) -> None:
        if who not in self.told:
            self.told.append(who)


def ranks_of(nodes: t.Sequence[str], count: int) -> dict[int, str]:
    """Return the node of each rank where it is known: rank 0 is on the head, the first of ``nodes``; with two nodes, rank 1 is on the other one."""
    return dict(enumerate(nodes[: 2 if count == 2 else 1]))


def blamed(dead: t.Iterable[int | str], addresses: t.Mapping[str, str], ranks: t.Mapping[int, str]) -> str:
    """Return the node whose rank died first according to the messages of Ray and the engine on other nodes; empty if there are none."""
    named = (ranks.get(who, "") if isinstance(who, int) else addresses.get(who, "") for who in dead)
    return next((node for node in named if node), "")


def first(
    failures: t.Iterable[Failure], dead: t.Iterable[int | str] = (), addresses: t.Mapping[str, str] | None = None, ranks: t.Mapping[int, str] | None = None
) -> Failure | None:
    """Return the first of the known failures, or of the others if none is known; None without any.

    ``dead`` has the ranks and addresses that :class:`Deaths` collected on all nodes; ``addresses`` and ``ranks`` map to the names of nodes. Processes that
    end within one poll end because of each other. The first one is taken from the messages of Ray and the engine, else from what explains the end of all.
    """
    ordered = sorted(
        (failure for failure in failures if failure["verdict"] != "warn"),
        key=lambda failure: (failure["id"] != STOPPED, failure["certainty"] != KNOWN, happened(failure)),
    )
    if not ordered or (ordered[0]["certainty"] == KNOWN and ordered[0]["id"] not in (RANK_ENDED, CORE_ENDED)):
        return ordered[0] if ordered else None
    node = blamed(dead, addresses or {}, ranks or {})
    ended = [failure for failure in ordered if failure["id"] in (RANK_ENDED, CORE_ENDED)]
    if node:
        evidence = next(({**failure, "certainty": KNOWN} for id in DEATHS for failure in ordered if failure["id"] == id), ordered[0])
        return next((failure for failure in ended if failure["node"] == node), {**evidence, "node": node})
    explains = {ENGINE_ENDED: 0, CORE_ENDED: 1}
    known = [failure for failure in ordered if failure["certainty"] == KNOWN]
    return min(known, key=lambda failure: explains.get(failure["id"], 2)) if known else ordered[0]


def text(failure: Failure) -> str:
    """Return a failure as one line."""
    at = "" if failure["time"] is None else f" at {time.strftime('%H:%M:%S', time.gmtime(failure['time']))} UTC"
    lines = f" Lines: {' | '.join(line.strip() for line in failure['lines'][-3:])}" if failure["lines"] else ""
    follows = f" What follows: {failure['consequence']}." if failure["consequence"] else ""
    cause = failure["cause"] or "no signature knows this error"
    return f"First to fail: {failure['node']}{at}, {failure['id']} ({failure['certainty']}): {cause}.{follows} Remedy: {failure['remedy']}{lines}"
