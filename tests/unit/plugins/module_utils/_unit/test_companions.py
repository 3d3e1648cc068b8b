# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit of a node's companions: what it starts at a boot and stops at a shutdown, what it refuses, and which companions are removed from it."""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._companion import running
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import gpu_access
from ansible_collections.gb10.cluster.plugins.module_utils._node import obstacles
from ansible_collections.gb10.cluster.plugins.module_utils._unit import boots, companions, record, service, specification, text, unit_files

OWN = "b" * 64


def companion(name: str, **more: t.Any) -> dict[str, t.Any]:
    return {"name": name, "port": 1, "health_path": "/", "gpus": False, "health_timeout": 60, "stop_timeout": 20, **more}


class Node:
    """A node whose companions answer from a table; ``asked`` lists what was done with each companion."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, boot: str = "now") -> None:
        (tmp_path / "proc/sys/kernel/random").mkdir(parents=True, exist_ok=True)
        (tmp_path / "proc/sys/kernel/random/boot_id").write_text(boot)
        self.folder = tmp_path / "companions"
        self.folder.mkdir(exist_ok=True)
        self.asked: list[str] = []
        self.said: list[str] = []
        self.broken: set[tuple[str, str]] = set()
        for module in (companions, service):
            monkeypatch.setattr(module, "say", self.said.append)
        monkeypatch.setattr(companions, "LOOK_SECONDS", 0.01)
        monkeypatch.setattr(record, "RUN_DIR", str(tmp_path / "run"))
        self.given = {"companions": [companion("asr"), companion("ollama")], "state_dir": str(tmp_path), "roots": {"proc_root": str(tmp_path / "proc")}}
        (self.folder / specification.FILE).write_text(specification.dump(self.given))
        self.unit = companions.Companions(specification.read(str(self.folder / specification.FILE), companions.wrong), lambda *_given: {})
        monkeypatch.setattr(companions, "start", self.start)
        monkeypatch.setattr(companions, "stop", self.stop)

    def start(self, _api: t.Any, given: t.Mapping[str, t.Any]) -> str:
        if given["name"] == "ollama":
            self.unit.ask_to_stop(15, None)
        return self.act(given["name"], "started")

    def stop(self, _api: t.Any, given: t.Mapping[str, t.Any]) -> str:
        return self.act(given["name"], "stopped")

    def act(self, *did: str) -> str:
        self.asked.append(" ".join(did))
        if did in self.broken:
            raise ClusterError("no")
        return " ".join(did)

    @property
    def state(self) -> dict[str, t.Any]:
        return record.read(str(self.folder))


@pytest.fixture
def node(tmp_path, monkeypatch):
    return lambda **more: Node(tmp_path, monkeypatch, **more)


def test_companions_start_in_order_and_stop_in_reverse(node):
    made = node()
    assert made.unit.main() == 0
    assert made.asked == ["asr started", "ollama started", "ollama stopped", "asr stopped"] and made.state["state"] == "stopped"


def test_a_companion_that_fails_to_start_is_named_and_the_others_start(node, monkeypatch):
    made = node()
    made.broken = {("asr", "started")}
    shown = []
    for module in (companions, service):
        monkeypatch.setattr(module, "notify", lambda *lines: shown.extend(lines))
    assert made.unit.main() == 0
    assert made.asked[:2] == ["asr started", "ollama started"] and "STATUS=running: asr: no" in shown and "READY=1" in shown


def test_a_companion_that_does_not_stop_is_recorded(node):
    made = node()
    made.broken = {("ollama", "stopped")}
    assert made.unit.main() == 1
    assert made.asked[-1] == "asr stopped" and (made.state["state"], made.state["reason"]) == ("failed", "ollama: no")


def test_after_a_crash_they_come_back_once_and_a_failure_is_named_beside_it(node, monkeypatch):
    record.write(str(node(boot="before").folder), "before", record.RUNNING)
    made = node(boot="now")
    made.unit.given["unclean_boot"] = boots.ONCE
    made.broken = {("asr", "started")}
    shown = []
    for module in (companions, service):
        monkeypatch.setattr(module, "notify", lambda *lines: shown.extend(lines))
    assert made.unit.main() == 0 and made.asked[:2] == ["asr started", "ollama started"]
    assert f"STATUS=running: {made.unit.came_back}; asr: no" in shown and "the unit starts once" in made.unit.came_back


def test_after_a_crash_nothing_starts_until_a_person_says_so(node):
    record.write(str(node(boot="before").folder), "before", record.RUNNING)
    made = node(boot="now")
    assert made.unit.main() == 1
    assert made.asked == [] and made.state["state"] == "refused" and f"systemctl start {unit_files.COMPANIONS}" in made.said[-1]
    again = node(boot="now")
    assert again.unit.main() == 0 and again.asked[0] == "asr started"


def test_a_unit_that_is_released_leaves_them_running(node, monkeypatch):
    made = node()

    def started(api, given):
        (made.folder / unit_files.RELEASE).touch()
        return made.start(api, given)

    monkeypatch.setattr(companions, "start", started)
    assert made.unit.main() == 0
    assert made.asked == ["asr started", "ollama started"] and made.state["state"] == "stopped" and not (made.folder / unit_files.RELEASE).exists()


def test_a_companion_removed_from_the_specification_is_not_stopped(node):
    made = node()
    (made.folder / specification.FILE).write_text(specification.dump({**made.given, "companions": made.given["companions"][:1]}))
    made.unit.ask_to_stop(15, None)
    assert made.unit.end() == 0 and made.asked == ["asr stopped"]


@pytest.mark.parametrize("wrong", ["{", json.dumps({"schema": 1}), json.dumps({"schema": 1, "companions": [{}], "state_dir": "", "roots": {}})])
def test_an_invalid_specification_is_refused(tmp_path, wrong):
    path = tmp_path / specification.FILE
    path.write_text(wrong)
    with pytest.raises(UnknownState, match=specification.FILE):
        specification.read(str(path), companions.wrong)


def test_the_companions_unit_starts_before_engines_and_has_enough_time():
    given = {"companions": [companion("asr"), companion("ollama")]}
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
        assert "so the unit starts once" in record.check_boot(str(tmp_path / name), "now", str(tmp_path), "unit", False)
    assert not (tmp_path / record.POWER_CYCLED).exists()
    # The next boot has another /run.
    (tmp_path / "run" / record.POWER_CYCLED).unlink()
    with pytest.raises(ClusterError, match="did not shut down cleanly"):
        record.check_boot(str(tmp_path / "engine"), "later", str(tmp_path), "unit", False)


# -- one container -------------------------------------------------------------------------------------------------------


class Engine:
    """An engine with one container of the companion ollama, or none, and the commands that it got."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, status: str = "exited", deaf: bool = False) -> None:
        self.status, self.deaf = status, deaf
        self.did: list[str] = []
        monkeypatch.setattr(companions, "docker", self.docker)
        monkeypatch.setattr(companions, "LOOK_SECONDS", 0.01)
        monkeypatch.setattr(gpu_access, "await_cdi_devices", lambda api, gpus, before: self.did.append(f"devices for {gpus}"))
        monkeypatch.setattr(obstacles, "foreign_on", lambda api, ports, current: [])
        monkeypatch.setattr(running, "health", lambda port, path, timeout: (True, "status 200"))

    def docker(self, *words: str) -> None:
        self.did.append(" ".join(words).replace(OWN, "OWN"))
        self.status = "running" if words[0] == "start" or self.deaf else "exited"

    def containers(self, _labels: t.Any) -> list[dict[str, t.Any]]:
        return [{"Id": OWN, "Names": ["/gb10-companion-ollama"], "State": self.status}] if self.status else []

    def inspect(self, _id: str) -> dict[str, t.Any]:
        state = {"Status": self.status, "ExitCode": 3, "OOMKilled": False, "StartedAt": "", "Pid": 0}
        return {"Id": OWN, "Name": "/gb10-companion-ollama", "State": state, "Config": {"StopSignal": "SIGINT", "Labels": {}}}

    def logs(self, _id: str) -> str:
        return "address in use"


def test_an_existing_container_starts_once_the_gpu_is_available(monkeypatch):
    engine = Engine(monkeypatch)
    message = companions.start(engine, companion("ollama", gpus=True))
    assert engine.did == ["devices for all", "start OWN"] and message == "companion ollama is started; http://127.0.0.1:1/ answers status 200"
    assert companions.start(engine, companion("ollama")) == message and engine.did == ["devices for all", "start OWN"]


def test_no_container_is_created_at_boot_and_no_port_is_shared(monkeypatch):
    engine = Engine(monkeypatch, status="")
    with pytest.raises(ClusterError, match="no container of the companion ollama"):
        companions.start(engine, companion("ollama"))
    engine = Engine(monkeypatch)
    held = {"port": 1, "address": "0.0.0.0", "pid": 7, "process": "python3", "cmdline": "", "since": "then", "container": "", "container_name": ""}
    monkeypatch.setattr(obstacles, "foreign_on", lambda api, ports, current: [held])
    with pytest.raises(ClusterError, match=r"ports that the companion ollama needs are taken on .*python3 \(pid 7\)"):
        companions.start(engine, companion("ollama"))
    assert "start OWN" not in engine.did


def test_a_companion_that_ends_or_does_not_answer_fails(monkeypatch):
    engine = Engine(monkeypatch)
    monkeypatch.setattr(engine, "docker", lambda *words: None)
    monkeypatch.setattr(companions, "docker", engine.docker)
    with pytest.raises(ClusterError, match="ended with exit code 3; its log ends:\naddress in use"):
        companions.start(engine, companion("ollama"))
    engine = Engine(monkeypatch)
    monkeypatch.setattr(running, "health", lambda port, path, timeout: (False, "status 503"))
    with pytest.raises(WaitTimeout, match="not healthy after 0 s: GET http://127.0.0.1:1/: status 503"):
        companions.start(engine, companion("ollama", health_timeout=0))


def test_a_companion_gets_its_own_stop_signal_and_is_never_killed(monkeypatch):
    engine = Engine(monkeypatch, status="running")
    assert companions.stop(engine, companion("ollama")) == "companion ollama is stopped" and engine.did == ["kill --signal SIGINT OWN"]
    assert companions.stop(engine, companion("ollama")) == "companion ollama is stopped" and engine.did == ["kill --signal SIGINT OWN"]
    engine = Engine(monkeypatch, status="running", deaf=True)
    with pytest.raises(ClusterError, match="got its stop signal and still runs after 0 s; it was not killed"):
        companions.stop(engine, companion("ollama", stop_timeout=0))
    assert engine.did == ["kill --signal SIGINT OWN"]
    assert companions.stop(Engine(monkeypatch, status=""), companion("ollama")) == "companion ollama was removed"
