# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings as text."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._report import table

PASS = finding("a.one", "spark-1", "pass", "fine.", remedy="never shown")
WARN = finding("b.two", "spark-2", "warn", "so so.", remedy="look")
UNKNOWN = finding("c.three", "spark-1", "unknown", "no answer.")
BLOCK = finding("d.four", "spark-2", "block", "no.", remedy="do this")


@pytest.mark.parametrize(
    ("findings", "verdict"),
    [([], "pass"), ([PASS], "pass"), ([PASS, WARN], "warn"), ([WARN, UNKNOWN], "unknown"), ([UNKNOWN, BLOCK, PASS], "block")],
)
def test_worst(findings, verdict):
    assert table.worst(findings) == verdict


@pytest.mark.parametrize(
    ("findings", "silenced", "verdict"),
    [
        ([], (), "unknown"),
        ([PASS], (), "pass"),
        ([PASS], ("a.one",), "pass"),
        ([PASS, WARN, BLOCK], (), "block"),
        ([PASS, WARN, BLOCK], ("d.four",), "warn"),
        ([PASS, WARN, BLOCK], ("d.four", "b.two"), "silenced"),
        ([UNKNOWN], ("d.four",), "unknown"),
    ],
)
def test_the_verdict_of_a_look(findings, silenced, verdict):
    assert table.verdict(findings, silenced) == verdict


def test_silencing_changes_nothing_in_place():
    assert [found["verdict"] for found in table.silence([PASS, BLOCK], ["a.one", "d.four"])] == ["pass", "silenced"]
    assert BLOCK["verdict"] == "block"


def test_render_puts_the_gravest_first_with_its_remedy():
    lines = table.render([PASS, WARN, UNKNOWN, BLOCK])
    assert [line.split()[0] for line in lines] == ["block", "→", "unknown", "warn", "→", "pass"]
    assert lines[1].endswith("→ do this")


def test_counts_and_reasons():
    findings = [PASS, PASS, WARN, BLOCK]
    assert table.counts(findings) == "1 block, 1 warn, 2 pass"
    assert table.counts([]) == "nothing judged"
    assert table.reasons(findings) == "spark-2: no. Remedy: do this"


MATRIX = {
    "a.one": {"spark-1": "pass", "spark-2": "pass"},
    "b.two": {"spark-1": "not_judged", "spark-2": "warn"},
    "d.four": {"spark-1": "pass", "spark-2": "block"},
    "e.five": {"spark-1": "pass", "spark-2": "pass", "cluster": "silenced"},
    "f.six": {"spark-1": "not_judged", "spark-2": "not_judged"},
}


def test_the_grid_shows_only_rules_that_did_not_pass_everywhere():
    assert table.grid(MATRIX) == [
        "        spark-1  spark-2  cluster",
        "b.two   -        warn",
        "d.four  .        block",
        "e.five  .        .        silenced",
    ]
    assert table.grid({"a.one": {"spark-1": "pass"}}) == []


def test_the_grid_of_many_nodes_names_them():
    matrix = {"d.four": {f"spark-{number}": "block" if number in (2, 9) else "warn" if number == 4 else "pass" for number in range(1, 20)}}
    assert table.grid(matrix) == ["d.four  block: spark-2, spark-9; warn: spark-4"]


def test_what_passed_is_counted_in_the_matrix():
    findings = [{**BLOCK, "was": None}, {**WARN, "was": "block"}]
    numbers = table.tally(findings, MATRIX)
    assert numbers == {"block": 1, "unknown": 0, "warn": 1, "silenced": 0, "pass": 5, "not_judged": 3, "lowered": 1}
    assert table.summary(numbers) == "1 block, 1 warn, 5 pass, 3 not judged (1 of them lowered by hand)"
