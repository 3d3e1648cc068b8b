# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judges serve arguments before any image is inspected: their values, and their names by the releases that a profile allows. PRIVATE to the collection.

An image's own parser checks them before its engine starts, but only after the image and usually the model are there. Arguments that no release accepts
are reported first.
"""

from __future__ import annotations

import functools
import typing as t
from pathlib import Path

from ansible.module_utils.common.yaml import yaml_load

from ansible_collections.gb10.cluster.plugins.module_utils._arguments import argument_values
from ansible_collections.gb10.cluster.plugins.module_utils._arguments.serve_arguments import RESERVED
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, Problem
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import resolver
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.schema import near
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.versions import HAS_PACKAGING, InvalidSpecifier, SpecifierSet, Version

#: Ids of findings that are made here.
IDS = ("input.flags",)

_TABLE = Path(__file__).with_name("serve_flags.yml")
_FORK = "what only the image's own engine has goes into fork_flags of the profile"


class Table(t.NamedTuple):
    """The accepted values of arguments, by their names with underscores."""

    #: The releases whose parsers were read.
    recorded: list[str]
    #: The last recorded release without an argument, and the first that lacks it again; empty where there is none.
    names: dict[str, tuple[str, str]]
    kinds: dict[str, str]
    least: dict[str, int]
    choices: dict[str, list[str]]


@functools.cache
def table() -> Table:
    """Return the table."""
    raw = yaml_load(_TABLE.read_text(encoding="utf-8"))
    names = {name: tuple(span.split("..")) for span, words in raw["names"].items() for name in words.split()}
    kinds = {name: kind for kind in ("switch", "whole", "number") for name in raw[kind].split()}
    return Table(
        raw["recorded"].split(),
        names,
        kinds,
        {name: low for low, words in raw["least"].items() for name in words.split()},
        {name: words.split() for name, words in raw["choices"].items()},
    )


def is_switch(name: str) -> bool:
    """Return whether an argument is true or false, and takes no value."""
    return table().kinds.get(name) == "switch"


def is_known(name: str) -> bool:
    """Return whether a release of the engine has, or had, an argument."""
    return name in table().names or name in resolver.history() and not resolver.is_variable(name) or name.startswith("no_") and is_switch(name[3:])


def fault(name: str, value: t.Any) -> tuple[str, str] | None:
    """Return the problem with a value, and what was expected; None for one that some release may accept, as far as that is known."""
    kind = table().kinds.get(name)
    if name in argument_values.KINDS:
        try:
            argument_values.read(name, value)
        except ClusterError as error:
            return error.what, error.expected
    elif kind == "switch":
        return None if isinstance(value, bool) else (f"is {value!r}", "true or false")
    elif kind:
        return _number_fault(name, value, whole=kind == "whole")
    elif name in table().choices:
        listed = [*table().choices[name], *resolver.history().get(name, {}).get("values", {})]
        for entry in value if isinstance(value, list) else [value]:
            if resolver.text_of(entry) not in listed:
                return f"is {entry!r}", f"one of {', '.join(dict.fromkeys(listed))}{near(entry, listed)}"
    return None


def _number_fault(name: str, value: t.Any, whole: bool) -> tuple[str, str] | None:
    """Return the problem with a number; the engine also accepts it as text."""
    low = table().least.get(name)
    expected = f"a {'whole ' if whole else ''}number{'' if low is None else f' of {low} or more'}"
    try:
        number = None if isinstance(value, (bool, list, dict)) else argument_values.size(str(value)) if whole else float(value)
    except ValueError:
        number = None
    return (f"is {value!r}", expected) if number is None or low is not None and number < low else None


def releases(profile: dict[str, t.Any]) -> list[str]:
    """Return the known releases that a profile allows, oldest first; none for a fork with its own version numbers, or if only newer releases are allowed."""
    if not HAS_PACKAGING:
        return []
    try:
        allowed = SpecifierSet(profile["requires"].get("vllm") or "")
    except InvalidSpecifier:  # named where the profile is judged
        return []
    return [release for release in _known_releases() if allowed.contains(release, prereleases=True)]


@functools.cache
def _known_releases() -> list[str]:
    """Return the releases in the history and those with a recorded parser."""
    spoken = set(table().recorded)
    for row in resolver.history().values():
        spoken |= {row[field] for field in ("added", "removed", "ignored") if field in row}
        spoken |= {release for span in row["values"].values() for release in span if release}
    return sorted(spoken - {"0"}, key=Version)


def problems(profile: dict[str, t.Any], arguments: dict[str, t.Any], where: str) -> t.Iterator[Problem]:
    """Yield problems for arguments that no allowed release accepts: unknown names, and names and values that were added later or removed earlier."""
    allowed = releases(profile)
    wanted = {name.replace("-", "_"): value for name, value in {**profile["serve"], **arguments}.items() if value is not None}
    for typed, value in arguments.items():
        name = typed.replace("-", "_")
        head = name.partition(".")[0]
        if value is None or typed.startswith("-") or not head.isidentifier() or name in RESERVED or {name, head} & set(profile["fork_flags"]):
            continue
        history = resolver.history().get(head)
        if is_known(head):
            what, remedy = _not_of(allowed, head, value, wanted, profile) if allowed and head == name else ("", "")
            verdict = "block"
        else:
            hint = near(head, [*table().names, *(argument for argument in resolver.history() if not resolver.is_variable(argument))])
            what = f"is an argument of no release of vLLM from {table().recorded[0]} to {table().recorded[-1]}{hint}"
            # A fork or a later release may have an argument that resembles none of the known ones.
            remedy, verdict = f"correct its name; {_FORK}", "block" if hint or allowed else "warn"
        if what:
            yield Problem("input.flags", f"{where}.{typed}", what, remedy=remedy, verdict=verdict)
        elif history and _is_strange(name, value, history, wanted):
            hint = near(value, history["values"])
            if hint:
                yield Problem("input.flags", f"{where}.{typed}", f"is {value!r}, which no release of vLLM has{hint}", remedy="correct it", verdict="warn")


def _not_of(allowed: list[str], name: str, value: t.Any, wanted: dict[str, t.Any], profile: dict[str, t.Any]) -> tuple[str, str]:
    """Return why no allowed release accepts an argument, and the remedy; empty texts if one may accept it."""
    if name in resolver.history():
        steps = [resolver.lacks(resolver.Engine(release, fork_flags=profile["fork_flags"]), name, value, wanted) for release in allowed]
        return (steps[-1].message.rstrip("."), f"{steps[-1].remedy}; {_FORK}") if all(steps) else ("", "")
    after, before = table().names.get(name, ("", ""))
    late = bool(after) and all(Version(release) <= Version(after) for release in allowed)
    gone = bool(before) and all(Version(release) >= Version(before) for release in allowed)
    if not late and not gone:
        return "", ""
    says = f"it came after {after}" if late else f"it was removed in {before}"
    return (
        f"is an argument of no release that the profile allows ({allowed[0]} to {allowed[-1]}): {says}",
        f"remove it, or change requires.vllm of the profile; {_FORK}",
    )


def _is_strange(name: str, value: t.Any, history: resolver.Row, wanted: dict[str, t.Any]) -> bool:
    """Return whether the history lists the values of an argument without this one, and no plugin registers more."""
    plugin = resolver.PARSERS.get(name, ("", ""))[1]
    return isinstance(value, str) and bool(history["values"]) and value not in history["values"] and plugin not in wanted and name not in table().choices
