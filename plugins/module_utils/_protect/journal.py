# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the protection of a node changed, and what was there before. This module util is PRIVATE to the collection.

An entry is on the disk before its change is made, so that a run that is interrupted leaves nothing that nobody knows of. An entry without its change is no
harm: the next run makes the change, and a revert finds nothing to take back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import stat
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import files
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME

SCHEMA = 1
#: The journal's name below the state directory.
NAME = "protection.json"
#: The file that a run locks which protects a node, or takes that back.
ALONE = "protect.lock"
#: Bytes of a drop-in or journal that are read.
LIMIT = 1024 * 1024

#: What changes are made of, and what else each kind of entry says. That of a hold can say whether it was ``made``.
FIELDS = {
    "directory": set(),
    "file": {"sha256", "mode", "uid", "gid"},
    "package": {"packages"},
    "unit": {"before"},
    "hold": set(),
    "live": {"before", "value", "pid", "start"},
}

Entry = dict[str, t.Any]


def path_of(state_dir: str) -> str:
    """Return where the journal of a node lies."""
    return os.path.join(state_dir, NAME)


def digest(content: str) -> str:
    """Return what a file's content is known by."""
    return hashlib.sha256(content.encode()).hexdigest()


class Found(t.NamedTuple):
    """What lies at a path; ``content`` is None when nothing does, or nothing that is a plain small text file (``kind`` says what)."""

    kind: str
    content: str | None = None
    mode: int = 0
    uid: int = 0
    gid: int = 0


def look(path: str) -> Found:
    """Return what lies at ``path``; no link is followed. Raises OSError when it may not be read."""
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LIMIT:
            return Found("other")
        with open(path, "rb") as stream:
            content = stream.read(LIMIT).decode("utf-8", "surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return Found("absent")
    return Found("file", content, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)


def untouched(entry: Entry, found: Found) -> bool:
    """Return whether a file is as an entry says that it was written."""
    same = all(getattr(found, word) == entry[word] for word in ("mode", "uid", "gid"))
    return found.kind == "file" and digest(found.content or "") in entry["sha256"] and same


def write(path: str, content: str, mode: int, *, replace: bool) -> None:
    """Write a file whole or not at all, on the disk when this returns. Without ``replace`` one that came meanwhile stays. Raises OSError."""
    files.write_whole(path, content.encode("utf-8", "surrogateescape"), mode, replace=replace)


def remove(path: str) -> None:
    """Remove a file, and what an interrupted :func:`write` left beside it. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        files.remove_leftovers(path)
        os.unlink(path)
        files.sync_directory(os.path.dirname(path))


@dataclasses.dataclass
class Journal:
    """The entries in the order of their changes. ``pending`` are units to restart, or ``daemon-reload``, by their measures; ``made`` the directories that
    were made for the journal itself."""

    state_dir: str
    entries: list[Entry] = dataclasses.field(default_factory=list)
    pending: dict[str, str] = dataclasses.field(default_factory=dict)
    made: list[str] = dataclasses.field(default_factory=list)

    def find(self, kind: str, target: str) -> Entry | None:
        """Return the entry of a change."""
        return next((entry for entry in self.entries if (entry["kind"], entry["target"]) == (kind, target)), None)

    def put(self, entries: t.Iterable[Entry], pending: t.Mapping[str, str] | None = None) -> None:
        """Note changes that are about to be made, each over an earlier one of the same target, and what has to be restarted then. Raises OSError."""
        for entry in entries:
            old = self.find(entry["kind"], entry["target"])
            if old is None:
                self.entries.append(entry)
            else:
                old.update(entry)
        self.pending.update(pending or {})
        self.save()

    def drop(self, entries: t.Iterable[Entry]) -> None:
        """Forget changes that are taken back. Raises OSError."""
        gone = list(entries)
        self.entries = [entry for entry in self.entries if entry not in gone]
        self.save()

    def done(self, unit: str) -> None:
        """Note that a unit was restarted. Raises OSError."""
        self.pending.pop(unit, None)
        self.save()

    def save(self) -> None:
        """Put it on the disk, for root alone; an empty one goes, with the directories that were made for it. Raises OSError."""
        path = path_of(self.state_dir)
        if self.entries or self.pending:
            self._make(self.state_dir)
            content = {"schema": SCHEMA, "entries": self.entries, "pending": self.pending, "made": self.made}
            write(path, f"{json.dumps(content, indent=1, sort_keys=True)}\n", 0o600, replace=True)
            return
        remove(path)
        for folder in reversed(self.made):
            # One that somebody else uses by now stays.
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        self.made = []

    def _make(self, folder: str) -> None:
        if not os.path.isdir(folder):
            self._make(os.path.dirname(folder))
            os.mkdir(folder, 0o755)
            self.made.append(folder)


def _entry(found: t.Any) -> bool:
    """Return whether this is an entry that this version can act on."""
    if not isinstance(found, dict) or found.get("kind") not in FIELDS:
        return False
    texts = all(isinstance(found.get(word), str) and found[word] for word in ("measure", "target"))
    return texts and FIELDS[found["kind"]] <= set(found)


def load(state_dir: str) -> Journal:
    """Return a node's journal, an empty one when nothing was changed. Raises :class:`UnknownState` for one that cannot be read."""
    path = path_of(state_dir)
    remedy = "Look at it. Nothing is changed while it is not understood: it alone says what was there before."
    try:
        found = look(path)
    except OSError as error:
        raise UnknownState(f"{path} cannot be read: {error.strerror}", remedy=BECOME, raw=str(error)) from error
    if found.kind == "absent":
        return Journal(state_dir)
    try:
        if found.kind != "file":
            raise ValueError("not a file")
        content = json.loads(found.content or "")
        good = content["schema"] == SCHEMA and all(map(_entry, content["entries"]))
        lists = all(isinstance(one, str) for word in ("pending", "made") for one in content[word])
        if not good or not lists or not isinstance(content["pending"], dict):
            raise ValueError("another shape")
        return Journal(state_dir, content["entries"], content["pending"], content["made"])
    except (ValueError, KeyError, TypeError) as error:
        raise UnknownState(f"{path} is not the journal that this collection writes ({error})", remedy=remedy, raw=(found.content or "")[:2000]) from error


@contextlib.contextmanager
def alone() -> t.Iterator[None]:
    """Keep every other run from protecting this node meanwhile. Raises :class:`ClusterError` when one is at it."""
    path = os.path.join(files.RUN_DIR, ALONE)
    with contextlib.ExitStack() as stack:
        try:
            os.makedirs(files.RUN_DIR, mode=0o755, exist_ok=True)
            stack.enter_context(files.alone(path))
        except BlockingIOError as error:
            raise ClusterError("another run protects this node right now", remedy="Wait for its end, and repeat.", reason="busy") from error
        except OSError as error:
            raise ClusterError(f"{error.filename or path}: {error.strerror}", remedy=BECOME, reason="permission") from error
        yield


def summary(state_dir: str) -> dict[str, t.Any]:
    """Return what the journal says in short: ``{measures, changes, path, error}``; ``changes`` is None when it cannot be read."""
    about: dict[str, t.Any] = {"measures": [], "changes": 0, "path": path_of(state_dir), "error": ""}
    try:
        found = load(state_dir)
    except UnknownState as error:
        return {**about, "changes": None, "error": str(error)}
    return {**about, "measures": sorted({entry["measure"] for entry in found.entries}), "changes": len(found.entries)}
