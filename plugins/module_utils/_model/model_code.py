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
from ansible_collections.gb10.cluster.plugins.module_utils._host.files import write_json
from ansible_collections.gb10.cluster.plugins.module_utils._model.model_files import Problem, locate, repo_directory, unreadable

#: Ids of what modules find with this that can stop or warn.
IDS = ("model.code_changed", "model.code_unverified")

#: Most bytes of a file of code, and of a configuration: tokenizers and indexes are JSON too, and long.
CODE_LIMIT = 64 * 1024 * 1024
CONFIG_LIMIT = 1024 * 1024

#: The hub's id of a blob: of a file in git, and of one in its large file storage.
_GIT_ID = re.compile(r"[0-9a-f]{40}")
_LFS_ID = re.compile(r"[0-9a-f]{64}")


#: Where the notes lie, below the directory of the collection's state.
NOTES = "model-code"

#: File relative to the model → the hub's id of its content, empty for what has none.
Ids = dict[str, str]


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


def code_files(root: str) -> list[str]:
    """Return the files of a model, relative to it, that are code or name code: Python, and JSON with an ``auto_map``."""
    found = []
    for directory, directories, names in os.walk(root):
        directories[:] = [name for name in directories if name != "__pycache__"]
        linked = [name for name in directories if os.path.islink(os.path.join(directory, name))]
        for name in [*names, *linked]:
            path = os.path.join(directory, name)
            if name in linked or name.endswith(".py") or (name.endswith(".json") and b'"auto_map"' in (_content(path, CONFIG_LIMIT) or b"")):
                found.append(os.path.relpath(path, root))
    return sorted(found)


def _content(path: str, limit: int = CODE_LIMIT) -> bytes | None:
    """Return a file's content; None when it is absent, no regular file or longer than ``limit``. Raises :class:`UnknownState`."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > limit:
            return None
        with open(path, "rb") as stream:
            return stream.read(limit)
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
    found = {}
    for relative in code_files(root):
        path = os.path.join(root, relative)
        named, content = _named(path), _content(path)
        if named or relative not in side_files:
            found[relative] = "" if content is None else blob_id(content, named)
    return found


def note_path(state_dir: str, repo: str, commit: str) -> str:
    """Return where it is noted what the code of a revision was."""
    return os.path.join(state_dir, NOTES, repo_directory(repo), f"{commit}.json")


def read_note(path: str) -> Ids | None:
    """Return what was noted, None when nothing was. Raises :class:`UnknownState` when it cannot be read."""
    try:
        with open(path, encoding="utf-8") as handle:
            noted = json.load(handle)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        noted = error
    if isinstance(noted, dict) and all(isinstance(one, str) for one in noted.values()):
        return noted
    remedy = f"Compare that code with the hub's, then remove {path}."
    raise UnknownState(f"{path} does not hold what the model's code was", remedy=remedy, reason="code note", raw=str(noted)[:2000])


def write_note(path: str, ids: Ids) -> None:
    """Note what the code of a revision is. Raises OSError."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    write_json(path, ids)


def code_problems(root: str, side_files: t.Collection[str] = (), noted: Ids | None = None) -> list[Problem]:
    """Return what is known to be wrong, or is not known, of the code that a model of a hub cache brings.

    Changed is what is not the content that the hub named, what lies among its files and does not come from it, and what is not as it was
    ``noted``. Nothing can be said of a model that was copied without the hub's ids, and of side files that a person put there.
    """
    found = []
    copied = not any(os.path.islink(os.path.join(root, name)) for name in os.listdir(root))
    for relative in code_files(root):
        path = os.path.join(root, relative)
        named = _named(path)
        if named:
            content = _content(path)
            if content is None:
                found.append(Problem("model.code_unverified", relative, f"{relative} is absent, or longer than code is"))
            elif blob_id(content, named) != named:
                message = f"{relative} was changed on this node: the hub's id of its content is {named[:12]}, it is {blob_id(content, named)[:12]} now"
                found.append(Problem("model.code_changed", relative, message))
        elif copied or relative in side_files:
            found.append(Problem("model.code_unverified", relative, f"{relative} has no id of the hub: whether it is the pinned revision's is unknown"))
        else:
            found.append(Problem("model.code_changed", relative, f"{relative} lies among the hub's files and does not come from it"))
    changed = {problem.file for problem in found if problem.id == "model.code_changed"}
    return found + ([] if noted is None else [problem for problem in _replaced(noted, code_ids(root, side_files)) if problem.file not in changed])


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


def code_remedy(root: str, changed: t.Sequence[Problem], note: str = "") -> str:
    """Return what to do about changed code; ``note`` is where it was noted what the code was."""
    named = [os.path.join(root, problem.file) for problem in changed]
    paths = dict.fromkeys(path for name in named for path in (name, os.path.realpath(name)))
    again = f"Find out who changed it. Then remove {', '.join(paths)} and run the play with --tags model, which downloads it again."
    return again + (f" If you did, and mean it: remove {note}." if os.path.exists(note) else "")
