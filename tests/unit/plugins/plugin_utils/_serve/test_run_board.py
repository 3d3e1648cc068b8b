# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Instances of one task on several hosts agree on how it ends."""

from __future__ import annotations

import os
import stat
import subprocess

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.run_board import AnotherFailed, RunBoard


@pytest.fixture
def join(tmp_path):
    def joined(node, role="worker"):
        made = RunBoard(str(tmp_path), "uuid", node, role)
        made.join()
        return made

    return joined


def test_the_first_failure_counts(join):
    head, worker = join("spark-1", "head"), join("spark-2")
    assert worker.failure() is None
    assert worker.fail("container gone").node == "spark-2"
    assert head.fail("engine gone").node == "spark-2"
    assert head.failure() == worker.failure()
    assert head.failure().message == "container gone"


def test_success_is_published(join):
    head, worker = join("spark-1", "head"), join("spark-2")
    assert worker.success() is None
    head.succeed("ready")
    assert worker.success().node == "spark-1"


def test_what_is_published_last_counts(join):
    head, worker = join("spark-1", "head"), join("spark-2")
    assert head.latest("work") == {}
    for seconds in (1.0, 2.0):
        worker.update("work", {"at": seconds})
        head.update("work", {"at": 7.0})
    assert head.latest("work") == worker.latest("work") == {"spark-1": {"at": 7.0}, "spark-2": {"at": 2.0}}
    assert head.latest("other") == {}


def test_evidence_is_gathered_from_all_that_have_not_ended(join):
    head, worker, other = join("spark-1", "head"), join("spark-2"), join("spark-3")
    for board in (head, worker):
        board.publish("evidence", {"lines": [board.node]})
    other.leave()
    assert {node: entry["lines"] for node, entry in head.gather("evidence", 60).items()} == {"spark-1": ["spark-1"], "spark-2": ["spark-2"]}


def test_evidence_of_a_node_that_hangs_is_not_waited_for_forever(join):
    head, _worker = join("spark-1", "head"), join("spark-2")
    head.publish("evidence", {})
    assert set(head.gather("evidence", 0.01)) == {"spark-1"}


def test_there_is_one_conclusion(join):
    head, worker = join("spark-1", "head"), join("spark-2")
    assert worker.conclude({"cause_known": True}) == {"cause_known": True}
    assert head.conclude({"cause_known": False}) == {"cause_known": True}


def test_the_head_is_known_once_it_joined(join):
    worker = join("spark-2")
    assert worker.head() is None
    assert not worker.head_ended()
    head = join("spark-1", "head")
    assert worker.head() == "spark-1"
    assert not worker.head_ended()
    head.leave()
    assert worker.head_ended()


def test_a_head_whose_process_died_has_ended(join, monkeypatch):
    worker = join("spark-2")
    ended = subprocess.Popen(["true"])
    ended.wait()
    monkeypatch.setattr(os, "getpid", lambda: ended.pid)
    join("spark-1", "head")
    assert worker.head_ended()


def test_what_is_published_is_seen_by_all_the_head_first(join):
    worker, head = join("spark-0"), join("spark-1", "head")
    worker.publish("plan", {"live": True})
    head.publish("plan", {"live": False})
    worker.publish("stopped", {})
    assert list(head.published("plan")) == ["spark-1", "spark-0"]
    assert worker.published("plan")["spark-1"] == {"live": False, "node": "spark-1", "role": "head"}
    assert list(head.published("stopped")) == ["spark-0"]
    assert head.published("other") == {}


def test_another_nodes_failure_raises(join):
    head, worker = join("spark-1", "head"), join("spark-2")
    worker.raise_if_another_failed()
    head.fail("no memory")
    head.raise_if_another_failed()
    with pytest.raises(AnotherFailed, match="ended because spark-1 failed: no memory"):
        worker.raise_if_another_failed()


def test_ended_nodes(join):
    head, worker = join("spark-1", "head"), join("spark-2")
    assert head.ended_nodes() == []
    worker.leave()
    assert head.ended_nodes() == ["spark-2"]
    assert not head.head_ended()


def test_a_task_that_runs_again_gets_a_round_of_its_own(join):
    head, worker = join("spark-1", "head"), join("spark-2")
    head.fail("first round")
    head.leave()
    worker.leave()
    again = join("spark-2")
    assert again.failure() is None
    join("spark-1", "head").succeed("second round")
    assert again.success().message == "second round"


def test_a_late_instance_still_sees_how_it_ended(join):
    head = join("spark-1", "head")
    head.succeed("ready")
    head.leave()
    assert join("spark-2").success().message == "ready"


def test_another_task_has_another_board(join, tmp_path):
    join("spark-1", "head").fail("x")
    other = RunBoard(str(tmp_path), "other", "spark-2", "worker")
    other.join()
    assert other.failure() is None


def test_the_directory_is_private(join, tmp_path):
    join("spark-1", "head")
    assert stat.S_IMODE((tmp_path / "gb10-uuid" / "0").stat().st_mode) == 0o700
