# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which engines a mode has, and what is wrong with a layout."""

from __future__ import annotations

import pytest
from ansible_collections.gb10.cluster.plugins.plugin_utils._lease import layouts
from ansible_collections.gb10.cluster.plugins.plugin_utils._lease.layouts import Service

#: The head is not the first of the inventory.
NODES = ("spark-2", "spark-1", "spark-3")
LAYOUTS = {
    "day": {"spark-1": "a_one", "spark-2": "./b_one.yml"},
    "big": {"all": "c_tp3"},
    "mixed": {"spark-3,spark-1": "d_tp2", "spark-2": "a_one"},
    "named": {"spark-1, spark-2,spark-3": "c_tp3"},
    "headed": {"spark-1,spark-2": "d_tp2"},
}


def answers(mode="off", nodes=NODES, **more):
    shared = {"mode": mode, "layouts": LAYOUTS, "pair": "gb10", "pair_source": "pair_tp2"}
    return {node: {**shared, "single": f"one-{node}", "single_source": "" if node == "spark-3" else f"{node}_one", **more} for node in nodes}


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("cluster", [Service("gb10", "pair_tp2", ["spark-2", "spark-1", "spark-3"])]),
        ("singles", [Service("one-spark-2", "spark-2_one", ["spark-2"]), Service("one-spark-1", "spark-1_one", ["spark-1"])]),
        ("off", []),
        ("unknown", []),
        ("day", [Service("one-spark-1", "a_one", ["spark-1"]), Service("one-spark-2", "./b_one.yml", ["spark-2"])]),
        # All nodes are the cluster, whether they are named or not.
        ("big", [Service("gb10", "c_tp3", ["spark-2", "spark-1", "spark-3"])]),
        ("named", [Service("gb10", "c_tp3", ["spark-2", "spark-1", "spark-3"])]),
        # A group's name has its nodes in one order; its head is the first in the inventory, or the head of the cluster.
        ("mixed", [Service("one-spark-1.one-spark-3", "d_tp2", ["spark-1", "spark-3"]), Service("one-spark-2", "a_one", ["spark-2"])]),
        ("headed", [Service("one-spark-1.one-spark-2", "d_tp2", ["spark-2", "spark-1"])]),
    ],
)
def test_the_engines_of_a_mode(mode, expected):
    assert layouts.services(answers(mode)) == layouts.services(answers("off"), mode) == expected


def test_on_one_node_the_cluster_and_the_nodes_own_engine_are_two():
    alone = answers(nodes=("spark-1",), layouts={"a": {"all": "x_one"}, "b": {"spark-1": "x_one"}})
    assert [layouts.services(alone, mode)[0].name for mode in ("cluster", "a", "singles", "b")] == ["gb10", "gb10", "one-spark-1", "one-spark-1"]


def test_each_cluster_of_the_inventory_is_known_by_its_name():
    known = {service.name: service.nodes for service in layouts.every(answers())}
    assert known == {
        "gb10": ["spark-2", "spark-1", "spark-3"], "one-spark-1": ["spark-1"], "one-spark-2": ["spark-2"], "one-spark-3": ["spark-3"],
        "one-spark-1.one-spark-3": ["spark-1", "spark-3"], "one-spark-1.one-spark-2": ["spark-2", "spark-1"],
    }  # fmt: skip
    assert layouts.known(["day"]) == ["cluster", "singles", "off", "day"]


def test_clusters_with_a_common_node_take_their_turn_together():
    a, b, c, d = Service("a", "p", ["1", "2"]), Service("b", "p", ["3"]), Service("c", "p", ["4", "5"]), Service("d", "p", ["2", "5"])
    assert layouts.turns([a, b, c], "1234567") == {"clusters": [a._asdict(), b._asdict(), c._asdict()], "batches": [["1", "2"], ["3"], ["4", "5"], ["6", "7"]]}
    assert layouts.turns([a, b, c, d], "12345")["batches"] == [["3"], ["1", "2", "4", "5"]]
    assert layouts.turns([], "12") == {"clusters": [], "batches": [["1", "2"]]}
    assert a._asdict() == {"name": "a", "profile": "p", "nodes": ["1", "2"]}


def test_the_engines_that_serve_alone_are_those_of_the_layout_that_is_named():
    given = {**LAYOUTS, "big": {"all": "c_tp3", "degraded": "day"}}
    assert layouts.degraded(answers(layouts=given), "big") == {"spark-1": "one-spark-1", "spark-2": "one-spark-2"}
    # Also where another mode is declared, and none without the key.
    assert layouts.degraded(answers("day", layouts=given), "day") == layouts.degraded(answers("big"), "big") == layouts.degraded(answers(), "cluster") == {}
    assert layouts.services(answers("big", layouts=given)) == [Service("gb10", "c_tp3", ["spark-2", "spark-1", "spark-3"])]
    assert list(layouts.problems(given, NODES)) == []


#: What a layout may name as degraded.
EXPECTED = "the name of a layout with one node a key; a node named degraded cannot be a key"


@pytest.mark.parametrize(
    ("big", "why"),
    [
        ({"all": "x", "degraded": "night"}, "night, which is not a layout"),
        ({"all": "x", "degraded": ["day"]}, "['day'], which is not a layout"),
        ({"all": "x", "degraded": "bad"}, "bad, which is not a layout"),
        ({"all": "x", "degraded": "big"}, "big, which has the key degraded itself"),
        ({"all": "x", "degraded": "mixed"}, "mixed, whose key spark-3,spark-1 is several nodes"),
        ({"all": "x", "degraded": "all"}, "all, whose key all is several nodes"),
    ],
)
def test_a_degraded_layout_has_one_node_a_key(big, why):
    given = {**LAYOUTS, "all": {"all": "y"}, "bad": None, "big": big}
    assert f"gb10_layouts.big: has degraded: {why}; expected {EXPECTED}" in [str(problem) for problem in layouts.problems(given, NODES)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (LAYOUTS, []),
        ({"serve": {"all": "x"}}, ["gb10_layouts.serve: is the name of a mode that always exists; expected another name than cluster, singles, off, serve"]),
        ({"Day": {"all": "x"}}, ["gb10_layouts.Day: cannot be the name of a layout; expected 1 to 32 of a-z, 0-9, '_', '.' and '-', a letter or digit first"]),
        (
            {False: {"all": "x"}},
            ["gb10_layouts.False: cannot be the name of a layout; expected 1 to 32 of a-z, 0-9, '_', '.' and '-', a letter or digit first"],
        ),
        ({"day": {}}, ["gb10_layouts.day: has no nodes; expected a mapping of nodes to profiles, such as {all: PROFILE}"]),
        (
            {"day": {"degraded": "night"}, "night": {"spark-1": "x"}},
            ["gb10_layouts.day: has no nodes; expected a mapping of nodes to profiles, such as {all: PROFILE}"],
        ),
        ({"day": "a_one"}, ["gb10_layouts.day: has no nodes; expected a mapping of nodes to profiles, such as {all: PROFILE}"]),
        (
            {"day": {"spark-9": "x"}},
            ["gb10_layouts.day: names spark-9, which is not a node of the cluster; expected all, or some of spark-2, spark-1, spark-3"],
        ),
        (
            {"day": {"spark-1,": "x"}},
            ["gb10_layouts.day: names nothing, which is not a node of the cluster; expected all, or some of spark-2, spark-1, spark-3"],
        ),
        ({"day": {1: "x"}}, ["gb10_layouts.day: names 1, which is not a node of the cluster; expected all, or some of spark-2, spark-1, spark-3"]),
        ({"day": {"all": "x", "spark-1": "y"}}, ["gb10_layouts.day: names spark-1 2 times; expected each node once, since a node runs one engine"]),
        ({"day": {"spark-1,spark-2": "x", "spark-2": "y"}}, ["gb10_layouts.day: names spark-2 2 times; expected each node once, since a node runs one engine"]),
        ({"day": {"spark-1": ""}}, ["gb10_layouts.day: has no profile for spark-1; expected the id of a profile, or its path"]),
        ({"day": {"spark-1": ["x"]}}, ["gb10_layouts.day: has no profile for spark-1; expected the id of a profile, or its path"]),
    ],
)
def test_a_layout_that_is_wrong_is_named_with_what_is_expected(given, expected):
    problems = list(layouts.problems(given, NODES))
    assert [str(problem) for problem in problems] == expected
    assert all(problem.id == "mode.layout" and problem.remedy == "correct gb10_layouts in the inventory" for problem in problems)
