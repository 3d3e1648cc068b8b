# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finds the links between nodes, and suggests addresses for them. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import collections
import dataclasses
import ipaddress
import itertools
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.plugin_utils._text.groups import grouped

Answer = dict[str, t.Any]
#: The MTU of the suggested configuration if no link of the cluster has one to copy.
MTU = 9000
#: Names from a node that may be written to an inventory. Anything else could be read as YAML, or as a template, when it is loaded.
PLAIN_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}\Z")
#: Interfaces without a cable.
VIRTUAL = re.compile(r"(lo|docker|br-|veth|virbr|cni|flannel|cali|tailscale|wg|tun|tap|zt|podman|lxc|incus)")
#: The second PCIe half of a cage has a domain in its name: ``enP2p1s0f0np0``.
_SECOND_HALF = re.compile(r"enP\d+p")


@dataclasses.dataclass(frozen=True)
class LinkEnd:
    """A node's end of a link: one half of a cage, or a bond of several.

    ``speed`` is in Mbit/s and ``mtu`` in bytes, each None where unknown; ``addresses`` are IPv4 and permanent,
    ``link_local`` those that change at every boot.
    """

    name: str
    devices: tuple[str, ...] = ()
    twin: str | None = None
    cage: str = ""
    bond: bool = False
    carrier: bool = False
    speed: int | None = None
    mtu: int | None = None
    addresses: tuple[ipaddress.IPv4Interface, ...] = ()
    link_local: tuple[ipaddress.IPv4Interface, ...] = ()

    @property
    def order(self) -> tuple[str, bool, str]:
        """The sort key: by cage, its first half before its second."""
        return (self.cage, bool(_SECOND_HALF.match(self.name)), self.name)

    def address_text(self) -> str:
        """Return the addresses as text."""
        return ", ".join(map(str, (*self.addresses, *self.link_local))) or "no address"

    def describe(self) -> str:
        """Return devices, speed and MTU as text."""
        speed = f"{self.speed / 1000:g} Gb/s" if self.speed else "unknown speed"
        return ", ".join((*(self.devices or ("no RDMA device",)), speed, f"MTU {self.mtu}" if self.mtu else "unknown MTU"))


@dataclasses.dataclass(frozen=True)
class FabricLink:
    """One subnet that all nodes share over a link: the end and the address of each node in it."""

    network: ipaddress.IPv4Network
    ends: dict[str, tuple[LinkEnd, ipaddress.IPv4Interface]]


@dataclasses.dataclass(frozen=True)
class Wanted:
    """An address that an end should get."""

    end: LinkEnd
    address: ipaddress.IPv4Interface
    mtu: int


def link_ends(info: Answer, tcp: bool = False) -> list[LinkEnd]:
    """Return a node's ends of links, by cage: ConnectX interfaces, or their bonds; with ``tcp`` all other cabled interfaces as well."""
    known = {interface["name"]: interface for interface in info["interfaces"]}
    members = grouped((link["bond"] or link["netdev"], link) for link in info["fabric"] if link["bond"] or link["netdev"])
    taken = {link["netdev"] for link in info["fabric"]}
    members = {**dict.fromkeys([name for name in known if tcp and name not in taken and not VIRTUAL.match(name)], []), **members}
    return sorted((_link_end(name, links, known.get(name)) for name, links in members.items() if PLAIN_NAME.match(name)), key=lambda end: end.order)


def _link_end(name: str, links: list[Answer], interface: Answer | None) -> LinkEnd:
    first = links[0] if links else {}
    # A bond has its own addresses and state, which are only in `interfaces`.
    bond = any(link["bond"] == name for link in links)
    own = interface or ({} if bond else first)
    networks = [network for network in own.get("networks") or [] if network["family"] == "ipv4"]
    held = [ipaddress.IPv4Interface(f"{network['address']}/{network['prefix']}") for network in networks]
    devices = {link["device"] for link in links if link["device"] and PLAIN_NAME.match(link["device"])}
    return LinkEnd(
        name=name,
        devices=tuple(sorted(devices, key=lambda device: ("P" in device, device))),
        twin=None if bond else first.get("twin"),
        cage=str(first.get("cage") or ""),
        bond=bond,
        carrier=bool(own.get("carrier")),
        speed=own.get("speed") or first.get("speed_mbps"),
        mtu=own.get("mtu"),
        addresses=tuple(address for address in held if not address.is_link_local and not address.is_loopback),
        link_local=tuple(address for address in held if address.is_link_local),
    )


def fabric_links(nodes: t.Mapping[str, list[LinkEnd]], reached: str = "") -> list[FabricLink]:
    """Return the subnets in which every node has an end with carrier, the best one first.

    The order is: RDMA on every node, not the subnet that Ansible used (``reached``, the head's address), the highest speed of the slowest
    end, and the order of the head's ends. An end is used once. If no subnet has RDMA on every node, those without it are returned.
    """
    head = next(iter(nodes))
    by_network: dict[ipaddress.IPv4Network, dict[str, tuple[LinkEnd, ipaddress.IPv4Interface]]] = {}
    for node, ends in nodes.items():
        for end in ends:
            for address in end.addresses:
                if end.carrier and address.network.prefixlen < 32:
                    by_network.setdefault(address.network, {}).setdefault(node, (end, address))
    whole = [FabricLink(network, held) for network, held in by_network.items() if set(held) == set(nodes)]

    def order(fabric_link: FabricLink) -> tuple[t.Any, ...]:
        devices = all(end.devices for end, _address in fabric_link.ends.values())
        slowest = min(end.speed or 0 for end, _address in fabric_link.ends.values())
        return (not devices, bool(reached) and str(fabric_link.ends[head][1].ip) == reached, -slowest, fabric_link.ends[head][0].order, fabric_link.network)

    chosen: list[FabricLink] = []
    for fabric_link in sorted(whole, key=order):
        used = {(node, link.ends[node][0].name) for link in chosen for node in nodes}
        if not any((node, end.name) in used for node, (end, _address) in fabric_link.ends.items()):
            chosen.append(fabric_link)
    return chosen


def twins_together(ends: list[LinkEnd]) -> list[tuple[LinkEnd, LinkEnd, ipaddress.IPv4Network]]:
    """Return the pairs of ends with carrier that share a subnet on one node."""
    pairs = itertools.combinations([end for end in ends if end.carrier], 2)
    shared = [(first, other, {held.network for held in first.addresses} & {held.network for held in other.addresses}) for first, other in pairs]
    return [(first, other, min(networks)) for first, other, networks in shared if networks]


def wanted_addresses(
    nodes: t.Mapping[str, list[LinkEnd]], chosen: t.Sequence[FabricLink], others: t.Iterable[ipaddress.IPv4Network] = ()
) -> dict[str, list[Wanted]]:
    """Return the missing addresses of ends with carrier, by node: each pair of ends gets its own subnet.

    An end keeps its address, unless it is in the same subnet as its twin, or no other node is in that subnet. Ends are paired by their order on
    each node, the twins of used ends first. ``others`` are subnets that are already in use elsewhere.
    """
    free = {node: _free_ends(ends, [fabric_link.ends[node][0] for fabric_link in chosen]) for node, ends in nodes.items()}
    held = [address.network for ends in nodes.values() for end in ends for address in end.addresses]
    taken = [*others, *held]
    mtu = max((end.mtu or 0 for fabric_link in chosen for end, _address in fabric_link.ends.values()), default=0) or MTU
    wanted: dict[str, list[Wanted]] = collections.defaultdict(list)
    used = {fabric_link.network for fabric_link in chosen}
    for number in range(min(map(len, free.values()))):
        pair = {node: left[number] for node, left in free.items()}
        own = [address for end in pair.values() for address in end.addresses if address.network not in used and _has_room(address.network, pair.values())]
        network = own[0].network if own else _fresh_network(taken)
        if network is None:
            break
        used.add(network)
        taken.append(network)
        gone = {address.ip for end in pair.values() for address in end.addresses if address.network == network}
        for position, (node, end) in enumerate(pair.items()):
            if any(address.network == network for address in end.addresses):
                continue
            address = _fresh_address(network, _same_last_byte(node, chosen, position), gone)
            gone.add(address.ip)
            wanted[node].append(Wanted(end, address, mtu))
    return dict(wanted)


def _has_room(network: ipaddress.IPv4Network, ends: t.Collection[LinkEnd]) -> bool:
    """Return whether there are enough addresses in a subnet for every end that has none there."""
    there = {address.ip for end in ends for address in end.addresses if address.network == network}
    without = [end for end in ends if all(address.network != network for address in end.addresses)]
    return network.num_addresses - 2 >= len(there) + len(without)


def _free_ends(ends: list[LinkEnd], used: list[LinkEnd]) -> list[LinkEnd]:
    """Return the unused ends with carrier, twins of used ones first. Once a link is found, ends in other subnets are left out."""
    names = [end.name for end in used]
    taken = {address.network for end in used for address in end.addresses}
    left = [end for end in ends if end.carrier and end.name not in names]
    if used:
        left = [end for end in left if not end.addresses or any(address.network in taken for address in end.addresses)]
    return sorted(left, key=lambda end: (names.index(end.twin) if end.twin in names else len(names), end.order))


def _fresh_network(taken: t.Iterable[ipaddress.IPv4Network]) -> ipaddress.IPv4Network | None:
    """Return a private subnet of 254 addresses in which no node has an address, from 192.168.100.0 up; None when all are used."""
    known = list(taken)
    blocks = map(ipaddress.IPv4Network, ("192.168.100.0/22", "192.168.0.0/16", "172.16.0.0/12", "10.0.0.0/8"))
    spaces = (space for space in blocks if not any(other.supernet_of(space) for other in known))
    networks = (network for space in spaces for network in space.subnets(new_prefix=24))
    return next((network for network in networks if not any(network.overlaps(other) for other in known)), None)


def _same_last_byte(node: str, chosen: t.Sequence[FabricLink], position: int) -> int:
    """Return the last byte of a node's address in a new subnet: that of its address on the first link, else 11 and up."""
    return int(chosen[0].ends[node][1].ip) % 256 if chosen and chosen[0].network.prefixlen == 24 else 11 + position


def _fresh_address(network: ipaddress.IPv4Network, number: int, gone: t.Collection[t.Any]) -> ipaddress.IPv4Interface:
    first, last = int(network.network_address) + 1, int(network.broadcast_address) - 1
    places = [int(network.network_address) + number, *range(first, min(last, first + 1024) + 1)]
    host = next(place for place in places if first <= place <= last and ipaddress.IPv4Address(place) not in gone)
    return ipaddress.IPv4Interface((host, network.prefixlen))
