# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The nodes of a memory plan, and what others claim of them: tenants, companions. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._arguments import argument_values
from ansible_collections.gb10.cluster.plugins.module_utils._companion import declared
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, sentence
from ansible_collections.gb10.cluster.plugins.module_utils._memory import plan_settings

#: What is said of a tenant.
_TENANT = ("name", "node", "gib")
#: What a node may say of itself, with the least and the most of each, in GiB.
_NODE = {"total_gib": (8, 4096), "tenants_gib": (0, 4096), "available_gib": (0, 4096), "free_at_start_gib": (0, 4096)}
#: Where something is wrong, what, and what was expected.
Fault = tuple[str, str, str]


def tenant_faults(tenants: t.Any) -> list[Fault]:
    """Return what is wrong with declared tenants (``gb10_tenants``), as where, what, and what is expected."""
    if not isinstance(tenants, list):
        return [("gb10_tenants", f"is {tenants!r}", "a list of {name, node, gib}")]
    found = []
    for index, one in enumerate(tenants):
        where = f"gb10_tenants[{index}]"
        if not isinstance(one, dict):
            found.append((where, f"is {one!r}", "{name, node, gib}"))
            continue
        name, on, size = one.get("name"), one.get("node"), one.get("gib")
        found += [(f"{where}.{word}", "is not a known field", "name, node and gib") for word in one if word not in _TENANT]
        if not isinstance(name, str) or not name.strip():
            found.append((f"{where}.name", f"is {name!r}", "who it is, by the name of its container or program"))
        if on is not None and (not isinstance(on, str) or not on):
            found.append((f"{where}.node", f"is {on!r}", "the inventory's name of a node, or no node for one on each"))
        if isinstance(size, bool) or not isinstance(size, (int, float)) or not 0 < size <= _NODE["tenants_gib"][1]:
            found.append((f"{where}.gib", f"is {size!r}", f"GiB above 0, up to {_NODE['tenants_gib'][1]}"))
    return found


def claimed(tenants: t.Iterable[t.Mapping[str, t.Any]], node: str) -> dict[str, float]:
    """Return what declared tenants claim of a node in GiB, by their names. One without a node claims it of every node."""
    found: dict[str, float] = {}
    for one in tenants:
        if one.get("node") in (None, node):
            found[one["name"]] = found.get(one["name"], 0.0) + one["gib"]
    return found


def companion_claims(companions: t.Iterable[t.Mapping[str, t.Any]], mode: str) -> dict[str, float]:
    """Return what the companions of a node that are up in a mode claim of it in GiB, by name (``gb10_companions``)."""
    return {one["name"]: one["memory_gib"] for one in declared.up_in(companions, mode)}


def who(claims: t.Mapping[str, float], now: t.Mapping[str, float] | None = None) -> str:
    """Return who holds what in words: what each claims, and what of that it holds ``now`` where that was measured."""
    texts = []
    for name, size in claims.items():
        seen = (now or {}).get(name)
        texts.append(f"{name} {size:g} GiB declared" + (f" ({seen:.1f} held now)" if seen else ""))
    return ", ".join(texts)


def with_claims(nodes: list[plan_settings.Node], tenants: t.Any) -> list[plan_settings.Node]:
    """Return nodes with what declared tenants claim of them. Raises :class:`ClusterError` for a claim that cannot be, or of a node that is not planned for."""
    wrong = [f"{where}: {what}, expected {expected}" for where, what, expected in tenant_faults(tenants)]
    names = [node.name for node in nodes]
    if not wrong:
        strangers = [one for one in tenants if one.get("node") not in (None, *names)]
        wrong = [f"gb10_tenants: {one['name']} is on {one['node']}, expected one of the plan's nodes ({', '.join(names)})" for one in strangers]
    if wrong:
        remedy = 'Correct them; gb10_plan_nodes names the nodes: [{"node": "spark-1"}, {"node": "spark-2"}].'
        raise ClusterError("; ".join(wrong), where="tenants of the plan", remedy=remedy, reason="input")
    found = []
    for node in nodes:
        claims = claimed(tenants, node.name)
        mine = {"others": node.tenants, **claims} if node.tenants and claims else claims
        found.append(node._replace(tenants=node.tenants + sum(claims.values()), who=who(mine)))
    return found


def nodes_of(given: t.Any, number: int, class_gb: int | None) -> list[plan_settings.Node]:
    """Return the nodes to plan for: ``number`` usual ones of the profile's class without ``given``, else those given.

    ``given`` is a size in GiB for each node, a list of sizes (also with commas between them), or a list of mappings with ``node``, ``total_gib`` and maybe
    ``tenants_gib``, ``available_gib`` and ``free_at_start_gib``. Raises :class:`ClusterError` with all that is wrong.
    """
    found, wrong = _nodes(given, number, class_gb)
    refuse(wrong, "Correct them, or leave them out for what the inventory has, or else for both classes of Sparks.")
    return found


def _nodes(given: t.Any, number: int, class_gb: int | None) -> tuple[list[plan_settings.Node], list[Fault]]:
    """Return the nodes as :func:`nodes_of`, and what is wrong with those given."""
    usual = plan_settings.CLASS_TOTAL[class_gb or 128]
    if given is None or given == [] or given == "":
        given = [usual] * number
    elif isinstance(given, str) and "," in given:
        given = [one.strip() for one in given.split(",")]
    elif not isinstance(given, list):
        given = [given] * number
    wrong: list[Fault] = []
    found = []
    for index, one in enumerate(given):
        row = one if isinstance(one, dict) else {"total_gib": one}
        where = f"nodes[{index}]"
        wrong += [(f"{where}.{name}", "is not a known field", f"one of node, {', '.join(_NODE)}") for name in row if name not in ("node", *_NODE)]
        values: dict[str, float | None] = {}
        for name, (least, most) in _NODE.items():
            value = row.get(name, usual if name == "total_gib" else None)
            try:
                number_of = None if value is None or isinstance(value, bool) else float(value)
            except (TypeError, ValueError):
                number_of = None
            if (value is not None and number_of is None) or (number_of is not None and not least <= number_of <= most):
                wrong.append((f"{where}.{name}", f"is {value!r}", f"GiB from {least} to {most}"))
            values[name] = number_of
        name = str(row.get("node") or f"node-{index + 1}")
        found.append(plan_settings.Node(name, values["total_gib"] or usual, values["tenants_gib"] or 0.0, values["available_gib"], values["free_at_start_gib"]))
    if len(given) != number:
        wrong.append(("nodes", f"names {len(given)}", f"{number}, as many as the profile has ranks"))
    return found, wrong


def numbers(context: t.Any, concurrency: t.Any, lengths: t.Any) -> tuple[int | None, int | None, list[int], list[Fault]]:
    """Return context, concurrency and lengths as numbers, and what is wrong with them."""
    wrong: list[Fault] = []
    listed = [] if lengths in (None, "") else lengths if isinstance(lengths, list) else str(lengths).split(",")
    steps = [one for one in (_whole("lengths", str(rung).strip(), wrong) for rung in listed) if one]
    return _whole("context", context, wrong), _whole("concurrency", concurrency, wrong, int), steps, wrong


def _whole(name: str, value: t.Any, wrong: list[Fault], read: t.Callable[[str], int] = argument_values.size) -> int | None:
    """Return a whole number of 1 or more, also from a text, None for nothing; what is neither is noted in ``wrong``."""
    if value is None or value == "":
        return None
    try:
        number = read(str(value))
    except ValueError:
        number = 0
    if number < 1 or isinstance(value, bool):
        wrong.append((name, f"is {value!r}", "a whole number of 1 or more"))
        return None
    return number


def refuse(wrong: t.Sequence[Fault], remedy: str) -> None:
    if wrong:
        raise ClusterError("; ".join(sentence(*one) for one in wrong), where="the plan", remedy=remedy, reason="input")


def setting_faults(given: t.Mapping[str, t.Any], number: int) -> list[Fault]:
    """Return what is wrong with the settings of the playbook ``plan`` for ``number`` ranks, each with the setting's name."""
    context = given.get("gb10_plan_context")
    *_read, wrong = numbers(None if context == "0" else context, given.get("gb10_plan_concurrency"), given.get("gb10_plan_lengths"))
    wrong += _nodes(given.get("gb10_plan_nodes"), number, None)[1]
    return [*((f"gb10_plan_{where}", what, expected) for where, what, expected in wrong), *tenant_faults(given.get("gb10_tenants") or [])]
