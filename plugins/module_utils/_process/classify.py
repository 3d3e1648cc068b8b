# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kind of a process: part of an engine, part of Ray, or another user of the GPU. This module util is PRIVATE to the collection.

Preflight, doctor, zombie check and every guard use this one table; no other file has a title or a program of an engine. The titles and
command lines of vLLM and Ray were recorded with vLLM 0.32 and Ray 2.60. The others were not recorded: what SGLang,
TensorRT-LLM, Triton, llama.cpp, Ollama and TensorFold run is taken from their public sources and reports.
"""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._process.command_line import options, run_words, split, whole_number
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import Process, ancestors

#: Parts of an engine. A headless front end has ranks and no API; a helper neither holds the model nor serves.
FRONT_END, HEADLESS, ENGINE_CORE, RANK, HELPER = "api_server", "headless", "engine_core", "rank", "helper"
#: Ray's services.
RAY_START, RAYLET, GCS_SERVER, RAY_DASHBOARD, RAY_CLIENT, RAY_AGENT = "ray_start", "raylet", "gcs_server", "ray_dashboard", "ray_client", "ray_agent"
#: Ray's workers: one with work (or one that does not report that it has none), and one that reports no work or is not ready for any.
RAY_WORKER, RAY_IDLE = "ray_worker", "ray_idle"
#: Any other program that is known to use the GPU; its ``engine`` is its purpose.
TENANT = "tenant"

SERVERS = (FRONT_END, HEADLESS)
#: Parts that a server starts, and that are useless without it.
CHILDREN = (ENGINE_CORE, RANK, HELPER)
ENGINE_PARTS = (*SERVERS, *CHILDREN)
KINDS = (*ENGINE_PARTS, RAY_START, RAYLET, GCS_SERVER, RAY_DASHBOARD, RAY_CLIENT, RAY_AGENT, RAY_WORKER, RAY_IDLE, TENANT)

#: How a row of the table matches: by the beginning of the title that a process gave itself; by the program, script or module that it runs (the end of
#: its path) and the words that follow; by a text in its command line, but only below a part of an engine, whose engine it then belongs to.
TITLE, RUNS, BELOW = "title", "runs", "below"

#: (how, what, kind, engine); the first row that fits counts.
TABLE = (
    (TITLE, "VLLM::EngineCore", ENGINE_CORE, "vllm"),
    (TITLE, "VLLM::APIServer", FRONT_END, "vllm"),
    (TITLE, "VLLM::Worker", RANK, "vllm"),
    (TITLE, "VLLM::", HELPER, "vllm"),
    (RUNS, "vllm serve", FRONT_END, "vllm"),
    (RUNS, "vllm.entrypoints.cli.main serve", FRONT_END, "vllm"),
    (RUNS, "vllm.entrypoints.openai.api_server", FRONT_END, "vllm"),
    (RUNS, "vllm.entrypoints.api_server", FRONT_END, "vllm"),
    (RUNS, "vllm/entrypoints/openai/api_server.py", FRONT_END, "vllm"),
    (TITLE, "ray::RayWorker", RANK, "vllm"),
    (TITLE, "ray::IDLE", RAY_IDLE, "ray"),
    (TITLE, "ray::SPILL_", RAY_IDLE, "ray"),
    (TITLE, "ray::RESTORE_", RAY_IDLE, "ray"),
    (TITLE, "ray::DELETE_", RAY_IDLE, "ray"),
    (TITLE, "ray::DashboardAgent", RAY_AGENT, "ray"),
    (TITLE, "ray::RuntimeEnvAgent", RAY_AGENT, "ray"),
    (TITLE, "ray::", RAY_WORKER, "ray"),
    (TITLE, "ray-dashboard", RAY_AGENT, "ray"),
    (RUNS, "ray start", RAY_START, "ray"),
    (RUNS, "raylet", RAYLET, "ray"),
    (RUNS, "gcs_server", GCS_SERVER, "ray"),
    (RUNS, "ray/dashboard/dashboard.py", RAY_DASHBOARD, "ray"),
    (RUNS, "ray/dashboard/agent.py", RAY_AGENT, "ray"),
    (RUNS, "ray/_private/runtime_env/agent/main.py", RAY_AGENT, "ray"),
    (RUNS, "ray/_private/log_monitor.py", RAY_AGENT, "ray"),
    (RUNS, "ray/autoscaler/_private/monitor.py", RAY_AGENT, "ray"),
    (RUNS, "ray.util.client.server", RAY_CLIENT, "ray"),
    # A worker without a title: it takes the one above before it can be given work (ray/_private/worker.py, connect, of Ray 2.60.0).
    (RUNS, "ray/_private/workers/default_worker.py", RAY_IDLE, "ray"),
    (TITLE, "sglang::scheduler", RANK, "sglang"),
    (TITLE, "sglang::", HELPER, "sglang"),
    (RUNS, "sglang serve", FRONT_END, "sglang"),
    (RUNS, "sglang.launch_server", FRONT_END, "sglang"),
    (RUNS, "sglang/launch_server.py", FRONT_END, "sglang"),
    (RUNS, "trtllm-serve", FRONT_END, "tensorrt_llm"),
    (RUNS, "mgmn_worker_node", RANK, "tensorrt_llm"),
    (BELOW, "mpi4py.futures.server", RANK, ""),
    (RUNS, "tritonserver", FRONT_END, "triton"),
    (RUNS, "triton_python_backend_stub", HELPER, "triton"),
    (RUNS, "llama-server", FRONT_END, "llama_cpp"),
    (RUNS, "ollama serve", FRONT_END, "ollama"),
    (RUNS, "ollama runner", RANK, "ollama"),
    (RUNS, "ollama_llama_server", RANK, "ollama"),
    (RUNS, "tensorfold serve", FRONT_END, "tensorfold"),
    (RUNS, "tensorfold.cli serve", FRONT_END, "tensorfold"),
    (BELOW, "multiprocessing.spawn", HELPER, ""),
    (BELOW, "multiprocessing.forkserver", HELPER, ""),
    (BELOW, "multiprocessing.resource_tracker", HELPER, ""),
    # Programs that may use GPU memory and do not look like an engine: a benchmark, a conversion, a desktop.
    (RUNS, "vllm", TENANT, "vllm"),
    (RUNS, "sglang", TENANT, "sglang"),
    (RUNS, "ollama", TENANT, "ollama"),
    (RUNS, "tensorfold", TENANT, "tensorfold"),
    (RUNS, "Xorg", TENANT, "desktop"),
    (RUNS, "Xwayland", TENANT, "desktop"),
    (RUNS, "gnome-shell", TENANT, "desktop"),
    (RUNS, "gnome-remote-desktop-daemon", TENANT, "desktop"),
    (RUNS, "kwin_wayland", TENANT, "desktop"),
    (RUNS, "kwin_x11", TENANT, "desktop"),
    (RUNS, "plasmashell", TENANT, "desktop"),
)

#: A text in the path of an interpreter or script, in the name of a module, or in the directory where a process runs → the purpose of a tenant.
TENANT_NAMES = (
    ("ray", re.compile(r"(?:site|dist)-packages/ray/|^ray(?:\.|$)")),
    ("vllm", re.compile(r"(?:site|dist)-packages/vllm/|^vllm(?:\.|$)")),
    ("sglang", re.compile(r"(?:site|dist)-packages/sglang/|^sglang(?:\.|$)")),
    ("tensorfold", re.compile(r"(?:site|dist)-packages/tensorfold/|^tensorfold(?:\.|$)")),
    ("comfyui", re.compile(r"(?:^|[/_.:-])comfy(?:ui)?(?:$|[/_.:-])", re.IGNORECASE)),
    (
        "tts",
        re.compile(
            r"(?:^|[/_.:-])(?:[a-z0-9]*tts(?:v?\d+)?|kokoro|chatterbox|piper|orpheus|parler|coqui|fish[-_]speech|openedai[-_]speech|cosyvoice)(?:$|[/_.:-])",
            re.IGNORECASE,
        ),
    ),
    ("asr", re.compile(r"(?:^|[/_.:-])(?:asr|stt|(?:faster[-_]?)?whisper(?:x|live)?|parakeet|riva|vosk|speaches)(?:$|[/_.:-])", re.IGNORECASE)),
)

#: Engines whose front end has no model: it starts a rank for each requested model, and without one it serves nothing.
LOADS_ON_DEMAND = ("ollama",)

#: Programs that keep a container open, or start others, and never an engine's core: they have adopted the cores below them.
_HOLDERS = frozenset(
    """
    init systemd tini tini-static docker-init dumb-init catatonit s6-svscan s6-overlay-suexec runsvdir runit supervisord
    sleep tail pause bash sh dash ash zsh
    """.split()
)


class Part(t.NamedTuple):
    """The kind of a process; ``words`` are its command without an interpreter."""

    process: Process
    kind: str
    engine: str
    words: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return it as text for a message."""
        return f"{self.process.title} (pid {self.process.pid})"


def judge(argv: t.Sequence[str], directory: str = "") -> tuple[str, str] | None:
    """Return (kind, engine) of a command line or title alone, None when it is not in the table.

    One that only mentions an engine (``grep vllm``, ``docker exec … vllm serve``, ``bash -c 'vllm serve'``) is not in it: the engine is the process that it
    starts. ``directory`` is where it runs, which counts last.
    """
    before, words = split(argv)
    for how, what, kind, engine in TABLE:
        if how == TITLE and argv and argv[0].startswith(what):
            return kind, engine
        if how == RUNS and runs(words, what):
            return (HEADLESS if kind == FRONT_END and _is_headless(engine, words) else kind), engine
    names = [word for word in [*before, *words[:1], directory] if not word.startswith("-")]
    return next(((TENANT, engine) for engine, pattern in TENANT_NAMES if any(map(pattern.search, names))), None)


def runs(words: t.Sequence[str], what: str) -> bool:
    """Return whether a command line, without its interpreter, matches a row of the table. A title may follow a program's name and a colon."""
    program, *following = what.split()
    return bool(words) and f"/{words[0].rstrip(':')}".endswith(f"/{program}") and list(words[1:1 + len(following)]) == following


def _is_headless(engine: str, words: t.Sequence[str]) -> bool:
    # Of TensorFold's processes, one a GPU, the first alone has the API.
    return "--headless" in words or (engine == "tensorfold" and (whole_number(options(words).get("rank")) or 0) > 0)


def parts(processes: t.Mapping[int, Process]) -> dict[int, Part]:
    """Return the kind of each process by its pid, without ended ones and those that are not in the table."""
    judged = {pid: judge(process.argv or (process.name,)) for pid, process in processes.items() if not process.ended}
    by_pid = {pid: Part(processes[pid], *known, words=tuple(run_words(processes[pid].argv))) for pid, known in judged.items() if known}
    for pid, process in processes.items():
        row = next(((kind, what) for how, what, kind, _engine in TABLE if how == BELOW and what in process.command), None)
        if row and pid not in by_pid and not process.ended:
            above = next((by_pid[ancestor] for ancestor in ancestors(pid, processes) if ancestor in by_pid and by_pid[ancestor].kind in ENGINE_PARTS), None)
            if above:
                by_pid[pid] = Part(process, row[0], above.engine)
    return by_pid


def engines(candidates: t.Iterable[Part]) -> list[Part]:
    """Return the parts by which an engine serves, or will once it has loaded."""
    return [part for part in candidates if part.kind in ENGINE_PARTS and not (part.kind == FRONT_END and part.engine in LOADS_ON_DEMAND)]


def at_work(candidates: t.Iterable[Part]) -> list[Part]:
    """Return the processes that a restart would cut off: the parts of engines, and Ray's workers that are not known to be idle."""
    candidates = list(candidates)
    return engines(candidates) + [part for part in candidates if part.kind == RAY_WORKER]


def is_ray_rank(part: Part) -> bool:
    """Return whether a process is a rank that Ray placed: it has the title of Ray's workers."""
    return part.kind == RANK and part.process.command.startswith("ray::")


def is_gcs(program: str) -> bool:
    """Return whether a program is Ray's GCS, which listens on the head's port."""
    return judge((program,)) == (GCS_SERVER, "ray")


def starts_ray_head(command: t.Iterable[str]) -> bool:
    """Return whether a container's command starts a Ray head, also through a shell or an init program."""
    words = " ".join(command).split()
    return "--head" in words and any(judge(words[at:at + 2]) == (RAY_START, "ray") for at in range(len(words)))


def is_python_helper(process: Process) -> bool:
    """Return whether this is a Python process that starts others for its parent, or cleans up after them."""
    return any(how == BELOW and kind == HELPER and what in process.command for how, what, kind, _engine in TABLE)


def holds_open(process: Process) -> bool:
    """Return whether a program only keeps a container open and starts no engine's core: an init program, a shell, ``ray start``, this collection's own."""
    words = [os.path.basename(word) for word in process.argv]
    own = "launcher.py" in words and "hold" in words
    return own or process.program in _HOLDERS or judge(process.argv) == (RAY_START, "ray")
