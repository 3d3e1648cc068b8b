# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Recognizes paths in a recipe: caches, links, mounted directories, and snapshots of a hub's cache. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import re
import typing as t

#: Directories of engines for files that can be made again, and for scratch files: this collection's containers have their own.
_CACHES = re.compile(r"(?:(?:/root|~|/home/[^/]+)/\.(?:cache|triton)|/tmp|/dev/shm|/cache)(?:/|\Z)")
#: A commit of a repository in a hub's cache.
_SNAPSHOT = re.compile(r"/(?:.*/)?models--(?P<org>[^/]+?)--(?P<name>[^/]+)/snapshots/(?P<commit>[0-9a-f]{40})/?\Z")


class Snapshot(t.NamedTuple):
    """The repository and commit of a directory in a hub's cache."""

    repo: str
    commit: str


def is_cache(path: str) -> bool:
    """Return whether a path of a container is in a cache."""
    return bool(_CACHES.match(path))


def is_path(value: t.Any) -> bool:
    """Return whether a value is the absolute path of a file or directory."""
    return isinstance(value, str) and value.startswith("/")


def snapshot(path: str) -> Snapshot | None:
    """Return the repository and the commit of the files at a path, None for any other path."""
    match = _SNAPSHOT.match(path)
    return Snapshot(f"{match['org']}/{match['name']}", match["commit"]) if match else None


def behind(path: str, places: t.Mapping[str, str]) -> tuple[str, str]:
    """Return the target of a path, and its place: a link or a mounted directory. Without one, the target is the path itself."""
    place = max((place for place in places if path == place or path.startswith(f"{place.rstrip('/')}/")), key=len, default="")
    return (places[place].rstrip("/") + path[len(place.rstrip("/")) :], place) if place else (path, "")
