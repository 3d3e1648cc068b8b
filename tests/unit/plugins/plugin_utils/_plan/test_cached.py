# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The facts that a memory plan reads from a model in the controller's hub cache."""

from __future__ import annotations

import json

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.plugin_utils._plan import cached, planning

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = {"architectures": ["X"], "num_hidden_layers": 24, "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000}


@pytest.fixture
def snapshot(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    path = tmp_path / "hub/models--org--name/snapshots" / COMMIT
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(CONFIG))
    return path


def facts():
    return cached.profile_of(f"org/name@{COMMIT}")["memory"]["config"]


def test_the_index_says_how_large_the_weights_are(tmp_path, snapshot):
    (snapshot / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 20_000_000_000}}))
    (snapshot / "a.safetensors").write_bytes(b"x")
    assert facts()["checkpoint_gb"] == 20.0
    # With an index that has no size, the files may be incomplete.
    (snapshot / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}}))
    assert "checkpoint_gb" not in facts()


def test_without_an_index_the_files_that_are_there_count(tmp_path, snapshot):
    assert "checkpoint_gb" not in facts()
    with open(snapshot / "model.safetensors", "wb") as file:
        file.truncate(8_000_000_000)
    assert facts()["checkpoint_gb"] == 8.0


def test_a_plan_comes_of_it(tmp_path, snapshot):
    (snapshot / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 20_000_000_000}}))
    profile = cached.profile_of(f"org/name@{COMMIT}", 2)
    planned = planning.memory_plan(profile, serve={"gpu_memory_utilization": 0.7, "max_num_seqs": 8, "max_model_len": 8192})
    assert planned["verdict"] == "fits" and len(planned["nodes"]) == 2 and COMMIT in planned["facts"]["source"]


@pytest.mark.parametrize(
    "model, nodes, words",
    [
        (f"name@{COMMIT}", 1, "expected org/name"),
        ("../../x", 1, "expected org/name"),
        ("org/name", [121.7] * 17, "expected 1 to 16"),
        ("org/other", 1, "no config.json of org/other, expected"),
        (f"org/name@{'f' * 40}", 1, "no config.json of org/name at ffff"),
    ],
)
def test_what_is_not_there_is_said(snapshot, model, nodes, words):
    with pytest.raises(ClusterError) as error:
        cached.profile_of(model, nodes)
    assert words in str(error.value) and error.value.remedy


def test_a_config_that_is_not_json_is_reported(tmp_path, snapshot):
    (snapshot / "config.json").write_text("{")
    with pytest.raises(ClusterError, match="cannot be parsed"):
        facts()
