# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node keeps of its declared mode."""

from __future__ import annotations

import json
import os
import types

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._docker import engine_api
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.modules import mode_info, mode_record

CLUSTERS = {"gb10": {"profile": "pair_tp2", "source": "pair_tp2", "nodes": ["spark-1", "spark-2"]}}


def keep(tmp_path, check_mode=False, **more):
    params = {"state": "present", "state_dir": str(tmp_path), "mode": "off", "phase": "settled", "reason": "", "clusters": {}, "event": "", **more}
    return mode_record.work(types.SimpleNamespace(params=params, check_mode=check_mode))


def test_a_mode_is_kept_for_everybody_to_read_and_a_second_time_changes_nothing(tmp_path):
    first = keep(tmp_path, mode="cluster", clusters=CLUSTERS, event="cluster is up")
    assert first["changed"] and [one["text"] for one in first["record"]["events"]] == ["cluster is up"]
    assert os.stat(modes.path_of(str(tmp_path))).st_mode & 0o777 == 0o644
    second = keep(tmp_path, mode="cluster", clusters=CLUSTERS, event="cluster is up")
    assert not second["changed"] and second["record"] == first["record"] and second["diff"]["before"] == second["diff"]["after"]


def test_check_mode_writes_nothing(tmp_path):
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
    assert [one["text"] for one in modes.read(str(tmp_path))["events"]] == [f"event {number}" for number in range(5, modes.EVENTS + 5)]


def test_a_mode_is_forgotten(tmp_path):
    assert not keep(tmp_path, state="absent")["changed"]
    keep(tmp_path)
    assert keep(tmp_path, state="absent")["changed"] and modes.read(str(tmp_path)) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 1}', '{"schema": 2, "mode": "off"}', '{"schema": 1, "mode": "both", "phase": "settled"}'])
def test_a_record_that_is_none_is_not_taken_for_no_mode(tmp_path, text):
    (tmp_path / "mode.json").write_text(text, encoding="utf-8")
    with pytest.raises(UnknownState, match="mode.json") as caught:
        keep(tmp_path)
    assert "playbook mode" in caught.value.remedy


def test_a_record_that_lacks_something_is_refused(tmp_path):
    with pytest.raises(ClusterError, match="nodes: missing"):
        keep(tmp_path, mode="cluster", clusters={"gb10": {"profile": "a", "source": "a"}})


# --- mode_info ----------------------------------------------------------------------------------------------------------------


def entry(cluster, role, state="running"):
    labels = {engine_api.LABEL_OWNER: engine_api.OWNER, "io.gb10.cluster": cluster, "io.gb10.role": role}
    return {"Id": f"{cluster}-{role}", "Image": "image", "State": state, "Status": state, "Labels": labels, "Names": [f"/gb10-{cluster}-{role}"]}


def look(tmp_path, monkeypatch, *entries):
    monkeypatch.setattr(mode_info.EngineApi, "containers", lambda _self, _labels: list(entries))
    params = {"state_dir": str(tmp_path), "log_dir": str(tmp_path / "log"), "docker_socket": "/none", "docker_timeout": 1, "roots": {"proc_root": "/proc"}}
    return mode_info.work(types.SimpleNamespace(params=params, check_mode=False))


def test_clusters_of_a_node_are_told_by_name_whether_they_run_or_not(tmp_path, monkeypatch):
    keep(tmp_path, mode="singles")
    found = look(tmp_path, monkeypatch, entry("gb10", "worker", "exited"), entry("spark-2", "head"), entry("tts", "companion"))
    assert list(found["clusters"]) == ["gb10", "spark-2"] and found["record"]["mode"] == "singles"
    assert [(one["role"], one["running"], one["live"]) for one in found["clusters"].values()] == [("worker", False, False), ("head", True, False)]


def test_an_engine_whose_note_cannot_be_read_counts_as_live_while_its_container_runs(tmp_path, monkeypatch):
    run = tmp_path / "gb10" / "run"
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps([]), encoding="utf-8")
    assert look(tmp_path, monkeypatch, entry("gb10", "head"))["clusters"]["gb10"]["live"]
    assert not look(tmp_path, monkeypatch, entry("gb10", "head", "exited"))["clusters"]["gb10"]["live"]


def test_a_node_where_no_mode_was_declared_has_none(tmp_path, monkeypatch):
    found = look(tmp_path, monkeypatch)
    assert found["record"] is None and found["clusters"] == found["lease"] == {} and found["msg"] == "no mode is declared; no cluster"
