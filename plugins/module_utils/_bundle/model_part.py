# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The models of a bundle: out of a node's hub cache or a plain directory, and into another node's. This module util is PRIVATE to the collection.

In a bundle a repository has the layout of the hub's client for disks without links: refs, and snapshots of files. The files of a model, the missing parts
on a node, and the move into a cache are the same as in a copy between nodes.
"""

from __future__ import annotations

import os
import stat
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._bundle import content, programs
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import owners, untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._model import copy_stage, copy_target, copying, digests, model_files
from ansible_collections.gb10.cluster.plugins.module_utils._model.copying import Entry, named

#: Directories that exist only where an engine or a download ran.
_OWN = ("__pycache__", ".cache", copying.STAGE)
#: Seconds by which the times of a file may differ between file systems.
_TIMES = 2

Model = dict[str, t.Any]


def sources(entries: t.Iterable[Entry]) -> dict[str, str]:
    """Return the files of a repository with their paths in a bundle: that of a link to it for a blob."""
    links = {entry.target: entry.path for entry in entries if entry.kind == "link"}
    files = (entry.path for entry in entries if entry.kind == "file")
    return {path: links.get(path, path) if path.startswith("blobs/") else path for path in files}


# -- out of a node ---------------------------------------------------------------------------------------------------


class Item(t.NamedTuple):
    """A file for a bundle: its source directory, its path there and below ``below``, and its status there.

    ``sha256`` and its git id (``git``) are empty unless they are its name in the hub.
    """

    source: str
    below: str
    name: str
    size: int
    mtime: int
    sha256: str = ""
    git: str = ""

    @property
    def path(self) -> str:
        """Return its path in the bundle."""
        return f"{self.below}/{self.name}"

    def is_at(self, status: os.stat_result, sha256: str) -> bool:
        """Return whether a file of a bundle with this status and digest is this file. It is read if it has no digest and another time. Raises OSError."""
        if status.st_size != self.size or self.sha256:
            return status.st_size == self.size and sha256 in ("", self.sha256)
        if abs(status.st_mtime_ns - self.mtime) <= _TIMES * 10**9:
            return True
        with owners.acting_as(owners.owner_of(self.source)):
            return digests.digest(os.path.join(self.source, self.name), "sha256")[1] == sha256


def exported(hf_home: str, repositories: t.Sequence[dict[str, t.Any]]) -> tuple[list[Model], list[Item], dict[str, bytes]]:
    """Return a bundle's description of these models, their files, and the texts of their refs. Raises :class:`ClusterError` for an incomplete one, OSError."""
    models, items, refs = [], [], {}
    purposes: dict[tuple[str, str | None], list[dict[str, t.Any]]] = {}
    for repository in repositories:
        purposes.setdefault((repository["repo"], repository["revision"]), []).append(repository)
    for (repo, revision), wanted in purposes.items():
        place = model_files.locate(hf_home, repo, revision) if not model_files.is_directory(repo) else model_files.Place(repo, None, repo)
        if place.path is None or place.repo_path is None or not os.path.isdir(place.path):
            where = repo if model_files.is_directory(repo) else f"{repo} (revision {revision or 'main'}) in {hf_home}"
            raise ClusterError(f"there is no {where}, so nothing to export", remedy="Run the play with --tags model first.", reason="absent")
        _require_whole(repo, place.path, wanted)
        ref = "" if model_files.is_commit(revision or "") or (revision is None and model_files.is_directory(repo)) else (revision or "main")
        entries = plain_listing(repo) if model_files.is_directory(repo) else copying.listing(place.repo_path, place.revision or "", ref)
        below = f"{content.DIRECTORIES}/{len(models)}" if model_files.is_directory(repo) else f"{content.HUB}/{model_files.repo_directory(repo)}"
        models.append({"repo": repo, "revision": place.revision, "ref": ref, "below": below, "entries": copying.rows(entries)})
        for entry in (candidate for candidate in entries if candidate.kind == "file"):
            kind, name = copying.digest_kind(os.path.join(place.repo_path, entry.path)), os.path.basename(entry.path)
            digest = {kind: name} if kind else {}
            links = [link.path for link in entries if link.kind == "link" and link.target == entry.path and entry.path.startswith("blobs/")]
            items += [Item(place.repo_path, below, path, entry.size, entry.mtime, **digest) for path in links or [entry.path]]
        refs |= {f"{below}/{entry.path}": entry.target.encode() for entry in entries if entry.kind == "ref"}
    return models, list(dict.fromkeys(items)), refs


def _require_whole(repo: str, path: str, wanted: t.Sequence[dict[str, t.Any]]) -> None:
    if problems := [
        problem
        for repository in wanted
        for problem in model_files.examine(path, [*repository["side_files"], *model_files.named_files(repository["files"])], repository["purpose"])[0]
    ]:
        raise ClusterError(
            f"{repo} is incomplete: {'; '.join(dict.fromkeys(problem.message for problem in problems[:copying.NAMED]))}",
            remedy="Run the play with --tags model, which repairs it, and export again.",
            reason="incomplete",
            files=[problem.file for problem in problems],
        )


def plain_listing(root: str) -> list[Entry]:
    """Return the files of a plain directory, and its links to them. Raises :class:`ClusterError` for a link out of it, OSError."""
    entries = []
    for entry in untrusted.walk(root):
        mode, path = entry.status.st_mode, os.path.join(root, entry.path)
        if set(entry.path.split("/")) & set(_OWN) or stat.S_ISDIR(mode):
            continue
        if stat.S_ISLNK(mode):
            target = copying.target_of(entry.path, entry.target, root)
            if target.startswith("..") or not os.path.exists(os.path.join(root, target)):
                raise ClusterError(
                    f"{path} leads to {entry.target}, which is not in the directory",
                    expected="links inside the model's own directory",
                    remedy=f"Replace the link by the file: cp --remove-destination \"$(readlink -f {path})\" {path}",
                    reason="link",
                )
            entries.append(Entry(entry.path, "link", target=target))
        elif stat.S_ISREG(mode):
            entries.append(Entry(entry.path, "file", entry.status.st_size, entry.status.st_mtime_ns, mode & copying.MODE))
        else:
            raise ClusterError(f"{path} is neither a file nor a link", remedy="Find out which program made it, and remove it.")
    return sorted(entries)


def bring(watch: programs.Watch, path: str, items: t.Sequence[Item], owner: owners.Owner) -> None:
    """Copy files into a bundle. Raises :class:`ClusterError`, OSError."""
    for source, below in dict.fromkeys((item.source, item.below) for item in items):
        with owners.acting_as(owner):
            os.makedirs(os.path.join(path, below), mode=0o755, exist_ok=True)
        names = [item.name for item in items if (item.source, item.below) == (source, below)]
        options = ("--copy-links", f"--temp-dir={os.path.join(path, content.PARTS)}")
        watch.rsync(source, os.path.join(path, below), names, owners.owner_of(source), owner, *options)


def spoiled(path: str, items: t.Sequence[Item], sums: t.Mapping[str, str], owner: owners.Owner) -> list[str]:
    """Return the files of a bundle that do not match their names in the hub. Raises OSError."""
    wrong = [item.path for item in items if item.sha256 and sums[item.path] != item.sha256]
    with owners.acting_as(owner):
        return wrong + [item.path for item in items if item.git and digests.digest(os.path.join(path, item.path), "git")[1] != item.git]


# -- into a node -----------------------------------------------------------------------------------------------------


class Wanted(t.NamedTuple):
    """The missing parts of a bundle's model, whose files are ``below`` in it, each at its path in ``sources``."""

    repository: copy_stage.Repository
    below: str
    sources: dict[str, str]
    owner: owners.Owner

    def files(self) -> dict[str, Entry]:
        """Return the files to import, by their paths below ``below``."""
        return {self.sources[entry.path]: entry for entry in self.repository.lack.files}


def wanted(hf_home: str, models: t.Sequence[Model], seen: content.Seen) -> list[Wanted]:
    """Return the missing parts of a bundle's models. Raises :class:`ClusterError` for a file with the same name and other content."""
    hub, parts = os.path.join(hf_home, "hub"), []
    for model in models:
        repo, below, entries = _read(model, seen)
        if model_files.is_directory(repo):
            top, path, stage = repo, repo, os.path.join(repo, copying.STAGE)
        else:
            top, path, stage = hf_home, os.path.join(hub, model_files.repo_directory(repo)), copying.stage_of(hub, repo)
        with owners.acting_as(owners.owner_of(top)):
            lack = copying.lacking(entries, path, str(model.get("ref") or ""))
        repository = copy_stage.Repository(repo, path, stage, entries, lack)
        parts.append(Wanted(repository, below, sources(entries), owners.one_owner(top, repository.directories() if lack else ())))
    if other := [name for part in parts for name in part.repository.lack.other]:
        raise ClusterError(
            f"{len(other)} file(s) here have the name of a file in the bundle, and other content: {named(other)}; nothing was replaced",
            remedy="Move your own files away, remove those that a copy left, and import again.",
            reason="other content",
            files=other,
        )
    return [part for part in parts if part.repository.lack]


def asked(models: t.Sequence[Model], repositories: t.Sequence[dict[str, t.Any]]) -> list[Model]:
    """Return the models of a bundle that a profile loads: a bundle must not choose what is written. Raises :class:`ClusterError` if it lacks one."""
    chosen, lost = {}, []
    for repository in repositories:
        revision = repository["revision"] or ("" if model_files.is_directory(repository["repo"]) else "main")
        if fits := [model for model in models if model.get("repo") == repository["repo"] and revision in (model.get("revision") or "", model.get("ref"))]:
            chosen[repository["repo"], fits[0].get("revision")] = fits[0]
        else:
            lost.append(f"{repository['repo']}{'@' if revision else ''}{revision[:12]}")
    if lost:
        has = named([f"{model.get('repo')}@{str(model.get('revision') or '')[:12]}" for model in models])
        raise ClusterError(
            f"the bundle has no {named(lost)}, which the profile loads; it has {has or 'no model'}",
            remedy="Export a bundle with this profile, or import with -e gb10_profile=ID, the one that it was made for.",
            reason="other profile",
        )
    return list(chosen.values())


def _read(model: Model, seen: content.Seen) -> tuple[str, str, list[Entry]]:
    try:
        repo, below, entries = str(model["repo"]), str(model["below"]), copying.entries_of(model["entries"])
        wrong = [entry.path for entry in entries if entry.kind not in ("file", "link", "ref")]
        # Links and refs of a cache are only in the directories of the hub's client.
        tops, path_of = ("blobs", "snapshots", "refs"), sources(entries)
        wrong += [entry.path for entry in entries if entry.path.split("/")[0] not in tops and not model_files.is_directory(repo)]
        wrong += [path for path in path_of.values() if f"{below}/{path}" not in seen.sums]
        refs = ((f"{below}/{entry.path}", content.sha256_of(entry.target.encode())) for entry in entries if entry.kind == "ref")
        wrong += [path for path, digest in refs if seen.sums.get(path) != digest]
        wrong += [] if content.is_path(repo.removeprefix("/")) and content.is_path(below) else [repo]
        sizes = {entry.path: entry.size for entry in entries if entry.kind == "file"}
    except (KeyError, TypeError) as error:
        raise ClusterError(f"the bundle's list of models cannot be read: {error!r}", remedy="Export the bundle again.", reason="foreign") from error
    if wrong:
        message = f"the bundle lists paths that are not part of a model: {named(wrong)}"
        raise ClusterError(message, remedy="Export the bundle again.", reason="foreign", files=wrong)
    has = {path: seen.files[f"{below}/{path_of[path]}"].st_size for path in sizes}
    if short := [f"{below}/{path_of[path]} ({has[path]} bytes instead of {size})" for path, size in sizes.items() if has[path] != size]:
        raise ClusterError(
            f"{len(short)} file(s) of the bundle are incomplete: {named(short)}",
            remedy="Copy the bundle again; nothing was imported.",
            reason="incomplete", files=short,
        )
    return repo, below, entries


def imported(watch: programs.Watch, part: Wanted, path: str, sums: t.Mapping[str, str]) -> None:
    """Import a model from a bundle: each file gets its name after all were compared. Raises :class:`ClusterError`, OSError."""
    repository, files = part.repository, part.files()
    with owners.acting_as(part.owner):
        os.makedirs(repository.stage, mode=0o700, exist_ok=True)
    watch.rsync(os.path.join(path, part.below), repository.stage, files, programs.ROOT if os.geteuid() == 0 else part.owner, part.owner)
    if wrong := watch.wrong(repository.stage, {name: sums[f"{part.below}/{name}"] for name in files}, part.owner):
        with owners.acting_as(part.owner):
            for name in wrong:
                os.unlink(os.path.join(repository.stage, name))
        raise programs.damaged(path, [f"{part.below}/{name}" for name in wrong])
    with owners.acting_as(part.owner):
        for name, entry in files.items():
            staged = os.path.join(repository.stage, entry.path)
            os.makedirs(os.path.dirname(staged), exist_ok=True)
            os.replace(os.path.join(repository.stage, name), staged)
            os.utime(staged, ns=(entry.mtime, entry.mtime))
        copy_target.place(repository)
        copy_target.clear(os.path.dirname(os.path.dirname(repository.stage)), [repository])
