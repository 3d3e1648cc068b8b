# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The checks that rules.yml names. Each returns faults; the rule defines their meaning. This plugin util is PRIVATE to the collection.

A check of one node is called with the node, the rule's arguments (``with``) and its limits. A check between nodes is called with all nodes that have the
evidence, instead of one. Both yield one :class:`Fault` for each fault, and raise :class:`Unseen` when the evidence is missing.
"""

from __future__ import annotations

import collections
import fnmatch
import functools
import itertools
import operator
import typing as t

from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.evidence import Entry, Fault, Node, Unseen, of_entry, optional
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.groups import grouped

Arguments = dict[str, t.Any]
Faults = t.Iterator[Fault]
OfNode = t.Callable[[Node, Arguments, Arguments], Faults]
BetweenNodes = t.Callable[[list[Node], Arguments, Arguments], Faults]

GIB = 1024**3
MIB_IN_GIB = 1024
GB = 10**9

#: The node name of a finding about the whole cluster.
CLUSTER = "cluster"

#: Characters of a container's full id, and of its short form.
ID_LENGTH, ID_SHOWN = 64, 12


#: The relations between the two sides of a condition in ``where``. ``has``: the list or text contains one of the operands. ``mentions``: an entry of the list
#: contains one. ``not_of_branch``: the versions begin with different numbers.
RELATIONS: dict[str, t.Callable[..., bool]] = {
    "is": operator.eq,
    "is_not": operator.ne,
    "above": operator.gt,
    "below": operator.lt,
    "at_least": operator.ge,
    "at_most": operator.le,
    "one_of": lambda have, wanted: have in (wanted or ()),
    "none_of": lambda have, wanted: have not in wanted,
    "contains": operator.contains,
    "omits": lambda have, wanted: wanted not in have,
    "has": lambda have, wanted: any(value in have for value in wanted),
    "lacks": lambda have, wanted: not any(value in have for value in wanted),
    "mentions": lambda have, wanted: any(value in item for item in have for value in wanted),
    "not_of_branch": lambda have, wanted: have.partition(".")[0] != wanted.partition(".")[0],
    "known": lambda have: have is not None,
    "filled": bool,
    "empty": operator.not_,
}
#: Relations without a right side, which also accept null. For all others, null is missing evidence.
OF_NULL = ("known", "filled", "empty")

#: Returns the value of a field, or raises :class:`Unseen`.
Look = t.Callable[[str], t.Any]

#: Lists that are derived from module results: by name, the path of their evidence and the function that derives them.
DERIVED: dict[str, tuple[str, t.Callable[[Node], list[Entry]]]] = {}
CHECKS: dict[str, OfNode] = {}
COMPARISONS: dict[str, BetweenNodes] = {}


def check(function: OfNode) -> OfNode:
    """Register a function as a check of one node, under its name."""
    CHECKS[function.__name__] = function
    return function


def comparison(function: BetweenNodes) -> BetweenNodes:
    """Register a function as a check between nodes, under its name."""
    COMPARISONS[function.__name__] = function
    return function


def derived(path: str) -> t.Callable[[t.Callable[[Node], list[Entry]]], t.Callable[[Node], list[Entry]]]:
    """Register a function under its name as a list that it derives from the value at ``path``."""

    def known(function: t.Callable[[Node], list[Entry]]) -> t.Callable[[Node], list[Entry]]:
        DERIVED[function.__name__] = (path, function)
        return function

    return known


def operand(value: t.Any, node: Node, limits: Arguments, look: Look | None = None) -> t.Any:
    """Return one side of a condition: ``{limit: NAME}``, ``{need: NAME}``, evidence that may be missing (``{of: PATH}``), or the value itself.

    With ``look``, text is the name of a field, whose value is returned.
    """
    if isinstance(value, dict):
        ((kind, name),) = value.items()
        return node.optional(name) if kind == "of" else {"limit": limits, "need": node.needs}[kind][name]
    return value if look is None else look(value)


def holds(look: Look, where: t.Iterable[list[t.Any]], node: Node, limits: Arguments) -> bool:
    """Return whether all conditions hold for the fields that ``look`` returns. Raises :class:`Unseen` when none fails, but one is unknown because of a null."""
    missing: Unseen | None = None
    for left, relation, *right in where:
        try:
            have = operand(left, node, limits, functools.partial(optional, look) if relation in OF_NULL else look)
            if not RELATIONS[relation](have, *(operand(side, node, limits) for side in right)):
                return False
        except Unseen as unseen:
            missing = missing or unseen
    if missing:
        raise missing
    return True


def listing(node: Node, arguments: Arguments) -> t.Iterator[tuple[Entry, Look]]:
    """Yield each entry of the list ``of`` (a path or the name of a derived list) with a function that returns its fields; ``name`` is the field that
    identifies it."""
    path, make = DERIVED.get(arguments["of"], (arguments["of"], lambda node: node.get(arguments["of"])))
    for entry in make(node):
        yield entry, functools.partial(of_entry, entry, where=f"{path}[{entry.get(arguments['name'])}]")


def fault_of(entry: Entry, look: Look, node: Node, arguments: Arguments, limits: Arguments) -> Fault:
    """Return the fault that a rule's arguments describe.

    ``measures`` is the field that was measured, ``measured`` a value in its place. The text of ``needed`` may contain limits and fields. The words are the
    fields of the entry, and those of ``words``; ``verdict`` overrides the rule's.
    """
    seen = functools.partial(optional, look)
    measured = arguments["measured"] if "measured" in arguments else operand(arguments["measures"], node, limits, seen)
    needed = arguments.get("needed")
    needed = needed.format_map({**limits, **entry}) if isinstance(needed, str) else operand(needed, node, limits)
    return Fault(
        measured,
        needed,
        {**entry, **{name: operand(value, node, limits, seen) for name, value in arguments.get("words", {}).items()}},
        verdict=arguments.get("verdict", ""),
    )


def gib(mib: float) -> float:
    """Return MiB as GiB, rounded to one decimal."""
    return round(mib / MIB_IN_GIB, 1)


def listed(values: t.Mapping[str, t.Any], unit: str = "") -> str:
    """Return ``spark-1 121.7 GiB, spark-2 60.1 GiB``."""
    return ", ".join(f"{name} {value}{unit}" for name, value in values.items())


def named_like(name: str, patterns: t.Iterable[str]) -> bool:
    """Return whether a name matches one of the patterns."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


# --- of any value -----------------------------------------------------------------------------------------------------------


@check
def value_is(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The value at ``of`` is ``value``."""
    have, wanted = operand(arguments["of"], node, limits, node.get), operand(arguments["value"], node, limits)
    if have != wanted:
        yield Fault(have, wanted)


@check
def value_is_not(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The value at ``of`` is not ``value``. A machine without the value passes."""
    have, avoided = node.optional(arguments["of"]), operand(arguments["value"], node, limits)
    if have == avoided:
        yield Fault(have, f"not {avoided}")


@check
def at_most(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The number at ``of``, minus that at ``less``, is at most ``limit``; with ``absolute`` its absolute value is."""
    have, most = node.get(arguments["of"]) - (node.get(arguments["less"]) if "less" in arguments else 0), operand(arguments["limit"], node, limits)
    if (abs(have) if arguments.get("absolute") else have) > most:
        yield Fault(have, most)


@check
def not_so(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The node does not meet all conditions of ``where``, whose fields are paths of its evidence."""
    if holds(node.get, arguments["where"], node, limits):
        yield fault_of({}, node.get, node, arguments, limits)


@check
def no_entry(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """No entry of the list ``of`` meets all conditions of ``where``."""
    missing: Unseen | None = None
    for entry, look in listing(node, arguments):
        try:
            if holds(look, arguments["where"], node, limits):
                yield fault_of(entry, look, node, {"measures": arguments["name"], **arguments}, limits)
        except Unseen as unseen:
            missing = missing or unseen
    if missing:
        raise missing


@check
def some_entry(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """At least one entry of the list ``of`` meets all conditions of ``where``. With ``shows`` the fault also shows that field of each entry."""
    entries = list(listing(node, arguments))
    if not any(holds(look, arguments["where"], node, limits) for _entry, look in entries):
        names = [entry.get(arguments["name"]) for entry, _look in entries]
        shown = {name: entry[arguments["shows"]] for name, (entry, _look) in zip(names, entries)} if "shows" in arguments else names
        text = ", ".join(f"{name} {'/'.join(shown[name]) or 'none'}" if "shows" in arguments else str(name) for name in shown)
        yield fault_of({"found": text or "none"}, node.get, node, {"measured": shown, **arguments}, limits)


@check
def not_known_bad(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The version at ``of``, or in each entry of the list ``in``, matches no pattern of the list ``bad``.

    A pattern with ``unless`` does not count on a node whose kernel has that word on its command line (``cmdline``).
    """
    words = node.get(arguments["cmdline"]).split() if "cmdline" in arguments else []
    entries = enumerate(node.get(arguments["in"])) if "in" in arguments else ()
    versions = [of_entry(entry, arguments["field"], f"{arguments['in']}[{index}]") for index, entry in entries]
    versions += [] if "in" in arguments else [node.get(arguments["of"])]
    for version, bad in itertools.product(dict.fromkeys(versions), limits["bad"]):
        if fnmatch.fnmatchcase(version, bad["match"]) and bad["unless"] not in words:
            yield Fault(version, f"not {bad['match']}", bad)


@check
def names_present(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """Every name in the inventory's ``names`` is the ``field`` of an entry of the list ``of``."""
    there = [entry[arguments["field"]] for entry in node.get(arguments["of"])]
    for name in node.needs[arguments["names"]]:
        if name not in there:
            yield Fault([name for name in there if name], name, {"name": name, "found": ", ".join(str(other) for other in there if other) or "none"})


@check
def reported(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The module whose result is ``in`` reported nothing under the id ``id``. Its findings keep their own verdict and texts."""
    for finding in node.get(arguments["in"]):
        if finding["id"] == arguments["id"] and finding["verdict"] != "pass":
            yield Fault(
                finding.get("measured"),
                finding.get("needed"),
                {"message": finding["message"].rstrip("."), "remedy": finding.get("remedy") or "look at the node"},
                verdict=finding["verdict"],
            )


# --- between nodes ----------------------------------------------------------------------------------------------------------


def _odd_ones(values: dict[str, t.Any]) -> list[str]:
    """Return the nodes that a difference concerns: those that differ from more than half of the nodes, else the whole cluster."""
    common, count = collections.Counter(map(str, values.values())).most_common(1)[0]
    return [name for name, value in values.items() if str(value) != common] if count * 2 > len(values) else [CLUSTER]


def differing(values: dict[str, t.Any], unit: str = "", **words: t.Any) -> Faults:
    """Yield one fault for each node whose value differs from that of the majority; one for the cluster without a majority."""
    if len(set(map(str, values.values()))) > 1:
        for node in _odd_ones(values):
            yield Fault(values, "the same on every node", {"listed": listed(values, unit), **words}, node=node)


@comparison
def same(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """The value at ``of`` is the same on all nodes."""
    yield from differing({node.name: node.get(arguments["of"]) for node in nodes})


@comparison
def each_its_own(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """No two nodes have the same value at ``of``. Nodes without a value pass."""
    for value, names in grouped((node.optional(arguments["of"]) or "", node.name) for node in nodes).items():
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
            yield Fault(shown, "the same on every node", {"listed": listed(shown, " GiB"), "spread": gib(spread)}, node=CLUSTER)
