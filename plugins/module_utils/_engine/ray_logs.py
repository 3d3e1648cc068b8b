# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The logs of Ray's workers in a node's container, read in steps. This module util is PRIVATE to the collection.

A rank's last lines are only there, on its own node: Ray forwards them to the head's log late, or not at all.
The container can write all of these files: see :mod:`untrusted`.
"""

from __future__ import annotations

import os
import re

from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_log
from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted

#: Directory of Ray's sessions, below a container's root. Their names begin with the time.
SESSIONS = "tmp/ray"
SESSION = re.compile(r"session_\d{4}-[\w-]+\Z")
WORKER = re.compile(r"worker-[\w-]+\.(?:out|err)\Z")
#: Most files to read, which are the newest, and most bytes of one in a step. A longer line is dropped.
MOST_FILES, CHUNK = 64, 65536


def _names(root: str, relative: str) -> list[str]:
    """Return the names in a directory, none without one."""
    try:
        with untrusted.directory(root, relative) as folder:
            return os.listdir(folder)
    except FileNotFoundError:
        return []


def _logs(root: str) -> str:
    """Return the directory of the newest session's logs, empty without one."""
    newest = max((name for name in _names(root, SESSIONS) if SESSION.match(name)), default="")
    return f"{SESSIONS}/{newest}/logs" if newest else ""


def read(root: str, offsets: dict[str, int], from_end: bool) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Return (new complete lines, offset of the next read) by file of the container whose root directory is ``root``.

    ``from_end`` skips the existing lines. Raises OSError, :class:`UnknownState` for entries that Ray cannot have written.
    """
    folder = _logs(root)
    lines: dict[str, list[str]] = {}
    following: dict[str, int] = {}
    for name in sorted(name for name in _names(root, folder) if WORKER.match(name))[-MOST_FILES:] if folder else []:
        try:
            with untrusted.reader(root, f"{folder}/{name}") as log:
                begin = log.seek(0, os.SEEK_END) if from_end else offsets.get(name, 0)
                log.seek(begin)
                raw = log.read(CHUNK) or b""
        except FileNotFoundError:
            continue
        end = raw.rfind(b"\n") + 1 or (len(raw) if len(raw) == CHUNK else 0)
        new_lines = engine_log.plain_lines(raw[:end].decode(errors="replace"))
        if new_lines:
            lines[name] = new_lines
        following[name] = begin + end
    return lines, following
