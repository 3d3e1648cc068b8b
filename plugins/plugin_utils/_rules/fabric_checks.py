# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of the links between the nodes, as they are and as they were probed. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import ipaddress
import itertools

from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.checks import Arguments, Faults, check, comparison, differing, holds, listed, named_like
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.evidence import Entry, Fault, Node, Unseen, of_entry


def _ipv4(link: Entry) -> list[Entry]:
    """The global IPv4 networks of an interface."""
    return [network for network in link["networks"] or [] if network["family"] == "ipv4"]


def _found(interfaces: list[Entry]) -> tuple[Entry, str]:
    """The interfaces with their addresses, as data and as text."""
    held = {interface["name"]: interface["addresses"] for interface in interfaces}
    return held, ", ".join(f"{name} {'/'.join(addresses) or 'none'}" for name, addresses in held.items())


def _holder_of(node: Node, address: str) -> Entry | None:
    return next((interface for interface in node.get("interfaces") if address in interface["addresses"]), None)


@check
def address_held(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The fabric address is on an interface of the node."""
    address = node.needs["address"]
    if _holder_of(node, address) is None:
        held, found = _found(node.get("interfaces"))
        yield Fault(held, address, {"address": address, "found": found})


@check
def address_has_carrier(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The interface that has the fabric address has carrier; whether one has it is another rule's."""
    holder = _holder_of(node, node.needs["address"])
    if holder is not None and not holder["carrier"]:
        yield Fault(holder["name"], "carrier", {"address": node.needs["address"], "interface": holder["name"]})


@check
def api_address_held(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The API can only listen on an address that the head has."""
    address, held = node.needs["api_address"], node.get("interfaces")
    try:
        wanted = ipaddress.ip_address(address)
    except ValueError:
        wanted = None
    # A link-local address of IPv6 comes with its interface's name.
    here = wanted is not None and any(ipaddress.ip_address(one.partition("%")[0]) == wanted for interface in held for one in interface["addresses"])
    if not here and (wanted is None or not (wanted.is_unspecified or wanted.is_loopback)):
        addresses, found = _found([interface for interface in held if interface["addresses"]])
        yield Fault(addresses, address, {"address": address, "found": found})


@check
def named_carrier(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """Every interface that the inventory names has carrier; the one with the fabric address is another rule's."""
    for interface in node.get("interfaces"):
        if interface["name"] in node.needs["fabric_interfaces"] and not interface["carrier"] and node.needs["address"] not in interface["addresses"]:
            yield Fault(interface["carrier"], True, {"interface": interface["name"]})


@check
def rdma_there(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """There is at least one RDMA device. Interfaces of the card without one have null there."""
    fabric = node.get("fabric")
    if not any(link["device"] for link in fabric):
        yield Fault([], "an RDMA device", {"found": ", ".join(link["netdev"] for link in fabric) or "none"})


@check
def rdma_named(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """Every RDMA device whose link is up is named in the inventory, once it names any."""
    devices = node.needs["rdma_devices"]
    for link in node.get("fabric"):
        if devices and link["device"] and link["carrier"] and link["device"] not in devices:
            yield Fault(link["device"], devices, {"device": link["device"], "netdev": link["netdev"]})


@check
def links_where(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """No link that the cluster uses fulfils ``where``; with ``rdma`` only links with an RDMA device count."""
    for link in node.links():
        if arguments.get("rdma") and not link["device"]:
            continue
        name = link["netdev"] or link["device"]
        if holds(link, arguments["where"], node, limits, f"fabric[{name}]"):
            yield Fault(link[arguments["measures"]], words={**link, "link": name})


@check
def twins_apart(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """No two interfaces of the fabric share an IPv4 subnet. Members of one bond are one interface."""
    ends = {link["netdev"]: link for link in node.get("fabric") if link["netdev"] and not link["bond"]}
    for one, other in itertools.combinations(ends.values(), 2):
        shared = sorted({network["network"] for network in _ipv4(one)} & {network["network"] for network in _ipv4(other)})
        if shared:
            yield Fault(shared, "a subnet each", {"one": one["netdev"], "other": other["netdev"], "subnet": ", ".join(shared)})


@check
def twins_addressed(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The twin of an interface with an address has one, too, when its link is up. A bond has one address for both."""
    ends = {link["netdev"]: link for link in node.get("fabric") if link["netdev"]}
    for link in node.links():
        twin = ends.get(link["twin"])
        if twin and _ipv4(link) and not link["bond"] and not twin["bond"] and twin["carrier"] and not _ipv4(twin):
            yield Fault(None, "an IPv4 address", {"twin": twin["netdev"], "interface": link["netdev"]})


@check
def pcie_full(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The PCIe link below each link is as wide and as fast as it can be: of the device's own maximum, what this machine wires."""
    for link in node.links():
        if not link["driver"] and not link["pcie"]:
            continue
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
            found = ", ".join(f"{gid['index']} {gid['type']} {gid['address'] or gid['gid']}" for gid in gids) or "none"
            yield Fault(found, "RoCE v2 with IPv4", {"device": link["device"], "found": found, "addresses": ", ".join(sorted(addresses))})


@check
def counters_low(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """No error counter of a link is above ``most``."""
    for link in node.links():
        if link["device"]:
            counters = of_entry(link, "counters", f"fabric[{link['device']}]")
            high = {name: counters[name] for name in limits["counters"] if (counters.get(name) or 0) > limits["most"]}
            if high:
                yield Fault(high, limits["most"], {"device": link["device"], "counts": listed(high)})


@check
def firewall_open(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """A firewall that refuses by default lets the fabric through: by its interface, or by a network that holds the other nodes."""
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


@check
def probe_whole(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """All that was to be measured with the node's peers could be."""
    for error in node.get("probe.errors"):
        yield Fault(error["error"], "measured", error, verdict="unknown")


@check
def probe_carries(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """What the node sent, one link alone or several at once (``several``), by ``method``, was at least ``least_gbits`` fast.

    What was not measured is told by :func:`probe_whole`.
    """
    for sent in node.get("probe.sent"):
        if sent["method"] == arguments["method"] and (sent["links"] > 1) is arguments["several"] and sent["gbits"] is not None:
            if sent["gbits"] < limits["least_gbits"]:
                yield Fault(sent["gbits"], limits["least_gbits"], sent)


@check
def probe_mtu(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """Packets as large as the links' MTU come through undivided."""
    for ping in node.get("probe.pings"):
        if ping["passes"] is False:
            yield Fault("lost", f"{ping['mtu']} bytes", {**ping, "why": f": something on the way carries {ping['path_mtu']}" if ping["path_mtu"] else ""})


@check
def probe_round_trip(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """A packet is back within ``most_ms`` from every peer; one that did not come back is another rule's."""
    for ping in node.get("probe.pings"):
        if ping["passes"] and ping["rtt_ms"] is None:
            raise Unseen(f"the round trip over {ping['link']}", "ping does not print it")
        if ping["passes"] and ping["rtt_ms"] > limits["most_ms"]:
            yield Fault(ping["rtt_ms"], limits["most_ms"], ping)


@check
def probe_by_rdma(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """Bytes were moved by RDMA, as the engine's ranks move them."""
    for method in node.get("probe.methods"):
        if method["method"] != "rdma":
            yield Fault(method["method"], "rdma", method)


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
        values[node.name] = next((one["network"] for one in (interface or {"networks": []})["networks"] if one["address"] == node.needs["address"]), None)
    yield from differing({name: network for name, network in values.items() if network is not None})
