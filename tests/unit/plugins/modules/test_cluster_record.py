# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node keeps: starts, proofs, climbs and the declared mode, on a node of files and a Docker engine that answers from a list."""

from __future__ import annotations

import json
import os
import types

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.module_utils._records import climbs, proofs, records, starts
from ansible_collections.gb10.cluster.plugins.modules import cluster_record
from node_roots import rooted


def call(state_dir, check_mode=False, proc_root="/proc", **record):
    params = {
        "cluster_name": "gb10", "state_dir": str(state_dir), "tool_timeout": 30, "docker_socket": "/none", "docker_timeout": 1, "proc_root": proc_root,
        **dict.fromkeys(cluster_record.RECORD), **record,
    }  # fmt: skip
    return cluster_record.work(types.SimpleNamespace(params=rooted(params), check_mode=check_mode))


# --- start --------------------------------------------------------------------------------------------------------------------

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
    containers = {"worker": {"State": {"Running": True}, "Image": "sha256:1a"}}
    monkeypatch.setattr(cluster_record, "find_node_container", lambda _api, _cluster, role: containers.get(role))
    monkeypatch.setattr(cluster_record.driver_xml, "gpus_or_none", lambda *_arguments: [{"driver_version": "580.159.03"}])
    return types.SimpleNamespace(root=tmp_path, state=state, containers=containers, proc=proc)


def start(node, *, check_mode=False, **options):
    given = {"profile": "mine", "profile_digest": "9f", "start_digest": "5d", "context": 262144, "run_id": "r1", "lowest_mb": 20100, "cold_start": None}
    given.update(options)
    return call(node.state.parent, check_mode, start=given, proc_root=str(node.proc))


def test_a_start_is_recorded_once(node):
    result = start(node)
    record = result["record"]
    figures = [record[name] for name in ("total_mb", "before_mb", "lowest_mb", "steady_mb", "context")]
    assert figures == [124610, 118800, 20100, 20800, 262144]
    assert (record["image_id"], record["driver"], record["profile"], record["boot_id"]) == ("sha256:1a", "580.159.03", "mine", BOOT)
    assert record["start_digest"] == "5d"
    assert starts.FILE.on_node(str(node.state.parent)) == [{**record, "cluster": "gb10"}]
    assert result["msg"] == "the start took 98000 MiB, 98700 at its peak" and not result.get("changed")
    text = (node.state / "starts.json").read_text()
    again = start(node, lowest_mb=5)
    assert (again["reason"], again["record"]) == ("recorded already", record) and (node.state / "starts.json").read_text() == text
    assert len(json.loads(text)["starts"]) == 1
    start(node, run_id="r2")
    assert [item["run_id"] for item in starts.FILE.on_node(str(node.state.parent))] == ["r2"]


COLD = {"seconds": {"ready": 700.0}, "compiled": "kept", "last": {}, "reported": {}, "error": ""}


def test_a_start_is_recorded_with_its_seconds(node):
    assert start(node, cold_start=COLD)["record"]["cold_start"] == COLD
    assert starts.FILE.on_node(str(node.state.parent))[0]["cold_start"] == COLD
    assert "cold_start" not in start(node, run_id="r2", cold_start={})["record"] and "cold_start" not in start(node, run_id="r3")["record"]


def test_seconds_that_could_not_be_read_again_are_not_recorded(node):
    with pytest.raises(ClusterError, match="start.cold_start: seconds: not numbers") as error:
        start(node, cold_start={**COLD, "seconds": {"ready": "700"}})
    assert error.value.remedy and not (node.state / "starts.json").exists()


def test_without_samples_of_the_start_what_is_left_is_the_least(node):
    assert start(node, lowest_mb=None)["record"]["lowest_mb"] == 20800
    assert start(node, run_id="r2", lowest_mb=30000)["record"]["lowest_mb"] == 20800


@pytest.mark.parametrize("note", [None, {"available_mb": 118800, "boot_id": "another", "noted_at": 1.0}])
def test_without_a_note_of_this_boot_nothing_is_recorded(node, note):
    (node.state / "memory.json").unlink()
    if note:
        (node.state / "memory.json").write_text(json.dumps(note))
    result = start(node)
    assert (result["reason"], result["record"]) == ("no note", None) and not (node.state / "starts.json").exists()


def test_check_mode_writes_nothing(node):
    assert start(node, check_mode=True)["record"]["steady_mb"] == 20800 and not (node.state / "starts.json").exists()


def test_without_a_running_container_there_is_no_start(node):
    node.containers["worker"]["State"]["Running"] = False
    with pytest.raises(ClusterError) as error:
        start(node)
    assert "no running container" in str(error.value) and error.value.remedy


def test_a_length_of_nothing_is_refused(node):
    with pytest.raises(ClusterError, match="context is 0, expected 1 or more"):
        start(node, context=0)


# --- proof --------------------------------------------------------------------------------------------------------------------


def prove(place, run_id="r1", failed=(), check_mode=False):
    return call(place, check_mode, proof={"run_id": run_id, "failed": list(failed)})


def test_the_last_proof_of_a_run_counts(tmp_path, monkeypatch):
    times = iter(["T1", "T2", "T3", "T4", "T5"])
    monkeypatch.setattr(cluster_record, "utc_text", lambda: next(times))
    assert prove(tmp_path)["record"] == {"run_id": "r1", "failed": [], "recorded_at": "T1"}
    assert prove(tmp_path)["record"]["recorded_at"] == "T2" and "changed" not in prove(tmp_path, check_mode=True)
    worse = prove(tmp_path, failed=["proof.fabric", "proof.env", "proof.fabric"])
    assert worse["record"] == {"run_id": "r1", "failed": ["proof.env", "proof.fabric"], "recorded_at": "T4"}
    assert worse["msg"] == "run r1 failed proof.env, proof.fabric"
    assert proofs.FILE.last(str(tmp_path), "gb10") == {**worse["record"], "error": ""}
    prove(tmp_path, run_id="r2")
    assert [proof["run_id"] for proof in proofs.FILE.on_node(str(tmp_path))] == ["r1", "r2"] and proofs.FILE.last(str(tmp_path), "gb10")["run_id"] == "r2"


def test_check_mode_of_a_proof_writes_nothing(tmp_path):
    assert prove(tmp_path, check_mode=True)["record"]["run_id"] == "r1" and list(tmp_path.iterdir()) == []


def test_old_proofs_go_and_a_file_that_is_none_is_said(tmp_path):
    for number in range(proofs.KEEP + 1):
        prove(tmp_path, run_id=f"r{number}")
    known = proofs.FILE.on_node(str(tmp_path))
    assert len(known) == proofs.KEEP and known[0]["run_id"] == "r1"
    (tmp_path / "gb10" / "proofs.json").write_text('{"schema": 1, "proofs": [{"run_id": 1}]}')
    assert "proofs.json" in proofs.FILE.last(str(tmp_path), "gb10")["error"]
    with pytest.raises(UnknownState, match="is not a list of proofs"):
        prove(tmp_path)
    assert proofs.FILE.last(str(tmp_path), "none") == {}


# --- climb --------------------------------------------------------------------------------------------------------------------

CLIMB = {
    "climb_id": "20261123T140000Z", "image_id": "sha256:1a", "profile": "mine", "profile_digest": "9f", "driver": "580.159.03", "kernel": "6.17",
    "boot_id": BOOT, "began_at": "2026-11-23T14:00:00Z", "outcome": "climbing", "reason": "", "total_mb": 124610, "tenants_mb": 0, "rung": 0,
    "trying": 262144, "tenants": [], "rungs": [],
}  # fmt: skip


def kept(tmp_path, climb, check_mode=False):
    return call(tmp_path, check_mode, climb=climb)


def test_a_climb_is_kept_and_takes_its_own_place(tmp_path):
    path = climbs.FILE.path_of(str(tmp_path), "gb10")
    assert kept(tmp_path, CLIMB, check_mode=True)["path"] == path and climbs.FILE.read(path) == []
    assert "262144 is being tried" in kept(tmp_path, CLIMB)["msg"]
    done = {**CLIMB, "trying": 0, "rung": 262144, "outcome": "top"}
    kept(tmp_path, done)
    assert climbs.FILE.read(path) == [done]


def test_a_climb_that_lacks_something_is_refused(tmp_path):
    for wrong in ({**CLIMB, "rung": "262144"}, {name: value for name, value in CLIMB.items() if name != "boot_id"}, {**CLIMB, "outcome": "done"}):
        with pytest.raises(ClusterError, match="climb: "):
            kept(tmp_path, wrong)
    assert climbs.FILE.read(climbs.FILE.path_of(str(tmp_path), "gb10")) == []


def test_what_a_node_keeps_is_json(tmp_path):
    kept(tmp_path, CLIMB)
    assert json.loads((tmp_path / "gb10" / "ladder.json").read_text())["schema"] == records.SCHEMA


# --- mode ---------------------------------------------------------------------------------------------------------------------

CLUSTERS = {"gb10": {"profile": "pair_tp2", "source": "pair_tp2", "nodes": ["spark-1", "spark-2"]}}


def keep(tmp_path, check_mode=False, **more):
    return call(tmp_path, check_mode, mode={"state": "present", "mode": "off", "phase": "settled", "reason": "", "clusters": {}, "event": "", **more})


def test_a_mode_is_kept_for_everybody_to_read_and_a_second_time_changes_nothing(tmp_path):
    first = keep(tmp_path, mode="cluster", clusters=CLUSTERS, event="cluster is up")
    assert first["changed"] and [event["text"] for event in first["record"]["events"]] == ["cluster is up"]
    assert os.stat(modes.path_of(str(tmp_path))).st_mode & 0o777 == 0o644
    second = keep(tmp_path, mode="cluster", clusters=CLUSTERS, event="cluster is up")
    assert not second["changed"] and second["record"] == first["record"] and second["diff"]["before"] == second["diff"]["after"]


def test_check_mode_of_a_mode_writes_nothing(tmp_path):
    assert keep(tmp_path, check_mode=True)["changed"] and modes.read(str(tmp_path)) is None


def test_what_was_settled_stays_until_something_else_has_settled(tmp_path):
    keep(tmp_path, mode="cluster", clusters=CLUSTERS)
    for phase in ("switching", "failed", "switching"):
        record = keep(tmp_path, mode="singles", phase=phase, reason="x" if phase == "failed" else "")["record"]
        assert (record["previous"]["mode"], record["previous"]["clusters"]) == ("cluster", CLUSTERS)
    settled = keep(tmp_path, mode="singles")["record"]
    assert settled["previous"]["mode"] == "cluster" and keep(tmp_path)["record"]["previous"]["mode"] == "singles"


def test_only_the_last_events_stay(tmp_path):
    for number in range(modes.EVENTS + 5):
        keep(tmp_path, reason=str(number), event=f"event {number}")
    assert [event["text"] for event in modes.read(str(tmp_path))["events"]] == [f"event {number}" for number in range(5, modes.EVENTS + 5)]


def test_a_mode_is_forgotten(tmp_path):
    assert not keep(tmp_path, state="absent")["changed"]
    keep(tmp_path)
    assert keep(tmp_path, state="absent")["changed"] and modes.read(str(tmp_path)) is None


def test_a_bring_up_is_recorded_and_its_teardown_removes_that(tmp_path):
    up = keep(tmp_path, state="served", mode=None, clusters=CLUSTERS, event="serve brought up gb10")
    assert up["changed"] and (up["record"]["mode"], up["record"]["phase"], up["record"]["clusters"]) == ("serve", "settled", CLUSTERS)
    assert not keep(tmp_path, state="served", clusters=CLUSTERS, event="again")["changed"]
    other = {"spark-1": {**CLUSTERS["gb10"], "nodes": ["spark-1"]}}
    assert keep(tmp_path, state="served", clusters=other)["record"]["clusters"] == other
    # A teardown of something else leaves it.
    assert not keep(tmp_path, state="ended", clusters={"gb10": {}})["changed"]
    assert keep(tmp_path, state="ended", clusters={"spark-1": {}})["changed"] and modes.read(str(tmp_path)) is None
    assert not keep(tmp_path, state="ended", clusters={"spark-1": {}})["changed"]


def test_a_declared_mode_stays_through_a_bring_up_and_a_teardown(tmp_path):
    before = keep(tmp_path, mode="day", clusters=CLUSTERS)["record"]
    for state in ("served", "ended"):
        kept = keep(tmp_path, state=state, clusters=CLUSTERS)
        assert not kept["changed"] and kept["record"] == before


@pytest.mark.parametrize("wrong", [{"mode": "Day"}, {"mode": ""}, {"phase": "gone"}])
def test_a_mode_has_a_name_and_a_known_phase(tmp_path, wrong):
    with pytest.raises(ClusterError, match=f"the record would be wrong: {next(iter(wrong))} is"):
        keep(tmp_path, **wrong)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 1}', '{"schema": 2, "mode": "off"}', '{"schema": 1, "mode": "both", "phase": "settled"}'])
def test_a_record_that_is_none_is_not_taken_for_no_mode(tmp_path, text):
    (tmp_path / "mode.json").write_text(text, encoding="utf-8")
    with pytest.raises(UnknownState, match="mode.json") as caught:
        keep(tmp_path)
    assert "playbook mode" in caught.value.remedy


def test_a_record_that_lacks_something_is_refused(tmp_path):
    with pytest.raises(ClusterError, match="nodes: missing"):
        keep(tmp_path, mode="cluster", clusters={"gb10": {"profile": "a", "source": "a"}})
