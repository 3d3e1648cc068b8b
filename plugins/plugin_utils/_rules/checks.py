# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The checks that rules.yml names. Each looks and says what is wrong; what that means stands in the rule. This plugin util is PRIVATE to the collection.

A check of one node is called with the node, the rule's arguments (``with``) and its limits; a check between nodes with all nodes
that have the evidence, and the same. Both yield one :class:`Fault` for each thing that is wrong, and raise :class:`Unseen` when
that is unknown.
"""

from __future__ import annotations

import collections
import fnmatch
import itertools
import operator
import typing as t

from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.evidence import Entry, Fault, Node, Unseen, of_entry

Arguments = dict[str, t.Any]
Faults = t.Iterator[Fault]
OfNode = t.Callable[[Node, Arguments, Arguments], Faults]
BetweenNodes = t.Callable[[list[Node], Arguments, Arguments], Faults]

GIB = 1024**3
MIB_IN_GIB = 1024
GB = 10**9

#: Stands where a finding concerns the whole cluster.
CLUSTER = "cluster"

#: Characters of a container's full id, and how many of them are shown.
ID_LENGTH, ID_SHOWN = 64, 12


#: What may stand between a field and an operand in ``where``. ``has``: the list or text holds one of the operands; ``mentions``: an
#: entry of the list does.
RELATIONS: dict[str, t.Callable[[t.Any, t.Any], bool]] = {
    "is": operator.eq,
    "is_not": operator.ne,
    "above": operator.gt,
    "below": operator.lt,
    "at_least": operator.ge,
    "at_most": operator.le,
    "one_of": lambda have, wanted: have in wanted,
    "none_of": lambda have, wanted: have not in wanted,
    "has": lambda have, wanted: any(one in have for one in wanted),
    "lacks": lambda have, wanted: not any(one in have for one in wanted),
    "mentions": lambda have, wanted: any(one in item for item in have for one in wanted),
}

CHECKS: dict[str, OfNode] = {}
COMPARISONS: dict[str, BetweenNodes] = {}


def check(function: OfNode) -> OfNode:
    """Make a function known to rules under its name, as a check of one node."""
    CHECKS[function.__name__] = function
    return function


def comparison(function: BetweenNodes) -> BetweenNodes:
    """Make a function known to rules under its name, as a check between nodes."""
    COMPARISONS[function.__name__] = function
    return function


def operand(value: t.Any, node: Node, limits: Arguments) -> t.Any:
    """Return what stands on the right of a relation: ``{limit: NAME}``, ``{need: NAME}``, or the value itself."""
    if isinstance(value, dict):
        return limits[value["limit"]] if "limit" in value else node.needs[value["need"]]
    return value


def holds(entry: Entry, where: t.Iterable[list[t.Any]], node: Node, limits: Arguments, name: str) -> bool:
    """Return whether all conditions hold for an entry. Raises :class:`Unseen` when none fails, but one is unknown because of a null."""
    missing: Unseen | None = None
    for field, relation, wanted in where:
        try:
            have = of_entry(entry, field, name)
        except Unseen as unseen:
            missing = missing or unseen
            continue
        if not RELATIONS[relation](have, operand(wanted, node, limits)):
            return False
    if missing:
        raise missing
    return True


def gib(mib: float) -> float:
    """MiB as GiB, to one decimal."""
    return round(mib / MIB_IN_GIB, 1)


def listed(values: t.Mapping[str, t.Any], unit: str = "") -> str:
    """``spark-1 121.7 GiB, spark-2 60.1 GiB``."""
    return ", ".join(f"{name} {value}{unit}" for name, value in values.items())


def named_like(name: str, patterns: t.Iterable[str]) -> bool:
    """Return whether a name matches one of the patterns."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


# --- of any value -----------------------------------------------------------------------------------------------------------


@check
def value_is(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The value at ``of`` is ``value``."""
    have, wanted = node.get(arguments["of"]), operand(arguments["value"], node, limits)
    if have != wanted:
        yield Fault(have, wanted)


@check
def value_is_not(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The value at ``of`` is anything but ``value``; where the machine has none, that is fine."""
    have, avoided = node.optional(arguments["of"]), operand(arguments["value"], node, limits)
    if have == avoided:
        yield Fault(have, f"not {avoided}")


@check
def at_most(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The number at ``of`` is at most ``limit``; with ``absolute`` its sign does not count."""
    have, most = node.get(arguments["of"]), operand(arguments["limit"], node, limits)
    if (abs(have) if arguments.get("absolute") else have) > most:
        yield Fault(have, most)


@check
def no_entry(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """No entry of the list ``of`` fulfils ``where``. The entry's fields are words, ``name`` is the field that it is called by."""
    missing: Unseen | None = None
    for entry in node.get(arguments["of"]):
        name = f"{arguments['of']}[{entry.get(arguments['name'])}]"
        try:
            if holds(entry, arguments["where"], node, limits, name):
                yield Fault(entry.get(arguments.get("measures", arguments["name"])), words=entry)
        except Unseen as unseen:
            missing = missing or unseen
    if missing:
        raise missing


@check
def some_entry(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """At least one entry of the list ``of`` fulfils ``where``."""
    entries = node.get(arguments["of"])
    names = [entry.get(arguments["name"]) for entry in entries]
    if not any(holds(entry, arguments["where"], node, limits, f"{arguments['of']}[{name}]") for entry, name in zip(entries, names)):
        yield Fault(names, words={"found": ", ".join(str(name) for name in names) or "none"})


@check
def not_known_bad(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The version at ``of``, or in each entry of the list ``in``, matches no pattern of the list ``bad``.

    An entry with ``unless`` does not count on a node whose kernel has that word on its command line, which stands at ``cmdline``.
    """
    words = node.get(arguments["cmdline"]).split() if "cmdline" in arguments else []
    if "in" in arguments:
        versions = [of_entry(entry, arguments["field"], f"{arguments['in']}[{index}]") for index, entry in enumerate(node.get(arguments["in"]))]
    else:
        versions = [node.get(arguments["of"])]
    for version, bad in itertools.product(dict.fromkeys(versions), limits["bad"]):
        if fnmatch.fnmatchcase(version, bad["match"]) and bad["unless"] not in words:
            yield Fault(version, f"not {bad['match']}", bad)


@check
def names_present(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """Every name that the inventory gives in ``names`` is the ``field`` of an entry of the list ``of``."""
    there = [entry[arguments["field"]] for entry in node.get(arguments["of"])]
    for name in node.needs[arguments["names"]]:
        if name not in there:
            yield Fault([name for name in there if name], name, {"name": name, "found": ", ".join(str(one) for one in there if one) or "none"})


@check
def reported(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The module whose result is ``in`` reported nothing under the id ``id``. Its findings keep their own verdict and words."""
    for found in node.get(arguments["in"]):
        if found["id"] == arguments["id"] and found["verdict"] != "pass":
            words = {"message": found["message"].rstrip("."), "remedy": found.get("remedy") or "look at the node"}
            yield Fault(found.get("measured"), found.get("needed"), words, verdict=found["verdict"])


# --- between nodes ----------------------------------------------------------------------------------------------------------


def _odd_ones(values: dict[str, t.Any]) -> list[str]:
    """Whom a difference concerns: those that differ from what more than half of the nodes have, else the whole cluster."""
    common, count = collections.Counter(map(str, values.values())).most_common(1)[0]
    return [name for name, value in values.items() if str(value) != common] if count * 2 > len(values) else [CLUSTER]


def differing(values: dict[str, t.Any], unit: str = "", **words: t.Any) -> Faults:
    """Yield one fault for each node whose value differs from what most have, one for the cluster where there is no such majority."""
    if len(set(map(str, values.values()))) > 1:
        for node in _odd_ones(values):
            yield Fault(values, "the same on every node", {"listed": listed(values, unit), **words}, node=node)


@comparison
def same(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """The value at ``of`` is the same on all nodes."""
    yield from differing({node.name: node.get(arguments["of"]) for node in nodes})


@comparison
def each_its_own(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """No two nodes have the same value at ``of``; one that has none has no other's."""
    owners: dict[str, list[str]] = collections.defaultdict(list)
    for node in nodes:
        owners[node.optional(arguments["of"]) or ""].append(node.name)
    for value, names in owners.items():
        if value and len(names) > 1:
            yield Fault(value, "one each", {"listed": " and ".join(names)}, node=CLUSTER)


@comparison
def within(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """The figures (MiB) at ``of`` differ by at most ``part`` of the largest, or by ``most_gib``."""
    figures = {node.name: node.get(arguments["of"]) for node in nodes if not (arguments.get("unless_live") and node.engine_live)}
    if len(figures) > 1:
        allowed = limits["part"] * max(figures.values()) if "part" in limits else limits["most_gib"] * MIB_IN_GIB
        spread = max(figures.values()) - min(figures.values())
        if spread > allowed:
            shown = {name: gib(figure) for name, figure in figures.items()}
            words = {"listed": listed(shown, " GiB"), "spread": gib(spread)}
            yield Fault(shown, "the same on every node", words, node=CLUSTER)
