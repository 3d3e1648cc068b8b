# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What node_info says, section by section."""

from __future__ import annotations

import os
import types

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.modules import node_info

VERSION = {"Version": "28.3.3", "ApiVersion": "1.51", "MinAPIVersion": "1.24"}
INFO = {"CgroupDriver": "systemd", "CgroupVersion": "2", "Runtimes": {"runc": {}, "nvidia": {}}, "Driver": "overlay2", "DockerRootDir": "/"}


def entry(name, **labels):
    return {"Id": f"id-{name}", "Names": [f"/{name}"], "Image": "e:1", "Labels": labels, "State": "running", "Status": "Up 3 hours"}


OURS = entry("gb10-gb10-head", **{"io.gb10.owner": "gb10.cluster", "io.gb10.cluster": "gb10", "io.gb10.role": "head", "io.gb10.spec": "1:ab"})


class Engine:
    """Stands for EngineApi; an error is raised by every call."""

    def __init__(self, error=None, info=None):
        self.error, self.info = error, INFO if info is None else info

    def get(self, path):
        if self.error:
            raise self.error
        return {"/version": VERSION, "/info": self.info}[path]

    def containers(self, labels):
        return [entry("stranger"), OURS]


@pytest.fixture
def call(tmp_path, monkeypatch):
    def call(engine=None, **params):
        monkeypatch.setattr(node_info, "EngineApi", lambda socket, timeout: engine or Engine())
        defaults = {
            "devices": ["/dev/null", "/dev/nonexistent"],
            "ports": [],
            "paths": [],
            "nvidia_smi": str(tmp_path / "nvidia-smi"),
            "tool_timeout": 5,
            "proc_root": "/proc",
            "sysfs_root": "/sys",
            "docker_socket": "",
            "docker_timeout": 1,
        }
        return node_info.work(types.SimpleNamespace(params={**defaults, **params}, check_mode=False))

    return call


def sections(result):
    return [error["section"] for error in result["errors"]]


def test_this_node(call, tmp_path):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho '0, NVIDIA GB10, GPU-1, 580.95.05, [N/A], [N/A]'\n")
    tool.chmod(0o755)
    result = call()
    assert result["errors"] == [] and result["msg"] == "all was seen"
    assert result["memory"]["total_mb"] > 0 and len(result["kernel"]["boot_id"]) == 36
    assert result["devices"] == {"/dev/null": True, "/dev/nonexistent": False}
    assert result["gpus"][0]["name"] == "NVIDIA GB10" and result["gpus"][0]["memory_total_mb"] is None
    (loopback,) = [interface for interface in result["interfaces"] if interface["name"] == "lo"]
    assert "127.0.0.1" in loopback["addresses"] and loopback["networks"][0]["prefix"] == 8
    assert result["docker"]["reachable"] and result["docker"]["runtimes"] == ["nvidia", "runc"] and result["docker"]["root_free_bytes"] > 0
    assert [(container["name"], container["cluster"], container["role"], container["spec"]) for container in result["containers"]] == [
        ("gb10-gb10-head", "gb10", "head", "1:ab")
    ]


def test_each_section_fails_by_itself(call, tmp_path):
    result = call(Engine(ClusterError("no Docker engine answers", remedy="start it")), proc_root=str(tmp_path))
    assert set(sections(result)) >= {"docker", "memory", "kernel", "gpus"}
    assert result["errors"][0] == {"section": "docker", "verdict": "block", "error": "no Docker engine answers", "remedy": "start it"}
    assert not result["docker"]["reachable"] and result["docker"]["version"] is None and "python_docker" in result["docker"]
    assert result["containers"] == [] and result["memory"] is None and result["gpus"] == []
    assert "could not see: docker" in result["msg"]


def test_an_engine_that_answers_rubbish_is_unknown(call):
    result = call(Engine(info={}))
    assert result["errors"][0]["verdict"] == "unknown" and not result["docker"]["reachable"]


def test_listeners_carry_the_name_of_their_container(call, monkeypatch):
    def listening(ports, root):
        shape = {"address": "0.0.0.0", "process": "x", "cmdline": "x", "since": ""}
        return [{"port": 1, "pid": 5, "container": "id-gb10-gb10-head", **shape}, {"port": 2, "pid": None, "container": "", **shape}]

    monkeypatch.setattr(node_info, "listeners", listening)
    result = call(ports=[1, 2])
    assert [listener["container"] for listener in result["listeners"]] == ["gb10-gb10-head", ""]
    (error,) = [error for error in result["errors"] if error["section"] == "listeners"]
    assert "port 2" in error["error"] and "become" in error["remedy"]


def test_disk_space_of_a_path_that_does_not_exist_yet(call, tmp_path):
    path = str(tmp_path / "a/b/c")
    result = call(paths=[path])
    assert result["disk"][path]["measured_at"] == str(tmp_path) and 0 < result["disk"][path]["free_bytes"] <= result["disk"][path]["total_bytes"]


def test_a_device_that_may_not_be_looked_at_is_not_missing(call, monkeypatch):
    def denied(_path):
        raise PermissionError(13, "Permission denied", "/dev/infiniband")

    monkeypatch.setattr(node_info, "has_device", denied)
    result = call(devices=["/dev/infiniband"])
    assert result["devices"] == {"/dev/infiniband": None} and "devices" in sections(result)
    assert result["errors"][0]["error"] == "/dev/infiniband: Permission denied"


def test_names_of_containers():
    assert node_info.container_name("id-a", [entry("a")]) == "a"
    assert node_info.container_name("id-b", [entry("a")]) == "id-b"
    assert node_info.ours([{**entry("x"), "Labels": None, "Names": None}]) == []


def test_nearest_existing(tmp_path):
    assert node_info.nearest_existing(str(tmp_path / "x/y")) == str(tmp_path)
    assert node_info.nearest_existing("/") == "/"


def test_sdk_version(monkeypatch):
    def absent(_name):
        raise node_info.importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(node_info.importlib.metadata, "version", absent)
    assert node_info.sdk_version() is None


def test_an_engine_must_tell_its_version():
    with pytest.raises(UnknownState):
        node_info.engine({}, INFO)
    assert node_info.engine({"Version": "1", "ApiVersion": "2"}, {"DockerRootDir": os.sep})["runtimes"] == []
