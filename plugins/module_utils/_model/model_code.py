# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the code that a model brings is still what was downloaded. This module util is PRIVATE to the collection.

It is small and runs as the engine, so it is read. Two things are known without asking the hub: its client names each blob by the hub's id of its content,
which finds changed content; and what each file was when this revision was first seen whole on the node, which finds a file that leads to another blob now.
The second is noted where root alone writes, outside the cache and whatever a container can write.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import write_json
from ansible_collections.gb10.cluster.plugins.module_utils._model.model_files import Problem, is_directory, locate, repo_directory, unreadable

#: Ids of what modules find with this that can stop or warn.
IDS = ("model.code_changed", "model.code_unverified")

#: Most bytes of a file that is looked at, and of a JSON that is parsed because it may name code: what is longer counts as code.
CODE_LIMIT = 64 * 1024 * 1024
PARSE_LIMIT = 16 * 1024 * 1024

#: Keys of a JSON file, at any depth, whose values name code: transformers' classes and its pipelines. It reads them from files of many names.
KEYS = ("auto_map", "custom_pipelines")
#: A letter or underscore that is written as an escape, which no writer of JSON has to do. Only a parser tells what such a key is.
_ESCAPED = re.compile(rb"\\u00(?:[46][1-9A-Fa-f]|[57][0-9Aa]|5[Ff])")
#: What stands between a repository and the module in it, where code is another repository's.
OTHER = "--"
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?\Z")

#: The hub's id of a blob: of a file in git, and of one in its large file storage.
_GIT_ID = re.compile(r"[0-9a-f]{40}")
_LFS_ID = re.compile(r"[0-9a-f]{64}")


#: Where the notes lie, below the directory of the collection's state, and what ends their names. An older version's ends in the second, holds the ids alone,
#: and stays as it is: a program of that version that is still on the node reads no other.
NOTES = "model-code"
SUFFIX, OLDER_SUFFIX = ".code.json", ".json"

#: File relative to the model → the hub's id of its content, empty for what has none.
Ids = dict[str, str]


class Note(t.NamedTuple):
    """What the code of a revision was when it was first seen whole. An older version of the collection did not recognize ``all`` JSON that names code."""

    ids: Ids
    all: bool = True


class Code(t.NamedTuple):
    """The files that are code or name it, each with the revision's directory that it lies in; and by file, repositories that it names and that are absent."""

    files: dict[str, str]
    absent: dict[str, str]


def hub_hash(size: int, is_large: bool) -> t.Any:
    """Return the hash by which the hub names a file of ``size`` bytes, in its large file storage or in git, to be updated with the content."""
    if is_large:
        return hashlib.sha256()
    # Git's own name of a blob, which is no protection by itself: the hub serves what has it.
    return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)


def blob_id(content: bytes, named: str) -> str:
    """Return the hub's id of a file's content, of the kind that ``named`` is of."""
    computed = hub_hash(len(content), bool(_LFS_ID.fullmatch(named)))
    computed.update(content)
    return computed.hexdigest()


def references(content: bytes) -> list[str] | None:
    """Return the texts by which a JSON file names code, None when it names none. Which ones is unknown where it cannot be parsed: empty."""
    if not any(key.encode() in content for key in KEYS) and not _ESCAPED.search(content) and b"\0" not in content:
        return None
    values: list[t.Any] = []

    def pairs(items: list[tuple[str, t.Any]]) -> list[t.Any]:
        # All of them, although the last of a name counts: other parsers may take another one.
        values.extend(value for key, value in items if key in KEYS and isinstance(value, (str, list)))
        return [value for _key, value in items]

    if len(content) > PARSE_LIMIT:
        return []
    try:
        json.loads(content, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        return []
    texts, left = [], list(values)
    while left:
        value = left.pop()
        texts += [value] if isinstance(value, str) else []
        left += value if isinstance(value, list) else []
    return texts if values else None


def _scan(root: str) -> dict[str, list[str]]:
    """Return the files of a model, relative to it, that are code (Python) or name code (JSON), and the texts by which they do."""
    found = {}
    for directory, directories, names in os.walk(root):
        directories[:] = [name for name in directories if name != "__pycache__"]
        linked = [name for name in directories if os.path.islink(os.path.join(directory, name))]
        for name in [*names, *linked]:
            path = os.path.join(directory, name)
            texts: list[str] | None = [] if name in linked or name.endswith(".py") else None
            if name.endswith(".json"):
                content = _content(path)
                texts = references(content) if content is not None else [] if os.path.exists(path) else None
            if texts is not None:
                found[os.path.relpath(path, root)] = texts
    return found


def code(root: str) -> Code:
    """Return the code of a model of a hub cache, and that of other repositories in the same cache that it names: any revision there may run."""
    own = _scan(root)
    found, absent, hub = dict.fromkeys(own, root), {}, os.path.dirname(os.path.dirname(os.path.dirname(root)))
    named = {repo: file for file, texts in sorted(own.items()) for text in texts for repo, is_other, _module in [text.partition(OTHER)] if is_other}
    for repo, file in named.items():
        base = os.path.join(hub, repo_directory(repo)) if _REPO.match(repo) else ""
        if base and base == os.path.dirname(os.path.dirname(root)):
            continue
        snapshots = os.path.join(base, "snapshots")
        revisions = sorted(os.listdir(snapshots)) if base and os.path.isdir(snapshots) else []
        for there in (os.path.join(snapshots, revision) for revision in revisions):
            found.update({os.path.relpath(os.path.join(there, one), root): there for one in _scan(there)})
        if not revisions:
            absent[file] = repo
    return Code(found, absent)


def code_files(root: str) -> list[str]:
    """Return the files that a model's code is made of, or named by, relative to the model; those of other repositories lie outside of it."""
    return sorted(code(root).files)


def _content(path: str) -> bytes | None:
    """Return a file's content; None when it is absent, no regular file or too long. Raises :class:`UnknownState`."""
    try:
        return untrusted.content(path, CODE_LIMIT)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(path, error) from error


def _named(path: str) -> str:
    """Return the hub's id that a model's file is linked to, empty when it is to none."""
    name = os.path.basename(os.readlink(path)) if os.path.islink(path) else ""
    return name if _GIT_ID.fullmatch(name) or _LFS_ID.fullmatch(name) else ""


def code_ids(root: str, side_files: t.Collection[str] = ()) -> Ids:
    """Return what each file of a model's code is, but for side files that a person put there."""
    return _ids(root, code_files(root), side_files)


def _ids(root: str, files: t.Iterable[str], side_files: t.Collection[str]) -> Ids:
    found = {}
    for relative in files:
        path = os.path.join(root, relative)
        named, content = _named(path), _content(path)
        if named or relative not in side_files:
            found[relative] = "" if content is None else blob_id(content, named)
    return found


def note_path(state_dir: str, repo: str, commit: str) -> str:
    """Return where it is noted what the code of a revision was."""
    return os.path.join(state_dir, NOTES, repo_directory(repo), f"{commit}{SUFFIX}")


def _older(path: str) -> str:
    """Return where an older version noted the same."""
    return path.removesuffix(SUFFIX) + OLDER_SUFFIX


def read_note(path: str) -> Note | None:
    """Return what was noted, here or by an older version, None when nothing was. Raises :class:`UnknownState` when it cannot be read."""
    path = path if os.path.lexists(path) else _older(path)
    try:
        with open(path, encoding="utf-8") as handle:
            noted = json.load(handle)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        noted = error
    is_new = isinstance(noted, dict) and isinstance(noted.get("files"), dict)
    ids = noted["files"] if is_new else noted
    if isinstance(ids, dict) and all(isinstance(one, str) for one in ids.values()):
        return Note(ids, is_new)
    remedy = f"Compare that code with the hub's, then remove {path}."
    raise UnknownState(f"{path} does not hold what the model's code was", remedy=remedy, reason="code note", raw=str(noted)[:2000])


def write_note(path: str, ids: Ids) -> None:
    """Note what the code of a revision is. Raises OSError."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    write_json(path, {"files": ids})


def code_problems(root: str, side_files: t.Collection[str] = (), noted: Note | None = None) -> list[Problem]:
    """Return what is known to be wrong, or is not known, of the code that a model of a hub cache brings or names.

    Changed is what is not the content that the hub named, what lies among its files and does not come from it, and what is not as it was
    ``noted``. Nothing can be said of a model that was copied without the hub's ids, and of side files that a person put there.
    """
    found, seen = [], code(root)
    copied = {base: not any(os.path.islink(os.path.join(base, name)) for name in os.listdir(base)) for base in {root, *seen.files.values()}}
    for relative, base in sorted(seen.files.items()):
        path = os.path.join(root, relative)
        named = _named(path)
        if named:
            content = _content(path)
            if content is None:
                found.append(Problem("model.code_unverified", relative, f"{relative} is absent, or longer than code is"))
            elif blob_id(content, named) != named:
                message = f"{relative} was changed on this node: the hub's id of its content is {named[:12]}, it is {blob_id(content, named)[:12]} now"
                found.append(Problem("model.code_changed", relative, message))
        elif copied[base] or relative in side_files:
            found.append(Problem("model.code_unverified", relative, f"{relative} has no id of the hub: whether it is the pinned revision's is unknown"))
        else:
            found.append(Problem("model.code_changed", relative, f"{relative} lies among the hub's files and does not come from it"))
    for relative, repo in sorted(seen.absent.items()):
        found.append(Problem("model.code_unverified", relative, f"{relative} names code of {repo[:100]}, which is not in this cache: it was not looked at"))
    changed = {problem.file for problem in found if problem.id == "model.code_changed"}
    if noted is None:
        return found
    # What an older version did not recognize may have been there when it looked.
    files = [one for one in seen.files if noted.all or one in noted.ids or (not one.endswith(".json") and seen.files[one] == root)]
    return found + [problem for problem in _replaced(noted.ids, _ids(root, files, side_files)) if problem.file not in changed]


def _replaced(noted: Ids, present: Ids) -> list[Problem]:
    """Return what is another file than it was when it was noted: a link that leads to another blob, a file that came or went."""
    names = sorted(name for name in {*noted, *present} if noted.get(name) != present.get(name))
    words = {name: [ids[name][:12] or "nothing" if name in ids else "no code" for ids in (noted, present)] for name in names}
    return [
        Problem("model.code_changed", name, f"{name} was replaced on this node: it was {old} when this revision was first seen here, it is {new} now")
        for name, (old, new) in words.items()
    ]


def check_code(state_dir: str, hf_home: str, repo: str, revision: str | None, side_files: t.Collection[str]) -> None:
    """Raise :class:`ClusterError` when the code of a model was changed since it was downloaded. A model that is absent has none."""
    place = locate(hf_home, repo, revision)
    if not place.path:
        return
    note = note_path(state_dir, repo, place.revision or "")
    changed = [problem for problem in code_problems(place.path, side_files, read_note(note)) if problem.id == "model.code_changed"]
    if changed:
        raise ClusterError(
            f"{'; '.join(problem.message for problem in changed)}; nothing was started",
            remedy=code_remedy(place.path, changed, note),
            reason="code changed",
            files=[problem.file for problem in changed],
        )


def check_repositories(state_dir: str, hf_home: str, repositories: t.Iterable[t.Mapping[str, t.Any]]) -> None:
    """Raise :class:`ClusterError` when code that one of the repositories brings was changed on this node."""
    for one in repositories:
        # Of a plain directory no hub has ids, and remote code from there is refused.
        if not is_directory(one["repo"]):
            check_code(state_dir, hf_home, one["repo"], one["revision"], one["side_files"])


def code_remedy(root: str, changed: t.Sequence[Problem], note: str = "") -> str:
    """Return what to do about changed code; ``note`` is where it was noted what the code was."""
    named = [os.path.normpath(os.path.join(root, problem.file)) for problem in changed]
    paths = dict.fromkeys(path for name in named for path in (name, os.path.realpath(name)))
    again = f"Find out who changed it. Then remove {', '.join(paths)} and run the play with --tags model, which downloads it again."
    notes = [path for path in (note, _older(note)) if note and os.path.exists(path)]
    return again + (f" If you did, and mean it: remove {' and '.join(notes)}." if notes else "")
