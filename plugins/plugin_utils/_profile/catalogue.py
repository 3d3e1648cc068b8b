# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All profiles at once: which are valid, and what each needs, in words. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.form import MODEL, UNTESTED
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.profiles import files, find, read

Entry = dict[str, t.Any]


def catalogue(names: t.Sequence[str] = (), directories: t.Sequence[str] = (), roots: t.Sequence[Path] = ()) -> list[Entry]:
    """One entry a profile, sorted by id: ``id``, ``path``, ``problems``, ``needs`` and ``profile`` (both empty when there are problems).

    ``names`` (ids or paths) choose profiles; without any it is every one that :func:`_profile.find` would accept. A file that is no
    valid profile is an entry like the others. Raises :class:`_profile.ProfileError` for a name or directory that does not exist.
    """
    paths = [find(name, directories, roots) for name in names] or list(files(directories, roots).values())
    return [entry(path) for path in paths]


def entry(path: Path) -> Entry:
    """Read and judge one file."""
    profile, problems = read(path)
    return {
        "id": path.stem,
        "path": str(path),
        "problems": list(map(str, problems)),
        "needs": {} if problems else needs(profile),
        "profile": {} if problems else profile,
    }


def needs(profile: dict[str, t.Any]) -> dict[str, t.Any]:
    """A profile's needs and features as short texts."""
    parallel, memory, image = profile["parallel"], profile["memory"], profile["image"]
    nodes = parallel["tensor"] * parallel["pipeline"] * parallel["data"]
    added = [*image["layers"], *(f"the mod {name} ({mod['why']})" for name, mod in image["mods"].items())]
    of_all = repositories(profile)
    return {
        "model": profile["model"]["repo"],
        "license": "; ".join(_license(name, one) for name, one in of_all.items()),
        "gate": GATES[gated(profile)],
        "beside": [_beside(name, one) for name, one in profile["repositories"].items()],
        "download": _download(profile),
        "nodes": f"{nodes}, of {_size(nodes, memory['class_gb'])}",
        "weights": f"{memory['weights_gb']:g} GB on each node" if memory["weights_gb"] else "not stated",
        "image": image["base"] + (f" with {', '.join(added)} added, as {image['tag']}" if added else ", as it is"),
        "versions": "; ".join(f"{name} {wanted}" for name, wanted in profile["requires"].items()) or "not stated",
        "executor": profile["executor"] + (f": {profile['executor_reason']}" if profile["executor_reason"] else ""),
        "context": _context(profile),
        "switches": {name: _switch(overlay) for name, overlay in profile["switches"].items()},
        "evidence": _evidence(profile["evidence"]),
    }


#: The words for a profile's repositories by whether the hub gates any; None where that is unknown.
GATES = {True: "gated", False: "open", None: "unknown"}


def repositories(profile: dict[str, t.Any]) -> dict[str, dict[str, t.Any]]:
    """The repositories of a profile by its names for them, the model's first."""
    return {MODEL: profile["model"], **profile["repositories"]}


def gated(profile: dict[str, t.Any]) -> bool | None:
    """Whether the hub gives a repository of a profile to known accounts alone; None when that is unknown of one, and no other does."""
    said = {False if one["path"] else one["gated"] for one in repositories(profile).values()}
    return True if True in said else None if None in said else False


def _license(name: str, one: dict[str, t.Any]) -> str:
    """A repository's license, by the profile's name for it when it is not the model."""
    terms = one["license"]
    of = "" if name == MODEL else f"{name}: "
    return f"{of}{terms['id'] or 'unknown'}{', to be accepted at the hub' if terms['accept'] else ''}{' (' + terms['url'] + ')' if terms['url'] else ''}"


def facts(profile: dict[str, t.Any]) -> dict[str, t.Any]:
    """What a profile needs, as data. What it does not say is null; sizes are in GB, of 10^9 bytes.

    ``disk_gb`` is what each node stores; of a model whose size on disk is not said, that is what its nodes load together.
    """
    parallel, memory, serve = profile["parallel"], profile["memory"], profile["serve"]
    nodes = parallel["tensor"] * parallel["pipeline"] * parallel["data"]
    listed = [
        {
            "name": name,
            "purpose": one.get("purpose", MODEL),
            **{field: one[field] for field in ("repo", "path", "revision", "size_gb", "gated")},
            "license": dict(one["license"]),
        }
        for name, one in repositories(profile).items()
    ]
    loaded = memory["weights_gb"] * nodes if memory["weights_gb"] else None
    sizes = [profile["model"]["size_gb"] or loaded, *(one["size_gb"] for one in listed[1:])]
    untested = profile["evidence"] == UNTESTED
    return {
        "nodes": nodes,
        "memory_class_gb": memory["class_gb"],
        "weights_gb": memory["weights_gb"],
        "disk_gb": round(sum(size for size in sizes if size), 2) if any(sizes) else None,
        "disk_gb_is_whole": all(sizes),
        "context": {"served": serve.get("max_model_len"), "steps": profile["ladder"]},
        "executor": profile["executor"],
        "image": profile["image"]["base"],
        "requires": profile["requires"],
        "repositories": listed,
        "gated": gated(profile),
        "untested": untested,
        "speed": dict(profile["speed"]),
        "evidence": [] if untested else profile["evidence"],
        "switches": list(profile["switches"]),
    }


def _size(nodes: int, class_gb: float) -> str:
    """The size of each node, as far as the profile says it."""
    return f"{class_gb} GB or more{', all alike' if nodes > 1 else ''}" if class_gb else "a size that the profile does not state"


def _beside(name: str, one: dict[str, t.Any]) -> str:
    """A further repository: the profile's name for it, its purpose, and its commit."""
    at = "" if one["path"] else f" at {one['revision'] or 'main'}"
    return f"{name}: {one['repo']}{at}, {one['purpose']}" + (f", {one['size_gb']:g} GB" if one["size_gb"] else "")


def _download(profile: dict[str, t.Any]) -> str:
    """How much of the hub every node stores, as far as the profile says it."""
    sizes = [one["size_gb"] for one in (profile["model"], *profile["repositories"].values())]
    return f"{sum(size for size in sizes if size):g} GB on each node{'' if all(sizes) else ' and more'}" if any(sizes) else "not stated"


def _context(profile: dict[str, t.Any]) -> str:
    """The context length served, and the steps in which it may grow."""
    length = profile["serve"].get("max_model_len")
    steps = f"; in steps: {', '.join(map(str, profile['ladder']))}" if profile["ladder"] else ""
    return (f"{length} tokens" if length else "what the model's config says") + steps


def _switch(overlay: dict[str, t.Any]) -> str:
    """A switch's description, with the versions it narrows to, and whether anyone measured it."""
    versions = "".join(f" Needs {name} {wanted}." for name, wanted in overlay["requires"].items())
    return overlay["description"] + versions + (" Untested." if overlay["evidence"] == UNTESTED else "")


def _evidence(evidence: list[dict[str, t.Any]] | str) -> list[str]:
    """Who measured what, one line each."""
    if isinstance(evidence, str):
        return [evidence]
    return [f"{item['who']}, on {item['image']}{_known(item, 'digest')}: {item['figures']}{_known(item, 'source', 'date')}" for item in evidence]


def _known(item: dict[str, t.Any], *names: str) -> str:
    """Which of these a row of evidence says, in parentheses."""
    known = ", ".join(item[name] for name in names if item[name])
    return f" ({known})" if known else ""
