# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One image whatever the engine's store. This module util is PRIVATE to the collection.

The classic store of Docker calls an image by the sha256 of its configuration, that of containerd by the sha256 of its manifest, which names the layers as
they were compressed. The configuration has the labels and the digest of each unpacked layer, and moves unchanged from one to the other. An engine with
containerd's store does not say its sha256: there labels, the base's id and the layers tell.
"""

from __future__ import annotations

import json
import typing as t

#: What the role image writes into an image: the id of what it was built on in the engine that built it, the sha256 of that one's configuration, by what
#: recipe, what pip added, and which Ray had been wanted where its base kept that out.
LABEL_BASE, LABEL_BASE_CONFIG, LABEL_RECIPE, LABEL_LOCK = "io.gb10.base", "io.gb10.base_config", "io.gb10.recipe", "io.gb10.lock"
LABEL_RAY_WANTED = "io.gb10.ray_wanted"


def layers_in(answer: dict[str, t.Any]) -> list[str]:
    """Return the layers of an image, as the engine describes it."""
    return [str(one) for one in (answer.get("RootFS") or {}).get("Layers") or []]


def common(first: t.Sequence[str], second: t.Sequence[str]) -> int:
    """Return how many layers two images begin with together."""
    return next((number for number, (one, other) in enumerate(zip(first, second)) if one != other), min(len(first), len(second)))


def base_of(labels: t.Mapping[str, str]) -> dict[str, t.Any] | None:
    """Return what the role image noted about the image it built on, and what it added."""
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
    """Return whether an image's labels name this base: by its id in the engine that built the image, or by its configuration in any other one."""
    named = [labels[name] for name in (LABEL_BASE, LABEL_BASE_CONFIG) if labels.get(name)]
    return bool({base_id, base_config} & set(named))


def stands_on(image: dict[str, t.Any], base: dict[str, t.Any], store: str) -> bool:
    """Return whether an image was built on a base, both as an engine with this kind of store describes them.

    The labels say so where the same kind of store built the image. One that was built in the other kind has another id of the base in its labels; what is
    the same in both are the layers.
    """
    labels = (image.get("Config") or {}).get("Labels") or {}
    below, named, config = layers_in(base), labels.get(LABEL_BASE), labels.get(LABEL_BASE_CONFIG)
    # Only the classic store calls an image by its configuration.
    is_foreign = not config if store == "classic" else config == named
    return is_built_on(labels, base["Id"], None) or bool(named and is_foreign) and common(below, layers_in(image)) == len(below)
