# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An engine pushes an image's wanted blobs and no others, and keeps its image without the names of a copy. No other client can push."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import typing as t
from pathlib import Path

import pytest
from engine_tree import Engine, sha256

from ansible_collections.gb10.cluster.plugins.module_utils._image import image_registry, image_server
from ansible_collections.gb10.cluster.plugins.module_utils._image.image_server import Broken, Unreadable

BLOB = b"b" * 3000
WANTED = sha256(BLOB)


@pytest.fixture
def engine(tmp_path: Path) -> t.Iterator[Engine]:
    made = Engine(tmp_path)
    made.use_containerd()
    made.build("base:1", None, {"etc/base": b"b" * 5000})
    made.build("node:1", "base:1", {"opt/ray": b"r" * 5000})
    yield made
    made.close()


def push(engine: Engine, wanted: t.Collection[str]) -> tuple[dict[str, bytes], str]:
    blobs: dict[str, bytes] = {}
    pushed = image_server.push(engine.socket, engine.tags["node:1"], wanted, lambda digest, _size, parts: blobs.update({digest: b"".join(parts)}), 5)
    return blobs, pushed.words


def test_the_manifest_comes_without_a_layer_and_then_the_wanted_layer_alone(engine: Engine) -> None:
    image_id = engine.tags["node:1"]
    blobs, words = push(engine, [image_id])
    assert list(blobs) == [image_id] and engine.sent == [] and "403" in words
    layer = engine.images[image_id]["packed"][1]["digest"]
    assert push(engine, {layer, image_id})[0] == {digest: engine.blobs[digest] for digest in (layer, image_id)} and engine.sent == [layer]
    assert set(engine.tags) == {"base:1", "node:1"} and engine.exported == 0


def test_of_an_index_every_manifest_comes(engine: Engine) -> None:
    image_id = engine.tags["node:1"]
    own = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": image_id}
    index = engine.put_blob(json.dumps({"mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [own]}).encode())["digest"]
    engine.images[index], engine.tags["node:1"] = {**engine.images[image_id], "Id": index}, index
    for wanted in ([index], [image_id], [index, image_id, engine.images[index]["packed"][0]["digest"]]):
        assert push(engine, wanted)[0] == {digest: engine.blobs[digest] for digest in wanted}


def test_the_name_is_removed_after_a_failed_push(engine: Engine) -> None:
    engine.pushes_not = "denied: pushes are not allowed"
    assert push(engine, [WANTED]) == ({}, '{"error": "denied: pushes are not allowed"}')
    engine.push = lambda *_given: 1 / 0  # type: ignore[assignment]
    with contextlib.redirect_stderr(None):
        assert push(engine, [WANTED]) == ({}, '{"status": "Preparing"}')
    assert set(engine.tags) == {"base:1", "node:1"}


def test_an_image_without_a_name_of_its_own_is_not_named(engine: Engine) -> None:
    """An engine removes an image with its last name."""
    image_id = engine.tags.pop("node:1")
    with pytest.raises(Unreadable, match="has no name of its own"):
        image_server.push(engine.socket, image_id, [image_id], lambda *_given: None, 5)
    assert set(engine.tags) == {"base:1"}
    engine.tags["node:1"] = image_id
    with pytest.raises(Unreadable, match="has no name of its own"):
        image_server.push(engine.socket, image_id, [image_id], lambda *_given: engine.tags.pop("node:1"), 5)
    (name,) = set(engine.tags) - {"base:1"}
    assert image_registry.LEFT.match(name)


def test_a_blob_that_does_not_come_whole_is_an_error(engine: Engine) -> None:
    layer = engine.images[engine.tags["node:1"]]["packed"][1]["digest"]

    def full(*_given: t.Any) -> None:
        raise OSError("the disk is full")

    with pytest.raises(Broken, match="the disk is full"):
        image_server.push(engine.socket, engine.tags["node:1"], [layer], full, 5)
    assert set(engine.tags) == {"base:1", "node:1"}


# -- the classic store -----------------------------------------------------------------------------------------------


@pytest.fixture
def classic(tmp_path: Path) -> t.Iterator[Engine]:
    made = Engine(tmp_path)
    made.build("base:1", None, {"etc/base": b"b" * 500_000})
    made.build("node:1", "base:1", {"opt/ray": b"r" * 5000})
    yield made
    made.close()


def layers_of(engine: Engine) -> list[str]:
    return engine.images[engine.tags["node:1"]]["RootFS"]["Layers"]


def test_a_classic_layer_is_identified_by_its_unpacked_content(classic: Engine) -> None:
    below, own = layers_of(classic)
    classic.pulled = {below}
    image_id = classic.tags["node:1"]
    blobs, words = push(classic, [own, image_id])
    assert blobs == {digest: classic.blobs[digest] for digest in (own, image_id)} and classic.sent == [own, image_id]
    assert "manifests/copy: 403" in words, "no digest of the copy's name stays"
    assert set(classic.tags) == {"base:1", "node:1"} and classic.exported == 0


def test_an_unwanted_small_classic_layer_is_dropped(classic: Engine) -> None:
    own = layers_of(classic)[1]
    assert push(classic, [own])[0] == {own: classic.blobs[own]} and len(classic.sent) == 2


def test_a_push_that_compresses_too_much_ends(classic: Engine) -> None:
    own = layers_of(classic)[1]
    words = image_server.push(classic.socket, classic.tags["node:1"], [own], lambda *_given: None, 5, 100_000).words
    assert words == "it knows the compressed digests of too few layers" and set(classic.tags) == {"base:1", "node:1"}


def test_a_layer_that_an_earlier_copy_pushed_comes_by_its_compressed_form(classic: Engine) -> None:
    below, own = classic.pulled = layers_of(classic)
    blobs: dict[str, bytes] = {}
    arguments = (classic.socket, classic.tags["node:1"], [own], lambda digest, _size, parts: blobs.update({digest: b"".join(parts)}), 5, 100_000)
    forms = image_server.push(*arguments).forms
    assert blobs == {} and classic.sent == [] and len(forms) == 2
    image_server.push(*arguments, lacks=forms[1:])
    assert blobs == {own: classic.blobs[own]} and classic.sent == [own]


@pytest.mark.parametrize("spoiled", [lambda packed: packed[:-9], lambda packed: packed[:60] + b"x" + packed[61:]], ids=["cut", "changed"])
def test_a_spoiled_classic_layer_is_not_taken(classic: Engine, spoiled: t.Callable[[bytes], bytes], capsys: pytest.CaptureFixture[str]) -> None:
    classic.pulled, own = {layers_of(classic)[0]}, layers_of(classic)[1]
    classic.pushed = spoiled
    blobs, _words = push(classic, [own])
    assert blobs == {} and "is incomplete" in capsys.readouterr().err


# -- who else pushes -------------------------------------------------------------------------------------------------


@pytest.fixture
def registry() -> t.Iterator[image_registry.Registry]:
    blobs: dict[str, bytes] = {}
    made = image_registry.Registry("sha256:1", [WANTED], lambda digest, _size, parts: blobs.update({digest: b"".join(parts)}), 5)
    made.found = blobs  # type: ignore[attr-defined]
    with made.serving():
        yield made


def status_of(registry: image_registry.Registry, method: str, path: str, body: t.Any = None, **headers: str) -> int:
    with contextlib.closing(http.client.HTTPConnection(*registry.server_address[:2], timeout=5)) as connection:
        # An answer may come, and the connection close, before the whole body was sent.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.request(method, path.replace("REPOSITORY", registry.repository), body, headers)
        return connection.getresponse().status


UPLOAD = "/v2/REPOSITORY/blobs/uploads/1?digest="


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("HEAD", f"/v2/REPOSITORY/blobs/{WANTED}", None, 404),
        ("HEAD", f"/v2/REPOSITORY/blobs/{sha256(b'')}", None, 200),
        ("HEAD", "/v2/REPOSITORY/blobs/sha256:0", None, 404),
        ("HEAD", f"/v2/gb10-copy-{'0' * 32}/blobs/{sha256(b'')}", None, 404),
        ("POST", f"/v2/gb10-copy-{'0' * 32}/blobs/uploads/", None, 404),
        ("POST", "/v2/REPOSITORY/blobs/uploads/", BLOB, 404),
        ("PUT", f"/v2/gb10-copy-{'0' * 32}/blobs/uploads/1?digest={WANTED}", BLOB, 403),
        ("PUT", f"/v2/gb10-copy-{'0' * 32}/manifests/copy", BLOB, 403),
        ("PUT", f"{UPLOAD}{sha256(b'other')}", b"other", 403),
        ("PUT", UPLOAD, b"", 403),
        ("PUT", f"{UPLOAD}{WANTED}", iter([BLOB]), 403),
        ("PUT", "/v2/REPOSITORY/manifests/copy", b"{}", 201),
        ("PUT", "/v2/REPOSITORY/manifests/other", BLOB, 403),
        ("PUT", f"/v2/REPOSITORY/manifests/{WANTED}", b"{}", 403),
        ("PATCH", "/v2/REPOSITORY/blobs/uploads/1", BLOB, 403),
        ("GET", f"/v2/REPOSITORY/blobs/{sha256(b'')}", None, 404),
    ],
)
def test_only_wanted_blobs_are_accepted(registry: image_registry.Registry, method: str, path: str, body: t.Any, status: int) -> None:
    assert status_of(registry, method, path, body) == status
    assert registry.found == {} and registry.wanted == {WANTED} and registry.error is None  # type: ignore[attr-defined]
    assert registry.server_address[0] == "127.0.0.1"


def test_an_engine_that_tries_tls_is_answered_without(registry: image_registry.Registry) -> None:
    hello = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent := ssl.MemoryBIO(), server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    with socket.create_connection(registry.server_address[:2], timeout=5) as connection:
        connection.sendall(sent.read())
        assert connection.recv(1000).startswith(b"HTTP/1.1 400")


def test_a_manifest_has_a_limit(registry: image_registry.Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_registry, "MANIFEST", len(BLOB) - 1)
    assert status_of(registry, "PUT", f"/v2/REPOSITORY/manifests/{WANTED}", BLOB) == 403
    assert registry.wanted == {WANTED}


def test_a_blob_comes_once(registry: image_registry.Registry) -> None:
    assert [status_of(registry, "PUT", UPLOAD + WANTED, BLOB) for _time in range(2)] == [201, 403]
    assert registry.found == {WANTED: BLOB}  # type: ignore[attr-defined]


def test_after_the_push_nothing_is_taken() -> None:
    registry = image_registry.Registry("sha256:1", [WANTED], lambda *_given: pytest.fail("it was given"), 5)
    with registry.serving():
        pass
    assert not registry.take(WANTED, 1, [b"b"])


def test_half_a_blob_is_an_error(registry: image_registry.Registry) -> None:
    with socket.create_connection(registry.server_address[:2], timeout=5) as connection:
        path = UPLOAD.replace("REPOSITORY", registry.repository) + WANTED
        connection.sendall(f"PUT {path} HTTP/1.1\r\nContent-Length: 3000\r\n\r\nhalf".encode())
        connection.shutdown(socket.SHUT_WR)
        assert b" 403 " in connection.recv(1000)
    assert registry.wanted == {WANTED} and "in the middle of a blob" in str(registry.error)
