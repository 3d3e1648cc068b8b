# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which nodes probe each other over which links, and how the results are judged."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import jsonschema
import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import profiles
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import judging, probe_evidence, rule_table, tuning

ROOT = Path(__file__).resolve().parents[5]
HEALTHY = (ROOT / "tests" / "unit" / "fixtures" / "node_info" / "healthy.json").read_text(encoding="utf-8")
SCHEMA = json.loads(rule_table.TABLE.with_name("preflight.schema.json").read_text(encoding="utf-8"))
PROFILE = profiles.load("nemotron_3_super_tp2")
RUN = {"cluster": "gb10", "tags": ["fabric"], "skip_tags": [], "time": "2026-11-21T15:00:00Z"}


def node(number=1, rdma=True, **settings):
    """Return a healthy Spark as the role records it."""
    info = json.loads(HEALTHY.replace("192.168.100.11", f"192.168.100.1{number}").replace("192.168.101.11", f"192.168.101.1{number}"))
    defaults = {
        "head": number == 1, "cluster": "gb10", "address": f"192.168.100.1{number}", "ports": {}, "fabric_interfaces": [], "rdma_devices": [],
        "fabric_fallback": "none", "container_gpus": "all", "serve_arguments": {}, "rules": {}, "silenced": [],
    }  # fmt: skip
    return {"info": info, "settings": {**defaults, **settings}, "rdma": rdma}


def cluster(count=2, **changes):
    return {f"spark-{number}": node(number, **changes) for number in range(1, count + 1)}


# -- planning --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "expected"), [(1, 0), (2, 1), (3, 3), (4, 6), (5, 5), (8, 8)])
def test_all_pairs_up_to_four_nodes_and_a_ring_beyond(count, expected):
    names = [f"n{number}" for number in range(count)]
    pairs = probe_evidence.pairs(names)
    assert len(pairs) == expected == len({frozenset(pair) for pair in pairs})
    assert count < 2 or set(itertools.chain(*pairs)) == set(names)


@pytest.mark.parametrize("count", range(1, 20))
def test_no_node_is_in_two_pairs_of_a_round(count):
    pairs = probe_evidence.pairs([f"n{number}" for number in range(count)])
    rounds = probe_evidence.rounds(pairs)
    assert sorted(itertools.chain(*rounds)) == sorted(pairs)
    for round_pairs in rounds:
        busy = list(itertools.chain(*round_pairs))
        assert len(busy) == len(set(busy))
    assert len(rounds) <= 5


def test_two_sparks_with_two_twins():
    (parts,) = probe_evidence.plan(cluster())
    measuring, listening = parts["spark-1"], parts["spark-2"]
    assert (measuring["state"], measuring["peer"], listening["state"], listening["peer"]) == ("measure", "spark-2", "listen", "spark-1")
    assert measuring["method"] == "rdma" and measuring["why"] == ""
    assert [(link["link"], link["address"], link["peer_address"], link["device"], link["gid"], link["mtu"]) for link in measuring["links"]] == [
        ("enp1s0f0np0", "192.168.100.11", "192.168.100.12", "rocep1s0f0", 3, 9000),
        ("enP2p1s0f0np0", "192.168.101.11", "192.168.101.12", "roceP2p1s0f0", 3, 9000),
    ]
    assert [link["address"] for link in listening["links"]] == ["192.168.100.12", "192.168.101.12"]
    assert not any("peer_address" in link or "network" in link for link in listening["links"])


def test_without_the_tool_or_a_gid_it_is_tcp_with_the_reason():
    nodes = cluster()
    nodes["spark-2"]["rdma"] = False
    (parts,) = probe_evidence.plan(nodes)
    assert (parts["spark-1"]["method"], parts["spark-1"]["why"]) == ("tcp", "ib_write_bw is missing on its peer")
    nodes = cluster()
    nodes["spark-1"]["info"]["fabric"][0]["gids"] = []
    (parts,) = probe_evidence.plan(nodes)
    assert parts["spark-1"]["method"] == "tcp" and "RoCE v2 GID" in parts["spark-1"]["why"]


def test_a_link_without_carrier_or_address_is_not_probed():
    nodes = cluster()
    nodes["spark-2"]["info"]["fabric"][1]["carrier"] = False
    (parts,) = probe_evidence.plan(nodes)
    assert [link["link"] for link in parts["spark-1"]["links"]] == ["enp1s0f0np0"]
    nodes = cluster()
    for interface in nodes["spark-1"]["info"]["interfaces"]:
        if interface["name"] == "enp1s0f0np0":
            interface["networks"] = []
    (parts,) = probe_evidence.plan(nodes)
    assert [link["link"] for link in parts["spark-1"]["links"]] == ["enP2p1s0f0np0"]


def test_twins_in_one_subnet_are_each_matched_once():
    links = [{"link": name, "address": f"10.0.0.{number}", "network": "10.0.0.0/24"} for number, name in enumerate(("p0", "p1"), 1)]
    peers = [{"link": name, "address": f"10.0.0.{number}", "network": "10.0.0.0/24"} for number, name in enumerate(("p1", "p0"), 3)]
    assert [(own["link"], peer["link"]) for own, peer in probe_evidence.matched(links, peers)] == [("p0", "p0"), ("p1", "p1")]


def test_a_bond_is_one_link_by_tcp():
    nodes = cluster()
    for number, name in ((1, "spark-1"), (2, "spark-2")):
        info = nodes[name]["info"]
        for link in info["fabric"][:2]:
            link["bond"] = "bond0"
        network = {"family": "ipv4", "address": f"10.9.0.{number}", "prefix": 24, "network": "10.9.0.0/24", "scope": "global"}
        bond = {"name": "bond0", "carrier": True, "mtu": 9000, "networks": [network], "addresses": [network["address"]]}
        info["interfaces"].append(bond)
    (parts,) = probe_evidence.plan(nodes)
    assert [(link["link"], link["peer_address"]) for link in parts["spark-1"]["links"]] == [("bond0", "10.9.0.2")]
    assert parts["spark-1"]["method"] == "tcp"


def test_a_node_without_a_card_is_probed_where_its_address_is():
    nodes = cluster()
    for entry in nodes.values():
        entry["info"]["fabric"] = []
    (parts,) = probe_evidence.plan(nodes)
    assert [link["link"] for link in parts["spark-1"]["links"]] == ["enp1s0f0np0"] and parts["spark-1"]["method"] == "tcp"


def test_without_a_common_subnet_there_are_no_links():
    nodes = cluster()
    nodes["spark-2"]["info"] = json.loads(json.dumps(nodes["spark-2"]["info"]).replace("192.168.10", "172.16.1"))
    (parts,) = probe_evidence.plan(nodes)
    assert parts["spark-1"]["links"] == [] == parts["spark-2"]["links"]


def test_one_node_has_no_peer_to_probe():
    assert probe_evidence.plan(cluster(1)) == []
    assert probe_evidence.lines({"spark-1": {"sent": []}}) == ["nothing was measured: it takes two nodes"]


# -- judging ---------------------------------------------------------------------------------------------------------

#: Ping results of owners: on a healthy pair, and on one where NCCL got 24 of 187 Gb/s until a reboot.
PASSES = {"passes": True, "path_mtu": None, "rtt_ms": 0.282}
SLOW = {**PASSES, "rtt_ms": 1.016}
UNTRIED = {"passes": None, "path_mtu": None, "rtt_ms": None}


def link(name="enp1s0f0np0", out=97.28, back=92.57, ping=None):
    ends = {"address": "192.168.100.11", "peer_address": "192.168.100.12", "mtu": 9000}
    return {"link": name, **ends, "out_gbits": out, "in_gbits": back, "ping": ping or PASSES}


def measured(links=None, together=(189.85, 188.0), method="rdma", errors=(), why=""):
    links = [link(), link("enP2p1s0f0np0")] if links is None else links
    both = dict(zip(("out_gbits", "in_gbits"), together)) if together else None
    return {"node": "spark-1", "peer": "spark-2", "method": method, "why": why, "links": links, "together": both, "errors": list(errors)}


def judged(result, nodes=None):
    record = judging.judge_probe(nodes or cluster(), [result], PROFILE, RUN)
    jsonschema.validate(record, SCHEMA)
    assert record["kind"] == "gb10.cluster.fabric" and set(record["matrix"]) == {rule.id for rule in rule_table.probing()}
    return record


def verdicts(record):
    return {(finding["id"], finding["node"], finding["verdict"]) for finding in record["findings"]}


TCP = {"method": "tcp", "why": "ib_write_bw is missing on its peer"}
BY_TCP = ("probe.rdma_used", "spark-1", "warn")


def test_what_the_guide_measured_passes():
    record = judged(measured())
    assert record["findings"] == [] and record["verdict"] == "pass"
    lines = probe_evidence.lines(record["probe"])
    assert "spark-1 to spark-2, enp1s0f0np0: 97.28 Gbit/s (rdma)" in lines
    assert "spark-2 to spark-1, all 2 links at once: 188.00 Gbit/s (rdma)" in lines
    assert len(lines) == 6


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        # Reported for a link with a speed of 200 Gbit/s.
        (measured([link(out=13.23), link("b")], (110, 188)), {("probe.rdma_capped", "spark-1", "block")}),
        # In the other direction, the peer sends.
        (measured([link(back=13.23), link("b")], (189, 188)), {("probe.rdma_capped", "spark-2", "block")}),
        (measured([link(out=60.0), link("b")], (189, 188)), {("probe.rdma_slow", "spark-1", "warn")}),
        (measured(together=(98.0, 188.0)), {("probe.rdma_sum", "spark-1", "warn")}),
        (measured([link(ping={"passes": False, "path_mtu": 1500, "rtt_ms": None}), link("b")]), {("probe.mtu", "spark-1", "block")}),
        (measured([link(ping=SLOW), link("b")]), {("probe.round_trip", "spark-1", "warn")}),
        (measured([link(ping={**PASSES, "rtt_ms": None}), link("b")]), {("probe.round_trip", "spark-1", "warn")}),
        (measured([link(ping=UNTRIED)], None, errors=["ping does not say"]), {("probe.measured", "spark-1", "unknown")}),
        (measured([link(out=None, back=None)], None, errors=["192.168.100.12: timed out"]), {("probe.measured", "spark-1", "unknown")}),
        (measured([], None, errors=["no subnet in common"]), {("probe.measured", "spark-1", "unknown")}),
        (measured([link(out=60, back=58), link("b", 61, 62)], (90, 88), **TCP), {BY_TCP}),
        (measured([link(out=12.86), link("b")], (90, 88), **TCP), {BY_TCP, ("probe.tcp_capped", "spark-1", "block")}),
        (measured([link(out=30.0), link("b")], (90, 88), **TCP), {BY_TCP, ("probe.tcp_slow", "spark-1", "warn")}),
        (measured(together=(45.0, 88.0), **TCP), {BY_TCP, ("probe.tcp_sum", "spark-1", "warn")}),
    ],
)  # fmt: skip
def test_each_fault_is_one_finding_on_the_node_that_sent(result, expected):
    record = judged(result)
    assert verdicts(record) == expected
    for finding in record["findings"]:
        assert "{" not in finding["message"] + finding["remedy"] and "None" not in finding["message"] + finding["remedy"], finding
        assert finding["remedy"] and finding["source"]


def test_a_capped_link_is_not_also_slow():
    record = judged(measured([link(out=13.23, back=13.3), link("b", 13.2, 13.1)], (26, 26)))
    assert {finding["id"] for finding in record["findings"]} == {"probe.rdma_capped"} and len(record["findings"]) == 4
    assert {entry["why"] for entry in record["not_judged"]} == {"probe.rdma_capped comes first", "probe.rdma_slow comes first"}


def test_where_tcp_is_allowed_its_use_passes():
    record = judged(measured(together=(90, 90), **TCP), cluster(fabric_fallback="tcp"))
    assert verdicts(record) == set()
    assert {entry["id"] for entry in record["not_judged"]} == {"probe.rdma_used"}


def test_lines_are_tuned_and_silenced_like_any_rule():
    rules = {"probe.rdma_sum": {"least_gbits": 90, "why": "the switch carries 100"}}
    record = judged(measured(together=(98.0, 97.0)), cluster(rules=rules))
    assert record["findings"] == [] and record["tuned"][0]["id"] == "probe.rdma_sum"
    record = judged(measured([link(out=13.23), link("b")], (110, 188)), cluster(silenced=["probe.rdma_capped"]))
    assert [(finding["verdict"], finding["was"]) for finding in record["findings"]] == [("silenced", "block")]
    assert tuning.tuning_problems(rules, "rules", "input.rules") == []


def test_the_preflight_does_not_judge_by_probes():
    assert not {rule.id for rule in rule_table.shipped()} & {rule.id for rule in rule_table.probing()}
    assert {rule.id.split(".")[0] for rule in rule_table.probing()} == {"probe"}
    assert all("fabric" in rule.tags for rule in rule_table.probing())


def test_a_cluster_of_one_node_has_no_fabric_that_could_pass():
    record = judging.judge_probe(cluster(1), [], PROFILE, RUN)
    assert record["verdict"] == "unknown" and [finding["id"] for finding in record["findings"]] == ["probe.measured"]
    assert "it takes two nodes" in record["findings"][0]["message"]


def test_two_without_a_common_subnet_were_measured_by_nothing():
    record = judged(measured(links=[], together=None, method="tcp", errors=["no subnet in common"]))
    assert [(finding["id"], finding["verdict"]) for finding in record["findings"]] == [("probe.measured", "unknown")]


def test_a_probe_that_did_not_run_does_not_pass():
    answers = {name: {"info": entry["info"], "zombies": {"findings": []}, "settings": entry["settings"]} for name, entry in cluster().items()}
    record = judging.judge(answers, PROFILE, RUN, rule_table.probing())
    assert {finding["verdict"] for finding in record["findings"]} == {"unknown", "warn"} and record["verdict"] == "unknown"
    assert all("probe is missing" in finding["message"] for finding in record["findings"])
