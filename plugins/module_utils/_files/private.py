# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Directories that root alone may enter, above all that containers write. This module util is PRIVATE to the collection.

Root in a container is the node's root to the file system: a program that it leaves with the setuid bit runs as root for whoever reaches it by its path. A
container can change the mode of a directory that is mounted into it, and not that of the one above. So that one is closed, from the moment it is made.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import stat
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import files

#: The mode of a closed directory.
CLOSED = 0o700
#: What lies below a cluster's directory of state, and below that of logs, that containers write: by one of these such a directory is known.
WRITTEN = ("run", "cache", "engine")


def make(path: str) -> None:
    """Make a directory that root alone may enter, unless one is there. Raises OSError."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, CLOSED)


def _foreign(status: os.stat_result) -> bool:
    return status.st_uid not in (0, os.geteuid())


def _wrong_owner(path: str) -> str:
    """Return how another account than root could put something else in the place of a directory, there or not yet; empty when none could."""
    if os.path.lexists(path):
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode):
            return f"{path} is not a directory of its own"
        if _foreign(status):
            return f"{path} belongs to user {status.st_uid}"
    for above in sorted({*pathlib.Path(os.path.abspath(path)).parents, *pathlib.Path(os.path.realpath(path)).parents}):
        with contextlib.suppress(FileNotFoundError):
            status = above.stat()
            # Groups of the system may write to some (Ubuntu's /var/log); where everybody may, the sticky bit keeps each from the others' names.
            if _foreign(status) or (status.st_mode & 0o002 and not status.st_mode & stat.S_ISVTX):
                return f"{above}, above {path}, can be changed by other accounts than root"
    return ""


def check(path: str, what: str = "what containers write") -> None:
    """Raise :class:`ClusterError` where a directory, there or not yet, could be opened or replaced by another account than root. Raises OSError.

    ``what`` lies in it, for the message.
    """
    if why := _wrong_owner(path):
        raise ClusterError(
            f"{what} would be within reach of other accounts: {why}",
            remedy="Give the directory and all above it to root (chown root:root), or choose directories of root's: gb10_state_dir, gb10_log_dir.",
            reason="directory open",
        )


def is_open(path: str) -> bool:
    """Return whether another account may enter a directory; none that is absent. Raises OSError."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return False
    return bool(status.st_mode & 0o007 or (status.st_mode & 0o070 and status.st_gid != 0)) or _foreign(status)


def close(path: str) -> None:
    """Have root alone enter a directory that is there. Raises as :func:`check` does."""
    check(path)
    if is_open(path):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(handle, CLOSED)
        finally:
            os.close(handle)


def ensure(path: str) -> None:
    """Have a directory there that root alone may enter. Raises as :func:`check` does."""
    make(path)
    close(path)


def opened(*tops: str) -> list[dict[str, t.Any]]:
    """Return the directories of clusters below these that other accounts may enter, each with its ``mode`` and what to type (``remedy``).

    One that cannot be looked at is left out: nobody else can, either. Raises OSError when one of ``tops`` may not be read.
    """
    found = []
    for path in (os.path.join(top, name) for top in tops for name in files.names(top)):
        if any(os.path.isdir(os.path.join(path, name)) for name in WRITTEN) and is_open(path):
            status = os.lstat(path)
            owner = f"chown root:root {path} && " if _foreign(status) else ""
            found.append({"path": path, "mode": f"{stat.S_IMODE(status.st_mode):04o}", "remedy": f"{owner}chmod {CLOSED:04o} {path}"})
    return found
