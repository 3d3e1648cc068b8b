# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lists the settings, and converts their values to their types. This plugin util is PRIVATE to the collection.

Types and choices are read from the argument specs of the roles, so each is written once.
"""

from __future__ import annotations

import functools
import json
import re
import typing as t
from pathlib import Path

from ansible.module_utils.common.validation import check_type_bool, check_type_float, check_type_int
from ansible.module_utils.common.yaml import yaml_load

from ansible_collections.gb10.cluster.plugins.module_utils._errors import Problem
from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs.renamed import RENAMED
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.schema import near

Values = t.Mapping[str, t.Any]
Problems = t.Iterator[Problem]

#: Ids of findings that are made here.
IDS = ("input.choice", "input.template", "input.type", "input.unknown_setting", "input.vault")

#: The prefix of all settings.
PREFIX = "gb10_"

#: Settings that select the profile of a run, and its engine's arguments.
OF_PROFILE = ("gb10_profile", "gb10_profile_dirs", "gb10_profile_switches", "gb10_serve_arguments")

#: The directory of the roles, in a clone and in an installed collection alike.
ROLES = Path(__file__).resolve().parents[3] / "roles"
#: The stages: each is a file.
STAGES = Path(__file__).resolve().parents[1] / "_stages"

#: Variables that the plays pass on with set_stats. A job controller gives them to the next job of a workflow, where they have no meaning.
ARTIFACTS = frozenset(
    """
    gb10_baseline gb10_bench gb10_bundled gb10_calibration gb10_doctor gb10_endpoint gb10_explanation gb10_fabric gb10_glance
    gb10_health gb10_imported gb10_logs gb10_models gb10_plan gb10_postmortem gb10_preflight gb10_profiles
    gb10_protection gb10_report gb10_status gb10_teardown gb10_verdict
    """.split()
)

VAULT_REMEDY = "run with --ask-vault-pass or --vault-password-file FILE and give the password that it was encrypted with"

_WORDS = {"str": "text", "int": "a whole number", "float": "a number", "bool": "true or false", "list": "a list", "dict": "a mapping", "raw": "a value"}
_PYTHON: dict[str, type] = {"str": str, "list": list, "dict": dict}
_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = ((str, "the text"), ((int, float), "the number"), (list, "a list"), (dict, "a mapping"))


@functools.cache
def options(role: str) -> dict[str, dict[str, t.Any]]:
    """Return the options of a role's entry points, by name."""
    specs = yaml_load((ROLES / role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))
    return {name: option for entry_point in specs["argument_specs"].values() for name, option in (entry_point.get("options") or {}).items()}


def settings() -> dict[str, dict[str, t.Any]]:
    """Return the settings of the whole collection, by name."""
    return options("gb10")


@functools.cache
def known_settings() -> frozenset[str]:
    """Return the names of all variables that a role of the collection reads."""
    return frozenset(name for path in ROLES.glob("*/meta/argument_specs.yml") for name in options(path.parents[1].name))


@functools.cache
def passed_on() -> frozenset[str]:
    """Return the names of variables that jobs pass on. A stage passes on ``gb10_STAGE_report`` beside its verdict, so a new stage is included."""
    return ARTIFACTS.union(f"{PREFIX}{path.stem}_report" for path in STAGES.glob("*.py"))


def unknown_settings(names: t.Iterable[str], given: t.Collection[str] = (), known: t.Collection[str] = ()) -> Problems:
    """Yield a problem for each variable that begins like a setting and is none. It stops the run if it was renamed, resembles a setting or was ``given``.

    ``known`` are variables that a playbook itself reads, in addition to the roles' settings.
    """
    everything = known_settings().union(known)
    for name in sorted(set(names).difference(everything, passed_on())):
        if name in RENAMED:
            yield Problem("input.unknown_setting", name, "no role reads this variable any more", remedy=RENAMED[name])
        elif name.startswith(PREFIX):
            hint = near(name, sorted(everything), PREFIX)
            verdict = "block" if hint or name in given else "warn"
            yield Problem("input.unknown_setting", name, f"no role reads this variable{hint}", remedy="correct its name, or remove it", verdict=verdict)


def only_if(*rows: tuple[t.Any, Problem]) -> Problems:
    """Return the problems of those rows whose condition holds."""
    return (problem for condition, problem in rows if condition)


# --- failed evaluations -------------------------------------------------------------------------------------------------------


class Failure(t.NamedTuple):
    """A variable that could not be evaluated: whether a vault was the reason, and Ansible's message."""

    vault: bool
    message: str

    @classmethod
    def of(cls, text: str) -> Failure:
        """Return the failure for the text of Ansible's exception. Ansible's class for vaults is private; both of its messages have these words."""
        line = text.splitlines()[0]
        for prefix in ("Error rendering template: ", "Attempt to use undecryptable variable: "):
            line = line.removeprefix(prefix)
        return cls("vault secrets" in line, line)

    def problem(self, name: str) -> Problem:
        """Return the problem of the variable ``name``."""
        message = self.message.rstrip(".")
        if self.vault:
            return Problem("input.vault", name, f"is encrypted and can't be decrypted: {message}", remedy=VAULT_REMEDY)
        return Problem("input.template", name, f"can't be evaluated: {message}", remedy=f"correct the expression in {name}, or define what it uses")


# --- types --------------------------------------------------------------------------------------------------------------------


def read_by(role: str) -> dict[str, dict[str, t.Any]]:
    """Return the options of a role that needs no cluster, by name, and the settings that select its profile."""
    return {**{name: settings()[name] for name in OF_PROFILE}, **options(role)}


def typed(values: Values, spec: dict[str, dict[str, t.Any]] | None = None) -> tuple[dict[str, t.Any], list[Problem]]:
    """Return the values in their option's type, without those of another type, and the problems of the latter. The default for ``spec`` is all settings."""
    fitting: dict[str, t.Any] = {}
    problems: list[Problem] = []
    for name, value in values.items():
        option = (spec or settings())[name]
        try:
            converted = _as_type(option, value, strict=spec is None)
        except TypeError:
            problems.append(_wrong_type(name, option, value))
            continue
        choices = option.get("choices")
        strange = [entry for entry in (converted if isinstance(converted, list) else [converted]) if choices and entry not in choices]
        if strange:
            expected = " or ".join(map(str, choices))
            what = f"{'contains' if isinstance(converted, list) else 'is'} '{short(strange[0])}'{near(strange[0], choices)}"
            problems.append(Problem("input.choice", name, what, expected, f"set {name} to {expected}", measured=value, needed=choices))
        else:
            fitting[name] = converted
    return fitting, problems


def _as_type(option: dict[str, t.Any], value: t.Any, strict: bool) -> t.Any:
    """Return ``value`` as the roles use it. Raises :class:`TypeError` for a value that they would refuse, or take for another one.

    This is stricter than a module's options, since roles use the values as they are written: a text is not a list of its letters, and a
    version written without quotes (2.60) is a number that has lost its zero. Without ``strict`` a whole number is accepted as a text.
    """
    wanted, of_texts = option["type"], option.get("elements") == "str"
    if wanted == "list" and "choices" in option and isinstance(value, str):
        value = [word.strip() for word in value.split(",") if word.strip()]
    fits = {
        "bool": value is not None,
        "dict": isinstance(value, dict) and all(isinstance(key, str) for key in value),
        "float": value is not None and not isinstance(value, bool),
        "int": value is not None and not isinstance(value, (bool, float)),
        "list": isinstance(value, list) and (not of_texts or all(isinstance(entry, (str, int)) and not isinstance(entry, bool) for entry in value)),
        "raw": value is not None,
        "str": isinstance(value, str) or not strict and isinstance(value, int) and not isinstance(value, bool),
    }
    if not fits[wanted]:
        raise TypeError
    if of_texts:
        return [str(entry) for entry in value]
    return {"bool": check_type_bool, "float": check_type_float, "int": check_type_int, "list": list, "str": str}.get(wanted, lambda same: same)(value)


def _wrong_type(name: str, option: dict[str, t.Any], value: t.Any) -> Problem:
    expected = _WORDS[option["type"]] + (" of texts" if option.get("elements") == "str" else "")
    if value is None:
        return Problem("input.type", name, "has no value", expected, f"give {name} a value, or remove its line")
    kind = _kind(value)
    if isinstance(value, (list, dict)) and isinstance(value, _PYTHON.get(option["type"], ())):
        kind += " of more than texts" if isinstance(value, list) else " with names that are not texts"
    shown = "" if option.get("no_log") or isinstance(value, (bool, dict, list)) else f" '{short(value)}'"
    if option["type"] == "str" and not isinstance(value, (dict, list)):
        remedy = f'write it in quotes: {name}: "…"'
    elif option["type"] == "list" and isinstance(value, str):
        entries = _entries(value)
        remedy = f"write {name} as a list: {name}: [{', '.join(entries)}] (on the command line: -e '{json.dumps({name: entries})}')"
    elif option["type"] == "dict" and isinstance(value, str) and (pair := re.fullmatch(r"\s*-*([\w.-]+)[=: ]\s*(\S+)\s*", value)):
        # Typed as for a list of one entry.
        remedy = f"write {name} as a mapping, on the command line: -e '{json.dumps({name: {pair[1]: yaml_load(pair[2])}})}'"
    else:
        remedy = f"set {name} to {expected}"
    return Problem("input.type", name, f"is {kind}{shown}", expected, remedy, measured=kind)


def _entries(text: str) -> list[str]:
    """Return the entries for a text in place of a list: those of a list in JSON, as in ``-e NAME='["a"]'``, else the text itself."""
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = text
    return [short(entry) for entry in (parsed if isinstance(parsed, list) else [text])]


def _kind(value: t.Any) -> str:
    """Return the name of a YAML value's type."""
    if isinstance(value, bool):
        return str(value).lower()
    return next((word for types, word in _KINDS if isinstance(value, types)), f"a {type(value).__name__}")


def short(value: t.Any) -> str:
    """Return a value for a message: one line of limited length."""
    text = str(value).replace("\n", "\\n").replace("\0", "\\0")
    return text if len(text) <= 60 else f"{text[:57]}..."
