# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a firewall refuses incoming packets by default, and which interfaces and networks it accepts. This module util is PRIVATE to the collection.

Read from nftables, which also has the rules of ufw, firewalld and iptables-nft. Only rules that accept everything from an interface
or a network count: ranks connect to random ports.
"""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import optional_text
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool

Item = dict[str, t.Any]

#: No rules, and no program that could have added some.
OPEN: dict[str, t.Any] = {"source": "none", "default_deny": False, "interfaces": [], "networks": []}

#: Expressions of a rule that do not restrict it.
_IDLE = ("counter", "comment", "log", "limit")


def parse_ruleset(text: str) -> dict[str, t.Any]:
    """Return the part of ``nft -j list ruleset`` about incoming packets, in the shape of :data:`OPEN`.

    ``default_deny``: a chain at the input hook refuses by policy or by an unconditional last rule. ``interfaces`` and ``networks`` (with
    ``*`` where nft has it) are accepted as a whole by a rule there, or in a chain that it jumps to. Raises :class:`UnknownState` for anything else.
    """
    try:
        items = json.loads(text)["nftables"]
        chains = [item["chain"] for item in items if "chain" in item]
        rules: dict[tuple[str, str, str], list[list[Item]]] = {}
        for rule in (item["rule"] for item in items if "rule" in item):
            rules.setdefault((rule["family"], rule["table"], rule["chain"]), []).append(rule["expr"])
        ruleset: dict[str, t.Any] = {"source": "nft", "default_deny": False, "interfaces": [], "networks": []}
        for chain in chains:
            if chain.get("hook") == "input" and chain.get("type") == "filter":
                key = (chain["family"], chain["table"], chain["name"])
                ruleset["default_deny"] |= chain.get("policy") == "drop" or _refuses_all(rules.get(key, []))
                _collect(key, rules, ruleset, set())
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise UnknownState(f"the output of nft cannot be parsed: {error}", raw=text[:2000]) from error
    return ruleset


def _narrowing(expressions: list[Item]) -> list[Item]:
    return [expression for expression in expressions if not set(expression) & set(_IDLE)]


def _refuses_all(rules: list[list[Item]]) -> bool:
    """Return whether the last rule refuses every packet."""
    last = _narrowing(rules[-1]) if rules else []
    return len(last) == 1 and bool({"drop", "reject"} & set(last[0]))


def _collect(key: tuple[str, str, str], rules: dict[tuple[str, str, str], list[list[Item]]], ruleset: dict[str, t.Any], seen: set[t.Any]) -> None:
    """Add the interfaces and networks that the rules of a chain, and of those that it jumps to, accept as a whole."""
    if key in seen:
        return
    seen.add(key)
    for expressions in rules.get(key, []):
        narrowed = _narrowing(expressions)
        for expression in narrowed:
            target = (expression.get("jump") or expression.get("goto") or {}).get("target")
            if target and len(narrowed) == 1:
                _collect((*key[:2], target), rules, ruleset, seen)
        if len(narrowed) == 2 and "accept" in narrowed[1] and "match" in narrowed[0]:
            _accept(narrowed[0]["match"], ruleset)


def _accept(match: Item, ruleset: dict[str, t.Any]) -> None:
    if match["op"] not in ("==", "in"):
        return
    left, right = match["left"], match["right"]
    values = right["set"] if isinstance(right, dict) and "set" in right else [right]
    if left.get("meta", {}).get("key") in ("iifname", "iif"):
        ruleset["interfaces"] += [value for value in values if isinstance(value, str)]
    elif left.get("payload", {}).get("field") == "saddr" and left["payload"].get("protocol") in ("ip", "ip6"):
        ruleset["networks"] += filter(None, map(_network, values))


def _network(value: t.Any) -> str | None:
    """``192.168.100.0/24`` for an address or a prefix; None for a range or the name of a set, which is not resolved here."""
    if isinstance(value, dict) and "prefix" in value:
        value = f"{value['prefix']['addr']}/{value['prefix']['len']}"
    return None if not isinstance(value, str) or value.startswith("@") else str(ipaddress.ip_network(value, strict=False))


def parse_ufw(conf: str, defaults: str) -> bool:
    """Return whether ufw is on and refuses by default, from the texts of ``ufw.conf`` and ``default/ufw``."""
    parts = (line.partition("=") for line in (*conf.splitlines(), *defaults.splitlines()) if not line.lstrip().startswith("#"))
    settings = {name.strip(): value.strip().strip("\"'").lower() for name, equals, value in parts if equals}
    return settings.get("ENABLED") == "yes" and settings.get("DEFAULT_INPUT_POLICY", "drop") in ("drop", "reject")


def firewall(nft: str = "nft", timeout: float = 30, etc_root: str = "/etc") -> dict[str, t.Any]:
    """Return the node's firewall in the shape of :data:`OPEN`.

    Raises :class:`UnknownState` when nft may not be run, hangs or prints something else, and when ufw refuses by default but there is no
    nft to show what it accepts.
    """
    ufw = parse_ufw(*(optional_text(os.path.join(etc_root, name)) or "" for name in ("ufw/ufw.conf", "default/ufw")))
    if shutil.which(nft) is None:
        if ufw:
            raise UnknownState("ufw refuses by default, and without nft its rules are unknown", remedy="apt-get install nftables, or see: ufw status")
        return dict(OPEN)
    result = run_tool([nft, "-j", "list", "ruleset"], timeout)
    if result.rc:
        remedy = "Run the task with become: true." if "permitted" in result.raw.lower() else f"Run it by hand: {nft} -j list ruleset"
        raise UnknownState(f"nft ended with {result.rc}: {result.raw[:200]}", remedy=remedy, raw=result.raw[:2000])
    ruleset = parse_ruleset(result.stdout)
    if ufw and not ruleset["default_deny"]:
        raise UnknownState("ufw refuses by default, and nft does not show its rules (iptables-legacy?)", remedy="see: ufw status verbose")
    return {**ruleset, "source": "ufw" if ufw else "nft"}
