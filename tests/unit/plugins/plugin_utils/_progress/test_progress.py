# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The times at which a progress line is printed, and its text."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._progress import progress as _progress


@pytest.mark.parametrize(("seconds", "text"), [(0, "00:00"), (31.9, "00:31"), (61, "01:01"), (3599, "59:59"), (3661, "1:01:01")])
def test_minutes(seconds, text):
    assert _progress.minutes(seconds) == text


def test_line():
    whole = _progress.line("spark-1", "loading weights", "1/2", "1 rank(s) at 98 % of a core", 42188, 31)
    assert whole == "spark-1: loading weights 1/2, 1 rank(s) at 98 % of a core, 41.2 GiB available, 00:31"
    assert _progress.line("spark-2", "joining ranks", "", "", None, 5) == "spark-2: joining ranks, 00:05"


def test_a_line_for_each_change_and_every_half_minute():
    shown = []
    progress = _progress.Progress("n", shown.append)
    looks = [(0, "starting", ""), (2, "starting", ""), (4, "loading", "0/2"), (6, "loading", "1/2"), (8, "", ""), (35, "", ""), (37, "loading", "1/2")]
    for elapsed, stage, shards in looks:
        progress.update(stage, shards, "", None, elapsed)
    assert shown == ["n: starting, 00:00", "n: loading 0/2, 00:04", "n: loading 1/2, 00:06", "n: loading 1/2, 00:37"]
    assert progress.stage == "loading"
