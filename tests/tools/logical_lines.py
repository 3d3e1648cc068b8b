# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Count the logical lines of what ships as a program: Python below plugins/, YAML tasks below roles/.

``logical_lines.py [ROOT]`` prints both counts and their sum. A logical line of Python is one statement header or simple statement, however many
physical lines it takes. Not counted: comments, docstrings, imports, and module-level assignments of literals (documentation blocks and data
tables). A logical line of YAML is a line of roles/*/tasks or roles/*/handlers that is neither empty nor a comment.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path


def is_literal(node: ast.expr | None) -> bool:
    """Return whether an expression is data alone."""
    try:
        ast.literal_eval(node) if node is not None else None
    except (ValueError, TypeError):
        return False
    return True


def is_counted(node: ast.stmt, at_module_level: bool) -> bool:
    """Return whether a statement counts as a logical line."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return False
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return False
    return not (at_module_level and isinstance(node, (ast.Assign, ast.AnnAssign)) and is_literal(node.value))


def python_lines(source: str) -> int:
    """Return the number of logical lines of a Python source. Raises :class:`SyntaxError` for anything else."""
    tree = ast.parse(source)
    top = {id(node) for node in tree.body}
    # Attributes of a documentation fragment's class are documentation, as a module's DOCUMENTATION is.
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "ModuleDocFragment":
            top |= {id(child) for child in node.body}
    return sum(is_counted(node, id(node) in top) for node in ast.walk(tree) if isinstance(node, ast.stmt))


def yaml_lines(text: str) -> int:
    """Return the number of lines that are neither empty nor a comment nor the start of a document."""
    lines = [line.strip() for line in text.splitlines()]
    return sum(bool(line) and not line.startswith("#") and line != "---" for line in lines)


def count(root: Path) -> dict[str, int]:
    """Return the logical lines below ``root`` as ``{python, tasks}``."""
    tasks = [path for part in ("tasks", "handlers") for path in (root / "roles").glob(f"*/{part}/**/*.yml")]
    return {
        "python": sum(python_lines(path.read_text(encoding="utf-8")) for path in (root / "plugins").rglob("*.py")),
        "tasks": sum(yaml_lines(path.read_text(encoding="utf-8")) for path in tasks),
    }


def main() -> None:
    """Print the counts of the tree named on the command line, or of this one."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    counts = count(root)
    for name, lines in counts.items():
        print(f"{name:8}{lines:7}")
    print(f"{'sum':8}{sum(counts.values()):7}")


if __name__ == "__main__":
    main()
