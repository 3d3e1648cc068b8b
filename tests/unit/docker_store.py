# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A Docker engine that keeps its images in a directory, and a program ``docker`` that saves and loads them as 20.10 and 26.1 were seen to."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
import typing as t
from pathlib import Path

MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def digest_of(text: bytes) -> str:
    return "sha256:" + hashlib.sha256(text).hexdigest()


def tar_of(files: t.Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))
    return out.getvalue()


class Store:
    """An engine's images by name, and the module's requests to an engine."""

    def __init__(self, place: Path, kind: str = "") -> None:
        self.place, self.socket_path = place, str(place / "docker.sock")
        (place / "blobs").mkdir(parents=True, exist_ok=True)
        if kind:
            self._write("kind", kind)
            self._write("images", {})
            self._write("log", [])

    def _write(self, name: str, what: t.Any) -> None:
        (self.place / f"{name}.json").write_text(json.dumps(what))

    def _read(self, name: str) -> t.Any:
        return json.loads((self.place / f"{name}.json").read_text())

    @property
    def kind(self) -> str:
        return self._read("kind")

    @property
    def tags(self) -> dict[str, str]:
        """Return the digest of the configuration that each name has."""
        return self._read("images")

    @property
    def log(self) -> list[list[str]]:
        """Return the words of each call of the program."""
        return self._read("log")

    def note(self, words: t.Sequence[str]) -> None:
        self._write("log", [*self.log, list(words)])

    def put(self, text: bytes) -> str:
        digest = digest_of(text)
        (self.place / "blobs" / digest[7:]).write_bytes(text)
        return digest

    def blob(self, digest: str) -> bytes:
        return (self.place / "blobs" / digest[7:]).read_bytes()

    def tag(self, name: str, config: str) -> None:
        self._write("images", {**{tag: digest for tag, digest in self.tags.items() if tag != name}, name: config})

    def build(self, name: str, below: str | None, *contents: t.Mapping[str, bytes], labels: t.Mapping[str, str] | None = None) -> str:
        """Add an image with layers of these files on top of another one, and return its id."""
        layers = list(json.loads(self.blob(self.tags[below]))["rootfs"]["diff_ids"]) if below else []
        layers += [self.put(tar_of(files)) for files in contents]
        config = {"architecture": "amd64", "config": {"Labels": dict(labels or {})}, "rootfs": {"type": "layers", "diff_ids": layers}}
        self.tag(name, self.put(json.dumps(config).encode()))
        return self.id_of(name)

    def id_of(self, name: str) -> str:
        config = self.tags[name]
        return config if self.kind == "classic" else digest_of(self.manifest(config))

    def manifest(self, config: str) -> bytes:
        return json.dumps({"mediaType": MANIFEST, "config": config, "layers": json.loads(self.blob(config))["rootfs"]["diff_ids"]}).encode()

    # -- the module's requests ----------------------------------------------------------------------------------------

    def get(self, path: str) -> dict[str, t.Any]:
        assert path == "/info"
        status = [["driver-type", "io.containerd.snapshotter.v1"]] if self.kind == "containerd" else []
        return {"DockerRootDir": str(self.place), "Architecture": "x86_64", "DriverStatus": status}

    def image(self, name: str) -> dict[str, t.Any] | None:
        if name not in self.tags:
            return None
        config = json.loads(self.blob(self.tags[name]))
        size = sum(len(self.blob(layer)) for layer in config["rootfs"]["diff_ids"])
        about = {"Id": self.id_of(name), "RootFS": {"Layers": config["rootfs"]["diff_ids"]}, "Config": config["config"], "Architecture": "amd64"}
        return {**about, "Size": size, "RepoDigests": []}

    # -- the program's commands ---------------------------------------------------------------------------------------

    def save(self, names: t.Sequence[str]) -> bytes:
        configs = {self.tags[name]: [tag for tag in names if self.tags[tag] == self.tags[name]] for name in names}
        members: dict[str, bytes] = {}
        listed, index = [], []
        for config, tags in configs.items():
            layers = json.loads(self.blob(config))["rootfs"]["diff_ids"]
            listed.append({"Config": f"blobs/sha256/{config[7:]}", "RepoTags": tags, "Layers": [f"blobs/sha256/{layer[7:]}" for layer in layers]})
            index += [{"digest": digest_of(self.manifest(config)), "annotations": {"io.containerd.image.name": f"docker.io/{tag}"}} for tag in tags]
            members |= {f"blobs/sha256/{digest[7:]}": self.blob(digest) for digest in (config, *layers)}
        if self.kind == "containerd":
            members |= {"oci-layout": b"{}", "index.json": json.dumps({"manifests": index}).encode()}
        else:
            # The classic store writes its images in any order.
            listed.reverse()
        return tar_of({**members, "manifest.json": json.dumps(listed, separators=(",", ":")).encode()})

    def load(self, content: bytes) -> str:
        """Load an archive as ``docker load`` does, and return what is wrong with it."""
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            members = {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}  # type: ignore[union-attr]
        for entry in json.loads(members["manifest.json"]):
            for layer, name in zip(json.loads(members[entry["Config"]])["rootfs"]["diff_ids"], entry["Layers"]):
                if self.put(members[name]) != layer:
                    return f"invalid diffID for layer {name}"
            for tag in entry["RepoTags"]:
                self.tag(tag, self.put(members[entry["Config"]]))
        return ""


def main(words: list[str]) -> int:
    host, verb, names = words[1], words[2], words[3:]
    store = Store(Path(host.removeprefix("unix://")).parent)
    store.note([verb, *names])
    if verb == "save":
        sys.stdout.buffer.write(store.save(names))
    elif verb == "load":
        wrong = store.load(sys.stdin.buffer.read())
        print(wrong or "Loaded image", file=sys.stderr if wrong else sys.stdout)
        return int(bool(wrong))
    elif verb == "tag":
        store.tag(names[1], names[0])
    else:
        store._write("images", {name: config for name, config in store.tags.items() if name != names[-1]})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
