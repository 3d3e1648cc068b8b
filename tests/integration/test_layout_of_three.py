# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Three nodes as a pair and a single are one layout: the nodes of one lab, and the first node of the other."""

from __future__ import annotations

import typing as t

import pytest

from .lab import LABS, ROOT, Lab, Play, of_both_labs
from .test_models import says

HEAD, WORKER = LABS["lab"]
THIRD = LABS["lab_next"][0]
NODES = (HEAD, WORKER, THIRD)
GROUP = f"{HEAD}.{WORKER}"
PAIR, ONE = "lab_tiny_native_tp2", "lab_tiny_one"
LAYOUTS = {"mixed": {f"{HEAD},{WORKER}": PAIR, THIRD: ONE}, "less": {f"{WORKER}, {HEAD}": PAIR}, "three": dict.fromkeys(NODES, ONE)}


class Three:
    """The three nodes as one cluster, whose engine over all of them is never started."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def change(self, mode: str, **variables: t.Any) -> Play:
        # The path in each lab's inventory is relative to that inventory.
        profiles = [str(ROOT / "tests/lab/profiles")]
        played = self.lab.play("mode", gb10_cluster_group="three_nodes", gb10_mode=mode, gb10_profile_dirs=profiles, **variables)
        assert played.rc == 0, played.said[-4000:]
        return played

    def clusters(self) -> dict[str, set[str]]:
        """The clusters that have a container on each node, running or not."""
        listing = ("docker", "ps", "--all", "--filter", "label=io.gb10.owner", "--format", '{{.Label "io.gb10.cluster"}}')
        return {host: set(self.lab.run(host, *listing).split()) for host in NODES}

    def ids(self) -> dict[str, list[str]]:
        """The ids of the containers on each node."""
        return {host: sorted(self.lab.run(host, "docker", "ps", "--all", "--quiet").split()) for host in NODES}


@pytest.fixture(scope="module", name="three")
def fixture_three(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Three]:
    # In the labs' own inventories two of the nodes are heads. The nodes of all labs share the machine's memory.
    shared = {
        "gb10_head_host": HEAD, "gb10_worker_hosts": [WORKER, THIRD], "gb10_silenced": ["input.two_heads", "input.nodes"], "gb10_layouts": LAYOUTS,
        "__gb10_shared_tolerance_mb": 16384,
    }  # fmt: skip
    made = Three(of_both_labs(tmp_path_factory.mktemp("three"), {"three_nodes": {"hosts": dict.fromkeys(NODES, {}), "vars": shared}}))
    yield made
    made.change("off", gb10_allow="interrupt,forget")


def test_a_pair_and_a_single_come_up_by_one_command_and_a_second_changes_nothing(three: Three) -> None:
    played = three.change("mixed")
    assert played.stat("gb10_mode_report")["services"] == {GROUP: "serves", THIRD: "serves"}, played.said[-3000:]
    assert three.clusters() == {HEAD: {GROUP}, WORKER: {GROUP}, THIRD: {THIRD}}
    assert "the cluster works" in says(three.lab, HEAD, GROUP, "tiny") and "the cluster works" in says(three.lab, THIRD, THIRD, "tiny")
    assert three.change("mixed").changed == {}


def test_what_two_layouts_share_stays_and_the_rest_goes_and_comes(three: Three) -> None:
    three.change("mixed")
    before = three.ids()
    three.change("less")
    assert three.ids() == {HEAD: before[HEAD], WORKER: before[WORKER], THIRD: []}
    three.change("mixed")
    assert {host: ids for host, ids in three.ids().items() if host != THIRD} == {HEAD: before[HEAD], WORKER: before[WORKER]}
    single = three.ids()[THIRD]
    three.change("three")
    assert three.clusters() == {host: {host} for host in NODES} and three.ids()[THIRD] == single
    assert three.change("three").changed == {}
