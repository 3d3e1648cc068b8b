# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Asks a Ray head for its nodes, from inside a container that has Ray. This module util is PRIVATE to the collection.

The collection runs this file's text as ``python3 -c TEXT ADDRESS SECONDS``; it prints one JSON document. It asks the head's GCS
for its table of nodes and, unlike ``ray.init``, registers no driver and starts no process: the engine's cluster stays untouched.
The environment of the container has the token. At the same moment a child asks the same question without it: where that is answered, a client needs no
token for anything.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import socket
import sys
import typing as t


def table(address: str, seconds: float) -> list[dict[str, t.Any]]:
    """Return the nodes that the head at ``address`` (HOST:PORT) lists, dead ones included, in the order of their starts."""
    from ray._raylet import GcsClient

    host, _colon, port = address.rpartition(":")
    # Refused at once without a listener; Ray's own client would retry for half a minute.
    socket.create_connection((host.strip("[]"), int(port)), seconds).close()
    nodes_by_id = GcsClient(address=address).get_all_node_info(timeout=seconds)
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
        for node_id, node in nodes_by_id.items()
    ]
    return sorted(nodes, key=lambda node: (node["started_ms"], node["node_id"]))


def ask_without_token(address: str, seconds: float) -> str:
    """Return ``refused`` or ``answered``, else why neither is known. It removes the token, so it needs a process of its own."""
    import ray
    from ray._raylet import Config

    refusal = getattr(ray.exceptions, "AuthenticationError", None)
    # Ray below 2.52 has no tokens, and would end this process because of the name of the setting.
    if refusal:
        Config.initialize(json.dumps({"AUTH_MODE": "disabled"}))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        os.environ.pop(name, None)
    # Without the container's token, Ray looks for the user's.
    os.environ["HOME"] = os.devnull
    try:
        table(address, seconds)
    except (OSError, ray.exceptions.RayError) as error:
        return "refused" if refusal and isinstance(error, refusal) else str(error)
    return "answered"


def start_without_token(address: str, seconds: float) -> int:
    """Let a child ask without the token, and return the end of the pipe that it writes its answer to."""
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        return reader
    signal.alarm(max(1, int(seconds)))
    # Ray's client logs a refusal as an error of its own.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        os.write(writer, ask_without_token(address, seconds).encode())
    finally:
        os._exit(0)


def read_answer(reader: int) -> str:
    """Return the child's answer. A child that its alarm ended wrote nothing."""
    with open(reader, encoding="utf-8", errors="replace") as stream:
        return stream.read() or "no answer"


def answer(address: str, seconds: float) -> dict[str, t.Any]:
    """Return the document to print. ``kind`` is the cause of a failure: import, token or head; it is empty when the head answered.

    ``without_token`` is then the result of the question without the token: ``refused``, ``answered``, or why that is unknown.
    """
    # Ray's client waits for a hung head much longer than its timeout, in code that ignores Python exceptions.
    signal.alarm(int(seconds) + 1)
    document = {"python_version": platform.python_version(), "ray_version": "", "nodes": [], "error": "", "kind": "", "without_token": ""}
    try:
        import ray
    except ImportError as error:
        return {**document, "error": str(error), "kind": "import"}
    document["ray_version"] = ray.__version__
    # Before the first question, after which Ray's client has threads and has read the token.
    reader = start_without_token(address, seconds)
    try:
        return {**document, "nodes": table(address, seconds), "without_token": read_answer(reader)}
    except (OSError, ray.exceptions.RayError) as error:
        return {**document, "error": str(error), "kind": "token" if type(error).__name__ == "AuthenticationError" else "head"}


if __name__ == "__main__":
    json.dump(answer(sys.argv[1], float(sys.argv[2])), sys.stdout)
