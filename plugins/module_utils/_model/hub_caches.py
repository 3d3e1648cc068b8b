# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which models lie in a node's hub caches, and which of them are complete. This module util is PRIVATE to the collection.

An owner of two Sparks reported that the right weights were on a node's disk for 27 days without being noticed. Nothing here reads weights: names,
sizes and the headers of safetensors files are enough (see :mod:`model_files`).
"""

from __future__ import annotations

import fnmatch
import functools
import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._files.files import Section, strict
from ansible_collections.gb10.cluster.plugins.module_utils._model import model_files

_REPO = re.compile(r"^models--(?P<repo>[^/]+)$")
#: One of several files of weights, which take an index to be read.
_PART = re.compile(r"^model-\d+-of-\d+\.safetensors$")
_COMMIT = re.compile(r"^[0-9a-f]{40}$")

_PATTERN = re.compile(r"[*?[]")

#: Suffixes of weight files that this collection does not judge: their names do not show whether they are complete.
OTHER_WEIGHTS = (".gguf", ".bin", ".pt", ".pth", ".onnx", ".safetensors", ".nemo", ".engine")


def repo_name(directory: str) -> str | None:
    """Return the repository (``org/name``) of a hub cache's directory name, None for one of something else."""
    match = _REPO.match(directory)
    return match["repo"].replace("--", "/", 1) if match else None


def _entries(path: str) -> list[str]:
    """Return the names in a directory, sorted; none when it is absent. Raises :class:`UnknownState` when it may not be read."""
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise model_files.unreadable(path, error) from error


def _there(path: str) -> bool:
    """Return whether a path exists. Raises :class:`UnknownState` when that may not be seen."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise model_files.unreadable(path, error) from error
    return True


def expanded(root: str, section: Section = strict) -> list[str]:
    """Return the directories that an absolute path with the patterns ``*``, ``?`` and ``[`` means; a path without any means itself.

    Unlike the shell's expansion it reports, through ``section``, what may not be read.
    """
    if not _PATTERN.search(root) or os.path.exists(root):
        return [root]
    found = ["/"]
    for word in filter(None, root.split("/")):
        if _PATTERN.search(word):
            inside = [(base, name) for base in found for name in section(functools.partial(_entries, base), [])]
            found = [os.path.join(base, name) for base, name in inside if fnmatch.fnmatchcase(name, word) and (word[0] == "." or name[0] != ".")]
        else:
            found = [path for path in (os.path.join(base, word) for base in found) if section(functools.partial(_there, path), False)]
    return found


def repositories(root: str) -> list[str]:
    """Return the directories of model repositories below a cache root: the hub's own directory, or the one that holds ``hub``.

    Raises :class:`UnknownState` when the root may not be read; one that does not exist holds none.
    """
    found = []
    for base in (root, os.path.join(root, "hub")):
        found += [os.path.join(base, name) for name in _entries(base) if repo_name(name)]
    return found


def _unless_absent(error: OSError) -> None:
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise model_files.unreadable(error.filename, error) from error


def refs(repo_path: str) -> dict[str, list[str]]:
    """Return the names of refs (``main``, ``pr/1``) by the commit they point to. Raises :class:`UnknownState` when one may not be read."""
    found: dict[str, list[str]] = {}
    base = os.path.join(repo_path, "refs")
    for directory, _directories, names in sorted(os.walk(base, onerror=_unless_absent)):
        for name in sorted(names):
            path = os.path.join(directory, name)
            commit = model_files.read_ref(path)
            if commit is not None:
                found.setdefault(commit, []).append(os.path.relpath(path, base))
    return found


def judged(snapshot: str) -> tuple[bool | None, list[str]]:
    """Return (complete, what is missing or cannot be used) of one revision.

    Complete is None for what is not a checkpoint in safetensors as engines read them (GGUF files, parts of a pipeline, adapters): that is unknown
    without reading it. Raises :class:`ClusterError` when a file may not be read.
    """
    problems, shards, _facts = model_files.examine(snapshot, [])
    ids = {(problem.id, problem.file) for problem in problems}
    if shards == [model_files.SINGLE] and ("model.missing", model_files.SINGLE) in ids:
        if any(map(_PART.match, _entries(snapshot))):
            return False, sorted({model_files.INDEX} | {problem.file for problem in problems} - {model_files.SINGLE})
        if _holds_other_weights(snapshot):
            return None, []
    return not problems, sorted({problem.file for problem in problems})


def _holds_other_weights(snapshot: str) -> bool:
    return any(name.lower().endswith(OTHER_WEIGHTS) for _directory, _directories, names in os.walk(snapshot) for name in names)


def models(roots: t.Iterable[str], section: Section = strict) -> list[dict[str, t.Any]]:
    """Return the section ``models`` of ``node_info``: every revision of every model in these caches, which may be patterns.

    ``{repo, revision, refs, complete, missing, unfinished, unfinished_bytes, bytes, path}``, by repository.
    ``bytes`` counts each file once however many links lead to it; ``unfinished`` counts downloads of the repository that did not end, or still run, and
    ``unfinished_bytes`` what they have so far. A repository that holds only such is listed with revision None, and they are its ``bytes``. What may
    not be read is noted by ``section``.
    """
    found: list[dict[str, t.Any]] = []
    seen: set[str] = set()
    for root in [path for root in roots for path in expanded(root, section)]:
        for repo_path in section(functools.partial(repositories, root), []):
            real = os.path.realpath(repo_path)
            if real not in seen:
                seen.add(real)
                found += section(functools.partial(revisions, repo_path, section), [])
    return sorted(found, key=lambda model: (model["repo"], model["revision"] or "", model["path"]))


def revisions(repo_path: str, section: Section = strict) -> list[dict[str, t.Any]]:
    """Return the revisions of one repository in a cache. Raises :class:`UnknownState` when its directories may not be read."""
    unfinished = model_files.incomplete_blobs(repo_path)
    names = refs(repo_path)
    snapshots = os.path.join(repo_path, "snapshots")
    common = {"repo": repo_name(os.path.basename(repo_path)), "unfinished": len(unfinished)}
    so_far = model_files.unfinished_bytes(repo_path, unfinished)
    found = []
    for commit in _entries(snapshots):
        path = os.path.join(snapshots, commit)
        if not _COMMIT.match(commit) or not os.path.isdir(path):
            continue
        complete, missing = section(functools.partial(judged, path), (None, []))
        contents = {"complete": complete, "missing": missing, "bytes": model_files.size_bytes(path), "unfinished_bytes": so_far, "path": path}
        found.append({**common, "revision": commit, "refs": names.get(commit, []), **contents})
    if not found and unfinished:
        contents = {"complete": False, "missing": [], "bytes": model_files.size_bytes(repo_path), "unfinished_bytes": 0, "path": repo_path}
        found.append({**common, "revision": None, "refs": [], **contents})
    return found
