# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Messages of this collection's units to systemd and the journal, without secrets. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import socket
import sys
import traceback

from ansible_collections.gb10.cluster.plugins.module_utils._redact import redacted, secrets_of


def clean(text: str) -> str:
    """Return a text without the node's secrets, which may have changed since, and without anything that looks like a secret."""
    return redacted(text, secrets_of({}))


def notify(*lines: str) -> None:
    """Send the state of the unit to systemd, where systemd runs it."""
    if address := os.environ.get("NOTIFY_SOCKET", ""):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.connect(f"\0{address[1:]}" if address.startswith("@") else address)
            channel.sendall(clean("\n".join(lines)).encode())


def say(text: str) -> None:
    """Write a line to the journal."""
    sys.stdout.write(clean(text) + "\n")
    sys.stdout.flush()


def log_uncaught_errors() -> None:
    """Write the traceback of an uncaught error like any other line: Python would print it with its secrets."""
    sys.excepthook = lambda kind, error, trace: say("".join(traceback.format_exception(kind, error, trace)).rstrip())
