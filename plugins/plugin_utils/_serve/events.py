# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which of the failures on all nodes came first. This plugin util is PRIVATE to the collection.

Nodes have clocks of their own. How far one is off is measured at every poll, and all times here are the controller's. A failure has the
fields of a finding that :mod:`failures` makes of a line, whether a line or a watch shows it.
"""

from __future__ import annotations

import math
import re
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.failures import KNOWN, SUSPECTED, happened

Failure = dict[str, t.Any]

#: What Ray says of an actor that died, and the address of its node, some lines below.
DIED = re.compile(r"ActorDiedError|died unexpectedly")
ADDRESS = re.compile(r"\bip[:=] ?(?P<address>[\da-fA-F.:]{2,45})\b")
RANK = re.compile(r"\brank=\[?(?P<rank>\d{1,4})\]? died unexpectedly")
#: The ends of a rank and of the engine's core: one takes the others along, within less time than two polls are apart.
RANK_ENDED, CORE_ENDED = "rank ended", "core ended"
#: The signatures of what Ray and the engine say of a node, and of a rank, that is gone, the one that says most first. No look need have seen it: a rank
#: may end as soon as it begins, and of a node that is not heard nothing is.
DEATHS = ("ray-node-dead", "ray-worker-gone", "rank-died")
#: The engine was stopped, and its main process ended without a message: both explain the end of every rank.
STOPPED, ENGINE_ENDED = "stopped", "ended"


class Clock:
    """How far a node's clock is ahead of the controller's, by the poll that took the shortest time there and back."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self._uncertain = math.inf

    def measure(self, sent: float, theirs: float, received: float) -> None:
        """Take in one poll: when it was sent and received here, and what the clock there showed in between."""
        uncertain = (received - sent) / 2
        if uncertain < self._uncertain:
            self.ahead, self._uncertain = theirs - (sent + received) / 2, uncertain


def of_error(node: str, error: ClusterError, at: float) -> Failure:
    """Return what a watch of ``node`` found as a failure, of another node where the error names one.

    The collection's own waits that ended are only suspected to be the engine's.
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
    """Reads a log as it grows, and remembers whose death Ray and the engine speak of: numbers of ranks, and addresses, in their order."""

    def __init__(self) -> None:
        self._died = False
        self.told: list[int | str] = []

    def feed(self, lines: t.Iterable[str]) -> None:
        """Take in new lines. An address counts below the line of a death."""
        for line in lines:
            if named := RANK.search(line):
                self._tell(int(named["rank"]))
            self._died = self._died or bool(DIED.search(line))
            if self._died and (found := ADDRESS.search(line)):
                self._tell(found["address"])

    def _tell(self, who: int | str) -> None:
        if who not in self.told:
            self.told.append(who)


def ranks_of(nodes: t.Sequence[str], count: int) -> dict[int, str]:
    """Return the node of each rank, as far as that is known: rank 0 is on the head, the first of ``nodes``; of two nodes the other one has the other rank."""
    return dict(enumerate(nodes[: 2 if count == 2 else 1]))


def blamed(told: t.Iterable[int | str], addresses: t.Mapping[str, str], ranks: t.Mapping[int, str]) -> str:
    """Return the node whose rank died first by what Ray and the engine say on another one, empty when they do not say."""
    named = (ranks.get(who, "") if isinstance(who, int) else addresses.get(who, "") for who in told)
    return next((node for node in named if node), "")


def first(
    failures: t.Iterable[Failure], told: t.Iterable[int | str] = (), addresses: t.Mapping[str, str] | None = None, ranks: t.Mapping[int, str] | None = None
) -> Failure | None:
    """Return the failure that came first among those that are known, else among the others; None without any.

    ``told`` is what :class:`Deaths` remembers of all nodes, ``addresses`` and ``ranks`` map to the names of nodes. Processes that ended within one poll
    took each other along: which one began is what Ray and the engine say, else what explains the end of all.
    """
    found = sorted(
        (one for one in failures if one["verdict"] != "warn"),
        key=lambda one: (one["id"] != STOPPED, one["certainty"] != KNOWN, happened(one)),
    )
    if not found or (found[0]["certainty"] == KNOWN and found[0]["id"] not in (RANK_ENDED, CORE_ENDED)):
        return found[0] if found else None
    node = blamed(told, addresses or {}, ranks or {})
    ended = [one for one in found if one["id"] in (RANK_ENDED, CORE_ENDED)]
    if node:
        told_by = next(({**one, "certainty": KNOWN} for id in DEATHS for one in found if one["id"] == id), found[0])
        return next((one for one in ended if one["node"] == node), {**told_by, "node": node})
    explains = {ENGINE_ENDED: 0, CORE_ENDED: 1}
    known = [one for one in found if one["certainty"] == KNOWN]
    return min(known, key=lambda one: explains.get(one["id"], 2)) if known else found[0]


def text(failure: Failure) -> str:
    """Return a failure as one line."""
    at = "" if failure["time"] is None else f" at {time.strftime('%H:%M:%S', time.gmtime(failure['time']))} UTC"
    lines = f" Lines: {' | '.join(line.strip() for line in failure['lines'][-3:])}" if failure["lines"] else ""
    follows = f" What follows: {failure['consequence']}." if failure["consequence"] else ""
    cause = failure["cause"] or "no signature knows this error"
    return f"First to fail: {failure['node']}{at}, {failure['id']} ({failure['certainty']}): {cause}.{follows} Remedy: {failure['remedy']}{lines}"
