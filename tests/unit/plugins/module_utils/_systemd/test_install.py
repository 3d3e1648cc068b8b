# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a unit that is there already is written, started, let go and taken away."""

from __future__ import annotations

import hashlib
import os
import shutil
import types
import typing as t
from pathlib import Path

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import ask, install, setup, unit
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult
from ansible_collections.gb10.cluster.plugins.module_utils._unit import unit_files

NAME = "gb10-engine-gb10.service"


class Node:
    """A node with a unit; ``asked`` lists the changes requested from systemd, and whether the unit was to leave its engine running."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.active = "inactive"
        self.asked: list[str] = []
        self.seconds: dict[str, float] = {}
        #: How often the lock was confirmed as this run's, and whether it was lost.
        self.held, self.lost = 0, False
        self.place = unit_files.of_engine(str(tmp_path / "state"), "gb10", str(tmp_path / "etc"))
        os.makedirs(os.path.dirname(self.place.path))
        os.makedirs(self.place.folder)
        self.texts = {self.place.path: unit.marked("[Unit]\n").encode(), os.path.join(self.place.folder, "specification.json"): b"{}"}
        for path, content in self.texts.items():
            Path(path).write_bytes(content)
        for module in (ask, setup, unit):
            monkeypatch.setattr(module, "run_tool", self.systemctl)
        monkeypatch.setattr(ask.shutil, "which", lambda name: f"/usr/bin/{name}")

    def systemctl(self, argv: list[str], seconds: float) -> ToolResult:
        if argv[1] == "show":
            return ToolResult(0, f"ActiveState={self.active}\nUnitFileState=enabled\n", "")
        self.seconds[argv[1]] = seconds
        self.asked.append(f"{argv[1]}{' (released)' if os.path.exists(os.path.join(self.place.folder, unit_files.RELEASE)) else ''}")
        self.active = {"stop": "inactive", "start": "active"}.get(argv[1], self.active)
        return ToolResult(0, "", "")

    def bring(self, state: str, check_mode: bool = False, locks: bool = True, beside: tuple[str, ...] = (), **more: t.Any) -> dict[str, t.Any]:
        params = {"state": state, "enabled": True, "program_digest": "", "program_file": None, "start_timeout": 60, "tool_timeout": 60, **more}
        module = types.SimpleNamespace(params=params, check_mode=check_mode)
        job = install.Job(
            self.place, lambda: self.texts, (self.place.folder, *beside), closed=True, leaves="the engine",
            release=os.path.join(self.place.folder, unit_files.RELEASE), seconds=params["start_timeout"], locks=locks, check_held=self.check_held,
        )  # fmt: skip
        return {**install.bring(module, job), "unit": unit_files.unit(self.place)}

    def check_held(self) -> None:
        if self.lost:
            raise ClusterError("this run lost the lock")
        self.held += 1


@pytest.fixture
def node(tmp_path, monkeypatch):
    return Node(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("active", "edited", "commands", "message"),
    [
        ("active", False, [], "the unit is as it should be"),
        ("active", True, ["stop (released)", "start (released)"], "restart"),
        ("inactive", False, ["start"], f"start {NAME}"),
        # It may wait for the lock of the calling run, which would wait for it.
        ("activating", False, ["stop (released)", "start (released)"], f"restart {NAME}, which leaves the engine running"),
        ("failed", False, ["start"], f"start {NAME}"),
    ],
)
def test_a_wanted_unit_runs_its_current_files(node, active, edited, commands, message):
    node.active = active
    if edited:
        node.texts[os.path.join(node.place.folder, "specification.json")] = b'{"other": 1}'
    checked = node.bring("present", check_mode=True)
    assert checked["changed"] is bool(commands) and not node.asked
    done = node.bring("present")
    assert (done["changed"], node.asked) == (bool(commands), commands) and message in done["msg"]
    assert done["unit"]["active"] is True and done["unit"]["starting"] is False


def test_a_start_that_needs_no_lock_is_not_restarted(node):
    node.active = "activating"
    assert node.bring("present", locks=False)["actions"] == [f"start {NAME}"] and node.asked == ["start"]


@pytest.mark.parametrize("state", ["kept", "absent"])
@pytest.mark.parametrize("active", ["active", "activating"])
def test_a_removed_unit_leaves_its_engine_running(node, state, active):
    node.active = active
    assert f"stop {NAME}, which leaves the engine running" in node.bring(state, check_mode=True)["actions"] and not node.asked
    done = node.bring(state)
    assert node.asked[0] == "stop (released)" and done["changed"] and os.path.exists(node.place.path) is (state == "kept")


def mode_of(path: str) -> int:
    return os.stat(path).st_mode & 0o777


def test_a_new_unit_has_a_folder_for_root_only_and_starts_after_its_files(node):
    shutil.rmtree(node.place.folder)
    os.unlink(node.place.path)
    before = os.umask(0)
    try:
        done = node.bring("present")
    finally:
        os.umask(before)
    assert mode_of(node.place.folder) == 0o700 and node.asked == ["daemon-reload", "enable", "start"]
    assert done["actions"] == [*(f"write {path}" for path in node.texts), f"enable {NAME}", f"start {NAME}"]
    assert mode_of(node.place.path) == 0o644 and mode_of(os.path.join(node.place.folder, "specification.json")) == 0o600
    assert node.held == 1
    # A folder that others could enter is closed again.
    os.chmod(node.place.folder, 0o755)
    node.texts[node.place.path] = unit.marked("[Unit]\nDescription=x\n").encode()
    node.bring("present")
    assert mode_of(node.place.folder) == 0o700


@pytest.mark.parametrize("sent", ["the program", "another one"])
def test_a_program_is_requested_sent_and_identified_by_its_digest(node, tmp_path, sent):
    node.active = "active"
    wanted = hashlib.sha256(b"the program").hexdigest()
    result = node.bring("present", program_digest=wanted)
    assert result["needs_program"] and result["actions"] == [f"write {node.place.program}", f"restart {NAME}, which leaves the engine running"]
    assert node.asked == [] and node.held == 0 and not os.path.exists(node.place.program)
    (tmp_path / "sent").write_text(sent)
    if sent == "another one":
        with pytest.raises(ClusterError, match=f"{tmp_path}/sent is not the program that the controller built") as caught:
            node.bring("present", program_digest=wanted, program_file=str(tmp_path / "sent"))
        assert caught.value.reason == "program" and not os.path.exists(node.place.program)
        return
    done = node.bring("present", program_digest=wanted, program_file=str(tmp_path / "sent"))
    assert done["changed"] and node.asked == ["stop (released)", "start (released)"] and node.held == 1
    assert Path(node.place.program).read_text() == "the program" and mode_of(node.place.program) == 0o600
    again = node.bring("present", program_digest=wanted)
    assert not again["changed"] and not again["needs_program"]


def test_nothing_is_changed_without_the_lock(node):
    node.lost = True
    node.texts[os.path.join(node.place.folder, "specification.json")] = b"{2}"
    for state in ("present", "kept", "absent"):
        node.active = "active"
        with pytest.raises(ClusterError, match="lost"):
            node.bring(state)
        assert node.asked == [] and Path(node.place.folder, "specification.json").read_bytes() == b"{}" and os.path.exists(node.place.path)


@pytest.mark.parametrize("active", ["active", "inactive"])
def test_a_kept_unit_does_not_start_at_boot_and_has_its_files(node, active):
    node.active = active
    checked = node.bring("kept", check_mode=True)
    assert not node.asked and node.held == 0
    done = node.bring("kept")
    assert node.asked == ["stop (released)", "disable (released)"] and node.held == 1
    stop = [f"stop {NAME}, which leaves the engine running"] if active == "active" else []
    assert done["actions"] == checked["actions"] == [*stop, f"disable {NAME}"]
    assert not done["needs_program"] and done["diff"] == {} and all(os.path.exists(path) for path in node.texts)


def test_a_missing_unit_is_not_kept(node):
    os.unlink(node.place.path)
    assert node.bring("kept")["changed"] is False and node.asked == [] and node.held == 0


def test_a_unit_is_removed_with_its_files_and_further_paths(node, tmp_path):
    beside = tmp_path / "glance.json"
    beside.touch()
    node.active = "active"
    gone = [node.place.path, node.place.folder, str(beside)]
    checked = node.bring("absent", check_mode=True, beside=(str(beside), str(tmp_path / "none")))
    assert checked["actions"][1:] == [f"remove {path}" for path in gone] and node.asked == [] and all(map(os.path.lexists, gone))
    done = node.bring("absent", beside=(str(beside), str(tmp_path / "none")))
    assert done["actions"] == checked["actions"] and not any(map(os.path.lexists, gone)) and node.held == 1
    assert node.asked == ["stop (released)", "disable (released)", "daemon-reload (released)", "reset-failed (released)"]
    assert node.place.path in done["diff"]["before"] and done["diff"]["after"] == {} and not done["needs_program"]
    again = node.bring("absent")
    assert not again["changed"] and again["msg"] == "there is no unit" and node.held == 1


@pytest.mark.parametrize("there", ["unit", "folder"])
def test_leftovers_of_a_unit_are_removed(node, there):
    """A run that was interrupted took the rest."""
    if there == "unit":
        shutil.rmtree(node.place.folder)
    else:
        os.unlink(node.place.path)
    node.bring("absent")
    assert not os.path.lexists(node.place.path) and not os.path.lexists(node.place.folder)
    assert bool(node.asked) is (there == "unit")


def test_a_stop_gets_the_longer_of_both_timeouts_and_a_start_its_own(node):
    node.active = "active"
    node.texts[os.path.join(node.place.folder, "specification.json")] = b"{2}"
    node.bring("present", start_timeout=90, tool_timeout=7)
    assert node.seconds == {"stop": 90, "start": 90}
    node.active = "active"
    node.bring("kept", start_timeout=5, tool_timeout=8)
    assert node.seconds == {"stop": 8, "start": 90, "disable": 8}


@pytest.mark.parametrize("option", ["start_timeout", "tool_timeout"])
def test_a_timeout_is_at_least_a_second(node, option):
    with pytest.raises(ClusterError, match=f"{option} is 0, expected 1 or more"):
        node.bring("present", **{option: 0})


def test_the_digest_of_a_missing_file_is_empty(tmp_path):
    assert install.digest(str(tmp_path / "none")) == ""
    (tmp_path / "x").write_bytes(b"x")
    assert install.digest(str(tmp_path / "x")) == hashlib.sha256(b"x").hexdigest()


def test_a_file_that_cannot_be_written_is_named(node, monkeypatch):
    node.texts[os.path.join(node.place.folder, "specification.json")] = b"{2}"

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ClusterError, match="specification.json: No space left on device") as caught:
        node.bring("present")
    assert caught.value.remedy == f"Free some space and run again: df -h {node.place.folder}"
