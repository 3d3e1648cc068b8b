# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Instances of one task on several hosts agree on how it ends."""

from __future__ import annotations

import os
import stat
import subprocess

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.meeting import AnotherFailed, Meeting


@pytest.fixture
def meet(tmp_path):
    def joined(node, role="worker"):
        made = Meeting(str(tmp_path), "uuid", node, role)
        made.join()
        return made

    return joined


def test_the_first_failure_counts(meet):
    head, worker = meet("spark-1", "head"), meet("spark-2")
    assert worker.failure() is None
    assert worker.fail("container gone").node == "spark-2"
    assert head.fail("engine gone").node == "spark-2"
    assert head.failure() == worker.failure()
    assert head.failure().message == "container gone"


def test_success_is_told(meet):
    head, worker = meet("spark-1", "head"), meet("spark-2")
    assert worker.success() is None
    head.succeed("ready")
    assert worker.success().node == "spark-1"


def test_the_head_is_known_once_it_joined(meet):
    worker = meet("spark-2")
    assert worker.head() is None
    assert not worker.head_gone()
    head = meet("spark-1", "head")
    assert worker.head() == "spark-1"
    assert not worker.head_gone()
    head.leave()
    assert worker.head_gone()


def test_a_head_that_died_is_gone(meet, monkeypatch):
    worker = meet("spark-2")
    gone = subprocess.Popen(["true"])
    gone.wait()
    monkeypatch.setattr(os, "getpid", lambda: gone.pid)
    meet("spark-1", "head")
    assert worker.head_gone()


def test_what_was_told_is_heard_by_all_the_head_first(meet):
    worker, head = meet("spark-0"), meet("spark-1", "head")
    worker.tell("plan", {"live": True})
    head.tell("plan", {"live": False})
    worker.tell("stopped", {})
    assert list(head.told("plan")) == ["spark-1", "spark-0"]
    assert worker.told("plan")["spark-1"] == {"live": False, "node": "spark-1", "role": "head"}
    assert list(head.told("stopped")) == ["spark-0"]
    assert head.told("other") == {}


def test_another_nodes_failure_is_heeded(meet):
    head, worker = meet("spark-1", "head"), meet("spark-2")
    worker.heed()
    head.fail("no memory")
    head.heed()
    with pytest.raises(AnotherFailed, match="ended because spark-1 failed: no memory"):
        worker.heed()


def test_who_is_gone(meet):
    head, worker = meet("spark-1", "head"), meet("spark-2")
    assert head.gone() == []
    worker.leave()
    assert head.gone() == ["spark-2"]
    assert not head.head_gone()


def test_a_task_that_runs_again_meets_again(meet):
    head, worker = meet("spark-1", "head"), meet("spark-2")
    head.fail("first round")
    head.leave()
    worker.leave()
    again = meet("spark-2")
    assert again.failure() is None
    meet("spark-1", "head").succeed("second round")
    assert again.success().message == "second round"


def test_a_late_instance_still_learns_how_it_ended(meet):
    head = meet("spark-1", "head")
    head.succeed("ready")
    head.leave()
    assert meet("spark-2").success().message == "ready"


def test_another_task_is_another_meeting(meet, tmp_path):
    meet("spark-1", "head").fail("x")
    other = Meeting(str(tmp_path), "other", "spark-2", "worker")
    other.join()
    assert other.failure() is None


def test_it_is_private(meet, tmp_path):
    meet("spark-1", "head")
    assert stat.S_IMODE((tmp_path / "gb10-serve-uuid" / "0").stat().st_mode) == 0o700
