# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sends the API's key only to a process of the engine's container. This module util is PRIVATE to the collection.

While an engine loads, or after it has ended, any account of the node can listen on the API's port. So no caller has the key as text: it passes the object
to :func:`_http.ask`, which connects and has that connection checked here before it sends a byte. The kernel's list of sockets shows which process has the
other end: the one that accepted the connection, or, before that, each listener on the port. A process belongs to the container if it is in its PID
namespace, which no account of the node can enter; the name of a control group can be faked.

If that cannot be determined, the key is not sent.
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

#: States of an existing connection: accepted, or about to be.
OPEN = (listeners.TCP_ESTABLISHED, listeners.TCP_SYN_RECEIVED)
#: Most characters of a command line in a message.
SHOWN = 80


class Withheld(UnknownState):
    """The key was not sent, because its receiver may not be the engine."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(f"the API's key was not sent: {why}", remedy=remedy, reason="key withheld")


class ApiKey:
    """The key of an engine's API, empty for an API without one. It is sent only in the headers of a connection to the engine's container.

    ``pid`` is the host's pid of a process of that container, None without one.
    """

    def __init__(self, text: str, pid: int | None, proc: str = "/proc") -> None:
        self._text, self._pid, self._proc = text, pid, proc

    def __bool__(self) -> bool:
        return bool(self._text)

    def __repr__(self) -> str:
        return "<the API's key>" if self._text else "<no key>"

    def headers(self, connected: socket.socket) -> dict[str, str]:
        """Return the header with the key for this connection, none without a key. Raises :class:`Withheld`."""
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
                    raise Withheld(f"{_process_text(pid, self._proc)} listens at {at}, and is not in the engine's container", see)
        except Withheld:
            raise
        except (OSError, UnknownState) as error:
            raise Withheld(f"the listener at {at} is unknown: {error}", BECOME) from error

    def require(self, url: str, timeout: float) -> None:
        """Raise :class:`Withheld` unless the key may be sent to the program that listens at ``url`` now. For callers that have another program send it."""
        if not self._text:
            return
        try:
            with contextlib.closing(_http.connection_to(url, timeout)) as connection:
                connection.key_headers(self)
        except OSError as error:
            raise Withheld(f"{url}: {error.strerror or error}", "See the playbook status.") from error

    def why_withheld(self, url: str, timeout: float) -> str:
        """Return why the key may not be sent to the program that listens at ``url`` now, empty if it may, or without a key."""
        try:
            self.require(url, timeout)
        except Withheld as error:
            return error.with_remedy()
        return ""


class KeyForElsewhere(ApiKey):
    """The key of an API on another machine, whose processes are not visible here: the caller had that node check them just before."""

    def __init__(self, text: str) -> None:
        super().__init__(text, None)

    def _check(self, connected: socket.socket) -> None:
        """Accept any program that listens there."""

    def require(self, url: str, timeout: float) -> None:
        """Check nothing: the answer to the request will show a failure."""


def of(engine: t.Mapping[str, t.Any], path: str | None, proc: str = "/proc") -> ApiKey:
    """Return the key in a file for the engine that :func:`engine_state.engine_state` describes; an empty one without a file.

    Raises :class:`ClusterError` for a file that cannot be read.
    """
    return ApiKey(engine_state.read_key(path), engine.get("pid"), proc)


def _place(name: t.Sequence[t.Any]) -> tuple[str, int]:
    """Return address and port of a socket in the form of the kernel's list."""
    address = ipaddress.ip_address(str(name[0]).partition("%")[0])
    return str(getattr(address, "ipv4_mapped", None) or address), int(name[1])


def _other_end(here: t.Iterable[listeners.Connection], where: tuple[str, int], own: tuple[str, int]) -> set[int]:
    """Return the sockets that may answer a connection from ``own`` to ``where``: the one that accepted it, or before that all that could accept it."""
    ours = [
        connection
        for connection in here
        if connection.state in OPEN and (connection.address, connection.port, connection.peer_address, connection.peer_port) == (*where, *own)
    ]
    taken = {connection.inode for connection in ours if connection.inode}
    if taken or not ours:
        return taken
    addresses = (where[0], *engine_state.WILDCARDS)
    return {
        connection.inode
        for connection in here
        if connection.state == listeners.TCP_LISTEN and connection.port == where[1] and connection.address in addresses
    }


def _namespace(pid: int, proc: str, kind: str = "pid") -> str:
    """Return the PID namespace of a process, or one of another kind; empty if it has ended. Raises OSError if it cannot be read."""
    try:
        return os.readlink(f"{proc}/{pid}/ns/{kind}")
    except process_table.GONE:
        return ""


def _container_of(pid: int | None, proc: str) -> str:
    """Return the PID namespace of the engine's container. Raises :class:`Withheld` if it has none of its own, OSError if it cannot be read."""
    inside, users = (_namespace(pid, proc), _namespace(pid, proc, "user")) if pid else ("", "")
    if not inside or not users:
        raise Withheld("its engine does not run in a container on this node", "See the playbook status.")
    if inside == os.readlink(f"{proc}/self/ns/pid"):
        raise Withheld("its engine has no namespace of processes of its own", "Run the engine in a container.")
    if users != os.readlink(f"{proc}/self/ns/user"):
        # Any account can create a user namespace, and in it a process that looks like that of a container.
        raise Withheld("a process that looks like its engine is in a namespace of users of its own", "See the playbook status.")
    return inside


def _process_text(pid: int, proc: str) -> str:
    """Return a process as text."""
    command = engine_state.one_line(listeners.command_line(pid, proc))[:SHOWN] or "a process that has ended"
    return f"{command} (pid {pid})"
