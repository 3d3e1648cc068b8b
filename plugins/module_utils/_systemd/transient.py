# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A program that listens on one address for the time of one copy, as a transient unit of systemd. This module util is PRIVATE to the collection.

Its files, a one-time secret among them, lie in a directory of root's that a reboot empties, and go away with the unit.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import socket
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: Where what a reboot empties lies.
RUN_ROOT = "/run"
#: Seconds that systemd gets to answer, and that a program gets to listen.
SYSTEMD_SECONDS, LISTEN_SECONDS = 20, 10
#: Bytes of a one-time secret.
SECRET_BYTES = 24
#: How each of these programs greets whoever connects.
GREETING = b"gb10 "

#: States of a unit that runs, or is about to.
_RUNNING = ("active", "activating", "reloading", "deactivating")


def require_address(address: str, port: int = 0, setting: str = "") -> None:
    """Raise :class:`ClusterError` unless this node has the address, and nobody listens there on the port (0: not asked).

    ``setting`` is the one that names the port.
    """
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
                    remedy=f"See who has it: sudo ss -ltnp 'sport = :{port}'. Or choose another {setting}.",
                    reason="port taken",
                ) from error
            raise ClusterError(
                f"this node has not the fabric address {address or '(none is set)'}: {error.strerror}",
                expected="an address of its ConnectX-7 link",
                remedy="See ip -brief address on the node and correct gb10_fabric_address, or bring the link up: docs/fabric.md",
                reason="no address",
            ) from error


def write_private(path: str, content: str | bytes) -> None:
    """Write a new file that nobody else may read. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as handle:
        handle.write(content if isinstance(content, bytes) else content.encode())


def systemctl(*words: str) -> str:
    """Return what systemctl prints. Raises :class:`UnknownState` when there is none, or it does not answer."""
    return run_tool(["systemctl", *words], SYSTEMD_SECONDS).stdout.strip()


def is_active(unit: str) -> bool:
    """Return whether a unit runs, or is about to. Without systemd there is none."""
    if shutil.which("systemctl") is None:
        return False
    return systemctl("show", "--property", "ActiveState", "--value", unit) in _RUNNING


def left(unit: str, place: str) -> list[str]:
    """Return what is there of a unit: itself, the directory of its files."""
    found = [unit] if is_active(unit) else []
    return [*found, *([place] if os.path.lexists(place) else [])]


def stop(unit: str, place: str) -> None:
    """End a unit and remove its files. Raises :class:`ClusterError` when it stays."""
    answer = run_tool(["systemctl", "stop", unit], SYSTEMD_SECONDS)
    if is_active(unit):
        raise ClusterError(f"{unit} cannot be stopped: {answer.raw[:300]}", remedy=f"See on the node: systemctl status {unit}", reason="unit")
    # The unit removes them, too, in its own time.
    shutil.rmtree(place, ignore_errors=True)


def find_systemd_run(remedy: str) -> str:
    """Return the path of systemd-run. Raises :class:`ClusterError` with ``remedy`` when the node has none."""
    path = shutil.which("systemd-run")
    if not path:
        raise ClusterError("there is no systemd-run on this node", remedy=remedy, reason="no systemd")
    return path


def unit_argv(
    systemd_run: str, unit: str, description: str, place: str, seconds: int, command: t.Sequence[str], more: t.Mapping[str, str] | None = None
) -> list[str]:
    """Return the command that starts a program as a unit of its own, which ends after ``seconds`` even when nobody comes back to stop it."""
    properties = {
        "Type": "exec",
        "RuntimeMaxSec": str(seconds),
        "NoNewPrivileges": "yes",
        "PrivateTmp": "yes",
        # Where it ends by itself, too, nothing is left of it. Outside of its own view of the file system, which may be one that nobody can write.
        "ExecStopPost": f"+/bin/rm -rf {place}",
        **(more or {}),
    }
    given = [word for name, value in properties.items() for word in ("--property", f"{name}={value}")]
    return [systemd_run, "--collect", "--quiet", "--unit", unit, "--description", description, *given, *command]


class Program(t.NamedTuple):
    """A program for the time of one copy: its unit, the directory of its files, what it is in words, and what it is made of.

    ``command`` starts it, with the path of its order behind; ``files`` are those in its directory, ``properties`` further ones of the unit. ``setting``
    names its port, and ``alone`` how a node does without.
    """

    unit: str
    place: str
    about: str
    command: t.Sequence[str]
    files: t.Mapping[str, bytes]
    setting: str
    alone: str
    properties: t.Mapping[str, str] = {}


def serve(program: Program, order: t.Mapping[str, t.Any], seconds: int) -> str:
    """Start a program (``order`` is what it reads, but the secret) and return where its secret lies. One that was left over is ended first.

    Raises :class:`ClusterError`.
    """
    systemd_run = find_systemd_run(program.alone)
    stop(program.unit, program.place)
    address, port = order["address"], order["port"]
    require_address(address, port, program.setting)
    os.makedirs(program.place, mode=0o700)
    secret, said = (os.path.join(program.place, name) for name in ("secret", "order.json"))
    write_private(secret, f"{secrets.token_hex(SECRET_BYTES)}\n")
    write_private(said, json.dumps({**order, "secret": secret}))
    for name, content in program.files.items():
        write_private(os.path.join(program.place, name), content)
    argv = unit_argv(systemd_run, program.unit, program.about, program.place, seconds, [*program.command, said], program.properties)
    answer = run_tool(argv, SYSTEMD_SECONDS)
    if answer.rc != 0:
        shutil.rmtree(program.place)
        raise ClusterError(f"systemd cannot start the server: {answer.raw[:300]}", remedy="See on the node: journalctl --since -5min", reason="no systemd")
    for _elapsed in clock(LISTEN_SECONDS, 0.05):
        if greets(address, port):
            return secret
        if not is_active(program.unit):
            break
    words = run_tool(["journalctl", "--unit", program.unit, "--lines", "5", "--output", "cat", "--no-pager"], SYSTEMD_SECONDS).raw
    stop(program.unit, program.place)
    raise UnknownState(
        f"the server does not listen on {address}:{port}: {words[-300:]}",
        remedy=f"See on the node: journalctl --unit {program.unit}",
        reason="unreachable",
        raw=words[:2000],
    )


def greets(address: str, port: int, timeout: float = 2.0) -> bool:
    """Return whether a program of ours answers there."""
    try:
        with socket.create_connection((address, port), timeout) as connection:
            connection.settimeout(timeout)
            return connection.recv(len(GREETING)) == GREETING
    except OSError:
        return False
