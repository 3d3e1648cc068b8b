# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An image moves from one node's Docker engine to another's, without the layers that are there. This module util is PRIVATE to the collection.

The node that has it runs :mod:`image_server` for the time of the copy; the one that lacks it passes what comes on to its own engine, through no file and
no shell. The engine takes an image whole or not at all: what it was sent before a connection was cut is gone with it.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import inspect
import ipaddress
import json
import os
import secrets
import shutil
import socket
import sys
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker import image_store
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi, engine_message
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._files.copy_job import GIB, Rate
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_server
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import transient
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: Defaults of ``image_copy`` that its action plugin needs, too.
TIMEOUT = 7200
STATE_DIR = "/var/lib/gb10"

#: Where the files of what gives an image out lie, below a directory that a reboot empties.
RUN = "gb10-image-copy"
#: The program among them.
PROGRAM = "give.py"
SECRET_BYTES = 24
#: Seconds that a connection may take, that a source may be silent (before its first byte it reads what the layers' tars were), and that it gets to listen.
CONNECT_SECONDS, SILENT_SECONDS, LISTEN_SECONDS = 10, 120, 10
#: Bytes of the engine's answer to what was loaded.
ANSWER_LIMIT = 1 << 20
#: How often what is missing must fit on the engine's disk. The classic store unpacks what it is sent, and then each layer of that. containerd's keeps
#: what it is sent, which is compressed (in the lab to a quarter), and unpacks it.
TIMES = {"classic": 2, "containerd": 5}

#: Reasons for which a node cannot copy at all, so that it may pull and build instead.
UNABLE = ("no systemd", "no address", "port taken", "unreachable", "no name", "other store")

ALONE = "Let each node pull and build by itself: gb10_image_copy: preferred"

Offer = dict[str, t.Any]


def unit_name(cluster: str) -> str:
    """Return the name of the unit that gives an image out."""
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


def layers_in(answer: dict[str, t.Any]) -> list[str]:
    """Return the layers of an image, as the engine describes it."""
    return [str(one) for one in (answer.get("RootFS") or {}).get("Layers") or []]


def common(first: t.Sequence[str], second: t.Sequence[str]) -> int:
    """Return how many layers two images begin with together."""
    return next((number for number, (one, other) in enumerate(zip(first, second)) if one != other), min(len(first), len(second)))


def offer_of(api: EngineApi, image: str, base: str) -> tuple[Offer, dict[str, t.Any]]:
    """Return what this node can give of an image, for the other nodes, and the settings of the program that gives it.

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
    info = api.get("/info")
    layers = layers_in(found)
    images = [{"id": found["Id"], "names": [image], "layers": len(layers)}]
    below = api.image(base) if base and "@" not in base else None
    if below is not None and below["Id"] != found["Id"] and common(layers_in(below), layers) == len(layers_in(below)):
        images.insert(0, {"id": below["Id"], "names": [base], "layers": len(layers_in(below))})
    elif below is not None and below["Id"] == found["Id"] and base != image:
        images[0]["names"].append(base)
    root, driver, store = str(info.get("DockerRootDir")), str(info.get("Driver")), image_store.store_of(info)
    how, sizes, blobs, why = "engine", [], [], ""
    try:
        if store == "containerd":
            each = image_server.manifest_of(root, found["Id"])
            if len(each.layers) != len(layers):
                raise image_server.Unreadable(f"{image} has {len(layers)} layers and {len(each.layers)} blobs of them")
            images = [one for one in images if one["id"] == found["Id"] or _is_plain(root, one["id"])]
            how, sizes, blobs = "blobs", [size for _digest, size in each.layers], [digest for digest, _size in each.layers]
        else:
            placed = image_server.layers_of(root, driver, layers)
            for one in images:
                image_server.config_of(root, driver, one["id"])
            how, sizes = "layers", [layer.size for layer in placed]
    except (image_server.Unreadable, OSError, ValueError) as error:
        why = str(error)
    offer = {"image": image, "image_id": found["Id"], "layers": layers, "sizes": sizes, "size": int(found.get("Size") or 0), "how": how, "why": why}
    offer |= {"store": store, "blobs": blobs}
    settings = {"how": how, "root": root, "driver": driver, "layers": layers, "images": images, "export": [name for one in images for name in one["names"]]}
    return offer, {**settings, "socket": api.socket_path}


def _is_plain(root: str, image_id: str) -> bool:
    """Return whether an image is of one platform, so that it can be given with the layers of another one."""
    try:
        image_server.manifest_of(root, image_id)
    except (image_server.Unreadable, OSError, ValueError):
        return False
    return True


def require_offer(offer: t.Any) -> Offer:
    """Return what a node that gives said. Raises :class:`ClusterError` when it is no such thing."""
    if not isinstance(offer, dict) or {"image", "image_id", "layers", "sizes", "size", "how", "store", "blobs"} - set(offer):
        raise ClusterError("offer is not what the node that gives the image out returned", remedy="Give RETURN's offer of state=served.", reason="input")
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


def present(api: EngineApi, offer: Offer, root: str) -> int:
    """Return how many of the image's layers, from the lowest, this node's engine has."""
    if offer["how"] == "engine":
        return 0
    most = 0
    for entry in api.get("/images/json", all=0):
        found = api.image(entry["Id"])
        most = max(most, common(layers_in(found), offer["layers"]) if found else 0)
    if offer["how"] == "blobs":
        # The same layer may lie here compressed in another way.
        return next((number for number, digest in enumerate(offer["blobs"][:most]) if not _has_blob(root, digest)), most)
    return most


def _has_blob(root: str, digest: str) -> bool:
    try:
        return bool(image_server.blob_path(root, digest))
    except image_server.Unreadable:
        return False


def missing_bytes(offer: Offer, have: int) -> int:
    """Return about how many bytes are missing: those of the layers, or all that the engine says the image has."""
    return sum(offer["sizes"][have:]) if offer["how"] != "engine" else offer["size"]


def require_space(free: int, needed: int, floor_gib: int, root: str) -> None:
    """Raise :class:`ClusterError` when the engine's disk has not enough room (bytes) for what it needs and what must stay free (GiB)."""
    if free - needed < floor_gib * GIB:
        raise ClusterError(
            f"{root} has {free / GIB:.1f} GiB free",
            expected=f"{needed / GIB:.1f} GiB to load the image and {floor_gib} GiB that stay free",
            remedy="See what could go: docker system df, and ansible-playbook -i INVENTORY gb10.cluster.prune",
            reason="disk full",
            free_bytes=free,
            needed_bytes=needed,
        )


# -- the node that gives ---------------------------------------------------------------------------------------------


def settings_text(settings: dict[str, t.Any], address: str, port: int, clients: t.Sequence[str]) -> str:
    """Return the settings of the program as it reads them. Raises :class:`ClusterError` for a client that is no address."""
    for one in clients:
        try:
            ipaddress.ip_address(one)
        except ValueError as error:
            raise ClusterError(f"clients: {one!r} is no IP address", remedy="Set gb10_fabric_address of that host.", reason="input") from error
    return json.dumps({**settings, "address": address, "port": port, "clients": list(clients)})


def start(cluster: str, settings: dict[str, t.Any], address: str, port: int, clients: t.Sequence[str], seconds: int) -> str:
    """Give the image out, and return where the secret lies. What was left over of this cluster is ended first. Raises :class:`ClusterError`."""
    systemd_run = transient.find_systemd_run(ALONE)
    unit, place = unit_name(cluster), run_dir(cluster)
    transient.stop(unit, place)
    transient.require_address(address, port, "gb10_image_port")
    os.makedirs(place, mode=0o700)
    secret, program = os.path.join(place, image_server.SECRET), os.path.join(place, PROGRAM)
    transient.write_private(secret, f"{secrets.token_hex(SECRET_BYTES)}\n")
    transient.write_private(os.path.join(place, image_server.SETTINGS), settings_text(settings, address, port, clients))
    transient.write_private(program, inspect.getsource(image_server))
    about = f"gb10.cluster: copy of an image to the other nodes of cluster {cluster}"
    more = {"ProtectSystem": "strict", "ProtectHome": "yes"}
    argv = transient.unit_argv(systemd_run, unit, about, place, seconds, [sys.executable, "-B", program, place], more)
    answer = run_tool(argv, transient.SYSTEMD_SECONDS)
    if answer.rc != 0:
        shutil.rmtree(place)
        raise ClusterError(f"systemd cannot start the copy: {answer.raw[:300]}", remedy="See on the node: journalctl --since -5min", reason="no systemd")
    for _elapsed in clock(LISTEN_SECONDS, 0.1):
        if listens(address, port):
            return secret
        if not transient.is_active(unit):
            break
    said = run_tool(["journalctl", "--unit", unit, "--lines", "5", "--output", "cat", "--no-pager"], transient.SYSTEMD_SECONDS).raw
    transient.stop(unit, place)
    raise UnknownState(
        f"nobody gives the image out on {address}:{port}: {said[-300:]}",
        remedy=f"See on the node: journalctl --unit {unit}",
        reason="unreachable",
        raw=said[:2000],
    )


def listens(address: str, port: int, seconds: float = 2.0) -> bool:
    """Return whether somebody listens there."""
    try:
        with socket.create_connection((address, port), seconds):
            return True
    except OSError:
        return False


# -- the node that fetches -------------------------------------------------------------------------------------------


class Way(t.NamedTuple):
    """How the source is reached, and from which address."""

    own: str
    address: str
    port: int
    secret: str

    def __repr__(self) -> str:
        return f"Way({self.own}, {self.address}:{self.port})"


class _Engine(http.client.HTTPConnection):
    """A connection to this node's engine for a body that is as long as it is."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _ask(way: Way, path: str, seconds: float) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection(way.address, way.port, timeout=CONNECT_SECONDS, source_address=(way.own, 0))
    try:
        connection.connect()
    except OSError as error:
        connection.close()
        raise ClusterError(
            f"the source {way.address}:{way.port} cannot be reached: {error.strerror or error}",
            remedy="See whether a firewall between the nodes closes gb10_image_port, and whether the link is up: "
            "ansible-playbook -i INVENTORY gb10.cluster.fabric",
            reason="unreachable",
        ) from error
    try:
        connection.sock.settimeout(seconds)
        connection.request("GET", path, headers={"Authorization": f"Bearer {way.secret}", "Connection": "close"})
        return connection, connection.getresponse()
    except TimeoutError as error:
        connection.close()
        raise _cut(way, f"it said nothing for {seconds:g} s") from error
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        raise ClusterError(
            f"the source {way.address}:{way.port} closed the connection at once",
            remedy="It knows this node by another address: correct gb10_fabric_address of this node. "
            f"Else see on the source: journalctl --since -10min -u '{RUN}*'",
            reason="refused",
        ) from error


def _cut(way: Way, what: str) -> ClusterError:
    return ClusterError(
        f"the connection to {way.address} was cut: {what}; nothing of the image is kept",
        remedy="Run again. When it comes back, see the link: ansible-playbook -i INVENTORY gb10.cluster.fabric",
        reason="cut",
    )


def _why(way: Way) -> str:
    """Return why the source broke off, empty when it does not say."""
    with contextlib.suppress(ClusterError, OSError, http.client.HTTPException):
        connection, answer = _ask(way, "/failure", CONNECT_SECONDS)
        with contextlib.closing(connection), answer:
            return answer.read(2000).decode("utf-8", "replace").strip() if answer.status == 200 else ""
    return ""


def broken_off(way: Way, what: str) -> ClusterError:
    """Return the error for a stream that ended too early, with the source's own reason where it has one."""
    said = _why(way)
    if not said:
        return _cut(way, what)
    return ClusterError(
        f"the source {way.address} broke off: {said}; nothing of the image is kept",
        remedy="See on the source: journalctl -k for its disk. Remove the image there, run with --tags image, and it is built again.",
        reason="wrong digest",
    )


def said_by_engine(status: int, body: bytes) -> str:
    """Return what the engine says went wrong with a load, empty when nothing did."""
    if status >= 400:
        return engine_message(body)
    for line in body.splitlines():
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict) and event.get("error"):
                return str(event["error"])
    return ""


def refused(words: str) -> ClusterError:
    """Return the error for an image that the engine did not take."""
    if "no space left on device" in words.lower() or "disk quota exceeded" in words.lower():
        remedy = "Free some, see docker system df, and run again."
        return ClusterError(f"the disk of the Docker engine is full: {words}; nothing of the image is kept", remedy=remedy, reason="disk full")
    return ClusterError(
        f"the Docker engine did not take the image: {words}; nothing of it is kept",
        remedy="Run again. When it comes back, see on this node: journalctl -u docker --since -10min",
        reason="wrong digest" if "digest" in words.lower() or "diffid" in words.lower() else "engine",
    )


def fetch(api: EngineApi, way: Way, have: int, timeout: float, note: t.Callable[[str], None]) -> int:
    """Pass the image on from the source to this node's engine, without its first ``have`` layers, and return the bytes that came.

    Raises :class:`ClusterError` with the cause, :class:`WaitTimeout`.
    """
    source, answer = _ask(way, f"/image/{have}", SILENT_SECONDS)
    with contextlib.closing(source), answer:
        if answer.status != 200:
            raise ClusterError(
                f"the source {way.address} did not take the one-time secret: {answer.read(500).decode('utf-8', 'replace').strip()}",
                remedy=f"Run again. When it comes back, see on the source: journalctl --since -10min -u '{RUN}*'",
                reason="refused",
            )
        return load(api, _parts(way, answer), answer.length or 0, timeout, note)


def _parts(way: Way, answer: http.client.HTTPResponse) -> t.Iterator[memoryview]:
    """Yield what the source sends. Raises :class:`ClusterError` when fewer bytes came than were announced."""
    total, came = answer.length or 0, 0
    buffer = bytearray(image_server.CHUNK)
    view = memoryview(buffer)
    while True:
        try:
            count = answer.readinto(view)
        except (OSError, http.client.HTTPException) as error:
            raise broken_off(way, str(error) or "it ended early") from error
        if not count:
            break
        came += count
        yield view[:count]
    if total and came < total:
        raise broken_off(way, f"{came} of {total} bytes came")


def load(api: EngineApi, parts: t.Iterable[bytes | memoryview], total: int, timeout: float, note: t.Callable[[str], None]) -> int:
    """Pass the parts of a stream of about ``total`` bytes on to this node's engine as they come, and return the bytes of them.

    Raises :class:`ClusterError` with the engine's words, :class:`WaitTimeout`, and what ``parts`` raises: the engine keeps nothing then.
    """
    began = time.monotonic()
    with contextlib.closing(_Engine(api.socket_path, timeout)) as engine:
        try:
            engine.putrequest("POST", f"/v{api.version}/images/load?quiet=1")
            engine.putheader("Content-Type", "application/x-tar")
            engine.putheader("Transfer-Encoding", "chunked")
            engine.endheaders()
        except OSError as error:
            raise UnknownState(f"the Docker engine cannot be reached: {error}", remedy="Start it: systemctl start docker.") from error
        came, taken = _pass_on(parts, total, engine, began + timeout, note)
        words = _loaded(engine, began, timeout) if taken else _last_words(engine)
    if words or not taken:
        raise refused(words or "it closed the connection")
    return came


def _pass_on(
    parts: t.Iterable[bytes | memoryview], total: int, engine: http.client.HTTPConnection, deadline: float, note: t.Callable[[str], None]
) -> tuple[int, bool]:
    """Return how many bytes came, and whether the engine took them all."""
    rate, came, began = Rate(), 0, time.monotonic()
    for part in parts:
        if not part:
            # An empty one would be the end.
            continue
        came += len(part)
        try:
            engine.sock.sendall(f"{len(part):x}\r\n".encode())
            engine.sock.sendall(part)
            engine.sock.sendall(b"\r\n")
        except OSError:
            # It has said why before it closed.
            return came, False
        now = time.monotonic()
        note(rate.text(now - began, came, max(total, came)))
        if now > deadline:
            raise WaitTimeout(
                f"the image did not arrive in time: {rate.text(now - began, came, max(total, came))}; nothing of it is kept",
                remedy="Raise gb10_copy_timeout for a slow link, or see why it is: gb10.cluster.fabric",
                reason="slow",
            )
    try:
        engine.sock.sendall(b"0\r\n\r\n")
    except OSError:
        return came, False
    note("all of it came, the engine unpacks it")
    return came, True


def _loaded(engine: http.client.HTTPConnection, began: float, timeout: float) -> str:
    """Return what the engine says went wrong, once it has unpacked what it was sent."""
    engine.sock.settimeout(max(1.0, began + timeout - time.monotonic()))
    try:
        with engine.getresponse() as answer:
            return said_by_engine(answer.status, answer.read(ANSWER_LIMIT))
    except TimeoutError as error:
        raise WaitTimeout(
            f"the Docker engine did not unpack the image within {timeout:g} s", remedy="See what it does: journalctl -u docker --since -10min", reason="slow"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise UnknownState(f"the Docker engine broke off while it unpacked the image: {error!r}", remedy="See journalctl -u docker --since -10min") from error


def _last_words(engine: http.client.HTTPConnection) -> str:
    """Return why the engine stopped reading."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        engine.sock.settimeout(CONNECT_SECONDS)
        with engine.getresponse() as answer:
            return said_by_engine(answer.status, answer.read(ANSWER_LIMIT))
    return ""


def is_full(error: OSError) -> bool:
    """Return whether a disk is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
