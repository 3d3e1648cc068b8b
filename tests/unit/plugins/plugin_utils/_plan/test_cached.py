# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A model in a hub cache of the controller, as a memory plan sees it."""

from __future__ import annotations

import json

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.plugin_utils._plan import cached, planning

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = {"architectures": ["X"], "num_hidden_layers": 24, "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000}


@pytest.fixture
def snapshot(tmp_path):
    path = tmp_path / "hub/models--org--name/snapshots" / COMMIT
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(CONFIG))
    return path


def facts(home, **given):
    return cached.profile_of("org/name", str(home), COMMIT, **given)["memory"]["config"]


def test_the_index_says_how_large_the_weights_are(tmp_path, snapshot):
    (snapshot / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 20_000_000_000}}))
    (snapshot / "a.safetensors").write_bytes(b"x")
    assert facts(tmp_path)["checkpoint_gb"] == 20.0
    # Of an index without a size the files may be a part.
    (snapshot / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}}))
    assert "checkpoint_gb" not in facts(tmp_path)


def test_without_an_index_the_files_that_are_there_count(tmp_path, snapshot):
    assert "checkpoint_gb" not in facts(tmp_path)
    with open(snapshot / "model.safetensors", "wb") as file:
        file.truncate(8_000_000_000)
    assert facts(tmp_path)["checkpoint_gb"] == 8.0


def test_a_plan_comes_of_it(tmp_path, snapshot):
    (snapshot / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 20_000_000_000}}))
    profile = cached.profile_of("org/name", str(tmp_path), COMMIT, 2)
    found = planning.memory_plan(profile, serve={"gpu_memory_utilization": 0.7, "max_num_seqs": 8, "max_model_len": 8192})
    assert found["verdict"] == "fits" and len(found["nodes"]) == 2 and COMMIT in found["facts"]["source"]


@pytest.mark.parametrize(
    "repo, revision, ranks, words",
    [
        ("name", COMMIT, 1, "expected org/name"),
        ("../../x", COMMIT, 1, "expected org/name"),
        ("org/name", COMMIT, 0, "expected 1 to 16"),
        ("org/other", None, 1, "no config.json of org/other, expected"),
        ("org/name", "f" * 40, 1, "no config.json of org/name at ffff"),
    ],
)
def test_what_is_not_there_is_said(tmp_path, snapshot, repo, revision, ranks, words):
    with pytest.raises(ClusterError) as error:
        cached.profile_of(repo, str(tmp_path), revision, ranks)
    assert words in str(error.value) and error.value.remedy


def test_a_config_that_is_not_json_is_reported(tmp_path, snapshot):
    (snapshot / "config.json").write_text("{")
    with pytest.raises(ClusterError, match="cannot be parsed"):
        facts(tmp_path)
