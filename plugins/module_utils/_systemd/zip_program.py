# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs of the collection as one file that a node's Python runs. This module util is PRIVATE to the collection.

The same sources give the same bytes, so that a node is known to have a program by comparing them.
"""

from __future__ import annotations

import ast
import importlib.util
import io
import os
import typing as t
import zipfile

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState

#: Where the collection keeps what its modules import.
OWN = "ansible_collections.gb10.cluster.plugins.module_utils"


#: What every file of an archive is dated to.
_DATE = (2026, 1, 1, 0, 0, 0)


class Source(t.NamedTuple):
    """A Python file: its text, and whether it is a package's ``__init__``."""

    text: str
    package: bool


def _source(name: str) -> Source | None:
    """Return the source of a module, None when there is none of that name, or when it is a package without any."""
    try:
        spec = importlib.util.find_spec(name)
    except (ModuleNotFoundError, ValueError):
        return None
    if spec is None or spec.loader is None:
        return None
    text = t.cast(t.Any, spec.loader).get_source(name)
    return Source(text, spec.submodule_search_locations is not None) if text is not None else None


def imported(name: str, source: Source) -> t.Iterator[str]:
    """Yield the names that a module imports, whether they are modules or what modules hold."""
    for node in ast.walk(ast.parse(source.text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = name.split(".")
                # One dot is the package that a module lies in, and a package itself.
                above = parts[: len(parts) - node.level + source.package]
                base = ".".join([*above, *([base] if base else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def sources(names: t.Iterable[str], prefixes: t.Sequence[str] = (OWN,)) -> dict[str, Source]:
    """Return modules with all below ``prefixes`` that they import, and the packages that they lie in, by name.

    Raises :class:`UnknownState` when one of ``names`` has no source.
    """
    roots = list(names)
    found: dict[str, Source] = {}
    seen: set[str] = set()
    wanted = list(roots)
    while wanted:
        one = wanted.pop()
        if one in seen:
            continue
        seen.add(one)
        source = _source(one)
        if source is None:
            if one in roots:
                raise UnknownState(f"there is no source of {one}", remedy="Install the collection and ansible-core again.", reason="no source")
            continue
        found[one] = source
        below = [*imported(one, source), one]
        # A package is imported before what lies in it. Those above the prefixes are left empty.
        below += [".".join(name.split(".")[:depth]) for name in below for depth in range(1, name.count(".") + 1)]
        wanted += [name for name in below if any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)]
    return found


def pack(main: str, found: t.Mapping[str, Source]) -> bytes:
    """Return an archive that Python runs: ``main`` is its first file, ``found`` are its modules by name."""
    files = {"__main__.py": main}
    for name, source in found.items():
        path = name.replace(".", "/")
        files[f"{path}/__init__.py" if source.package else f"{path}.py"] = source.text
    for path in list(files):
        while path := os.path.dirname(path):
            files.setdefault(f"{path}/__init__.py", "")
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as packed:
        for path in sorted(files):
            about = zipfile.ZipInfo(path, _DATE)
            about.external_attr = 0o644 << 16
            packed.writestr(about, files[path])
    return content.getvalue()
