# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Ray's workers write, in a container that is not trusted."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._engine import ray_logs
from ansible_collections.gb10.cluster.plugins.module_utils._files.untrusted import Tampered

NAME = "worker-1f0c5a-01000000-277.err"


@pytest.fixture
def logs(tmp_path):
    for session in ("session_2026-11-20_10-00-00_1_1", "session_2026-11-22_22-39-50_123456_1"):
        (tmp_path / "tmp/ray" / session / "logs").mkdir(parents=True)
    (tmp_path / "tmp/ray/session_latest").symlink_to("/etc")
    (tmp_path / "tmp/ray/session_2026-11-20_10-00-00_1_1/logs" / NAME).write_text("of another session\n")
    return tmp_path / "tmp/ray/session_2026-11-22_22-39-50_123456_1/logs"


def test_lines_are_read_on_and_a_new_file_from_its_beginning(tmp_path, logs):
    (logs / NAME).write_text("one\ntwo\nthr")
    (logs / "raylet.out").write_text("not a worker\n")
    assert ray_logs.read(str(tmp_path), {}, True) == ({}, {NAME: 11})
    with (logs / NAME).open("a") as handle:
        handle.write("ee\nfour\n")
    (logs / "worker-2-02000000-9.out").write_text("first\n")
    lines, offsets = ray_logs.read(str(tmp_path), {NAME: 8}, False)
    assert lines == {NAME: ["three", "four"], "worker-2-02000000-9.out": ["first"]}
    assert ray_logs.read(str(tmp_path), offsets, False) == ({}, offsets)


def test_without_ray_there_is_nothing_to_read(tmp_path):
    assert ray_logs.read(str(tmp_path), {}, True) == ({}, {})
    (tmp_path / "tmp/ray/session_2026-11-22_22-39-50_123456_1").mkdir(parents=True)
    assert ray_logs.read(str(tmp_path), {}, True) == ({}, {})


def test_a_link_of_the_container_is_not_followed(tmp_path, logs):
    (logs / NAME).symlink_to("/etc/shadow")
    with pytest.raises(Tampered):
        ray_logs.read(str(tmp_path), {}, False)
