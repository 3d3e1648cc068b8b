# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A server for the time of one copy, as a transient unit of systemd. This module util is PRIVATE to the collection.

Its files, a one-time secret among them, are in a directory of root's that a reboot empties, and are removed with the unit.
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
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import write_whole
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: A directory that a reboot empties.
RUN_ROOT = "/run"
#: Seconds for an answer of systemd, and for a program to listen.
SYSTEMD_SECONDS, LISTEN_SECONDS = 20, 10
#: Bytes of a one-time secret.
SECRET_BYTES = 24
#: The greeting of these programs to a client.
GREETING = b"gb10 "

#: States of a unit that runs, starts or stops.
_RUNNING = ("active", "activating", "reloading", "deactivating")


def require_address(address: str, port: int = 0, setting: str = "") -> None:
    """Raise :class:`ClusterError` unless this node has the address, and its port is free (0: any port).

    ``setting`` is the name of the port's setting.
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
                    f"port {port} of {address} is in use on this node",
                    remedy=f"sudo ss -ltnp 'sport = :{port}' names the process. Or choose another {setting}.",
                    reason="port taken",
                ) from error
            raise ClusterError(
                f"this node does not have the fabric address {address or '(none is set)'}: {error.strerror}",
                expected="an address of its ConnectX-7 link",
                remedy="Run ip -brief address on the node and correct gb10_fabric_address, or bring the link up: docs/fabric.md",
                reason="no address",
            ) from error


def is_active(unit: str) -> bool:
    """Return whether a unit runs, starts or stops. Without systemd there is none. Raises :class:`UnknownState` when systemd does not answer."""
    if shutil.which("systemctl") is None:
        return False
    return run_tool(["systemctl", "show", "--property", "ActiveState", "--value", unit], SYSTEMD_SECONDS).stdout.strip() in _RUNNING


def left(unit: str, place: str) -> list[str]:
    """Return what exists of a unit: itself, and the directory of its files."""
    return [*([unit] if is_active(unit) else []), *([place] if os.path.lexists(place) else [])]


def stop(unit: str, place: str) -> None:
    """Stop a unit and remove its files. Raises :class:`ClusterError` when it keeps running."""
    answer = run_tool(["systemctl", "stop", unit], SYSTEMD_SECONDS)
    if is_active(unit):
        raise ClusterError(f"{unit} cannot be stopped: {answer.raw[:300]}", remedy=f"Run on the node: systemctl status {unit}", reason="unit")
    # The unit removes them, too, but later.
    shutil.rmtree(place, ignore_errors=True)


class Program(t.NamedTuple):
    """A server for the time of one copy: its unit, the directory of its files, its description, and its parts.

    ``command`` starts it, followed by the path of its order; ``files`` are the files in its directory, ``properties`` additional ones of the unit.
    ``setting`` is the name of its port's setting, and ``alone`` the remedy for a node without systemd.
    """

    unit: str
    place: str
    about: str
    command: t.Sequence[str]
    files: t.Mapping[str, bytes]
    setting: str
    alone: str
    properties: t.Mapping[str, str] = {}


def unit_argv(program: Program, seconds: int) -> list[str]:
    """Return the command that starts a program as a transient unit, which ends after ``seconds`` at the latest. The path of its order follows."""
    properties = {
        "Type": "exec",
        "RuntimeMaxSec": str(seconds),
        "NoNewPrivileges": "yes",
        "PrivateTmp": "yes",
        # Removes its files after any end, with "+" also where the unit's own view of the file system is read-only.
        "ExecStopPost": f"+/bin/rm -rf {program.place}",
        **program.properties,
    }
    given = [word for name, value in properties.items() for word in ("--property", f"{name}={value}")]
    return ["systemd-run", "--collect", "--quiet", "--unit", program.unit, "--description", program.about, *given, *program.command]


def serve(program: Program, order: t.Mapping[str, t.Any], seconds: int) -> str:
    """Start a program and return the path of its secret; ``order`` is its input without the secret. A program that was left over is stopped first.

    Raises :class:`ClusterError`.
    """
    if not shutil.which("systemd-run"):
        raise ClusterError("there is no systemd-run on this node", remedy=program.alone, reason="no systemd")
    stop(program.unit, program.place)
    address, port = order["address"], order["port"]
    require_address(address, port, program.setting)
    os.makedirs(program.place, mode=0o700)
    secret, order_path = (os.path.join(program.place, name) for name in ("secret", "order.json"))
    own = {secret: f"{secrets.token_hex(SECRET_BYTES)}\n".encode(), order_path: json.dumps({**order, "secret": secret}).encode()}
    for path, content in {**own, **{os.path.join(program.place, name): content for name, content in program.files.items()}}.items():
        write_whole(path, content)
    answer = run_tool([*unit_argv(program, seconds), order_path], SYSTEMD_SECONDS)
    if answer.rc != 0:
        shutil.rmtree(program.place)
        raise ClusterError(f"systemd cannot start the server: {answer.raw[:300]}", remedy="Run on the node: journalctl --since -5min", reason="no systemd")
    for _elapsed in clock(LISTEN_SECONDS, 0.05):
        if greets(address, port):
            return secret
        if not is_active(program.unit):
            break
    words = run_tool(["journalctl", "--unit", program.unit, "--lines", "5", "--output", "cat", "--no-pager"], SYSTEMD_SECONDS).raw
    stop(program.unit, program.place)
    raise UnknownState(
        f"the server does not listen on {address}:{port}: {words[-300:]}",
        remedy=f"Run on the node: journalctl --unit {program.unit}",
        reason="unreachable",
        raw=words[:2000],
    )


def greets(address: str, port: int, timeout: float = 2.0) -> bool:
    """Return whether one of these programs answers there."""
    try:
        with socket.create_connection((address, port), timeout) as connection:
            connection.settimeout(timeout)
            return connection.recv(len(GREETING)) == GREETING
    except OSError:
        return False
