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
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.failures import KNOWN, SUSPECTED

Failure = dict[str, t.Any]

#: What Ray says of an actor that died, and the address of its node, some lines below.
DIED = re.compile(r"ActorDiedError|died unexpectedly")
ADDRESS = re.compile(r"\bip[:=] ?(?P<address>[\da-fA-F.:]{2,45})\b")
#: The end of a rank: one takes the others along, within less time than two polls are apart.
RANK_ENDED = "rank ended"


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
    """Return what a watch found on a node as a failure; the collection's own waits that ended are only suspected to be the engine's."""
    suspected = error.verdict == "unknown" or bool(error.details.get("suspected"))
    return {
        "id": error.reason or "ended",
        "node": node,
        "verdict": "block",
        "cause": str(error),
        "consequence": "the start ends on all nodes",
        "remedy": error.remedy,
        "certainty": SUSPECTED if suspected else KNOWN,
        "lines": [],
        "time": at,
    }


def blamed(lines: t.Iterable[str], addresses: t.Mapping[str, str]) -> str:
    """Return the node whose rank died first by what Ray says on another one, empty when it does not say."""
    died = False
    for line in lines:
        died = died or bool(DIED.search(line))
        found = ADDRESS.search(line) if died else None
        if found and found["address"] in addresses:
            return addresses[found["address"]]
    return ""


def first(failures: t.Iterable[Failure], lines: t.Iterable[str] = (), addresses: t.Mapping[str, str] | None = None) -> Failure | None:
    """Return the failure that came first among those that are known, else among the others; None without any.

    Where ranks ended within one poll, and no line names a cause, Ray's word counts for which of them took the others along.
    """
    found = [one for one in failures if one["verdict"] != "warn"]
    chosen = min(found, key=lambda one: (one["certainty"] != KNOWN, math.inf if one["time"] is None else one["time"]), default=None)
    if chosen is None or (chosen["certainty"] == KNOWN and chosen["id"] != RANK_ENDED):
        return chosen
    node = blamed(lines, addresses or {})
    return next((one for one in found if one["node"] == node and one["id"] == RANK_ENDED), {**chosen, "node": node} if node else chosen)


def text(failure: Failure) -> str:
    """Return a failure as one line."""
    at = "" if failure["time"] is None else f" at {time.strftime('%H:%M:%S', time.gmtime(failure['time']))} UTC"
    lines = f" Lines: {' | '.join(line.strip() for line in failure['lines'][-3:])}" if failure["lines"] else ""
    follows = f" What follows: {failure['consequence']}." if failure["consequence"] else ""
    cause = failure["cause"] or "no signature knows this error"
    return f"First to fail: {failure['node']}{at}, {failure['id']} ({failure['certainty']}): {cause}.{follows} Remedy: {failure['remedy']}{lines}"
