# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Gives blocks of files out over TCP, each with its digest. This module util is PRIVATE to the collection.

The collection writes this file as ``serve.py`` beside ``order.json`` where a node gives a model out, and starts it as a unit of systemd. It is a program
of its own then: standard library only, Python 3.10 or newer. A node that copies runs the same server within its module, for the next node of a chain.

    serve.py order.json

``order.json`` holds ``address, port, secret`` (a file), ``root, uid, gid`` (where and as whom it reads), ``clients`` (addresses), ``connections``, and
``files``, each with its path from the root, its size and its time in nanoseconds.

A client never names a file: it asks for a range of one by its number. Both sides prove that they know the secret, which is never sent. Bytes go from the
page cache to the network (sendfile); only the digest has to read them. rsync's daemon, the fastest tool that compares what it copies, reaches half the
rate (bench/distribution.py), and can give on nothing of a file before all of it has come.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import hmac
import ipaddress
import json
import os
import secrets
import select
import socket
import struct
import sys
import threading
import time
import typing as t

#: Bytes of a block: what is compared, fetched again and given on as one.
BLOCK = 4 << 20
#: Bytes that are read or received at a time: few calls, and little enough to be still in the CPU's cache for the digest.
STEP = 1 << 20
#: Seconds without a byte after which a connection is given up.
SILENT_SECONDS = 60
#: Connections beyond the streams of the clients: the comparison at the end, and those that a cut one leaves for a moment.
MORE_CONNECTIONS = 4
#: Seconds that a client has to prove that it knows the secret, and how many may be about to at once. Anybody can connect: of more the oldest is cut, since
#: a client that knows it needs a moment.
PROOF_SECONDS, UNPROVEN = 5.0, 256
#: Seconds that a request for a block that is not there yet waits, before the client is told to ask again.
PATIENCE = 1.0

#: What a server says first: a nonce follows, or the client's address is not one that may fetch.
HELLO, STRANGER = b"gb10 1\n", b"gb10 N\n"
NONCE = 32
#: What is asked for: bytes and their digest, the digest alone, whether the file is still the one that was listed, the end.
GET, DIGEST, STATE, BYE = range(1, 5)
#: A request: what, the number of the file, offset, length.
REQUEST = struct.Struct(">BIQI")
#: How an answer begins, and how that to GET ends.
OK, WAIT, CHANGED, GONE, DENIED = range(5)
#: Digests of 128 bits or more, by the number that travels. xxh128 is ten times faster, sha256 is always there. In place of them: too many are connected.
XXH128, SHA256, BUSY = 1, 2, 0


class Lost(Exception):
    """The other end is gone, or says nothing any more."""


class _Xxh128Value(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def _load_xxhash() -> ctypes.CDLL | None:
    """Return libxxhash, which apt and rsync need, too; None where it is missing or older than this digest (0.8.0)."""
    try:
        library = ctypes.CDLL("libxxhash.so.0")
        library.XXH3_createState.restype = ctypes.c_void_p
        library.XXH3_freeState.argtypes = library.XXH3_128bits_reset.argtypes = [ctypes.c_void_p]
        library.XXH3_128bits_update.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        library.XXH3_128bits_digest.argtypes = [ctypes.c_void_p]
        library.XXH3_128bits_digest.restype = _Xxh128Value
    except (OSError, AttributeError):
        return None
    return library


_XXHASH = _load_xxhash()


def digests() -> int:
    """Return the digests that this node can compute, as a sum of their numbers."""
    return SHA256 + (XXH128 if _XXHASH else 0)


class Buffer:
    """Memory for bytes on their way, with its address for libxxhash."""

    def __init__(self) -> None:
        self._bytes = bytearray(STEP)
        self.view = memoryview(self._bytes)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._bytes))


class Digest:
    """The digest of a block, fed from a buffer."""

    def __init__(self, kind: int, buffer: Buffer) -> None:
        self._buffer = buffer
        self._state = _XXHASH.XXH3_createState() if kind == XXH128 and _XXHASH else None
        self._sha256 = hashlib.sha256()

    def begin(self) -> None:
        """Begin a block."""
        if self._state:
            _XXHASH.XXH3_128bits_reset(self._state)
        else:
            self._sha256 = hashlib.sha256()

    def update(self, length: int) -> None:
        """Add the first bytes of the buffer."""
        if self._state:
            _XXHASH.XXH3_128bits_update(self._state, self._buffer.address, length)
        else:
            self._sha256.update(self._buffer.view[:length])

    def value(self) -> bytes:
        """Return the digest of the block."""
        if self._state:
            found = _XXHASH.XXH3_128bits_digest(self._state)
            return found.high.to_bytes(8, "big") + found.low.to_bytes(8, "big")
        return self._sha256.digest()

    def __del__(self) -> None:
        if self._state:
            _XXHASH.XXH3_freeState(self._state)


def size_of(kind: int) -> int:
    """Return the bytes of a digest."""
    return 16 if kind == XXH128 else 32


def prove(secret: str, who: bytes, nonces: bytes) -> bytes:
    """Return what only somebody who knows the secret can say to these nonces."""
    return hmac.new(secret.encode(), who + nonces, hashlib.sha256).digest()


def be_patient(connection: socket.socket, seconds: float = SILENT_SECONDS) -> None:
    """Have the kernel give up a connection on which nothing moves; Python's own timeout would make every call two."""
    limit = struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def receive_into(connection: socket.socket, view: memoryview) -> None:
    """Fill a piece of memory. Raises :class:`Lost`."""
    filled = 0
    while filled < len(view):
        try:
            length = connection.recv_into(view[filled:], 0, socket.MSG_WAITALL)
        except OSError as error:
            raise Lost("nothing came for a while" if error.errno == errno.EAGAIN else str(error.strerror)) from error
        if not length:
            raise Lost("the other end closed the connection")
        filled += length


def receive(connection: socket.socket, length: int) -> bytes:
    """Return a few bytes. Raises :class:`Lost`."""
    found = bytearray(length)
    receive_into(connection, memoryview(found))
    return bytes(found)


def send(connection: socket.socket, data: bytes) -> None:
    """Send a few bytes. Raises :class:`Lost`."""
    try:
        connection.sendall(data)
    except OSError as error:
        raise Lost(str(error.strerror)) from error


def digest_of(descriptor: int, offset: int, length: int, digest: Digest, buffer: Buffer) -> bytes:
    """Return the digest of a range of a file; of a shorter file that of what is there. Raises OSError."""
    digest.begin()
    end = offset + length
    while offset < end:
        read = os.preadv(descriptor, [buffer.view[:min(STEP, end - offset)]], offset)
        if not read:
            break
        digest.update(read)
        offset += read
    return digest.value()


class Tree:
    """Files below a directory that were listed with size and time, all of them there."""

    def __init__(self, root: str, files: t.Sequence[t.Sequence[t.Any]]) -> None:
        self._root, self._files = root, files

    def open(self, number: int) -> int:
        """Return a descriptor of a file. Raises OSError, IndexError."""
        return os.open(os.path.join(self._root, self._files[number][0]), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)

    def wait(self, _number: int, _offset: int) -> bool:
        """Return whether a block is there, after a while of waiting for it."""
        return True

    def is_same(self, number: int, descriptor: int) -> bool:
        """Return whether a file still is the one that was listed."""
        status = os.fstat(descriptor)
        return (status.st_size, status.st_mtime_ns) == tuple(self._files[number][1:3])


class Source(t.Protocol):
    """What a server gives out: a :class:`Tree`, or what a node that copies has so far."""

    def open(self, number: int) -> int: ...

    def wait(self, number: int, offset: int) -> bool: ...

    def is_same(self, number: int, descriptor: int) -> bool: ...


class Server:
    """Answers clients that know the secret, each connection in a thread of its own."""

    def __init__(self, listener: socket.socket, source: Source, secret: str, clients: t.Sequence[str], connections: int) -> None:
        self._listener, self._source, self._secret = listener, source, secret
        self._clients, self._free = {str(ipaddress.ip_address(client)) for client in clients}, threading.Semaphore(connections)
        self._stop, self._wake = os.pipe()
        self._lock = threading.Lock()
        #: Connections that proved that they know the secret, and until when (monotonic) each of the others may do so, the oldest first.
        self._open: set[socket.socket] = set()
        self._unproven: dict[socket.socket, float] = {}
        #: Clients that said that they have all, and when each client was last heard of (monotonic).
        self.done: set[str] = set()
        self.heard: dict[str, float] = {}
        self.all_done = threading.Event()

    def waiting(self) -> list[str]:
        """Return the clients that did not say yet that they have all."""
        return sorted(self._clients - self.done)

    def run(self) -> None:
        """Answer until :meth:`end`."""
        with self._listener:
            while True:
                with self._lock:
                    until = next(iter(self._unproven.values()), None)
                ready = select.select([self._listener, self._stop], [], [], None if until is None else max(0.0, until - time.monotonic()))[0]
                if self._stop in ready:
                    return
                if self._listener in ready:
                    self._accept()
                self._cut_unproven()

    def _accept(self) -> None:
        connection, address = self._listener.accept()
        if address[0] not in self._clients:
            with connection, contextlib.suppress(OSError):
                connection.setblocking(False)
                connection.send(STRANGER)
            return
        with self._lock:
            self._unproven[connection] = time.monotonic() + PROOF_SECONDS
        threading.Thread(target=self._serve, args=(connection, address[0]), daemon=True).start()

    def _cut_unproven(self) -> None:
        """Cut connections that proved nothing in time, and the oldest of too many."""
        with self._lock:
            for connection, until in list(self._unproven.items()):
                if until > time.monotonic() and len(self._unproven) <= UNPROVEN:
                    return
                del self._unproven[connection]
                _cut(connection)

    def end(self) -> None:
        """Stop to answer, and cut who is connected."""
        os.write(self._wake, b"x")
        with self._lock:
            for connection in [*self._open, *self._unproven]:
                _cut(connection)

    def _serve(self, connection: socket.socket, client: str) -> None:
        with connection:
            proof = None
            with contextlib.suppress(Lost, OSError):
                be_patient(connection)
                proof = self._proof_for(connection)
            with self._lock:
                # One that was cut meanwhile is no connection any more.
                if self._unproven.pop(connection, None) is None or proof is None:
                    return
                self._open.add(connection)
            has_place = self._free.acquire(blocking=False)  # pylint: disable=consider-using-with
            try:
                with contextlib.suppress(Lost):
                    send(connection, proof + bytes([digests() if has_place else BUSY]))
                    if has_place:
                        self._talk(connection, client)
            finally:
                with self._lock:
                    self._open.discard(connection)
                if has_place:
                    self._free.release()

    def _proof_for(self, connection: socket.socket) -> bytes | None:
        """Return this end's own proof for a client that gave its own, None for anybody else. Raises :class:`Lost`."""
        nonce = secrets.token_bytes(NONCE)
        send(connection, HELLO + nonce)
        answer = receive(connection, NONCE + 32)
        nonces = nonce + answer[:NONCE]
        is_client = hmac.compare_digest(answer[NONCE:], prove(self._secret, b"client", nonces))
        return prove(self._secret, b"server", nonces) if is_client else None

    def _talk(self, connection: socket.socket, client: str) -> None:
        buffer = Buffer()
        digest = Digest(receive(connection, 1)[0], buffer)
        while True:
            self.heard[client] = time.monotonic()
            what, number, offset, length = REQUEST.unpack(receive(connection, REQUEST.size))
            if what == BYE:
                self.done.add(client)
                send(connection, bytes([OK]))
                if self.done >= self._clients:
                    self.all_done.set()
                return
            self._answer(connection, what, number, offset, length, digest, buffer)

    def _answer(self, connection: socket.socket, what: int, number: int, offset: int, length: int, digest: Digest, buffer: Buffer) -> None:
        if what in (GET, DIGEST) and not self._source.wait(number, offset):
            send(connection, bytes([WAIT]))
            return
        try:
            descriptor = self._source.open(number)
        except (FileNotFoundError, IndexError):
            send(connection, bytes([GONE]))
            return
        except OSError:
            send(connection, bytes([DENIED]))
            return
        try:
            same = self._source.is_same(number, descriptor)
            send(connection, bytes([OK if same else CHANGED]))
            if not same or what == STATE:
                return
            if what == GET:
                self._send(connection, descriptor, offset, length, digest, buffer)
            else:
                send(connection, digest_of(descriptor, offset, length, digest, buffer))
            send(connection, bytes([OK if self._source.is_same(number, descriptor) else CHANGED]))
        except OSError as error:
            raise Lost(str(error.strerror)) from error
        finally:
            os.close(descriptor)

    @staticmethod
    def _send(connection: socket.socket, descriptor: int, offset: int, length: int, digest: Digest, buffer: Buffer) -> None:
        """Send a range and its digest; a file that is too short is cut from the other end, which finds out."""
        digest.begin()
        end = offset + length
        while offset < end:
            read = os.preadv(descriptor, [buffer.view[:min(STEP, end - offset)]], offset)
            if not read:
                raise Lost("the file is shorter than it was")
            digest.update(read)
            until = offset + read
            while offset < until:
                sent = os.sendfile(connection.fileno(), descriptor, offset, until - offset)
                if not sent:
                    raise Lost("the file is shorter than it was")
                offset += sent
        send(connection, digest.value())


def _cut(connection: socket.socket) -> None:
    """Have whoever waits for a connection wait no more; its thread closes it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def listen(address: str, port: int) -> socket.socket:
    """Return a socket that listens on one address. Raises OSError."""
    return socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET, backlog=64)


def read_order(path: str) -> tuple[dict[str, t.Any], str]:
    """Return a program's order and its secret. Raises OSError."""
    with open(path, encoding="utf-8") as handle:
        order = json.load(handle)
    with open(order["secret"], encoding="ascii") as handle:
        return order, handle.read().strip()


def main() -> None:
    order, secret = read_order(sys.argv[1])
    listener = listen(order["address"], order["port"])
    os.chroot(order["root"])
    os.chdir("/")
    os.setgroups([order["gid"]])
    os.setgid(order["gid"])
    os.setuid(order["uid"])
    Server(listener, Tree("/", order["files"]), secret, order["clients"], order["connections"]).run()


if __name__ == "__main__":
    main()
