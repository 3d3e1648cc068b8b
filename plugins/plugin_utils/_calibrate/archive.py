# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A calibration as one file: a compressed tar archive whose members name nobody. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import gzip
import io
import os
import posixpath
import tarfile
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.plugin_utils._report import new_file

#: Everything lies below this directory.
ROOT = "calibration"
#: Bytes of all members together, and how many there may be, in an archive that is written or read.
MOST_BYTES = 512 * 1024 * 1024
MOST_MEMBERS = 50_000


class Content(t.NamedTuple):
    """The members of an archive by their names below :data:`ROOT`: texts, and where symbolic links lead."""

    texts: dict[str, str]
    links: dict[str, str]


def require_new(path: str) -> None:
    """Raise :class:`ClusterError` unless an archive can be written to ``path``, and nothing is there yet."""
    directory = os.path.dirname(os.path.abspath(path))
    if os.path.lexists(path):
        raise ClusterError(f"gb10_calibrate_to: {path} exists", remedy="Name a file that does not exist yet, or move that one away.", reason="exists")
    if not os.path.isdir(directory) or not os.access(directory, os.W_OK | os.X_OK):
        raise ClusterError(
            f"gb10_calibrate_to: {directory} is not a directory that can be written to", remedy=f"Create it: mkdir -p {directory}", reason="no directory"
        )


def written(path: str, content: Content) -> int:
    """Write an archive, readable by the user alone, and return its bytes. Raises :class:`ClusterError`; an existing file is never replaced."""
    size = sum(len(text) for text in content.texts.values())
    if size > MOST_BYTES:
        raise ClusterError(f"the calibration has {size} characters; an archive holds {MOST_BYTES}", remedy="Lower gb10_calibrate_seconds.", reason="size")
    raw = packed(content)
    try:
        new_file.create(path, raw)
    except FileExistsError as error:
        raise ClusterError(f"gb10_calibrate_to: {path} exists", remedy="Name a file that does not exist yet.", reason="exists") from error
    except OSError as error:
        raise ClusterError(f"{path} cannot be written: {error.strerror}", remedy="Free space there, or name another file.", reason="write") from error
    return len(raw)


def packed(content: Content) -> bytes:
    """Return the archive. Who packed it, when and where does not show: owners are 0 and times 0 in every header."""
    raw = io.BytesIO()
    with gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as stream, tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted({**content.texts, **content.links}):
            member = tarfile.TarInfo(f"{ROOT}/{name}")
            member.mode = 0o644
            if name in content.links:
                member.type, member.linkname = tarfile.SYMTYPE, content.links[name]
                archive.addfile(member)
            else:
                text = content.texts[name].encode("utf-8", "backslashreplace")
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text))
    return raw.getvalue()


def read(path: str) -> Content:
    """Return what an archive holds. Raises :class:`UnknownState` for a file that is not such an archive."""
    texts: dict[str, str] = {}
    links: dict[str, str] = {}
    size = 0
    try:
        with tarfile.open(path, mode="r:gz") as archive:
            for member in archive:
                name = posixpath.relpath(member.name, ROOT)
                size += member.size
                if posixpath.isabs(member.name) or name.startswith("..") or size > MOST_BYTES or len(texts) + len(links) > MOST_MEMBERS:
                    raise UnknownState(f"{path} is not an archive of calibrate: {member.name[:200]}", reason="not understood")
                if member.issym():
                    links[name] = member.linkname
                elif member.isfile():
                    texts[name] = archive.extractfile(member).read().decode("utf-8", "replace")
    except (OSError, EOFError, tarfile.TarError) as error:
        raise UnknownState(f"{path} cannot be read as an archive: {error}", reason="not understood") from error
    return Content(texts, links)


def spread(content: Content, below: str, directory: str) -> None:
    """Write the members of one directory of an archive to ``directory``, as the tree that they were. A link that leads out of it is left out."""
    top = os.path.realpath(directory)
    for name, target in content.links.items():
        if name.startswith(f"{below}/"):
            path = os.path.join(top, name[len(below) + 1:])
            leads = os.path.normpath(os.path.join(os.path.dirname(path), target))
            if leads.startswith(f"{top}/") and not posixpath.isabs(target):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                # What a link of sysfs leads to is a directory, also where nothing of it was recorded.
                os.makedirs(leads, exist_ok=True)
                os.symlink(target, path)
    for name, text in content.texts.items():
        if name.startswith(f"{below}/"):
            path = os.path.join(top, name[len(below) + 1:])
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(text)
