# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fabric in detail: RDMA devices and ConnectX interfaces with their twins, PCIe links, GIDs and counters. This module util is PRIVATE to the collection.

One ConnectX-7 serves both cages of a GB10 over two halves of the PCIe bus, each of four lanes: every cage shows up as two interfaces, the
twins, that have the same slot in two PCI domains (``0000:01:00.0`` and ``0002:01:00.0``) and share the port's name (``p0``), as the
daqiri project (pull request 108) reports of DGX Spark.
"""

from __future__ import annotations

import ipaddress
import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import Section, names, number, optional_number, optional_text, strict
from ansible_collections.gb10.cluster.plugins.module_utils._network import net_devices

DRIVER = "mlx5_core"

#: The remedy for a missing card, carrier or RDMA device. A cable that came in while a Spark ran was reported to carry 13
#: Gb/s until both were rebooted with it in.
CABLE_IN = (
    "put the cable in, into the same cage of every node, and reboot all of them with it in (a card without a cable is off the PCI bus: lspci -d 15b3:); "
    "where lspci shows the card: sudo modprobe -a mlx5_ib ib_uverbs"
)

_ADDRESS = re.compile(r"^(?P<domain>[0-9a-f]{4,8}):(?P<slot>[0-9a-f]{2}:[0-9a-f]{2}\.(?P<function>[0-7]))$")
_SPEED = re.compile(r"^(?P<gts>\d{1,3}(?:\.\d{1,2})?) GT/s")
#: Names by the firmware's topology: ``enp1s0f0np0``, ``enP2p1s0f0np0``.
_NAME = re.compile(r"^en(?P<domain>P\d+)?(?P<rest>p\d+s\d+(?:f(?P<function>\d+))?(?:n(?P<port>p\d+))?)$")
_GID = re.compile(r"^[0-9a-f]{4}(?::[0-9a-f]{4}){7}$")
_EMPTY_GID = "0000:0000:0000:0000:0000:0000:0000:0000"

#: A setting, in milliseconds, that is listed among the counters.
_NO_COUNTERS = {"lifespan"}
#: The text of an Ethernet port for counters that only InfiniBand has.
_NO_COUNTER = "N/A (no PMA)"


def parse_link_speed(text: str) -> float | None:
    """Return a PCIe link's speed in GT/s a lane; None for the kernel's "Unknown". Raises :class:`UnknownState` for anything else."""
    if text.startswith("Unknown"):
        return None
    match = _SPEED.match(text)
    if not match:
        raise UnknownState(f"the kernel shows a PCIe speed that cannot be read: {text[:80]!r}", raw=text[:2000])
    return float(match["gts"])


def parse_gid(index: int, text: str, kind: str | None, ndev: str | None) -> dict[str, t.Any]:
    """Return one entry of a GID table.

    ``family`` is ``ipv4`` for an IPv4-mapped address, else ``ipv6``; ``type`` is the kernel's name, ``RoCE v2`` or
    ``IB/RoCE v1``. Raises :class:`UnknownState` for another shape.
    """
    if not _GID.fullmatch(text):
        raise UnknownState(f"the kernel lists a GID that cannot be read: {text[:80]!r}", raw=text[:2000])
    address = ipaddress.IPv6Address(text)
    mapped = address.ipv4_mapped
    return {"index": index, "gid": text, "type": kind, "ndev": ndev, "family": "ipv4" if mapped else "ipv6", "address": str(mapped or address)}


def read_gids(port: str) -> list[dict[str, t.Any]]:
    """Return the GIDs of an RDMA device's port (its sysfs directory), by index. Raises OSError or :class:`UnknownState`."""
    indexes = sorted(int(name) for name in names(os.path.join(port, "gids")) if name.isdecimal())
    texts = ((index, optional_text(os.path.join(port, "gids", str(index)))) for index in indexes)
    types, ndevs = (os.path.join(port, "gid_attrs", kind) for kind in ("types", "ndevs"))
    # An empty entry has neither type nor interface, and there are hundreds.
    return [
        parse_gid(index, text, optional_text(os.path.join(types, str(index))), optional_text(os.path.join(ndevs, str(index))) or None)
        for index, text in texts
        if text and text != _EMPTY_GID
    ]


def read_counters(base: str, port: str) -> dict[str, int]:
    """Return the counters of an RDMA device and its port by name, from ``counters`` and ``hw_counters``. Raises OSError or :class:`UnknownState`.

    ``port_xmit_data`` and ``port_rcv_data`` count four bytes at a time.
    """
    counters: dict[str, int] = {}
    for directory in (os.path.join(port, "counters"), os.path.join(port, "hw_counters"), os.path.join(base, "hw_counters")):
        for name in names(directory):
            path = os.path.join(directory, name)
            text = optional_text(path) if name not in _NO_COUNTERS else None
            if text is not None and text != _NO_COUNTER:
                counters[name] = number(text, path)
    return dict(sorted(counters.items()))


def pci_address(base: str) -> str | None:
    """Return the PCI address of the function below ``base/device``, None for a device that is on no PCI bus."""
    path = os.path.join(base, "device")
    address = os.path.basename(os.path.realpath(path)) if os.path.exists(path) else ""
    return address if _ADDRESS.match(address) else None


def pcie(base: str, section: Section = strict) -> dict[str, t.Any]:
    """Return ``{address, width, width_max, speed_gts, speed_max_gts}`` of the function below ``base/device``.

    Widths are lanes, speeds GT/s a lane; the largest are what both ends of the link support: a chip for sixteen lanes in a slot for four is
    not degraded. All None where there is no PCIe link.
    """
    address = pci_address(base)
    device = os.path.realpath(os.path.join(base, "device"))
    bridge = os.path.dirname(device)

    def lanes(directory: str, name: str) -> int | None:
        width = optional_number(os.path.join(directory, name))
        return width if width not in (0, 255) else None  # the two ways of saying "unknown"

    def speed(directory: str, name: str) -> float | None:
        text = optional_text(os.path.join(directory, name))
        return None if text is None else parse_link_speed(text)

    def both(read: t.Callable[[str, str], t.Any], name: str) -> t.Any:
        return min((value for value in (read(device, name), read(bridge, name)) if value is not None), default=None)

    if address is None:
        return {"address": None, "width": None, "width_max": None, "speed_gts": None, "speed_max_gts": None}
    return {
        "address": address,
        "width": section(lambda: lanes(device, "current_link_width")),
        "width_max": section(lambda: both(lanes, "max_link_width")),
        "speed_gts": section(lambda: speed(device, "current_link_speed")),
        "speed_max_gts": section(lambda: both(speed, "max_link_speed")),
    }


def _bond(base: str) -> str | None:
    master = os.path.join(base, "master")
    return os.path.basename(os.path.realpath(master)) if os.path.isdir(os.path.join(master, "bonding")) else None


def _cage(name: str, port_name: str | None, address: str | None) -> str | None:
    """Return the cage an interface belongs to, by its port's name: ``p0``, ``p1``."""
    named, pci = _NAME.match(name), _ADDRESS.match(address or "")
    return port_name or (named and named["port"]) or (f"p{pci['function']}" if pci else None)


def twin_of(netdev: dict[str, t.Any], others: t.Iterable[dict[str, t.Any]]) -> str | None:
    """Return the name of the interface that is the other PCIe half of the same cage, None when there is not exactly one.

    ``netdev`` and each of ``others`` have ``name``, ``address`` (PCI), ``port_name``, ``switch_id`` and ``image_guid`` (of the chip), each
    None where unknown. Twins have the same slot in two PCI domains; where an address is unknown the names show the same
    (``enp1s0f0np0``, ``enP2p1s0f0np0``). Known values of port and chip must agree.
    """
    twins = [other["name"] for other in others if other["name"] != netdev["name"] and _are_twins(netdev, other)]
    return twins[0] if len(twins) == 1 else None


def _are_twins(netdev: dict[str, t.Any], other: dict[str, t.Any]) -> bool:
    if netdev["port_name"] and other["port_name"] and netdev["port_name"] != other["port_name"]:
        return False
    # The chip by its image GUID; by its switch id only where the GUID is not known.
    chip = "image_guid" if netdev["image_guid"] and other["image_guid"] else "switch_id"
    if netdev[chip] and other[chip] and netdev[chip] != other[chip]:
        return False
    first, second = _ADDRESS.match(netdev["address"] or ""), _ADDRESS.match(other["address"] or "")
    if first and second:
        return first["slot"] == second["slot"] and first["domain"] != second["domain"]
    mine, theirs = _NAME.match(netdev["name"]), _NAME.match(other["name"])
    return bool(mine and theirs and mine["rest"] == theirs["rest"] and mine["domain"] != theirs["domain"])


def _facts(name: str, sysfs_root: str, section: Section) -> dict[str, t.Any]:
    """Return the facts about one interface by which twins are recognized."""
    base = os.path.join(sysfs_root, "class", "net", name)
    guid = None
    for device in section(lambda: names(os.path.join(base, "device", "infiniband")), []):
        guid = section(lambda device=device: optional_text(os.path.join(base, "device", "infiniband", device, "sys_image_guid")))
    return {
        "name": name,
        "address": pci_address(base),
        "port_name": section(lambda: optional_text(os.path.join(base, "phys_port_name"))) or None,
        "switch_id": section(lambda: optional_text(os.path.join(base, "phys_switch_id"))) or None,
        "image_guid": guid if guid and guid.strip("0:") else None,
    }


def _main_netdev(device: dict[str, t.Any], sysfs_root: str) -> str | None:
    """Return the interface of an RDMA device's own PCI function; where the function has none, one that is named only by its GIDs."""
    base = os.path.join(sysfs_root, "class", "infiniband", device["name"], "device", "net")
    own = [name for name in device["netdevs"] if os.path.exists(os.path.join(base, name))]
    return next(iter(own or device["netdevs"]), None)


def _interface(interfaces: dict[str, dict[str, t.Any]], name: str | None) -> dict[str, t.Any]:
    known = interfaces.get(name or "", {})
    networks = known.get("networks", [])
    return {
        "carrier": known.get("carrier"),
        "operstate": known.get("operstate"),
        "speed_mbps": known.get("speed"),
        "mtu": known.get("mtu"),
        "addresses": [network["address"] for network in networks],
        "networks": networks,
        "driver": known.get("driver"),
    }


def _rdma_facts(device: dict[str, t.Any], sysfs_root: str, section: Section) -> dict[str, t.Any]:
    """Return the facts about the RDMA device itself, and about its first port, since every ConnectX-7 device has one."""
    base = os.path.join(sysfs_root, "class", "infiniband", device["name"])
    port = device["ports"][0] if device["ports"] else {}
    path = os.path.join(base, "ports", str(port.get("port", 1)))
    return {
        "firmware": section(lambda: optional_text(os.path.join(base, "fw_ver"))),
        "port_state": port.get("state"),
        "physical_state": port.get("physical_state"),
        "rate": port.get("rate"),
        "gids": section(lambda: read_gids(path)),
        "counters": section(lambda: read_counters(base, path)),
    }


_NO_RDMA: dict[str, t.Any] = {"firmware": None, "port_state": None, "physical_state": None, "rate": None, "gids": [], "counters": {}}


def fabric(
    sysfs_root: str = "/sys",
    proc_root: str = "/proc",
    section: Section = strict,
    interfaces: list[dict[str, t.Any]] | None = None,
    rdma: list[dict[str, t.Any]] | None = None,
) -> list[dict[str, t.Any]]:
    """Return the section ``fabric`` of ``node_info``: one entry an RDMA device, then one a mlx5 interface without one (``device`` None).

    ``{device, netdev, twin, cage, bond, carrier, operstate, speed_mbps, mtu, addresses, networks, driver, firmware, port_state,
    physical_state, rate, pcie, gids, counters}``. ``interfaces`` and ``rdma`` are what :func:`net_devices.interfaces` and
    :func:`net_devices.rdma_devices` returned, read here where not given. The addresses are the interface's own: those of a bond are the bond's.
    ``gids`` and ``counters`` are None where they could not be read, which ``section`` notes, and empty without an RDMA device.
    """
    known = {entry["name"]: entry for entry in (net_devices.interfaces(sysfs_root, proc_root) if interfaces is None else interfaces)}
    devices = net_devices.rdma_devices(sysfs_root) if rdma is None else rdma
    rows: list[tuple[dict[str, t.Any] | None, str | None]] = [(device, _main_netdev(device, sysfs_root)) for device in devices]
    covered = {name for device in devices for name in device["netdevs"]}
    rows += [(None, name) for name, entry in sorted(known.items()) if entry.get("driver") == DRIVER and name not in covered]

    facts = {name: _facts(name, sysfs_root, section) for _device, name in rows if name}
    entries = []
    for device, name in rows:
        # The PCI function is the RDMA device's own: a device may lack an interface.
        where = os.path.join(sysfs_root, "class", *(("infiniband", device["name"]) if device else ("net", name or "")))
        mine = facts.get(name or "")
        base = os.path.join(sysfs_root, "class", "net", name or "")
        entries.append(
            {
                "device": device["name"] if device else None,
                "netdev": name,
                "twin": twin_of(mine, facts.values()) if mine else None,
                "cage": _cage(name or "", mine["port_name"] if mine else None, pci_address(where)),
                "bond": _bond(base) if name else None,
                **_interface(known, name),
                **(_rdma_facts(device, sysfs_root, section) if device else _NO_RDMA),
                "pcie": pcie(where, section),
            }
        )
    return entries
