# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._companion import act, container, running, unit
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import NotFound
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import gpu_access
from ansible_collections.gb10.cluster.plugins.module_utils._network import listeners
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import Process, Scan
from ansible_collections.gb10.cluster.plugins.module_utils._unit import beside, specification
from ansible_collections.gb10.cluster.plugins.modules import companion

IMAGE = "sha256:" + "a" * 64
OWN = "b" * 64


def params(**given):
    defaults = {
        "name": "ollama", "state": "started", "image": IMAGE, "unit": None, "port": 11434, "health_path": "/api/tags", "env": {"OLLAMA_MAX_LOADED_MODELS": 1},
        "arguments": [], "mounts": [], "gpus": False, "health_timeout": 1, "stop_timeout": 1, "kill": False, "comes_back": False, "state_dir": "/nowhere",
        "log_dir": "/nowhere", "tool_timeout": 5, "docker_socket": "/nowhere", "docker_timeout": 1,
    }  # fmt: skip
    return {**defaults, **given}


def there(status="running", **given):
    labels = container.labels("ollama", container.wanted(params(**given), IMAGE))
    state = {"Status": status, "ExitCode": 0, "OOMKilled": False, "StartedAt": "2026-11-24T00:00:00Z", "Pid": 0}
    return {"Id": OWN, "Name": "/gb10-companion-ollama", "State": state, "Image": IMAGE, "Config": {"Labels": labels}}


class Engine:
    """A Docker engine of memory with one container, or none."""

    def __init__(self, entry=None, stubborn=False, images=(IMAGE,), log="it ended"):
        self.entry, self.stubborn, self.known, self.log = entry, stubborn, images, log
        self.did = []

    def containers(self, labels):
        mine = self.entry and labels.items() <= self.entry["Config"]["Labels"].items()
        return [{"Id": OWN, "Names": [self.entry["Name"]], "State": self.entry["State"]["Status"]}] if mine else []

    def inspect(self, wanted):
        if self.entry is None:
            raise NotFound("no such container")
        return self.entry

    def image(self, reference):
        return {"Id": IMAGE} if reference in self.known else None

    def get(self, path):
        return {}

    def logs(self, container_id):
        return self.log

    def whole_log(self, container_id):
        yield self.log.encode()

    def create(self, payload):
        self.did.append("create")
        self.made = payload
        self.entry = there("created")
        return OWN

    def start(self, container_id):
        self.did.append("start")
        self.entry["State"]["Status"] = "running"

    def signal(self, container_id, name):
        self.did.append(name)
        if not self.stubborn:
            self.entry["State"]["Status"] = "exited"

    def stop(self, container_id, grace):
        self.did.append(f"kill after {grace}")
        self.entry["State"]["Status"] = "exited"

    def unpause(self, container_id):
        self.did.append("unpause")

    def remove(self, container_id):
        self.did.append("remove")
        self.entry = None


@pytest.fixture
def play(monkeypatch, tmp_path):
    """Run the module against an engine of memory; ``healthy`` is what the companion answers."""
    heard = []
    monkeypatch.setattr(listeners, "listeners", lambda ports: heard)
    monkeypatch.setattr(gpu_access, "await_cdi_devices", lambda api, gpus, before: [])
    monkeypatch.setattr(act, "LOOK_SECONDS", 0.01)

    def run(engine, check_mode=False, healthy=True, listening=(), **given):
        class Module:
            pass

        heard[:] = listening
        module = Module()
        module.params, module.check_mode = params(**{"log_dir": str(tmp_path), **given}), check_mode
        monkeypatch.setattr(act, "Docker", lambda *_arguments: engine)
        monkeypatch.setattr(act, "EngineApi", lambda *_arguments: engine)
        monkeypatch.setattr(act, "health", lambda port, path, timeout: (healthy, "status 200" if healthy else "status 503"))
        return companion.work(module)

    return run


def test_a_cold_node_gets_its_container(play):
    engine = Engine()
    result = play(engine)
    assert result["changed"] and engine.did == ["create", "start"] and result["health"] == "status 200"
    assert engine.made["name"] == "gb10-companion-ollama" and engine.made["network_mode"] == "host" and "restart_policy" not in engine.made
    assert engine.made["environment"] == {"OLLAMA_MAX_LOADED_MODELS": "1"} and engine.made["device_requests"] == []
    assert engine.made["labels"]["io.gb10.role"] == "companion" and "io.gb10.cluster" not in engine.made["labels"]


@pytest.mark.parametrize(("driver", "before"), [("cdi", True), ("nvidia", False)])
def test_one_that_ended_stays_until_the_devices_of_the_next_one_are_there(play, monkeypatch, driver, before):
    asked = []

    def never(api, gpus, by_cdi):
        asked.append((gpus, by_cdi))
        raise WaitTimeout("still no nvidia.com/gpu=all")

    monkeypatch.setattr(gpu_access, "await_cdi_devices", never)
    engine = Engine({**there("exited"), "HostConfig": {"DeviceRequests": [{"Driver": driver}]}})
    with pytest.raises(WaitTimeout):
        play(engine, gpus=True)
    assert asked == [("all", before)] and engine.did == []


def test_the_second_run_changes_nothing(play):
    engine = Engine(there())
    result = play(engine)
    assert not result["changed"] and engine.did == [] and result["diff"]["before"] == result["diff"]["after"]


def test_check_mode_says_what_would_be_done_also_without_the_image(play):
    engine = Engine(images=())
    result = play(engine, check_mode=True)
    assert result["actions"] == ["create gb10-companion-ollama (no container)", "start gb10-companion-ollama"] and engine.did == []
    with pytest.raises(ClusterError, match="is not on") as caught:
        play(engine)
    assert "docker pull" in caught.value.remedy


def test_another_variable_makes_another_container_and_keeps_the_log(play, tmp_path):
    engine = Engine(there(env={"OLLAMA_MAX_LOADED_MODELS": 2}))
    result = play(engine)
    assert engine.did == ["SIGTERM", "remove", "create", "start"]
    assert result["reason"] == "changed: env.OLLAMA_MAX_LOADED_MODELS"
    (kept,) = (tmp_path / "companions" / "containers").iterdir()
    assert kept.read_text() == "it ended"


def test_one_that_has_exited_is_replaced(play):
    engine = Engine(there("exited"))
    assert "had exited with code 0" in play(engine)["reason"] and engine.did == ["remove", "create", "start"]


def test_a_port_of_somebody_else_is_refused(play):
    held = {"port": 11434, "address": "0.0.0.0", "pid": 7, "process": "ollama", "cmdline": "", "since": "then", "container": ""}
    engine = Engine()
    with pytest.raises(ClusterError, match=r"ports that the companion ollama needs are taken on .*ollama \(pid 7\)"):
        play(engine, listening=[held])
    assert engine.did == []


def test_one_that_does_not_answer_fails_and_says_what_was_done(play):
    with pytest.raises(WaitTimeout, match=r"not healthy after 1 s: GET http://127.0.0.1:11434/api/tags: status 503") as caught:
        play(Engine(), healthy=False)
    assert caught.value.details["changed"] is True


def test_one_that_ends_at_once_says_how(play):
    engine = Engine()
    engine.start = lambda container_id: engine.entry["State"].update(Status="exited", ExitCode=3)
    with pytest.raises(ClusterError, match="ended with exit code 3; its log ends:\nit ended"):
        play(engine)


def test_it_ends_gently(play):
    engine = Engine(there())
    result = play(engine, state="stopped")
    assert engine.did == ["SIGTERM"] and result["changed"] and result["actions"] == ["stop gb10-companion-ollama (state stopped)"]
    assert not play(engine, state="stopped")["changed"]


def test_one_that_ignores_that_is_left_running_unless_it_may_be_killed(play):
    engine = Engine(there(), stubborn=True)
    with pytest.raises(ClusterError, match="was asked to end and still runs after 1 s; it was not killed") as caught:
        play(engine, state="stopped")
    assert "gb10_kill_companions=true" in caught.value.remedy and engine.did == ["SIGTERM"]
    play(engine, state="stopped", kill=True)
    assert engine.did == ["SIGTERM", "SIGTERM", "kill after 0"]


@pytest.mark.parametrize("running", [True, False])
def test_one_that_is_stopped_does_not_come_back_at_a_boot(play, tmp_path, running):
    (tmp_path / "companions").mkdir()
    path = pathlib.Path(beside.path_of(str(tmp_path)))
    listed = {**params(), "health_timeout": 60}
    path.write_text(specification.dump({"companions": [listed, {**listed, "name": "asr"}], "state_dir": str(tmp_path), "roots": {}}))
    took = "take ollama out of gb10-companions.service"

    def stop(**more):
        return play(Engine(there("running" if running else "exited")), state="stopped", state_dir=str(tmp_path), **more)

    assert took not in stop(comes_back=True)["actions"] and took in stop(check_mode=True)["actions"]
    assert beside.names(beside.read(str(path))) == ["ollama", "asr"]
    result = stop()
    assert result["changed"] and took in result["actions"] and beside.names(beside.read(str(path))) == ["asr"]
    assert took not in stop()["actions"]


def test_absent_removes_it(play):
    engine = Engine(there("exited"))
    assert play(engine, state="absent")["actions"] == ["remove gb10-companion-ollama (state absent)"] and engine.did == ["remove"]


@pytest.mark.parametrize("given", [{"image": "ollama:latest"}, {"name": "x-head"}, {"unit": "ollama", "image": None}, {"stop_timeout": 0}])
def test_wrong_options(play, given):
    with pytest.raises(ClusterError) as caught:
        play(Engine(), **given)
    assert caught.value.reason == "input"


# -- a unit --------------------------------------------------------------------------------------------------------------


class Systemd:
    """systemd with one unit."""

    def __init__(self, active="inactive", load="loaded", stubborn=False, fails=False):
        self.now, self.load, self.stubborn, self.fails = active, load, stubborn, fails
        self.did = []

    def state(self, name, timeout):
        return unit.State(self.load, self.now, "", "enabled", "success")

    def ask(self, name, *words, timeout):
        self.did.append(" ".join(words))
        if self.fails:
            raise ClusterError("systemctl start ollama.service ended with 1", reason="unit")
        if words[0] == "start":
            self.now = "active"
        elif words[0] == "kill" or not self.stubborn:
            self.now = "inactive"


@pytest.fixture
def with_unit(play, monkeypatch):
    def run(systemd, **given):
        monkeypatch.setattr(unit, "state", systemd.state)
        monkeypatch.setattr(unit, "ask", systemd.ask)
        monkeypatch.setattr(act, "journal", lambda name, timeout: "the journal")
        return play(Engine(), **{"image": None, "unit": "ollama.service", **given})

    return run


def test_a_unit_is_started_once(with_unit):
    systemd = Systemd()
    result = with_unit(systemd)
    assert systemd.did == ["start"] and result["diff"] == {"before": {"ollama.service": "inactive"}, "after": {"ollama.service": "active"}}
    assert not with_unit(systemd)["changed"] and systemd.did == ["start"]


def test_check_mode_leaves_a_unit(with_unit):
    systemd = Systemd()
    assert with_unit(systemd, check_mode=True)["actions"] == ["start ollama.service (unit is inactive)"] and systemd.did == []


@pytest.mark.parametrize(("load", "words"), [("not-found", "is not a unit of"), ("masked", "is masked")])
def test_a_unit_that_cannot_be_started(with_unit, load, words):
    with pytest.raises(ClusterError, match=words):
        with_unit(Systemd(load=load))


def test_a_unit_that_fails_shows_its_journal(with_unit):
    with pytest.raises(ClusterError) as caught:
        with_unit(Systemd(fails=True))
    assert caught.value.details["log"] == "the journal"


def test_a_unit_ends_gently_and_is_killed_by_consent_alone(with_unit):
    systemd = Systemd("active")
    assert with_unit(systemd, state="stopped")["changed"] and systemd.did == ["stop --no-block"]
    systemd = Systemd("active", stubborn=True)
    with pytest.raises(ClusterError, match="it was not killed"):
        with_unit(systemd, state="stopped")
    with_unit(systemd, state="stopped", kill=True)
    assert systemd.did[-1] == "kill --signal=SIGKILL"


# -- the look ------------------------------------------------------------------------------------------------------------


def test_what_is_seen_of_each(monkeypatch, tmp_path: pathlib.Path):
    for pid, cgroup in ((10, f"0::/docker/{OWN}\n"), (11, "0::/system.slice/asr.service\n"), (12, "0::/system.slice/ssh.service\n")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(cgroup)
        (tmp_path / str(pid) / "status").write_text("VmRSS:\t 9 kB\nRssAnon:\t 1048576 kB\n")
    seen = Scan({pid: Process(pid, 1, "S", "x", ("x",), OWN if pid == 10 else "", 0, 1) for pid in (10, 11, 12)}, 0)
    entry = {"Id": OWN, "Names": ["/gb10-companion-ollama"], "State": "running", "Image": IMAGE, "Labels": there()["Config"]["Labels"]}
    monkeypatch.setattr(unit, "state", lambda name, timeout: unit.State("loaded", "active", "running", "enabled", "success"))
    monkeypatch.setattr(running, "listeners", lambda ports, root: [])
    monkeypatch.setattr(running, "health", lambda port, path, timeout: (port == 8765, "status 200"))
    asr = {"name": "asr", "unit": "asr.service", "port": 8765, "health_path": "/health", "memory_gib": 2}
    found = running.look([asr], [entry], seen, lambda: [{"pid": 10, "used_mib": 512, "gpu": 0}], str(tmp_path), 5)
    assert [(one["name"], one["declared"], one["pids"], one["gpu_mib"], one["anon_mb"], one["healthy"]) for one in found] == [
        ("asr", True, [11], 0, 1024, True),
        ("ollama", False, [10], 512, 1024, None),
    ]
    (absent,) = running.look([{**asr, "unit": "", "image": IMAGE}], [], Scan({}, 0), list, str(tmp_path), 5)
    assert (absent["state"], absent["running"], absent["pids"]) == ("absent", False, [])
