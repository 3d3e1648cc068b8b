# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The directories on a node for code that engines compile, one for each image. This module util is PRIVATE to the collection.

A kernel that one build of an engine compiled is useless for another build, which does not always detect that. So the directory's name identifies the
origin of the image: it stays the same when the image is built again by the same recipe on the same base. A cluster has one container on a node, and
a Spark has one GPU, so only one rank writes there. A container wrote these files: none of them is read.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._leftovers import prune

if t.TYPE_CHECKING:
    from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi

_NAME = re.compile(r"^(?P<engine>.+)-(?P<architecture>[^-]+)-(?P<origin>[0-9a-f]{16})$")

#: The part of a name for a value that the image does not report.
UNKNOWN = "unknown"


class Directory(t.NamedTuple):
    """One image's directory: ``origin`` is the part of its name that the image decides, empty for a foreign name."""

    path: str
    origin: str
    size: int
    files: int
    written: float

    def view(self, mounted: t.Collection[str]) -> dict[str, t.Any]:
        """Return it as an entry of a module's result; ``mounted`` are the directories that containers at work use."""
        return {"path": self.path, "size_bytes": self.size, "files": self.files, "in_use": self.path in mounted}


def origin(image_id: str, labels: t.Mapping[str, str], history: list[dict[str, t.Any]]) -> str:
    """Return the digest of an image's origin: its base and our recipe, or its own id when the recipe's step is not its last."""
    ours = prune.LABEL_RECIPE in labels and prune.built_by_us(history)
    made_of = (labels.get(prune.LABEL_BASE, ""), labels[prune.LABEL_RECIPE]) if ours else (image_id, "")
    return hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:16]


def origin_of(api: EngineApi, image_id: str, labels: t.Mapping[str, str] | None) -> str:
    """Return the :func:`origin` of an image on this node. The history is read only for an image with our label."""
    return origin(image_id, labels or {}, api.history(image_id) if prune.LABEL_RECIPE in (labels or {}) else [])


def directory_name(api: EngineApi, image: dict[str, t.Any], engine_version: str | None) -> str:
    """Return the name of an image's directory: engine, architecture, origin. ``image`` is Docker's description of it."""
    labels = (image.get("Config") or {}).get("Labels")
    words = [re.sub(r"[^A-Za-z0-9.+]", "_", word or UNKNOWN) for word in (engine_version, image.get("Architecture"))]
    return "-".join([*words, origin_of(api, image["Id"], labels)])


def directories(root: str) -> list[Directory]:
    """Return the directories of a cluster's caches with their sizes. Raises :class:`UnknownState` when one cannot be read."""
    try:
        with untrusted.directory(root) as handle:
            names = [name for name in sorted(os.listdir(handle)) if stat.S_ISDIR(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise prune.unreadable(root, error) from error
    caches = []
    for name in names:
        match, path = _NAME.match(name), os.path.join(root, name)
        files = prune.files_below(path)
        written = max([os.lstat(path).st_mtime, *(status.st_mtime for _path, status in files)])
        caches.append(Directory(path, match["origin"] if match else "", sum(status.st_blocks * 512 for _path, status in files), len(files), written))
    return caches


def mounted(listed: t.Iterable[dict[str, t.Any]]) -> set[str]:
    """Return the node's directories that are mounted into containers which may have processes; ``listed`` is the engine's list of containers."""
    return {mount.get("Source", "") for entry in listed if entry["State"] not in prune.STOPPED for mount in entry.get("Mounts") or []}


def judge(caches: t.Iterable[Directory], origins: t.Collection[str], in_use: t.Collection[str], days: int, now: float) -> prune.Judged:
    """Judge a cluster's caches: one that no container at work uses may be removed when its image is gone, or when nothing was written there for ``days``.

    ``origins`` are those of the images that stay.
    """
    candidates, left = [], []
    for cache in caches:
        age = prune.age_of(cache.written, now)
        if not cache.origin:
            left.append(prune.Left("cache", cache.path, "not ours"))
        elif cache.path not in in_use and (cache.origin not in origins or age >= days * prune.SECONDS_PER_DAY):
            why = f"not written to for {days} days" if cache.origin in origins else "compiled for an image that is gone"
            candidates.append(prune.Candidate("cache", cache.path, (cache.path,), age, cache.size, why))
    return prune.Judged(candidates, left)
