# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the ranks of an engine without Ray are connected. This module util is PRIVATE to the collection.

All ranks meet at one port of the head. Rank 0 listens there while it runs, and every other rank stays connected while it runs: the kernel closes the
connection with the process. So each node finds the other ranks in its own list of connections, without another listener.
A power loss closes no connection. The loss of the head is detected when its kernel, after the next boot, refuses connections to that port; the loss of a
worker, when the engine ends.
"""

from __future__ import annotations

import socket
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._network import listeners

#: The keys of a specification's ``meeting``, which is empty for an engine whose ranks do not meet.
KEYS: dict[str, type] = {"address": str, "port": int}

#: Consecutive checks that have to miss a node's rank: the kernel's list of connections is not read in one instant.
MISSED_LOOKS = 3
#: Every so many checks a worker also connects to rank 0.
ASK_LOOKS = 15
#: Seconds for a connection to another node.
ANSWER_SECONDS = 5.0

#: Results of a connection: a program accepts it, the kernel refuses it, or it times out.
LISTENS, REFUSES, SILENT = "listens", "refuses", "silent"


def others(given: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Return name and address of the nodes whose ranks are connected to this node's rank: all workers on the head, the head on a worker."""
    meets = given["meeting"].get("address")
    return {name: address for name, address in given["nodes"].items() if (address == meets) is (given["role"] != "head")} if meets else {}


class Ranks:
    """The ranks of the other nodes, as connections of this node. With Ray, and on a single node, there are none."""

    def __init__(self, given: t.Mapping[str, t.Any]) -> None:
        self.given = given
        self.others = others(given)
        #: By name of a node whose rank was connected, how many consecutive checks missed it; and how many checks there were.
        self._missed: dict[str, int] = {}
        self._looks = 0

    @property
    def names(self) -> str:
        """Return the names of their nodes, for a message."""
        return ", ".join(self.others)

    def missing(self) -> list[str]:
        """Return the nodes whose ranks are not connected to this node's rank. Raises OSError and :class:`UnknownState`."""
        end, port = "port" if self.given["role"] == "head" else "peer_port", self.given["meeting"].get("port")
        listed = listeners.connections() if self.others else []
        connected = {connection.peer_address for connection in listed if connection.state == listeners.TCP_ESTABLISHED and getattr(connection, end) == port}
        return [name for name, address in self.others.items() if address not in connected]

    def met(self) -> None:
        """Remember that they are connected, so that their end is detected."""
        self._missed = dict.fromkeys(self.others, 0)

    def left(self) -> list[str]:
        """Return the nodes whose ranks were connected and are gone. A rank of unknown state is not gone."""
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
        """Return whether rank 0 listens at the meeting address."""
        return self._head_answers() == LISTENS

    def _head_answers(self) -> str:
        return _answer(self.given["meeting"]["address"], self.given["meeting"]["port"])

    def silent(self) -> list[str]:
        """Return the nodes that do not answer at all. A node that refuses a connection runs."""
        return [name for name, address in self.others.items() if _answer(address, self.given["meeting"]["port"]) == SILENT]


def _answer(address: str, port: int) -> str:
    """Return the result of a connection to a node."""
    try:
        socket.create_connection((address, port), ANSWER_SECONDS).close()
    except ConnectionRefusedError:
        return REFUSES
    except OSError:
        return SILENT
    return LISTENS
