# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The identity of a run, and whether another run has ended."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks, lock_holder

#: Where a clone has the collection under its own name.
COLLECTIONS = pathlib.Path(__file__).parents[5] / "collections"

METAL = "pid:[4026531836]"


def proc(root: pathlib.Path, *, state: str = "S", start: str = "500", boot: str = "boot-1", namespace: str = METAL) -> str:
    (root / "4711").mkdir(parents=True)
    (root / "4711/stat").write_text(f"4711 (ansible playb) {state} " + "0 " * 18 + f"{start} 0 0\n")
    (root / "sys/kernel/random").mkdir(parents=True)
    (root / "sys/kernel/random/boot_id").write_text(boot + "\n")
    (root / "self/ns").mkdir(parents=True)
    (root / "self/ns/pid").symlink_to(namespace)
    (root / "stat").write_text("cpu 1 2\nbtime 1700000000\n")
    return str(root)


@pytest.fixture
def me(tmp_path, monkeypatch):
    """A run whose process lives; no other number is taken."""
    monkeypatch.setattr(lock_holder, "_is_number_free", lambda pid: True)
    (tmp_path / "machine-id").write_text("0123456789abcdef\n")
    return lock_holder.lock_holder(4711, "Up", "run-1", proc_root=proc(tmp_path / "proc"), machine_id_path=str(tmp_path / "machine-id"))


def why_ended(other, root):
    return lock_holder.why_ended(other, lock_holder.Place.here(str(root)), str(root))


def test_the_lock_holder_identifies_the_run_and_hides_the_machine_id(me):
    assert me["pid"] == 4711 and me["pid_start"] == "500" and me["boot_id"] == "boot-1" and me["pid_namespace"] == METAL
    assert me["started_at"].startswith("2023-11-14T22:13:")
    assert me["play"] == "Up" and me["user"] and me["hostname"]
    assert len(me["machine"]) == 16 and "0123456789" not in me["machine"]


def test_a_controller_that_is_not_linux_leaves_fields_empty(tmp_path):
    me = lock_holder.lock_holder(4711, "Up", proc_root=str(tmp_path), machine_id_path=str(tmp_path / "none"))
    assert (me["machine"], me["boot_id"], me["pid_namespace"], me["pid_start"], me["started_at"]) == ("", "", "", "", "")
    assert why_ended({**me, "pid": 1}, tmp_path) == ""


def test_a_user_without_an_account_has_a_number(monkeypatch):
    def unknown():
        raise KeyError("getpwuid(): uid not found: 1000730000")

    monkeypatch.setattr("getpass.getuser", unknown)
    assert lock_holder.lock_holder(os.getpid())["user"] == str(os.getuid())


def test_this_process_and_one_that_ended():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert lock_holder.process_start(process.pid).isdigit()
    process.communicate(b"\n")
    assert lock_holder.process_start(process.pid) == ""
    assert lock_holder.process_start(os.getpid()).isdigit()


def test_a_living_run_is_never_ended(me, tmp_path):
    assert why_ended(dict(me), tmp_path / "proc") == ""


@pytest.mark.parametrize(("field", "value"), [("pid", 99), ("pid_start", "400")])
def test_a_process_that_is_gone_or_another_has_ended(me, tmp_path, field, value):
    assert "has ended" in why_ended({**me, field: value}, tmp_path / "proc")


def test_a_defunct_process_has_ended(me, tmp_path):
    assert "has ended" in why_ended(me, proc(tmp_path / "other", state="Z"))


def test_a_process_that_cannot_be_seen_lives(me, tmp_path, monkeypatch):
    """With hidepid=2 another user's process is invisible; with hidepid=1 it cannot be read."""
    monkeypatch.setattr(lock_holder, "_is_number_free", lambda pid: False)
    assert why_ended({**me, "pid": 99}, tmp_path / "proc") == ""

    def denied(pid, proc_root):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(lock_holder, "_is_number_free", lambda pid: True)
    monkeypatch.setattr(lock_holder, "read_stat", denied)
    assert why_ended(me, tmp_path / "proc") == ""


def test_the_kernel_knows_a_number_that_proc_hides(monkeypatch):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert not lock_holder._is_number_free(process.pid)
    process.communicate(b"\n")
    assert lock_holder._is_number_free(process.pid)

    def denied(pid, number):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", denied)
    assert not lock_holder._is_number_free(process.pid)


@pytest.mark.parametrize(
    "changes",
    [
        {"pid_namespace": "pid:[4026532338]"},
        {"pid_start": ""},
        {"pid": "4711"},
        {"pid": None},
        {"boot_id": ""},
        # This machine's earlier boot, or its clone's current boot with the same id and name: unknown.
        {"boot_id": "boot-0"},
        {"boot_id": "boot-0", "machine": "other"},
    ],
)
def test_what_cannot_be_compared_is_not_judged(me, tmp_path, changes):
    assert why_ended({**me, "pid": 99, **changes}, tmp_path / "proc") == ""


def test_a_holder_of_an_older_shape_is_not_judged(me, tmp_path):
    assert why_ended({}, tmp_path / "proc") == ""


def test_two_runs_in_containers_that_tell_nothing_are_two(tmp_path):
    """Two AWX pods: no machine id, and the same process number."""
    runs = [lock_holder.lock_holder(7, "Up", run, proc_root=str(tmp_path), machine_id_path=str(tmp_path / "none")) for run in ("local-7a", "local-7b")]
    assert cluster_locks.holder_id(runs[0]) != cluster_locks.holder_id(runs[1])
    assert why_ended(runs[0], tmp_path) == ""


#: The program of a run in its own container: prints its identity, or judges another run from its standard input.
POD = """
import json, os, sys
from ansible_collections.gb10.cluster.plugins.module_utils._lock import lock_holder
other = sys.stdin.read()
me = lock_holder.lock_holder(os.getpid(), "Up", sys.argv[1])
print(json.dumps({"me": me, "why_ended": lock_holder.why_ended(json.loads(other), lock_holder.Place.here()) if other else None}))
"""


def pod(name, other=""):
    """Run as in a job's container: in its own pid namespace, which ends with it."""
    alone = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    done = subprocess.run([*alone, sys.executable, "-c", POD, name], input=other, env={**os.environ, "PYTHONPATH": str(COLLECTIONS)},
                          capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(f"this machine gives no namespaces: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_job_of_another_container_lives_for_all_that_is_known():
    """Two AWX pods on one machine: the first has ended, and neither the second nor the machine itself can know that."""
    first = pod("local-a")["me"]
    second = pod("local-b", json.dumps(first))
    assert first["boot_id"] == second["me"]["boot_id"] and first["pid_namespace"] != lock_holder.Place.here().pid_namespace
    assert second["why_ended"] == ""
    assert lock_holder.why_ended(first, lock_holder.Place.here()) == ""
    lock = cluster_locks.Lock(cluster_locks.holder_id(first), first, "2026-11-21T09:14:03Z", 60)
    with pytest.raises(ClusterError, match="another run works on this cluster") as caught:
        cluster_locks.decide_acquire(lock, second["me"], break_lock="", ended=second["why_ended"])
    assert caught.value.remedy.endswith(f"-e gb10_break_lock={lock.id}")
    assert cluster_locks.decide_acquire(lock, second["me"], break_lock=lock.id, ended="")[0] == "take over"
