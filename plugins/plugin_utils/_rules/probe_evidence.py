# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of a fabric probe (which nodes measure which, over which links and when), and its results as evidence for rules.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import itertools
import typing as t

Entry = dict[str, t.Any]

#: Up to this number of nodes every pair is probed; with more, each node with the next one in a ring.
ALL_PAIRS = 4


def pairs(nodes: t.Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs of nodes to probe, the measuring node first."""
    return list(itertools.combinations(nodes, 2)) if len(nodes) <= ALL_PAIRS else list(zip(nodes, [*nodes[1:], nodes[0]]))


def rounds(wanted: t.Iterable[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Return the pairs in rounds that have each node at most once: two probes at once would share a link."""
    groups: list[list[tuple[str, str]]] = []
    for pair in wanted:
        free = next((group for group in groups if not any(set(pair) & set(other) for other in group)), None)
        if free is None:
            groups.append([pair])
        else:
            free.append(pair)
    return groups


def links_of(info: Entry, settings: Entry) -> list[Entry]:
    """Return the links of a node that can be probed: ``{link, address, network, device, gid, mtu}``, one for each IPv4 address.

    These are the links of ``fabric`` with carrier; a bond replaces its members, and has no RDMA device itself. On a node without a ConnectX card, they are
    the interfaces that the inventory names, and the one with the fabric address.
    """
    interfaces = {interface["name"]: interface for interface in info["interfaces"]}
    links: dict[str, Entry | None] = {}
    for link in info["fabric"]:
        bond = link["bond"] and interfaces.get(link["bond"])
        if bond and bond["carrier"]:
            links[bond["name"]] = None
        elif link["carrier"] and link["netdev"]:
            links[link["netdev"]] = link
    if not info["fabric"]:
        named = set(settings["fabric_interfaces"])
        links = {
            name: None
            for name, interface in interfaces.items()
            if interface["carrier"] and (name in named or settings["address"] in interface["addresses"])
        }
    return [
        {
            "link": name,
            "address": network["address"],
            "network": network["network"],
            "device": (link or {}).get("device") or "",
            "gid": gid_of(link, network["address"]),
            "mtu": interfaces.get(name, link or {}).get("mtu"),
        }
        for name, link in links.items()
        for network in (interfaces.get(name) or link or {"networks": []})["networks"]
        if network["family"] == "ipv4" and network["scope"] != "host"
    ]


def gid_of(link: Entry | None, address: str) -> int | None:
    """Return the index of the RoCE v2 GID of an address, None without one."""
    gids = (link or {}).get("gids") or []
    return next((gid["index"] for gid in gids if gid["type"] == "RoCE v2" and gid["address"] == address), None)


def matched(mine: t.Iterable[Entry], theirs: t.Iterable[Entry]) -> list[tuple[Entry, Entry]]:
    """Return the pairs of links of two nodes that are in a common subnet, each link once. Links of the same name are preferred."""
    left, matches = list(theirs), []
    for link in mine:
        fits = [peer for peer in left if peer["network"] == link["network"] and peer["address"] != link["address"]]
        peer = next((candidate for candidate in fits if candidate["link"] == link["link"]), fits[0] if fits else None)
        if peer:
            left.remove(peer)
            matches.append((link, peer))
    return matches


def method_of(matches: t.Sequence[tuple[Entry, Entry]], node: Entry, peer: Entry) -> tuple[str, str]:
    """Return the transfer method of a pair, and why it is not RDMA."""
    without = sorted({name for name, side in (("this node", node), ("its peer", peer)) if not side["rdma"]})
    if any(not link["device"] or link["gid"] is None for both in matches for link in both):
        return "tcp", "not every link has an RDMA device with a RoCE v2 GID"
    return ("tcp", f"ib_write_bw is missing on {' and '.join(without)}") if without else ("rdma", "")


def plan(nodes: dict[str, Entry]) -> list[dict[str, Entry]]:
    """Return the rounds: each maps a node to its task, ``{state, peer, links, method, why}``.

    ``nodes`` maps each node to ``info`` (the sections ``fabric`` and ``interfaces`` of ``node_info``), ``settings`` (``address`` and ``fabric_interfaces``)
    and ``rdma`` (whether ``ib_write_bw`` is installed). ``links`` may be empty; those of the measuring node also have ``peer_address``.
    """
    links = {name: links_of(node["info"], node["settings"]) for name, node in nodes.items()}
    result = []
    for one_round in rounds(pairs(list(nodes))):
        parts: dict[str, Entry] = {}
        for measuring, listening in one_round:
            both = matched(links[measuring], links[listening])
            method, why = method_of(both, nodes[measuring], nodes[listening])
            shared = {"method": method, "why": why}
            measured = [{**for_module(mine), "peer_address": peer["address"]} for mine, peer in both]
            parts[measuring] = {**shared, "state": "measure", "peer": listening, "links": measured}
            parts[listening] = {**shared, "state": "listen", "peer": measuring, "links": [for_module(peer) for _mine, peer in both]}
        result.append(parts)
    return result


def for_module(link: Entry) -> Entry:
    """Return the fields of a link that the module needs."""
    return {key: value for key, value in link.items() if key != "network"}


# -- evidence --------------------------------------------------------------------------------------------------------


def evidence(nodes: t.Iterable[str], results: t.Iterable[Entry]) -> dict[str, Entry]:
    """Return by node its transfers, pings and errors: ``{sent, pings, errors, methods}``, the evidence ``probe`` of rules.

    ``results`` are those of the measuring nodes, each with ``node``, ``peer`` and ``why`` (why RDMA was not tried). A transfer counts for the node that sent
    it.
    """
    by_node: dict[str, Entry] = {name: {"sent": [], "pings": [], "errors": [], "methods": []} for name in nodes}
    for result in results:
        node, peer = result["node"], result["peer"]
        mine, theirs = by_node[node], by_node[peer]
        mine["errors"] += [{"to": peer, "error": error} for error in result["errors"]]
        if result["links"]:
            mine["methods"].append({"to": peer, "method": result["method"], "why": result["why"]})
        for link in result["links"]:
            mine["pings"].append({"to": peer, "link": link["link"], "address": link["peer_address"], "mtu": link["mtu"], **link["ping"]})
            shared = {"method": result["method"], "links": 1}
            mine["sent"].append({**shared, "to": peer, "over": link["link"], "gbits": link["out_gbits"]})
            theirs["sent"].append({**shared, "to": node, "over": f"the link of {link['link']}", "gbits": link["in_gbits"]})
        if result["together"]:
            shared = {"method": result["method"], "links": len(result["links"]), "over": f"all {len(result['links'])} links at once"}
            mine["sent"].append({**shared, "to": peer, "gbits": result["together"]["out_gbits"]})
            theirs["sent"].append({**shared, "to": node, "gbits": result["together"]["in_gbits"]})
    return by_node


def lines(probe: dict[str, Entry]) -> list[str]:
    """Return a line for each measurement: sender, receiver, link, speed and method."""
    rows = []
    for node, seen in probe.items():
        for sent in seen["sent"]:
            rate = "not measured" if sent["gbits"] is None else f"{sent['gbits']:.2f} Gbit/s"
            rows.append(f"{node} to {sent['to']}, {sent['over']}: {rate} ({sent['method']})")
    return rows or ["nothing was measured: it takes two nodes"]
