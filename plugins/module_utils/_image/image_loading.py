# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Loads an archive into this node's Docker engine. This module util is PRIVATE to the collection.

The archive is built here, from blobs whose digests are known before the first byte: their names and the images' names never come from the other
node. It is completed only after every digest matches, and an engine keeps nothing of an incomplete archive.
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
from ansible_collections.gb10.cluster.plugins.module_utils._files import copy_job
from ansible_collections.gb10.cluster.plugins.module_utils._image.image_identity import layers_in
from ansible_collections.gb10.cluster.plugins.module_utils._image.image_server import ABOUT, BLOB, DATA, END, Engine
from ansible_collections.gb10.cluster.plugins.module_utils._image.images import full_name

#: Seconds to wait for the message of an engine that stopped reading.
WORDS_SECONDS = 10
#: Most bytes of the engine's answer to a load.
ANSWER_LIMIT = 1 << 20
#: How many times the missing bytes must fit on the engine's disk. The classic store unpacks the archive, and then each of its layers. containerd's keeps
#: the archive, which is compressed (in the lab to a quarter), and unpacks it.
TIMES = {"classic": 2, "containerd": 5}

#: Two blocks of zeros end a tar.
TAR_END = bytes(2 * tarfile.BLOCKSIZE)


def require_space(root: str, free: int, needed: int, floor_gib: int, what: str = "to load the image") -> None:
    """Raise :class:`ClusterError` unless a disk has room (bytes) for what is needed and for what must stay free (GiB)."""
    remedy = "See what could go: docker system df, and ansible-playbook -i INVENTORY gb10.cluster.prune"
    copy_job.require_space(root, free, needed, floor_gib, what, remedy)


# -- the archive -----------------------------------------------------------------------------------------------------


def path_of(digest: str) -> str:
    """Return a blob's path in an archive."""
    return f"blobs/sha256/{digest.partition(':')[2]}"


def lists(store: str, images: t.Sequence[dict[str, t.Any]], layers: t.Sequence[str]) -> dict[str, bytes]:
    """Return the files that list the images of an archive for an engine, with their names and all their layers, including those that it has.

    containerd's store assigns unpacked layers to the first image of the list: a base must precede the image that was built on it (seen with engine 26.1.5).
    """
    if store == "classic":
        each = [{"Config": path_of(image["id"]), "RepoTags": image["names"], "Layers": list(map(path_of, layers[:image["layers"]]))} for image in images]
        return {"manifest.json": json.dumps(each).encode()}
    entries = []
    for image in images:
        about = {"mediaType": image["kind"], "digest": image["id"], "size": dict(image["about"])[image["id"]]}
        names = [{"io.containerd.image.name": full_name(name), "org.opencontainers.image.ref.name": name.rpartition(":")[2]} for name in image["names"]]
        entries += [{**about, "annotations": name} for name in names]
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": entries}
    return {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}


def header(name: str, size: int) -> bytes:
    """Return the header of a file of a tar."""
    about = tarfile.TarInfo(name)
    about.size, about.mode = size, 0o644
    return about.tobuf(tarfile.GNU_FORMAT)


def padding(size: int) -> bytes:
    """Return the bytes that complete the last block of a file of a tar."""
    return bytes(-size % tarfile.BLOCKSIZE)


def foreign(what: str) -> ClusterError:
    """Return the error for anything but the offered image."""
    return ClusterError(
        f"received data that is not the offered image: {what}; nothing of it is kept",
        remedy="Run again. If it fails again, check the source's disk (journalctl -k), and what else is connected to the fabric.",
        reason="wrong digest",
    )


def archive(small: t.Mapping[str, bytes], limits: t.Mapping[str, int], frames: t.Iterable[tuple[int, bytes]]) -> t.Iterator[bytes]:
    """Yield an archive of small files and the received blobs, each of which must be in ``limits`` (its most bytes) and have its digest.

    Raises :class:`ClusterError` before the archive's end for anything else.
    """
    for name, text in small.items():
        yield header(name, len(text)) + text + padding(len(text))
    left, digest, size, rest, hasher = dict(limits), "", 0, 0, hashlib.sha256()
    for kind, content in frames:
        if kind == DATA and 0 < len(content) <= rest:
            rest -= len(content)
            hasher.update(content)
            yield content
        elif kind == BLOB and not rest and len(content) == ABOUT.size:
            raw, size = ABOUT.unpack(content)
            digest, rest, hasher = f"sha256:{raw.hex()}", size, hashlib.sha256()
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
            if f"sha256:{hasher.hexdigest()}" != digest:
                raise foreign(f"{digest} has another content")
            yield padding(size)
    raise foreign(f"it lacks {', '.join(left) or 'its end'}")


# -- into the engine -------------------------------------------------------------------------------------------------


def said_by_engine(status: int, body: bytes) -> str:
    """Return the engine's message about a failed load, empty after success."""
    if status >= 400:
        return engine_message(body)
    for line in body.splitlines():
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict) and event.get("error"):
                return str(event["error"])
    return ""


def refused(words: str) -> ClusterError:
    """Return the error for an image that the engine refused."""
    if "no space left on device" in words.lower() or "disk quota exceeded" in words.lower():
        return ClusterError(
            f"the disk of the Docker engine is full: {words}; nothing of the image is kept",
            remedy="Free some space, see docker system df, and run again.",
            reason="disk full",
        )
    return ClusterError(
        f"the Docker engine refused the image: {words}; nothing of it is kept",
        remedy="Run again. If it fails again, run on this node: journalctl -u docker --since -10min",
        reason="wrong digest" if "digest" in words.lower() or "diffid" in words.lower() else "engine",
    )


def load(api: EngineApi, parts: t.Iterable[bytes | memoryview], total: int, timeout: float, note: t.Callable[[str], None]) -> int:
    """Stream the parts of an archive of about ``total`` bytes to this node's engine, and return their bytes.

    Raises :class:`ClusterError` with the engine's message, :class:`WaitTimeout`, and as ``parts`` does: the engine keeps nothing then.
    """
    began = time.monotonic()
    with contextlib.closing(Engine(api.socket_path, timeout)) as engine:
        try:
            engine.putrequest("POST", f"/v{api.version}/images/load?quiet=1")
            engine.putheader("Content-Type", "application/x-tar")
            engine.putheader("Transfer-Encoding", "chunked")
            engine.endheaders()
        except OSError as error:
            raise UnknownState(f"the Docker engine cannot be reached: {error}", remedy="Run systemctl start docker.") from error
        size, is_sent = _pass_on(parts, total, engine, began + timeout, note)
        words = _loaded(engine, began, timeout) if is_sent else _last_words(engine)
    if words or not is_sent:
        raise refused(words or "it closed the connection")
    return size


def _pass_on(
    parts: t.Iterable[bytes | memoryview], total: int, engine: http.client.HTTPConnection, deadline: float, note: t.Callable[[str], None]
) -> tuple[int, bool]:
    """Return the bytes of the parts, and whether the engine read them all."""
    rate, size, began = copy_job.Rate(), 0, time.monotonic()
    # An empty part would end the body.
    for part in filter(None, parts):
        size += len(part)
        try:
            for piece in (f"{len(part):x}\r\n".encode(), part, b"\r\n"):
                engine.sock.sendall(piece)
        except OSError:
            # Its message came before it closed the connection.
            return size, False
        now = time.monotonic()
        note(rate.text(now - began, size, max(total, size)))
        if now > deadline:
            raise WaitTimeout(
                f"the image did not arrive in time: {rate.text(now - began, size, max(total, size))}; nothing of it is kept",
                remedy="Raise gb10_transfer_timeout for a slow link, or measure it: gb10.cluster.doctor --tags fabric",
                reason="slow",
            )
    try:
        engine.sock.sendall(b"0\r\n\r\n")
    except OSError:
        return size, False
    note("all of it was sent, the engine unpacks it")
    return size, True


def _loaded(engine: http.client.HTTPConnection, began: float, timeout: float) -> str:
    """Return the engine's message about a failure to unpack the archive, empty after success."""
    engine.sock.settimeout(max(1.0, began + timeout - time.monotonic()))
    try:
        with engine.getresponse() as answer:
            return said_by_engine(answer.status, answer.read(ANSWER_LIMIT))
    except TimeoutError as error:
        raise WaitTimeout(
            f"the Docker engine did not unpack the image within {timeout:g} s", remedy="Run journalctl -u docker --since -10min", reason="slow"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise UnknownState(
            f"the Docker engine closed the connection while it unpacked the image: {error!r}", remedy="Run journalctl -u docker --since -10min"
        ) from error


def _last_words(engine: http.client.HTTPConnection) -> str:
    """Return the message of an engine that stopped reading."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        engine.sock.settimeout(WORDS_SECONDS)
        with engine.getresponse() as answer:
            return said_by_engine(answer.status, answer.read(ANSWER_LIMIT))
    return ""


def verify(api: EngineApi, image: str, image_id: str, layers: t.Sequence[str], timeout: float) -> None:
    """Verify that a name has the image, that the image has its layers, and that they are unpacked: a load may succeed without unpacking.

    A container is created for that and never started. If that fails, the image loses the name again. Raises :class:`ClusterError`.
    """
    answer = api.image(image) or {}
    if answer.get("Id") != image_id or layers_in(answer) != list(layers):
        raise ClusterError(
            f"{image} is {answer.get('Id') or 'absent'} after the load",
            expected=f"{image_id} with {len(layers)} layers",
            remedy="Find out which process tags or removes images here, and run again.",
            reason="other content",
        )
    try:
        api.try_image(image_id, {LABEL_OWNER: OWNER, LABEL_ROLE: "probe"}, timeout)
    except ClusterError as error:
        api.untag(image)
        raise ClusterError(
            f"the Docker engine loaded {image} but cannot create a container from it: {error}; the name was removed again",
            remedy="Run on this node: journalctl -u docker --since -10min, and docker system df. Then run again.",
            reason="engine",
        ) from error
