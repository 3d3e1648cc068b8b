# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node that has a model gives it out: an rsync daemon for the time of one copy. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._host import transient
from ansible_collections.gb10.cluster.plugins.module_utils._model import copying
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: Seconds that the daemon gets to listen.
LISTEN_SECONDS = 10
#: Bytes of the one-time secret.
SECRET_BYTES = 24
#: What a daemon of rsync says first to whoever connects.
GREETING = b"@RSYNCD:"

#: Reasons for which a node cannot copy at all, so that it may download instead.
UNABLE = ("no rsync", "no systemd", "no address", "port taken", "unreachable")


def find_rsync() -> str:
    """Return the path of rsync. Raises :class:`ClusterError` when the node has none, or one that is too old."""
    path = shutil.which("rsync", path=f"{os.environ.get('PATH', '')}:/usr/bin:/bin:/usr/local/bin")
    if not path:
        raise ClusterError(
            "there is no rsync on this node",
            remedy="Install it: sudo apt-get install rsync. Or let each node download by itself: gb10_model_copy: preferred",
            reason="no rsync",
        )
    version = copying.version_of(run_tool([path, "--version"], transient.SYSTEMD_SECONDS).stdout)
    if version < copying.OLDEST:
        raise ClusterError(
            f"{path} is {'.'.join(map(str, version))}",
            expected=f"{'.'.join(map(str, copying.OLDEST))} or newer, which compares whole files by a digest of 128 bits",
            remedy="Update it: sudo apt-get install rsync. Or let each node download by itself: gb10_model_copy: preferred",
            reason="no rsync",
        )
    return path


def require_address(address: str, port: int = 0) -> None:
    """Raise :class:`ClusterError` unless this node has the address, and nobody listens there on the port (0: not asked)."""
    transient.require_address(address, port, "gb10_copy_port")


def run_dir(cluster: str) -> str:
    """Return where the files of a cluster's daemon lie."""
    return os.path.join(transient.RUN_ROOT, copying.RUN, cluster)


def left(cluster: str) -> list[str]:
    """Return what is there of a cluster's daemon: its unit, its files."""
    return transient.left(copying.unit_name(cluster), run_dir(cluster))


def stop(cluster: str) -> None:
    """End a cluster's daemon and remove its files. Raises :class:`ClusterError` when it stays."""
    transient.stop(copying.unit_name(cluster), run_dir(cluster))


def start(
    cluster: str, rsync: str, shared: t.Sequence[copying.Shared], address: str, port: int, clients: t.Sequence[str], connections: int, seconds: int
) -> str:
    """Start the daemon and return where its secret lies. One of this cluster that was left over is ended first. Raises :class:`ClusterError`."""
    systemd_run = transient.find_systemd_run("Let each node download by itself: gb10_model_copy: preferred")
    stop(cluster)
    require_address(address, port)
    place = run_dir(cluster)
    os.makedirs(place, mode=0o700)
    secret = os.path.join(place, "secret")
    transient.write_private(secret, f"{copying.USER}:{secrets.token_hex(SECRET_BYTES)}\n")
    transient.write_private(os.path.join(place, "rsyncd.conf"), copying.daemon_config(shared, place, address, port, clients, connections))
    answer = run_tool(copying.daemon_argv(systemd_run, rsync, cluster, place, seconds), transient.SYSTEMD_SECONDS)
    if answer.rc != 0:
        shutil.rmtree(place)
        raise ClusterError(f"systemd cannot start the daemon: {answer.raw[:300]}", remedy="See on the node: journalctl --since -5min", reason="no systemd")
    for _elapsed in clock(LISTEN_SECONDS, 0.1):
        if greets(address, port):
            return secret
        if not transient.is_active(copying.unit_name(cluster)):
            break
    said = run_tool(["journalctl", "--unit", copying.unit_name(cluster), "--lines", "5", "--output", "cat", "--no-pager"], transient.SYSTEMD_SECONDS).raw
    stop(cluster)
    raise UnknownState(
        f"the rsync daemon does not listen on {address}:{port}: {said[-300:]}",
        remedy=f"See on the node: journalctl --unit {copying.unit_name(cluster)}",
        reason="unreachable",
        raw=said[:2000],
    )


def greets(address: str, port: int, seconds: float = 2.0) -> bool:
    """Return whether a daemon of rsync answers there."""
    try:
        with socket.create_connection((address, port), seconds) as connection:
            connection.settimeout(seconds)
            return connection.recv(len(GREETING)) == GREETING
    except OSError:
        return False
