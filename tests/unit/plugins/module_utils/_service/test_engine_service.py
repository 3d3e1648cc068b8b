# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit of an engine beside units of other clusters: of two that would start at a boot, the one that does not run is disabled."""

from __future__ import annotations

import hashlib
import os
import types

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._service import engine_service
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import ask, setup, unit
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult
from ansible_collections.gb10.cluster.plugins.module_utils._unit import unit_files as units

OWN, PAIR, GUARD = "gb10-engine-spark-1.service", "gb10-engine-gb10.service", "gb10-guard.service"
SPECIFICATION = {
    "cluster": "spark-1", "role": "head", "executor": "native", "nodes": {}, "meeting": {}, "gpus": 1, "state_dir": "/s", "log_dir": "/l", "memory": {},
    "address": "", "start_seconds": 100, "start": [], "stop": [], "unclean_boot": "once",
}  # fmt: skip


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A node with a unit of a pair; ``states`` has what systemd reports of each unit, ``asked`` the calls that change something."""
    made = types.SimpleNamespace(place=tmp_path, asked=[], states={PAIR: "failed enabled", GUARD: "inactive enabled"})

    def systemctl(argv, _seconds, content=b""):
        if argv[1] != "show":
            made.asked.append(" ".join(argv[1:]))
            return ToolResult(0, "", "")
        state, enabled = made.states.get(argv[-1], "inactive disabled").split()
        return ToolResult(0 if state != "silent" else 1, f"ActiveState={state}\nUnitFileState={enabled}\n", "")

    for module in (ask, setup, unit):
        monkeypatch.setattr(module, "run_tool", systemctl)
    monkeypatch.setattr(ask.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(engine_service.python, "of_units", lambda *_modules: "/usr/bin/python3")
    for name in (PAIR, GUARD):
        path = unit.path_of(name, str(tmp_path / "etc"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(unit.marked("[Unit]\n"))
    (tmp_path / "sent").write_bytes(b"sent")
    return made


def present(node, enabled=True, check_mode=False, state="present"):
    place = str(node.place)
    roots = {"proc_root": f"{place}/proc", "sysfs_root": f"{place}/sys", "etc_root": f"{place}/etc"}
    params = {
        "state": state, "state_dir": f"{place}/state", "cluster_name": "spark-1", "roots": roots, "tool_timeout": 60, "lock_id": "", "start_timeout": 300,
        "enabled": enabled, "specification": SPECIFICATION, "program_digest": hashlib.sha256(b"sent").hexdigest(), "program_file": f"{place}/sent",
    }  # fmt: skip
    return engine_service.work(types.SimpleNamespace(params=params, check_mode=check_mode))


def test_a_unit_of_another_cluster_that_does_not_run_is_disabled_once(node):
    assert f"disable {PAIR}" in present(node, check_mode=True)["actions"] and node.asked == []
    assert present(node)["actions"][0] == f"disable {PAIR}"
    assert node.asked == [f"disable --quiet {PAIR}", "daemon-reload", f"enable --quiet {OWN}", f"start {OWN}"]
    assert os.path.exists(unit.path_of(PAIR, str(node.place / "etc")))
    node.states.update({PAIR: "failed disabled", OWN: "active enabled"})
    again = present(node)
    assert (again["changed"], again["actions"]) == (False, [])


@pytest.mark.parametrize("state", ["active enabled", "activating enabled", "inactive disabled", "silent enabled"])
def test_one_that_runs_or_starts_or_is_unknown_is_left_alone(node, state):
    node.states[PAIR] = state
    assert not any(PAIR in action for action in present(node)["actions"]) and not any(PAIR in call for call in node.asked)


def test_its_own_unit_that_failed_is_started_and_not_disabled(node):
    present(node)
    node.asked.clear()
    node.states.update({PAIR: "failed disabled", OWN: "failed enabled"})
    assert present(node)["actions"] == [f"start {OWN}"] and node.asked == [f"start {OWN}"]


def test_a_unit_that_does_not_start_at_boot_leaves_the_others_alone(node):
    assert not any(PAIR in action for action in present(node, enabled=False)["actions"])
    present(node)
    node.asked.clear()
    for state in ("kept", "absent"):
        present(node, state=state)
    assert node.asked and not any(PAIR in call for call in node.asked) and not os.path.exists(units.of_engine("/", "spark-1", str(node.place / "etc")).path)
