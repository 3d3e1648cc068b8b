# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Other users of the memory that CPU and GPU share. This module util is PRIVATE to the collection.

Every process of a GB10 uses one pool of memory. Reported by seeds 001 and 003: Ollama, speech recognition and speech synthesis next to an engine took
about 16 GB, and their latency spikes were followed by crashes. A tenant is a process outside our containers that uses CUDA memory (the driver
lists it, or it has ``/dev/nvidia-uvm`` open, which CUDA needs for every context) or that is known to take some with its first request.
"""

from __future__ import annotations

import contextlib
import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import Section, strict
from ansible_collections.gb10.cluster.plugins.module_utils._network.listeners import open_files
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import (
    GONE,
    READ_LIMIT,
    Process,
    Scan,
    read_bytes,
    user_name,
)
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME

#: CUDA opens it as soon as it is initialized, before there is a context (seen on an H100 with driver 580); programs that only query or draw do not.
CUDA_DEVICE = "/dev/nvidia-uvm"

#: Maps are read this far when a process's open files cannot be listed.
MAPS_LIMIT = 4 * 1024 * 1024

#: How the driver's list marks a process that only draws; one that computes is C, or C+G.
DRAWS = "G"

#: Processes that a message names when they may not be read.
NAMED = 5


def holds_cuda(pid: int, root: str) -> bool | None:
    """Return whether a process has CUDA's device open, or mapped where its open files do not show; None when that may not be read.

    Raises FileNotFoundError or ProcessLookupError when it is gone.
    """
    with contextlib.suppress(PermissionError):
        return CUDA_DEVICE in open_files(pid, root)
    with contextlib.suppress(PermissionError):
        return CUDA_DEVICE.encode() + b"\n" in read_bytes(f"{root}/{pid}/maps", MAPS_LIMIT)
    return None


def working_directory(pid: int, root: str) -> str:
    """Return where a process runs, empty when that may not be seen or it is gone."""
    try:
        return os.readlink(f"{root}/{pid}/cwd")
    except OSError:
        return ""


def gpu_memory(processes: t.Iterable[t.Mapping[str, t.Any]]) -> dict[int, int | None]:
    """Return MiB by pid of the driver's list (``{pid, used_mib}`` and, where known, ``gpu``); None where the driver does not report it.

    A process that is listed twice for one GPU, as one that computes (C) and one that draws (G), counts once, with the larger figure.
    """
    by_gpu: dict[tuple[int, t.Any], int | None] = {}
    for process in processes:
        key = (process["pid"], process.get("gpu"))
        known = [figure for figure in (by_gpu.get(key), process["used_mib"]) if figure is not None]
        by_gpu[key] = max(known) if known else None
    by_pid: dict[int, int | None] = {}
    for (pid, _gpu), figure in by_gpu.items():
        earlier = by_pid.get(pid)
        by_pid[pid] = figure if earlier is None else earlier + (figure or 0)
    return by_pid


def tenants(
    seen: Scan,
    gpu_processes: t.Iterable[t.Mapping[str, t.Any]],
    own: t.Collection[str],
    names: t.Mapping[str, str],
    root: str,
    section: Section = strict,
) -> list[dict[str, t.Any]]:
    """Return the section ``tenants`` of ``node_info``: ``{pid, name, cmdline, user, kind, container, cuda, gpu_mib, rss_mb}``, those with most memory first.

    ``gpu_processes`` is what the driver lists; ``own`` the ids of our containers, whose processes are left out; ``names`` the container names by
    id. ``cuda`` is None, which ``section`` notes, when a process may not be examined. An ended process is not a tenant: another check reports the memory that
    it still uses.
    """
    listing = list(gpu_processes)
    listed, known = gpu_memory(listing), classify.parts(seen.processes)
    computing = {entry["pid"] for entry in listing if entry.get("type") != DRAWS}
    entries: list[dict[str, t.Any]] = []
    unasked: list[str] = []
    for process in seen.processes.values():
        if process.container in own or process.ended or not (process.argv or process.rss_kib):
            continue  # ours, gone, or a thread of the kernel
        try:
            cuda = process.pid in computing if process.pid in listed else holds_cuda(process.pid, root)
        except GONE:
            continue
        kind = known[process.pid].engine if process.pid in known else None
        if kind is None and process.pid in listed and process.pid not in computing:
            kind = "desktop"
        elif cuda and kind is None:
            kind = (classify.judge(process.argv, working_directory(process.pid, root)) or ("", "other"))[1]
        if cuda is None:
            unasked.append(f"{process.name} ({process.pid})")
        if kind is not None:
            entries.append(_tenant(process, kind, cuda, listed.get(process.pid), names))
    section(lambda: require_all_asked(seen.hidden, unasked))
    return sorted(entries, key=lambda tenant: (-(tenant["gpu_mib"] or 0), -tenant["rss_mb"], tenant["pid"]))


def _tenant(process: Process, kind: str, cuda: bool | None, gpu_mib: int | None, names: t.Mapping[str, str]) -> dict[str, t.Any]:
    return {
        "pid": process.pid,
        "name": process.program,
        "cmdline": process.shown_command,
        "user": user_name(process.uid),
        "kind": kind,
        "container": names.get(process.container, process.container),
        "cuda": cuda,
        "gpu_mib": gpu_mib,
        "rss_mb": process.rss_kib // 1024,
    }


def anonymous_kib(pid: int, root: str) -> int:
    """Return the anonymous memory of a process in KiB; 0 when it is gone. Raises :class:`UnknownState` when the kernel does not report it."""
    try:
        text = read_bytes(f"{root}/{pid}/status", READ_LIMIT).decode("utf-8", "replace")
    except GONE:
        return 0
    except OSError as error:
        raise UnknownState(f"{root}/{pid}/status cannot be read: {error.strerror}", remedy=BECOME) from error
    match = re.search(r"^RssAnon:\s+(\d{1,15}) kB$", text, re.MULTILINE)
    # A process that has ended and waits for its parent has none of these lines any more.
    if match is None and re.search(r"^VmRSS:", text, re.MULTILINE):
        raise UnknownState(f"the kernel does not report how much anonymous memory process {pid} has", raw=text[:2000])
    return int(match[1]) if match else 0


def held(
    seen: Scan, gpu_processes: t.Sequence[t.Mapping[str, t.Any]] | None, clusters: t.Mapping[str, str], root: str
) -> dict[str, dict[str, int | None]]:
    """Return the section ``held`` of ``node_info``: by cluster the memory of the processes in its containers, ``gpu_mib`` and ``anon_mb``.

    ``clusters`` maps the ids of our containers to their clusters. ``gpu_mib`` is None where the driver does not list its processes (``gpu_processes`` is
    None), or not what one of them holds. All of it comes back when they end. Shared memory and pages of files are left out: the former may be counted twice,
    the latter are available as it is.
    """
    return held_by(seen, gpu_processes, lambda process: clusters.get(process.container), root)


def held_by(
    seen: Scan, gpu_processes: t.Sequence[t.Mapping[str, t.Any]] | None, whose: t.Callable[[Process], str | None], root: str
) -> dict[str, dict[str, int | None]]:
    """Return the memory as :func:`held` does, by the owner that ``whose`` returns for each process, None for one that is left out."""
    listed = gpu_memory(gpu_processes or [])
    by_owner: dict[str, dict[str, int | None]] = {}
    for process in seen.processes.values():
        owner = None if process.ended else whose(process)
        if owner is None:
            continue
        memory = by_owner.setdefault(owner, {"gpu_mib": None if gpu_processes is None else 0, "anon_kib": 0})
        memory["anon_kib"] = (memory["anon_kib"] or 0) + anonymous_kib(process.pid, root)
        if process.pid in listed and memory["gpu_mib"] is not None:
            figure = listed[process.pid]
            memory["gpu_mib"] = None if figure is None else memory["gpu_mib"] + figure
    return {owner: {"gpu_mib": memory["gpu_mib"], "anon_mb": (memory["anon_kib"] or 0) // 1024} for owner, memory in by_owner.items()}


def require_all_asked(hidden: int | None, unasked: t.Sequence[str]) -> None:
    """Raise :class:`UnknownState` when processes could not be seen, or their memory not be read: a tenant among them would be missed."""
    if hidden is None:
        raise UnknownState("this account does not see other users' processes (hidepid): a tenant among them would be missed", remedy=BECOME)
    if hidden or unasked:
        some = f": {', '.join(unasked[:NAMED])}{', …' if hidden or len(unasked) > NAMED else ''}" if unasked else ""
        raise UnknownState(f"{hidden + len(unasked)} processes cannot be checked for GPU memory{some}", remedy=BECOME)
