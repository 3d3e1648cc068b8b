# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An engine's export yields the wanted blobs, whatever the engine's age, and nothing that an export cannot contain."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import typing as t
from pathlib import Path

import pytest
from engine_tree import Engine, sha256, tar_of

from ansible_collections.gb10.cluster.plugins.module_utils._image import image_copying, image_server
from ansible_collections.gb10.cluster.plugins.module_utils._image.image_server import Unreadable


@pytest.fixture
def engine(tmp_path: Path) -> t.Iterator[Engine]:
    made = Engine(tmp_path)
    yield made
    made.close()


def blobs(engine: Engine, wanted: t.Collection[str], *images: str) -> dict[str, bytes]:
    ids = [engine.tags[name] for name in images]
    with image_server.export(engine.socket, ids, 5) as tar:
        exported = image_server.blobs(tar, wanted, engine.images[ids[-1]]["RootFS"]["Layers"])
        return {digest: b"".join(parts) for digest, _size, parts in exported}


@pytest.mark.parametrize("api", ["1.41", "1.44"])
def test_every_layer_is_sent_by_its_digest(engine: Engine, api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.api = api
    engine.build("base:1", None, *({f"etc/{number}": bytes([number]) * 700} for number in range(7)))
    engine.build("node:1", "base:1", {"opt/ray": b"r" * 5000}, {"opt/last": b""})
    layers = engine.images[engine.tags["node:1"]]["RootFS"]["Layers"]
    monkeypatch.setattr(image_server, "CHUNK", 512)
    wanted = {*layers[5:], engine.tags["node:1"], engine.tags["base:1"]}
    assert blobs(engine, wanted, "base:1", "node:1") == {digest: engine.blobs[digest] for digest in wanted}
    with pytest.raises(Unreadable, match="lacks sha256:0"):
        blobs(engine, ["sha256:0"], "node:1")


def test_a_layer_above_known_ones_is_not_spooled(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.build("base:1", None, {"etc/large": b"l" * 100_000})
    monkeypatch.setattr(image_server.image_registry, "copy", lambda *_given: pytest.fail("it was spooled"))
    layer = engine.images[engine.tags["base:1"]]["RootFS"]["Layers"][0]
    assert blobs(engine, [layer], "base:1") == {layer: engine.blobs[layer]}


def member(name: str, **about: t.Any) -> bytes:
    header = tarfile.TarInfo(name)
    for word, value in about.items():
        setattr(header, word, value)
    return header.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (member("a", type=tarfile.LNKTYPE, linkname="b"), "neither a file"),
        (member("a", type=tarfile.CHRTYPE), "neither a file"),
        (member("a", type=tarfile.FIFOTYPE), "neither a file"),
        (member("/etc/passwd"), "leads out"),
        (member("blobs/../../x"), "leads out"),
        (member("a") + member("a"), "twice"),
        (member("blobs/sha256/" + "0" * 64, size=4096), "early|unexpected end"),
        (member("manifest.json"), "lacks sha256:0"),
    ],
)
def test_a_hostile_archive_is_refused(content: bytes, words: str) -> None:
    with pytest.raises((Unreadable, tarfile.TarError), match=words), tarfile.open(fileobj=io.BytesIO(content + bytes(1024)), mode="r|") as tar:
        for _digest, _size, parts in image_server.blobs(tar, ["sha256:" + "0" * 64], []):
            list(parts)


def test_a_link_is_not_followed() -> None:
    outside = tar_of({}, links={"blobs/sha256/" + "0" * 64: "/etc/passwd"})
    with pytest.raises(Unreadable, match="lacks"), tarfile.open(fileobj=io.BytesIO(outside), mode="r|") as tar:
        list(image_server.blobs(tar, ["sha256:" + "0" * 64], []))


def test_an_engine_that_refuses_is_quoted(engine: Engine) -> None:
    with pytest.raises(Unreadable, match="does not export the image: .*no such image"), image_server.export(engine.socket, ["sha256:1"], 5):
        pass


def test_the_program_runs_by_itself(tmp_path: Path) -> None:
    """It has all that it imports, and nothing else is installed where it runs."""
    path = tmp_path / image_copying.PROGRAM
    path.write_bytes(image_copying.program())
    done = subprocess.run([sys.executable, "-I", "-B", str(path), str(tmp_path / "none")], capture_output=True, text=True, check=False, timeout=30)
    assert "FileNotFoundError" in done.stderr and "ModuleNotFoundError" not in done.stderr


def test_digests_are_names() -> None:
    digest = "0" * 64
    assert image_server.named(f"blobs/sha256/{digest}") == image_server.named(f"{digest}.json") == f"sha256:{digest}"
    assert [image_server.named(name) for name in ("manifest.json", f"{digest}/layer.tar", f"blobs/sha256/{digest}x", f"a/{digest}")] == [""] * 4
    assert sha256(b"").startswith("sha256:e3b0c442")
