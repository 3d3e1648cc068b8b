# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finds the current users of a model on a node, and the last of this collection's runs that used it. This module util is PRIVATE to the collection.

An engine that has loaded its weights has none of their files open. So a model is also in use if any command line names it, and an
engine whose command line names no model may use any.
"""

from __future__ import annotations

import contextlib
import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_state
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._model.model_files import COMMIT
from ansible_collections.gb10.cluster.plugins.module_utils._model.model_files import repo_directory
from ansible_collections.gb10.cluster.plugins.module_utils._network.listeners import open_files
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify, stacks
from ansible_collections.gb10.cluster.plugins.module_utils._process.command_line import options, run_words
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import GONE, Scan, read_bytes, require_all_seen, scan
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME

#: A command line with this word requests the removal of the model that it names.
REQUEST = "gb10_models_remove"

#: Most processes in a message.
NAMED = 3
#: Most bytes to read of a process's maps.
MAPS_LIMIT = 64 * 1024 * 1024
#: Options that name the model whose revision a command line gives.
_OF_MODEL = ("", "model", "served-model-name")
#: Stacks whose name may be that of another stack on another node.
_ON_ONE_NODE = re.compile(r"local |\w+ (?:127\.|localhost\b|\[?::1\b)")
_OPENED = re.compile(r"/(?P<repo>models--[^/\n]+)/(?P<file>[^\n]+)")
_MAPPED = re.compile(rb"/[^\n]*/models--[^\n]+")


class Command(t.NamedTuple):
    """A process's command line, or that of the collection's order for a live engine."""

    text: str
    words: tuple[str, ...]
    pid: int = 0


class Holder(t.NamedTuple):
    """A part of an engine: the stack that it belongs to, empty when unknown, and whether its command line, or that of its server, names a model."""

    text: str
    stack: str
    named: bool


class Run(t.NamedTuple):
    """The record of a cluster's last engine on this node."""

    cluster: str
    run_id: str
    words: tuple[str, ...]
    started_at: float | None
    live: bool

    def view(self) -> dict[str, t.Any]:
        """Return it as part of a module's result."""
        started = None if self.started_at is None else utc_text(self.started_at)
        return {"cluster": self.cluster, "run_id": self.run_id, "started_at": started, "live": self.live}


class Uses(t.NamedTuple):
    """The users of models on a node; ``opened`` has (process, file) by a repository's directory, ``unasked`` processes whose open files are unknown."""

    commands: list[Command]
    opened: dict[str, list[tuple[str, str]]]
    holders: list[Holder]
    runs: list[Run]
    unasked: list[str]

    def require_all_asked(self) -> None:
        """Raise :class:`UnknownState` if the open files of a process cannot be read."""
        if self.unasked:
            raise UnknownState(f"{', '.join(self.unasked[:NAMED])} may not be asked which files are open", remedy=BECOME, reason="permission")

    def of_repository(self, repo: str, commit: str, blobs: t.Container[str]) -> list[str]:
        """Return the users of a revision of a repository, as texts."""
        named = [command.text for command in self.commands if named_revision(command.words, repo) in ("", commit)]
        opened = [who for who, file in self.opened.get(repo_directory(repo), []) if _is_part(file, commit, blobs)]
        return list(dict.fromkeys([*named, *opened]))

    def of_directory(self, path: str, proc: str) -> list[str]:
        """Return the users of a plain directory, as texts, under any path that a container has for it."""
        return list(dict.fromkeys(command.text for command in self.commands if any(_leads_to(command.pid, word, path, proc) for word in command.words)))

    def last_run(self, repo: str, commit: str) -> Run | None:
        """Return this collection's last run that loaded a revision, from the records of this node."""
        runs = [run for run in self.runs if named_revision(run.words, repo) in ("", commit)]
        return max(runs, key=lambda run: (run.live, run.started_at or 0), default=None)

    def named_stacks(self) -> list[str]:
        """Return the stacks with a process on this node that names its model."""
        return sorted({holder.stack for holder in self.holders if holder.named and holder.stack})

    def shared_stacks(self) -> list[str]:
        """Return the stacks among them whose name is the same on other nodes, where they may have parts."""
        return [stack for stack in self.named_stacks() if not _ON_ONE_NODE.match(stack)]

    def unnamed(self, elsewhere: t.Collection[str] = ()) -> list[Holder]:
        """Return the parts of engines that may use any model: no process names theirs, here or in the stacks that are named ``elsewhere``."""
        known = {*self.named_stacks(), *elsewhere}
        return [holder for holder in self.holders if not holder.named and holder.stack not in known]


def named_revision(words: t.Sequence[str], repo: str) -> str | None:
    """Return the revision of a repository that a command line names, empty if it may be any, None if it does not name the repository."""
    word_like = re.compile(rf"(?<![\w./-]){re.escape(repo)}(?![\w-]|\.\w)")
    in_cache = re.compile(rf"{re.escape(repo_directory(repo))}(?![\w.-])(?:/snapshots/([0-9a-f]{{40}}))?")
    commits = {match[1] or "" for word in words for match in in_cache.finditer(word)}
    if any(word_like.search(word) for word in words):
        given = options(run_words(words))
        naming = {name for name, value in given.items() if word_like.search(value)}
        revision = given.get("revision", "")
        commits.add(revision if naming <= set(_OF_MODEL) and COMMIT.match(revision) else "")
    return "".join(commits) if len(commits) == 1 else "" if commits else None


def names_a_model(words: t.Sequence[str]) -> bool:
    """Return whether the command line of an engine's server names its model."""
    given = options(words)
    further = [word for word in given[""].split()[1:] if word != "serve"]
    return bool(further) or any(name.startswith(("model", "hf")) for name in given)


def _is_part(file: str, commit: str, blobs: t.Container[str]) -> bool:
    folder, _slash, name = file.partition("/")
    return (folder == "blobs" and name.split(" ")[0] in blobs) or (folder == "snapshots" and name.startswith(f"{commit}/"))


def _leads_to(pid: int, word: str, path: str, proc: str) -> bool:
    """Return whether a word of a process's command line is a directory, or a file or directory in it, as the process sees it."""
    _dashes, _equals, value = word.rpartition("=")
    if value == path or value.startswith(f"{path}/"):
        return True
    if not pid or not value.startswith("/"):
        return False
    with contextlib.suppress(OSError, untrusted.Tampered, ValueError):
        with untrusted.directory(os.path.join(proc, str(pid), "root"), os.path.normpath(value).strip("/")) as there:
            return os.path.samestat(os.fstat(there), os.stat(path))
    return False


def opened_files(pid: int, proc: str) -> set[str]:
    """Return the files of hub caches that a process has open or mapped. Raises PermissionError if they cannot be read."""
    try:
        mapped = {path.decode("utf-8", "replace") for path in _MAPPED.findall(read_bytes(f"{proc}/{pid}/maps", MAPS_LIMIT))}
        return mapped | {path for path in open_files(pid, proc) if "/models--" in path}
    except GONE:
        return set()


def _opened(seen: Scan, proc: str) -> tuple[dict[str, list[tuple[str, str]]], list[str]]:
    """Return the open files with their processes, by a repository's directory, and the processes that may not be read."""
    opened: dict[str, list[tuple[str, str]]] = {}
    unasked = []
    for process in seen.processes.values():
        if process.ended or process.pid == os.getpid():
            continue
        who = f"{process.title} (pid {process.pid})"
        try:
            paths = opened_files(process.pid, proc)
        except PermissionError:
            unasked.append(who)
            continue
        for match in filter(None, map(_OPENED.search, sorted(paths))):
            opened.setdefault(match["repo"], []).append((who, match["file"]))
    return opened, unasked


def read(state_dir: str, proc: str = "/proc") -> Uses:
    """Read all processes of a node, and the collection's records. Raises :class:`UnknownState` if one cannot be read."""
    seen = require_all_seen(scan(proc), "who uses a model")
    runs = [
        Run(cluster, engine["run_id"], tuple(engine["argv"]), engine["started_at"], engine["live"])
        for cluster, engine in engine_state.on_node(state_dir, proc).items()
    ]
    commands = [
        Command(f"{process.title} (pid {process.pid})", process.argv, process.pid)
        for process in seen.processes.values()
        if process.argv and not process.ended and process.pid != os.getpid() and REQUEST not in process.command
    ]
    live = [Command(f"the engine of cluster {run.cluster} (run {run.run_id})", run.words) for run in runs if run.live]
    all_stacks = stacks.stacks(seen.processes, proc)
    holders = []
    for part in classify.engines(all_stacks.parts.values()):
        main = all_stacks.main(part.process.pid)
        holders.append(Holder(part.text, all_stacks.of(part.process.pid) or "", main is not None and names_a_model(all_stacks.parts[main].words)))
    opened, unasked = _opened(seen, proc)
    return Uses([*live, *commands], opened, holders, runs, unasked)
