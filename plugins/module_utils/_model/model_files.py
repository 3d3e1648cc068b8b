# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks whether a model on a node is complete, by names, sizes and headers. This module util is PRIVATE to the collection.

A model of 80 GB cannot be read at every run. But each safetensors file begins with a header that has the file's length, so an
incomplete copy is found in milliseconds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import stat
import struct
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import files, owners, untrusted

#: Ids of findings that block or warn.
IDS = (
    "model.absent",
    "model.dangling",
    "model.empty",
    "model.incomplete_download",
    "model.missing",
    "model.not_json",
    "model.private",
    "model.size",
)

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
#: Most bytes of a ref; a commit has 40.
REF_LIMIT = 128
CONFIG = "config.json"

#: Any one of these makes a tokenizer; a name of two parts needs both.
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tekken.json", "tiktoken.model", "vocab.json+merges.txt")

#: Purposes of a repository: the model itself, a drafter that proposes tokens for it (some authors call it an assistant), its tokenizer, an adapter
#: (LoRA), or single files.
PURPOSES = ("model", "drafter", "assistant", "tokenizer", "adapter", "files")

#: The purposes that need weights and a config.json, and those that need a tokenizer. A drafter uses its model's tokenizer.
_NEED_WEIGHTS = ("model", "drafter", "assistant")
_NEED_TOKENIZER = ("model", "tokenizer")
_ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
_TOKENIZER = "tokenizer.json"

#: Files to download for a purpose if the profile names none: a tokenizer's repository often has a whole model, too.
DEFAULT_FILES = {"tokenizer": ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "!*.safetensors.index.json")}

#: Marks a name as a pattern.
PATTERN = re.compile(r"[*?[]")
#: What Python compiled from a model's own code, and a download's own notes: they are not part of the model.
NOT_MODEL = ("__pycache__", ".cache")

#: The option ``repositories`` of modules: what an engine loads.
REPOSITORIES: dict[str, t.Any] = {
    "type": "list",
    "elements": "dict",
    "options": {
        "name": {"type": "str", "default": "model"},
        "repo": {"type": "str", "required": True},
        "revision": {"type": "str"},
        "purpose": {"type": "str", "choices": list(PURPOSES), "default": "model"},
        "files": {"type": "list", "elements": "str", "default": []},
        "side_files": {"type": "list", "elements": "str", "default": []},
    },
}

#: Facts of config.json that a plan or a proof needs, each with its possible names. Models with several parts have them under text_config.
FACTS = {
    **{name: (name,) for name in ("architectures", "num_attention_heads", "num_key_value_heads", "max_position_embeddings")},
    **{name: (name,) for name in ("hidden_size", "num_hidden_layers")},
    "dtype": ("dtype", "torch_dtype"),
}

#: Most bytes of a configuration, an index, or the header of a file of weights: users can put files of any length there. An index of 90,000
#: tensors has about 9 MB.
JSON_LIMIT = 32 << 20

LFS_POINTER = b"version https://git-lfs"

#: A commit, and the name of a repository.
COMMIT = re.compile(r"[0-9a-f]{40}\Z")
REPO = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?\Z")


@dataclasses.dataclass(frozen=True)
class Problem:
    """A problem of a model: ``id`` for programs, ``file`` relative to the model, ``message`` for people."""

    id: str
    file: str
    message: str


@dataclasses.dataclass(frozen=True)
class Place:
    """The directories of a model: ``path`` is None if the cache does not have this revision, ``repo_path`` if it does not have the repository."""

    path: str | None
    revision: str | None
    repo_path: str | None


def is_directory(repo: str) -> bool:
    """Return whether a profile's repository is an absolute path: a plain directory of the node."""
    return repo.startswith("/")


def repo_directory(repo: str) -> str:
    """Return the hub cache's directory name of a repository (``org/name``)."""
    return "models--" + repo.replace("/", "--")


def is_commit(text: str) -> bool:
    """Return whether a revision is a commit and not a ref."""
    return bool(COMMIT.match(text))


def paths_below(root: str, without: t.Collection[str] = ("__pycache__",), directories: bool = False) -> t.Iterator[str]:
    """Yield the paths of all files below a directory, and of its directories on request, without those of some names. Links are not followed."""
    for directory, below, names in os.walk(root):
        below[:] = [name for name in below if name not in without]
        yield from (os.path.join(directory, name) for name in [*names, *(below if directories else [])])


@contextlib.contextmanager
def reading(path: str) -> t.Iterator[None]:
    """Turn an OSError of the block into :class:`UnknownState`."""
    try:
        yield
    except OSError as error:
        raise unreadable(path, error) from error


def names_in(path: str) -> list[str]:
    """Return the names in a directory, sorted; none if it is absent. Raises :class:`UnknownState` if it may not be read."""
    with reading(path):
        return files.names(path)


def status_of(path: str) -> os.stat_result | None:
    """Return the status of a file, or of a link itself; None if it is absent. Raises OSError."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return os.lstat(path)
    return None


def locate(hf_home: str, repo: str, revision: str | None) -> Place:
    """Find a revision of a repository in a hub cache. ``revision`` is a commit or a ref; without one it is ``main``."""
    base = os.path.join(hf_home, "hub", repo_directory(repo))
    commit = revision if revision and is_commit(revision) else _read_commit(os.path.join(base, "refs", _safe(revision or "main")))
    snapshot = os.path.join(base, "snapshots", commit) if commit else None
    return Place(snapshot if snapshot and os.path.isdir(snapshot) else None, commit, base if os.path.isdir(base) else None)


def read_ref(path: str) -> str | None:
    """Return the text of a ref, None if it is absent. Raises :class:`UnknownState` for anything but a file.

    A user who can write to the cache could make the ref, or a directory above it, a link to another file: see :func:`untrusted.regular`.
    """
    with reading(path):
        if os.path.islink(path):
            raise _no_ref(path, f"is a link to {os.readlink(path)}")
        try:
            content = untrusted.content(path, REF_LIMIT)
        except FileNotFoundError:
            return None
    if content is None:
        raise _no_ref(path, f"is not a file of at most {REF_LIMIT} bytes")
    return content.decode("ascii", errors="replace").strip()


def _read_commit(path: str) -> str | None:
    commit = read_ref(path)
    if commit is not None and not is_commit(commit):
        raise _no_ref(path, f"has {len(commit)} characters that are not a commit")
    return commit


def _no_ref(path: str, what: str) -> UnknownState:
    return UnknownState(f"{path} {what}", expected="a file that names a commit", remedy=f"Remove {path} and download the model again.")


def _safe(relative: str) -> str:
    """Return a relative path. Raises :class:`ClusterError` if it leads out of its directory."""
    if os.path.isabs(relative) or ".." in relative.split("/"):
        raise ClusterError(f"{relative!r} must be a path inside the model")
    return relative


def unreadable(path: str, error: OSError) -> UnknownState:
    """Return the error for an existing file that cannot be read."""
    return UnknownState(f"{path} cannot be read: {error.strerror}", remedy="Run the task with become: true.", reason="permission", raw=str(error))


def read_noted(path: str, what: str, remedy: str, reason: str, is_valid: t.Callable[[dict[str, t.Any]], bool]) -> dict[str, t.Any] | None:
    """Return the ``files`` of a JSON note, None if it is absent. Raises :class:`UnknownState` if it cannot be read, or has another content."""
    with reading(path):
        text = files.plain_content(path)
    if text is None:
        return None
    with contextlib.suppress(ValueError, RecursionError, KeyError, TypeError, AttributeError):
        content = json.loads(text)["files"]
        if is_valid(content):
            return content
    raise UnknownState(f"{path} is not {what}", remedy=remedy, reason=reason, raw=text[:2000].decode("utf-8", "replace"))


def tensors_end(header: bytes) -> int:
    """Return the end of a safetensors file's tensors, in bytes after its header. Raises ValueError for an invalid header."""
    try:
        return max((int(entry["data_offsets"][1]) for name, entry in json.loads(header).items() if name != "__metadata__"), default=0)
    except (AttributeError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise ValueError("it is not a JSON object with the offsets of each tensor") from error


def safetensors_fault(path: str) -> str | None:
    """Return the problem of a safetensors file, None if its size matches its header. Raises OSError if it cannot be read."""
    descriptor = untrusted.regular(path)
    if descriptor is None:
        return "is not a file"
    with open(descriptor, "rb") as stream:
        size = os.fstat(descriptor).st_size
        start = stream.read(8)
        if len(start) < 8:
            return f"has {size} bytes and no header" if size else "is empty"
        if LFS_POINTER.startswith(start):
            return "is a Git LFS pointer and not the file itself"
        (length,) = struct.unpack("<Q", start)
        if length > JSON_LIMIT:
            return f"is not a safetensors file (its header would have {length} bytes)"
        header = stream.read(length)
    if len(header) < length:
        return f"ends inside its header, at {size} bytes"
    try:
        needed = 8 + length + tensors_end(header)
    except ValueError as error:
        return f"has a header that cannot be read: {error}"
    return None if size == needed else f"has {size} bytes, its header says {needed}"


def file_problem(root: str, relative: str) -> Problem | None:
    """Return the problem of a model's file that is absent or empty, None otherwise."""
    path = os.path.join(root, relative)
    try:
        if os.stat(path).st_size == 0:
            return Problem("model.empty", relative, f"{relative} is empty")
    except FileNotFoundError:
        if os.path.islink(path):
            return Problem("model.dangling", relative, f"{relative} points to {os.readlink(path)}, which does not exist")
        return Problem("model.missing", relative, f"{relative} does not exist")
    except OSError as error:
        raise unreadable(path, error) from error
    return None


def read_json(root: str, relative: str) -> tuple[dict[str, t.Any], Problem | None]:
    """Return (the JSON object in a file of a model, None), or (an empty one, the file's problem)."""
    if problem := file_problem(root, relative):
        return {}, problem
    path = os.path.join(root, relative)
    with reading(path):
        text = untrusted.content(path, JSON_LIMIT)
    try:
        content = json.loads((text or b"null").decode("utf-8"))
    except (ValueError, RecursionError) as error:
        return {}, Problem("model.not_json", relative, f"{relative} cannot be parsed: {error}")
    if isinstance(content, dict):
        return content, None
    why = f"is not a file, or has more than {JSON_LIMIT >> 20} MiB" if text is None else "is not a JSON object"
    return {}, Problem("model.not_json", relative, f"{relative} {why}")


def weight_files(root: str) -> tuple[list[str], list[Problem]]:
    """Return the files of the weights, by the index if there is one, and the problems of the index."""
    if not os.path.lexists(os.path.join(root, INDEX)):
        return [SINGLE], []
    index, problem = read_json(root, INDEX)
    if problem:
        return [], [problem]
    weights = index.get("weight_map")
    if not isinstance(weights, dict) or not weights or not all(isinstance(name, str) for name in weights.values()):
        return [], [Problem("model.not_json", INDEX, f"{INDEX} names no weights")]
    return sorted({_safe(name) for name in weights.values()}), []


def weight_problem(root: str, relative: str) -> Problem | None:
    """Return the problem of a weight file that is absent, empty or incomplete, None otherwise."""
    if problem := file_problem(root, relative):
        return problem
    path = os.path.join(root, relative)
    with reading(path):
        fault = safetensors_fault(path)
    return Problem("model.size", relative, f"{relative} {fault}") if fault else None


def tokenizer_problem(root: str) -> Problem | None:
    """Return None if the model has one of the known tokenizers."""
    if any(all(file_problem(root, part) is None for part in name.split("+")) for name in TOKENIZERS):
        return None
    return Problem("model.missing", _TOKENIZER, f"there is no tokenizer (none of {', '.join(TOKENIZERS)})")


def incomplete_blobs(repo_path: str | None) -> list[str]:
    """Return the names of downloads in a hub cache that did not finish, or are running."""
    return [name for name in names_in(os.path.join(repo_path, "blobs")) if name.endswith(".incomplete")] if repo_path else []


def unfinished_bytes(repo_path: str | None, names: t.Iterable[str]) -> int:
    """Return the bytes so far of unfinished downloads; one that finished meanwhile counts as 0."""
    blobs = os.path.join(repo_path or "", "blobs")
    with reading(blobs):
        return sum(status.st_size for status in (status_of(os.path.join(blobs, name)) for name in names) if status)


def size_bytes(root: str) -> int:
    """Return the bytes of all files of a model, counting a file with several links once.

    Files that Python compiled from a model's own code do not count: they exist only where an engine has run.
    """
    sizes = {}
    for path in paths_below(root):
        # A dangling link is a separate problem.
        with contextlib.suppress(OSError):
            status = os.stat(path)
            sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())


def facts(config: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the :data:`FACTS` of a config.json, None for missing ones."""
    inner = config.get("text_config")
    sources = [config, inner] if isinstance(inner, dict) else [config]
    return {fact: next((source[name] for source in sources for name in names if source.get(name) is not None), None) for fact, names in FACTS.items()}


def matters(purpose: str, relative: str) -> bool:
    """Return whether a repository with this purpose needs a file that every model needs."""
    return purpose in (_NEED_TOKENIZER if relative == _TOKENIZER else _NEED_WEIGHTS)


def examine(root: str, side_files: t.Sequence[str], purpose: str = "model") -> tuple[list[Problem], list[str], dict[str, t.Any]]:
    """Return (problems, weight files, facts) of a directory for a purpose; without problems it is complete."""
    all_problems: list[Problem | None] = []
    shards: list[str] = []
    config: dict[str, t.Any] = {}
    if purpose in _NEED_WEIGHTS:
        config, problem = read_json(root, CONFIG)
        shards, problems = weight_files(root)
        all_problems += [problem, *problems, *(weight_problem(root, name) for name in shards)]
    if purpose in _NEED_TOKENIZER:
        all_problems.append(tokenizer_problem(root))
    if purpose == "adapter":
        shards = list(_ADAPTER[1:])
        all_problems += [read_json(root, _ADAPTER[0])[1], weight_problem(root, shards[0])]
    all_problems += [file_problem(root, _safe(name)) for name in side_files]
    return [entry for entry in all_problems if entry], shards, facts(config)


def named_files(files: t.Iterable[str]) -> list[str]:
    """Return those of a repository's files that are names; the others are patterns, and a pattern with ``!`` excludes files."""
    return [name for name in files if not name.startswith("!") and not PATTERN.search(name)]


def private_path(hf_home: str, root: str) -> str | None:
    """Return the first path of a model that root in a container cannot read, None if it can read all.

    Without the capability DAC_OVERRIDE root can read only its own files and those that all users may read.
    """
    hub = os.path.join(hf_home, "hub")
    # A container mounts a plain directory itself, so only the hub's directories above a model matter.
    above = [path for path in map(str, pathlib.PurePath(root).parents) if path == hub or path.startswith(f"{hub}/")]
    blobs = os.path.join(os.path.dirname(os.path.dirname(root)), "blobs")
    inside = sorted(paths_below(root, (), directories=True))
    for path in [*reversed(above), *([blobs] if above and os.path.isdir(blobs) else []), root, *inside]:
        try:
            status = os.stat(path)
        except OSError:
            continue  # a separate problem
        bits = 0o5 if stat.S_ISDIR(status.st_mode) else 0o4
        shift = 6 if status.st_uid == 0 else 3 if status.st_gid == 0 else 0
        if status.st_mode >> shift & bits != bits:
            return path
    return None


def listing(root: str, contents: t.Mapping[str, t.Mapping[str, t.Any]] | None = None) -> str:
    """Return a digest that is equal for equal copies of a plain directory: of its files' names and sizes, and of their digests in ``contents``, if any."""
    sizes = {os.path.relpath(path, root): os.stat(path).st_size if os.path.exists(path) else -1 for path in paths_below(root, NOT_MODEL)}
    rows = [[name, size, *([contents[name]["digest"]] if contents and name in contents else [])] for name, size in sizes.items()]
    return hashlib.sha256(json.dumps(sorted(rows)).encode()).hexdigest()


def outside_links(root: str) -> list[Problem]:
    """Return the links that lead out of a plain directory: its container mounts only that directory."""
    base = os.path.realpath(root)
    links = {os.path.relpath(path, root): os.path.realpath(path) for path in paths_below(root, (), directories=True) if os.path.islink(path)}
    return [
        Problem("model.dangling", name, f"{name} leads to {target}, out of the directory, and a container mounts only the directory")
        for name, target in links.items()
        if target != base and not target.startswith(f"{base}/")
    ]


# -- the user of a download ------------------------------------------------------------------------------------------


class Writer(t.NamedTuple):
    """The user of a download's container. ``because`` is a directory of another user that requires root; empty for the cache's owner."""

    uid: int
    gid: int
    because: str = ""


def writer(hf_home: str, repo: str) -> Writer:
    """Return the user for a model's download into a cache: the owner of the cache, or of the nearest existing directory above it.

    Other containers that run as root leave root's directories in a user's cache. If the owner could not write because of one, the user is root, in a
    container that mounts only the cache. Raises as :func:`owners.owner_of` does.
    """
    owner = owners.owner_of(hf_home)
    hub = os.path.join(hf_home, "hub")
    of_repo = os.path.join(hub, repo_directory(repo))
    below = [os.path.join(of_repo, name) for name in ("blobs", "refs", "snapshots")]
    real = {os.path.dirname(hub)}
    for path in (hub, os.path.join(hub, ".locks"), os.path.join(hub, ".locks", repo_directory(repo)), of_repo, *below, os.path.join(hf_home, "xet")):
        # The target of a link does not count: in the container it is another one.
        status = os.lstat(path) if os.path.dirname(path) in real and os.path.lexists(path) else None
        if status and stat.S_ISDIR(status.st_mode):
            real.add(path)
            if owner.uid and status.st_uid != owner.uid:
                return Writer(0, 0, path)
    return Writer(*owner)
