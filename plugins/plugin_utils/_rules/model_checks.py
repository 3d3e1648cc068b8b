# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of the model, its directory and its source. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import dataclasses
import functools

from ansible_collections.gb10.cluster.plugins.module_utils._model import model_files
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.checks import CLUSTER, GIB, Arguments, Faults, check, comparison, differing, fault_of, holds
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.evidence import Entry, Fault, Node, Unseen, of_entry


@check
def space_for_model(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """A node without the complete model and its further repositories has space for the missing part.

    An unfinished download counts as present, since the hub's client continues it. Repositories without a stated size do not count, so the needed space is a
    minimum.
    """
    path = node.needs["model_root"]
    missing = {repo: gib for repo, gib in to_fetch(node).items() if gib is not None}
    if not missing:
        return
    disk = node.get("disk").get(path)
    if disk is None:
        raise Unseen(f"disk.{path}")
    needed = round(sum(missing.values()), 1)
    if disk["free_bytes"] < needed * GIB:
        yield Fault(round(disk["free_bytes"] / GIB, 1), needed, {"path": path, "repo": ", ".join(missing)})


def to_fetch(node: Node) -> dict[str, float | None]:
    """Return the GiB that a node would fetch of each incomplete repository, None if the profile does not state its size."""
    return {repository["repo"]: _missing_gib(node, repository) for repository in node.needs["repositories"] if not _ready(node, repository)}


def _missing_gib(node: Node, repository: Entry) -> float | None:
    """Return the part of a repository's size that is not on the node yet, in GiB."""
    entries = _revisions(node, repository)
    there = max((entry["bytes"] for entry in entries if _wanted(repository, entry)), default=0)
    there += max((entry.get("unfinished_bytes", 0) for entry in entries), default=0)
    return None if repository["gib"] is None else max(repository["gib"] - there / GIB, 0.0)


def _revisions(node: Node, repository: Entry) -> list[Entry]:
    """Return the entries of a repository of the profile on the node, in any revision."""
    return [entry for entry in node.get("models") if entry["repo"] == repository["repo"]]


def _wanted(repository: Entry, entry: Entry) -> bool:
    """Return whether an entry would be served: the pinned revision, or else main. A download that has no revision yet may become it."""
    pinned = repository["revision"]
    return entry["revision"] == pinned if pinned else "main" in entry["refs"] or entry["revision"] is None


def _lacks(repository: Entry, entry: Entry) -> list[str]:
    """Return the files that a repository lacks for its purpose. The stage model checks adapters and single files, whose names it can determine."""
    return [name for name in entry["missing"] if model_files.matters(repository["purpose"], name)]


def _whole(repository: Entry, entry: Entry) -> bool:
    """Return whether an entry of the cache has all files for the purpose of a repository."""
    return bool(entry["complete"]) if repository["purpose"] == "model" or entry["revision"] is None else not _lacks(repository, entry)


def _ready(node: Node, repository: Entry) -> bool:
    return any(_wanted(repository, entry) and _whole(repository, entry) for entry in _revisions(node, repository))


def has_model_source(node: Node, nodes: list[Node]) -> bool:
    """Return whether another node has the complete model and can copy it to this one, without the hub; False when that is unknown.

    Older records lack this setting; nothing was copied then.
    """
    try:
        return node.needs.get("model_copy", "never") != "never" and any(
            all(_ready(other, repository) for repository in node.needs["repositories"]) for other in nodes if other is not node
        )
    except Unseen:
        return False


@check
def model_ready(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The profile's model and its further repositories are on the node, complete and in their revisions. Other revisions are named."""
    for repository in node.needs["repositories"]:
        if _ready(node, repository):
            continue
        entries = _revisions(node, repository)
        begun = [entry for entry in entries if _wanted(repository, entry)]
        others = ", ".join(
            f"{str(entry['revision'])[:12]}{'' if _whole(repository, entry) else ' (not whole)'}" for entry in entries if not _wanted(repository, entry)
        )
        missing = [name for entry in begun for name in _lacks(repository, entry)]
        what = f"lacks {len(missing)} file(s), such as {missing[0]}" if missing else "is not whole" if begun else "is not on this node"
        what += f"; other revisions are: {others}" if others else ""
        cannot = "gb10_offline is true" if node.needs["offline"] and not node.needs.get("given") else ""
        yield Fault(missing or None, repository["revision"] or "whole", {"repo": repository["repo"], "what": what}, cannot=cannot)


@comparison
def models_same(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """All nodes with the complete model have the same one, by revision and size, and the same further repositories."""
    for repository in nodes[0].needs["repositories"]:
        values = {}
        for node in nodes:
            whole = [entry for entry in _revisions(node, repository) if _wanted(repository, entry) and _whole(repository, entry)]
            if whole:
                values[node.name] = " ".join(
                    sorted(str(entry["revision"])[:12] + ("" if repository["partial"] else f" ({entry['bytes']} bytes)") for entry in whole)
                )
        yield from differing(values, repo=repository["repo"])


@comparison
def no_repository(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """No repository of the profile meets all conditions of ``where``. ``lacking`` are the nodes that would fetch it, ``without`` those of them that have no
    token and no other source."""
    for repository in nodes[0].needs["repositories"]:
        lacking = [node for node in nodes if not _ready(node, repository)]
        without = [node for node in lacking if not node.needs["hub_token"] and not node.needs.get("given")]
        places = {"lacking": ", ".join(node.name for node in lacking), "without": ", ".join(node.name for node in without)}
        page = f"https://huggingface.co/{repository['repo']}"
        terms = repository["license"]
        entry = {**repository, **places, "terms": terms.get("id"), "terms_page": terms.get("url") or page, "page": page}
        look = functools.partial(of_entry, entry, where=repository["repo"])
        if holds(look, arguments["where"], nodes[0], limits):
            yield dataclasses.replace(fault_of(entry, look, nodes[0], arguments, limits), node=CLUSTER)


@comparison
def revision_pinned(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """A model with its own code is pinned to a commit, and so are its further repositories."""
    for repository in nodes[0].needs["repositories"] if nodes[0].needs["remote_code"] else ():
        if not repository["revision"]:
            yield Fault(None, "a commit", {"repo": repository["repo"]}, node=CLUSTER)
