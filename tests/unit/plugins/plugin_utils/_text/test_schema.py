# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The result of a schema check: defaults, and problems with the place, the value and the expectation."""

from __future__ import annotations

import datetime

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._text.schema import check, near

SPEC = {
    "type": "dict",
    "options": {
        "name": {"type": "str", "required": True},
        "size": {"type": "int", "default": 1},
        "share": {"type": "float"},
        "mode": {"type": "str", "choices": ["stable", "fast"], "default": "stable"},
        "words": {"type": "list", "elements": "str", "choices": ["a", "b"], "default": []},
        "nested": {"type": "dict", "options": {"flag": {"type": "bool", "default": False}, "free": {"type": "dict", "default": {}}}},
        "many": {"type": "dict", "default": {}, "values": {"type": "dict", "options": {"text": {"type": "str", "required": True}}}},
        "proof": {"type": "list", "elements": "dict", "default": "none", "literal": "none", "options": {"who": {"type": "str", "required": True}}},
    },
}


def test_defaults_are_filled_in_at_every_depth():
    value, problems = check({"name": "x"}, SPEC)
    assert problems == []
    assert value == {
        "name": "x",
        "size": 1,
        "share": None,
        "mode": "stable",
        "words": [],
        "nested": {"flag": False, "free": {}},
        "many": {},
        "proof": "none",
    }


def test_the_value_is_a_copy():
    raw = {"name": "x", "nested": {"free": {"list": [1]}}}
    value, dummy = check(raw, SPEC)
    value["nested"]["free"]["list"].append(2)
    value["words"].append("a")
    assert raw["nested"]["free"]["list"] == [1]
    assert check({"name": "x"}, SPEC)[0]["words"] == []


def test_null_is_as_good_as_absent():
    value, problems = check({"name": "x", "size": None, "nested": None}, SPEC)
    assert (problems, value["size"], value["nested"]) == ([], 1, {"flag": False, "free": {}})


@pytest.mark.parametrize("value", [1, 1.5])
def test_a_number_may_be_whole(value):
    assert check({"name": "x", "share": value}, SPEC)[1] == []


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], "the file: found [] (a list); expected a mapping"),
        ({}, "name: is missing; expected a string"),
        ({"name": 26.05}, "name: found 26.05 (a number); expected a string"),
        ({"name": "x", "size": "2"}, "size: found '2' (a string); expected a whole number"),
        ({"name": "x", "size": True}, "size: found True (a boolean); expected a whole number"),
        ({"name": "x", "mode": "fst"}, "mode: found 'fst' (a string); expected one of stable, fast (did you mean 'fast'?)"),
        ({"name": "x", "words": ["c"]}, "words[0]: found 'c' (a string); expected one of a, b"),
        ({"name": "x", "words": "a"}, "words: found 'a' (a string); expected a list"),
        (
            {"name": "x", "sise": 2},
            "sise: is not a known field (did you mean 'size'?); expected one of name, size, share, mode, words, nested, many, proof",
        ),
        ({"name": "x", "nested": {"flg": True}}, "nested.flg: is not a known field (did you mean 'flag'?); expected one of flag, free"),
        ({"name": "x", "nested": {"flag": 1}}, "nested.flag: found 1 (a whole number); expected true or false"),
        ({"name": "x", "nested": {"free": {True: 1}}}, "nested.free: the key True is a boolean; expected a name, in quotes if need be"),
        (
            {"name": "x", "nested": {"free": {"a": [{"day": datetime.date(2026, 11, 21)}]}}},
            "nested.free.a[0].day: found 2026-11-21 (a date); expected a string, a number, true or false, a list or a mapping",
        ),
        ({"name": "x", "many": {"one": {}}}, "many.one.text: is missing; expected a string"),
        ({"name": "x", "proof": "yes"}, "proof: found 'yes' (a string); expected a list, or the word none"),
        ({"name": "x", "proof": [{"who": "a"}, {}]}, "proof[1].who: is missing; expected a string"),
    ],
)
def test_problems_say_where_what_and_what_instead(value, problem):
    assert list(map(str, check(value, SPEC)[1])) == [problem]


def test_all_problems_are_reported_at_once():
    assert len(check({"size": "2", "nested": {"flag": 1}}, SPEC)[1]) == 3


def test_two_words_that_are_equally_close_are_both_named_and_one_that_is_known_twice_once():
    assert near("profile_c", ["profile_a", "profile_b"]) == " (did you mean 'profile_b' or 'profile_a'?)"
    assert near("cutlas", ["cutlass", "auto", "cutlass"]) == " (did you mean 'cutlass'?)"


def test_a_long_value_is_cut():
    assert check({"name": ["x" * 500]}, SPEC)[1][0].what.count("x") < 100
