# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans the copy of a model from one node's hub cache to another's. This module util is PRIVATE to the collection.

Everything here decides; :mod:`copy_source` and :mod:`copy_target` act. The bytes go into a separate directory next to the repositories (:data:`STAGE`),
where a killed copy continues, and a file gets its name only after the digest of each of its blocks was compared.
"""

from __future__ import annotations

import dataclasses
import os
import re
import stat
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._model import blocks, model_files

#: Directory of incomplete files, below the hub's. No repository has such a name.
STAGE = ".gb10-copy"
#: File of the blocks that arrived and were compared, below a repository's directory there.
PROGRESS = "progress"
#: Directory of the running server's program, order and secret, below one that a reboot empties.
RUN = "gb10-copy"

#: The kind of copy, in the names of its files of progress and locks.
KIND = "model-copy"
#: Defaults of ``model_copy`` that its action plugin needs, too.
TIMEOUT = 7200
STATE_DIR = "/var/lib/gb10"

#: Most bytes of a ref, whose text is in the listing itself.
REF_LIMIT = model_files.REF_LIMIT
#: Most files in a message.
NAMED = 5
#: The bits of a file's mode that a listing may set: without those for execution and for another user.
MODE = 0o644

#: The hub's name of a blob in hex digits: git's id of a small file, the sha256 of one in its large file storage.
_DIGEST = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")

_FOREIGN_REMEDY = "Find out what made that listing: the hub's client downloads no such entries. Nothing was copied."

Row = dict[str, t.Any]


class Entry(t.NamedTuple):
    """A file, link or ref of a repository, by its path from there.

    ``kind`` is ``file``, ``link`` or ``ref``. A file has ``size`` in bytes and ``mtime`` in nanoseconds, a link the path of its ``target`` from the
    repository, and a ref its text as ``target``.
    """

    path: str
    kind: str
    size: int = 0
    mtime: int = 0
    mode: int = 0o644
    target: str = ""


def named(paths: t.Sequence[str]) -> str:
    """Return the first names, and the number of further ones."""
    more = len(paths) - NAMED
    return ", ".join(paths[:NAMED]) + (f" and {more} more" if more > 0 else "")


def stage_of(hub: str, repo: str) -> str:
    """Return the directory of a repository's incomplete files."""
    return os.path.join(hub, STAGE, model_files.repo_directory(repo))


# -- the files to copy -----------------------------------------------------------------------------------------------


def listing(repo_path: str, commit: str, ref: str = "") -> list[Entry]:
    """Return the entries of a revision: its links, their files, files among the links, and the refs that name it.

    ``ref`` is the requested name, if that is not a commit. Raises :class:`ClusterError` for a link that is dangling, leads to another link (such as a
    circular one) or out of the repository, :class:`UnknownState` if something may not be read.
    """
    base, name = os.path.split(repo_path)
    entries: dict[str, Entry] = {}
    snapshot = f"snapshots/{commit}"
    with model_files.reading(repo_path):
        below = {entry.path: entry for entry in untrusted.walk(base, name) if "__pycache__" not in entry.path.split("/")}
    for path, entry in below.items():
        mode = entry.status.st_mode
        if path.startswith("refs/") and stat.S_ISREG(mode):
            text = untrusted.read(base, f"{name}/{path}", REF_LIMIT).decode("ascii", "replace").strip()
            if text == commit or path == f"refs/{ref}":
                entries[path] = Entry(path, "ref", mode=mode & MODE, target=text)
        elif path.startswith(f"{snapshot}/") and stat.S_ISLNK(mode):
            blob = target_of(path, entry.target, repo_path)
            if wrong := _wrong_target(blob, below):
                raise ClusterError(
                    f"{os.path.join(repo_path, path)} leads to {entry.target}, {wrong}",
                    expected="a link to a file among the repository's blobs",
                    remedy=f"Remove that link and run the play with --tags model, which downloads what is missing: rm {os.path.join(repo_path, path)}",
                    reason="link",
                )
            entries[path] = Entry(path, "link", target=blob)
            entries[blob] = _file(below[blob])
        elif path.startswith(f"{snapshot}/") and stat.S_ISREG(mode):
            entries[path] = _file(entry)
        elif path.startswith(f"{snapshot}/") and not stat.S_ISDIR(mode):
            raise ClusterError(f"{os.path.join(repo_path, path)} is neither a file nor a link", remedy="Find out which program made it, and remove it.")
    return [entries[path] for path in sorted(entries)]


def target_of(path: str, target: str, repo_path: str) -> str:
    """Return the target of a link as a path from the repository; it begins with ``..`` if it is outside."""
    return os.path.relpath(os.path.normpath(os.path.join(repo_path, os.path.dirname(path), target)), os.path.normpath(repo_path))


def _wrong_target(blob: str, below: t.Mapping[str, untrusted.Entry]) -> str:
    """Return the problem of a link's target, empty for a file among the blobs."""
    if blob.startswith(".."):
        return "which is outside of the repository"
    if blob not in below:
        return "which does not exist"
    if stat.S_ISLNK(below[blob].status.st_mode):
        return "which is a link itself: the hub's client makes no such links"
    if not blob.startswith("blobs/") or not stat.S_ISREG(below[blob].status.st_mode):
        return "which is not among the blobs, or not a file"
    return ""


def _file(entry: untrusted.Entry) -> Entry:
    status = entry.status
    return Entry(entry.path, "file", status.st_size, status.st_mtime_ns, status.st_mode & MODE)


def rows(entries: t.Iterable[Entry]) -> list[Row]:
    """Return entries as rows of a module's result."""
    return [entry._asdict() for entry in entries]


def entries_of(given: t.Iterable[Row]) -> list[Entry]:
    """Return the entries that another node, or a bundle, listed, with modes of readable files only.

    Raises :class:`ClusterError` for a path that leads out of a repository, and a ref that does not name a commit.
    """
    entries = [Entry(**row) for row in given]
    for entry in entries:
        if entry.kind == "ref" and not model_files.is_commit(entry.target):
            raise ClusterError(
                f"the source lists {entry.path!r}, which does not name a commit",
                expected="40 hexadecimal digits",
                remedy=_FOREIGN_REMEDY,
                reason="foreign",
            )
        if any(
            os.path.isabs(path) or {"..", ".", ""} & set(path.split("/")) or "\0" in path or "\n" in path
            for path in [entry.path, *([entry.target] if entry.kind == "link" else [])]
        ):
            raise ClusterError(f"the source lists {entry.path!r}, which is not a path inside a repository", remedy=_FOREIGN_REMEDY, reason="link")
    return [entry._replace(mode=entry.mode & MODE) for entry in entries]


# -- the missing files -----------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Lack:
    """The missing parts of a repository: files to fetch, links and refs to make. ``other`` names existing paths with other content."""

    files: list[Entry] = dataclasses.field(default_factory=list)
    links: list[Entry] = dataclasses.field(default_factory=list)
    refs: list[Entry] = dataclasses.field(default_factory=list)
    other: list[str] = dataclasses.field(default_factory=list)

    @property
    def size(self) -> int:
        """Return the bytes of the missing files."""
        return sum(entry.size for entry in self.files)

    @property
    def entries(self) -> list[Entry]:
        """Return all missing entries."""
        return [*self.files, *self.links, *self.refs]

    def __bool__(self) -> bool:
        return bool(self.entries)


def lacking(entries: t.Sequence[Entry], repo_path: str, ref: str = "") -> Lack:
    """Compare a node's repository with the source's listing, by names, sizes, times, links and refs alone. Raises OSError.

    A blob's name is its digest, so the same name and size is the same file until ``verify: full`` reads it. Another file must also have the
    same time, as copied files have. A ref that names another commit is other content only if it was requested.
    """
    lack, sizes = Lack(), {entry.path: entry.size for entry in entries if entry.kind == "file"}
    statuses = {entry: model_files.status_of(os.path.join(repo_path, entry.path)) for entry in entries}
    # A person may have copied a file to a link's place: then its blob is not needed.
    copied = {entry for entry, status in statuses.items() if entry.kind == "link" and status is not None and not stat.S_ISLNK(status.st_mode)}
    replaced = {entry.target for entry in copied} - {entry.target for entry in entries if entry.kind == "link" and entry not in copied}
    for entry, status in statuses.items():
        if status is not None:
            why = _difference(entry, status, repo_path, ref, sizes)
            lack.other += [f"{os.path.join(repo_path, entry.path)} ({why})"] if why else []
        elif entry.path not in replaced:
            {"file": lack.files, "link": lack.links, "ref": lack.refs}[entry.kind].append(entry)
    return lack


def _difference(entry: Entry, status: os.stat_result, repo_path: str, ref: str, sizes: t.Mapping[str, int]) -> str:
    """Return how an existing path differs from its entry, empty if it does not."""
    path, size = os.path.join(repo_path, entry.path), sizes.get(entry.target if entry.kind == "link" else entry.path)
    if entry.kind == "ref":
        return "names another commit" if entry.path == f"refs/{ref}" and model_files.read_ref(path) != entry.target else ""
    if entry.kind == "link" and stat.S_ISLNK(status.st_mode):
        return f"leads to {os.readlink(path)}" if target_of(entry.path, os.readlink(path), repo_path) != entry.target else ""
    if not stat.S_ISREG(status.st_mode):
        return "not a file"
    if status.st_size != size:
        return f"{status.st_size} bytes instead of {size}"
    is_blob = entry.kind == "link" or entry.path.startswith("blobs/")
    return "" if is_blob or whole_seconds(status.st_mtime_ns) == whole_seconds(entry.mtime) else "the same size, written at another time"


def whole_seconds(nanoseconds: int) -> int:
    """Return a file's time in seconds, which every file system stores."""
    return nanoseconds // 1_000_000_000


def staged(size: int, status: os.stat_result | None) -> int:
    """Return the bytes of a file in the stage from its status: from the start it has the length of the source's file, with holes."""
    return min(status.st_size, size, status.st_blocks * 512) if status is not None and stat.S_ISREG(status.st_mode) else 0


def numbered(listing: t.Sequence[t.Mapping[str, t.Any]]) -> dict[tuple[str, str], int]:
    """Return the number of each file of a listing, by repository and path: clients request files by it. All nodes number a listing in the same way."""
    files = [(repository["repo"], row["path"]) for repository in listing for row in repository["entries"] if row["kind"] == "file"]
    return {name: number for number, name in enumerate(files)}


# -- the blocks that arrived -----------------------------------------------------------------------------------------


def offsets(size: int) -> list[int]:
    """Return the offsets of a file's blocks."""
    return list(range(0, size, blocks.BLOCK))


def progress_header(boot: str) -> str:
    """Return the first line of the record of blocks. Blocks from before a reboot may not have reached the disk."""
    return f"{boot}\n"


def progress_line(entry: Entry, offset: int) -> str:
    """Return the line of a block that arrived and was compared."""
    return f"{entry.path}\t{entry.size}\t{entry.mtime}\t{offset}\n"


def progress(text: str, boot: str, entries: t.Iterable[Entry]) -> dict[str, set[int]] | None:
    """Return the recorded blocks of these files, by path; None without a record since the last reboot."""
    header, _newline, rest = text.partition("\n")
    if not _newline or f"{header}\n" != progress_header(boot):
        return None
    files = {f"{entry.path}\t{entry.size}\t{entry.mtime}": entry for entry in entries}
    arrived: dict[str, set[int]] = {entry.path: set() for entry in files.values()}
    for line in rest.splitlines(keepends=True):
        name, _tab, offset = line.rpartition("\t")
        # The last line of a killed copy may be incomplete.
        if name in files and offset.endswith("\n") and offset.strip().isdigit():
            arrived[files[name].path].add(int(offset))
    return arrived


def unit_name(cluster: str) -> str:
    """Return the name of the model server's unit."""
    return f"gb10-copy-{cluster}.service"


#: Reason of a failed copy → its meaning and its remedy.
CAUSES: dict[str, tuple[str, str]] = {
    "disk full": (
        "the disk is full",
        "Free some space, see ansible-playbook -i INVENTORY gb10.cluster.models, and run again: it continues with the remaining blocks.",
    ),
    "refused": (
        "the source refused the one-time secret",
        "Run again. If it fails again, run on the source: sudo ss -ltnp, which shows the listener on gb10_copy_port",
    ),
    "stranger": (
        "the source expects another address for this node",
        "Correct gb10_fabric_address of this node: its connections to the source must come from that address.",
    ),
    "busy": ("the source has too many connections", "Run again after other copies from it have ended."),
    "unreachable": (
        "the source cannot be reached",
        "Check whether a firewall between the nodes closes gb10_copy_port, and whether the link is up: "
        "ansible-playbook -i INVENTORY gb10.cluster.doctor --tags fabric",
    ),
    "permission": ("the owner of the cache may not read or write a file", "Give the cache one owner: chown -R --reference=CACHE CACHE"),
    "source changed": ("a file of the source was changed while it was copied", "Run again after the program that changes the model there has ended."),
    "wrong digest": (
        "the received data differs from the source's",
        "Run again. If it fails again on the same file, the source's disk or memory may be faulty: see journalctl -k there.",
    ),
    "cut": (
        "the connection was cut",
        "Run again: it continues with the remaining blocks. If it fails again, check the link: ansible-playbook -i INVENTORY gb10.cluster.doctor --tags fabric",
    ),
}


# -- digests ---------------------------------------------------------------------------------------------------------


def digest_kind(path: str) -> str:
    """Return the kind of digest in a blob's name, ``sha256`` or ``git``; empty for another file."""
    folder, name = os.path.split(path)
    if os.path.basename(folder) != "blobs" or not _DIGEST.match(name):
        return ""
    return "sha256" if len(name) == 64 else "git"
