# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kind of a process by the shared table, and that every user of the table agrees with it."""

from __future__ import annotations

import ast
import pathlib

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._engine import at_work
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import zombies
from ansible_collections.gb10.cluster.plugins.module_utils._leftovers import prune
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify, tenants
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import Process, Scan
from ansible_collections.gb10.cluster.plugins.module_utils._process.stacks import Stacks
from ansible_collections.gb10.cluster.plugins.modules import rank_info

PLUGINS = pathlib.Path(__file__).parents[5] / "plugins"
RAY = "/opt/venv/lib/python3.12/site-packages/ray"
PYTHON = "/opt/venv/bin/python3"
SPAWN = (PYTHON, "-c", "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=4)", "--multiprocessing-fork")
MPI = (PYTHON, "-m", "mpi4py.futures.server")

#: command line or title → (kind, engine), None for what is not in the table.
EXAMPLES = {
    (PYTHON, "/opt/venv/bin/vllm", "serve", "m"): ("api_server", "vllm"),
    ("vllm", "serve", "m"): ("api_server", "vllm"),
    ("python3 /usr/local/bin/vllm serve m --port 8001",): ("api_server", "vllm"),
    ("python3", "-u", "-W", "ignore", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"): ("api_server", "vllm"),
    ("python3", "-m", "vllm.entrypoints.cli.main", "serve", "m"): ("api_server", "vllm"),
    ("VLLM::APIServer_1",): ("api_server", "vllm"),
    ("vllm", "serve", "m", "--headless"): ("headless", "vllm"),
    ("VLLM::EngineCore",): ("engine_core", "vllm"),
    ("VLLM::EngineCore_DP0",): ("engine_core", "vllm"),
    ("VLLM::Worker_TP0_EP0",): ("rank", "vllm"),
    ("VLLM::DPCoordinator",): ("helper", "vllm"),
    ("ray::RayWorkerProc.run",): ("rank", "vllm"),
    ("ray::RayWorkerWrapper.execute_method",): ("rank", "vllm"),
    ("ray::MyActor",): ("ray_worker", "ray"),
    ("ray::MyActor.method",): ("ray_worker", "ray"),
    (PYTHON, f"{RAY}/_private/workers/default_worker.py", "--node-ip-address=10.0.0.1"): ("ray_idle", "ray"),
    ("ray::IDLE",): ("ray_idle", "ray"),
    ("ray::IDLE_SpillWorker",): ("ray_idle", "ray"),
    ("ray::SPILL_SpillWorker",): ("ray_idle", "ray"),
    ("ray::DashboardAgent",): ("ray_agent", "ray"),
    ("ray::RuntimeEnvAgent",): ("ray_agent", "ray"),
    (PYTHON, "-u", f"{RAY}/_private/log_monitor.py"): ("ray_agent", "ray"),
    ("/usr/bin/python3", "/usr/local/bin/ray", "start", "--head"): ("ray_start", "ray"),
    (f"{RAY}/core/src/ray/raylet/raylet", "--head"): ("raylet", "ray"),
    (f"{RAY}/core/src/ray/gcs/gcs_server", "--gcs_server_port=6379"): ("gcs_server", "ray"),
    ("python3", "/x/ray/dashboard/dashboard.py", "--host=0.0.0.0"): ("ray_dashboard", "ray"),
    ("python3", "-m", "ray.util.client.server"): ("ray_client", "ray"),
    ("python3", "-m", "sglang.launch_server", "--model-path", "m"): ("api_server", "sglang"),
    ("sglang::scheduler",): ("rank", "sglang"),
    ("sglang::scheduler_TP1",): ("rank", "sglang"),
    ("sglang::detokenizer",): ("helper", "sglang"),
    ("/usr/bin/python3", "/usr/local/bin/trtllm-serve", "m"): ("api_server", "tensorrt_llm"),
    ("/usr/bin/tritonserver", "--model-repository=/m"): ("api_server", "triton"),
    ("./llama-server", "-m", "x.gguf"): ("api_server", "llama_cpp"),
    ("/usr/local/bin/ollama", "serve"): ("api_server", "ollama"),
    ("/usr/local/bin/ollama", "runner", "--model", "x"): ("rank", "ollama"),
    ("tensorfold", "serve", "m", "--tp", "2", "--rank", "0", "--master", "10.0.0.1"): ("api_server", "tensorfold"),
    ("python3", "-m", "tensorfold.cli", "serve", "m", "--tp", "2", "--rank", "1", "--master", "10.0.0.1"): ("headless", "tensorfold"),
    ("/usr/bin/gnome-shell",): ("tenant", "desktop"),
    ("python3", "-m", "faster_whisper"): ("tenant", "asr"),
    ("vllm", "bench", "serve"): ("tenant", "vllm"),
    # What only mentions an engine, and what starts one: the engine is the process that it starts.
    ("grep", "vllm serve"): None,
    ("grep", "vllm", "serve"): None,
    ("docker", "exec", "node", "vllm", "serve", "m"): None,
    ("bash", "-c", "vllm serve m"): None,
    ("/sbin/docker-init", "--", "ray", "start", "--block"): None,
    ("python3", "-c", "import vllm"): None,
    ("python3", "/home/x/raylet.py"): None,
    ("python3", "-m"): None,
    ("sleep", "infinity"): None,
    ("",): None,
    SPAWN: None,
    MPI: None,
}  # fmt: skip

BOX = "ab" * 32
ENGINE_KINDS = ("api_server", "headless", "engine_core", "rank", "helper")


def process(argv, pid=11, ppid=1, state="S", name="x"):
    return Process(pid, ppid, state, name, tuple(argv), BOX, 0, 2048)


def table(*processes):
    return {1: process(("/sbin/init",), 1, 0)._replace(container=""), **{entry.pid: entry for entry in processes}}


@pytest.mark.parametrize(("argv", "what"), EXAMPLES.items())
def test_the_table(argv, what):
    assert classify.judge(argv) == what
    part = classify.parts(table(process(argv))).get(11)
    assert (part and (part.kind, part.engine)) == what


@pytest.mark.parametrize(("argv", "what"), EXAMPLES.items())
def test_every_user_answers_what_follows_from_the_table(argv, what, monkeypatch, tmp_path):
    kind, engine = what or (None, None)
    processes = table(process(argv))
    serves = kind in ENGINE_KINDS and argv != ("/usr/local/bin/ollama", "serve")
    works = serves or kind == "ray_worker"
    monkeypatch.setattr(at_work, "scan", lambda root, pids=None: Scan(processes, 0))

    (tmp_path / "11" / "fd").mkdir(parents=True)
    (tmp_path / "1" / "fd").mkdir(parents=True)
    listed = tenants.tenants(Scan(processes, 0), [], (), {}, str(tmp_path))
    assert [(tenant["pid"], tenant["kind"]) for tenant in listed] == ([(11, engine)] if what else []), "preflight"

    stacks = Stacks(processes)
    assert [part.kind for part in stacks.parts.values()] == ([kind] if kind not in (None, "tenant") else []), "doctor"

    orphans = [orphan["pid"] for orphan in zombies.classified([], stacks, lambda pid: "ghost")]
    assert orphans == ([11] if kind in ("engine_core", "rank", "helper") else []), "zombie check: without a server"
    child = table(process(argv), process(("VLLM::EngineCore",), 12, 11))
    owned = zombies.classified([], Stacks(child), lambda pid: "ghost")
    owner = kind in ("api_server", "headless", "raylet")
    looked_through = kind in ("engine_core", "rank", "helper") or argv == SPAWN
    assert (12 in [entry["pid"] for entry in owned]) is looked_through, "zombie check: below it"
    assert stacks.is_owner(processes[11]) is owner

    assert bool(at_work.serving(str(tmp_path / "none"), "/proc")) is serves, "page_cache_drop, fabric_probe and cluster_record"
    assert any(at_work.among([11])) is works, "a restart, and teardown"
    assert bool(at_work.within({BOX})) is works, "a stale head"
    assert list(rank_info.ranks_among(processes)) == ([11] if kind == "rank" else []), "proof"

    stopped = {"Id": BOX, "Name": "/gb10-gb10-head", "Created": "2026-11-01T00:00:00Z", "State": {"Status": "exited"},
               "Config": {"Labels": {"io.gb10.owner": "gb10.cluster", "io.gb10.cluster": "gb10"}}}  # fmt: skip
    judged = prune.containers([stopped], {}, "gb10", 2e9, at_work.by_container())
    assert (bool(judged.candidates), bool(judged.left)) == (not works, works), "prune"


def test_an_engine_that_docker_exec_started_is_one_and_its_client_is_not():
    client = process(("docker", "exec", "node", "vllm", "serve", "m"), 20)._replace(container="")
    engine = process((PYTHON, "/opt/venv/bin/vllm", "serve", "m"), 21, 2)
    assert list(classify.parts(table(client, engine))) == [21]


def test_parentage_says_what_a_nameless_process_is():
    serve, core = process(("vllm", "serve", "m"), 10), process(("VLLM::EngineCore",), 11, 10)
    parts = classify.parts(table(serve, core, process(SPAWN, 12, 11), process(SPAWN, 13, 1)))
    assert {pid: (part.kind, part.engine) for pid, part in parts.items()} == {
        10: ("api_server", "vllm"), 11: ("engine_core", "vllm"), 12: ("helper", "vllm"),
    }  # fmt: skip
    parts = classify.parts(table(process(("trtllm-serve", "m"), 10), process(("prte",), 11, 10), process(MPI, 12, 11), process(MPI, 13, 1)))
    assert {pid: (part.kind, part.engine) for pid, part in parts.items()} == {10: ("api_server", "tensorrt_llm"), 12: ("rank", "tensorrt_llm")}


def test_a_process_without_a_command_line_goes_by_its_name():
    assert classify.parts(table(process((), 10, name="VLLM::EngineCor"), process((), 11, name="raylet")))[11].kind == "raylet"
    assert classify.parts(table(process(("VLLM::EngineCore",), 10, state="Z"))) == {}


def test_a_ray_head_by_its_program_or_its_containers_command():
    assert classify.is_gcs("gcs_server") and not classify.is_gcs("redis-server") and not classify.is_gcs("")
    for command in (["ray", "start", "--head"], ["bash", "-c", "ray start --head --port 6379 --block"], ["/sbin/tini", "--", "/x/bin/ray", "start", "--head"]):
        assert classify.starts_ray_head(command)
    for command in (["ray", "start", "--address", "x"], ["grep", "--head", "ray"], ["sleep", "infinity"], []):
        assert not classify.starts_ray_head(command)


def test_every_row_has_an_example_or_is_found_below_another():
    met = {row for row in classify.TABLE if row[0] == classify.BELOW}
    for argv, what in EXAMPLES.items():
        met.update(row for row in classify.TABLE if what and row[2:] == what)
    kinds = {row[2] for row in classify.TABLE}
    assert kinds | {classify.HEADLESS} == set(classify.KINDS)
    assert {(row[2], row[3]) for row in classify.TABLE} - {(row[2], row[3]) for row in met} <= {
        ("rank", "tensorrt_llm"), ("helper", "triton"), ("tenant", "sglang"), ("tenant", "ollama"), ("tenant", "tensorfold"),
    }  # fmt: skip


def texts_of(source):
    """The texts in a program that are neither its documentation nor a docstring."""
    tree = ast.parse(source)
    kept = {"DOCUMENTATION", "EXAMPLES", "RETURN"}
    documentation = [node.value for node in ast.walk(tree) if isinstance(node, ast.Assign) and kept & {getattr(target, "id", "") for target in node.targets}]
    docstrings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    left_out = {id(part) for node in documentation + docstrings for part in ast.walk(node)}
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out]


#: Names of a program in the table that are also names of other things: a package, an option's value, an engine, a kind of part.
ALSO_OTHER = {"vllm", "sglang", "ollama", "tensorfold"}


def test_no_other_file_knows_a_title_or_a_program_of_an_engine():
    titles = {what.partition("::")[0] + "::" for how, what, *_rest in classify.TABLE if how == classify.TITLE and "::" in what}
    programs = {what for how, what, *_rest in classify.TABLE if how != classify.TITLE} - ALSO_OTHER
    assert titles == {"VLLM::", "ray::", "sglang::"} and {"gcs_server", "vllm serve", "llama-server"} <= programs
    problems = []
    for path in sorted(PLUGINS.rglob("*.py")):
        if path.name != "classify.py":
            for text in texts_of(path.read_text()):
                if text in programs or any(title in text for title in titles):
                    problems.append(f"{path.relative_to(PLUGINS)}: {text[:60]!r}")
    assert problems == []


def test_that_test_would_find_one():
    assert "ray::" in texts_of('"""VLLM::"""\nDOCUMENTATION = r"vllm serve"\nX = ("ray::",)\ndef f():\n    "sglang::"\n    return 1\n')
    assert texts_of('"""VLLM::"""\nDOCUMENTATION = r"vllm serve"\ndef f():\n    "sglang::"\n') == []
