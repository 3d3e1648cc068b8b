# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An image arrives whole or not at all, only what is missing travels, and no other node gets any of it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import threading
import time
import types
import typing as t
from pathlib import Path

import pytest
from engine_tree import Engine, sha256, tar_of

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._files import copy_job, files
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_server, images
from ansible_collections.gb10.cluster.plugins.module_utils._model import block_client, blocks
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import transient
from ansible_collections.gb10.cluster.plugins.modules import image_copy

NODE, BASE = "gb10/engine:ray", "r/vllm:1"
LARGE = {"opt/engine": bytes(range(256)) * 12_000}
RAY = {"opt/ray": b"ray" * 1000}
#: Engines of each kind: with the classic store before and from 25.0 on, and with containerd's.
KINDS = ["1.41", "1.44", "containerd"]


class Pair:
    """Two engines on this machine: ``one`` has the image, and its image server runs in this process instead of a unit."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, kind: str = "1.41") -> None:
        self.path = path
        self.one, self.two = Engine(path / "one"), Engine(path / "two")
        for engine in (self.one, self.two):
            engine.use_containerd() if kind == "containerd" else setattr(engine, "api", kind)
        self.base_id = self.one.build(BASE, None, LARGE)
        self.image_id = self.one.build(NODE, BASE, RAY, {"etc/last": b"last"})
        self.servers: list[blocks.Server] = []
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        monkeypatch.setattr(transient, "RUN_ROOT", str(path / "run"))
        monkeypatch.setattr(transient, "is_active", lambda _unit: bool(self.servers))
        monkeypatch.setattr(transient, "run_tool", self.systemd)
        monkeypatch.setattr(transient.shutil, "which", lambda name, **_more: f"/usr/bin/{name}")
        monkeypatch.setattr(block_client, "BEGIN_SECONDS", 0.1)
        self.commands: list[list[str]] = []

    def systemd(self, argv: list[str], _seconds: float) -> types.SimpleNamespace:
        if argv[0].endswith("systemd-run"):
            self.commands.append(argv)
            order = json.loads(Path(argv[-1]).read_text(encoding="utf-8"))
            self.listen(image_server.ImageServer(order, Path(order["secret"]).read_text(encoding="ascii").strip()))
        elif "stop" in argv:
            self.end()
        return types.SimpleNamespace(rc=0, raw="", stdout="")

    def listen(self, server: blocks.Server) -> None:
        self.servers.append(server)
        threading.Thread(target=server.run, daemon=True).start()

    def end(self) -> None:
        for server in self.servers:
            server.end()
        while self.servers:
            server = self.servers.pop()
            while server._listener.fileno() >= 0:
                time.sleep(0.01)

    def call(self, engine: Engine, check_mode: bool = False, **params: t.Any) -> dict[str, t.Any]:
        given = {
            "image": None, "base_image": None, "cluster_name": "gb10", "address": "127.0.0.1", "port": self.port, "clients": ["127.0.0.1"],
            "source": "127.0.0.1", "secret": None, "offer": None, "timeout": 20, "disk_floor_gib": 0, "required": True,
            "state_dir": str(self.path / "state"), "lock_id": "", "docker_socket": engine.socket, "docker_timeout": 5, **params,
        }  # fmt: skip
        return image_copy.work(types.SimpleNamespace(params=given, check_mode=check_mode))

    def serve(self, **params: t.Any) -> dict[str, t.Any]:
        return self.call(self.one, state="served", **{"image": NODE, "base_image": BASE, **params})

    def copy(self, served: dict[str, t.Any], **params: t.Any) -> dict[str, t.Any]:
        secret = Path(served["secret_file"]).read_text(encoding="ascii") if served["secret_file"] else None
        return self.call(self.two, state="copied", **{"offer": served["offer"], "secret": secret, **params})

    def layers(self, count: int) -> None:
        """Give the second engine the first layers of the image."""
        self.two.build(BASE, None, LARGE)
        if count > 1:
            self.two.build("some:1", BASE, RAY)


@pytest.fixture
def kind() -> str:
    return "1.41"


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> t.Iterator[Pair]:
    made = Pair(tmp_path, monkeypatch, kind)
    yield made
    made.end()
    made.one.close()
    made.two.close()


@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_without_anything_gets_all_layers_and_the_base(pair: Pair, kind: str) -> None:
    served = pair.serve()
    result = pair.copy(served)
    assert result["changed"] and result["layers_sent"] == 3 and result["how"] == ("blobs" if kind == "containerd" else "layers")
    assert pair.two.tags == {BASE: pair.base_id, NODE: pair.image_id} and result["image_id"] == pair.image_id
    assert all(pair.two.blobs[digest] == content for digest, content in pair.one.blobs.items()) and pair.two.created == 1
    again = pair.copy(served)
    assert not again["changed"] and again["bytes"] == 0 and pair.two.loads == 1
    assert os.listdir(pair.path / "state") == ["image-copy.lock"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_with_the_base_gets_the_thin_layers_alone(pair: Pair) -> None:
    pair.layers(1)
    result = pair.copy(pair.serve())
    assert result["layers_sent"] == 2 and result["bytes"] < 40_000
    assert pair.two.tags[NODE] == pair.image_id


@pytest.mark.parametrize("kind", ["containerd"])
def test_an_engine_that_pushes_reads_the_wanted_blobs_alone(pair: Pair) -> None:
    pair.layers(1)
    left = f"127.0.0.1:1/gb10-copy-{'0' * 32}:copy"
    pair.one.tags[left] = pair.image_id
    served = pair.serve()
    assert len(pair.one.sent) == 2 and left not in pair.one.tags and "push" not in served["msg"]
    pair.one.sent.clear()
    assert pair.copy(served)["layers_sent"] == 2 and pair.one.exported == 0
    assert sorted(map(len, (pair.one.blobs[digest] for digest in pair.one.sent)))[-1] < 10_000 and len(pair.one.sent) == 3
    assert set(pair.one.tags) == {BASE, NODE}


@pytest.mark.parametrize("kind", ["containerd"])
def test_an_engine_that_does_not_push_exports(pair: Pair, capfd: pytest.CaptureFixture[str]) -> None:
    pair.layers(1)
    served = pair.serve()
    pair.one.pushes_not = "denied: by a policy"
    assert pair.copy(served)["layers_sent"] == 2 and pair.one.exported == 1
    assert "4 blob(s) were not in the push of " in capfd.readouterr().err
    again = pair.serve()
    assert "; the engine does not push all of it, and exports that: " in again["msg"] and "denied: by a policy" in again["msg"]
    assert again["offer"] == served["offer"] and set(pair.one.tags) == {BASE, NODE}


@pytest.mark.parametrize("kind", ["containerd"])
def test_a_base_of_which_not_all_platforms_are_here_does_not_keep_the_image_from_being_pushed(pair: Pair) -> None:
    kind = "application/vnd.oci.image.manifest.v1+json"
    entries = [{"mediaType": kind, "digest": digest} for digest in ("sha256:" + "0" * 64, pair.base_id)]
    index = pair.one.put_blob(json.dumps({"mediaType": "application/vnd.oci.image.index.v1+json", "manifests": entries}).encode())["digest"]
    for engine in (pair.one, pair.two):
        engine.blobs[index] = pair.one.blobs[index]
        engine.images[index] = {**pair.one.images[pair.base_id], "Id": index}
        engine.tags[BASE] = index
    pair.two.blobs |= pair.one.blobs
    served = pair.serve()
    assert "missing content" in served["msg"] and pair.one.exported == 1
    pair.one.exported = 0
    assert pair.copy(served)["layers_sent"] == 2 and pair.one.exported == 0 and pair.two.tags[NODE] == pair.image_id
    pair.two.forget(NODE, BASE)
    assert pair.copy(served)["layers_sent"] == 3 and pair.one.exported == 1 and pair.two.tags[BASE] == index


@pytest.mark.parametrize("kind", ["containerd"])
def test_a_push_that_breaks_in_a_blob_breaks_the_copy(pair: Pair) -> None:
    served = pair.serve()
    large = max(pair.one.blobs.values(), key=len)
    pair.one.push, pushed = (lambda *_given: ""), pair.one.push  # type: ignore[method-assign]
    assert pair.copy(served)["changed"] and pair.one.exported == 1
    pair.one.push = pushed  # type: ignore[method-assign]
    pair.two.forget(NODE, BASE)
    pair.one.pushed = lambda content: content[:-1] if content == large else content
    with pytest.raises(ClusterError, match="cannot export the image: the engine's push: .*in the middle of a blob"):
        pair.copy(served)
    assert not pair.two.tags and pair.one.exported == 1


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_that_has_lost_its_name_alone_gets_it_back(pair: Pair) -> None:
    pair.copy(pair.serve())
    del pair.two.tags[NODE]
    result = pair.copy(pair.serve())
    assert result["changed"] and result["layers_sent"] == 0 and pair.two.tags[NODE] == pair.image_id


def test_a_base_that_is_named_by_its_digest_does_not_travel_where_it_is(pair: Pair) -> None:
    digest = "r/vllm@sha256:cd"
    for engine in (pair.one, pair.two):
        engine.use_containerd()
    pair.one.tags[digest] = pair.two.tags[digest] = pair.one.build("b:1", None, LARGE)
    pair.two.build("b:1", None, LARGE)
    pair.one.build(NODE, "b:1", RAY)
    result = pair.copy(pair.serve(base_image=digest))
    assert result["layers_sent"] == 1 and set(pair.two.tags) == {digest, "b:1", NODE}


@pytest.mark.parametrize(("count", "sent"), [(1, 2), (2, 1)])
def test_check_mode_says_what_would_come(pair: Pair, count: int, sent: int) -> None:
    pair.layers(count)
    served = pair.serve(check_mode=True)
    assert served["secret_file"] == "" and not pair.servers and served["changed"]
    result = pair.copy(served, check_mode=True, source=None)
    assert result["changed"] and result["layers_sent"] == sent and "would be copied" in result["msg"] and NODE not in pair.two.tags


def test_the_unit_ends_by_itself_and_its_secret_is_nowhere_else(pair: Pair, capfd: pytest.CaptureFixture[str]) -> None:
    served = pair.serve(timeout=33)
    (argv,) = pair.commands
    secret = Path(served["secret_file"]).read_text(encoding="ascii").strip()
    assert len(secret) == 48 and secret not in " ".join(argv) and "RuntimeMaxSec=33" in argv and "--unit" in argv
    assert secret not in json.dumps({**served, "secret_file": ""}) and os.stat(served["secret_file"]).st_mode & 0o777 == 0o600
    pair.copy(served)
    printed = capfd.readouterr().err
    assert "127.0.0.1 asks for 5 blob(s)" in printed and secret not in printed
    place = os.path.dirname(served["secret_file"])
    looked = pair.call(pair.one, state="stopped", check_mode=True)
    assert looked["running"] == ["gb10-image-copy-gb10.service", place] and os.path.isdir(place)
    assert pair.call(pair.one, state="stopped")["changed"] and not os.path.exists(place) and not pair.servers
    assert not pair.call(pair.one, state="stopped")["changed"]


@pytest.mark.parametrize("kind", ["containerd"])
def test_a_base_that_is_compressed_in_another_way_travels(pair: Pair) -> None:
    """Its layers are the same, its blobs are not: without those of the source, the target could not export the image."""
    pair.two.use_containerd()
    pair.two.build("pulled:1", None, LARGE)
    pair.two.blobs = {digest: content for digest, content in pair.two.blobs.items() if not content.startswith(b"\x1f\x8b")}
    pair.two.images = {"sha256:" + "0" * 64: {**image, "Id": "sha256:" + "0" * 64} for image in pair.two.images.values()}
    assert pair.copy(pair.serve())["layers_sent"] == 3


@pytest.mark.parametrize("kind", ["containerd"])
def test_of_an_image_for_many_platforms_comes_what_is_here(pair: Pair) -> None:
    words = {"mediaType": "application/vnd.oci.image.manifest.v1+json", **pair.one.put_blob(b'{"layers": [], "config": {"digest": "sha256:0"}}')}
    other = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": "sha256:" + "0" * 64}
    own = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": pair.image_id}
    index = pair.one.put_blob(json.dumps({"mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [other, own, words]}).encode())["digest"]
    pair.one.images[index] = {**pair.one.images[pair.image_id], "Id": index}
    pair.one.tags[NODE] = index
    offer = pair.serve()["offer"]
    about = [digest for digest, _size in offer["images"][-1]["about"]]
    assert offer["images"][-1]["kind"].endswith("index.v1+json") and {index, pair.image_id, words["digest"]} < set(about) and other["digest"] not in about
    assert len(offer["images"][-1]["blobs"]) == 3


@pytest.mark.parametrize("kind", ["containerd"])
def test_a_manifest_of_other_layers_is_not_offered(pair: Pair) -> None:
    pair.one.images[pair.image_id]["RootFS"] = {"Layers": ["sha256:" + "1" * 64]}
    with pytest.raises(ClusterError, match="names other layers than the engine"):
        pair.serve(base_image="")


def test_engines_that_keep_images_in_two_ways_have_no_id_in_common(pair: Pair) -> None:
    served = pair.serve()
    pair.two.use_containerd()
    with pytest.raises(ClusterError, match="has the containerd image store, that of the source the classic one"):
        pair.copy(served)
    assert pair.copy(served, required=False)["reason"] == "other store"


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("vllm", "docker.io/library/vllm:latest"),
        ("gb10/engine:ray", "docker.io/gb10/engine:ray"),
        ("nvcr.io/nvidia/vllm:26.05-py3", "nvcr.io/nvidia/vllm:26.05-py3"),
        ("localhost:5000/a", "localhost:5000/a:latest"),
    ],
)
def test_names_are_those_of_containerd(name: str, full: str) -> None:
    assert images.full_name(name) == full


# -- who does not get it ---------------------------------------------------------------------------------------------


def test_a_wrong_secret_gets_nothing(pair: Pair) -> None:
    served = pair.serve()
    with pytest.raises(ClusterError, match="do not have the same one-time secret: it refused the secret") as caught:
        pair.copy(served, secret="0" * 48)
    assert caught.value.reason == "refused" and pair.two.loads == 0 and not pair.two.tags


def test_another_address_is_not_even_listened_to(pair: Pair) -> None:
    served = pair.serve(clients=["127.0.0.7"])
    with pytest.raises(ClusterError, match="expects another address than 127.0.0.1 for this node") as caught:
        pair.copy(served)
    assert caught.value.reason == "refused" and "gb10_fabric_address" in caught.value.remedy
    with pytest.raises(ClusterError, match="not an IP address"):
        pair.serve(clients=["spark-2"])


def test_nothing_but_the_offer_is_given(pair: Pair) -> None:
    pair.one.build("secret:1", BASE, {"etc/key": b"k"})
    served = pair.serve()
    served["offer"]["layers"].append(pair.one.images[pair.one.tags["secret:1"]]["RootFS"]["Layers"][-1])
    with pytest.raises(ClusterError, match="cannot export the image: it was asked for blobs that it did not offer"):
        pair.copy(served)


# -- who stands in for the source ------------------------------------------------------------------------------------


class Stranger:
    """A stranger who took the source's address and port, and answers as the source does: with the right secret or without."""

    def __init__(self, pair: Pair, frames: t.Sequence[tuple[int, bytes]], proves: bool) -> None:
        self.heard, self._frames, self._proves = b"", frames, proves
        self.secret = Path(pair.path / "run/gb10-image-copy/gb10/secret").read_text(encoding="ascii").strip()
        pair.end()
        self.listener = blocks.listen("127.0.0.1", pair.port)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        connection, _address = self.listener.accept()
        with connection, self.listener, contextlib.suppress(blocks.Lost, OSError):
            connection.sendall(blocks.HELLO + bytes(blocks.NONCE))
            self.heard = blocks.receive(connection, blocks.NONCE + 32)
            proof = blocks.prove(self.secret if self._proves else "", b"server", bytes(blocks.NONCE) + self.heard[:blocks.NONCE])
            connection.sendall(proof + bytes([blocks.SHA256]))
            request = blocks.receive(connection, 1 + image_server.REQUEST.size)
            self.heard += request + blocks.receive(connection, image_server.REQUEST.unpack(request[1:])[0])
            for kind, content in self._frames:
                connection.sendall(image_server.FRAME.pack(kind, len(content)) + content)


def blob(content: bytes, digest: str = "", size: int = -1) -> list[tuple[int, bytes]]:
    about = image_server.ABOUT.pack(bytes.fromhex((digest or sha256(content))[7:]), len(content) if size < 0 else size)
    return [(image_server.BLOB, about), *([(image_server.DATA, content)] if content else [])]


def test_who_does_not_know_the_secret_gets_it_not_and_gives_nothing(pair: Pair) -> None:
    served = pair.serve()
    other = tar_of({"bin/sh": b"#!"})
    stranger = Stranger(pair, [*blob(other), (image_server.END, b"")], proves=False)
    served["secret_file"] = ""
    with pytest.raises(ClusterError, match="does not know the secret itself"):
        pair.copy(served, secret=stranger.secret)
    assert len(stranger.heard) == blocks.NONCE + 32 and stranger.secret.encode() not in stranger.heard
    assert pair.two.loads == 0 and pair.two.tags == {}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        # Another image, with everything that belongs to it, under a name that the target has.
        (lambda true: [*true, *blob(tar_of({"bin/sh": b"#!"})), (image_server.END, b"")], "besides"),
        (lambda true: [*true, *true[:2], (image_server.END, b"")], "twice"),
        (lambda true: [*true[:-1], (image_server.DATA, true[-1][1][::-1]), (image_server.END, b"")], "has another content"),
        (lambda true: [*true[:-1], (image_server.DATA, true[-1][1][1:]), (image_server.END, b"")], "ends early"),
        (lambda true: [*true, (image_server.DATA, b"x"), (image_server.END, b"")], "other bytes than were announced"),
        (lambda true: [(image_server.DATA, b"x")], "other bytes than were announced"),
        (lambda true: [*true[2:], (image_server.END, b"")], "ends early|lacks"),
        (lambda true: [(image_server.BLOB, true[0][1][:32] + b"\xff" * 8)], "more than the"),
        (lambda true: [(77, b"x")], "other bytes than were announced"),
        (lambda true: [(image_server.DATA, b"x" * (image_server.CHUNK + 1))], "a piece of"),
        (lambda true: true, "was cut"),
    ],
)
def test_what_was_not_offered_reaches_no_end_of_an_archive(pair: Pair, change: t.Callable[[list[t.Any]], list[t.Any]], words: str) -> None:
    """The proof of the safety review of 2026-11-24: a stream of other images was loaded as it came, under the names of images that are here."""
    pair.layers(1)
    here = dict(pair.two.tags)
    served = pair.serve()
    wanted = [pair.image_id, *served["offer"]["layers"][1:]]
    true = [frame for digest in wanted for frame in blob(pair.one.blobs[digest])]
    stranger = Stranger(pair, change(true), proves=True)
    with pytest.raises(ClusterError, match=words):
        pair.copy({**served, "secret_file": ""}, secret=stranger.secret)
    assert pair.two.tags == here and pair.two.loads == 0


# -- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_source_that_cannot_be_reached_is_a_reason_to_build(pair: Pair) -> None:
    served = pair.serve()
    pair.end()
    with pytest.raises(ClusterError, match="cannot be reached") as caught:
        pair.copy(served)
    assert "gb10_copy_port" in caught.value.remedy
    result = pair.copy(served, required=False)
    assert (result["able"], result["changed"], result["verdict"]) == (False, False, "warn")


@pytest.mark.parametrize(
    ("change", "words"),
    [({"address": "192.0.2.1"}, "does not have the fabric address"), ({"image": "r/vllm@sha256:cd"}, "named by its digest")],
)
def test_a_node_that_cannot_give_says_why(pair: Pair, change: dict[str, t.Any], words: str) -> None:
    with pytest.raises(ClusterError, match=words):
        pair.serve(**change)
    assert pair.serve(required=False, **change)["able"] is False


def test_a_port_that_is_taken_is_named(pair: Pair) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", pair.port))
        taken.listen(1)
        with pytest.raises(ClusterError, match=f"port {pair.port} of 127.0.0.1 is in use") as caught:
            pair.serve()
    assert "gb10_copy_port" in caught.value.remedy and not pair.commands


def test_an_image_that_is_not_there_cannot_be_given(pair: Pair) -> None:
    with pytest.raises(ClusterError, match="no image gb10/other:1 is here"):
        pair.serve(image="gb10/other:1", required=False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", [0.1, 0.5])
def test_an_export_that_is_cut_leaves_nothing(pair: Pair, part: float) -> None:
    served = pair.serve()
    pair.one.pushes_not = "denied"
    pair.one.exports = lambda content: content[:int(part * len(content))]
    with pytest.raises(ClusterError, match="cannot export the image: .*; nothing of the image is kept"):
        pair.copy(served)
    assert not pair.two.tags and not pair.two.layers and pair.two.loads == 0
    pair.one.exports = bytes
    assert pair.copy(served)["changed"]


def test_a_source_that_is_gone_midway_is_a_cut(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    served = pair.serve()

    def dies(*_given: t.Any) -> t.Iterator[t.Any]:
        yield pair.image_id, 100_000, iter([b"x" * 4096])
        threading.Thread(target=pair.end, daemon=True).start()
        threading.Event().wait(5)

    monkeypatch.setattr(image_server, "blobs", dies)
    with pytest.raises(ClusterError, match="was cut: ") as caught:
        pair.copy(served)
    assert caught.value.reason == "cut" and not pair.two.tags


def test_an_engine_that_prepares_long_is_waited_for(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_server, "BEAT_SECONDS", 0.05)
    patient = blocks.be_patient
    monkeypatch.setattr(blocks, "be_patient", lambda connection: patient(connection, 2))
    served = pair.serve()
    pair.one.exports = lambda content: threading.Event().wait(3) or content
    assert pair.copy(served)["changed"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_that_was_changed_on_the_source_is_not_taken(pair: Pair, kind: str) -> None:
    served = pair.serve()
    digest = served["offer"]["images"][-1]["blobs"][1][0] if kind == "containerd" else served["offer"]["layers"][1]
    pair.one.blobs[digest] = pair.one.blobs[digest].replace(b"ray", b"RAY") if kind != "containerd" else pair.one.blobs[digest][:-1] + b"?"
    with pytest.raises(ClusterError, match="has another content|lacks sha256:") as caught:
        pair.copy(served)
    assert caught.value.reason == "wrong digest" and not pair.two.tags


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_that_was_not_unpacked_loses_its_name(pair: Pair) -> None:
    pair.two.unpacks = False
    served = pair.serve()
    with pytest.raises(ClusterError, match="cannot create a container from it: .*failed to unpack: no space left"):
        pair.copy(served)
    assert pair.two.loads == 1 and NODE not in pair.two.tags


def test_what_the_engine_refuses_is_said_in_its_words(pair: Pair) -> None:
    pair.two.refuses = "invalid diffID for layer 1"
    with pytest.raises(ClusterError, match="refused the image: invalid diffID") as caught:
        pair.copy(pair.serve())
    assert caught.value.reason == "wrong digest"


def test_a_disk_that_fills_midway_is_named(pair: Pair) -> None:
    pair.two.refuses, pair.two.reads = "write /var/lib/docker/tmp/x: no space left on device", 100_000
    with pytest.raises(ClusterError, match="disk of the Docker engine is full") as caught:
        pair.copy(pair.serve())
    assert caught.value.reason == "disk full"


def test_the_disk_is_asked_before_the_first_byte(pair: Pair) -> None:
    with pytest.raises(ClusterError, match="GiB free; expected .* to load the image and 9999999 GiB that stay free") as caught:
        pair.copy(pair.serve(), disk_floor_gib=9_999_999)
    assert caught.value.reason == "disk full" and pair.two.loads == 0


def test_the_room_of_the_export_is_asked_for_first(pair: Pair) -> None:
    with pytest.raises(ClusterError, match="GiB for the engine's export of the image and 9999999 GiB that stay free"):
        pair.serve(disk_floor_gib=9_999_999)
    pair.one.use_containerd()
    pair.one.build(NODE, None, RAY)
    # containerd's store has every blob as it goes.
    assert pair.serve(disk_floor_gib=9_999_999)["changed"]


def test_another_copy_is_waited_for(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_job, "LOOK_SECONDS", 0.05)
    served = pair.serve()
    (pair.path / "state").mkdir()
    with open(files.open_lock(str(pair.path / "state/image-copy.lock")), "wb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        with pytest.raises(WaitTimeout, match="another copy into this engine"):
            pair.copy(served, timeout=1)
    assert pair.copy(served)["changed"]


def test_a_copy_without_the_lock_of_this_run_starts_nothing(pair: Pair) -> None:
    with pytest.raises(ClusterError):
        pair.serve(lock_id="0123")
    assert not pair.commands


@pytest.mark.parametrize("offer", [{}, {"image": "a"}])
def test_an_offer_of_another_kind_is_refused(pair: Pair, offer: dict[str, t.Any]) -> None:
    with pytest.raises(ClusterError, match="offer is not what"):
        pair.call(pair.two, state="copied", offer=offer)
