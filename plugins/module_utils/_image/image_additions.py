# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the layers of an image do to the base below them: whether they only add. This module util is PRIVATE to the collection.

The engine's own export has each layer as a tar. What the upper ones have is looked up in what those of the base have. Where layers are compressed in a way that
Python does not know, the packages of both images are compared, by their own Pythons.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import os
import tarfile
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._image import image_server

#: How the tar of a layer says that something of the layers below is gone, or all of a directory.
_REMOVED, _OPAQUE = ".wh.", ".wh..wh..opq"
#: Parts of an image's configuration that its layers leave as they are.
KEPT_CONFIG = ("Entrypoint", "Cmd", "WorkingDir")
_GZIP = b"\x1f\x8b"


@dataclasses.dataclass
class Additions:
    """What upper layers add (number of files), and which files of the base they change or remove."""

    added: int = 0
    changed: list[str] = dataclasses.field(default_factory=list)
    removed: list[str] = dataclasses.field(default_factory=list)


#: What something in a layer is to whoever reads it; of a directory only that it is one, since what lies in it is asked for by itself.
Entry = tuple[t.Any, ...]
Layer = dict[str, Entry]
DIRECTORY: Entry = (tarfile.DIRTYPE,)


class _Hashed:
    """A stream, and the digest of what was read of it."""

    def __init__(self, stream: t.IO[bytes]) -> None:
        self._stream, self.digest = stream, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        content = self._stream.read(size)
        self.digest.update(content)
        return content


def layers_of(tar: tarfile.TarFile) -> dict[str, Layer]:
    """Return what the layers of an export have, by the digests of their unpacked tars. Raises :class:`image_server.Unreadable`, TarError, OSError, EOFError."""
    found = {}
    for member in image_server.files(tar):
        stream = t.cast("t.IO[bytes]", tar.extractfile(member))
        is_packed = t.cast(t.Any, stream).peek(2)[:2] == _GZIP
        hashed = _Hashed(gzip.open(stream) if is_packed else stream)
        try:
            with tarfile.open(fileobj=t.cast(t.Any, hashed), mode="r|", bufsize=image_server.CHUNK) as layer:
                entries = _entries(layer)
        except tarfile.ReadError:
            # A configuration, or a list.
            continue
        while hashed.read(image_server.CHUNK):
            pass
        found[f"sha256:{hashed.digest.hexdigest()}"] = entries
    return found


def _entries(layer: tarfile.TarFile) -> Layer:
    found: Layer = {}
    for one in layer:
        name = folder = os.path.normpath(one.name).lstrip("/")
        while (folder := os.path.dirname(folder)) and folder not in found:
            found[folder] = DIRECTORY
        if one.isdir():
            found[name] = DIRECTORY
        elif one.islnk():
            found[name] = found.get(os.path.normpath(one.linkname).lstrip("/"), (one.type, one.linkname))
        else:
            content = hashlib.sha256()
            stream = layer.extractfile(one) if one.isreg() else None
            while stream and (part := stream.read(image_server.CHUNK)):
                content.update(part)
            found[name] = (one.type, one.mode, one.uid, one.gid, one.linkname, one.devmajor, one.devminor, content.digest())
    return found


def _drop(base: Layer, folder: str) -> bool:
    """Remove all below a directory, and return whether there was anything."""
    below = [name for name in base if name.startswith(f"{folder}/")]
    for name in below:
        del base[name]
    return bool(below)


def _put(base: Layer, layer: Layer) -> Additions:
    """Lay a layer on others, as a container sees them, and return what it does to them."""
    found = Additions()
    for name in layer:
        folder, last = os.path.split(name)
        if last == _OPAQUE:
            found.removed += [folder] if _drop(base, folder) else []
        elif last.startswith(_REMOVED):
            gone = os.path.join(folder, last.removeprefix(_REMOVED))
            was_there = base.pop(gone, None) is not None
            found.removed += [gone] if _drop(base, gone) or was_there else []
    for name, entry in layer.items():
        if os.path.basename(name).startswith(_REMOVED) or name == ".":
            continue
        there = base.get(name)
        if there is not None and there != entry:
            found.changed.append(name)
            _drop(base, name)
        found.added += there is None and entry != DIRECTORY
        base[name] = entry
    return found


def compare(below: t.Sequence[Layer], above: t.Sequence[Layer]) -> Additions:
    """Return what the upper layers do to the base."""
    base: Layer = {}
    for layer in below:
        _put(base, layer)
    own, found = set(base), Additions()
    for layer in above:
        done = _put(base, layer)
        found.added += done.added
        found.changed += [f"/{name}" for name in done.changed if name in own]
        found.removed += [f"/{name}" for name in done.removed if name in own]
    return Additions(found.added, sorted(set(found.changed)), sorted(set(found.removed)))


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
