# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Taking and giving back a cluster's lock."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import types

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks, lock_holder
from ansible_collections.gb10.cluster.plugins.modules import cluster_lock

MACHINE = {"user": "ada", "hostname": "workbench", "machine": "m", "boot_id": "b", "pid_namespace": "n"}
ME = {**MACHINE, "pid": 4711, "pid_start": "99", "run": "r", "service": "", "play": "Up"}
OTHER = {**ME, "user": "bob", "pid": 12}


@pytest.fixture
def call(tmp_path):
    def call(holder=None, *, check_mode=False, closes=(), **params):
        defaults = {
            "state": "acquired",
            "cluster_name": "gb10",
            "state_dir": str(tmp_path / "state"),
            "log_dir": str(tmp_path / "log"),
            "path": None,
            "break_lock": "",
            "lock_id": "",
            "holder": ME if holder is None else holder,
        }
        module = types.SimpleNamespace(params={**defaults, **params}, check_mode=check_mode, warn=warnings.append)
        result = cluster_lock.work(module)
        assert result["changed"] is bool(closes)
        assert [action for action in result["actions"] if action.startswith("close")] == list(closes)
        return result

    warnings = call.warnings = []
    return call


@pytest.mark.parametrize("check_mode", [False, True])
def test_who_takes_the_lock_closes_what_an_older_version_left_open(call, tmp_path, check_mode):
    state, log = tmp_path / "state" / "gb10", tmp_path / "log" / "gb10"
    for folder, mode in ((state, 0o755), (log, 0o750)):
        folder.mkdir(parents=True)
        folder.chmod(mode)
    result = call(check_mode=check_mode, closes=[f"close {state} to other accounts (mode 0755)"])
    assert result["diff"] == {"before": {str(state): "0755"}, "after": {str(state): "0700"}}
    assert stat.S_IMODE(state.stat().st_mode) == (0o755 if check_mode else 0o700)
    if not check_mode:
        assert call()["actions"] == [] and not call.warnings


def test_the_lock_of_a_mode_closes_nothing(call, tmp_path):
    (tmp_path / "state").mkdir(mode=0o755)
    call(path=str(tmp_path / "state" / "mode.lock.json"))
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="another account takes root")
def test_a_directory_that_cannot_be_closed_is_a_warning_and_the_lock_is_taken(call, tmp_path):
    (tmp_path / "state" / "gb10").mkdir(parents=True)
    os.chown(tmp_path / "state" / "gb10", 65534, -1)
    assert call()["held"]
    assert "belongs to user 65534" in call.warnings[0] and "chown root:root" in call.warnings[0]


def test_a_run_that_is_refused_closes_nothing(call, tmp_path):
    call(OTHER)
    (tmp_path / "state" / "gb10").chmod(0o755)
    with pytest.raises(ClusterError, match="bob@workbench"):
        call()
    assert stat.S_IMODE((tmp_path / "state" / "gb10").stat().st_mode) == 0o755


def test_acquire_twice_and_release_twice(call, tmp_path):
    first = call()
    assert first["held"] and first["actions"] == [f"take lock {tmp_path}/state/gb10/lock.json"]
    second = call()
    assert second["held"] and second["actions"] == []
    assert call(state="released")["actions"] and not os.path.exists(first["lock_path"])
    assert call(state="released")["reason"] == "no run holds the lock"


def test_release_before_anything_exists(call):
    assert call(state="released")["lock"] is None


def test_another_run_blocks_and_may_be_broken(call):
    other = call(OTHER)["lock"]["id"]
    with pytest.raises(ClusterError, match="bob@workbench"):
        call()
    with pytest.raises(ClusterError):
        call(break_lock="another")
    result = call(break_lock=other)
    assert result["taken_over"] and result["held"] and result["lock"]["holder"] == ME


def test_release_leaves_another_runs_lock_alone(call):
    other = call(OTHER)["lock"]["id"]
    result = call(state="released")
    assert not result["held"] and result["lock"]["holder"] == OTHER and "left alone" in result["reason"]
    assert call(state="released", break_lock=other)["lock"] is None


def test_a_task_that_stops_something_makes_sure_of_the_lock(call):
    mine = call()["lock"]["id"]
    assert call(state="held", lock_id=mine)["held"]
    call(OTHER, break_lock=mine)
    with pytest.raises(ClusterError, match="bob@workbench.* holds it now"):
        call(state="held", lock_id=mine)
    assert call(state="held")["lock"]["holder"] == OTHER, "nothing was locked"
    # Check mode takes no lock.
    assert not call(state="held", lock_id=mine, check_mode=True)["held"]


@pytest.mark.parametrize("lives", [True, False])
def test_a_service_of_this_node_is_judged_here(call, lives):
    """Its controller is unknown: only the node can see whether it lives."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    service = lock_holder.lock_holder(process.pid, service="gb10-supervisor")
    call(service)
    if not lives:
        process.communicate(b"\n")
    try:
        if lives:
            with pytest.raises(ClusterError, match="service gb10-supervisor on"):
                call()
        else:
            assert call()["reason"].endswith(f"its process {process.pid} has ended")
    finally:
        process.kill()
        process.communicate()


def test_clusters_do_not_share_a_lock(call, tmp_path):
    call()
    assert call(OTHER, cluster_name="second")["held"]
    assert call(OTHER, path=str(tmp_path / "elsewhere.json"))["lock_path"] == str(tmp_path / "elsewhere.json")


def test_check_mode_reads_and_reports_only(call, tmp_path):
    assert call(check_mode=True)["actions"] == [f"take lock {tmp_path}/state/gb10/lock.json"]
    assert not (tmp_path / "state").exists()
    call(OTHER)
    result = call(check_mode=True)
    assert result["verdict"] == "warn" and not result["held"] and result["lock"]["holder"] == OTHER
    assert "left alone" in call(check_mode=True, state="released")["reason"]


def test_a_lock_that_makes_no_sense_stops_until_a_person_breaks_it(call, tmp_path):
    path = tmp_path / "lock.json"
    path.write_text("garble")
    for params in ({}, {"state": "released"}, {"check_mode": True}, {"break_lock": "another"}):
        with pytest.raises(UnknownState) as caught:
            call(path=str(path), **params)
    named = caught.value.details["lock_id"]
    assert call(path=str(path), break_lock=named)["held"]
    path.write_text("garble")
    assert call(path=str(path), break_lock=named, state="released")["lock"] is None
    path.write_text("other garble")
    with pytest.raises(UnknownState):
        call(path=str(path), break_lock=named)


def test_a_missing_permission_names_the_remedy(call, tmp_path):
    (tmp_path / "state").write_text("a file where a directory should be")
    with pytest.raises(ClusterError) as caught:
        call()
    assert "become" in caught.value.remedy


def test_a_full_disk_is_named_and_leaves_no_lock(call, tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cluster_locks.os, "fsync", full)
    with pytest.raises(ClusterError, match="lock.json: No space left on device") as caught:
        call()
    assert "df -h" in caught.value.remedy and "become" not in caught.value.remedy and caught.value.reason == "disk full"
    assert list((tmp_path / "state/gb10").iterdir()) == []


def test_the_holder_is_required(call):
    with pytest.raises(ClusterError, match="holder is missing"):
        call({})


def test_the_lock_is_world_readable_and_not_more(call):
    assert os.stat(call()["lock_path"]).st_mode & 0o022 == 0
    assert cluster_locks.read(call()["lock_path"]).holder == ME


@pytest.mark.parametrize("check_mode", [False, True])
def test_who_takes_the_lock_sees_which_engine_lives(call, tmp_path, monkeypatch, check_mode):
    calls = []
    monkeypatch.setattr(cluster_lock, "engine_state", lambda paths: calls.append(paths) or {"live": True, "run_id": "r"})
    assert call(check_mode=check_mode)["engine"] == {"live": True, "run_id": "r"}
    assert calls == [cluster_lock.EnginePaths.of(str(tmp_path / "state"), str(tmp_path / "log"), "gb10")]
    assert "engine" not in call(state="released", check_mode=check_mode) and len(calls) == 1


def test_the_lock_is_taken_next_to_an_engine_that_cannot_be_seen(call, tmp_path):
    note = tmp_path / "state" / "gb10" / "run" / "run.json"
    note.parent.mkdir(parents=True)
    note.write_text("{")
    note.parent.parent.chmod(0o700)
    assert call()["held"] and call()["engine"] is None
