# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The wait for memory, on a meminfo that moves from sample to sample."""

from __future__ import annotations

import json
import types

import pytest
from node_roots import rooted

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.modules import memory_watch

BOOT = "b6f1e0b4-6a3c-4f0e-9a51-0b0f1f0c2d11"


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A node whose available memory comes from a list, the last entry forever."""
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text(BOOT + "\n")
    samples = [100000]

    def available(roots):
        return samples.pop(0) if len(samples) > 1 else samples[0]

    monkeypatch.setattr(memory_watch, "available_mb", available)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    return types.SimpleNamespace(root=tmp_path, samples=samples, note=tmp_path / "state/gb10/memory.json")


def call(node, state, *, check_mode=False, **params):
    defaults = {
        "state": state, "cluster_name": "gb10", "state_dir": str(node.root / "state"), "tolerance_mb": 4096, "settle_mb": 256,
        "wait_timeout": 180, "wait_sleep": 5, "proc_root": str(node.root / "proc"),
    }  # fmt: skip
    return memory_watch.work(types.SimpleNamespace(params=rooted({**defaults, **params}), check_mode=check_mode))


def test_the_memory_of_a_node_may_stand_in_another_file(tmp_path):
    """As for everything else that is read of a node: the record of a start compares with this note."""
    (tmp_path / "meminfo").write_text("MemTotal: 4194304 kB\nMemAvailable: 2097152 kB\nBuffers: 0 kB\nCached: 0 kB\n")
    assert memory_watch.available_mb({"proc_root": "/nonexistent", "meminfo": str(tmp_path / "meminfo")}) == 2048


def test_noted_then_back(node):
    assert call(node, "noted")["noted_mb"] == 100000
    assert json.loads(node.note.read_text())["boot_id"] == BOOT
    node.samples[:] = [30000, 60000, 96500]
    result = call(node, "back")
    assert result["verdict"] == "pass" and result["samples_mb"] == [30000, 60000, 96500]


def test_a_rise_that_ends_too_early_warns_and_does_not_fail(node):
    call(node, "noted")
    node.samples[:] = [30000, 60000, 66800, 66900]
    result = call(node, "back")
    assert result["verdict"] == "warn"
    assert "33100 MiB have not come back" in result["msg"] and "reboot" in result["remedy"]
    assert result["findings"][0]["id"] == "memory.back"


def test_memory_that_only_lies_still_may_come_yet(node):
    call(node, "noted")
    node.samples[:] = [30000, 30000, 30010, 30010, 97000]
    result = call(node, "back")
    assert result["verdict"] == "pass" and result["samples_mb"][-1] == 97000


@pytest.mark.parametrize("note", [None, {"available_mb": 100000, "boot_id": "another"}])
def test_without_a_note_of_this_boot_the_end_of_the_rise_counts(node, note):
    if note:
        node.note.parent.mkdir(parents=True)
        node.note.write_text(json.dumps(note))
    node.samples[:] = [30000, 60000, 60100]
    result = call(node, "back")
    assert result["verdict"] == "unknown" and result["noted_mb"] is None and len(result["samples_mb"]) == 3
    assert "whether that is all is unknown" in result["msg"] and result["remedy"]


def test_check_mode_writes_nothing_and_does_not_wait(node):
    call(node, "noted", check_mode=True)
    assert not node.note.exists()
    node.samples[:] = [1, 2000, 4000]
    assert call(node, "back", check_mode=True)["samples_mb"] == [1]


def test_the_time_is_bounded(node, monkeypatch):
    call(node, "noted")
    node.samples[:] = list(range(0, 90000, 300))
    ticks = iter(range(0, 100000, 3))
    monkeypatch.setattr("time.monotonic", lambda: next(ticks))
    result = call(node, "back", wait_timeout=30)
    assert result["verdict"] == "warn" and len(result["samples_mb"]) < 20


def test_a_broken_note_is_unknown(node):
    node.note.parent.mkdir(parents=True)
    node.note.write_text('{"available_mb": 1')
    with pytest.raises(UnknownState, match="no JSON"):
        call(node, "back")


@pytest.mark.parametrize("params", [{"tolerance_mb": -1}, {"settle_mb": 0}, {"wait_timeout": 0}, {"wait_sleep": 0}])
def test_numbers_out_of_range(node, params):
    with pytest.raises(ClusterError, match="expected"):
        call(node, "back", **params)
