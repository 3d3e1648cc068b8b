# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The facts of a node's network on which a specification depends, and which a reboot may change. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._network import net_devices, rdma

#: The variable that selects one entry of the RDMA devices' GID tables. A boot can change the correct index.
GID_INDEX = "NCCL_IB_GID_INDEX"


def seen(address: str, env: t.Mapping[str, str], sysfs_root: str, proc_root: str) -> dict[str, str]:
    """Return the interface that has an address, and the GID table entries that ``env`` selects. Raises OSError or :class:`UnknownState`."""
    entries = {f"the interface of {address}": net_devices.interface_of(address, sysfs_root, proc_root)["interface"]} if address else {}
    index = str(env.get(GID_INDEX, ""))
    for device in net_devices.rdma_devices(sysfs_root) if index.isdecimal() else ():
        for port in device["ports"]:
            where = os.path.join(sysfs_root, "class", "infiniband", device["name"], "ports", str(port["port"]))
            entry = next((gid for gid in rdma.read_gids(where) if gid["index"] == int(index)), None)
            entries[f"GID {index} of {device['name']} port {port['port']}"] = f"{entry['address']} ({entry['type']})" if entry else ""
    return entries


def differences(recorded: t.Mapping[str, str], now: t.Mapping[str, str]) -> list[str]:
    """Return a text for each value that changed since the specification was written."""
    return [
        f"{name} was {recorded.get(name) or 'none'} and is {now.get(name) or 'none'}"
        for name in dict.fromkeys([*recorded, *now])
        if recorded.get(name, "") != now.get(name, "")
    ]
