# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A recorded tree, restored, gives the parsers the same answer. The tree is composed, like the one in test_rdma."""

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._calibrate import recording
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._network import net_devices, rdma
from ansible_collections.gb10.cluster.plugins.plugin_utils._calibrate.archive import Content, spread

MEMINFO = "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 500 kB\nCached: 100 kB\nBuffers: 1 kB\n"


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


@pytest.fixture
def sysfs(tmp_path):
    """Both halves of one cage on two PCI domains, as a tree with the kernel's links."""
    root = tmp_path / "sys"
    for domain, netdev, device in (("0000", "enp1s0f0np0", "rocep1s0f0"), ("0002", "enP2p1s0f0np0", "roceP2p1s0f0")):
        function = f"devices/pci{domain}:00/{domain}:00:00.0/{domain}:01:00.0"
        net, ib = f"{function}/net/{netdev}", f"{function}/infiniband/{device}"
        link = {"current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe", "current_link_width": "4", "max_link_width": "4"}
        write(root / function, link)
        write(root / os.path.dirname(function), link)
        write(root / net, {"address": "4c:bb:47:2c:00:01", "carrier": "1", "mtu": "9000", "operstate": "up", "speed": "200000", "phys_port_name": "p0"})
        write(root / ib, {"fw_ver": "28.45.4028", "sys_image_guid": "fc4c:ea03:00f9:4230", "node_guid": "fc4c:ea03:00f9:4231"})
        gid = {"gids/0": "fe80:0000:0000:0000:4ebb:47ff:fe2c:0001", "gid_attrs/types/0": "RoCE v2", "gid_attrs/ndevs/0": netdev}
        empty = {f"gids/{index}": ":".join(["0000"] * 8) for index in range(1, 200)}
        port = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "200 Gb/sec (2X NDR)", "link_layer": "Ethernet", "counters/port_xmit_data": "7"}
        write(root / ib / "ports/1", {**gid, **empty, **port})
        for name, target in ((f"class/net/{netdev}", net), (f"class/infiniband/{device}", ib)):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).symlink_to(os.path.relpath(root / target, (root / name).parent))
        (root / "bus/pci/drivers/mlx5_core").mkdir(parents=True, exist_ok=True)
        for name, target in ((f"{net}/device", function), (f"{ib}/device", function), (f"{function}/driver", "bus/pci/drivers/mlx5_core")):
            (root / name).symlink_to(os.path.relpath(root / target, (root / name).parent))
    (root / "class/net/lo").mkdir()
    return root


def recorder(tmp_path, **roots):
    defaults = {name: option.get("default") for name, option in ROOTS["options"].items()}
    return recording.Recorder({**defaults, "proc_root": str(tmp_path / "proc"), **roots}, 5, EngineApi(str(tmp_path / "no.sock"), 1))


def test_a_recorded_tree_put_up_again_gives_the_same_fabric(tmp_path, sysfs):
    made = recorder(tmp_path, sysfs_root=str(sysfs))
    made.network()
    assert made.sections.errors == []
    texts = {f"n/{file['name']}": file["text"] for file in made.files if "text" in file}
    links = {f"n/{file['name']}": file["link"] for file in made.files if "link" in file}
    assert len(texts) < 100, "of hundreds of empty GIDs none is taken"
    spread(Content(texts, links), "n/sys", str(tmp_path / "again"))

    def seen(root):
        known = [net_devices.link(name, str(root)) | {"networks": []} for name in ("enp1s0f0np0", "enP2p1s0f0np0")]
        return rdma.fabric(str(root), str(tmp_path / "proc"), interfaces=known)

    first = seen(sysfs)
    assert seen(tmp_path / "again") == first
    assert {link["netdev"]: link["twin"] for link in first} == {"enp1s0f0np0": "enP2p1s0f0np0", "enP2p1s0f0np0": "enp1s0f0np0"}
    assert first[0]["driver"] == "mlx5_core" and first[0]["pcie"]["width"] == 4 and first[0]["counters"] == {"port_xmit_data": 7}


def test_what_is_not_there_is_an_error_and_hides_nothing(tmp_path):
    write(tmp_path / "proc", {"meminfo": MEMINFO})
    made = recorder(tmp_path, nvidia_smi="/nonexistent/nvidia-smi", kernel_log=str(tmp_path / "no.log"))
    result = made.everything()
    assert [file["name"] for file in result["files"] if file["name"].startswith("proc/")] == ["proc/meminfo"]
    assert {"driver/smi.xml", "kernel.log", "docker/version.json"} <= {error["section"] for error in result["errors"]} and result["hostname"]


def test_docker_s_answer_is_kept_without_what_names_the_machine(tmp_path, monkeypatch):
    made = recorder(tmp_path)
    answers = {"/version": {"Version": "29.1.0"}, "/info": {"Name": "quietbox", "ID": "x", "CgroupDriver": "systemd", "HttpProxy": "http://me@proxy"}}
    monkeypatch.setattr(made.docker_api, "get", answers.__getitem__)
    made.docker()
    assert [json.loads(file["text"]) for file in made.files] == [{"Version": "29.1.0"}, {"CgroupDriver": "systemd"}]
