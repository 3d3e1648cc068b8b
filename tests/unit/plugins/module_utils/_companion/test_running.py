# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of a node's companions, and the wait for them."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._companion import container, declared, running, unit
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import Process, Scan

IMAGE = "sha256:" + "a" * 64
OWN = "b" * 64
OLLAMA = declared.whole({"name": "ollama", "image": IMAGE, "port": 11434, "health_path": "/api/tags", "memory_gib": 20})


def test_what_is_seen_of_each(monkeypatch, tmp_path: pathlib.Path):
    for pid, cgroup in ((10, f"0::/docker/{OWN}\n"), (11, "0::/system.slice/asr.service\n"), (12, "0::/system.slice/ssh.service\n")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(cgroup)
        (tmp_path / str(pid) / "status").write_text("VmRSS:\t 9 kB\nRssAnon:\t 1048576 kB\n")
    seen = Scan({pid: Process(pid, 1, "S", "x", ("x",), OWN if pid == 10 else "", 0, 1) for pid in (10, 11, 12)}, 0)
    entry = {"Id": OWN, "Names": ["/gb10-companion-ollama"], "State": "running", "Image": IMAGE, "Labels": container.labels(OLLAMA)}
    monkeypatch.setattr(unit, "state", lambda name, timeout: unit.State("loaded", "active"))
    monkeypatch.setattr(running, "listeners", lambda ports, root: [])
    monkeypatch.setattr(running, "health", lambda port, path, timeout: (port == 8765, "status 200"))
    asr = {"name": "asr", "unit": "asr.service", "port": 8765, "health_path": "/health", "memory_gib": 2}
    companions = running.look([asr], [entry], seen, lambda: [{"pid": 10, "used_mib": 512, "gpu": 0}], str(tmp_path), 5)
    assert [(item["name"], item["declared"], item["pids"], item["gpu_mib"], item["anon_mb"], item["healthy"]) for item in companions] == [
        ("asr", True, [11], 0, 1024, True),
        ("ollama", False, [10], 512, 1024, None),
    ]
    (absent,) = running.look([{**asr, "unit": "", "image": IMAGE}], [], Scan({}, 0), list, str(tmp_path), 5)
    assert (absent["state"], absent["running"], absent["pids"]) == ("absent", False, [])
    stranger = {"Id": OWN, "Names": ["/gb10-companion-ollama"], "State": "running", "Image": IMAGE, "Labels": {}}
    (taken,) = running.look([OLLAMA], [stranger], Scan({}, 0), list, str(tmp_path), 5)
    assert (taken["state"], taken["container"], taken["running"]) == ("foreign", "", False)


def row(name="ollama", **changes):
    return {"name": name, "running": True, "healthy": True, "unit": "", "container_id": OWN, **changes}


@pytest.mark.parametrize(("changes", "up", "down", "settled"), [
    ({}, ["ollama"], [], True),
    ({"healthy": False}, ["ollama"], [], False),
    # The wait for a companion that has ended stops.
    ({"running": False, "healthy": None}, ["ollama"], [], True),
    ({"healthy": False}, ["asr"], ["tts"], True),
    ({}, [], ["ollama"], False),
    ({"running": False}, [], ["ollama"], True),
])  # fmt: skip
def test_how_long_one_is_waited_for(changes, up, down, settled):
    assert running.settled([row(**changes)], up, down) is settled


def test_one_that_has_ended_shows_the_end_of_its_log(monkeypatch):
    class Engine:
        def logs(self, container_id):
            assert container_id == OWN
            return "address in use"

    monkeypatch.setattr(unit, "journal", lambda name, timeout: f"journal of {name}")
    asr, new = row("asr", running=False, unit="asr.service"), row("new", running=False, container_id="")
    rows = [row(running=False), asr, row("tts"), row("old", running=False), new]
    companions = running.with_logs(rows, ["ollama", "asr", "tts", "new"], Engine(), 5)
    assert [companion["log"] for companion in companions] == ["address in use", "journal of asr.service", "", "", ""]


@pytest.mark.parametrize(("state", "holds"), [
    (unit.State("loaded", "active"), True),
    (unit.State("loaded", "deactivating"), True),
    (unit.State("loaded", "failed"), False),
    # systemd has not started it yet.
    (unit.State("loaded", "inactive", "4711"), True),
])  # fmt: skip
def test_which_units_have_processes(state, holds):
    assert state.holds_processes is holds
