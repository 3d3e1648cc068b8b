# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Small files: the collection's own, and those of procfs and sysfs. This module util is PRIVATE to the collection.

The collection's files are written completely or not at all. For procfs and sysfs, absent, not readable and not understood are distinguished.

A section of ``node_info`` has several readers, each of which may fail alone. Functions that read a section take ``section``:
``section(reader, otherwise)`` returns the value of ``reader()``, or records the failure and returns ``otherwise``. :func:`strict` records
nothing: the first failure ends the section.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState

#: Most bytes to read of one file. Files of procfs and sysfs are far shorter.
SIZE_LIMIT = 1024 * 1024
#: Most bytes to read of one of the collection's own files, the longest of which are programs.
CONTENT_LIMIT = 4 * 1024 * 1024

#: Directory of files that are valid until the next boot.
RUN_DIR = "/run/gb10"

#: The suffix of a new file next to the one that it replaces: with its writer's process id, and as earlier versions wrote it.
_NEW_SUFFIX = re.compile(r"(?P<pid>[0-9]+)-[0-9]+\.new|gb10-new")

#: Errors for an attribute that does not exist here, or has no value now: ``carrier`` of an interface that is down and the type
#: of an empty GID answer EINVAL, the pressure files of a kernel with PSI switched off EOPNOTSUPP.
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.EOPNOTSUPP, errno.ENODEV, errno.ENODATA}


class Section(t.Protocol):
    """Calls one reader of a section. See this module's docstring."""

    def __call__(self, reader: t.Callable[[], t.Any], otherwise: t.Any = None) -> t.Any:
        """Return the value of ``reader()``, or ``otherwise`` after recording its failure."""


def strict(reader: t.Callable[[], t.Any], otherwise: t.Any = None) -> t.Any:
    """Return the value of ``reader()``, and let its failure pass; ``otherwise`` is not used."""
    return reader()


@contextlib.contextmanager
def descriptor(path: str, flags: int, dir_fd: int | None = None) -> t.Iterator[int]:
    """Open a path, which may be a directory, and close it at the end of the block. Raises OSError."""
    handle = os.open(path, flags | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        yield handle
    finally:
        os.close(handle)


def required_text(path: str, limit: int = SIZE_LIMIT) -> str:
    """Return a file's text without the white space around it. Raises OSError; bytes that are not UTF-8 are replaced."""
    with open(path, "rb") as stream:
        return stream.read(limit).decode("utf-8", errors="replace").strip()


def boot_id(proc_root: str) -> str:
    """Return the kernel's id of this boot. Raises :class:`UnknownState` when it cannot be read."""
    path = os.path.join(proc_root, "sys", "kernel", "random", "boot_id")
    try:
        return required_text(path)
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
    """Return a plain file's content, None when it is absent or a link. Raises OSError when it may not be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR) or os.path.islink(path):
            return None
        raise
    with open(handle, "rb") as stream:
        return stream.read(CONTENT_LIMIT)


def sync_directory(path: str) -> None:
    """Write a directory's names to the disk, so that a renamed file is found after a power cut, too. Raises OSError."""
    with descriptor(path, os.O_RDONLY | os.O_DIRECTORY) as handle:
        os.fsync(handle)


def remove_leftovers(path: str) -> None:
    """Remove the new files that killed writers of ``path`` left next to it, also those of earlier versions. Raises OSError."""
    folder, name = os.path.split(path)
    for entry in os.listdir(folder or "."):
        match = _NEW_SUFFIX.fullmatch(entry.removeprefix(f"{name}.")) if entry.startswith(f"{name}.") else None
        if match and not (match["pid"] and os.path.exists(f"/proc/{match['pid']}")):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, entry))


@contextlib.contextmanager
def _replacing(path: str, replace: bool = True) -> t.Iterator[str]:
    """Yield a name next to ``path`` that no other writer has. What the block writes there gets the name ``path``, also after a power cut.

    Raises OSError, FileExistsError without ``replace``, and leaves nothing next to ``path`` then.
    """
    remove_leftovers(path)
    new = f"{path}.{os.getpid()}-{time.monotonic_ns()}.new"
    try:
        yield new
        if replace:
            os.replace(new, path)
        else:
            os.link(new, path)
            os.unlink(new)
        sync_directory(os.path.dirname(path) or ".")
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(new)
        # Neither a write nor a sync names the file.
        raise OSError(error.errno, error.strerror, path) from error


def write_whole(path: str, content: bytes, mode: int | None = 0o600, *, replace: bool = True) -> None:
    """Write a file so that a reader, also after a power cut, finds the old or the new content, even with several writers at once.

    With ``mode`` None the umask sets its mode. Without ``replace`` an existing file stays. Raises OSError.
    """
    with _replacing(path, replace) as new:
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666 if mode is None else 0o600)
        with open(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            if mode is not None:
                os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())


def write_link(path: str, target: str) -> None:
    """Make ``path`` a link to ``target``, as :func:`write_whole` writes a file. Raises OSError."""
    with _replacing(path) as new:
        os.symlink(target, new)


def write_text(path: str, text: str, mode: int | None = None) -> None:
    """Write a text as :func:`write_whole` does; without ``mode`` the umask sets its mode."""
    write_whole(path, text.encode(), mode)


def open_lock(path: str) -> int:
    """Open a lock file, which is created where it is missing, and return its descriptor.

    Only its owner may open it: any account that can open a file can lock it. Raises OSError, and :class:`ClusterError` for another kind of file.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    status = os.fstat(handle)
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077:
        return handle
    os.close(handle)
    raise ClusterError(f"{path} is not a file that only this account can open", remedy=f"See who made it, and remove it: rm {path}", reason="foreign lock")


@contextlib.contextmanager
def alone(path: str) -> t.Iterator[None]:
    """Hold the lock file ``path``, which exists only meanwhile. Raises BlockingIOError while another process holds it, and as :func:`open_lock` does."""
    with contextlib.ExitStack() as stack:
        handle = None
        # The last holder may have removed the file between opening and locking it.
        while handle is None or not _is_at(handle, path):
            handle = open_lock(path)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            yield
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def _is_at(handle: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False


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
