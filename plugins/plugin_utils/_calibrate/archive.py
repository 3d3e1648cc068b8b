# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes a calibration as one file: a compressed tar archive whose members name no person. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import gzip
import io
import itertools
import os
import posixpath
import tarfile
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import new_file

#: The directory of all members.
ROOT = "calibration"
#: Bytes of all members together in an archive that is written or read.
MOST_BYTES = 512 * 1024 * 1024
#: The largest number of characters of a member's path, and of names in it: paths of sysfs have some 120 and 12.
MOST_CHARACTERS, MOST_NAMES = 1024, 64


class Content(t.NamedTuple):
    """The members of an archive by their names below :data:`ROOT`: texts, and the targets of symbolic links."""

    texts: dict[str, str]
    links: dict[str, str]


def require_new(path: str) -> None:
    """Raise :class:`ClusterError` unless an archive can be written to ``path``, and nothing is there yet."""
    directory = os.path.dirname(os.path.abspath(path))
    if os.path.lexists(path):
        raise ClusterError(f"gb10_to: {path} exists", remedy="Name a file that does not exist yet, or move that one away.", reason="exists")
    if not os.path.isdir(directory) or not os.access(directory, os.W_OK | os.X_OK):
        raise ClusterError(
            f"gb10_to: {directory} is not a directory that can be written to", remedy=f"Create it: mkdir -p {directory}", reason="no directory"
        )


def written(path: str, content: Content) -> int:
    """Write an archive, readable by the user alone, and return its bytes. Raises :class:`ClusterError`; an existing file is never replaced."""
    size = sum(len(text) for text in content.texts.values())
    if size > MOST_BYTES:
        raise ClusterError(
            f"the calibration has {size} characters; an archive holds {MOST_BYTES}", remedy="See which of the nodes' logs is that long.", reason="size"
        )
    raw = packed(content)
    try:
        new_file.create(path, raw)
    except FileExistsError as error:
        raise ClusterError(f"gb10_to: {path} exists", remedy="Name a file that does not exist yet.", reason="exists") from error
    except OSError as error:
        raise ClusterError(f"{path} cannot be written: {error.strerror}", remedy="Free space there, or name another file.", reason="write") from error
    return len(raw)


def packed(content: Content) -> bytes:
    """Return the archive. It does not show who packed it, when and where: owners and times are 0 in every header."""
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


def refused(where: str, what: str) -> UnknownState:
    """Return the error for something that is not a calibration."""
    return UnknownState(
        f"{where} is not a calibration: {what}", remedy="Take one with the playbook calibrate; nothing of this one was written.", reason="not understood"
    )


def is_plain(name: str) -> bool:
    """Return whether a relative path only leads down, through printable names, and not too many of them."""
    parts = name.split("/", MOST_NAMES)
    return name.isprintable() and len(name) <= MOST_CHARACTERS and len(parts) <= MOST_NAMES and not any(part in ("", ".", "..") for part in parts)


def spread(content: Content, below: str, directory: str) -> None:
    """Write the members of one directory of an archive to ``directory``, an empty one, as their original tree.

    A link that leads out of it is left out. Raises :class:`UnknownState` for members that are not one tree, before anything is written.
    """
    texts, links = ({name[len(below) + 1:]: value for name, value in of.items() if name.startswith(f"{below}/")} for of in content)
    inside = {name: (target, leads) for name, target in links.items() if (leads := _leads(name, target)) is not None}
    # The target of a link of sysfs is a directory, even if nothing in it was recorded.
    folders = {leads for _target, leads in inside.values() if leads not in texts and leads not in links}
    _check_tree(below, texts, links, folders)
    try:
        os.makedirs(directory, exist_ok=True)
        for folder in sorted({*folders, *map(posixpath.dirname, (*texts, *inside))}):
            with untrusted.directory(directory, folder, create=True):
                pass
        for name, text in texts.items():
            with untrusted.directory(directory, posixpath.dirname(name)) as above:
                with open(untrusted.create(above, posixpath.basename(name)), "w", encoding="utf-8", errors="backslashreplace") as stream:
                    stream.write(text)
        # Links are last: until now nothing in the tree is a link.
        for name, (target, _place) in inside.items():
            with untrusted.directory(directory, posixpath.dirname(name)) as above:
                os.symlink(target, posixpath.basename(name), dir_fd=above)
    except (OSError, untrusted.Tampered) as error:
        raise refused(f"{below} of the archive", f"it cannot be put up as a tree: {error}") from error


def _leads(name: str, target: str) -> str | None:
    """Return the target of a link relative to the top of its tree, empty for the top itself; None when it leads out, or may do so through another link."""
    parts = target.split("/")
    down = list(itertools.dropwhile(lambda part: part == "..", parts))
    above = posixpath.dirname(name).split("/") if "/" in name else []
    climbs = len(parts) - len(down)
    if climbs > len(above) or (down and not is_plain("/".join(down))):
        return None
    return "/".join([*above[:len(above) - climbs], *down])


def _check_tree(below: str, texts: t.Mapping[str, str], links: t.Mapping[str, str], folders: t.Iterable[str]) -> None:
    """Raise :class:`UnknownState` unless each name has its own place: none occurs twice, and none is below a link or a file."""
    ends = {*texts, *links}
    if len(ends) < len(texts) + len(links):
        raise refused(f"{below} of the archive", "a name is both a file and a link")
    for name in (*ends, *filter(None, folders)):
        parts = name.split("/")
        above = {"/".join(parts[:count]) for count in range(1, len(parts))}
        behind = sorted(above & ends)
        if not is_plain(name) or behind:
            raise refused(f"{below} of the archive", f"{name!r} is below {behind[0]!r}, which is a link or a file" if behind else f"{name!r} is not a name")
