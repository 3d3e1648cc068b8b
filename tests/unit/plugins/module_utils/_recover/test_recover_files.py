# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The units of a recovery, and the line that status shows about it."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._records import recoveries
from ansible_collections.gb10.cluster.plugins.module_utils._recover import recover_files
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import installed, unit
from ansible_collections.gb10.cluster.plugins.plugin_utils._report import units

SEEN = {"name": "gb10-recover-gb10.timer", "installed": True, "files": True, "enabled": True, "starting": False, "active": True, "failed": False}


def texts(asked: bool = True) -> dict[str, str]:
    where = recover_files.unit_of("/var/lib/gb10", "gb10", "/etc")
    made = recover_files.texts(where, "gb10", "/usr/bin/python3", "10.0.0.1:20302", "gb10-sweep.service", asked)
    assert list(made) == list(where.paths)
    return {path.rpartition("/")[2]: text.decode() for path, text in made.items()}


def test_the_units_look_again_a_minute_after_a_look_has_ended() -> None:
    made = texts()
    assert list(made) == ["gb10-recover-gb10.service", "gb10-recover-gb10.timer", "gb10-recover-gb10.socket", "gb10-recover-gb10@.service"]
    assert all(unit.whose(text.encode()) == "ours" and "{" not in text for text in made.values())
    service, timer, socket, answer = (text.splitlines() for text in made.values())
    assert {"OnUnitInactiveSec=60", "OnBootSec=60", "Wants=gb10-recover-gb10.socket", "WantedBy=timers.target"} <= set(timer)
    run = "ExecStart=/usr/bin/python3 -I /var/lib/gb10/gb10/recover/recover.pyz recover"
    assert {f"{run} run /var/lib/gb10/gb10/recover/recover.json", "Type=oneshot", "OnFailure=gb10-sweep.service", "StartLimitIntervalSec=0"} <= set(service)
    assert not any(line.startswith("Restart=") for line in service)
    # One address, a limit, and a process of its own for each answer, which has no capability and no network.
    assert {"ListenStream=10.0.0.1:20302", "Accept=yes", "MaxConnections=8", "PartOf=gb10-recover-gb10.timer", "FreeBind=yes"} <= set(socket)
    assert {f"{run} answer /var/lib/gb10/gb10/recover/recover.json", "CapabilityBoundingSet=", "PrivateNetwork=yes", "ProtectSystem=strict"} <= set(answer)
    assert {"StandardInput=socket", "StandardError=journal", "RuntimeMaxSec=10"} <= set(answer)


def test_a_single_node_listens_nowhere() -> None:
    assert "Wants" not in texts(False)["gb10-recover-gb10.timer"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> unit.Unit:
    monkeypatch.setattr(installed, "look", lambda where, timeout: {**SEEN, "name": where.name})
    (tmp_path / "gb10" / recoveries.FOLDER).mkdir(parents=True)
    return recover_files.unit_of(str(tmp_path), "gb10", str(tmp_path / "etc"))


def write(place: unit.Unit, **more: t.Any) -> None:
    state = {**{key: kind() for key, kind in recoveries.KEYS.items()}, "kind": "well", "line": "recovery: observe, well", **more}
    recoveries.DOCUMENT.write(f"{place.folder}/{recoveries.FILE}", state)


@pytest.mark.parametrize(
    ("state", "line", "well"),
    [
        ({"shown": True}, "recovery: observe, well", True),
        ({"shown": False}, "", True),
        ({"shown": False, "kind": "fault", "text": "halted"}, "recovery: observe, well", False),
        ({"shown": False, "kind": "young", "text": "halted"}, "recovery: observe, well", False),
        ({"shown": False, "kind": "unknown", "text": "no answer"}, "", True),
        ({"shown": False, "stopped": "spark-2 lacks 41 GiB"}, "recovery: observe, well", False),
    ],
)
def test_one_line_a_cluster_unless_something_is_wrong(place: unit.Unit, state: dict[str, t.Any], line: str, well: bool) -> None:
    write(place, **state)
    found = recover_files.look(place)
    assert recover_files.text(found) == line and units.is_well(found) is well and found["error"] == ""


def test_before_the_first_look_and_with_a_state_that_cannot_be_read(place: unit.Unit) -> None:
    assert recover_files.text(recover_files.look(place)) == ""
    Path(place.folder, recoveries.FILE).write_text("{")
    found = recover_files.look(place)
    assert recover_files.text(found).startswith("recovery: ") and "is not JSON" in recover_files.text(found) and not units.is_well(found)


def test_a_timer_that_does_not_run_is_said(place: unit.Unit) -> None:
    write(place, shown=True)
    found = {**recover_files.look(place), "active": False}
    assert recover_files.text(found) == "recovery: observe, well; gb10-recover-gb10.timer is not active" and not units.is_well(found)
    assert recover_files.text({**SEEN, "installed": False, "files": False}) == recover_files.text({}) == ""
    assert "its files remain" in recover_files.text({**SEEN, "installed": False})


def test_what_a_state_reports() -> None:
    empty = recoveries.read("/nowhere", "gb10")
    assert empty["history"] == [] and empty["at_s"] == 0.0 and recoveries.problem(empty) == ""
    assert recoveries.problem({**empty, "kind": "fault", "text": "halted"}) == "halted"
    assert recoveries.problem({**empty, "kind": "well", "text": "a token"}) == ""
    assert recoveries.problem({**empty, "kind": "off", "text": "x", "stopped": "Reboot"}) == "Reboot"
    assert recoveries.path_of("/s", "c") == "/s/c/recover/state.json"
