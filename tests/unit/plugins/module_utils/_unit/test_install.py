# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a unit that is there already is written, started, let go and taken away."""

from __future__ import annotations

import os
import types
import typing as t
from pathlib import Path

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import ask, setup, unit
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult
from ansible_collections.gb10.cluster.plugins.module_utils._unit import install, look

NAME = "gb10-engine-gb10.service"


class Node:
    """A node with a unit; ``asked`` is what systemd was asked to change, and whether the unit was to leave its engine running then."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.active = "inactive"
        self.asked: list[str] = []
        self.place = look.of_engine(str(tmp_path / "state"), "gb10", str(tmp_path / "etc"))
        os.makedirs(os.path.dirname(self.place.path))
        os.makedirs(self.place.folder)
        self.texts = {self.place.path: unit.marked("[Unit]\n").encode(), os.path.join(self.place.folder, "specification.json"): b"{}"}
        for path, content in self.texts.items():
            Path(path).write_bytes(content)
        for module in (ask, setup, unit):
            monkeypatch.setattr(module, "run_tool", self.systemctl)
        monkeypatch.setattr(ask.shutil, "which", lambda name: f"/usr/bin/{name}")

    def systemctl(self, argv: list[str], _seconds: float) -> ToolResult:
        if argv[1] == "show":
            return ToolResult(0, f"ActiveState={self.active}\nUnitFileState=enabled\n", "")
        self.asked.append(f"{argv[1]}{' (released)' if os.path.exists(os.path.join(self.place.folder, look.RELEASE)) else ''}")
        self.active = {"stop": "inactive", "start": "active"}.get(argv[1], self.active)
        return ToolResult(0, "", "")

    def bring(self, state: str, check_mode: bool = False, locks: bool = True) -> dict[str, t.Any]:
        params = {"state": state, "enabled": True, "program_digest": "", "program": None, "start_timeout": 60, "tool_timeout": 60}
        module = types.SimpleNamespace(params=params, check_mode=check_mode)
        return install.bring(module, install.Unit(self.place, "the engine", locks=locks), lambda: self.texts)


@pytest.fixture
def node(tmp_path, monkeypatch):
    return Node(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("active", "edited", "asked", "said"),
    [
        ("active", False, [], "the unit is as it should be"),
        ("active", True, ["stop (released)", "start (released)"], "restart"),
        ("inactive", False, ["start"], f"start {NAME}"),
        # It may wait for the lock of the run that asks, which would wait for it.
        ("activating", False, ["stop (released)", "start (released)"], f"restart {NAME}, which leaves the engine running"),
        ("failed", False, ["start"], f"start {NAME}"),
    ],
)
def test_a_unit_that_is_wanted_runs_as_it_is_written(node, active, edited, asked, said):
    node.active = active
    if edited:
        node.texts[os.path.join(node.place.folder, "specification.json")] = b'{"other": 1}'
    checked = node.bring("present", check_mode=True)
    assert checked["changed"] is bool(asked) and not node.asked
    done = node.bring("present")
    assert (done["changed"], node.asked) == (bool(asked), asked) and said in done["msg"]
    assert done["unit"]["active"] is True and done["unit"]["starting"] is False


def test_a_start_that_waits_for_nobody_is_joined(node):
    node.active = "activating"
    assert node.bring("present", locks=False)["actions"] == [f"start {NAME}"] and node.asked == ["start"]


@pytest.mark.parametrize("state", ["kept", "absent"])
@pytest.mark.parametrize("active", ["active", "activating"])
def test_a_unit_that_goes_leaves_its_engine_running(node, state, active):
    node.active = active
    assert f"stop {NAME}, which leaves the engine running" in node.bring(state, check_mode=True)["actions"] and not node.asked
    done = node.bring(state)
    assert node.asked[0] == "stop (released)" and done["changed"] and os.path.exists(node.place.path) is (state == "kept")
