# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validation of data read from YAML against a schema. This plugin util is PRIVATE to the collection.

A schema is written like an Ansible argument spec (``type``, ``required``, ``default``, ``choices``, ``elements``, ``options``), with two more keys:
``values`` describes each value of a mapping with arbitrary keys, and ``literal`` is a string that is allowed in place of the value. Unlike an argument spec
it converts nothing (YAML has types). Every problem names the full path of its field, the value there and the expected one.
"""

from __future__ import annotations

import copy
import difflib
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import Problem

Spec = dict[str, t.Any]

#: Id of all problems of a profile, whatever their field.
ID = "input.profile"
#: Ids of the findings of this file.
IDS = (ID,)

TYPES: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,), "list": (list,), "dict": (dict,)}
EXPECTED = {"str": "a string", "int": "a whole number", "float": "a number", "bool": "true or false", "list": "a list", "dict": "a mapping"}

#: Types that are allowed anywhere in a YAML file. A date, for example, cannot be an argument or a variable.
PLAIN = (str, int, float, bool, list, dict, type(None))

#: Minimum similarity of two words without their common prefix, from 0 to 1.
_CLOSE = 0.75

#: Characters of a found value that a message shows.
SHOWN = 60


def problem(where: str, what: str, expected: str = "", remedy: str = "") -> Problem:
    """Return a problem of a profile, or of the choice of one."""
    return Problem(ID, where, what, expected, remedy)


def check(value: t.Any, spec: Spec, path: str = "") -> tuple[t.Any, list[Problem]]:
    """Return ``value`` with every default filled in, and its problems.

    The value is a copy. It is valid only without problems.
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
    return [item for item, _wrong in checked], [issue for _item, wrong in checked for issue in wrong]


def _check_dict(value: dict[t.Any, t.Any], spec: Spec, path: str) -> tuple[dict[str, t.Any], list[Problem]]:
    """Check a mapping with known fields (``options``), with values of one kind (``values``), or with any content."""
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
    """Return the problems of a value without a schema: types that YAML has, but neither JSON nor a command line."""
    if isinstance(value, dict):
        return [issue for key, item in value.items() for issue in _plain(item, _join(path, str(key)))]
    if isinstance(value, list):
        return [issue for index, item in enumerate(value) for issue in _plain(item, f"{path}[{index}]")]
    return [] if isinstance(value, PLAIN) else [problem(path, f"found {found(value)}", "a string, a number, true or false, a list or a mapping")]


def expected(spec: Spec) -> str:
    """Return the expected value of a field in words."""
    words = EXPECTED[spec["type"]]
    if "choices" in spec and spec["type"] != "list":
        words = f"one of {', '.join(str(choice) for choice in spec['choices'])}"
    return f"{words}, or the word {spec['literal']}" if "literal" in spec else words


def found(value: t.Any) -> str:
    """Return a value as messages show it: the beginning of its text, and its type."""
    text = str(value) if not isinstance(value, str) else f"'{value}'"
    return f"{text if len(text) <= SHOWN else text[:SHOWN] + '…'} ({kind_of(value)})"


def near(word: t.Any, known: t.Iterable[t.Any], prefix: str = "") -> str:
    """Return `` (did you mean 'x'?)`` for a similar known word, with ``'x' or 'y'`` when two are equally similar. A common ``prefix`` does not count as
    similarity."""
    typed = str(word).removeprefix(prefix)
    close = difflib.get_close_matches(typed, dict.fromkeys(str(item).removeprefix(prefix) for item in known), n=2, cutoff=_CLOSE if prefix else 0.6)
    ratios = [difflib.SequenceMatcher(a=candidate, b=typed).ratio() for candidate in close]
    names = " or ".join(f"'{prefix}{candidate}'" for candidate, ratio in zip(close, ratios, strict=True) if ratio == ratios[0])
    return f" (did you mean {names}?)" if close else ""


def kind_of(value: t.Any) -> str:
    """Return the name of a value's type in words."""
    names = {"str": "a string", "int": "a whole number", "float": "a number", "bool": "a boolean", "list": "a list", "dict": "a mapping", "NoneType": "nothing"}
    return names.get(type(value).__name__, f"a {type(value).__name__}")


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
