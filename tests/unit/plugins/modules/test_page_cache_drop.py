# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Dropping caches, on a proc tree that reacts as the kernel does."""

from __future__ import annotations

import errno
import os
import types

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult
from ansible_collections.gb10.cluster.plugins.modules import page_cache_drop

FULL = "MemTotal: 131072000 kB\nMemFree: 8192000 kB\nMemAvailable: 102400000 kB\nBuffers: 0 kB\nCached: 81920000 kB\nSReclaimable: 1024000 kB\n"
FULL += "Dirty: 10240 kB\n"
EMPTY = FULL.replace("MemFree: 8192000", "MemFree: 90112000").replace("Cached: 81920000", "Cached: 102400")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A proc tree whose meminfo changes when drop_caches is written, and a sync that is only counted."""
    (tmp_path / "sys/vm").mkdir(parents=True)
    (tmp_path / "meminfo").write_text(FULL)
    (tmp_path / "sys/vm/drop_caches").write_text("")
    said = []

    def drop(path, level, real=page_cache_drop.drop):
        real(path, level)
        (tmp_path / "meminfo").write_text(EMPTY)

    def run_tool(argv, timeout):
        said.append(argv)
        return ToolResult(0, "", "")

    monkeypatch.setattr(page_cache_drop, "drop", drop)
    monkeypatch.setattr(page_cache_drop, "run_tool", run_tool)
    return types.SimpleNamespace(root=tmp_path, said=said, drop_caches=tmp_path / "sys/vm/drop_caches")


def call(machine, *, check_mode=False, **params):
    defaults = {"level": 1, "min_reclaimable_mb": 1024, "sync": True, "sync_timeout": 5, "proc_root": str(machine.root), "drop_caches_path": None}
    return page_cache_drop.work(types.SimpleNamespace(params={**defaults, **params}, check_mode=check_mode))


@pytest.mark.parametrize("level", [1, 2, 3])
def test_drops_when_it_pays(machine, level):
    result = call(machine, level=level, min_reclaimable_mb=900)
    assert result["changed"] and result["dropped"] and result["actions"] == [f"drop caches, level {level}"]
    assert machine.drop_caches.read_text() == f"{level}\n"
    assert machine.said == [["sync"]]
    assert result["freed_mb"] == 80000 and "80000 MiB" in result["msg"]
    assert result["before"]["cached_mb"] == 80000 and result["after"]["cached_mb"] == 100


def test_a_second_run_changes_nothing(machine):
    assert call(machine)["changed"]
    second = call(machine)
    assert not second["changed"] and second["before"] == second["after"] and second["freed_mb"] == 0
    assert "it pays from 1024 MiB" in second["reason"]


def test_check_mode_predicts_and_touches_nothing(machine):
    result = call(machine, check_mode=True)
    assert result["changed"] and result["predicted_mb"] == 79990
    assert machine.drop_caches.read_text() == "" and machine.said == []
    assert result["diff"] == {"before": {"reclaimable_mb": 79990}, "after": {"reclaimable_mb": 0}}


def test_sync_can_be_left_out(machine):
    assert call(machine, sync=False)["changed"] and machine.said == []


def test_another_file_can_be_named(machine):
    other = machine.root / "host_drop_caches"
    other.write_text("")
    call(machine, drop_caches_path=str(other))
    assert other.read_text() == "1\n" and machine.drop_caches.read_text() == ""


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_missing_permission_is_said_before_anything_is_done(machine, monkeypatch, check_mode):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ClusterError, match="no permission") as caught:
        call(machine, check_mode=check_mode)
    assert "become: true" in caught.value.remedy and machine.said == []


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_refusal_by_the_kernel_names_the_remedy(machine, monkeypatch, number):
    def refuse(*_args):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(ClusterError, match="cannot be written") as caught:
        call(machine)
    assert "become: true" in caught.value.remedy


def test_a_machine_without_the_file(machine):
    machine.drop_caches.unlink()
    with pytest.raises(ClusterError, match="does not exist"):
        call(machine)


def test_a_sync_that_fails_stops(machine, monkeypatch):
    monkeypatch.setattr(page_cache_drop, "run_tool", lambda argv, timeout: ToolResult(1, "", "sync: error"))
    with pytest.raises(ClusterError, match="sync failed with status 1: sync: error"):
        call(machine)
    assert machine.drop_caches.read_text() == ""


def test_an_unreadable_meminfo_is_unknown(machine):
    (machine.root / "meminfo").write_text("garble\n")
    with pytest.raises(UnknownState):
        call(machine)
