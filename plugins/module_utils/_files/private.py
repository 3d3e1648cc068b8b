# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Directories that only root may enter, above the directories that containers write. This module util is PRIVATE to the collection.

Root in a container is the node's root to the file system: a setuid program that it writes runs as root for every user who reaches its path. A
container can change the mode of a directory that is mounted into it, but not of the one above. So that one is closed from its creation.
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
#: Directories that containers write, below a cluster's directories of state and of logs. One of them marks such a directory.
WRITTEN = ("run", "cache", "engine")


def make(path: str) -> None:
    """Make a directory that only root may enter, unless it exists. Raises OSError."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, CLOSED)


def _foreign(status: os.stat_result) -> bool:
    return status.st_uid not in (0, os.geteuid())


def _wrong_owner(path: str) -> str:
    """Return how an account other than root could replace a directory, which may be absent; empty if none could."""
    if os.path.lexists(path):
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode):
            return f"{path} is not a directory"
        if _foreign(status):
            return f"{path} belongs to user {status.st_uid}"
    for above in sorted({*pathlib.Path(os.path.abspath(path)).parents, *pathlib.Path(os.path.realpath(path)).parents}):
        with contextlib.suppress(FileNotFoundError):
            status = above.stat()
            # System groups may write to some (Ubuntu's /var/log); where all users may, the sticky bit protects each user's entries from the others.
            if _foreign(status) or (status.st_mode & 0o002 and not status.st_mode & stat.S_ISVTX):
                return f"{above}, above {path}, can be changed by accounts other than root"
    return ""


def check(path: str, what: str = "the files of containers") -> None:
    """Raise :class:`ClusterError` if an account other than root could open or replace a directory, which may be absent. Raises OSError.

    ``what`` names its content in the message.
    """
    if why := _wrong_owner(path):
        raise ClusterError(
            f"{what} would be within reach of other accounts: {why}",
            remedy="Give the directory and all above it to root (chown root:root), or choose directories that root owns: gb10_state_dir, gb10_log_dir.",
            reason="directory open",
        )


def is_open(path: str) -> bool:
    """Return whether another account may enter a directory; false for an absent one. Raises OSError."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return False
    return bool(status.st_mode & 0o007 or (status.st_mode & 0o070 and status.st_gid != 0)) or _foreign(status)


def close(path: str) -> None:
    """Let only root enter an existing directory. Raises as :func:`check` does."""
    check(path)
    if is_open(path):
        with files.descriptor(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW) as handle:
            os.fchmod(handle, CLOSED)


def ensure(path: str) -> None:
    """Make a directory that only root may enter, or close an existing one. Raises as :func:`check` does."""
    make(path)
    close(path)


def opened(*tops: str) -> list[dict[str, t.Any]]:
    """Return the directories of clusters below these that other accounts may enter, each with its ``mode`` and the command that closes it (``remedy``).

    Raises OSError when one of ``tops`` may not be read.
    """
    directories = []
    for path in (os.path.join(top, name) for top in tops for name in files.names(top)):
        if any(os.path.isdir(os.path.join(path, name)) for name in WRITTEN) and is_open(path):
            status = os.lstat(path)
            commands = [*([f"chown root:root {path}"] if _foreign(status) else []), f"chmod {CLOSED:04o} {path}"]
            directories.append({"path": path, "mode": f"{stat.S_IMODE(status.st_mode):04o}", "remedy": " && ".join(commands)})
    return directories
