# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A stand-in for a Docker engine that lists, exports and loads images: as 20.10 was seen to, as 25.0 and newer do, and with containerd's image store."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.client
import http.server
import io
import json
import socket
import socketserver
import tarfile
import threading
import typing as t
import urllib.parse
from pathlib import Path

Files = t.Mapping[str, bytes]


def sha256(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def chain_ids(diff_ids: t.Sequence[str]) -> list[str]:
    """Return the name under which an engine keeps each layer: a digest of it and all layers below (image specification, Layer ChainID)."""
    chains: list[str] = []
    for diff_id in diff_ids:
        chains.append(diff_id if not chains else sha256(f"{chains[-1]} {diff_id}".encode()))
    return chains


def tar_of(files: Files, mode: int = 0o644, links: t.Mapping[str, str] | None = None) -> bytes:
    """Return a tar of files in this order, and of symbolic links."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            about = tarfile.TarInfo(name)
            about.size, about.mode = len(content), mode
            tar.addfile(about, io.BytesIO(content))
        for name, target in (links or {}).items():
            about = tarfile.TarInfo(name)
            about.type, about.linkname = tarfile.SYMTYPE, target
            tar.addfile(about)
    return out.getvalue()


class Engine:
    """An engine's images, and a server at its socket."""

    def __init__(self, root: Path) -> None:
        self.root = root / "docker"
        self.root.mkdir(parents=True)
        self.images: dict[str, dict[str, t.Any]] = {}
        self.tags: dict[str, str] = {}
        #: Configurations, layers and manifests by their digests, and the layers that are unpacked.
        self.blobs: dict[str, bytes] = {}
        self.layers: set[str] = set()
        self.status = [["Backing Filesystem", "extfs"]]
        self.api = "1.41"
        #: The engine's error instead of loading, after so many bytes.
        self.refuses, self.reads = "", 1 << 40
        #: Whether it unpacks what it loads: an engine that does not was seen to report success.
        self.unpacks = True
        #: Changes an export on its way.
        self.exports: t.Callable[[bytes], bytes] = bytes
        self.loads, self.created = 0, 0
        #: Exports that were read, blobs that a push sent, and the engine's error instead of pushing.
        self.exported, self.sent = 0, t.cast("list[str]", [])
        self.pushes_not = ""
        #: Layers whose compressed form an engine with the classic store knows, since it pulled or pushed them.
        self.pulled: t.Collection[str] = ()
        #: Changes a blob on its way to a registry.
        self.pushed: t.Callable[[bytes], bytes] = bytes
        self.socket = str(root / "docker.sock")
        handler = type("EngineHandler", (_Handler,), {"engine": self})
        self.server = _Server(self.socket, handler)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    @property
    def is_containerd(self) -> bool:
        return self.status[0][0] == "driver-type"

    def use_containerd(self) -> None:
        """Keep images as engine 26.1.5 was seen to with containerd-snapshotter."""
        self.status, self.api = [["driver-type", "io.containerd.snapshotter.v1"]], "1.45"

    # -- its images ---------------------------------------------------------------------------------------------

    def put_blob(self, content: bytes) -> dict[str, t.Any]:
        self.blobs[sha256(content)] = content
        return {"digest": sha256(content), "size": len(content)}

    def build(self, tag: str, below: str | None, *contents: Files | bytes, labels: t.Mapping[str, str] | None = None) -> str:
        """Add an image with layers of these files (or tars) on top of another one."""
        base = self.images[self.tags[below]] if below else {}
        layers, packed = list(base.get("RootFS", {}).get("Layers", [])), list(base.get("packed", []))
        for files in contents:
            layer = files if isinstance(files, bytes) else tar_of(files)
            layers.append(sha256(layer))
            kind = "application/vnd.oci.image.layer.v1.tar"
            packed.append({"mediaType": kind, **self.put_blob(gzip.compress(layer, mtime=0) if self.is_containerd else layer)})
        self.layers |= set(chain_ids(layers))
        return self._name(tag, json.dumps({"config": {"Labels": dict(labels or {})}, "rootfs": {"type": "layers", "diff_ids": layers}}).encode(), packed)

    def _name(self, tag: str, config: bytes, packed: list[dict[str, t.Any]]) -> str:
        about = {"mediaType": "application/vnd.oci.image.config.v1+json", **self.put_blob(config)}
        image_id = about["digest"]
        if self.is_containerd:
            kind = "application/vnd.oci.image.manifest.v1+json"
            image_id = self.put_blob(json.dumps({"mediaType": kind, "config": about, "layers": packed}).encode())["digest"]
        return self._tag(tag, image_id, config, packed)

    def _tag(self, tag: str, image_id: str, config: bytes, packed: list[dict[str, t.Any]]) -> str:
        given = json.loads(config)
        layers = given["rootfs"]["diff_ids"]
        about = {"Id": image_id, "RootFS": {"Layers": layers}, "Config": given.get("config", {}), "Size": 1000 * len(layers), "packed": packed}
        self.images[image_id] = about
        self.tags[tag] = image_id
        return image_id

    def forget(self, *tags: str) -> None:
        """Remove images by their names, with the layers and blobs that only they needed."""
        for tag in tags:
            self.images.pop(self.tags.pop(tag), None)
        self.layers = {chain for image in self.images.values() for chain in chain_ids(image["RootFS"]["Layers"])}
        kept = [blob["digest"] for image in self.images.values() for blob in image["packed"]]
        self.blobs = {digest: content for digest, content in self.blobs.items() if digest in kept or content.startswith(b"{")}

    # -- exporting -------------------------------------------------------------------------------------------------

    def export(self, ids: t.Sequence[str]) -> bytes:
        """Return the archive of ``docker save``: members in the order of their names."""
        images = [self.images[image_id] for image_id in ids]
        files, links = self._named(images) if self.is_containerd or self.api >= "1.44" else self._older(images)
        every = dict(sorted({**files, **{name: b"" for name in links}}.items()))
        return tar_of({name: content for name, content in every.items() if name not in links}, links=links)

    def _named(self, images: t.Sequence[dict[str, t.Any]]) -> tuple[dict[str, bytes], dict[str, str]]:
        digests = {blob["digest"] for image in images for blob in image["packed"]} | {image["Id"] for image in images}
        for image in images if self.is_containerd else []:
            digests |= {blob["digest"] for blob in self._below(image["Id"])}
        files = {f"blobs/sha256/{digest[7:]}": self.blobs[digest] for digest in digests if digest in self.blobs}
        return {**files, "index.json": b"{}", "manifest.json": b"[]", "oci-layout": b"{}"}, {}

    def _below(self, digest: str) -> t.Iterator[dict[str, t.Any]]:
        given = json.loads(self.blobs.get(digest, b"{}"))
        for blob in (*given.get("manifests", []), *([given["config"]] if "layers" in given else []), *given.get("layers", [])):
            yield blob
            if "manifest" in blob.get("mediaType", ""):
                yield from self._below(blob["digest"])

    def _older(self, images: t.Sequence[dict[str, t.Any]]) -> tuple[dict[str, bytes], dict[str, str]]:
        files: dict[str, bytes] = {}
        links, places, about = {}, {}, []
        for image in images:
            below = {}
            for blob, chain in zip(image["packed"], chain_ids(image["RootFS"]["Layers"])):
                # The layer at the top of an image has another name than the same one within another image.
                place = hashlib.sha256(f"{chain}{image['Id'] if blob == image['packed'][-1] else ''}".encode()).hexdigest()
                files |= {f"{place}/VERSION": b"1.0", f"{place}/json": json.dumps({"id": place, **below}).encode()}
                if places.get(blob["digest"], place) != place:
                    links[f"{place}/layer.tar"] = f"../{places[blob['digest']]}/layer.tar"
                else:
                    files[f"{place}/layer.tar"] = self.blobs[blob["digest"]]
                    places[blob["digest"]] = place
                below = {"parent": place}
            files[f"{image['Id'][7:]}.json"] = self.blobs[image["Id"]]
            about.append({"Config": f"{image['Id'][7:]}.json"})
        return {**files, "manifest.json": json.dumps(about).encode(), "repositories": b"{}"}, links

    # -- pushing ---------------------------------------------------------------------------------------------------

    def push(self, name: str, tag: str, say: t.Callable[[t.Any], None]) -> str:
        """Push as engine 26.1.5 was seen to: ask for each blob, send missing ones, and the tag's manifest at the end. Return what is wrong."""
        if self.pushes_not:
            return self.pushes_not
        place, _slash, repository = name.partition("/")
        image_id = self.tags[f"{name}:{tag}"]
        below = list(self._below(image_id))
        lacks = [blob["digest"] for blob in below if blob["digest"] not in self.blobs]
        if lacks:
            return f"missing content: content digest {lacks[0]}: not found"
        registry = http.client.HTTPConnection(place, timeout=5)
        if not self.is_containerd:
            with contextlib.closing(registry):
                return self._push_classic(registry, repository, tag, self.images[image_id], say)

        def ask(method: str, path: str, body: bytes | None = None) -> http.client.HTTPResponse:
            sends = b"" if body is None else self.pushed(body)
            registry.request(method, path if path.startswith("/v2/") else f"/v2/{repository}/{path}", sends, {"Content-Length": str(len(body or b""))})
            if len(sends) < len(body or b""):
                registry.sock.shutdown(socket.SHUT_WR)
            answer = registry.getresponse()
            answer.read()
            return answer

        try:
            for blob in sorted(below, key=lambda blob: ".manifest." in blob["mediaType"]):
                path = f"manifests/{tag}"
                if ask("HEAD", path if "manifest" in blob["mediaType"] else f"blobs/{blob['digest']}").status == 200:
                    continue
                self.sent.append(blob["digest"])
                if "manifest" not in blob["mediaType"]:
                    path = f"{ask('POST', 'blobs/uploads/').headers['Location']}?{urllib.parse.urlencode({'digest': blob['digest']})}"
                answer = ask("PUT", path, self.blobs[blob["digest"]])
                if answer.status != 201 or answer.headers["Docker-Content-Digest"] != blob["digest"]:
                    return f"unexpected status from PUT request to {path}: {answer.status}"
            ask("HEAD", f"manifests/{tag}")
            answer = ask("PUT", f"manifests/{tag}", self.blobs[image_id])
            return f"unexpected status from PUT request to manifests/{tag}: {answer.status}" if answer.status != 201 else ""
        except (OSError, http.client.HTTPException) as error:
            return repr(error)
        finally:
            registry.close()

    def _push_classic(self, registry: http.client.HTTPConnection, repository: str, tag: str, image: dict[str, t.Any], say: t.Callable[[t.Any], None]) -> str:
        """Push as engine 20.10.24 was seen to: ask for layers whose compressed form it knows, compress and send the others, then the configuration."""

        def ask(method: str, path: str, body: t.Any = None, **headers: str) -> http.client.HTTPResponse:
            registry.request(method, path if path.startswith("/v2/") else f"/v2/{repository}/{path}", body, headers)
            answer = registry.getresponse()
            answer.read()
            return answer

        def send(content: bytes, packed: bytes) -> str:
            place = ask("POST", "blobs/uploads/", **{"Content-Length": "0"}).headers["Location"]
            answer = ask("PATCH", place, iter([packed[:20], packed[20:]]))
            if answer.status != 202 or answer.headers["Range"] != f"0-{len(packed) - 1}":
                return f"unexpected status from PATCH request to {place}: {answer.status}"
            self.sent.append(sha256(content))
            path = f"{answer.headers['Location']}?{urllib.parse.urlencode({'digest': sha256(packed)})}"
            if ask("PUT", path, **{"Content-Length": "0"}).status != 201 or ask("HEAD", f"blobs/{sha256(packed)}").status != 200:
                return f"unexpected status from PUT request to {path}"
            return ""

        try:
            if ask("GET", "/v2/").status != 200:
                return "no registry"
            for layer in image["RootFS"]["Layers"]:
                packed = gzip.compress(self.blobs[layer], mtime=0)
                if layer in self.pulled and ask("HEAD", f"blobs/{sha256(packed)}").status == 200:
                    continue
                say({"status": "Pushing", "progressDetail": {"current": 512, "total": len(self.blobs[layer])}, "id": layer[7:19]})
                if wrong := send(self.blobs[layer], self.pushed(packed)):
                    return wrong
            config = self.blobs[image["Id"]]
            if ask("HEAD", f"blobs/{image['Id']}").status != 200 and (wrong := send(config, config)):
                return wrong
            forms = [{"digest": sha256(gzip.compress(self.blobs[layer], mtime=0))} for layer in image["RootFS"]["Layers"]]
            answer = ask("PUT", f"manifests/{tag}", json.dumps({"layers": forms}).encode())
            return f"unexpected status from PUT request to manifests/{tag}: {answer.status}" if answer.status != 201 else ""
        except (OSError, http.client.HTTPException) as error:
            return repr(error)

    # -- loading ---------------------------------------------------------------------------------------------------

    def load(self, content: bytes) -> str:
        """Load an archive as ``docker load`` does, and return what is wrong with it."""
        self.loads += 1
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            members = {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}  # type: ignore[union-attr]
        return self._load_blobs(members) if self.is_containerd else self._load_layers(members)

    def _load_layers(self, members: Files) -> str:
        for entry in json.loads(members["manifest.json"]):
            config = members[entry["Config"]]
            layers = json.loads(config)["rootfs"]["diff_ids"]
            for number, (diff_id, name) in enumerate(zip(layers, entry["Layers"])):
                if chain_ids(layers[:number + 1])[-1] in self.layers:
                    continue
                if name not in members:
                    return f"open /var/lib/docker/tmp/docker-import/{name}: no such file or directory"
                # Engine 20.10 was seen to unpack what containerd's store keeps compressed.
                layer = gzip.decompress(members[name]) if members[name].startswith(b"\x1f\x8b") else members[name]
                if sha256(layer) != diff_id:
                    return f"invalid diffID for layer {number}"
                self.put_blob(layer)
                self.layers |= {chain_ids(layers[:number + 1])[-1]} if self.unpacks else set()
            for tag in entry["RepoTags"]:
                self._name(tag, config, [{"digest": digest} for digest in layers])
        return ""

    def _load_blobs(self, members: Files) -> str:
        for name, content in members.items():
            if name.startswith("blobs/") and self.put_blob(content)["digest"][7:] != name.rpartition("/")[2]:
                return f"unexpected digest of {name}"
        for manifest in json.loads(members["index.json"])["manifests"]:
            below = list(self._below(manifest["digest"]))
            lost = [part["digest"] for part in below if part["digest"] not in self.blobs and "manifest" not in part["mediaType"]]
            if lost or manifest["digest"] not in self.blobs:
                return f"content digest {lost[:1]}: not found"
            config = next(self.blobs[part["digest"]] for part in below if "config" in part["mediaType"])
            self.layers |= set(chain_ids(json.loads(config)["rootfs"]["diff_ids"])) if self.unpacks else set()
            tag = manifest["annotations"]["io.containerd.image.name"].removeprefix("docker.io/")
            self._tag(tag, manifest["digest"], config, [part for part in below if "layer" in part["mediaType"]])
        return ""


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class _Handler(http.server.BaseHTTPRequestHandler):
    engine: Engine
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: t.Any) -> None:
        """Print nothing."""

    def address_string(self) -> str:
        return "unix"

    def _answer(self, content: t.Any, status: int = 200) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _asked(self) -> tuple[str, dict[str, list[str]]]:
        parts = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(parts.path)
        return (path.partition("/v1.41")[2] or path), urllib.parse.parse_qs(parts.query)

    def do_GET(self) -> None:
        path, query = self._asked()
        engine = self.engine
        if path == "/version":
            self._answer({"ApiVersion": engine.api, "MinAPIVersion": "1.12"})
        elif path == "/info":
            self._answer({"DockerRootDir": str(engine.root), "DriverStatus": engine.status})
        elif path == "/images/json":
            self._answer([{"Id": image_id} for image_id in engine.images])
        elif path == "/images/get":
            engine.exported += 1
            known = all(image_id in engine.images for image_id in query["names"])
            self._answer(engine.exports(engine.export(query["names"])) if known else {"message": "no such image"}, 200 if known else 404)
        elif path.startswith("/images/"):
            name = path[len("/images/"):-len("/json")]
            image = engine.images.get(engine.tags.get(name, name))
            tags = {"RepoTags": [tag for tag, image_id in engine.tags.items() if image and image_id == image["Id"]]}
            self._answer({**image, **tags} if image else {"message": f"no such image: {name}"}, 200 if image else 404)

    def do_DELETE(self) -> None:
        path = self._asked()[0]
        if path.startswith("/images/"):
            self.engine.tags.pop(path[len("/images/"):])
        self._answer({})

    def do_POST(self) -> None:
        path, query = self._asked()
        if path == "/containers/create":
            self._create()
            return
        if path.endswith("/tag"):
            self.engine.tags[f"{query['repo'][0]}:{query['tag'][0]}"] = path[len("/images/"):-len("/tag")]
            self._answer({}, 201)
            return
        if path.endswith("/push"):
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._say({"status": "Preparing"})
            if wrong := self.engine.push(path[len("/images/"):-len("/push")], query["tag"][0], self._say):
                self._say({"error": wrong})
            self.wfile.write(b"0\r\n\r\n")
            return
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

    def _say(self, line: t.Any) -> None:
        content = json.dumps(line).encode() + b"\r\n"
        self.wfile.write(b"%x\r\n%b\r\n" % (len(content), content))

    def _create(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        layers = self.engine.images[body["Image"]]["RootFS"]["Layers"]
        self.engine.created += 1
        if set(chain_ids(layers)) <= self.engine.layers:
            self._answer({"Id": "c0ffee"}, 201)
        else:
            self._answer({"message": "failed to unpack: no space left on device"}, 500)
