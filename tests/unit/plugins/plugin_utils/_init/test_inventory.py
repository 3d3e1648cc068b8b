# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Inventories from the answers of nodes. The answers are derived from healthy.json; the cablings are those of guides by the vendor and by owners."""

from __future__ import annotations

import copy
import ipaddress
import json
import re
import typing as t
from hypothesis import HealthCheck, example, given, settings, strategies as st
from pathlib import Path

import pytest
import yaml

from ansible_collections.gb10.cluster.plugins.module_utils._network import rdma
from ansible_collections.gb10.cluster.plugins.plugin_utils._init import inventory, node_facts, texts as _init_texts
from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs import cluster, inputs, settings as _settings
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import catalogue
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table

ROOT = Path(__file__).resolve().parents[5]
HEALTHY = json.loads((ROOT / "tests" / "unit" / "fixtures" / "node_info" / "healthy.json").read_text(encoding="utf-8"))
CATALOGUE = catalogue.catalogue()
SECTIONS = ("memory", "interfaces", "fabric", "gpus", "models", "errors")
#: Interfaces of a Spark by cage and half, and their RDMA devices.
DEVICES = {"enp1s0f0np0": "rocep1s0f0", "enP2p1s0f0np0": "roceP2p1s0f0", "enp1s0f1np1": "rocep1s0f1", "enP2p1s0f1np1": "roceP2p1s0f1"}
FIRST, SECOND, THIRD, FOURTH = DEVICES

Node = dict[str, t.Any]


def network(address: str) -> dict[str, t.Any]:
    """Return an address as node_info reports it, from ``10.0.0.1/24``."""
    parsed = ipaddress.ip_interface(address)
    scope = "link" if parsed.ip.is_link_local else "global"
    return {"family": f"ipv{parsed.version}", "address": str(parsed.ip), "prefix": parsed.network.prefixlen, "network": str(parsed.network), "scope": scope}


def spark(number: int, links: dict[str, str | list[str]] | None = None, total_mb: int = 124610, mgmt: str = "10.0.0.{}/24") -> Node:
    """Return the answers of a Spark: ``links`` are the interfaces with carrier and their addresses, by default both halves of one cage."""
    chosen = {FIRST: f"192.168.100.1{number}/24", SECOND: f"192.168.101.1{number}/24"} if links is None else links
    info = {section: copy.deepcopy(HEALTHY[section]) for section in SECTIONS}
    info["environment"] = []
    info["memory"]["total_mb"] = total_mb
    for interface in info["interfaces"]:
        if interface["name"] in DEVICES:
            addresses = chosen.get(interface["name"], [])
            networks = [network(address) for address in ([addresses] if isinstance(addresses, str) else addresses) if address]
            live = interface["name"] in chosen
            state = {"carrier": live, "operstate": "up" if live else "down", "speed": 200000 if live else None}
            interface.update(state, networks=networks, addresses=[entry["address"] for entry in networks])
        elif interface["name"] == "enP7s7":
            interface["networks"] = [network(mgmt.format(10 + number))]
    by_name = {interface["name"]: interface for interface in info["interfaces"]}
    for link in info["fabric"]:
        mine = by_name[link["netdev"]]
        link.update({key: mine[key] for key in ("carrier", "operstate", "networks", "addresses")}, speed_mbps=mine["speed"], cage=link["netdev"][-1])
    return {"info": info, "reached": mgmt.format(10 + number).partition("/")[0], "refused": "", "login": {"ansible_python_interpreter": "/usr/bin/python3"}}


def bonded(node: Node, address: str) -> Node:
    """Return the node with a bond over both halves of the first cage."""
    info = node["info"]
    for link in info["fabric"]:
        if link["netdev"] in (FIRST, SECOND):
            link.update(bond="bond0", networks=[], addresses=[])
    for interface in info["interfaces"]:
        if interface["name"] in (FIRST, SECOND):
            interface.update(networks=[], addresses=[])
    bond = {"name": "bond0", "carrier": True, "operstate": "up", "mtu": 9000, "mac": "x", "speed": 400000, "driver": "bonding"}
    info["interfaces"].append({**bond, "networks": [network(address)] if address else [], "addresses": []})
    return node


def without_rdma(node: Node, interfaces: bool = True) -> Node:
    """Return the node without RDMA devices, or without the card."""
    info = node["info"]
    if interfaces:
        for link in info["fabric"]:
            link.update(device=None, gids=[], counters={})
    else:
        info["fabric"] = []
        info["interfaces"] = [interface for interface in info["interfaces"] if interface["name"] not in DEVICES]
    return node


def planned(*nodes: Node, names: t.Sequence[str] = (), **run: t.Any) -> dict[str, t.Any]:
    """Plan an inventory; the nodes are spark1, spark2 and so on."""
    hosts = names or [f"spark{number}" for number in range(1, len(nodes) + 1)]
    common = {"lost": [], "head": "", "catalogue": CATALOGUE, "chosen": [], "fallback": "none", "directory": "./gb10-inventory"}
    return inventory.plan(dict(zip(hosts, copy.deepcopy(nodes))), {**common, **run})


def problems(plan: dict[str, t.Any]) -> list[tuple[str, str, str]]:
    """Return id, node and verdict of each finding that is not a pass."""
    return [(finding["id"], finding["node"], finding["verdict"]) for finding in plan["findings"] if finding["verdict"] != "pass"]


def messages(plan: dict[str, t.Any], id: str) -> str:
    return "\n".join(f"{finding['message']} {finding['remedy']}" for finding in plan["findings"] if finding["id"] == f"init.{id}")


def loaded(plan: dict[str, t.Any]) -> dict[str, dict[str, t.Any]]:
    """Return the variables of each host, as Ansible would merge them from the files."""
    texts = {file["path"]: yaml.safe_load(file["content"]) for file in plan["files"] if file["path"].endswith(".yml")}
    group = texts["hosts.yml"]["gb10_cluster"]
    shared = {**texts["group_vars/gb10_cluster/settings.yml"], **group["vars"]}
    members = {part: list(children["hosts"]) for part, children in group["children"].items()}
    own = {name: variables for children in group["children"].values() for name, variables in children["hosts"].items()}
    parts = {"gb10_head_host": members["gb10_head"][0], "gb10_worker_hosts": members.get("gb10_workers", [])}
    return {name: {**shared, **own[name], **texts.get(f"host_vars/{name}.yml", {}), **parts} for name in own}


def judged(plan: dict[str, t.Any]) -> list[tuple[str, str]]:
    """Validate the files as the collection does, without a play, and return id and verdict of each finding that is not a pass."""
    hosts = loaded(plan)
    defaults = {name: option["default"] for name, option in _settings.settings().items() if "default" in option}
    answers = {}
    for name, variables in hosts.items():
        head = variables["gb10_head_host"]
        derived = {
            "gb10_api_address": hosts[head]["gb10_fabric_address"],
            "gb10_api_key_file": "",
            "gb10_container_devices": ["/dev/infiniband"],
            "gb10_hf_token_file": "",
        }
        values = {key: value for key, value in {**defaults, **derived, **variables}.items() if key in _settings.settings()}
        answer = inputs.judge_host(name, values, {}, {}, list(variables))
        answers[name] = {"login": {"connection": "ssh", "host": name, "port": 22}, **answer}
    names = list(hosts)
    groups = {"all": names, "gb10_cluster": names, "gb10_head": names[:1], "gb10_workers": names[1:]}
    findings = cluster.judge_cluster(answers, {"groups": groups, "hosts": names, "batch": names, "limit": "", "forks": 20, "consent": ""})
    return [(finding["id"], finding["verdict"]) for finding in findings if finding["verdict"] != "pass"]


# --- two Sparks ---------------------------------------------------------------------------------------------------------------


def test_both_halves_with_addresses_are_adopted():
    plan = planned(spark(1), spark(2))
    assert problems(plan) == [] and plan["advice"] == []
    hosts = loaded(plan)
    assert {name: variables["gb10_fabric_address"] for name, variables in hosts.items()} == {"spark1": "192.168.100.11", "spark2": "192.168.100.12"}
    for variables in hosts.values():
        assert variables["gb10_fabric_interfaces"] == [FIRST, SECOND]
        assert variables["gb10_control_interface"] == FIRST
        assert variables["gb10_rdma_devices"] == ["rocep1s0f0", "roceP2p1s0f0"]
        assert variables["gb10_profile"] == "nemotron_3_super_tp2"
        assert variables["gb10_hf_home"] == "/models"
        assert variables["gb10_api_address"] == "10.0.0.11"
        assert variables["gb10_head_host"] == "spark1"
    assert judged(plan) == []
    assert plan["note"] == "Next: ansible-playbook -i ./gb10-inventory gb10.cluster.doctor"


def test_the_same_answers_make_the_same_texts():
    assert planned(spark(1), spark(2))["files"] == planned(spark(1), spark(2))["files"]


def test_other_hosts_can_be_the_head():
    plan = planned(spark(1), spark(2), head="spark2")
    assert {variables["gb10_head_host"] for variables in loaded(plan).values()} == {"spark2"}
    assert loaded(plan)["spark1"]["gb10_api_address"] == "10.0.0.12"
    assert problems(planned(spark(1), spark(2), head="spark3")) == [("init.head", "cluster", "block")]


def test_cages_may_differ_between_nodes():
    """The cable goes from the first cage of one node to the second cage of the other, so interface names differ between nodes."""
    plan = planned(spark(1), spark(2, {THIRD: "192.168.100.12/24", FOURTH: "192.168.101.12/24"}))
    assert problems(plan) == []
    assert [file["path"] for file in plan["files"] if file["path"].startswith("host_vars")] == ["host_vars/spark1.yml", "host_vars/spark2.yml"]
    hosts = loaded(plan)
    assert hosts["spark1"]["gb10_fabric_interfaces"] == [FIRST, SECOND]
    assert hosts["spark2"]["gb10_fabric_interfaces"] == [THIRD, FOURTH]
    assert hosts["spark2"]["gb10_rdma_devices"] == ["rocep1s0f1", "roceP2p1s0f1"]
    assert hosts["spark2"]["gb10_control_interface"] == THIRD
    assert judged(plan) == []


def test_interfaces_are_ordered_by_subnet_not_by_name():
    """NCCL pairs devices by their order, so devices of one subnet need the same position on all nodes."""
    crossed = spark(2, {FIRST: "192.168.101.12/24", SECOND: "192.168.100.12/24"})
    hosts = loaded(planned(spark(1), crossed))
    assert hosts["spark1"]["gb10_fabric_interfaces"] == [FIRST, SECOND]
    assert hosts["spark2"]["gb10_fabric_interfaces"] == [SECOND, FIRST]
    assert hosts["spark2"]["gb10_fabric_address"] == "192.168.100.12"


def test_a_half_without_address_is_reported_and_gets_advice():
    plan = planned(spark(1, {FIRST: "192.168.100.11/24", SECOND: ""}), spark(2, {FIRST: "192.168.100.12/24", SECOND: "169.254.3.4/16"}))
    assert problems(plan) == [("init.twin", "spark1", "warn"), ("init.twin", "spark2", "warn")]
    assert f"{SECOND}, the twin of {FIRST}," in messages(plan, "twin")
    assert loaded(plan)["spark1"]["gb10_fabric_interfaces"] == [FIRST]
    assert loaded(plan)["spark1"]["gb10_rdma_devices"] == ["rocep1s0f0"]
    (advice,) = plan["advice"]
    assert "192.168.101.11/24" in advice["content"] and "192.168.101.12/24" in advice["content"]
    assert "192.168.100.11" not in advice["content"], "what is set up is never written again"
    assert judged(plan) == []


def test_halves_in_one_subnet_are_reported_and_get_advice():
    crowded = {number: {FIRST: f"192.168.100.1{number}/24", SECOND: f"192.168.100.2{number}/24"} for number in (1, 2)}
    plan = planned(spark(1, crowded[1]), spark(2, crowded[2]))
    assert problems(plan) == [("init.twins_apart", "spark1", "warn"), ("init.twins_apart", "spark2", "warn")]
    assert loaded(plan)["spark2"]["gb10_fabric_interfaces"] == [FIRST]
    assert f"give {SECOND} an address" in messages(plan, "twins_apart")
    trees = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", plan["advice"][0]["content"], re.S)]
    assert [tree["network"]["ethernets"][SECOND]["addresses"] for tree in trees] == [["192.168.101.11/24"], ["192.168.101.12/24"]]
    assert [list(tree["network"]["ethernets"]) for tree in trees] == [[SECOND], [SECOND]]
    assert judged(plan) == []


def test_a_bond_is_one_link_with_all_devices():
    plan = planned(bonded(spark(1), "192.168.100.11/24"), bonded(spark(2), "192.168.100.12/24"))
    assert problems(plan) == []
    hosts = loaded(plan)
    assert hosts["spark1"]["gb10_fabric_interfaces"] == ["bond0"]
    assert hosts["spark1"]["gb10_rdma_devices"] == ["rocep1s0f0", "roceP2p1s0f0"]
    assert judged(plan) == []


def test_a_bond_without_address_gets_one_as_a_bond():
    plan = planned(bonded(spark(1), ""), bonded(spark(2), ""))
    assert problems(plan) == [("init.address", "cluster", "block")]
    assert "bonds:\n    bond0:" in plan["note"]


def test_link_local_addresses_stop_with_what_to_type():
    changing = [spark(number, {FIRST: f"169.254.9.{number}/16", SECOND: f"169.254.8.{number}/16"}) for number in (1, 2)]
    plan = planned(*changing)
    assert problems(plan) == [("init.address", "cluster", "block")]
    assert "change at every boot" in messages(plan, "address") and "169.254.9.2/16" in messages(plan, "address")
    assert plan["files"] == [] and plan["found"] == {}
    for address in ("192.168.100.11/24", "192.168.101.11/24", "192.168.100.12/24", "192.168.101.12/24"):
        assert address in plan["note"] and address in plan["advice"][0]["content"]
    assert "ansible-playbook gb10.cluster.init -i spark1,spark2," in messages(plan, "address")


def test_no_common_subnet_keeps_what_one_node_has():
    plan = planned(spark(1, {FIRST: "10.7.7.5/24", SECOND: ""}), spark(2, {FIRST: "", SECOND: ""}))
    assert problems(plan) == [("init.address", "cluster", "block")]
    assert "no subnet is common to all nodes: spark1 enp1s0f0np0 10.7.7.5/24" in messages(plan, "address")
    trees = dict(re.findall(r"# (spark\d)\n(network:.*?)(?=\n# |\Z)", plan["note"], re.S))
    assert list(yaml.safe_load(trees["spark1"])["network"]["ethernets"]) == [SECOND]
    assert yaml.safe_load(trees["spark2"])["network"]["ethernets"][FIRST]["addresses"] == ["10.7.7.12/24"]


def test_following_the_advice_leads_to_an_inventory():
    """After the proposed addresses are set on the nodes, the next run finds them, whatever was wrong before."""
    starts = [
        ({FIRST: "", SECOND: ""}, {FIRST: "", SECOND: ""}),
        ({FIRST: "169.254.1.1/16", SECOND: ""}, {THIRD: "", FOURTH: "169.254.1.2/16"}),
        ({FIRST: "10.7.7.5/24", SECOND: ""}, {FIRST: "10.8.8.5/24", SECOND: ""}),
        ({FIRST: "192.168.100.1/24", SECOND: "192.168.100.2/24"}, {FIRST: "192.168.100.3/24", SECOND: "192.168.100.4/24"}),
        ({FIRST: "192.168.5.1/30", SECOND: ""}, {FIRST: "192.168.5.2/30", SECOND: ""}),
        (dict.fromkeys(DEVICES, ""), dict.fromkeys(DEVICES, "")),
    ]
    for first, second in starts:
        plan = planned(spark(1, first), spark(2, second))
        after = [dict(first), dict(second)]
        trees = re.findall(r"## spark(\d)\n\n```yaml\n(.*?)```", plan["advice"][0]["content"], re.S)
        for number, text in trees:
            for name, entry in yaml.safe_load(text)["network"]["ethernets"].items():
                after[int(number) - 1][name] = entry["addresses"]
        again = planned(spark(1, after[0]), spark(2, after[1]))
        assert problems(again) == [] and again["advice"] == [], (first, second, again["findings"])
        assert len(loaded(again)["spark1"]["gb10_fabric_interfaces"]) == len(first)
        assert judged(again) == []


def test_advice_avoids_used_subnets():
    bare = {FIRST: "", SECOND: ""}

    def advised(mgmt):
        return re.findall(r"- ([\d.]+/24)", planned(spark(1, bare, mgmt=mgmt), spark(2, bare, mgmt=mgmt))["note"])

    assert advised("192.168.100.{}/24") == ["192.168.101.11/24", "192.168.102.11/24", "192.168.101.12/24", "192.168.102.12/24"]
    assert advised("192.168.3.{}/16") == ["172.16.0.11/24", "172.16.1.11/24", "172.16.0.12/24", "172.16.1.12/24"]
    full = [spark(number, bare) for number in (1, 2)]
    for node in full:
        node["info"]["interfaces"][1]["networks"] += [network(address) for address in ("192.168.9.9/16", "172.16.9.9/12", "10.9.9.9/8")]
    plan = planned(*full)
    assert plan["advice"] == [] and "correct the addresses, then" in messages(plan, "address")


def test_an_address_of_another_network_is_kept():
    storage = [spark(n, {FIRST: f"192.168.100.1{n}/24", SECOND: f"192.168.101.1{n}/24", THIRD: f"10.{n}.0.5/24"}) for n in (1, 2)]
    plan = planned(*storage)
    assert problems(plan) == [] and plan["advice"] == []
    assert "Left alone: enp1s0f1np1 (10.1.0.5/24)" in messages(plan, "link")


def test_one_machine_under_two_names():
    plan = planned(spark(1), spark(1))
    assert ("init.same_address", "cluster", "block") in problems(plan)
    assert plan["files"] == []


def test_no_carrier():
    plan = planned(spark(1), spark(2, {}))
    assert problems(plan) == [("init.link", "spark2", "block")]
    assert all(words in messages(plan, "link") for words in ("no interface of the fabric has carrier", "sudo ip link set enp1s0f0np0 up", rdma.CABLE_IN))


SYNCED = {"netplan": ["01-network-manager-all.yaml", "99-nvidia-sync-cluster.yaml"]}


def synced(node: Node) -> Node:
    """Return the node with the file of NVIDIA Sync's Cluster Assistant."""
    node = copy.deepcopy(node)
    node["info"].update(SYNCED)
    return node


def test_what_nvidia_sync_manages_is_taken_as_it_is():
    plan = planned(synced(spark(1)), synced(spark(2)))
    assert problems(plan) == [] and plan["files"]
    assert "NVIDIA Sync gave the link its addresses on spark1, spark2" in messages(plan, "sync")


def test_where_nvidia_sync_manages_no_file_of_ones_own_is_advised():
    bare = [spark(number, {"enp1s0f0np0": []}) for number in (1, 2)]
    assert "netplan.md" in messages(planned(*bare), "address")
    plan = planned(*map(synced, bare))
    assert "Cluster Assistant" in messages(plan, "address") and "netplan.md" not in messages(plan, "address") and plan["files"] == []


# --- more, fewer, and other nodes -----------------------------------------------------------------------------------------------


def own_profile(tmp_path: Path, **parallel: int) -> list[dict[str, t.Any]]:
    raw = yaml.safe_load((ROOT / "playbooks" / "profiles" / "nemotron_3_super_tp2.yml").read_text(encoding="utf-8"))
    raw.update(id="own", parallel={"tensor": 1, **parallel}, switches={})
    path = tmp_path / "own.yml"
    path.write_text(yaml.safe_dump(raw), encoding="utf-8")
    return catalogue.catalogue([str(path)])


def test_three_nodes_on_a_switch(tmp_path):
    plan = planned(spark(1), spark(2), spark(3))
    assert problems(plan) == [("init.profile", "cluster", "warn")]
    assert "gb10_profile" not in loaded(plan)["spark1"]
    assert judged(plan) == [("input.nodes", "warn"), ("input.parallel", "block")], "only the profile is left to choose, and three are untested"
    chosen = own_profile(tmp_path, pipeline=3)
    plan = planned(spark(1), spark(2), spark(3), chosen=chosen)
    assert problems(plan) == []
    assert loaded(plan)["spark3"]["gb10_profile"] == str(tmp_path / "own.yml")
    assert loaded(plan)["spark3"]["gb10_worker_hosts"] == ["spark2", "spark3"]
    assert judged(plan) == [("input.nodes", "warn")]


def test_a_ring_of_three_is_recognized():
    links = [
        {FIRST: "10.1.0.1/24", THIRD: "10.3.0.1/24"},
        {FIRST: "10.2.0.2/24", THIRD: "10.1.0.2/24"},
        {FIRST: "10.3.0.3/24", THIRD: "10.2.0.3/24"},
    ]
    plan = planned(*(spark(number, links[number - 1]) for number in (1, 2, 3)))
    assert problems(plan) == [("init.address", "cluster", "block")]
    assert "10.1.0.0/24 spark1 and spark2" in messages(plan, "address") and "rings are beyond" in messages(plan, "address")
    assert plan["advice"] == []


def test_one_node_without_rdma_devices():
    plan = planned(spark(1), without_rdma(spark(2)))
    assert list(problems(plan)) == [("init.rdma", "spark2", "warn")] * 2
    assert rdma.CABLE_IN in messages(plan, "rdma")
    assert loaded(plan)["spark2"]["gb10_rdma_devices"] == [] and loaded(plan)["spark1"]["gb10_rdma_devices"] == ["rocep1s0f0", "roceP2p1s0f0"]
    assert judged(plan) == []


def test_one_node_without_the_card():
    plan = planned(spark(1), without_rdma(spark(2), interfaces=False))
    assert problems(plan) == [("init.link", "spark2", "block")]
    assert "no RDMA device and no ConnectX interface" in messages(plan, "link") and "gb10_fabric_fallback=tcp" in messages(plan, "link")


def test_tcp_takes_another_network_than_the_one_ansible_came_over_only_when_asked():
    nodes = [without_rdma(spark(number), interfaces=False) for number in (1, 2)]
    for number, node in enumerate(nodes, 1):
        eth1 = {"name": "eth1", "carrier": True, "operstate": "up", "mtu": 1500, "speed": 10000, "driver": None, "addresses": []}
        docker = {**eth1, "name": "docker0", "networks": [network("172.17.0.1/16")]}
        node["info"]["interfaces"] += [docker, {**eth1, "networks": [network(f"10.77.1.1{number}/24")]}]
    assert [problem[2] for problem in problems(planned(*nodes))] == ["block", "block"]
    plan = planned(*nodes, fallback="tcp")
    assert problems(plan) == []
    hosts = loaded(plan)
    assert hosts["spark2"]["gb10_fabric_interfaces"] == ["eth1"] and hosts["spark2"]["gb10_fabric_address"] == "10.77.1.12"
    assert hosts["spark1"]["gb10_fabric_fallback"] == "tcp" and hosts["spark1"]["gb10_api_address"] == "10.0.0.11"
    assert judged(plan) == []


def test_one_node_alone(tmp_path):
    plan = planned(spark(1), chosen=own_profile(tmp_path))
    assert problems(plan) == []
    assert loaded(plan)["spark1"]["gb10_fabric_interfaces"] == [FIRST, SECOND]
    assert judged(plan) == []


def test_one_node_alone_needs_no_link():
    """An address of another network is enough, since no other node has to reach it."""
    plan = planned(spark(1, {}))
    assert problems(plan) == []
    (host,) = loaded(plan).values()
    assert (host["gb10_fabric_address"], host["gb10_worker_hosts"]) == ("10.0.0.11", []) and host["gb10_profile"].endswith("_one")
    assert judged(plan) == []


def test_small_sparks_get_a_profile_that_fits():
    plan = planned(spark(1, total_mb=61440), spark(2, total_mb=61440))
    assert problems(plan) == []
    assert loaded(plan)["spark1"]["gb10_profile"] == "qwen3_30b_a3b_thinking_fp8_tp2"
    assert "a Spark of 64 GB" in messages(plan, "machine")
    assert judged(plan) == []


def test_one_small_spark_stops():
    plan = planned(spark(1), spark(2, total_mb=61440))
    assert problems(plan) == [("init.memory", "cluster", "block")]
    assert "spark1 121.7 GiB; spark2 60.0 GiB" in messages(plan, "memory")
    assert plan["files"] == []


@pytest.mark.parametrize(("total_mb", "size"), [(124610, 128), (111412, 128), (111411, 64), (55706, 64), (55705, None), (0, None)])
def test_memory_classes(total_mb, size):
    assert node_facts.memory_class(total_mb) == size


def test_gpus_that_differ_stop_and_none_are_reported():
    two = spark(2)
    two["info"]["gpus"] *= 2
    assert ("init.gpu", "cluster", "block") in problems(planned(spark(1), two))
    none = spark(2)
    none["info"]["gpus"] = []
    assert problems(planned(spark(1), none)) == [("init.gpu", "spark2", "warn")]
    both = planned(two, two, names=["a", "b"])
    assert "init.gpu" not in {id for id, _node, _verdict in problems(both)}


# --- what lies on disk, and what is asked for --------------------------------------------------------------------------------------


def with_models(node: Node, *repos: str, cache: str = "/home/ann/.cache/huggingface", **more: t.Any) -> Node:
    profiles = {entry["profile"]["model"]["repo"]: entry["profile"]["model"]["revision"] for entry in CATALOGUE}
    node["info"]["models"] = [
        {
            "repo": repo,
            "revision": profiles.get(repo) or "a" * 40,
            "complete": True,
            "missing": [],
            "bytes": 10,
            "path": f"{cache}/hub/models--{repo.replace('/', '--')}/snapshots/x",
            **more,
        }
        for repo in repos
    ]
    return node


def test_a_model_that_is_there_chooses_the_profile():
    repo = next(entry["profile"]["model"]["repo"] for entry in CATALOGUE if entry["id"] == "minimax_m2_7_nvfp4_tp2")
    plan = planned(with_models(spark(1), repo), with_models(spark(2), repo, cache="/data/hf"))
    assert loaded(plan)["spark1"]["gb10_profile"] == "minimax_m2_7_nvfp4_tp2"
    assert [variables["gb10_hf_home"] for variables in loaded(plan).values()] == ["/home/ann/.cache/huggingface", "/data/hf"]
    assert "minimax_m2_7_nvfp4_tp2 (whole, in /data/hf)" in messages(plan, "model")
    assert judged(plan) == []


def test_other_models_point_to_their_cache_and_nothing_points_nowhere():
    plan = planned(with_models(spark(1), "org/other"), with_models(spark(2), "org/other", complete=False))
    assert loaded(plan)["spark2"]["gb10_hf_home"] == "/home/ann/.cache/huggingface"
    assert "none of them whole" in messages(plan, "model")
    empty = planned(with_models(spark(1)), with_models(spark(2)))
    assert "gb10_hf_home" not in loaded(empty)["spark1"]
    assert judged(empty) == []


def test_another_revision_is_not_the_profiles_model():
    entry = next(row for row in CATALOGUE if row["profile"]["model"]["revision"])
    node = with_models(spark(1), entry["profile"]["model"]["repo"], revision="b" * 40)
    assert node_facts.on_disk(entry["profile"], node["info"]) is None


def test_hf_home_of_the_machine_is_taken_where_there_are_no_models():
    nodes = [with_models(spark(number)) for number in (1, 2)]
    for node in nodes:
        node["info"]["environment"] = [{"where": "/etc/environment", "name": "HF_HOME", "value": "/data/hf", "path": "/etc/environment"}]
    plan = planned(*nodes)
    assert loaded(plan)["spark1"]["gb10_hf_home"] == "/data/hf"
    assert any("HF_HOME in /etc/environment" in file["content"] for file in plan["files"])


def test_a_profile_that_was_asked_for_must_fit(tmp_path):
    chosen = [entry for entry in CATALOGUE if entry["id"] == "qwen3_5_122b_fp8_tp2"]
    assert loaded(planned(spark(1), spark(2), chosen=chosen))["spark1"]["gb10_profile"] == "qwen3_5_122b_fp8_tp2"
    small = planned(spark(1, total_mb=61440), spark(2, total_mb=61440), chosen=chosen)
    assert problems(small) == [("init.profile", "cluster", "block")]
    assert "for nodes of 128 GB, and the smallest shows 60.0 GiB" in messages(small, "profile")
    wrong = own_profile(tmp_path, tensr=1)
    assert problems(planned(spark(1), spark(2), chosen=wrong)) == [("init.profile", "cluster", "block")]


# --- what could not be seen ---------------------------------------------------------------------------------------------------


def blind(node: Node, section: str, value: t.Any, error: str = "it may not be read") -> Node:
    node["info"][section] = value
    node["info"]["errors"].append({"section": section, "verdict": "unknown", "error": error, "remedy": "use become"})
    return node


@pytest.mark.parametrize(("section", "value"), [("memory", None), ("interfaces", []), ("fabric", [])])
def test_a_needed_fact_that_was_not_read_is_unknown(section, value):
    plan = planned(spark(1), blind(spark(2), section, value))
    assert ("init.seen", "spark2", "unknown") in problems(plan)
    assert plan["files"] == []


@pytest.mark.parametrize(("section", "value"), [("gpus", []), ("models", []), ("environment", []), ("fabric", HEALTHY["fabric"])])
def test_what_it_can_do_without_is_a_warning(section, value):
    node = blind(spark(2), section, spark(2)["info"]["fabric"] if section == "fabric" else value)
    plan = planned(spark(1), node)
    assert problems(plan) == [("init.seen", "spark2", "warn")]
    assert f"could not see {section}: it may not be read" in messages(plan, "seen")
    assert judged(plan) == []


def test_a_refused_sudo_is_reported():
    node = spark(2)
    node["refused"] = "Task failed:\nsudo: a password is required\n"
    plan = planned(spark(1), node)
    assert problems(plan) == [("init.sudo", "spark2", "warn")]
    assert "(sudo: a password is required)." in messages(plan, "sudo")
    assert plan["note"].endswith("gb10.cluster.doctor --ask-become-pass")


def test_a_fallback_that_does_not_exist_stops():
    assert problems(planned(spark(1), spark(2), fallback="rdma")) == [("init.fallback", "cluster", "block")]


def test_a_lost_host_stops():
    plan = planned(spark(1), lost=["spark2"])
    assert problems(plan) == [("init.reach", "spark2", "block")]
    assert plan["files"] == []


# --- addresses for the API ------------------------------------------------------------------------------------------------------


def api(reached: str, *more: dict[str, t.Any]) -> tuple[str, str, bool] | None:
    info = spark(1)["info"]
    info["interfaces"] += more
    return node_facts.api_address(info, reached, [FIRST, SECOND])


def test_the_api_listens_where_ansible_came_in():
    assert api("10.0.0.11") == ("10.0.0.11", "enP7s7", True)
    assert api("192.168.100.11") == ("192.168.100.11", FIRST, True)
    assert api("203.0.113.9") == ("10.0.0.11", "enP7s7", False), "translated on its way"
    assert api("127.0.0.1") == api("") == ("10.0.0.11", "enP7s7", False)
    both = {"name": "wlan0", "carrier": True, "networks": [network("fe80::1/64"), network("2001:db8::1/64"), network("10.9.9.9/24")]}
    assert api("2001:db8::1", both) == ("10.9.9.9", "wlan0", False)
    assert api("fe80::1", {**both, "networks": both["networks"][:1]}) == ("10.0.0.11", "enP7s7", False)


def test_the_default_is_kept_where_ansible_uses_the_link():
    nodes = [spark(1), spark(2)]
    for number, node in enumerate(nodes, 1):
        node["reached"] = f"192.168.100.1{number}"
    plan = planned(*nodes)
    assert "gb10_api_address" not in loaded(plan)["spark1"]
    assert judged(plan) == []


# --- texts ------------------------------------------------------------------------------------------------------------------------


def test_logins_are_written_once_where_they_agree():
    nodes = [spark(1), spark(2)]
    nodes[0]["login"].update(ansible_user="nvidia", ansible_host="10.0.0.11")
    nodes[1]["login"].update(ansible_user="nvidia", ansible_port=2222)
    plan = planned(*nodes)
    tree = yaml.safe_load(next(file["content"] for file in plan["files"] if file["path"] == "hosts.yml"))["gb10_cluster"]
    assert tree["vars"] == {"ansible_python_interpreter": "/usr/bin/python3", "ansible_user": "nvidia"}
    assert tree["children"]["gb10_head"]["hosts"]["spark1"] == {
        "ansible_host": "10.0.0.11", "gb10_fabric_address": "192.168.100.11", "gb10_total_mb": 124610,
    }  # fmt: skip
    assert tree["children"]["gb10_workers"]["hosts"]["spark2"] == {"ansible_port": 2222, "gb10_fabric_address": "192.168.100.12", "gb10_total_mb": 124610}


ODD = ["yes", "1.10", "0x1f", "null", "a: b", "- a", "#a", "", "2600:1::1", "a\nb", "ü", '"', 7, True, "1e3", "=", "~", "12:30:45"]


@pytest.mark.parametrize("value", ODD)
def test_scalars_survive_yaml(value):
    assert yaml.safe_load(f"key: {_init_texts.scalar(value)}") == {"key": value}


@pytest.mark.parametrize("value", ["{{ 1 }}", "a {% b", "{# c"])
def test_templates_are_written_as_text(value):
    assert _init_texts.scalar(value).startswith("!unsafe ")


def test_names_that_are_no_hosts_stop():
    for name in ("{{ x }}", "a/b", "../b", "a b"):
        assert ("init.name", "cluster", "block") in problems(planned(spark(1), spark(2), names=["spark1", name]))


def test_every_id_is_in_the_readme():
    source = (ROOT / "plugins" / "plugin_utils" / "_init" / "inventory.py").read_text(encoding="utf-8")
    text = (ROOT / "roles" / "init" / "README.md").read_text(encoding="utf-8")
    ids = set(re.findall(r"row\(\s*\"([a-z_]+)\"", source))
    assert len(ids) > 12
    assert [id for id in sorted(ids) if f"`init.{id}`" not in text] == []


# --- files that are there -----------------------------------------------------------------------------------------------------------


def sums(plan: dict[str, t.Any], **others: str) -> dict[str, str]:
    return {**{file["path"]: inventory._sha1(file) for file in (*plan["files"], *plan["advice"])}, **others}


def test_only_files_that_are_missing_are_written():
    plan = planned(spark(1), spark(2))
    assert [file["path"] for file in inventory.writes(plan, {})["files"]] == [file["path"] for file in plan["files"]]
    assert inventory.writes(plan, sums(plan))["files"] == []
    half = inventory.writes(plan, {**sums(plan), "hosts.yml": ""})
    assert [file["path"] for file in half["files"]] == ["hosts.yml"]
    assert table.worst(half["findings"]) == "pass"


def test_nothing_is_written_next_to_an_existing_file():
    plan = planned(spark(1, {FIRST: "192.168.100.11/24", SECOND: ""}), spark(2, {FIRST: "192.168.100.12/24", SECOND: ""}))
    kept = inventory.writes(plan, {"hosts.yml": "0" * 40})
    assert kept["files"] == [] and table.worst(kept["findings"]) == "block"
    assert "hosts.yml: there already" in kept["findings"][-1]["message"]
    old = inventory.writes(plan, {"netplan.md": "0" * 40})
    assert "netplan.md" not in [file["path"] for file in old["files"]] and len(old["files"]) == len(plan["files"])
    assert table.worst(old["findings"]) == "warn"


# --- whatever nodes answer ------------------------------------------------------------------------------------------------------------

ODD_ADDRESSES = [
    "",
    "169.254.1.1/16",
    "192.168.101.12/31",
    "10.0.0.5/30",
    "10.0.0.6/30",
    "10.1.1.1/32",
    "10.0.0.7/8",
    "192.168.7.7/16",
    "172.16.1.1/12",
    "10.0.0.9/29",
]
ADDRESS = st.sampled_from([*ODD_ADDRESSES, "192.168.100.11/24", "192.168.100.12/24", "192.168.101.11/24", "192.168.101.12/24"])
LINKS = st.dictionaries(st.sampled_from(list(DEVICES)), st.one_of(ADDRESS, st.lists(ADDRESS, max_size=3)), max_size=4)


@given(st.lists(st.tuples(LINKS, st.booleans()), min_size=1, max_size=4), st.sampled_from(["none", "tcp"]))
# One node has both addresses of a subnet, so the other node cannot get one.
@example([({"enp1s0f0np0": ""}, False), ({"enp1s0f0np0": ["10.0.0.5/30", "10.0.0.6/30"]}, False)], "none")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_cabling_is_reported_or_adopted(cablings, fallback):
    """No cabling raises an exception. There is an inventory only without a blocking finding; each node then has one of its own addresses."""
    nodes = []
    for number, (links, bare) in enumerate(cablings, 1):
        node = spark(number, links)
        nodes.append(without_rdma(node) if bare else node)
    plan = planned(*nodes, fallback=fallback)
    assert bool(plan["files"]) != (table.worst(plan["findings"]) in ("block", "unknown"))
    if plan["files"]:
        hosts = loaded(plan)
        assert len({variables["gb10_fabric_address"] for variables in hosts.values()}) == len(nodes)
        for name, variables in hosts.items():
            held = {entry["address"] for interface in plan_interfaces(nodes, name) for entry in interface["networks"]}
            assert variables["gb10_fabric_address"] in held
        assert {id for id, verdict in judged(plan) if verdict == "block"} <= {"input.parallel"}
    for advice in plan["advice"]:
        given_out = re.findall(r"- ([\d.]+/\d+)", advice["content"])
        assert len(given_out) == len(set(given_out)) > 0


def plan_interfaces(nodes: list[Node], name: str) -> list[dict[str, t.Any]]:
    return t.cast(list, nodes[int(name.removeprefix("spark")) - 1]["info"]["interfaces"])
