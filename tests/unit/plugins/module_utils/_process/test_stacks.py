# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which processes belong together, and which lost their server."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils._process import classify
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import Process
from ansible_collections.gb10.cluster.plugins.module_utils._process.stacks import Stacks


def process(pid, *argv, ppid=1, container="", state="S", session=0):
    return Process(pid=pid, ppid=ppid, state=state, name="x", argv=tuple(argv), container=container, uid=0, rss_kib=1024, session=session)


def stacks(*processes):
    by_pid = {entry.pid: entry for entry in processes}
    seen = Stacks(by_pid)
    return {pid: seen.of(pid) for pid in seen.parts}


NATIVE = ["vllm", "serve", "m", "--nnodes", "2", "--master-addr", "10.0.0.1"]


def test_ranks_without_ray_are_named_by_where_they_meet():
    by_pid = stacks(process(1, "init", ppid=0), process(5, *NATIVE), process(6, "VLLM::EngineCore", ppid=5), process(7, "VLLM::Worker_TP0", ppid=6))
    assert by_pid == dict.fromkeys((5, 6, 7), "native 10.0.0.1:29501")
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

    by_pid = stacks(*of("a", 10, "1.1.1.1:6379"), *of("b", 20, "2.2.2.2:6379"))
    assert by_pid == {**dict.fromkeys((10, 11, 12), "ray 1.1.1.1:6379"), **dict.fromkeys((20, 21, 22), "ray 2.2.2.2:6379")}


def test_an_engine_that_took_ray_by_itself_belongs_to_it():
    by_pid = stacks(
        process(5, "/x/raylet", "--gcs-address=1.1.1.1:6379"), process(6, "vllm", "serve", "m", "-tp", "2"), process(7, "ray::RayWorkerWrapper", ppid=5)
    )
    assert set(by_pid.values()) == {"ray 1.1.1.1:6379"}


def test_what_a_rank_of_ray_starts_belongs_to_ray():
    """As on the node of a worker, where there is no server."""
    tracker = ("/opt/venv/bin/python3", "-c", "from multiprocessing.resource_tracker import main;main(71)")
    by_pid = stacks(process(5, "/x/raylet", "--gcs-address=1.1.1.1:6379"), process(7, "ray::RayWorkerProc", ppid=5), process(8, *tracker, ppid=7))
    assert by_pid == dict.fromkeys((5, 7, 8), "ray 1.1.1.1:6379")


def test_a_loop_of_parents_ends():
    assert stacks(process(5, "VLLM::Worker_TP0", ppid=6), process(6, "VLLM::EngineCore", ppid=5)) == {5: None, 6: None}


def test_tensorfolds_processes_of_two_nodes_meet_at_the_master():
    words = ["tensorfold", "serve", "m", "--tp", "2", "--master", "10.0.0.1"]
    assert stacks(process(5, *words, "--rank", "0")) == {5: "native 10.0.0.1:29551"}
    assert stacks(process(5, *words, "--rank", "1", "--master-port", "7")) == {5: "native 10.0.0.1:7"}


ANY_TEXT = st.text(max_size=60)
NEAR = st.sampled_from(
    ["vllm", "serve", "python3", "-m", "-c", "--", "-", "--x", "--gcs-address=a:1", "ray", "start", "VLLM::Worker", "ray::X", "--nnodes", "2", "-tp", "=", " "]
)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.lists(NEAR | ANY_TEXT, max_size=8), st.sampled_from(["", "a"])), max_size=7))
def test_no_command_line_breaks_it(rows):
    by_pid = {pid: process(pid, *argv, ppid=ppid, container=container) for pid, ppid, argv, container in rows}
    seen = Stacks(by_pid)
    for pid, part in seen.parts.items():
        assert part.kind in classify.KINDS and part.kind != classify.TENANT
        assert seen.of(pid) is None or seen.of(pid).startswith(("ray ", "native ", "local "))


# -- parentage -------------------------------------------------------------------------------------------------------


def child(pid, ppid, *argv, **others):
    return process(pid, *argv, ppid=ppid, **others)


def table(*processes):
    return {entry.pid: entry for entry in processes}


def judged(pid, processes, firsts=(), dead_sessions=()):
    gone = max(processes) + 1000
    with_sessions = {other: entry._replace(session=gone if other in dead_sessions else 0) for other, entry in processes.items()}
    return Stacks(with_sessions, lambda other: other in firsts).parentage(pid)


INIT = child(1, 0, "/sbin/init")
CORE = ("VLLM::EngineCore",)
SERVE = ("/usr/bin/python3", "/usr/local/bin/vllm", "serve", "model")


@pytest.mark.parametrize(
    "server",
    [
        SERVE,
        ("/usr/bin/python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"),
        ("vllm serve /models/m --port 8000",),
        ("VLLM::APIServer_1",),
        ("/opt/ray/core/src/ray/raylet/raylet", "--raylet_socket_name=x"),
        ("python3", "-m", "sglang.launch_server"),
    ],
)
def test_a_living_server_keeps_its_core_and_the_workers_below_it(server):
    processes = table(INIT, child(10, 1, *server), child(11, 10, *CORE), child(12, 11, "VLLM::Worker_TP0"))
    for pid in (11, 12):
        lineage = judged(pid, processes)
        assert not lineage.orphan and "process 10 serves" in lineage.why


def test_without_its_server_a_core_and_its_workers_are_orphans():
    processes = table(INIT, child(11, 1, *CORE), child(12, 11, "VLLM::Worker_TP0"), child(13, 1, "ray::RayWorkerProc.run"))
    assert [judged(pid, processes).orphan for pid in (11, 12, 13)] == [True, True, True]
    assert judged(12, processes).chain == (11, 1)


def test_a_script_that_uses_the_engine_as_a_library_keeps_its_core():
    processes = table(INIT, child(10, 1, "python3", "batch.py"), child(11, 10, *CORE))
    lineage = judged(11, processes)
    assert not lineage.orphan and "python3 batch.py" in lineage.why


def test_a_helper_of_python_is_looked_through():
    fork = ("python3", "-c", "from multiprocessing.forkserver import main; main(3, 4)")
    assert judged(12, table(INIT, child(11, 1, *fork), child(12, 11, *CORE))).orphan
    assert not judged(12, table(INIT, child(10, 1, *SERVE), child(11, 10, *fork), child(12, 11, *CORE))).orphan


@pytest.mark.parametrize(
    "first",
    [
        ("sleep", "infinity"),
        ("/sbin/tini", "--"),
        ("/bin/bash",),
        ("python3", "/opt/gb10/launch/launcher.py", "hold", "--spec", "x"),
        ("/usr/bin/python3", "/usr/local/bin/ray", "start", "--block"),
    ],
)
def test_in_a_container_the_first_process_adopts(first):
    processes = table(INIT, child(500, 400, *first, container="c"), child(511, 500, *CORE, container="c"))
    assert judged(511, processes, firsts=(500,)).orphan
    # The same program elsewhere did not adopt the core: it started it.
    assert not judged(511, processes).orphan


def test_a_container_whose_first_process_may_be_the_engine_itself():
    processes = table(INIT, child(500, 400, "python3", "batch.py", container="c"), child(511, 500, *CORE, container="c"))
    assert not judged(511, processes, firsts=(500,)).orphan
    assert judged(511, processes, firsts=(500,), dead_sessions=(511,)).orphan
    served = table(INIT, child(500, 400, *SERVE, container="c"), child(511, 500, *CORE, container="c"))
    assert not judged(511, served, firsts=(500,), dead_sessions=(511,)).orphan


def test_an_invisible_parent_is_not_an_orphan():
    assert not judged(11, table(child(11, 10, *CORE))).orphan
    assert not judged(11, table(INIT, child(10, 1, *SERVE, state="Z"), child(11, 10, *CORE))).orphan
    assert not judged(11, table(child(11, 0, *CORE))).orphan
    assert not judged(11, table(child(11, 1, *CORE), INIT), firsts=(11,)).orphan


def test_a_loop_ends():
    processes = table(child(11, 12, *CORE), child(12, 11, *CORE))
    assert "no end" in judged(11, processes).why


def test_the_users_own_systemd_adopts():
    processes = table(INIT, child(900, 1, "/usr/lib/systemd/systemd", "--user"), child(911, 900, *CORE))
    assert judged(911, processes).orphan


@given(
    st.lists(
        st.tuples(
            st.integers(0, 8),
            st.integers(0, 8),
            st.sampled_from([CORE, SERVE, ("sleep",), (), ("python3", "x.py"), ("raylet",), ("VLLM::Worker_TP0",)]),
            st.sampled_from("SZDX"),
        ),
        min_size=1,
        max_size=9,
    ),
    st.sets(st.integers(0, 8)),
    st.sets(st.integers(0, 8)),
)
@settings(max_examples=300, deadline=None)
def test_no_process_tree_makes_an_orphan_of_a_core_below_a_living_server(rows, firsts, dead):
    processes = table(*(child(pid, ppid, *argv, state=state) for pid, ppid, argv, state in rows))
    seen = Stacks(processes)
    for pid, entry in processes.items():
        lineage = judged(pid, processes, firsts, dead)
        assert bool(lineage.why) is seen.is_child(entry)
        if lineage.orphan:
            assert not any(seen.is_owner(processes[ancestor]) for ancestor in lineage.chain)
