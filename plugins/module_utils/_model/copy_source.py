# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node that has a model gives it out: a server of blocks for the time of one copy. This module util is PRIVATE to the collection."""

from __future__ import annotations

import inspect
import json
import os
import secrets
import shutil
import socket
import sys
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._model import blocks, copying
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import transient
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: Seconds that the server gets to listen.
LISTEN_SECONDS = 10
#: Bytes of the one-time secret.
SECRET_BYTES = 24

#: Reasons for which a node cannot copy at all, so that it may download instead.
UNABLE = ("no systemd", "no address", "port taken", "unreachable")


def require_address(address: str, port: int = 0) -> None:
    """Raise :class:`ClusterError` unless this node has the address, and nobody listens there on the port (0: not asked)."""
    transient.require_address(address, port, "gb10_copy_port")


def run_dir(cluster: str) -> str:
    """Return where the files of a cluster's server lie."""
    return os.path.join(transient.RUN_ROOT, copying.RUN, cluster)


def left(cluster: str) -> list[str]:
    """Return what is there of a cluster's server: its unit, its files."""
    return transient.left(copying.unit_name(cluster), run_dir(cluster))


def stop(cluster: str) -> None:
    """End a cluster's server and remove its files. Raises :class:`ClusterError` when it stays."""
    transient.stop(copying.unit_name(cluster), run_dir(cluster))


def start(cluster: str, order: t.Mapping[str, t.Any], seconds: int) -> str:
    """Start the server (``order`` is what it reads, but the secret) and return where its secret lies. One that was left over is ended first.

    Raises :class:`ClusterError`.
    """
    systemd_run = transient.find_systemd_run("Let each node download by itself: gb10_model_copy: preferred")
    stop(cluster)
    address, port = order["address"], order["port"]
    require_address(address, port)
    place = run_dir(cluster)
    os.makedirs(place, mode=0o700)
    secret, program, said = (os.path.join(place, name) for name in ("secret", "serve.py", "serve.json"))
    transient.write_private(secret, f"{secrets.token_hex(SECRET_BYTES)}\n")
    transient.write_private(program, inspect.getsource(blocks))
    transient.write_private(said, json.dumps({**order, "secret": secret}))
    about = f"gb10.cluster: copy of a model to the other nodes of cluster {cluster}"
    argv = transient.unit_argv(systemd_run, copying.unit_name(cluster), about, place, seconds, [sys.executable, program, said])
    answer = run_tool(argv, transient.SYSTEMD_SECONDS)
    if answer.rc != 0:
        shutil.rmtree(place)
        raise ClusterError(f"systemd cannot start the server: {answer.raw[:300]}", remedy="See on the node: journalctl --since -5min", reason="no systemd")
    for _elapsed in clock(LISTEN_SECONDS, 0.05):
        if greets(address, port):
            return secret
        if not transient.is_active(copying.unit_name(cluster)):
            break
    said = run_tool(["journalctl", "--unit", copying.unit_name(cluster), "--lines", "5", "--output", "cat", "--no-pager"], transient.SYSTEMD_SECONDS).raw
    stop(cluster)
    raise UnknownState(
        f"the server does not listen on {address}:{port}: {said[-300:]}",
        remedy=f"See on the node: journalctl --unit {copying.unit_name(cluster)}",
        reason="unreachable",
        raw=said[:2000],
    )


def greets(address: str, port: int, seconds: float = 2.0) -> bool:
    """Return whether a server of ours answers there."""
    try:
        with socket.create_connection((address, port), seconds) as connection:
            connection.settimeout(seconds)
            return connection.recv(len(blocks.HELLO)) in (blocks.HELLO, blocks.STRANGER)
    except OSError:
        return False
