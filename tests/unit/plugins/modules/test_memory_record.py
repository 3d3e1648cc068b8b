# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The record of a start, on a node of files and a Docker engine that answers from a list."""

from __future__ import annotations

import json
import types

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._records import starts
from ansible_collections.gb10.cluster.plugins.modules import memory_record
from node_roots import rooted

BOOT = "b6f1e0b4-6a3c-4f0e-9a51-0b0f1f0c2d11"


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A node whose engine serves, with a note from before its start."""
    proc, state = tmp_path / "proc", tmp_path / "state" / "gb10"
    (proc / "sys/kernel/random").mkdir(parents=True)
    (proc / "sys/kernel/random/boot_id").write_text(BOOT + "\n")
    (proc / "meminfo").write_text("MemTotal: 127600640 kB\nMemFree: 1 kB\nMemAvailable: 21299200 kB\nBuffers: 1 kB\nCached: 1 kB\n")
    state.mkdir(parents=True)
    (state / "memory.json").write_text(json.dumps({"available_mb": 118800, "boot_id": BOOT, "noted_at": 1.0}))
    found = {"worker": {"State": {"Running": True}, "Image": "sha256:1a"}}
    monkeypatch.setattr(memory_record, "find_node_container", lambda _api, _cluster, role: found.get(role))
    monkeypatch.setattr(memory_record.driver_xml, "gpus_or_none", lambda *_arguments: [{"driver_version": "580.159.03"}])
    return types.SimpleNamespace(root=tmp_path, state=state, containers=found, proc=proc)


def call(node, *, check_mode=False, **params):
    given = {
        "cluster_name": "gb10", "state_dir": str(node.state.parent), "profile": "mine", "profile_digest": "9f", "start_digest": "5d",
        "context": 262144, "run_id": "r1",
        "lowest_mb": 20100, "tool_timeout": 30, "docker_socket": "/none", "docker_timeout": 1, "proc_root": str(node.proc),
    }  # fmt: skip
    return memory_record.work(types.SimpleNamespace(params=rooted({**given, **params}), check_mode=check_mode))


def test_a_start_is_recorded_once(node):
    result = call(node)
    record = result["record"]
    figures = [record[name] for name in ("total_mb", "before_mb", "lowest_mb", "steady_mb", "context")]
    assert figures == [124610, 118800, 20100, 20800, 262144]
    assert (record["image_id"], record["driver"], record["profile"], record["boot_id"]) == ("sha256:1a", "580.159.03", "mine", BOOT)
    assert record["start_digest"] == "5d"
    assert starts.FILE.on_node(str(node.state.parent)) == [{**record, "cluster": "gb10"}]
    assert result["msg"] == "the start took 98000 MiB, 98700 at its peak" and not result.get("changed")
    text = (node.state / "starts.json").read_text()
    again = call(node, lowest_mb=5)
    assert (again["reason"], again["record"]) == ("recorded already", record) and (node.state / "starts.json").read_text() == text
    assert len(json.loads(text)["starts"]) == 1
    call(node, run_id="r2")
    assert [one["run_id"] for one in starts.FILE.on_node(str(node.state.parent))] == ["r2"]


def test_without_samples_of_the_start_what_is_left_is_the_least(node):
    assert call(node, lowest_mb=None)["record"]["lowest_mb"] == 20800
    assert call(node, run_id="r2", lowest_mb=30000)["record"]["lowest_mb"] == 20800


@pytest.mark.parametrize("note", [None, {"available_mb": 118800, "boot_id": "another", "noted_at": 1.0}])
def test_without_a_note_of_this_boot_nothing_is_recorded(node, note):
    (node.state / "memory.json").unlink()
    if note:
        (node.state / "memory.json").write_text(json.dumps(note))
    result = call(node)
    assert (result["reason"], result["record"]) == ("no note", None) and not (node.state / "starts.json").exists()


def test_check_mode_writes_nothing(node):
    assert call(node, check_mode=True)["record"]["steady_mb"] == 20800 and not (node.state / "starts.json").exists()


def test_without_a_running_container_there_is_no_start(node):
    node.containers["worker"]["State"]["Running"] = False
    with pytest.raises(ClusterError) as error:
        call(node)
    assert "no running container" in str(error.value) and error.value.remedy


def test_a_length_of_nothing_is_refused(node):
    with pytest.raises(ClusterError, match="context is 0, expected 1 or more"):
        call(node, context=0)
