# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changes to rules by an inventory or a profile: limits, verdicts, and the reasons. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import Problem
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.rule_table import Rule, every
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.schema import near
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.table import Finding

Tuning = t.Mapping[str, t.Mapping[str, t.Any]]

#: Verdicts to which a tuned rule can limit its findings.
LOWERED = ("warn", "silenced")

#: Keys of a tuned rule that are not limits.
TUNING_WORDS = ("verdict", "why")


def tuning_problems(tuning: t.Any, where: str, id: str, rules: t.Sequence[Rule] | None = None) -> list[Problem]:
    """Return the problems of rules that a profile or an inventory tunes; ``where`` is the name of the tuning, ``id`` the id of its problems."""
    known = {rule.id: rule for rule in (every() if rules is None else rules)}
    problems = []

    def wrong(path: str, what: str, expected: str = "") -> None:
        problems.append(Problem(id, f"{where}.{path}", what, expected, f"correct {where}.{path}; docs/rules.md lists all rules with their limits"))

    for name, changes in tuning.items():
        if name not in known:
            wrong(name, f"no rule has this id{near(name, known)}")
            continue
        if not isinstance(changes, dict):
            wrong(name, f"is {changes!r}", "a mapping, such as {verdict: warn, why: TEXT}")
            continue
        limits = known[name].limits
        for key, value in changes.items():
            path = f"{name}.{key}"
            if key == "verdict" and value not in LOWERED:
                wrong(path, f"is {value!r}", " or ".join(LOWERED))
            elif key == "why" and not isinstance(value, str):
                wrong(path, f"is {value!r}", "text")
            elif key not in (*TUNING_WORDS, *limits):
                wrong(path, "is not a limit of this rule", f"{', '.join(limits) or 'no limit'}, {' or '.join(TUNING_WORDS)}")
            elif key in limits and not _alike(value, limits[key]):
                wrong(path, f"is {value!r}", f"something like {limits[key]!r}")
    return problems


def _alike(value: t.Any, default: t.Any) -> bool:
    """Return whether a value can replace the default of a limit."""
    if isinstance(default, (int, float)):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if not isinstance(default, list):
        return isinstance(value, type(default))
    return isinstance(value, list) and all(
        isinstance(element, type(default[0])) and (not isinstance(element, dict) or set(element) == set(default[0])) for element in value
    )


def tuned(rule: Rule, tunings: t.Iterable[tuple[str, Tuning]]) -> dict[str, t.Any]:
    """Return ``limits``, ``verdict`` (the maximum for findings, None if they are unchanged) and ``by`` of a rule; the last of ``tunings`` takes precedence."""
    changes = {who: tuning[rule.id] for who, tuning in tunings if tuning.get(rule.id)}
    merged = {name: value for change in changes.values() for name, value in change.items()}
    limits = {**rule.limits, **{name: value for name, value in merged.items() if name not in TUNING_WORDS}}
    return {"limits": limits, "verdict": merged.get("verdict"), "by": list(changes)}


def limits_of(id: str, tunings: t.Iterable[Tuning]) -> dict[str, t.Any]:
    """Return the limits of the rule ``id`` for a stage that judges by the same table; the last of ``tunings`` takes precedence."""
    return tuned(next(rule for rule in every() if rule.id == id), ((str(number), tuning) for number, tuning in enumerate(tunings)))["limits"]


def lowered(finding: Finding, verdict: str | None) -> Finding:
    """Return a finding with the verdict that a tuned rule allows; ``was`` is its verdict before, null when that did not change."""
    is_lower = verdict is not None and table.ORDER.index(finding["verdict"]) > table.ORDER.index(verdict)
    return {**finding, "verdict": verdict, "was": finding["verdict"]} if is_lower else {**finding, "was": None}
