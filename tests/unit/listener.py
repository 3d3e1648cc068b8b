# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real HTTP server on the loopback that records its requests and answers as configured by a test."""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import json
import ssl
import subprocess
import threading
import typing as t
from pathlib import Path


@dataclasses.dataclass
class Listener:
    """The URL, the requests that came, and the answer: a status, a body and headers."""

    url: str = ""
    came: list[tuple[str, str, t.Any]] = dataclasses.field(default_factory=list)
    status: int = 200
    body: bytes = b'{"ok": true}'
    headers: dict[str, str] = dataclasses.field(default_factory=dict)


def certificate(folder: Path) -> Path:
    """Make a certificate of 127.0.0.1 that is self-signed; return the file with it and its key."""
    path = folder / "server.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=sweep", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", str(path), "-out", str(folder / "ca.pem"),
        ],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    path.write_bytes(path.read_bytes() + (folder / "ca.pem").read_bytes())
    return path


@contextlib.contextmanager
def listening(pem: Path | None = None) -> t.Iterator[Listener]:
    """Serve until the end of the block; with the file of a certificate by https."""
    listener = Listener()

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            listener.came.append((self.command, self.path, json.loads(raw) if raw else None))
            self.send_response(listener.status)
            for name, value in listener.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(listener.body)))
            self.end_headers()
            self.wfile.write(listener.body)

        do_GET = do_POST = answer

        def log_message(self, *_words: t.Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if pem:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    listener.url = f"http{'s' if pem else ''}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield listener
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
