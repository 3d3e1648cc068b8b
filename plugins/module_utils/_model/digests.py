# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads all files of a model, and compares them with the hub's ids or with the manifest.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import errno
import os
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._memory import page_cache
from ansible_collections.gb10.cluster.plugins.module_utils._model import copying, manifest
from ansible_collections.gb10.cluster.plugins.module_utils._model.model_code import hub_hash
from ansible_collections.gb10.cluster.plugins.module_utils._model.model_files import Problem, reading

#: Ids of findings that block or warn.
IDS = ("model.digest", "model.rewritten")

#: Number of files to read in parallel. One core computes the sha256 of 1.7 GB/s, less than the disk of a Spark reads.
READERS = 4
#: Bytes of one read.
STEP = 4 << 20


@dataclasses.dataclass(frozen=True)
class File:
    """A file of a model: its real path, its name among the model's files, and the model's directory and repository."""

    path: str
    name: str
    root: str
    repo: str

    @property
    def hub_kind(self) -> str:
        """Return the kind of digest in its own name, ``sha256`` or ``git``; empty if the hub did not name it."""
        return copying.digest_kind(self.path)


@dataclasses.dataclass
class Read:
    """The result of reading: files, bytes and seconds, the number of files ``without`` anything to compare, and the problems, each with its repository.

    ``noted`` are the new manifests of the models' directories.
    """

    files: int = 0
    size: int = 0
    seconds: float = 0.0
    without: int = 0
    problems: dict[Problem, str] = dataclasses.field(default_factory=dict)
    noted: dict[str, manifest.Manifest] = dataclasses.field(default_factory=dict)


def digest(path: str, kind: str) -> tuple[os.stat_result, str]:
    """Return the status of a file, and its sha256 (``sha256``) or git id (``git``), and drop it from the page cache.

    Raises OSError, and :class:`ClusterError` as :func:`untrusted.regular` does.
    """
    descriptor = untrusted.regular(path)
    if descriptor is None:
        raise OSError(errno.EINVAL, "is no longer a file", path)
    with open(descriptor, "rb", buffering=0) as stream:
        status = os.fstat(stream.fileno())
        computed = hub_hash(status.st_size, kind == "sha256")
        view = memoryview(bytearray(STEP))
        while length := stream.readinto(view):
            computed.update(view[:length])
        page_cache.give_back(stream.fileno(), None)
    return status, computed.hexdigest()


def files_of(roots: t.Mapping[str, str]) -> list[File]:
    """Return the files of models. ``roots`` are their directories, each with its repository. A file with several names is listed once."""
    files = [File(os.path.realpath(os.path.join(root, name)), name, root, repo) for root, repo in roots.items() for name in manifest.file_names(root)]
    return list({file.path: file for file in reversed(files)}.values())[::-1]


def _compute(file: File) -> tuple[str, manifest.Entry]:
    """Return the digest of a file's kind, and its entry in the manifest. Raises :class:`UnknownState`."""
    with reading(file.path):
        # By its path in the model: the owners of the links in it decide who may read it.
        status, has = digest(os.path.join(file.root, file.name), file.hub_kind or "sha256")
    return has, manifest.entry(status, has)


def _problem(file: File, has: str, now: manifest.Entry, noted: manifest.Entry | None) -> Problem | None:
    """Return the problem of a file with this digest: it differs from the hub's or from the manifest."""
    if file.hub_kind:
        named, kind = os.path.basename(file.path), "sha256" if file.hub_kind == "sha256" else "git id"
        message = f"{file.name} was changed since it was downloaded: its {kind} is {has[:12]}, the hub's is {named[:12]}"
        return Problem("model.digest", file.path, message) if has != named else None
    if noted is None or has == noted["digest"]:
        return None
    changed = f"its sha256 is {has[:12]}, it was {noted['digest'][:12]}"
    if manifest.is_same_file(now, noted):
        return Problem("model.digest", file.path, f"{file.name} was changed, with the same size and time: {changed}")
    return Problem("model.rewritten", file.path, f"{file.name} was written since its digest was noted: {changed}")


def verify(roots: t.Mapping[str, str], noted: t.Mapping[str, manifest.Manifest] | None = None) -> Read:
    """Read every file of these models, several in parallel, and return those that differ from their name or from the manifest of their directory.

    Raises :class:`UnknownState` if one cannot be read.
    """
    before = noted or {}
    began, files = time.monotonic(), files_of(roots)
    read = Read(files=len(files), noted={root: {} for root in roots})
    with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
        for file, (has, now) in zip(files, pool.map(_compute, files)):
            known = before.get(file.root, {}).get(file.name)
            read.size += now["size"]
            read.without += not file.hub_kind and known is None
            if problem := _problem(file, has, now, known):
                read.problems[problem] = file.repo
            # A damaged file keeps its entry until a person removes the manifest.
            entry = known if problem is not None and problem.id == "model.digest" else now
            if entry is not None:
                read.noted[file.root][file.name] = entry
    read.seconds = round(time.monotonic() - began, 1)
    return read


def rewritten(root: str, noted: manifest.Manifest) -> list[Problem]:
    """Return the files without a digest of the hub that were written or removed since their digests were noted, without reading them."""
    return [
        Problem("model.rewritten", file.path, f"{file.name} was written since its digest was noted")
        for file in files_of({root: ""})
        if file.name in noted and not file.hub_kind and not manifest.is_same_file(manifest.entry(os.stat(file.path), ""), noted[file.name])
    ]


def remedy(problem: Problem, note: str) -> str:
    """Return the remedy for a file that differs from the hub's or from the manifest ``note``."""
    if problem.id == "model.rewritten":
        return "Copy it again from an intact copy. If you wrote it, run with -e gb10_model_verify=full, which notes its new digest."
    if not copying.digest_kind(problem.file):
        return f"Copy {problem.file} again from an intact copy, and check the disk with journalctl -k. If the change was intended: sudo rm {note}."
    return (
        f"Remove it (sudo rm {problem.file}) and run again with --tags model, which copies or downloads it. "
        "If it happens again, this node's disk or memory is faulty: see journalctl -k."
    )
