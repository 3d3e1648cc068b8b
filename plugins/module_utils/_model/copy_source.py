# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node that has a model gives it out: an rsync daemon for the time of one copy. This module util is PRIVATE to the collection."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import socket
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._model import copying
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: Where what a reboot empties lies; the daemon's files are below it.
RUN_ROOT = "/run"
#: Seconds that systemd gets to answer, and the daemon to listen.
SYSTEMD_SECONDS, LISTEN_SECONDS = 20, 10
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
    version = copying.version_of(run_tool([path, "--version"], SYSTEMD_SECONDS).stdout)
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
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            if port:
                probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise ClusterError(
                    f"port {port} of {address} is taken on this node",
                    remedy=f"See who has it: sudo ss -ltnp 'sport = :{port}'. Or choose another gb10_copy_port.",
                    reason="port taken",
                ) from error
            raise ClusterError(
                f"this node has not the fabric address {address or '(none is set)'}: {error.strerror}",
                expected="an address of its ConnectX-7 link",
                remedy="See ip -brief address on the node and correct gb10_fabric_address, or bring the link up: docs/fabric.md",
                reason="no address",
            ) from error


def run_dir(cluster: str) -> str:
    """Return where the files of a cluster's daemon lie."""
    return os.path.join(RUN_ROOT, copying.RUN, cluster)


def systemctl(*words: str) -> str:
    """Return what systemctl prints. Raises :class:`UnknownState` when there is none, or it does not answer."""
    return run_tool(["systemctl", *words], SYSTEMD_SECONDS).stdout.strip()


def is_active(cluster: str) -> bool:
    """Return whether a cluster's daemon runs, or is about to. Without systemd there is none."""
    if shutil.which("systemctl") is None:
        return False
    return systemctl("show", "--property", "ActiveState", "--value", copying.unit_name(cluster)) in ("active", "activating", "reloading", "deactivating")


def left(cluster: str) -> list[str]:
    """Return what is there of a cluster's daemon: its unit, its files."""
    found = [copying.unit_name(cluster)] if is_active(cluster) else []
    return [*found, *([run_dir(cluster)] if os.path.lexists(run_dir(cluster)) else [])]


def stop(cluster: str) -> None:
    """End a cluster's daemon and remove its files. Raises :class:`ClusterError` when it stays."""
    unit = copying.unit_name(cluster)
    answer = run_tool(["systemctl", "stop", unit], SYSTEMD_SECONDS)
    if is_active(cluster):
        raise ClusterError(f"{unit} cannot be stopped: {answer.raw[:300]}", remedy=f"See on the node: systemctl status {unit}", reason="unit")
    # The unit removes them, too, in its own time.
    shutil.rmtree(run_dir(cluster), ignore_errors=True)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as handle:
        handle.write(text)


def start(
    cluster: str, rsync: str, shared: t.Sequence[copying.Shared], address: str, port: int, clients: t.Sequence[str], connections: int, seconds: int
) -> str:
    """Start the daemon and return where its secret lies. One of this cluster that was left over is ended first. Raises :class:`ClusterError`."""
    systemd_run = shutil.which("systemd-run")
    if not systemd_run:
        raise ClusterError("there is no systemd-run on this node", remedy="Let each node download by itself: gb10_model_copy: preferred", reason="no systemd")
    stop(cluster)
    require_address(address, port)
    place = run_dir(cluster)
    os.makedirs(place, mode=0o700)
    secret = os.path.join(place, "secret")
    _write(secret, f"{copying.USER}:{secrets.token_hex(SECRET_BYTES)}\n")
    _write(os.path.join(place, "rsyncd.conf"), copying.daemon_config(shared, place, address, port, clients, connections))
    answer = run_tool(copying.daemon_argv(systemd_run, rsync, cluster, place, seconds), SYSTEMD_SECONDS)
    if answer.rc != 0:
        shutil.rmtree(place)
        raise ClusterError(f"systemd cannot start the daemon: {answer.raw[:300]}", remedy="See on the node: journalctl --since -5min", reason="no systemd")
    for _elapsed in clock(LISTEN_SECONDS, 0.1):
        if greets(address, port):
            return secret
        if not is_active(cluster):
            break
    said = run_tool(["journalctl", "--unit", copying.unit_name(cluster), "--lines", "5", "--output", "cat", "--no-pager"], SYSTEMD_SECONDS).raw
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
