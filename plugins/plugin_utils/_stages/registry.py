# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stages that judge, each a function from the answers of all nodes to an outcome. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gb10.cluster.plugins.module_utils._engine import health
from ansible_collections.gb10.cluster.plugins.module_utils._memory import plan
from ansible_collections.gb10.cluster.plugins.module_utils._model import model_files
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify
from ansible_collections.gb10.cluster.plugins.plugin_utils._ladder import recorded
from ansible_collections.gb10.cluster.plugins.plugin_utils._report import image_copies, leavings, model_copies
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import fabric_traffic, judging, probe_evidence, reaching
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import abort, bench, bundle, catalogue, companions, glance, guard, ladder, ladder_plan, mode
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import mode_plan, models, postmortem, report, stage_findings, status, sweep
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import protect as protection
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered

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
    "capabilities": "gb10_container_capabilities",
    "model_root": "gb10_hf_home",
    "offline": "gb10_offline",
    "model_copy": "gb10_model_copy",
    "image_copy": "gb10_image_copy",
    "hub_token": "__gb10_hub_token",
    "disk_gib": "gb10_disk_floor_gib",
    "serve_arguments": "__gb10_asked_arguments",
    "replace_stale": "gb10_replace_stale",
    "allow_restart": "gb10_allow_restart",
    "kv_cache": "gb10_kv_cache",
    "tenants": "gb10_tenants",
    "companions": "gb10_companions",
    "mode": "__gb10_mode",
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
            **{word: boolean(answer[word]) for word in ("allow_restart", "offline", "replace_stale", "hub_token")},
            "head": head,
            "peers": [other["address"] for name, other in answers.items() if name != node],
            "api_address": answer["api_address"] if head else "",
            "ports": {SETTINGS[word]: int(answer[word]) for word in ports} if head else {},
        }
    return found


def of_run(answers: Answers, run: Run) -> dict[str, t.Any]:
    """Return what a record says of the run that it is from."""
    cluster = next(iter(answers.values()))["cluster"] or ""
    return {"cluster": cluster, "tags": run.tags, "skip_tags": run.skip_tags, "time": run.now.strftime("%Y-%m-%dT%H:%M:%SZ")}


def _recorded(title: str, stat: str, record: dict[str, t.Any], run: Run) -> Outcome:
    """Return the outcome of a record that preflight.schema.json describes."""
    stats = {stat: record, "gb10_verdict": record["verdict"]}
    return Outcome(title, record["findings"], record["matrix"], files={run.path: record}, stats=stats)


# --- records over all nodes -------------------------------------------------------------------------------------------------


def preflight_evidence(answers: Answers, executor: str) -> dict[str, dict[str, t.Any]]:
    """Return by node what the rules of the preflight judge. ``executor`` is empty while only the image can tell it."""
    # Where the ranks meet. While only the image can tell what spreads them, it is left to the stage that makes the containers.
    meeting = {"ray": ["ray_port"], "native": ["master_port"] if len(answers) > 1 else []}.get(executor, [])
    settings = node_settings(answers, ["api_port", *meeting])
    return {
        node: {"info": answer["info"], "zombies": answer["waited"] if answered(answer["waited"]) else answer["info"]["zombies"], "settings": settings[node]}
        for node, answer in answers.items()
    }


def preflight(answers: Answers, run: Run) -> Outcome:
    """Judge by the rules of the preflight. ``settings`` has ``profile`` and ``executor``, empty while only the image can tell it."""
    asked = preflight_evidence(answers, run.settings["executor"])
    return _recorded("Preflight", "gb10_preflight", judging.judge(asked, run.settings["profile"], of_run(answers, run)), run)


def companions_plan(answers: Answers, run: Run) -> Outcome:
    """Say what leads each node to the mode, and judge whether it goes there. ``settings`` has ``up``, whether companions are to be started."""
    plans = {}
    for node, answer in answers.items():
        plans[node] = companions.plan(answer["companions"], answer["info"]["companions"] or [], answer["info"]["images"] or {}, answer["mode"])
    # What is not seen is said once, and not by each rule that asks for it.
    found = [one for node, answer in answers.items() for one in stage_findings.unseen_companions(answer["info"]["errors"], node)]
    if not found and boolean(run.settings["up"]) and any(plan["start"] for plan in plans.values()):
        settings = node_settings(answers, ["api_port"])
        asked = {node: {"info": answer["info"], "zombies": {"findings": []}, "settings": settings[node]} for node, answer in answers.items()}
        together = next(iter(answers.values()))["mode"] == "cluster"
        # A single is a cluster of one node, and the mode off has no profile.
        for names in [list(asked)] if together else [[node] for node in asked]:
            own = {node: asked[node] for node in names}
            if not together:
                own[names[0]]["settings"].update(head=True, peers=[], ports={SETTINGS["api_port"]: int(answers[names[0]]["api_port"])})
            found += judging.judge_companions(own, answers[names[0]]["profile"] or None, of_run(answers, run))
    return Outcome("Companions", found or None, returns={"nodes": plans})


def doctor_evidence(answers: Answers) -> dict[str, dict[str, t.Any]]:
    """Return by node what the rules of the doctor judge."""
    asked = {}
    for node, answer in answers.items():
        settings = {"rules": answer["rules"] or {}, "silenced": answer["silenced"] or [], "disk_gib": int(answer["disk_gib"] or 20)}
        info = answer["info"] or {}
        zombies = info.get("zombies") or {}
        seen = {"failure": answer["failure"] or "", **reaching.failure(answer.get("reach"))}
        asked[node] = {"info": info, "stack": answer["stack"] or {}, "zombies": zombies, "settings": settings, **seen}
    return asked


def doctor(answers: Answers, run: Run) -> Outcome:
    """Judge what runs on the nodes, whoever started it. No setting needs to be defined."""
    record = judging.judge_stacks(doctor_evidence(answers), of_run(answers, run))
    return dataclasses.replace(_recorded("Doctor", "gb10_doctor", record, run), lines=record["found"])


def fabric_evidence(answers: Answers) -> Answers:
    """Return by node what the rules of the fabric probe judge beside the measurements."""
    settings = node_settings(answers)
    return {node: {"info": answer["info"], "settings": settings[node], "rdma": answer["ready"]["rdma"]} for node, answer in answers.items()}


def fabric_plan(answers: Answers, run: Run) -> Outcome:
    """Plan who probes whom; nothing is shown."""
    return Outcome(returns={"rounds": probe_evidence.plan(fabric_evidence(answers))})


def fabric(answers: Answers, run: Run) -> Outcome:
    """Judge what the links carried. ``settings`` has ``profile``."""
    results = [result for answer in answers.values() for result in answer["measured"] or []]
    record = judging.judge_probe(fabric_evidence(answers), results, run.settings["profile"], of_run(answers, run))
    return dataclasses.replace(_recorded("Fabric", "gb10_fabric", record, run), lines=probe_evidence.lines(record["probe"]))


# --- stages of a bring-up ---------------------------------------------------------------------------------------------------


def begin(answers: Answers, run: Run) -> Outcome:
    """Say that from here on something may change: what is known of the cluster is said again by whoever looks at it afterwards."""
    return Outcome(stats={"gb10_verdict": "unknown"})


def image(answers: Answers, run: Run) -> Outcome:
    """Judge the node images. ``settings`` has ``profile`` and ``copy``. Check mode on a node that has no image yet judges nothing."""
    contracts = {node: answer["contract"] for node, answer in answers.items()}
    copies = image_copies.told(answers)
    if run.check_mode and not all(contract["exists"] for contract in contracts.values()):
        built = not any(contract["exists"] for contract in contracts.values()) or not copies
        return Outcome(f"Image (as it is; would be {'built' if built else 'copied'})", [], lines=image_copies.lines(copies))
    found = stage_findings.images(contracts, run.settings["profile"], run.settings.get("copy") or "never", bool(run.settings.get("live")))
    return Outcome("Image", found, lines=image_copies.lines(copies))


ENGINE_READS = {
    "profile": "__gb10_profile",
    "executor": "__gb10_executor",
    "image": "__gb10_image",
    "arguments": "__gb10_wanted_arguments",
    "env": "__gb10_wanted_env",
}


def engine(answers: Answers, run: Run) -> Outcome:
    """Resolve what the engine is given, and show each change; check mode on a head that has no image yet cannot know."""
    head = next(iter(answers.values()))
    if run.check_mode and not head["image"].get("exists"):
        return Outcome("Engine (its arguments would be resolved)")
    env = {name: value for answer in answers.values() for name, value in answer["env"].items()}
    changes, found = stage_findings.resolved(head["image"], head["profile"], head["arguments"], env, head["executor"], len(answers))
    before = {name: {**head["arguments"], **env}[name] for name in changes.get("without", ())}
    after = {**changes.get("arguments", {}), **changes.get("env", {})}
    returns = {"steps": [one["message"] for one in found], "diff": {"before": before, "after": after}}
    return Outcome("Engine's arguments", found or None, returns={**returns, **({"changes": changes} if changes else {})})


def cache(answers: Answers, run: Run) -> Outcome:
    """Take the size of the KV cache from the plan, where starts on record bear it out. ``settings`` has ``profile``."""
    settings = node_settings(answers)
    asked = {node: {"info": answer["info"], "zombies": {}, "settings": settings[node]} for node, answer in answers.items()}
    pin, found = judging.judge_cache(asked, run.settings["profile"])
    if pin is None or pin.size is None:
        return Outcome("KV cache", found, returns={"arguments": {}, "told": ""})
    when = ", ".join(f"{node} {start['recorded_at'][:10]} with {start['context']} tokens" for node, start in pin.starts.items())
    told = f"{pin.size} bytes ({pin.size / plan.GIB:.2f} GiB), proposed by the memory plan, borne out by starts on record ({when})"
    return Outcome("KV cache", lines=[f"KV cache: {told}"], returns={"arguments": {"kv_cache_memory_bytes": pin.size}, "told": told})


def _would_download(found: dict[str, t.Any]) -> bool:
    """Return whether something is missing that the hub has: into a plain directory nothing is downloaded."""
    return any(not row["complete"] and not model_files.is_directory(row["repo"]) for row in found["repositories"])


def model(answers: Answers, run: Run) -> Outcome:
    """Judge the model on all nodes. ``settings`` has ``profile``. Check mode on a node that would download it judges nothing."""
    found = {node: answer["verified"] if answered(answer.get("verified")) else answer["model"] for node, answer in answers.items()}
    copies = model_copies.told(answers)
    would = {node: not boolean(answer["offline"]) or node in copies for node, answer in answers.items() if _would_download(answer["model"])}
    if run.check_mode and any(would.values()):
        return Outcome(f"Model (would be {'copied' if set(would) <= set(copies) else 'downloaded'})", [], lines=model_copies.lines(copies))
    return Outcome("Model", stage_findings.models(found, run.settings["profile"]), lines=[*model_copies.lines(copies), *model_copies.verified(answers)])


def download(answers: Answers, run: Run) -> Outcome:
    """Judge what is about to be fetched, before any node begins. ``settings`` has ``profile``. A node that may not fetch anything is not judged."""
    fetching = {node: answer for node, answer in answers.items() if not boolean(answer["offline"])}
    own = {node: {"model_root": answer["model_root"], "hub_token": boolean(answer["hub_token"])} for node, answer in fetching.items()}
    wanted = judging.wanted(run.settings["profile"], len(answers))
    found = stage_findings.download({node: answer["model"] for node, answer in fetching.items()}, wanted, own)
    return Outcome("Download", found)


def memory(answers: Answers, run: Run) -> Outcome:
    """Show what of the caches was not dropped in full; nothing where all of it was."""
    found = [one for node, answer in answers.items() for word in ("files", "caches") for one in stage_findings.on_node(answer[word]["findings"], node)]
    return Outcome("Memory", found or None)


def ray(answers: Answers, run: Run) -> Outcome:
    """Judge what Ray's head says of its nodes."""
    first = next(iter(answers.values()))
    if run.check_mode and not first["head"]["running"]:
        return Outcome("Ray (would be checked)", [])
    addresses = {node: answer["address"] for node, answer in answers.items()}
    return Outcome("Ray", stage_findings.gate(first["head"], addresses, int(first["gpus"])))


PROOF_READS = {
    "head": "gb10_head_host",
    "profile": "__gb10_profile",
    "executor": "__gb10_executor",
    "env": "__gb10_env",
    "secrets": "__gb10_secret_names",
    "devices": "gb10_container_devices",
    "memlock": "gb10_memlock",
    "gpus": "gb10_container_gpus",
    "started": "__vllm_server_result",
    "own_names": "__gb10_own_names",
    "arguments": "__gb10_serve_arguments",
    **{word: SETTINGS[word] for word in ("address", "fabric_fallback", "fabric_interfaces", "rdma_devices", "rules")},
}


def _no_completion(info: dict[str, t.Any], answers: Answers) -> dict[str, t.Any]:
    """Return why ``vllm_serve_info`` has no completion, and how grave that is: an engine that is busy has proven nothing, and is not at fault."""
    if not info["engine"]["live"]:
        return {"error": "no engine is live" + (f"; the last one, {info['last_end']}" if info["last_end"] else "")}
    ranks = {
        node: [
            {"text": f"{rank['title']} (pid {rank['pid']})", "kind": classify.RANK, "state": "stopped" if rank["halted"] else "alive", "cpu_percent": None}
            for rank in answer["ranks"]["ranks"]
        ]
        for node, answer in answers.items()
    }
    found = health.verdict(health.Probe(info["api"], False, **(info["progress"] or {})), ranks)
    return {"error": found.text, "verdict": "unknown" if found.state == health.BUSY else "block"}


def proof(answers: Answers, run: Run) -> Outcome:
    """Judge the live engine; check mode without one, or before the restart that it predicts, proves nothing."""
    first = next(iter(answers.values()))
    info = first["engine"]
    restarted = any((answer["started"] or {}).get("changed") for answer in answers.values())
    if run.check_mode and (restarted or not info["engine"]["live"]):
        return Outcome("Proof (would be checked)", [], stats={"gb10_verdict": "unknown"})
    parallel = first["profile"]["parallel"]
    # The doctor's rule has the table of names that belong to a host or to a process; the inventory may name more.
    differing = judging.limits_of("stack.env_same", (first["profile"]["rules"], first["rules"] or {}))
    needs = {
        "checks": first["profile"]["checks"],
        "own_names": [*differing["per_host"], *differing["per_process"], *(name for answer in answers.values() for name in answer["own_names"])],
        "stage": first["executor"],
        # Without Ray the head's ranks are children of the process that serves the API, and have what it has.
        "api_secrets": ["VLLM_API_KEY"] if first["executor"] == "native" else [],
        "head": first["head"],
        "ranks": parallel["tensor"] * parallel["pipeline"] * parallel["data"],
        "secrets": first["secrets"],
        "devices": first["devices"],
        "capabilities": ["IPC_LOCK"],
        "gpus": first["gpus"] not in ("none", []),
        "memlock": int(first["memlock"]),
    }
    found = stage_findings.proof(
        {node: answer["ranks"] for node, answer in answers.items()},
        info["completion"] or _no_completion(info, answers),
        {node: answer["env"] for node, answer in answers.items()},
        needs,
    )
    # An engine that gives no token has a finding already, and one without a key has none to ask for.
    if info["completion"] and "VLLM_API_KEY" in info["engine"]["secret_env"]:
        found += stage_findings.auth(first["head"], info["routes"], info["engine"]["guarded"])
    if "fabric" in needs["checks"] and len(answers) > 1 and info["completion"]:
        found += _fabric_of(answers)
    return Outcome("Proof", found, stats={"gb10_verdict": table.verdict(found, run.silenced)})


def _fabric_of(answers: Answers) -> list[table.Finding]:
    """Judge where the traffic of the proof's long completion went."""
    first = next(iter(answers.values()))
    asked = {
        "facts": (first["model"] or {}).get("facts") or {},
        "dtype": first["arguments"].get("dtype", "auto"),
        "parallel": first["profile"]["parallel"],
        "completion": (first["asked"] or {}).get("completion") or {"error": "it was not asked for"},
    }
    traffic = {node: [(answer[word] or {}).get("traffic") for word in ("before", "ranks")] for node, answer in answers.items()}
    nets = {node: answer["ranks"]["nccl_nets"] for node, answer in answers.items()}
    return fabric_traffic.judge(traffic, asked, answers, nets)


def known_answers(answers: Answers, run: Run) -> Outcome:
    """Judge what the engine answered to questions whose answers are known. Check mode asks nothing, and shows what is kept."""
    first = next(iter(answers.values()))
    found = stage_findings.on_node(first["asked"]["findings"], first["head"])
    if not found:
        return Outcome("Known answers (would be asked)", [])
    return Outcome("Known answers", found, stats={"gb10_verdict": table.verdict(found, run.silenced)})


def looked_at(answers: Answers, run: Run) -> Outcome:
    """Say which nodes cannot be looked at, and why."""
    return Outcome("Nodes", reaching.unanswered({node: answer["reach"] for node, answer in answers.items()}))


def reach(answers: Answers, run: Run) -> Outcome:
    """Say which nodes are lost. ``settings`` has ``ignore``, whether the others are cleared without them."""
    found = stage_findings.lost({node: answer["reached"] for node, answer in answers.items()}, boolean(run.settings["ignore"]))
    return Outcome("Lost nodes", found, returns={"lost": [one["node"] for one in found]})


def teardown(answers: Answers, run: Run) -> Outcome:
    """Judge that nothing is left. In check mode the engine still serves, and nobody looked at what would be left.

    ``settings`` has ``lost``, the nodes that could not be reached, and ``keeps_unit``, whether units are meant to stay.
    """
    told = {node: answer["kept"] for node, answer in answers.items() if answered(answer.get("kept"))}
    kept = protection.stays({node: one["protection"] for node, one in told.items()})
    kept += guard.stays({node: one.get("guard") or {} for node, one in told.items()})
    kept += sweep.stays({node: one.get("sweep") or {} for node, one in told.items()})
    kept += recorded.stays({node: one.get("ladder") or {} for node, one in told.items()})
    kept += companions.stays({node: (answer.get("node") or {}).get("companions") or [] for node, answer in answers.items()})
    kept += mode.stays({node: (answer.get("node") or {}).get("mode") or {} for node, answer in answers.items()}, next(iter(answers.values()))["cluster"])
    away = stage_findings.left_alone(run.settings["lost"])
    if run.check_mode:
        return Outcome("Left (would be checked)", away, lines=kept)
    units = {node: one.get("unit") or {} for node, one in told.items() if not boolean(run.settings.get("keeps_unit") or False)}
    found = [
        one
        for node, answer in answers.items()
        for one in stage_findings.teardown(answer["node"], node, answer["cluster"], answer["memory"], units.get(node))
    ]
    found += away
    return Outcome("Left", found, lines=kept, stats={"gb10_teardown": found, "gb10_verdict": table.verdict(found, run.silenced), "gb10_endpoint": ""})


# --- records without a verdict ----------------------------------------------------------------------------------------------


def baseline(answers: Answers, run: Run) -> Outcome:
    """Write each node's baseline to a file of its own in the directory ``path``, and pass them on."""
    files = {f"{run.path}/baseline-{node}.json": answer["answer"]["baseline"] for node, answer in answers.items()}
    where = "would be written to" if run.check_mode else "on the controller:"
    lines = [f"{node}: {answer['answer']['msg']}; {where} {path}" for (node, answer), path in zip(answers.items(), files)]
    return Outcome("Baseline", lines=lines, files=files, mode=0o644, stats={"gb10_baseline": dict(zip(answers, files.values()))})


def prune(answers: Answers, run: Run) -> Outcome:
    """Show what could go. ``settings`` has ``remove``, whether it goes."""
    found = {node: answer["found"] for node, answer in answers.items()}
    advice = any(answer["candidates"] for answer in found.values()) and not boolean(run.settings["remove"])
    return Outcome("Prune", lines=[*leavings.lines(found), *(["To remove all of it: -e gb10_prune=true"] if advice else [])])


def protect(answers: Answers, run: Run) -> Outcome:
    """Show what protects the nodes, what was changed and what was left. ``settings`` has ``revert``."""
    return protection.judge({node: answer["protected"] for node, answer in answers.items()}, boolean(run.settings["revert"]), run)


# --- the table --------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Stage:
    """A stage's function, and the variables of every node that it reads beside the answers that the task names."""

    judge: t.Callable[[Answers, Run], Outcome]
    reads: dict[str, str] = dataclasses.field(default_factory=dict)


STAGES = {
    "answers": Stage(looked_at),
    "abort": Stage(abort.judge, abort.READS),
    "abort_plan": Stage(abort.plan, abort.READS),
    "baseline": Stage(baseline),
    "begin": Stage(begin),
    "bench": Stage(bench.judge, bench.READS),
    "bundle": Stage(bundle.judge),
    "cache": Stage(cache, SETTINGS),
    "catalogue": Stage(catalogue.judge, catalogue.READS),
    "companions": Stage(companions.judge, companions.READS),
    "companions_plan": Stage(companions_plan, {**SETTINGS, "cluster": "__companions_cluster", "profile": "__companions_profile"}),
    "doctor": Stage(doctor, DOCTOR_SETTINGS),
    "download": Stage(download, {word: SETTINGS[word] for word in ("offline", "model_root", "hub_token")}),
    "engine": Stage(engine, ENGINE_READS),
    "fabric": Stage(fabric, SETTINGS),
    "fabric_plan": Stage(fabric_plan, SETTINGS),
    "glance": Stage(glance.judge),
    "guard": Stage(guard.judge),
    "image": Stage(image),
    "known_answers": Stage(known_answers, {"head": "gb10_head_host"}),
    "ladder": Stage(ladder.end, ladder.READS),
    "ladder_down": Stage(ladder.down, ladder.READS),
    "ladder_plan": Stage(ladder_plan.judge, ladder_plan.READS),
    "ladder_rung": Stage(ladder.rung, ladder.READS),
    "memory": Stage(memory),
    "mode": Stage(mode.judge, mode.READS),
    "mode_declared": Stage(mode_plan.declared, mode_plan.DECLARED_READS),
    "mode_plan": Stage(mode_plan.judge, mode_plan.READS),
    "mode_return": Stage(mode.way_back, mode.READS),
    "model": Stage(model, {"offline": "gb10_offline"}),
    "models": Stage(models.judge),
    "postmortem": Stage(postmortem.judge),
    "postmortem_when": Stage(postmortem.when),
    "preflight": Stage(preflight, SETTINGS),
    "proof": Stage(proof, PROOF_READS),
    "protect": Stage(protect),
    "prune": Stage(prune),
    "ray": Stage(ray, {"address": "gb10_fabric_address", "gpus": "gb10_ray_gpus"}),
    "reach": Stage(reach),
    "report": Stage(report.judge, report.READS),
    "rung": Stage(recorded.rung, recorded.READS),
    "status": Stage(status.judge, status.READS),
    "sweep": Stage(sweep.judge, sweep.READS),
    "teardown": Stage(teardown, {"cluster": "gb10_cluster_name"}),
}
