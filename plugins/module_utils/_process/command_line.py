# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a command line runs, and with which options. This module util is PRIVATE to the collection."""

from __future__ import annotations

import math
import os
import re
import typing as t

#: Programs that run what their first argument names.
_RUNNER = re.compile(r"^(?:(?:python|pypy)[\d.]*t?|uvicorn|gunicorn|hypercorn|fastapi|torchrun|accelerate|flask)$")
#: Options of Python's interpreter that take a word.
_WITH_VALUE = ("-W", "-X")

#: Short options of vLLM and SGLang that matter here.
_SHORT = {"-tp": "tensor-parallel-size", "-pp": "pipeline-parallel-size", "-dp": "data-parallel-size", "-n": "nnodes", "-r": "node-rank"}
#: Other names of the same option.
_ALIASES = {"tp-size": "tensor-parallel-size", "pp-size": "pipeline-parallel-size", "dp-size": "data-parallel-size"}
_OPTION = re.compile(r"^--(?P<name>[A-Za-z][\w.-]*)(?:=(?P<value>.*))?$", re.DOTALL)


def split(argv: t.Sequence[str]) -> tuple[list[str], list[str]]:
    """Return (interpreters and their options, what they run). Of ``-m MODULE`` the module is what runs; ``-c CODE`` stays as it is.

    A program that made its command line its title has all words in one argument.
    """
    words = argv[0].split() if len(argv) == 1 else list(argv)
    at = 0
    while at < len(words) and _RUNNER.match(os.path.basename(words[at])):
        at += 1
        while at < len(words) and words[at].startswith("-") and words[at] != "-c":
            at += 2 if words[at] in _WITH_VALUE else 1
    return words[:at], words[at:]


def run_words(argv: t.Sequence[str]) -> list[str]:
    """Return what a command line runs, without its interpreter."""
    return split(argv)[1]


def options(words: t.Sequence[str]) -> dict[str, str]:
    """Return the long options of a command line by name (with dashes), their words joined by blanks, a flag as empty text.

    The words before the first option are under ``""``. A word after an option counts as its value, since which options take none is the
    engine's own knowledge.
    """
    by_name: dict[str, list[str]] = {"": []}
    name = ""
    for word in words:
        match = _OPTION.match(word)
        if match or word in _SHORT:
            name = match["name"].replace("_", "-") if match else _SHORT[word]
            name = _ALIASES.get(name, name)
            by_name[name] = [match["value"]] if match and match["value"] is not None else []
        else:
            by_name[name].append(word)
    return {name: " ".join(values) for name, values in by_name.items()}


def ranks(argv: t.Sequence[str]) -> int:
    """Return how many ranks a command line of vLLM's spreads a model over."""
    words = options(run_words(argv))
    return math.prod(whole_number(words.get(f"{name}-parallel-size")) or 1 for name in ("tensor", "pipeline"))


def whole_number(text: str | None) -> int | None:
    """Return a whole number of a command line, None when there is none."""
    return int(text) if text is not None and re.fullmatch(r"\d{1,9}", text) else None
