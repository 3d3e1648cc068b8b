# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files below a directory that a container can write. This module util is PRIVATE to the collection.

Root in the container may create links, FIFOs, device nodes or files of any size at every path there, and replace one at any moment. So the host
opens such a path from the directory's own handle, name by name, follows no link, and uses only regular files with one name. The directory
itself (``top``) must be named by the host: nothing in the container can replace its mount point.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import owners
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import descriptor

#: How often to open a file that its owner keeps replacing.
ATTEMPTS = 5

#: Held while a file is opened with its owner's rights, which then apply to all threads of the process.
_OPENING = threading.Lock()

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_KINDS = (
    (stat.S_ISLNK, "a link"), (stat.S_ISDIR, "a directory"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"), (stat.S_ISREG, "a file"),
)  # fmt: skip


class Tampered(UnknownState):
    """A container's directory has an entry that no program of this collection creates there."""

    def __init__(self, path: str, evidence: str) -> None:
        super().__init__(
            f"{path} was tampered with: {evidence}",
            remedy="Run the playbook teardown, which removes the entry, and find out which code in the container made it before you serve again. Nothing "
            "outside of the directory was touched.",
            reason="tampered",
            raw=path,
        )
        self.path, self.found = path, evidence


def _names(relative: str) -> list[str]:
    """Return the names of a relative path. Raises ValueError for one that could lead out of its directory."""
    names = relative.split("/")
    if any(name in ("", ".", "..") for name in names) or "\0" in relative:
        raise ValueError(f"{relative!r} is not a path below a directory")
    return names


def _kind(mode: int) -> str:
    return next((text for matches, text in _KINDS if matches(mode)), "a device")


@contextlib.contextmanager
def directory(top: str, relative: str = "", *, create: bool = False, mode: int = 0o750) -> t.Iterator[int]:
    """Open the directory ``relative`` below ``top`` and yield its handle. ``create`` makes the missing directories of ``relative``, with ``mode``.

    Raises OSError when one is absent or may not be read, :class:`Tampered` when one is not a directory.
    """
    handle = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    path = top
    try:
        for name in _names(relative) if relative else ():
            path = os.path.join(path, name)
            if create:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, mode, dir_fd=handle)
            below = _open_directory(name, handle, path)
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


def _open_directory(name: str, above: int, path: str) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=above)
    except OSError as error:
        with contextlib.suppress(FileNotFoundError):
            mode = os.stat(name, dir_fd=above, follow_symlinks=False).st_mode
            if not stat.S_ISDIR(mode):
                raise Tampered(path, f"{_kind(mode)} is in the place of a directory") from error
        error.filename = path
        raise


def reader(top: str, relative: str, *, own: bool = True) -> t.BinaryIO:
    """Open a regular file for reading. Raises OSError when it is absent or may not be read, :class:`Tampered` for anything else.

    A file of the collection's programs (``own``) has one name: a second one would be a foreign hard link.
    """
    folder, _slash, name = relative.rpartition("/")
    path = os.path.join(top, relative)
    with directory(top, folder) as above:
        for _attempt in range(ATTEMPTS):
            # Opened as a path first: opening a device can have effects.
            with descriptor(_names(name)[0], os.O_PATH | os.O_NOFOLLOW, above) as handle:
                status = os.fstat(handle)
                if not stat.S_ISREG(status.st_mode):
                    raise Tampered(path, f"{_kind(status.st_mode)} is in the place of a file")
                if own and status.st_nlink > 1:
                    raise Tampered(path, f"it has {status.st_nlink} names (hard links)")
                if status.st_nlink or not own:
                    return open(f"/proc/self/fd/{handle}", "rb", buffering=0)  # pylint: disable=consider-using-with
    raise FileNotFoundError(2, "was replaced again and again", path)


def regular(path: str) -> int | None:
    """Open the file that a path leads to, also through links, and return its descriptor; None for anything but a regular file.

    Raises OSError, and :class:`ClusterError` where a user's link leads root to what that user may not read.
    """
    # Opened as a path first: opening a device can have effects, and opening a named pipe waits for its writer.
    with _OPENING, descriptor(path, os.O_PATH) as handle:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        owners.require_readable(path, handle)
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC)


def content(path: str, limit: int) -> bytes | None:
    """Return the whole file that a path leads to, also through links; None for anything but a regular file of at most ``limit`` bytes.

    Raises as :func:`regular` does.
    """
    file_descriptor = regular(path)
    if file_descriptor is None:
        return None
    with open(file_descriptor, "rb") as handle:
        text = handle.read(limit + 1)
    return text if len(text) <= limit else None


def read(top: str, relative: str, limit: int) -> bytes:
    """Return a whole file. Raises as :func:`reader` does, and :class:`Tampered` when it has more than ``limit`` bytes."""
    text = b""
    with reader(top, relative) as handle:
        while part := handle.read(limit + 1 - len(text)):
            text += part
    if len(text) > limit:
        raise Tampered(os.path.join(top, relative), f"it has more than {limit} bytes")
    return text


class Entry(t.NamedTuple):
    """An entry below a directory: its path from there, its own status, and for a link its target as written."""

    path: str
    status: os.stat_result
    target: str = ""


def walk(top: str, relative: str = "") -> t.Iterator[Entry]:
    """Yield everything below the directory ``relative`` below ``top``, including directories and links; no link is followed.

    Raises OSError when a directory is absent at the start or may not be read, :class:`Tampered` as :func:`directory` does.
    """
    def stop(error: OSError) -> None:
        # A directory that was removed meanwhile has no entries.
        if not isinstance(error, FileNotFoundError):
            raise error

    with directory(top, relative) as handle:
        for below, directories, names, folder in os.fwalk(".", onerror=stop, dir_fd=handle):
            for name in sorted([*names, *directories]):
                try:
                    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    target = os.readlink(name, dir_fd=folder) if stat.S_ISLNK(status.st_mode) else ""
                except FileNotFoundError:
                    continue  # removed meanwhile
                yield Entry(os.path.normpath(os.path.join(below, name)), status, target)


def create(above: int, name: str, mode: int = 0o640) -> int:
    """Create a new file in an open directory and return its descriptor for writing. Raises OSError, also for a link of that name."""
    return os.open(_names(name)[0], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=above)


def remove(top: str, relative: str) -> None:
    """Remove a file, or a link itself. Raises OSError, :class:`Tampered` for a link in the path."""
    folder, _slash, name = relative.rpartition("/")
    with directory(top, folder) as above:
        os.unlink(_names(name)[0], dir_fd=above)


def remove_tree(top: str, relative: str) -> None:
    """Remove a directory and everything in it; of a link, only the link. Raises OSError, :class:`Tampered` for a link in the path."""
    def stop(error: OSError) -> t.NoReturn:
        raise error

    folder, _slash, name = relative.rpartition("/")
    with directory(top, relative) as handle:
        for _below, directories, names, here in os.fwalk(".", topdown=False, onerror=stop, dir_fd=handle):
            for below in [*names, *directories]:
                is_directory = stat.S_ISDIR(os.stat(below, dir_fd=here, follow_symlinks=False).st_mode)
                (os.rmdir if is_directory else os.unlink)(below, dir_fd=here)
    with directory(top, folder) as above:
        os.rmdir(_names(name)[0], dir_fd=above)
