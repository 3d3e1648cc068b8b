# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A program that listens on one address for the time of one copy, as a transient unit of systemd. This module util is PRIVATE to the collection.

Its files, a one-time secret among them, lie in a directory of root's that a reboot empties, and go away with the unit.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool

#: Where what a reboot empties lies.
RUN_ROOT = "/run"
#: Seconds that systemd gets to answer.
SYSTEMD_SECONDS = 20

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


def write_private(path: str, text: str) -> None:
    """Write a new file that nobody else may read. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as handle:
        handle.write(text)


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
        # Where it ends by itself, too, nothing is left of it.
        "ExecStopPost": f"/bin/rm -rf {place}",
        **(more or {}),
    }
    given = [word for name, value in properties.items() for word in ("--property", f"{name}={value}")]
    return [systemd_run, "--collect", "--quiet", "--unit", unit, "--description", description, *given, *command]
