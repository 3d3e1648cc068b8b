# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of a model is copied from one node's hub cache to another's, and how rsync is told to. This module util is PRIVATE to the collection.

Everything here decides on what was read; :mod:`copy_source` and :mod:`copy_target` act. The bytes go into a directory of their own beside the
repositories (:data:`STAGE`), where a copy that was killed goes on, and a file gets its own name only when rsync has compared the digest of all of it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import stat
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._host import transient, untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._model import model_files

#: Where files lie, below the hub's directory, until they are whole. No repository has such a name.
STAGE = ".gb10-copy"
#: Below that, the lists of files that rsync is given.
LISTS = ".lists"
#: Where the daemon's configuration, secret and lock file lie while it runs, below a directory that a reboot empties.
RUN = "gb10-copy"
#: The one-time user of the daemon.
USER = "gb10"

#: Defaults of ``model_copy`` that its action plugin needs, too.
TIMEOUT = 7200
STATE_DIR = "/var/lib/gb10"

#: The oldest rsync that is used: since 3.2.0 (2020) it compares whole files by xxh128 (NEWS of rsync 3.2.0).
OLDEST = (3, 2, 0)
#: Seconds without a byte after which rsync gives up, and seconds that it waits for a connection.
SILENT_SECONDS, CONNECT_SECONDS = 60, 10
#: Bytes of a ref, which travels in the list itself.
REF_LIMIT = model_files.REF_LIMIT
#: How many files a message names.
NAMED = 5

GIB = 1 << 30

_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_VERSION = re.compile(r"^rsync\s+version\s+v?(\d+)\.(\d+)\.(\d+)", re.MULTILINE)
#: Hex digits of what the hub names a blob: git's id of a small file, the sha256 of one in its large file storage.
_DIGEST = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")

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
                found[path] = Entry(path, "ref", mode=stat.S_IMODE(mode), target=text)
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
    return Entry(entry.path, "file", status.st_size, status.st_mtime_ns, stat.S_IMODE(status.st_mode) & 0o777)


def rows(entries: t.Iterable[Entry]) -> list[Row]:
    """Return entries as a module's result has them."""
    return [entry._asdict() for entry in entries]


def entries_of(given: t.Iterable[Row]) -> list[Entry]:
    """Return the entries that another node listed. Raises :class:`ClusterError` for a path that leads out of a repository."""
    found = [Entry(**row) for row in given]
    for entry in found:
        paths = [entry.path, *([entry.target] if entry.kind == "link" else [])]
        if any(os.path.isabs(path) or {"..", ".", ""} & set(path.split("/")) or "\0" in path or "\n" in path for path in paths):
            raise ClusterError(f"the source lists {entry.path!r}, which is not a path inside a repository", reason="link")
    return found


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
    same time, too, as what rsync copied has. A ref that names another commit is other content where it is the one that was asked for.
    """
    lack, present = Lack(), set()
    for entry in (one for one in entries if one.kind != "file"):
        path = os.path.join(repo_path, entry.path)
        status = _status(path)
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
        status = _status(path)
        if status is None:
            lack.files += [] if entry.path in alone else [entry]
        elif not stat.S_ISREG(status.st_mode):
            lack.other.append(f"{path} (not a file)")
        elif status.st_size != entry.size:
            lack.other.append(f"{path} ({status.st_size} bytes instead of {entry.size})")
        elif not entry.path.startswith("blobs/") and whole_seconds(status.st_mtime_ns) != whole_seconds(entry.mtime):
            lack.other.append(f"{path} (the same size, written at another time)")
    return lack


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def whole_seconds(nanoseconds: int) -> int:
    """Return a file's time as every file system and rsync keep it."""
    return nanoseconds // 1_000_000_000


def staged(entry: Entry, status: os.stat_result | None) -> int:
    """Return how many bytes of a file lie in the stage, from the status of what lies there."""
    return min(status.st_size, entry.size) if status is not None and stat.S_ISREG(status.st_mode) else 0


def is_whole(entry: Entry, status: os.stat_result | None) -> bool:
    """Return whether rsync has finished a file in the stage: it gives a file its time last, after the digests were compared.

    Of a file system that keeps no nanoseconds the seconds must do.
    """
    if status is None or staged(entry, status) != entry.size:
        return False
    coarse = status.st_mtime_ns % 1_000_000_000 == 0
    return status.st_mtime_ns == entry.mtime or (coarse and whole_seconds(status.st_mtime_ns) == whole_seconds(entry.mtime))


def require_space(free: int, needed: int, floor_gib: int, hub: str) -> None:
    """Raise :class:`ClusterError` when the disk has not enough room (bytes) for what is missing and what must stay free (GiB)."""
    if free - needed < floor_gib * GIB:
        raise ClusterError(
            f"{hub} has {free / GIB:.1f} GiB free",
            expected=f"{needed / GIB:.1f} GiB for the copy and {floor_gib} GiB that stay free",
            remedy="See what could go: ansible-playbook -i INVENTORY gb10.cluster.models, and gb10.cluster.prune",
            reason="disk full",
            free_bytes=free,
            needed_bytes=needed,
        )


def streams(files: t.Sequence[Entry], sizes: t.Mapping[str, int], most: int) -> list[list[Entry]]:
    """Divide files among at most ``most`` streams, so that each has about as many bytes to fetch (``sizes``, by path); no stream is empty."""
    found: list[list[Entry]] = [[] for _number in range(min(most, len(files)))]
    loads = [0] * len(found)
    for entry in sorted(files, key=lambda one: (-sizes[one.path], one.path)):
        least = loads.index(min(loads))
        found[least].append(entry)
        loads[least] += sizes[entry.path]
    return found


# -- rsync -----------------------------------------------------------------------------------------------------------


def version_of(text: str) -> tuple[int, int, int]:
    """Return the version that ``rsync --version`` prints. Raises :class:`UnknownState` when it prints none."""
    match = _VERSION.search(text)
    if not match:
        raise UnknownState("rsync does not say its version", remedy="Run on the node: rsync --version", raw=text[:2000])
    major, minor, patch = match.groups()
    return int(major), int(minor), int(patch)


def module_names(repos: t.Sequence[str]) -> dict[str, str]:
    """Return the daemon's module of each repository; a name of the hub's need not be one of rsync's."""
    return {repo: f"r{number}" for number, repo in enumerate(repos)}


class Shared(t.NamedTuple):
    """A directory that the daemon gives out as a module, and as whom it reads there."""

    module: str
    path: str
    uid: int
    gid: int


def daemon_config(shared: t.Sequence[Shared], run_dir: str, address: str, port: int, clients: t.Sequence[str], connections: int) -> str:
    """Return the daemon's configuration: it reads only, in a root of its own, as the files' owner, for these clients with the one-time secret."""
    common = [
        f"address = {address}",
        f"port = {port}",
        "use chroot = yes",
        "reverse lookup = no",
        f"lock file = {run_dir}/lock",
        f"max connections = {connections}",
        f"timeout = {SILENT_SECONDS}",
    ]
    each = [
        "read only = yes",
        "list = no",
        f"auth users = {USER}",
        f"secrets file = {run_dir}/secret",
        "strict modes = yes",
        f"hosts allow = {' '.join(clients)}",
        "hosts deny = *",
        "munge symlinks = no",
        "numeric ids = yes",
    ]
    modules = [line for one in shared for line in ("", f"[{one.module}]", f"path = {one.path}", f"uid = {one.uid}", f"gid = {one.gid}", *each)]
    return "\n".join([*common, *modules]) + "\n"


def unit_name(cluster: str) -> str:
    """Return the name of the unit that the daemon runs in."""
    return f"gb10-copy-{cluster}.service"


def daemon_argv(systemd_run: str, rsync: str, cluster: str, run_dir: str, seconds: int) -> list[str]:
    """Return the command that starts the daemon as a unit of its own, which ends after ``seconds`` even when nobody comes back to stop it."""
    about = f"gb10.cluster: copy of a model to the other nodes of cluster {cluster}"
    daemon = [rsync, "--daemon", "--no-detach", f"--config={run_dir}/rsyncd.conf"]
    return transient.unit_argv(systemd_run, unit_name(cluster), about, run_dir, seconds, daemon)


def client_argv(rsync: str, own: str, address: str, port: int, module: str, listed: str, target: str) -> list[str]:
    """Return the command of one stream. The password comes on its standard input, the names of files in ``listed``, each ended by a zero byte.

    ``--append-verify`` goes on where a copy was killed and compares the digest of the whole file in the end; what it has not compared
    has not the file's time yet.
    """
    host = f"[{address}]" if ":" in address else address
    return [
        rsync, "--times", "--perms", "--omit-dir-times", "--append-verify", "--no-motd", f"--timeout={SILENT_SECONDS}", f"--contimeout={CONNECT_SECONDS}",
        "--from0", f"--files-from={listed}", "--password-file=-", f"--address={own}", f"rsync://{USER}@{host}:{port}/{module}/", f"{target}/",
    ]  # fmt: skip


def compare_argv(argv: t.Sequence[str]) -> list[str]:
    """Return the command that names what differs between the source and the stage by size and time, made from one of :func:`client_argv`."""
    kept = [word for word in argv if word != "--append-verify"]
    return [kept[0], "--dry-run", "--itemize-changes", *kept[1:]]


def changed_names(output: str) -> list[str]:
    """Return the files that :func:`compare_argv` says would be transferred, which the source has changed meanwhile."""
    return [line.split(" ", 1)[1] for line in output.splitlines() if line.startswith(">f") and " " in line]


#: What rsync says → what that means, what to do, and a word for programs. Recorded from rsync 3.5.0; the words are those of its source since 3.2.
_CAUSES: tuple[tuple[str, str, str, str], ...] = (
    (
        r"No space left on device|Disk quota exceeded", "the disk is full",
        "Free some, see ansible-playbook -i INVENTORY gb10.cluster.models, and run again: it goes on with what is there.", "disk full",
    ),
    (
        r"@ERROR: auth failed|password file", "the source did not take the one-time secret",
        "Run again. When it comes back, see on the source: journalctl --since -10min | grep rsyncd", "refused",
    ),
    (
        r"@ERROR: access denied", "the source knows this node by another address",
        "Correct gb10_fabric_address of this node: it must be the one that its connections to the source come from.", "refused",
    ),
    (
        r"@ERROR: max connections|@ERROR: Unknown module", "the source runs another copy",
        "Wait for its end, and run again.", "busy",
    ),
    (
        r"failed to connect to|Connection refused|No route to host|timeout waiting for daemon connection|Network is unreachable",
        "the source cannot be reached",
        "See whether a firewall between the nodes closes gb10_copy_port, and whether the link is up: ansible-playbook -i INVENTORY gb10.cluster.fabric",
        "unreachable",
    ),
    (
        r"Permission denied", "a file may not be read or written by the owner of the cache",
        "Give the cache one owner: chown -R --reference=CACHE CACHE", "permission",
    ),
    (
        r"vanished|No such file or directory", "a file of the source went while it was copied",
        "See what changes the model there, and run again.", "source changed",
    ),
    (
        r"failed verification", "what arrived is not what the source has",
        "Run again. When it comes back on the same file, the source's disk or memory may be at fault: see journalctl -k there.", "wrong digest",
    ),
    (
        r"Connection reset|connection unexpectedly closed|error in socket IO|timeout|Broken pipe|received SIG", "the connection was cut",
        "Run again: it goes on with what is there. When it comes back, see the link: ansible-playbook -i INVENTORY gb10.cluster.fabric", "cut",
    ),
)  # fmt: skip


class Failure(t.NamedTuple):
    """Why rsync failed, in words; ``reason`` is for programs, ``line`` what rsync itself said."""

    what: str
    remedy: str
    reason: str
    line: str


def why(rc: int, stderr: str) -> Failure:
    """Return why a stream failed, by what rsync said; the cause comes before the lines that follow from it, so the table is in the order of that."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    for pattern, what, remedy, reason in _CAUSES:
        line = next((one for one in lines if re.search(pattern, one)), "")
        if line:
            return Failure(what, remedy, reason, line[:300])
    last = lines[-1][:300] if lines else f"it ended with {rc} and said nothing"
    remedy = "Run again: it goes on with what is there." if rc < 0 else "See what rsync says, and run again."
    return Failure("rsync was killed" if rc < 0 else "rsync failed", remedy, "killed" if rc < 0 else "rsync", last)


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
