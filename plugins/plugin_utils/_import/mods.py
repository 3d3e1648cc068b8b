# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changes that a recipe makes to its image, as mods of a profile. This plugin util is PRIVATE to the collection.

Patches and pinned packages can be layers of an image. A script could do anything, so a mod with one is refused, as is one that is not there.
"""

from __future__ import annotations

import hashlib
import re
import typing as t
from pathlib import Path

from ansible_collections.gb10.cluster.plugins.plugin_utils._import.ledger import Ledger, RecipeError

#: Bytes of a patch that are read.
_MOST_BYTES = 1024 * 1024
_PATCHES = (".patch", ".diff")
#: Files that say something about a mod, and change nothing.
_DOCS = (".md", ".rst")
_PACKAGES = "requirements.txt"
_PINNED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][A-Za-z0-9.!+]*\Z")
_TARGET = re.compile(rb"^(?:---|\+\+\+) (?P<path>[^\t\r\n]+)", re.MULTILINE)
_PATH = re.compile(r"[^/\s]+/(?P<package>[A-Za-z_][A-Za-z0-9_]*)/\S+\Z")

_REMEDY = "build an image that holds the change, give that as gb10_import_image, and remove the mod from the recipe"


class Mods(t.NamedTuple):
    """The mods of a profile, their patches seen from its directory, and the content of those."""

    mods: dict[str, dict[str, t.Any]]
    files: dict[str, bytes]

    def at(self, folder: str) -> dict[str, dict[str, t.Any]]:
        """Return the mods with their patches in a folder next to the profile."""
        return {name: {**mod, "patches": [{**one, "file": f"{folder}/{one['file']}"} for one in mod["patches"]]} for name, mod in self.mods.items()}


def read(mods: list[str], folder: Path, ledger: Ledger) -> Mods:
    """Return the mods that are data; each other one is refused with its reason."""
    found = Mods({}, {})
    for mod in mods:
        try:
            name, content, files = _mod(mod, folder)
            if name in found.mods:
                raise RecipeError(f"it has the name {name}, as another mod has")
        except RecipeError as error:
            ledger.refused("mods", mod, error.what, _REMEDY)
            continue
        found.mods[name] = content
        found.files.update(files)
        ledger.taken("mods", mod, f"image.mods.{name}")
    return found


def _mod(mod: str, folder: Path) -> tuple[str, dict[str, t.Any], dict[str, bytes]]:
    """Return a mod's name, its content for a profile, and its patches by their paths. Raises :class:`RecipeError`."""
    above, place = next(((one, one / mod) for one in (folder, folder.parent, folder.parent.parent) if (one / mod).exists()), (folder, None))
    if place is None or not _within(place, above):
        raise RecipeError("it is a change to the image that does not lie beside the recipe, so what it does is unknown")
    name = re.sub(r"[^a-z0-9._-]+", "-", (place.stem if place.is_file() else place.name).lower()).strip("-._")
    paths = sorted(place.iterdir()) if place.is_dir() else [place]
    outside = [path.name for path in paths if not _within(path, above)]
    if outside:
        raise RecipeError(f"its file {outside[0]} leads out of the recipe's folder")
    scripts = [path.name for path in paths if not path.is_file() or path.name != _PACKAGES and path.suffix not in (*_PATCHES, *_DOCS)]
    if scripts:
        raise RecipeError(f"it holds a script or what only one can put in its place ({', '.join(scripts[:3])}), and none is executed")
    patches = {f"{name}/{path.name}": _patch(path) for path in paths if path.suffix in _PATCHES}
    rows = [
        {"file": file, "sha256": hashlib.sha256(content).hexdigest(), "package": _package(Path(file).name, content)}
        for file, content in patches.items()
    ]
    packages = [one for path in paths if path.name == _PACKAGES for one in _packages(path)]
    if not name or not rows and not packages:
        raise RecipeError("it holds neither patches nor packages, so what it does is unknown")
    return name, {"why": f"the recipe's mod {mod}", "patches": rows, **({"packages": packages} if packages else {})}, patches


def _within(path: Path, folder: Path) -> bool:
    """Return whether a path lies below a folder, wherever links and dots in it lead."""
    return path.resolve().is_relative_to(folder.resolve())


def _patch(path: Path) -> bytes:
    """Return a patch's content. Raises :class:`RecipeError`."""
    try:
        with path.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise RecipeError(f"its file {path.name} cannot be read: {error.strerror}") from error
    if len(content) > _MOST_BYTES:
        raise RecipeError(f"its file {path.name} is larger than {_MOST_BYTES // 1024} KiB")
    return content


def _package(name: str, content: bytes) -> str:
    """Return the Python package that a patch changes. Raises :class:`RecipeError` when it is not one, by paths such as a/vllm/x.py."""
    paths = [match["path"].decode("utf-8", "replace") for match in _TARGET.finditer(content)]
    found = {match["package"] if (match := _PATH.match(path)) else path for path in paths if path != "/dev/null"}
    package = next(iter(found), "")
    if len(found) != 1 or "/" in package or package in ("usr", "opt", "home", "root"):
        raise RecipeError(f"its patch {name} does not change one Python package by paths such as a/vllm/FILE")
    return package


def _packages(path: Path) -> list[str]:
    """Return the packages of a file, each pinned. Raises :class:`RecipeError`."""
    lines = [line.partition("#")[0].strip() for line in _patch(path).decode("utf-8", "replace").splitlines()]
    loose = [line for line in lines if line and not _PINNED.match(line)]
    if loose:
        raise RecipeError(f"its package {loose[0]} is not pinned to a version")
    return [line for line in lines if line]
