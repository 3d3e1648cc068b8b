# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a model's files were when all of them were read: size, time, inode and digest. This module util is PRIVATE to the collection.

A blob of a hub cache bears its digest as its name. A file of a plain directory, or of a cache that was filled by hand, does not: a flipped byte in it
is found by what was noted here. The manifest lies where root alone writes, outside the cache and whatever a container can write.
"""

from __future__ import annotations

import hashlib
import json
import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import write_json
from ansible_collections.gb10.cluster.plugins.module_utils._model.model_files import unreadable

#: Where the manifests lie, below the directory of the collection's state.
NOTES = "model-manifest"
#: What Python compiled, and what a download notes about itself, is no part of a model.
LEFT_OUT = ("__pycache__", ".cache")

#: ``size`` in bytes, ``mtime_ns`` in nanoseconds since the epoch, ``inode``, and ``digest``: sha256, or git's id for small files of the hub.
Entry = dict[str, t.Any]
#: File relative to the model's directory → what was noted of it.
Manifest = dict[str, Entry]


def file_names(root: str) -> list[str]:
    """Return the files of a model relative to its directory, sorted; links that lead to files are files."""
    found = []
    for directory, directories, names in os.walk(root):
        directories[:] = [name for name in directories if name not in LEFT_OUT]
        found += [os.path.relpath(path, root) for path in (os.path.join(directory, name) for name in names) if os.path.isfile(path)]
    return sorted(found)


def entry(status: os.stat_result, digest: str) -> Entry:
    """Return what is noted of a file."""
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "inode": status.st_ino, "digest": digest}


def is_same_file(one: Entry, other: Entry) -> bool:
    """Return whether a file was not written in between, as far as that is seen without reading it."""
    return all(one[name] == other[name] for name in ("size", "mtime_ns", "inode"))


def path_of(state_dir: str, root: str) -> str:
    """Return where the manifest of a model's directory lies."""
    return os.path.join(state_dir, NOTES, f"{hashlib.sha256(root.encode()).hexdigest()[:32]}.json")


def read(path: str) -> Manifest:
    """Return what was noted, nothing when nothing was. Raises :class:`UnknownState` when it cannot be read."""
    try:
        with open(path, encoding="utf-8") as handle:
            noted = json.load(handle)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        noted = error
    files = noted.get("files") if isinstance(noted, dict) else None
    if isinstance(files, dict) and all(isinstance(one, dict) and {"size", "mtime_ns", "inode", "digest"} <= one.keys() for one in files.values()):
        return files
    remedy = f"Remove {path}; the next run with gb10_model_verify=full writes it again."
    raise UnknownState(f"{path} does not hold a model's manifest", remedy=remedy, reason="manifest", raw=str(noted)[:2000])


def write(path: str, root: str, files: Manifest) -> None:
    """Note what the files of a model's directory are. Raises OSError."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    write_json(path, {"directory": root, "files": files})
