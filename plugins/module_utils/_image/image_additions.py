# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks whether the layers of an image only add to its base. This module util is PRIVATE to the collection.

The engine's own export has each layer as a tar. The files of the upper layers are compared with those of the base. If layers have a compression that
Python does not support, the packages of both images are compared, by their own Pythons.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import os
import tarfile
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._image import image_server

#: Prefix of a removed entry of the layers below in a layer's tar, and the name that empties a directory.
_REMOVED, _OPAQUE = ".wh.", ".wh..wh..opq"
#: Parts of an image's configuration that its layers must not change.
KEPT_CONFIG = ("Entrypoint", "Cmd", "WorkingDir")
_GZIP = b"\x1f\x8b"


@dataclasses.dataclass
class Additions:
    """The number of files that upper layers add, and the files of the base that they change or remove."""

    added: int = 0
    changed: list[str] = dataclasses.field(default_factory=list)
    removed: list[str] = dataclasses.field(default_factory=list)


#: The properties of a layer's entry that a reader can see; for a directory only its type, since its entries are compared on their own.
Entry = tuple[t.Any, ...]
Layer = dict[str, Entry]
DIRECTORY: Entry = (tarfile.DIRTYPE,)


class _Hashed:
    """A stream with the digest of the bytes read."""

    def __init__(self, stream: t.IO[bytes]) -> None:
        self._stream, self.digest = stream, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        content = self._stream.read(size)
        self.digest.update(content)
        return content


def layers_of(tar: tarfile.TarFile) -> dict[str, Layer]:
    """Return the entries of an export's layers, by the digests of their unpacked tars. Raises :class:`image_server.Unreadable`, TarError, OSError, EOFError."""
    layers = {}
    for member in image_server.files(tar):
        stream = t.cast("t.IO[bytes]", tar.extractfile(member))
        hashed = _Hashed(gzip.open(stream) if t.cast(t.Any, stream).peek(2)[:2] == _GZIP else stream)
        try:
            with tarfile.open(fileobj=t.cast(t.Any, hashed), mode="r|", bufsize=image_server.CHUNK) as layer:
                entries = _entries(layer)
        except tarfile.ReadError:
            # A configuration or a manifest.
            continue
        while hashed.read(image_server.CHUNK):
            pass
        layers[f"sha256:{hashed.digest.hexdigest()}"] = entries
    return layers


def _entries(layer: tarfile.TarFile) -> Layer:
    entries: Layer = {}
    for member in layer:
        name = folder = os.path.normpath(member.name).lstrip("/")
        while (folder := os.path.dirname(folder)) and folder not in entries:
            entries[folder] = DIRECTORY
        if member.isdir():
            entries[name] = DIRECTORY
        elif member.islnk():
            entries[name] = entries.get(os.path.normpath(member.linkname).lstrip("/"), (member.type, member.linkname))
        else:
            content = hashlib.sha256()
            stream = layer.extractfile(member) if member.isreg() else None
            while stream and (part := stream.read(image_server.CHUNK)):
                content.update(part)
            entries[name] = (member.type, member.mode, member.uid, member.gid, member.linkname, member.devmajor, member.devminor, content.digest())
    return entries


def _drop(base: Layer, folder: str) -> bool:
    """Remove the entries below a directory, and return whether there were any."""
    below = [name for name in base if name.startswith(f"{folder}/")]
    for name in below:
        del base[name]
    return bool(below)


def _put(base: Layer, layer: Layer) -> Additions:
    """Apply a layer to others, as in a container, and return its effect."""
    effect = Additions()
    for name in layer:
        folder, last = os.path.split(name)
        if last == _OPAQUE:
            effect.removed += [folder] if _drop(base, folder) else []
        elif last.startswith(_REMOVED):
            gone = os.path.join(folder, last.removeprefix(_REMOVED))
            was_there = base.pop(gone, None) is not None
            effect.removed += [gone] if _drop(base, gone) or was_there else []
    for name, entry in layer.items():
        if os.path.basename(name).startswith(_REMOVED) or name == ".":
            continue
        there = base.get(name)
        if there is not None and there != entry:
            effect.changed.append(name)
            _drop(base, name)
        effect.added += there is None and entry != DIRECTORY
        base[name] = entry
    return effect


def compare(below: t.Sequence[Layer], above: t.Sequence[Layer]) -> Additions:
    """Return the effect of the upper layers on the base."""
    base: Layer = {}
    for layer in below:
        _put(base, layer)
    own = set(base)
    effects = [_put(base, layer) for layer in above]
    changed = sorted({f"/{name}" for effect in effects for name in effect.changed if name in own})
    removed = sorted({f"/{name}" for effect in effects for name in effect.removed if name in own})
    return Additions(sum(effect.added for effect in effects), changed, removed)


def without(paths: t.Iterable[str], packages: t.Collection[str]) -> list[str]:
    """Return the paths outside of the directories of these packages, which were declared to be changed."""
    return [path for path in paths if not set(packages) & set(path.split("/")[:-1])]


def packages(before: t.Mapping[str, str], after: t.Mapping[str, str]) -> Additions:
    """Return the same from the versions of all packages by name."""
    changed = sorted(f"{name} {version} becomes {after[name]}" for name, version in before.items() if name in after and after[name] != version)
    return Additions(len(after.keys() - before.keys()), changed, sorted(f"{name} {version}" for name, version in before.items() if name not in after))


def config(before: dict[str, t.Any], after: dict[str, t.Any], own_env: t.Collection[str]) -> list[str]:
    """Return the changed parts of the base's configuration: its variables, without those that may change, its entrypoint, command and directory."""
    first, second = (dict(variable.partition("=")[::2] for variable in image.get("Env") or []) for image in (before, after))
    env = [f"the variable {name}" for name, value in first.items() if name not in own_env and second.get(name) != value]
    return [*env, *(name for name in KEPT_CONFIG if (before.get(name) or None) != (after.get(name) or None))]
