# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The number of tasks of a bring-up on a cluster that already serves: those that Ansible lists, with each include as one skipped task."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest
import through_ansible
import yaml

ROOT = Path(__file__).resolve().parents[2]
#: At most so many tasks, and calls of a node's modules.
TASKS, CALLS = 35, 12
#: What Ansible does not list: the tasks of `always`.
UNLISTED = ("Release the cluster lock",)
#: Skipped on a converged cluster with Ray.
SKIPPED = {"Stop if a rule blocks"}
#: Actions that reach no node.
LOCAL = ("gb10.cluster.judge", "gb10.cluster.inputs_info", "ansible.builtin.")
LISTED = re.compile(r"^      (?:gb10\.cluster\.\w+ : )?(.+?)\tTAGS: ", re.MULTILINE)


def tasks_of(part: t.Any) -> t.Iterator[dict[str, t.Any]]:
    """Give the tasks of a file, also those in blocks."""
    for task in part or ():
        if isinstance(task, dict):
            yield task
            for nested in ("block", "rescue", "always"):
                yield from tasks_of(task.get(nested))


def calling() -> set[str]:
    """Return the names of all tasks whose module runs on a node."""
    files = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "roles").glob("*/tasks/*.yml"))]
    return {task["name"] for file in files for task in tasks_of(file) if any(word.startswith("gb10.cluster.") and not word.startswith(LOCAL) for word in task)}


@pytest.fixture(scope="module")
def listed() -> list[str]:
    ran = through_ansible.run("playbook", "-i", "inventories/example", "playbooks/nemotron_tp2.yml", "--list-tasks")
    assert ran.rc == 0, ran.out
    return [*LISTED.findall(ran.stdout), *UNLISTED]


def test_tasks_of_a_converged_run(listed):
    assert len(listed) <= TASKS, listed


def test_calls_of_a_node_in_a_converged_run(listed):
    of_a_node = calling() - SKIPPED
    calls = [name for name in listed if name in of_a_node]
    assert "Look at the node" in calls and "Release the cluster lock" in calls
    assert len(calls) <= CALLS, calls
