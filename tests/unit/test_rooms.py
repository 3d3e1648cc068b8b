# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The dependencies between the rooms of plugins/: no folders that need each other, and no name in too many folders."""

from __future__ import annotations

import ast
import graphlib
import typing as t
from pathlib import Path

import pytest

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
NAMESPACE = "ansible_collections.gb10.cluster.plugins"
FILES = {f"{NAMESPACE}.{'.'.join(path.relative_to(PLUGINS).with_suffix('').parts)}": path for path in sorted(PLUGINS.rglob("*.py"))}

MOST_FOLDERS = 2
#: Names that may be in more folders, and why.
EVERYWHERE: dict[str, str] = {}
#: Lines that a file has at most. Of a module its documentation does not count.
LONGEST = 500
#: Files that may be longer, and why.
LONG = {"module_utils/_launcher/launcher.py": "a program that travels as source, as one file"}


def imported(tree: ast.Module) -> t.Iterator[str]:
    """Yield the files of plugins/ that one of them imports, by their dotted names."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        yield from (name for name in names if name in FILES)


def room(name: str) -> str:
    """Return the folder of a file below module_utils or plugin_utils; a file without one is its own room."""
    return name.removeprefix(f"{NAMESPACE}.").split(".")[1]


def arrows(top: str) -> dict[str, dict[str, str]]:
    """Return for each room below ``top`` the other ones that it imports, each with a file that does."""
    inside = f"{NAMESPACE}.{top}."
    edges: dict[str, dict[str, str]] = {}
    for name, path in FILES.items():
        if name.startswith(inside):
            needed = [other for other in imported(ast.parse(path.read_text(encoding="utf-8"))) if other.startswith(inside)]
            edges.setdefault(room(name), {}).update({room(other): name.removeprefix(inside) for other in needed if room(other) != room(name)})
    return edges


def ring(graph: t.Mapping[str, t.Collection[str]]) -> list[str]:
    """Return rooms that need each other in a circle, empty when there are none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("top", ["module_utils", "plugin_utils"])
def test_rooms_form_no_ring(top: str) -> None:
    edges = arrows(top)
    # The sorter gets what each room needs, and lists a ring against the arrows.
    around = ring(edges)[::-1]
    assert [f"{importer} -> {other} ({edges[importer][other]})" for importer, other in zip(around, around[1:])] == []


def test_a_ring_is_found() -> None:
    assert set(ring({"docker": ["process"], "process": ["engine"], "engine": ["docker", "files"], "files": []})) == {"docker", "process", "engine"}
    assert ring({"docker": ["process", "files"], "process": ["files"]}) == []


def test_a_name_stands_in_at_most_two_folders() -> None:
    folders: dict[str, set[str]] = {}
    for path in FILES.values():
        # Ansible finds a module's action plugin by the name that both have.
        folders.setdefault(path.stem, set()).add(str(path.parent.relative_to(PLUGINS)).replace("action", "modules"))
    assert {name: sorted(places) for name, places in folders.items() if len(places) > MOST_FOLDERS and name not in EVERYWHERE} == {}
    assert [name for name in EVERYWHERE if len(folders.get(name, ())) <= MOST_FOLDERS] == [], "no exception is needed for these any more"


def test_no_file_is_too_long() -> None:
    lengths = {}
    for path in FILES.values():
        text = path.read_text(encoding="utf-8")
        # Everything before a module's first import is its documentation.
        of_docs = text.index("\nimport ") if "DOCUMENTATION = r" in text and "\nimport " in text else 0
        lengths[str(path.relative_to(PLUGINS))] = text[of_docs:].count("\n")
    assert {name for name, lines in lengths.items() if lines > LONGEST} == set(LONG)
