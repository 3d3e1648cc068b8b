# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks whether a model's own code is still as it was downloaded. This module util is PRIVATE to the collection.

The code is small and runs in the engine, so it is read. Two checks need no hub: the hub's client names each blob by the hub's id of its content,
which shows changed content; and a note has each file's id from when this revision was first complete on the node, which shows a link to another blob.
Only root can write to the note's directory, which is outside the cache and of all directories that containers write.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import write_json
from ansible_collections.gb10.cluster.plugins.module_utils._model.model_files import (
    COMMIT,
    REPO,
    Problem,
    is_directory,
    locate,
    paths_below,
    read_noted,
    reading,
    repo_directory,
)

#: Ids of findings that block or warn.
IDS = ("model.code_changed", "model.code_unverified")

#: Most bytes of a file to read, and of a JSON file to parse because it may name code: a longer one counts as code.
CODE_LIMIT = 64 * 1024 * 1024
PARSE_LIMIT = 16 * 1024 * 1024

#: Keys of a JSON file, at any depth, whose values name code: transformers' classes and its pipelines. It reads them from files of many names.
KEYS = ("auto_map", "custom_pipelines")
#: A letter or underscore that is written as an escape, which no writer of JSON needs. Only a parser can read such a key.
_ESCAPED = re.compile(rb"\\u00(?:[46][1-9A-Fa-f]|[57][0-9Aa]|5[Ff])")
#: Separates another repository from the module in it.
OTHER = "--"

#: The hub's id of a blob in its large file storage; the id of one in git has the form of a commit.
_LFS_ID = re.compile(r"[0-9a-f]{64}\Z")

#: Directory of the notes, below that of the collection's state, and the end of their names.
NOTES, SUFFIX = "model-code", ".code.json"

#: File relative to the model → the hub's id of its content, empty for a file without content.
Ids = dict[str, str]


class Code(t.NamedTuple):
    """The files that are code or name it, each with its revision's directory; and by file, absent repositories that it names."""

    files: dict[str, str]
    absent: dict[str, str]


def hub_hash(size: int, is_large: bool) -> t.Any:
    """Return the hash of the hub's id of a file of ``size`` bytes, in its large file storage or in git, to be updated with the content."""
    if is_large:
        return hashlib.sha256()
    # Git's own id of a blob, which is not a protection: the hub serves the content with this id.
    return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)


def blob_id(content: bytes, named: str) -> str:
    """Return the hub's id of a file's content, of the same kind as ``named``."""
    computed = hub_hash(len(content), bool(_LFS_ID.match(named)))
    computed.update(content)
    return computed.hexdigest()


def references(content: bytes) -> list[str] | None:
    """Return the texts by which a JSON file names code, None if it names none; empty if it may name some and cannot be parsed."""
    if not any(key.encode() in content for key in KEYS) and not _ESCAPED.search(content) and b"\0" not in content:
        return None
    values: list[t.Any] = []

    def pairs(items: list[tuple[str, t.Any]]) -> list[t.Any]:
        # All values of a repeated key: other parsers may use another one than the last.
        values.extend(value for key, value in items if key in KEYS and isinstance(value, (str, list)))
        return [value for _key, value in items]

    try:
        json.loads(content if len(content) <= PARSE_LIMIT else b"", object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        return []
    return list(_texts_in(values)) if values else None


def _texts_in(value: t.Any) -> t.Iterator[str]:
    """Yield the texts of nested lists."""
    if isinstance(value, str):
        yield value
    for item in value if isinstance(value, list) else ():
        yield from _texts_in(item)


def _texts_of(path: str) -> list[str] | None:
    """Return the texts by which a file names code, empty for code itself (Python, or a linked directory), None for any other file."""
    if os.path.isdir(path):
        return [] if os.path.islink(path) else None
    if not path.endswith(".json"):
        return [] if path.endswith(".py") else None
    content = _content(path)
    return references(content) if content is not None else [] if os.path.exists(path) else None


def _scan(root: str) -> dict[str, list[str]]:
    """Return the files of a model, relative to it, that are code or name code, each with :func:`_texts_of` it."""
    texts = {os.path.relpath(path, root): _texts_of(path) for path in paths_below(root, directories=True)}
    return {name: words for name, words in texts.items() if words is not None}


def code(root: str) -> Code:
    """Return the code of a model of a hub cache, and that of other repositories in the same cache that it names, of all their revisions."""
    own = _scan(root)
    files, absent, hub = dict.fromkeys(own, root), {}, os.path.dirname(os.path.dirname(os.path.dirname(root)))
    named = {repo: file for file, texts in sorted(own.items()) for text in texts for repo, is_other, _module in [text.partition(OTHER)] if is_other}
    for repo, file in named.items():
        base = os.path.join(hub, repo_directory(repo)) if REPO.match(repo) else ""
        if base and base == os.path.dirname(os.path.dirname(root)):
            continue
        snapshots = os.path.join(base, "snapshots")
        revisions = sorted(os.listdir(snapshots)) if base and os.path.isdir(snapshots) else []
        for snapshot in (os.path.join(snapshots, revision) for revision in revisions):
            files.update({os.path.relpath(os.path.join(snapshot, name), root): snapshot for name in _scan(snapshot)})
        if not revisions:
            absent[file] = repo
    return Code(files, absent)


def _content(path: str) -> bytes | None:
    """Return a file's content; None if it is absent, not a regular file or too long. Raises :class:`UnknownState`."""
    with reading(path):
        try:
            return untrusted.content(path, CODE_LIMIT)
        except FileNotFoundError:
            return None


def _named(path: str) -> str:
    """Return the hub's id in the target of a link, empty for any other file."""
    name = os.path.basename(os.readlink(path)) if os.path.islink(path) else ""
    return name if COMMIT.match(name) or _LFS_ID.match(name) else ""


def code_ids(root: str, side_files: t.Collection[str] = ()) -> Ids:
    """Return the id of each file of a model's code, without side files that a person added."""
    return _ids(root, code(root).files, side_files)


def _ids(root: str, files: t.Iterable[str], side_files: t.Collection[str]) -> Ids:
    ids = {}
    for relative in files:
        path = os.path.join(root, relative)
        named, content = _named(path), _content(path)
        if named or relative not in side_files:
            ids[relative] = "" if content is None else blob_id(content, named)
    return ids


def note_path(state_dir: str, repo: str, commit: str) -> str:
    """Return the path of the note of a revision's code."""
    return os.path.join(state_dir, NOTES, repo_directory(repo), f"{commit}{SUFFIX}")


def read_note(path: str) -> Ids | None:
    """Return the noted ids, None without a note. Raises :class:`UnknownState` if it cannot be read."""
    remedy = f"Compare that code with the hub's, then remove {path}."
    return read_noted(path, "a note of the model's code", remedy, "code note", lambda files: all(isinstance(name, str) for name in files.values()))


def write_note(path: str, ids: Ids) -> None:
    """Note the ids of a revision's code. Raises OSError."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    write_json(path, {"files": ids})


def code_problems(root: str, side_files: t.Collection[str] = (), noted: Ids | None = None) -> list[Problem]:
    """Return the known and possible problems of the code that a model of a hub cache has or names.

    A file is changed if its content does not have the hub's id, if it is among the hub's files but not one of them, or if it is not as ``noted``.
    Code without the hub's ids in a copied model, and side files that a person added, are unverified.
    """
    seen = code(root)
    copied = {base: not any(os.path.islink(os.path.join(base, name)) for name in os.listdir(base)) for base in {root, *seen.files.values()}}
    problems = [
        problem
        for relative, base in sorted(seen.files.items())
        if (problem := _problem(relative, os.path.join(root, relative), copied[base] or relative in side_files))
    ]
    problems += [
        Problem("model.code_unverified", relative, f"{relative} names code of {repo[:100]}, which is not in this cache: it was not checked")
        for relative, repo in sorted(seen.absent.items())
    ]
    changed = {problem.file for problem in problems if problem.id == "model.code_changed"}
    replaced = _replaced(noted, _ids(root, seen.files, side_files)) if noted is not None else []
    return problems + [problem for problem in replaced if problem.file not in changed]


def _problem(relative: str, path: str, is_own: bool) -> Problem | None:
    """Return the problem of a file of a model's code by the hub's id, None without one. ``is_own``: a person may have put it there."""
    named = _named(path)
    if not named and is_own:
        return Problem("model.code_unverified", relative, f"{relative} has no id of the hub: whether it belongs to the pinned revision is unknown")
    if not named:
        return Problem("model.code_changed", relative, f"{relative} is among the hub's files but is not one of them")
    content = _content(path)
    if content is None:
        return Problem("model.code_unverified", relative, f"{relative} is absent, or longer than code is")
    if (has := blob_id(content, named)) == named:
        return None
    return Problem("model.code_changed", relative, f"{relative} was changed on this node: the hub's id of its content is {named[:12]}, it is {has[:12]} now")


def _replaced(noted: Ids, present: Ids) -> list[Problem]:
    """Return the files that are not as noted: a link to another blob, an added or removed file."""
    names = sorted(name for name in {*noted, *present} if noted.get(name) != present.get(name))
    words = {name: [ids[name][:12] or "nothing" if name in ids else "no code" for ids in (noted, present)] for name in names}
    return [
        Problem("model.code_changed", name, f"{name} was replaced on this node: it was {old} when this revision was first seen here, it is {new} now")
        for name, (old, new) in words.items()
    ]


def check_code(state_dir: str, hf_home: str, repo: str, revision: str | None, side_files: t.Collection[str]) -> None:
    """Raise :class:`ClusterError` if a model's code was changed since its download. An absent model has no code."""
    place = locate(hf_home, repo, revision)
    if not place.path:
        return
    note = note_path(state_dir, repo, place.revision or "")
    if changed := [problem for problem in code_problems(place.path, side_files, read_note(note)) if problem.id == "model.code_changed"]:
        raise ClusterError(
            f"{'; '.join(problem.message for problem in changed)}; nothing was started",
            remedy=code_remedy(place.path, changed, note),
            reason="code changed",
            files=[problem.file for problem in changed],
        )


def check_repositories(state_dir: str, hf_home: str, repositories: t.Iterable[t.Mapping[str, t.Any]]) -> None:
    """Raise :class:`ClusterError` if code of one of the repositories was changed on this node."""
    for repository in repositories:
        # A plain directory has no ids of the hub, and its remote code is refused.
        if not is_directory(repository["repo"]):
            check_code(state_dir, hf_home, repository["repo"], repository["revision"], repository["side_files"])


def code_remedy(root: str, changed: t.Sequence[Problem], note: str = "") -> str:
    """Return the remedy for changed code; ``note`` is the path of the note of the code."""
    names = [os.path.normpath(os.path.join(root, problem.file)) for problem in changed]
    paths = dict.fromkeys(path for name in names for path in (name, os.path.realpath(name)))
    again = f"Find out who changed it. Then remove {', '.join(paths)} and run the play with --tags model, which downloads it again."
    return again + (f" If the change was intended: remove {note}." if note and os.path.exists(note) else "")
