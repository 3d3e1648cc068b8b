# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of units from systemd, and how a timer with its service is installed and removed. systemd is a fake."""

from __future__ import annotations

import os

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import ask, setup, unit
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult

UNKNOWN = ask.State(None, None, None, None)


@pytest.fixture
def systemd(monkeypatch):
    """Have systemd give an answer."""

    def says(stdout, rc=0):
        monkeypatch.setattr(ask.shutil, "which", lambda name: f"/usr/bin/{name}")
        monkeypatch.setattr(ask, "run_tool", lambda argv, timeout: ToolResult(rc, stdout, "" if not rc else "Failed to connect to bus"))

    return says


@pytest.mark.parametrize(
    ("active", "state"),
    [
        ("active", ask.State(True, False, True, False)),
        ("reloading", ask.State(True, False, True, False)),
        ("activating", ask.State(True, True, False, False)),
        ("deactivating", ask.State(True, False, False, False)),
        ("failed", ask.State(True, False, False, True)),
    ],
)
def test_the_state_of_a_unit(systemd, active, state):
    systemd(f"ActiveState={active}\nUnitFileState=enabled\n")
    assert ask.states(5, "a.service") == [state]


def test_each_unit_has_its_own_answer(systemd):
    systemd("ActiveState=active\nUnitFileState=enabled\n\nActiveState=failed\nUnitFileState=static\n")
    assert ask.states(5, "a.timer", "a.service") == [ask.State(True, False, True, False), ask.State(False, False, False, True)]
    assert ask.properties(("ActiveState",), ("a.timer", "a.service"), 5)[1]["UnitFileState"] == "static"


@pytest.mark.parametrize(("answer", "rc"), [("", 1), ("", 0), ("ActiveState=active\n", 1), ("ActiveState=active\n", 0), ("\n\n", 0)])
def test_an_invalid_answer_is_unknown(systemd, answer, rc):
    systemd(answer, rc)
    assert ask.states(5, "a.timer", "a.service") == [UNKNOWN, UNKNOWN]
    with pytest.raises(UnknownState, match="systemd does not report the state of a.timer, a.service") as caught:
        ask.properties(("ActiveState",), ("a.timer", "a.service"), 5)
    assert "systemctl status a.timer a.service" in caught.value.remedy


def test_without_systemd_nothing_runs(monkeypatch):
    monkeypatch.setattr(ask.shutil, "which", lambda name: None)
    monkeypatch.setattr(ask, "run_tool", lambda *_given: pytest.fail("asked"))
    assert ask.states(5, "a.service") == [ask.State()] and not any(ask.State())


def test_a_starting_unit_restarts_when_it_may_wait_for_this_run(systemd, tmp_path):
    ours = unit.Unit("a.service", (str(tmp_path / "a.service"),))
    (tmp_path / "a.service").write_text(unit.marked("[Unit]\n"))
    systemd("ActiveState=activating\nUnitFileState=enabled\n")
    start = setup.Start(ours, 5, stale=False, leaves="the engine")
    assert start.needed and not start.again and start.actions == ["start a.service"]
    start = setup.Start(ours, 5, stale=False, leaves="the engine", waits=True)
    assert start.needed and start.again and start.actions == ["restart a.service, which leaves the engine running"]
    systemd("ActiveState=inactive\nUnitFileState=enabled\n")
    start = setup.Start(ours, 5, stale=True, enabled=False)
    assert start.needed and not start.again and start.actions == ["disable a.service", "start a.service"]


@pytest.mark.skipif(os.geteuid() != 0, reason="another account takes root")
def test_a_program_that_another_account_could_replace_is_refused(tmp_path):
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)
    ours = unit.Unit("a.service", (str(tmp_path / "a.service"),))
    texts = {ours.path: unit.marked("[Unit]\n").encode(), str(tmp_path / "theirs/guard/a.pyz"): b"PK"}
    with pytest.raises(ClusterError, match="the programs of root's units would be within reach of other accounts: .*/theirs, above") as caught:
        setup.Files(ours, texts)
    assert "gb10_state_dir" in caught.value.remedy and not (tmp_path / "theirs/guard").exists()
    os.chown(tmp_path / "theirs", 0, 0)
    assert setup.Files(ours, texts).differing == list(texts)


def test_a_service_is_removed_with_its_timer(tmp_path, monkeypatch):
    calls = []
    for module in (setup, unit):
        monkeypatch.setattr(module, "run_tool", lambda argv, timeout: calls.append(" ".join(argv[1:])) or ToolResult(0, "", ""))
    ours = unit.Unit("a.timer", (str(tmp_path / "a.service"), str(tmp_path / "a.timer")))
    files = setup.Files(ours, {path: unit.marked("[Unit]\n").encode() for path in ours.paths} | {str(tmp_path / "a.pyz"): b"PK"})
    assert os.listdir(tmp_path) == []
    files.write(5)
    assert calls == ["daemon-reload"] and ours.path == str(tmp_path / "a.timer")
    assert {name: os.stat(tmp_path / name).st_mode & 0o777 for name in os.listdir(tmp_path)} == {"a.service": 0o644, "a.timer": 0o644, "a.pyz": 0o600}
    del calls[:]
    setup.remove(ours, 5)
    assert calls == ["disable --quiet --now a.timer", "stop a.service", "daemon-reload", "reset-failed a.service a.timer"]
    setup.remove(ours, 5)
    assert os.listdir(tmp_path) == ["a.pyz"] and len(calls) == 4
