# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finds profiles, judges them, and turns their switches on. This plugin util is PRIVATE to the collection.

A profile is one model's whole recipe as data. Its switches are named overlays that its author documented; the user turns on
any number of them, and the rest of the collection sees one profile.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import typing as t
from pathlib import Path

import yaml
from ansible.module_utils.common.yaml import yaml_load

from ansible_collections.gb10.cluster.plugins.module_utils._errors import Problem
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.form import FORM, MODEL, UNTESTED, ProfileError, snake
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.validation import validate
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.schema import near, problem


#: The directory of the shipped profiles, in a clone and in an installed collection alike.
SHIPPED = Path(__file__).resolve().parents[3] / "playbooks" / "profiles"


def roots(variables: t.Mapping[str, t.Any]) -> list[Path]:
    """Return the directories against which relative paths are resolved, from a host's variables: the current one, the inventory's, the playbook's."""
    return [Path.cwd(), *(Path(str(variables[name])) for name in ("inventory_dir", "playbook_dir") if variables.get(name))]


def search_path(directories: t.Sequence[str], roots: t.Sequence[Path] = ()) -> list[Path]:
    """Return the directories in which a profile id is looked up: the user's own first, then the shipped one.

    Relative directories are resolved against the first of ``roots`` that has them; without any it is the current directory.
    Raises :class:`ProfileError` for a directory of the user that does not exist.
    """
    path = []
    for candidates in (_candidates(directory, roots) for directory in directories):
        place = _first(candidates, Path.is_dir)
        if place is None:
            raise ProfileError(problem("gb10_profile_dirs", f"no directory {_either(candidates)} on the controller", remedy="correct gb10_profile_dirs"))
        path.append(place)
    return [*path, SHIPPED]


def _candidates(name: str, roots: t.Sequence[Path]) -> list[Path]:
    """Return the paths that ``name`` may mean, resolved against each of ``roots``."""
    path = Path(os.path.expanduser(name))
    return [path] if path.is_absolute() else list(dict.fromkeys((root / path).resolve() for root in roots or [Path.cwd()]))


def _first(candidates: t.Sequence[Path], exists: t.Callable[[Path], bool]) -> Path | None:
    return next((path for path in candidates if exists(path)), None)


def _either(candidates: t.Sequence[Path]) -> str:
    return " or ".join(map(str, candidates))


def find(name: str, directories: t.Sequence[str] = (), roots: t.Sequence[Path] = ()) -> Path:
    """Return the file of profile ``name``, which is an id or a path ending in ``.yml`` or ``.yaml``.

    Raises :class:`ProfileError` naming the known ids when there is none.
    """
    if name.endswith((".yml", ".yaml")):
        candidates = _candidates(name, roots)
        path, what = _first(candidates, Path.is_file), f"no file {_either(candidates)} on the controller"
        remedy = f"give the path of an existing file, or one of: {', '.join(known(directories, roots))}"
    else:
        ids = files(directories, roots)
        path, what = ids.get(name), f"unknown profile '{name}'{near(name, ids)}. Known: {', '.join(ids)}"
        remedy = "choose one with -e gb10_profile=ID, or add a directory of your own to gb10_profile_dirs"
    if path is None:
        raise ProfileError(problem("gb10_profile", what, remedy=remedy))
    return path


def files(directories: t.Sequence[str] = (), roots: t.Sequence[Path] = ()) -> dict[str, Path]:
    """Return every id with its file, sorted by id. If two directories have the same id, the first one counts."""
    found_files: dict[str, Path] = {}
    for directory in search_path(directories, roots):
        for path in sorted([*directory.glob("*.yml"), *directory.glob("*.yaml")], key=lambda file: (file.stem, file.suffix != ".yml")):
            found_files.setdefault(path.stem, path)
    return dict(sorted(found_files.items()))


def known(directories: t.Sequence[str] = (), roots: t.Sequence[Path] = ()) -> list[str]:
    """Return the ids that :func:`find` accepts, sorted."""
    return list(files(directories, roots))


def load(name: str, directories: t.Sequence[str] = (), switches: t.Sequence[str] = (), roots: t.Sequence[Path] = ()) -> dict[str, t.Any]:
    """Find, read and judge profile ``name``; return it with every default filled in and ``switches`` turned on.

    Raises :class:`ProfileError` with the file's problems.
    """
    path = find(name, directories, roots)
    profile, problems = read(path)
    if problems:
        remedy = "correct the file, or choose another profile with -e gb10_profile=ID"
        raise ProfileError(*(dataclasses.replace(fault, where=f"{path}: {fault.where}", remedy=fault.remedy or remedy) for fault in problems))
    return {**switch(profile, switches), "path": str(path)}


def read(path: Path) -> tuple[dict[str, t.Any], list[Problem]]:
    """Read and judge one file. Returns the profile with its defaults, and its problems (without the file's name)."""
    try:
        raw = _with_extended(path)
    except ProfileError as error:
        return {}, list(error.problems)
    return validate(raw, expected_id=path.stem)


def _raw(path: Path) -> t.Any:
    """Return a file's content. Raises :class:`ProfileError` when it is not YAML."""
    try:
        return yaml_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ProfileError(problem("the file", f"can't be read as YAML: {' '.join(str(error).split())}")) from error


def _with_extended(path: Path, above: tuple[Path, ...] = ()) -> t.Any:
    """Return a file's content merged into the profile that it extends: one next to it, else a shipped one. Raises :class:`ProfileError`."""
    raw = _anchored(_raw(path), path.parent)
    name = raw.get("extends") if isinstance(raw, dict) else None
    if not isinstance(name, str):
        return raw
    there = {file.stem: file for folder in (SHIPPED, path.parent) for file in (*folder.glob("*.yaml"), *folder.glob("*.yml"))}
    there = {stem: file for stem, file in there.items() if file not in (*above, path)}
    if name not in there:
        again = name in {file.stem for file in (*above, path)}
        raise ProfileError(
            problem(
                "extends",
                f"'{name}' extends this profile itself" if again else f"there is no profile '{name}'{near(name, there)}",
                "the id of a profile next to this file, or of a shipped one",
            )
        )
    extended = _with_extended(there[name], (*above, path))
    if not isinstance(extended, dict):
        raise ProfileError(problem("extends", f"{there[name]} is not a profile", "a mapping"))
    return _overlaid(_without_terms(_without_evidence(extended), raw), raw, FORM)


def _anchored(raw: t.Any, directory: Path) -> t.Any:
    """Return a file's content with the paths of its patches relative to its own directory, whichever profile extends it."""
    mods = _within(raw, "image", "mods")
    for patch in [patch for name in mods if isinstance(mods, dict) for patch in _within(mods, name, "patches") or () if isinstance(patch, dict)]:
        if isinstance(patch.get("file"), str):
            patch["file"] = str(directory / os.path.expanduser(patch["file"]))
    return raw


def _within(value: t.Any, *keys: str) -> t.Any:
    """Return the value below these keys, an empty mapping if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, (dict, list)) else {}


def _without_evidence(raw: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return a profile without its evidence: a measurement of one variant does not count for another."""
    switches = raw.get("switches")
    kept = {key: value for key, value in raw.items() if key not in ("evidence", "extends", "speed", "start")}
    if isinstance(switches, dict):
        kept["switches"] = {name: {**overlay, "evidence": UNTESTED} if isinstance(overlay, dict) else overlay for name, overlay in switches.items()}
    return kept


def _without_terms(under: dict[str, t.Any], over: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return a profile without the terms of repositories that a variant replaces: each repository has its own."""
    result = copy.deepcopy(under)
    for *above, name in ((MODEL,), *(("repositories", name) for name in _within(over, "repositories"))):
        old, new = _within(result, *above, name), _within(over, *above, name)
        if isinstance(old, dict) and isinstance(new, dict) and new.get("repo", old.get("repo")) != old.get("repo"):
            for field in ("license", "gated"):
                old.pop(field, None)
    return result


def _overlaid(under: t.Any, over: t.Any, spec: dict[str, t.Any]) -> t.Any:
    """Return ``over`` merged into ``under``: mappings field by field, where null removes a field; the value of an argument is replaced as a whole."""
    if not isinstance(under, dict) or not isinstance(over, dict):
        return over
    options = spec.get("options")
    result = dict(under)
    for key, value in over.items():
        inner = options.get(key) if options is not None else spec.get("values")
        if value is None and key in under:
            del result[key]
        else:
            result[key] = _overlaid(under.get(key), value, inner) if inner and inner["type"] == "dict" else value
    return result


def switch(profile: dict[str, t.Any], names: t.Sequence[str]) -> dict[str, t.Any]:
    """Return the profile with the switches ``names`` turned on, and ``switches_used``.

    A switch's arguments, variables and ladder replace the profile's, a null argument removes the profile's, and the requirements of both
    apply. Raises :class:`ProfileError` for a switch that the profile does not have, and for two that contradict each other.
    """
    used = list(dict.fromkeys(names))
    result = {**copy.deepcopy(profile), "switches_used": used}
    owner: dict[str, tuple[str, t.Any]] = {}
    for name in used:
        if name not in profile["switches"]:
            has = ", ".join(profile["switches"]) or "none"
            raise ProfileError(
                problem(
                    "gb10_profile_switches",
                    f"profile {profile['id']} has no switch '{name}'{near(name, profile['switches'])}. Its switches: {has}",
                    remedy="correct gb10_profile_switches",
                )
            )
        overlay = profile["switches"][name]
        serve = snake(overlay["serve"])
        settings = {f"serve.{key}": value for key, value in serve.items()} | {f"env.shared.{key}": value for key, value in overlay["env"]["shared"].items()}
        if overlay["ladder"]:
            settings["ladder"] = overlay["ladder"]
        for key, value in settings.items():
            other, earlier = owner.setdefault(key, (name, value))
            if earlier != value:
                raise ProfileError(
                    problem(
                        "gb10_profile_switches",
                        f"'{other}' and '{name}' of profile {profile['id']} contradict each other: {key} is {earlier!r} and {value!r}",
                        remedy="use one of the two",
                    )
                )
        result["serve"] = {**snake(result["serve"]), **serve}
        result["env"]["shared"] |= overlay["env"]["shared"]
        result["ladder"] = overlay["ladder"] or result["ladder"]
        for package, wanted in overlay["requires"].items():
            result["requires"][package] = ",".join(filter(None, (result["requires"].get(package), wanted)))
    result["serve"] = {name: value for name, value in result["serve"].items() if value is not None}
    return result
