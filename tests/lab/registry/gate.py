# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A gate in front of a real registry: it passes reads on, counts them by client, and misbehaves on request.

  python3 gate.py PORT REGISTRY_PORT

The registry is Debian's docker-registry. The gate passes on only GET and HEAD, and has the same ``/_control`` as the stand-in for the hub.
An error of the gate has the shape that registries give theirs: JSON ``errors`` with ``code`` and ``message``, and for a 401 ``WWW-Authenticate``.
"""

from __future__ import annotations

import http.client
import io
import json
import re
import sys
import threading
import typing as t

from stand_in import Control, Misbehaving, serve

#: Headers that hold for one connection, and are not passed on.
OF_CONNECTION = ("connection", "transfer-encoding", "content-length", "keep-alive")
#: A registry's error code by HTTP status.
CODES = {401: "UNAUTHORIZED", 403: "DENIED", 404: "MANIFEST_UNKNOWN", 429: "TOOMANYREQUESTS"}


class Gate(Misbehaving):
    """Answers as the registry behind it does."""

    registry: int = 0

    def answer_it(self, path: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.registry, timeout=60)
        try:
            # An engine sends a line of Accept for each kind of manifest, in no order.
            names = {name.lower() for name in self.headers} - set(OF_CONNECTION)
            headers = {name: ", ".join(self.headers.get_all(name, [])) for name in names}
            connection.request(self.command, self.path, headers=headers)
            self._pass_on(connection.getresponse())
        finally:
            connection.close()

    def _pass_on(self, answer: http.client.HTTPResponse) -> None:
        """Send the registry's answer as it arrives: an engine does not wait until a whole layer has been read here."""
        length = answer.headers.get("Content-Length", "")
        body = None if length else answer.read()
        kept = {name: value for name, value in answer.headers.items() if name.lower() not in OF_CONNECTION}
        self.begin(answer.status, {**kept, "Content-Length": length or str(len(body or b""))})
        if self.command == "HEAD":
            return
        ranged = re.match(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range", ""))
        count = int(length) if body is None else len(body)
        first, size = (int(ranged[1]), int(ranged[2])) if ranged else (0, count)
        self.send_body(answer.read if body is None else io.BytesIO(body).read, count, first, size)

    def refuse(self, status: int, code: str = "", error: str = "", headers: dict[str, str] | None = None) -> None:
        asks = {"WWW-Authenticate": 'Basic realm="lab"'} if status == 401 else {}
        body = {"errors": [{"code": code or CODES.get(status, "UNKNOWN"), "message": error}]}
        self.send_json(status, body, {"Docker-Distribution-Api-Version": "registry/2.0", **asks, **(headers or {})})


def start(port: int, registry: int, address: str = "0.0.0.0") -> tuple[Control, t.Any]:
    """Serve in a thread; returns what controls it, and the server."""
    control = Control()
    return control, serve(type("Before", (Gate,), {"registry": registry}), control, address, port)


if __name__ == "__main__":
    start(*map(int, sys.argv[1:3]))
    print(json.dumps({"gate": sys.argv[1]}), flush=True)
    threading.Event().wait()
