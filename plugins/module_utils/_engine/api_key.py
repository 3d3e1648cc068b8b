# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sends the API's key to a process of the engine's container alone. This module util is PRIVATE to the collection.

While an engine loads, or after it died, any account of the node can listen on the API's port. So no caller has the key as a text: a request passes the
object to :func:`_http.ask`, which connects and asks here about that very connection before it sends a byte. What decides is whose process holds its
other end, by the kernel's list of sockets: the process that accepted it, or, before that, every listener there. Membership in the container is
shown by its namespace of processes, which no account of the node can enter; the name of a control group can be faked.

Where that cannot be seen, the key is not sent.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils import _http
from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_state
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._network import listeners
from ansible_collections.gb10.cluster.plugins.module_utils._process import process_table
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME

#: States of a connection that exists: taken, or about to be.
OPEN = (listeners.TCP_ESTABLISHED, listeners.TCP_SYN_RECEIVED)
#: Characters of a command line that a message shows.
SHOWN = 80


class Withheld(UnknownState):
    """The key was not sent, since its receiver is not known to be the engine."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(f"the API's key was not sent: {why}", remedy=remedy, reason="key withheld")


class ApiKey:
    """The key of an engine's API, empty for one that has none. It is sent only in the headers of a connection to the engine's container.

    ``pid`` is a process of that container, as the host sees it; None where none lives.
    """

    def __init__(self, text: str, pid: int | None, proc: str = "/proc") -> None:
        self._text, self._pid, self._proc = text, pid, proc

    def __bool__(self) -> bool:
        return bool(self._text)

    def __repr__(self) -> str:
        return "<the API's key>" if self._text else "<no key>"

    def headers(self, connected: socket.socket) -> dict[str, str]:
        """Return the header that brings the key over this connection, none without a key. Raises :class:`Withheld`."""
        if not self._text:
            return {}
        self._check(connected)
        return {"Authorization": f"Bearer {self._text}"}

    def _check(self, connected: socket.socket) -> None:
        """Raise :class:`Withheld` unless the other end of a connection is in the engine's container."""
        where = _place(connected.getpeername())
        at = _http.base_url(*where)
        see = f"See which program listens there: ss -ltnp 'sport = :{where[1]}'"
        try:
            inside = _container_of(self._pid, self._proc)
            inodes = _other_end(listeners.connections(self._proc), where, _place(connected.getsockname()))
            if not inodes:
                raise Withheld(f"no visible program on this node accepts connections at {at}", see)
            holders = listeners.holders(inodes, self._proc)
            if not inodes <= holders.keys():
                raise Withheld(f"the listener at {at} may not be seen", BECOME)
            for pid in sorted(set().union(*holders.values())):
                if _namespace(pid, self._proc) != inside:
                    raise Withheld(f"{_named(pid, self._proc)} listens at {at}, and is not in the engine's container", see)
        except Withheld:
            raise
        except (OSError, UnknownState) as error:
            raise Withheld(f"the listener at {at} is unknown: {error}", BECOME) from error

    def require(self, url: str, timeout: float) -> None:
        """Raise :class:`Withheld` unless the program that answers at ``url`` now would get the key; for another program that sends it there."""
        if not self._text:
            return
        try:
            with contextlib.closing(_http.connection_to(url, timeout)) as connection:
                connection.key_headers(self)
        except OSError as error:
            raise Withheld(f"{url}: {error.strerror or error}", "See the playbook status.") from error

    def why_withheld(self, url: str, timeout: float) -> str:
        """Return why the program that answers at ``url`` now would not get the key, empty when it would, or without a key."""
        try:
            self.require(url, timeout)
        except Withheld as error:
            return error.with_remedy()
        return ""


class KeyForElsewhere(ApiKey):
    """The key of an API on another machine, whose processes cannot be seen from here: the caller has had the node look right before."""

    def __init__(self, text: str) -> None:
        super().__init__(text, None)

    def _check(self, connected: socket.socket) -> None:
        """The program that answers there gets it."""

    def require(self, url: str, timeout: float) -> None:
        """Check nothing: the answer will show it."""


def of(engine: t.Mapping[str, t.Any], path: str | None, proc: str = "/proc") -> ApiKey:
    """Return the key in a file for the engine that :func:`engine_state.engine_state` describes; an empty one without a file.

    Raises :class:`ClusterError` for a file that cannot be read.
    """
    return ApiKey(engine_state.read_key(path), engine.get("pid"), proc)


def _place(name: t.Sequence[t.Any]) -> tuple[str, int]:
    """Return address and port of a socket as the kernel's list has them."""
    address = ipaddress.ip_address(str(name[0]).partition("%")[0])
    return str(getattr(address, "ipv4_mapped", None) or address), int(name[1])


def _other_end(here: t.Iterable[listeners.Connection], where: tuple[str, int], own: tuple[str, int]) -> set[int]:
    """Return the sockets that may answer a connection from ``own`` to ``where``: the one that took it, or else all that would."""
    ours = [one for one in here if one.state in OPEN and (one.address, one.port) == where and (one.peer_address, one.peer_port) == own]
    taken = {one.inode for one in ours if one.inode}
    if taken or not ours:
        return taken
    return {one.inode for one in here if one.state == listeners.TCP_LISTEN and one.port == where[1] and one.address in (where[0], *engine_state.WILDCARDS)}


def _namespace(pid: int, proc: str, kind: str = "pid") -> str:
    """Return the namespace of processes, or of another kind, that a process is in, empty when it has ended. Raises OSError when that may not be seen."""
    try:
        return os.readlink(f"{proc}/{pid}/ns/{kind}")
    except process_table.GONE:
        return ""


def _container_of(pid: int | None, proc: str) -> str:
    """Return the namespace of the engine's container. Raises :class:`Withheld` where it has none of its own, OSError where that may not be seen."""
    inside, users = (_namespace(pid, proc), _namespace(pid, proc, "user")) if pid else ("", "")
    if not inside or not users:
        raise Withheld("its engine does not run in a container on this node", "See the playbook status.")
    if inside == os.readlink(f"{proc}/self/ns/pid"):
        raise Withheld("its engine has no namespace of processes of its own", "Run the engine in a container.")
    if users != os.readlink(f"{proc}/self/ns/user"):
        # Any account can create one, and in it a process that looks like a container's.
        raise Withheld("a process that looks like its engine is in a namespace of users of its own", "See the playbook status.")
    return inside


def _named(pid: int, proc: str) -> str:
    """Return a process in words."""
    command = engine_state.one_line(listeners.command_line(pid, proc))[:SHOWN] or "a process that has ended"
    return f"{command} (pid {pid})"
