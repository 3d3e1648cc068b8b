# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which nodes probe which, over which links and when; and what was found as evidence for rules. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import itertools
import typing as t

Entry = dict[str, t.Any]

#: Up to here every node is probed with every other one; beyond, each with the next in a ring.
ALL_PAIRS = 4


def pairs(nodes: t.Sequence[str]) -> list[tuple[str, str]]:
    """Return who is probed with whom, the measuring node first."""
    return list(itertools.combinations(nodes, 2)) if len(nodes) <= ALL_PAIRS else list(zip(nodes, [*nodes[1:], nodes[0]]))


def rounds(wanted: t.Iterable[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Return the pairs in rounds in which no node is in two: two probes at once would share a link."""
    found: list[list[tuple[str, str]]] = []
    for pair in wanted:
        free = next((one for one in found if not any(set(pair) & set(other) for other in one)), None)
        if free is None:
            found.append([pair])
        else:
            free.append(pair)
    return found


def links_of(info: Entry, settings: Entry) -> list[Entry]:
    """Return the links of a node that can be probed: ``{link, address, network, device, gid, mtu}``, one for each IPv4 address.

    Those of ``fabric`` that have carrier; a bond of such takes the place of its halves, and has no RDMA device of its own. Where the node has no
    ConnectX card at all, the interfaces that the inventory names, and the one with the fabric address.
    """
    interfaces = {interface["name"]: interface for interface in info["interfaces"]}
    found: dict[str, Entry | None] = {}
    for link in info["fabric"]:
        bond = link["bond"] and interfaces.get(link["bond"])
        if bond and bond["carrier"]:
            found[bond["name"]] = None
        elif link["carrier"] and link["netdev"]:
            found[link["netdev"]] = link
    if not info["fabric"]:
        named = set(settings["fabric_interfaces"])
        found = {name: None for name, one in interfaces.items() if one["carrier"] and (name in named or settings["address"] in one["addresses"])}
    return [
        {
            "link": name,
            "address": network["address"],
            "network": network["network"],
            "device": (link or {}).get("device") or "",
            "gid": gid_of(link, network["address"]),
            "mtu": interfaces.get(name, link or {}).get("mtu"),
        }
        for name, link in found.items()
        for network in (interfaces.get(name) or link or {"networks": []})["networks"]
        if network["family"] == "ipv4" and network["scope"] != "host"
    ]


def gid_of(link: Entry | None, address: str) -> int | None:
    """Return the index of the RoCE v2 GID of an address, None without one."""
    gids = (link or {}).get("gids") or []
    return next((gid["index"] for gid in gids if gid["type"] == "RoCE v2" and gid["address"] == address), None)


def matched(one: t.Iterable[Entry], other: t.Iterable[Entry]) -> list[tuple[Entry, Entry]]:
    """Return the links of two nodes that are in a common subnet, each link once, first those of the same name."""
    left, found = list(other), []
    for link in one:
        fits = [peer for peer in left if peer["network"] == link["network"] and peer["address"] != link["address"]]
        peer = next((candidate for candidate in fits if candidate["link"] == link["link"]), fits[0] if fits else None)
        if peer:
            left.remove(peer)
            found.append((link, peer))
    return found


def method_of(found: t.Sequence[tuple[Entry, Entry]], one: Entry, other: Entry) -> tuple[str, str]:
    """Return how a pair moves bytes, and why not by RDMA."""
    without = sorted({name for name, node in (("this node", one), ("its peer", other)) if not node["rdma"]})
    if any(not link["device"] or link["gid"] is None for both in found for link in both):
        return "tcp", "not every link has an RDMA device with a RoCE v2 GID"
    return ("tcp", f"ib_write_bw is missing on {' and '.join(without)}") if without else ("rdma", "")


def plan(nodes: dict[str, Entry]) -> list[dict[str, Entry]]:
    """Return the rounds: by node what it does there, ``{state, peer, links, method, why}``.

    ``nodes`` maps each node to ``info`` (the sections ``fabric`` and ``interfaces`` of ``node_info``), ``settings`` (``address`` and
    ``fabric_interfaces``) and ``rdma`` (whether ``ib_write_bw`` is there). Of ``links``, which may be empty, those of the measuring
    node also have ``peer_address``.
    """
    links = {name: links_of(node["info"], node["settings"]) for name, node in nodes.items()}
    found = []
    for one_round in rounds(pairs(list(nodes))):
        parts: dict[str, Entry] = {}
        for one, other in one_round:
            both = matched(links[one], links[other])
            method, why = method_of(both, nodes[one], nodes[other])
            shared = {"method": method, "why": why}
            parts[one] = {**shared, "state": "measure", "peer": other, "links": [{**for_module(mine), "peer_address": peer["address"]} for mine, peer in both]}
            parts[other] = {**shared, "state": "listen", "peer": one, "links": [for_module(peer) for _mine, peer in both]}
        found.append(parts)
    return found


def for_module(link: Entry) -> Entry:
    """Return what the module is to know of a link."""
    return {key: value for key, value in link.items() if key != "network"}


# -- evidence --------------------------------------------------------------------------------------------------------


def evidence(nodes: t.Iterable[str], results: t.Iterable[Entry]) -> dict[str, Entry]:
    """Return by node what it sent, and what was in the way: ``{sent, pings, errors, methods}``, the key ``probe`` that rules look at.

    ``results`` are the answers of the measuring nodes, each with ``node``, ``peer`` and ``why`` (why RDMA was not even tried). A transfer
    counts for the node that sent it.
    """
    found: dict[str, Entry] = {name: {"sent": [], "pings": [], "errors": [], "methods": []} for name in nodes}
    for result in results:
        node, peer = result["node"], result["peer"]
        mine, theirs = found[node], found[peer]
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
    return found


def lines(probe: dict[str, Entry]) -> list[str]:
    """Return what was measured, a line each: who sent to whom over what, how fast, by what means."""
    found = []
    for node, seen in probe.items():
        for sent in seen["sent"]:
            rate = "not measured" if sent["gbits"] is None else f"{sent['gbits']:.2f} Gbit/s"
            found.append(f"{node} to {sent['to']}, {sent['over']}: {rate} ({sent['method']})")
    return found or ["nothing was measured: it takes two nodes"]
