# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of files and images that could be removed."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._report import leavings


def entry(kind, name, age, size, why="exited"):
    return {"kind": kind, "name": name, "age_seconds": age, "size_bytes": size, "why": why}


def test_the_table_has_rows_totals_and_kept_items():
    answers = {
        "spark-1": {"candidates": [entry("container", "gb10-gb10-head", 90000, 2048)], "left": [], "total_bytes": 2048},
        "spark-10": {
            "candidates": [entry("image", "a:1", 40, 3 << 30, "unused"), entry("container", "x", 7200, 5)],
            "left": [{"kind": "file", "name": "/var/log/gb10/gb10/n", "why": "not ours"}],
            "total_bytes": (3 << 30) + 5,
        },
    }
    assert leavings.lines(answers) == [
        "kind       node      age   size     name",
        "container  spark-1   1 d   2.0 KiB  gb10-gb10-head (exited)",
        "image      spark-10  40 s  3.0 GiB  a:1 (unused)",
        "container  spark-10  2 h   5 B      x (exited)",
        "total: 2 container(s), 1 image(s), 3.0 GiB",
        "stays: /var/log/gb10/gb10/n on spark-10 (not ours)",
    ]


def test_nothing_is_said_in_words():
    assert leavings.lines({"spark-1": {"candidates": [], "left": [], "total_bytes": 0}}) == ["nothing to remove"]


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3600, "1 h"), (86400 * 14 + 5, "14 d")])
def test_ages(seconds, text):
    assert leavings.age_text(seconds) == text


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 50, "1024.0 TiB")])
def test_sizes(size, text):
    assert leavings.size_text(size) == text
