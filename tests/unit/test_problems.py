# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Problems are passed on as fields: no code parses this collection's messages, and each finding's id is made in one file."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs import finding_ids

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = sorted((ROOT / "plugins").rglob("*.py"))

#: Keys and attributes with this collection's texts for people.
TEXTS = {"msg", "message", "remedy", "what"}
#: Methods that parse or search a text. `split` without arguments, `strip` and `format` only lay it out.
READERS = {"split", "rsplit", "partition", "rpartition", "startswith", "endswith", "replace", "find", "index", "count", "removeprefix", "removesuffix"}
PATTERNS = {"search", "match", "fullmatch", "split", "sub", "findall", "finditer"}


def own_errors() -> set[str]:
    """The names of all exceptions that the collection defines."""
    classes = [node for path in PLUGINS for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ClassDef)]
    own: set[str] = set()
    while True:
        more = {node.name for node in classes for base in node.bases if getattr(base, "attr", getattr(base, "id", "")) in {"Exception", *own}}
        if more <= own:
            return own
        own |= more


OWN = own_errors()


class Reader(ast.NodeVisitor):
    """Finds where a function parses a message, a remedy or the text of one of the collection's exceptions."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int]] = []
        self._function = ""
        self._texts: set[str] = set()
        self._errors: set[str] = set()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        before = self._function, set(self._texts), set(self._errors)
        self._function = node.name
        self.generic_visit(node)
        self._function, self._texts, self._errors = before

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        types = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        if node.name and OWN & {getattr(error_type, "attr", getattr(error_type, "id", "")) for error_type in types}:
            self._errors.add(node.name)
        self.generic_visit(node)
        self._errors.discard(node.name or "")

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, ast.Name):
                (self._texts.add if self._is_text(node.value) else self._texts.discard)(target.id)

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        if any(isinstance(operator, (ast.In, ast.NotIn, ast.Eq, ast.NotEq)) for operator in node.ops) and any(map(self._is_text, operands)):
            self.found.append((self._function, node.lineno))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute):
            reads = node.func.attr in READERS and node.args and self._is_text(node.func.value)
            matches = node.func.attr in PATTERNS and any(map(self._is_text, node.args))
            if reads or matches:
                self.found.append((self._function, node.lineno))
        self.generic_visit(node)

    def _is_text(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self._texts
        if isinstance(node, ast.Attribute):
            return node.attr in TEXTS - {"what"} or node.attr == "what" and isinstance(node.value, ast.Name) and node.value.id in self._errors
        if isinstance(node, ast.Subscript):
            return isinstance(node.slice, ast.Constant) and node.slice.value in TEXTS - {"what"} or self._is_text(node.value)
        if isinstance(node, ast.Call):
            return self._is_call_for_text(node)
        return False

    def _is_call_for_text(self, node: ast.Call) -> bool:
        named = isinstance(node.func, ast.Name) and node.func.id in ("str", "repr") and len(node.args) == 1
        if named:
            return isinstance(node.args[0], ast.Name) and node.args[0].id in self._errors or self._is_text(node.args[0])
        if not isinstance(node.func, ast.Attribute):
            return False
        if node.func.attr == "get" and node.args:
            return isinstance(node.args[0], ast.Constant) and node.args[0].value in TEXTS - {"what"}
        return node.func.attr in ("lower", "strip", "rstrip", "casefold") and self._is_text(node.func.value)


def looks_into_texts(source: str) -> list[tuple[str, int]]:
    reader = Reader()
    reader.visit(ast.parse(source))
    return reader.found


@pytest.mark.parametrize("path", PLUGINS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_code_parses_the_collections_texts(path):
    places = looks_into_texts(path.read_text(encoding="utf-8"))
    assert places == [], "hand the information over as a field of the error or the finding"


@pytest.mark.parametrize(
    "line",
    [
        'if "is not running" in str(error): pass',
        "text = str(error)\n        text.partition(': ')",
        're.split("a", str(error))',
        "str(error).removeprefix('x')",
        "finding['message'].startswith('x')",
        "finding.get('remedy') == 'x'",
        "result['msg'].strip().splitlines()[-1].split(': ')",
        "error.what.split(':')",
    ],
)
def test_what_takes_a_text_apart_is_seen(line):
    source = f"def f():\n    try:\n        pass\n    except ClusterError as error:\n        {line}\n"
    if "splitlines" in line:
        source = source.replace(".strip().splitlines()[-1]", "")
    assert len(looks_into_texts(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    pass\nexcept OSError as error:\n    'x' in str(error)",
        "except_ = finding['message'] + str(1)",
        "words = ' '.join(result['msg'].split())",
        "entry['section'].startswith('x')",
    ],
)
def test_what_lays_a_text_out_is_not(source):
    assert looks_into_texts(source) == []


# --- Jinja --------------------------------------------------------------------------------------------------------------------

_NAMED = r"(?:\.|\[')(?:msg|message|remedy)(?:'\])?"
#: A text that is passed to a filter or a method that parses it, and one that is compared or searched.
JINJA = re.compile(
    rf"{_NAMED}[^}}]*?(?:\|\s*regex_\w+|\.(?:split|splitlines|partition|startswith|endswith|replace|find)\(|\s(?:is\s+)?(?:match|search|regex|contains)\b)"
    rf"|\sin\s+[\w.\[\]']*{_NAMED}|{_NAMED}\s*[=!]=|selectattr\('(?:msg|message|remedy)'"
)
#: Tasks whose `msg` is another program's text: the file, and the program.
FOREIGN_TASKS = {
    # The output of the downloading container.
    "roles/engine/tasks/model_download.yml",
    # Core's slurp, about a file that is not there.
    "roles/companions/tasks/down.yml",
}


def jinja_files() -> list[Path]:
    return sorted(path for part in ("roles", "playbooks") for end in ("yml", "j2") for path in (ROOT / part).rglob(f"*.{end}") if "meta" not in path.parts)


def test_no_template_parses_the_collections_texts():
    matches = {str(path.relative_to(ROOT)): match.group() for path in jinja_files() if (match := JINJA.search(path.read_text(encoding="utf-8")))}
    assert {name: text for name, text in matches.items() if name not in FOREIGN_TASKS} == {}


@pytest.mark.parametrize(
    "text",
    [
        "{{ a.msg | regex_search('x') }}",
        "{{ a['msg'].split(':') }}",
        "when: \"'x' in a.msg\"",
        "when: a.remedy == 'x'",
        "{{ all | selectattr('message', 'eq', 'x') }}",
    ],
)
def test_a_template_that_does_is_seen(text):
    assert JINJA.search(text)


# --- ids ----------------------------------------------------------------------------------------------------------------------

_ID = re.compile(r"[a-z_]+\.[a-z_]+\Z")
#: Ids of findings that never stop: they never warn, or are made about logs and recipes, where no setting silences anything.
NEVER_STOP = {
    "cuda_zombie.none", "explain.cut", "explain.unread", "import.changed", "import.dropped", "import.refused", "import.taken", "model.complete",
    "models.absent", "models.could_go",
}  # fmt: skip


def rules() -> list[dict]:
    tables = ROOT / "plugins" / "plugin_utils" / "_rules"
    return [row for name in ("rules.yml", "doctor.yml") for row in yaml.safe_load((tables / name).read_text(encoding="utf-8"))["rules"]]


def made_ids(source: str) -> set[str]:
    """The ids in calls that make findings or pass an id to such a call: the first argument in the form of an id."""
    makers = {"finding", "_blind", "Check", "Problem", "partial", "whole", "Form", "env_of", "env_problems", "serve_problems", "tuning_problems"}
    tree, ids = ast.parse(source), set()
    constants = {node.targets[0].id: node.value for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)}
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and getattr(call.func, "attr", getattr(call.func, "id", "")) in makers:
            given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "id")]
            given = [constants.get(part.id, part) if isinstance(part, ast.Name) else part for part in given]
            words = [part.value for part in given if isinstance(part, ast.Constant) and isinstance(part.value, str)]
            ids |= set([word for word in words if _ID.match(word)][:1])
    return ids


def made_by_file() -> dict[str, set[str]]:
    by_file = {str(path.relative_to(ROOT / "plugins")): made_ids(path.read_text(encoding="utf-8")) for path in PLUGINS}
    return {name: ids for name, ids in by_file.items() if ids}


def doubles(made: dict[str, set[str]]) -> dict[str, list[str]]:
    """Ids that more than one file makes. A rule that passes on what a module reported is not its maker."""
    places = {**made, "the tables of rules": {row["id"] for row in rules() if row["check"] != "reported"}}
    names = {id for ids in places.values() for id in ids}
    return {id: where for id in sorted(names) if len(where := [place for place, ids in places.items() if id in ids]) > 1}


def test_each_id_is_made_in_one_file():
    assert doubles(made_by_file()) == {}
    ids = [row["id"] for row in rules()]
    assert len(ids) == len(set(ids))


def test_an_id_that_is_made_twice_is_seen():
    made = {"a.py": made_ids('finding("image.same", node)'), "b.py": made_ids('Problem(id="input.port")'), "c.py": made_ids('x.finding("input.port")')}
    assert doubles(made) == {"image.same": ["a.py", "the tables of rules"], "input.port": ["b.py", "c.py"]}


def test_what_is_made_is_known_and_what_is_known_is_made():
    """So that it can be silenced. A module that makes a finding lists its id in its table `IDS`."""
    made = set().union(*made_by_file().values())
    of_rules = {row["id"] for row in rules()}
    assert made - NEVER_STOP - finding_ids.known_ids() == set()
    assert finding_ids.known_ids() - of_rules - made == set()
