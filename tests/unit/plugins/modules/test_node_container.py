# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is specific to the container without Ray; the shared parts are tested with Ray's."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import NotFound
from ansible_collections.gb10.cluster.plugins.module_utils._engine import at_work
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import gpu_access
from ansible_collections.gb10.cluster.plugins.module_utils._launcher import protocol
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._network import listeners, net_devices
from ansible_collections.gb10.cluster.plugins.module_utils._node import apply, fields, native, ray
from ansible_collections.gb10.cluster.plugins.module_utils._node import container as node_containers
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import Process, Scan
from ansible_collections.gb10.cluster.plugins.modules import node_container

OWN_ID = "a" * 64


def params(**given):
    defaults = {name: option.get("default") for name, option in fields.argument_spec("native").items()}
    here = {"node_role": "head", "image": "local/vllm:1", "node_address": "10.0.0.11", "devices": []}
    return {**defaults, **here, "wait_timeout": 0.1, "wait_sleep": 0.01, **given}


def container(unit, status="running"):
    state = {"Status": status, "Running": status == "running", "ExitCode": 0 if status == "running" else 127, "OOMKilled": False, "StartedAt": "2026-11-21"}
    return {"Id": OWN_ID, "Name": f"/{unit.name}", "State": state, "Created": "2026-11-21", "Image": "sha256:aaa", "Config": {"Labels": unit.labels}}


def unit(**given):
    return native.wanted(params(**given), "sha256:aaa", None)


def seen_by(engine):
    """The processes of an engine's containers, as a pass over /proc shows them."""
    return Scan({pid: Process(pid, 1, "S", "x", tuple(title.split(" ")), "", 0, 1) for pid, title in engine.titles.items()}, 0)


class Engine:
    """A Docker engine of memory with one container, or none."""

    def __init__(self, entry=None, titles=(), log=f"{protocol.HOLDS}\n"):
        self.entry = entry
        self.titles = dict(enumerate(titles, 100))
        self.log = log

    def containers(self, labels):
        mine = self.entry and labels.items() <= self.entry["Config"]["Labels"].items()
        return [{"Id": OWN_ID, "Names": [self.entry["Name"]], "State": self.entry["State"]["Status"]}] if mine else []

    def inspect(self, wanted):
        if self.entry and wanted in (OWN_ID, self.entry["Name"].lstrip("/")):
            return self.entry
        raise NotFound("No such container")

    def image(self, reference):
        return {"Id": "sha256:aaa"}

    def top(self, container_id):
        return sorted(self.titles)

    def logs(self, container_id, tail=50):
        return self.log


@pytest.fixture
def play(monkeypatch):
    """Run the module against an engine of memory."""
    monkeypatch.setattr(net_devices, "ipv4_addresses", lambda: [{"interface": "enp1s0f0np0", "address": "10.0.0.11", "scope": "global"}])
    monkeypatch.setattr(net_devices, "ipv6_addresses", list)
    monkeypatch.setattr(listeners, "listeners", lambda ports: [])

    def run(engine, check_mode=False, **given):
        class Module:
            pass

        module = Module()
        module.params, module.check_mode = params(**given), check_mode
        monkeypatch.setattr(at_work, "scan", lambda root, pids=None: seen_by(engine))
        monkeypatch.setattr(apply, "Docker", lambda *_arguments: engine)
        return node_container.work(module)

    return run


def test_the_launcher_is_the_first_program():
    made = unit(env={"A": 1}, secret_files={"api_key": "/s/api_key"}, state_dir="/state", log_dir="/log")
    assert made.name == "gb10-gb10-head"
    assert made.command == ["python3", "/opt/gb10/launch/launcher.py", "hold", "--spec", "/opt/gb10/launch/engine.json"]
    payload = node_containers.creation_payload(made, "/state/gb10/cache/x")
    assert payload["environment"] == {**node_containers.CACHES, "A": "1"}
    assert {mount["Source"]: mount["ReadOnly"] for mount in payload["mounts"]} == {
        "/state/gb10/launch": True, "/state/gb10/run": False, "/state/gb10/cache/x": False, "/log/gb10/engine": False, "/s/api_key": True,
    }  # fmt: skip


def test_same_options_change_nothing(play):
    result = play(Engine(container(unit())))
    assert (result["changed"], result["actions"], result["reason"]) == (False, [], "as wanted")
    assert result["diff"]["before"] == result["diff"]["after"]


def test_a_cold_node_gets_its_container(play):
    result = play(Engine(), check_mode=True)
    assert result["actions"] == ["create gb10-gb10-head (no container)", "start gb10-gb10-head"]


def test_ports_are_no_field(play):
    assert not play(Engine(container(unit(ports=[1]))), ports=[2])["changed"]


@pytest.mark.parametrize(("driver", "before"), [("cdi", True), ("nvidia", False)])
def test_a_container_stays_until_the_devices_of_the_next_one_are_there(play, monkeypatch, driver, before):
    """After a boot, the former container is the only sign that its GPU comes by CDI, where nothing is known to write the node's specification."""
    calls = []

    def never(docker, gpus, by_cdi):
        calls.append((gpus, by_cdi))
        raise WaitTimeout("still no nvidia.com/gpu=all")

    monkeypatch.setattr(gpu_access, "await_cdi_devices", never)
    monkeypatch.setattr(cluster_locks, "check_held", lambda path, lock_id: None)
    left = {**container(unit(gpus="all"), "exited"), "HostConfig": {"DeviceRequests": [{"Driver": driver}]}}
    # This engine can neither stop nor remove a container.
    with pytest.raises(WaitTimeout, match="still no"):
        play(Engine(left), gpus="all")
    assert calls == [("all", before)]


def with_ray():
    given = {**{name: option.get("default") for name, option in fields.argument_spec("ray").items()}, **params()}
    return ray.wanted(given, "sha256:aaa", None)


def test_a_container_with_ray_is_recreated_for_that_alone(play):
    result = play(Engine(container(with_ray())), check_mode=True)
    assert result["changed_fields"] == ["executor"]
    assert [action.split()[0] for action in result["actions"]] == ["stop", "remove", "create", "start"]


def test_a_live_engine_beside_ray_is_not_thrown_away(play):
    with pytest.raises(ClusterError, match='would be recreated .executor "ray" -> "native".'):
        play(Engine(container(with_ray()), titles=["VLLM::EngineCore"]))


def test_a_taken_port_names_its_holder(play, monkeypatch):
    held = {"port": 29501, "address": "0.0.0.0", "pid": 7, "process": "python3", "cmdline": "", "since": "then", "container": ""}
    monkeypatch.setattr(listeners, "listeners", lambda ports: [held] if 29501 in ports else [])
    with pytest.raises(ClusterError, match=r"ports that the engine needs are taken on .*: port 29501 on 0.0.0.0: python3 \(pid 7\)") as caught:
        play(Engine(), ports=[29501])
    assert "gb10_ray_port_range" in caught.value.remedy


def test_ready_is_what_the_launcher_says(play):
    with pytest.raises(WaitTimeout, match="the launcher in container gb10-gb10-head on .* did not report ready within"):
        play(Engine(container(unit()), log=""))
    assert play(Engine(container(unit()), log=""), wait=False)["changed"] is False


def test_an_image_without_python_is_named(play, monkeypatch):
    ended = container(unit(), status="exited")
    engine = Engine(ended, log="[FATAL tini (7)] exec python3 failed: No such file or directory\n")
    current = node_containers.existing(ended)
    monkeypatch.setattr(apply.Actor, "carry_out", lambda *_arguments: None)
    assert not current.running
    with pytest.raises(ClusterError, match="image local/vllm:1 has no program python3"):
        play(engine)


def test_a_rank_always_holds_work():
    assert not native.engine_is_gone({"executor": ("ray", "native")})
