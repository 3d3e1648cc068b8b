# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's half of node_logs."""

from __future__ import annotations

import stat

import pytest

from ansible_collections.gb10.cluster.plugins.action.node_logs import written
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState


def test_files_are_the_users_alone_and_named_by_no_path(tmp_path):
    logs = [{"name": "engine.log", "text": "ä\n", "cut": True}, {"name": "../../evil", "text": "x", "cut": False}]
    files = written(tmp_path / "a" / "spark-1", logs)
    assert files == [{"name": "engine.log", "bytes": 3, "cut": True}, {"name": "evil", "bytes": 1, "cut": False}]
    assert sorted(path.name for path in (tmp_path / "a" / "spark-1").iterdir()) == ["engine.log", "evil"]
    assert stat.S_IMODE((tmp_path / "a" / "spark-1" / "engine.log").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "a" / "spark-1").stat().st_mode) == 0o700


def test_a_second_time_replaces(tmp_path):
    written(tmp_path, [{"name": "engine.log", "text": "old and long", "cut": False}])
    written(tmp_path, [{"name": "engine.log", "text": "new", "cut": False}])
    assert (tmp_path / "engine.log").read_text() == "new"


def test_a_link_that_lies_in_the_way_is_not_followed(tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("mine")
    there = tmp_path / "spark-1"
    there.mkdir()
    (there / ".engine.log.new").symlink_to(mine)
    with pytest.raises(OSError):
        written(there, [{"name": "engine.log", "text": "evil", "cut": False}])
    (there / ".engine.log.new").unlink()
    (there / "engine.log").symlink_to(mine)
    written(there, [{"name": "engine.log", "text": "new", "cut": False}])
    assert mine.read_text() == "mine" and (there / "engine.log").read_text() == "new"


@pytest.mark.parametrize(
    "log", [{"name": "..", "text": "", "cut": False}, {"name": "a/", "text": "", "cut": False}, {"name": "a\0b", "text": "", "cut": False},
            {"name": 7, "text": "", "cut": False}, {"name": "a", "text": None, "cut": False}, {"name": "a", "text": "\ud800", "cut": False}, "a", {}]
)  # fmt: skip
def test_an_answer_that_is_none_writes_nothing(tmp_path, log):
    with pytest.raises(UnknownState):
        written(tmp_path / "spark-1", [{"name": "engine.log", "text": "x", "cut": False}, log])
    assert list(tmp_path.iterdir()) == []
