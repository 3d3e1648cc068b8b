# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The bench of node_info: how it counts, and that its comparison is as documented."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

pytest.importorskip("ansible_runner")

import node_info as bench
import plays

ROOT = Path(__file__).resolve().parents[3]


def event(name, second, uuid="a", task="look", **data):
    return {"event": name, "created": f"2026-11-21T15:00:{second:09.6f}", "event_data": {"task_uuid": uuid, "task": task, **data}}


EVENTS = [
    event("playbook_on_start", 0),
    event("playbook_on_task_start", 1.0),
    event("runner_on_start", 1.1),
    event("runner_on_ok", 2.5, task_action="gb10.cluster.node_info"),
    event("runner_on_ok", 3.0, task_action="gb10.cluster.node_info"),
    event("playbook_on_task_start", 3.1, "b", "judge"),
    event("runner_on_skipped", 3.6, "b", "judge", task_action="debug"),
    event("playbook_on_stats", 9),
]


def test_seconds_from_the_first_start_to_the_last_end():
    assert plays.task_seconds(EVENTS) == pytest.approx(2.6)
    assert plays.tasks(EVENTS) == 2
    assert [(name, round(seconds, 3)) for name, seconds in plays.longest(EVENTS)] == [("look", 2.0), ("judge", 0.5)]
    with pytest.raises(ValueError, match="no task ran"):
        plays.task_seconds(EVENTS[:1])


def test_whether_the_nodes_were_looked_at():
    assert bench.answered(EVENTS, "gb10.cluster.node_info")
    assert not bench.answered(EVENTS, "gb10.cluster.other")
    assert not bench.answered([*EVENTS, event("runner_on_unreachable", 4.0, task_action="gb10.cluster.node_info")], "gb10.cluster.node_info")


def test_what_it_compares_with_are_ordinary_tasks_that_change_nothing():
    (play,) = yaml.safe_load((ROOT / "bench" / "tasks" / "ordinary_checks.yml").read_text(encoding="utf-8"))
    assert len(play["tasks"]) >= 40 and play["gather_facts"] is False
    assert f"asked for by {len(play['tasks'])} ordinary tasks" in (ROOT / "bench" / "tasks" / "ordinary_checks.yml").read_text(encoding="utf-8")
    assert len({task["name"] for task in play["tasks"]}) == len(play["tasks"])
    allowed = {"ansible.builtin.slurp", "ansible.builtin.command", "ansible.builtin.stat", "ansible.builtin.find", "ansible.builtin.uri"}
    for task in play["tasks"]:
        assert len(allowed & set(task)) == 1, task
        assert task.get("changed_when") is False or "ansible.builtin.command" not in task
    (look,) = yaml.safe_load((ROOT / "bench" / "tasks" / "one_look.yml").read_text(encoding="utf-8"))
    assert [set(task) & {"gb10.cluster.node_info"} for task in look["tasks"]] == [{"gb10.cluster.node_info"}] and look["gather_facts"] is False
