# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Recorded climbs and the rung that each one gives."""

from __future__ import annotations

import json

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._records import climbs

NOW = climbs.Now("sha256:1a", "580.159.03", "6.17.0-1032-nvidia", 124610, 0)
CLIMB = {
    "climb_id": "20261123T140000Z", "image_id": "sha256:1a", "profile": "mine", "profile_digest": "9f", "driver": "580.159.03",
    "kernel": "6.17.0-1032-nvidia", "boot_id": "b6f1", "began_at": "2026-11-23T14:00:00Z", "outcome": "returned", "reason": "1048576: a: the guard acted",
    "total_mb": 124610, "tenants_mb": 0, "rung": 524288, "trying": 0, "tenants": [],
    "rungs": [{"context": 524288, "good": True, "reasons": [], "curve": [[0.0, 118800]]}],
}  # fmt: skip


def rung(**nodes):
    return climbs.rung_of({node: (known, now) for node, (known, now) in nodes.items()}, "9f")


def test_a_climb_on_all_nodes_is_its_last_good_rung():
    assert rung(a=([CLIMB], NOW), b=([CLIMB], NOW)) == climbs.Rung(524288, "20261123T140000Z")


def test_without_a_climb_there_is_no_reason():
    assert rung(a=([], NOW), b=([], NOW)) == climbs.Rung(0)
    assert rung(a=([{**CLIMB, "profile_digest": "other"}], NOW)) == climbs.Rung(0)


def test_an_absent_image_has_no_reason():
    assert rung(a=([CLIMB], NOW._replace(image_id="")), b=([CLIMB], NOW)) == climbs.Rung(0)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"image_id": "sha256:2b"}, "on b the image is sha256:2b, and was sha256:1a"),
        ({"driver": "590.44.01"}, "on b the driver is 590.44.01, and was 580.159.03"),
        ({"driver": ""}, "on b the driver is none"),
        ({"kernel": "6.18.0"}, "on b the kernel is 6.18.0"),
        ({"total_mb": 122500}, "on b MemTotal is 122500 MiB, and was 124610"),
        ({"tenants_mb": 1025}, "on b other processes hold 1025 MiB of the GPU, and held 0"),
        ({"tenants_mb": None}, "on b the memory of other processes is unknown"),
    ],
)
def test_a_climb_with_other_conditions_is_not_used_with_a_reason(change, why):
    result = rung(a=([CLIMB], NOW), b=([CLIMB], NOW._replace(**change)))
    assert result.context == 0 and why in result.why_not


def test_small_differences_are_tolerated():
    near = NOW._replace(total_mb=NOW.total_mb - climbs.SAME_TOTAL_MB, tenants_mb=climbs.MORE_TENANTS_MB)
    assert rung(a=([CLIMB], near)).context == 524288


def test_nodes_of_different_climbs_have_no_rung():
    assert "b has no record of it" in rung(a=([CLIMB], NOW), b=([], NOW)).why_not
    assert "different climbs" in rung(a=([CLIMB], NOW), b=([{**CLIMB, "climb_id": "other"}], NOW)).why_not


def test_the_lowest_rung_of_the_nodes_counts():
    assert rung(a=([CLIMB], NOW), b=([{**CLIMB, "rung": 262144}], NOW)).context == 262144


def test_an_interrupted_climb_names_its_rung():
    result = rung(a=([{**CLIMB, "outcome": "climbing", "rung": 0, "trying": 262144}], NOW))
    assert result.context == 0 and "interrupted while 262144 was tried" in result.why_not
    assert rung(a=([{**CLIMB, "outcome": "climbing", "rung": 262144, "trying": 524288}], NOW)).context == 262144


def test_a_valid_climb_wins_over_a_newer_one():
    newer = {**CLIMB, "climb_id": "newer", "driver": "590.44.01", "rung": 131072}
    assert rung(a=([CLIMB, newer], NOW)).context == 524288
    assert rung(a=([CLIMB, newer], NOW._replace(driver="590.44.01"))).context == 131072


def test_a_climb_replaces_those_with_the_same_identity():
    later = {**CLIMB, "climb_id": "later"}
    other = {**CLIMB, "climb_id": "other", "driver": "590.44.01"}
    assert climbs.with_climb([CLIMB, other], later) == [other, later]
    built = {**CLIMB, "image_id": ""}
    assert climbs.with_climb([built], CLIMB) == [CLIMB], "the same climb, before its image was known"
    many = [{**CLIMB, "climb_id": str(number), "profile_digest": str(number)} for number in range(climbs.KEEP + 3)]
    assert climbs.with_climb(many, CLIMB)[-1] == CLIMB and len(climbs.with_climb(many, CLIMB)) == climbs.KEEP


def test_the_curves_are_left_out(tmp_path):
    path = climbs.FILE.path_of(str(tmp_path), "gb10")
    climbs.FILE.write(path, [CLIMB])
    assert climbs.FILE.read(path) == [CLIMB]
    (record,) = climbs.on_node(str(tmp_path))
    assert record["cluster"] == "gb10" and "curve" not in record["rungs"][0]
    assert climbs.FILE.read(str(tmp_path / "none.json")) == [] and climbs.on_node(str(tmp_path / "none")) == []


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"schema": 2, "climbs": []}', '{"schema": 1}', json.dumps({"schema": 1, "climbs": [{**CLIMB, "rung": True}]}),
     json.dumps({"schema": 1, "climbs": [{**CLIMB, "outcome": "done"}]}), json.dumps({"schema": 1, "climbs": [{**CLIMB, "rungs": [{}]}]})],
)  # fmt: skip
def test_another_content_is_unknown_with_a_remedy(tmp_path, text):
    path = tmp_path / "ladder.json"
    path.write_text(text)
    with pytest.raises(UnknownState) as refused:
        climbs.FILE.read(str(path))
    assert f"Remove {path}" in refused.value.remedy


def test_an_unwritable_file_is_an_error(tmp_path):
    (tmp_path / "gb10").write_text("a file")
    with pytest.raises(ClusterError, match="cannot be written"):
        climbs.FILE.write(climbs.FILE.path_of(str(tmp_path), "gb10"), [CLIMB])
