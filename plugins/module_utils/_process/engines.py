# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who serves on a node: the engines of our clusters, and whatever else is an engine or a rank. This module util is PRIVATE to the collection."""

from __future__ import annotations

import glob
import itertools
import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_state

#: Titles that the ranks of an engine give themselves: under Ray, vLLM's own executor, SGLang.
SERVING_TITLES = ("ray::RayWorker", "VLLM::", "sglang::")
#: Modules that a Python program serves with.
SERVING_MODULES = ("vllm.entrypoints", "sglang.launch_server")
#: How much of a title a message shows.
TITLE_LENGTH = 60


def serves(argv: t.Sequence[str]) -> bool:
    """Say whether a process's arguments, or the title it gave itself, are those of an engine or of one of its ranks.

    A program that only mentions one (``grep vllm``, ``docker exec … vllm serve``) is none.
    """
    words = list(argv)
    if words and words[0].startswith(SERVING_TITLES):
        return True
    if words and os.path.basename(words[0]).startswith("python"):
        words = list(itertools.dropwhile(lambda word: word.startswith("-") and word != "-m", words[1:]))
        if words[:1] == ["-m"]:
            return " ".join(words[1:2]).startswith(SERVING_MODULES)
    return bool(words) and os.path.basename(words[0]) == "vllm" and words[1:2] == ["serve"]


def arguments(pid: int, proc: str) -> list[str]:
    """Return a process's arguments, none when it is gone."""
    try:
        with open(os.path.join(proc, str(pid), "cmdline"), "rb") as stream:
            return stream.read().decode(errors="replace").rstrip("\0").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def serving(state_dir: str, proc: str) -> list[str]:
    """Return who serves on this node, in words: the live engines of our clusters, and any process that is an engine or a rank.

    A worker has no engine of its own under Ray, and an engine that is not ours has no state directory: both show as processes.
    """
    found, known = [], set()
    for note in sorted(glob.glob(os.path.join(glob.escape(state_dir), "*", "run", "run.json"))):
        cluster = os.path.relpath(note, state_dir).split(os.sep, maxsplit=1)[0]
        engine = engine_state.engine_state(engine_state.EnginePaths.of(state_dir, state_dir, cluster), proc)
        if engine["live"]:
            known.add(engine["pid"])
            found.append(f"the engine of cluster {cluster} (run {engine['run_id']}, pid {engine['pid']})")
    return found + serving_processes(proc, known)


def serving_processes(proc: str, known: t.Container[int] = ()) -> list[str]:
    """Return the processes that are an engine or a rank, in words, but for those whose pids are ``known``."""
    found = []
    for pid in sorted(int(name) for name in os.listdir(proc) if name.isdigit()):
        argv = arguments(pid, proc)
        if pid not in known and serves(argv):
            found.append(f"{' '.join(argv)[:TITLE_LENGTH]} (pid {pid})")
    return found
