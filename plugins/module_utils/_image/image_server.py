# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Gives one image out to the nodes that lack it: only the layers that they ask for. This module util is PRIVATE to the collection.

It runs on the node that has the image as a program of its own, from a copy of this file, so it needs Python's standard library alone.

No existing tool does this: ``docker save`` reads every layer and lays a copy of all of them on the disk first, and rsync and its like move files, not
streams. The engine keeps beside each layer of overlay2 what its tar was (``tar-split.json.gz``: the headers and the names of the files), and the files
themselves lie unpacked, so that the very bytes of one layer come straight from where they are. containerd's image store has each layer as the file that
was pulled or made. The sha256 is what the image calls the layer, and is checked on the way. Where the engine keeps its layers in another way, its own
export is passed on whole.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import hmac
import http.client
import http.server
import ipaddress
import json
import os
import re
import socket
import stat
import sys
import tarfile
import threading
import typing as t

#: Bytes that are read and sent at once.
CHUNK = 1 << 20
#: Seconds without a byte after which a connection is given up.
SILENT_SECONDS = 60
#: Files below the directory that the program is given.
SETTINGS, SECRET = "give.json", "secret"
#: Bytes of a line of tar-split, and of an image's configuration.
LINE_LIMIT, CONFIG_LIMIT = 64 << 20, 16 << 20
#: Storage drivers whose layers lie in a directory each.
DRIVERS = ("overlay2",)

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_CACHE_ID = re.compile(r"[0-9a-z]{1,128}\Z")


class Unreadable(Exception):
    """The engine's own files are not what this program knows, or are damaged."""


def digest_hex(digest: str) -> str:
    """Return a digest without its algorithm. Raises :class:`Unreadable` for what is none."""
    if not _DIGEST.match(digest):
        raise Unreadable(f"{digest!r} is not a sha256")
    return digest.partition(":")[2]


def chain_ids(diff_ids: t.Sequence[str]) -> list[str]:
    """Return by which name the engine keeps each layer: a digest of it and of all layers below (image specification, Layer ChainID)."""
    found: list[str] = []
    for one in diff_ids:
        digest_hex(one)
        found.append(one if not found else "sha256:" + hashlib.sha256(f"{found[-1]} {one}".encode()).hexdigest())
    return found


class Layer(t.NamedTuple):
    """Where a layer lies: the name that it has in the stream, what its tar was, and its files."""

    diff_id: str
    chain_id: str
    split: str
    files: str
    #: Bytes of its files, for who has to know about how much it is.
    size: int


def layers_of(root: str, driver: str, diff_ids: t.Sequence[str]) -> list[Layer]:
    """Return the layers of an image in an engine's directory. Raises :class:`Unreadable`, OSError."""
    if driver not in DRIVERS:
        raise Unreadable(f"the layers of the storage driver {driver} do not lie in directories")
    found = []
    for diff_id, chain_id in zip(diff_ids, chain_ids(diff_ids)):
        place = os.path.join(root, "image", driver, "layerdb", "sha256", digest_hex(chain_id))
        cache_id, said = _word(os.path.join(place, "cache-id")), _word(os.path.join(place, "diff"))
        if not _CACHE_ID.match(cache_id) or said != diff_id:
            raise Unreadable(f"{place} is about another layer")
        split = os.path.join(place, "tar-split.json.gz")
        os.stat(split)
        files = os.path.join(root, driver, cache_id, "diff")
        found.append(Layer(diff_id, chain_id, split, files, int(_word(os.path.join(place, "size")))))
    return found


def config_of(root: str, driver: str, image_id: str) -> bytes:
    """Return an image's configuration, whose sha256 is its id. Raises :class:`Unreadable`, OSError."""
    path = os.path.join(root, "image", driver, "imagedb", "content", "sha256", digest_hex(image_id))
    with open(path, "rb") as stream:
        text = stream.read(CONFIG_LIMIT)
    if hashlib.sha256(text).hexdigest() != digest_hex(image_id):
        raise Unreadable(f"{path} is damaged")
    return text


def _word(path: str) -> str:
    with open(path, encoding="ascii") as stream:
        return stream.read(1024).strip()


# -- the bytes of one layer ------------------------------------------------------------------------------------------


def _lines(split: str) -> t.Iterator[dict[str, t.Any]]:
    """Yield the engine's notes on a layer's tar, in its order. Raises :class:`Unreadable`, OSError."""
    with gzip.open(split, "rb") as stream:
        while True:
            line = stream.readline(LINE_LIMIT)
            if not line:
                return
            try:
                entry = json.loads(line)
                if entry["type"] not in (1, 2):
                    raise ValueError(f"an entry of type {entry['type']}")
            except (ValueError, KeyError, TypeError) as error:
                raise Unreadable(f"{split} cannot be read: {error}") from error
            yield entry


def _name(entry: dict[str, t.Any]) -> bytes:
    return base64.b64decode(entry["name_raw"]) if entry.get("name_raw") else entry["name"].encode("utf-8", "surrogatepass")


def names(split: str) -> t.Iterator[bytes]:
    """Yield the name of everything that a layer has, one that it removes from the layers below as the tar calls it. Raises :class:`Unreadable`, OSError."""
    for entry in _lines(split):
        try:
            if entry["type"] == 1:
                yield _name(entry)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Unreadable(f"{split} cannot be read: {error}") from error


def entries(split: str) -> t.Iterator[tuple[bytes | None, int, bytes]]:
    """Yield what a layer's tar consists of: bytes as they are (no name), or the name and the size of a file. Raises :class:`Unreadable`, OSError."""
    for entry in _lines(split):
        try:
            if entry["type"] == 2:
                yield None, 0, base64.b64decode(entry["payload"] or "")
            elif entry.get("size"):
                yield _name(entry), int(entry["size"]), b""
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Unreadable(f"{split} cannot be read: {error}") from error


def tar_size(split: str) -> int:
    """Return the bytes of a layer's tar."""
    return sum(size if name is not None else len(content) for name, size, content in entries(split))


class Files:
    """Opens the files of a layer, and none that lies outside: the names come from whoever built the image."""

    def __init__(self, root: str) -> None:
        self._root = os.fsencode(os.path.realpath(root))
        self._real: dict[bytes, bool] = {}

    def open(self, name: bytes, size: int) -> t.BinaryIO:
        """Return a file of that size. Raises :class:`Unreadable`, OSError."""
        path = os.path.normpath(os.path.join(self._root, name.lstrip(b"/")))
        folder = os.path.dirname(path)
        if folder not in self._real:
            inside = path.startswith(self._root + b"/")
            self._real[folder] = inside and os.path.realpath(folder) == folder
        if not self._real[folder]:
            raise Unreadable(f"{os.fsdecode(name)} is not inside of its layer")
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        # Whoever asked for it closes it.
        stream = open(descriptor, "rb", buffering=0)  # pylint: disable=consider-using-with
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size != size:
            stream.close()
            raise Unreadable(f"{os.fsdecode(path)} was changed: its layer had a file of {size} bytes there")
        return stream


def layer_bytes(layer: Layer) -> t.Iterator[bytes | memoryview]:
    """Yield the bytes of a layer's tar, and compare their digest in the end. Raises :class:`Unreadable`, OSError."""
    digest, files, small = hashlib.sha256(), Files(layer.files), bytearray()
    buffer = bytearray(CHUNK)
    view = memoryview(buffer)
    for name, size, content in entries(layer.split):
        if name is None:
            small += content
        else:
            with files.open(name, size) as stream:
                left = size
                while left:
                    if left <= CHUNK // 16:
                        part = stream.read(left)
                        small += part
                        count = len(part)
                    else:
                        if small:
                            digest.update(small)
                            yield bytes(small)
                            small.clear()
                        count = stream.readinto(view[:min(left, CHUNK)]) or 0
                        digest.update(view[:count])
                        yield view[:count]
                    if not count:
                        raise Unreadable(f"{os.fsdecode(name)} of its layer ends early")
                    left -= count
        if len(small) >= CHUNK:
            digest.update(small)
            yield bytes(small)
            small.clear()
    digest.update(small)
    # The last bytes go only when all of them are right: who fetches then sees a stream that was cut.
    if "sha256:" + digest.hexdigest() != layer.diff_id:
        raise Unreadable(f"the files in {layer.files} are not those of layer {layer.diff_id}: one of them was changed, or the disk is at fault")
    yield bytes(small)


# -- the blobs of containerd's image store ---------------------------------------------------------------------------


#: Where containerd keeps blobs by their digest, below its directory.
BLOBS = "io.containerd.content.v1.content/blobs/sha256"
#: Directories of containerd: one of the system's own, one that Docker starts.
CONTAINERD = ("/var/lib/containerd", "{root}/containerd/daemon")
_MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")


def blob_path(root: str, digest: str) -> str:
    """Return where a blob lies of an engine with this directory. Raises :class:`Unreadable` when it does not."""
    for place in CONTAINERD:
        path = os.path.join(place.format(root=root), BLOBS, digest_hex(digest))
        if os.path.isfile(path):
            return path
    raise Unreadable(f"containerd has no blob {digest}")


class Manifest(t.NamedTuple):
    """An image of one platform in containerd's store: its own blob, its configuration, its layers; each a digest and its bytes."""

    kind: str
    own: tuple[str, int]
    config: tuple[str, int]
    layers: list[tuple[str, int]]


def manifest_of(root: str, image_id: str) -> Manifest:
    """Return what an image consists of. Raises :class:`Unreadable` when it is of many platforms, or of another kind, OSError."""
    with open(blob_path(root, image_id), "rb") as stream:
        text = stream.read(CONFIG_LIMIT)
    if hashlib.sha256(text).hexdigest() != digest_hex(image_id):
        raise Unreadable(f"the manifest {image_id} is damaged")
    try:
        found = json.loads(text)
        kind = found.get("mediaType", _MANIFESTS[0])
        if kind not in _MANIFESTS:
            raise Unreadable(f"{image_id} is no image of one platform but {kind}")
        each = [(str(one["digest"]), int(one["size"])) for one in (found["config"], *found["layers"])]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreadable(f"the manifest {image_id} cannot be read: {error}") from error
    for digest, _size in each:
        blob_path(root, digest)
    return Manifest(kind, (image_id, len(text)), each[0], each[1:])


def blob_index(manifests: t.Sequence[tuple[Manifest, t.Sequence[str]]]) -> bytes:
    """Return the index of a stream with these images, each with its names."""
    entries_of = []
    for one, given in manifests:
        about = {"mediaType": one.kind, "digest": one.own[0], "size": one.own[1]}
        words = [{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]} for name in given]
        entries_of += [{**about, "annotations": one_name} for one_name in words]
    return json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": entries_of}).encode()


def full_name(name: str) -> str:
    """Return an image's name with its registry and tag, as containerd keeps it."""
    head, slash, rest = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif not ("." in head or ":" in head or head == "localhost"):
        name = f"docker.io/{head}/{rest}"
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def blob_bytes(path: str, digest: str, size: int) -> t.Iterator[bytes | memoryview]:
    """Yield a blob, the last of it once all of it is known to be right. Raises :class:`Unreadable`, OSError."""
    found, left = hashlib.sha256(), size
    buffer = bytearray(CHUNK)
    view = memoryview(buffer)
    last = b""
    with open(path, "rb", buffering=0) as stream:
        while left:
            count = stream.readinto(view[:min(left, CHUNK)]) or 0
            if not count:
                raise Unreadable(f"{path} ends early")
            found.update(view[:count])
            left -= count
            if left:
                yield view[:count]
            else:
                last = bytes(view[:count])
    if "sha256:" + found.hexdigest() != digest:
        raise Unreadable(f"the content of {path} is not that of its name: the disk may be at fault")
    yield last


def blobs_sent(manifests: t.Sequence[tuple[Manifest, t.Sequence[str]]], have: int) -> list[tuple[str, int]]:
    """Return the blobs of a stream, each once: what the images are, and the layers beyond the first ``have``."""
    about = [blob for one, _names in manifests for blob in (one.own, one.config)]
    return list(dict.fromkeys([*about, *(layer for one, _names in manifests for layer in one.layers[have:])]))


LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'


def blob_stream_size(index: bytes, blobs: t.Sequence[tuple[str, int]]) -> int:
    """Return the bytes of :func:`blob_stream`."""
    return sum(tarfile.BLOCKSIZE + part + len(tar_padding(part)) for part in (len(LAYOUT), len(index), *(size for _digest, size in blobs))) + len(TAR_END)


def blob_stream(root: str, index: bytes, blobs: t.Sequence[tuple[str, int]]) -> t.Iterator[bytes | memoryview]:
    """Yield what ``docker load`` takes into containerd's store. Raises :class:`Unreadable`, OSError."""
    for name, content in (("oci-layout", LAYOUT), ("index.json", index)):
        yield tar_header(name, len(content)) + content + tar_padding(len(content))
    for digest, size in blobs:
        yield tar_header(f"blobs/sha256/{digest_hex(digest)}", size)
        yield from blob_bytes(blob_path(root, digest), digest, size)
        yield tar_padding(size)
    yield TAR_END


# -- the stream of an image ------------------------------------------------------------------------------------------


class Image(t.NamedTuple):
    """An image as it is given out: its id, the names that it gets, its configuration and how many layers it has."""

    image_id: str
    names: list[str]
    config: bytes
    layers: int


def manifest(images: t.Sequence[Image], layers: t.Sequence[Layer]) -> bytes:
    """Return what the stream says of itself. It names all layers, also those that are not in it: the engine has them."""
    return json.dumps(
        [
            {
                "Config": f"{digest_hex(one.image_id)}.json",
                "RepoTags": one.names,
                "Layers": [f"{digest_hex(layer.chain_id)}/layer.tar" for layer in layers[:one.layers]],
            }
            for one in images
        ]
    ).encode()


def tar_header(name: str, size: int) -> bytes:
    """Return what stands before a file of a stream."""
    about = tarfile.TarInfo(name)
    about.size, about.mode = size, 0o644
    return about.tobuf(tarfile.GNU_FORMAT)


def tar_padding(size: int) -> bytes:
    """Return what fills the last block of a file."""
    return bytes(-size % tarfile.BLOCKSIZE)


#: Two blocks of zeros end a tar.
TAR_END = bytes(2 * tarfile.BLOCKSIZE)


def stream_size(images: t.Sequence[Image], layers: t.Sequence[Layer], have: int, sizes: t.Sequence[int]) -> int:
    """Return the bytes of :func:`stream`."""
    parts = [*(len(one.config) for one in images), len(manifest(images, layers)), *sizes[have:]]
    return sum(tarfile.BLOCKSIZE + part + len(tar_padding(part)) for part in parts) + len(TAR_END)


def stream(images: t.Sequence[Image], layers: t.Sequence[Layer], have: int, sizes: t.Sequence[int]) -> t.Iterator[bytes | memoryview]:
    """Yield what ``docker load`` takes: the configurations, and the layers beyond the first ``have``. Raises :class:`Unreadable`, OSError."""
    about = manifest(images, layers)
    for name, content in [*((f"{digest_hex(one.image_id)}.json", one.config) for one in images), ("manifest.json", about)]:
        yield tar_header(name, len(content)) + content + tar_padding(len(content))
    for layer, size in list(zip(layers, sizes))[have:]:
        yield tar_header(f"{digest_hex(layer.chain_id)}/layer.tar", size)
        yield from layer_bytes(layer)
        yield tar_padding(size)
    yield TAR_END


# -- the program -----------------------------------------------------------------------------------------------------


class _Socket(http.client.HTTPConnection):
    """A connection to the engine."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=600)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Giver:
    """What is given out, to whom, and for which secret."""

    def __init__(self, place: str) -> None:
        with open(os.path.join(place, SETTINGS), encoding="utf-8") as text:
            self.settings: dict[str, t.Any] = json.load(text)
        with open(os.path.join(place, SECRET), encoding="ascii") as text:
            self._secret = text.read().strip()
        self.clients = {ipaddress.ip_address(one) for one in self.settings["clients"]}
        self.failure = ""
        self.layers: list[Layer] = []
        self.images: list[Image] = []
        self.manifests: list[tuple[Manifest, list[str]]] = []
        self.index = b""
        self._sizes: dict[int, int] = {}
        self._lock = threading.Lock()
        if self.settings["how"] == "layers":
            root, driver = self.settings["root"], self.settings["driver"]
            self.layers = layers_of(root, driver, self.settings["layers"])
            self.images = [Image(one["id"], one["names"], config_of(root, driver, one["id"]), one["layers"]) for one in self.settings["images"]]
        elif self.settings["how"] == "blobs":
            found = [(manifest_of(self.settings["root"], one["id"]), [full_name(name) for name in one["names"]]) for one in self.settings["images"]]
            self.manifests, self.index = found, blob_index(found)

    def lets_in(self, address: str, header: str) -> bool:
        """Return whether a client may fetch."""
        known = ipaddress.ip_address(address.partition("%")[0])
        mapped = getattr(known, "ipv4_mapped", None)
        right = hmac.compare_digest(header.encode("utf-8", "replace"), f"Bearer {self._secret}".encode())
        return right and bool(self._secret) and (mapped or known) in self.clients

    def sizes(self, have: int) -> list[int]:
        """Return the bytes of the layers' tars, 0 for those that are not asked for."""
        with self._lock:
            for number in range(have, len(self.layers)):
                if number not in self._sizes:
                    self._sizes[number] = tar_size(self.layers[number].split)
            return [self._sizes.get(number, 0) for number in range(len(self.layers))]


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers ``GET /image/N`` (the image without its first N layers) and ``GET /failure`` (why the last one broke off)."""

    protocol_version = "HTTP/1.1"
    timeout = SILENT_SECONDS
    giver: Giver

    def log_message(self, *arguments: t.Any) -> None:
        """Log what was asked, and nothing of the headers."""
        sys.stderr.write(f"{self.client_address[0]} {arguments[0] % arguments[1:]}\n")

    def version_string(self) -> str:
        return "gb10"

    def do_GET(self) -> None:
        """Answer."""
        self.close_connection = True
        if not self.giver.lets_in(self.client_address[0], self.headers.get("Authorization", "")):
            self._say(403, "this address or this secret is not let in")
        elif self.path == "/failure":
            self._say(200, self.giver.failure)
        elif re.fullmatch(r"/image/\d{1,4}", self.path):
            self._give(int(self.path.rpartition("/")[2]))
        else:
            self._say(404, "there is no such thing here")

    def _say(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _give(self, have: int) -> None:
        self.giver.failure = ""
        try:
            giver = self.giver
            if giver.settings["how"] == "layers":
                sizes = giver.sizes(have)
                self._send(stream_size(giver.images, giver.layers, have, sizes), stream(giver.images, giver.layers, have, sizes))
            elif giver.settings["how"] == "blobs":
                blobs = blobs_sent(giver.manifests, have)
                self._send(blob_stream_size(giver.index, blobs), blob_stream(giver.settings["root"], giver.index, blobs))
            else:
                self._pass_on()
        except (Unreadable, http.client.HTTPException, OSError, EOFError) as error:
            # The client sees that the stream ends too early, and asks for this.
            self.giver.failure = str(error)
            self.log_message("%s", f"broke off: {error}")

    def _send(self, size: int, parts: t.Iterator[bytes | memoryview]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/x-tar")
        self.send_header("Content-Length", str(size))
        self.send_header("Connection", "close")
        self.end_headers()
        for part in parts:
            self.connection.sendall(part)

    def _pass_on(self) -> None:
        """Pass on the engine's own export, whole and of unknown length."""
        query = "&".join(f"names={name}" for name in self.giver.settings["export"])
        with contextlib.closing(_Socket(self.giver.settings["socket"])) as engine:
            engine.request("GET", f"/images/get?{query}")
            answer = engine.getresponse()
            if answer.status != 200:
                raise Unreadable(f"the Docker engine does not give the image: {answer.read(2000).decode('utf-8', 'replace').strip()}")
            self.send_response(200)
            self.send_header("Content-Type", "application/x-tar")
            self.send_header("Transfer-Encoding", "chunked")
            self.send_header("Connection", "close")
            self.end_headers()
            buffer = bytearray(CHUNK)
            view = memoryview(buffer)
            while count := answer.readinto(buffer):
                self.connection.sendall(f"{count:x}\r\n".encode())
                self.connection.sendall(view[:count])
                self.connection.sendall(b"\r\n")
            self.connection.sendall(b"0\r\n\r\n")


class Server(http.server.ThreadingHTTPServer):
    """Listens on one address alone."""

    daemon_threads = True

    def __init__(self, giver: Giver) -> None:
        address = giver.settings["address"]
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        handler = type("GivingHandler", (Handler,), {"giver": giver})
        super().__init__((address, giver.settings["port"]), handler)

    def server_bind(self) -> None:
        """Bind, and ask no name service who this is."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = self.server_address[:2]

    def verify_request(self, request: t.Any, client_address: t.Any) -> bool:
        """Drop everybody else before a word is read of what they say."""
        giver: Giver = self.RequestHandlerClass.giver  # type: ignore[attr-defined]
        known = ipaddress.ip_address(str(client_address[0]).partition("%")[0])
        return (getattr(known, "ipv4_mapped", None) or known) in giver.clients


def main(place: str) -> None:
    """Give out what the settings in ``place`` say, until somebody ends this."""
    with Server(Giver(place)) as server:
        server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
