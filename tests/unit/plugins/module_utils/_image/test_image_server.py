# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The bytes of a layer come from where its files lie, and never others."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import typing as t
from pathlib import Path

import pytest
from engine_tree import RECORDED, RECORDED_DIFF_ID, RECORDED_FILES, Engine

from ansible_collections.gb10.cluster.plugins.module_utils._image import image_server
from ansible_collections.gb10.cluster.plugins.module_utils._image.image_server import Unreadable


@pytest.fixture
def engine(tmp_path: Path) -> t.Iterator[Engine]:
    made = Engine(tmp_path)
    yield made
    made.close()


@pytest.fixture
def recorded(engine: Engine) -> image_server.Layer:
    engine.add_layer([], RECORDED_DIFF_ID, RECORDED.read_bytes(), RECORDED_FILES)
    return image_server.layers_of(str(engine.root), "overlay2", [RECORDED_DIFF_ID])[0]


def test_a_recorded_layer_is_put_together_to_the_byte(recorded: image_server.Layer) -> None:
    content = b"".join(bytes(part) for part in image_server.layer_bytes(recorded))
    assert "sha256:" + hashlib.sha256(content).hexdigest() == RECORDED_DIFF_ID
    assert len(content) == image_server.tar_size(recorded.split) == 10752
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        assert [one.name for one in tar][:4] == ["etc", "etc/.wh.issue", "rec", "rec/empty"]
    assert recorded.size == sum(map(len, RECORDED_FILES.values()))


def test_large_files_go_in_pieces(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_server, "CHUNK", 4096)
    engine.build("a:1", None, {"small": b"s" * 100, "large": bytes(range(256)) * 200, "next": b"n" * 5000})
    (layer,) = image_server.layers_of(str(engine.root), "overlay2", engine.images[engine.tags["a:1"]]["RootFS"]["Layers"])
    parts = [bytes(part) for part in image_server.layer_bytes(layer)]
    assert "sha256:" + hashlib.sha256(b"".join(parts)).hexdigest() == layer.diff_id and len(parts) > 10


def test_chain_ids_are_those_of_the_engine() -> None:
    # Recorded: the second layer of a node's image of the lab, engine 20.10.24.
    base = "sha256:5cabe72bc046d6157873a33464e2abb537823afa38009b92c383e0d92dcd5f15"
    second = "sha256:cc3f27a100ef95a7393584ea554353afe812e6293c332bf5eb2f7ce952f21d82"
    assert image_server.chain_ids([base, second]) == [base, "sha256:17841074b5e9b4f7c2bb589dc4d3f9af674a096d0287b9d6b3a5db1f409c83b6"]
    assert image_server.chain_ids([]) == []


def changed(path: Path) -> None:
    path.write_bytes(b"HELLO layer")


def shortened(path: Path) -> None:
    path.write_bytes(b"hello")


def led_away(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


def parent_led_away(path: Path) -> None:
    elsewhere = path.parent.parent.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "inner").write_bytes(b"inner")
    (path.parent / "sub/inner").unlink()
    (path.parent / "sub").rmdir()
    (path.parent / "sub").symlink_to(elsewhere)


@pytest.mark.parametrize(
    ("damage", "words"),
    [(changed, "are not those of layer"), (shortened, "was changed"), (led_away, "symbolic links"), (parent_led_away, "not inside")],
)
def test_a_damaged_layer_is_not_given(recorded: image_server.Layer, damage: t.Callable[[Path], None], words: str) -> None:
    damage(Path(recorded.files) / "rec/file")
    sent = []
    with pytest.raises((Unreadable, OSError), match=words):
        sent.extend(bytes(part) for part in image_server.layer_bytes(recorded))
    assert len(b"".join(sent)) < image_server.tar_size(recorded.split)


@pytest.mark.parametrize("line", [b"no json\n", b'{"type": 3}\n', b'{"type": 2, "payload": "A"}\n', b'{"type": 1, "size": 4}\n'])
def test_records_of_another_kind_are_refused(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "split").write_bytes(gzip.compress(line))
    with pytest.raises(Unreadable, match="split cannot be read"):
        image_server.tar_size(str(tmp_path / "split"))


def test_another_driver_and_another_layer_are_refused(engine: Engine, recorded: image_server.Layer) -> None:
    with pytest.raises(Unreadable, match="btrfs"):
        image_server.layers_of(str(engine.root), "btrfs", [RECORDED_DIFF_ID])
    with pytest.raises(FileNotFoundError):
        image_server.layers_of(str(engine.root), "overlay2", ["sha256:" + "0" * 64])
    with pytest.raises(Unreadable, match="not a sha256"):
        image_server.layers_of(str(engine.root), "overlay2", ["../../etc"])
    (Path(recorded.split).parent / "diff").write_text("sha256:" + "1" * 64)
    with pytest.raises(Unreadable, match="another layer"):
        image_server.layers_of(str(engine.root), "overlay2", [RECORDED_DIFF_ID])
    image_id = engine.add_image("a:1", [RECORDED_DIFF_ID])
    (engine.root / "image/overlay2/imagedb/content/sha256" / image_id[7:]).write_text("{}")
    with pytest.raises(Unreadable, match="is damaged"):
        image_server.config_of(str(engine.root), "overlay2", image_id)


@pytest.mark.parametrize("have", [0, 1, 2])
def test_only_the_missing_layers_are_in_the_stream(engine: Engine, have: int) -> None:
    engine.build("base:1", None, {"etc/a": b"a" * 3000})
    image_id = engine.build("node:1", "base:1", {"opt/ray": b"r" * 700})
    layers = image_server.layers_of(str(engine.root), "overlay2", engine.images[image_id]["RootFS"]["Layers"])
    image = image_server.Image(image_id, ["node:1"], image_server.config_of(str(engine.root), "overlay2", image_id), 2)
    sizes = [image_server.tar_size(layer.split) for layer in layers]
    content = b"".join(bytes(part) for part in image_server.stream([image], layers, have, sizes))
    assert len(content) == image_server.stream_size([image], layers, have, sizes)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        names = tar.getnames()
        (about,) = json.loads(tar.extractfile("manifest.json").read())  # type: ignore[union-attr]
    assert names[2:] == about["Layers"][have:] and len(about["Layers"]) == 2 and names[0] == about["Config"] == f"{image_id[7:]}.json"
