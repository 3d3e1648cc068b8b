# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A rule that only compares is a row of rules.yml. It needs no function and no other file."""

from __future__ import annotations

import collections
import json
import typing as t

import pytest
from healthy_pair import HEALTHY, PROFILE, RUN, asked, node, second

from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import checks, judging, rule_table
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.evidence import Node, Unseen

#: Check functions that only one rule uses, by what they do beyond comparing. A new check that only compares has to be a row instead.
ALONE = {
    "works out a figure: a sum, a share, a floor, a plan": {
        "pcie_full", "counters_low", "daemon_memlock", "space", "space_for_image", "reserved_at_boot", "memory_of_class", "memory_for_engine",
        "companions_fit", "plan_fits", "space_for_model", "memory_left", "desktop_session",
    },
    "sets two lists, or two kinds of evidence, against each other": {
        "api_address_held", "twins_apart", "twins_addressed", "gid_usable", "firewall_open", "cdi_current", "devices_present", "capabilities_granted",
        "image_present", "image_architecture", "driver_loaded", "companion_units", "model_ready", "ranks_complete", "rdma_used", "rdma_allowed",
        "ranks_memlock", "raylet_there", "ray_closed", "engine_alone", "gpu_containers", "mode_has_it", "no_mps", "heads_alive",
    },
    "makes what is compared between nodes or ranks": {
        "one_network", "images_same", "models_same", "ranks_env", "ranks_arguments", "ranks_images", "ranks_versions",
    },
    "names several entries in one finding": {"one_specification", "one_engine", "environment_clean", "tenants_idle", "secrets_hidden"},
    "says in its own words why evidence is missing, or what stands for it": {
        "docker_answers", "probe_round_trip", "sshd_protected", "earlyoom_effective", "memory_monitor_off", "apis_closed", "apis_answer", "tokens_given",
    },
    "finds something once for the whole cluster, without evidence of a node": {"revision_pinned"},
}  # fmt: skip


def test_a_check_that_serves_one_rule_does_more_than_compare():
    served = collections.Counter(rule.check for rule in rule_table.every())
    functions = {**checks.CHECKS, **checks.COMPARISONS}
    special = {name for name, function in functions.items() if served[name] == 1 and function.__module__ != checks.__name__}
    reasons = [name for names in ALONE.values() for name in names]
    assert special == set(reasons) and len(reasons) == len(special)


def table(**row: t.Any) -> tuple[rule_table.Rule, ...]:
    """Return a table with one rule, in the form of rules.yml."""
    fixed = {"id": "a.rule", "title": "It is so", "compares": "requirement", "evidence": ["kernel"], "verdict": "block", "message": "{measured} of {needed}."}
    # JSON is also YAML.
    return rule_table.parsed(json.dumps({"rules": [{**fixed, "remedy": "Do it.", "source": "here", "tags": ["kernel"], **row}]}))


#: Rules on evidence of node_info, as in rules.yml: the row, a change that meets it, and the resulting message.
NEW_RULES: list[tuple[dict[str, t.Any], dict[str, t.Any], str]] = [
    ({"check": "value_is", "with": {"of": "kernel.arch", "value": "aarch64"}}, {"kernel__arch": "x86_64"}, "x86_64 of aarch64."),
    ({"check": "value_is_not", "with": {"of": "docker.version", "value": "1"}}, {"docker__version": "1"}, "1 of not 1."),
    (
        {"check": "at_most", "with": {"of": "memory.swap_total_mb", "limit": {"limit": "most"}}, "limits": {"most": 100000}},
        {"memory__swap_total_mb": 200000},
        "200000 of 100000.",
    ),
    (
        {
            "check": "not_so",
            "with": {
                "where": [["kernel.release", "has", ["-nvidia"]], ["docker.snap", "filled"]],
                "measures": "kernel.release",
                "needed": "no {word}",
                "words": {"name": {"need": "cluster"}},
            },
            "limits": {"word": "snap"},
            "message": "{name}: {measured} of {needed}.",
        },
        {"docker__snap": True},
        f"gb10: {HEALTHY['kernel']['release']} of no snap.",
    ),
    (
        {"check": "no_entry", "with": {"of": "interfaces", "name": "name", "where": [["mtu", "below", 1280]], "measures": "mtu", "needed": 1280}},
        {"interfaces__0__mtu": 576},
        "576 of 1280.",
    ),
    (
        {"check": "no_entry", "with": {"of": "links", "name": "link", "where": [["mtu", "below", 1280]], "measures": "mtu"}, "message": "{link} {measured}."},
        {"fabric__0__mtu": 576},
        "enp1s0f0np0 576.",
    ),
    (
        {"check": "some_entry", "with": {"of": "gpus", "name": "name", "where": [["name", "has", ["GB10"]]]}, "message": "found {found}."},
        {"gpus__0__name": "NVIDIA H200"},
        "found NVIDIA H200.",
    ),
    (
        {"check": "same", "compares": "nodes", "with": {"of": "kernel.arch"}, "message": "{listed}."},
        {"kernel__arch": "x86_64"},
        "spark-1 x86_64, spark-2 aarch64.",
    ),
]


@pytest.mark.parametrize(("row", "change", "says"), NEW_RULES, ids=lambda value: value.get("check", "") if isinstance(value, dict) else "")
def test_a_rule_on_known_evidence_is_one_row(row, change, says):
    rules = table(**row)
    healthy = {"spark-1": asked(), "spark-2": second()}
    assert judging.judge(healthy, PROFILE, RUN, rules)["findings"] == []
    (finding,) = judging.judge({**healthy, "spark-1": asked(node(**change))}, PROFILE, RUN, rules)["findings"]
    assert (finding["verdict"], finding["message"]) == ("block", says)


@pytest.mark.parametrize(("row", "change", "says"), NEW_RULES[:1] + NEW_RULES[2:6], ids=lambda value: value.get("check", "") if isinstance(value, dict) else "")
def test_what_such_a_rule_compares_is_unknown_when_it_is_missing(row, change, says):
    missing = {name: None for name in change if name != "docker__snap"} or {"kernel__release": None, "docker__snap": True}
    record = judging.judge({"spark-1": asked(node(**missing)), "spark-2": second()}, PROFILE, RUN, table(**row))
    (finding,) = record["findings"]
    assert finding["verdict"] == "unknown" and " is missing" in finding["message"]


THERE = Node("spark-1", {"errors": [{"section": "lost", "error": "permission denied"}], "one": 1, "none": None, "list": [2], "lost": None}, {}, {"word": "x"})


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ([], True),
        ([["one", "is", 1], ["list", "has", [2, 3]]], True),
        ([["one", "is", {"of": "none"}]], False),
        ([["one", "above", {"limit": "most"}]], False),
        ([[{"need": "word"}, "is", "x"], [{"need": "word"}, "filled"]], True),
        ([["none", "empty"]], True),
        ([["none", "known"]], False),
        ([["none", "is", 1]], None),
        # A condition that fails decides, even if another one is unknown.
        ([["none", "is", 1], ["one", "is", 2]], False),
        # An error that explains the null is always missing evidence.
        ([["lost", "empty"]], None),
    ],
)
def test_when_conditions_hold(where, expected):
    if expected is None:
        with pytest.raises(Unseen):
            checks.holds(THERE.get, where, THERE, {"most": 7})
    else:
        assert checks.holds(THERE.get, where, THERE, {"most": 7}) is expected
