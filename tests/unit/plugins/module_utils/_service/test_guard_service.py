# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The guard is set up where something differs and removed with its files; its ring is removed only on request. systemd is a fake."""

from __future__ import annotations

import hashlib
import json
import os
import types
import typing as t
from pathlib import Path

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._guard import guard_files
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import ask, setup, unit
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult
from ansible_collections.gb10.cluster.plugins.module_utils._service import guard_service

#: What the controller sends.
PROGRAM = b"the program"
PROGRAM_DIGEST = hashlib.sha256(PROGRAM).hexdigest()


class Node:
    """A node with its own directories; ``asked`` lists the changes requested from systemd, ``awaited`` counts the waits for a sample."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.active, self.enabled = root, "inactive", "disabled"
        self.asked: list[str] = []
        self.awaited = 0
        self.broken = ""
        self.folder = root / "state" / guard_files.FOLDER
        self.unit = Path(guard_files.unit_of(str(root / "state"), str(root / "etc")).path)
        self.unit.parent.mkdir(parents=True)
        (root / "state").mkdir()
        (root / "sent").write_bytes(PROGRAM)
        for module in (ask, setup, unit):
            monkeypatch.setattr(module, "run_tool", self.systemctl)
        monkeypatch.setattr(ask.shutil, "which", lambda name: f"/usr/bin/{name}")
        monkeypatch.setattr(guard_service, "await_sample", self.sample)
        # A group that every account may set on its own files.
        monkeypatch.setattr(guard_files, "ring_group", os.getegid)

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
        (self.folder / guard_files.RING / "1.jsonl").write_text("{}\n", encoding="ascii")

    def bring(self, state: str = "present", check_mode: bool = False, **more: t.Any) -> dict[str, t.Any]:
        roots = {"proc_root": "/proc", "sysfs_root": "/sys", "etc_root": str(self.root / "etc"), "meminfo": None, "kernel_log": "auto", "nvidia_smi": "none"}
        params = {
            "state": state, "state_dir": str(self.root / "state"), "act": "loading", "load_seconds": 7200, "addresses": [], "forget_ring": False,
            "tool_timeout": 30, "roots": roots, "program_digest": PROGRAM_DIGEST, "program_file": str(self.root / "sent"), **more,
        }  # fmt: skip
        return guard_service.work(types.SimpleNamespace(params=params, check_mode=check_mode))

    @property
    def files(self) -> list[str]:
        return [str(self.folder / guard_files.PROGRAM), str(self.folder / guard_files.CONFIG), str(self.unit)]


@pytest.fixture
def node(tmp_path, monkeypatch):
    return Node(tmp_path, monkeypatch)


def test_it_is_set_up_once(node):
    checked = node.bring(check_mode=True)
    assert checked["msg"].startswith("would restrict ") and not node.asked and not node.folder.exists()
    first = node.bring()
    begun = [f"enable {guard_files.UNIT}", f"start {guard_files.UNIT}"]
    wanted = [f"restrict {node.folder / guard_files.RING} to root and its group", *(f"write {path}" for path in node.files), *begun]
    assert first["actions"] == checked["actions"] == wanted
    assert node.asked == ["daemon-reload", f"enable --quiet {guard_files.UNIT}", f"restart {guard_files.UNIT}"] and node.awaited == 1
    assert {os.stat(path).st_mode & 0o777 for path in node.files} == {0o644}
    assert first["changed"] and first["guard"]["active"] and first["guard"]["enabled"]
    assert first["diff"]["before"] == dict.fromkeys(node.files, "")
    shown = first["diff"]["after"]
    assert shown[node.files[0]].startswith("sha256 ") and '"act": "loading"' in shown[node.files[1]] and "[Service]" in shown[node.files[2]]

    again = node.bring()
    assert (again["changed"], again["msg"], again["diff"]) == (False, "the guard is as it should be", {"before": {}, "after": {}})
    assert len(node.asked) == 3 and node.awaited == 1


def test_the_ring_is_for_root_and_its_group_which_it_hands_on(node, monkeypatch):
    """Also a ring that an older version left readable for everybody: it has lines of the kernel's log."""
    rings = node.folder / guard_files.RING
    node.bring()
    for mode in (0o755, 0o2755, 0o750):
        rings.chmod(mode)
        assert node.bring(check_mode=True)["actions"] == [f"restrict {rings} to root and its group"] and rings.stat().st_mode & 0o7777 == mode
        changed = node.bring()
        assert changed["changed"] and rings.stat().st_mode & 0o7777 == 0o2750 and node.bring()["actions"] == []
    given = []
    monkeypatch.setattr(guard_files, "ring_group", lambda: os.getegid() + 1)
    monkeypatch.setattr(os, "chown", lambda *arguments: given.append(arguments))
    assert node.bring()["actions"] == [f"restrict {rings} to root and its group"] and given == [(str(rings), -1, os.getegid() + 1)]


def test_its_group_is_that_of_the_journal_or_roots(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(guard_files.grp, "getgrnam", lambda name: types.SimpleNamespace(gr_gid={"adm": 4}[name]))
    assert guard_files.ring_group() == 4
    monkeypatch.setattr(guard_files.grp, "getgrnam", lambda name: {}[name])
    assert guard_files.ring_group() == 0


def test_a_guard_of_an_older_version_is_named_and_renewed(node):
    node.bring()
    assert node.bring(check_mode=True)["guard"]["older"] is False
    settings = json.loads((node.folder / guard_files.CONFIG).read_text(encoding="utf-8"))
    older = {name: value for name, value in settings.items() if name not in ("state_dir", "said")}
    (node.folder / guard_files.CONFIG).write_text(json.dumps(older), encoding="utf-8")
    (node.folder / guard_files.PROGRAM).write_bytes(b"older")
    result = node.bring(check_mode=True)
    assert result["guard"]["older"] is True and f"restart {guard_files.UNIT}" in result["actions"]
    assert "gb10.cluster.protect --tags guard renews it" in guard_files.text(result["guard"])
    assert node.bring()["guard"]["older"] is False


def test_what_it_did_or_would_have_is_reported_for_a_day(node, monkeypatch):
    node.bring()
    (node.folder / guard_files.SAID).write_text(json.dumps({"t": 1795444512.0, "text": "7.0 GiB available; no action"}), encoding="utf-8")
    for seconds, shown in ((-86401, False), (-86399, True), (0, True), (86399, True), (86401, False)):
        monkeypatch.setattr(guard_files.time, "time", lambda seconds=seconds: 1795444512.0 + seconds)
        state = node.bring(check_mode=True)["guard"]
        assert (state["said"] == {"at": 1795444512.0, "text": "7.0 GiB available; no action"}) is shown
        assert guard_files.text(state).endswith("removes it; 2026-11-23 14:35:12 UTC: 7.0 GiB available; no action") is shown
    for broken in ("{", "[]", "{}", '{"t": "x", "text": "y"}', '{"t": 1795444512.0, "text": 7}'):
        (node.folder / guard_files.SAID).write_text(broken, encoding="utf-8")
        assert node.bring(check_mode=True)["guard"]["said"] is None


def test_an_account_that_may_not_read_the_ring_gets_an_error(node, monkeypatch):
    node.bring()

    def refused(_folder):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(guard_files.ring, "segments", refused)
    state = guard_files.guard(guard_files.unit_of(str(node.root / "state"), str(node.root / "etc")))
    assert state["ring_bytes"] is None and state["installed"]
    shown = f"ring in {node.folder / guard_files.RING}, size unknown: only root and its group may read it, "
    assert shown in guard_files.text(state)
    assert "its ring remains (in " in guard_files.text({**state, "installed": False})


def test_another_setting_is_written_and_read_by_a_restart(node):
    node.bring()
    del node.asked[:]
    other = node.bring(act="never")
    assert other["actions"] == [f"write {node.files[1]}", f"restart {guard_files.UNIT}"]
    assert node.asked == [f"restart {guard_files.UNIT}"] and node.awaited == 2
    assert '"act": "loading"' in other["diff"]["before"][node.files[1]] and '"act": "never"' in other["diff"]["after"][node.files[1]]


def test_one_that_ended_is_started(node):
    node.bring()
    node.active = "failed"
    assert node.bring()["actions"] == [f"start {guard_files.UNIT}"] and node.bring()["actions"] == []


def test_its_ring_goes_when_that_is_asked_for(node):
    node.bring()
    (node.folder / guard_files.SERVED).write_text("{}", encoding="ascii")
    (node.folder / guard_files.SAID).write_text("{}", encoding="ascii")
    checked = node.bring("absent", check_mode=True)
    gone = node.bring("absent")
    left = [str(node.unit), *node.files[:2], str(node.folder / guard_files.SERVED), str(node.folder / guard_files.SAID)]
    assert gone["actions"] == checked["actions"] == [f"stop {guard_files.UNIT}", *(f"remove {path}" for path in left)]
    assert f"disable --quiet --now {guard_files.UNIT}" in node.asked and "daemon-reload" in node.asked
    assert not node.unit.exists() and os.listdir(node.folder) == [guard_files.RING] and "[Service]" in gone["diff"]["before"][str(node.unit)]
    assert node.bring("absent")["actions"] == []
    forgotten = node.bring("absent", forget_ring=True)
    assert forgotten["actions"] == [f"remove {node.folder / guard_files.RING}"] and not node.folder.exists()


def test_a_foreign_unit_stays(node):
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
    with pytest.raises(ClusterError, match=f"systemctl enable --quiet {guard_files.UNIT} ended with 5: no such unit") as caught:
        node.bring()
    assert guard_files.UNIT in caught.value.remedy and caught.value.reason == "unit"


def test_a_full_disk_ends_no_start_whose_ranks_serve(node, monkeypatch):
    """The step comes after the token: a unit that failed there would watch its engine no more."""
    node.bring()

    def full(path, _content):
        raise OSError(28, "No space left on device", path)

    with monkeypatch.context() as patch:
        patch.setattr(guard_service, "write_json", full)
        result = node.bring("serving")
    served = node.folder / guard_files.SERVED
    assert (result["verdict"], result["msg"]) == ("warn", f"the guard was not notified: {served}: No space left on device")
    assert result["remedy"] == f"Free some space and run again: df -h {node.folder}" and result["serving"] == [] and not served.exists()
    assert "verdict" not in node.bring("serving") and served.exists()
