# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A registry on loopback to which this node's engine pushes the wanted blobs of an image. This module util is PRIVATE to the collection.

It runs for one push and has one repository, whose name other accounts of the node cannot guess. It claims to have every blob but the wanted ones,
so the engine reads and sends only those. It refuses the image itself, which comes last: after a successful push an engine
labels each blob with the repository's name, and the labels would accumulate.

An engine with the classic store keeps layers unpacked. If it knows a layer's compressed digest, because it pulled or pushed the layer, it asks for that;
otherwise it compresses and sends the layer. A compressed layer is unpacked into a private file, and identified by the sha256 of its content.
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

#: Bytes of one read, and most bytes of a manifest or an index.
CHUNK, MANIFEST = 1 << 20, 4 << 20
#: Directory for spooled layers whose content is still unknown. The unit has its own.
SPOOL = "/var/tmp"
#: The beginning of an upload's reference, and the most bytes of the line before a chunk.
UPLOADS, LINE = "uploads/", 100
#: The magic number of gzip (RFC 1952, 2.3.1).
GZIP = b"\x1f\x8b"
#: The tag that is pushed.
TAG = "copy"
#: The beginning of the repository's name, and the image's name that an interrupted push leaves behind.
REPOSITORY = "gb10-copy-"
LEFT = re.compile(rf"127\.0\.0\.1:[0-9]+/{REPOSITORY}[0-9a-f]{{32}}:{TAG}\Z")

_SHA256 = re.compile(r"sha256:[0-9a-f]{64}\Z")

Give = t.Callable[[str, int, t.Iterable[bytes]], None]


class Unreadable(Exception):
    """The engine does not provide the image, or its export has an unknown format."""


class Registry(http.server.ThreadingHTTPServer):
    """Passes each wanted blob to ``give``, as its digest, its size and its bytes, one at a time, from its own thread.

    The receiver verifies the digest of a blob: the copying node does so anyway. Only that of a manifest is computed here.
    ``error`` is a failure in the middle of a blob. ``seconds`` is the limit for the engine's silence.
    """

    daemon_threads = True

    def __init__(self, image_id: str, wanted: t.Collection[str], give: Give, seconds: float, lacks: t.Iterable[str] = ()) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.image_id, self.wanted, self.seconds = image_id, set(wanted), seconds
        self.error: Exception | None = None
        self._give, self._lock, self._over = give, threading.Lock(), False
        self.repository = REPOSITORY + secrets.token_hex(16)
        self.uploads: set[str] = set()
        #: Compressed layers that it claims to lack, and the refused manifest.
        self.lacks = set(lacks)
        self.manifest = b""

    @property
    def name(self) -> str:
        """The repository as the name of an image."""
        return f"127.0.0.1:{self.server_port}/{self.repository}"

    def take(self, digest: str, size: int, parts: t.Iterable[bytes]) -> bool:
        """Pass a blob on if it is wanted, and return whether that succeeded."""
        with self._lock:
            if self._over or self.error or digest not in self.wanted:
                return False
            try:
                self._give(digest, size, parts)
            except (Unreadable, Lost, OSError) as error:
                self.error = error
                return False
            self.wanted.discard(digest)
            return True

    @contextlib.contextmanager
    def serving(self) -> t.Iterator[None]:
        """Answer requests during the block. Nothing is passed on after it."""
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield
        finally:
            self.shutdown()
            self.server_close()
            with self._lock:
                self._over = True


class _Handler(http.server.BaseHTTPRequestHandler):
    """The requests of an engine's push (OCI distribution specification): a blob comes with PUT, a classic store's layer with PATCH."""

    protocol_version = "HTTP/1.1"
    #: Engine 26.1.5 tries TLS first, and continues without if the answer to that begins with HTTP.
    default_request_version = "HTTP/1.1"
    server: Registry
    _received = 0

    def setup(self) -> None:
        self.timeout = self.server.seconds
        super().setup()

    def log_message(self, *_words: t.Any) -> None:
        """Log nothing: the caller of the push has the engine's messages."""

    def _answer(self, status: http.HTTPStatus, digest: str = "", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": "0", **({"Docker-Content-Digest": digest} if digest else {}), **headers}.items():
            self.send_header(name, value)
        if status >= http.HTTPStatus.BAD_REQUEST and self.command != "HEAD":
            # Its body may not have been read.
            self.send_header("Connection", "close")
        self.end_headers()

    def _requested(self) -> tuple[str, str, str]:
        """Return the kind of the requested object, its reference and the query, empty outside of the repository."""
        path, _mark, query = self.path.partition("?")
        place = f"/v2/{self.server.repository}/"
        kind, _slash, reference = path[len(place):].partition("/")
        return (kind, reference, query) if path.startswith(place) else ("", "", "")

    def do_GET(self) -> None:  # pylint: disable=invalid-name
        self._answer(http.HTTPStatus.OK if self.path == "/v2/" else http.HTTPStatus.NOT_FOUND)

    def do_HEAD(self) -> None:  # pylint: disable=invalid-name
        kind, reference, _query = self._requested()
        has = kind in ("blobs", "manifests") and _SHA256.match(reference) and reference not in self.server.wanted | self.server.lacks
        self._answer(http.HTTPStatus.OK if has else http.HTTPStatus.NOT_FOUND, reference if has else "")

    def do_POST(self) -> None:  # pylint: disable=invalid-name
        kind, reference, _query = self._requested()
        is_upload = (kind, reference, self.headers.get("Content-Length", "0")) == ("blobs", UPLOADS, "0")
        place = {"Location": f"/v2/{self.server.repository}/blobs/{UPLOADS}{secrets.token_hex(8)}"} if is_upload else {}
        self._answer(http.HTTPStatus.ACCEPTED if is_upload else http.HTTPStatus.NOT_FOUND, **place)

    def do_PATCH(self) -> None:  # pylint: disable=invalid-name
        kind, reference, _query = self._requested()
        if kind != "blobs" or not reference.startswith(UPLOADS) or self.headers.get("Transfer-Encoding") != "chunked":
            self._answer(http.HTTPStatus.FORBIDDEN)
            return
        self._received = 0
        with tempfile.TemporaryFile(dir=SPOOL) as spool:
            try:
                digest, size = copy(unpacked(self._chunks()), spool)
            except (OSError, ValueError) as error:
                sys.stderr.write(f"a blob of the engine's push is incomplete: {error!r}\n")
                self.close_connection = True
                return
            spool.seek(0)
            self.server.take(digest, size, iter(functools.partial(spool.read, CHUNK), b""))
        self.server.uploads.add(reference)
        self._answer(http.HTTPStatus.ACCEPTED, Location=f"/v2/{self.server.repository}/blobs/{reference}", Range=f"0-{self._received - 1}")

    def do_PUT(self) -> None:  # pylint: disable=invalid-name
        kind, reference, query = self._requested()
        length = self.headers.get("Content-Length", "")
        size = int(length) if length.isascii() and length.isdigit() else -1
        digest, taken = "", False
        if kind == "blobs" and reference.startswith(UPLOADS) and size >= 0:
            digest = dict(urllib.parse.parse_qsl(query)).get("digest", "")
            # A compressed layer was processed by PATCH.
            taken = reference in self.server.uploads or self.server.take(digest, size, self._parts(size))
        elif kind == "manifests" and 0 <= size <= MANIFEST:
            content = self.rfile.read(size)
            digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
            taken = len(content) == size and reference in (digest, TAG) and self.server.take(digest, size, [content])
            # Engine 26.1.5 pushes each manifest of an index under the tag, without asking whether it exists. The classic store's image has no manifest.
            taken = (taken or reference == TAG) and digest != self.server.image_id and not self.server.uploads
            self.server.manifest = content
        self._answer(http.HTTPStatus.CREATED if taken else http.HTTPStatus.FORBIDDEN, digest if taken else "")

    def _parts(self, size: int) -> t.Iterator[bytes]:
        """Yield the bytes of a blob. Raises OSError if there are fewer."""
        while size:
            part = self.rfile.read(min(CHUNK, size))
            if not part:
                raise OSError("the engine closed the connection in the middle of a blob")
            size -= len(part)
            self._received += len(part)
            yield part

    def _chunks(self) -> t.Iterator[bytes]:
        """Yield a chunked body (RFC 9112, 7.1). Raises OSError if it is cut, ValueError for an invalid size."""
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
    """Yield the content of a layer compressed by gzip, and anything else (a configuration) unchanged. Raises OSError for an incomplete layer."""
    first = next(parts, b"")
    parts = itertools.chain([first], parts)
    if not first.startswith(GZIP):
        yield from parts
        return
    reader = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        for part in parts:
            while part:
                yield reader.decompress(part, CHUNK)
                part = reader.unconsumed_tail
    except zlib.error as error:
        raise OSError(f"the engine sent a layer that is not valid gzip: {error}") from error
    if not reader.eof:
        raise OSError("the engine closed the connection in the middle of a layer")
