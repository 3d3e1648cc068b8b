# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SIMULATED sysfs of a gb10.cluster lab node: its own interfaces, with eth1 as the first half of a ConnectX-7 that has an RDMA device.

    gb10_lab_sysfs.py ROOT

Names and values are composed after what owners of two Sparks quote: one half of a card, PCIe Gen5 x4, 200 Gb/s, RoCE v2. Carrier, state, MTU
and hardware address are the interface's own, through links into the real sysfs, so that a link that goes down is down here, too.
The modules read it as `sysfs_root`; nothing transfers a byte over this device.
"""

from __future__ import annotations

import ipaddress
import json
import pathlib
import subprocess
import sys

NETDEV, DEVICE, ADDRESS = "eth1", "rocep1s0f0", "0000:01:00.0"
REAL = pathlib.Path("/sys")
EMPTY = "0000:0000:0000:0000:0000:0000:0000:0000"
LINK = {"current_link_width": "4", "max_link_width": "16", "current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe"}
PORT = {
    "state": "4: ACTIVE",
    "phys_state": "5: LinkUp",
    "link_layer": "Ethernet",
    "rate": "200 Gb/sec (4X HDR)",
    "counters/symbol_error": "0",
    "counters/port_rcv_errors": "0",
}


def write(base: pathlib.Path, values: dict[str, str]) -> None:
    """Write attributes below a directory."""
    for name, value in values.items():
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n", encoding="utf-8")


def link(path: pathlib.Path, target: pathlib.Path) -> None:
    """Make a link, and the directory that it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def mapped(address: str) -> str:
    """The GID of an IPv4 address, as the kernel writes it: all in hex, which from Python 3.13 on ``exploded`` is not."""
    packed = ipaddress.IPv6Address(f"::ffff:{address}").packed.hex()
    return ":".join(packed[at : at + 4] for at in range(0, len(packed), 4))


def addresses() -> list[str]:
    """The IPv4 addresses of the interface."""
    shown = subprocess.run(["ip", "-json", "-4", "address", "show", NETDEV], capture_output=True, check=True, timeout=20)
    return [info["local"] for entry in json.loads(shown.stdout) for info in entry.get("addr_info", [])]


def card(root: pathlib.Path) -> None:
    """Write the card, its interface and its RDMA device."""
    bridge = root / "devices" / "pci0000:00" / "0000:00:00.0"
    function = bridge / ADDRESS
    write(bridge, {"max_link_width": "4", "max_link_speed": "32.0 GT/s PCIe"})
    write(function, LINK)
    driver = root / "bus" / "pci" / "drivers" / "mlx5_core"
    driver.mkdir(parents=True)
    link(function / "driver", driver)

    netdev = function / "net" / NETDEV
    write(netdev, {"speed": "200000", "phys_port_name": "p0"})
    for name in ("carrier", "operstate", "mtu", "address", "flags"):
        link(netdev / name, REAL / "class" / "net" / NETDEV / name)
    link(netdev / "device", function)

    rdma = function / "infiniband" / DEVICE
    write(rdma, {"fw_ver": "28.45.4028", "sys_image_guid": "4cbb:4703:002c:0001"})
    write(rdma / "ports" / "1", PORT)
    gids = dict(enumerate([("fe80:0000:0000:0000:4ebb:47ff:fe2c:0001", "IB/RoCE v1"), *((mapped(address), "RoCE v2") for address in addresses())]))
    for index in range(8):
        gid, kind = gids.get(index, (EMPTY, ""))
        write(rdma / "ports" / "1", {f"gids/{index}": gid})
        if kind:
            write(rdma / "ports" / "1" / "gid_attrs", {f"types/{index}": kind, f"ndevs/{index}": NETDEV})
    link(rdma / "device", function)

    link(root / "class" / "infiniband" / DEVICE, rdma)
    link(root / "class" / "net" / NETDEV, netdev)


def build(root: pathlib.Path) -> None:
    """Write the tree; without the card on a host that is not on the fabric, as the builder. Raises OSError when a part of it is there already."""
    if (REAL / "class" / "net" / NETDEV).exists():
        card(root)
    for entry in (REAL / "class" / "net").iterdir():
        if entry.name != NETDEV and entry.is_dir():
            link(root / "class" / "net" / entry.name, entry)
    for name in ("module", "fs", "devices/system"):
        link(root / name, REAL / name)


if __name__ == "__main__":
    build(pathlib.Path(sys.argv[1]))
