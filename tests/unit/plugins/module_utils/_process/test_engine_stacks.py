# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What part of a stack a process is, and which belong together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._process import engine_stacks
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import Process


def process(pid, *argv, ppid=1, container="", state="S"):
    return Process(pid=pid, ppid=ppid, state=state, name="x", argv=tuple(argv), container=container, uid=0, rss_kib=1024)


@pytest.mark.parametrize(
    ("argv", "kind", "engine"),
    [
        (["/opt/venv/bin/python3", "/opt/venv/bin/vllm", "serve", "m"], "api_server", "vllm"),
        (["vllm", "serve", "m", "--headless"], "headless", "vllm"),
        (["python3", "-u", "-W", "ignore", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"], "api_server", "vllm"),
        (["python3", "-m", "vllm.entrypoints.cli.main", "serve", "m"], "api_server", "vllm"),
        (["python3 /usr/local/bin/vllm serve m --port 8001"], "api_server", "vllm"),
        (["VLLM::APIServer_1"], "api_server", "vllm"),
        (["VLLM::EngineCore_DP0"], "engine_core", "vllm"),
        (["VLLM::Worker_TP0_EP0"], "rank", "vllm"),
        (["VLLM::DPCoordinator"], "helper", "vllm"),
        (["ray::RayWorkerProc.run"], "rank", "vllm"),
        (["ray::RayWorkerWrapper.execute_method"], "rank", "vllm"),
        (["ray::IDLE"], "ray_worker", "ray"),
        (["ray::DashboardAgent"], "ray_agent", "ray"),
        (["/usr/bin/python3", "/usr/local/bin/ray", "start", "--head"], "ray_start", "ray"),
        (["/x/site-packages/ray/core/src/ray/raylet/raylet", "--head"], "raylet", "ray"),
        (["/x/site-packages/ray/core/src/ray/gcs/gcs_server"], "gcs_server", "ray"),
        (["python3", "/x/ray/dashboard/dashboard.py", "--host=0.0.0.0"], "ray_dashboard", "ray"),
        (["python3", "-m", "ray.util.client.server"], "ray_client", "ray"),
        (["python3", "-m", "sglang.launch_server", "--model-path", "m"], "api_server", "sglang"),
        (["sglang::scheduler_TP1"], "rank", "sglang"),
        (["/usr/bin/python3", "/usr/local/bin/trtllm-serve", "m"], "api_server", "tensorrt_llm"),
        (["./llama-server", "-m", "x.gguf"], "api_server", "llama_cpp"),
        (["/usr/local/bin/ollama", "serve"], "api_server", "ollama"),
        (["/usr/local/bin/ollama", "runner", "--model", "x"], "rank", "ollama"),
    ],
)
def test_parts_of_a_stack(argv, kind, engine):
    member = engine_stacks.classify(process(7, *argv))
    assert (member.kind, member.engine) == (kind, engine)


@pytest.mark.parametrize(
    "argv",
    [
        [], ["grep", "vllm serve"], ["docker", "exec", "x", "vllm", "serve"], ["bash", "-c", "vllm serve m"], ["vllm", "bench", "serve"], ["ray", "status"],
        ["/sbin/docker-init", "--", "ray", "start", "--block"], ["python3", "-c", "import vllm"], ["python3"], ["python3", "-m"], ["ollama", "list"], [""],
        ["python3", "/home/x/raylet.py"],
    ],
)  # fmt: skip
def test_what_only_mentions_an_engine_is_none(argv):
    assert engine_stacks.classify(process(7, *argv)) is None


def test_what_has_ended_is_none():
    assert engine_stacks.classify(process(7, "VLLM::EngineCore", state="Z")) is None


def test_options():
    words = [
        "vllm",
        "serve",
        "org/m",
        "--tensor_parallel_size=2",
        "-pp",
        "1",
        "--served-model-name",
        "a",
        "b",
        "--enforce-eager",
        "--hf-overrides",
        '{"a": 1}',
        "--x=",
    ]
    assert engine_stacks.options(words) == {
        "": "vllm serve org/m", "tensor-parallel-size": "2", "pipeline-parallel-size": "1", "served-model-name": "a b", "enforce-eager": "",
        "hf-overrides": '{"a": 1}', "x": "",
    }  # fmt: skip


def stacks(*processes):
    by_pid = {one.pid: one for one in processes}
    found = engine_stacks.members(by_pid)
    told = engine_stacks.Stacks(found, by_pid)
    return {pid: told.of(pid) for pid in found}


NATIVE = ["vllm", "serve", "m", "--nnodes", "2", "--master-addr", "10.0.0.1"]


def test_ranks_without_ray_are_named_by_where_they_meet():
    found = stacks(process(1, "init", ppid=0), process(5, *NATIVE), process(6, "VLLM::EngineCore", ppid=5), process(7, "VLLM::Worker_TP0", ppid=6))
    assert found == dict.fromkeys((5, 6, 7), "native 10.0.0.1:29501")
    assert stacks(process(5, "python3", "-m", "sglang.launch_server", "--nnodes", "2", "--dist-init-addr", "10.0.0.1:20000")) == {5: "native 10.0.0.1:20000"}


def test_a_server_alone_is_named_by_itself_and_a_rank_without_one_by_nothing():
    assert stacks(process(5, "vllm", "serve", "m"), process(6, "VLLM::EngineCore", ppid=5), process(9, "VLLM::Worker_TP0")) == {
        5: "local 5",
        6: "local 5",
        9: None,
    }


def test_two_rays_on_one_node_are_kept_apart_by_container():
    def of(container, first, address):
        raylet = process(first, "/x/raylet", f"--gcs-address={address}", container=container)
        server = process(first + 1, "vllm", "serve", "m", "--distributed-executor-backend", "ray", container=container)
        return raylet, server, process(first + 2, "ray::RayWorkerWrapper", ppid=first, container=container)

    found = stacks(*of("a", 10, "1.1.1.1:6379"), *of("b", 20, "2.2.2.2:6379"))
    assert found == {**dict.fromkeys((10, 11, 12), "ray 1.1.1.1:6379"), **dict.fromkeys((20, 21, 22), "ray 2.2.2.2:6379")}


def test_an_engine_that_took_ray_by_itself_belongs_to_it():
    found = stacks(
        process(5, "/x/raylet", "--gcs-address=1.1.1.1:6379"), process(6, "vllm", "serve", "m", "-tp", "2"), process(7, "ray::RayWorkerWrapper", ppid=5)
    )
    assert set(found.values()) == {"ray 1.1.1.1:6379"}


def test_a_loop_of_parents_ends():
    assert stacks(process(5, "VLLM::Worker_TP0", ppid=6), process(6, "VLLM::EngineCore", ppid=5)) == {5: None, 6: None}


def test_processor_time():
    before = engine_stacks.parse_times("7 (VLLM::Worker (x) y) S 1 7 7 0 -1 0 0 0 0 0 100 20 0 0 20 0 1 0 5000 0 0")
    assert before == (120, 5000)
    assert engine_stacks.cpu_percent(before, (320, 5000), 2.0, 100) == 100.0
    assert engine_stacks.cpu_percent(before, (320, 5001), 2.0, 100) is None, "another process has the number"
    assert engine_stacks.cpu_percent(before, (320, 5000), 0, 100) is None


@pytest.mark.parametrize("text", ["", "7 (x) S 1", "7 (x) S 1 7 7 0 -1 0 0 0 0 0 a b 0 0 20 0 1 0 5000", "7 (x) S 1 7 7 0 -1 0 0 0 0 0 -5 1 0 0 20 0 1 0 5000"])
def test_times_of_another_shape_are_unknown(text):
    with pytest.raises(UnknownState):
        engine_stacks.parse_times(text)


def test_versions_come_from_where_the_command_lines_point_first(tmp_path):
    for place in (
        "opt/venv/lib/python3.12/site-packages/vllm-0.32.0+cpu.dist-info",
        "usr/lib/python3/dist-packages/ray-2.9.0.egg-info",
        "srv/x/site-packages/ray-2.60.0.dist-info",
    ):
        (tmp_path / place).mkdir(parents=True)
    argvs = [["/srv/x/site-packages/ray/core/src/ray/raylet/raylet"], ["/opt/venv/bin/python3", "/opt/venv/bin/vllm"], []]
    assert engine_stacks.versions(str(tmp_path), argvs) == {"ray": "2.60.0", "vllm": "0.32.0+cpu"}
    with pytest.raises(OSError):
        engine_stacks.versions(str(tmp_path / "absent"), [])


ANY_TEXT = st.text(max_size=60)
NEAR = st.sampled_from(
    ["vllm", "serve", "python3", "-m", "-c", "--", "-", "--x", "--gcs-address=a:1", "ray", "start", "VLLM::Worker", "ray::X", "--nnodes", "2", "-tp", "=", " "]
)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.lists(NEAR | ANY_TEXT, max_size=8), st.sampled_from(["", "a"])), max_size=7))
def test_no_command_line_breaks_it(rows):
    by_pid = {pid: process(pid, *argv, ppid=ppid, container=container) for pid, ppid, argv, container in rows}
    found = engine_stacks.members(by_pid)
    told = engine_stacks.Stacks(found, by_pid)
    for pid, member in found.items():
        assert member.kind in engine_stacks.KINDS
        assert told.of(pid) is None or told.of(pid).startswith(("ray ", "native ", "local "))


@given(st.text(max_size=200))
def test_times_are_read_or_unknown(text):
    try:
        engine_stacks.parse_times(text)
    except UnknownState:
        pass
