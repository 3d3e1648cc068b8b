# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of verdicts, through Ansible itself."""

from __future__ import annotations

import json

import pytest
import through_ansible

PASS = {"id": "a.one", "node": "spark-1", "verdict": "pass", "message": "fine."}
WARN = {"id": "b.two", "node": "spark-1", "verdict": "warn", "message": "so so.", "remedy": "look"}
UNKNOWN = {"id": "c.three", "node": "spark-2", "verdict": "unknown", "message": "no answer."}
BLOCK = {"id": "d.four", "node": "spark-2", "verdict": "block", "message": "no.", "remedy": "do this"}


def judge(findings, arguments_of_ansible=(), **options):
    """Run the action once; returns its exit code and all it printed."""
    arguments = json.dumps({"title": "Test", **({} if findings is None else {"findings": findings}), **options})
    done = through_ansible.run("adhoc", "localhost", "-m", "gb10.cluster.judge", "-a", arguments, *arguments_of_ansible)
    return done.rc, done.out


@pytest.mark.parametrize(
    ("findings", "options", "stops"),
    [
        ([], {}, False),
        ([PASS, WARN], {}, False),
        ([PASS, UNKNOWN], {}, True),
        ([PASS, BLOCK], {}, True),
        ([BLOCK], {"silenced": ["d.four"]}, False),
        ([BLOCK, UNKNOWN], {"silenced": ["d.four"]}, True),
        ([PASS, WARN], {"fail_on_warn": True}, True),
        ([PASS, WARN], {"fail_on_warn": True, "silenced": ["b.two"]}, False),
    ],
)
def test_what_stops(findings, options, stops):
    code, output = judge(findings, **options)
    assert (code != 0) is stops, output


def test_the_table_says_what_and_how_to_go_on():
    dummy, output = judge([PASS, BLOCK, WARN], silenced=["b.two"])
    assert "Test: 1 block, 1 silenced, 1 pass" in output
    assert output.count("do this") == output.count("spark-2  no.") == 1
    assert "Test: 1 block; see the table above" in output


def test_show_problems_leaves_out_what_passed():
    dummy, output = judge([PASS, WARN], show="problems")
    assert "so so." in output
    assert "a.one" not in output.split("SUCCESS", maxsplit=1)[0]


def test_findings_or_a_stage_is_needed():
    code, output = judge(None)
    assert code != 0 and "required together: title, findings" in output


def test_a_note_is_enough():
    done = through_ansible.run("adhoc", "localhost", "-m", "gb10.cluster.judge", "-a", json.dumps({"note": "one: 1\ntwo: 2"}))
    assert done.rc == 0 and "one: 1\ntwo: 2\n" in done.out and "nothing judged" not in done.out


def test_a_warning_that_stops_says_so_with_its_remedy():
    code, output = judge([WARN], fail_on_warn=True)
    assert code != 0
    assert "so so." in output and "→ look" in output and "Test: 1 warn; see the table above" in output


def test_a_note_stands_below_the_table_as_it_is():
    code, output = judge([PASS], note="Next:\n  a: 1\n")
    assert code == 0, output
    assert "fine.\n\nNext:\n  a: 1\n" in output
