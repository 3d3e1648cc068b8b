# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An image is recognized in either kind of store, whichever kind built it."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._image import image_identity


@pytest.mark.parametrize(
    ("labels", "base_id", "config", "built"),
    [
        ({"io.gb10.base": "a"}, "a", None, True), ({"io.gb10.base": "a"}, "m", "a", True), ({"io.gb10.base": "m", "io.gb10.base_config": "a"}, "a", "a", True),
        ({"io.gb10.base": "m"}, "a", "a", False), ({}, None, None, False), ({"io.gb10.base": "m", "io.gb10.base_config": ""}, "a", "", False),
    ],
)  # fmt: skip
def test_an_image_knows_its_base(labels: dict[str, str], base_id: str | None, config: str | None, built: bool) -> None:
    assert image_identity.is_built_on(labels, base_id, config) is built


@pytest.mark.parametrize(
    ("store", "labels", "layers", "stands"),
    [
        ("classic", {"base": "b", "base_config": "b"}, ["1", "2"], True),
        ("containerd", {"base": "b", "base_config": ""}, ["1", "2"], True),
        # The base was replaced by a newer one of the same layers: an id from the same kind of store shows it.
        ("classic", {"base": "old", "base_config": "old"}, ["1", "2"], False),
        ("containerd", {"base": "old", "base_config": ""}, ["1", "2"], False),
        ("containerd", {"base": "old", "base_config": "c"}, ["1", "2"], False),
        # Built in the other kind of store, which has different ids.
        ("containerd", {"base": "c", "base_config": "c"}, ["1", "2"], True),
        ("containerd", {"base": "c", "base_config": "c"}, ["9", "2"], False),
        ("classic", {"base": "m", "base_config": ""}, ["1", "2"], True),
        ("classic", {"base": "m", "base_config": ""}, ["2"], False),
        ("classic", {"base": "m", "base_config": "b"}, ["9"], True),
        ("classic", {"base": "m", "base_config": "c"}, ["1", "2"], False),
        ("classic", {}, ["1", "2"], False),
    ],
)  # fmt: skip
def test_an_image_is_built_on_its_base_in_either_store(store: str, labels: dict[str, str], layers: list[str], stands: bool) -> None:
    image: dict[str, t.Any] = {"Config": {"Labels": {f"io.gb10.{name}": value for name, value in labels.items()}}, "RootFS": {"Layers": layers}}
    assert image_identity.stands_on(image, {"Id": "b", "RootFS": {"Layers": ["1"]}}, store) is stands
