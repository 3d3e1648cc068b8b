# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lock of a cluster."""

from __future__ import annotations

import datetime
import errno
import fcntl
import json
import os
import stat

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import files
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks

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
    assert os.listdir(tmp_path) == ["lock.json"] and stat.S_IMODE(os.stat(path).st_mode) == 0o644
    assert json.loads((tmp_path / "lock.json").read_text())["schema"] == cluster_locks.SCHEMA == 1


@pytest.mark.parametrize("jump", [-86400 * 365, 86400 * 365])
def test_a_clock_that_jumped_decides_nothing(tmp_path, jump):
    """The age is information for people: it never decides about a lock."""
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
    # A run that locked nothing has lost nothing.
    cluster_locks.check_held(path, "")


def test_release_takes_only_what_is_its_own():
    assert cluster_locks.decide_release(None, ME, break_lock="")[0] is None
    assert cluster_locks.decide_release(lock_of(ME), ME, break_lock="")[0] == "release"
    assert cluster_locks.decide_release(lock_of(OTHER), ME, break_lock=cluster_locks.holder_id(OTHER))[0] == "release"
    assert cluster_locks.decide_release(lock_of(OTHER), ME, break_lock="another")[0] is None
    action, reason = cluster_locks.decide_release(lock_of(OTHER), ME, break_lock="")
    assert action is None and "bob@workbench" in reason


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_a_lock_on_the_directory_itself_blocks_no_run(tmp_path, kind):
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX if kind == "exclusive" else fcntl.LOCK_SH)
    done = []
    with cluster_locks.exclusive(str(tmp_path)):
        assert stat.S_IMODE(os.stat(tmp_path / cluster_locks.ALONE).st_mode) == 0o600
        done.append(True)
    os.close(descriptor)
    assert done and os.listdir(tmp_path) == []


def test_two_runs_do_not_decide_at_the_same_moment(tmp_path):
    with cluster_locks.exclusive(str(tmp_path)):
        with pytest.raises(ClusterError, match=f"takes or releases the lock in {tmp_path} at this moment") as caught:
            with cluster_locks.exclusive(str(tmp_path)):
                pass
        assert (caught.value.reason, caught.value.remedy) == (cluster_locks.HELD, "Run again when it is done.")
        # A directory's lock is separate from its parent's.
        os.mkdir(tmp_path / "gb10")
        with cluster_locks.exclusive(str(tmp_path / "gb10")):
            pass
    with cluster_locks.exclusive(str(tmp_path)):
        pass


def test_an_error_inside_is_raised_unchanged(tmp_path):
    with pytest.raises(BlockingIOError), cluster_locks.exclusive(str(tmp_path)):
        raise BlockingIOError
    with cluster_locks.exclusive(str(tmp_path)):
        pass


@pytest.mark.parametrize("planted", ["link", "open to others", "another's", "pipe"])
def test_a_file_that_another_account_can_open_is_not_a_lock(tmp_path, monkeypatch, planted):
    path = tmp_path / cluster_locks.ALONE
    if planted == "link":
        (tmp_path / "target").touch(0o600)
        path.symlink_to("target")
    elif planted == "pipe":
        os.mkfifo(path, 0o600)
    else:
        path.touch(0o600 if planted == "another's" else 0o644)
    if planted == "another's":
        monkeypatch.setattr(files.os, "geteuid", lambda: 4711)
    with pytest.raises((ClusterError, OSError)) as caught, cluster_locks.exclusive(str(tmp_path)):
        pass
    if planted == "link":
        assert caught.value.errno == errno.ELOOP
    else:
        assert str(caught.value) == f"{path} is not a file that only this account can open" and caught.value.remedy.endswith(f": rm {path}")
    assert os.path.lexists(path)


def test_a_lock_file_that_went_while_it_was_opened_is_opened_again(tmp_path, monkeypatch):
    """The lock's holder removes it at the end."""
    path, opened = str(tmp_path / "x"), []
    real = files.open_lock

    def open_lock(name):
        handle = real(name)
        opened.append(handle)
        if len(opened) == 1:
            os.unlink(name)
        return handle

    monkeypatch.setattr(files, "open_lock", open_lock)
    with files.alone(path):
        assert len(opened) == 2 and os.path.exists(path)
        with pytest.raises(BlockingIOError), files.alone(path):
            pass
        assert os.path.exists(path)
    assert not os.path.exists(path)
    for handle in opened[:2]:
        with pytest.raises(OSError):
            os.fstat(handle)


TEXT = """{
  "acquired_at": "2026-11-21T09:14:03Z",
  "holder": {
    "boot_id": "b",
    "hostname": "workbench",
    "machine": "m",
    "pid": 4711,
    "pid_namespace": "n",
    "pid_start": "99",
    "play": "Up",
    "run": "r",
    "service": "",
    "user": "ada"
  },
  "id": "3c1ab056361d3a94",
  "schema": 1
}
"""


def test_every_version_knows_a_run_and_a_broken_lock_by_the_same_id():
    """A unit's program on a node and the controllers can have different versions of the collection."""
    assert cluster_locks.dump(ME, NOW) == TEXT
    assert cluster_locks.holder_id(dict(reversed(ME.items()))) == "3c1ab056361d3a94"
    assert cluster_locks.unreadable_id("garble") == "unreadable-8d76c1e4c0c614a1"


def test_of_a_lock_that_makes_no_sense_the_beginning_is_shown(tmp_path):
    (tmp_path / "lock.json").write_text("x" * 4000)
    with pytest.raises(UnknownState) as caught:
        cluster_locks.read(str(tmp_path / "lock.json"))
    assert caught.value.details["raw"] == "x" * 2000


@pytest.mark.parametrize(("dated", "age"), [(1795500000.5, 3), (1795500004.9, 0)])
def test_a_lock_is_as_old_as_its_file_and_never_less_than_nothing(tmp_path, monkeypatch, dated, age):
    path = tmp_path / "lock.json"
    path.write_text(TEXT)
    os.utime(path, (dated, dated))
    monkeypatch.setattr(cluster_locks.time, "time", lambda: 1795500004.0)
    assert cluster_locks.read(str(path)).age == age


def test_who_lost_its_lock_did_nothing(tmp_path):
    with pytest.raises(ClusterError) as caught:
        cluster_locks.check_held(str(tmp_path / "lock.json"), "mine")
    assert caught.value.details == {"lock": None, "changed": False, "actions": []}
