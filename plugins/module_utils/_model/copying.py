# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of a model is copied from one node's hub cache to another's. This module util is PRIVATE to the collection.

Everything here decides on what was read; :mod:`copy_source` and :mod:`copy_target` act. The bytes go into a directory of their own beside the
repositories (:data:`STAGE`), where a copy that was killed goes on, and a file gets its own name only when the digest of each of its blocks was compared.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import stat
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._model import blocks, model_files

#: Where files lie, below the hub's directory, until they are whole. No repository has such a name.
STAGE = ".gb10-copy"
#: Below a repository's own directory there, which blocks have arrived and were compared.
PROGRESS = "progress"
#: Where the server's program, order and secret lie while it runs, below a directory that a reboot empties.
RUN = "gb10-copy"

#: Defaults of ``model_copy`` that its action plugin needs, too.
TIMEOUT = 7200
STATE_DIR = "/var/lib/gb10"

#: Bytes of a ref, which travels in the list itself.
REF_LIMIT = model_files.REF_LIMIT
#: How many files a message names.
NAMED = 5
#: The bits of a file's mode that a list can ask for: it says nothing of who runs a file, or as whom.
MODE = 0o644

_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
#: Hex digits of what the hub names a blob: git's id of a small file, the sha256 of one in its large file storage.
_DIGEST = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")

_FOREIGN_REMEDY = "Nothing came. Find out what made that list: a model that the hub's client downloaded has no such thing."

Row = dict[str, t.Any]


class Entry(t.NamedTuple):
    """A file, link or ref of a repository, by its path from there.

    ``kind`` is ``file``, ``link`` or ``ref``. ``size`` in bytes and ``mtime`` in nanoseconds are of a file, ``target`` is the path from the repository
    that a link leads to, and the text of a ref.
    """

    path: str
    kind: str
    size: int = 0
    mtime: int = 0
    mode: int = 0o644
    target: str = ""


def named(paths: t.Sequence[str]) -> str:
    """Return a few of many names, and how many more there are."""
    more = len(paths) - NAMED
    return ", ".join(paths[:NAMED]) + (f" and {more} more" if more > 0 else "")


def stage_of(hub: str, repo: str) -> str:
    """Return where the files of a repository lie until they are whole."""
    return os.path.join(hub, STAGE, model_files.repo_directory(repo))


# -- what there is to copy -------------------------------------------------------------------------------------------


def listing(repo_path: str, commit: str, ref: str = "") -> list[Entry]:
    """Return what makes a revision of a repository: its links, the files they lead to, files among the links, and the refs that name it.

    ``ref`` is the name that was asked for, when that is no commit. Raises :class:`ClusterError` for a link that leads nowhere, to another
    link (as one in a circle does) or out of the repository, :class:`UnknownState` when something may not be read.
    """
    base, name = os.path.split(repo_path)
    found: dict[str, Entry] = {}
    snapshot = f"snapshots/{commit}"
    try:
        below = {entry.path: entry for entry in untrusted.walk(base, name) if "__pycache__" not in entry.path.split("/")}
    except OSError as error:
        raise model_files.unreadable(repo_path, error) from error
    for path, entry in below.items():
        mode = entry.status.st_mode
        if path.startswith("refs/") and stat.S_ISREG(mode):
            text = untrusted.read(base, f"{name}/{path}", REF_LIMIT).decode("ascii", "replace").strip()
            if text == commit or path == f"refs/{ref}":
                found[path] = Entry(path, "ref", mode=mode & MODE, target=text)
        elif path.startswith(f"{snapshot}/") and stat.S_ISLNK(mode):
            blob = target_of(path, entry.target, repo_path)
            wrong = _wrong_target(blob, below)
            if wrong:
                raise ClusterError(
                    f"{os.path.join(repo_path, path)} leads to {entry.target}, {wrong}",
                    expected="a link to a file among the repository's blobs",
                    remedy=f"Remove that link and run the play with --tags model, which downloads what is missing: rm {os.path.join(repo_path, path)}",
                    reason="link",
                )
            found[path] = Entry(path, "link", target=blob)
            found[blob] = _file(below[blob])
        elif path.startswith(f"{snapshot}/") and stat.S_ISREG(mode):
            found[path] = _file(entry)
        elif path.startswith(f"{snapshot}/") and not stat.S_ISDIR(mode):
            raise ClusterError(f"{os.path.join(repo_path, path)} is neither a file nor a link", remedy="Look at what put it there, and remove it.")
    return [found[path] for path in sorted(found)]


def target_of(path: str, target: str, repo_path: str) -> str:
    """Return what a link leads to by its own text, as a path from the repository; it begins with ``..`` when that lies outside."""
    whole = target if target.startswith("/") else os.path.join(repo_path, os.path.dirname(path), target)
    return os.path.relpath(os.path.normpath(whole), os.path.normpath(repo_path))


def _wrong_target(blob: str, below: t.Mapping[str, untrusted.Entry]) -> str:
    """Return what is wrong with where a link leads, empty when it is a file among the blobs."""
    if blob.startswith(".."):
        return "which is outside of the repository"
    if blob not in below:
        return "which does not exist"
    if stat.S_ISLNK(below[blob].status.st_mode):
        return "which is a link itself: only what the hub's client makes is copied, and no circle"
    if not blob.startswith("blobs/") or not stat.S_ISREG(below[blob].status.st_mode):
        return "which is not among the blobs, or not a file"
    return ""


def _file(entry: untrusted.Entry) -> Entry:
    status = entry.status
    return Entry(entry.path, "file", status.st_size, status.st_mtime_ns, status.st_mode & MODE)


def rows(entries: t.Iterable[Entry]) -> list[Row]:
    """Return entries as a module's result has them."""
    return [entry._asdict() for entry in entries]


def entries_of(given: t.Iterable[Row]) -> list[Entry]:
    """Return the entries that another node, or a bundle, listed, with no mode but that of files that all may read.

    Raises :class:`ClusterError` for a path that leads out of a repository, and a ref that names no commit.
    """
    found = [Entry(**row) for row in given]
    for entry in found:
        if entry.kind == "ref" and not is_commit(entry.target):
            raise ClusterError(
                f"the source lists {entry.path!r}, which names no commit", expected="40 hexadecimal digits", remedy=_FOREIGN_REMEDY, reason="foreign"
            )
        paths = [entry.path, *([entry.target] if entry.kind == "link" else [])]
        if any(os.path.isabs(path) or {"..", ".", ""} & set(path.split("/")) or "\0" in path or "\n" in path for path in paths):
            raise ClusterError(f"the source lists {entry.path!r}, which is not a path inside a repository", remedy=_FOREIGN_REMEDY, reason="link")
    return [entry._replace(mode=entry.mode & MODE) for entry in found]


# -- what a node lacks -----------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Lack:
    """What a node lacks of a repository: files to fetch, links and refs to make. ``other`` names what is there with other content."""

    files: list[Entry] = dataclasses.field(default_factory=list)
    links: list[Entry] = dataclasses.field(default_factory=list)
    refs: list[Entry] = dataclasses.field(default_factory=list)
    other: list[str] = dataclasses.field(default_factory=list)

    @property
    def size(self) -> int:
        """Return the bytes of the files that are absent."""
        return sum(entry.size for entry in self.files)

    def __bool__(self) -> bool:
        return bool(self.files or self.links or self.refs)


def lacking(entries: t.Sequence[Entry], repo_path: str, ref: str = "") -> Lack:
    """Compare a node's repository with the source's list; nothing of it is read but names, sizes, times, links and refs. Raises OSError.

    A blob has its digest as its name, so the same name and size is the same file until ``verify: full`` reads it. A file that is no blob must have the
    same time, too, as what was copied has. A ref that names another commit is other content where it is the one that was asked for.
    """
    lack, present = Lack(), set()
    for entry in (one for one in entries if one.kind != "file"):
        path = os.path.join(repo_path, entry.path)
        status = status_of(path)
        if entry.kind == "ref":
            if status is None:
                lack.refs.append(entry)
            elif entry.path == f"refs/{ref}" and model_files.read_ref(path) != entry.target:
                lack.other.append(f"{path} (names another commit)")
        elif status is None:
            lack.links.append(entry)
        elif stat.S_ISLNK(status.st_mode):
            if target_of(entry.path, os.readlink(path), repo_path) != entry.target:
                lack.other.append(f"{path} (leads to {os.readlink(path)})")
        else:
            present.add((entry.target, entry.path))
    sizes = {entry.path: entry.size for entry in entries if entry.kind == "file"}
    for blob, link in sorted(present):
        # Somebody copied it by hand, as a file of its own.
        size = os.lstat(os.path.join(repo_path, link)).st_size
        if size != sizes.get(blob):
            lack.other.append(f"{os.path.join(repo_path, link)} ({size} bytes instead of {sizes.get(blob)})")
    alone = {blob for blob, _link in present} - {entry.target for entry in entries if entry.kind == "link" and (entry.target, entry.path) not in present}
    for entry in (one for one in entries if one.kind == "file"):
        path = os.path.join(repo_path, entry.path)
        status = status_of(path)
        if status is None:
            lack.files += [] if entry.path in alone else [entry]
        elif not stat.S_ISREG(status.st_mode):
            lack.other.append(f"{path} (not a file)")
        elif status.st_size != entry.size:
            lack.other.append(f"{path} ({status.st_size} bytes instead of {entry.size})")
        elif not entry.path.startswith("blobs/") and whole_seconds(status.st_mtime_ns) != whole_seconds(entry.mtime):
            lack.other.append(f"{path} (the same size, written at another time)")
    return lack


def status_of(path: str) -> os.stat_result | None:
    """Return what is known of a file, or of a link itself; None when there is none."""
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def whole_seconds(nanoseconds: int) -> int:
    """Return a file's time as every file system keeps it."""
    return nanoseconds // 1_000_000_000


def staged(size: int, status: os.stat_result | None) -> int:
    """Return how many bytes of a file lie in the stage, from the status of what lies there: it is as long as the source's from the start, with holes."""
    return min(status.st_size, size, status.st_blocks * 512) if status is not None and stat.S_ISREG(status.st_mode) else 0


def numbered(listing: t.Sequence[t.Mapping[str, t.Any]]) -> dict[tuple[str, str], int]:
    """Return the number of each file of a list, by repository and path: what a client says instead of a name. All nodes number the same list alike."""
    files = [(one["repo"], row["path"]) for one in listing for row in one["entries"] if row["kind"] == "file"]
    return {name: number for number, name in enumerate(files)}


# -- which blocks are there ------------------------------------------------------------------------------------------


def offsets(size: int) -> list[int]:
    """Return where the blocks of a file begin."""
    return list(range(0, size, blocks.BLOCK))


def progress_header(boot: str) -> str:
    """Return the first line of the note of what has arrived. What was written before a reboot may not have reached the disk."""
    return f"{boot}\n"


def progress_line(entry: Entry, offset: int) -> str:
    """Return the line that says that a block has arrived and was compared."""
    return f"{entry.path}\t{entry.size}\t{entry.mtime}\t{offset}\n"


def progress(text: str, boot: str, entries: t.Iterable[Entry]) -> dict[str, set[int]] | None:
    """Return the blocks of these files that a note says are there, by path; None for a note of before the last reboot, or none at all."""
    header, _newline, rest = text.partition("\n")
    if not _newline or f"{header}\n" != progress_header(boot):
        return None
    files = {f"{entry.path}\t{entry.size}\t{entry.mtime}": entry for entry in entries}
    found: dict[str, set[int]] = {entry.path: set() for entry in files.values()}
    for line in rest.splitlines(keepends=True):
        name, _tab, offset = line.rpartition("\t")
        # The last line of a copy that was killed may be half of one.
        if name in files and offset.endswith("\n") and offset.strip().isdigit():
            found[files[name].path].add(int(offset))
    return found


def unit_name(cluster: str) -> str:
    """Return the name of the unit that gives the model out."""
    return f"gb10-copy-{cluster}.service"


#: Why nothing more came → what that means, and what to do.
CAUSES: dict[str, tuple[str, str]] = {
    "disk full": ("the disk is full", "Free some, see ansible-playbook -i INVENTORY gb10.cluster.models, and run again: it goes on with what is there."),
    "refused": ("the source did not take the one-time secret", "Run again. When it comes back, see on the source who listens on gb10_copy_port: sudo ss -ltnp"),
    "stranger": (
        "the source knows this node by another address",
        "Correct gb10_fabric_address of this node: it must be the one that its connections to the source come from.",
    ),
    "busy": ("the source gives out as much as it can", "See who else copies from it, wait for its end, and run again."),
    "unreachable": (
        "the source cannot be reached",
        "See whether a firewall between the nodes closes gb10_copy_port, and whether the link is up: "
        "ansible-playbook -i INVENTORY gb10.cluster.doctor --tags fabric",
    ),
    "permission": ("a file may not be read or written by the owner of the cache", "Give the cache one owner: chown -R --reference=CACHE CACHE"),
    "source changed": ("a file of the source was changed while it was copied", "See what changes the model there, let it end, and run again."),
    "wrong digest": (
        "what arrived is not what the source has",
        "Run again. When it comes back on the same file, the source's disk or memory may be at fault: see journalctl -k there.",
    ),
    "cut": (
        "the connection was cut",
        "Run again: it goes on with what is there. When it comes back, see the link: ansible-playbook -i INVENTORY gb10.cluster.doctor --tags fabric",
    ),
}


# -- how far it is ---------------------------------------------------------------------------------------------------


def note_path(state_dir: str, cluster: str) -> str:
    """Return where a node notes how far its copy is."""
    return os.path.join(state_dir, f"model-copy-{cluster}.json")


def lock_path(state_dir: str, hub: str) -> str:
    """Return the file that keeps two copies out of one cache, of whichever clusters."""
    return os.path.join(state_dir, f"model-copy-{hashlib.sha256(os.path.realpath(hub).encode()).hexdigest()[:12]}.lock")


# -- who copies from whom --------------------------------------------------------------------------------------------


def digest_kind(path: str) -> str:
    """Return which digest a blob's name is, ``sha256`` or ``git``; empty when it is none."""
    folder, name = os.path.split(path)
    if os.path.basename(folder) != "blobs" or not _DIGEST.match(name):
        return ""
    return "sha256" if len(name) == 64 else "git"


def is_commit(text: str) -> bool:
    """Return whether a revision is a commit and no ref."""
    return bool(_COMMIT.match(text))
