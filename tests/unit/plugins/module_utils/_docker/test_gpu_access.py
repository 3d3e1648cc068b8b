# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a container asks for the GPU, by what Docker's engine says of itself."""

from __future__ import annotations

import pathlib
import types

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._docker import gpu_access
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState

YAML = (pathlib.Path(__file__).parents[3] / "fixtures/cdi/composed_nvidia_yaml.txt").read_text(encoding="utf-8")

#: What ``docker info`` says of an engine of DGX OS 7.5, recorded as an excerpt: runc alone, and the devices of CDI.
DGX_OS = {
    "ServerVersion": "29.2.1",
    "Runtimes": {"io.containerd.runc.v2": {}, "runc": {}},
    "DefaultRuntime": "runc",
    "CDISpecDirs": ["/nonexistent/cdi"],
    "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}, {"Source": "cdi", "ID": "nvidia.com/gpu=all"}],
}
#: The lab's engine 20.10, recorded.
OLD = {"ServerVersion": "20.10.24+dfsg1", "Runtimes": {"io.containerd.runc.v2": {}, "runc": {}}, "DefaultRuntime": "runc"}

BY_DRIVER = {"driver": "nvidia", "capabilities": [["gpu"]]}


def engine(info):
    return types.SimpleNamespace(get=lambda path: info if path == "/info" else None)


@pytest.mark.parametrize(
    ("gpus", "devices", "requests"),
    [
        ("none", ["nvidia.com/gpu=all"], []),
        ([], ["nvidia.com/gpu=all"], []),
        ("all", [], [{**BY_DRIVER, "count": -1}]),
        ([0, "GPU-1f2e"], [], [{**BY_DRIVER, "device_ids": ["0", "GPU-1f2e"]}]),
        ("all", ["nvidia.com/gpu=0", "nvidia.com/gpu=all"], [{"driver": "cdi", "device_ids": ["nvidia.com/gpu=all"]}]),
        ([0], ["nvidia.com/gpu=0", "nvidia.com/gpu=all"], [{"driver": "cdi", "device_ids": ["nvidia.com/gpu=0"]}]),
        ([0, "GPU-1f2e"], ["nvidia.com/gpu=0"], [{**BY_DRIVER, "device_ids": ["0", "GPU-1f2e"]}]),
        ("all", ["nvidia.com/gpu=0", "amd.com/gpu=all"], [{**BY_DRIVER, "count": -1}]),
    ],
)
def test_cdi_is_asked_where_it_has_all_of_them(gpus, devices, requests):
    assert gpu_access.device_requests(gpus, devices) == requests


@pytest.mark.parametrize(("info", "devices"), [(DGX_OS, ["nvidia.com/gpu=0", "nvidia.com/gpu=all"]), (OLD, [])])
def test_the_engine_is_asked_which_devices_it_has(info, devices):
    assert gpu_access.cdi_devices(engine(info)) == devices


def test_an_engine_that_lists_none_reads_specifications(tmp_path):
    """Before API 1.50 the answer names the directories alone."""
    place = tmp_path / "cdi"
    place.mkdir()
    (place / "nvidia.yaml").write_text(YAML)
    (place / "broken.yaml").write_text("devices:\n- x\n")
    info = {"CDISpecDirs": ["/etc/cdi", "/var/run/cdi-of-nobody"]}
    assert "nvidia.com/gpu=all" in gpu_access.cdi_devices(engine(info), str(tmp_path))


@pytest.mark.parametrize("info", [None, [], {"CDISpecDirs": 3}, {"DiscoveredDevices": [3]}])
def test_rubbish_is_unknown(info):
    with pytest.raises(UnknownState):
        gpu_access.cdi_devices(engine(info))
