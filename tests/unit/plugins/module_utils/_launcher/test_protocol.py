# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The launcher imports nothing else of the collection, and uses the same words as the host."""

from __future__ import annotations

import ast
import pathlib
import sys

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._launcher import launcher, protocol

PLUGINS = pathlib.Path(__file__).resolve().parents[5] / "plugins"


def imported(path):
    """Return the full names of what a file imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("name", ["MARK", "HOLDS", "RUN_KEYS"])
def test_host_and_launcher_agree(name):
    assert getattr(launcher, name) == getattr(protocol, name)


def test_the_launcher_needs_the_standard_library_alone():
    assert {name.partition(".")[0] for name in imported(pathlib.Path(launcher.__file__))} <= sys.stdlib_module_names


def test_only_what_ships_the_launcher_imports_it():
    users = [path.relative_to(PLUGINS) for path in PLUGINS.rglob("*.py") if any(name.endswith("_launcher.launcher") for name in imported(path))]
    assert users == [pathlib.Path("module_utils/_engine/launch.py")]
