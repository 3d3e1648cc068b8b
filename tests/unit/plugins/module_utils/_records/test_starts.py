# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records of the memory that starts needed: written, read, and compared with a plan."""

from __future__ import annotations

import json

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._records import starts

START = {
    "image_id": "sha256:1", "profile": "p", "profile_digest": "d", "driver": "580", "kernel": "6.17", "boot_id": "b", "run_id": "r", "recorded_at": "now",
    "context": 262144, "total_mb": 124610, "before_mb": 118800, "lowest_mb": 20100, "steady_mb": 20800,
}  # fmt: skip


def start(**changes):
    return {**START, **changes}


def test_records_are_read_with_their_cluster(tmp_path):
    assert starts.FILE.on_node(str(tmp_path)) == [] == starts.FILE.on_node(str(tmp_path / "none"))
    starts.FILE.write(starts.FILE.path_of(str(tmp_path), "gb10"), [start()])
    (tmp_path / "baseline.json").write_text("{}")
    assert starts.FILE.on_node(str(tmp_path)) == [start(cluster="gb10")]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"schema": 2, "starts": []}', '{"schema": 1, "starts": {}}', json.dumps({"schema": 1, "starts": [start(context=True)]}),
     json.dumps({"schema": 1, "starts": [start(cold_start={"seconds": {}})]})],
)
def test_another_content_is_refused_with_a_remedy(tmp_path, text):
    path = tmp_path / "gb10" / "starts.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(UnknownState) as error:
        starts.FILE.on_node(str(tmp_path))
    assert str(path) in str(error.value) and "Remove" in error.value.remedy


def test_the_summary_has_the_newest_start(tmp_path):
    assert starts.last(str(tmp_path), "gb10") == {}
    path = starts.FILE.path_of(str(tmp_path), "gb10")
    starts.FILE.write(path, [start(context=1024), start(context=2048, before_mb=100, steady_mb=40, recorded_at="2026-11-23T00:00:00Z")])
    summary = {"profile": START["profile"], "context": 2048, "recorded_at": "2026-11-23T00:00:00Z", "took_mb": 60, "left_mb": 40, "error": ""}
    assert starts.last(str(tmp_path), "gb10") == summary and starts.last(str(tmp_path), "other") == {}
    (tmp_path / "gb10" / "starts.json").write_text("[]")
    assert "Remedy: Remove" in starts.last(str(tmp_path), "gb10")["error"]


def test_an_unwritable_file_is_an_error(tmp_path):
    (tmp_path / "gb10").write_text("")
    with pytest.raises(ClusterError) as error:
        starts.FILE.write(starts.FILE.path_of(str(tmp_path), "gb10"), [])
    assert "cannot be written" in str(error.value) and error.value.remedy


def test_a_new_start_replaces_the_same_one_and_old_ones_are_dropped():
    known = starts.FILE.with_new([start(run_id="1"), start(run_id="2", context=524288)], start(run_id="3"))
    assert [record["run_id"] for record in known] == ["2", "3"]
    many = []
    for number in range(starts.KEEP + 5):
        many = starts.FILE.with_new(many, start(run_id=str(number), context=number + 1))
    assert len(many) == starts.KEEP and many[-1]["run_id"] == str(starts.KEEP + 4)


def test_only_the_same_image_profile_and_driver_are_the_same():
    assert starts.same(start(), "sha256:1", "d", "580") and starts.same(start(kernel="7.0", total_mb=1), "sha256:1", "d", "580")
    assert not any(starts.same(start(), *other) for other in [("sha256:2", "d", "580"), ("sha256:1", "e", "580"), ("sha256:1", "d", "590")])


def test_a_longer_context_is_not_a_lower_bound_and_a_shorter_one_confirms_nothing():
    known = [start(), start(context=1048576, steady_mb=10000, lowest_mb=9000)]
    assert starts.taken_gib(known, 262144) == ((118800 - 20800) / 1024, (118800 - 20100) / 1024)
    assert starts.taken_gib(known, 2**20) == ((118800 - 10000) / 1024, (118800 - 9000) / 1024)
    assert starts.taken_gib(known, 131072) is None and starts.taken_gib([], 1) is None
    assert starts.bears(known[:1], 262144) and not starts.bears(known[:1], 524288)
    # Memory that was freed meanwhile does not count.
    assert starts.taken_gib([start(steady_mb=119000, lowest_mb=119000)], 262144) == (0, 0)
