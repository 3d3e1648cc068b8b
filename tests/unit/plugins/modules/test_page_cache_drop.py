# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Dropping caches, on a proc tree that reacts as the kernel does, and on real files."""

from __future__ import annotations

import errno
import os
import pathlib
import signal
import types

import process_files
import pytest
from node_roots import rooted

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._memory import page_cache
from ansible_collections.gb10.cluster.plugins.modules import page_cache_drop

FULL = "MemTotal: 131072000 kB\nMemFree: 8192000 kB\nMemAvailable: 102400000 kB\nBuffers: 0 kB\nCached: 81920000 kB\nSReclaimable: 1024000 kB\n"
FULL += "Dirty: 10240 kB\nWriteback: 0 kB\nHugepagesize: 2048 kB\n"
EMPTY = FULL.replace("MemFree: 8192000", "MemFree: 90112000").replace("Cached: 81920000", "Cached: 102400")

#: 10 blocks of 2 MiB and 5 of 4 MiB, on a machine with pages of 4 KiB; more of them after compaction.
SCATTERED = "Node 0, zone   Normal  900  800  700  600  500  400  300  200  100  10  5\n"
TOGETHER = SCATTERED.replace("10  5", "20  5")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A proc tree that changes when the kernel's files are written to. Children are called in place, and what they do is noted."""
    (tmp_path / "sys/vm").mkdir(parents=True)
    (tmp_path / "meminfo").write_text(FULL)
    (tmp_path / "buddyinfo").write_text(SCATTERED)
    for name in ("drop_caches", "compact_memory"):
        (tmp_path / "sys/vm" / name).write_text("")
    messages = []

    def bounded(doing, work, timeout):
        messages.append(doing)
        return work()

    def write_setting(path, text, real=page_cache.write_setting):
        real(path, text)
        compacted = pathlib.Path(path).name == "compact_memory"
        (tmp_path / ("buddyinfo" if compacted else "meminfo")).write_text(TOGETHER if compacted else EMPTY)

    monkeypatch.setattr(page_cache, "bounded", bounded)
    monkeypatch.setattr(page_cache, "write_setting", write_setting)
    process_files.add(tmp_path, 1, "/sbin/init", ppid=0)
    monkeypatch.setattr(page_cache_drop.os, "sync", lambda: messages.append("synced"))
    return types.SimpleNamespace(root=tmp_path, said=messages, drop_caches=tmp_path / "sys/vm/drop_caches", compact=tmp_path / "sys/vm/compact_memory")


def call(machine, *, check_mode=False, **params):
    defaults = {
        "level": 1, "paths": [], "max_files": 100, "min_reclaimable_mb": 1024, "sync": True, "sync_timeout": 5, "drop_timeout": 30, "compact": False,
        "if_serving": "fail", "state_dir": str(machine.root / "state"), "proc_root": str(machine.root), "drop_caches_path": None,
    }  # fmt: skip
    return page_cache_drop.work(types.SimpleNamespace(params=rooted({**defaults, **params}), check_mode=check_mode))


# -- the whole machine -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [1, 2, 3])
def test_drops_when_it_pays(machine, level):
    result = call(machine, level=level, min_reclaimable_mb=900)
    assert result["changed"] and result["dropped"] and result["actions"] == [f"drop caches, level {level}"]
    assert machine.drop_caches.read_text() == f"{level}\n"
    assert machine.said[:2] == ["writing dirty pages", "synced"] and result["sync"] == "done"
    assert result["freed_mb"] == 80000 and "80000 MiB" in result["msg"]
    assert result["freed_cache_mb"] == (0 if level == 2 else 79900)
    assert result["before"]["cached_mb"] == 80000 and result["after"]["cached_mb"] == 100
    assert result["verdict"] == "pass" and result["files"] is None and result["compaction"] is None and machine.compact.read_text() == ""


def test_a_second_run_changes_nothing(machine):
    assert call(machine)["changed"]
    second = call(machine)
    assert not second["changed"] and second["before"] == second["after"] and second["freed_mb"] == 0
    assert "it pays from 1024 MiB" in second["reason"]
    assert second["diff"] == {"before": {"reclaimable_mb": 90}, "after": {"reclaimable_mb": 90}}


def test_check_mode_predicts_and_touches_nothing(machine):
    result = call(machine, check_mode=True, compact=True)
    assert result["changed"] and result["predicted_mb"] == 79990
    assert machine.drop_caches.read_text() == "" and machine.compact.read_text() == "" and machine.said == []
    assert result["diff"] == {"before": {"reclaimable_mb": 79990}, "after": {"reclaimable_mb": 0}}


def test_sync_can_be_left_out(machine):
    result = call(machine, sync=False)
    assert result["changed"] and result["sync"] == "none" and "synced" not in machine.said


def test_another_file_can_be_named(machine):
    other = machine.root / "host_drop_caches"
    other.write_text("")
    call(machine, drop_caches_path=str(other))
    assert other.read_text() == "1\n" and machine.drop_caches.read_text() == ""


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize(("denied", "compact"), [("drop_caches", False), ("compact_memory", True)])
def test_a_missing_permission_is_said_before_anything_is_done(machine, monkeypatch, check_mode, denied, compact):
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith(denied))
    with pytest.raises(ClusterError, match=f"{denied} cannot be written: no permission") as caught:
        call(machine, check_mode=check_mode, compact=compact)
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


def test_a_kernel_that_cannot_compact(machine):
    machine.compact.unlink()
    with pytest.raises(ClusterError, match="compact_memory does not exist"):
        call(machine, compact=True)
    assert machine.drop_caches.read_text() == ""


def test_an_unreadable_meminfo_is_unknown(machine):
    (machine.root / "meminfo").write_text("garble\n")
    with pytest.raises(UnknownState):
        call(machine)


# -- what hangs ------------------------------------------------------------------------------------------------------


def test_a_sync_that_hangs_does_not_keep_clean_pages_from_being_dropped(machine, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(page_cache_drop.os, "sync", signal.pause)
    result = call(machine, sync_timeout=0.2)
    assert result["sync"] == "timeout" and result["changed"] and machine.drop_caches.read_text() == "1\n"
    assert result["verdict"] == "warn" and [entry["id"] for entry in result["findings"]] == ["page_cache.sync"]
    assert "10 MiB dirty" in result["msg"] and "clean pages were still dropped" in result["msg"] and "journalctl -k" in result["remedy"]
    assert result["findings"][0]["measured"] == 10


def test_a_drop_that_hangs_is_unknown(machine, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(page_cache, "write_setting", lambda path, text: signal.pause())
    with pytest.raises(UnknownState, match="drop_caches did not end within 0.2 s"):
        call(machine, sync=False, drop_timeout=0.2)


# -- compaction ------------------------------------------------------------------------------------------------------


def test_compaction_follows_a_drop_and_is_measured(machine, monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda name: 4096)
    result = call(machine, compact=True)
    assert result["actions"] == ["drop caches, level 1", "compact memory"] and machine.compact.read_text() == "1\n"
    assert result["compaction"] == {"huge_page_kb": 2048, "before_mb": 40, "after_mb": 60}
    again = call(machine, compact=True)
    assert not again["changed"] and again["compaction"] is None


def test_an_unreadable_buddyinfo_is_unknown(machine):
    (machine.root / "buddyinfo").write_text("garble\n")
    with pytest.raises(UnknownState, match="buddyinfo"):
        call(machine, compact=True)


# -- never while an engine serves ------------------------------------------------------------------------------------


@pytest.fixture
def engine(machine):
    process_files.add(machine.root, 77, "VLLM::EngineCore")


@pytest.mark.parametrize("check_mode", [False, True])
def test_refuses_while_an_engine_serves(machine, engine, check_mode):
    with pytest.raises(ClusterError, match="while an engine serves: VLLM::EngineCore .pid 77.") as caught:
        call(machine, check_mode=check_mode)
    assert caught.value.verdict == "block" and "teardown" in caught.value.remedy and caught.value.details["serving"] == ["VLLM::EngineCore (pid 77)"]
    assert machine.drop_caches.read_text() == "" and machine.said == []


def test_or_skips_and_says_so(machine, engine):
    result = call(machine, if_serving="skip")
    assert not result["changed"] and not result["dropped"] and "VLLM::EngineCore" in result["reason"] and result["serving"]
    assert machine.drop_caches.read_text() == ""


def test_an_engine_is_no_matter_where_nothing_would_be_dropped(machine, engine):
    result = call(machine, min_reclaimable_mb=1000000)
    assert not result["changed"] and result["serving"] == []


# -- files alone -----------------------------------------------------------------------------------------------------

#: What the files hold: 3 GiB, 1 GiB of it dirty.
HELD = {"files": 2, "size": 4 << 30, "cached": 3 << 30, "dirty": 1 << 30, "unmeasured": 0, "unreadable": 0, "special": 0, "absent": []}
HELD |= {"refused": [], "ended_by": ""}


@pytest.fixture
def files(machine, monkeypatch):
    """Files whose pages go as the kernel lets them: dirty ones stay until they are written."""
    state = dict(HELD)

    def visit(paths, max_files, seconds, to_each=None):
        machine.said.append(to_each.__name__ if to_each else "look")
        before = dict(state)
        if to_each is page_cache.write_back:
            state["dirty"] = 0
        if to_each is page_cache.give_back:
            state["cached"] = state["dirty"] + state.get("mapped", 0)
        return {name: value for name, value in before.items() if name != "mapped"}

    monkeypatch.setattr(page_cache, "visit", visit)
    return state


def test_files_are_written_and_given_back_without_root(machine, files, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    result = call(machine, paths=["/models"])
    assert result["changed"] and result["actions"] == ["drop the pages of the files in paths"]
    assert [name for name in machine.said if " " not in name] == ["look", "write_back", "give_back", "look"]
    assert result["predicted_mb"] == result["freed_cache_mb"] == 3072
    assert result["files"] == {
        "count": 2, "size_mb": 4096, "cached_before_mb": 3072, "cached_after_mb": 0, "dirty_mb": 0, "unmeasured_mb": 0, "unreadable": 0,
        "special": 0, "absent": [], "complete": True,
    }  # fmt: skip
    assert machine.drop_caches.read_text() == ""
    again = call(machine, paths=["/models"])
    assert not again["changed"] and "hold nothing" in again["reason"]


def test_a_device_among_the_paths_stops_before_anything_is_done(machine, files):
    files["refused"] = ["/dev/nvme0n1 is a block device"]
    with pytest.raises(ClusterError, match="in paths /dev/nvme0n1 is a block device; expected files and directories"):
        call(machine, paths=["/dev/nvme0n1"])
    assert machine.said == ["looking at the files", "look"]


def test_dirty_pages_of_files_stay_without_sync(machine, files):
    result = call(machine, paths=["/models"], sync=False)
    assert result["predicted_mb"] == result["freed_cache_mb"] == 2048 and "write_back" not in machine.said
    assert result["files"]["dirty_mb"] == 1024


def test_files_that_are_all_in_use_change_nothing(machine, files):
    files["mapped"] = 3 << 30
    result = call(machine, paths=["/models"])
    assert not result["changed"] and not result["dropped"] and "all of it stayed" in result["reason"]


def test_what_the_kernel_does_not_tell_is_bounded_by_the_machines_cache(machine, files):
    files.update(cached=0, dirty=0, unmeasured=4 << 30)
    assert call(machine, paths=["/models"], check_mode=True)["predicted_mb"] == 4096
    files.update(unmeasured=400 << 30)
    assert call(machine, paths=["/models"], check_mode=True)["predicted_mb"] == 79990


def test_files_below_the_floor_are_left_alone(machine, files):
    result = call(machine, paths=["/models"], min_reclaimable_mb=4096)
    assert not result["changed"] and "give_back" not in machine.said and "it pays from 4096 MiB" in result["reason"]


def test_files_that_were_not_all_looked_at_are_a_warning(machine, files):
    files["ended_by"] = "max_files"
    result = call(machine, paths=["/models"])
    assert result["changed"] and result["verdict"] == "warn" and result["sync"] == "done" and not result["files"]["complete"]
    assert "only 2 of the files below /models" in result["msg"]


def test_files_whose_writing_takes_too_long_are_given_back_as_far_as_they_are_clean(machine, files):
    files["ended_by"] = "time"
    assert call(machine, paths=["/models"])["sync"] == "timeout"


def test_a_disk_that_fails_is_named(machine, monkeypatch):
    def fail(*_args):
        raise OSError(errno.EIO, os.strerror(errno.EIO), "/models/a")

    monkeypatch.setattr(page_cache, "visit", fail)
    with pytest.raises(ClusterError, match="looking at the files: /models/a: Input/output error") as caught:
        call(machine, paths=["/models"])
    assert "journalctl" in caught.value.remedy


def test_real_files_in_a_real_child(tmp_path):
    """Nothing is simulated here but the rest of /proc."""
    (tmp_path / "meminfo").write_text(FULL)
    process_files.add(tmp_path, 1, "/sbin/init", ppid=0)
    model = tmp_path / "models/shard"
    model.parent.mkdir()
    # A little above 3 MiB: the kernel may take pages away on its own.
    weights = b"w" * ((3 << 20) + (1 << 18))
    model.write_bytes(weights)
    result = call(types.SimpleNamespace(root=tmp_path), paths=[str(model.parent)], min_reclaimable_mb=1)
    if result["files"]["cached_after_mb"]:
        pytest.skip("the temporary directory keeps its files in memory")
    assert result["changed"] and result["files"]["cached_before_mb"] == result["freed_cache_mb"] == 3
    assert model.read_bytes() == weights
