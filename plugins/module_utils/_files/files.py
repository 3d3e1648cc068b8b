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
import fcntl
import json
import os
import re
import stat
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState

#: Bytes of one file that are read; files of procfs and sysfs are far shorter.
SIZE_LIMIT = 1024 * 1024
#: Bytes of a whole file of ours that are read, the longest of which are programs.
CONTENT_LIMIT = 4 * 1024 * 1024

#: Where what counts until the next boot is kept.
RUN_DIR = "/run/gb10"

#: How the name of a file goes on that is written beside the one that it replaces: with its writer, and as earlier versions had it.
_BESIDE = re.compile(r"(?P<pid>[0-9]+)-[0-9]+\.new|gb10-new")

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


def sync_directory(path: str) -> None:
    """Have the names in a directory on the disk: what was renamed there is found after a power cut, too. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_leftovers(path: str) -> None:
    """Remove what writers of ``path`` that were killed left beside it, those of earlier versions among them. Raises OSError."""
    folder, name = os.path.split(path)
    for found in os.listdir(folder or "."):
        match = _BESIDE.fullmatch(found.removeprefix(f"{name}.")) if found.startswith(f"{name}.") else None
        if match and not (match["pid"] and os.path.exists(f"/proc/{match['pid']}")):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, found))


def _beside(path: str) -> str:
    """Return a name beside ``path`` that no other writer has."""
    return f"{path}.{os.getpid()}-{time.monotonic_ns()}.new"


def _put(new: str, path: str, replace: bool) -> None:
    """Give what was written beside ``path`` its name; it is there after a power cut, too. Raises OSError, FileExistsError without ``replace``."""
    if replace:
        os.replace(new, path)
    else:
        os.link(new, path)
        os.unlink(new)
    sync_directory(os.path.dirname(path) or ".")


def write_whole(path: str, content: bytes, mode: int | None = 0o600, *, replace: bool = True) -> None:
    """Write a file so that a reader, and a node after a power cut, has the old or the new content, whoever else writes it at the same moment.

    Its mode is the umask's where ``mode`` is None. Without ``replace`` a file that is there stays. Raises OSError, and leaves nothing beside it then.
    """
    remove_leftovers(path)
    new = _beside(path)
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666 if mode is None else 0o600)
    try:
        with open(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            if mode is not None:
                os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        _put(new, path, replace)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(new)
        # Neither a write nor a sync names the file.
        raise OSError(error.errno, error.strerror, path) from error


def write_link(path: str, target: str) -> None:
    """Have a link at ``path`` lead to ``target``, as :func:`write_whole` has a file there. Raises OSError."""
    remove_leftovers(path)
    new = _beside(path)
    os.symlink(target, new)
    try:
        _put(new, path, True)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise


def write_text(path: str, text: str, mode: int | None = None) -> None:
    """Write a text as :func:`write_whole` does. Raises OSError."""
    write_whole(path, text.encode(), mode)


def open_lock(path: str) -> int:
    """Open the file that is locked by those who are to work alone, made where it is missing, and return its descriptor.

    Only its owner may open it: whoever can open a file or a directory can lock it. Raises OSError, and :class:`ClusterError` for one of another kind.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    status = os.fstat(handle)
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077:
        return handle
    os.close(handle)
    raise ClusterError(f"{path} is not a file that only this account can open", remedy=f"See who made it, and remove it: rm {path}", reason="foreign lock")


@contextlib.contextmanager
def alone(path: str) -> t.Iterator[None]:
    """Keep others out who ask for the same ``path``, which is there meanwhile only. Raises BlockingIOError when one is in, and what :func:`open_lock` does."""
    while True:
        handle = open_lock(path)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(handle, path):
                break
        except OSError:
            os.close(handle)
            raise
        # Whoever was in has removed it since it was opened here.
        os.close(handle)
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        os.close(handle)


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
