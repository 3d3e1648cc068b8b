# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The record of what a run was proven to be."""

from __future__ import annotations

import types

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._records import proofs
from ansible_collections.gb10.cluster.plugins.modules import proof_record


def call(place, run_id="r1", failed=(), check_mode=False):
    params = {"cluster_name": "gb10", "state_dir": str(place), "run_id": run_id, "failed": list(failed)}
    return proof_record.work(types.SimpleNamespace(params=params, check_mode=check_mode))


def test_the_last_proof_of_a_run_counts(tmp_path, monkeypatch):
    times = iter(["T1", "T2", "T3", "T4", "T5"])
    monkeypatch.setattr(proof_record, "utc_text", lambda: next(times))
    assert call(tmp_path)["record"] == {"run_id": "r1", "failed": [], "recorded_at": "T1"}
    assert call(tmp_path)["record"]["recorded_at"] == "T2" and "changed" not in call(tmp_path, check_mode=True)
    worse = call(tmp_path, failed=["proof.fabric", "proof.env", "proof.fabric"])
    assert worse["record"] == {"run_id": "r1", "failed": ["proof.env", "proof.fabric"], "recorded_at": "T4"}
    assert worse["msg"] == "run r1 failed proof.env, proof.fabric"
    assert proofs.last(str(tmp_path), "gb10") == {**worse["record"], "error": ""}
    call(tmp_path, run_id="r2")
    assert [one["run_id"] for one in proofs.FILE.on_node(str(tmp_path))] == ["r1", "r2"] and proofs.last(str(tmp_path), "gb10")["run_id"] == "r2"


def test_check_mode_writes_nothing(tmp_path):
    assert call(tmp_path, check_mode=True)["record"]["run_id"] == "r1" and list(tmp_path.iterdir()) == []


def test_old_proofs_go_and_a_file_that_is_none_is_said(tmp_path):
    for number in range(proofs.KEEP + 1):
        call(tmp_path, run_id=f"r{number}")
    known = proofs.FILE.on_node(str(tmp_path))
    assert len(known) == proofs.KEEP and known[0]["run_id"] == "r1"
    (tmp_path / "gb10" / "proofs.json").write_text('{"schema": 1, "proofs": [{"run_id": 1}]}')
    assert "proofs.json" in proofs.last(str(tmp_path), "gb10")["error"]
    with pytest.raises(UnknownState, match="holds no proofs"):
        call(tmp_path)
    assert proofs.last(str(tmp_path), "none") == {}
