# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a unit of ours tells systemd, and everybody who reads its records: without any secret. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import socket
import sys

from ansible_collections.gb10.cluster.plugins.module_utils._redact import redacted, secrets_of


def clean(text: str) -> str:
    """Return a text as everybody may read it: without the secrets of the node, which may be others than before, and what looks like one."""
    return redacted(text, secrets_of({}))


def notify(*lines: str) -> None:
    """Tell systemd the state of the unit. Without systemd nobody is told."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.connect(f"\0{address[1:]}" if address.startswith("@") else address)
            channel.sendall(clean("\n".join(lines)).encode())


def say(text: str) -> None:
    """Write a line to the journal."""
    sys.stdout.write(f"{clean(text)}\n")
    sys.stdout.flush()
