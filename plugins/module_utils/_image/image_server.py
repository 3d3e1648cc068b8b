# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sends blobs of an image to the nodes that lack them, from the engine's own push or export. This module util is PRIVATE to the collection.

It runs as its own program on the node that has the image (:func:`main`), and needs only Python's standard library. Both ends prove that they know the
secret, as in a copy of a model (:mod:`blocks`). Then the client requests blobs by their sha256, and the server sends only blobs, each after its
sha256 and size: no name, no path, no link.

An engine pushes the wanted blobs, and reads no others (:mod:`image_registry`): with the classic store only if that compresses little. The remaining blobs
are filtered out of the export, which is a tar. Engines from 25 on, and all with containerd's image store, name its members
``blobs/sha256/…``. Older ones name a layer ``ID/layer.tar`` and identify it in ``manifest.json``, after all layers. ``ID/json`` names the layer below
(Docker image specification 1.2), which gives the number of each layer that follows its lower ones; any other layer is spooled into a private file, and
identified by its sha256.
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

#: Bytes of one read and of one frame.
CHUNK = 1 << 20
#: Most bytes of an image's configuration or manifest, and of a request.
SMALL = 16 << 20
#: Seconds between two keep-alive frames while the engine prepares its export.
BEAT_SECONDS = 10.0
SPOOL = image_registry.SPOOL

#: Kinds of frames: the beginning of a blob, bytes of it, keep-alive, the reason of a failure, the end.
BLOB, DATA, ALIVE, FAILED, END = range(5)
#: A frame begins with its kind and its length; a blob with its sha256 and its size. A request is a length and a list of digests as JSON.
FRAME, ABOUT, REQUEST = struct.Struct(">BI"), struct.Struct(">32sQ"), struct.Struct(">I")

_NAMED = re.compile(r"(?:blobs/sha256/)?([0-9a-f]{64})(?:\.json)?\Z")


class Broken(Unreadable):
    """A push ended in the middle of a blob."""


class Engine(http.client.HTTPConnection):
    """A connection to the engine for a body of any length. ``timeout`` is in seconds, for one read or write."""

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
    """Open the engine's export of images. Raises :class:`Unreadable`, OSError, HTTPException, TarError."""
    with contextlib.closing(Engine(socket_path, seconds)) as engine:
        engine.request("GET", f"/images/get?{urllib.parse.urlencode([('names', image_id) for image_id in image_ids])}")
        with engine.getresponse() as answer:
            if answer.status != 200:
                raise Unreadable(f"the Docker engine does not export the image: {answer.read(2000).decode('utf-8', 'replace').strip()}")
            with tarfile.open(fileobj=t.cast(t.Any, answer), mode="r|", bufsize=CHUNK) as tar:
                yield tar


def files(tar: tarfile.TarFile) -> t.Iterator[tarfile.TarInfo]:
    """Yield the files of an export. Links, by which an older engine names a layer twice, are skipped. Raises :class:`Unreadable`, TarError."""
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
    """Return the digest in the name of a member of an export, empty for any other name."""
    match = _NAMED.match(name)
    return f"sha256:{match[1]}" if match else ""


def chunks(stream: t.IO[bytes], size: int) -> t.Iterator[bytes]:
    """Yield a file in pieces. Raises :class:`Unreadable` if it is too short."""
    while size:
        part = stream.read(min(CHUNK, size))
        if not part:
            raise Unreadable("the export ends early")
        size -= len(part)
        yield part


def _numbers(about: dict[str, t.Any], numbers: t.Mapping[str, int]) -> list[int]:
    """Return the number of an older export's layer from its description, empty while that of the layer below is unknown."""
    if "parent" not in about:
        return [0]
    return [numbers[about["parent"]] + 1] if about["parent"] in numbers else []


def blobs(tar: tarfile.TarFile, wanted: t.Collection[str], layers: t.Sequence[str]) -> t.Iterator[tuple[str, int, t.Iterator[bytes]]]:
    """Yield each wanted blob of an export, as its digest, its size and its bytes, up to the last of them.

    Raises :class:`Unreadable` when one is missing, TarError, OSError.
    """
    left, levels = set(wanted), dict[str, int]()
    for member in files(tar):
        folder, _slash, last = member.name.rpartition("/")
        stream = t.cast("t.IO[bytes]", tar.extractfile(member))
        digest = named(member.name)
        with contextlib.ExitStack() as stack:
            if folder and last == "json":
                levels.update({folder: number for number in _numbers(json.loads(stream.read(SMALL)), levels)})
            elif last == "layer.tar" and levels.get(folder, len(layers)) < len(layers):
                digest = layers[levels[folder]]
            elif last == "layer.tar":
                spool = stack.enter_context(tempfile.TemporaryFile(dir=SPOOL))
                digest, _size = image_registry.copy(chunks(stream, member.size), spool)
                spool.seek(0)
                stream = spool
            if digest in left:
                left.discard(digest)
                yield digest, member.size, chunks(stream, member.size)
        if not left:
            return
    raise Unreadable(f"the engine's export lacks {', '.join(sorted(left))}")


# -- a push ----------------------------------------------------------------------------------------------------------


def _lines(socket_path: str, method: str, path: str, seconds: float, **query: t.Any) -> t.Iterator[bytes]:
    """Yield the lines of the engine's answer. Raises :class:`Unreadable`, OSError, HTTPException."""
    with contextlib.closing(Engine(socket_path, seconds)) as engine:
        engine.request(method, f"{path}?{urllib.parse.urlencode(query)}", headers={"X-Registry-Auth": "e30="})
        with engine.getresponse() as answer:
            if answer.status >= http.client.BAD_REQUEST:
                raise Unreadable(f"{method} {path}: {answer.read(2000).decode('utf-8', 'replace').strip()}")
            while line := answer.readline(SMALL):
                yield line


def _call(*arguments: t.Any, **query: t.Any) -> bytes:
    """Return the last line of the engine's answer. Raises :class:`Unreadable`, OSError, HTTPException."""
    return next(iter(collections.deque(_lines(*arguments, **query), maxlen=1)), b"")


def _compressed(line: bytes) -> dict[str, int]:
    """Return the layer that is compressed and sent according to a line of a push, with its unpacked bytes. Raises ValueError."""
    event = json.loads(line)
    return {event["id"]: event["progressDetail"].get("total", 0)} if event.get("status") == "Pushing" else {}


def _require_name(socket_path: str, image_id: str, seconds: float) -> None:
    """Raise :class:`Unreadable` unless an image has a name other than those of copies: the engine removes it with its last name."""
    about = json.loads(_call(socket_path, "GET", f"/images/{image_id}/json", seconds))
    if all(image_registry.REPOSITORY in name for name in [*(about.get("RepoTags") or []), *(about.get("RepoDigests") or [])]):
        raise Unreadable(f"{image_id} has no name of its own")


class Pushed(t.NamedTuple):
    """The engine's last message of a push, and the compressed digests of the image's layers, lowest first, if the push got that far."""

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
    """Have the engine push the wanted blobs of an image, by their digests or by their compressed digests (``lacks``).

    It ends early if an engine with the classic store would compress more than ``most`` bytes. Meanwhile the image has another name. Raises
    :class:`Broken` for an incomplete blob; :class:`Unreadable`, OSError, HTTPException, ValueError.
    """
    registry = image_registry.Registry(image_id, wanted, give, seconds, lacks)
    with registry.serving():
        _require_name(socket_path, image_id, seconds)
        _call(socket_path, "POST", f"/images/{image_id}/tag", seconds, repo=registry.name, tag=image_registry.TAG)
        words, compressed = b"", {}
        try:
            with contextlib.closing(_lines(socket_path, "POST", f"/images/{registry.name}/push", seconds, tag=image_registry.TAG)) as lines:
                for words in lines:
                    compressed.update(_compressed(words))
                    if sum(compressed.values()) > most:
                        words = b"it knows the compressed digests of too few layers"
                        break
        finally:
            _require_name(socket_path, image_id, seconds)
            _call(socket_path, "DELETE", f"/images/{registry.name}:{image_registry.TAG}", seconds, noprune=1)
    if registry.error:
        raise Broken(f"the engine's push: {registry.error}") from registry.error
    layers = json.loads(registry.manifest or b"{}").get("layers", [])
    return Pushed(words.decode("utf-8", "replace").strip()[:2000], [layer["digest"] for layer in layers])


# -- the program -----------------------------------------------------------------------------------------------------


class Wire:
    """Sends frames to a client, and keep-alive frames in between."""

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
    """Sends the requested blobs of the offered ones to clients that know the secret."""

    def __init__(self, order: dict[str, t.Any], secret: str) -> None:
        super().__init__(
            blocks.listen(order["address"], order["port"]),
            blocks.Tree("/", []),
            secret,
            order["clients"],
            len(order["clients"]) + blocks.MORE_CONNECTIONS,
        )
        self._order = order

    def _talk(self, connection: socket.socket, client: str) -> None:
        # The kind of digest, which only a copy of a model uses.
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
            raise Unreadable("it was asked for blobs that it did not offer")
        # An older engine exports the base's own configuration only with the base itself.
        images = [image_id for image_id in self._order["images"] if image_id == self._order["images"][-1] or image_id in wanted]
        left = set(wanted)

        def give(digest: str, size: int, parts: t.Iterable[bytes]) -> None:
            wire.send(BLOB, ABOUT.pack(bytes.fromhex(digest.partition(":")[2]), size))
            for part in parts:
                wire.send(DATA, part)
            left.discard(digest)

        for pushed_id in (image_id for image_id in images if image_id in self._order["push"]):
            self._push(pushed_id, left, give)
        if left:
            with export(self._order["socket"], images, self._order["timeout"]) as tar:
                for blob in blobs(tar, set(left), self._order["layers"]):
                    give(*blob)

    def _push(self, image_id: str, left: t.Collection[str], give: image_registry.Give) -> None:
        """Send the blobs that the engine pushes of an image. The export has the others. Raises :class:`Broken`."""
        arguments = (self._order["socket"], image_id, left, give, self._order["timeout"], self._order["push"][image_id] or math.inf)
        try:
            words, forms = push(*arguments)
            # The engine knows the compressed digest of a layer that an earlier copy pushed, and asked for that.
            if lacks := {form for layer, form in zip(self._order["layers"], forms) if layer in left}:
                words = push(*arguments, lacks).words
        except Broken:
            raise
        except (Unreadable, ValueError, http.client.HTTPException, OSError) as error:
            words = repr(error)
        if left:
            sys.stderr.write(f"{len(left)} blob(s) were not in the push of {image_id}: {words}\n")


def main() -> None:
    """Serve according to the order (the file in the first argument), until the process is stopped."""
    ImageServer(*blocks.read_order(sys.argv[1])).run()
