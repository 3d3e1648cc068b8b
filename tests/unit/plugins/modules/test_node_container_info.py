# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the information module makes of a node's container and of Ray's answer."""

from __future__ import annotations

import pytest
import yaml

from ansible_collections.gb10.cluster.plugins.module_utils._docker import engine_api
from ansible_collections.gb10.cluster.plugins.module_utils._node import description, ray
from ansible_collections.gb10.cluster.plugins.modules import node_container_info

FIELDS = '{"head_address":"10.0.0.11","image":"local/vllm-ray:26.05","node_address":"10.0.0.11","port":6379}'


def node(address, alive, gpus=1.0):
    return {"node_id": address, "address": address, "alive": alive, "head": False, "started_ms": 1, "gpus": gpus, "resources": {"GPU": gpus}}


def inspected(status="running"):
    state = {"Status": status, "Running": status == "running", "ExitCode": 137, "OOMKilled": False, "StartedAt": "2026-11-21T01:57:53Z"}
    labels = {engine_api.LABEL_FIELDS: FIELDS}
    return {"Id": "a" * 64, "Name": "/gb10-gb10-head", "Image": "sha256:aaa", "Created": "2026-11-21T01:57:50Z", "State": state, "Config": {"Labels": labels}}


class Module:
    params = {"cluster_name": "gb10", "connect_timeout": 5, "state_dir": None, "docker_socket": "/none", "docker_timeout": 60}


@pytest.fixture
def ask(monkeypatch):
    def use(containers, table=None):
        monkeypatch.setattr(node_container_info, "find_node_container", lambda api, cluster, role: containers.get(role))
        monkeypatch.setattr(ray, "ask", lambda api, container_id, address, timeout: table)
        return node_container_info.work(Module())

    return use


def test_no_container(ask):
    result = ask({})
    assert (result["exists"], result["running"], result["nodes"]) == (False, False, [])


def test_a_stopped_container_is_not_asked(ask):
    result = ask({"worker": inspected("exited")})
    assert (result["exists"], result["running"], result["role"]) == (True, False, "worker")
    assert result["container"]["exit_code"] == 137
    assert result["session"] == ""
    assert result["msg"] == "container gb10-gb10-head is exited"


def test_a_running_head(ask):
    table = ray.RayTable("2.60.0", "3.11.2", [node("10.0.0.11", True), node("10.0.0.12", True), node("10.0.0.13", False)], "", "")
    result = ask({"head": inspected()}, table)
    assert result["msg"] == "head of cluster gb10: 2 nodes alive, 2 GPUs"
    assert result["executor"] == "ray"
    assert result["gpus_total"] == 2.0
    assert result["container"]["exit_code"] is None
    assert result["address"] == "10.0.0.11:6379"
    assert "verdict" not in result


def test_a_head_that_does_not_answer_is_unknown(ask):
    result = ask({"head": inspected()}, ray.RayTable("2.60.0", "3.11.2", [], "Connection refused", "head"))
    assert (result["verdict"], result["ray_error"], result["gpus_total"]) == ("unknown", "Connection refused", 0)


def test_a_container_without_ray_is_not_asked_for_it(ask):
    entry = inspected()
    entry["Config"]["Labels"][engine_api.LABEL_FIELDS] = '{"executor": "native", "image": "local/vllm:1"}'
    result = ask({"worker": entry})
    assert (result["executor"], result["address"], result["nodes"]) == ("native", "", [])
    assert result["msg"] == "worker of cluster gb10, without Ray"


def test_of_two_roles_the_running_one_is_reported(ask):
    result = ask({"head": inspected("exited"), "worker": inspected()}, ray.RayTable("2.60.0", "3.11.2", [], "", ""))
    assert result["role"] == "worker"


def test_every_key_is_documented(ask):
    kept = {"caches", "open_directories", "protection", "services", "guard", "sweep", "unit", "companions_unit", "last_start", "last_proof", "ladder"}
    assert yaml.safe_load(node_container_info.RETURN).keys() == {*description.NOTHING, *kept}


def test_what_engines_compiled_is_listed_with_its_size(ask, tmp_path, monkeypatch):
    """Also on a node without a container: it is kept for the next start."""
    used, other = (tmp_path / f"gb10/cache/0.20.1-arm64-{digit * 16}" for digit in "ab")
    for path in (used, other):
        path.mkdir(parents=True)
        (path / "kernel.so").write_bytes(b"x" * 5000)
    monkeypatch.setattr(Module, "params", {**Module.params, "state_dir": str(tmp_path)})
    monkeypatch.setattr(engine_api.EngineApi, "containers", lambda _api, labels: [{"State": "running", "Mounts": [{"Source": str(used)}]}])
    caches = ask({})["caches"]
    assert [(cache["path"], cache["files"], cache["in_use"]) for cache in caches] == [(str(used), 1, True), (str(other), 1, False)]
    assert all(cache["size_bytes"] >= 5000 for cache in caches)
    (opened,) = ask({})["open_directories"]
    assert opened["path"] == str(tmp_path / "gb10")


def test_what_engines_compiled_is_looked_for_when_asked_alone(ask, monkeypatch):
    monkeypatch.setattr(node_container_info.caches, "directories", lambda _root: pytest.fail("looked"))
    assert ask({"head": inspected("exited")})["caches"] == []
