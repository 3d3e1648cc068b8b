# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""RDMA devices and ConnectX interfaces, on composed sysfs trees.

The tree follows what owners of a DGX Spark quote: names, PCI addresses and port names as in NVIDIA/daqiri pull request 108, firmware,
GUIDs and rates as in geerlingguy/sbc-reviews#92.
"""

from __future__ import annotations

import os
import pathlib

import hypothesis
import hypothesis.strategies as st
import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import files
from ansible_collections.gb10.cluster.plugins.module_utils._network import net_devices
from ansible_collections.gb10.cluster.plugins.module_utils._network import rdma as _fabric

FUZZ = hypothesis.settings(deadline=None, derandomize=True, database=None)
KEYS = {
    "device", "netdev", "twin", "cage", "bond", "carrier", "operstate", "speed_mbps", "mtu", "addresses", "networks", "driver", "firmware", "port_state",
    "physical_state", "rate", "pcie", "gids", "counters",
}  # fmt: skip
IMAGE = "fc4c:ea03:00f9:4230"
LOCAL, MAPPED = "fe80:0000:0000:0000:4ebb:47ff:fe2c:0001", "0000:0000:0000:0000:0000:ffff:c0a8:640a"
ZERO = "0000:0000:0000:0000:0000:0000:0000:0000"
SPARK = (
    ("0000:01:00.0", "enp1s0f0np0", "rocep1s0f0"),
    ("0000:01:00.1", "enp1s0f1np1", "rocep1s0f1"),
    ("0002:01:00.0", "enP2p1s0f0np0", "roceP2p1s0f0"),
    ("0002:01:00.1", "enP2p1s0f1np1", "roceP2p1s0f1"),
)


class Tree:
    """Builds sysfs trees."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.sysfs = str(root)

    def write(self, base: pathlib.Path, values: dict[str, str]) -> None:
        for name, value in values.items():
            (base / name).parent.mkdir(parents=True, exist_ok=True)
            (base / name).write_text(f"{value}\n")

    def link(self, path: pathlib.Path, target: pathlib.Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def function(self, address: str, driver: str = "mlx5_core", **values: str) -> pathlib.Path:
        """A PCI function below its bridge; both ends of the link list their capabilities."""
        bridge = self.root / f"devices/pci{address[:7]}/{address[:5]}00:00.0"
        place = bridge / address
        link = {"current_link_width": "4", "max_link_width": "16", "current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe"}
        self.write(place, {**link, **values})
        self.write(bridge, {"max_link_width": "4", "max_link_speed": "32.0 GT/s PCIe"})
        (self.root / f"drivers/{driver}").mkdir(parents=True, exist_ok=True)
        self.link(place / "driver", self.root / f"drivers/{driver}")
        return place

    def netdev(self, name: str, place: pathlib.Path, **values: str) -> pathlib.Path:
        base = place / "net" / name
        self.write(base, {"carrier": "1", "operstate": "up", "mtu": "9000", "speed": "200000", "address": "4c:bb:47:2c:00:01", **values})
        self.link(base / "device", place)
        self.link(self.root / "class/net" / name, base)
        return base

    def rdma(self, name: str, place: pathlib.Path, netdev: str | None, gids: dict[int, tuple[str, str]] | None = None, **values: str) -> pathlib.Path:
        base = place / "infiniband" / name
        port = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "link_layer": "Ethernet", "rate": "200 Gb/sec (4X HDR)"}
        port.update({"counters/port_xmit_data": "12", "counters/symbol_error": "0", "hw_counters/out_of_sequence": "3", "hw_counters/lifespan": "12"})
        self.write(base, {"fw_ver": "28.45.4028", "sys_image_guid": IMAGE, **{f"ports/1/{key}": value for key, value in port.items()}, **values})
        for index in range(12):
            gid, kind = (gids or {}).get(index, (ZERO, ""))
            self.write(base, {f"ports/1/gids/{index}": gid})
            if gid != ZERO:
                self.write(base, {f"ports/1/gid_attrs/types/{index}": kind, f"ports/1/gid_attrs/ndevs/{index}": netdev or ""})
        self.link(base / "device", place)
        self.link(self.root / "class/infiniband" / name, base)
        return base

    def spark(self) -> None:
        """The four interfaces of a Spark; the second cage has no cable."""
        for address, netdev, device in SPARK:
            port = f"p{address[-1]}"
            place = self.function(address)
            gids = {0: (LOCAL, "IB/RoCE v1"), 3: (MAPPED, "RoCE v2")}
            if port == "p0":
                self.netdev(netdev, place, phys_port_name=port)
                self.rdma(device, place, netdev, gids)
            else:
                down = {"ports/1/state": "1: DOWN", "ports/1/phys_state": "3: Disabled", "ports/1/rate": "40 Gb/sec (4X QDR)"}
                self.netdev(netdev, place, phys_port_name=port, carrier="0", operstate="down", speed="-1")
                self.rdma(device, place, netdev, **down)


@pytest.fixture
def tree(tmp_path, monkeypatch):
    entry = {"family": "ipv4", "address": "192.168.100.10", "prefix": 24, "network": "192.168.100.0/24", "scope": "global"}
    monkeypatch.setattr(net_devices, "ipv4_addresses", lambda: [{"interface": "enp1s0f0np0", **entry}])
    return Tree(tmp_path)


def look(tree, section=files.strict):
    entries = _fabric.fabric(tree.sysfs, str(tree.root / "none"), section)
    assert all(entry.keys() == KEYS for entry in entries)
    return {entry["device"] or entry["netdev"]: entry for entry in entries}


class Noted:
    def __init__(self):
        self.errors = []

    def __call__(self, reader, otherwise=None):
        try:
            return reader()
        except (UnknownState, OSError) as error:
            self.errors.append(str(error))
            return otherwise


def test_a_spark(tree):
    tree.spark()
    entries = look(tree)
    assert {name: (entry["netdev"], entry["twin"], entry["cage"]) for name, entry in entries.items()} == {
        "rocep1s0f0": ("enp1s0f0np0", "enP2p1s0f0np0", "p0"),
        "rocep1s0f1": ("enp1s0f1np1", "enP2p1s0f1np1", "p1"),
        "roceP2p1s0f0": ("enP2p1s0f0np0", "enp1s0f0np0", "p0"),
        "roceP2p1s0f1": ("enP2p1s0f1np1", "enp1s0f1np1", "p1"),
    }
    active = entries["rocep1s0f0"]
    assert active["addresses"] == ["192.168.100.10"] and active["networks"][0]["network"] == "192.168.100.0/24"
    assert (active["carrier"], active["operstate"], active["speed_mbps"], active["mtu"]) == (True, "up", 200000, 9000)
    assert (active["driver"], active["firmware"]) == ("mlx5_core", "28.45.4028")
    assert (active["port_state"], active["physical_state"], active["rate"], active["bond"]) == ("ACTIVE", "LinkUp", "200 Gb/sec (4X HDR)", None)
    # The chip supports sixteen lanes and its slot has four: this is not a narrow link.
    assert active["pcie"] == {"address": "0000:01:00.0", "width": 4, "width_max": 4, "speed_gts": 32.0, "speed_max_gts": 32.0}
    assert active["gids"] == [
        {"index": 0, "gid": LOCAL, "type": "IB/RoCE v1", "ndev": "enp1s0f0np0", "family": "ipv6", "address": "fe80::4ebb:47ff:fe2c:1"},
        {"index": 3, "gid": MAPPED, "type": "RoCE v2", "ndev": "enp1s0f0np0", "family": "ipv4", "address": "192.168.100.10"},
    ]
    assert active["counters"] == {"out_of_sequence": 3, "port_xmit_data": 12, "symbol_error": 0}
    dark = entries["rocep1s0f1"]
    assert (dark["carrier"], dark["port_state"], dark["speed_mbps"], dark["gids"], dark["addresses"]) == (False, "DOWN", None, [], [])


def test_nothing_there_is_nothing(tree):
    assert look(tree) == {}


def test_only_interfaces_of_the_fabric_are_listed(tree):
    tree.netdev("enp1s0f0np0", tree.function("0000:01:00.0"), phys_port_name="p0")
    tree.netdev("enP7s7", tree.function("0007:01:00.0", driver="r8127"))
    entries = look(tree)
    assert entries.keys() == {"enp1s0f0np0"}
    entry = entries["enp1s0f0np0"]
    assert entry["device"] is None and entry["gids"] == [] and entry["counters"] == {} and entry["twin"] is None and entry["pcie"]["width"] == 4


def test_a_narrow_and_slow_link(tree):
    tree.rdma("rocep1s0f0", tree.function("0000:01:00.0", current_link_width="2", current_link_speed="16.0 GT/s PCIe"), None)
    assert look(tree)["rocep1s0f0"]["pcie"] == {"address": "0000:01:00.0", "width": 2, "width_max": 4, "speed_gts": 16.0, "speed_max_gts": 32.0}


def test_a_link_without_figures(tree):
    tree.rdma("rocep1s0f0", tree.function("0000:01:00.0", current_link_width="255", current_link_speed="Unknown"), None)
    assert look(tree)["rocep1s0f0"]["pcie"]["width"] is None and look(tree)["rocep1s0f0"]["pcie"]["speed_gts"] is None


def test_twins_in_a_bond(tree):
    tree.spark()
    (tree.root / "class/net/bond0/bonding").mkdir(parents=True)
    (tree.root / "class/net/br0/bridge").mkdir(parents=True)
    for _address, netdev, _device in SPARK[::2]:
        tree.link(tree.root / "class/net" / netdev / "master", tree.root / "class/net/bond0")
    tree.link(tree.root / "class/net/enp1s0f1np1/master", tree.root / "class/net/br0")
    entries = look(tree)
    assert [entry["bond"] for entry in entries.values()] == ["bond0", None, "bond0", None] and entries["rocep1s0f0"]["twin"] == "enP2p1s0f0np0"


def test_the_device_of_a_bond_stands_on_its_own_function(tree):
    place = tree.function("0000:01:00.0")
    tree.netdev("enp1s0f0np0", place)
    tree.rdma("mlx5_bond_0", place, "bond0", {1: (LOCAL, "RoCE v2")})
    assert look(tree)["mlx5_bond_0"]["netdev"] == "enp1s0f0np0" and look(tree)["mlx5_bond_0"]["gids"][0]["ndev"] == "bond0"


def test_a_device_of_software_has_no_pcie_link(tree):
    base = tree.root / "devices/virtual/infiniband/rxe0"
    tree.write(base, {"ports/1/state": "4: ACTIVE", "ports/1/gids/0": ZERO})
    tree.link(tree.root / "class/infiniband/rxe0", base)
    entry = look(tree)["rxe0"]
    assert entry["pcie"] == {"address": None, "width": None, "width_max": None, "speed_gts": None, "speed_max_gts": None} and entry["netdev"] is None


def side(name, address=None, port=None, switch=None, image=None):
    return {"name": name, "address": address, "port_name": port, "switch_id": switch, "image_guid": image}


@pytest.mark.parametrize(
    ("first", "second", "twins"),
    [
        (side("a", "0000:01:00.0"), side("b", "0002:01:00.0"), True),
        (side("a", "0000:01:00.0"), side("b", "0000:01:00.0"), False),
        (side("a", "0000:01:00.0"), side("b", "0000:01:00.1"), False),
        (side("a", "0000:01:00.0"), side("b", "0002:01:00.1"), False),
        (side("a", "0000:01:00.0"), side("b", "0002:41:00.0"), False),
        (side("a", "0000:01:00.0", "p0"), side("b", "0002:01:00.0", "p1"), False),
        (side("a", "0000:01:00.0", "p0", "x", IMAGE), side("b", "0002:01:00.0", "p0", "y", IMAGE), True),
        (side("a", "0000:01:00.0", "p0", "x", IMAGE), side("b", "0002:01:00.0", "p0", "x", "other"), False),
        (side("a", "0000:01:00.0", "p0", "x"), side("b", "0002:01:00.0", "p0", "y"), False),
        # The names decide where an address is unknown.
        (side("enp1s0f0np0"), side("enP2p1s0f0np0"), True),
        (side("enp1s0f0np0"), side("enp1s0f1np1"), False),
        (side("enp1s0f0np0"), side("enP2p1s0f1np1"), False),
        (side("enp1s0f0np0", "0000:01:00.0"), side("enP2p1s0f0np0"), True),
        (side("eth0"), side("eth1"), False),
    ],
)
def test_twins(first, second, twins):
    assert _fabric.twin_of(first, [first, second]) == (second["name"] if twins else None)
    assert _fabric.twin_of(second, [first, second]) == (first["name"] if twins else None)


def test_of_three_at_the_same_place_none_is_the_twin():
    three = [side(name, f"{domain:04x}:01:00.0") for domain, name in enumerate("abc")]
    assert _fabric.twin_of(three[0], three) is None


@pytest.mark.parametrize(
    ("name", "port_name", "address", "cage"),
    [("x", "p1", "0000:01:00.0", "p1"), ("enp1s0f1np1", None, None, "p1"), ("eth0", None, "0000:01:00.1", "p1"), ("eth0", None, None, None)],
)
def test_the_cage(name, port_name, address, cage):
    assert _fabric._cage(name, port_name, address) == cage


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("infiniband/rocep1s0f0/ports/1/gids/3", "gids"),
        ("infiniband/rocep1s0f0/ports/1/hw_counters/out_of_sequence", "counters"),
        ("infiniband/rocep1s0f0/fw_ver", "firmware"),
    ],
)
def test_an_attribute_that_may_not_be_read_is_noted_and_hides_nothing_else(tree, monkeypatch, path, key):
    tree.spark()
    real = _fabric.optional_text

    def denied(name):
        if name.endswith(path):
            raise PermissionError(13, "Permission denied", name)
        return real(name)

    monkeypatch.setattr(_fabric, "optional_text", denied)
    noted = Noted()
    entries = look(tree, noted)
    assert entries["rocep1s0f0"][key] is None and entries["roceP2p1s0f0"][key] and len(noted.errors) == 1 and len(entries) == 4
    with pytest.raises(PermissionError):
        look(tree)


@pytest.mark.parametrize(
    ("gid", "counter", "key"),
    [("rubbish", "0", "gids"), (ZERO, "many", "counters")],
)
def test_an_attribute_of_another_shape_is_noted(tree, gid, counter, key):
    tree.rdma("rocep1s0f0", tree.function("0000:01:00.0"), None, {3: (gid, "RoCE v2")}, **{"ports/1/counters/symbol_error": counter})
    noted = Noted()
    assert look(tree, noted)["rocep1s0f0"][key] is None and len(noted.errors) == 1


def test_a_counter_that_the_port_does_not_have(tree):
    tree.rdma("rocep1s0f0", tree.function("0000:01:00.0"), None, **{"ports/1/counters/symbol_error": "N/A (no PMA)"})
    assert "symbol_error" not in look(tree)["rocep1s0f0"]["counters"]


def test_a_pcie_figure_of_another_shape_is_noted(tree):
    tree.rdma("rocep1s0f0", tree.function("0000:01:00.0", current_link_speed="fast", current_link_width="wide"), None)
    noted = Noted()
    pcie = look(tree, noted)["rocep1s0f0"]["pcie"]
    assert pcie["speed_gts"] is None and pcie["width"] is None and pcie["width_max"] == 4 and len(noted.errors) == 2


def test_devices_may_vanish_between_the_listing_and_the_reading(tree):
    tree.spark()
    devices, interfaces = net_devices.rdma_devices(tree.sysfs), net_devices.interfaces(tree.sysfs, tree.sysfs)
    for name in os.listdir(tree.root / "class/infiniband"):
        os.unlink(tree.root / "class/infiniband" / name)
    noted = Noted()
    entries = _fabric.fabric(tree.sysfs, tree.sysfs, noted, interfaces, devices)
    assert len(entries) == 4 and all(entry["gids"] == [] and entry["firmware"] is None for entry in entries)


@FUZZ
@hypothesis.given(st.one_of(st.text(max_size=60), st.from_regex(r"[0-9a-fA-F:]{30,45}"), st.from_regex(r"[0-9.]{1,9} GT/s.*")))
def test_strange_attributes_are_read_or_unknown(text):
    for parse in (_fabric.parse_link_speed, lambda value: _fabric.parse_gid(0, value, None, None), lambda value: files.number(value, "x")):
        try:
            parse(text)
        except UnknownState:
            pass
    _fabric._cage(text, None, text)
    _fabric.twin_of(side(text, text), [side(text[1:], text), side("enp1s0f0np0")])
