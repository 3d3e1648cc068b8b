# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What loads an archive into this node's Docker engine. This module util is PRIVATE to the collection.

The archive is made here, from blobs whose digests are known before the first byte: their names, and the names that images get, never come from the other
node. It has no end until every digest matches, and an engine keeps nothing of an archive without one.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import tarfile
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import LABEL_OWNER, LABEL_ROLE, OWNER, EngineApi, engine_message
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._files.copy_job import GIB, Rate, no_space
from ansible_collections.gb10.cluster.plugins.module_utils._image.image_server import ABOUT, BLOB, DATA, END, Engine
from ansible_collections.gb10.cluster.plugins.module_utils._image.images import with_tag

#: Seconds in which an engine that stopped reading says why.
WORDS_SECONDS = 10
#: Bytes of the engine's answer to what was loaded.
ANSWER_LIMIT = 1 << 20
#: How often what is missing must fit on the engine's disk. The classic store unpacks what it is sent, and then each layer of that. containerd's keeps
#: what it is sent, which is compressed (in the lab to a quarter), and unpacks it.
TIMES = {"classic": 2, "containerd": 5}

#: Two blocks of zeros end a tar.
TAR_END = bytes(2 * tarfile.BLOCKSIZE)


def require_space(free: int, needed: int, floor_gib: int, root: str, what: str = "to load the image") -> None:
    """Raise :class:`ClusterError` when a disk has not enough room (bytes) for what is needed and what must stay free (GiB)."""
    if free - needed < floor_gib * GIB:
        remedy = "See what could go: docker system df, and ansible-playbook -i INVENTORY gb10.cluster.prune"
        raise no_space(root, free, needed, floor_gib, what, remedy)


# -- the archive -----------------------------------------------------------------------------------------------------


def full_name(name: str) -> str:
    """Return an image's name with its registry and tag, as containerd keeps it."""
    head, slash, rest = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif not ("." in head or ":" in head or head == "localhost"):
        name = f"docker.io/{head}/{rest}"
    return with_tag(name)


def path_of(digest: str) -> str:
    """Return a blob's name in an archive."""
    return f"blobs/sha256/{digest.partition(':')[2]}"


def lists(store: str, images: t.Sequence[dict[str, t.Any]], layers: t.Sequence[str]) -> dict[str, bytes]:
    """Return the files by which an engine knows the images of an archive and their names; of all their layers, also of those that it has.

    containerd's store keeps what it unpacked for the image that it was named first: a base has to come before what stands on it (seen with engine 26.1.5).
    """
    if store == "classic":
        each = [{"Config": path_of(one["id"]), "RepoTags": one["names"], "Layers": list(map(path_of, layers[:one["layers"]]))} for one in images]
        return {"manifest.json": json.dumps(each).encode()}
    entries = []
    for one in images:
        about = {"mediaType": one["kind"], "digest": one["id"], "size": dict(one["about"])[one["id"]]}
        words = [{"io.containerd.image.name": full_name(name), "org.opencontainers.image.ref.name": name.rpartition(":")[2]} for name in one["names"]]
        entries += [{**about, "annotations": word} for word in words]
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": entries}
    return {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}


def header(name: str, size: int) -> bytes:
    """Return what stands before a file of a tar."""
    about = tarfile.TarInfo(name)
    about.size, about.mode = size, 0o644
    return about.tobuf(tarfile.GNU_FORMAT)


def padding(size: int) -> bytes:
    """Return what fills the last block of a file of a tar."""
    return bytes(-size % tarfile.BLOCKSIZE)


def foreign(what: str) -> ClusterError:
    """Return the error for what is not the image that was offered."""
    return ClusterError(
        f"what came is not the image that was offered: {what}; nothing of it is kept",
        remedy="Run again. When it comes back, see the source's disk (journalctl -k), and what else is connected to the fabric.",
        reason="wrong digest",
    )


def archive(small: t.Mapping[str, bytes], limits: t.Mapping[str, int], frames: t.Iterable[tuple[int, bytes]]) -> t.Iterator[bytes]:
    """Yield an archive of small files and of the blobs that come, each of which must be one of ``limits`` (its most bytes) and have its digest.

    Raises :class:`ClusterError` before the archive's end for anything else.
    """
    for name, text in small.items():
        yield header(name, len(text)) + text + padding(len(text))
    left, digest, size, rest, found = dict(limits), "", 0, 0, hashlib.sha256()
    for kind, content in frames:
        if kind == DATA and 0 < len(content) <= rest:
            rest -= len(content)
            found.update(content)
            yield content
        elif kind == BLOB and not rest and len(content) == ABOUT.size:
            raw, size = ABOUT.unpack(content)
            digest, rest, found = f"sha256:{raw.hex()}", size, hashlib.sha256()
            if digest not in left:
                raise foreign(f"it has {digest} {'twice' if digest in limits else 'besides'}")
            if size > left.pop(digest):
                raise foreign(f"{digest} has {size} bytes, more than the {limits[digest]} that it may have")
            yield header(path_of(digest), size)
        elif kind == END and not rest and not left:
            yield TAR_END
            return
        else:
            raise foreign(f"it ends early, or {digest or 'its beginning'} has other bytes than were announced")
        if not rest:
            if f"sha256:{found.hexdigest()}" != digest:
                raise foreign(f"{digest} has another content")
            yield padding(size)
    raise foreign(f"it lacks {', '.join(left) or 'its end'}")


# -- into the engine -------------------------------------------------------------------------------------------------


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


def load(api: EngineApi, parts: t.Iterable[bytes | memoryview], total: int, timeout: float, note: t.Callable[[str], None]) -> int:
    """Pass the parts of an archive of about ``total`` bytes on to this node's engine as they come, and return the bytes of them.

    Raises :class:`ClusterError` with the engine's words, :class:`WaitTimeout`, and what ``parts`` raises: the engine keeps nothing then.
    """
    began = time.monotonic()
    with contextlib.closing(Engine(api.socket_path, timeout)) as engine:
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
                remedy="Raise gb10_transfer_timeout for a slow link, or measure it: gb10.cluster.doctor --tags fabric",
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
        engine.sock.settimeout(WORDS_SECONDS)
        with engine.getresponse() as answer:
            return said_by_engine(answer.status, answer.read(ANSWER_LIMIT))
    return ""


def verify(api: EngineApi, image: str, image_id: str, layers: t.Sequence[str], timeout: float) -> None:
    """Make sure that a name has an image, that image its layers, and that they are unpacked: an engine may take an image that it could not unpack.

    A container is created for that and never started. Without one the image loses the name again. Raises :class:`ClusterError`.
    """
    found = api.image(image) or {}
    if found.get("Id") != image_id or (found.get("RootFS") or {}).get("Layers") != list(layers):
        raise ClusterError(
            f"{image} is {found.get('Id') or 'absent'} after the load",
            expected=f"{image_id} with {len(layers)} layers",
            remedy="Somebody else tags or removes images here. Find out who, and run again.",
            reason="other content",
        )
    try:
        api.try_image(image_id, {LABEL_OWNER: OWNER, LABEL_ROLE: "probe"}, timeout)
    except ClusterError as error:
        api.untag(image)
        raise ClusterError(
            f"the Docker engine took {image} and makes no container of it: {error}; it has lost the name again",
            remedy="See on this node: journalctl -u docker --since -10min, and docker system df. Then run again.",
            reason="engine",
        ) from error
