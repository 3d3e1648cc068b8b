# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the changes that a recipe makes to its image, as mods of a profile. This plugin util is PRIVATE to the collection.

Patches and pinned packages can be layers of an image. A script could do anything, so a mod with a script is refused, and so is a mod that does not exist.
Only a script that just puts a chat template, or a file of the model's own repository, into the working directory is accepted, and read as that data.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import typing as t
from pathlib import Path

from ansible_collections.gb10.cluster.plugins.module_utils._redact import holds_secret
from ansible_collections.gb10.cluster.plugins.plugin_utils._import import shell
from ansible_collections.gb10.cluster.plugins.plugin_utils._import.ledger import Ledger, RecipeError

#: Bytes of a patch that are read.
_MOST_BYTES = 1024 * 1024
_PATCHES = (".patch", ".diff")
#: Files that describe a mod, and change nothing.
_DOCS = (".md", ".rst")
_PACKAGES = "requirements.txt"
_PINNED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][A-Za-z0-9.!+]*\Z")
_TARGET = re.compile(rb"^(?:---|\+\+\+) (?P<path>[^\t\r\n]+)", re.MULTILINE)
_PATH = re.compile(r"[^/\s]+/(?P<package>[A-Za-z_][A-Za-z0-9_]*)/\S+\Z")

#: The script that a launcher runs in the container, and a name for the directory from which it then starts the engine ($WORKSPACE_DIR).
_SCRIPT, _WORKSPACE = "run.sh", "/WORKSPACE_DIR"
_PLAIN = re.compile(r"[A-Za-z0-9_][\w.-]*\Z", re.ASCII)
_HUB_FILE = re.compile(r"https://huggingface\.co/(?P<repo>[^/\s]+/[^/\s]+)/resolve/main/(?P<file>[\w.-]+\.py)\Z", re.ASCII)
#: The largest size of a chat template in bytes: it is one argument of the engine, and Linux accepts no longer one (MAX_ARG_STRLEN).
_MOST_TEXT = 128 * 1024 - 1
#: The source of the mods that recipes of eugr/spark-vllm-docker and of sparkrun name.
_PUBLISHED = "https://github.com/eugr/spark-vllm-docker"


class Mods(t.NamedTuple):
    """The mods of a profile, with the content of their patches by paths relative to its directory, and chat templates by their names in the command."""

    mods: dict[str, dict[str, t.Any]]
    files: dict[str, bytes]
    texts: dict[str, str]

    def at(self, folder: str) -> dict[str, dict[str, t.Any]]:
        """Return the mods with their patches in a folder next to the profile."""
        return {name: {**mod, "patches": [{**patch, "file": f"{folder}/{patch['file']}"} for patch in mod["patches"]]} for name, mod in self.mods.items()}


class _Absent(RecipeError):
    """A mod is not next to its recipe."""


def read(mods: list[str], folder: Path, model: str, without: t.Sequence[str], ledger: Ledger) -> Mods:
    """Return the mods that are only data. The others are refused, each with its reason, unless they are to be left out (``without``)."""
    accepted = Mods({}, {}, {})
    refused: list[tuple[str, RecipeError]] = []
    for mod in mods:
        if mod in without:
            ledger.dropped("mods", mod, "gb10_import_choices.without_mods says so")
            continue
        try:
            name, content, files, texts = _mod(mod, folder, model)
            if name in accepted.mods:
                raise RecipeError(f"it has the name {name}, as another mod has")
        except RecipeError as error:
            refused.append((mod, error))
            continue
        accepted.texts.update(texts)
        if content:
            accepted.mods[name] = content
            accepted.files.update(files)
            ledger.taken("mods", mod, f"image.mods.{name}")
        else:
            ledger.changed("mods", mod, " and ".join(texts), "its script does nothing but put this where the engine looks for it", differs=False)
    for mod in without:
        if mod not in mods:
            ledger.refused("gb10_import_choices.without_mods", mod, "the recipe does not name this mod", f"its mods: {', '.join(mods) or 'none'}")
    line = json.dumps({"gb10_import_choices": {"without_mods": [*without, *(mod for mod, error in refused if not isinstance(error, _Absent))]}})
    leave = f"where the image has the change, or needs it no more, leave the mod out: -e '{line}'. Else build one that has it, and give it as gb10_import_image"
    get = f"look at those of its launcher: git clone --depth 1 {_PUBLISHED} && cp -r {_PUBLISHED.rpartition('/')[2]}/mods {shlex.quote(str(folder))}"
    for mod, error in refused:
        ledger.refused("mods", mod, error.what, get if isinstance(error, _Absent) else leave)
    return accepted


def _mod(mod: str, folder: Path, model: str) -> tuple[str, dict[str, t.Any], dict[str, bytes], dict[str, str]]:
    """Return a mod's name, its content for a profile, its patches by their paths, and its chat templates. Raises :class:`RecipeError`."""
    above, place = next(((base, base / mod) for base in (folder, folder.parent, folder.parent.parent) if (base / mod).exists()), (folder, None))
    if place is None or not _within(place, above):
        raise _Absent("it is a change to the image that is not next to the recipe, so its effect is unknown")
    name = re.sub(r"[^a-z0-9._-]+", "-", (place.stem if place.is_file() else place.name).lower()).strip("-._")
    paths = sorted(place.iterdir()) if place.is_dir() else [place]
    outside = [path.name for path in paths if not _within(path, above)]
    if outside:
        raise RecipeError(f"its file {outside[0]} leads out of the recipe's folder")
    placed = _placed(paths, model)
    if placed is not None:
        return name, {}, {}, placed
    scripts = [path.name for path in paths if not path.is_file() or path.name != _PACKAGES and path.suffix not in (*_PATCHES, *_DOCS)]
    if scripts:
        raise RecipeError(f"it holds a script, or files that only a script can install ({', '.join(scripts[:3])}), and no script of a recipe is executed")
    patches = {f"{name}/{path.name}": _patch(path) for path in paths if path.suffix in _PATCHES}
    rows = [
        {"file": file, "sha256": hashlib.sha256(content).hexdigest(), "package": _package(Path(file).name, content)}
        for file, content in patches.items()
    ]
    packages = [package for path in paths if path.name == _PACKAGES for package in _packages(path)]
    if not name or not rows and not packages:
        raise RecipeError("it holds neither patches nor packages, so what it does is unknown")
    return name, {"why": f"the recipe's mod {mod}", "patches": rows, **({"packages": packages} if packages else {})}, patches, {}


def _placed(paths: list[Path], model: str) -> dict[str, str] | None:
    """Return what a mod's script puts into the working directory: chat templates, and files of the model's own repository (with an empty text).

    None if there is no script, or if it does anything else. Raises :class:`RecipeError`.
    """
    script = next((path for path in paths if path.name == _SCRIPT), None)
    if script is None:
        return None
    templates = {path.name: path for path in paths if path.suffix == ".jinja"}
    reader, here, placed = shell.Shell({"WORKSPACE_DIR": _WORKSPACE}, Ledger()), "", {}
    try:
        commands = [[part for word in words for part in reader.expand(word)] for words in shell.commands(_patch(script).decode("utf-8", "replace"))]
    except shell.Refused:
        return None
    for name, *words in filter(None, commands):
        target = words[-1].removeprefix(f"{_WORKSPACE}/") if words else ""
        remote = _HUB_FILE.match(target)
        if name == "cp" and len(words) == 2 and words[0] in templates and words[1] != target and _PLAIN.match(target):
            placed[target] = _text(templates[words[0]])
        elif name == "cd" and words == [_WORKSPACE]:
            here = _WORKSPACE
        elif name == "wget" and len(words) == 1 and here and remote and remote["repo"] == model:
            placed[remote["file"]] = ""
        elif name not in shell.HARMLESS:
            return None
    others = [path for path in paths if path != script and path.name not in templates and path.suffix not in _DOCS]
    return placed if placed and not others and not (here and templates) else None


def _text(path: Path) -> str:
    """Return a chat template. Raises :class:`RecipeError` for one that does not fit one argument, or that the engine would take for a path."""
    content = _patch(path)
    if len(content) > _MOST_TEXT or b"{" not in content or b"\0" in content:
        raise RecipeError(f"its file {path.name} is not a chat template that fits one argument")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RecipeError(f"its file {path.name} is not UTF-8 text") from error
    if holds_secret(text):
        raise RecipeError(f"its file {path.name} holds what looks like a secret")
    return text


def _within(path: Path, folder: Path) -> bool:
    """Return whether a path is below a folder once its links and dots are resolved."""
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
    """Return the Python package that a patch changes, by paths such as a/vllm/x.py. Raises :class:`RecipeError` unless it is exactly one."""
    paths = [match["path"].decode("utf-8", "replace") for match in _TARGET.finditer(content)]
    packages = {match["package"] if (match := _PATH.match(path)) else path for path in paths if path != "/dev/null"}
    package = next(iter(packages), "")
    if len(packages) != 1 or "/" in package or package in ("usr", "opt", "home", "root"):
        raise RecipeError(f"its patch {name} does not change one Python package by paths such as a/vllm/FILE")
    return package


def _packages(path: Path) -> list[str]:
    """Return the packages of a file, each pinned. Raises :class:`RecipeError`."""
    lines = [line.partition("#")[0].strip() for line in _patch(path).decode("utf-8", "replace").splitlines()]
    loose = [line for line in lines if line and not _PINNED.match(line)]
    if loose:
        raise RecipeError(f"its package {loose[0]} is not pinned to a version")
    return [line for line in lines if line]
