# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Count the logical lines of what ships as a program: Python below plugins/, tasks, vars and templates of roles/, and playbooks/.

``logical_lines.py [ROOT]`` prints each count and their sum. A logical line of Python is one statement header or simple statement, however many
physical lines it takes. Not counted: comments, docstrings, imports, and module-level assignments of literals (documentation blocks and data
tables). A logical line of anything else is a line that is neither empty nor a comment. Profiles are data: playbooks/profiles does not count.
"""

from __future__ import annotations

import ast
import re
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


def text_lines(text: str) -> int:
    """Return the number of lines of YAML or of a template that are neither empty nor a comment nor the start of a document."""
    lines = [line.strip() for line in re.sub(r"\{#.*?#\}", "", text, flags=re.DOTALL).splitlines()]
    return sum(bool(line) and not line.startswith("#") and line != "---" for line in lines)


def count(root: Path) -> dict[str, int]:
    """Return the logical lines below ``root`` as ``{python, tasks, vars, templates, playbooks}``."""
    roles, playbooks = root / "roles", root / "playbooks"
    texts = {
        "tasks": [*roles.glob("*/tasks/**/*.yml"), *roles.glob("*/handlers/**/*.yml")],
        "vars": roles.glob("*/vars/**/*.yml"),
        "templates": (path for path in roles.glob("*/templates/**/*") if path.is_file()),
        "playbooks": (path for path in playbooks.rglob("*.yml") if playbooks / "profiles" not in path.parents),
    }
    return {
        "python": sum(python_lines(path.read_text(encoding="utf-8")) for path in (root / "plugins").rglob("*.py")),
        **{name: sum(text_lines(path.read_text(encoding="utf-8")) for path in paths) for name, paths in texts.items()},
    }


def main() -> None:
    """Print the counts of the tree named on the command line, or of this one."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    counts = count(root)
    for name, lines in counts.items():
        print(f"{name:10}{lines:7}")
    print(f"{'sum':10}{sum(counts.values()):7}")


if __name__ == "__main__":
    main()
