# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Network interfaces, their addresses and RDMA devices, from the kernel itself. This module util is PRIVATE to the collection.

Nothing here needs iproute2, which minimal systems lack: link state comes from sysfs, IPv4 addresses from two ioctls, IPv6
addresses from ``/proc/net/if_inet6``.
"""

from __future__ import annotations

import array
import fcntl
import ipaddress
import os
import re
import socket
import struct
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import names

SIOCGIFCONF = 0x8912
SIOCGIFNETMASK = 0x891B

#: struct ifreq on 64-bit Linux: the interface's name (16 bytes), then a union as large as struct ifmap.
_IFREQ_SIZE = 40
_NAME_SIZE = 16
#: Room for the addresses of a node with very many interfaces.
_IFCONF_ENTRIES = 4096

_NUMBER = re.compile(r"^-?[0-9]{1,20}$")

_INET6_SCOPES = {0x00: "global", 0x10: "host", 0x20: "link", 0x40: "site"}


def _text(path: str) -> str | None:
    """Return a sysfs attribute, None when it is absent or has no value now (``carrier`` of an interface that is down)."""
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return None


def _number(path: str) -> int | None:
    text = _text(path)
    return int(text) if text is not None and _NUMBER.match(text) else None


def parse_ifconf(raw: bytes) -> list[tuple[str, str]]:
    """Return (name, IPv4 address) for every entry of a SIOCGIFCONF answer; the name may be a label such as ``eth0:1``."""
    if len(raw) % _IFREQ_SIZE:
        raise UnknownState("the kernel's list of addresses has a length that cannot be read", raw=raw.hex())
    rows = [struct.unpack_from(f"={_NAME_SIZE}sH2x4s", raw, start) for start in range(0, len(raw), _IFREQ_SIZE)]
    return [(name.split(b"\0", 1)[0].decode(), socket.inet_ntoa(address)) for name, family, address in rows if family == socket.AF_INET]


def ipv4_addresses() -> list[dict[str, t.Any]]:
    """Ask the kernel for every IPv4 address of this network namespace: ``{interface, address, prefix, network}``."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        return [_ipv4_entry(name, address, _netmask(sock, name, address)) for name, address in parse_ifconf(_ifconf(sock))]


def _ifconf(sock: socket.socket) -> bytes:
    buffer = array.array("B", bytes(_IFREQ_SIZE * _IFCONF_ENTRIES))
    address, size = buffer.buffer_info()
    (used, _address) = struct.unpack("@iP", fcntl.ioctl(sock, SIOCGIFCONF, struct.pack("@iP", size, address)))
    return buffer.tobytes()[:used]


def _netmask(sock: socket.socket, name: str, address: str) -> str:
    # With the address given, the kernel answers for that address and not for the interface's first one.
    request = struct.pack("16sHH4s16x", name.encode(), socket.AF_INET, 0, socket.inet_aton(address))
    answer = fcntl.ioctl(sock, SIOCGIFNETMASK, request)
    return socket.inet_ntoa(answer[_NAME_SIZE + 4:_NAME_SIZE + 8])


def _ipv4_entry(name: str, address: str, netmask: str) -> dict[str, t.Any]:
    interface = ipaddress.IPv4Interface(f"{address}/{netmask}")
    return {
        "interface": name.split(":", 1)[0],
        "family": "ipv4",
        "address": address,
        "prefix": interface.network.prefixlen,
        "network": str(interface.network),
        "scope": "host" if interface.ip.is_loopback else "link" if interface.ip.is_link_local else "global",
    }


def parse_if_inet6(text: str) -> list[dict[str, t.Any]]:
    """Return the addresses of a ``/proc/net/if_inet6`` text. Raises :class:`UnknownState` for a line of another shape."""
    entries = []
    for line in filter(str.strip, text.splitlines()):
        try:
            digits, _index, prefix, scope, _flags, name = line.split()
            interface = ipaddress.IPv6Interface((int(digits, 16), int(prefix, 16)))
            scope_name = _INET6_SCOPES.get(int(scope, 16) & 0xF0, "unknown")
        except ValueError as error:
            raise UnknownState(f"the kernel lists an IPv6 address in a shape that cannot be read: {line!r}", raw=text) from error
        entries.append(
            {
                "interface": name,
                "family": "ipv6",
                "address": str(interface.ip),
                "prefix": interface.network.prefixlen,
                "network": str(interface.network),
                "scope": scope_name,
            }
        )
    return entries


def ipv6_addresses(proc_root: str = "/proc") -> list[dict[str, t.Any]]:
    """Return every IPv6 address of this network namespace; none where the kernel has no IPv6."""
    text = _text(os.path.join(proc_root, "net", "if_inet6"))
    return parse_if_inet6(text) if text else []


def link(name: str, sysfs_root: str = "/sys") -> dict[str, t.Any]:
    """Return the sysfs facts about one interface; figures are None where the kernel has none (``carrier`` while it is down).

    ``mtu`` is in bytes, ``speed`` in Mbit/s.
    """
    base = os.path.join(sysfs_root, "class", "net", name)
    carrier = _number(os.path.join(base, "carrier"))
    speed = _number(os.path.join(base, "speed"))
    driver = os.path.join(base, "device", "driver")
    return {
        "name": name,
        "carrier": None if carrier is None else carrier == 1,
        "operstate": _text(os.path.join(base, "operstate")),
        "mtu": _number(os.path.join(base, "mtu")),
        "mac": _text(os.path.join(base, "address")),
        "speed": speed if speed is not None and speed > 0 else None,
        "driver": os.path.basename(os.path.realpath(driver)) if os.path.exists(driver) else None,
    }


def interfaces(sysfs_root: str = "/sys", proc_root: str = "/proc") -> list[dict[str, t.Any]]:
    """Return every interface with its link state and its ``networks`` (addresses and what belongs to them), by name."""
    root = os.path.join(sysfs_root, "class", "net")
    # bonding_masters is a file.
    networks: dict[str, list[dict[str, t.Any]]] = {name: [] for name in names(root) if os.path.isdir(os.path.join(root, name))}
    for entry in ipv4_addresses() + ipv6_addresses(proc_root):
        networks.setdefault(entry["interface"], []).append({key: value for key, value in entry.items() if key != "interface"})
    return [{**link(name, sysfs_root), "networks": networks[name]} for name in sorted(networks)]


def interface_of(address: str, sysfs_root: str = "/sys", proc_root: str = "/proc") -> dict[str, t.Any]:
    """Return which interface has an address and whether packets can leave it: ``{interface, operstate, up}``.

    ``interface`` is empty when none has the address. An interface without a carrier is not up, whatever its addresses.
    """
    wanted = str(ipaddress.ip_address(address))
    interface = next((entry["interface"] for entry in ipv4_addresses() + ipv6_addresses(proc_root) if entry["address"] == wanted), "")
    state = link(interface, sysfs_root) if interface else {"operstate": "", "carrier": None}
    return {"interface": interface, "operstate": state["operstate"] or "", "up": bool(state["carrier"])}


def _state_word(text: str | None) -> str | None:
    """Return the word of an attribute like ``4: ACTIVE``."""
    return text.partition(": ")[2] or text if text is not None else None


def _rdma_port(base: str, number: str) -> dict[str, t.Any]:
    path = os.path.join(base, "ports", number)
    return {
        "port": int(number),
        "state": _state_word(_text(os.path.join(path, "state"))),
        "physical_state": _state_word(_text(os.path.join(path, "phys_state"))),
        "link_layer": _text(os.path.join(path, "link_layer")),
        "rate": _text(os.path.join(path, "rate")),
    }


def _rdma_netdevs(base: str) -> list[str]:
    """Return the interfaces on top of an RDMA device: those named by its GIDs, and those of the same PCI function."""
    tables = [os.path.join(base, "ports", port, "gid_attrs", "ndevs") for port in names(os.path.join(base, "ports"))]
    named = {_text(os.path.join(table, index)) for table in tables for index in names(table)}
    return sorted(filter(None, named | set(names(os.path.join(base, "device", "net")))))


def rdma_devices(sysfs_root: str = "/sys") -> list[dict[str, t.Any]]:
    """Return every RDMA device with its ports' states and the interfaces on top of it; none where there is no RDMA."""
    root = os.path.join(sysfs_root, "class", "infiniband")
    bases = {name: os.path.join(root, name) for name in names(root)}
    return [
        {
            "name": name,
            "netdevs": _rdma_netdevs(base),
            "ports": [_rdma_port(base, number) for number in names(os.path.join(base, "ports")) if number.isdigit()],
        }
        for name, base in bases.items()
    ]
