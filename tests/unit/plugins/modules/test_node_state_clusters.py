# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node's declared mode and its clusters."""

from __future__ import annotations

import json
import types

from ansible_collections.gb10.cluster.plugins.module_utils._docker import engine_api
from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.modules import node_state_info


def entry(cluster, role, state="running"):
    labels = {engine_api.LABEL_OWNER: engine_api.OWNER, "io.gb10.cluster": cluster, "io.gb10.role": role}
    return {"Id": f"{cluster}-{role}", "Image": "image", "State": state, "Status": state, "Labels": labels, "Names": [f"/gb10-{cluster}-{role}"]}


def look(tmp_path, monkeypatch, *entries):
    monkeypatch.setattr(node_state_info.EngineApi, "containers", lambda _self, _labels: list(entries))
    params = {
        "want": ["mode", "lease", "clusters", "units", "companions_unit"], "strict": True, "state_dir": str(tmp_path), "log_dir": str(tmp_path / "log"),
        "docker_socket": "/none", "docker_timeout": 1, "roots": {"proc_root": "/proc", "etc_root": str(tmp_path / "etc")},
    }  # fmt: skip
    return node_state_info.work(types.SimpleNamespace(params=params, check_mode=False))


def test_clusters_of_a_node_are_listed_by_name_whether_they_run_or_not(tmp_path, monkeypatch):
    shape = {"mode": "singles", "phase": modes.SETTLED, "reason": "", "clusters": {}}
    modes.write(str(tmp_path), modes.following(None, shape, "2026-11-24T02:10:00Z"))
    state = look(tmp_path, monkeypatch, entry("gb10", "worker", "exited"), entry("spark-2", "head"), entry("tts", "companion"))
    assert list(state["clusters"]) == ["gb10", "spark-2"] and state["mode"]["mode"] == "singles"
    assert [(item["role"], item["running"], item["live"]) for item in state["clusters"].values()] == [("worker", False, False), ("head", True, False)]


def test_an_engine_whose_note_cannot_be_read_counts_as_live_while_its_container_runs(tmp_path, monkeypatch):
    run = tmp_path / "gb10" / "run"
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps([]), encoding="utf-8")
    assert look(tmp_path, monkeypatch, entry("gb10", "head"))["clusters"]["gb10"]["live"]
    assert not look(tmp_path, monkeypatch, entry("gb10", "head", "exited"))["clusters"]["gb10"]["live"]


def test_a_node_where_no_mode_was_declared_has_none(tmp_path, monkeypatch):
    state = look(tmp_path, monkeypatch)
    assert state["mode"] is None and state["clusters"] == state["lease"] == {} and state["units"] == state["errors"] == []


def test_units_are_listed_by_their_cluster_also_without_a_container(tmp_path, monkeypatch):
    folder = tmp_path / "etc/systemd/system"
    folder.mkdir(parents=True)
    for name in ("gb10-engine-spark-2.service", "gb10-engine-a.b.service", "gb10-engine-spark-1.timer", "gb10-recover-gb10.service", "gb10-engine-x.service.d"):
        (folder / name).write_text("", encoding="utf-8")
    assert look(tmp_path, monkeypatch)["units"] == ["a.b", "spark-2"]
