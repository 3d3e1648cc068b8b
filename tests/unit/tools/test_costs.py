# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files that a new container option with a setting takes, and a rule on evidence that is not read yet: each change works in a copy of the tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

#: A change: files, each with a line and the text to insert before it. An empty line means a new file.
Change = t.Mapping[str, tuple[str, str]]

#: The option that keeps a node's container on some of its processors, and its setting.
OPTION: Change = {
    "plugins/module_utils/_node/fields.py": (
        '    Field("ipc_host", ',
        '    Field("cpuset", {"type": "str", "default": ""}, counts=True, absent="", payload=lambda cpus: {"cpuset_cpus": cpus} if cpus else {}),\n',
    ),
    "plugins/doc_fragments/_node.py": (
        "  ipc_host:\n",
        "  cpuset:\n    description:\n      - Processors of the container, such as V(0-9).\n    type: str\n    default: ''\n",
    ),
    "roles/gb10/defaults/main.yml": ("gb10_object_store_memory:", '# Processors of the containers.\ngb10_cpuset: ""\n'),
    "roles/gb10/meta/argument_specs.yml": (
        "      gb10_object_store_memory:\n",
        '      gb10_cpuset:\n        description: Processors of the containers.\n        type: str\n        default: ""\n',
    ),
    "roles/gb10/vars/main.yml": ('  hf_home: "{{ gb10_hf_home }}"\n  mounts:', '  cpuset: "{{ gb10_cpuset }}"\n'),
}
OPTION_WORKS = """
import yaml
from ansible_collections.gb10.cluster.plugins.module_utils._node import fields
absent = fields.absent_means("native")
assert fields.argument_spec("native")["cpuset"] == {"type": "str", "default": ""}
assert fields.payload({**absent, "cpuset": "0-9"}, {})["cpuset_cpus"] == "0-9"
assert fields.digest({"cpuset": "0-9"}, absent) != fields.digest({"cpuset": ""}, absent)
assert yaml.safe_load(open("roles/gb10/vars/main.yml"))["__gb10_common_options"]["cpuset"] == "{{ gb10_cpuset }}"
"""

#: A rule on the speed of fans, which no section reads.
RULE: Change = {
    "plugins/module_utils/_host/fans.py": (
        "",
        '''"""The speed of fans. This module util is PRIVATE to the collection."""

from __future__ import annotations

import glob


def speeds(sysfs_root: str) -> list[int]:
    """Return the speed of each fan that the kernel shows, in turns a minute. Raises OSError, ValueError."""
    return [int(open(path).read()) for path in sorted(glob.glob(f"{sysfs_root}/class/hwmon/hwmon*/fan*_input"))]
''',
    ),
    "plugins/modules/node_info.py": (
        '        return facts and {**facts, "machine"',
        '        from ansible_collections.gb10.cluster.plugins.module_utils._host import fans\n'
        '        facts = facts and {**facts, "fans_rpm": section(lambda: fans.speeds(self.sysfs))}\n',
    ),
    "plugins/plugin_utils/_rules/rules.yml": (
        "  - id: gpu.throttled\n",
        """  - id: host.fans
    title: Every fan turns
    compares: requirement
    evidence: [kernel]
    check: not_so
    with: {where: [[kernel.fans_rpm, contains, 0]], measures: kernel.fans_rpm, needed: more than 0}
    verdict: warn
    message: "a fan does not turn: {measured} turns a minute."
    remedy: look at the fans
    source: a test
    tags: [doctor]
""",
    ),
}
RULE_WORKS = """
import pathlib, sys
sys.path.insert(0, UNIT)
from healthy_pair import asked, ids, judged, node, second
from ansible_collections.gb10.cluster.plugins.module_utils._host import fans
place = pathlib.Path("sys/class/hwmon/hwmon0")
place.mkdir(parents=True)
(place / "fan1_input").write_text("0\\n")
assert fans.speeds("sys") == [0]
turning = node(kernel__fans_rpm=[1200])
assert "host.fans" in ids(judged(asked(node(kernel__fans_rpm=fans.speeds("sys"))), second(turning)))
assert "host.fans" not in ids(judged(asked(turning), second(turning)))
"""


def made(change: Change, place: Path) -> Path:
    """Make a change in a copy of what ships, and return the copy."""
    tree = place / "ansible_collections" / "gb10" / "cluster"
    for folder in ("plugins", "roles", "playbooks", "meta"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name, (before, text) in change.items():
        path = tree / name
        old = path.read_text(encoding="utf-8") if before else ""
        assert not before or old.count(before) == 1, name
        path.write_text(old.replace(before, text + before) if before else text, encoding="utf-8")
    return tree


def works(tree: Path, program: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(tree.parents[2])}
    done = subprocess.run([sys.executable, "-c", program], cwd=tree, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("change", "most", "program"), [(OPTION, 5, OPTION_WORKS), (RULE, 6, RULE_WORKS)], ids=["option", "rule"])
def test_a_change_costs_few_files(change: Change, most: int, program: str, tmp_path: Path) -> None:
    assert len(change) <= most
    works(made(change, tmp_path), f"UNIT = {str(ROOT / 'tests/unit')!r}\n{program}")
