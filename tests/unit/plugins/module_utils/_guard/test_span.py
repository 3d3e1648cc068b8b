# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The summary of hours of a guard's records."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.module_utils._guard import span

MIB = 1024


def sample(at, gib, **more):
    return {"t": at, "a": int(gib * MIB * MIB), **more}


def test_a_curve_keeps_every_dip():
    records = [sample(100.0 + second, 3.5 if second == 1777 else 100 - second / 100) for second in range(3600)]
    summary = span.summary(records, 100.0, 3700.0, 100)
    assert len(summary["curve"]) == 100 and [1777.0, 3584] in summary["curve"]
    assert (summary["lowest_mb"], summary["lowest_after_s"], summary["samples"]) == (3584, 1777.0, 3600)
    assert [at for at, _mib in summary["curve"]] == sorted(at for at, _mib in summary["curve"])


def test_silence_counts_from_the_beginning_to_the_end():
    assert span.summary([sample(120.0, 60), sample(121.0, 60)], 100.0, 122.0, 100)["longest_silence_s"] == 20.0
    assert span.summary([sample(101.0, 60)], 100.0, 140.0, 100)["longest_silence_s"] == 39.0
    assert span.summary([sample(100.0, 60), sample(130.0, 60), sample(131.0, 60)], 100.0, 131.0, 100)["longest_silence_s"] == 30.0


def test_a_ring_without_samples_knows_nothing():
    summary = span.summary([{"t": 100.5, "e": "ranks", "text": "came"}, {"t": 101.0, "a": None}], 100.0, 160.0, 100)
    assert (summary["samples"], summary["curve"], summary["lowest_mb"], summary["lowest_after_s"]) == (0, [], None, None)


def test_lines_and_acts_are_returned_once():
    records = [
        sample(100, 60, k=[["xid", "NVRM: Xid 43"]]),
        sample(101, 60, k=[["xid", "NVRM: Xid 43"], ["oom", "Out of memory"]]),
        {"t": 101.5, "e": "act", "text": "SIGTERM to pids [1]"},
        {"t": 101.6, "e": "would", "text": "no action"},
        {"t": 101.7, "e": "ranks", "text": "came"},
    ]
    summary = span.summary(records, 100.0, 102.0, 100)
    assert summary["kernel"] == [["xid", "NVRM: Xid 43"], ["oom", "Out of memory"]]
    assert summary["acts"] == ["SIGTERM to pids [1]", "no action"]
