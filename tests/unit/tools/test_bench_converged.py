# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The bench of a converged bring-up: what it counts as a call of a node, and what it refuses."""

from __future__ import annotations

import pytest

pytest.importorskip("ansible_runner")

import converged as bench


def event(name, action="gb10.cluster.node_info", host="spark-1", **res):
    return {"event": name, "event_data": {"task_action": action, "host": host, "res": res}}


@pytest.mark.parametrize(
    ("events", "calls"),
    [
        ([event("runner_on_ok"), event("runner_on_ok", host="spark-2")], 2),
        ([event("runner_on_skipped")], 0),
        ([event("runner_on_ok", "ansible.builtin.set_fact"), event("runner_on_ok", "gb10.cluster.judge")], 0),
        # A loop ends with one event more than it has items.
        ([event("runner_item_on_ok"), event("runner_item_on_ok"), event("runner_on_ok", results=[{}, {}])], 2),
        ([event("runner_on_ok", _ansible_delegated_vars={"ansible_delegated_host": "spark-2"})], 1),
        ([event("runner_on_ok", _ansible_delegated_vars={"ansible_delegated_host": "localhost"})], 0),
        ([event("runner_on_ok", host="localhost")], 0),
        ([{"event": "playbook_on_start"}], 0),
    ],
)
def test_calls_of_nodes(events, calls):
    assert bench.node_calls(events) == calls


def test_what_changed_is_not_converged():
    assert bench.changes([{"event": "playbook_on_stats", "event_data": {"changed": {"spark-1": 2, "spark-2": 0}}}]) == {"spark-1": 2}
    assert bench.changes([{"event": "playbook_on_stats", "event_data": {"changed": {}}}]) == {}


def test_times_are_shown_with_their_spread():
    assert bench.spread([3.0, 1.0, 2.5]).split() == ["1.00", "2.50", "3.00", "s"]
