# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When a stage reuses an answer of the run instead of asking again: the roles' own variables, as Ansible evaluates them."""

from __future__ import annotations

import typing as t

import pytest
import through_ansible
import yaml

HEAD, WORKER = "spark-1", "spark-2"
NODES = [{"address": "10.0.0.1", "alive": True}, {"address": "10.0.0.2", "alive": True}]
SEEN = {"engine": {"live": True}}
LOOKS = [{"at": 1.0}, {"at": 2.0}]
SERVED: dict[str, t.Any] = {"changed": False, "traffic": LOOKS}
FACTS = {"facts": {"hidden_size": 64}}


def serve(head: dict[str, t.Any], worker: dict[str, t.Any]) -> dict[str, dict[str, t.Any]]:
    return {HEAD: {"__vllm_server_result": {**SERVED, "seen": SEEN, **head}, "__model_answer": FACTS}, WORKER: {"__vllm_server_result": {**SERVED, **worker}}}


def of_ray(worker: dict[str, t.Any], head_nodes: list[dict[str, t.Any]] | None = None) -> dict[str, dict[str, t.Any]]:
    return {HEAD: {"__ray_head_result": {"actions": [], "info": {"nodes": NODES if head_nodes is None else head_nodes}}}, WORKER: worker}


def locked(engine: dict[str, t.Any] | None) -> dict[str, dict[str, t.Any]]:
    return {HEAD: {"__lock_result": {"engine": engine}}, WORKER: {"__lock_result": {"engine": {"live": True}}}}


SKIPPED = {"skipped": True}
PLANNED = {"actions": [], "info": {"nodes": NODES}}

#: Role, what each host has registered, a variable of the role, its value on the worker.
CASES: dict[str, tuple[str, dict[str, dict[str, t.Any]], str, bool]] = {
    "an engine that served before was asked between two looks": ("engine", serve({}, {}), "__engine_proof_known", True),
    "what a start sent would count as the proof's": ("engine", serve({"changed": True}, {}), "__engine_proof_known", False),
    "a node could not say what it had sent": ("engine", serve({}, {"traffic": None}), "__engine_proof_known", False),
    "the proof is all that runs": ("engine", {}, "__engine_proof_known", False),
    "the sizes of the model are not known": (
        "engine", {**serve({}, {}), HEAD: {"__vllm_server_result": {**SERVED, "seen": SEEN}}}, "__engine_proof_known", False,
    ),
    "a worker that was planned beside the head": ("engine", of_ray({"__ray_head_result": PLANNED}), "__engine_ray_gate_holds", True),
    "a worker that was planned after it": ("engine", of_ray({"__ray_head_result": SKIPPED, "__ray_worker_plan": PLANNED}), "__engine_ray_gate_holds", True),
    "a worker that was started": ("engine", of_ray({"__ray_worker_plan": {"actions": ["start"], "info": {}}}), "__engine_ray_gate_holds", False),
    "a worker that Ray lists otherwise": ("engine", of_ray({"__ray_head_result": {"info": {"nodes": NODES[:1]}}}), "__engine_ray_gate_holds", False),
    "a head that was not asked": ("engine", of_ray({"__ray_head_result": {"info": {"nodes": []}}}, []), "__engine_ray_gate_holds", False),
    "all containers run": ("engine", of_ray({"__ray_head_result": PLANNED, "__gb10_executor": "ray"}), "__engine_containers_run", True),
    "a worker that needs something although Ray lists it": (
        "engine", of_ray({"__ray_head_result": {**PLANNED, "actions": ["create"]}, "__gb10_executor": "ray"}), "__engine_containers_run", False,
    ),
    "a worker that was not planned": ("engine", of_ray({"__ray_head_result": SKIPPED, "__gb10_executor": "ray"}), "__engine_containers_run", False),
    "an engine without Ray": ("engine", {WORKER: {"__gb10_executor": "native"}}, "__engine_containers_run", False),
    "images that this run judged": (
        "engine", {WORKER: {"__image_judged": {"finished_at": 2.0}, "__lock_result": {"finished_at": 1.0}}}, "__engine_image_judged", True,
    ),
    "images that an earlier run judged": (
        "engine", {WORKER: {"__image_judged": {"finished_at": 1.0}, "__lock_result": {"finished_at": 2.0}}}, "__engine_image_judged", False,
    ),
    "neither image nor model was looked at": ("engine", {}, "__engine_provides", False),
    "a worker that needs nothing": ("ray_worker", of_ray({"__ray_head_result": PLANNED}), "__ray_worker_is_as_wanted", True),
    "a worker that needs something": ("ray_worker", of_ray({"__ray_head_result": {"actions": ["create"]}}), "__ray_worker_is_as_wanted", False),
    "an unplanned worker": ("ray_worker", of_ray({"__ray_head_result": SKIPPED}), "__ray_worker_is_as_wanted", False),
    "a role that runs alone": ("ray_worker", {}, "__ray_worker_is_as_wanted", False),
    "a head under a live engine": ("ray_head", {WORKER: {"__gb10_engine_before": {"engine": {"live": True}}}}, "__ray_head_stays", True),
    "a head without an engine": ("ray_head", {WORKER: {"__gb10_engine_before": {"engine": {"live": False}}}}, "__ray_head_stays", False),
    "the lock has seen the head's engine": ("gb10", locked({"live": True}), "__gb10_engine_seen", True),
    "the lock has seen that it has ended": ("gb10", locked({"live": False}), "__gb10_engine_seen", False),
    "the lock could not see it": ("gb10", locked(None), "__gb10_engine_seen", False),
    "the lock was not taken": ("gb10", {}, "__gb10_engine_seen", False),
    "what the lock has seen served before": ("gb10", locked({"live": True}), "__gb10_engine_before['engine']['live'] | default('unknown')", True),
    "a head that no stage asked": ("ray_head", {WORKER: {"__gb10_engine_before": {}}}, "__ray_head_stays", False),
}


@pytest.fixture(scope="module")
def values(tmp_path_factory):
    """The value of each case's variable on the worker, by the name of the case. Every case has two hosts of its own."""
    folder = tmp_path_factory.mktemp("reuse")
    groups: dict[str, dict[str, t.Any]] = {role: {"hosts": {}} for role, *_rest in CASES.values()}
    for number, (role, registered, variable, _value) in enumerate(CASES.values()):
        names = {node: f"{node}-{number}" for node in (HEAD, WORKER)}
        pair = {"gb10_head_host": names[HEAD], "gb10_worker_hosts": [names[WORKER]], "__gb10_nodes": list(names.values())}
        hosts = {name: {**pair, **registered.get(node, {}), "asked": f"{{{{ {variable} }}}}", "file": ""} for node, name in names.items()}
        hosts[names[WORKER]]["file"] = str(folder / str(number))
        groups[role]["hosts"].update(hosts)
    (folder / "hosts.yml").write_text(yaml.safe_dump(groups))
    task = {"copy": {"dest": "{{ file }}", "content": "{{ asked }}"}, "when": "file | length > 0"}
    rest = {"gather_facts": False, "vars": {"__gb10_allow": [], "__gb10_fabric_letters": 1024}, "tasks": [task]}
    plays = [{"hosts": role, "vars_files": [str(through_ansible.ROOT / "roles" / role / "vars" / "main.yml")], **rest} for role in groups]
    (folder / "play.yml").write_text(yaml.safe_dump(plays))
    done = through_ansible.run("playbook", "-i", str(folder / "hosts.yml"), "-c", "local", str(folder / "play.yml"))
    assert done.rc == 0, done.out
    return {name: (folder / str(number)).read_text() for number, name in enumerate(CASES)}


@pytest.mark.parametrize("name", CASES)
def test_an_answer_of_the_run_is_taken_only_where_it_still_holds(values, name):
    assert values[name] == str(CASES[name][3])
