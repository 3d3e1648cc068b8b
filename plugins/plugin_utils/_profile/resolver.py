# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Converts a profile's arguments to those that the engine in its image accepts. This plugin util is PRIVATE to the collection.

A profile states its arguments once, in the current spelling. The image's contract lists the arguments, variables and values that its engine accepts, and
``flag_history.yml`` their spelling in other engines. Nothing is passed that the engine would refuse or ignore.
"""

from __future__ import annotations

import functools
import typing as t
from pathlib import Path

from ansible.module_utils.common.yaml import yaml_load

from ansible_collections.gb10.cluster.plugins.module_utils._arguments.serve_arguments import RESERVED, canonical, flag
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.schema import near
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.versions import HAS_PACKAGING, InvalidVersion, Version

HISTORY = Path(__file__).with_name("flag_history.yml")

#: Arguments that name a parser: their key in the contract, and the argument with a file that registers more.
PARSERS = {"reasoning_parser": ("reasoning", "reasoning_parser_plugin"), "tool_call_parser": ("tool", "tool_parser_plugin")}

#: The oldest release in the history: a lower number is a fork's own version, such as 0.1.dev21553.
OLDEST = "0.10"

#: The arguments that distinguish the ranks of an engine that spreads them itself.
PLACE = tuple(name for name, row in RESERVED.items() if row.native)

Row = dict[str, t.Any]


class Step(t.NamedTuple):
    """The result for one argument or variable, and its reason; ``source`` names the rows of the survey that support it."""

    verdict: str
    name: str
    message: str
    remedy: str = ""
    source: str = ""


class Resolved(t.NamedTuple):
    """The arguments and variables for the engine, and the steps that led to them."""

    arguments: dict[str, t.Any]
    env: dict[str, str]
    steps: list[Step]


@functools.cache
def history() -> dict[str, Row]:
    """Return the table by name; ``values`` maps each value to its first release and the first without it, None while there is none."""
    rows = yaml_load(HISTORY.read_text(encoding="utf-8"))
    for row in rows.values():
        spans = {value: (*span.split(".."), None)[:2] for span, values in row.get("values", {}).items() for value in values.split()}
        row["values"] = spans
    return rows


def is_variable(name: str) -> bool:
    """Return whether a name is a variable's and not an argument's."""
    return name != name.lower()


def option(name: str) -> str:
    """Return the option string of an argument, without the key of its JSON value."""
    return flag(name.partition(".")[0])


def text_of(value: t.Any) -> str:
    """Return a value as the table writes it."""
    return value if isinstance(value, str) else canonical(value)


class Engine:
    """The engine of an image: by its contract, or while that is unknown, by its version and the history."""

    def __init__(
        self,
        version: str,
        takes: dict[str, t.Any] | None = None,
        known_env: t.Iterable[str] = (),
        fork_flags: t.Mapping[str, dict[str, str]] | None = None,
    ) -> None:
        """Raise ValueError for a version that cannot be read.

        ``known_env`` are variables of the image or of a plugin. ``fork_flags`` are those that the profile assigns to a fork alone: the history
        of releases does not cover them.
        """
        if not HAS_PACKAGING:
            raise ValueError("the Python package packaging is missing on the controller")
        try:
            # A suffix (a build, a release candidate) does not remove anything.
            self.version = Version(Version(version).base_version)
        except InvalidVersion:
            raise ValueError(f"the version of vLLM in the image cannot be read: {version!r}") from None
        self.takes, self.known_env, self.fork_flags = takes, set(known_env), fork_flags or {}

    def within(self, since: str | None, until: str | None) -> bool:
        """Return whether its release is ``since`` or later and before ``until``; a fork's own version counts as the newest."""
        if self.fork_flags and self.version < Version(OLDEST):
            return until is None
        return (since is None or self.version >= Version(since)) and (until is None or self.version < Version(until))

    def has(self, name: str) -> bool:
        """Return whether it has an argument or a variable."""
        row = history().get(name, {})
        if is_variable(name):
            if name in self.known_env or not name.startswith("VLLM_"):
                return True
            if self.takes:
                return name in self.takes["env"]
        elif self.takes:
            return option(name) in self.takes["flags"]
        return self.within(row.get("added"), row.get("removed"))

    def choices(self, name: str, wanted: t.Collection[str]) -> list[str] | None:
        """Return the values that it accepts for a name; None when they are unknown, or it accepts any. ``wanted`` are all arguments."""
        if self.takes and not is_variable(name):
            kind, plugin = PARSERS.get(name, ("", ""))
            listed = self.takes["parsers"].get(kind) if plugin not in wanted else None
            listed = listed or self.takes["flags"].get(option(name), {}).get("choices")
            if listed:
                return listed
        return None

    def accepts(self, name: str, value: t.Any, wanted: t.Collection[str]) -> bool:
        """Return whether it accepts this value, as far as that is known."""
        listed = self.choices(name, wanted)
        if listed is not None:
            return all(text_of(item) in listed for item in (value if isinstance(value, list) else [value]))
        if PARSERS.get(name, ("", ""))[1] in wanted:
            return True
        return self.within(*history().get(name, {}).get("values", {}).get(text_of(value), (None, None)))

    def default(self, name: str) -> tuple[str | None, bool]:
        """Return a name's default, and whether it can be left out: earlier releases had another default.

        None when that is unknown.
        """
        if self.takes and not is_variable(name) and option(name) in self.takes["flags"] and f"--no-{option(name)[2:]}" not in self.takes["flags"]:
            # Only a switch without an opposite can be left out.
            return ("false", True) if self.takes["flags"][option(name)].get("default") is False else (None, False)
        known = [value for since, value in history().get(name, {}).get("defaults", {}).items() if self.within(since, None)]
        return (known[-1], len(known) > 1) if known else (None, False)


def as_typed(name: str, value: t.Any) -> str:
    """Return an argument or variable with its value, as one types it."""
    return f"{name}={text_of(value)}" if is_variable(name) else f"{flag(name)} {text_of(value)}"


def resolve(engine: Engine, arguments: dict[str, t.Any], env: dict[str, str], executor: str = "ray", places: bool = False) -> Resolved:
    """Return the arguments and variables for the engine, with every step; steps with the verdict ``block`` are about those that it does not accept.

    These are passed all the same: a user who silences the finding leaves the decision to the engine.
    ``places``: the engine itself spreads its ranks over several nodes.
    """
    wanted = {**arguments, **env}
    kept: dict[str, t.Any] = {}
    given: dict[str, t.Any] = {}
    steps: list[Step] = []
    for name, value in wanted.items():
        if name in env and name not in history() and not name.startswith("VLLM_"):
            kept[name] = value
            continue
        step, instead = _settle(engine, name, value, wanted, executor)
        if instead is None:
            kept[name] = value
        else:
            given.update(instead)
        if step:
            steps.append(step)
    steps += [_refusal(engine, name, None, wanted) for name in PLACE if places and not engine.has(name)]
    # Arguments in the current spelling win over those that are converted from older ones.
    result = {**given, **kept}
    variables = {name for name in result if name in env or is_variable(name)}
    return Resolved({name: value for name, value in result.items() if name not in variables}, {name: result[name] for name in sorted(variables)}, steps)


def _settle(engine: Engine, name: str, value: t.Any, wanted: dict[str, t.Any], executor: str) -> tuple[Step | None, dict[str, t.Any] | None]:
    """Return the step for one name, and what replaces the name; None when it is passed unchanged."""
    if name in engine.fork_flags:
        return _of_a_fork(engine, name, value, wanted), None
    row, text = history().get(name, {}), text_of(value)
    step = functools.partial(Step, source=", ".join(row.get("source", ())))
    for refused in row.get("refused", ()):
        lifted = any(text_of(wanted.get(other)) == setting for other, setting in refused.get("unless", {}).items())
        applies = engine.within(refused.get("since"), refused.get("until")) and refused.get("executor") in (None, executor)
        if text == refused["value"] and applies and not lifted:
            until = f", or take an image.base with vLLM {refused['until']} or newer" if "until" in refused else ""
            return step("block", name, f"{as_typed(name, value)} is refused: {refused['why']}.", remedy=f"remove it{until}"), None
    default, changed = engine.default(name)
    has = engine.has(name)
    if has and "ignored" in row and engine.within(row["ignored"], None):
        return step("warn", name, f"{as_typed(name, value)} is left out: vLLM ignores it since {row['ignored']}.", remedy="remove it"), {}
    if text == default and (changed or not has):
        return step("pass", name, f"{as_typed(name, value)} is left out: vLLM {engine.version} does that by default."), {}
    if has and engine.accepts(name, value, wanted):
        return None, None
    becomes = row.get("becomes", {})
    instead = becomes.get(text, becomes.get("*"))
    if instead is not None:
        instead = {other: value if new == "*" else new for other, new in instead.items()}
        if all(engine.has(other) and engine.accepts(other, new, wanted) for other, new in instead.items()):
            others = [f"{as_typed(other, wanted.get(other, new))}{' (set separately)' if other in wanted else ''}" for other, new in instead.items()]
            does = f"becomes {' and '.join(others)}" if others else f"is left out: vLLM {engine.version} does that by default"
            return step("pass", name, f"{as_typed(name, value)} {does}."), instead
    if not has and "removed" in row and is_variable(name) and engine.within(row["removed"], None):
        now = row.get("instead", "")
        if now in wanted:
            return step("pass", name, f"{as_typed(name, value)} is left out: {as_typed(now, wanted[now])} says it since {row['removed']}."), {}
        says = f" {now} says it now." if now else ""
        return step("warn", name, f"{as_typed(name, value)} is left out: vLLM ignores it since {row['removed']}.{says}", remedy="remove it"), {}
    return _refusal(engine, name, value, wanted), None


def lacks(engine: Engine, name: str, value: t.Any, wanted: dict[str, t.Any]) -> Step | None:
    """Return the step for an argument that an engine does not have; None when it has it, or refuses it for another reason."""
    if any(text_of(value) == refused["value"] for refused in history().get(name, {}).get("refused", ())):
        return None
    step = _settle(engine, name, value, wanted, "")[0]
    return step if step and step.verdict == "block" else None


def _of_a_fork(engine: Engine, name: str, value: t.Any, wanted: dict[str, t.Any]) -> Step | None:
    """Return the step for an argument that only a fork has; None when the engine has it, or its flags are unknown."""
    has = not engine.takes or engine.has(name)
    listed = engine.choices(name, wanted) if has else None
    if has and (listed is None or text_of(value) in listed):
        return None
    row = engine.fork_flags[name]
    lacks = f"does not take {as_typed(name, value)}" if has else f"knows no {name if is_variable(name) else option(name)}"
    what = f"vLLM {engine.version} {lacks}"
    return Step("block", name, f"{what}: a fork alone does, and {row['image']} has it ({row['why']}).", f"take {row['image']} as image.base", row["source"])


def _refusal(engine: Engine, name: str, value: t.Any, wanted: dict[str, t.Any]) -> Step:
    """Return the step for a name, or for a value of it, that an engine does not accept, with a remedy."""
    row = history().get(name, {})
    first, gone = row.get("added"), row.get("removed")
    what = f"vLLM {engine.version} knows no {name if is_variable(name) else option(name)}"
    if engine.has(name):
        what = f"vLLM {engine.version} does not take {as_typed(name, value)}"
        first, gone = row.get("values", {}).get(text_of(value), (None, None))
    if first and not engine.within(first, None):
        return Step(
            "block", name, f"{what}; the first release with it is {first}.", f"take an image.base with vLLM {first} or newer, or remove it", _source(row)
        )
    if gone and engine.within(gone, None):
        says = f"; instead: {row['instead']}" if "instead" in row else ""
        return Step("block", name, f"{what}; it was removed in {gone}{says}.", "remove it", _source(row))
    listed = engine.choices(name, wanted) if engine.has(name) else None
    if listed is not None:
        return Step("block", name, f"{what}, but {', '.join(listed)}{near(text_of(value), listed)}.", "choose one of these")
    if is_variable(name):
        known = engine.takes["env"] if engine.takes else []
        return Step(
            "block",
            name,
            f"{what}, nor does the image set it{near(name, known)}.",
            "correct its name, or when a plugin or a patch of the image reads it, list it in the profile's env.declared",
        )
    known = [option[2:].replace("-", "_") for option in engine.takes["flags"]] if engine.takes else []
    return Step("block", name, f"{what}{near(name, known)}.", "correct its name, or remove it", _source(row))


def _source(row: Row) -> str:
    return ", ".join(row.get("source", ()))
