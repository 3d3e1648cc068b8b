# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failure signatures: the shipped tables, and those of users. This plugin util is PRIVATE to the collection.

A table is a YAML file with a list of signatures; docs/explain.md describes each field.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import pathlib
import re
import typing as t
from re import _parser as regex_parser  # the only way to know how a pattern repeats without running it

import yaml
from ansible.module_utils.common.yaml import yaml_load

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, Problem
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.log_lines import is_about_engine, is_quiet
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import schema

#: The directory of the shipped tables.
SHIPPED = pathlib.Path(__file__).with_name("signatures")
#: The id of all problems of a table.
ID = "input.signatures"
#: Ids of findings that are made here.
IDS = (ID,)

#: Number of lines before a line that are searched for ``after``, and that are kept as evidence.
TAIL_LINES = 20
#: Characters of a line in which a pattern is searched.
SEARCHED = 1000
#: A repetition that may be longer than this counts as open.
_LONG = 200
#: Open repetitions of almost any character that one alternative of a pattern may have: each multiplies the time that a hostile line takes.
_MOST_OPEN = 2

WRITERS = ("vllm", "ray", "nccl", "torch", "hub", "docker", "kernel", "user")
_SPEC: dict[str, t.Any] = {
    "type": "dict",
    "options": {
        "id": {"type": "str", "required": True},
        "where": {"type": "str", "choices": list(WRITERS), "default": "user"},
        "patterns": {"type": "list", "elements": "str", "required": True},
        "after": {"type": "str", "default": ""},
        "rank_scope": {"type": "str", "choices": ["cause", "echo"], "default": "cause"},
        "any_level": {"type": "bool", "default": False},
        "weak": {"type": "bool", "default": False},
        "general": {"type": "bool", "default": False},
        "of_peer": {"type": "bool", "default": False},
        "verdict": {"type": "str", "choices": ["block", "warn"], "default": "block"},
        "needs_reboot": {"type": "bool", "default": False},
        "cause": {"type": "str", "required": True},
        "consequence": {"type": "str", "required": True},
        "remedy": {"type": "str", "required": True},
        "source": {"type": "str", "required": True},
        "examples": {"type": "list", "elements": "str", "required": True},
        "harmless": {"type": "list", "elements": "str", "default": []},
    },
}
_NAME = re.compile(r"[a-z0-9]+(?:[-_.][a-z0-9]+)*\Z")


@dataclasses.dataclass(frozen=True)
class Signature:
    """One row of a table; docs/explain.md describes each field. A line without any of ``words`` cannot match; empty where they are unknown."""

    id: str
    where: str
    pattern: re.Pattern[str]
    words: tuple[str, ...]
    after: re.Pattern[str] | None
    rank_scope: str
    any_level: bool
    weak: bool
    general: bool
    of_peer: bool
    verdict: str
    needs_reboot: bool
    cause: str
    consequence: str
    remedy: str
    source: str
    examples: tuple[str, ...]
    harmless: tuple[str, ...]

    @property
    def names_cause(self) -> bool:
        """Whether one matching line is enough to explain why the engine cannot serve."""
        return self.verdict == "block" and self.rank_scope == "cause" and not self.weak

    def counts_when(self, quiet: bool) -> bool:
        """Return whether a line can match; ``quiet`` is true for a level below that of a failure."""
        return not quiet or self.verdict != "block" or self.any_level

    def answers(self, text: str) -> bool:
        """Return whether the last line of an example matches, with the other lines before it in the log."""
        *earlier, line = text.splitlines() or [""]
        return is_about_engine(line) and self.counts_when(is_quiet(line)) and self.is_in(line, earlier)

    def is_in(self, line: str, earlier: t.Iterable[str] = ()) -> bool:
        """Return whether a line matches; ``earlier`` are the lines just before it."""
        if self.words and not any(map(line.__contains__, self.words)):
            return False
        return bool(self.pattern.search(line, 0, SEARCHED)) and (self.after is None or any(self.after.search(previous, 0, SEARCHED) for previous in earlier))


class SignatureError(ClusterError):
    """Tables of signatures cannot be used; ``problems`` has the reasons."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("; ".join(map(str, problems)), remedy=problems[0].remedy, reason="signatures")
        self.problems = list(problems)


def _problem(where: str, what: str, expected: str = "", remedy: str = "") -> Problem:
    return Problem(ID, where, what, expected, remedy)


# -- the cost of a pattern -----------------------------------------------------------------------------------------------


def _open_repeats(parsed: t.Any) -> int:
    """Return the most open repetitions of almost any character in one alternative. Raises :class:`ValueError` for a pattern that may take forever."""
    return sum(_open_repeats_of(str(kind), argument) for kind, argument in parsed)


def _open_repeats_of(kind: str, argument: t.Any) -> int:
    if kind == "GROUPREF":
        raise ValueError("a reference to a group")
    if kind == "BRANCH":
        return max(map(_open_repeats, argument[1]))
    if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        dummy, most, repeated = argument
        inner = _open_repeats(repeated)
        if most < _LONG:
            return inner
        if _repeats(repeated):
            raise ValueError("an open repetition within another")
        return int(_is_wide(repeated))
    nested = argument if isinstance(argument, (tuple, list)) else ()
    return sum(_open_repeats(part) for part in nested if isinstance(part, regex_parser.SubPattern))


def _repeats(parsed: t.Any) -> bool:
    """Return whether anything in a part of a pattern is repeated more than once."""
    repeated = False
    for kind, argument in parsed:
        if str(kind).endswith("_REPEAT") and argument[1] > 1:
            return True
        parts = argument[1] if str(kind) == "BRANCH" else argument if isinstance(argument, (tuple, list)) else ()
        repeated = repeated or any(_repeats(part) for part in parts if isinstance(part, regex_parser.SubPattern))
    return repeated


def _is_wide(parsed: t.Any) -> bool:
    """Return whether a part of a pattern matches almost any character: ``.``, a negated set, or the opposite of a class."""
    return any(str(kind) in ("ANY", "NOT_LITERAL") or "NEGATE" in str(argument) or "NOT_" in str(argument) for kind, argument in parsed)


def pattern_trouble(pattern: str) -> str:
    """Return why a pattern cannot be used, empty when it can: its cost has to be limited for every line."""
    try:
        re.compile(f"(?:{pattern})")
        count = _open_repeats(regex_parser.parse(pattern))
    except re.error as error:
        return f"is not a regular expression: {error}"
    except ValueError as error:
        return f"may take forever: it has {error}"
    return f"may take too long: one alternative has {count} open repetitions, and at most {_MOST_OPEN} are bearable" if count > _MOST_OPEN else ""


def _word_of(pattern: str) -> str:
    """Return the longest text that every match contains, judged by the pattern's outermost level: a search for it costs much less."""
    runs = [""]
    for kind, argument in regex_parser.parse(pattern):
        if str(kind) == "LITERAL":
            runs[-1] += chr(argument)
        else:
            runs.append("")
    return max(runs, key=len)


# -- tables --------------------------------------------------------------------------------------------------------------


def read(path: pathlib.Path) -> tuple[list[Signature], list[Problem]]:
    """Return the signatures of one file, and its problems (without the file's name)."""
    try:
        rows = yaml_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        return [], [_problem("", f"cannot be read: {' '.join(str(error).split())}", "a YAML file")]
    if not isinstance(rows, list):
        return [], [_problem("", f"found {schema.found(rows)}", "a list of signatures")]
    judged = [_row(row, f"[{number}]") for number, row in enumerate(rows)]
    ids = collections.Counter(made.id for made, dummy in judged if made)
    twice = [_problem("", f"the id {id} stands on {count} signatures", "each id once") for id, count in ids.items() if count > 1]
    return [made for made, dummy in judged if made], [*(problem for dummy, problems in judged for problem in problems), *twice]


def _row(row: t.Any, where: str) -> tuple[Signature | None, list[Problem]]:
    """Return one signature, None when it cannot be used, and its problems."""
    filled, problems = schema.check(row, _SPEC, where)
    if problems:
        return None, [dataclasses.replace(problem, id=ID) for problem in problems]
    if not _NAME.match(filled["id"]):
        problems.append(_problem(f"{where}.id", f"found {schema.found(filled['id'])}", "lowercase letters and digits, with dashes between them"))
    problems += [_problem(f"{where}.{field}", "is empty", "at least one") for field in ("patterns", "examples") if not filled[field]]
    written = [(f"{where}.patterns[{number}]", pattern) for number, pattern in enumerate(filled["patterns"])] + [(f"{where}.after", filled["after"])]
    problems += [_problem(place, trouble) for place, pattern in written if (trouble := pattern_trouble(pattern))]
    if problems:
        return None, problems
    patterns = filled.pop("patterns")
    pattern, words = re.compile("|".join(f"(?:{alternative})" for alternative in patterns)), tuple(map(_word_of, patterns))
    after = re.compile(filled["after"]) if filled["after"] else None
    lists = {field: tuple(filled[field]) for field in ("examples", "harmless")}
    made = Signature(**{**filled, **lists, "pattern": pattern, "words": words if all(words) else (), "after": after})
    return made, [
        _problem(f"{where}.{field}[{number}]", f"found a line that the signature {'does not answer' if wanted else 'answers'}")
        for field, wanted in (("examples", True), ("harmless", False))
        for number, text in enumerate(lists[field])
        if made.answers(text) != wanted
    ]


@functools.cache
def shipped() -> tuple[Signature, ...]:
    """Return the collection's own signatures. Raises :class:`SignatureError`."""
    return _from_files(sorted(SHIPPED.glob("*.yml")))


def load(directories: t.Iterable[str], roots: t.Sequence[pathlib.Path] = ()) -> tuple[Signature, ...]:
    """Return the signatures in these directories on the controller, then the shipped ones. Raises :class:`SignatureError`.

    Relative directories are resolved against ``roots``. Of two signatures with the same id, the first one counts.
    """
    files: list[pathlib.Path] = []
    for name in directories:
        path = pathlib.Path(name).expanduser()
        candidates = [path] if path.is_absolute() else [root / path for root in roots or [pathlib.Path.cwd()]]
        directory = next((candidate for candidate in candidates if candidate.is_dir()), None)
        if directory is None:
            raise SignatureError(
                _problem("gb10_signature_dirs", f"no directory {' or '.join(map(str, candidates))} on the controller", remedy="correct gb10_signature_dirs")
            )
        files += sorted([*directory.glob("*.yml"), *directory.glob("*.yaml")])
    own = _from_files(files)
    known = {row.id for row in own}
    return _in_order((*own, *(row for row in shipped() if row.id not in known)))


def _in_order(rows: t.Iterable[Signature]) -> tuple[Signature, ...]:
    """Return signatures in the order in which they are tried on a line: the more specific ones first."""
    return tuple(sorted(rows, key=lambda row: (row.rank_scope == "echo", row.weak, row.general)))


def _from_files(paths: t.Iterable[pathlib.Path]) -> tuple[Signature, ...]:
    """Return the signatures of all files; of one id the first counts. Raises :class:`SignatureError` with the problems of all."""
    rows: dict[str, Signature] = {}
    wrong: list[Problem] = []
    for path in paths:
        made, problems = read(path)
        wrong += [dataclasses.replace(problem, where=f"{path}{problem.where}", remedy=problem.remedy or f"correct {path}") for problem in problems]
        for row in made:
            rows.setdefault(row.id, row)
    if wrong:
        raise SignatureError(*wrong)
    return _in_order(rows.values())
