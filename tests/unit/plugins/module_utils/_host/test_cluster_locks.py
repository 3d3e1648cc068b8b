# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lock of a cluster."""

from __future__ import annotations

import datetime
import fcntl
import os

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._host import cluster_locks

NOW = datetime.datetime(2026, 11, 21, 9, 14, 3, tzinfo=datetime.timezone.utc)
MACHINE = {"user": "ada", "hostname": "workbench", "machine": "m", "boot_id": "b", "pid_namespace": "n"}
ME = {**MACHINE, "pid": 4711, "pid_start": "99", "run": "r", "service": "", "play": "Up"}
OTHER = {**ME, "user": "bob", "pid": 12}


def lock_of(holder: dict) -> cluster_locks.Lock:
    return cluster_locks.parse(cluster_locks.dump(holder, NOW), "lock.json", 60)


def test_the_identity_is_the_run_and_not_the_play():
    assert cluster_locks.holder_id(ME) == cluster_locks.holder_id({**ME, "play": "Down", "started_at": "now"})
    for field in cluster_locks.IDENTITY:
        assert cluster_locks.holder_id(ME) != cluster_locks.holder_id({**ME, field: "another"})


def test_a_lock_is_read_as_it_was_written(tmp_path):
    path = str(tmp_path / "lock.json")
    cluster_locks.write(path, cluster_locks.dump(ME, NOW), replace=False)
    lock = cluster_locks.read(path)
    assert (lock.id, lock.holder, lock.acquired_at) == (cluster_locks.holder_id(ME), ME, "2026-11-21T09:14:03Z")
    assert 0 <= lock.age < 60
    assert os.listdir(tmp_path) == ["lock.json"]


@pytest.mark.parametrize("jump", [-86400 * 365, 86400 * 365])
def test_a_clock_that_jumped_decides_nothing(tmp_path, jump):
    """The age is for people: no lock is taken or kept for its age."""
    path = tmp_path / "lock.json"
    path.write_text(cluster_locks.dump(ME, NOW))
    now = path.stat().st_mtime
    os.utime(path, (now - jump, now - jump))
    lock = cluster_locks.read(str(path))
    assert lock.age >= 0
    assert cluster_locks.decide_acquire(lock, ME, break_lock="", ended="")[0] is None
    with pytest.raises(ClusterError, match="another run works on this cluster"):
        cluster_locks.decide_acquire(lock, {**ME, "pid": 1}, break_lock="", ended="")


def test_the_age_is_that_of_the_file(tmp_path):
    path = str(tmp_path / "lock.json")
    cluster_locks.write(path, cluster_locks.dump(ME, NOW), replace=False)
    os.utime(path, (0, 0))
    assert cluster_locks.read(path).age > 86400


def test_a_lock_is_written_exclusively_unless_it_is_replaced(tmp_path):
    path = str(tmp_path / "lock.json")
    cluster_locks.write(path, cluster_locks.dump(ME, NOW), replace=False)
    with pytest.raises(FileExistsError):
        cluster_locks.write(path, cluster_locks.dump(OTHER, NOW), replace=False)
    assert cluster_locks.read(path).holder == ME
    cluster_locks.write(path, cluster_locks.dump(OTHER, NOW), replace=True)
    assert cluster_locks.read(path).holder == OTHER


@pytest.mark.parametrize("text", ["", "garble", "[]", "{}", '{"id": 1, "acquired_at": "x"}', '{"id": "x", "holder": 3, "acquired_at": "x"}'])
def test_a_lock_that_makes_no_sense_is_unknown(tmp_path, text):
    path = tmp_path / "lock.json"
    path.write_text(text)
    with pytest.raises(UnknownState) as caught:
        cluster_locks.read(str(path))
    assert caught.value.reason == cluster_locks.NOT_UNDERSTOOD
    assert caught.value.remedy.endswith(f"-e gb10_break_lock={caught.value.details['lock_id']}")


def test_no_lock_and_an_unreadable_one(tmp_path, monkeypatch):
    assert cluster_locks.read(str(tmp_path / "lock.json")) is None

    def denied(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", denied)
    with pytest.raises(UnknownState, match="cannot be read") as caught:
        cluster_locks.read(str(tmp_path / "lock.json"))
    assert caught.value.reason != cluster_locks.NOT_UNDERSTOOD


def test_a_free_lock_is_taken_and_an_own_one_kept():
    assert cluster_locks.decide_acquire(None, ME, break_lock="", ended="")[0] == "take"
    assert cluster_locks.decide_acquire(lock_of(ME), ME, break_lock="", ended="")[0] is None


def test_another_runs_lock_blocks_with_holder_age_and_remedy():
    with pytest.raises(ClusterError, match="bob@workbench, process 12, play 'Up', since 2026-11-21T09:14:03Z .60 s ago.") as caught:
        cluster_locks.decide_acquire(lock_of(OTHER), ME, break_lock="", ended="")
    assert caught.value.remedy.endswith(f"-e gb10_break_lock={cluster_locks.holder_id(OTHER)}")
    assert caught.value.details["lock"]["holder"] == OTHER


@pytest.mark.parametrize("named", ["another", "true"])
def test_breaking_names_the_lock_and_respects_one_that_changed_hands(named):
    lock = lock_of(OTHER)
    assert cluster_locks.decide_acquire(lock, ME, break_lock=lock.id, ended="")[0] == "take over"
    with pytest.raises(ClusterError, match=f"{named} is not the id of its lock") as caught:
        cluster_locks.decide_acquire(lock, ME, break_lock=named, ended="")
    assert lock.id in caught.value.remedy


def test_a_holder_that_has_ended_is_taken_over_and_the_reason_says_so():
    action, reason = cluster_locks.decide_acquire(lock_of(OTHER), ME, break_lock="", ended="its process 12 has ended")
    assert action == "take over" and reason.endswith(": its process 12 has ended")


def test_a_service_on_a_node_can_hold_the_lock():
    service = {**OTHER, "service": "gb10-supervisor", "hostname": "spark-1", "play": ""}
    with pytest.raises(ClusterError, match="service gb10-supervisor on spark-1, process 12, since") as refused:
        cluster_locks.decide_acquire(lock_of(service), ME, break_lock="", ended="")
    assert "or stop it on spark-1: systemctl stop gb10-supervisor." in refused.value.remedy
    assert cluster_locks.holder_id(service) != cluster_locks.holder_id({**service, "service": "another"})


@pytest.mark.parametrize("now", [None, OTHER])
def test_a_lock_that_was_broken_stops_its_old_holder(tmp_path, now):
    path = cluster_locks.path_of(str(tmp_path), "gb10")
    os.mkdir(tmp_path / "gb10")
    mine = cluster_locks.holder_id(ME)
    cluster_locks.write(path, cluster_locks.dump(ME, NOW), replace=False)
    cluster_locks.check_held(path, mine)
    os.unlink(path)
    if now:
        cluster_locks.write(path, cluster_locks.dump(now, NOW), replace=False)
    with pytest.raises(ClusterError, match=f"this run lost the cluster's lock {mine} on .*, {'bob@workbench' if now else 'it is gone'}") as caught:
        cluster_locks.check_held(path, mine)
    assert caught.value.reason == "lock lost"
    # Who locked nothing has lost nothing.
    cluster_locks.check_held(path, "")


def test_release_takes_only_what_is_its_own():
    assert cluster_locks.decide_release(None, ME, break_lock="")[0] is None
    assert cluster_locks.decide_release(lock_of(ME), ME, break_lock="")[0] == "release"
    assert cluster_locks.decide_release(lock_of(OTHER), ME, break_lock=cluster_locks.holder_id(OTHER))[0] == "release"
    assert cluster_locks.decide_release(lock_of(OTHER), ME, break_lock="another")[0] is None
    action, reason = cluster_locks.decide_release(lock_of(OTHER), ME, break_lock="")
    assert action is None and "bob@workbench" in reason


def test_two_runs_do_not_decide_at_the_same_moment(tmp_path):
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(ClusterError, match="at this moment"):
        with cluster_locks.exclusive(str(tmp_path)):
            pass
    os.close(descriptor)
    with cluster_locks.exclusive(str(tmp_path)):
        pass
