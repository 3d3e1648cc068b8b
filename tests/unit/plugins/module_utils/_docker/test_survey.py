# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Docker in depth: its ways to a GPU, and the containers of others."""

from __future__ import annotations

import json

import hypothesis
import hypothesis.strategies as st
import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._docker import survey
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import NotFound
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._sections import Sections

VERSION = {"Version": "28.3.3", "ApiVersion": "1.51", "MinAPIVersion": "1.24"}
INFO = {
    "CgroupDriver": "systemd",
    "CgroupVersion": "2",
    "Runtimes": {"runc": {}, "nvidia": {}},
    "DefaultRuntime": "runc",
    "Driver": "overlay2",
    "DockerRootDir": "/var/lib/docker",
    "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
    "LiveRestoreEnabled": False,
    "Warnings": None,
}


def entry(name="web", **more):
    shape = {"Id": "cd" * 32, "Names": [f"/{name}"], "Image": "x:1", "Labels": {}, "State": "running", "Status": "Up", "Created": 1793600000, "Command": "run"}
    return {**shape, "Ports": [], **more}


def details(host=None, env=()):
    return {"HostConfig": {"NetworkMode": "default", "Runtime": "runc", "DeviceRequests": None, "Devices": [], **(host or {})}, "Config": {"Env": list(env)}}


def test_facts_of_the_engine():
    facts = survey.engine(VERSION, INFO)
    assert set(facts) == set(survey.NO_ENGINE)
    assert facts["default_runtime"] == "runc" and facts["cdi_dirs"] == ["/etc/cdi", "/var/run/cdi"] and facts["live_restore"] is False
    assert facts["snap"] is False and facts["warnings"] == [] and facts["runtimes"] == ["nvidia", "runc"]


def test_an_old_engine_and_one_from_the_snap():
    facts = survey.engine(VERSION, {"DockerRootDir": "/var/snap/docker/common/var-lib-docker", "Warnings": ["WARNING: No swap limit support"]})
    assert facts["snap"] is True and facts["cdi_dirs"] == [] and facts["default_runtime"] is None and facts["warnings"] == ["WARNING: No swap limit support"]


@pytest.mark.parametrize(
    "info", [{}, [], None, {"DockerRootDir": "/", "Runtimes": 3}, {"DockerRootDir": "/", "CDISpecDirs": 1}, {"DockerRootDir": "/", "Warnings": 1}]
)
def test_an_engine_that_answers_rubbish_is_unknown(info):
    with pytest.raises(UnknownState):
        survey.engine(VERSION, info)


# -- ways to a GPU ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runtimes", "devices", "hook", "ways"),
    [
        (["nvidia", "runc"], ["nvidia.com/gpu=0"], True, "both"),
        (["nvidia-cdi", "runc"], [], True, "runtime"),
        (["runc"], ["nvidia.com/gpu=all"], False, "cdi"),
        (["runc"], ["nvidia.com/net=0", "intel.com/gpu=0"], False, "none"),
        (["runc"], [], True, "hook"),
    ],
)
def test_ways_to_a_gpu(runtimes, devices, hook, ways):
    assert survey.nvidia_access(runtimes, devices, hook) == ways


def test_the_hook_is_looked_for_where_the_daemon_would(tmp_path):
    engine = {**survey.engine(VERSION, INFO), "runtimes": ["runc"], "cdi_dirs": []}
    assert survey.depth(engine, {}, str(tmp_path), daemon_path=str(tmp_path))["nvidia"] == "none"
    hook = tmp_path / "nvidia-container-runtime-hook"
    hook.touch(mode=0o755)
    assert survey.depth(engine, {}, str(tmp_path), daemon_path=str(tmp_path))["nvidia"] == "hook"


def test_in_depth(tmp_path):
    info = {**INFO, "Runtimes": {"runc": {}}, "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=7"}, {"Source": "x", "ID": "y"}]}
    facts = survey.depth(survey.engine(VERSION, {**info, "CDISpecDirs": []}), info, str(tmp_path))
    assert facts["cdi_devices"] == ["nvidia.com/gpu=7"] and facts["nvidia"] == "cdi" and facts["cdi_libcuda"] == []
    sections = Sections()
    broken = survey.depth(survey.engine(VERSION, {**INFO, "CDISpecDirs": []}), {"DiscoveredDevices": [3]}, str(tmp_path), sections.section("x"))
    assert broken["nvidia"] == "runtime" and len(sections.errors) == 1


# -- containers --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "env", "gpu"),
    [
        ({}, [], False),
        ({"DeviceRequests": [{"Driver": "", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]]}]}, [], True),
        ({"DeviceRequests": [{"Driver": "nvidia", "Capabilities": None}]}, [], True),
        ({"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]}, [], True),
        ({"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["vendor.com/net=a"]}]}, [], False),
        ({"Devices": [{"PathOnHost": "/dev/nvidia0"}]}, [], True),
        ({"Devices": [{"PathOnHost": "/dev/infiniband"}]}, [], False),
        ({"Runtime": "nvidia"}, ["NVIDIA_VISIBLE_DEVICES=all"], True),
        ({"Runtime": "nvidia"}, ["NVIDIA_VISIBLE_DEVICES=void"], False),
        ({"Runtime": "nvidia"}, [], False),
        ({"Runtime": "runc"}, ["NVIDIA_VISIBLE_DEVICES=all"], False),
    ],
)
def test_use_of_a_gpu(host, env, gpu):
    assert survey.uses_gpu(details(host, env)) is gpu


def test_a_container_of_another_user():
    ports = [
        {"IP": "0.0.0.0", "PrivatePort": 8080, "PublicPort": 3000, "Type": "tcp"},
        {"IP": "::", "PrivatePort": 8080, "PublicPort": 3000, "Type": "tcp"},
        {"PrivatePort": 9, "Type": "udp"},
    ]
    env = ["HF_TOKEN=hf_abcdefghijklmnopqrstuv", "PATH=/bin", "VLLM_PORT=1", "broken"]
    container = survey.described(
        entry(Ports=ports, Command="vllm serve x --api-key topsecret1"), details({"NetworkMode": "host"}, env), {"cd" * 32: [7, 9]}
    )
    assert container == {
        "id": "cd" * 32,
        "name": "web",
        "image": "x:1",
        "state": "running",
        "command": "vllm serve x --api-key <secret>",
        "created": "2026-11-02T06:13:20Z",
        "gpu": False,
        "pids": [7, 9],
        "host_network": True,
        "env_names": ["HF_TOKEN", "VLLM_PORT"],
        "ports": [
            {"address": "0.0.0.0", "port": 3000, "container_port": 8080, "protocol": "tcp"},
            {"address": "::", "port": 3000, "container_port": 8080, "protocol": "tcp"},
        ],
    }


def foreign(entries, inspect):
    sections = Sections()
    return survey.foreign(entries, inspect, {}, sections.section("foreign_containers")), sections.errors


def test_ours_are_left_out_and_those_that_go_meanwhile():
    inspected = []

    def inspect(container_id):
        inspected.append(container_id)
        if container_id == "gone":
            raise NotFound("no such container")
        return details()

    ours = entry("gb10-gb10-head", Id="ours", Labels={"io.gb10.owner": "gb10.cluster"})
    containers, errors = foreign([entry("z", Id="z"), ours, entry("g", Id="gone"), entry("a", Id="a", Labels=None)], inspect)
    assert [container["name"] for container in containers] == ["a", "z"] and errors == [] and inspected == ["z", "gone", "a"]


def test_an_engine_that_hangs_is_not_asked_again():
    inspected = []

    def inspect(container_id):
        inspected.append(container_id)
        raise UnknownState("the Docker engine did not answer")

    containers, errors = foreign([entry("a", Id="a"), entry("b", Id="b")], inspect)
    assert [(container["name"], container["gpu"], container["env_names"], container["host_network"]) for container in containers] == [
        ("a", None, None, None),
        ("b", None, None, None),
    ]
    assert inspected == ["a"] and len(errors) == 1


def test_after_a_refusal_the_other_containers_are_inspected():
    def inspect(container_id):
        if container_id == "a":
            raise ClusterError("the Docker engine refused")
        return details({"DeviceRequests": [{"Driver": "nvidia"}]})

    containers, errors = foreign([entry("a", Id="a"), entry("b", Id="b")], inspect)
    assert [container["gpu"] for container in containers] == [None, True] and errors[0]["verdict"] == "block"


@pytest.mark.parametrize(
    "answer", [None, [], {}, {"HostConfig": None, "Config": {}}, {"HostConfig": {"DeviceRequests": [3]}, "Config": {}}, {"HostConfig": {}}]
)
def test_a_container_described_in_another_form_is_unknown_and_still_listed(answer):
    containers, errors = foreign([entry("a")], lambda _id: answer)
    assert [(container["name"], container["gpu"]) for container in containers] == [("a", None)]
    assert len(errors) == (0 if answer is None else 1)


@pytest.mark.parametrize("broken", [{"Created": "x"}, {"Created": 10**30}, {"Ports": [3]}, {"Ports": [{"PublicPort": "x", "PrivatePort": 1, "Type": "tcp"}]}])
def test_an_entry_in_another_shape_is_reported_once(broken):
    containers, errors = foreign([entry("a", **broken), entry("b", Id="b")], lambda _id: details())
    assert [container["name"] for container in containers] == ["b"] and len(errors) == 1


@pytest.mark.parametrize("answer", [None, {}, [3], [{}], [entry(Labels=3)], [entry(Names=[3])], [entry(Id=None)]])
def test_a_list_of_containers_in_another_shape_is_unknown(answer):
    with pytest.raises(UnknownState):
        survey.entries_of(answer)


def test_names_of_containers():
    assert survey.container_name("id-a", [{"Id": "id-a", "Names": ["/a"]}]) == "a"
    assert survey.container_name("id-b", [{"Id": "id-a", "Names": ["/a"]}]) == "id-b"
    assert survey.ours([entry("x", Labels=None, Names=None)]) == []


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("gb10-gb10-head", {"io.gb10.cluster": "gb10", "io.gb10.role": "head"}, ("gb10", "head")),
        # ray_cluster takes over such a container: it was made by hand or by an interrupted play.
        ("gb10-gb10-worker", {}, ("gb10", "worker")),
        ("gb10-two-words-head", {"io.gb10.role": ""}, ("two-words", "head")),
        ("gb10-gb10-head", {"io.gb10.cluster": "judges"}, ("judges", "head")),
        ("quiet_turing", {"io.gb10.role": "probe"}, (None, "probe")),
    ],
)
def test_a_containers_cluster_and_role_are_in_its_labels_or_its_name(name, labels, expected):
    (container,) = survey.ours([entry(name, Labels={"io.gb10.owner": "gb10.cluster", **labels})])
    assert (container["cluster"], container["role"]) == expected


# -- strange answers ---------------------------------------------------------------------------------------------------------------------


#: JSON of any shape.
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)


@hypothesis.settings(deadline=None, derandomize=True, database=None)
@hypothesis.given(st.data())
def test_an_answer_with_a_part_of_another_shape_never_crashes(data):
    full = details({"DeviceRequests": [{"Driver": "", "DeviceIDs": ["x"], "Capabilities": [["gpu"]]}], "Devices": [{"PathOnHost": "/dev/x"}]}, ["A=b"])
    port = {"IP": "0.0.0.0", "PrivatePort": 8080, "PublicPort": 3000, "Type": "tcp"}
    listed, answer = json.loads(json.dumps([entry(Ports=[port]), full]))
    where = data.draw(st.sampled_from([listed, answer, answer["HostConfig"], answer["Config"], answer["HostConfig"]["DeviceRequests"][0], listed["Ports"][0]]))
    key = data.draw(st.sampled_from(sorted(where)))
    where[key] = data.draw(ANYTHING)
    try:
        entries = survey.entries_of([listed])
    except UnknownState:
        return
    containers, errors = foreign(entries, lambda _id: answer)
    assert containers or errors or survey.is_ours(listed)
    json.dumps(containers)


@hypothesis.settings(deadline=None, derandomize=True, database=None)
@hypothesis.given(st.sampled_from(sorted(INFO)), ANYTHING)
def test_an_engine_with_a_part_of_another_shape_is_read_or_unknown(key, value):
    try:
        facts = survey.engine(VERSION, {**INFO, key: value})
    except UnknownState:
        return
    survey.depth(facts, INFO, "/nonexistent", Sections().section("docker"))
