# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Interfaces, addresses and RDMA devices."""

from __future__ import annotations

import pathlib
import socket
import struct

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._network import net_devices

IF_INET6 = """00000000000000000000000000000001 01 80 10 80       lo
fe800000000000004ebb47fffe2c0001 02 40 20 80 enp1s0f0np0
fd000000000000000000000000000002 02 40 00 80 enp1s0f0np0
"""


def ifreq(name: str, address: str, family: int = socket.AF_INET) -> bytes:
    return struct.pack("16sHH4s16x", name.encode(), family, 0, socket.inet_aton(address))


def tree(root: pathlib.Path, files: dict[str, str]) -> str:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return str(root)


def test_ifconf_keeps_labels_and_leaves_other_families_out():
    raw = ifreq("lo", "127.0.0.1") + ifreq("eth0:1", "10.0.0.2") + ifreq("x", "1.2.3.4", socket.AF_INET6)
    assert net_devices.parse_ifconf(raw) == [("lo", "127.0.0.1"), ("eth0:1", "10.0.0.2")]


def test_ifconf_of_another_length_is_unknown():
    with pytest.raises(UnknownState):
        net_devices.parse_ifconf(ifreq("lo", "127.0.0.1")[:-1])


def test_the_kernel_tells_the_loopback_address():
    assert {
        "interface": "lo",
        "family": "ipv4",
        "address": "127.0.0.1",
        "prefix": 8,
        "network": "127.0.0.0/8",
        "scope": "host",
    } in net_devices.ipv4_addresses()


def test_if_inet6():
    loopback, link, global_ = net_devices.parse_if_inet6(IF_INET6)
    assert (loopback["address"], loopback["prefix"], loopback["scope"]) == ("::1", 128, "host")
    assert (link["address"], link["scope"]) == ("fe80::4ebb:47ff:fe2c:1", "link")
    assert (global_["interface"], global_["network"], global_["scope"]) == ("enp1s0f0np0", "fd00::/64", "global")


@pytest.mark.parametrize("text", ["rubbish\n", "zz 01 80 10 80 lo\n", IF_INET6 + "0 1\n"])
def test_if_inet6_in_another_shape_is_unknown(text):
    with pytest.raises(UnknownState):
        net_devices.parse_if_inet6(text)


def test_a_kernel_without_ipv6_has_no_such_addresses(tmp_path):
    assert net_devices.ipv6_addresses(str(tmp_path)) == []


def test_link_state(tmp_path):
    base = "class/net/enp1s0f0np0"
    values = {"carrier": "1", "operstate": "up", "mtu": "9000", "address": "4c:bb:47:2c:00:01", "speed": "200000"}
    root = tree(tmp_path, {f"{base}/{name}": f"{value}\n" for name, value in values.items()})
    (tmp_path / base / "device").mkdir()
    (tmp_path / "drivers/mlx5_core").mkdir(parents=True)
    (tmp_path / base / "device/driver").symlink_to(tmp_path / "drivers/mlx5_core")
    assert net_devices.link("enp1s0f0np0", root) == {
        "name": "enp1s0f0np0",
        "carrier": True,
        "operstate": "up",
        "mtu": 9000,
        "mac": "4c:bb:47:2c:00:01",
        "speed": 200000,
        "driver": "mlx5_core",
    }


def test_a_link_that_is_down_has_no_carrier(tmp_path):
    root = tree(tmp_path, {"class/net/eth1/operstate": "down\n", "class/net/eth1/speed": "-1\n"})
    link = net_devices.link("eth1", root)
    assert link["carrier"] is None and link["speed"] is None and link["driver"] is None


def test_interfaces_join_links_and_addresses(tmp_path, monkeypatch):
    root = tree(tmp_path / "sys", {"class/net/eth1/carrier": "0\n", "class/net/bonding_masters": "\n"})
    proc = tree(tmp_path / "proc", {"net/if_inet6": IF_INET6})
    entry = {"interface": "eth1", "family": "ipv4", "address": "192.168.100.10", "prefix": 24, "network": "192.168.100.0/24", "scope": "global"}
    monkeypatch.setattr(net_devices, "ipv4_addresses", lambda: [entry])
    by_name = {interface["name"]: interface for interface in net_devices.interfaces(root, proc)}
    assert by_name.keys() == {"eth1", "lo", "enp1s0f0np0"}
    assert by_name["eth1"]["carrier"] is False
    assert [network["address"] for network in by_name["eth1"]["networks"]] == ["192.168.100.10"]


@pytest.mark.parametrize(
    ("address", "carrier", "expected"),
    [
        ("10.0.0.2", "1", {"interface": "eth1", "operstate": "up", "up": True}),
        ("10.0.0.2", "0", {"interface": "eth1", "operstate": "up", "up": False}),
        ("10.0.0.2", None, {"interface": "eth1", "operstate": "up", "up": False}),
        ("FD00:0::2", "1", {"interface": "eth1", "operstate": "up", "up": True}),
        ("10.0.0.3", "1", {"interface": "", "operstate": "", "up": False}),
    ],
)
def test_the_holder_of_an_address(tmp_path, monkeypatch, address, carrier, expected):
    monkeypatch.setattr(net_devices, "ipv4_addresses", lambda: [{"interface": "eth1", "address": "10.0.0.2"}])
    monkeypatch.setattr(net_devices, "ipv6_addresses", lambda _proc: [{"interface": "eth1", "address": "fd00::2"}])
    base = tmp_path / "class" / "net" / "eth1"
    base.mkdir(parents=True)
    (base / "operstate").write_text("up\n")
    if carrier:
        (base / "carrier").write_text(f"{carrier}\n")
    assert net_devices.interface_of(address, str(tmp_path)) == expected


def test_rdma_devices(tmp_path):
    base = "class/infiniband/rocep1s0f0"
    root = tree(
        tmp_path,
        {
            f"{base}/ports/1/state": "4: ACTIVE\n",
            f"{base}/ports/1/phys_state": "5: LinkUp\n",
            f"{base}/ports/1/link_layer": "Ethernet\n",
            f"{base}/ports/1/rate": "200 Gb/sec (4X HDR)\n",
            f"{base}/ports/1/gid_attrs/ndevs/0": "enp1s0f0np0\n",
            f"{base}/ports/1/gid_attrs/ndevs/1": "enp1s0f0np0\n",
            f"{base}/device/net/enp1s0f0np0/mtu": "9000\n",
        },
    )
    assert net_devices.rdma_devices(root) == [
        {
            "name": "rocep1s0f0",
            "netdevs": ["enp1s0f0np0"],
            "ports": [{"port": 1, "state": "ACTIVE", "physical_state": "LinkUp", "link_layer": "Ethernet", "rate": "200 Gb/sec (4X HDR)"}],
        }
    ]


def test_without_rdma_there_is_no_device(tmp_path):
    assert net_devices.rdma_devices(str(tmp_path)) == []
