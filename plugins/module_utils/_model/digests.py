# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether every file of a model is still what the hub named it, or what was noted of it, by reading all of it.

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
from ansible_collections.gb10.cluster.plugins.module_utils._model.model_files import Problem, unreadable

#: Ids of what modules find with this that can stop or warn.
IDS = ("model.digest", "model.rewritten")

#: Files that are read at once. sha256 takes a core for 1.7 GB/s, less than the disk of a Spark reads.
READERS = 4
#: Bytes that are read at a time.
STEP = 4 << 20


@dataclasses.dataclass(frozen=True)
class File:
    """A file of a model: where it lies, its name among the model's files, and the model's directory and repository."""

    path: str
    name: str
    root: str
    repo: str

    @property
    def link(self) -> str:
        """Return the path by which the model has it: whose links it leads over says who may read it."""
        return os.path.join(self.root, self.name)

    @property
    def hub_kind(self) -> str:
        """Return which digest its own name is, ``sha256`` or ``git``; empty for one that the hub did not name."""
        return copying.digest_kind(self.path)


@dataclasses.dataclass
class Read:
    """What was read: files and their bytes, in how many seconds, how many had nothing to be compared with, and what is wrong, with the repository of each.

    ``noted`` is what the manifests of the models' directories hold from now on.
    """

    files: int = 0
    size: int = 0
    seconds: float = 0.0
    without: int = 0
    problems: list[Problem] = dataclasses.field(default_factory=list)
    names: dict[Problem, str] = dataclasses.field(default_factory=dict)
    noted: dict[str, manifest.Manifest] = dataclasses.field(default_factory=dict)


def digest(path: str, kind: str) -> tuple[os.stat_result, str]:
    """Return the status of a file, and its sha256 (``sha256``) or git's id of it (``git``), and take what was read out of the page cache.

    Raises OSError, and :class:`ClusterError` as :func:`untrusted.regular` does.
    """
    descriptor = untrusted.regular(path)
    if descriptor is None:
        raise OSError(errno.EINVAL, "not a file any more", path)
    with open(descriptor, "rb", buffering=0) as stream:
        status = os.fstat(stream.fileno())
        computed = hub_hash(status.st_size, kind == "sha256")
        step = bytearray(STEP)
        view = memoryview(step)
        while length := stream.readinto(step):
            computed.update(view[:length])
        page_cache.give_back(stream.fileno(), None)
    return status, computed.hexdigest()


def files_of(roots: t.Mapping[str, str]) -> list[File]:
    """Return the files of models. ``roots`` are their directories, each with its repository. A file that several names lead to is there once."""
    found: dict[str, File] = {}
    for root, repo in roots.items():
        for name in manifest.file_names(root):
            real = os.path.realpath(os.path.join(root, name))
            found.setdefault(real, File(real, name, root, repo))
    return list(found.values())


def _compute(file: File) -> tuple[str, manifest.Entry]:
    """Return the digest of a file's kind, and what is to be noted of it. Raises :class:`UnknownState`."""
    try:
        status, has = digest(file.link, file.hub_kind or "sha256")
    except OSError as error:
        raise unreadable(file.path, error) from error
    return has, manifest.entry(status, has)


def _problem(file: File, has: str, now: manifest.Entry, noted: manifest.Entry | None) -> Problem | None:
    """Return what is wrong with a file of this digest: it is not what the hub named, or not what was noted."""
    if file.hub_kind:
        named, kind = os.path.basename(file.path), "sha256" if file.hub_kind == "sha256" else "git id"
        message = f"{file.name} was changed since it was downloaded: its {kind} is {has[:12]}, the hub's is {named[:12]}"
        return Problem("model.digest", file.path, message) if has != named else None
    if noted is None or has == noted["digest"]:
        return None
    changed = f"its sha256 is {has[:12]}, it was {noted['digest'][:12]}"
    if manifest.is_same_file(now, noted):
        return Problem("model.digest", file.path, f"{file.name} was changed though its size and time are as before: {changed}")
    return Problem("model.rewritten", file.path, f"{file.name} was written since its digest was noted: {changed}")


def verify(roots: t.Mapping[str, str], noted: t.Mapping[str, manifest.Manifest] | None = None) -> Read:
    """Read every file of these models, several at once, and return what differs from its name, or from what was noted of its directory.

    Raises :class:`UnknownState` for one that cannot be read.
    """
    before = noted or {}
    began, files = time.monotonic(), files_of(roots)
    read = Read(files=len(files), noted={root: {} for root in roots})
    with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
        for file, (has, now) in zip(files, pool.map(_compute, files)):
            known = before.get(file.root, {}).get(file.name)
            read.size += now["size"]
            read.without += not file.hub_kind and known is None
            problem = _problem(file, has, now, known)
            if problem:
                read.problems.append(problem)
                read.names[problem] = file.repo
            # What was found damaged stays so until somebody says that it is meant.
            damaged = problem is not None and problem.id == "model.digest"
            if not damaged:
                read.noted[file.root][file.name] = now
            elif known is not None:
                read.noted[file.root][file.name] = known
    read.seconds = round(time.monotonic() - began, 1)
    return read


def rewritten(root: str, noted: manifest.Manifest) -> list[Problem]:
    """Return the files without a digest of the hub that were written, or are gone, since their digests were noted; nothing of them is read."""
    found = []
    for file in files_of({root: ""}):
        known = noted.get(file.name)
        if known is not None and not file.hub_kind and not manifest.is_same_file(manifest.entry(os.stat(file.path), ""), known):
            found.append(Problem("model.rewritten", file.path, f"{file.name} was written since its digest was noted"))
    return found


def remedy(problem: Problem, note: str) -> str:
    """Return what to do about a file that is not what the hub named, or what was noted of it in ``note``."""
    if problem.id == "model.rewritten":
        return "If that was you, there is nothing to do: -e gb10_model_verify=full notes what it is now. Else copy it there again from where it is whole."
    if not copying.digest_kind(problem.file):
        return f"Copy {problem.file} there again from where it is whole, and see journalctl -k for the disk. If the change was meant: sudo rm {note}."
    return (
        f"Remove it and run again with --tags model, which copies or downloads it: sudo rm {problem.file}. "
        "When it comes back, the disk or the memory of this node is at fault: see journalctl -k."
    )
