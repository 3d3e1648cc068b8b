# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lists all profiles: whether they are valid, and what each one needs, as texts. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.form import MODEL, UNTESTED
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.profiles import files, find, read

Entry = dict[str, t.Any]


def catalogue(names: t.Sequence[str] = (), directories: t.Sequence[str] = (), roots: t.Sequence[Path] = ()) -> list[Entry]:
    """Return one entry per profile, sorted by id: ``id``, ``path``, ``problems``, ``needs`` and ``profile`` (both empty when there are problems).

    ``names`` (ids or paths) select profiles; without any, all that :func:`_profile.find` would accept are listed. A file that is not a
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
    """Return a profile's needs and features as short texts."""
    parallel, memory, image = profile["parallel"], profile["memory"], profile["image"]
    nodes = parallel["tensor"] * parallel["pipeline"] * parallel["data"]
    added = [*image["layers"], *(f"the mod {name} ({mod['why']})" for name, mod in image["mods"].items())]
    of_all = repositories(profile)
    return {
        "model": profile["model"]["repo"],
        "license": "; ".join(_license(name, repository) for name, repository in of_all.items()),
        "gate": GATES[gated(profile)],
        "beside": [_beside(name, repository) for name, repository in profile["repositories"].items()],
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


#: The words for a profile's repositories by whether the hub restricts any; None where that is unknown.
GATES = {True: "gated", False: "open", None: "unknown"}


def repositories(profile: dict[str, t.Any]) -> dict[str, dict[str, t.Any]]:
    """Return the repositories of a profile by its names for them, the model's first."""
    return {MODEL: profile["model"], **profile["repositories"]}


def gated(profile: dict[str, t.Any]) -> bool | None:
    """Return whether the hub restricts a repository of a profile to known accounts; None if that is unknown for one, and no other is restricted."""
    states = {False if repository["path"] else repository["gated"] for repository in repositories(profile).values()}
    return True if True in states else None if None in states else False


def _license(name: str, repository: dict[str, t.Any]) -> str:
    """Return a repository's license, with the profile's name for the repository unless it is the model."""
    terms = repository["license"]
    of = "" if name == MODEL else f"{name}: "
    return f"{of}{terms['id'] or 'unknown'}{', to be accepted at the hub' if terms['accept'] else ''}{' (' + terms['url'] + ')' if terms['url'] else ''}"


def facts(profile: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return what a profile needs, as data. Values that it does not state are null; sizes are in GB, of 10^9 bytes.

    ``disk_gb`` is the amount that each node stores; if the model's size on disk is not stated, the weights of all nodes count instead.
    """
    parallel, memory, serve = profile["parallel"], profile["memory"], profile["serve"]
    nodes = parallel["tensor"] * parallel["pipeline"] * parallel["data"]
    listed = [
        {
            "name": name,
            "purpose": repository.get("purpose", MODEL),
            **{field: repository[field] for field in ("repo", "path", "revision", "size_gb", "gated")},
            "license": dict(repository["license"]),
        }
        for name, repository in repositories(profile).items()
    ]
    loaded = memory["weights_gb"] * nodes if memory["weights_gb"] else None
    sizes = [profile["model"]["size_gb"] or loaded, *(repository["size_gb"] for repository in listed[1:])]
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
    """Return the size of each node, as far as the profile states it."""
    return f"{class_gb} GB or more{', all alike' if nodes > 1 else ''}" if class_gb else "a size that the profile does not state"


def _beside(name: str, repository: dict[str, t.Any]) -> str:
    """Return a further repository as text: the profile's name for it, its purpose, and its commit."""
    at = "" if repository["path"] else f" at {repository['revision'] or 'main'}"
    return f"{name}: {repository['repo']}{at}, {repository['purpose']}" + (f", {repository['size_gb']:g} GB" if repository["size_gb"] else "")


def _download(profile: dict[str, t.Any]) -> str:
    """Return the size of the files from the hub that every node stores, as far as the profile states it."""
    sizes = [repository["size_gb"] for repository in (profile["model"], *profile["repositories"].values())]
    return f"{sum(size for size in sizes if size):g} GB on each node{'' if all(sizes) else ' and more'}" if any(sizes) else "not stated"


def _context(profile: dict[str, t.Any]) -> str:
    """Return the context length that is served, and the steps in which it may grow."""
    length = profile["serve"].get("max_model_len")
    steps = f"; in steps: {', '.join(map(str, profile['ladder']))}" if profile["ladder"] else ""
    return (f"{length} tokens" if length else "what the model's config says") + steps


def _switch(overlay: dict[str, t.Any]) -> str:
    """Return a switch's description, with the versions that it requires, and whether it is untested."""
    versions = "".join(f" Needs {name} {wanted}." for name, wanted in overlay["requires"].items())
    return overlay["description"] + versions + (" Untested." if overlay["evidence"] == UNTESTED else "")


def _evidence(evidence: list[dict[str, t.Any]] | str) -> list[str]:
    """Return one line for each measurement: who measured what."""
    if isinstance(evidence, str):
        return [evidence]
    return [f"{item['who']}, on {item['image']}{_known(item, 'digest')}: {item['figures']}{_known(item, 'source', 'date')}" for item in evidence]


def _known(item: dict[str, t.Any], *names: str) -> str:
    """Return the fields of these names that a row of evidence has, in parentheses."""
    known = ", ".join(item[name] for name in names if item[name])
    return f" ({known})" if known else ""
