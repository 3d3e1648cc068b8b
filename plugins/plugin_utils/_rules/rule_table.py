# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules of rules.yml and doctor.yml. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import typing as t

from ansible.module_utils.common.yaml import yaml_load

from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import fabric_checks, image_checks, machine_checks, memory_checks, model_checks
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import stack_checks, tenant_checks
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.checks import CHECKS, COMPARISONS, RELATIONS
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.evidence import Node

TABLE = pathlib.Path(__file__).with_name("rules.yml")
DOCTOR_TABLE = pathlib.Path(__file__).with_name("doctor.yml")

#: Tag of the rules that need neither a profile nor settings. The doctor judges by them.
DOCTOR_TAG = "doctor"

#: The doctor's rule about the node itself. If it does not pass, no other rule is judged.
ANSWERS = "node.answers"

#: The remedy for it if there is no other.
SEE = "ssh {node} python3 --version; without passwordless sudo run with -K, or with -e gb10_become=false for what an ordinary account sees"

#: What a rule can compare a node with.
COMPARES = {"requirement": "node against requirement", "nodes": "node against node", "known_bad": "node against known-bad list"}

#: Words at the beginning of a rule's title that stay capitalized within a sentence, like CUDA.
PROPER_NAMES = ("Docker", "Python", "Ray")

#: Tag of the rules about the connections between nodes.
FABRIC_TAG = "fabric"

#: The key of the evidence of an active fabric probe.
PROBE = "probe"

#: The files with checks. Each registers its own when it is imported.
SUBJECTS = (fabric_checks, image_checks, machine_checks, memory_checks, model_checks, stack_checks, tenant_checks)


@dataclasses.dataclass(frozen=True)
class Repair:
    """The later stage of the same play that repairs violations of a rule, and its action."""

    stage: str
    does: str = "fix this"


@dataclasses.dataclass(frozen=True)
class Condition:
    """A rule is judged only if ``relation`` holds between the node's requirement ``need`` and ``value``; otherwise ``why`` is the reason."""

    need: str
    relation: str
    value: t.Any
    why: str

    def holds(self, node: Node) -> bool:
        return RELATIONS[self.relation](node.needs[self.need], self.value)


@dataclasses.dataclass(frozen=True)
class Rule:
    """One row of the table; rules.yml describes each field."""

    id: str
    title: str
    compares: str
    evidence: tuple[str, ...]
    check: str
    verdict: str
    message: str
    remedy: str
    source: str
    tags: tuple[str, ...]
    arguments: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    limits: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    only_if: tuple[Condition, ...] = ()
    after: tuple[str, ...] = ()
    repair: Repair | None = None

    @classmethod
    def from_row(cls, row: dict[str, t.Any]) -> Rule:
        """Return the rule of one row. Raises :class:`TypeError` or :class:`ValueError` when it is incomplete."""
        rule = cls(
            **{name: value for name, value in row.items() if name not in ("with", "evidence", "tags", "after", "only_if", "repair")},
            **{name: tuple(row.get(name, ())) for name in ("evidence", "tags", "after")},
            arguments=row.get("with", {}),
            only_if=tuple(Condition(*condition) for condition in row.get("only_if", ())),
            repair=Repair(**row["repair"]) if "repair" in row else None,
        )
        if rule.compares not in COMPARES or (rule.check not in CHECKS and rule.check not in COMPARISONS):
            raise ValueError(f"{rule.id}: compares {rule.compares} by {rule.check}")
        return rule

    @property
    def between(self) -> bool:
        """Whether the check compares nodes."""
        return self.check in COMPARISONS

    @property
    def probes(self) -> bool:
        """Whether only an active probe of the fabric provides the evidence."""
        return any(path.split(".", 1)[0] == PROBE for path in self.evidence)


def parsed(text: str, beside: t.Collection[str] = ()) -> tuple[Rule, ...]:
    """Return the rules of a table; ``beside`` are the ids of other rules that they may come after.

    Raises :class:`TypeError` or :class:`ValueError` when one is incomplete.
    """
    rules = tuple(Rule.from_row(row) for row in yaml_load(text)["rules"])
    known: set[str] = set(beside)
    for rule in rules:
        if rule.id in known or not set(rule.after) <= known:
            raise ValueError(f"{rule.id} is there twice, or comes after a rule that is not above it")
        known.add(rule.id)
    return rules


@functools.cache
def of_table() -> tuple[Rule, ...]:
    """Return the rules of rules.yml, those of the preflight and those of the fabric probe, in the order in which they are judged."""
    return parsed(TABLE.read_text(encoding="utf-8"))


@functools.cache
def shipped() -> tuple[Rule, ...]:
    """Return the rules of the preflight."""
    return tuple(rule for rule in of_table() if not rule.probes)


@functools.cache
def probing() -> tuple[Rule, ...]:
    """Return the rules of the fabric probe. The preflight does not use them, since it puts no load on the network."""
    return tuple(rule for rule in of_table() if rule.probes)


@functools.cache
def of_doctor() -> tuple[Rule, ...]:
    """Return the rules of the doctor: its own, then those of the preflight that need neither a profile nor settings."""
    own = parsed(DOCTOR_TABLE.read_text(encoding="utf-8"), beside=frozenset(rule.id for rule in shipped()))
    taken = [rule for rule in shipped() if DOCTOR_TAG in rule.tags]
    # A rule comes before those that name it in `after`.
    early = {id for rule in own for id in rule.after}
    ordered = [*(rule for rule in taken if rule.id in early), *own, *(rule for rule in taken if rule.id not in early)]
    first = sorted(ordered, key=lambda rule: rule.id != ANSWERS)
    return tuple(rule if rule.id == ANSWERS else dataclasses.replace(rule, after=(ANSWERS, *rule.after)) for rule in first)


@functools.cache
def every() -> tuple[Rule, ...]:
    """Return all rules, of the preflight, of the fabric probe and of the doctor, each once."""
    return tuple({rule.id: rule for rule in (*of_doctor(), *of_table())}.values())


@functools.cache
def known_ids() -> frozenset[str]:
    """Return the ids of all rules."""
    return frozenset(rule.id for rule in every())
