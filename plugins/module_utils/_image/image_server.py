# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sends blobs of an image to the nodes that lack them, out of the engine's own push or export. This module util is PRIVATE to the collection.

It runs on the node that has the image as a program of its own (:func:`main`), and needs Python's standard library alone. Both ends prove that they know the
secret, as in a copy of a model (:mod:`blocks`). Then the client asks for blobs by their sha256, and what is sent is nothing but blobs, each behind its
sha256 and size: no name, no path, no link.

An engine pushes the wanted blobs, and reads no others (:mod:`image_registry`): with the classic store as long as it need not compress much for that. What
does not come so is filtered out of the export. That is a tar. Engines from 25 on, and all with containerd's image store, name its members
``blobs/sha256/…``. Older ones name a layer ``ID/layer.tar`` and say which one it is in ``manifest.json``, after all layers. ``ID/json`` names the layer below
(Docker image specification 1.2), which tells the number of each layer whose lower ones came before it; any other is spooled into a private file, and known by
its own sha256 then.
"""

from __future__ import annotations

import collections
import contextlib
import http.client
import json
import math
import re
import socket
import struct
import sys
import tarfile
import tempfile
import threading
import typing as t
import urllib.parse

from ansible_collections.gb10.cluster.plugins.module_utils._image import image_registry
from ansible_collections.gb10.cluster.plugins.module_utils._image.image_registry import Unreadable
from ansible_collections.gb10.cluster.plugins.module_utils._model import blocks

#: Bytes that are read and sent at once.
CHUNK = 1 << 20
#: Most bytes of an image's configuration or manifest, and of a request.
SMALL = 16 << 20
#: Seconds between two signs of life while the engine prepares its export.
BEAT_SECONDS = 10.0
SPOOL = image_registry.SPOOL

#: What a frame has: the beginning of a blob, bytes of it, nothing but a sign of life, why no more comes, the end.
BLOB, DATA, ALIVE, FAILED, END = range(5)
#: A frame begins with its kind and its length; a blob with its sha256 and its size. A request is a length and a list of digests as JSON.
FRAME, ABOUT, REQUEST = struct.Struct(">BI"), struct.Struct(">32sQ"), struct.Struct(">I")

_NAMED = re.compile(r"(?:blobs/sha256/)?([0-9a-f]{64})(?:\.json)?\Z")


class Broken(Unreadable):
    """A push ended in the middle of a blob."""


class Engine(http.client.HTTPConnection):
    """A connection to the engine for a body of any length. ``timeout`` is the seconds that it may be silent."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


# -- an export -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def export(socket_path: str, image_ids: t.Sequence[str], seconds: float) -> t.Iterator[tarfile.TarFile]:
    """Give the engine's export of images. Raises :class:`Unreadable`, OSError, HTTPException, TarError."""
    with contextlib.closing(Engine(socket_path, seconds)) as engine:
        engine.request("GET", f"/images/get?{urllib.parse.urlencode([('names', one) for one in image_ids])}")
        with engine.getresponse() as answer:
            if answer.status != 200:
                raise Unreadable(f"the Docker engine does not export the image: {answer.read(2000).decode('utf-8', 'replace').strip()}")
            with tarfile.open(fileobj=t.cast(t.Any, answer), mode="r|", bufsize=CHUNK) as tar:
                yield tar


def files(tar: tarfile.TarFile) -> t.Iterator[tarfile.TarInfo]:
    """Yield the files of an export. A link, by which an older engine names a layer twice, is not followed. Raises :class:`Unreadable`, TarError."""
    seen: set[str] = set()
    for member in tar:
        if member.name in seen or member.name.startswith("/") or ".." in member.name.split("/"):
            raise Unreadable(f"the export has {member.name!r}, {'twice' if member.name in seen else 'a path that leads out of it'}")
        if not (member.isreg() or member.isdir() or member.issym()):
            raise Unreadable(f"the export has {member.name!r}, which is neither a file nor a directory")
        seen.add(member.name)
        if member.isreg():
            yield member


def named(name: str) -> str:
    """Return the digest by which a member of an export is named, empty for any other one."""
    found = _NAMED.match(name)
    return f"sha256:{found[1]}" if found else ""


def chunks(stream: t.IO[bytes], size: int) -> t.Iterator[bytes]:
    """Yield a file in pieces. Raises :class:`Unreadable` when it is shorter."""
    while size:
        part = stream.read(min(CHUNK, size))
        if not part:
            raise Unreadable("the export ends early")
        size -= len(part)
        yield part


def _level(about: dict[str, t.Any], levels: t.Mapping[str, int | None]) -> int | None:
    """Return the number of an older export's layer from what it says of the one below, None where that is not known yet."""
    if "parent" not in about:
        return 0
    below = levels.get(about["parent"])
    return None if below is None else below + 1


def blobs(tar: tarfile.TarFile, wanted: t.Collection[str], layers: t.Sequence[str]) -> t.Iterator[tuple[str, int, t.Iterator[bytes]]]:
    """Yield each wanted blob of an export, as its digest, its size and its bytes, and read no further than the last of them.

    Raises :class:`Unreadable` when one is missing, TarError, OSError.
    """
    left, levels = set(wanted), {}
    for member in files(tar):
        folder, _slash, last = member.name.rpartition("/")
        stream = t.cast("t.IO[bytes]", tar.extractfile(member))
        digest = named(member.name)
        if folder and last == "json":
            levels[folder] = _level(json.loads(stream.read(SMALL)), levels)
        elif last == "layer.tar":
            number = levels.get(folder)
            if number is None or number >= len(layers):
                with tempfile.TemporaryFile(dir=SPOOL) as spool:
                    digest, _size = image_registry.copy(chunks(stream, member.size), spool)
                    spool.seek(0)
                    if digest in left:
                        left.discard(digest)
                        yield digest, member.size, chunks(spool, member.size)
            elif layers[number] in left:
                digest = layers[number]
        if digest in left:
            left.discard(digest)
            yield digest, member.size, chunks(stream, member.size)
        if not left:
            return
    raise Unreadable(f"the engine's export lacks {', '.join(sorted(left))}")


# -- a push ----------------------------------------------------------------------------------------------------------


def _lines(socket_path: str, method: str, path: str, seconds: float, **query: t.Any) -> t.Iterator[bytes]:
    """Yield the lines of what the engine answers. Raises :class:`Unreadable`, OSError, HTTPException."""
    with contextlib.closing(Engine(socket_path, seconds)) as engine:
        engine.request(method, f"{path}?{urllib.parse.urlencode(query)}", headers={"X-Registry-Auth": "e30="})
        with engine.getresponse() as answer:
            if answer.status >= http.client.BAD_REQUEST:
                raise Unreadable(f"{method} {path}: {answer.read(2000).decode('utf-8', 'replace').strip()}")
            while line := answer.readline(SMALL):
                yield line


def _call(*asked: t.Any, **query: t.Any) -> bytes:
    """Return the last line of what the engine answers. Raises :class:`Unreadable`, OSError, HTTPException."""
    return next(iter(collections.deque(_lines(*asked, **query), maxlen=1)), b"")


def _compressed(line: bytes) -> dict[str, int]:
    """Return the layer that a line of a push says is compressed and sent, with its unpacked bytes. Raises ValueError."""
    said = json.loads(line)
    return {said["id"]: said["progressDetail"].get("total", 0)} if said.get("status") == "Pushing" else {}


def _require_name(socket_path: str, image_id: str, seconds: float) -> None:
    """Raise :class:`Unreadable` unless an image has a name besides those of copies: with its last one an engine removes it."""
    about = json.loads(_call(socket_path, "GET", f"/images/{image_id}/json", seconds))
    if all(image_registry.REPOSITORY in one for one in [*(about.get("RepoTags") or []), *(about.get("RepoDigests") or [])]):
        raise Unreadable(f"{image_id} has no name of its own")


class Pushed(t.NamedTuple):
    """The engine's last words of a push, and the compressed forms of the image's layers, from the lowest, where it came as far as to name them."""

    words: str
    forms: list[str]


def push(
    socket_path: str,
    image_id: str,
    wanted: t.Collection[str],
    give: image_registry.Give,
    seconds: float,
    most: float = math.inf,
    lacks: t.Collection[str] = (),
) -> Pushed:
    """Have the engine push those of an image's blobs that are wanted, by their digests or by those of their compressed forms (``lacks``).

    It ends early where an engine with the classic store would compress more than ``most`` bytes. The image has a name for that meanwhile. Raises
    :class:`Broken` when a blob had begun, and did not come whole; :class:`Unreadable`, OSError, HTTPException, ValueError.
    """
    registry = image_registry.Registry(image_id, wanted, give, seconds)
    registry.lacks.update(lacks)
    with registry.serving():
        _require_name(socket_path, image_id, seconds)
        _call(socket_path, "POST", f"/images/{image_id}/tag", seconds, repo=registry.name, tag=image_registry.TAG)
        words, compressed = b"", {}
        try:
            with contextlib.closing(_lines(socket_path, "POST", f"/images/{registry.name}/push", seconds, tag=image_registry.TAG)) as lines:
                for words in lines:
                    compressed.update(_compressed(words))
                    if sum(compressed.values()) > most:
                        words = b"it knows the compressed form of too few layers"
                        break
        finally:
            _require_name(socket_path, image_id, seconds)
            _call(socket_path, "DELETE", f"/images/{registry.name}:{image_registry.TAG}", seconds, noprune=1)
    if registry.error:
        raise Broken(f"the engine's push: {registry.error}") from registry.error
    forms = [one["digest"] for one in json.loads(registry.manifest or b"{}").get("layers", [])]
    return Pushed(words.decode("utf-8", "replace").strip()[:2000], forms)


# -- the program -----------------------------------------------------------------------------------------------------


class Wire:
    """What goes to a client, in frames, with signs of life while nothing does."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._lock, self._over = connection, threading.Lock(), threading.Event()

    def send(self, kind: int, content: bytes = b"") -> None:
        """Send a frame. Raises :class:`blocks.Lost`."""
        with self._lock:
            blocks.send(self._connection, FRAME.pack(kind, len(content)))
            blocks.send(self._connection, content)

    def _beat(self) -> None:
        with contextlib.suppress(blocks.Lost):
            while not self._over.wait(BEAT_SECONDS):
                self.send(ALIVE)

    def __enter__(self) -> Wire:
        threading.Thread(target=self._beat, daemon=True).start()
        return self

    def __exit__(self, *_error: t.Any) -> None:
        self._over.set()


class ImageServer(blocks.Server):
    """Answers clients that know the secret with the blobs that they ask for, of those that were offered."""

    def __init__(self, order: dict[str, t.Any], secret: str) -> None:
        listener = blocks.listen(order["address"], order["port"])
        super().__init__(listener, blocks.Tree("/", []), secret, order["clients"], len(order["clients"]) + blocks.MORE_CONNECTIONS)
        self._order = order

    def _talk(self, connection: socket.socket, client: str) -> None:
        # The digest that a copy of a model would choose.
        blocks.receive(connection, 1)
        (length,) = REQUEST.unpack(blocks.receive(connection, REQUEST.size))
        with Wire(connection) as wire:
            try:
                wanted = set(json.loads(blocks.receive(connection, min(length, SMALL))))
                sys.stderr.write(f"{client} asks for {len(wanted)} blob(s)\n")
                self._give(wire, wanted)
                wire.send(END)
            except (Unreadable, ValueError, TypeError, tarfile.TarError, http.client.HTTPException, OSError) as error:
                sys.stderr.write(f"{client}: {error!r}\n")
                wire.send(FAILED, str(error).encode()[:2000])

    def _give(self, wire: Wire, wanted: set[str]) -> None:
        if wanted - set(self._order["blobs"]):
            raise Unreadable("it was asked for what it did not offer")
        # An older engine exports the base's own configuration only where it is asked for the base.
        images = [one for one in self._order["images"] if one == self._order["images"][-1] or one in wanted]
        left = set(wanted)

        def give(digest: str, size: int, parts: t.Iterable[bytes]) -> None:
            wire.send(BLOB, ABOUT.pack(bytes.fromhex(digest.partition(":")[2]), size))
            for part in parts:
                wire.send(DATA, part)
            left.discard(digest)

        for one in (image_id for image_id in images if image_id in self._order["push"]):
            self._push(one, left, give)
        if left:
            with export(self._order["socket"], images, self._order["timeout"]) as tar:
                for found in blobs(tar, set(left), self._order["layers"]):
                    give(*found)

    def _push(self, image_id: str, left: t.Collection[str], give: image_registry.Give) -> None:
        """Give what the engine pushes of an image. What does not come so is left to the export. Raises :class:`Broken`."""
        asked = (self._order["socket"], image_id, left, give, self._order["timeout"], self._order["push"][image_id] or math.inf)
        try:
            words, forms = push(*asked)
            # Of a layer that an earlier copy pushed the engine knows the compressed form, and asked for that.
            if lacks := {form for layer, form in zip(self._order["layers"], forms) if layer in left}:
                words = push(*asked, lacks).words
        except Broken:
            raise
        except (Unreadable, ValueError, http.client.HTTPException, OSError) as error:
            words = repr(error)
        if left:
            sys.stderr.write(f"{len(left)} blob(s) did not come with the push of {image_id}: {words}\n")


def main() -> None:
    """Serve what the order says (the first argument), until somebody ends this."""
    with open(sys.argv[1], encoding="utf-8") as text:
        order = json.load(text)
    with open(order["secret"], encoding="ascii") as text:
        secret = text.read().strip()
    ImageServer(order, secret).run()
