# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A registry that this node's own engine pushes wanted blobs of an image to, for the length of one push. This module util is PRIVATE to the collection.

It listens on loopback alone and knows one repository, whose name other accounts of the node cannot guess. It says that it has every blob but the wanted ones,
so the engine reads and sends those alone, and takes nothing else. It refuses the image itself, which comes last: after a push that succeeded an engine
labels each blob with the repository's name, which would add up from copy to copy.

An engine with the classic store keeps layers unpacked. It asks for one by the digest of its compressed form where it knows that, from a registry that the
layer came from or went to, and compresses and sends any other one. What is sent so is unpacked into a private file, and known by its own sha256.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import itertools
import re
import secrets
import sys
import tempfile
import threading
import typing as t
import urllib.parse
import zlib

from ansible_collections.gb10.cluster.plugins.module_utils._model.blocks import Lost

#: Bytes that are read at once, and most of a manifest or an index.
CHUNK, MANIFEST = 1 << 20, 4 << 20
#: Where layers are spooled whose content is unknown yet. The unit has one of its own.
SPOOL = "/var/tmp"
#: How the reference of an upload begins, and the most bytes of the line before a chunk.
UPLOADS, LINE = "uploads/", 100
#: How what was compressed by gzip begins (RFC 1952, 2.3.1).
GZIP = b"\x1f\x8b"
#: The tag that is pushed.
TAG = "copy"
#: Where a push can go, and what an interrupted one leaves behind as a name of the image.
REPOSITORY = "gb10-copy-"
LEFT = re.compile(rf"127\.0\.0\.1:[0-9]+/{REPOSITORY}[0-9a-f]{{32}}:{TAG}\Z")

_SHA256 = re.compile(r"sha256:[0-9a-f]{64}\Z")

Give = t.Callable[[str, int, t.Iterable[bytes]], None]


class Unreadable(Exception):
    """The engine does not give the image, or its export is not what this program knows."""


class Registry(http.server.ThreadingHTTPServer):
    """Passes each wanted blob on to ``give``, as its digest, its size and its bytes, one at a time, from a thread of its own.

    Whoever gets the bytes of a blob computes its digest: the node that copies does so anyway. That of a manifest is computed here.
    ``error`` is what went wrong once a blob had begun. ``seconds`` is how long the engine may be silent.
    """

    daemon_threads = True

    def __init__(self, image_id: str, wanted: t.Collection[str], give: Give, seconds: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.image_id, self.wanted, self.seconds = image_id, set(wanted), seconds
        self.error: Exception | None = None
        self._give, self._lock, self._over = give, threading.Lock(), False
        self.repository = REPOSITORY + secrets.token_hex(16)
        self.uploads: set[str] = set()
        #: Compressed forms that it says it lacks, and the manifest that was refused.
        self.lacks: set[str] = set()
        self.manifest = b""

    @property
    def name(self) -> str:
        """The repository as an image of the engine is named."""
        return f"127.0.0.1:{self.server_port}/{self.repository}"

    def take(self, digest: str, size: int, parts: t.Iterable[bytes]) -> bool:
        """Pass a blob on, and return whether it was wanted."""
        with self._lock:
            if self._over or self.error or digest not in self.wanted:
                return False
            try:
                self._give(digest, size, parts)
            except (Unreadable, Lost, OSError) as error:
                # Whoever waits for the push raises it.
                self.error = error
                return False
            self.wanted.discard(digest)
            return True

    @contextlib.contextmanager
    def serving(self) -> t.Iterator[None]:
        """Answer until the block ends. Nothing is passed on after that."""
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield
        finally:
            self.shutdown()
            self.server_close()
            with self._lock:
                self._over = True


class _Handler(http.server.BaseHTTPRequestHandler):
    """What a push asks of a registry (OCI distribution specification), as far as an engine does: a blob comes with PUT, a classic store's layer with PATCH."""

    protocol_version = "HTTP/1.1"
    #: Engine 26.1.5 tries TLS first, and goes on without where the answer to that begins with HTTP.
    default_request_version = "HTTP/1.1"
    server: Registry
    _received = 0

    def setup(self) -> None:
        self.timeout = self.server.seconds
        super().setup()

    def log_message(self, *_words: t.Any) -> None:
        """Say nothing: the one who pushes has the engine's words."""

    def _answer(self, status: http.HTTPStatus, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": "0", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        if status >= http.HTTPStatus.BAD_REQUEST and self.command != "HEAD":
            # Its body may not have been read.
            self.send_header("Connection", "close")
        self.end_headers()

    def _asked(self) -> tuple[str, str, str]:
        """Return the kind of what is asked for, its reference and the query, empty outside of the repository."""
        path, _mark, query = self.path.partition("?")
        place = f"/v2/{self.server.repository}/"
        kind, _slash, reference = path[len(place):].partition("/")
        return (kind, reference, query) if path.startswith(place) else ("", "", "")

    def do_GET(self) -> None:  # pylint: disable=invalid-name
        self._answer(http.HTTPStatus.OK if self.path == "/v2/" else http.HTTPStatus.NOT_FOUND)

    def do_HEAD(self) -> None:  # pylint: disable=invalid-name
        kind, reference, _query = self._asked()
        if kind in ("blobs", "manifests") and _SHA256.match(reference) and reference not in self.server.wanted | self.server.lacks:
            self._answer(http.HTTPStatus.OK, Docker_Content_Digest=reference)
        else:
            self._answer(http.HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:  # pylint: disable=invalid-name
        kind, reference, _query = self._asked()
        if (kind, reference, self.headers.get("Content-Length", "0")) == ("blobs", "uploads/", "0"):
            self._answer(http.HTTPStatus.ACCEPTED, Location=f"/v2/{self.server.repository}/blobs/uploads/{secrets.token_hex(8)}")
        else:
            self._answer(http.HTTPStatus.NOT_FOUND)

    def do_PATCH(self) -> None:  # pylint: disable=invalid-name
        kind, reference, _query = self._asked()
        if kind != "blobs" or not reference.startswith(UPLOADS) or self.headers.get("Transfer-Encoding") != "chunked":
            self._answer(http.HTTPStatus.FORBIDDEN)
            return
        self._received = 0
        with tempfile.TemporaryFile(dir=SPOOL) as spool:
            try:
                digest, size = copy(unpacked(self._chunks()), spool)
            except (OSError, ValueError) as error:
                sys.stderr.write(f"a blob of the engine's push broke off: {error!r}\n")
                self.close_connection = True
                return
            spool.seek(0)
            self.server.take(digest, size, iter(functools.partial(spool.read, CHUNK), b""))
        self.server.uploads.add(reference)
        self._answer(http.HTTPStatus.ACCEPTED, Location=f"/v2/{self.server.repository}/blobs/{reference}", Range=f"0-{self._received - 1}")

    def do_PUT(self) -> None:  # pylint: disable=invalid-name
        kind, reference, query = self._asked()
        length = self.headers.get("Content-Length", "")
        size = int(length) if length.isascii() and length.isdigit() else -1
        digest, taken = "", False
        if kind == "blobs" and reference.startswith(UPLOADS) and size >= 0:
            digest = dict(urllib.parse.parse_qsl(query)).get("digest", "")
            # A layer that came compressed was taken, or was not wanted.
            taken = reference in self.server.uploads or self.server.take(digest, size, self._parts(size))
        elif kind == "manifests" and 0 <= size <= MANIFEST:
            content = self.rfile.read(size)
            digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
            taken = len(content) == size and reference in (digest, TAG) and self.server.take(digest, size, [content])
            # Engine 26.1.5 pushes each manifest of an index under the tag, without asking whether it is there. The classic store's image has no manifest.
            taken = (taken or reference == TAG) and digest != self.server.image_id and not self.server.uploads
            self.server.manifest = content
        if taken:
            self._answer(http.HTTPStatus.CREATED, Docker_Content_Digest=digest)
        else:
            self._answer(http.HTTPStatus.FORBIDDEN)

    def _parts(self, size: int) -> t.Iterator[bytes]:
        """Yield the bytes of a blob. Raises OSError when they are fewer."""
        while size:
            part = self.rfile.read(min(CHUNK, size))
            if not part:
                raise OSError("the engine broke off in the middle of a blob")
            size -= len(part)
            self._received += len(part)
            yield part

    def _chunks(self) -> t.Iterator[bytes]:
        """Yield a body that comes in chunks (RFC 9112, 7.1). Raises OSError when it is cut, ValueError for what is not a size."""
        while size := int(self.rfile.readline(LINE).partition(b";")[0], 16):
            yield from self._parts(size)
            self.rfile.readline(LINE)
        self.rfile.readline(LINE)


def copy(parts: t.Iterable[bytes], into: t.IO[bytes]) -> tuple[str, int]:
    """Write the parts, and return their digest and size."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
        into.write(part)
    return f"sha256:{digest.hexdigest()}", into.tell()


def unpacked(parts: t.Iterator[bytes]) -> t.Iterator[bytes]:
    """Yield what a layer that was compressed by gzip unpacks to, and a configuration, which is not compressed, as it is. Raises OSError for half a layer."""
    first = next(parts, b"")
    if not first.startswith(GZIP):
        yield from itertools.chain([first], parts)
        return
    reader = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        for part in itertools.chain([first], parts):
            while part:
                yield reader.decompress(part, CHUNK)
                part = reader.unconsumed_tail
    except zlib.error as error:
        raise OSError(f"the engine sent a layer that gzip does not unpack: {error}") from error
    if not reader.eof:
        raise OSError("the engine broke off in the middle of a layer")
