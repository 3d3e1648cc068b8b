# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The counter of logical lines: what counts as one, and what does not."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import logical_lines  # noqa: E402


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('"""Doc."""\nimport os\nfrom a import b\n', 0),
        ("x = f(\n    1,\n    2,\n)\n", 1),
        ("# a comment\nTABLE = {'a': [1, 2]}\n", 0),
        ("DOCUMENTATION = r'''\nmodule: x\n'''\n", 0),
        ("TABLE = {name: 1 for name in 'ab'}\n", 1),
        ("def f():\n    '''Doc.'''\n    x = 1\n    return x\n", 3),
        ("class ModuleDocFragment:\n    DOCUMENTATION = 'x'\n", 1),
        ("if a:\n    b()\nelse:\n    c()\n", 3),
    ],
)
def test_a_statement_is_a_line_and_data_is_not(source, lines):
    assert logical_lines.python_lines(source) == lines


def test_comments_and_empty_lines_of_tasks_do_not_count():
    assert logical_lines.text_lines("---\n# why\n- name: X\n  debug:\n\n    msg: y\n") == 3


def test_comments_of_a_template_do_not_count():
    assert logical_lines.text_lines("{# why,\n   and why not #}\nFROM {{ base }}\n\nRUN {# twice #} x\n") == 2


def test_only_what_ships_as_a_program_counts(tmp_path):
    for path, text in {
        "plugins/modules/a.py": "x = f()\n",
        "roles/r/tasks/main.yml": "- name: X\n",
        "roles/r/tasks/sub/more.yml": "- name: Y\n",
        "roles/r/handlers/main.yml": "- name: Z\n",
        "roles/r/vars/main.yml": "a: 1\nb: 2\n",
        "roles/r/templates/etc/x.j2": "x\ny\nz\n",
        "roles/r/defaults/main.yml": "a: 1\n",
        "playbooks/p.yml": "- hosts: all\n",
        "playbooks/tasks/t.yml": "- name: X\n",
        "playbooks/profiles/m.yml": "a: 1\n",
        "tests/b.py": "x = f()\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert logical_lines.count(tmp_path) == {"python": 1, "tasks": 3, "vars": 2, "templates": 3, "playbooks": 2}
