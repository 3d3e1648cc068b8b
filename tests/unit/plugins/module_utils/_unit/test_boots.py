# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unclean boots of a node: which of them lets its units start, and that no clock decides it."""

from __future__ import annotations

import json
import re
import time

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._unit import boots

SECOND = "it is the second unclean boot in a row: after the one of {} no unit has run for 60 minutes"


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A node's state directory, and the time of day and seconds since the boot as a test sets them."""
    clocks = {"at": "2026-11-24T02:00:00Z", "boot": 40.0}
    monkeypatch.setattr(boots, "utc_text", lambda: clocks["at"])
    monkeypatch.setattr(boots, "boot_seconds", lambda: clocks["boot"])
    place = tmp_path / "proc" / "sys" / "kernel" / "random"
    place.mkdir(parents=True)
    (place / "boot_id").write_text("first\n", encoding="ascii")
    return str(tmp_path), clocks


def test_the_first_unclean_boot_lets_every_unit_start_and_is_recorded_once(node):
    place, clocks = node
    assert boots.read(place) == []
    for unit in (1, 2):
        assert boots.why_not(place, "first") == "", unit
        clocks["boot"] += 60
    assert boots.read(place) == [{"boot_id": "first", "at": "2026-11-24T02:00:00Z", "seen_s": 40.0, "over": False}]


def test_a_second_one_lets_none_start_and_neither_does_a_third(node):
    place, clocks = node
    boots.why_not(place, "first")
    clocks["at"] = "2026-11-24T02:20:00Z"
    for unit in (1, 2):
        assert boots.why_not(place, "second") == SECOND.format("2026-11-24T02:00:00Z"), unit
    assert boots.why_not(place, "third") == SECOND.format("2026-11-24T02:20:00Z")
    assert [boot["boot_id"] for boot in boots.read(place)] == ["first", "second", "third"]


def test_after_an_hour_of_a_unit_the_next_one_counts_as_the_first(node):
    place, _clocks = node
    boots.outlast(place)
    assert boots.read(place) == []
    boots.why_not(place, "first")
    boots.why_not(place, "second")
    boots.outlast(place)
    assert [boot["over"] for boot in boots.read(place)] == [True, True]
    assert boots.why_not(place, "second") == "" and boots.why_not(place, "third") == ""
    assert [boot["over"] for boot in boots.read(place)] == [True, True, False]
    assert boots.why_not(place, "fourth")
    boots.outlast(place)
    assert [boot["over"] for boot in boots.read(place)] == [True] * 4


def test_an_hour_is_written_once(node, monkeypatch):
    place, _clocks = node
    boots.why_not(place, "first")
    boots.outlast(place)
    monkeypatch.setattr(type(boots.DOCUMENT), "write", lambda *_given: pytest.fail("written"))
    boots.outlast(place)


@pytest.mark.parametrize("jump", [-86400.0 * 365, 86400.0 * 365])
def test_a_clock_that_jumps_gives_no_third_start(tmp_path, monkeypatch, jump):
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    assert boots.why_not(str(tmp_path), "first") == ""
    monkeypatch.setattr(time, "gmtime", lambda _seconds=None, gmtime=time.gmtime: gmtime(now + jump))
    assert boots.why_not(str(tmp_path), "second").startswith("it is the second unclean boot in a row")
    assert boots.why_not(str(tmp_path), "third").startswith("it is the second unclean boot in a row")


@pytest.mark.parametrize(
    "text", ["{", '{"schema": 1}', '{"schema": 1, "boots": [{"boot_id": "x"}]}', '{"schema": 1, "boots": [7]}', '{"schema": 2, "boots": []}']
)
def test_a_record_that_cannot_be_read_lets_none_start_and_stays(node, text):
    place, _clocks = node
    path = f"{place}/{boots.FILE}"
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)
    assert re.match(f"whether it is the second unclean boot in a row is unknown: {path} is ", boots.why_not(place, "first"))
    with open(path, encoding="utf-8") as stream:
        assert stream.read() == text
    with pytest.raises(UnknownState) as caught:
        boots.read(place)
    assert caught.value.remedy.endswith(f"rm {path}")


def test_a_boot_that_cannot_be_recorded_lets_none_start(node, monkeypatch):
    place, _clocks = node

    def full(*_given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(boots.DOCUMENT), "write", full)
    assert boots.why_not(place, "first").startswith("whether it is the second unclean boot in a row is unknown: ")
    assert boots.read(place) == []


def test_the_record_is_bounded_and_readable_by_all(node, tmp_path):
    place, _clocks = node
    for number in range(boots.KEPT + 3):
        boots.why_not(place, f"boot {number}")
    assert [boot["boot_id"] for boot in boots.read(place)] == [f"boot {number}" for number in range(3, boots.KEPT + 3)]
    assert (tmp_path / boots.FILE).stat().st_mode & 0o777 == 0o644
    assert json.loads((tmp_path / boots.FILE).read_text())["schema"] == 1


def test_an_unclean_boot_is_recent_in_that_boot_for_an_hour(node):
    place, clocks = node
    proc = f"{place}/proc"
    assert boots.recent(place, proc) == "" and boots.recent(place, "/nowhere") == "", "the boot's id is not needed without a record"
    boots.why_not(place, "first")
    assert boots.recent(place, proc) == "2026-11-24T02:00:00Z"
    clocks["boot"] = 40.0 + 3599
    assert boots.recent(place, proc) == "2026-11-24T02:00:00Z"
    clocks["boot"] += 1
    assert boots.recent(place, proc) == ""
    clocks["boot"] = 41.0
    boots.why_not(place, "second")
    assert boots.recent(place, proc) == ""
