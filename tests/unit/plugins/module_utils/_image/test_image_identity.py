# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One image has one identity in either kind of store, also where a registry gave it out for many platforms."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from engine_tree import Engine, layer_tar

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_identity, image_server

LAYER = layer_tar({"opt/engine": b"e" * 1000})


@pytest.fixture
def engine(tmp_path: Path) -> t.Iterator[Engine]:
    made = Engine(tmp_path)
    yield made
    made.close()


def index_of(engine: Engine, *entries: dict[str, t.Any]) -> str:
    text = json.dumps({"mediaType": "application/vnd.oci.image.index.v1+json", "manifests": list(entries)}).encode()
    return engine.put_blob(text)["digest"]


def config_of(engine: Engine, image_id: str) -> str:
    return json.loads((engine.root / "containerd/daemon" / image_server.BLOBS / image_id[7:]).read_bytes())["config"]["digest"]


def test_the_classic_store_calls_an_image_by_its_configuration(engine: Engine) -> None:
    image_id = engine.build("r/vllm:1", None, {"opt/engine": b"1"})
    assert image_identity.config_digest(EngineApi(engine.socket), engine.images[image_id]) == image_id


def test_containerds_store_has_it_behind_the_manifest(engine: Engine) -> None:
    engine.use_containerd()
    image_id = engine.add_blobs("r/vllm:1", LAYER)
    found = image_identity.config_digest(EngineApi(engine.socket), engine.images[image_id])
    assert found == config_of(engine, image_id) != image_id


def test_of_many_platforms_the_one_counts_that_is_here(engine: Engine) -> None:
    """A registry gives out an index; platforms that were not pulled have no blobs, and an attestation is no image."""
    engine.use_containerd()
    image_id = engine.add_blobs("r/vllm:1", LAYER)
    words = engine.put_blob(b'{"mediaType": "application/vnd.in-toto+json"}')
    index = index_of(engine, {"digest": "sha256:" + "0" * 64}, words, {"digest": image_id})
    answer = {"Id": index, "RootFS": engine.images[image_id]["RootFS"]}
    assert image_identity.config_digest(EngineApi(engine.socket), answer) == config_of(engine, image_id)
    assert image_identity.manifest_of(str(engine.root), index, answer["RootFS"]["Layers"]).own[0] == image_id


def test_what_cannot_be_read_has_no_identity(engine: Engine) -> None:
    engine.use_containerd()
    image_id = engine.add_blobs("r/vllm:1", LAYER)
    other = {"Id": image_id, "RootFS": {"Layers": ["sha256:" + "1" * 64]}}
    for answer in (other, {"Id": "sha256:" + "0" * 64, "RootFS": {"Layers": []}}, {"Id": index_of(engine), "RootFS": {"Layers": []}}):
        assert image_identity.config_digest(EngineApi(engine.socket), answer) == ""
    with pytest.raises(image_server.Unreadable, match="has the layers"):
        image_identity.manifest_of(str(engine.root), index_of(engine), [])
    (engine.root / "containerd/daemon" / image_server.BLOBS / image_id[7:]).write_bytes(b"{}")
    assert image_identity.config_digest(EngineApi(engine.socket), engine.images[image_id]) == ""


@pytest.mark.parametrize(
    ("labels", "base_id", "config", "built"),
    [
        ({"io.gb10.base": "a"}, "a", None, True), ({"io.gb10.base": "a"}, "m", "a", True), ({"io.gb10.base": "m", "io.gb10.base_config": "a"}, "a", "a", True),
        ({"io.gb10.base": "m"}, "a", "a", False), ({}, None, None, False), ({"io.gb10.base": "m", "io.gb10.base_config": ""}, "a", "", False),
    ],
)  # fmt: skip
def test_an_image_knows_its_base(labels: dict[str, str], base_id: str | None, config: str | None, built: bool) -> None:
    assert image_identity.is_built_on(labels, base_id, config) is built
