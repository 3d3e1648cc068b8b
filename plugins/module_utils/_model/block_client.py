# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fetches blocks from a server of :mod:`blocks`. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import secrets
import socket
import threading
import time

from ansible_collections.gb10.cluster.plugins.module_utils._model import blocks

#: Seconds of one attempt to connect, and of all attempts: the previous node of a chain may start later.
CONNECT_SECONDS, BEGIN_SECONDS = 5.0, 20.0
#: Seconds between two attempts.
RETRY_SECONDS = 0.2
#: Bytes that must arrive before the kernel wakes a connection within a block: a wakeup costs as much as copying a packet.
WAKE_BYTES = 256 << 10
#: How often to fetch a block whose digest differs.
ATTEMPTS = 2


@dataclasses.dataclass(frozen=True)
class Route:
    """The addresses and the secret of a connection to the source."""

    own: str
    address: str
    port: int
    secret: str = dataclasses.field(repr=False)


class Trouble(Exception):
    """A failed connection: ``reason`` is for programs, ``detail`` for people."""

    def __init__(self, reason: str, detail: str, number: int = -1) -> None:
        super().__init__(reason)
        self.reason, self.detail, self.number = reason, detail, number


class Stopped(Exception):
    """The failure of another connection ended this one."""


class Connection:
    """One stream of blocks. It can be cut from its beginning, before :meth:`introduce` has ended."""

    def __init__(self, route: Route, stop: threading.Event) -> None:
        self._route, self._stop, self._buffer = route, stop, blocks.Buffer()
        self._socket = _connect(route, stop)
        self._kind = blocks.SHA256
        self._digest = blocks.Digest(self._kind, self._buffer)

    def introduce(self) -> socket.socket:
        """Let both ends prove that they know the secret, and return the socket, for another protocol. Raises :class:`Trouble`."""
        try:
            self._kind = self._introduce(self._route)
        except blocks.Lost as error:
            raise self._lost(error) from error
        self._digest = blocks.Digest(self._kind, self._buffer)
        return self._socket

    def _introduce(self, route: Route) -> int:
        """Prove that both ends know the secret, and choose a digest."""
        hello = blocks.receive(self._socket, len(blocks.HELLO))
        if hello == blocks.STRANGER:
            raise Trouble("stranger", f"it does not expect {route.own}")
        if hello != blocks.HELLO:
            raise Trouble("refused", "another program listens there")
        theirs, own = blocks.receive(self._socket, blocks.NONCE), secrets.token_bytes(blocks.NONCE)
        blocks.send(self._socket, own + blocks.prove(route.secret, b"client", theirs + own))
        try:
            answer = blocks.receive(self._socket, 33)
        except blocks.Lost as error:
            raise Stopped if self._stop.is_set() else Trouble("refused", "it refused the secret") from error
        if answer[:32] != blocks.prove(route.secret, b"server", theirs + own):
            raise Trouble("refused", "it does not know the secret itself")
        if answer[32] == blocks.BUSY:
            raise Trouble("busy", "too many are connected")
        kind = blocks.XXH128 if answer[32] & blocks.digests() & blocks.XXH128 else blocks.SHA256
        blocks.send(self._socket, bytes([kind]))
        return kind

    def _ask(self, what: int, number: int, offset: int = 0, length: int = 0) -> None:
        """Send a request, until the source has the block. Raises :class:`Trouble`."""
        status = blocks.WAIT
        while status == blocks.WAIT:
            if self._stop.is_set():
                raise Stopped
            blocks.send(self._socket, blocks.REQUEST.pack(what, number, offset, length))
            status = blocks.receive(self._socket, 1)[0]
        _require_ok(status, number)

    def _end_of_answer(self, number: int) -> None:
        _require_ok(blocks.receive(self._socket, 1)[0], number)

    def fetch(self, number: int, descriptor: int, offset: int, length: int) -> None:
        """Fetch a block, compare it and write it into a file. Raises :class:`Trouble`, OSError of the file."""
        try:
            for _attempt in range(ATTEMPTS):
                self._ask(blocks.GET, number, offset, length)
                is_same = self._take(descriptor, offset, length) == self._digest.value()
                self._end_of_answer(number)
                if is_same:
                    return
        except blocks.Lost as error:
            raise self._lost(error) from error
        raise Trouble("wrong digest", f"{ATTEMPTS} times at byte {offset}", number)

    def _take(self, descriptor: int, offset: int, length: int) -> bytes:
        """Write the received bytes, and return the source's digest of them."""
        self._digest.begin()
        end = offset + length
        self._wake_at(WAKE_BYTES)
        while offset < end:
            view = self._buffer.view[:min(blocks.STEP, end - offset)]
            if end - offset <= blocks.STEP + WAKE_BYTES:
                self._wake_at(1)
            blocks.receive_into(self._socket, view)
            self._digest.update(len(view))
            while view:
                written = os.pwrite(descriptor, view, offset)
                view, offset = view[written:], offset + written
        return blocks.receive(self._socket, blocks.size_of(self._kind))

    def _wake_at(self, length: int) -> None:
        """Wake up after so many bytes, and not for each packet. At the end of an answer no more may follow."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, length)

    def is_same(self, number: int, descriptor: int, offset: int, length: int) -> bool:
        """Return whether an existing block is the source's, by its digest. Raises :class:`Trouble`, OSError of the file."""
        try:
            self._ask(blocks.DIGEST, number, offset, length)
            theirs = blocks.receive(self._socket, blocks.size_of(self._kind))
            self._end_of_answer(number)
        except blocks.Lost as error:
            raise self._lost(error) from error
        return blocks.digest_of(descriptor, offset, length, self._digest, self._buffer) == theirs

    def has_changed(self, number: int) -> bool:
        """Return whether the source changed a file since it listed it. Raises :class:`Trouble`."""
        try:
            self._ask(blocks.STATE, number)
        except blocks.Lost as error:
            raise self._lost(error) from error
        except Trouble as error:
            if error.reason == "source changed":
                return True
            raise
        return False

    def goodbye(self) -> None:
        """Report to the source that this node has everything."""
        # Whether the report arrives changes nothing here.
        with contextlib.suppress(blocks.Lost):
            blocks.send(self._socket, blocks.REQUEST.pack(blocks.BYE, 0, 0, 0))
            blocks.receive(self._socket, 1)

    def _lost(self, error: blocks.Lost) -> Exception:
        return Stopped() if self._stop.is_set() else Trouble("cut", str(error))

    def cut(self) -> None:
        """Cut it, so that no thread waits for it any more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it."""
        self._socket.close()


def _connect(route: Route, stop: threading.Event) -> socket.socket:
    until = time.monotonic() + BEGIN_SECONDS
    while True:
        try:
            connection = socket.create_connection((route.address, route.port), CONNECT_SECONDS, (route.own, 0))
            break
        except OSError as error:
            if time.monotonic() >= until or error.errno == errno.EADDRNOTAVAIL:
                raise Trouble("unreachable", str(error.strerror or error)) from error
        if stop.wait(RETRY_SECONDS):
            raise Stopped
    connection.settimeout(None)
    blocks.be_patient(connection)
    return connection


def _require_ok(status: int, number: int) -> None:
    """Raise :class:`Trouble` unless the source has the file as it was listed."""
    if status == blocks.DENIED:
        raise Trouble("permission", "the source may not read it", number)
    if status != blocks.OK:
        raise Trouble("source changed", "it was removed" if status == blocks.GONE else "another size or time than was listed", number)
