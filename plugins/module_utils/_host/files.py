# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Small files, ours and those of procfs and sysfs. This module util is PRIVATE to the collection.

Ours are written whole or not at all. Of procfs and sysfs, absent, not readable and not understood are distinguished.

A section of ``node_info`` is read by several readers, each of which may fail by itself. Functions that read a section take ``section``:
``section(reader, otherwise)`` returns what ``reader()`` returns, or notes what went wrong and returns ``otherwise``. :func:`strict` notes
nothing: the first failure is the section's.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState

#: Bytes of one file that are read; files of procfs and sysfs are far shorter.
SIZE_LIMIT = 1024 * 1024
#: Bytes of a whole file of ours that are read, the longest of which are programs.
CONTENT_LIMIT = 4 * 1024 * 1024

#: How the kernel says that an attribute does not exist here, or has no value now: ``carrier`` of an interface that is down and the type
#: of an empty GID answer EINVAL, the pressure files of a kernel with PSI switched off EOPNOTSUPP.
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.EOPNOTSUPP, errno.ENODEV, errno.ENODATA}


class Section(t.Protocol):
    """Runs one reader of a section; see this module's docstring."""

    def __call__(self, reader: t.Callable[[], t.Any], otherwise: t.Any = None) -> t.Any:
        """Return what ``reader()`` returns, or ``otherwise`` when it failed and that was noted."""


def strict(reader: t.Callable[[], t.Any], otherwise: t.Any = None) -> t.Any:
    """Return what ``reader()`` returns and do not catch its failure; ``otherwise`` is not used."""
    return reader()


def required_text(path: str) -> str:
    """Return a file's text without the white space around it. Raises OSError; bytes that are not UTF-8 are replaced."""
    with open(path, "rb") as stream:
        return stream.read(SIZE_LIMIT).decode("utf-8", errors="replace").strip()


def boot_id(proc_root: str) -> str:
    """Return the kernel's id of this boot. Raises :class:`UnknownState` when it cannot be read."""
    path = os.path.join(proc_root, "sys", "kernel", "random", "boot_id")
    try:
        with open(path, encoding="ascii", errors="replace") as handle:
            return handle.read().strip()
    except OSError as error:
        raise UnknownState(f"{path} cannot be read: {error.strerror}") from error


def optional_text(path: str) -> str | None:
    """Return a file's text, None when it is absent or has no value now. Raises OSError when it exists and may not be read."""
    try:
        return required_text(path)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise


def number(text: str, path: str) -> int:
    """Return a decimal number as the kernel prints it. Raises :class:`UnknownState` with the raw text for anything else."""
    if not text.removeprefix("-").isdecimal() or not text.isascii() or len(text) > 20:
        raise UnknownState(f"{path} does not hold a number: {text[:80]!r}", raw=text[:2000])
    return int(text)


def optional_number(path: str) -> int | None:
    """Return a file's number, None when it is absent. Raises OSError or :class:`UnknownState` when it cannot be read."""
    text = optional_text(path)
    return None if text is None else number(text, path)


def plain_content(path: str) -> bytes | None:
    """Return a plain file, None when there is none, also where a link is. Raises OSError when it may not be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        if os.path.islink(path):
            return None
        raise
    with open(handle, "rb") as stream:
        return stream.read(CONTENT_LIMIT)


def write_whole(path: str, content: bytes, mode: int = 0o600) -> None:
    """Write a file with this mode, whatever the umask is, whole or not at all. One run at a time may do so. Raises OSError."""
    beside = f"{path}.gb10-new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside)
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fchmod(stream.fileno(), mode)
        os.fsync(stream.fileno())
    os.replace(beside, path)


def write_text(path: str, text: str, mode: int | None = None) -> None:
    """Write a file so that a reader sees the old or the new content, never a part, whoever else writes it at the same moment.

    Its mode is the umask's without ``mode``. Raises OSError, and leaves nothing then.
    """
    new = f"{path}.{os.getpid()}-{time.monotonic_ns()}.new"
    try:
        with open(new, "w", encoding="utf-8") as handle:
            handle.write(text)
            handle.flush()
            if mode is not None:
                os.fchmod(handle.fileno(), mode)
            os.fsync(handle.fileno())
        os.replace(new, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.remove(new)
        raise


def write_json(path: str, content: t.Any, mode: int | None = None) -> None:
    """Write a JSON file as :func:`write_text` does."""
    write_text(path, json.dumps(content, indent=1, sort_keys=True) + "\n", mode)


def names(path: str) -> list[str]:
    """Return the names in a directory, sorted; none when it does not exist. Raises OSError when it may not be read."""
    try:
        return sorted(os.listdir(path))
    except OSError as error:
        if error.errno in _ABSENT:
            return []
        raise
