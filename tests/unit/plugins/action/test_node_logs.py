# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's half of node_logs."""

from __future__ import annotations

import stat

from ansible_collections.gb10.cluster.plugins.action.node_logs import written


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
