# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stages that judge, each a function from the answers of all nodes to an outcome. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gb10.cluster.plugins.plugin_utils._report.outcome import Answers, Outcome, Run, answered
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import judging, probe_evidence

#: What the rules ask of a node, by the variable of the node that says it.
SETTINGS = {
    "head_host": "gb10_head_host",
    "cluster": "gb10_cluster_name",
    "address": "gb10_fabric_address",
    "api_address": "gb10_api_address",
    "api_port": "gb10_api_port",
    "ray_port": "gb10_ray_port",
    "master_port": "gb10_master_port",
    "fabric_interfaces": "gb10_fabric_interfaces",
    "rdma_devices": "gb10_rdma_devices",
    "fabric_fallback": "gb10_fabric_fallback",
    "devices": "gb10_container_devices",
    "container_gpus": "gb10_container_gpus",
    "memlock": "gb10_memlock",
    "model_root": "gb10_hf_home",
    "offline": "gb10_offline",
    "disk_gib": "gb10_disk_floor_gib",
    "serve_arguments": "gb10_serve_arguments",
    "replace_stale": "gb10_replace_stale",
    "rules": "gb10_rules",
    "silenced": "gb10_silenced",
}
DOCTOR_SETTINGS = {word: SETTINGS[word] for word in ("cluster", "disk_gib", "rules", "silenced")}


def node_settings(answers: Answers, ports: t.Iterable[str] = ()) -> Answers:
    """Return what the rules ask of each node; ``ports`` are those (words of :data:`SETTINGS`) that the head must have free, or hold itself."""
    found = {}
    for node, answer in answers.items():
        head = node == answer["head_host"]
        found[node] = {
            **{word: answer[word] for word in SETTINGS},
            **{word: int(answer[word]) for word in ("memlock", "disk_gib")},
            **{word: boolean(answer[word]) for word in ("offline", "replace_stale")},
            "head": head,
            "peers": [other["address"] for name, other in answers.items() if name != node],
            "api_address": answer["api_address"] if head else "",
            "ports": {SETTINGS[word]: int(answer[word]) for word in ports} if head else {},
        }
    return found


def _of_run(answers: Answers, run: Run) -> dict[str, t.Any]:
    cluster = next(iter(answers.values()))["cluster"] or ""
    return {"cluster": cluster, "tags": run.tags, "skip_tags": run.skip_tags, "time": run.time}


def _recorded(title: str, stat: str, record: dict[str, t.Any], run: Run) -> Outcome:
    """Return the outcome of a record that preflight.schema.json describes."""
    stats = {stat: record, "gb10_verdict": record["verdict"]}
    return Outcome(title, record["findings"], record["matrix"], files={run.path: record}, stats=stats)


# --- records over all nodes -------------------------------------------------------------------------------------------------


def preflight(answers: Answers, run: Run) -> Outcome:
    """Judge by the rules of the preflight. ``settings`` has ``profile`` and ``executor``, empty while only the image can tell it."""
    # Where the ranks meet. While only the image can tell what spreads them, it is left to the stage that makes the containers.
    meeting = {"ray": ["ray_port"], "native": ["master_port"]}.get(run.settings["executor"], [])
    settings = node_settings(answers, ["api_port", *meeting])
    asked = {
        node: {"info": answer["info"], "zombies": answer["waited"] if answered(answer["waited"]) else answer["info"]["zombies"], "settings": settings[node]}
        for node, answer in answers.items()
    }
    return _recorded("Preflight", "gb10_preflight", judging.judge(asked, run.settings["profile"], _of_run(answers, run)), run)


def doctor(answers: Answers, run: Run) -> Outcome:
    """Judge what runs on the nodes, whoever started it. No setting needs to be defined."""
    asked = {}
    for node, answer in answers.items():
        settings = {"rules": answer["rules"] or {}, "silenced": answer["silenced"] or [], "disk_gib": int(answer["disk_gib"] or 20)}
        info = answer["info"] or {}
        zombies = info.get("zombies") or {}
        asked[node] = {"info": info, "stack": answer["stack"] or {}, "zombies": zombies, "failure": answer["failure"] or "", "settings": settings}
    record = judging.judge_stacks(asked, _of_run(answers, run))
    return dataclasses.replace(_recorded("Doctor", "gb10_doctor", record, run), lines=record["found"])


def _probed(answers: Answers) -> Answers:
    settings = node_settings(answers)
    return {node: {"info": answer["info"], "settings": settings[node], "rdma": answer["ready"]["rdma"]} for node, answer in answers.items()}


def fabric_plan(answers: Answers, run: Run) -> Outcome:
    """Plan who probes whom; nothing is shown."""
    return Outcome(returns={"rounds": probe_evidence.plan(_probed(answers))})


def fabric(answers: Answers, run: Run) -> Outcome:
    """Judge what the links carried. ``settings`` has ``profile``."""
    results = [result for answer in answers.values() for result in answer["measured"] or []]
    record = judging.judge_probe(_probed(answers), results, run.settings["profile"], _of_run(answers, run))
    return dataclasses.replace(_recorded("Fabric", "gb10_fabric", record, run), lines=probe_evidence.lines(record["probe"]))


# --- the table --------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Stage:
    """A stage's function, and the variables of every node that it reads beside the answers that the task names."""

    judge: t.Callable[[Answers, Run], Outcome]
    reads: dict[str, str] = dataclasses.field(default_factory=dict)


STAGES = {
    "doctor": Stage(doctor, DOCTOR_SETTINGS),
    "fabric": Stage(fabric, SETTINGS),
    "fabric_plan": Stage(fabric_plan, SETTINGS),
    "preflight": Stage(preflight, SETTINGS),
}
