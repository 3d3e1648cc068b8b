# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two clusters in one inventory do not affect each other: alpha on the nodes of one lab, beta on those of the other."""

from __future__ import annotations

import json
import typing as t

import pytest

from .lab import LABS, Lab, Play, of_both_labs

CLUSTERS = dict(zip(("alpha", "beta"), LABS))

#: Ask for a chat completion on the head itself; arguments: URL, file with the key.
ASK = """
import json, pathlib, sys, urllib.request as request
body = {"model": "tiny", "messages": [{"role": "user", "content": "Are you there?"}], "max_tokens": 64, "temperature": 0}
headers = {"Content-Type": "application/json", "Authorization": "Bearer " + pathlib.Path(sys.argv[2]).read_text().strip()}
with request.urlopen(request.Request(sys.argv[1], json.dumps(body).encode(), headers), timeout=60) as answer:
    print(json.load(answer)["choices"][0]["message"]["content"])
"""


class Both:
    """Both labs as one inventory with two clusters."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    @staticmethod
    def inventory() -> dict[str, t.Any]:
        """The groups that a user adds to split the hosts into two clusters. Heads and workers stay in the groups of all clusters."""
        return {name: {"hosts": dict.fromkeys(LABS[CLUSTERS[name]], {}), "vars": {"gb10_cluster_name": name}} for name in CLUSTERS}

    def play(self, name: str, playbook: str = "nemotron_tp2", **variables: t.Any) -> Play:
        """Run a playbook on one of the clusters, and assert that no host of the other is contacted."""
        played = self._lab.play(playbook, gb10_cluster_group=name, **variables)
        assert played.rc == 0, played.failures
        assert played.hosts <= {*LABS[CLUSTERS[name]], "localhost"}
        return played

    def look(self, name: str) -> dict[str, t.Any]:
        """Everything that another cluster's play could disturb: containers, the engine's processes, the collection's files and secrets."""
        seen = {}
        for host in LABS[CLUSTERS[name]]:
            ids = self._lab.run(host, "docker", "ps", "--all", "--quiet", "--no-trunc").split()
            states = json.loads(self._lab.run(host, "docker", "inspect", *ids)) if ids else []
            files = self._lab.run(host, "find", "/var/lib/gb10", "/etc/gb10", "-type", "f", "-exec", "sha256sum", "{}", "+")
            # Only the pids of long-running programs, because the programs that this check starts end again.
            engines = self._lab.run(host, "pgrep", "--full", "--list-full", "vllm serve|VLLM::|raylet", check=False)
            seen[host] = {
                "containers": {state["Name"]: (state["Id"], state["State"]["StartedAt"], state["State"]["Status"]) for state in states},
                "processes": sorted(line.split()[0] for line in engines.splitlines()),
                "files": sorted(files.splitlines()),
            }
        return seen

    def answer(self, name: str) -> str:
        """Return the cluster's answer to a question."""
        head = LABS[CLUSTERS[name]][0]
        run = self._lab.json(head, f"/var/lib/gb10/{name}/run/run.json")
        url = f"http://{run['api_address']}:{run['api_port']}/v1/chat/completions"
        return self._lab.run(head, "python3", "-c", ASK, url, f"/etc/gb10/secrets/{name}/api_key")


@pytest.fixture(scope="module", name="both")
def fixture_both(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Both]:
    made = Both(of_both_labs(tmp_path_factory.mktemp("clusters"), Both.inventory()))
    yield made
    for name in CLUSTERS:
        made.play(name, "teardown")


@pytest.fixture(scope="module", name="alone")
def fixture_alone(both: Both) -> dict[str, t.Any]:
    """The state of the first cluster while it serves alone. Afterwards the second one serves too."""
    both.play("alpha", gb10_allow="restart")
    assert "the cluster works" in both.answer("alpha")
    alone = both.look("alpha")
    assert all(seen["processes"] and seen["files"] for seen in alone.values()), alone
    both.play("beta", gb10_allow="restart")
    return alone


def test_bringing_up_the_second_leaves_the_first_alone(both, alone):
    assert both.look("alpha") == alone
    assert "the cluster works" in both.answer("alpha")
    assert "the cluster works" in both.answer("beta")


@pytest.mark.usefixtures("alone")
def test_each_node_carries_its_own_cluster_alone(both):
    for name in CLUSTERS:
        seen = both.look(name)
        expected = {host: [f"/gb10-{name}-{role}"] for role, host in zip(("head", "worker"), LABS[CLUSTERS[name]])}
        assert {host: list(seen[host]["containers"]) for host in seen} == expected


@pytest.mark.usefixtures("alone")
def test_a_second_run_of_one_changes_nothing_in_both(both):
    looks = {name: both.look(name) for name in CLUSTERS}
    assert both.play("beta").changed == {}
    assert {name: both.look(name) for name in CLUSTERS} == looks


@pytest.mark.usefixtures("alone")
def test_tearing_the_first_down_leaves_the_second_alone(both):
    beta = both.look("beta")
    both.play("alpha", "teardown")
    assert [seen["containers"] for seen in both.look("alpha").values()] == [{}, {}]
    assert both.look("beta") == beta
    assert "the cluster works" in both.answer("beta")
