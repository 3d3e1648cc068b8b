# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The guard is set up where something differs, and taken away with what it left, its ring only when that is asked for. systemd is played."""

from __future__ import annotations

import os
import types
import typing as t
from pathlib import Path

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._guard import look
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import ask, setup, unit
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult
from ansible_collections.gb10.cluster.plugins.modules import node_guard


class Node:
    """A node with a directory of its own for everything; ``asked`` is what systemd was asked to change, ``awaited`` how often a sample was waited for."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.active, self.enabled = root, "inactive", "disabled"
        self.asked: list[str] = []
        self.awaited = 0
        self.broken = ""
        self.folder = root / "state" / look.FOLDER
        self.unit = Path(look.unit_of(str(root / "etc")).path)
        self.unit.parent.mkdir(parents=True)
        (root / "state").mkdir()
        for module in (ask, setup, unit):
            monkeypatch.setattr(module, "run_tool", self.systemctl)
        monkeypatch.setattr(ask.shutil, "which", lambda name: f"/usr/bin/{name}")
        monkeypatch.setattr(node_guard, "await_sample", self.sample)

    def systemctl(self, argv: list[str], _seconds: float) -> ToolResult:
        if argv[1] == "show":
            return ToolResult(0, f"ActiveState={self.active}\nUnitFileState={self.enabled}\n", "")
        self.asked.append(" ".join(argv[1:]))
        if argv[1] == self.broken:
            return ToolResult(5, "", "no such unit")
        if argv[1] == "restart":
            self.active = "active"
        if argv[1] in ("enable", "disable"):
            self.enabled = f"{argv[1]}d"
            self.active = "inactive" if "--now" in argv else self.active
        return ToolResult(0, "", "")

    def sample(self, *_given: t.Any) -> None:
        self.awaited += 1
        (self.folder / look.RING / "1.jsonl").write_text("{}\n", encoding="ascii")

    def bring(self, state: str = "present", check_mode: bool = False, **more: t.Any) -> dict[str, t.Any]:
        roots = {"proc_root": "/proc", "sysfs_root": "/sys", "etc_root": str(self.root / "etc"), "meminfo": None, "kernel_log": "auto", "nvidia_smi": "none"}
        params = {
            "state": state, "state_dir": str(self.root / "state"), "act": "loading", "load_seconds": 7200, "addresses": [], "forget_ring": False,
            "tool_timeout": 30, "roots": roots, **more,
        }  # fmt: skip
        return node_guard.work(types.SimpleNamespace(params=params, check_mode=check_mode))

    @property
    def files(self) -> list[str]:
        return [str(self.folder / look.PROGRAM), str(self.folder / look.CONFIG), str(self.unit)]


@pytest.fixture
def node(tmp_path, monkeypatch):
    return Node(tmp_path, monkeypatch)


def test_it_is_set_up_once(node):
    checked = node.bring(check_mode=True)
    assert checked["msg"].startswith("would write ") and not node.asked and not node.folder.exists()
    first = node.bring()
    assert first["actions"] == checked["actions"] == [*(f"write {path}" for path in node.files), f"enable {look.UNIT}", f"start {look.UNIT}"]
    assert node.asked == ["daemon-reload", f"enable --quiet {look.UNIT}", f"restart {look.UNIT}"] and node.awaited == 1
    assert {os.stat(path).st_mode & 0o777 for path in node.files} == {0o644}
    assert first["changed"] and first["guard"]["active"] and first["guard"]["enabled"]
    assert first["diff"]["before"] == dict.fromkeys(node.files, "")
    shown = first["diff"]["after"]
    assert shown[node.files[0]].startswith("sha256 ") and '"act": "loading"' in shown[node.files[1]] and "[Service]" in shown[node.files[2]]

    again = node.bring()
    assert (again["changed"], again["msg"], again["diff"]) == (False, "the guard is as it should be", {"before": {}, "after": {}})
    assert len(node.asked) == 3 and node.awaited == 1


def test_another_setting_is_written_and_read_by_a_restart(node):
    node.bring()
    del node.asked[:]
    other = node.bring(act="never")
    assert other["actions"] == [f"write {node.files[1]}", f"restart {look.UNIT}"]
    assert node.asked == [f"restart {look.UNIT}"] and node.awaited == 2
    assert '"act": "loading"' in other["diff"]["before"][node.files[1]] and '"act": "never"' in other["diff"]["after"][node.files[1]]


def test_one_that_ended_is_started(node):
    node.bring()
    node.active = "failed"
    assert node.bring()["actions"] == [f"start {look.UNIT}"] and node.bring()["actions"] == []


def test_its_ring_goes_when_that_is_asked_for(node):
    node.bring()
    (node.folder / look.SERVED).write_text("{}", encoding="ascii")
    checked = node.bring("absent", check_mode=True)
    gone = node.bring("absent")
    left = [str(node.unit), *node.files[:2], str(node.folder / look.SERVED)]
    assert gone["actions"] == checked["actions"] == [f"stop {look.UNIT}", *(f"remove {path}" for path in left)]
    assert f"disable --quiet --now {look.UNIT}" in node.asked and "daemon-reload" in node.asked
    assert not node.unit.exists() and os.listdir(node.folder) == [look.RING] and "[Service]" in gone["diff"]["before"][str(node.unit)]
    assert node.bring("absent")["actions"] == []
    forgotten = node.bring("absent", forget_ring=True)
    assert forgotten["actions"] == [f"remove {node.folder / look.RING}"] and not node.folder.exists()


def test_a_unit_of_somebody_else_stays(node):
    node.unit.write_text("[Unit]\nDescription=mine\n", encoding="utf-8")
    for state in ("present", "absent"):
        with pytest.raises(ClusterError, match="is not this collection's"):
            node.bring(state)
    assert "mine" in node.unit.read_text(encoding="utf-8") and not node.asked and not node.folder.exists()


def test_a_unit_that_was_edited_stays(node):
    node.bring()
    node.unit.write_text(node.unit.read_text(encoding="utf-8").replace("CPUQuota=20%", "CPUQuota=50%"), encoding="utf-8")
    for state in ("present", "absent"):
        with pytest.raises(ClusterError, match="was edited by hand"):
            node.bring(state)
    assert "CPUQuota=50%" in node.unit.read_text(encoding="utf-8") and node.active == "active"


def test_a_tool_that_fails_is_named_with_what_it_said(node):
    node.broken = "enable"
    with pytest.raises(ClusterError, match=f"systemctl enable --quiet {look.UNIT} ended with 5: no such unit") as caught:
        node.bring()
    assert look.UNIT in caught.value.remedy and caught.value.reason == "unit"


def test_a_full_disk_ends_no_start_whose_ranks_serve(node, monkeypatch):
    """The step comes after the token: a unit that failed there would watch its engine no more."""
    node.bring()

    def full(path, _content):
        raise OSError(28, "No space left on device", path)

    with monkeypatch.context() as patch:
        patch.setattr(node_guard, "write_json", full)
        told = node.bring("serving")
    served = node.folder / look.SERVED
    assert (told["verdict"], told["msg"]) == ("warn", f"the guard was not told: {served}: No space left on device")
    assert told["remedy"] == f"Free some space and run again: df -h {node.folder}" and told["serving"] == [] and not served.exists()
    assert "verdict" not in node.bring("serving") and served.exists()
