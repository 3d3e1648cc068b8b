# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings as text."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table

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
    assert [entry["verdict"] for entry in table.silence([PASS, BLOCK], ["a.one", "d.four"])] == ["pass", "silenced"]
    assert BLOCK["verdict"] == "block"


def test_render_puts_the_gravest_first_with_its_remedy():
    lines = table.render([PASS, WARN, UNKNOWN, BLOCK])
    assert [line.split()[0] for line in lines] == ["block", "→", "unknown", "warn", "→", "pass"]
    assert lines[1].endswith("→ do this")


def test_what_several_nodes_share_is_one_entry_that_names_them():
    same = [finding("d.four", f"spark-{number}", "block", f"no driver on spark-{number}.", remedy=f"ssh spark-{number} reboot") for number in (1, 2, 11)]
    assert table.render([*same[:2], WARN]) == [
        "block  d.four  spark-1, spark-2  no driver on NODE.",
        "                                 → ssh NODE reboot",
        "warn   b.two   spark-2           so so.",
        "                                 → look",
    ]
    names = [f"a-long-name-{node}" for node in range(3)]
    assert table.render([{**BLOCK, "node": node} for node in names])[:2] == [
        "block  d.four  3 nodes  no.",
        "                        on a-long-name-0, a-long-name-1, a-long-name-2",
    ]
    assert table.render([{**BLOCK, "node": node} for node in names], names)[0] == "block  d.four  all 3 nodes  no."
    more = table.render([{**BLOCK, "node": node} for node in names], [*reversed(names), "b"])
    assert more[:2] == ["block  d.four  3 nodes  no.", "                        on a-long-name-2, a-long-name-1, a-long-name-0"]
    # A different message, remedy, verdict or id makes a different entry.
    for other in ({"message": "really no."}, {"remedy": "do that"}, {"verdict": "unknown"}, {"id": "d.five"}):
        assert len(table.shared([BLOCK, {**BLOCK, "node": "spark-1", **other}])) == 2


def test_a_finding_of_many_nodes_is_one_row():
    """32 nodes without a driver printed 545 lines when every node had its own entries."""
    nodes = [f"spark-{number}" for number in range(1, 33)]
    ids = ("gpu.present", "gpu.mps", "tenant.idle", "tenant.holding", "cuda_zombie.unknown", "container.foreign_gpu")
    findings = [finding(id, node, "unknown", "no answer of the driver.", remedy=f"look at {node}") for id in ids for node in nodes]
    matrix = {id: dict.fromkeys(nodes, "unknown") for id in ids}
    assert table.grid(matrix)[0].endswith("  unknown: all 32 nodes")
    lines = table.render(findings)
    assert len(lines) <= len(ids) * 6
    assert all(sum(f"{node}," in line or line.endswith(node) for line in lines) == len(ids) for node in nodes)


def test_counts():
    findings = [PASS, PASS, WARN, BLOCK]
    assert table.counts(findings) == "1 block, 1 warn, 2 pass"
    assert table.counts([]) == "nothing judged"
    assert table.summary(table.tally(findings), ("block", "unknown", "warn")) == "1 block, 1 warn"


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
