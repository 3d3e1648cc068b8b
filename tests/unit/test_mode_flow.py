# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook mode through Ansible itself, on this machine as three nodes: its plays, plans and records, with roles that only note what is asked of them."""

from __future__ import annotations

import json
import sys
import typing as t
from pathlib import Path

import pytest
import through_ansible
import yaml

NODES = ("spark-1", "spark-2", "spark-3")
ONE, OTHER, PAIR = "lab_tiny_one", "lab_tiny_other_one", "lab_tiny_native_tp2"
LAYOUTS = {
    "day": {"spark-1": ONE, "spark-2": OTHER},
    # The head of the cluster is the head of any engine that has it; a group that is not next to each other in the inventory.
    "mixed": {"spark-3, spark-1": PAIR, "spark-2": ONE},
}

#: Notes a task on the node's part of a cluster, fails where the test says so, and keeps the clusters of the node.
NOTE = """
import json, pathlib, sys
place, node, word, cluster, nodes, model, faults, keeps = sys.argv[1:]
nodes, there, units = json.loads(nodes), pathlib.Path(place, node, "there.json"), pathlib.Path(place, node, "units")
with open(pathlib.Path(place, "log"), "a") as log:
    log.write(f"{word} {cluster} {node} of {','.join(nodes)}\\n")
clusters = json.loads(there.read_text()) if there.exists() else {}
if word == "begin":
    role = "head" if node == nodes[0] else "worker"
    clusters[cluster] = {"role": role, "running": True, "live": True, "run_id": "1", "argv": ["serve", model] if role == "head" else []}
    (units / cluster).write_text("")
if word == "teardown":
    clusters.pop(cluster, None)
    if keeps != "True":
        (units / cluster).unlink(missing_ok=True)
there.write_text(json.dumps(clusters))
if f"{word} {cluster} {node}" in faults.split(";"):
    sys.exit(f"{word} of {cluster} failed here")
"""
#: The answer to a look at the node: its record, and the clusters that were noted.
LOOK = """
- gb10.cluster.node_state_info:
    want: [mode, lease, companions_unit]
    strict: true
    state_dir: "{{ gb10_state_dir }}"
    roots: "{{ gb10_node_roots }}"
  register: __look
- ansible.builtin.slurp:
    src: "{{ place }}/{{ inventory_hostname }}/there.json"
  register: __there
- ansible.builtin.find:
    paths: "{{ place }}/{{ inventory_hostname }}/units"
  register: __units
- ansible.builtin.set_fact:
    __mode_look: "{{ __look | combine({'clusters': __there['content'] | b64decode | from_json, 'units': units}) }}"
  vars:
    units: "{{ __units['files'] | map(attribute='path') | map('basename') | list }}"
"""


def noting(word: str, **fact: t.Any) -> str:
    """The tasks of a role that notes what it was asked for."""
    command = [sys.executable, "-c", NOTE, "{{ place }}", "{{ inventory_hostname }}", word, "{{ gb10_cluster_name }}", "{{ __gb10_nodes | to_json }}"]
    keeps = "{{ __gb10_keeps_unit | default(false) | string }}"
    model = "{{ __gb10_profile | gb10.cluster.model_argument }}" if word == "begin" else ""
    note = {"ansible.builtin.command": {"argv": [*command, model, "{{ faults | default('') }}", keeps]}}
    return yaml.safe_dump([note, *([{"ansible.builtin.set_fact": fact}] if fact else [])])


class Nodes:
    """Three nodes of this machine, and a collection whose engine, teardown and look are replaced."""

    def __init__(self, place: Path) -> None:
        self.place = place
        collection = place / "collections/ansible_collections/gb10/cluster"
        replaced = {
            ("engine", "begin"): noting("begin"),
            ("engine", "complete"): noting("complete"),
            ("engine", "lock_acquire"): noting("lock"),
            ("engine", "lock_release"): noting("unlock"),
            ("teardown", "main"): noting("teardown", __teardown_engine={"changed": True}, __teardown_memory={"verdict": "pass"}),
            ("mode", "look"): LOOK,
        }
        for role in (through_ansible.ROOT / "roles").iterdir():
            (collection / "roles" / role.name / "tasks").mkdir(parents=True)
            for entry in [*role.iterdir(), *(role / "tasks").iterdir()]:
                target = collection / "roles" / entry.relative_to(role.parent)
                content = replaced.get((role.name, entry.stem)) if entry.parent.name == "tasks" else None
                if content:
                    target.write_text(content, encoding="utf-8")
                elif entry.name != "tasks":
                    target.symlink_to(entry)
        for name in ("plugins", "meta", "galaxy.yml", "playbooks"):
            (collection / name).symlink_to(through_ansible.ROOT / name)
        hosts = {}
        for number, node in enumerate(NODES, 1):
            (place / node / "state").mkdir(parents=True)
            (place / node / "units").mkdir()
            (place / node / "there.json").write_text("{}", encoding="utf-8")
            hosts[node] = {
                "gb10_fabric_address": f"192.168.100.{number}", "ansible_port": number, "gb10_state_dir": str(place / node / "state"),
            }  # fmt: skip
        shared = {
            "ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False, "place": str(place),
            "gb10_profile_dirs": [str(through_ansible.ROOT / "tests/lab/profiles")], "gb10_layouts": LAYOUTS, "gb10_silenced": ["input.nodes"],
        }  # fmt: skip
        groups = {"gb10_head": {"hosts": {"spark-1": hosts["spark-1"]}}, "gb10_workers": {"hosts": {node: hosts[node] for node in NODES[1:]}}}
        (place / "hosts.yml").write_text(yaml.safe_dump({"gb10_cluster": {"vars": shared, "children": groups}}), encoding="utf-8")
        self._env = {"ANSIBLE_COLLECTIONS_PATH": f"{place / 'collections'}:{through_ansible.ROOT / 'collections'}", "ANSIBLE_SHOW_CUSTOM_STATS": "true"}
        self._playbook = str(collection / "playbooks/mode.yml")

    def change(self, mode: str, *arguments: str, **variables: t.Any) -> through_ansible.Ran:
        (self.place / "log").write_text("", encoding="utf-8")
        given = json.dumps({"gb10_mode": mode, **variables})
        return through_ansible.run("playbook", "-i", str(self.place / "hosts.yml"), self._playbook, "-e", given, *arguments, env=self._env)

    def log(self, *words: str) -> list[str]:
        """What was noted of these words."""
        return [line for line in (self.place / "log").read_text(encoding="utf-8").splitlines() if line.split()[0] in words]

    def units(self) -> dict[str, set[str]]:
        """The clusters with a unit on each node that has one."""
        left = {node: {path.name for path in (self.place / node / "units").iterdir()} for node in NODES}
        return {node: names for node, names in left.items() if names}

    def record(self, node: str) -> dict[str, t.Any]:
        return json.loads((self.place / node / "state/mode.json").read_text(encoding="utf-8"))


@pytest.fixture(name="nodes")
def fixture_nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path)


def test_services_start_before_one_is_awaited_and_one_that_fails_stops_no_other(nodes: Nodes) -> None:
    first = nodes.change("mixed")
    assert first.rc == 0, first.out
    single, pair = ["{} spark-2 spark-2 of spark-2"], ["{} spark-1.spark-3 spark-1 of spark-1,spark-3", "{} spark-1.spark-3 spark-3 of spark-1,spark-3"]
    noted = nodes.log("begin", "complete", "teardown", "unlock")
    assert [*noted[:1], *sorted(noted[1:3]), *noted[3:4], *sorted(noted[4:])] == [line.format(word) for word in ("begin", "complete") for line in single + pair]
    records = [nodes.record(node) for node in NODES]
    assert all((record["mode"], record["phase"], set(record["clusters"])) == ("mixed", "settled", {"spark-2", "spark-1.spark-3"}) for record in records)

    failed = nodes.change("day", faults="begin spark-1 spark-1", gb10_mode_return=True)
    assert failed.rc != 0 and "begin of spark-1 failed here" in failed.out, failed.out
    of_day = [line for line in nodes.log("begin", "complete", "unlock") if line.split()[1] != "spark-1.spark-3"]
    # A teardown unlocks, too.
    assert of_day[1:5] == [
        "begin spark-1 spark-1 of spark-1", "unlock spark-1 spark-1 of spark-1", "begin spark-2 spark-2 of spark-2", "complete spark-2 spark-2 of spark-2",
    ]  # fmt: skip
    assert "the mode is mixed again, as before" in failed.out and "  spark-1.spark-3: serves" in failed.out, failed.out
    downs = [line.split()[1] for line in nodes.log("teardown")]
    assert sorted(downs) == ["spark-1", "spark-1.spark-3", "spark-1.spark-3", "spark-2", "spark-2"], downs
    assert {(nodes.record(node)["mode"], nodes.record(node)["phase"]) for node in NODES} == {("mixed", "settled")}


def test_units_of_a_degraded_layout_stay_until_a_mode_does_not_name_it(nodes: Nodes) -> None:
    layouts = {"day": LAYOUTS["day"], "big": {"spark-1,spark-2": PAIR, "degraded": "day"}}
    name = "spark-1.spark-2"
    assert nodes.change("day", gb10_layouts=layouts).rc == 0 and nodes.units() == {node: {node} for node in NODES[:2]}
    ready = nodes.change("big", gb10_layouts=layouts)
    assert ready.rc == 0 and "has no unit of day" not in ready.out and nodes.units() == {node: {name, node} for node in NODES[:2]}
    assert nodes.record("spark-3")["clusters"][name]["degraded"] == {node: node for node in NODES[:2]}
    # The containers of a pair that was given up are gone, and one node serves alone.
    engine = {"role": "head", "running": True, "live": True, "run_id": "1", "argv": []}
    for node, there in (("spark-1", {"spark-1": engine}), ("spark-2", {})):
        (nodes.place / node / "there.json").write_text(json.dumps(there), encoding="utf-8")
    back = nodes.change("big", gb10_layouts=layouts)
    assert back.rc == 0 and nodes.log("teardown") == ["teardown spark-1 spark-1 of spark-1"], back.out
    assert nodes.units() == {node: {name, node} for node in NODES[:2]}
    off = nodes.change("off", gb10_layouts=layouts)
    assert off.rc == 0 and nodes.units() == {}, off.out


@pytest.mark.parametrize(
    ("mode", "layout", "said"),
    [
        ("alone", {"spark-2": PAIR}, "profile lab_tiny_native_tp2 on spark-2: asks for 2 ranks (tensor 2 x pipeline 1 x data 1), the cluster has 1 GPUs"),
        ("lost", {"spark-2": "no_such_profile"}, "no_such_profile"),
    ],
)
def test_a_profile_that_does_not_fit_is_refused_before_any_node_is_reached(nodes: Nodes, mode: str, layout: dict[str, str], said: str) -> None:
    refused = nodes.change(mode, gb10_layouts={mode: layout})
    assert refused.rc != 0 and said in refused.out, refused.out
    assert "Check which nodes answer" not in refused.out and nodes.log("begin", "lock") == []
