# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Asks a Ray head for its nodes, from inside a container that has Ray. This module util is PRIVATE to the collection.

The collection runs this file's text as ``python3 -c TEXT ADDRESS SECONDS``; it prints one JSON document. It asks the head's GCS
for its table of nodes and, unlike ``ray.init``, registers no driver and starts no process: the engine's cluster stays untouched.
The environment of the container carries the token.
"""

from __future__ import annotations

import json
import platform
import signal
import socket
import sys
import typing as t


def table(address: str, seconds: float) -> list[dict[str, t.Any]]:
    """Return the nodes known to the head at ``address`` (HOST:PORT), dead ones included, in the order they came."""
    from ray._raylet import GcsClient

    host, _colon, port = address.rpartition(":")
    # Refused at once when nobody listens; Ray's own client would try again for half a minute.
    socket.create_connection((host.strip("[]"), int(port)), seconds).close()
    found = GcsClient(address=address).get_all_node_info(timeout=seconds)
    nodes = [
        {
            "node_id": node_id.hex(),
            "address": node.node_manager_address,
            "alive": node.state == 0,
            "head": node.is_head_node,
            "started_ms": node.start_time_ms,
            "gpus": node.resources_total.get("GPU", 0.0),
            "resources": dict(node.resources_total),
        }
        for node_id, node in found.items()
    ]
    return sorted(nodes, key=lambda node: (node["started_ms"], node["node_id"]))


def answer(address: str, seconds: float) -> dict[str, t.Any]:
    """Return the document to print. ``kind`` says what was wrong: import, token or head; it is empty when the head answered."""
    # Ray's client waits for a head that hangs much longer than it was told, in code that heeds no Python exception.
    signal.alarm(int(seconds) + 1)
    document = {"python_version": platform.python_version(), "ray_version": "", "nodes": [], "error": "", "kind": ""}
    try:
        import ray
    except ImportError as error:
        return {**document, "error": str(error), "kind": "import"}
    document["ray_version"] = ray.__version__
    try:
        return {**document, "nodes": table(address, seconds)}
    except (OSError, ray.exceptions.RayError) as error:
        kind = "token" if type(error).__name__ == "AuthenticationError" else "head"
        return {**document, "error": str(error), "kind": kind}


if __name__ == "__main__":
    json.dump(answer(sys.argv[1], float(sys.argv[2])), sys.stdout)
