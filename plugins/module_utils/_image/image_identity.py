# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Recognizes an image in engines with different image stores. This module util is PRIVATE to the collection.

Docker's classic store identifies an image by the sha256 of its configuration, containerd's by the sha256 of its manifest, which has the digests of the
compressed layers. The configuration has the labels and the digest of each unpacked layer, and is the same in both. An engine with
containerd's store does not report its sha256: there the labels, the base's id and the layers identify the image.
"""

from __future__ import annotations

import json
import typing as t

#: Labels by the role image: the base's id in the engine that built the image, the sha256 of the base's configuration, the recipe, the packages that pip
#: added, and the requested Ray if the base excluded it.
LABEL_BASE, LABEL_BASE_CONFIG, LABEL_RECIPE, LABEL_LOCK = "io.gb10.base", "io.gb10.base_config", "io.gb10.recipe", "io.gb10.lock"
LABEL_RAY_WANTED = "io.gb10.ray_wanted"


def layers_in(answer: dict[str, t.Any]) -> list[str]:
    """Return the layers in the engine's description of an image."""
    return [str(layer) for layer in (answer.get("RootFS") or {}).get("Layers") or []]


def common(first: t.Sequence[str], second: t.Sequence[str]) -> int:
    """Return the number of lowest layers that two images have in common."""
    return next((number for number, (layer, other) in enumerate(zip(first, second)) if layer != other), min(len(first), len(second)))


def base_of(labels: t.Mapping[str, str]) -> dict[str, t.Any] | None:
    """Return the base of an image and the added packages, by the labels of the role image."""
    if not labels.get(LABEL_BASE):
        return None
    lock, wanted = (_parsed(labels.get(name, "")) for name in (LABEL_LOCK, LABEL_RAY_WANTED))
    return {
        "image_id": labels[LABEL_BASE],
        "recipe": labels.get(LABEL_RECIPE, ""),
        "lock": lock if isinstance(lock, list) else [],
        "ray_wanted": wanted if isinstance(wanted, dict) and all(isinstance(wanted.get(word), str) for word in ("version", "why")) else None,
    }


def _parsed(label: str) -> t.Any:
    try:
        return json.loads(label)
    except ValueError:
        return None


def is_built_on(labels: t.Mapping[str, str], base_id: str | None, base_config: str | None) -> bool:
    """Return whether an image's labels name this base: by its id in the engine that built the image, or by its configuration."""
    named = [labels[name] for name in (LABEL_BASE, LABEL_BASE_CONFIG) if labels.get(name)]
    return bool({base_id, base_config} & set(named))


def stands_on(image: dict[str, t.Any], base: dict[str, t.Any], store: str) -> bool:
    """Return whether an image was built on a base, by the descriptions of an engine with this store.

    The labels name the base if the same kind of store built the image. The other kind has a different id of the base; only the layers are the same.
    """
    labels = (image.get("Config") or {}).get("Labels") or {}
    below, named, config = layers_in(base), labels.get(LABEL_BASE), labels.get(LABEL_BASE_CONFIG)
    # Only the classic store identifies an image by its configuration.
    is_foreign = not config if store == "classic" else config == named
    return is_built_on(labels, base["Id"], None) or bool(named and is_foreign) and common(below, layers_in(image)) == len(below)
