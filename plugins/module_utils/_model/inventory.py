# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lists the models on a node, file by file, and the bytes that the removal of one would free. This module util is PRIVATE to the collection.

A hub cache stores each file once, as a blob, and a revision is a directory of links to blobs; revisions share unchanged files. The owner of a cache
can create any entry there: links are read and not followed, and a model with a doubt is only partly known, so it is never removed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import stat
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._files.untrusted import Entry
from ansible_collections.gb10.cluster.plugins.module_utils._model import hub_caches, model_files
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding

#: Ids of findings on models that must not be removed.
IDS = ("models.in_use", "models.unknown")
#: The remedy for a partly known model.
PARTLY_KNOWN = "Repair that path, or remove the model by hand."

#: In place of a commit: the files of a repository that belong to no revision, such as those of unfinished downloads.
LEFTOVERS = "leftovers"

#: Directories of repositories below a cache root.
HUBS = ("", "hub")
#: Directories that the hub's client makes in a repository: ``.no_exist`` has a file for each known absence, ``trees`` (since 2.0) a list per revision.
FOLDERS = ("blobs", "snapshots", "refs", ".no_exist", "trees")
UNFINISHED = ".incomplete"
#: Seconds without a write after which a download no longer counts as running.
RUNNING = 900
#: Most names in a doubt or a list of broken links.
NAMED = 5
#: Files that make a directory a model, next to weights.
_CONFIGS = (model_files.CONFIG, "model_index.json")


#: An entry of a module's result, with the values of an unknown repository.
ENTRY: dict[str, t.Any] = {
    "kind": "hub", "repo": None, "revision": None, "refs": [], "complete": None, "missing": [], "broken": [], "files": 0, "bytes": 0, "frees": 0,
    "written": 0.0, "path": "", "doubts": [],
}  # fmt: skip


class Request(t.NamedTuple):
    """A request to remove a repository's revision, or its :data:`LEFTOVERS`."""

    repo: str
    revision: str

    def __str__(self) -> str:
        return f"{self.repo}@{self.revision}"


def parse_request(text: str) -> Request:
    """Return a person's request. Raises :class:`ClusterError` for anything but REPO@COMMIT and REPO@leftovers."""
    repo, _at, revision = text.strip().rpartition("@")
    if not model_files.REPO.match(repo) or not (revision == LEFTOVERS or model_files.is_commit(revision)):
        raise ClusterError(
            f"'{text.strip()[:200]}' does not name a model",
            expected=f"REPO@REVISION, the revision as 40 hexadecimal digits or '{LEFTOVERS}'",
            remedy="Copy it from the list: ansible-playbook -i INVENTORY gb10.cluster.models",
            reason="input",
        )
    return Request(repo, revision)


def in_use(node: str, message: str, path: str, remedy: str = "Stop its user, or serve another profile, then ask again.") -> dict[str, t.Any]:
    """Return the finding on a model that must stay because it is used or kept."""
    return finding("models.in_use", node, "block", message, remedy=remedy, source=path)


def unknown(node: str, message: str, path: str, remedy: str = PARTLY_KNOWN) -> dict[str, t.Any]:
    """Return the finding on a model that must stay because its users or its files are unknown."""
    return finding("models.unknown", node, "unknown", message, remedy=remedy, source=path)


class Limits:
    """Limits of a search in files and directories, and in seconds; there may be millions, on a slow disk."""

    def __init__(self, most: int, seconds: float, clock: t.Callable[[], float] = time.monotonic) -> None:
        self._most, self._seconds, self._clock = most, seconds, clock
        self._left, self._until = most, clock() + seconds

    def check(self) -> None:
        """Raise :class:`UnknownState` once one of the limits is reached."""
        if self._left < 0 or self._clock() > self._until:
            reached = f"{self._most} files and directories" if self._left < 0 else f"{self._seconds:g} seconds"
            raise UnknownState(
                f"the search ended after {reached}: the rest is not listed",
                remedy="Set fewer or narrower directories in gb10_model_directories, or find out why the disk is slow.",
                reason="limit",
            )

    def counted(self, entries: t.Iterable[Entry]) -> t.Iterator[Entry]:
        """Yield ``entries``, as long as the limits allow."""
        self.check()
        for entry in entries:
            self._left -= 1
            self.check()
            yield entry


def printable(value: t.Any) -> t.Any:
    """Return a result without unprintable characters: names in a cache may have any."""
    if isinstance(value, str):
        return "".join(letter if letter.isprintable() else "?" for letter in value)
    if isinstance(value, list):
        return [printable(item) for item in value]
    return {key: printable(item) for key, item in value.items()} if isinstance(value, dict) else value


# -- hub caches ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Revision:
    """A revision: the blobs of its links, the links with an absent blob, and the size and disk usage of files that are not links."""

    commit: str
    blobs: set[str] = dataclasses.field(default_factory=set)
    broken: list[str] = dataclasses.field(default_factory=list)
    files: int = 0
    own_bytes: int = 0
    own_disk: int = 0
    written: float = 0.0


@dataclasses.dataclass
class Repository:
    """A repository of a hub cache. ``doubts`` are reasons why it, or by commit a revision, is only partly known; ``refs`` are names of refs by commit."""

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
        """Return the blobs without a revision, including those of unfinished downloads."""
        return sorted(set(self.blobs) - set().union(*(revision.blobs for revision in self.revisions.values())))

    def going(self, names: t.Collection[str]) -> list[str]:
        """Return the blobs to remove with these revisions (or :data:`LEFTOVERS`): those of another revision stay."""
        stay = set().union(*(revision.blobs for commit, revision in self.revisions.items() if commit not in names))
        requested = set().union(*(self.revisions[commit].blobs for commit in names if commit in self.revisions))
        return sorted((requested - stay) & set(self.blobs)) + (self.leftovers() if LEFTOVERS in names else [])

    def unfinished(self, now: float) -> list[str]:
        """Return the unfinished downloads with a recent write, which may be running."""
        return sorted(name for name, status in self.blobs.items() if name.endswith(UNFINISHED) and now - status.st_mtime < RUNNING)

    def freed(self, names: t.Collection[str]) -> int:
        """Return the bytes that the removal of these frees."""
        blobs = sum(self.blobs[name].st_blocks * 512 for name in self.going(names))
        return blobs + sum(revision.own_disk for commit, revision in self.revisions.items() if commit in names)


def blob_of(path: str, target: str, base: str) -> str | None:
    """Return the blob in the target of a link of a repository at ``base``, None for another target."""
    whole = os.path.normpath(os.path.join(base, os.path.dirname(path), target))
    folder, name = os.path.split(whole)
    return name if folder == os.path.join(os.path.normpath(base), "blobs") else None


def repository(path: str, entries: t.Iterable[Entry]) -> Repository:
    """Return the repository of a hub cache with these entries, without its refs."""
    hub_repo = Repository(path, hub_caches.repo_name(os.path.basename(path)) or "")
    links = []
    for entry in entries:
        mode, parts = entry.status.st_mode, entry.path.split("/")
        if parts[0] == "blobs" and len(parts) > 1:
            if len(parts) == 2 and stat.S_ISREG(mode):
                hub_repo.blobs[parts[1]] = entry.status
            else:
                hub_repo.doubt(f"{entry.path} is not a file of the hub")
        elif parts[0] == "snapshots" and len(parts) > 1:
            if len(parts) == 2 and not stat.S_ISDIR(mode):
                hub_repo.doubt(f"{entry.path} is not a directory")
                continue
            revision = hub_repo.revisions.setdefault(parts[1], Revision(parts[1]))
            revision.written = max(revision.written, entry.status.st_mtime)
            if stat.S_ISLNK(mode):
                links.append((revision, entry))
            elif stat.S_ISREG(mode):
                revision.files += 1
                revision.own_bytes += entry.status.st_size
                revision.own_disk += entry.status.st_blocks * 512
            elif not stat.S_ISDIR(mode):
                hub_repo.doubt(f"{entry.path} is neither a file nor a link", revision.commit)
        elif parts[0] in FOLDERS and not stat.S_ISDIR(mode) and not (len(parts) > 1 and stat.S_ISREG(mode)):
            hub_repo.doubt(f"{entry.path} was not made by the hub's client")
    for revision, entry in links:
        blob = blob_of(entry.path, entry.target, path)
        if blob is None:
            hub_repo.doubt(f"{entry.path} leads out of the repository, to {entry.target}", revision.commit)
            continue
        revision.files += 1
        revision.blobs.add(blob)
        if blob not in hub_repo.blobs:
            revision.broken.append("/".join(entry.path.split("/")[2:]))
    return hub_repo


def read_repository(root: str, relative: str, limits: Limits) -> Repository:
    """Read a repository of the cache at ``root``. Raises OSError and :class:`ClusterError` if it cannot be read completely."""
    entries = list(limits.counted(untrusted.walk(root, relative)))
    hub_repo = repository(os.path.join(root, relative), entries)
    for entry in entries:
        if entry.path.startswith("refs/") and stat.S_ISREG(entry.status.st_mode):
            commit = untrusted.read(root, f"{relative}/{entry.path}", model_files.JSON_LIMIT).decode("ascii", "replace").strip()
            hub_repo.refs.setdefault(commit[:model_files.REF_LIMIT], []).append(entry.path[len("refs/"):])
    return hub_repo


def repositories(root: str) -> list[str]:
    """Return the directories of a cache's repositories, relative to its root, which may be the hub's own directory or the one that contains it.

    Raises :class:`UnknownState` if the root may not be read, or has a link in the hub's place; an absent root has none.
    """
    directories = []
    for base in HUBS:
        path = os.path.join(root, base).rstrip("/")
        if base and os.path.islink(path):
            remedy = f"Set gb10_model_directories: [{os.path.realpath(path)}]"
            raise UnknownState(f"{path} is a link to {os.readlink(path)}, and is not followed", remedy=remedy, reason="link")
        with model_files.reading(path), contextlib.suppress(FileNotFoundError), untrusted.directory(root, base) as handle:
            directories += [os.path.join(base, name) for name in sorted(os.listdir(handle)) if hub_caches.repo_name(name)]
    return directories


def is_cache(root: str) -> bool:
    """Return whether a directory is a hub cache, and not one with plain models. Raises :class:`UnknownState` if it may not be read."""
    return os.path.isdir(os.path.join(root, "hub")) or bool(repositories(root))


def entries_of(hub_repo: Repository, judge: t.Callable[[str], tuple[bool | None, list[str]]]) -> list[dict[str, t.Any]]:
    """Return a repository's revisions and leftovers as entries of a module's result; ``judge`` returns whether a revision is complete, and missing files."""
    listed = []
    for commit, revision in sorted(hub_repo.revisions.items()):
        doubts = [*hub_repo.doubts.get("", []), *hub_repo.doubts.get(commit, [])]
        too_long = [name for name in revision.blobs if name in hub_repo.blobs and hub_repo.blobs[name].st_size > model_files.JSON_LIMIT]
        path = os.path.join(hub_repo.path, "snapshots", commit)
        # Its links may be followed, since they lead to regular files of this repository.
        complete, missing = (None, []) if doubts or _long_json(path, too_long) else judge(path)
        listed.append({
            **ENTRY,
            "repo": hub_repo.repo,
            "revision": commit,
            "refs": sorted(hub_repo.refs.get(commit, [])),
            "complete": complete,
            "missing": missing,
            "broken": sorted(revision.broken),
            "files": revision.files,
            "bytes": revision.own_bytes + sum(hub_repo.blobs[name].st_size for name in revision.blobs if name in hub_repo.blobs),
            "frees": hub_repo.freed([commit]),
            "written": revision.written,
            "path": path,
            "doubts": doubts[:NAMED],
        })  # fmt: skip
    left = hub_repo.leftovers()
    if left or (hub_repo.doubts and not hub_repo.revisions):
        listed.append({
            **ENTRY,
            "repo": hub_repo.repo,
            "revision": LEFTOVERS,
            "complete": False,
            "missing": sorted(name for name in left if name.endswith(UNFINISHED)),
            "files": len(left),
            "bytes": sum(hub_repo.blobs[name].st_size for name in left),
            "frees": hub_repo.freed([LEFTOVERS]),
            "written": max((hub_repo.blobs[name].st_mtime for name in left), default=0.0),
            "path": os.path.join(hub_repo.path, "blobs"),
            "doubts": hub_repo.doubts.get("", [])[:NAMED],
        })  # fmt: skip
    return listed


def _long_json(path: str, blobs: t.Collection[str]) -> bool:
    """Return whether a configuration or index of a revision is too long."""
    links = filter(os.path.islink, (os.path.join(path, name) for name in (model_files.CONFIG, model_files.INDEX)))
    return any(os.path.basename(os.readlink(link)) in blobs for link in links)


def unread(relative: str, root: str, why: str) -> dict[str, t.Any]:
    """Return the entry of a repository that could not be read."""
    path = os.path.join(root, relative)
    return {**ENTRY, "repo": hub_caches.repo_name(os.path.basename(path)), "path": path, "doubts": [why]}


# -- plain directories -----------------------------------------------------------------------------------------------


def plain_models(root: str, entries: t.Sequence[Entry], judge: t.Callable[[str], tuple[bool | None, list[str]]]) -> list[dict[str, t.Any]]:
    """Return the models in a plain directory: each topmost directory with a configuration, and by directory the weights outside of these."""
    visible = [entry for entry in entries if not any(part.startswith(".") for part in entry.path.split("/")) and not stat.S_ISDIR(entry.status.st_mode)]
    configured = {os.path.dirname(entry.path) for entry in visible if os.path.basename(entry.path) in _CONFIGS}
    tops = {top for top in configured if not any(_inside(top, other) for other in configured)}
    weights = {os.path.dirname(entry.path) for entry in visible if entry.path.lower().endswith(hub_caches.OTHER_WEIGHTS)}
    loose = {top for top in weights if top not in tops and not any(_inside(top, other) for other in tops)}
    files = [entry for entry in entries if not stat.S_ISDIR(entry.status.st_mode)]
    own = {top: [entry for entry in files if (_inside(entry.path, top) if top in tops else os.path.dirname(entry.path) == top)] for top in tops | loose}
    return [_plain_model(os.path.join(root, top).rstrip("/"), own[top], None if top in loose else judge) for top in sorted(own)]


def named_model(path: str, entries: t.Sequence[Entry], judge: t.Callable[[str], tuple[bool | None, list[str]]]) -> dict[str, t.Any]:
    """Return the entry of a directory that a profile names as its model, with any content."""
    return _plain_model(path, [entry for entry in entries if not stat.S_ISDIR(entry.status.st_mode)], judge)


def _plain_model(path: str, own: t.Sequence[Entry], judge: t.Callable[[str], tuple[bool | None, list[str]]] | None) -> dict[str, t.Any]:
    """Return the entry of a plain directory with the files ``own``; without ``judge`` it is unknown whether it is complete."""
    strange = [entry.path for entry in own if not stat.S_ISREG(entry.status.st_mode)]
    long = [entry.path for entry in own if entry.path.endswith(".json") and entry.status.st_size > model_files.JSON_LIMIT]
    doubts = [f"not plain files: {', '.join(strange[:NAMED])}"] if strange else []
    complete, missing = (None, []) if doubts or long or judge is None else judge(path)
    statuses = {(entry.status.st_dev, entry.status.st_ino): entry.status for entry in own if stat.S_ISREG(entry.status.st_mode)}
    return {
        **ENTRY,
        "kind": "directory",
        "complete": complete,
        "missing": missing,
        "files": len(own),
        "bytes": sum(status.st_size for status in statuses.values()),
        "written": max((entry.status.st_mtime for entry in own), default=0.0),
        "path": path,
        "doubts": doubts,
    }


def _inside(path: str, top: str) -> bool:
    """Return whether a relative path is below another one."""
    return path != top and (top == "" or path.startswith(f"{top}/"))


def leads(path: str, model: str) -> bool:
    """Return whether a profile's directory is a model's, is in it or contains it; both are absolute and without links."""
    return path == model or _inside(path, model) or _inside(model, path.rstrip("/"))
