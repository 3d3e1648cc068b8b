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
from ansible_collections.gb10.cluster.plugins.module_utils._memory import note
from ansible_collections.gb10.cluster.plugins.module_utils._records import starts
from ansible_collections.gb10.cluster.plugins.module_utils._samples import memory_return

BOOT = "b6f1e0b4-6a3c-4f0e-9a51-0b0f1f0c2d11"


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A node whose available memory comes from a list, the last entry forever."""
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text(BOOT + "\n")
    (tmp_path / "proc/uptime").write_text("5000.7 1.0\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal: 127600640 kB\nMemFree: 1 kB\nMemAvailable: 1 kB\nBuffers: 1 kB\nCached: 1 kB\n")
    samples = [100000]

    def available(roots):
        return samples.pop(0) if len(samples) > 1 else samples[0]

    monkeypatch.setattr(memory_return, "available_mb", available)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    return types.SimpleNamespace(root=tmp_path, samples=samples, note=tmp_path / "state/gb10/memory.json")


def call(node, *, note=False, check_mode=False, **params):
    defaults = {
        "note": note, "cluster_name": "gb10", "state_dir": str(node.root / "state"), "tolerance_mb": 4096, "settle_mb": 256,
        "wait_timeout": 180, "wait_sleep": 5, "proc_root": str(node.root / "proc"), "expected": {}, "image": "", "docker_socket": "/none", "docker_timeout": 1,
    }  # fmt: skip
    return memory_return.work(types.SimpleNamespace(params=rooted({**defaults, **params}), check_mode=check_mode))


def test_the_memory_of_a_node_may_stand_in_another_file(tmp_path):
    """As for everything else that is read of a node: the record of a start compares with this note."""
    (tmp_path / "meminfo").write_text("MemTotal: 4194304 kB\nMemAvailable: 2097152 kB\nBuffers: 0 kB\nCached: 0 kB\n")
    assert memory_return.available_mb({"proc_root": "/nonexistent", "meminfo": str(tmp_path / "meminfo")}) == 2048


def test_noted_then_back(node):
    assert call(node, note=True)["noted_mb"] == 100000
    assert json.loads(node.note.read_text())["boot_id"] == BOOT
    node.samples[:] = [30000, 60000, 96500]
    result = call(node)
    assert result["verdict"] == "pass" and result["samples_mb"] == [30000, 60000, 96500]


EXPECTED = {"start_digest": "s", "facts": {}, "use": {}, "declared_gib": None, "claims_gib": 0.0, "lacks": ["config.json"]}
START = {
    "image_id": "sha256:1", "profile": "p", "profile_digest": "d", "start_digest": "s", "driver": "580", "kernel": "6.17", "boot_id": "b", "run_id": "r",
    "recorded_at": "2026-11-20T10:00:00Z", "context": 8192, "total_mb": 124610, "before_mb": 100000, "lowest_mb": 20000, "steady_mb": 21000,
}  # fmt: skip


def recorded(node, monkeypatch, images=None, **changes):
    """A node with one recorded start, and a Docker engine with some images."""
    starts.FILE.write(starts.FILE.path_of(str(node.root / "state"), "gb10"), [{**START, **changes}])
    known = {"mine:1": {"Id": "sha256:1"}} if images is None else images
    monkeypatch.setattr(memory_return.EngineApi, "image", lambda _api, name: known.get(name))


def test_the_level_of_the_start_is_noted_with_it(node, monkeypatch):
    recorded(node, monkeypatch)
    result = call(node, note=True, expected=EXPECTED, image="mine:1")
    assert (result["level_mb"], result["level_why"]) == (20000 - 1024, "the start of 2026-11-20 took 78.1 GiB, less 1")
    assert result["msg"] == f"100000 MiB available; the start stays above 18976 MiB: {result['level_why']}"
    content = json.loads(node.note.read_text())
    assert (content["level_mb"], content["level_why"], content["uptime_s"]) == (18976, result["level_why"], 5000)
    assert note.level_of(content, BOOT, 5001.0) == (18976, result["level_why"])


def test_without_a_record_the_plan_sets_the_level(node, monkeypatch):
    calls = []
    monkeypatch.setattr(memory_return.ending, "of_plan", lambda *given: calls.append(given) or note.Level(9000, "the plan"))
    assert call(node, note=True, expected=EXPECTED, image="mine:1")["level_mb"] == 9000 and calls == [(EXPECTED, 124610, 100000)]
    recorded(node, monkeypatch, images={})
    assert call(node, note=True, expected=EXPECTED, image="mine:1")["level_mb"] == 9000, "an image that is not there yet"
    recorded(node, monkeypatch, start_digest="other")
    assert call(node, note=True, expected=EXPECTED, image="mine:1")["level_mb"] == 9000


def test_an_unknown_level_does_not_prevent_a_start(node, monkeypatch):
    result = call(node, note=True)
    assert result["level_mb"] is None and "is unknown: it is unknown what is started" in result["msg"]
    assert json.loads(node.note.read_text())["level_mb"] is None
    assert "without config.json" in call(node, note=True, expected=EXPECTED)["level_why"]
    recorded(node, monkeypatch)

    def silent(_api, _name):
        raise ClusterError("Docker does not answer")

    monkeypatch.setattr(memory_return.EngineApi, "image", silent)
    assert call(node, note=True, expected=EXPECTED, image="mine:1")["level_why"] == "Docker does not answer"
    (node.note.parent / "starts.json").write_text("{")
    result = call(node, note=True, expected=EXPECTED, image="mine:1")
    assert result["level_mb"] is None and "starts.json is not JSON" in result["level_why"] and result["available_mb"] == 100000


def test_a_rise_that_ends_too_early_warns_and_does_not_fail(node):
    call(node, note=True)
    node.samples[:] = [30000, 60000, 66800, 66900]
    result = call(node)
    assert result["verdict"] == "warn"
    assert "33100 MiB have not come back" in result["msg"] and "reboot" in result["remedy"]
    assert result["findings"][0]["id"] == "memory.back"


def test_memory_that_does_not_move_may_still_return(node):
    call(node, note=True)
    node.samples[:] = [30000, 30000, 30010, 30010, 97000]
    result = call(node)
    assert result["verdict"] == "pass" and result["samples_mb"][-1] == 97000


@pytest.mark.parametrize("noted", [None, {"available_mb": 100000, "boot_id": "another"}])
def test_without_a_note_of_this_boot_the_end_of_the_rise_counts(node, noted):
    if noted:
        node.note.parent.mkdir(parents=True)
        node.note.write_text(json.dumps(noted))
    node.samples[:] = [30000, 60000, 60100]
    result = call(node)
    assert result["verdict"] == "unknown" and result["noted_mb"] is None and len(result["samples_mb"]) == 3
    assert "whether that is all is unknown" in result["msg"] and result["remedy"]


def test_check_mode_writes_nothing_and_does_not_wait(node):
    call(node, note=True, check_mode=True)
    assert not node.note.exists()
    node.samples[:] = [1, 2000, 4000]
    assert call(node, check_mode=True)["samples_mb"] == [1]


def test_the_time_is_bounded(node, monkeypatch):
    call(node, note=True)
    node.samples[:] = list(range(0, 90000, 300))
    ticks = iter(range(0, 100000, 3))
    monkeypatch.setattr("time.monotonic", lambda: next(ticks))
    result = call(node, wait_timeout=30)
    assert result["verdict"] == "warn" and len(result["samples_mb"]) < 20


def test_a_broken_note_is_unknown(node):
    node.note.parent.mkdir(parents=True)
    node.note.write_text('{"available_mb": 1')
    with pytest.raises(UnknownState, match="not JSON"):
        call(node)


@pytest.mark.parametrize("params", [{"tolerance_mb": -1}, {"settle_mb": 0}, {"wait_timeout": 0}, {"wait_sleep": 0}])
def test_numbers_out_of_range(node, params):
    with pytest.raises(ClusterError, match="expected"):
        call(node, **params)
