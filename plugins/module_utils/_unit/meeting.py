# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the ranks that an engine spreads by itself have met, and still do. This module util is PRIVATE to the collection.

All ranks meet at one port of the head, where rank 0 listens as long as it lives. Every other rank stays connected to it as long as that one lives: its kernel
ends the connection with the process. So each node sees in its own list of connections whether the other side is there, and nothing has to listen for that.
A node that lost its power ends no connection. That it was the head is noticed when its kernel, booted again, refuses connections to that port; that it was a
worker, when the engine itself ends.
"""

from __future__ import annotations

import socket
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._network import listeners

#: The form of a specification's ``meeting``; that of an engine whose ranks do not meet there is empty.
KEYS: dict[str, type] = {"address": str, "port": int}

#: Looks in a row that have to miss another node's rank: the kernel's list of connections is not read in one instant.
MISSED_LOOKS = 3
#: Looks after which a worker asks whether rank 0 still listens, beside looking at the connections.
ASK_LOOKS = 15
#: Seconds that another node gets to answer.
ANSWER_SECONDS = 5.0

#: What a node answers to a connection: a program, its kernel in the place of one, or nobody.
LISTENS, REFUSES, SILENT = "listens", "refuses", "silent"


def others(given: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Return the addresses of the nodes whose ranks this node's is connected to, by name: of all workers on the head, of the head on a worker."""
    meets = given["meeting"].get("address")
    return {name: address for name, address in given["nodes"].items() if (address == meets) is (given["role"] != "head")} if meets else {}


def absent(given: t.Mapping[str, t.Any], connections: t.Iterable[listeners.Connection]) -> list[str]:
    """Return the nodes among :func:`others` whose rank is not connected to this node's."""
    end = "port" if given["role"] == "head" else "peer_port"
    there = {one.peer_address for one in connections if one.state == listeners.TCP_ESTABLISHED and getattr(one, end) == given["meeting"].get("port")}
    return [name for name, address in others(given).items() if address not in there]


class Ranks:
    """The ranks of other nodes as this one sees them. Beside Ray, and on one node, there are none to see."""

    def __init__(self, given: t.Mapping[str, t.Any]) -> None:
        self.given = given
        self.others = others(given)
        #: How many looks in a row missed which of those that had met this node's, and the looks since.
        self._missed: dict[str, int] = {}
        self._looks = 0

    @property
    def names(self) -> str:
        """Return the names of their nodes, for a message."""
        return ", ".join(self.others)

    def missing(self) -> list[str]:
        """Return the nodes whose ranks this node's is not connected to. Raises OSError and UnknownState."""
        return absent(self.given, listeners.connections()) if self.others else []

    def met(self) -> None:
        """Remember that they are there, so that their end is noticed."""
        self._missed = dict.fromkeys(self.others, 0)

    def left(self) -> list[str]:
        """Return the nodes whose ranks met this node's and are gone. One of which that is unknown is there."""
        try:
            missing = self.missing() if self._missed else []
        except (ClusterError, OSError):
            return []
        self._looks += 1
        if self._missed and self.given["role"] != "head" and self._looks % ASK_LOOKS == 0 and self._head_answers() == REFUSES:
            return list(self.others)
        self._missed = {name: looks + 1 if name in missing else 0 for name, looks in self._missed.items()}
        return [name for name, looks in self._missed.items() if looks >= MISSED_LOOKS]

    def head_listens(self) -> bool:
        """Return whether rank 0 listens where the ranks meet."""
        return self._head_answers() == LISTENS

    def _head_answers(self) -> str:
        return _answer(self.given["meeting"]["address"], self.given["meeting"]["port"])

    def silent(self) -> list[str]:
        """Return the nodes that give no answer at all. One that refuses a connection is there."""
        return [name for name, address in self.others.items() if _answer(address, self.given["meeting"]["port"]) == SILENT]


def _answer(address: str, port: int) -> str:
    """Return what a node answers to a connection."""
    try:
        socket.create_connection((address, port), ANSWER_SECONDS).close()
    except ConnectionRefusedError:
        return REFUSES
    except OSError:
        return SILENT
    return LISTENS
