# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What models lie on a node, file by file, and what the removal of one would free. This module util is PRIVATE to the collection.

A hub cache keeps each file once, as a blob, and a revision is a directory of links to blobs; revisions share what did not change. Whoever owns the
cache can put anything there: links are read and not followed, and what has a doubt is only partly known, so nobody removes it.
"""

from __future__ import annotations

import dataclasses
import os
import re
import stat
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._files.untrusted import Entry
from ansible_collections.gb10.cluster.plugins.module_utils._model import hub_caches, model_files
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding

#: Ids of findings on what a person wants to be gone and may not go.
IDS = ("models.in_use", "models.unknown")
#: What to do about a model that is only partly known.
PARTLY_KNOWN = "Look at that path and put it right, or remove the model by hand."

COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?\Z")

#: In place of a commit: the files of a repository that no revision has, such as those of downloads that did not end.
LEFTOVERS = "leftovers"

#: Where a cache root has its repositories.
HUBS = ("", "hub")
#: What the hub's client makes in a repository: one has a file for each that a revision is known not to have, one (since 2.0) a list of each revision.
FOLDERS = ("blobs", "snapshots", "refs", ".no_exist", "trees")
UNFINISHED = ".incomplete"
#: Seconds for which a download that wrote nothing may still run.
RUNNING = 900
#: How many names a doubt or a list of broken links has.
NAMED = 5
#: Names that make a directory a model, beside weights.
_CONFIGS = (model_files.CONFIG, "model_index.json")


class Request(t.NamedTuple):
    """What a person wants to be gone: a repository, and a commit or :data:`LEFTOVERS`."""

    repo: str
    revision: str

    def __str__(self) -> str:
        return f"{self.repo}@{self.revision}"


def parse_request(text: str) -> Request:
    """Return what a person asked for. Raises :class:`ClusterError` for anything but REPO@COMMIT and REPO@leftovers."""
    repo, _at, revision = text.strip().rpartition("@")
    if not _REPO.match(repo) or not (revision == LEFTOVERS or COMMIT.match(revision)):
        raise ClusterError(
            f"'{text.strip()[:200]}' does not name a model",
            expected=f"REPO@REVISION, the revision as 40 hexadecimal digits or '{LEFTOVERS}'",
            remedy="Copy it from the list: ansible-playbook -i INVENTORY gb10.cluster.models",
            reason="input",
        )
    return Request(repo, revision)


def in_use(node: str, message: str, path: str, remedy: str = "End what uses it, or have another profile served, then ask again.") -> dict[str, t.Any]:
    """Return the finding on what may not go because somebody uses or wants it."""
    return finding("models.in_use", node, "block", message, remedy=remedy, source=path)


def unknown(node: str, message: str, path: str, remedy: str = PARTLY_KNOWN) -> dict[str, t.Any]:
    """Return the finding on what may not go because it is unknown who uses it, or what goes with it."""
    return finding("models.unknown", node, "unknown", message, remedy=remedy, source=path)


class Limits:
    """How many files and directories may be looked at, and for how long; there may be millions, on a disk that is slow."""

    def __init__(self, most: int, seconds: float, clock: t.Callable[[], float] = time.monotonic) -> None:
        self._most, self._seconds, self._clock = most, seconds, clock
        self._left, self._until = most, clock() + seconds

    def check(self) -> None:
        """Raise :class:`UnknownState` once one of the limits is reached."""
        if self._left < 0 or self._clock() > self._until:
            reached = f"{self._most} files and directories" if self._left < 0 else f"{self._seconds:g} seconds"
            raise UnknownState(
                f"the look ended after {reached}: what was not read by then is not listed",
                remedy="Name fewer or narrower directories in gb10_model_directories, or see why the disk is slow.",
                reason="limit",
            )

    def counted(self, entries: t.Iterable[Entry]) -> t.Iterator[Entry]:
        """Give ``entries`` on, as long as the limits allow."""
        self.check()
        for entry in entries:
            self._left -= 1
            self.check()
            yield entry


def printable(value: t.Any) -> t.Any:
    """Return a result without characters that no terminal shows: names in a cache are what anybody wrote there."""
    if isinstance(value, str):
        return "".join(letter if letter.isprintable() else "?" for letter in value)
    if isinstance(value, list):
        return [printable(item) for item in value]
    return {key: printable(item) for key, item in value.items()} if isinstance(value, dict) else value


# -- hub caches ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Revision:
    """A revision: the blobs that its links lead to, the links whose blob is absent, and the bytes of files that are no links, with what they occupy."""

    commit: str
    blobs: set[str] = dataclasses.field(default_factory=set)
    broken: list[str] = dataclasses.field(default_factory=list)
    files: int = 0
    own_bytes: int = 0
    own_disk: int = 0
    written: float = 0.0


@dataclasses.dataclass
class Repository:
    """A repository of a hub cache. ``doubts`` are why it, or by commit one revision of it, is only partly known; ``refs`` names of refs by commit."""

    path: str
    repo: str
    blobs: dict[str, os.stat_result] = dataclasses.field(default_factory=dict)
    revisions: dict[str, Revision] = dataclasses.field(default_factory=dict)
    refs: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    doubts: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    def doubt(self, text: str, commit: str = "") -> None:
        self.doubts.setdefault(commit, []).append(text)

    def size(self) -> int:
        """Return the bytes of all its files, each once."""
        return sum(status.st_size for status in self.blobs.values()) + sum(revision.own_bytes for revision in self.revisions.values())

    def leftovers(self) -> list[str]:
        """Return the blobs that no revision leads to; those of downloads that did not end are among them."""
        linked = set().union(*(revision.blobs for revision in self.revisions.values()))
        return sorted(set(self.blobs) - linked)

    def going(self, names: t.Collection[str]) -> list[str]:
        """Return the blobs that go when these revisions (or :data:`LEFTOVERS`) do: what another revision leads to, too, stays."""
        stay = set().union(*(revision.blobs for commit, revision in self.revisions.items() if commit not in names))
        asked = set().union(*(self.revisions[commit].blobs for commit in names if commit in self.revisions))
        return sorted((asked - stay) & set(self.blobs)) + (self.leftovers() if LEFTOVERS in names else [])

    def unfinished(self, now: float) -> list[str]:
        """Return the downloads that did not end and were written to a short while ago: they may still run."""
        return sorted(name for name, status in self.blobs.items() if name.endswith(UNFINISHED) and now - status.st_mtime < RUNNING)

    def freed(self, names: t.Collection[str]) -> int:
        """Return the bytes that come back when these go."""
        own = sum(self.revisions[commit].own_disk for commit in names if commit in self.revisions)
        return own + sum(self.blobs[name].st_blocks * 512 for name in self.going(names))


def blob_of(path: str, target: str, base: str) -> str | None:
    """Return the blob that a link of a repository at ``base`` leads to by its own text, None when it leads elsewhere."""
    whole = os.path.normpath(target if target.startswith("/") else os.path.join(base, os.path.dirname(path), target))
    folder, name = os.path.split(whole)
    return name if folder == os.path.join(os.path.normpath(base), "blobs") else None


def repository(path: str, entries: t.Iterable[Entry]) -> Repository:
    """Return the repository of a hub cache that has these entries; its refs have to be read."""
    found = Repository(path, hub_caches.repo_name(os.path.basename(path)) or "")
    links = []
    for entry in entries:
        mode, parts = entry.status.st_mode, entry.path.split("/")
        if parts[0] == "blobs" and len(parts) > 1:
            if len(parts) == 2 and stat.S_ISREG(mode):
                found.blobs[parts[1]] = entry.status
            else:
                found.doubt(f"{entry.path} is not a file of the hub's")
        elif parts[0] == "snapshots" and len(parts) > 1:
            if len(parts) == 2 and not stat.S_ISDIR(mode):
                found.doubt(f"{entry.path} is not a directory")
                continue
            revision = found.revisions.setdefault(parts[1], Revision(parts[1]))
            revision.written = max(revision.written, entry.status.st_mtime)
            if stat.S_ISLNK(mode):
                links.append((revision, entry))
            elif stat.S_ISREG(mode):
                revision.files += 1
                revision.own_bytes += entry.status.st_size
                revision.own_disk += entry.status.st_blocks * 512
            elif not stat.S_ISDIR(mode):
                found.doubt(f"{entry.path} is neither a file nor a link", revision.commit)
        elif parts[0] in FOLDERS and not stat.S_ISDIR(mode) and not (len(parts) > 1 and stat.S_ISREG(mode)):
            found.doubt(f"{entry.path} is not what the hub's client puts there")
    for revision, entry in links:
        blob = blob_of(entry.path, entry.target, path)
        if blob is None:
            found.doubt(f"{entry.path} leads out of the repository, to {entry.target}", revision.commit)
            continue
        revision.files += 1
        revision.blobs.add(blob)
        if blob not in found.blobs:
            revision.broken.append("/".join(entry.path.split("/")[2:]))
    return found


def read_repository(root: str, relative: str, limits: Limits) -> Repository:
    """Read a repository of the cache at ``root``. Raises OSError and :class:`ClusterError` when it cannot be read as a whole."""
    entries = list(limits.counted(untrusted.walk(root, relative)))
    found = repository(os.path.join(root, relative), entries)
    for entry in entries:
        if entry.path.startswith("refs/") and stat.S_ISREG(entry.status.st_mode):
            commit = untrusted.read(root, f"{relative}/{entry.path}", model_files.JSON_LIMIT).decode("ascii", "replace").strip()
            found.refs.setdefault(commit[:model_files.REF_LIMIT], []).append(entry.path[len("refs/"):])
    return found


def repositories(root: str) -> list[str]:
    """Return where the repositories of a cache lie, relative to its root, which may be the hub's own directory or the one that holds it.

    Raises :class:`UnknownState` when the root may not be read, or has a link in the hub's place; one that is absent holds none.
    """
    found = []
    for base in HUBS:
        path = os.path.join(root, base).rstrip("/")
        if base and os.path.islink(path):
            what = f"{path} is a link to {os.readlink(path)}, and is not followed"
            raise UnknownState(what, remedy=f"Name the directory that it leads to: gb10_model_directories: [{os.path.realpath(path)}]", reason="link")
        try:
            with untrusted.directory(root, base) as handle:
                found += [os.path.join(base, name) for name in sorted(os.listdir(handle)) if hub_caches.repo_name(name)]
        except FileNotFoundError:
            continue
        except OSError as error:
            raise model_files.unreadable(path, error) from error
    return found


def is_cache(root: str) -> bool:
    """Return whether a directory is a hub cache, as opposed to one with plain models. Raises :class:`UnknownState` when it may not be read."""
    return os.path.isdir(os.path.join(root, "hub")) or bool(repositories(root))


def entries_of(found: Repository, judge: t.Callable[[str], tuple[bool | None, list[str]]]) -> list[dict[str, t.Any]]:
    """Return a repository's revisions and leftovers as a module's result lists them; ``judge`` says whether a revision is complete, and what is missing."""
    listed = []
    common = {"kind": "hub", "repo": found.repo, "refs": [], "missing": [], "broken": []}
    for commit, revision in sorted(found.revisions.items()):
        doubts = [*found.doubts.get("", []), *found.doubts.get(commit, [])]
        too_long = [name for name in revision.blobs if name in found.blobs and found.blobs[name].st_size > model_files.JSON_LIMIT]
        path = os.path.join(found.path, "snapshots", commit)
        # What it links to was seen to be regular files of this repository, so that these links may be followed.
        complete, missing = (None, []) if doubts or _long_json(path, too_long) else judge(path)
        entry = {
            "revision": commit,
            "refs": sorted(found.refs.get(commit, [])),
            "complete": complete,
            "missing": missing,
            "broken": sorted(revision.broken),
            "files": revision.files,
            "bytes": revision.own_bytes + sum(found.blobs[name].st_size for name in revision.blobs if name in found.blobs),
            "frees": found.freed([commit]),
            "written": revision.written,
            "path": path,
            "doubts": doubts[:NAMED],
        }
        listed.append({**common, **entry})
    left = found.leftovers()
    if left or (found.doubts and not found.revisions):
        entry = {
            "revision": LEFTOVERS,
            "complete": False,
            "missing": sorted(name for name in left if name.endswith(UNFINISHED)),
            "files": len(left),
            "bytes": sum(found.blobs[name].st_size for name in left),
            "frees": found.freed([LEFTOVERS]),
            "written": max((found.blobs[name].st_mtime for name in left), default=0.0),
            "path": os.path.join(found.path, "blobs"),
            "doubts": found.doubts.get("", [])[:NAMED],
        }
        listed.append({**common, **entry})
    return listed


def _long_json(path: str, blobs: t.Collection[str]) -> bool:
    """Return whether a configuration or index of a revision is longer than one is."""
    links = [os.path.join(path, name) for name in (model_files.CONFIG, model_files.INDEX)]
    return any(os.path.islink(link) and os.path.basename(os.readlink(link)) in blobs for link in links)


def unread(relative: str, root: str, why: str) -> dict[str, t.Any]:
    """Return the entry of a repository that could not be read."""
    path = os.path.join(root, relative)
    return {
        "kind": "hub",
        "repo": hub_caches.repo_name(os.path.basename(path)),
        "revision": None,
        "refs": [],
        "complete": None,
        "missing": [],
        "broken": [],
        "files": 0,
        "bytes": 0,
        "frees": 0,
        "written": 0.0,
        "path": path,
        "doubts": [why],
    }


# -- plain directories -----------------------------------------------------------------------------------------------


def plain_models(root: str, entries: t.Sequence[Entry], judge: t.Callable[[str], tuple[bool | None, list[str]]]) -> list[dict[str, t.Any]]:
    """Return the models in a plain directory: each topmost directory with a configuration, and weights that lie outside of these, by directory."""
    visible = [entry for entry in entries if not any(part.startswith(".") for part in entry.path.split("/")) and not stat.S_ISDIR(entry.status.st_mode)]
    configured = {os.path.dirname(entry.path) for entry in visible if os.path.basename(entry.path) in _CONFIGS}
    tops = {top for top in configured if not any(_inside(top, other) for other in configured)}
    loose = {os.path.dirname(entry.path) for entry in visible if entry.path.lower().endswith(hub_caches.OTHER_WEIGHTS)}
    loose = {top for top in loose if top not in tops and not any(_inside(top, other) for other in tops)}
    found = []
    for top in sorted(tops | loose):
        own = [one for one in entries if (_inside(one.path, top) if top in tops else os.path.dirname(one.path) == top) and not stat.S_ISDIR(one.status.st_mode)]
        found.append(_plain_model(os.path.join(root, top).rstrip("/"), own, None if top in loose else judge))
    return found


def named_model(path: str, entries: t.Sequence[Entry], judge: t.Callable[[str], tuple[bool | None, list[str]]]) -> dict[str, t.Any]:
    """Return the entry of a directory that a profile names as its model, whatever lies in it."""
    return _plain_model(path, [entry for entry in entries if not stat.S_ISDIR(entry.status.st_mode)], judge)


def _plain_model(path: str, own: t.Sequence[Entry], judge: t.Callable[[str], tuple[bool | None, list[str]]] | None) -> dict[str, t.Any]:
    """Return the entry of a plain directory with the files ``own``; without ``judge`` nobody knows whether it is complete."""
    strange = [one.path for one in own if not stat.S_ISREG(one.status.st_mode)]
    long = [one.path for one in own if one.path.endswith(".json") and one.status.st_size > model_files.JSON_LIMIT]
    doubts = [f"not plain files: {', '.join(strange[:NAMED])}"] if strange else []
    complete, missing = (None, []) if doubts or long or judge is None else judge(path)
    sizes = {(one.status.st_dev, one.status.st_ino): one.status for one in own if stat.S_ISREG(one.status.st_mode)}
    return {
        "kind": "directory",
        "repo": None,
        "revision": None,
        "refs": [],
        "complete": complete,
        "missing": missing,
        "broken": [],
        "files": len(own),
        "bytes": sum(status.st_size for status in sizes.values()),
        "frees": 0,
        "written": max((one.status.st_mtime for one in own), default=0.0),
        "path": path,
        "doubts": doubts,
    }


def _inside(path: str, top: str) -> bool:
    """Return whether a relative path lies below another one."""
    return path != top and (top == "" or path.startswith(f"{top}/"))


def leads(path: str, model: str) -> bool:
    """Return whether a directory that a profile names is a model's, lies in it or holds it; both are absolute and without links."""
    return path == model or _inside(path, model) or _inside(model, path.rstrip("/"))
