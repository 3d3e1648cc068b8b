# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Copies an image from one node's Docker engine to another's, without the layers that exist there. This module util is PRIVATE to the collection.

The source runs :mod:`image_server` for the time of the copy. The node without the image requests the missing blobs, by digests that the controller
sent, and streams them to its own engine (:mod:`image_loading`), without a file or a shell.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import inspect
import io
import ipaddress
import json
import os
import sys
import tarfile
import threading
import typing as t
import zipfile

from ansible_collections.gb10.cluster.plugins.module_utils._docker import image_store
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._host.disk import disk
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_loading, image_registry, image_server
from ansible_collections.gb10.cluster.plugins.module_utils._image.image_identity import common, layers_in
from ansible_collections.gb10.cluster.plugins.module_utils._image.images import named_image
from ansible_collections.gb10.cluster.plugins.module_utils._model import block_client, blocks
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import transient

#: The kind of copy, in the name of its file of progress.
KIND = "image-copy"
#: Defaults of ``image_copy`` that its action plugin needs, too.
TIMEOUT = 7200
STATE_DIR = "/var/lib/gb10"

#: Directory of the image server's files, below one that a reboot empties, and the program in it.
RUN, PROGRAM = "gb10-image-copy", "serve.pyz"
#: Most bytes of a configuration or manifest: larger blobs of an export are not kept.
TEXT = 2 << 20
#: Seconds that the engine may be silent during their push.
LEARN_SECONDS = 60
_MAIN = f"from {image_server.__name__} import main\nmain()\n"
#: The oldest API of an engine whose exports name every blob by its digest (25.0).
NAMED_API = (1, 44)
#: How much faster an engine exports layers than it compresses them for a push (lab, Docker 20.10.24, 2 cores: 54 and 4 MB/s): if it would have to
#: compress a larger fraction of the image, the export is faster.
LESS = 12
#: Media types of manifests and indexes.
_LISTS = ("manifest.v1+json", "index.v1+json", "manifest.v2+json", "manifest.list.v2+json")

#: Reasons why a node cannot copy at all, and may pull and build instead.
UNABLE = ("no systemd", "no address", "port taken", "unreachable", "no name", "other store")

ALONE = "Set gb10_image_copy: preferred, and each node pulls and builds the image"

Offer = dict[str, t.Any]


def unit_name(cluster: str) -> str:
    """Return the name of the image server's unit."""
    return f"gb10-image-copy-{cluster}.service"


def run_dir(cluster: str) -> str:
    """Return the directory of its files."""
    return os.path.join(transient.RUN_ROOT, RUN, cluster)


def lock_path(state_dir: str) -> str:
    """Return the lock file that prevents two copies into one engine, also by different clusters."""
    return os.path.join(state_dir, "image-copy.lock")


# -- the image to copy ------------------------------------------------------------------------------------------------


def offer_of(api: EngineApi, image: str, base: str, timeout: float, floor_gib: int) -> tuple[Offer, dict[str, t.Any], str]:
    """Return the offer of an image for the other nodes, the order of the image server, and why the engine does not push it, empty if it does.

    An image that was built on ``base`` brings the base along under its own name, which adds only a configuration. Raises :class:`ClusterError`.
    """
    answer = named_image(api, image, "copy", "Set image.tag in the profile, or gb10_image_copy: never")
    info, layers = api.get("/info"), layers_in(answer)
    images = [{"id": answer["Id"], "names": [image], "layers": len(layers), "size": int(answer.get("Size") or 0)}]
    below = api.image(base) if base else None
    if below is not None and below["Id"] != answer["Id"] and common(layers_in(below), layers) == len(layers_in(below)):
        images.insert(
            0, {"id": below["Id"], "names": [] if "@" in base else [base], "layers": len(layers_in(below)), "size": int(below.get("Size") or 0)}
        )
    elif below is not None and below["Id"] == answer["Id"] and base != image and "@" not in base:
        images[0]["names"].append(base)
    store = image_store.store_of(info)
    require_room(api, info, images[-1]["size"], floor_gib)
    blobs, failed = [*(entry["id"] for entry in images), *layers], {}
    if store == "containerd":
        failed = contents(api, images, layers, timeout)
        blobs = [digest for entry in images for digest, _size in (*entry["about"], *entry["blobs"])]
    offer = {"image": image, "image_id": answer["Id"], "layers": layers, "size": images[-1]["size"], "store": store, "images": images}
    # The most bytes that a push may compress of each.
    pushed = {entry["id"]: 0 if store == "containerd" else entry["size"] // LESS for entry in images if entry["id"] not in failed}
    order = {
        "blobs": sorted(set(blobs)),
        "images": [entry["id"] for entry in images],
        "layers": layers,
        "push": pushed,
        "socket": api.socket_path,
        "timeout": timeout,
    }
    return offer, order, "; ".join(failed.values())


def require_room(api: EngineApi, info: dict[str, t.Any], size: int, floor_gib: int) -> None:
    """Raise :class:`ClusterError` unless the engine has room for an export, which the classic store first writes to its disk; OSError."""
    if image_store.store_of(info) != "classic":
        return
    root = str(info.get("DockerRootDir"))
    needed = {root: size}
    if tuple(map(int, api.get("/version")["ApiVersion"].split("."))) < NAMED_API:
        # The image server spools one layer at a time.
        same = os.stat(image_server.SPOOL).st_dev == os.stat(root).st_dev
        needed = {root: 2 * size} if same else {root: size, image_server.SPOOL: size}
    for path, count in needed.items():
        image_loading.require_space(path, disk(path)["free_bytes"], count, floor_gib, "for the engine's export of the image")


def contents(api: EngineApi, images: t.Sequence[dict[str, t.Any]], layers: t.Sequence[str], timeout: float) -> dict[str, str]:
    """Add the parts of each image of containerd's store: ``kind``, its manifests and configuration (``about``), and the blobs of its layers (``blobs``).

    Return the images that the engine does not push, each with the reason; their export is read. Raises :class:`ClusterError`.
    """
    texts, failed = dict[str, bytes](), dict[str, str]()
    for image in images:
        try:
            read_pushed(api, image["id"], texts)
        except (image_server.Unreadable, ClusterError, ValueError, KeyError, TypeError, http.client.HTTPException, OSError) as error:
            failed[image["id"]] = str(error) or repr(error)
    try:
        if failed:
            read_exported(api, list(failed), texts, timeout)
        for image in images:
            parts = parts_of(image["id"], texts)
            image["kind"], image["about"], image["blobs"] = parts.kind, list(parts.about.items()), list(parts.blobs.items())
            if not any(_unpacked(texts[digest]) == layers[:image["layers"]] for digest in parts.about):
                raise image_server.Unreadable("its manifest names other layers than the engine")
    except (image_server.Unreadable, ValueError, KeyError, TypeError, tarfile.TarError, http.client.HTTPException) as error:
        raise ClusterError(
            f"the Docker engine's export of {images[-1]['names'][0]} cannot be copied: {error}",
            remedy=f"Test it: docker save {images[-1]['names'][0]} | tar -t. {ALONE}",
            reason="engine",
        ) from error
    return failed


def read_pushed(api: EngineApi, image_id: str, texts: dict[str, bytes]) -> None:
    """Add the manifests and configurations of an image by having the engine push them: first the manifest, then those that it names.

    Raises :class:`image_server.Unreadable`, :class:`ClusterError`, ValueError, KeyError, TypeError, OSError, HTTPException.
    """

    def give(digest: str, size: int, parts: t.Iterable[bytes]) -> None:
        if size > TEXT:
            raise image_server.Unreadable(f"{digest} is larger than {TEXT} bytes")
        content = b"".join(parts)
        if digest != f"sha256:{hashlib.sha256(content).hexdigest()}":
            raise image_server.Unreadable(f"{digest} does not have its digest")
        texts[digest] = content

    for name in (api.image(image_id) or {}).get("RepoTags") or []:
        if image_registry.LEFT.match(name):
            # A name of a killed copy. The image was found by another name.
            api.untag(name)
    while wanted := parts_of(image_id, texts).lacks:
        words = image_server.push(api.socket_path, image_id, wanted, give, LEARN_SECONDS).words
        if parts_of(image_id, texts).lacks == wanted:
            raise image_server.Unreadable(f"the engine did not push all parts of the image: {words}")


def read_exported(api: EngineApi, image_ids: t.Sequence[str], texts: dict[str, bytes], timeout: float) -> None:
    """Add the manifests and configurations of images from an export, which is read up to the last of them: they may follow layers.

    Raises :class:`image_server.Unreadable`, TarError, ValueError, KeyError, TypeError, OSError, HTTPException.
    """
    with image_server.export(api.socket_path, image_ids, timeout) as tar:
        for member in image_server.files(tar):
            digest = image_server.named(member.name)
            if digest and member.size <= TEXT:
                texts[digest] = t.cast("t.IO[bytes]", tar.extractfile(member)).read()
                if not any(parts_of(image_id, texts).lacks for image_id in image_ids):
                    break


class Parts(t.NamedTuple):
    """The parts of an image of containerd's store: its media type, the blobs about it and of its layers with their bytes, and the unknown ones."""

    kind: str
    about: dict[str, int]
    blobs: dict[str, int]
    lacks: list[str]


def parts_of(image_id: str, texts: t.Mapping[str, bytes]) -> Parts:
    """Return the parts of an image, from the known blobs; for a multi-platform image those that exist here.

    Raises ValueError, KeyError, TypeError.
    """
    first = json.loads(texts.get(image_id, b"{}"))
    parts = Parts(str(first.get("mediaType") or f"application/vnd.oci.image.{'index' if 'manifests' in first else 'manifest'}.v1+json"), {}, {}, [])
    left = [{"digest": image_id, "mediaType": parts.kind}]
    while left:
        blob = left.pop(0)
        digest, media = str(blob["digest"]), str(blob.get("mediaType"))
        if "layer" in media or "diff.tar" in media:
            parts.blobs[digest] = int(blob["size"])
        elif digest not in texts:
            parts.lacks.append(digest)
        else:
            parts.about[digest] = len(texts[digest])
            listed = json.loads(texts[digest]) if media.endswith(_LISTS) else {}
            left += [*(listed.get("manifests") or []), *([listed["config"]] if "config" in listed else []), *(listed.get("layers") or [])]
    return parts


def _unpacked(text: bytes) -> list[str]:
    """Return the layers in a configuration, none for any other content."""
    try:
        return list(json.loads(text)["rootfs"]["diff_ids"])
    except (ValueError, KeyError, TypeError):
        return []


def require_offer(offer: t.Any) -> Offer:
    """Return the offer of the source. Raises :class:`ClusterError` for anything else."""
    if not isinstance(offer, dict) or {"image", "image_id", "layers", "size", "store", "images"} - set(offer):
        raise ClusterError("offer is not what state=served returned", remedy="Pass the offer that the node with the image returned.", reason="input")
    return offer


def require_store(info: dict[str, t.Any], offer: Offer) -> None:
    """Raise :class:`ClusterError` unless this node's engine has the same image store as the source's."""
    own = image_store.store_of(info)
    if own != offer["store"]:
        raise ClusterError(
            f"this node's Docker engine has the {own} image store, that of the source the {offer['store']} one: an image has a different id in each",
            remedy="Configure the same store on all nodes (containerd-snapshotter in /etc/docker/daemon.json, which hides the images of the other store: they "
            "are pulled again), or let each node build its image: -e gb10_image_copy=never.",
            reason="other store",
        )


def present(api: EngineApi, layers: t.Sequence[str]) -> int:
    """Return how many of an image's layers, from the lowest, this node's engine has."""
    images = filter(None, (api.image(entry["Id"]) for entry in api.get("/images/json", all=0)))
    return max((common(layers_in(image), layers) for image in images), default=0)


class Lacks(t.NamedTuple):
    """The parts of an offer that a node lacks: images (or their names), blobs with the most bytes of each, the number of layers, and about their bytes."""

    images: list[dict[str, t.Any]]
    blobs: dict[str, int]
    layers: int
    size: int


def lacks(api: EngineApi, offer: Offer, room: int) -> Lacks:
    """Return the parts of an offer that this node's engine lacks. A classic layer's size is unknown until it arrives: ``room`` is its limit."""
    images = [image for image in offer["images"] if any((api.image(name) or {}).get("Id") != image["id"] for name in image["names"])]
    if offer["store"] == "classic":
        have = present(api, offer["layers"])
        below = max((image["size"] for image in offer["images"] if image["layers"] <= have), default=0)
        blobs = {**dict.fromkeys((image["id"] for image in images), image_server.SMALL), **dict.fromkeys(offer["layers"][have:], room)}
        return Lacks(images, blobs, len(offer["layers"]) - have, max(0, offer["size"] - below))
    # The same layer may exist here in another compression: only images of the source's id count.
    here = {digest for image in offer["images"] if api.image(image["id"]) for digest, _size in image["blobs"]}
    layers = {digest: size for image in images for digest, size in image["blobs"] if digest not in here}
    return Lacks(images, {**{digest: size for image in images for digest, size in image["about"]}, **layers}, len(layers), sum(layers.values()))


# -- the source ------------------------------------------------------------------------------------------------------


def program() -> bytes:
    """Return the image server as an archive that Python runs."""
    files = {f"{module.__name__.replace('.', '/')}.py": inspect.getsource(module) for module in (blocks, image_registry, image_server)}
    files["__main__.py"] = _MAIN
    for path in list(files):
        while path := os.path.dirname(path):
            files.setdefault(f"{path}/__init__.py", "")
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        for path, text in files.items():
            packed.writestr(path, text)
    return content.getvalue()


def start(cluster: str, order: dict[str, t.Any], address: str, port: int, clients: t.Sequence[str], seconds: int) -> str:
    """Serve the image, and return the path of the secret: see :func:`transient.serve`. Raises :class:`ClusterError`."""
    for client in clients:
        try:
            ipaddress.ip_address(client)
        except ValueError as error:
            raise ClusterError(f"clients: {client!r} is not an IP address", remedy="Set gb10_fabric_address of that host.", reason="input") from error
    server = transient.Program(
        unit=unit_name(cluster),
        place=run_dir(cluster),
        about=f"gb10.cluster: copy of an image to the other nodes of cluster {cluster}",
        command=[sys.executable, "-B", os.path.join(run_dir(cluster), PROGRAM)],
        files={PROGRAM: program()},
        setting="gb10_copy_port",
        alone=ALONE,
        properties={"ProtectSystem": "strict", "ProtectHome": "yes"},
    )
    return transient.serve(server, {**order, "address": address, "port": port, "clients": list(clients)}, seconds)


# -- the node that fetches -------------------------------------------------------------------------------------------


def trouble(route: block_client.Route, error: block_client.Trouble | blocks.Lost) -> ClusterError:
    """Return the error for a connection that failed, or was cut."""
    where = f"{route.address}:{route.port}"
    reason, detail = (error.reason, error.detail) if isinstance(error, block_client.Trouble) else ("cut", str(error))
    see = f"Run again. If it fails again, run on the source: journalctl --since -10min -u '{RUN}*'"
    message, remedy = {
        "unreachable": (
            f"the source {where} cannot be reached: {detail}",
            "Check whether a firewall between the nodes closes the port after gb10_copy_port, and whether the link is up: "
            "ansible-playbook -i INVENTORY gb10.cluster.doctor --tags fabric",
        ),
        "stranger": (f"the source {where} expects another address than {route.own} for this node", "Correct gb10_fabric_address of this node."),
        "refused": (f"the source {where} and this node do not have the same one-time secret: {detail}", see),
        "busy": (f"the source {where} has too many connections", see),
    }.get(
        reason,
        (
            f"the connection to {route.address} was cut: {detail}; nothing of the image is kept",
            "Run again. If it fails again, check the link: ansible-playbook -i INVENTORY gb10.cluster.doctor --tags fabric",
        ),
    )
    return ClusterError(message, remedy=remedy, reason="refused" if reason == "stranger" else reason)


def frames(route: block_client.Route, wanted: t.Collection[str]) -> t.Iterator[tuple[int, bytes]]:
    """Yield the source's frames of the requested blobs, after it has proved that it is the source. Raises :class:`ClusterError`."""
    try:
        with contextlib.closing(block_client.Connection(route, threading.Event())) as connection:
            sock = connection.introduce()
            request = json.dumps(sorted(wanted)).encode()
            blocks.send(sock, image_server.REQUEST.pack(len(request)) + request)
            kind = image_server.ALIVE
            while kind != image_server.END:
                kind, length = image_server.FRAME.unpack(blocks.receive(sock, image_server.FRAME.size))
                if length > image_server.CHUNK:
                    raise image_loading.foreign(f"a piece of {length} bytes")
                content = blocks.receive(sock, length)
                if kind == image_server.FAILED:
                    message = content.decode("utf-8", "replace")
                    raise ClusterError(
                        f"the source {route.address} cannot export the image: {message[:2000]}; nothing of the image is kept",
                        remedy="Run journalctl -k on the source to check its disk. Remove the image there and run with --tags image, which builds it again.",
                        reason="disk full" if os.strerror(errno.ENOSPC) in message else "wrong digest",
                    )
                if kind != image_server.ALIVE:
                    yield kind, content
    except (block_client.Trouble, blocks.Lost) as error:
        raise trouble(route, error) from error


def fetch(api: EngineApi, route: block_client.Route, offer: Offer, lacking: Lacks, timeout: float, note: t.Callable[[str], None]) -> int:
    """Stream the missing parts from the source to this node's engine, and return the bytes received.

    Raises :class:`ClusterError` with the cause, :class:`WaitTimeout`.
    """
    lists = image_loading.lists(offer["store"], lacking.images, offer["layers"])
    size = image_loading.load(api, image_loading.archive(lists, lacking.blobs, frames(route, lacking.blobs)), lacking.size, timeout, note)
    image_loading.verify(api, offer["image"], offer["image_id"], offer["layers"], timeout)
    return size
