# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules for every file of the repository, and lists that must agree with the files they list."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("awx", "meta", "playbooks", "plugins", "roles")
OWN_CODE = (*SHIPPED, "bench", "molecule", "tests")


def files(directories: tuple[str, ...], *suffixes: str) -> list[Path]:
    """Return the files with these suffixes under the directories of the repository that exist."""
    return sorted(
        path for directory in directories for path in (ROOT / directory).rglob("*")
        if path.suffix in suffixes and path.is_file() and "__pycache__" not in path.parts
    )


def name_of(path: Path) -> str:
    """Return a path as seen from the repository's root."""
    return str(path.relative_to(ROOT))


def test_the_two_lists_of_dependencies_agree() -> None:
    galaxy = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))
    requirements = yaml.safe_load((ROOT / "collections" / "requirements.yml").read_text(encoding="utf-8"))
    assert {entry["name"]: entry["version"] for entry in requirements["collections"]} == galaxy["dependencies"]


@pytest.mark.parametrize("path", [*files(OWN_CODE, ".py", ".sh"), ROOT / ".ci" / "run", ROOT / "Makefile"], ids=name_of)
def test_license_header(path: Path) -> None:
    head = "\n".join(path.read_text(encoding="utf-8").splitlines()[:6])
    assert "gb10.cluster contributors" in head
    assert "SPDX-License-Identifier: GPL-3.0-or-later" in head


@pytest.mark.parametrize("path", files(("plugins",), ".py"), ids=name_of)
def test_python_of_the_house(path: Path) -> None:
    """No handler that swallows everything, no fixed sleep, annotations that are never evaluated."""
    source = path.read_text(encoding="utf-8")
    assert "from __future__ import annotations" in source
    problems = []
    for node in ast.walk(ast.parse(source)):
        # The modules' common exit turns every exception into a failed result.
        swallows = isinstance(node, ast.ExceptHandler) and (node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"})
        if swallows and path.name != "_module.py":
            problems.append(f"line {node.lineno}: except {ast.unparse(node.type) if node.type else ''}")
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("sleep") and any(isinstance(a, ast.Constant) for a in node.args):
            problems.append(f"line {node.lineno}: {ast.unparse(node)}")
    assert problems == []


@pytest.mark.parametrize("path", files(SHIPPED, ".yml", ".yaml", ".j2"), ids=name_of)
def test_nothing_is_hidden_in_yaml(path: Path) -> None:
    """No swallowed failure, no unpinned image, nothing that only works from one directory."""
    hiding = re.compile(r"ignore_errors:|failed_when:\s*false|:latest\b|playbook_dir")
    comment = re.compile(r"(^|\s)#.*")
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    assert [f"line {number}: {line.strip()}" for number, line in lines if hiding.search(comment.sub("", line))] == []
