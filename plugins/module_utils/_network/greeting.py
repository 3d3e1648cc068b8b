# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The greeting of an sshd, which shows that a node accepts logins. This module util is PRIVATE to the collection."""

from __future__ import annotations

import socket
import time

#: The first words of every server of the protocol (RFC 4253, 4.2); other lines may come before.
GREETING = b"SSH-"
#: The most bytes of a read, and the bytes without a greeting that end the wait.
SHOWN = 4096


class Mute(OSError):
    """The connection was accepted, but no greeting came, or other text."""


def greet(address: str, port: int, timeout: float) -> int:
    """Return the milliseconds until the greeting came. Raises :class:`Mute` when the connection was accepted and none came, OSError when it was not."""
    began = time.monotonic()
    with socket.create_connection((address, port), timeout) as connection:
        try:
            _read(connection, began + timeout)
        except OSError as error:
            raise Mute(error.strerror or str(error)) from error
    return round((time.monotonic() - began) * 1000)


def _read(connection: socket.socket, end: float) -> None:
    """Read up to the greeting. Raises OSError when it does not come by ``end`` (monotonic), or other text comes."""
    received = b""
    while not any(line.startswith(GREETING) for line in received.splitlines()):
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        connection.settimeout(left)
        part = connection.recv(SHOWN)
        if not part or len(received) > SHOWN:
            raise ConnectionError(f"it greets with {received[:80]!r}" if received else "the connection was closed without a greeting")
        received += part
