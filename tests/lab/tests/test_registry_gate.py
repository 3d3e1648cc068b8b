# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the gate before the registry passes on, refuses and counts."""

from __future__ import annotations

import http.client
import http.server
import json
import pathlib
import sys
import threading

import pytest

for name in ("hub", "registry"):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / name))

import gate

DATA = bytes(range(256)) * 8


class Behind(http.server.BaseHTTPRequestHandler):
    """The part of a registry that these tests use."""

    def do_GET(self):
        first = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(DATA) - first))
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(DATA) - 1}/{len(DATA)}")
        self.send_header("Docker-Content-Digest", "sha256:d")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(DATA[first:])

    do_HEAD = do_GET

    def log_message(self, format, *args):
        pass


@pytest.fixture
def passed():
    behind = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Behind)
    threading.Thread(target=behind.serve_forever, args=(0.05,), daemon=True).start()
    control, server = gate.start(0, behind.server_address[1], "127.0.0.1")
    yield control, server.server_address[1]
    for listener in (server, behind):
        listener.shutdown()
        listener.server_close()


def ask(port, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    try:
        body = answer.read()
    except http.client.IncompleteRead as cut:
        body = cut.partial
    connection.close()
    return answer, body


def test_what_the_registry_says_passes(passed):
    control, port = passed
    answer, body = ask(port, "/v2/users/small/blobs/sha256:d")
    assert (answer.status, answer.headers["Docker-Content-Digest"], body) == (200, "sha256:d", DATA)
    answer, body = ask(port, "/v2/users/small/manifests/1", "HEAD")
    assert (answer.status, answer.headers["Content-Length"], body) == (200, str(len(DATA)), b"")
    assert [(request["method"], request["sent"]) for request in control.seen] == [("GET", len(DATA)), ("HEAD", 0)]


def test_it_refuses_as_registries_do(passed):
    control, port = passed
    control.control({"faults": [{"match": "/manifests/", "status": 401, "error": "authentication required"}]})
    answer, body = ask(port, "/v2/users/small/manifests/1")
    assert answer.status == 401 and "Basic" in answer.headers["WWW-Authenticate"]
    assert json.loads(body) == {"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]}


def test_it_cuts_where_the_whole_ends_and_not_the_range(passed):
    control, port = passed
    half = len(DATA) // 2
    control.control({"faults": [{"match": "/blobs/", "cut": 0.5}]})
    assert ask(port, "/v2/users/small/blobs/sha256:d")[1] == DATA[:half]
    assert ask(port, "/v2/users/small/blobs/sha256:d", Range=f"bytes={half // 2}-")[1] == DATA[half // 2 : half]
