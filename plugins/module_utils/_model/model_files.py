# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a model on a node is complete, judged by names, sizes and headers. This module util is PRIVATE to the collection.

A model of 80 GB cannot be read at every run. But each safetensors file begins with a header that says how long the file must be, so a
copy that was cut off is found in milliseconds.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import stat
import struct
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import owners, untrusted

#: Ids of what modules find with this that can stop or warn.
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
#: Bytes of a ref that are read; a commit has 40.
REF_LIMIT = 128
CONFIG = "config.json"

#: Any one of these makes a tokenizer; a name of two parts needs both.
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tekken.json", "tiktoken.model", "vocab.json+merges.txt")

#: What a repository is for: the model itself, what proposes tokens for it (a drafter, or an assistant by the words of its authors), its tokenizer,
#: an adapter (LoRA), or single files.
PURPOSES = ("model", "drafter", "assistant", "tokenizer", "adapter", "files")

#: The purposes that need weights, a config.json and a tokenizer. A drafter reads the tokens of its model.
_NEED_WEIGHTS = ("model", "drafter", "assistant")
_NEED_TOKENIZER = ("model", "tokenizer")
_ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
_TOKENIZER = "tokenizer.json"

#: What is fetched of a repository for a purpose when the profile names no files: a tokenizer's repository often holds a whole model, too.
DEFAULT_FILES = {"tokenizer": ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "!*.safetensors.index.json")}

_PATTERN = re.compile(r"[*?[]")

#: The option of modules that look at what an engine loads.
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

#: Facts of config.json that a plan or a proof needs, each with the names that it goes by. Models with several parts keep them under text_config.
FACTS = {
    **{name: (name,) for name in ("architectures", "num_attention_heads", "num_key_value_heads", "max_position_embeddings")},
    **{name: (name,) for name in ("hidden_size", "num_hidden_layers")},
    "dtype": ("dtype", "torch_dtype"),
}

#: Most bytes of a configuration, an index, or the header of a file of weights: all lie where a user can put a file of any length. An index of 90,000
#: tensors has some 9 MB.
JSON_LIMIT = 32 << 20

LFS_POINTER = b"version https://git-lfs"

_COMMIT = re.compile(r"^[0-9a-f]{40}$")


@dataclasses.dataclass(frozen=True)
class Problem:
    """One thing wrong with a model: ``id`` for programs, ``file`` relative to the model, ``message`` for people."""

    id: str
    file: str
    message: str


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a model lies, or should: ``path`` is None when the cache does not have this revision."""

    path: str | None
    revision: str | None
    repo_path: str | None


def is_directory(repo: str) -> bool:
    """Return whether what a profile calls a repository is a plain directory of the node, by its absolute path."""
    return repo.startswith("/")


def repo_directory(repo: str) -> str:
    """Return the hub cache's directory name of a repository (``org/name``)."""
    return "models--" + repo.replace("/", "--")


def locate(hf_home: str, repo: str, revision: str | None) -> Place:
    """Find a revision of a repository in a hub cache. ``revision`` is a commit or a ref; without one it is ``main``."""
    base = os.path.join(hf_home, "hub", repo_directory(repo))
    commit: str | None = revision
    if not revision or not _COMMIT.match(revision):
        commit = _read_commit(os.path.join(base, "refs", _safe(revision or "main")))
    snapshot = os.path.join(base, "snapshots", commit) if commit else None
    present = snapshot is not None and os.path.isdir(snapshot)
    return Place(path=snapshot if present else None, revision=commit, repo_path=base if os.path.isdir(base) else None)


def read_ref(path: str) -> str | None:
    """Return the text of a ref, None when there is none. Raises :class:`UnknownState` for anything but a file.

    Who can write the cache could make it a link, or what is above it, and have root read another file: see :func:`untrusted.regular`.
    """
    try:
        if os.path.islink(path):
            raise _no_ref(path, f"is a link to {os.readlink(path)}")
        descriptor = untrusted.regular(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(path, error) from error
    if descriptor is None:
        raise _no_ref(path, "is not a file")
    try:
        return os.read(descriptor, REF_LIMIT).decode("ascii", errors="replace").strip()
    finally:
        os.close(descriptor)


def _read_commit(path: str) -> str | None:
    commit = read_ref(path)
    if commit is not None and not _COMMIT.match(commit):
        raise _no_ref(path, f"holds {len(commit)} characters that are no commit")
    return commit


def _no_ref(path: str, what: str) -> UnknownState:
    return UnknownState(f"{path} {what}", expected="a file that names a commit", remedy=f"Remove {path} and download the model again.")


def _safe(relative: str) -> str:
    """Return a relative path unless it leads out of the directory it is meant for."""
    if os.path.isabs(relative) or ".." in relative.split("/"):
        raise ClusterError(f"{relative!r} must be a path inside the model")
    return relative


def unreadable(path: str, error: OSError) -> UnknownState:
    """Return the error for a file that is there and cannot be read."""
    return UnknownState(f"{path} cannot be read: {error.strerror}", remedy="Run the task with become: true.", reason="permission", raw=str(error))


def tensors_end(header: bytes) -> int:
    """Return where the tensors of a safetensors file end, in bytes after its header. Raises ValueError when the header is none."""
    try:
        entries = json.loads(header)
    except RecursionError as error:
        raise ValueError("the header is nested too deep") from error
    if not isinstance(entries, dict):
        raise ValueError("the header is not a JSON object")
    try:
        return max((int(entry["data_offsets"][1]) for name, entry in entries.items() if name != "__metadata__"), default=0)
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError("a tensor of the header has no offsets") from error


def safetensors_fault(path: str) -> str | None:
    """Return what is wrong with a safetensors file, None when its size is what its header says.

    Raises OSError when it cannot be read.
    """
    descriptor = untrusted.regular(path)
    if descriptor is None:
        return "is not a file"
    with open(descriptor, "rb") as stream:
        size = os.fstat(descriptor).st_size
        if size == 0:
            return "is empty"
        start = stream.read(8)
        if LFS_POINTER.startswith(start) and len(start) == 8:
            return "is a Git LFS pointer and not the file itself"
        if len(start) < 8:
            return f"has {size} bytes and no header"
        (length,) = struct.unpack("<Q", start)
        if length > JSON_LIMIT:
            return f"is not a safetensors file (its header would have {length} bytes)"
        header = stream.read(length)
    if len(header) < length:
        return f"is cut off inside its header, at {size} bytes"
    try:
        needed = 8 + length + tensors_end(header)
    except ValueError as error:
        return f"has a header that cannot be read: {error}"
    return None if size == needed else f"has {size} bytes, its header says {needed}"


def file_problem(root: str, relative: str) -> Problem | None:
    """Return what keeps a file of a model from being used, None when it is there and not empty."""
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
    """Return (the JSON object in a file of a model, None), or (nothing, what is wrong with the file)."""
    problem = file_problem(root, relative)
    if problem:
        return {}, problem
    path = os.path.join(root, relative)
    try:
        text = untrusted.content(path, JSON_LIMIT)
        if text is None:
            return {}, Problem("model.not_json", relative, f"{relative} is not a file, or has more than {JSON_LIMIT >> 20} MiB, as none has")
        content = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        return {}, Problem("model.not_json", relative, f"{relative} cannot be parsed: {error}")
    except OSError as error:
        raise unreadable(path, error) from error
    if not isinstance(content, dict):
        return {}, Problem("model.not_json", relative, f"{relative} holds no JSON object")
    return content, None


def weight_files(root: str) -> tuple[list[str], list[Problem]]:
    """Return the files that hold the weights, by the index when there is one, and what is wrong with finding them."""
    if not os.path.lexists(os.path.join(root, INDEX)):
        return [SINGLE], []
    index, problem = read_json(root, INDEX)
    if problem:
        return [], [problem]
    weights = index.get("weight_map")
    if not isinstance(weights, dict) or not weights or not all(isinstance(name, str) for name in weights.values()):
        return [], [Problem("model.not_json", INDEX, f"{INDEX} names no weights")]
    return sorted({_safe(name) for name in weights.values()}), []


def weight_problems(root: str, files: t.Sequence[str]) -> list[Problem]:
    """Return what is wrong with the weight files: absent, empty, cut off."""
    problems = []
    for relative in files:
        problem = file_problem(root, relative)
        if problem is None:
            path = os.path.join(root, relative)
            try:
                fault = safetensors_fault(path)
            except OSError as error:
                raise unreadable(path, error) from error
            problem = Problem("model.size", relative, f"{relative} {fault}") if fault else None
        if problem:
            problems.append(problem)
    return problems


def tokenizer_problem(root: str) -> Problem | None:
    """Return None when the model has a tokenizer in one of the known shapes."""
    if any(all(file_problem(root, part) is None for part in name.split("+")) for name in TOKENIZERS):
        return None
    return Problem("model.missing", _TOKENIZER, f"there is no tokenizer (none of {', '.join(TOKENIZERS)})")


def incomplete_blobs(repo_path: str | None) -> list[str]:
    """Return the names of downloads in a hub cache that did not finish, or still run."""
    if repo_path is None:
        return []
    try:
        return sorted(name for name in os.listdir(os.path.join(repo_path, "blobs")) if name.endswith(".incomplete"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unreadable(os.path.join(repo_path, "blobs"), error) from error


def unfinished_bytes(repo_path: str | None, names: t.Iterable[str]) -> int:
    """Return what downloads that did not end have stored so far; one that ended meanwhile counts as nothing."""
    sizes = []
    for name in names:
        try:
            sizes.append(os.stat(os.path.join(repo_path or "", "blobs", name), follow_symlinks=False).st_size)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise unreadable(os.path.join(repo_path or "", "blobs", name), error) from error
    return sum(sizes)


def size_bytes(root: str) -> int:
    """Return the bytes of all files of a model, each file once however many links lead to it.

    What Python compiled from a model's own code does not count: it lies only where an engine has run.
    """
    sizes = {}
    for directory, directories, names in os.walk(root):
        directories[:] = [name for name in directories if name != "__pycache__"]
        for name in names:
            path = os.path.join(directory, name)
            try:
                status = os.stat(path)
            except OSError:
                continue  # dangling: a separate problem
            sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())


def facts(config: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the :data:`FACTS` of a config.json, None for what it does not say."""
    inner = config.get("text_config")
    sources = [config, inner] if isinstance(inner, dict) else [config]
    return {fact: next((source[name] for source in sources for name in names if source.get(name) is not None), None) for fact, names in FACTS.items()}


def matters(purpose: str, relative: str) -> bool:
    """Return whether a file that every model needs is needed of a repository with this purpose, too."""
    return purpose in (_NEED_TOKENIZER if relative == _TOKENIZER else _NEED_WEIGHTS)


def examine(root: str, side_files: t.Sequence[str], purpose: str = "model") -> tuple[list[Problem], list[str], dict[str, t.Any]]:
    """Return (problems, weight files, facts) of what a directory holds for a purpose; no problems means complete."""
    found: list[Problem | None] = []
    shards: list[str] = []
    config: dict[str, t.Any] = {}
    if purpose in _NEED_WEIGHTS:
        config, problem = read_json(root, CONFIG)
        shards, problems = weight_files(root)
        found += [problem, *problems, *weight_problems(root, shards)]
    if purpose in _NEED_TOKENIZER:
        found.append(tokenizer_problem(root))
    if purpose == "adapter":
        shards = list(_ADAPTER[1:])
        found += [read_json(root, _ADAPTER[0])[1], *weight_problems(root, shards)]
    found += [file_problem(root, _safe(name)) for name in side_files]
    return [entry for entry in found if entry], shards, facts(config)


def named_files(files: t.Iterable[str]) -> list[str]:
    """Return those of a repository's files that are names; the others are patterns, and ``!`` begins one of files that are left out."""
    return [name for name in files if not name.startswith("!") and not _PATTERN.search(name)]


def private_path(hf_home: str, root: str) -> str | None:
    """Return the first path of a model that root in a container cannot read, None when it can read all.

    Root without the capability DAC_OVERRIDE reads what is its own or what everybody may read.
    """
    hub = os.path.join(hf_home, "hub")
    # Of a plain directory a container has what lies in it, whoever may pass what is above it.
    above = [os.path.dirname(root)] if root.startswith(f"{hub}/") else []
    while above and above[-1] not in (hub, "/"):
        above.append(os.path.dirname(above[-1]))
    inside = [os.path.join(directory, name) for directory, directories, names in os.walk(root) for name in [*directories, *names]]
    blobs = os.path.join(os.path.dirname(os.path.dirname(root)), "blobs")
    for path in [*reversed(above), *([blobs] if above and os.path.isdir(blobs) else []), root, *sorted(inside)]:
        try:
            status = os.stat(path)
        except OSError:
            continue  # a problem of its own
        bits = 0o5 if stat.S_ISDIR(status.st_mode) else 0o4
        shift = 6 if status.st_uid == 0 else 3 if status.st_gid == 0 else 0
        if status.st_mode >> shift & bits != bits:
            return path
    return None


def listing(root: str, contents: t.Mapping[str, t.Mapping[str, t.Any]] | None = None) -> str:
    """Return what tells two copies of a plain directory apart: a digest of the names and sizes of its files, and of the digests in ``contents``, if any.

    What Python compiled from a model's own code, and what a download notes about itself (``.cache``), lies only where it happened.
    """
    found = []
    for directory, directories, names in os.walk(root):
        directories[:] = [name for name in directories if name not in ("__pycache__", ".cache")]
        for name in names:
            path = os.path.join(directory, name)
            size = os.stat(path).st_size if os.path.exists(path) else -1
            relative = os.path.relpath(path, root)
            found.append([relative, size, *([contents[relative]["digest"]] if contents and relative in contents else [])])
    return hashlib.sha256(json.dumps(sorted(found)).encode()).hexdigest()


def outside_links(root: str) -> list[Problem]:
    """Return the links of a plain directory that lead out of it: its container has the directory alone."""
    base = os.path.realpath(root)
    problems = []
    for directory, directories, names in os.walk(root):
        for name in [*directories, *names]:
            path = os.path.join(directory, name)
            target = os.path.realpath(path)
            if os.path.islink(path) and target != base and not target.startswith(f"{base}/"):
                relative = os.path.relpath(path, root)
                problems.append(Problem("model.dangling", relative, f"{relative} leads to {target}, out of the directory, and a container has that alone"))
    return problems


# -- whose files a download makes ------------------------------------------------------------------------------------


class Writer(t.NamedTuple):
    """The user that a download's container runs as. ``because`` is a directory of another user that makes it root's; empty when it is the cache's own."""

    uid: int
    gid: int
    because: str = ""


def writer(hf_home: str, repo: str) -> Writer:
    """Return who should download a model into a cache: the owner of the cache, or of the nearest directory above it that is there.

    Containers that people run as root leave root's directories in a user's cache. Where the owner could not go on because of one, it is root, in a
    container that has the cache alone. Raises as :func:`owners.owner_of` does.
    """
    owner = owners.owner_of(hf_home)
    hub = os.path.join(hf_home, "hub")
    of_repo = os.path.join(hub, repo_directory(repo))
    ours = [os.path.join(of_repo, name) for name in ("blobs", "refs", "snapshots")]
    real = {os.path.dirname(hub)}
    for path in (hub, os.path.join(hub, ".locks"), os.path.join(hub, ".locks", repo_directory(repo)), of_repo, *ours, os.path.join(hf_home, "xet")):
        # What lies behind a link says nothing: in the container that leads elsewhere.
        status = os.lstat(path) if os.path.dirname(path) in real and os.path.lexists(path) else None
        if status and stat.S_ISDIR(status.st_mode):
            real.add(path)
            if owner.uid and status.st_uid != owner.uid:
                return Writer(0, 0, path)
    return Writer(*owner)
