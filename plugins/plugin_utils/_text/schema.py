# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judging data read from YAML against a schema. This plugin util is PRIVATE to the collection.

A schema is written like an Ansible argument spec (``type``, ``required``, ``default``, ``choices``, ``elements``, ``options``), with
two more words: ``values`` describes each value of a mapping whose keys are free, and ``literal`` is a word that may take the
place of the whole value. Other than an argument spec it converts nothing (YAML has types), and every problem names its field by
its whole path, what was found there and what was expected.
"""

from __future__ import annotations

import copy
import difflib
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import Problem

Spec = dict[str, t.Any]

#: What is wrong with a profile has this id, whichever field it is about.
ID = "input.profile"
#: Ids of findings that are made here.
IDS = (ID,)

TYPES: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,), "list": (list,), "dict": (dict,)}
EXPECTED = {"str": "a string", "int": "a whole number", "float": "a number", "bool": "true or false", "list": "a list", "dict": "a mapping"}

#: What a YAML file may hold anywhere: a date, for one, has no place in an argument or a variable.
PLAIN = (str, int, float, bool, list, dict, type(None))

#: How much of two words without their common prefix has to be the same, from 0 to 1.
_CLOSE = 0.75

#: Characters of a found value that a message shows.
SHOWN = 60


def problem(where: str, what: str, expected: str = "", remedy: str = "") -> Problem:
    """Return what is wrong with a profile, or with the choice of one."""
    return Problem(ID, where, what, expected, remedy)


def check(value: t.Any, spec: Spec, path: str = "") -> tuple[t.Any, list[Problem]]:
    """Return ``value`` with every default filled in, and its problems.

    The value is a copy. It is only fit for use when there are no problems.
    """
    if value is None:
        if spec.get("required"):
            return None, [problem(path, "is missing", expected(spec))]
        if spec["type"] != "dict" or "options" not in spec:
            return copy.deepcopy(spec.get("default")), []
        value = {}
    if "literal" in spec and value == spec["literal"]:
        return value, []
    kind = spec["type"]
    if not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "bool"):
        return value, [problem(path or "the file", f"found {found(value)}", expected(spec))]
    if "choices" in spec and kind != "list" and value not in spec["choices"]:
        return value, [problem(path, f"found {found(value)}", f"{expected(spec)}{near(value, spec['choices'])}")]
    checks = {"list": _check_list, "dict": _check_dict}
    return checks[kind](value, spec, path) if kind in checks else (value, [])


def _check_list(value: list[t.Any], spec: Spec, path: str) -> tuple[list[t.Any], list[Problem]]:
    """Check each element; their paths end in ``[INDEX]``."""
    element = {"type": spec["elements"], "required": True, **{key: spec[key] for key in ("options", "choices") if key in spec}}
    checked = [check(item, element, f"{path}[{index}]") for index, item in enumerate(value)]
    return [item for item, _wrong in checked], [one for _item, wrong in checked for one in wrong]


def _check_dict(value: dict[t.Any, t.Any], spec: Spec, path: str) -> tuple[dict[str, t.Any], list[Problem]]:
    """Check a mapping: of known fields (``options``), of alike values (``values``), or free."""
    strange = [key for key in value if not isinstance(key, str)]
    wrong = [problem(path or "the file", f"the key {key!r} is {kind_of(key)}", "a name, in quotes if need be") for key in strange]
    if wrong:
        return value, wrong
    options = spec.get("options")
    if options is None and "values" not in spec:
        return copy.deepcopy(value), _plain(value, path)
    fields = options if options is not None else dict.fromkeys(value, {"required": True, **spec["values"]})
    result: dict[str, t.Any] = {}
    known = f"one of {', '.join(fields)}"
    problems = [problem(_join(path, key), f"is not a known field{near(key, fields)}", known) for key in value if key not in fields]
    for key, field in fields.items():
        result[key], more = check(value.get(key), field, _join(path, key))
        problems += more
    return result, problems


def _plain(value: t.Any, path: str) -> list[Problem]:
    """Problems of a free value: what YAML can write but neither JSON nor a command line can hold."""
    if isinstance(value, dict):
        return [one for key, item in value.items() for one in _plain(item, _join(path, str(key)))]
    if isinstance(value, list):
        return [one for index, item in enumerate(value) for one in _plain(item, f"{path}[{index}]")]
    return [] if isinstance(value, PLAIN) else [problem(path, f"found {found(value)}", "a string, a number, true or false, a list or a mapping")]


def expected(spec: Spec) -> str:
    """What a field may hold, in words."""
    words = EXPECTED[spec["type"]]
    if "choices" in spec and spec["type"] != "list":
        words = f"one of {', '.join(str(choice) for choice in spec['choices'])}"
    return f"{words}, or the word {spec['literal']}" if "literal" in spec else words


def found(value: t.Any) -> str:
    """A value as a message shows it: what it is, and its beginning."""
    text = str(value) if not isinstance(value, str) else f"'{value}'"
    return f"{text if len(text) <= SHOWN else text[:SHOWN] + '…'} ({kind_of(value)})"


def near(word: t.Any, known: t.Iterable[t.Any], prefix: str = "") -> str:
    """`` (did you mean 'x'?)`` when a known word is close, or ``'x' or 'y'`` when two are equally close. A ``prefix`` that all have makes no two close."""
    typed = str(word).removeprefix(prefix)
    close = difflib.get_close_matches(typed, dict.fromkeys(str(item).removeprefix(prefix) for item in known), n=2, cutoff=_CLOSE if prefix else 0.6)
    ratios = [difflib.SequenceMatcher(a=one, b=typed).ratio() for one in close]
    names = " or ".join(f"'{prefix}{one}'" for one, ratio in zip(close, ratios, strict=True) if ratio == ratios[0])
    return f" (did you mean {names}?)" if close else ""


def kind_of(value: t.Any) -> str:
    """The name of a value's type in words."""
    names = {"str": "a string", "int": "a whole number", "float": "a number", "bool": "a boolean", "list": "a list", "dict": "a mapping", "NoneType": "nothing"}
    return names.get(type(value).__name__, f"a {type(value).__name__}")


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
