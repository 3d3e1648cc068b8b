# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of the links between the nodes, as they are and as they were probed. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import ipaddress
import itertools

from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.checks import Arguments, Faults, check, comparison, derived, differing, listed, named_like
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.evidence import Entry, Fault, Node, Unseen, of_entry


def _ipv4(link: Entry) -> list[Entry]:
    """Return the global IPv4 networks of an interface."""
    return [network for network in link["networks"] or [] if network["family"] == "ipv4"]


def _addresses_of(interfaces: list[Entry]) -> tuple[Entry, str]:
    """Return the addresses of interfaces by name, as a mapping and as text."""
    held = {interface["name"]: interface["addresses"] for interface in interfaces}
    return held, ", ".join(f"{name} {'/'.join(addresses) or 'none'}" for name, addresses in held.items())


@derived("fabric")
def links(node: Node) -> list[Entry]:
    """Return the links that the cluster uses, each with its name under ``link``."""
    return [{**link, "link": link["netdev"] or link["device"]} for link in node.links()]


def _holder_of(node: Node, address: str) -> Entry | None:
    return next((interface for interface in node.get("interfaces") if address in interface["addresses"]), None)


@check
def api_address_held(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The API can only listen on an address that the head has."""
    address, held = node.needs["api_address"], node.get("interfaces")
    try:
        wanted = ipaddress.ip_address(address)
    except ValueError:
        wanted = None
    # A link-local IPv6 address has its interface's name appended.
    here = wanted is not None and any(ipaddress.ip_address(assigned.partition("%")[0]) == wanted for interface in held for assigned in interface["addresses"])
    if not here and (wanted is None or not (wanted.is_unspecified or wanted.is_loopback)):
        addresses, text = _addresses_of([interface for interface in held if interface["addresses"]])
        yield Fault(addresses, address, {"address": address, "found": text})


@check
def twins_apart(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """No two interfaces of the fabric share an IPv4 subnet. Members of one bond are one interface."""
    ends = {link["netdev"]: link for link in node.get("fabric") if link["netdev"] and not link["bond"]}
    for link, other in itertools.combinations(ends.values(), 2):
        shared = sorted({network["network"] for network in _ipv4(link)} & {network["network"] for network in _ipv4(other)})
        if shared:
            yield Fault(shared, "a subnet each", {"one": link["netdev"], "other": other["netdev"], "subnet": ", ".join(shared)})


@check
def twins_addressed(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The twin of an interface with an address also has one when its link is up. A bond has one address for both."""
    ends = {link["netdev"]: link for link in node.get("fabric") if link["netdev"]}
    for link in node.links():
        twin = ends.get(link["twin"])
        if twin and _ipv4(link) and not link["bond"] and not twin["bond"] and twin["carrier"] and not _ipv4(twin):
            yield Fault(None, "an IPv4 address", {"twin": twin["netdev"], "interface": link["netdev"]})


@check
def pcie_full(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The PCIe link of each network link has its full width and speed: the device's own maximum, limited by the wiring of this machine."""
    for link in [link for link in node.links() if link["driver"] or link["pcie"]]:
        pcie, name = of_entry(link, "pcie", f"fabric[{link['netdev']}]"), link["netdev"]
        width = min(limits["width"], of_entry(pcie, "width_max", f"fabric[{name}].pcie"))
        speed = min(limits["speed_gts"], of_entry(pcie, "speed_max_gts", f"fabric[{name}].pcie"))
        have = of_entry(pcie, "width", f"fabric[{name}].pcie"), of_entry(pcie, "speed_gts", f"fabric[{name}].pcie")
        if have[0] < width or have[1] < speed:
            words = {"link": name, "address": pcie["address"], "have": f"x{have[0]} at {have[1]:g} GT/s", "can": f"x{width} at {speed:g} GT/s"}
            yield Fault(words["have"], words["can"], words)


@check
def gid_usable(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """Each RDMA device on an interface with IPv4 has a RoCE v2 GID for one of its addresses."""
    for link in node.links():
        addresses = {network["address"] for network in _ipv4(link)}
        if not link["device"] or not addresses:
            continue
        gids = of_entry(link, "gids", f"fabric[{link['device']}]")
        if not any("v2" in str(gid["type"]).lower() and gid["address"] in addresses for gid in gids):
            shown = ", ".join(f"{gid['index']} {gid['type']} {gid['address'] or gid['gid']}" for gid in gids) or "none"
            yield Fault(shown, "RoCE v2 with IPv4", {"device": link["device"], "found": shown, "addresses": ", ".join(sorted(addresses))})


@check
def counters_low(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """No error counter of a link is above ``most``."""
    for link in [link for link in node.links() if link["device"]]:
        counters = of_entry(link, "counters", f"fabric[{link['device']}]")
        high = {name: counters[name] for name in limits["counters"] if (counters.get(name) or 0) > limits["most"]}
        if high:
            yield Fault(high, limits["most"], {"device": link["device"], "counts": listed(high)})


@check
def firewall_open(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """A firewall that denies by default allows the fabric: by its interface, or by networks that contain the other nodes."""
    firewall = node.get("firewall")
    if not of_entry(firewall, "default_deny", "firewall"):
        return
    holder = _holder_of(node, node.needs["address"])
    if holder is not None and named_like(holder["name"], of_entry(firewall, "interfaces", "firewall")):
        return
    trusted = [ipaddress.ip_network(network, strict=False) for network in of_entry(firewall, "networks", "firewall")]
    closed = [peer for peer in node.needs["peers"] if not any(ipaddress.ip_address(peer) in network for network in trusted)]
    if closed:
        yield Fault(firewall["source"], closed, {"source": firewall["source"], "peers": ", ".join(closed), "interface": holder["name"] if holder else "?"})


@derived("probe.pings")
def pings(node: Node) -> list[Entry]:
    """Return the pings of a node at the links' MTU, each with the known cause of a loss."""
    return [{**ping, "why": f": something on the way carries {ping['path_mtu']}" if ping["path_mtu"] else ""} for ping in node.get("probe.pings")]


@check
def probe_round_trip(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """A packet returns from every peer within ``most_ms``. Another rule covers lost packets."""
    for ping in node.get("probe.pings"):
        if ping["passes"] and ping["rtt_ms"] is None:
            raise Unseen(f"the round trip over {ping['link']}", "ping does not print it")
        if ping["passes"] and ping["rtt_ms"] > limits["most_ms"]:
            yield Fault(ping["rtt_ms"], limits["most_ms"], ping)


@comparison
def same_of_links(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """The links that the cluster uses have the same ``field`` on all nodes."""
    values = {}
    for node in nodes:
        of_links = {of_entry(link, arguments["field"], f"fabric[{link['netdev']}]") for link in node.links()}
        if of_links:
            values[node.name] = "/".join(map(str, sorted(of_links)))
    yield from differing(values)


@comparison
def one_network(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """The fabric addresses of all nodes are in one subnet."""
    values = {}
    for node in nodes:
        interface = _holder_of(node, node.needs["address"])
        networks = interface["networks"] if interface else []
        values[node.name] = next((network["network"] for network in networks if network["address"] == node.needs["address"]), None)
    yield from differing({name: network for name, network in values.items() if network is not None})
