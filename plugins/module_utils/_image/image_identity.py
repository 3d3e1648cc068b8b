# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One image whatever the engine's store: its configuration is its identity. This module util is PRIVATE to the collection.

The classic store of Docker calls an image by the sha256 of its configuration, that of containerd by the sha256 of its manifest, which names the layers as
they were compressed. The configuration has the labels and the digest of each unpacked layer, and moves unchanged from one to the other.
"""

from __future__ import annotations

import hashlib
import json
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker import image_store
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_copying, image_server

#: What the role image writes into an image: the id of what it was built on in the engine that built it, the sha256 of that one's configuration, by what
#: recipe, what pip added, and which Ray had been wanted where its base kept that out.
LABEL_BASE, LABEL_BASE_CONFIG, LABEL_RECIPE, LABEL_LOCK = "io.gb10.base", "io.gb10.base_config", "io.gb10.recipe", "io.gb10.lock"
LABEL_RAY_WANTED = "io.gb10.ray_wanted"

_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")


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


def blob_text(root: str, digest: str) -> bytes:
    """Return a small blob of containerd's store. Raises :class:`image_server.Unreadable`, OSError."""
    with open(image_server.blob_path(root, digest), "rb") as stream:
        text = stream.read(image_server.CONFIG_LIMIT)
    if hashlib.sha256(text).hexdigest() != image_server.digest_hex(digest):
        raise image_server.Unreadable(f"the blob {digest} is damaged")
    return text


def manifest_of(root: str, image_id: str, layers: t.Sequence[str]) -> image_server.Manifest:
    """Return the manifest in containerd's store of an image with these layers; of an image of many platforms, that of the one that is here.

    Raises :class:`image_server.Unreadable`, OSError.
    """
    try:
        found = json.loads(blob_text(root, image_id))
        digests = [str(one["digest"]) for one in found["manifests"]] if found.get("mediaType") in _INDEXES else [image_id]
        for digest in digests:
            try:
                manifest = image_server.manifest_of(root, digest)
            except image_server.Unreadable:
                if digest == image_id:
                    raise
                # Of another platform, which was not pulled, or no image but words about one.
                continue
            if json.loads(blob_text(root, manifest.config[0])).get("rootfs", {}).get("diff_ids") == list(layers):
                return manifest
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise image_server.Unreadable(f"the manifest {image_id} cannot be read: {error!r}") from error
    raise image_server.Unreadable(f"no manifest of {image_id} has the layers that the engine says")


def config_digest(api: EngineApi, image: dict[str, t.Any], info: dict[str, t.Any] | None = None) -> str:
    """Return the sha256 of an image's configuration, empty where the engine's files do not say; ``info`` is the engine's answer to ``GET /info``."""
    info = info or api.get("/info")
    if image_store.store_of(info) == "classic":
        return str(image["Id"])
    try:
        return manifest_of(str(info.get("DockerRootDir")), image["Id"], image_copying.layers_in(image)).config[0]
    except (image_server.Unreadable, OSError):
        return ""
