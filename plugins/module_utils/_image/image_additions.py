# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the layers of an image do to the base below them: whether they only add. This module util is PRIVATE to the collection.

Where the engine keeps each layer in a directory of its own (overlay2), the names in the upper layers are looked up in those of the base, and what is there as
well is compared. Elsewhere the packages of both images are compared, by their own Pythons.
"""

from __future__ import annotations

import dataclasses
import filecmp
import os
import stat
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._image import image_server
from ansible_collections.gb10.cluster.plugins.module_utils._image.image_server import Layer

#: How the tar of a layer says that something of the layers below is gone, or all of a directory.
_REMOVED, _OPAQUE = b".wh.", b".wh..wh..opq"
#: Parts of an image's configuration that its layers leave as they are.
KEPT_CONFIG = ("Entrypoint", "Cmd", "WorkingDir")


@dataclasses.dataclass
class Additions:
    """What upper layers add (number of files), and which files of the base they change or remove."""

    added: int = 0
    changed: list[str] = dataclasses.field(default_factory=list)
    removed: list[str] = dataclasses.field(default_factory=list)


class Below:
    """The base as a container would see it, from the directories of its layers."""

    def __init__(self, layers: t.Sequence[Layer]) -> None:
        self._roots = [os.fsencode(layer.files) for layer in reversed(layers)]
        #: Of each directory: the layers in which it really is one, from the top, down to one that hides those below.
        self._folders: dict[bytes, list[bytes]] = {b"": self._roots}

    def _holding(self, folder: bytes) -> list[bytes]:
        """Return the layers that have a directory, none of them behind a link. Each name is asked for only where its parent is."""
        if folder not in self._folders:
            found = []
            for root in self._holding(os.path.dirname(folder)):
                path = os.path.join(root, folder)
                status = _status(path)
                if status is None:
                    continue
                if not stat.S_ISDIR(status.st_mode):
                    # A file, a link or a removal hides what is below.
                    break
                found.append(root)
                if _is_opaque(path):
                    break
            self._folders[folder] = found
        return self._folders[folder]

    def find(self, name: bytes) -> tuple[bytes, os.stat_result] | None:
        """Return where the base has something of that name, None when it has not."""
        for root in self._holding(os.path.dirname(name)):
            path = os.path.join(root, name)
            status = _status(path)
            if status is not None:
                return None if _is_removal(status) else (path, status)
        return None

    def holds_below(self, folder: bytes) -> bool:
        """Return whether the base has anything in a directory."""
        return any(True for root in self._holding(folder) for entry in os.scandir(os.path.join(root, folder)) if self.find(os.path.join(folder, entry.name)))


def _status(path: bytes) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_removal(status: os.stat_result) -> bool:
    """Return whether this is how overlay says that a name is gone."""
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def _is_opaque(path: bytes) -> bool:
    for attribute in ("trusted.overlay.opaque", "user.overlay.opaque"):
        try:
            if os.getxattr(path, attribute) == b"y":
                return True
        except OSError:
            continue
    return False


def compare(below: t.Sequence[Layer], above: t.Sequence[Layer]) -> Additions:
    """Return what the upper layers do to the base. Raises :class:`Unreadable`, OSError."""
    base, found, seen = Below(below), Additions(), set()
    for layer in above:
        top = os.fsencode(layer.files)
        for raw in image_server.names(layer.split):
            name = os.path.normpath(raw.lstrip(b"/")).removeprefix(b"./")
            folder, last = os.path.split(name)
            shown = "/" + os.fsdecode(name)
            if last == _OPAQUE:
                if base.holds_below(folder):
                    found.removed.append("/" + os.fsdecode(folder))
            elif last.startswith(_REMOVED):
                gone = os.path.join(folder, last[len(_REMOVED):])
                if base.find(gone):
                    found.removed.append("/" + os.fsdecode(gone))
            elif name not in (b".", b""):
                there = base.find(name)
                own = _status(os.path.join(top, name))
                if there is not None and own is not None and not _same(*there, os.path.join(top, name), own):
                    found.changed.append(shown)
                elif there is None and own is not None and not stat.S_ISDIR(own.st_mode) and name not in seen:
                    seen.add(name)
                    found.added += 1
    return Additions(found.added, sorted(set(found.changed)), sorted(set(found.removed)))


def _same(path: bytes, status: os.stat_result, other: bytes, of_other: os.stat_result) -> bool:
    """Return whether two things are the same to whoever reads them; of a directory only what lies in it matters, which is asked for by itself."""
    if stat.S_IFMT(status.st_mode) != stat.S_IFMT(of_other.st_mode):
        return False
    if stat.S_ISDIR(status.st_mode):
        return True
    if (status.st_mode, status.st_uid, status.st_gid) != (of_other.st_mode, of_other.st_uid, of_other.st_gid):
        return False
    if stat.S_ISLNK(status.st_mode):
        return os.readlink(path) == os.readlink(other)
    return stat.S_ISREG(status.st_mode) and status.st_size == of_other.st_size and filecmp.cmp(path, other, shallow=False)


def without(paths: t.Iterable[str], packages: t.Collection[str]) -> list[str]:
    """Return the paths that do not lie in the directory of one of these packages, which were declared to be changed."""
    return [path for path in paths if not set(packages) & set(path.split("/")[:-1])]


def packages(before: t.Mapping[str, str], after: t.Mapping[str, str]) -> Additions:
    """Return the same from the versions of all packages by name."""
    changed = [f"{name} {version} becomes {after[name]}" for name, version in before.items() if name in after and after[name] != version]
    removed = [f"{name} {version}" for name, version in before.items() if name not in after]
    return Additions(len(after.keys() - before.keys()), sorted(changed), sorted(removed))


def config(before: dict[str, t.Any], after: dict[str, t.Any], own_env: t.Collection[str]) -> list[str]:
    """Return what of the base's configuration is another one: its variables, but those that were asked for, and what it starts."""
    first, second = (dict(one.partition("=")[::2] for one in image.get("Env") or []) for image in (before, after))
    env = [f"the variable {name}" for name, value in first.items() if name not in own_env and second.get(name) != value]
    return [*env, *(name for name in KEPT_CONFIG if (before.get(name) or None) != (after.get(name) or None))]
