# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An image moves from one node's Docker engine to another's, without the layers that are there. This module util is PRIVATE to the collection.

The node that has it runs :mod:`image_server` for the time of the copy; the one that lacks it asks for the blobs that it lacks, by digests that it has from
the controller, and passes them on to its own engine (:mod:`image_loading`), through no file and no shell.
"""

from __future__ import annotations

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
from ansible_collections.gb10.cluster.plugins.module_utils._model import block_client, blocks
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import transient

#: Defaults of ``image_copy`` that its action plugin needs, too.
TIMEOUT = 7200
STATE_DIR = "/var/lib/gb10"

#: Where the files of the image server lie, below a directory that a reboot empties, and the program among them.
RUN, PROGRAM = "gb10-image-copy", "serve.pyz"
#: Bytes of a configuration or manifest, up to which a blob of an export is kept to be read.
TEXT = 2 << 20
#: Seconds that the engine may be silent while it pushes them.
LEARN_SECONDS = 60
_MAIN = f"from {image_server.__name__} import main\nmain()\n"
#: The oldest API of an engine whose exports name every blob by its digest (25.0).
NAMED_API = (1, 44)
#: How many times as fast an engine exports what it compresses for a push (lab, Docker 20.10.24, 2 cores: 54 and 4 MB/s): beyond a part of an image as
#: small as that, the export is sooner there.
LESS = 12
#: Media types of what has no bytes of a layer.
_LISTS = ("manifest.v1+json", "index.v1+json", "manifest.v2+json", "manifest.list.v2+json")

#: Reasons for which a node cannot copy at all, so that it may pull and build instead.
UNABLE = ("no systemd", "no address", "port taken", "unreachable", "no name", "other store")

ALONE = "Let each node pull and build by itself: gb10_image_copy: preferred"

Offer = dict[str, t.Any]


def unit_name(cluster: str) -> str:
    """Return the name of the image server's unit."""
    return f"gb10-image-copy-{cluster}.service"


def run_dir(cluster: str) -> str:
    """Return where its files lie."""
    return os.path.join(transient.RUN_ROOT, RUN, cluster)


def note_path(state_dir: str, cluster: str) -> str:
    """Return where a node notes how far its copy is."""
    return os.path.join(state_dir, f"image-copy-{cluster}.json")


def lock_path(state_dir: str) -> str:
    """Return the file that keeps two copies out of one engine, of whichever clusters."""
    return os.path.join(state_dir, "image-copy.lock")


# -- what there is to copy -------------------------------------------------------------------------------------------


def offer_of(api: EngineApi, image: str, base: str, timeout: float, floor_gib: int) -> tuple[Offer, dict[str, t.Any], str]:
    """Return what this node can give of an image, for the other nodes, the order of the program that gives it, and why it is not pushed.

    The base goes along under its own name where it is below the image: it costs its configuration alone. Raises :class:`ClusterError`.
    """
    if "@" in image:
        raise ClusterError(
            f"{image} is named by its digest, and an engine gives no image a name by digest but one that it pulled",
            remedy="Set image.tag in the profile, or gb10_image_copy: never",
            reason="no name",
        )
    found = api.image(image)
    if found is None:
        raise ClusterError(f"no image {image} is here, so nothing to copy", remedy="Run the play with --tags image, which builds it.", reason="absent")
    info, layers = api.get("/info"), layers_in(found)
    images = [{"id": found["Id"], "names": [image], "layers": len(layers), "size": int(found.get("Size") or 0)}]
    below = api.image(base) if base else None
    if below is not None and below["Id"] != found["Id"] and common(layers_in(below), layers) == len(layers_in(below)):
        names = [] if "@" in base else [base]
        images.insert(0, {"id": below["Id"], "names": names, "layers": len(layers_in(below)), "size": int(below.get("Size") or 0)})
    elif below is not None and below["Id"] == found["Id"] and base != image and "@" not in base:
        images[0]["names"].append(base)
    store = image_store.store_of(info)
    require_room(api, info, images[-1]["size"], floor_gib)
    blobs, failed = [*(one["id"] for one in images), *layers], {}
    if store == "containerd":
        failed = contents(api, images, layers, timeout)
        blobs = [digest for one in images for digest, _size in (*one["about"], *one["blobs"])]
    offer = {"image": image, "image_id": found["Id"], "layers": layers, "size": images[-1]["size"], "store": store, "images": images}
    # The most that a push may compress of each.
    pushed = {one["id"]: 0 if store == "containerd" else one["size"] // LESS for one in images if one["id"] not in failed}
    how = {"images": [one["id"] for one in images], "layers": layers, "push": pushed}
    return offer, {"blobs": sorted(set(blobs)), **how, "socket": api.socket_path, "timeout": timeout}, "; ".join(failed.values())


def require_room(api: EngineApi, info: dict[str, t.Any], size: int, floor_gib: int) -> None:
    """Raise :class:`ClusterError` unless the engine has room for an export, which the classic store lays on its disk before the first byte; OSError."""
    if image_store.store_of(info) != "classic":
        return
    root = str(info.get("DockerRootDir"))
    needed = {root: size}
    if tuple(map(int, api.get("/version")["ApiVersion"].split("."))) < NAMED_API:
        # One of its layers is spooled at a time.
        same = os.stat(image_server.SPOOL).st_dev == os.stat(root).st_dev
        needed = {root: 2 * size} if same else {root: size, image_server.SPOOL: size}
    for path, count in needed.items():
        image_loading.require_space(disk(path)["free_bytes"], count, floor_gib, path, "for the engine's export of the image")


def contents(api: EngineApi, images: t.Sequence[dict[str, t.Any]], layers: t.Sequence[str], timeout: float) -> dict[str, str]:
    """Add to images of containerd's store what each consists of: ``kind``, and its blobs, ``about`` it and of its layers.

    Return the images that the engine does not push, each with the reason; of these the export is read. Raises :class:`ClusterError`.
    """
    texts: dict[str, bytes] = {}
    failed: dict[str, str] = {}
    for one in images:
        try:
            read_pushed(api, one["id"], texts)
        except (image_server.Unreadable, ClusterError, ValueError, KeyError, TypeError, http.client.HTTPException, OSError) as error:
            failed[one["id"]] = str(error) or repr(error)
    try:
        if failed:
            read_exported(api, list(failed), texts, timeout)
        for one in images:
            found = parts_of(one["id"], texts)
            one["kind"], one["about"], one["blobs"] = found.kind, list(found.about.items()), list(found.blobs.items())
            if not any(_unpacked(texts[digest]) == layers[:one["layers"]] for digest in found.about):
                raise image_server.Unreadable("its manifest names other layers than the engine")
    except (image_server.Unreadable, ValueError, KeyError, TypeError, tarfile.TarError, http.client.HTTPException) as error:
        raise ClusterError(
            f"the Docker engine's export of {images[-1]['names'][0]} cannot be copied: {error}",
            remedy=f"Try it by hand: docker save {images[-1]['names'][0]} | tar -t. {ALONE}",
            reason="engine",
        ) from error
    return failed


def read_pushed(api: EngineApi, image_id: str, texts: dict[str, bytes]) -> None:
    """Add the manifests and configurations of an image by having the engine push them: first the manifest, then what that names.

    Raises :class:`image_server.Unreadable`, :class:`ClusterError`, ValueError, KeyError, TypeError, OSError, HTTPException.
    """

    def give(digest: str, size: int, parts: t.Iterable[bytes]) -> None:
        if size > TEXT:
            raise image_server.Unreadable(f"{digest} is larger than {TEXT} bytes")
        content = b"".join(parts)
        if digest != f"sha256:{hashlib.sha256(content).hexdigest()}":
            raise image_server.Unreadable(f"{digest} has another content")
        texts[digest] = content

    for name in (api.image(image_id) or {}).get("RepoTags") or []:
        if image_registry.LEFT.match(name):
            # Of a copy that was killed. The image has its own name besides, by which it was found.
            api.untag(name)
    while wanted := parts_of(image_id, texts).lacks:
        words = image_server.push(api.socket_path, image_id, wanted, give, LEARN_SECONDS).words
        if parts_of(image_id, texts).lacks == wanted:
            raise image_server.Unreadable(f"the engine did not push what the image consists of: {words}")


def read_exported(api: EngineApi, image_ids: t.Sequence[str], texts: dict[str, bytes], timeout: float) -> None:
    """Add the manifests and configurations of images from an export, which is read up to the last of them: they stand anywhere, behind layers, too.

    Raises :class:`image_server.Unreadable`, TarError, ValueError, KeyError, TypeError, OSError, HTTPException.
    """
    with image_server.export(api.socket_path, image_ids, timeout) as tar:
        for member in image_server.files(tar):
            digest = image_server.named(member.name)
            if digest and member.size <= TEXT:
                texts[digest] = t.cast("t.IO[bytes]", tar.extractfile(member)).read()
                if not any(parts_of(one, texts).lacks for one in image_ids):
                    break


class Parts(t.NamedTuple):
    """What an image of containerd's store consists of: its media type, the blobs about it and of its layers with their bytes, and what has not come yet."""

    kind: str
    about: dict[str, int]
    blobs: dict[str, int]
    lacks: list[str]


def parts_of(image_id: str, texts: t.Mapping[str, bytes]) -> Parts:
    """Return what an image consists of, from the blobs that are known; of one for many platforms, what is here of it.

    Raises ValueError, KeyError, TypeError.
    """
    first = json.loads(texts.get(image_id, b"{}"))
    found = Parts(str(first.get("mediaType") or f"application/vnd.oci.image.{'index' if 'manifests' in first else 'manifest'}.v1+json"), {}, {}, [])
    left = [{"digest": image_id, "mediaType": found.kind}]
    while left:
        one = left.pop(0)
        digest, media = str(one["digest"]), str(one.get("mediaType"))
        if "layer" in media or "diff.tar" in media:
            found.blobs[digest] = int(one["size"])
        elif digest not in texts:
            found.lacks.append(digest)
        else:
            found.about[digest] = len(texts[digest])
            listed = json.loads(texts[digest]) if media.endswith(_LISTS) else {}
            left += [*(listed.get("manifests") or []), *([listed["config"]] if "config" in listed else []), *(listed.get("layers") or [])]
    return found


def _unpacked(text: bytes) -> list[str]:
    """Return the layers that a configuration names, none for anything else."""
    try:
        return list(json.loads(text)["rootfs"]["diff_ids"])
    except (ValueError, KeyError, TypeError):
        return []


def require_offer(offer: t.Any) -> Offer:
    """Return what a node that gives said. Raises :class:`ClusterError` when it is no such thing."""
    if not isinstance(offer, dict) or {"image", "image_id", "layers", "size", "store", "images"} - set(offer):
        raise ClusterError("offer is not what state=served returned", remedy="Give RETURN's offer of the node that has the image.", reason="input")
    return offer


def require_store(info: dict[str, t.Any], offer: Offer) -> None:
    """Raise :class:`ClusterError` unless this node's engine keeps its images as the source's does."""
    own = image_store.store_of(info)
    if own != offer["store"]:
        raise ClusterError(
            f"this node's Docker engine has the {own} image store, that of the source the {offer['store']} one: one image has another id in each",
            remedy="Give all nodes the same one (containerd-snapshotter in /etc/docker/daemon.json; the images of the other one are not seen then, and are "
            "pulled again), or have each node make its image: -e gb10_image_copy=never.",
            reason="other store",
        )


def present(api: EngineApi, layers: t.Sequence[str]) -> int:
    """Return how many of an image's layers, from the lowest, this node's engine has."""
    found = (api.image(entry["Id"]) for entry in api.get("/images/json", all=0))
    return max((common(layers_in(one), layers) for one in found if one), default=0)


class Lacks(t.NamedTuple):
    """What a node lacks of an offer: images (or their names), blobs with the most bytes that each may have, layers, and about how many bytes they are."""

    images: list[dict[str, t.Any]]
    blobs: dict[str, int]
    layers: int
    size: int


def lacks(api: EngineApi, offer: Offer, room: int) -> Lacks:
    """Return what this node's engine lacks of an offer. The bytes of a classic layer are not known before it comes: ``room`` is the most that it may have."""
    images = [one for one in offer["images"] if any((api.image(name) or {}).get("Id") != one["id"] for name in one["names"])]
    if offer["store"] == "classic":
        have = present(api, offer["layers"])
        below = max((one["size"] for one in offer["images"] if one["layers"] <= have), default=0)
        blobs = {**dict.fromkeys((one["id"] for one in images), image_server.SMALL), **dict.fromkeys(offer["layers"][have:], room)}
        return Lacks(images, blobs, len(offer["layers"]) - have, max(0, offer["size"] - below))
    # The same layer may lie here compressed in another way: what counts is an image that is the source's own.
    here = {digest for one in offer["images"] if api.image(one["id"]) for digest, _size in one["blobs"]}
    layers = {digest: size for one in images for digest, size in one["blobs"] if digest not in here}
    return Lacks(images, {**{digest: size for one in images for digest, size in one["about"]}, **layers}, len(layers), sum(layers.values()))


# -- the node that gives ---------------------------------------------------------------------------------------------


def program() -> bytes:
    """Return the image server: an archive that Python runs."""
    modules = (blocks, image_registry, image_server)
    files = {"__main__.py": _MAIN, **{f"{module.__name__.replace('.', '/')}.py": inspect.getsource(module) for module in modules}}
    for path in list(files):
        while path := os.path.dirname(path):
            files.setdefault(f"{path}/__init__.py", "")
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        for path, text in files.items():
            packed.writestr(path, text)
    return content.getvalue()


def start(cluster: str, order: dict[str, t.Any], address: str, port: int, clients: t.Sequence[str], seconds: int) -> str:
    """Serve the image, and return where the secret lies: see :func:`transient.serve`. Raises :class:`ClusterError`."""
    for one in clients:
        try:
            ipaddress.ip_address(one)
        except ValueError as error:
            raise ClusterError(f"clients: {one!r} is not an IP address", remedy="Set gb10_fabric_address of that host.", reason="input") from error
    place = run_dir(cluster)
    server = transient.Program(
        unit=unit_name(cluster),
        place=place,
        about=f"gb10.cluster: copy of an image to the other nodes of cluster {cluster}",
        command=[sys.executable, "-B", os.path.join(place, PROGRAM)],
        files={PROGRAM: program()},
        setting="gb10_copy_port",
        alone=ALONE,
        properties={"ProtectSystem": "strict", "ProtectHome": "yes"},
    )
    return transient.serve(server, {**order, "address": address, "port": port, "clients": list(clients)}, seconds)


# -- the node that fetches -------------------------------------------------------------------------------------------


def trouble(way: block_client.Way, error: block_client.Trouble) -> ClusterError:
    """Return the error for a connection that came to nothing, or was cut."""
    where = f"{way.address}:{way.port}"
    see = f"See on the source: journalctl --since -10min -u '{RUN}*'"
    message, remedy = {
        "unreachable": (
            f"the source {where} cannot be reached: {error.detail}",
            "See whether a firewall between the nodes closes the port after gb10_copy_port, and whether the link is up: "
            "ansible-playbook -i INVENTORY gb10.cluster.doctor --tags fabric",
        ),
        "stranger": (f"the source {where} knows this node by another address than {way.own}", "Correct gb10_fabric_address of this node."),
        "refused": (f"the source {where} and this node do not have the same one-time secret: {error.detail}", f"Run again. When it comes back: {see}"),
        "busy": (f"too many are connected to the source {where}", f"Run again. When it comes back: {see}"),
    }.get(
        error.reason,
        (
            f"the connection to {way.address} was cut: {error.detail}; nothing of the image is kept",
            "Run again. When it comes back, see the link: ansible-playbook -i INVENTORY gb10.cluster.doctor --tags fabric",
        ),
    )
    return ClusterError(message, remedy=remedy, reason="refused" if error.reason == "stranger" else error.reason)


def frames(way: block_client.Way, wanted: t.Collection[str]) -> t.Iterator[tuple[int, bytes]]:
    """Yield what the source sends of the blobs that are wanted, once it has proved that it is the source. Raises :class:`ClusterError`."""
    try:
        connection = block_client.Connection(way, threading.Event())
    except block_client.Trouble as error:
        raise trouble(way, error) from error
    try:
        sock = connection.channel()
        request = json.dumps(sorted(wanted)).encode()
        blocks.send(sock, image_server.REQUEST.pack(len(request)) + request)
        kind = image_server.ALIVE
        while kind != image_server.END:
            kind, length = image_server.FRAME.unpack(blocks.receive(sock, image_server.FRAME.size))
            if length > image_server.CHUNK:
                raise image_loading.foreign(f"a piece of {length} bytes")
            content = blocks.receive(sock, length)
            if kind == image_server.FAILED:
                raise broken_off(way, content.decode("utf-8", "replace"))
            if kind != image_server.ALIVE:
                yield kind, content
    except blocks.Lost as error:
        raise trouble(way, block_client.Trouble("cut", str(error))) from error
    except block_client.Trouble as error:
        raise trouble(way, error) from error
    finally:
        connection.close()


def broken_off(way: block_client.Way, said: str) -> ClusterError:
    """Return the error for an export that the source could not give, with its own words."""
    return ClusterError(
        f"the source {way.address} broke off: {said[:2000]}; nothing of the image is kept",
        remedy="See on the source: journalctl -k for its disk. Remove the image there, run with --tags image, and it is built again.",
        reason="disk full" if os.strerror(errno.ENOSPC) in said else "wrong digest",
    )


def fetch(api: EngineApi, way: block_client.Way, offer: Offer, lacking: Lacks, timeout: float, note: t.Callable[[str], None]) -> int:
    """Pass what is lacking on from the source to this node's engine, and return the bytes that came.

    Raises :class:`ClusterError` with the cause, :class:`WaitTimeout`.
    """
    small = image_loading.lists(offer["store"], lacking.images, offer["layers"])
    parts = image_loading.archive(small, lacking.blobs, frames(way, lacking.blobs))
    came = image_loading.load(api, parts, lacking.size, timeout, note)
    image_loading.verify(api, offer["image"], offer["image_id"], offer["layers"], timeout)
    return came


def is_full(error: OSError) -> bool:
    """Return whether a disk is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
