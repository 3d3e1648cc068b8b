# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is at work, judged by processes and the state of the collection's engines."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._engine import at_work
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._process import process_table


def process(proc, pid, argv, stat=""):
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in argv))
    (proc / str(pid) / "stat").write_text(stat or f"{pid} (x) S 1 " + "0 " * 40)
    (proc / str(pid) / "status").write_text(f"NSpid:\t{pid}\t7\n")


def test_processes_that_serve_are_named(tmp_path):
    process(tmp_path, 10, ["bash"])
    process(tmp_path, 12, ["VLLM::Worker_TP1"])
    process(tmp_path, 9, ["python3", "/usr/local/bin/vllm", "serve", "x" * 100])
    (tmp_path / "13").mkdir()
    texts = at_work.serving(str(tmp_path / "none"), str(tmp_path))
    assert [text.rpartition(" (pid ")[2] for text in texts] == ["9)", "12)"]
    assert len(texts[0]) < 140 and texts[1].startswith("VLLM::Worker_TP1")


def test_the_parts_of_an_engine_have_a_state_and_nothing_else_is_listed(tmp_path):
    for pid, argv, state in (
        (10, ["bash"], "T"),
        (12, ["ray::RayWorkerProc.run"], "T"),
        (13, ["VLLM::Worker_TP1"], "t"),
        (14, ["VLLM::EngineCore"], "D"),
        (15, ["raylet"], "S"),
    ):
        process(tmp_path, pid, argv, f"{pid} (x) {state} 1 " + "0 " * 40)
    # An ended process has a name and no arguments.
    process(tmp_path, 16, [], "16 (VLLM::Worker_TP) Z 1 " + "0 " * 40)
    process(tmp_path, 17, [], "17 (raylet) Z 1 " + "0 " * 40)
    members = at_work.members([10, 12, 13, 14, 15, 16, 17], str(tmp_path))
    assert [(member["text"], member["kind"], member["state"]) for member in members] == [
        ("ray::RayWorkerProc.run (pid 12)", "rank", "stopped"),
        ("VLLM::Worker_TP1 (pid 13)", "rank", "stopped"),
        ("VLLM::EngineCore (pid 14)", "engine_core", "uninterruptible"),
        ("raylet (pid 15)", "raylet", "alive"),
        ("VLLM::Worker_TP (pid 16)", "rank", "ended"),
    ]
    assert at_work.members([], str(tmp_path)) == []


def test_what_a_process_read_and_wrote(tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7/io").write_text("rchar: 3145728\nwchar: 1048576\nsyscr: 9\nsyscw: 9\nread_bytes: 2097152\nwrite_bytes: 1048576\n")
    assert at_work.io_mb(7, str(tmp_path)) == 6
    assert at_work.io_mb(8, str(tmp_path)) is None


def test_two_looks_show_how_much_of_a_core_each_used():
    def look(**used):
        return [{"pid": int(pid[1:]), "start_ticks": ticks, "cpu_s": seconds, "cpu_percent": None} for pid, (ticks, seconds) in used.items()]

    after = at_work.compared(look(p1=(5, 1.0), p2=(5, 7.0)), look(p1=(5, 2.0), p2=(9, 8.0), p3=(5, 1.0)), 2.0)
    # The second pid belongs to another process by now.
    assert [row["cpu_percent"] for row in after] == [50.0, None, None]


def test_a_live_engine_of_any_cluster_is_found_by_its_state(tmp_path):
    proc, state = tmp_path / "proc", tmp_path / "state"
    process(proc, 4711, ["renamed"], "4711 (x) S 1 " + "0 " * 17 + "555 " + "0 " * 30)
    # What its container mounts at /opt/gb10/run is the cluster's own directory of notes.
    (proc / "4711/root").symlink_to(state / "a/root")
    (state / "a/root/opt/gb10/run").mkdir(parents=True)
    (state / "a/run").symlink_to(state / "a/root/opt/gb10/run")
    (state / "b/run").mkdir(parents=True)
    for cluster, ticks in (("a", 555), ("b", 556)):
        note = {"run_id": "20260101T000000Z-000" + cluster, "pid": 7, "start_ticks": ticks, "started_at": 1.0, "container_start": 1, "boot_id": "b"}
        (state / cluster / "run/run.json").write_text(json.dumps({**note, "log_path": "/var/log/gb10/engine/x.log"}))
    assert at_work.serving(str(state), str(proc)) == ["the engine of cluster a (run 20260101T000000Z-000a, pid 4711)"]


def test_a_state_file_that_is_not_json_is_unknown(tmp_path):
    (tmp_path / "a/run").mkdir(parents=True)
    (tmp_path / "a/run/run.json").write_text("{")
    process(tmp_path / "proc", 1, ["init"])
    with pytest.raises(UnknownState):
        at_work.serving(str(tmp_path), str(tmp_path / "proc"))


def test_what_may_not_be_seen_is_not_idle(tmp_path, monkeypatch):
    process(tmp_path, 10, ["bash"])
    scan = process_table.scan
    for hidden in (1, None):
        monkeypatch.setattr(at_work, "scan", lambda *where, hidden=hidden: scan(*where)._replace(hidden=hidden))
        for ask in (
            lambda: at_work.serving(str(tmp_path / "none"), str(tmp_path)),
            lambda: at_work.among([10], None, str(tmp_path)),
            lambda: at_work.within({"ab" * 32}, str(tmp_path)),
        ):
            with pytest.raises(UnknownState, match="may not be seen"):
                ask()


def test_a_refusal_names_three():
    error = at_work.refusal("the fabric is not probed", ["a", "b", "c", "d"], "come back later")
    assert str(error) == "the fabric is not probed while an engine serves: a; b; c and 1 more"
    assert error.remedy == "Stop it first (gb10.cluster.teardown for a cluster of this collection), or come back later."


def child(proc, pid, parent, argv):
    process(proc, pid, argv, f"{pid} (x) S {parent} " + "0 " * 40)


def test_a_foreign_engine_is_not_the_recorded_one(tmp_path):
    child(tmp_path, 10, 1, ["/usr/bin/python3", "/opt/venv/bin/vllm", "serve", "m"])
    child(tmp_path, 11, 10, ["VLLM::EngineCore"])
    child(tmp_path, 20, 1, ["ray::RayWorkerProc.run"])
    child(tmp_path, 30, 1, ["/usr/bin/python3", "/opt/venv/bin/vllm", "serve", "mine"])
    child(tmp_path, 31, 30, ["VLLM::EngineCore"])
    child(tmp_path, 40, 1, ["ray::train"])
    child(tmp_path, 50, 1, ["python3", "batch.py"])
    child(tmp_path, 51, 50, ["VLLM::EngineCore"])

    def pids(texts):
        return [int(text.rpartition(" (pid ")[2][:-1]) for text in texts]

    everybody = [10, 11, 20, 30, 31, 40, 50, 51]
    result = at_work.among(everybody, 10, str(tmp_path))
    assert (pids(result.parts), pids(result.others)) == ([10, 11, 20], [30, 31, 51, 40])
    # Without a note, the engine's process is unknown.
    assert pids(at_work.among(everybody, None, str(tmp_path)).parts) == [20]
