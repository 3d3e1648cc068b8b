# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The image of a bundle: out of either kind of image store, and into either. This module util is PRIVATE to the collection.

It lies there as an OCI image layout, which other tools read, too: the blobs by their sha256, each a file of its own. Of the classic store the layers are
the tars that they were, uncompressed; of containerd's the blobs come as they are.
"""

from __future__ import annotations

import json
import tarfile
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._bundle import content
from ansible_collections.gb10.cluster.plugins.module_utils._bundle.content import Row
from ansible_collections.gb10.cluster.plugins.module_utils._bundle.place import Item, Place
from ansible_collections.gb10.cluster.plugins.module_utils._docker import image_store
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_copying, image_identity, image_server

BLOBS = f"{content.IMAGE}/blobs/sha256"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE, LAYER_TYPE = "application/vnd.oci.image.config.v1+json", "application/vnd.oci.image.layer.v1.tar"

About = dict[str, t.Any]


class Image(t.NamedTuple):
    """An image of a bundle: the names that it gets, its manifest, its configuration, its layers (each a digest and its bytes), and these unpacked."""

    names: list[str]
    kind: str
    manifest: tuple[str, int]
    config: tuple[str, int]
    layers: list[tuple[str, int]]
    diff_ids: list[str]

    def id_in(self, store: str) -> str:
        """Return the id that an engine with this kind of store gives it."""
        return self.config[0] if store == "classic" else self.manifest[0]


def blob_name(digest: str) -> str:
    """Return where a blob lies in a bundle."""
    return f"{BLOBS}/{image_server.digest_hex(digest)}"


# -- out of an engine ------------------------------------------------------------------------------------------------


def small(path: str, text: bytes, digest: str = "") -> Item:
    """Return a file of a bundle whose content is at hand."""
    return Item(path, len(text), lambda: iter([text]), image_server.digest_hex(digest) if digest else content.sha256_of(text))


def _found(api: EngineApi, name: str) -> About:
    found = api.image(name)
    if found is None:
        raise ClusterError(f"no image {name} is here, so nothing to export", remedy="Run the play with --tags image, which builds it.", reason="absent")
    return found


def exported(api: EngineApi, image: str, base: str, place: Place) -> tuple[About, list[Item]]:
    """Return what the manifest of a bundle says of an image and the base below it, and the files that it is made of. Raises :class:`ClusterError`, OSError."""
    if "@" in image:
        raise ClusterError(
            f"{image} is named by its digest, and an engine gives no image a name by digest but one that it pulled",
            remedy="Set image.tag in the profile.",
            reason="no name",
        )
    info = api.get("/info")
    store, found = image_store.store_of(info), _found(api, image)
    given = [([image], found)]
    below = api.image(base) if base and base != image and "@" not in base else None
    layers = image_copying.layers_in(found)
    if below is not None and below["Id"] == found["Id"]:
        given[0][0].append(base)
    elif below is not None and layers[:len(image_copying.layers_in(below))] == image_copying.layers_in(below):
        given.append(([base], below))
    try:
        each = (_of_containerd if store == "containerd" else _of_classic)(info, given, place)
    except (image_server.Unreadable, ValueError) as error:
        raise ClusterError(
            f"{image} cannot be exported: {error}",
            expected="Docker's storage driver overlay2, or its containerd image store, with all layers of the image",
            remedy=f"When it names another driver, use one of these. Else build the image again: docker rmi {image}, then --tags image.",
            reason="engine",
        ) from error
    images = [one for one, _items in each]
    index = _index(list(reversed(images)))
    items = {item.path: item for _one, of_one in each for item in of_one}
    for name, text in (("oci-layout", image_server.LAYOUT), ("index.json", index)):
        items[f"{content.IMAGE}/{name}"] = small(f"{content.IMAGE}/{name}", text)
    about = {
        "tag": image,
        "store": store,
        "id": found["Id"],
        "architecture": str(found.get("Architecture") or ""),
        "labels": (found.get("Config") or {}).get("Labels") or {},
        "images": [one._asdict() for one in images],
    }
    return about, list(items.values())


def _index(images: t.Sequence[Image]) -> bytes:
    return image_server.blob_index(
        [(image_server.Manifest(one.kind, one.manifest, one.config, one.layers), [image_server.full_name(name) for name in one.names]) for one in images]
    )


def _of_classic(info: About, given: t.Sequence[tuple[list[str], About]], place: Place) -> list[tuple[Image, list[Item]]]:
    root, driver = str(info.get("DockerRootDir")), str(info.get("Driver"))
    done = []
    for names, found in given:
        config = image_server.config_of(root, driver, found["Id"])
        layers, items = [], []
        for layer in image_server.layers_of(root, driver, image_copying.layers_in(found)):
            path = blob_name(layer.diff_id)
            known = place.seen.files.get(path)
            # To know the bytes of a layer's tar takes a look at each of its files' names.
            size = known.size if known else image_server.tar_size(layer.split)
            layers.append((layer.diff_id, size))
            items.append(Item(path, size, _chunks_of(layer), image_server.digest_hex(layer.diff_id)))
        about = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": {"mediaType": CONFIG_TYPE, "digest": found["Id"], "size": len(config)},
            "layers": [{"mediaType": LAYER_TYPE, "digest": digest, "size": size} for digest, size in layers],
        }
        text = json.dumps(about).encode()
        digest = f"sha256:{content.sha256_of(text)}"
        items += [small(blob_name(digest), text, digest), small(blob_name(found["Id"]), config, found["Id"])]
        done.append((Image(names, MANIFEST_TYPE, (digest, len(text)), (found["Id"], len(config)), layers, image_copying.layers_in(found)), items))
    return done


def _chunks_of(layer: image_server.Layer) -> t.Callable[[], t.Iterator[bytes | memoryview]]:
    return lambda: image_server.layer_bytes(layer)


def _of_containerd(info: About, given: t.Sequence[tuple[list[str], About]], _place: Place) -> list[tuple[Image, list[Item]]]:
    root = str(info.get("DockerRootDir"))
    done = []
    for names, found in given:
        layers = image_copying.layers_in(found)
        one = image_identity.manifest_of(root, found["Id"], layers)
        blobs = [one.own, one.config, *one.layers]
        items = [Item(blob_name(digest), size, _blob_chunks(root, digest, size), image_server.digest_hex(digest)) for digest, size in blobs]
        done.append((Image(names, one.kind, one.own, one.config, one.layers, layers), items))
    return done


def _blob_chunks(root: str, digest: str, size: int) -> t.Callable[[], t.Iterator[bytes | memoryview]]:
    return lambda: image_server.blob_bytes(image_server.blob_path(root, digest), digest, size)


# -- into an engine --------------------------------------------------------------------------------------------------


def images_of(manifest: content.Manifest) -> list[Image]:
    """Return the images of a bundle. Raises :class:`ClusterError` for a list that says something else."""
    try:
        found = []
        for row in manifest["image"]["images"]:
            one = Image(
                [str(name) for name in row["names"]], str(row["kind"]), _blob(row["manifest"]), _blob(row["config"]), [_blob(layer) for layer in row["layers"]],
                [str(digest) for digest in row["diff_ids"]],
            )  # fmt: skip
            if len(one.layers) != len(one.diff_ids) or not one.names:
                raise ValueError(f"{len(one.layers)} layers of {len(one.diff_ids)}")
            list(map(image_server.digest_hex, one.diff_ids))
            found.append(one)
    except (KeyError, TypeError, ValueError, image_server.Unreadable) as error:
        raise ClusterError(f"the bundle's list of images cannot be read: {error!r}", remedy="Export the bundle again.", reason="foreign") from error
    listed = {row.path: row.size for row in content.rows_of(manifest)}
    lost = [blob_name(digest) for one in found for digest, size in (one.manifest, one.config, *one.layers) if listed.get(blob_name(digest)) != size]
    if lost:
        raise ClusterError(f"the bundle lists no {content.named(lost)}, which its image needs", remedy="Export the bundle again.", reason="foreign", files=lost)
    return found


def _blob(given: t.Any) -> tuple[str, int]:
    digest, size = given
    image_server.digest_hex(digest)
    return digest, int(size)


class Wanted(t.NamedTuple):
    """What an engine gets of a bundle: its images, the layers that it has of the first one, and what they have been here before, by name."""

    images: list[Image]
    have: int
    before: dict[str, str | None]
    #: Names of images that do not come under their name, since nothing here would know them as what they are.
    left_out: list[str]

    @property
    def missing(self) -> int:
        """Return the bytes of the layers that come."""
        return sum(size for _digest, size in self.images[0].layers[self.have:]) if self.images else 0


def wanted(api: EngineApi, manifest: content.Manifest, info: About, replace: bool) -> Wanted:
    """Return what this node's engine lacks of a bundle's images. Raises :class:`ClusterError` for a name that another image has here."""
    store, labels = image_store.store_of(info), manifest["image"].get("labels") or {}
    found, left_out = images_of(manifest), []
    if store != manifest["image"].get("store"):
        left_out = [name for one in found[1:] if not image_identity.is_built_on(labels, None, one.config[0]) for name in one.names]
    found = [one for one in found if not set(one.names) & set(left_out)]
    before: dict[str, str | None] = {}
    lacking, other = [], []
    for one in found:
        here = {name: api.image(name) for name in one.names}
        same = {name: answer is not None and is_one(api, answer, one, info) for name, answer in here.items()}
        before |= {name: answer["Id"] if answer else None for name, answer in here.items()}
        other += [f"{name} ({answer['Id'][7:19]} here)" for name, answer in here.items() if answer and not same[name]]
        if not all(same.values()):
            lacking.append(one)
    if other and not replace:
        raise ClusterError(
            f"the names of {len(other)} image(s) of the bundle are those of other images here: {content.named(other)}; nothing was imported",
            remedy="To give the names to the bundle's images: -e gb10_bundle_replace=true. The other ones stay, without these names.",
            reason="other content",
        )
    # The first one has all layers; another one costs its configuration alone.
    have = image_copying.present(api, _offer(lacking[0], store), str(info.get("DockerRootDir"))) if lacking else 0
    return Wanted(lacking, have, before, left_out)


def is_one(api: EngineApi, answer: About, image: Image, info: About) -> bool:
    """Return whether an image of this engine is one of a bundle: by its configuration, which is the same in either kind of store."""
    return answer["Id"] in (image.id_in("classic"), image.id_in("containerd")) or image_identity.config_digest(api, answer, info) == image.config[0]


def _offer(image: Image, store: str) -> image_copying.Offer:
    return {"how": "layers" if store == "classic" else "blobs", "layers": image.diff_ids, "blobs": [digest for digest, _size in image.layers]}


def stream(place: Place, rows: t.Mapping[str, Row], store: str, found: Wanted) -> t.Iterator[bytes | memoryview]:
    """Yield what an engine with this kind of store loads: the images without the layers that it has. Raises :class:`ClusterError`, OSError."""
    # The base before what stands on it: containerd's store keeps what it has unpacked for the image that came first, and a base that came second
    # would go with that image (seen with engine 26.1.5).
    images = list(reversed(found.images))
    # A layer's name in the stream is that of its blob, and the engine asks for those alone that it lacks.
    blobs = dict.fromkeys(digest for one in found.images for digest, _size in one.layers[found.have:])
    about = [one.manifest[0] for one in images] if store == "containerd" else []
    if store == "containerd":
        small = {"oci-layout": image_server.LAYOUT, "index.json": _index(images)}
    else:
        loaded = [{"Config": f"blobs/sha256/{_hex(one.config)}", "RepoTags": one.names, "Layers": [f"blobs/sha256/{_hex(layer)}" for layer in one.layers]}
                  for one in images]
        small = {"manifest.json": json.dumps(loaded).encode()}
    for name, text in small.items():
        yield image_server.tar_header(name, len(text)) + text + image_server.tar_padding(len(text))
    for digest in dict.fromkeys([*about, *(one.config[0] for one in images), *blobs]):
        row = rows[blob_name(digest)]
        yield image_server.tar_header(f"blobs/sha256/{image_server.digest_hex(digest)}", row.size)
        yield from place.chunks(row)
        yield image_server.tar_padding(row.size)
    yield image_server.TAR_END


def _hex(blob: tuple[str, int]) -> str:
    return image_server.digest_hex(blob[0])


def stream_bytes(found: Wanted) -> int:
    """Return about how many bytes the stream has."""
    return found.missing + tarfile.BLOCKSIZE * 8


def require_architecture(manifest: content.Manifest, info: About) -> None:
    """Raise :class:`ClusterError` for an image of another processor than this node's."""
    image, own = str(manifest["image"].get("architecture") or ""), str(info.get("Architecture") or "")
    names = {"x86_64": "amd64", "aarch64": "arm64"}
    if image and own and names.get(own, own) != image:
        raise ClusterError(
            f"the bundle's image is for {image}, and this node has {own}", remedy="Export the bundle on a node of the same processor.", reason="architecture"
        )


def space(found: Wanted) -> int:
    """Return the bytes that the engine's disk needs for what comes: it keeps a copy of each layer for a while, and unpacks it."""
    plain, packed = image_copying.TIMES["classic"], image_copying.TIMES["containerd"]
    first = found.images[0] if found.images else None
    layers = list(zip(first.layers, first.diff_ids))[found.have:] if first else []
    return sum(size * (plain if digest == diff_id else packed) for (digest, size), diff_id in layers)
