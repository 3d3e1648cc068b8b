# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which processes are an engine or a part of Ray, and which of them belong together. This module util is PRIVATE to the collection.

Told from command lines and from the titles that programs give themselves, as vLLM 0.32 and Ray 2.60 do (recorded); those of SGLang,
TensorRT-LLM, llama.cpp and Ollama are their usual command lines, and none was recorded. A stack is named by what its parts share: the
address of Ray's head, the address at which ranks without Ray meet, or the server's own process where there is only one.
"""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import Process

#: Kinds of parts. ``headless`` is a vLLM server that only has ranks and no API.
API_SERVER, HEADLESS, ENGINE_CORE, RANK, HELPER = "api_server", "headless", "engine_core", "rank", "helper"
RAY_START, RAYLET, GCS_SERVER, RAY_DASHBOARD, RAY_CLIENT, RAY_AGENT, RAY_WORKER = (
    "ray_start", "raylet", "gcs_server", "ray_dashboard", "ray_client", "ray_agent", "ray_worker",
)  # fmt: skip
KINDS = (API_SERVER, HEADLESS, ENGINE_CORE, RANK, HELPER, RAY_START, RAYLET, GCS_SERVER, RAY_DASHBOARD, RAY_CLIENT, RAY_AGENT, RAY_WORKER)

#: What a process calls itself in place of its command line → (kind, engine). The first that fits counts.
TITLES = (
    ("VLLM::EngineCore", ENGINE_CORE, "vllm"),
    ("VLLM::APIServer", API_SERVER, "vllm"),
    ("VLLM::Worker", RANK, "vllm"),
    ("VLLM::", HELPER, "vllm"),
    ("ray::RayWorker", RANK, "vllm"),
    ("ray::DashboardAgent", RAY_AGENT, "ray"),
    ("ray::RuntimeEnvAgent", RAY_AGENT, "ray"),
    ("ray::", RAY_WORKER, "ray"),
    ("ray-dashboard", RAY_AGENT, "ray"),
    ("sglang::scheduler", RANK, "sglang"),
    ("sglang::", HELPER, "sglang"),
)

#: Ends of scripts, and names of Python's modules → (kind, engine).
_SCRIPTS = (
    ("ray/dashboard/dashboard.py", RAY_DASHBOARD, "ray"),
    ("ray/dashboard/agent.py", RAY_AGENT, "ray"),
    ("ray/_private/runtime_env/agent/main.py", RAY_AGENT, "ray"),
    ("ray/_private/log_monitor.py", RAY_AGENT, "ray"),
    ("ray/autoscaler/_private/monitor.py", RAY_AGENT, "ray"),
    ("vllm/entrypoints/openai/api_server.py", API_SERVER, "vllm"),
    ("sglang/launch_server.py", API_SERVER, "sglang"),
)
_MODULES = (
    ("ray.util.client.server", RAY_CLIENT, "ray"),
    ("vllm.entrypoints.openai.api_server", API_SERVER, "vllm"),
    ("vllm.entrypoints.api_server", API_SERVER, "vllm"),
    ("sglang.launch_server", API_SERVER, "sglang"),
)
#: Programs, with the word that must follow where there is one → (kind, engine).
_PROGRAMS = (
    ("vllm", "serve", API_SERVER, "vllm"),
    ("ray", "start", RAY_START, "ray"),
    ("raylet", None, RAYLET, "ray"),
    ("gcs_server", None, GCS_SERVER, "ray"),
    ("sglang", "serve", API_SERVER, "sglang"),
    ("trtllm-serve", None, API_SERVER, "tensorrt_llm"),
    ("tritonserver", None, API_SERVER, "triton"),
    ("llama-server", None, API_SERVER, "llama_cpp"),
    ("ollama", "serve", API_SERVER, "ollama"),
    ("ollama", "runner", RANK, "ollama"),
    ("ollama_llama_server", None, RANK, "ollama"),
)

#: Where an API is served when its command line does not say (each engine's own default).
DEFAULT_PORTS = {"vllm": 8000, "sglang": 30000, "tensorrt_llm": 8000, "triton": 8000, "llama_cpp": 8080, "ollama": 11434}
#: Where ranks without Ray meet when their command line does not say (vLLM's defaults).
DEFAULT_MASTER = ("127.0.0.1", "29501")

#: Short options of vLLM and SGLang that matter here.
_SHORT = {"-tp": "tensor-parallel-size", "-pp": "pipeline-parallel-size", "-dp": "data-parallel-size", "-n": "nnodes", "-r": "node-rank"}
#: Other names of the same option.
_ALIASES = {"tp-size": "tensor-parallel-size", "pp-size": "pipeline-parallel-size", "dp-size": "data-parallel-size"}

_INTERPRETER = re.compile(r"^(?:python|pypy)[\d.]*t?$")
#: Options of Python's interpreter that take a word.
_WITH_VALUE = ("-W", "-X")
_OPTION = re.compile(r"^--(?P<name>[A-Za-z][\w.-]*)(?:=(?P<value>.*))?$", re.DOTALL)

#: Processes between a part and its server; more are a loop in what was read.
_DEPTH = 64

#: Fields of ``/proc/PID/stat`` after the name, counted from 0 (proc_pid_stat(5): utime is field 14, stime 15, starttime 22).
_UTIME, _STIME, _START = 11, 12, 19

#: What names an installed package: a directory of its metadata, as pip writes it.
_DISTRIBUTION = re.compile(
    r"^(?P<name>vllm|ray|torch|sglang|transformers|flashinfer_python|nvidia_nccl_cu\d+|tensorrt_llm)-(?P<version>[^-]+)\.(?:dist|egg)-info$", re.IGNORECASE
)
#: Where Python's packages lie below a prefix, and prefixes that images of the field use.
_LIBRARIES = ("site-packages", "dist-packages")
_PREFIXES = ("/opt/venv", "/usr/local", "/usr")
_IN_LIBRARY = re.compile(r"^(?P<library>/.*?/(?:site|dist)-packages)/")
_IN_BIN = re.compile(r"^(?P<prefix>/.+)/bin/[^/]+$")


class Member(t.NamedTuple):
    """A process that is an engine, a part of one, or a part of Ray; ``words`` is what it runs, without an interpreter."""

    process: Process
    kind: str
    engine: str
    words: tuple[str, ...]


def run_words(argv: t.Sequence[str]) -> list[str]:
    """Return what a command line runs: without an interpreter and its options, ``-m MODULE`` and ``-c CODE`` as they are.

    A server that made its command line its title has all words in one argument.
    """
    words = argv[0].split() if len(argv) == 1 and " " in argv[0] else list(argv)
    while words and _INTERPRETER.match(os.path.basename(words[0])):
        words = words[1:]
        while words and words[0].startswith("-") and words[0] not in ("-m", "-c"):
            words = words[2 if words[0] in _WITH_VALUE else 1:]
    return words


def classify(process: Process) -> Member | None:
    """Return what part of a stack a process is, None for any other. One that only mentions an engine (``docker exec … vllm serve``) is none."""
    if process.ended or not process.argv:
        return None
    for title, kind, engine in TITLES:
        if process.argv[0].startswith(title):
            return Member(process, kind, engine, ())
    words = run_words(process.argv)
    found = _told_by(words)
    if found is None:
        return None
    kind, engine = found
    if kind == API_SERVER and engine == "vllm" and "--headless" in words:
        kind = HEADLESS
    return Member(process, kind, engine, tuple(words))


def _told_by(words: t.Sequence[str]) -> tuple[str, str] | None:
    if not words:
        return None
    if words[0] == "-m":
        module = words[1] if len(words) > 1 else ""
        if module == "vllm.entrypoints.cli.main" and words[2:3] == ["serve"]:
            return API_SERVER, "vllm"
        return next(((kind, engine) for name, kind, engine in _MODULES if module == name), None)
    base = os.path.basename(words[0])
    for program, following, kind, engine in _PROGRAMS:
        if base == program and (following is None or list(words[1:2]) == [following]):
            return kind, engine
    return next(((kind, engine) for end, kind, engine in _SCRIPTS if f"/{words[0]}".endswith(f"/{end}")), None)


def options(words: t.Sequence[str]) -> dict[str, str]:
    """Return the long options of a command line by name (with dashes), their words joined by blanks, a flag as empty text.

    What stands before the first option is under ``""``. A word after an option is taken for its value, since which options take none is the
    engine's own knowledge.
    """
    found: dict[str, list[str]] = {"": []}
    name = ""
    for word in words:
        match = _OPTION.match(word)
        if match or word in _SHORT:
            name = match["name"].replace("_", "-") if match else _SHORT[word]
            name = _ALIASES.get(name, name)
            found[name] = [match["value"]] if match and match["value"] is not None else []
        else:
            found[name].append(word)
    return {name: " ".join(values) for name, values in found.items()}


def whole_number(text: str | None) -> int | None:
    """Return a whole number of a command line, None when there is none."""
    return int(text) if text is not None and re.fullmatch(r"\d{1,9}", text) else None


def members(processes: t.Mapping[int, Process]) -> dict[int, Member]:
    """Return the parts of all stacks among a node's processes, by pid."""
    return {pid: member for pid, process in processes.items() if (member := classify(process)) is not None}


# -- what belongs together ---------------------------------------------------------------------------------------------------------------


def ancestors(pid: int, processes: t.Mapping[int, Process]) -> t.Iterator[int]:
    """Give a process's ancestors that can be seen, its parent first."""
    for _step in range(_DEPTH):
        process = processes.get(pid)
        if process is None or process.ppid in (0, process.pid):
            return
        pid = process.ppid
        if pid not in processes:
            return
        yield pid


def main_of(pid: int, found: t.Mapping[int, Member], processes: t.Mapping[int, Process]) -> int | None:
    """Return the topmost server (with or without an API) that a part descends from, itself included; None when there is none."""
    lineage = [pid, *ancestors(pid, processes)]
    engine = found[pid].engine
    servers = [one for one in lineage if one in found and found[one].kind in (API_SERVER, HEADLESS) and found[one].engine == engine]
    return servers[-1] if servers else None


def ray_address(member: Member) -> str | None:
    """Return the address of Ray's head as a part of Ray has it on its command line, None when that does not tell."""
    told = options(member.words)
    if told.get("gcs-address"):
        return told["gcs-address"]
    if member.kind == GCS_SERVER and told.get("node-ip-address") and told.get("gcs-server-port"):
        return f"{told['node-ip-address']}:{told['gcs-server-port']}"
    if member.kind == RAY_START and "head" in told and told.get("node-ip-address"):
        return f"{told['node-ip-address']}:{told.get('port') or 6379}"
    return told.get("address") or None


class Stacks:
    """Tells the stack that each part belongs to."""

    def __init__(self, found: t.Mapping[int, Member], processes: t.Mapping[int, Process]) -> None:
        self.found = found
        self.processes = processes
        self._ray: dict[str, str] = {}
        # The raylet knows best: it has joined that head.
        for kind in (RAYLET, GCS_SERVER, RAY_START, RAY_AGENT, RAY_DASHBOARD, RAY_CLIENT):
            for member in found.values():
                address = ray_address(member) if member.kind == kind else None
                if address:
                    self._ray.setdefault(member.process.container, address)
        self._ranks_of_ray = {member.process.container for member in found.values() if is_ray_rank(member)}

    def of(self, pid: int) -> str | None:
        """Return ``ray ADDRESS``, ``native ADDRESS`` or ``local PID``; None when it cannot be told, as for a part without a server."""
        member = self.found[pid]
        if member.engine == "ray" or is_ray_rank(member):
            return self._of_ray(member)
        main = main_of(pid, self.found, self.processes)
        return None if main is None else self._of_server(self.found[main])

    def _of_ray(self, member: Member) -> str | None:
        address = ray_address(member)
        if member.kind != RAYLET or not address:
            above = (self.found[pid] for pid in ancestors(member.process.pid, self.processes) if pid in self.found)
            raylet = next((one for one in above if one.kind == RAYLET), None)
            address = (ray_address(raylet) if raylet else None) or self._ray.get(member.process.container) or address
        return f"ray {address}" if address else None

    def _of_server(self, member: Member) -> str | None:
        told = options(member.words)
        if (whole_number(told.get("nnodes")) or 1) > 1:
            if told.get("dist-init-addr"):
                return f"native {told['dist-init-addr']}"
            return f"native {told.get('master-addr') or DEFAULT_MASTER[0]}:{told.get('master-port') or DEFAULT_MASTER[1]}"
        backend, container = told.get("distributed-executor-backend"), member.process.container
        # An engine of an earlier version takes Ray by itself where it finds one; then its ranks are there.
        if backend == "ray" or (backend is None and container in self._ranks_of_ray):
            address = self._ray.get(container)
            return f"ray {address}" if address else None
        return f"local {member.process.pid}"


def is_ray_rank(member: Member) -> bool:
    """Say whether a process is a rank that Ray placed."""
    return member.kind == RANK and bool(member.process.argv) and member.process.argv[0].startswith("ray::")


# -- figures of a process ----------------------------------------------------------------------------------------------------------------


def parse_times(text: str) -> tuple[int, int]:
    """Return (processor time, start) of a ``/proc/PID/stat`` text in clock ticks, of all threads and since boot.

    Raises :class:`UnknownState` for another shape.
    """
    fields = text.rpartition(")")[2].split()
    try:
        used, start = int(fields[_UTIME]) + int(fields[_STIME]), int(fields[_START])
    except (IndexError, ValueError):
        raise UnknownState(f"the kernel describes a process in a shape that cannot be read: {text[:200]!r}", raw=text[:2000]) from None
    if used < 0 or start < 0:
        raise UnknownState(f"the kernel gives times of a process that cannot be: {text[:200]!r}", raw=text[:2000])
    return used, start


def cpu_percent(before: tuple[int, int], after: tuple[int, int], seconds: float, ticks_per_second: int) -> float | None:
    """Return how much of one core a process used between two readings of :func:`parse_times`; None when it is another process by now."""
    if before[1] != after[1] or after[0] < before[0] or seconds <= 0:
        return None
    return round(100 * (after[0] - before[0]) / ticks_per_second / seconds, 1)


# -- what is installed -------------------------------------------------------------------------------------------------------------------


def library_places(argvs: t.Iterable[t.Sequence[str]]) -> tuple[list[str], list[str]]:
    """Return (directories of packages, prefixes) that command lines name, with what is usual last."""
    libraries: dict[str, None] = {}
    prefixes: dict[str, None] = {}
    for argv in argvs:
        for word in argv[:3]:
            library, prefix = _IN_LIBRARY.match(word), _IN_BIN.match(word)
            if library:
                libraries[library["library"]] = None
            elif prefix:
                prefixes[prefix["prefix"]] = None
    return list(libraries), list({**prefixes, **dict.fromkeys(_PREFIXES)})


def versions(root: str, argvs: t.Iterable[t.Sequence[str]]) -> dict[str, str]:
    """Return version by package of what matters to an engine, as installed below ``root``, the file system that its processes see.

    The first place that has a package counts, those that the command lines name before the usual ones. Raises OSError when ``root`` may
    not be looked at.
    """
    libraries, prefixes = library_places(argvs)
    os.listdir(root)
    for prefix in prefixes:
        base = f"{prefix}/lib"
        for name in sorted(_listed(root + base), reverse=True):
            if name.startswith("python3"):
                libraries += [f"{base}/{name}/{library}" for library in _LIBRARIES]
    found: dict[str, str] = {}
    for library in dict.fromkeys(libraries):
        for name in sorted(_listed(root + library)):
            match = _DISTRIBUTION.match(name)
            if match:
                found.setdefault(match["name"].lower().replace("_", "-"), match["version"])
    return found


def _listed(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
