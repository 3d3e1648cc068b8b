# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How often the controller polls a job that a node runs by itself."""

from __future__ import annotations

import base64
import json
import types

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._progress import node_job


class Copying(node_job.NodeJob):
    MODULE, DOING, LOST = "gb10.cluster.image_copy", "copying", "See on the node."

    def limit(self):
        return 600

    def note(self):
        return "/var/lib/gb10/note.json"


class Node:
    """A node whose job is done after some seconds; it records the times of all polls."""

    def __init__(self, done_after):
        self.done_after, self.now, self.looks, self.shown = done_after, 0.0, [], []

    def clock(self, limit, pause):
        while self.now < limit:
            yield self.now
            self.now += pause

    def execute(self, name, module_args, task_vars):
        if name == "ansible.legacy.slurp":
            return {"content": base64.b64encode(json.dumps({"text": f"{self.now:.0f} of 600"}).encode()).decode()}
        if module_args["mode"] == "status":
            self.looks.append(self.now)
            return {"finished": int(self.now >= self.done_after), "changed": True}
        return {}


@pytest.fixture
def watch(monkeypatch):
    def watching(done_after):
        node = Node(done_after)
        action = Copying.__new__(Copying)
        action._vars = {"inventory_hostname": "spark-2"}
        monkeypatch.setattr(action, "_execute_module", node.execute)
        monkeypatch.setattr(action, "_remote_expand_user", lambda path: path)
        monkeypatch.setattr(action, "get_shell_option", lambda _name, default: default)
        monkeypatch.setattr(node_job, "clock", node.clock)
        monkeypatch.setattr(node_job, "display", types.SimpleNamespace(display=node.shown.append))
        node.result = action._watch("j1", 660)
        return node

    return watching


@pytest.mark.parametrize("seconds", [0, 1.7, 4, 20, 59, 300])
def test_work_is_not_waited_for_much_longer_than_it_takes(watch, seconds):
    node = watch(seconds)
    assert node.result == {"changed": True}
    assert seconds <= node.looks[-1] <= max(0.5, 1.25 * seconds + 0.5)


def test_long_work_is_looked_at_every_quarter_of_a_minute_with_one_line_each(watch):
    node = watch(500)
    later = [look for look in node.looks if look >= 60]
    assert {after - before for before, after in zip(later, later[1:])} == {15.0}
    assert 30 <= len(node.shown) <= 34


def test_short_work_shows_no_line(watch):
    assert watch(4).shown == []


def test_work_that_does_not_end_fails_with_where_to_look(watch):
    assert watch(10_000).result == {"failed": True, "msg": "copying did not end within 660 s", "remedy": "See on the node."}
