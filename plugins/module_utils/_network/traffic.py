# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many bytes a node has sent, over which device and interface. This module util is PRIVATE to the collection.

The kernel counts RDMA separately: RDMA traffic is not in the counters of the interface, and TCP traffic over the same interface is not in the counters
of the RDMA device (mlx5 counts ``transmitted_ib_unicast`` only there).
"""

from __future__ import annotations

import os
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import optional_number
from ansible_collections.gb10.cluster.plugins.module_utils._network import net_devices

#: Bytes that ``port_xmit_data`` counts at a time.
WORD = 4

#: Place of the sent bytes among the figures of an interface in ``/proc/net/dev``.
_SENT = 8
_FIGURES = 16


def parse_net_dev(text: str) -> dict[str, int]:
    """Return the bytes that each interface has sent, by name, of a ``/proc/net/dev`` text. Raises :class:`UnknownState` for another shape."""
    sent = {}
    for line in text.splitlines()[2:]:
        name, _colon, figures = line.partition(":")
        numbers = figures.split()
        if len(numbers) != _FIGURES or not numbers[_SENT].isdecimal():
            raise UnknownState(f"the kernel counts the bytes of an interface in a shape that cannot be read: {line[:200]!r}", raw=text[:4000])
        sent[name.strip()] = int(numbers[_SENT])
    return sent


def rdma_sent(sysfs_root: str, device: dict[str, t.Any]) -> int | None:
    """Return the bytes that an RDMA device has sent by RDMA, None when it does not count them. Raises OSError or :class:`UnknownState`."""
    ports = os.path.join(sysfs_root, "class", "infiniband", device["name"], "ports")
    counts = [optional_number(os.path.join(ports, str(port["port"]), "counters", "port_xmit_data")) for port in device["ports"]]
    known = [count for count in counts if count is not None]
    return WORD * sum(known) if known else None


def all_rdma_sent(sysfs_root: str) -> int | None:
    """Return the bytes that all RDMA devices of this node have sent by RDMA, None when none counts them. Raises OSError or :class:`UnknownState`."""
    known = [sent for device in net_devices.rdma_devices(sysfs_root) if (sent := rdma_sent(sysfs_root, device)) is not None]
    return sum(known) if known else None


def sample(sysfs_root: str = "/sys", proc_root: str = "/proc") -> dict[str, t.Any]:
    """Return the bytes that this node has sent so far: ``{at, devices, interfaces}``.

    ``at`` is in seconds of the monotonic clock. ``devices`` are the RDMA devices by name, each with its ``netdevs`` and ``sent`` (None when
    it does not count), ``interfaces`` those of the network by name, each with its ``addresses`` and ``sent``. Raises OSError or :class:`UnknownState`.
    """
    with open(os.path.join(proc_root, "net", "dev"), encoding="ascii", errors="replace") as stream:
        sent = parse_net_dev(stream.read())
    addresses = net_devices.ipv4_addresses() + net_devices.ipv6_addresses(proc_root)
    return {
        "at": time.monotonic(),
        "devices": {
            device["name"]: {"netdevs": device["netdevs"], "sent": rdma_sent(sysfs_root, device)} for device in net_devices.rdma_devices(sysfs_root)
        },
        "interfaces": {
            name: {"addresses": [entry["address"] for entry in addresses if entry["interface"] == name], "sent": count} for name, count in sent.items()
        },
    }
