# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An image arrives whole or not at all, only what is missing travels, and nobody else gets any of it."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import types
import typing as t
from pathlib import Path

import pytest
from engine_tree import Engine

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._files import copy_job, files
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_copying, image_server
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import transient
from ansible_collections.gb10.cluster.plugins.modules import image_copy

NODE, BASE = "gb10/engine:ray", "r/vllm:1"
LARGE = {"opt/engine": b"e" * 3_000_000}


class Pair:
    """Two engines on this machine: ``one`` has the image, and what gives it out runs in this process instead of a unit."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.one, self.two = Engine(path / "one"), Engine(path / "two")
        self.base_id = self.one.build(BASE, None, LARGE)
        self.image_id = self.one.build(NODE, BASE, {"opt/ray": b"ray" * 1000}, {"etc/last": b"last"})
        self.servers: list[image_server.Server] = []
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        monkeypatch.setattr(transient, "RUN_ROOT", str(path / "run"))
        monkeypatch.setattr(transient, "is_active", lambda _unit: bool(self.servers))
        monkeypatch.setattr(transient, "run_tool", self.systemctl)
        monkeypatch.setattr(image_copying, "run_tool", self.systemd_run)
        monkeypatch.setattr(transient.shutil, "which", lambda name, **_more: f"/usr/bin/{name}")
        self.commands: list[list[str]] = []

    def systemd_run(self, argv: list[str], _seconds: float) -> types.SimpleNamespace:
        self.commands.append(argv)
        self.servers.append(image_server.Server(image_server.Giver(argv[-1])))
        threading.Thread(target=self.servers[-1].serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return types.SimpleNamespace(rc=0, raw="", stdout="")

    def systemctl(self, argv: list[str], _seconds: float) -> types.SimpleNamespace:
        if "stop" in argv:
            self.end()
        return types.SimpleNamespace(rc=0, raw="", stdout="")

    def end(self) -> None:
        for server in self.servers:
            server.shutdown()
            server.server_close()
        self.servers.clear()

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
        """Have the second engine hold the first layers of the image."""
        self.two.build(BASE, None, LARGE)
        if count > 1:
            self.two.build("some:1", BASE, {"opt/ray": b"ray" * 1000})


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Pair]:
    made = Pair(tmp_path, monkeypatch)
    yield made
    made.end()
    made.one.close()
    made.two.close()


def test_an_engine_without_anything_gets_all_layers_and_the_base(pair: Pair) -> None:
    served = pair.serve()
    result = pair.copy(served)
    assert result["changed"] and result["layers_sent"] == 3 and result["bytes"] > 3_000_000 and result["how"] == "layers"
    assert pair.two.tags == {BASE: pair.base_id, NODE: pair.image_id} and result["image_id"] == pair.image_id
    again = pair.copy(served)
    assert not again["changed"] and again["bytes"] == 0 and pair.two.loads == 1
    assert os.listdir(pair.path / "state") == ["image-copy.lock"]


def test_an_engine_with_the_base_gets_the_thin_layers_alone(pair: Pair) -> None:
    pair.layers(1)
    result = pair.copy(pair.serve())
    assert result["layers_sent"] == 2 and 3000 < result["bytes"] < 40_000
    assert pair.two.tags[NODE] == pair.image_id


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
    assert "GET /image/0" in capfd.readouterr().err and secret not in capfd.readouterr().err
    place = os.path.dirname(served["secret_file"])
    looked = pair.call(pair.one, state="stopped", check_mode=True)
    assert looked["running"] == ["gb10-image-copy-gb10.service", place] and os.path.isdir(place)
    assert pair.call(pair.one, state="stopped")["changed"] and not os.path.exists(place) and not pair.servers
    assert not pair.call(pair.one, state="stopped")["changed"]


def test_an_engine_of_another_kind_passes_its_own_export_on(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.one.driver = "overlayfs"
    served = pair.serve()
    assert served["how"] == "engine" and "overlayfs" in served["offer"]["why"] and served["offer"]["sizes"] == []
    monkeypatch.setattr(pair.two, "load", lambda content: "" if content == b"whole " * 100 and pair.two.add_image(NODE, []) else "other bytes")
    with pytest.raises(ClusterError, match="after the copy"):
        pair.copy(served)


def blobs(pair: Pair) -> tuple[str, str]:
    for engine in (pair.one, pair.two):
        engine.use_containerd()
        engine.images.clear()
        engine.tags.clear()
    base = b"".join(bytes([number % 251]) * 17 for number in range(9000))
    return pair.one.add_blobs(BASE, base), pair.one.add_blobs(NODE, base, b"ray" * 1000)


def test_of_containerds_store_the_missing_blobs_come_alone(pair: Pair) -> None:
    base_id, image_id = blobs(pair)
    served = pair.serve()
    assert (served["how"], served["offer"]["store"], len(served["offer"]["blobs"])) == ("blobs", "containerd", 2)
    whole = pair.copy(served)
    assert whole["layers_sent"] == 2 and pair.two.tags == {BASE: base_id, NODE: image_id}
    del pair.two.images[image_id], pair.two.tags[NODE]
    os.unlink(image_server.blob_path(str(pair.two.root), served["offer"]["blobs"][1]))
    thin = pair.copy(served)
    assert thin["layers_sent"] == 1 and 0 < thin["bytes"] < whole["bytes"] and pair.two.tags[NODE] == image_id
    # The base lies here compressed in another way: its layers are the same, its blobs are not.
    del pair.two.images[image_id], pair.two.tags[NODE]
    os.unlink(image_server.blob_path(str(pair.two.root), served["offer"]["blobs"][0]))
    assert pair.copy(served)["layers_sent"] == 2


def test_a_damaged_blob_is_named(pair: Pair) -> None:
    blobs(pair)
    served = pair.serve()
    Path(image_server.blob_path(str(pair.one.root), served["offer"]["blobs"][1])).write_bytes(b"\0" * 200)
    with pytest.raises(ClusterError, match="broke off: "):
        pair.copy(served)
    assert not pair.two.tags


def test_an_image_of_many_platforms_goes_as_the_engine_exports_it(pair: Pair) -> None:
    _base_id, image_id = blobs(pair)
    index = pair.one.put_blob(b'{"mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []}')["digest"]
    pair.one.images[index] = {**pair.one.images[image_id], "Id": index}
    pair.one.tags[NODE] = index
    offer = pair.serve(check_mode=True)["offer"]
    assert offer["how"] == "engine" and "no image of one platform" in offer["why"] and image_copying.missing_bytes(offer, 0) == 1000


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
    assert image_server.full_name(name) == full


# -- who does not get it ---------------------------------------------------------------------------------------------


def test_a_wrong_secret_gets_nothing(pair: Pair) -> None:
    served = pair.serve()
    with pytest.raises(ClusterError, match="did not take the one-time secret") as caught:
        pair.copy(served, secret="0" * 48)
    assert caught.value.reason == "refused" and pair.two.loads == 0 and not pair.two.tags


def test_another_address_is_not_even_listened_to(pair: Pair) -> None:
    served = pair.serve(clients=["127.0.0.7"])
    with pytest.raises(ClusterError, match="closed the connection at once") as caught:
        pair.copy(served)
    assert caught.value.reason == "refused" and "gb10_fabric_address" in caught.value.remedy
    with pytest.raises(ClusterError, match="no IP address"):
        pair.serve(clients=["spark-2"])


# -- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_source_that_cannot_be_reached_is_a_reason_to_build(pair: Pair) -> None:
    served = pair.serve()
    pair.end()
    with pytest.raises(ClusterError, match="cannot be reached") as caught:
        pair.copy(served)
    assert "gb10_image_port" in caught.value.remedy
    result = pair.copy(served, required=False)
    assert (result["able"], result["changed"], result["verdict"]) == (False, False, "warn")


@pytest.mark.parametrize(
    ("change", "words"),
    [({"address": "192.0.2.1"}, "has not the fabric address"), ({"image": "r/vllm@sha256:cd"}, "named by its digest")],
)
def test_a_node_that_cannot_give_says_why(pair: Pair, change: dict[str, t.Any], words: str) -> None:
    with pytest.raises(ClusterError, match=words):
        pair.serve(**change)
    assert pair.serve(required=False, **change)["able"] is False


def test_a_port_that_is_taken_is_named(pair: Pair) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", pair.port))
        taken.listen(1)
        with pytest.raises(ClusterError, match=f"port {pair.port} of 127.0.0.1 is taken") as caught:
            pair.serve()
    assert "gb10_image_port" in caught.value.remedy and not pair.commands


def test_an_image_that_is_not_there_cannot_be_given(pair: Pair) -> None:
    with pytest.raises(ClusterError, match="no image gb10/other:1 is here"):
        pair.serve(image="gb10/other:1", required=False)


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_a_cut_connection_leaves_nothing(pair: Pair, monkeypatch: pytest.MonkeyPatch, part: float) -> None:
    whole = image_server.stream

    def cut(*given: t.Any) -> t.Iterator[bytes]:
        content = b"".join(bytes(one) for one in whole(*given))
        yield content[:int(part * len(content))]
        raise ConnectionResetError("killed")

    monkeypatch.setattr(image_server, "stream", cut)
    served = pair.serve()
    with pytest.raises(ClusterError, match="nothing of the image is kept"):
        pair.copy(served)
    assert not pair.two.tags and not pair.two.layers and pair.two.loads == 0
    monkeypatch.setattr(image_server, "stream", whole)
    assert pair.copy(served)["changed"]


def test_a_source_that_is_gone_midway_is_a_cut(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_given: t.Any) -> t.Iterator[bytes]:
        yield b"x" * 4096
        threading.Thread(target=pair.end, daemon=True).start()
        raise ConnectionResetError("gone")

    monkeypatch.setattr(image_server, "stream", dies)
    monkeypatch.setattr(image_copying, "_why", lambda _way: "")
    with pytest.raises(ClusterError, match="was cut: .* bytes came") as caught:
        pair.copy(pair.serve())
    assert caught.value.reason == "cut" and not pair.two.tags


def test_a_layer_that_was_changed_on_the_source_is_named(pair: Pair) -> None:
    for path in (pair.one.root / "overlay2").rglob("opt/ray"):
        path.write_bytes(b"RAY" * 1000)
    with pytest.raises(ClusterError, match="broke off: .* are not those of layer sha256:") as caught:
        pair.copy(pair.serve())
    assert caught.value.reason == "wrong digest" and not pair.two.tags


def test_what_the_engine_refuses_is_said_in_its_words(pair: Pair) -> None:
    pair.two.refuses = "invalid diffID for layer 1"
    with pytest.raises(ClusterError, match="did not take the image: invalid diffID") as caught:
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
