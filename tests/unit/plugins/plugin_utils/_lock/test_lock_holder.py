# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who a run is, and whether another one has ended."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._lock import lock_holder

METAL = lock_holder.MACHINE_NAMESPACE


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
def me(tmp_path):
    (tmp_path / "machine-id").write_text("0123456789abcdef\n")
    return lock_holder.lock_holder(4711, "Up", proc_root=proc(tmp_path / "proc"), machine_id_path=str(tmp_path / "machine-id"))


def test_an_account_without_a_name_is_known_by_its_number(monkeypatch, tmp_path):
    def nobody():
        raise KeyError("getpwuid(): uid not found: 4242")

    monkeypatch.setattr(lock_holder.getpass, "getuser", nobody)
    monkeypatch.setattr(lock_holder.os, "getuid", lambda: 4242)
    assert lock_holder.lock_holder(4711, "Up", proc_root=proc(tmp_path / "proc"))["user"] == "4242"


def test_the_lock_holder_identifies_the_run_and_hides_the_machine_id(me):
    assert me["pid"] == 4711 and me["pid_start"] == "500" and me["boot_id"] == "boot-1" and me["pid_namespace"] == METAL
    assert me["started_at"].startswith("2023-11-14T22:13:")
    assert me["play"] == "Up" and me["user"] and me["hostname"]
    assert len(me["machine"]) == 16 and "0123456789" not in me["machine"]


def test_a_controller_that_is_not_linux_leaves_fields_empty(tmp_path):
    me = lock_holder.lock_holder(4711, "Up", proc_root=str(tmp_path), machine_id_path=str(tmp_path / "none"))
    assert (me["machine"], me["boot_id"], me["pid_namespace"], me["pid_start"], me["started_at"]) == ("", "", "", "", "")
    assert lock_holder.why_ended({**me, "pid": 1}, me, str(tmp_path)) is None


def test_this_process_and_one_that_ended():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert lock_holder.process_start(process.pid).isdigit()
    process.communicate(b"\n")
    assert lock_holder.process_start(process.pid) == ""
    assert lock_holder.process_start(os.getpid()).isdigit()


def test_a_living_run_is_never_ended(me, tmp_path):
    assert lock_holder.why_ended(dict(me), me, str(tmp_path / "proc")) is None


@pytest.mark.parametrize(("field", "value"), [("pid", 99), ("pid_start", "400")])
def test_a_process_that_is_gone_or_another_has_ended(me, tmp_path, field, value):
    assert "has ended" in lock_holder.why_ended({**me, field: value}, me, str(tmp_path / "proc"))


def test_a_defunct_process_has_ended(me, tmp_path):
    root = proc(tmp_path / "other", state="Z")
    assert "has ended" in lock_holder.why_ended(me, me, root)


@pytest.mark.parametrize("changes", [{"pid_namespace": "pid:[4026532338]"}, {"pid_start": ""}, {"pid": "4711"}, {"pid": None}])
def test_what_cannot_be_compared_is_not_judged(me, tmp_path, changes):
    assert lock_holder.why_ended({**me, "pid": 99, **changes}, me, str(tmp_path / "proc")) is None


def test_an_earlier_boot_of_this_machine_has_ended(me, tmp_path):
    assert "restarted" in lock_holder.why_ended({**me, "boot_id": "boot-0"}, me, str(tmp_path / "proc"))


@pytest.mark.parametrize("changes", [{"machine": "other"}, {"hostname": "clone"}, {"pid_namespace": "pid:[4026532338]"}, {"boot_id": ""}])
def test_another_boot_of_who_knows_which_machine_is_not_judged(me, tmp_path, changes):
    assert lock_holder.why_ended({**me, "boot_id": "boot-0", **changes}, me, str(tmp_path / "proc")) is None


def test_a_holder_of_an_older_shape_is_not_judged(me, tmp_path):
    assert lock_holder.why_ended({}, me, str(tmp_path / "proc")) is None
