# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a unit of ours tells systemd. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import socket
import sys


def notify(*lines: str) -> None:
    """Tell systemd the state of the unit. Without systemd nobody is told."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.connect(f"\0{address[1:]}" if address.startswith("@") else address)
            channel.sendall("\n".join(lines).encode())


def say(text: str) -> None:
    """Write a line to the journal."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
