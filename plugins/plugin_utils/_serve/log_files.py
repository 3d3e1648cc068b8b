# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads logs on the controller, from any cluster. This plugin util is PRIVATE to the collection.

Logs are not trusted: sizes are bounded, links are not followed, and a file that is not text is reported and skipped.
"""

from __future__ import annotations

import dataclasses
import gzip
import os
import pathlib
import re
import stat
import typing as t
import zlib

from ansible_collections.gb10.cluster.plugins.module_utils._engine.engine_log import plain_lines
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.log_lines import Line, timed

#: Bytes of one log that are read: of a longer one, half of them from its beginning and half from its end.
MOST_OF_A_FILE = 16 * 1024 * 1024
#: Bytes that are read of all logs together.
MOST_BYTES = 128 * 1024 * 1024
#: The largest number of files that are considered.
MOST_FILES = 2000
#: Bytes by which a file is recognized as text.
_HEAD = 4096
_GZIP = b"\x1f\x8b"
#: Control characters that text does not contain.
_CONTROL = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]")
#: The end of a file's name that only marks a log: not the dots in the name of a release or a model.
_ENDING = re.compile(r"(?:\.(?:log|txt|out|err)(?:\.[0-9]{1,3})?)?(?:\.(?:gz|xz|bz2|zst))?\Z")


@dataclasses.dataclass(frozen=True)
class LogFile:
    """One log. ``name`` is its path relative to the given one, ``node`` the first directory in it, else the file's name without its ending."""

    path: pathlib.Path
    name: str
    node: str


@dataclasses.dataclass(frozen=True)
class Content:
    """The content of a log. ``size`` is its size on disk, ``cut`` whether a part was left out."""

    lines: list[Line]
    size: int
    cut: bool


class NotText(Exception):
    """A file is not a readable log; the message is the reason."""


def find(given: str) -> tuple[list[LogFile], list[dict[str, str]]]:
    """Return the logs of a file or directory, and the entries there that are not logs: ``name`` and ``why``.

    Raises :class:`ClusterError` when there is nothing at this path. Links below it are not followed.
    """
    try:
        root = pathlib.Path(given).expanduser().resolve(strict=True)
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ClusterError(f"cannot be read: {reason}", where=given, expected="a log or a directory with logs", remedy="Correct gb10_explain.") from error
    if not root.is_dir():
        return [LogFile(root, root.name, _ENDING.sub("", root.name, count=1) or root.name)], []
    logs: list[LogFile] = []
    unread: list[dict[str, str]] = []

    def refused(error: OSError) -> None:
        unread.append({"name": str(pathlib.Path(error.filename).relative_to(root)), "why": error.strerror or "cannot be read"})

    for directory, directories, names in os.walk(root, onerror=refused):
        directories.sort()
        links = [name for name in directories if os.path.islink(os.path.join(directory, name))]
        for name in sorted([*names, *links]):
            path = pathlib.Path(directory, name)
            relative = path.relative_to(root)
            if not path.is_symlink() and path.exists() and not path.is_file():
                continue  # sockets and pipes, which Ray leaves behind, have no content
            why = "a link" if path.is_symlink() else f"beyond the first {MOST_FILES} files" if len(logs) >= MOST_FILES else ""
            if why:
                unread.append({"name": str(relative), "why": why})
            else:
                node = relative.parts[0] if len(relative.parts) > 1 else _ENDING.sub("", relative.name, count=1) or relative.name
                logs.append(LogFile(path, str(relative), node))
    return logs, unread


def read(log: LogFile, most: int = MOST_OF_A_FILE) -> Content:
    """Return a log's lines. Raises :class:`NotText` when it has none, OSError when it cannot be read."""
    with open(os.open(log.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise NotText("not a regular file")
        packed = stream.read(len(_GZIP)) == _GZIP
        stream.seek(0)
        raw, cut = _unpacked(stream, most) if packed else _ends(stream, status.st_size, most)
    if _CONTROL.search(raw[:_HEAD]):
        raise NotText("not text" + (", once unpacked" if packed else ""))
    # After a crash the end of a log may be filled with zeros.
    texts = plain_lines(raw.replace(b"\0", b"").decode("utf-8", errors="replace"))
    return Content(list(timed(texts, log.node, status.st_mtime, source=log.name)), status.st_size, cut)


def _ends(stream: t.BinaryIO, size: int, most: int) -> tuple[bytes, bool]:
    """Return a file's content, and whether a part is left out. Of a long file, these are the whole lines of its beginning and its end."""
    if size <= most:
        return stream.read(most), False
    beginning = stream.read(most // 2)
    stream.seek(size - most // 2)
    end = stream.read(most // 2)
    return beginning[: beginning.rfind(b"\n") + 1] + end[end.find(b"\n") + 1 :], True


def _unpacked(stream: t.BinaryIO, most: int) -> tuple[bytes, bool]:
    """Return the beginning of a packed file's content, and whether a part is left out. A truncated file is read as far as possible."""
    parts: list[bytes] = []
    size = 0
    try:
        with gzip.GzipFile(fileobj=stream) as unpacked:
            while size <= most and (part := unpacked.read1(1024 * 1024)):
                parts.append(part)
                size += len(part)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        if not parts:
            raise NotText(f"a broken gzip file: {error}") from error
        return b"".join(parts)[:most], True
    return b"".join(parts)[:most], size > most
