# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lists the models in a node's hub caches, and whether they are complete. This module util is PRIVATE to the collection.

An owner of two Sparks reported that the right weights were on a node's disk for 27 days unnoticed. Nothing here reads weights: names, sizes and the
headers of safetensors files are enough (see :mod:`model_files`).
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._files.files import Section, strict
from ansible_collections.gb10.cluster.plugins.module_utils._model import model_files

_REPO = re.compile(r"^models--(?P<repo>[^/]+)$")
#: One of several files of weights, which need an index.
_PART = re.compile(r"^model-\d+-of-\d+\.safetensors$")

#: Suffixes of other weight files, whose names do not show whether they are complete.
OTHER_WEIGHTS = (".gguf", ".bin", ".pt", ".pth", ".onnx", ".safetensors", ".nemo", ".engine")


def repo_name(directory: str) -> str | None:
    """Return the repository (``org/name``) in the name of a hub cache's directory, None for another directory."""
    match = _REPO.match(directory)
    return match["repo"].replace("--", "/", 1) if match else None


def _exists(path: str) -> bool:
    """Return whether a path exists. Raises :class:`UnknownState` if a directory above may not be searched."""
    with model_files.reading(path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.stat(path)
        return True
    return False


def expanded(root: str, section: Section = strict) -> list[str]:
    """Return the directories that match an absolute path with the patterns ``*``, ``?`` and ``[``; a path without a pattern is returned as it is.

    Unlike the shell's expansion it records unreadable directories, through ``section``.
    """
    if not model_files.PATTERN.search(root) or os.path.exists(root):
        return [root]
    paths = ["/"]
    for word in filter(None, root.split("/")):
        if model_files.PATTERN.search(word):
            inside = [(base, name) for base in paths for name in section(functools.partial(model_files.names_in, base), [])]
            paths = [os.path.join(base, name) for base, name in inside if fnmatch.fnmatchcase(name, word) and (word[0] == "." or name[0] != ".")]
        else:
            paths = [path for path in (os.path.join(base, word) for base in paths) if section(functools.partial(_exists, path), False)]
    return paths


def repositories(root: str) -> list[str]:
    """Return the directories of model repositories below a cache root: the hub's own directory, or the one that contains ``hub``.

    Raises :class:`UnknownState` if the root may not be read; an absent root has none.
    """
    return [os.path.join(base, name) for base in (root, os.path.join(root, "hub")) for name in model_files.names_in(base) if repo_name(name)]


def _unless_absent(error: OSError) -> None:
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise model_files.unreadable(error.filename, error) from error


def refs(repo_path: str) -> dict[str, list[str]]:
    """Return the names of refs (``main``, ``pr/1``) by their commit. Raises :class:`UnknownState` if one may not be read."""
    by_commit: dict[str, list[str]] = {}
    base = os.path.join(repo_path, "refs")
    for directory, _directories, names in sorted(os.walk(base, onerror=_unless_absent)):
        for name in sorted(names):
            path = os.path.join(directory, name)
            commit = model_files.read_ref(path)
            if commit is not None:
                by_commit.setdefault(commit, []).append(os.path.relpath(path, base))
    return by_commit


def judged(snapshot: str) -> tuple[bool | None, list[str]]:
    """Return (complete, missing or unusable files) of one revision.

    Complete is None for anything but a checkpoint in safetensors (GGUF files, parts of a pipeline, adapters): that is unknown without reading it.
    Raises :class:`ClusterError` if a file may not be read.
    """
    problems, shards, _facts = model_files.examine(snapshot, [])
    if shards == [model_files.SINGLE] and any((problem.id, problem.file) == ("model.missing", model_files.SINGLE) for problem in problems):
        if any(map(_PART.match, model_files.names_in(snapshot))):
            return False, sorted({model_files.INDEX} | {problem.file for problem in problems} - {model_files.SINGLE})
        if any(path.lower().endswith(OTHER_WEIGHTS) for path in model_files.paths_below(snapshot)):
            return None, []
    return not problems, sorted({problem.file for problem in problems})


def models(roots: t.Iterable[str], section: Section = strict) -> list[dict[str, t.Any]]:
    """Return the section ``models`` of ``node_info``: every revision of every model in these caches, which may have patterns.

    ``{repo, revision, refs, complete, missing, unfinished, unfinished_bytes, bytes, path}``, by repository.
    ``bytes`` counts a file with several links once; ``unfinished`` is the number of downloads of the repository that did not finish, or are running, and
    ``unfinished_bytes`` their bytes so far. A repository with only such downloads is listed with revision None, and their bytes as ``bytes``. ``section``
    records unreadable directories.
    """
    paths: dict[str, str] = {}
    for root in [path for root in roots for path in expanded(root, section)]:
        for repo_path in section(functools.partial(repositories, root), []):
            paths.setdefault(os.path.realpath(repo_path), repo_path)
    entries = [model for path in paths.values() for model in section(functools.partial(revisions, path, section), [])]
    return sorted(entries, key=lambda model: (model["repo"], model["revision"] or "", model["path"]))


def revisions(repo_path: str, section: Section = strict) -> list[dict[str, t.Any]]:
    """Return the revisions of one repository in a cache. Raises :class:`UnknownState` if its directories may not be read."""
    unfinished = model_files.incomplete_blobs(repo_path)
    names = refs(repo_path)
    snapshots = os.path.join(repo_path, "snapshots")
    common = {"repo": repo_name(os.path.basename(repo_path)), "unfinished": len(unfinished)}
    so_far = model_files.unfinished_bytes(repo_path, unfinished)
    entries = []
    for commit in filter(model_files.is_commit, model_files.names_in(snapshots)):
        path = os.path.join(snapshots, commit)
        if os.path.isdir(path):
            complete, missing = section(functools.partial(judged, path), (None, []))
            contents = {"complete": complete, "missing": missing, "bytes": model_files.size_bytes(path), "unfinished_bytes": so_far, "path": path}
            entries.append({**common, "revision": commit, "refs": names.get(commit, []), **contents})
    if unfinished and not entries:
        contents = {"complete": False, "missing": [], "bytes": model_files.size_bytes(repo_path), "unfinished_bytes": 0, "path": repo_path}
        return [{**common, "revision": None, "refs": [], **contents}]
    return entries
