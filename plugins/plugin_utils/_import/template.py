# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fills in the placeholders of a recipe's command: ``{name}``. This plugin util is PRIVATE to the collection.

Launchers use str.format and the like. Here only a value's text is inserted, and none of its attributes can be accessed.
A doubled brace means one brace in eugr's files and is literal in sparkrun's. Which of the two applies depends on the word
that contains it, so it is kept as a special character until then.
"""

from __future__ import annotations

import json
import re
import typing as t

#: A doubled brace.
OPEN, CLOSE = "\ue000", "\ue001"
#: Marks around a name without a value: an argument that the collection sets itself does not need one.
NO_VALUE, NO_VALUE_END = "\ue002", "\ue003"

_BRACES = re.compile(r"\{\{|\}\}|(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")
_MISSING = re.compile(f"{NO_VALUE}([^{NO_VALUE_END}]*){NO_VALUE_END}")
#: The largest depth to which values may refer to each other.
_DEEPEST = 10


class Filled(t.NamedTuple):
    """A text with its placeholders filled in, and the names that it used."""

    text: str
    used: set[str]


def missing(name: str) -> str:
    """Return the mark of a placeholder or variable without a value."""
    return f"{NO_VALUE}{name}{NO_VALUE_END}"


def missing_names(text: str) -> list[str]:
    """Return the names in a text that have no value, as they were written."""
    return _MISSING.findall(text)


def without_missing(text: str) -> str:
    """Return a text without the names that have no value."""
    return _MISSING.sub("", text)


def as_written(text: str) -> str:
    """Return a text for messages: with the names of missing values, and braces as in the file."""
    return _MISSING.sub(r"\1", text).replace(OPEN, "{{").replace(CLOSE, "}}")


def spellings(word: str, doubled_first: bool) -> list[str]:
    """Return the possible meanings of a word with doubled braces, the likelier first: with ``doubled_first`` that is one brace, else two."""
    both = [word.replace(OPEN, "{").replace(CLOSE, "}"), word.replace(OPEN, "{{").replace(CLOSE, "}}")]
    return list(dict.fromkeys(both if doubled_first else reversed(both)))


def text_of(value: t.Any) -> str:
    """Return a value as a launcher puts it into the command."""
    return json.dumps(value) if isinstance(value, (dict, list)) else str(value)


def fill(text: str, values: t.Mapping[str, t.Any]) -> Filled:
    """Fill in the placeholders; a value may contain others."""
    used: set[str] = set()

    def inner(part: str, depth: int) -> str:
        def value_of(match: re.Match[str]) -> str:
            if match[1] is None:
                return OPEN if match[0] == "{{" else CLOSE
            if match[1] not in values or values[match[1]] is None or depth > _DEEPEST:
                return missing(match[0])
            used.add(match[1])
            # Braces in a value stay as they are: only its placeholders are filled in.
            placeholder = _BRACES.pattern.rpartition("|")[2]
            return re.sub(placeholder, lambda nested: inner(nested[0], depth + 1) if nested[1] in values else nested[0], text_of(values[match[1]]))

        return _BRACES.sub(value_of, part)

    return Filled(inner(text, 0), used)
