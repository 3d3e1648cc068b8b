# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Serves blocks of files over TCP, each with its digest. This module util is PRIVATE to the collection.

The collection writes this file as ``serve.py`` next to ``order.json`` on the node that serves a model, and starts it as a systemd unit. There it is a separate
program: standard library only, Python 3.10 or newer. A copying node runs the same server within its module, for the next node of a chain.

    serve.py order.json

``order.json`` has ``address, port, secret`` (a file), ``root, uid, gid`` (the directory and user for reading), ``clients`` (addresses), ``connections``, and
``files``, each with its path from the root, its size and its time in nanoseconds.

A client never names a file: it requests a range by the file's number. Both sides prove that they know the secret, which is never sent. Bytes go from the
page cache to the network (sendfile); only the digest reads them. rsync's daemon, the fastest tool that verifies its copies, reaches half the
rate (bench/distribution.py), and cannot forward parts of an incomplete file.
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

#: Bytes of a block, the unit of comparing, fetching again and forwarding.
BLOCK = 4 << 20
#: Bytes of one read or receive: few calls, and small enough for the CPU's cache until the digest is computed.
STEP = 1 << 20
#: Seconds without a byte after which a connection is closed.
SILENT_SECONDS = 60
#: Connections in addition to the clients' streams: for the comparison at the end, and for cut ones that are still open.
MORE_CONNECTIONS = 4
#: Seconds for a client's proof that it knows the secret, and the most connections without a proof. Any program can connect: the oldest is cut first, since
#: a real client needs only a moment.
PROOF_SECONDS, UNPROVEN = 5.0, 256
#: Seconds that a request waits for a block that has not arrived yet, before the client has to repeat it.
PATIENCE = 1.0

#: The server's first message: a nonce follows, or the client's address may not fetch.
HELLO, STRANGER = b"gb10 1\n", b"gb10 N\n"
NONCE = 32
#: Kinds of requests: bytes and their digest, only the digest, whether the file is unchanged, the end.
GET, DIGEST, STATE, BYE = range(1, 5)
#: A request: its kind, the number of the file, offset, length.
REQUEST = struct.Struct(">BIQI")
#: The status at the beginning of an answer, and at the end of one to GET.
OK, WAIT, CHANGED, GONE, DENIED = range(5)
#: Digests of 128 bits or more, by their numbers in the protocol. xxh128 is ten times faster, sha256 always exists. 0: too many connections.
XXH128, SHA256, BUSY = 1, 2, 0


class Lost(Exception):
    """The other end closed the connection, or is silent."""


class _Xxh128Value(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def _load_xxhash() -> ctypes.CDLL | None:
    """Return libxxhash, which apt and rsync need, too; None if it is missing or older than this digest (0.8.0)."""
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
    """Return the digests that this node can compute, as the sum of their numbers."""
    return SHA256 + (XXH128 if _XXHASH else 0)


class Buffer:
    """Memory for bytes in transit, with its address for libxxhash."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(STEP))
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.view))


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
            digest = _XXHASH.XXH3_128bits_digest(self._state)
            return digest.high.to_bytes(8, "big") + digest.low.to_bytes(8, "big")
        return self._sha256.digest()

    def __del__(self) -> None:
        if self._state:
            _XXHASH.XXH3_freeState(self._state)


def size_of(kind: int) -> int:
    """Return the length of a digest in bytes."""
    return 16 if kind == XXH128 else 32


def prove(secret: str, who: bytes, nonces: bytes) -> bytes:
    """Return the proof that one end knows the secret, for these nonces."""
    return hmac.new(secret.encode(), who + nonces, hashlib.sha256).digest()


def be_patient(connection: socket.socket, seconds: float = SILENT_SECONDS) -> None:
    """Set the kernel's timeout for a silent connection; Python's own would double every system call."""
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
            raise Lost("nothing arrived for a while" if error.errno == errno.EAGAIN else str(error.strerror)) from error
        if not length:
            raise Lost("the other end closed the connection")
        filled += length


def receive(connection: socket.socket, length: int) -> bytes:
    """Return a few bytes. Raises :class:`Lost`."""
    received = bytearray(length)
    receive_into(connection, memoryview(received))
    return bytes(received)


def send(connection: socket.socket, data: bytes) -> None:
    """Send a few bytes. Raises :class:`Lost`."""
    try:
        connection.sendall(data)
    except OSError as error:
        raise Lost(str(error.strerror)) from error


def digest_of(descriptor: int, offset: int, length: int, digest: Digest, buffer: Buffer) -> bytes:
    """Return the digest of a range of a file, up to its end. Raises OSError."""
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
    """The source of a server: existing files below a directory, listed with size and time."""

    def __init__(self, root: str, files: t.Sequence[t.Sequence[t.Any]]) -> None:
        self._root, self._files = root, files

    def open(self, number: int) -> int:
        """Return a descriptor of a file. Raises OSError, IndexError."""
        return os.open(os.path.join(self._root, self._files[number][0]), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)

    def wait(self, _number: int, _offset: int) -> bool:
        """Return whether a block has arrived, after waiting for a while."""
        return True

    def is_same(self, number: int, descriptor: int) -> bool:
        """Return whether a file is unchanged since it was listed."""
        status = os.fstat(descriptor)
        return (status.st_size, status.st_mtime_ns) == tuple(self._files[number][1:3])


class Server:
    """Answers clients that know the secret, each connection in its own thread."""

    def __init__(self, listener: socket.socket, source: Tree, secret: str, clients: t.Sequence[str], connections: int) -> None:
        self._listener, self._source, self._secret = listener, source, secret
        self._clients, self._free = {str(ipaddress.ip_address(client)) for client in clients}, threading.Semaphore(connections)
        self._stop, self._wake = os.pipe()
        self._lock = threading.Lock()
        #: Connections that proved that they know the secret, and the deadlines (monotonic) of the others, the oldest first.
        self._open: set[socket.socket] = set()
        self._unproven: dict[socket.socket, float] = {}
        #: Clients that reported that they have everything, and the time (monotonic) of each client's last request.
        self.done: set[str] = set()
        self.heard: dict[str, float] = {}
        self.all_done = threading.Event()

    def waiting(self) -> list[str]:
        """Return the clients that have not reported yet that they have everything."""
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
        """Cut connections without a proof in time, and the oldest of too many."""
        with self._lock:
            for connection, until in list(self._unproven.items()):
                if until > time.monotonic() and len(self._unproven) <= UNPROVEN:
                    return
                del self._unproven[connection]
                _cut(connection)

    def end(self) -> None:
        """Stop answering, and cut all connections."""
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
                # It may have been cut meanwhile.
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
        """Return this end's proof for a client with a valid one, None for any other. Raises :class:`Lost`."""
        nonce = secrets.token_bytes(NONCE)
        send(connection, HELLO + nonce)
        answer = receive(connection, NONCE + 32)
        nonces = nonce + answer[:NONCE]
        return prove(self._secret, b"server", nonces) if hmac.compare_digest(answer[NONCE:], prove(self._secret, b"client", nonces)) else None

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
        """Send a range and its digest. Raises :class:`Lost` for a file that is too short: the client notices the closed connection."""
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
    """End all waiting for a connection; its thread closes it."""
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
