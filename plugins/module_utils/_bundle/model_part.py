# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The models of a bundle: out of a node's hub cache or a plain directory, and into another node's. This module util is PRIVATE to the collection.

What belongs to a model, what a node lacks of it, and how a file gets its name in a cache are those of a copy between nodes.
"""

from __future__ import annotations

import contextlib
import os
import stat
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._bundle import content
from ansible_collections.gb10.cluster.plugins.module_utils._bundle.content import Row
from ansible_collections.gb10.cluster.plugins.module_utils._bundle.place import Item, Place, chunks_of, full, written
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import owners, untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._model import copy_stage, copy_target, copying, model_files
from ansible_collections.gb10.cluster.plugins.module_utils._model.copying import Entry

#: In a directory's stage, the one file that is being written.
PART = "bundle-part"
#: What lies only where an engine has run, or a download.
_OWN = ("__pycache__", ".cache", copying.STAGE)

Model = dict[str, t.Any]


# -- out of a node ---------------------------------------------------------------------------------------------------


def exported(hf_home: str, repositories: t.Sequence[dict[str, t.Any]]) -> tuple[list[Model], list[Item]]:
    """Return what the manifest of a bundle says of these models, and their files. Raises :class:`ClusterError` for one that is not whole, OSError."""
    models, items = [], {}
    purposes: dict[tuple[str, str | None], list[dict[str, t.Any]]] = {}
    for one in repositories:
        purposes.setdefault((one["repo"], one["revision"]), []).append(one)
    for (repo, revision), wanted in purposes.items():
        place = model_files.locate(hf_home, repo, revision) if not model_files.is_directory(repo) else model_files.Place(repo, None, repo)
        if place.path is None or place.repo_path is None or not os.path.isdir(place.path):
            where = repo if model_files.is_directory(repo) else f"{repo} (revision {revision or 'main'}) in {hf_home}"
            raise ClusterError(f"there is no {where}, so nothing to export", remedy="Run the play with --tags model first.", reason="absent")
        _require_whole(repo, place.path, wanted)
        ref = "" if revision is None and model_files.is_directory(repo) else (revision or "main")
        ref = "" if copying.is_commit(ref) else ref
        entries = plain_listing(repo) if model_files.is_directory(repo) else copying.listing(place.repo_path, place.revision or "", ref)
        below = f"{content.DIRECTORIES}/{len(models)}" if model_files.is_directory(repo) else f"{content.HUB}/{model_files.repo_directory(repo)}"
        models.append({"repo": repo, "revision": place.revision, "ref": ref, "below": below, "entries": copying.rows(entries)})
        for entry in (one for one in entries if one.kind == "file"):
            kind = copying.digest_kind(os.path.join(place.repo_path, entry.path))
            name = os.path.basename(entry.path)
            path = f"{below}/{entry.path}"
            chunks = _chunks_of(place.repo_path, entry)
            # A blob is what its name says; of any other file the time tells whether it is still the one that was exported.
            items[path] = Item(path, entry.size, chunks, name if kind == "sha256" else "", 0 if kind else entry.mtime, name if kind == "git" else "")
    return models, list(items.values())


def _require_whole(repo: str, path: str, wanted: t.Sequence[dict[str, t.Any]]) -> None:
    found = [problem for one in wanted for problem in model_files.examine(path, one["side_files"], one["purpose"])[0]]
    found += [problem for one in wanted for name in model_files.named_files(one["files"]) if (problem := model_files.file_problem(path, name))]
    if found:
        raise ClusterError(
            f"{repo} is not whole: {'; '.join(dict.fromkeys(problem.message for problem in found[:content.NAMED]))}",
            remedy="Run the play with --tags model, which mends it, and export again.",
            reason="incomplete",
            files=[problem.file for problem in found],
        )


def plain_listing(root: str) -> list[Entry]:
    """Return what a plain directory holds: its files, and its links to what lies in it. Raises :class:`ClusterError` for a link out of it, OSError."""
    found = []
    for entry in untrusted.walk(root):
        mode, path = entry.status.st_mode, os.path.join(root, entry.path)
        if set(entry.path.split("/")) & set(_OWN) or stat.S_ISDIR(mode):
            continue
        if stat.S_ISLNK(mode):
            target = copying.target_of(entry.path, entry.target, root)
            if target.startswith("..") or not os.path.exists(os.path.join(root, target)):
                raise ClusterError(
                    f"{path} leads to {entry.target}, which is not in the directory",
                    expected="links to what lies in the model's own directory",
                    remedy=f"Put the file itself there: cp --remove-destination \"$(readlink -f {path})\" {path}",
                    reason="link",
                )
            found.append(Entry(entry.path, "link", target=target))
        elif stat.S_ISREG(mode):
            found.append(Entry(entry.path, "file", entry.status.st_size, entry.status.st_mtime_ns, mode & copying.MODE))
        else:
            raise ClusterError(f"{path} is neither a file nor a link", remedy="Look at what put it there, and remove it.")
    return sorted(found)


def _chunks_of(base: str, entry: Entry) -> t.Callable[[], t.Iterator[memoryview]]:
    """Return what reads a file that was listed, and raises :class:`ClusterError` when it is another one by then."""

    def chunks() -> t.Iterator[memoryview]:
        try:
            stream = untrusted.reader(base, entry.path, own=False)
        except untrusted.Tampered as error:
            raise _changed(os.path.join(base, entry.path)) from error
        with stream:
            yield from chunks_of(stream)
            status = os.fstat(stream.fileno())
            if (status.st_size, status.st_mtime_ns) != (entry.size, entry.mtime):
                raise _changed(os.path.join(base, entry.path))

    return chunks


def _changed(path: str) -> ClusterError:
    return ClusterError(
        f"{path} was changed while it was exported; it has no name in the bundle",
        remedy="See what writes there (a download, a person), let it end, and run again.",
        reason="source changed",
        files=[path],
    )


# -- into a node -----------------------------------------------------------------------------------------------------


class Wanted(t.NamedTuple):
    """What a node lacks of a model of a bundle, whose files lie ``below`` there."""

    repository: copy_stage.Repository
    below: str
    owner: owners.Owner


def wanted(hf_home: str, models: t.Sequence[Model], rows: t.Mapping[str, Row]) -> list[Wanted]:
    """Return what this node lacks of a bundle's models. Raises :class:`ClusterError` for a file of the same name and other content."""
    hub, found = os.path.join(hf_home, "hub"), []
    for model in models:
        repo, below, entries = _read(model, rows)
        plain = model_files.is_directory(repo)
        path = repo if plain else os.path.join(hub, model_files.repo_directory(repo))
        stage = os.path.join(repo, copying.STAGE) if plain else copying.stage_of(hub, repo)
        top = repo if plain else hf_home
        with owners.acting_as(owners.owner_of(top)):
            lack = copying.lacking(entries, path, str(model.get("ref") or ""))
        repository = copy_stage.Repository(repo, path, stage, entries, lack)
        found.append(Wanted(repository, below, owners.one_owner(top, repository.directories() if lack else ())))
    other = [name for one in found for name in one.repository.lack.other]
    if other:
        raise ClusterError(
            f"{len(other)} file(s) here have the name of one of the bundle, and other content: {content.named(other)}; nothing was replaced",
            remedy="If they are yours, move them away. If they are what is left of a copy, remove them. Then import again.",
            reason="other content",
            files=other,
        )
    return [one for one in found if one.repository.lack]


def asked(models: t.Sequence[Model], repositories: t.Sequence[dict[str, t.Any]]) -> list[Model]:
    """Return those models of a bundle that a profile loads: no bundle decides what is written where. Raises :class:`ClusterError` when it lacks one."""
    found, lost = {}, []
    for one in repositories:
        revision = one["revision"] or ("" if model_files.is_directory(one["repo"]) else "main")
        fits = [model for model in models if model.get("repo") == one["repo"] and revision in (model.get("revision") or "", model.get("ref"))]
        if fits:
            found[one["repo"], fits[0].get("revision")] = fits[0]
        else:
            lost.append(f"{one['repo']}{'@' if revision else ''}{revision[:12]}")
    if lost:
        has = content.named([f"{model.get('repo')}@{str(model.get('revision') or '')[:12]}" for model in models])
        raise ClusterError(
            f"the bundle has no {content.named(lost)}, which the profile loads; it has {has or 'no model'}",
            remedy="Export a bundle with this profile, or import with the one that it was made for: -e gb10_profile=ID",
            reason="other profile",
        )
    return list(found.values())


def _read(model: Model, rows: t.Mapping[str, Row]) -> tuple[str, str, list[Entry]]:
    try:
        repo, below, entries = str(model["repo"]), str(model["below"]), copying.entries_of(model["entries"])
        wrong = [entry.path for entry in entries if entry.kind not in ("file", "link", "ref")]
        wrong += [entry.path for entry in entries if entry.kind == "file" and (row := rows.get(f"{below}/{entry.path}")) and row.size != entry.size]
        wrong += [entry.path for entry in entries if entry.kind == "file" and f"{below}/{entry.path}" not in rows]
        # Links and refs of a cache lie where the hub's client makes them.
        plain = model_files.is_directory(repo)
        wrong += [] if plain else [entry.path for entry in entries if entry.path.split("/")[0] not in ("blobs", "snapshots", "refs")]
        if not content.is_path(repo.removeprefix("/")) or not content.is_path(below):
            wrong.append(repo)
    except (KeyError, TypeError) as error:
        raise ClusterError(f"the bundle's list of models cannot be read: {error!r}", remedy="Export the bundle again.", reason="foreign") from error
    if wrong:
        raise ClusterError(f"the bundle lists what no model has: {content.named(wrong)}", remedy="Export the bundle again.", reason="foreign", files=wrong)
    return repo, below, entries


def rows_of(one: Wanted, rows: t.Mapping[str, Row]) -> list[Row]:
    """Return the files of a bundle that come."""
    return [rows[f"{one.below}/{entry.path}"] for entry in one.repository.lack.files]


def imported(one: Wanted, place: Place, rows: t.Mapping[str, Row], tick: t.Callable[[int], None]) -> None:
    """Bring a model from the bundle: each file gets its name once all of it was compared. Raises :class:`ClusterError`, OSError."""
    repository = one.repository
    with owners.acting_as(one.owner):
        os.makedirs(repository.stage, mode=0o700, exist_ok=True)
    for entry in repository.lack.files:
        _bring(one, entry, place, rows[f"{one.below}/{entry.path}"], tick)
    with owners.acting_as(one.owner):
        copy_target.place(repository)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(repository.stage, PART))
        above = os.path.dirname(repository.stage)
        for path in (repository.stage, *([above] if os.path.basename(above) == copying.STAGE else [])):
            # What a copy between nodes left there stays.
            with contextlib.suppress(OSError):
                os.rmdir(path)


def _bring(one: Wanted, entry: Entry, place: Place, row: Row, tick: t.Callable[[int], None]) -> None:
    path, part = os.path.join(one.repository.path, entry.path), os.path.join(one.repository.stage, PART)
    with owners.acting_as(one.owner):
        # What an import that was killed left, or anybody put there.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        written(descriptor, place.chunks(row), tick)
        os.fchmod(descriptor, entry.mode)
        os.utime(descriptor, ns=(entry.mtime, entry.mtime))
    except OSError as error:
        raise full(error, one.repository.path) or error from error
    finally:
        os.close(descriptor)
    with owners.acting_as(one.owner):
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        # A rename would replace what somebody put there meanwhile.
        with contextlib.suppress(FileExistsError):
            os.link(part, path, follow_symlinks=False)
        os.unlink(part)
