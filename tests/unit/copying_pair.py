# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two hub caches on this machine, the real server between them, and a connection that can be cut, corrupted or silent."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import stat
import threading
import types
import typing as t
from pathlib import Path

from ansible_collections.gb10.cluster.plugins.module_utils._model import block_client, blocks, copy_target
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import transient
from ansible_collections.gb10.cluster.plugins.modules import model_copy

COMMIT = "0123456789abcdef" * 2 + "01234567"
REPO = "org/tiny"
SECRET = "0123abcd"


def blob(data: bytes, large: bool) -> str:
    return hashlib.sha256(data).hexdigest() if large else hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def cache(root: Path, repo: str = REPO, files: t.Mapping[str, bytes] | None = None, commit: str = COMMIT) -> Path:
    """Make a hub cache as the hub's client does, and return the repository. Files that end with ``.safetensors`` are large ones."""
    base = root / "hub" / ("models--" + repo.replace("/", "--"))
    content = files or {"config.json": b"{}", "a.safetensors": b"A" * 4000, "b.safetensors": b"B" * 3000, "sub/c.safetensors": b"C" * 100}
    for name, data in content.items():
        path = base / "blobs" / blob(data, name.endswith(".safetensors"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        link = base / "snapshots" / commit / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(path, link.parent))
    (base / "refs").mkdir(exist_ok=True)
    (base / "refs/main").write_text(commit)
    return base


def tree(base: Path) -> dict[str, t.Any]:
    """Return a repository's entries: content, mode and time of files, and the targets of links."""
    entries: dict[str, t.Any] = {}
    for path in sorted(base.rglob("*")):
        status = path.lstat()
        name = str(path.relative_to(base))
        if path.is_symlink():
            entries[name] = os.readlink(path)
        elif path.is_file():
            when = None if name.startswith("refs/") else int(status.st_mtime)
            entries[name] = (path.read_bytes(), stat.S_IMODE(status.st_mode), when)
    return entries


class Wire:
    """Carries connections to a port, and what goes wrong on the way: ``plan`` has ``cut_after`` and ``flip_at`` (bytes from the source), ``silent``."""

    def __init__(self, port: int) -> None:
        self._to, self.plan, self.connections, self.carried = port, {}, 0, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _address = self._listener.accept()
                self.connections += 1
                far = socket.create_connection(("127.0.0.1", self._to))
                threading.Thread(target=self._carry, args=(near, far, False), daemon=True).start()
                threading.Thread(target=self._carry, args=(far, near, True), daemon=True).start()

    def _carry(self, begin: socket.socket, end: socket.socket, counted: bool) -> None:
        with contextlib.suppress(OSError):
            while data := begin.recv(100):
                if counted:
                    data = self._spoil(data)
                end.sendall(data)
        for side in (begin, end):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    def _spoil(self, data: bytes) -> bytes:
        if self.plan.get("silent") and self.carried > 200:
            threading.Event().wait(30)
        before, self.carried = self.carried, self.carried + len(data)
        if self.carried > self.plan.get("cut_after", 1 << 60):
            raise OSError
        at = self.plan.get("flip_at", -1) - before
        if 0 <= at < len(data):
            data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]
            self.plan = {name: value for name, value in self.plan.items() if name != "flip_at" or not self.plan.get("once")}
        if self.plan.get("flip_at", -1) >= 0 and not self.plan.get("once") and before > self.plan["flip_at"]:
            data = bytes([data[0] ^ 1]) + data[1:]
        return data

    def close(self) -> None:
        self._listener.close()


class Pair:
    """A node that has a model, and one that lacks it."""

    def __init__(self, path: Path, monkeypatch: t.Any) -> None:
        self.path, self.source, self.target = path, cache(path / "one"), path / "two/hub/models--org--tiny"
        (path / "two").mkdir()
        monkeypatch.setattr(transient, "RUN_ROOT", str(path / "run"))
        monkeypatch.setattr(transient, "is_active", lambda _unit: False)
        monkeypatch.setattr(copy_target, "LOOK_SECONDS", 0.05)
        monkeypatch.setattr(block_client, "BEGIN_SECONDS", 0.3)
        # So a test file of a few bytes has several blocks, too.
        monkeypatch.setattr(blocks, "BLOCK", 1000)
        self.servers: list[blocks.Server] = []
        self.wire: Wire | None = None

    def listing(self, revision: str = COMMIT) -> list[dict[str, t.Any]]:
        return [model_copy.listed({"hf_home": str(self.path / "one")}, {"repo": REPO, "revision": revision})]

    def serve(self, listing: list[dict[str, t.Any]] | None = None, clients: t.Sequence[str] = ("127.0.0.1",), secret: str = SECRET) -> Wire:
        """Serve the model by its list, at the other end of a wire."""
        params = {"hf_home": str(self.path / "one"), "address": "127.0.0.1", "port": 0, "clients": list(clients), "streams": 4}
        order = model_copy.order(params, listing or self.listing())
        listener = blocks.listen("127.0.0.1", 0)
        server = blocks.Server(listener, blocks.Tree(order["root"], order["files"]), secret, order["clients"], order["connections"])
        threading.Thread(target=server.run, daemon=True).start()
        self.servers.append(server)
        self.wire = Wire(listener.getsockname()[1])
        return self.wire

    def end(self) -> None:
        """End the servers."""
        for server in self.servers:
            server.end()

    def call(self, check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        """Copy, and return the result."""
        if self.wire is None and "port" not in params:
            self.serve(params.get("listing"))
        defaults = {
            "state": "copied", "repositories": None, "hf_home": str(self.path / "two"), "cluster_name": "gb10", "address": "127.0.0.1",
            "port": self.wire.port if self.wire else 0, "clients": None, "source": "127.0.0.1", "secret": f"{SECRET}\n",
            "listing": params.get("listing") or self.listing(), "streams": 4, "timeout": 20, "disk_floor_gib": 0, "required": True,
            "state_dir": str(self.path / "state"), "lock_id": "",
        }  # fmt: skip
        return model_copy.work(types.SimpleNamespace(params={**defaults, **params}, check_mode=check))
