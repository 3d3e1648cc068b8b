# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether every file of a model is still what the hub named it, by reading all of it. This module util is PRIVATE to the collection."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._memory import page_cache
from ansible_collections.gb10.cluster.plugins.module_utils._model import copying
from ansible_collections.gb10.cluster.plugins.module_utils._model.model_code import hub_hash
from ansible_collections.gb10.cluster.plugins.module_utils._model.model_files import Problem, unreadable

#: Ids of what modules find with this that can stop or warn.
IDS = ("model.digest",)

#: Files that are read at once. sha256 takes a core for 1.7 GB/s, less than the disk of a Spark reads.
READERS = 4
#: Bytes that are read at a time.
STEP = 4 << 20


@dataclasses.dataclass
class Read:
    """What was read: files and their bytes, in how many seconds, files that have no id of the hub, and what is wrong, with the repository of each."""

    files: int = 0
    size: int = 0
    seconds: float = 0.0
    without: int = 0
    problems: list[Problem] = dataclasses.field(default_factory=list)
    names: dict[Problem, str] = dataclasses.field(default_factory=dict)


def digest(path: str, kind: str) -> str:
    """Return the sha256 of a file (``sha256``), or git's id of it (``git``), and take what was read out of the page cache. Raises OSError."""
    with open(path, "rb", buffering=0) as stream:
        size = os.fstat(stream.fileno()).st_size
        computed = hub_hash(size, kind == "sha256")
        step = bytearray(STEP)
        view = memoryview(step)
        while length := stream.readinto(step):
            computed.update(view[:length])
        page_cache.give_back(stream.fileno(), None)
    return computed.hexdigest()


def named_files(roots: t.Mapping[str, str]) -> tuple[dict[str, tuple[str, str]], int]:
    """Return (file that has an id of the hub → its name among a model's files and the repository, number of files without).

    ``roots`` are directories of models, each with its repository. A file that several names lead to is there once.
    """
    found: dict[str, tuple[str, str]] = {}
    without = 0
    for root, repo in roots.items():
        for directory, directories, names in os.walk(root):
            directories[:] = [name for name in directories if name != "__pycache__"]
            for name in sorted(names):
                path = os.path.join(directory, name)
                real = os.path.realpath(path)
                if copying.digest_kind(real) and os.path.isfile(real):
                    found.setdefault(real, (os.path.relpath(path, root), repo))
                elif os.path.isfile(real):
                    without += 1
    return found, without


def verify(roots: t.Mapping[str, str]) -> Read:
    """Read every file of these models, several at once, and return what differs from its name. Raises :class:`UnknownState` for one that cannot be read."""
    began, (files, without) = time.monotonic(), named_files(roots)
    read = Read(files=len(files), size=sum(map(os.path.getsize, files)), without=without)

    def computed(path: str) -> str:
        try:
            return digest(path, copying.digest_kind(path))
        except OSError as error:
            raise unreadable(path, error) from error

    with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
        for (path, (name, repo)), has in zip(files.items(), pool.map(computed, files)):
            if has != os.path.basename(path):
                kind = "sha256" if copying.digest_kind(path) == "sha256" else "git id"
                message = f"{name} was changed since it was downloaded: its {kind} is {has[:12]}, the hub's is {os.path.basename(path)[:12]}"
                problem = Problem("model.digest", path, message)
                read.problems.append(problem)
                read.names[problem] = repo
    read.seconds = round(time.monotonic() - began, 1)
    return read


def remedy(problem: Problem) -> str:
    """Return what to do about a file that is not what the hub named."""
    return (
        f"Remove it and run again with --tags model, which copies or downloads it: sudo rm {problem.file}. "
        "When it comes back, the disk or the memory of this node is at fault: see journalctl -k."
    )
