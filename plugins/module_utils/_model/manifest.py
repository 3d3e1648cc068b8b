# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The manifest of a model's files from when all of them were read: size, time, inode and digest. This module util is PRIVATE to the collection.

The name of a blob in a hub cache is its digest. A file of a plain directory, or of a cache that was filled by hand, has no such name: the manifest
shows a flipped byte in it. Only root can write to the manifest's directory, which is outside the cache and of all directories that containers write.
"""

from __future__ import annotations

import hashlib
import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._files.files import write_json
from ansible_collections.gb10.cluster.plugins.module_utils._model.model_files import NOT_MODEL, paths_below, read_noted

#: Directory of the manifests, below that of the collection's state.
NOTES = "model-manifest"

#: ``size`` in bytes, ``mtime_ns`` in nanoseconds since the epoch, ``inode``, and ``digest``: sha256, or git's id for small files of the hub.
Entry = dict[str, t.Any]
#: File relative to the model's directory → its entry.
Manifest = dict[str, Entry]


def file_names(root: str) -> list[str]:
    """Return the files of a model relative to its directory, sorted; a link to a file is a file."""
    return sorted(os.path.relpath(path, root) for path in paths_below(root, NOT_MODEL) if os.path.isfile(path))


def entry(status: os.stat_result, digest: str) -> Entry:
    """Return the manifest's entry of a file."""
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "inode": status.st_ino, "digest": digest}


def is_same_file(now: Entry, noted: Entry) -> bool:
    """Return whether a file was not written since, as far as its status shows."""
    return all(now[name] == noted[name] for name in ("size", "mtime_ns", "inode"))


def path_of(state_dir: str, root: str) -> str:
    """Return the path of the manifest of a model's directory."""
    return os.path.join(state_dir, NOTES, f"{hashlib.sha256(root.encode()).hexdigest()[:32]}.json")


def read(path: str) -> Manifest:
    """Return a manifest, empty if it is absent. Raises :class:`UnknownState` if it cannot be read."""
    remedy = f"Remove {path}; the next run with gb10_model_verify=full writes it again."
    return read_noted(path, "a model's manifest", remedy, "manifest", _is_manifest) or {}


def _is_manifest(files: dict[str, t.Any]) -> bool:
    return all(isinstance(entry, dict) and {"size", "mtime_ns", "inode", "digest"} <= entry.keys() for entry in files.values())


def write(path: str, root: str, files: Manifest) -> None:
    """Write the manifest of a model's directory. Raises OSError."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    write_json(path, {"directory": root, "files": files})
