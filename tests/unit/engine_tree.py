# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The directory of a Docker engine with overlay2, and a stand-in for the engine above it that lists, exports and loads images as 20.10 was seen to.

One layer is recorded (``fixtures/docker/tar-split.json.gz``, engine 20.10.24: files, a hard and a symbolic link, an empty file, a removed file of the layer
below, a name of 120 characters and one that is no UTF-8). The others are made here.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import http.server
import io
import json
import os
import socket
import socketserver
import tarfile
import threading
import typing as t
import urllib.parse
from pathlib import Path

from ansible_collections.gb10.cluster.plugins.module_utils._image import image_server

RECORDED = Path(__file__).parent / "fixtures/docker/tar-split.json.gz"
#: What the engine called that layer, and the files in it that have content.
RECORDED_DIFF_ID = "sha256:4bfd300c9e185ff97e37b922fe06e387f82383c3f750a69b908aa321fde1b436"
RECORDED_FILES = {b"rec/file": b"hello layer", b"rec/latin\xe9": b"x", b"rec/" + b"n" * 120: b"long", b"rec/sub/inner": b"inner"}


def layer_tar(files: t.Mapping[str, bytes]) -> bytes:
    """Return a layer's tar."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))
    return out.getvalue()


def split_of(content: bytes) -> bytes:
    """Return what the engine notes of a layer's tar."""
    lines, position = [], 0
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        for one in tar:
            lines.append({"type": 2, "payload": base64.b64encode(content[position:one.offset_data]).decode()})
            lines.append({"type": 1, "name": one.name, **({"size": one.size} if one.size else {}), "payload": "AAAAAAAAAAA="})
            position = one.offset_data + one.size
    lines.append({"type": 2, "payload": base64.b64encode(content[position:]).decode()})
    return gzip.compress("".join(json.dumps({**line, "position": number}) + "\n" for number, line in enumerate(lines)).encode())


class Engine:
    """An engine's directory, its images, and a server at its socket."""

    def __init__(self, root: Path) -> None:
        self.root = root / "docker"
        self.root.mkdir(parents=True)
        self.images: dict[str, dict[str, t.Any]] = {}
        self.tags: dict[str, str] = {}
        self.layers: set[str] = set()
        self.driver = "overlay2"
        self.status = [["Backing Filesystem", "extfs"]]
        #: What the engine says instead of loading, after so many bytes.
        self.refuses, self.reads = "", 1 << 40
        self.loads = 0
        self.socket = str(root / "docker.sock")
        engine = self
        handler = type("EngineHandler", (_Handler,), {"engine": engine})
        self.server = _Server(self.socket, handler)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    # -- what it holds ---------------------------------------------------------------------------------------------

    def add_layer(self, below: t.Sequence[str], diff_id: str, split: bytes, files: t.Mapping[bytes, bytes]) -> None:
        chain = image_server.chain_ids([*below, diff_id])[-1]
        self.layers.add(chain)
        cache = hashlib.sha256(chain.encode()).hexdigest()
        place = self.root / "image/overlay2/layerdb/sha256" / chain[7:]
        place.mkdir(parents=True, exist_ok=True)
        (place / "cache-id").write_text(cache)
        (place / "diff").write_text(diff_id)
        (place / "size").write_text(str(sum(map(len, files.values()))))
        (place / "tar-split.json.gz").write_bytes(split)
        for name, content in files.items():
            path = os.path.join(os.fsencode(self.root), b"overlay2", cache.encode(), b"diff", name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as stream:
                stream.write(content)

    def add_image(self, tag: str, layers: t.Sequence[str], labels: t.Mapping[str, str] | None = None) -> str:
        config = json.dumps({"config": {"Labels": dict(labels or {})}, "rootfs": {"type": "layers", "diff_ids": list(layers)}}).encode()
        return self.put_config(tag, config)

    def put_config(self, tag: str, config: bytes) -> str:
        image_id = "sha256:" + hashlib.sha256(config).hexdigest()
        place = self.root / "image/overlay2/imagedb/content/sha256"
        place.mkdir(parents=True, exist_ok=True)
        (place / image_id[7:]).write_bytes(config)
        given = json.loads(config)
        layers = given["rootfs"]["diff_ids"]
        self.images[image_id] = {"Id": image_id, "RootFS": {"Layers": layers}, "Config": given.get("config", {}), "Size": 1000 * len(layers)}
        self.tags[tag] = image_id
        return image_id

    def build(self, tag: str, below: str | None, *contents: t.Mapping[str, bytes]) -> str:
        """Add an image with layers of these files on top of another one."""
        layers = list(self.images[self.tags[below]]["RootFS"]["Layers"]) if below else []
        for files in contents:
            content = layer_tar(files)
            diff_id = "sha256:" + hashlib.sha256(content).hexdigest()
            self.add_layer(layers, diff_id, split_of(content), {name.encode(): data for name, data in files.items()})
            layers.append(diff_id)
        return self.add_image(tag, layers)

    # -- containerd's store ----------------------------------------------------------------------------------------

    def use_containerd(self) -> None:
        """Keep images as engine 26.1.5 was seen to with containerd-snapshotter."""
        self.driver, self.status = "overlayfs", [["driver-type", "io.containerd.snapshotter.v1"]]

    def put_blob(self, content: bytes) -> dict[str, t.Any]:
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        place = self.root / "containerd/daemon" / image_server.BLOBS
        place.mkdir(parents=True, exist_ok=True)
        (place / digest[7:]).write_bytes(content)
        return {"digest": digest, "size": len(content)}

    def add_blobs(self, tag: str, *layers: bytes) -> str:
        """Add an image of these layers, compressed."""
        diff_ids = ["sha256:" + hashlib.sha256(layer).hexdigest() for layer in layers]
        config = self.put_blob(json.dumps({"rootfs": {"diff_ids": diff_ids}}).encode())
        each = [self.put_blob(gzip.compress(layer, mtime=0)) for layer in layers]
        manifest = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": each}
        return self.add_manifest(tag, self.put_blob(json.dumps(manifest).encode())["digest"])

    def add_manifest(self, tag: str, image_id: str) -> str:
        def blob(digest: str) -> t.Any:
            return json.loads((self.root / "containerd/daemon" / image_server.BLOBS / digest[7:]).read_bytes())

        layers = blob(blob(image_id)["config"]["digest"])["rootfs"]["diff_ids"]
        self.images[image_id] = {"Id": image_id, "RootFS": {"Layers": layers}, "Config": {}, "Size": 1000}
        self.tags[tag] = image_id
        return image_id

    def load_blobs(self, members: t.Mapping[str, bytes]) -> str:
        for name, content in members.items():
            if name.startswith("blobs/") and self.put_blob(content)["digest"][7:] != name.rpartition("/")[2]:
                return f"unexpected digest of {name}"
        for one in json.loads(members["index.json"])["manifests"]:
            given = json.loads((self.root / "containerd/daemon" / image_server.BLOBS / one["digest"][7:]).read_bytes())
            for part in (given["config"], *given["layers"]):
                if not (self.root / "containerd/daemon" / image_server.BLOBS / part["digest"][7:]).exists():
                    return f"content digest {part['digest']}: not found"
            self.add_manifest(one["annotations"]["io.containerd.image.name"].removeprefix("docker.io/"), one["digest"])
        return ""

    # -- loading ---------------------------------------------------------------------------------------------------

    def load(self, content: bytes) -> str:
        """Take what ``docker load`` takes, and return what is wrong with it."""
        self.loads += 1
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            members = {one.name: tar.extractfile(one).read() for one in tar if one.isfile()}  # type: ignore[union-attr]
        if "oci-layout" in members:
            return self.load_blobs(members)
        for one in json.loads(members["manifest.json"]):
            config = members[one["Config"]]
            layers = json.loads(config)["rootfs"]["diff_ids"]
            for number, (diff_id, name) in enumerate(zip(layers, one["Layers"])):
                if image_server.chain_ids(layers[:number + 1])[-1] in self.layers:
                    continue
                if name not in members:
                    return f"open /var/lib/docker/tmp/docker-import/{name}: no such file or directory"
                # Engine 20.10 was seen to unpack what containerd's store keeps compressed.
                layer = gzip.decompress(members[name]) if members[name].startswith(b"\x1f\x8b") else members[name]
                if "sha256:" + hashlib.sha256(layer).hexdigest() != diff_id:
                    return f"invalid diffID for layer {number}"
                with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
                    found = ((entry.name, tar.extractfile(entry)) for entry in tar if entry.isfile())
                    files = {name.encode(errors="surrogateescape"): stream.read() for name, stream in found if stream}
                self.add_layer(layers[:number], diff_id, split_of(layer), files)
            for tag in one["RepoTags"]:
                self.put_config(tag, config)
        return ""


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class _Handler(http.server.BaseHTTPRequestHandler):
    engine: Engine
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: t.Any) -> None:
        """Say nothing."""

    def address_string(self) -> str:
        return "unix"

    def _answer(self, content: t.Any, status: int = 200) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        path = path.partition("/v1.41")[2] or path
        engine = self.engine
        if path == "/version":
            self._answer({"ApiVersion": "1.41", "MinAPIVersion": "1.12"})
        elif path == "/info":
            self._answer({"DockerRootDir": str(engine.root), "Driver": engine.driver, "DriverStatus": engine.status})
        elif path == "/images/json":
            self._answer([{"Id": image_id} for image_id in engine.images])
        elif path == "/images/get":
            self._answer(b"whole " * 100)
        elif path.startswith("/images/"):
            name = path[len("/images/"):-len("/json")]
            image = engine.images.get(engine.tags.get(name, name))
            self._answer(image or {"message": f"no such image: {name}"}, 200 if image else 404)

    def do_POST(self) -> None:
        content = bytearray()
        while True:
            line = self.rfile.readline()
            if not line:
                # Cut off: an engine drops what it was sent.
                return
            size = int(line.strip(), 16)
            if not size:
                break
            part = self.rfile.read(size)
            if len(part) < size:
                return
            content += part
            self.rfile.readline()
            if len(content) > self.engine.reads:
                self._answer({"message": self.engine.refuses}, 500)
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RD)
                return
        wrong = self.engine.refuses or self.engine.load(bytes(content))
        self._answer(json.dumps({"errorDetail": {"message": wrong}, "error": wrong}).encode() + b"\r\n" if wrong else b'{"stream":"Loaded image"}\r\n')
