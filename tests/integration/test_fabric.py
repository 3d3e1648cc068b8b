# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fabric probe between two nodes: real TCP transfers over the lab's second network. They measure the bridge's speed, not that of a link."""

from __future__ import annotations

import jsonschema

from .lab import HEAD, RECORD_SCHEMA, WORKER, Lab, Play


def record_of(played: Play) -> dict:
    record = played.stat("gb10_fabric")
    jsonschema.validate(record, RECORD_SCHEMA)
    return record


def listening(lab: Lab, host: str) -> set[str]:
    """Addresses and ports on which anything listens for TCP."""
    return {line.split()[3] for line in lab.run(host, "ss", "-Hltn").splitlines()}


def test_both_ways_are_measured_and_nothing_is_left(lab: Lab, no_cluster: None) -> None:
    before = {host: listening(lab, host) for host in (HEAD, WORKER)}
    played = lab.play("doctor", tags="fabric")
    assert played.rc == 0, played.failures
    assert played.changed == {}
    record = record_of(played)
    assert record["kind"] == "gb10.cluster.fabric" and record["verdict"] in ("pass", "silenced")
    for node, other in ((HEAD, WORKER), (WORKER, HEAD)):
        probe = record["probe"][node]
        assert [(sent["to"], sent["method"]) for sent in probe["sent"]] == [(other, "tcp")]
        assert probe["sent"][0]["gbits"] > 0
        assert probe["errors"] == []
    # Only one node of a pair pings, because the replies are as large.
    assert [(ping["to"], ping["passes"]) for node in (HEAD, WORKER) for ping in record["probe"][node]["pings"]] == [(WORKER, True)]
    assert {host: listening(lab, host) for host in (HEAD, WORKER)} == before


def test_by_its_tag_beside_the_preflight(lab: Lab, no_cluster: None) -> None:
    played = lab.play("doctor", tags="all,fabric")
    assert played.rc == 0, played.failures
    assert record_of(played)["kind"] == "gb10.cluster.fabric"
    silent = lab.play("doctor")
    assert silent.rc == 0, silent.failures
    assert not any(task.startswith("Probe") for _role, task in silent.tasks())


def test_packets_that_do_not_fit_on_the_way_are_reported(lab: Lab, no_cluster: None) -> None:
    lab.run(WORKER, "ip", "link", "set", "eth1", "mtu", "1500")
    try:
        played = lab.play("doctor", tags="fabric")
    finally:
        lab.run(WORKER, "ip", "link", "set", "eth1", "mtu", "9000")
    assert played.rc != 0
    assert "probe.mtu" in {finding["id"] for finding in record_of(played)["findings"] if finding["verdict"] == "block"}
    assert "do not reach" in played.failures


def test_a_limit_that_no_link_here_reaches(lab: Lab, no_cluster: None) -> None:
    played = lab.play("doctor", tags="fabric", gb10_rules={"probe.tcp_capped": {"least_gbits": 10_000}})
    assert played.rc != 0
    assert {(finding["id"], finding["node"]) for finding in record_of(played)["findings"] if finding["verdict"] == "block"} == {
        ("probe.tcp_capped", HEAD),
        ("probe.tcp_capped", WORKER),
    }


def test_check_mode_loads_nothing(lab: Lab, no_cluster: None) -> None:
    played = lab.play("doctor", tags="fabric", check=True)
    assert played.rc == 0, played.failures
    assert "nothing is known of it" in played.stdout
