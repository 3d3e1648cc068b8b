# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lease on a node, and the unit that is kept for its end."""

from __future__ import annotations

import hashlib
import os
import types

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._lease import lease_files, record
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import ask, setup, unit
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult
from ansible_collections.gb10.cluster.plugins.module_utils._unit import unit_files as units
from ansible_collections.gb10.cluster.plugins.module_utils._service import engine_service, lease_service

BOOT = "b6f1e0b4-6a3c-4f0e-9a51-0b0f1f0c2d11"


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A node with the units of the pair and of its own service, and the calls to systemd there."""
    kernel = tmp_path / "proc" / "sys" / "kernel" / "random"
    kernel.mkdir(parents=True)
    (kernel / "boot_id").write_text(f"{BOOT}\n", encoding="ascii")
    calls: list[str] = []

    def systemctl(argv, seconds, content=b""):
        calls.append(" ".join(argv[1:]))
        return ToolResult(0, "ActiveState=inactive\nUnitFileState=disabled\n" if argv[1] == "show" else "", "")

    for module in (ask, setup, unit):
        monkeypatch.setattr(module, "run_tool", systemctl)
    monkeypatch.setattr(ask.shutil, "which", lambda name: f"/usr/bin/{name}")
    for name in ("gb10", "spark-1"):
        path = units.of_engine("/", name, str(tmp_path / "etc")).path
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(unit.marked("[Unit]\n"))
        os.makedirs(units.of_engine(str(tmp_path / "state"), name).folder)
    (tmp_path / "sent").write_bytes(b"sent")
    return types.SimpleNamespace(place=tmp_path, asked=calls, state=str(tmp_path / "state"))


def say(node, state="present", check_mode=False, **more):
    roots = {"proc_root": str(node.place / "proc"), "etc_root": str(node.place / "etc")}
    params = {
        "state": state, "state_dir": node.state, "lease_id": "abc", "holder": {"user": "ada"}, "program": "judge.sh", "mode": "cluster", "lost_seconds": 300,
        "clusters": ["gb10"], "restore": ["spark-1"], "whole": True, "awaits": {}, "tolerance_mb": 4096, "wait_timeout": 180, "companions": False,
        "tool_timeout": 60, "roots": roots, "program_digest": hashlib.sha256(b"sent").hexdigest(), "program_file": str(node.place / "sent"), **more,
    }  # fmt: skip
    return lease_service.work(types.SimpleNamespace(params=params, check_mode=check_mode))


def test_a_lease_begins_with_a_unit_that_watches_it(node):
    begun = say(node)
    assert begun["changed"] and begun["lease"]["state"] == "live" and 0 < begun["lease"]["left_seconds"] <= 300
    assert node.asked == ["daemon-reload", "enable --quiet gb10-lease.service", "restart gb10-lease.service"]
    assert os.stat(os.path.join(record.folder_of(node.state), record.PROGRAM)).st_mode & 0o777 == 0o600
    assert unit.whose(open(lease_files.unit_of(node.state, str(node.place / "etc")).path, "rb").read()) == "ours"


def test_check_mode_writes_nothing(node):
    assert say(node, check_mode=True)["changed"] and record.read(node.state) is None and node.asked == []


def test_a_node_that_could_not_end_the_lease_is_not_leased(node):
    with pytest.raises(ClusterError, match="other has no unit on this node") as caught:
        say(node, clusters=["gb10", "other"])
    assert "gb10_unit" in caught.value.remedy and record.read(node.state) is None


def test_a_cluster_that_kept_no_unit_is_not_whole(node):
    say(node, restore=["spark-1", "gone"])
    content = record.read(node.state)
    assert content["restore"] == ["spark-1"] and not content["whole"]


def test_a_lease_is_renewed_and_given_up_by_its_holder_alone(node):
    say(node)
    record.write(node.state, {**record.read(node.state), "renewed_s": 0.5})
    renewed = say(node, "renewed", lost_seconds=1200)
    assert not renewed["changed"] and record.read(node.state)["renewed_s"] > 0.5 and record.read(node.state)["lost_seconds"] == 1200
    with pytest.raises(ClusterError, match="the lease is over"):
        say(node, "renewed", lease_id="other")
    assert say(node, "given_up", lease_id="other")["lease"]["state"] == "live"
    assert say(node, "given_up", check_mode=True)["lease"]["state"] == "live"
    given = say(node, "given_up")["lease"]
    assert (given["state"], given["left_seconds"]) == ("ending", 0)
    with pytest.raises(ClusterError, match="ending: its caller gave it up before the command had ended"):
        say(node, "renewed")


def test_without_a_lease_renewing_fails_and_giving_up_does_nothing(node):
    with pytest.raises(ClusterError, match="it is gone") as caught:
        say(node, "renewed")
    assert caught.value.reason == record.OVER
    assert not say(node, "given_up")["changed"]


def test_nothing_of_a_lease_is_left_and_unneeded_units_are_named(node):
    say(node)
    ended = say(node, "absent")
    assert ended["changed"] and ended["kept"] == ["spark-1"]
    assert not any(map(os.path.lexists, (*lease_files.unit_of(node.state, str(node.place / "etc")).paths, record.folder_of(node.state))))
    assert "disable --quiet --now gb10-lease.service" in node.asked
    again = say(node, "absent")
    assert not again["changed"] and again["kept"] == []


def test_a_record_that_cannot_be_read_is_removed_like_any_other(node):
    say(node)
    with open(record.path_of(node.state), "w", encoding="utf-8") as stream:
        stream.write("{")
    assert say(node, "absent")["kept"] == [] and record.read(node.state) is None


def test_a_unit_of_that_name_that_is_not_ours_stays(node):
    path = lease_files.unit_of(node.state, str(node.place / "etc")).path
    with open(path, "w", encoding="utf-8") as stream:
        stream.write("[Unit]\n")
    with pytest.raises(ClusterError, match="is not this collection's"):
        say(node)
    with pytest.raises(ClusterError, match="is not this collection's"):
        say(node, "absent")


def keep(node, check_mode=False, cluster="spark-1"):
    params = {
        "state": "kept", "state_dir": node.state, "cluster_name": cluster, "roots": {"etc_root": str(node.place / "etc")}, "tool_timeout": 60, "lock_id": "",
        "start_timeout": 300, "enabled": False,
    }  # fmt: skip
    return engine_service.work(types.SimpleNamespace(params=params, check_mode=check_mode))


def test_a_unit_that_is_kept_neither_runs_nor_starts_at_boot_and_its_files_stay(node):
    assert not keep(node)["changed"]
    assert "stop gb10-engine-spark-1.service" in node.asked and "disable --quiet gb10-engine-spark-1.service" in node.asked
    assert os.path.isdir(units.of_engine(node.state, "spark-1").folder) and os.path.exists(units.of_engine("/", "spark-1", str(node.place / "etc")).path)


def test_where_there_is_no_unit_none_is_kept(node):
    assert not keep(node, cluster="none")["changed"] and not any("stop" in words for words in node.asked)
    keep(node, check_mode=True)
    assert not any("stop" in words or "disable" in words for words in node.asked)


def test_on_the_way_back_the_node_has_nothing_to_stop_and_what_was_before_to_start(node):
    say(node, awaits={"address": "10.0.0.1", "port": 1, "seconds": 5})
    record.write(node.state, {**record.read(node.state), "renewed_s": 0.5})
    assert say(node, "returning", check_mode=True, lost_seconds=3900)["lease"]["clusters"] == ["gb10"]
    result = say(node, "returning", lost_seconds=3900)
    assert not result["changed"] and (result["lease"]["state"], result["lease"]["clusters"], result["lease"]["restore"]) == ("live", [], ["spark-1"])
    content = record.read(node.state)
    assert (content["lost_seconds"], content["awaits"]) == (3900, {}) and content["renewed_s"] > 0.5
    # The command's seconds no longer count. A lease that has ended, or that belongs to another run, is not changed.
    assert say(node, "returning", lease_id="other", lost_seconds=20)["lease"]["left_seconds"] > 3800
    say(node, "given_up")
    assert say(node, "returning", lost_seconds=20)["lease"]["state"] == "ending"
    say(node, "absent")
    assert say(node, "returning", lost_seconds=20)["lease"] == {}


def test_a_node_without_a_python_of_roots_is_not_leased(node, monkeypatch):
    def none(*_modules):
        raise ClusterError("no Python here can run a unit of root's")

    monkeypatch.setattr(lease_service.python, "of_units", none)
    with pytest.raises(ClusterError, match="no Python"):
        say(node)
    assert record.read(node.state) is None and node.asked == []
