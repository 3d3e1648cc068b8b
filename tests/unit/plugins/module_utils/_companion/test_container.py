# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What makes a companion's container, and how it is found."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._companion import container, declared
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import NotFound
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError

IMAGE = "someone/ollama@sha256:" + "a" * 64


def companion(**given):
    ollama = {"name": "ollama", "image": IMAGE, "port": 11434, "health_path": "/api/tags", "memory_gib": 20, "env": {"OLLAMA_MAX_LOADED_MODELS": 1}}
    return declared.whole({**ollama, **given})


def test_the_options_of_docker_container():
    result = container.options(companion(arguments=["--port", 1], mounts=[{"source": "/a", "target": "/b"}]), [], "never")
    assert result["name"] == "gb10-companion-ollama" and result["image"] == IMAGE and result["pull"] == "never" and result["network_mode"] == "host"
    assert result["env"] == {"OLLAMA_MAX_LOADED_MODELS": "1"} and result["command"] == ["--port", "1"] and result["device_requests"] == []
    assert result["mounts"] == [{"type": "bind", "source": "/a", "target": "/b", "read_only": False}]
    assert result["labels"]["io.gb10.role"] == "companion" and result["labels"]["io.gb10.companion"] == "ollama" and "io.gb10.cluster" not in result["labels"]
    # It is never restarted by itself, and can get no more than Docker's usual capabilities.
    assert not {"restart_policy", "privileged", "capabilities", "cap_drop", "auto_remove"} & result.keys()
    assert result["security_opts"] == ["no-new-privileges:true"]
    assert "command" not in container.options(companion(), [], "never")


@pytest.mark.parametrize(("devices", "request_"), [
    (["nvidia.com/gpu=all"], {"driver": "cdi", "device_ids": ["nvidia.com/gpu=all"]}),
    ([], {"driver": "nvidia", "capabilities": [["gpu"]], "count": -1}),
])  # fmt: skip
def test_the_gpu_comes_by_cdi_where_docker_has_it(devices, request_):
    assert container.options(companion(gpus=True), devices, "never")["device_requests"] == [request_]


@pytest.mark.parametrize("changed", [
    {"image": IMAGE.replace("a", "b")}, {"port": 1}, {"env": {}}, {"arguments": ["x"]}, {"mounts": [{"source": "/a", "target": "/b"}]}, {"gpus": True},
])  # fmt: skip
def test_the_labels_alone_decide_and_each_field_counts(changed):
    assert container.options(companion(), [], "never")["comparisons"] == {"*": "ignore", "labels": "allow_more_present"}
    assert container.labels(companion()) != container.labels(companion(**changed))
    assert container.labels(companion()) == container.labels(companion(memory_gib=1, health_timeout=5, health_path="/x", modes=["off"]))
    # A different way to request the GPU does not replace the container.
    assert container.options(companion(), [], "never")["labels"] == container.options(companion(), ["nvidia.com/gpu=all"], "never")["labels"]


class Engine:
    def __init__(self, *names):
        self.names = names

    def containers(self, labels):
        assert labels == {"io.gb10.owner": "gb10.cluster", "io.gb10.role": "companion", "io.gb10.companion": "ollama"}
        return [{"Id": name * 64, "Names": [f"/{name}"], "State": "running"} for name in self.names]

    def inspect(self, container_id):
        return {"Id": container_id}


def test_it_is_found_by_its_labels():
    assert container.find(Engine("b"), "ollama") == {"Id": "b" * 64}
    with pytest.raises(NotFound, match="no container of the companion ollama"):
        container.find(Engine(), "ollama")
    with pytest.raises(ClusterError, match="has 2 containers labeled as the companion ollama"):
        container.find(Engine("b", "c"), "ollama")
