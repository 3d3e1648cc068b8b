# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The block server as a node gets it: a single program in its own root, for clients with the secret."""

from __future__ import annotations

import inspect
import json
import os
import socket
import subprocess
import sys
import threading
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._model import block_client, blocks

SECRET = "0123abcd"
DATA = bytes(range(256)) * 40


@pytest.fixture
def port(tmp_path: Path) -> t.Iterator[int]:
    """The program that serves two files of a directory, one of which is a link out of it."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a program a root of its own")
    tree = tmp_path / "hub"
    tree.mkdir()
    (tree / "a").write_bytes(DATA)
    (tree / "link").symlink_to("/etc/hostname")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        number = probe.getsockname()[1]
    status = (tree / "a").stat()
    files = [["a", status.st_size, status.st_mtime_ns], ["link", 5, 0], ["../secret", 8, 0]]
    order = {
        "address": "127.0.0.1", "port": number, "secret": str(tmp_path / "secret"), "root": str(tree), "uid": 65534, "gid": 65534, "clients": ["127.0.0.1"],
        "connections": 2, "files": files,
    }  # fmt: skip
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "serve.py").write_text(inspect.getsource(blocks))
    (tmp_path / "serve.json").write_text(json.dumps(order))
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == os.geteuid() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)
    with subprocess.Popen([sys.executable, "-I", str(tmp_path / "serve.py"), str(tmp_path / "serve.json")]) as program:
        yield number
        program.terminate()


def connect(port: int, secret: str = SECRET) -> block_client.Connection:
    connection = block_client.Connection(block_client.Route("127.0.0.1", "127.0.0.1", port, secret), threading.Event())
    connection.introduce()
    return connection


def test_the_program_runs_alone_and_serves_the_listed_files(port: int, tmp_path: Path) -> None:
    connection = connect(port)
    with open(tmp_path / "copy", "w+b") as copy:
        connection.fetch(0, copy.fileno(), 256, 1000)
        assert copy.seek(256) and copy.read() == DATA[256:1256] and connection.is_same(0, copy.fileno(), 256, 1000)
        assert not connection.has_changed(0) and not connection.is_same(0, copy.fileno(), 0, 512)
    connection.close()


@pytest.mark.parametrize("length", [blocks.STEP - 1, blocks.STEP + 10, blocks.STEP + block_client.WAKE_BYTES + 1, blocks.BLOCK])
def test_the_end_of_a_block_arrives_without_a_wait(tmp_path: Path, length: int) -> None:
    """Where fewer bytes are left than wake a connection, the kernel would not."""
    (tmp_path / "big").write_bytes(os.urandom(length))
    status = (tmp_path / "big").stat()
    listener = blocks.listen("127.0.0.1", 0)
    server = blocks.Server(listener, blocks.Tree(str(tmp_path), [["big", status.st_size, status.st_mtime_ns]]), SECRET, ["127.0.0.1"], 2)
    threading.Thread(target=server.run, daemon=True).start()
    connection = connect(listener.getsockname()[1])
    blocks.be_patient(connection._socket, 10)
    with open(tmp_path / "copy", "w+b") as copy:
        connection.fetch(0, copy.fileno(), 0, length)
        assert copy.read() == (tmp_path / "big").read_bytes()
    connection.close()
    server.end()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_it_follows_no_link_and_stays_in_its_root(port: int, tmp_path: Path, number: int) -> None:
    with open(tmp_path / "copy", "w+b") as copy, pytest.raises(block_client.Trouble) as caught:
        connect(port).fetch(number, copy.fileno(), 0, 5)
    assert caught.value.reason in ("source changed", "permission") and (tmp_path / "copy").read_bytes() == b""


def test_it_does_not_answer_without_the_secret(port: int) -> None:
    with pytest.raises(block_client.Trouble) as caught:
        connect(port, "wrong")
    assert caught.value.reason == "refused"


@pytest.fixture
def serving(tmp_path: Path) -> t.Iterator[int]:
    """A server for two connections at once."""
    (tmp_path / "a").write_bytes(DATA)
    listener = blocks.listen("127.0.0.1", 0)
    server = blocks.Server(listener, blocks.Tree(str(tmp_path), [["a", len(DATA), (tmp_path / "a").stat().st_mtime_ns]]), SECRET, ["127.0.0.1"], 2)
    threading.Thread(target=server.run, daemon=True).start()
    yield listener.getsockname()[1]
    server.end()


def closed(connection: socket.socket) -> bool:
    """Return whether the other end closed a connection after its introduction."""
    connection.settimeout(10)
    while data := connection.recv(100):
        assert data.startswith(blocks.HELLO)
    return True


@pytest.mark.parametrize("number", [8, blocks.UNPROVEN + 50])
def test_connections_without_a_proof_do_not_block_others(serving: int, number: int) -> None:
    others = [socket.create_connection(("127.0.0.1", serving)) for _number in range(number)]
    for _round in range(3):
        connections = [connect(serving) for _number in range(2)]
        assert not any(connection.has_changed(0) for connection in connections)
        for connection in connections:
            connection.goodbye()
            connection.close()
    # Of more than may be about to prove something the oldest are cut.
    assert all(closed(connection) for connection in others[:max(0, number - blocks.UNPROVEN)])
    for connection in others:
        connection.close()


@pytest.mark.parametrize("drip", [False, True])
def test_a_proof_has_its_time_whatever_drips(serving: int, monkeypatch: pytest.MonkeyPatch, drip: bool) -> None:
    monkeypatch.setattr(blocks, "PROOF_SECONDS", 0.5)
    with socket.create_connection(("127.0.0.1", serving)) as connection:
        ended = threading.Event()

        def send() -> None:
            while drip and not ended.wait(0.05):
                try:
                    connection.sendall(b"x")
                except OSError:
                    return

        thread = threading.Thread(target=send)
        thread.start()
        began = time.monotonic()
        try:
            assert closed(connection)
        except ConnectionResetError:
            pass
        ended.set()
        thread.join()
        assert time.monotonic() - began < 5


def test_a_proven_client_is_refused_when_there_are_too_many(serving: int) -> None:
    connections = [connect(serving) for _number in range(2)]
    with pytest.raises(block_client.Trouble) as caught:
        connect(serving)
    assert caught.value.reason == "busy" and not connections[0].has_changed(0)


def test_addresses_of_clients_are_compared_as_addresses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = blocks.Server(listener, blocks.Tree("/", []), SECRET, ["FD00:0::2"], 1)
        assert server.waiting() == ["fd00::2"]


def test_both_digests_are_those_of_their_tools() -> None:
    buffer = blocks.Buffer()
    buffer.view[:3] = b"abc"
    values = {}
    for kind in (blocks.XXH128, blocks.SHA256):
        digest = blocks.Digest(kind, buffer)
        digest.begin()
        digest.update(3)
        values[kind] = digest.value().hex()
    assert values[blocks.SHA256].startswith("ba7816bf8f01cfea")
    # xxhsum -H2 of Debian 12.
    assert not blocks.digests() & blocks.XXH128 or values[blocks.XXH128] == "06b05ab6733a618578af5f94892f3950"
