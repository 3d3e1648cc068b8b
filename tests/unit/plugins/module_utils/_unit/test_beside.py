# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit of a node's companions: what it starts at a boot and stops at a shutdown, what it refuses, and who is taken out of it."""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._unit import beside, record, service, specification, text, unit_files

IMAGE = "sha256:" + "a" * 64


def one(name: str, **more: t.Any) -> dict[str, t.Any]:
    return {"name": name, "image": IMAGE, "port": 1, "health_path": "/", "health_timeout": 60, "stop_timeout": 20, **more}


class Node:
    """A node whose companions answer from a table; ``asked`` is what became of which."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, boot: str = "now") -> None:
        (tmp_path / "proc/sys/kernel/random").mkdir(parents=True, exist_ok=True)
        (tmp_path / "proc/sys/kernel/random/boot_id").write_text(boot)
        self.folder = tmp_path / "companions"
        self.folder.mkdir(exist_ok=True)
        self.asked: list[str] = []
        self.said: list[str] = []
        self.broken: set[tuple[str, str]] = set()
        for module in (beside, service):
            monkeypatch.setattr(module, "say", self.said.append)
        monkeypatch.setattr(beside, "LOOK_SECONDS", 0.01)
        monkeypatch.setattr(record, "RUN_DIR", str(tmp_path / "run"))
        self.given = {"companions": [one("asr"), one("ollama")], "state_dir": str(tmp_path), "roots": {"proc_root": str(tmp_path / "proc")}}
        (self.folder / specification.FILE).write_text(specification.dump(self.given))
        self.unit = beside.Companions(beside.read(str(self.folder / specification.FILE)), self.run)

    def run(self, module: str, arguments: t.Mapping[str, t.Any], _seconds: float, _predict: bool) -> dict[str, t.Any]:
        assert module == "companion" and arguments["comes_back"] is True
        did = (arguments["name"], arguments["state"])
        self.asked.append(" ".join(did))
        if arguments["name"] == "ollama" and arguments["state"] == "started":
            self.unit.ask_to_stop(15, None)
        return {"failed": True, "msg": "no", "verdict": "block"} if did in self.broken else {"msg": " ".join(did), "changed": True}

    @property
    def state(self) -> dict[str, t.Any]:
        return record.read(str(self.folder))


@pytest.fixture
def node(tmp_path, monkeypatch):
    return lambda **more: Node(tmp_path, monkeypatch, **more)


def test_they_start_in_their_order_and_stop_the_other_way_round(node):
    made = node()
    assert made.unit.main() == 0
    assert made.asked == ["asr started", "ollama started", "ollama stopped", "asr stopped"] and made.state["state"] == "stopped"


def test_one_that_does_not_come_up_is_named_and_keeps_no_other_away(node, monkeypatch):
    made = node()
    made.broken = {("asr", "started")}
    shown = []
    for module in (beside, service):
        monkeypatch.setattr(module, "notify", lambda *lines: shown.extend(lines))
    assert made.unit.main() == 0
    assert made.asked[:2] == ["asr started", "ollama started"] and "STATUS=running: asr: no" in shown and "READY=1" in shown


def test_one_that_does_not_end_is_on_record(node):
    made = node()
    made.broken = {("ollama", "stopped")}
    assert made.unit.main() == 1
    assert made.asked[-1] == "asr stopped" and (made.state["state"], made.state["reason"]) == ("failed", "ollama: no")


def test_after_a_crash_nothing_starts_until_a_person_says_so(node):
    record.write(str(node(boot="before").folder), "before", record.RUNNING)
    made = node(boot="now")
    assert made.unit.main() == 1
    assert made.asked == [] and made.state["state"] == "refused" and f"systemctl start {unit_files.COMPANIONS}" in made.said[-1]
    again = node(boot="now")
    assert again.unit.main() == 0 and again.asked[0] == "asr started"


def test_a_unit_that_is_released_leaves_them_running(node):
    made = node()

    def run(*given):
        (made.folder / unit_files.RELEASE).touch()
        return made.run(*given)

    made.unit.run = run
    assert made.unit.main() == 0
    assert made.asked == ["asr started", "ollama started"] and made.state["state"] == "stopped" and not (made.folder / unit_files.RELEASE).exists()


def test_one_that_was_taken_out_is_neither_started_nor_stopped(node, tmp_path):
    made = node()
    assert beside.listed(str(tmp_path), "ollama") and not beside.listed(str(tmp_path), "tts") and not beside.listed(str(tmp_path / "none"), "ollama")
    beside.leave_out(str(tmp_path), "ollama")
    assert beside.names(beside.read(beside.path_of(str(tmp_path)))) == ["asr"] and Path(beside.path_of(str(tmp_path))).stat().st_mode & 0o777 == 0o600
    made.unit.ask_to_stop(15, None)
    assert made.unit.end() == 0 and made.asked == ["asr stopped"]


@pytest.mark.parametrize("wrong", ["{", json.dumps({"schema": 1}), json.dumps({"schema": 1, "companions": [{}], "state_dir": "", "roots": {}})])
def test_another_file_is_no_specification(tmp_path, wrong):
    (tmp_path / "companions").mkdir()
    Path(beside.path_of(str(tmp_path))).write_text(wrong)
    with pytest.raises(UnknownState, match=specification.FILE):
        beside.listed(str(tmp_path), "ollama")


def test_its_unit_begins_before_those_of_the_engines_and_has_the_time_that_it_takes():
    given = {"companions": [one("asr"), one("ollama")]}
    lines = text.companions("/state", "/usr/bin/python3", given).splitlines()
    assert "ExecStart=/usr/bin/python3 -I /state/unit.pyz companions /state/specification.json" in lines and "Restart=no" in lines
    assert f"TimeoutStartSec={2 * 320 + text.MARGIN}" in lines and f"TimeoutStopSec={3 * 320 + text.MARGIN}" in lines
    engine = {"cluster": "gb10", "role": "head", "start": [], "stop": [], "start_seconds": 1}
    after = "docker.service multi-user.target nvidia-cdi-refresh.service nvidia-persistenced.service network-online.target local-fs.target"
    assert f"After={unit_files.COMPANIONS} {after}" in text.engine("/state", "/usr/bin/python3", engine).splitlines()


@pytest.mark.skipif(os.getuid() != 0, reason="the file of a power cycle is root's")
def test_a_power_cycle_of_our_own_counts_for_every_unit_of_the_node_once(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "RUN_DIR", str(tmp_path / "run"))
    (tmp_path / record.POWER_CYCLED).touch()
    for name in ("companions", "engine"):
        (tmp_path / name).mkdir()
        record.write(str(tmp_path / name), "before", record.RUNNING)
        assert "so the unit starts once" in record.check_boot(str(tmp_path / name), "now", str(tmp_path), "unit")
    assert not (tmp_path / record.POWER_CYCLED).exists()
    # The next boot has another /run.
    (tmp_path / "run" / record.POWER_CYCLED).unlink()
    with pytest.raises(ClusterError, match="did not shut down cleanly"):
        record.check_boot(str(tmp_path / "engine"), "later", str(tmp_path), "unit")
