# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which processes of engines and of Ray belong together, and which lost their server. This module util is PRIVATE to the collection.

A stack is named by what its parts share: the address of Ray's head, the address at which ranks without Ray meet, or the server's own process where
there is only one.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._process import classify
from ansible_collections.gb10.cluster.plugins.module_utils._process.classify import Part
from ansible_collections.gb10.cluster.plugins.module_utils._process.command_line import options, whole_number
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import Process, ancestors, namespace_pid

#: The port of an API whose command line has none (each engine's own default).
DEFAULT_PORTS = {"vllm": 8000, "sglang": 30000, "tensorrt_llm": 8000, "triton": 8000, "llama_cpp": 8080, "ollama": 11434, "tensorfold": 8080}
#: The meeting address of ranks without Ray whose command line has none (vLLM's defaults).
DEFAULT_MASTER = ("127.0.0.1", "29501")
TENSORFOLD_MASTER_PORT = "29551"


class Parentage(t.NamedTuple):
    """Whether a process lost its server, why, and the pids from its parent upwards as far as they were followed."""

    orphan: bool
    why: str
    chain: tuple[int, ...]


def ray_address(part: Part) -> str | None:
    """Return the address of Ray's head as a part of Ray has it on its command line, None when it is not there."""
    given = options(part.words)
    if given.get("gcs-address"):
        return given["gcs-address"]
    if part.kind == classify.GCS_SERVER and given.get("node-ip-address") and given.get("gcs-server-port"):
        return f"{given['node-ip-address']}:{given['gcs-server-port']}"
    if part.kind == classify.RAY_START and "head" in given and given.get("node-ip-address"):
        return f"{given['node-ip-address']}:{given.get('port') or 6379}"
    return given.get("address") or None


def first_of_namespace(pid: int, proc_root: str) -> bool:
    """Return whether a process is number 1 in its innermost pid namespace."""
    try:
        return namespace_pid(pid, proc_root) == 1
    except PermissionError:
        return False


class Stacks:
    """The parts of all engines and Rays among a node's processes, by pid, and their stacks. ``is_first``: whether a process is the first of its container."""

    def __init__(self, processes: t.Mapping[int, Process], is_first: t.Callable[[int], bool] = lambda pid: False) -> None:
        self.processes = processes
        self.parts = {pid: part for pid, part in classify.parts(processes).items() if part.kind != classify.TENANT}
        self._is_first = is_first
        self._ray: dict[str, str] = {}
        # The raylet is the best source: it has joined that head.
        for kind in (classify.RAYLET, classify.GCS_SERVER, classify.RAY_START, classify.RAY_AGENT, classify.RAY_DASHBOARD, classify.RAY_CLIENT):
            for part in self.parts.values():
                address = ray_address(part) if part.kind == kind else None
                if address:
                    self._ray.setdefault(part.process.container, address)
        self._ranks_of_ray = {part.process.container for part in self.parts.values() if classify.is_ray_rank(part)}

    def above(self, pid: int) -> list[Part]:
        """Return the parts that a process descends from, its parent first."""
        return [self.parts[ancestor] for ancestor in ancestors(pid, self.processes) if ancestor in self.parts]

    def main(self, pid: int) -> int | None:
        """Return the topmost server (with or without an API) that a part descends from, itself included; None when there is none."""
        part = self.parts[pid]
        servers = [candidate.process.pid for candidate in (part, *self.above(pid)) if candidate.kind in classify.SERVERS and candidate.engine == part.engine]
        return servers[-1] if servers else None

    def of(self, pid: int) -> str | None:
        """Return ``ray ADDRESS``, ``native ADDRESS`` or ``local PID``; None when it is unknown, as for a part without a server."""
        part = self.parts[pid]
        if part.engine == "ray" or classify.is_ray_rank(part):
            return self._of_ray(part)
        main = self.main(pid)
        if main is not None:
            return self._of_server(self.parts[main])
        # A child of a rank of Ray; its server may be on another node.
        rank = next(filter(classify.is_ray_rank, self.above(pid)), None)
        return self._of_ray(rank) if rank else None

    def _of_ray(self, part: Part) -> str | None:
        address = ray_address(part)
        if part.kind != classify.RAYLET or not address:
            raylet = next((ancestor for ancestor in self.above(part.process.pid) if ancestor.kind == classify.RAYLET), None)
            address = (ray_address(raylet) if raylet else None) or self._ray.get(part.process.container) or address
        return f"ray {address}" if address else None

    def _of_server(self, part: Part) -> str | None:
        given = options(part.words)
        if (whole_number(given.get("nnodes")) or 1) > 1:
            if given.get("dist-init-addr"):
                return f"native {given['dist-init-addr']}"
            return f"native {given.get('master-addr') or DEFAULT_MASTER[0]}:{given.get('master-port') or DEFAULT_MASTER[1]}"
        if part.engine == "tensorfold" and given.get("master"):
            return f"native {given['master']}:{given.get('master-port') or TENSORFOLD_MASTER_PORT}"
        backend, container = given.get("distributed-executor-backend"), part.process.container
        # An engine of an earlier version uses a running Ray without being asked; then its ranks are there.
        if backend == "ray" or (backend is None and container in self._ranks_of_ray):
            address = self._ray.get(container)
            return f"ray {address}" if address else None
        return f"local {part.process.pid}"

    # -- whose child a process is ----------------------------------------------------------------------------------------------------------

    def is_child(self, process: Process) -> bool:
        """Return whether a process is an engine's core, rank or helper by its own title or command, which means that it has a server."""
        part = self.parts.get(process.pid)
        return part is not None and part.kind in classify.CHILDREN and not classify.is_python_helper(process)

    def is_owner(self, process: Process) -> bool:
        """Return whether a process is one that cores and ranks belong to: a server, or Ray's own on every node."""
        part = self.parts.get(process.pid)
        return part is not None and part.kind in (*classify.SERVERS, classify.RAYLET)

    def parentage(self, pid: int) -> Parentage:
        """Judge an engine's core, rank or helper by its living ancestors; any other process has no server.

        It has lost its server when only cores, ranks and helpers are between it and a process that adopts: the machine's first process,
        ``systemd --user``, or the first of its container. The last may also have started it itself: it counts only when it is a program that starts no
        engine core, or when the leader of the process's session is gone, which the first process outlived. Whatever cannot be seen, and any other living
        parent (a script that uses the engine as a library), means that it is not lost.
        """
        process = current = self.processes[pid]
        if not self.is_child(process):
            return Parentage(False, "", ())
        chain: list[int] = []
        while True:
            if current.pid == 1 or self._is_first(current.pid):
                return Parentage(False, "it is the first process of its container", tuple(chain))
            parent = self.processes.get(current.ppid)
            if parent is None or parent.ended:
                return Parentage(False, f"its parent {current.ppid} cannot be seen", tuple(chain))
            if parent.pid in chain:
                return Parentage(False, "its ancestors have no end", tuple(chain))
            chain.append(parent.pid)
            if self.is_owner(parent):
                return Parentage(False, f"process {parent.pid} serves with it: {parent.title}", tuple(chain))
            if parent.pid == 1 or not (self.is_child(parent) or classify.is_python_helper(parent)):
                return self._adopted(process, parent, tuple(chain))
            current = parent

    def _adopted(self, process: Process, parent: Process, chain: tuple[int, ...]) -> Parentage:
        is_first, leader = self._is_first(parent.pid), self.processes.get(process.session)
        rows = (
            (parent.pid == 1, "the machine's first process adopted it"),
            (parent.program == "systemd", f"{parent.title} adopted it"),
            (is_first and classify.holds_open(parent), f"the first process of its container adopted it ({parent.title})"),
            (is_first and process.session and (leader is None or leader.ended), "the leader of its session is gone"),
        )
        why = next((text for applies, text in rows if applies), "")
        unsure = f"process {parent.pid} may have started it: {parent.title}"
        return Parentage(bool(why), f"no API server or raylet of it lives; {why}" if why else unsure, chain)


def stacks(processes: t.Mapping[int, Process], proc_root: str) -> Stacks:
    """Return the stacks among the processes that ``proc_root`` shows."""
    return Stacks(processes, lambda pid: first_of_namespace(pid, proc_root))
