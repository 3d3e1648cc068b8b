# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judges the results of all nodes by the rules of rules.yml, with one verdict. This plugin util is PRIVATE to the collection.

A rule passes only with complete evidence. Missing evidence makes a blocking rule ``unknown`` and a warning one warn, with the missing part and the reason. A
rule that does not apply (another rule failed first, the profile lacks a value) is not judged, and is listed with the reason.
"""

from __future__ import annotations

import collections
import dataclasses
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._model import model_files
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._plan import planning
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import probe_evidence, stack_checks
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.checks import CHECKS, CLUSTER, COMPARISONS, GB, GIB
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.evidence import Fault, Node, Unseen
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.image_checks import has_image_source
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.memory_checks import pin_of
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.model_checks import has_model_source
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.rule_table import FABRIC_TAG, PROBE, PROPER_NAMES, SEE, Rule, known_ids, of_doctor, probing
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.rule_table import shipped
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.tuning import lowered, tuned
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table

Finding = dict[str, t.Any]

#: Version of the record of :func:`judge`, which preflight.schema.json describes.
RECORD_SCHEMA = 1

#: Stages after preflight, which repair violations of some rules.
STAGES = ("image", "model", "memory", "ray", "native", "serve")

#: Tags that select preflight alone, which then judges for the whole play.
ONLY_PREFLIGHT = {"preflight", "always"}

#: Tags with which every stage runs: a climb starts the engine at each rung.
EVERY_STAGE = {"all", "ladder"}


# --- judging ----------------------------------------------------------------------------------------------------------------


def stages_of_run(run_tags: t.Collection[str], skip_tags: t.Collection[str]) -> list[str]:
    """Return the stages after preflight in a run with these tags. Preflight alone judges for all of them."""
    everything = not EVERY_STAGE.isdisjoint(run_tags) or set(run_tags) <= ONLY_PREFLIGHT
    return [stage for stage in STAGES if (everything or stage in run_tags) and stage not in skip_tags]


class Judge:
    """Judges all nodes by all rules, once."""

    def __init__(self, nodes: t.Sequence[Node], rules: t.Sequence[Rule]) -> None:
        self.nodes = list(nodes)
        self.rules = rules
        self.findings: list[Finding] = []
        self.not_judged: list[dict[str, str]] = []
        self.tuned: list[dict[str, t.Any]] = []
        self.matrix: dict[str, dict[str, str]] = {}
        # By rule, the nodes (or the cluster) for which it did not pass.
        self._stopped: dict[str, set[str]] = collections.defaultdict(set)

    def run(self) -> None:
        """Fill ``findings``, ``matrix``, ``not_judged`` and ``tuned``."""
        live = any(node.serves() for node in self.nodes)
        for node in self.nodes:
            node.engine_live = live
        for rule in self.rules:
            settings = {node.name: self._tuned(rule, node) for node in self.nodes}
            applicable = [node for node in self.nodes if self._applies(rule, node)]
            self.matrix[rule.id] = {node.name: "pass" if node in applicable else "not_judged" for node in self.nodes}
            whole = [node for node in applicable if self._has_evidence(rule, node, settings)]
            if rule.between:
                self._compare(rule, whole, settings)
            else:
                for node in whole:
                    self._look(rule, node, settings)

    def _tuned(self, rule: Rule, node: Node) -> dict[str, t.Any]:
        needs = node.needs
        silenced = {id: {"verdict": "silenced"} for id in needs["silenced"]}
        settings = tuned(rule, (("profile", needs["profile_rules"]), ("gb10_rules", needs["rules"]), ("gb10_silenced", silenced)))
        if settings["by"]:
            whys = [tuning[rule.id].get("why", "") for tuning in (needs["profile_rules"], needs["rules"]) if rule.id in tuning]
            limits = {name: value for name, value in settings["limits"].items() if value != rule.limits[name]}
            row = {"id": rule.id, "by": settings["by"], "verdict": settings["verdict"], "limits": limits, "why": "; ".join(filter(None, whys)), "nodes": []}
            same = next((entry for entry in self.tuned if {**entry, "nodes": []} == row), None)
            if same is None:
                self.tuned.append(same := row)
            same["nodes"].append(node.name)
        return settings

    def _applies(self, rule: Rule, node: Node) -> bool:
        why = next((condition.why for condition in rule.only_if if not condition.holds(node)), "")
        if FABRIC_TAG in rule.tags and not rule.probes and node.needs.get("alone"):
            why = "the cluster has one node"
        before = next((id for id in rule.after if self._stopped[id] & {node.name, CLUSTER}), "")
        if before:
            # Rules that depend on this rule also depend on the one before it.
            self._stopped[rule.id].add(node.name)
            why = f"{before} comes first"
        if why:
            self.not_judged.append({"id": rule.id, "node": node.name, "why": why})
        return not why

    def _has_evidence(self, rule: Rule, node: Node, settings: dict[str, t.Any]) -> bool:
        for path in rule.evidence:
            try:
                node.get(path)
            except Unseen as unseen:
                self._unknown(rule, node.name, unseen, settings)
                return False
        return True

    def _look(self, rule: Rule, node: Node, settings: dict[str, t.Any]) -> None:
        faulty = False
        try:
            for fault in CHECKS[rule.check](node, rule.arguments, settings[node.name]["limits"]):
                faulty = True
                self._fault(rule, node, fault, settings)
            if not faulty:
                for path in rule.evidence:
                    node.require_whole(path)
        except Unseen as unseen:
            self._unknown(rule, node.name, unseen, settings)

    def _compare(self, rule: Rule, nodes: list[Node], settings: dict[str, t.Any]) -> None:
        if not nodes:
            return
        limits = settings[nodes[0].name]["limits"]
        try:
            for fault in COMPARISONS[rule.check](nodes, rule.arguments, limits):
                self._fault(rule, nodes[0], fault, settings)
        except Unseen as unseen:
            self._unknown(rule, CLUSTER, unseen, settings)

    def _fault(self, rule: Rule, node: Node, fault: Fault, settings: dict[str, t.Any]) -> None:
        name = fault.node or node.name
        words = {**settings.get(name, settings[node.name])["limits"], "measured": fault.measured, "needed": fault.needed, "node": name, **fault.words}
        verdict, remedy = fault.verdict or rule.verdict, rule.remedy.format_map(words)
        if rule.repair:
            stage = rule.repair.stage
            cannot = fault.cannot or ("" if stage in node.needs["stages"] else f"stage {stage} is not part of this run")
            if not cannot:
                verdict, remedy = "warn", f"stage {stage} will {rule.repair.does}"
            elif fault.cannot or verdict == "block":
                remedy += f" (stage {stage} does not: {cannot})"
        self._add(
            rule,
            finding(
                rule.id,
                name,
                verdict,
                " ".join(rule.message.format_map(words).split()),
                measured=fault.measured,
                needed=fault.needed,
                remedy=remedy,
                source=rule.source,
            ),
            settings,
        )

    def _unknown(self, rule: Rule, name: str, unseen: Unseen, settings: dict[str, t.Any]) -> None:
        title = rule.title if rule.title[1:2].isupper() or rule.title.split()[0] in PROPER_NAMES else f"{rule.title[0].lower()}{rule.title[1:]}"
        message = f"whether {title} is unknown, since {unseen.what} is missing" + (f": {unseen.why}" if unseen.why else ".")
        remedy = unseen.remedy or "look at the node; a rule that can't be judged there is silenced with gb10_silenced"
        verdict = "warn" if rule.verdict == "warn" else "unknown"
        self._add(rule, finding(rule.id, name, verdict, message, measured=None, needed=unseen.what, remedy=remedy, source=rule.source), settings)

    def _add(self, rule: Rule, entry: Finding, settings: dict[str, t.Any]) -> None:
        name = entry["node"]
        limit = settings[name]["verdict"] if name in settings else next(iter(settings.values()))["verdict"]
        self._stopped[rule.id].add(name)
        entry = {**lowered(entry, limit), "compares": rule.compares, "tags": list(rule.tags)}
        self.findings.append(entry)
        cells = self.matrix[rule.id]
        cells[name] = max(cells.get(name, "pass"), entry["verdict"], key=table.ORDER.index)


def fetched(repository: dict[str, t.Any], purpose: str, size_gb: float | None = None) -> dict[str, t.Any]:
    """Return the requirements of rules for one repository. Of a partially fetched one, nodes may have different files."""
    return {
        "repo": repository["repo"],
        "revision": repository["revision"],
        "purpose": purpose,
        "partial": bool(repository["files"]) or purpose in model_files.DEFAULT_FILES,
        "gib": None if size_gb is None else round(size_gb * GB / GIB, 1),
        "gated": bool(repository.get("gated")),
        "license": repository.get("license") or {},
    }


def wanted(profile: dict[str, t.Any], nodes: int) -> list[dict[str, t.Any]]:
    """Return the requirements of rules for each repository of a profile, the model's first. The stage model checks plain directories, which are not fetched.

    If the profile does not state the model's size, that follows from the size that one node loads (``memory.weights_gb``): every node has the whole model on
    disk.
    """
    weights, further = profile["memory"]["weights_gb"], profile["repositories"].values()
    size = profile["model"]["size_gb"] or (weights and weights * nodes)
    every = [fetched(profile["model"], "model", size), *(fetched(repository, repository["purpose"], repository["size_gb"]) for repository in further)]
    return [repository for repository in every if not model_files.is_directory(repository["repo"])]


def kv_offload(serve: t.Mapping[str, t.Any]) -> str:
    """Return the argument with which vLLM offloads the KV cache to host memory, empty without one."""
    if "Offloading" in str(serve.get("kv_transfer_config", "")):
        return "kv_transfer_config"
    return next((name for name in ("kv_offloading_size", "kv_offloading_backend") if serve.get(name)), "")


def requirements(profile: dict[str, t.Any], settings: dict[str, t.Any], nodes: int) -> dict[str, t.Any]:
    """Return the requirements of a profile for a node, whose settings override the profile, under the names that rules use (``only_if``, checks)."""
    over = {name.replace("-", "_"): value for name, value in settings["serve_arguments"].items()}
    serve = {name: value for name, value in {**profile["serve"], **over}.items() if value is not None}
    repositories = wanted(profile, nodes)
    profile_claim = planning.claim(profile, over)
    use = profile_claim.use
    return {
        **settings,
        "profile": profile["id"],
        "image": {name: profile["image"][name] for name in ("base", "tag")},
        "memory": {"utilization": use.utilization, "kv_cache_bytes": use.kv_bytes, "weights_gb": profile["memory"]["weights_gb"]},
        "memory_class_gb": profile["memory"]["class_gb"],
        "memory_stated": bool(use.unread) or not use.left_to_engine,
        "plan": profile_claim,
        "plan_known": not profile_claim.missing,
        "plan_digest": planning.digest(profile, over),
        "remote_code": bool(serve.get("trust_remote_code")),
        "kv_offload": kv_offload(serve),
        "needed_capabilities": profile["needs"]["capabilities"],
        "capabilities": settings.get("capabilities", []),
        "repositories": repositories,
        "model_size_known": any(repository["gib"] is not None for repository in repositories),
        # Older records lack these settings.
        "hub_token": settings.get("hub_token", False),
        "allow": settings.get("allow", []),
        "image_copy": "never" if "@" in profile["image"]["tag"] else settings.get("image_copy", "never"),
        "kv_cache": settings.get("kv_cache", "profile"),
        "tenants": settings.get("tenants", []),
        "companions": settings.get("companions", []),
        "mode": settings.get("mode", ""),
        "gpus_asked": settings["container_gpus"] not in ("none", []),
        "profile_rules": profile["rules"],
    }


def strays(name: str, zombies: dict[str, t.Any]) -> list[Finding]:
    """Return the findings of the module for GPU processes that have no rule. They are passed on unchanged."""
    return [
        {**entry, "node": name, "remedy": entry["remedy"] or "look at the node", "was": None, "compares": "requirement", "tags": ["memory"]}
        for entry in zombies["findings"]
        if entry["id"] not in known_ids() and entry["verdict"] != "pass"
    ]


def nodes_of(answers: dict[str, dict[str, t.Any]], profile: dict[str, t.Any], stages: t.Sequence[str]) -> list[Node]:
    """Return the nodes of a profile, with the requirements of each, and those that depend on all nodes."""
    nodes = [
        Node(name, answer["info"], answer["zombies"], {**requirements(profile, answer["settings"], len(answers)), "stages": stages, "alone": len(answers) == 1})
        for name, answer in answers.items()
    ]
    pin = pin_of(nodes)
    for node in nodes:
        lacks = pin.lacks.get(node.name, "") if pin else ""
        node.needs.update(given=has_model_source(node, nodes), image_given=has_image_source(node, nodes), pin=pin, start_lacks=lacks)
    return nodes


def judge(
    answers: dict[str, dict[str, t.Any]], profile: dict[str, t.Any], run: dict[str, t.Any], rules: t.Sequence[Rule] | None = None, kind: str = "preflight"
) -> dict[str, t.Any]:
    """Judge all nodes and return the record that preflight.schema.json describes.

    ``answers`` maps a node to ``info`` (the result of ``node_info``), ``zombies`` (the result of ``cuda_zombie_check``) and ``settings`` (keys of
    ``_rules.node_settings.SETTINGS``, with ``head``, ``peers`` and ``ports``). ``run`` has ``cluster``, ``tags``, ``skip_tags`` and ``time`` (ISO 8601, when
    it was judged).
    """
    judgement = Judge(nodes_of(answers, profile, stages_of_run(run["tags"], run["skip_tags"])), shipped() if rules is None else rules)
    judgement.run()
    return _record(kind, judgement, [entry for name, answer in answers.items() for entry in strays(name, answer["zombies"])], run, profile["id"])


def _record(kind: str, judgement: Judge, beside: t.Sequence[Finding], run: dict[str, t.Any], profile: str | None) -> dict[str, t.Any]:
    """Return the record of a judgement, with the additional findings ``beside``."""
    findings = [*judgement.findings, *beside]
    findings.sort(key=lambda entry: (-table.ORDER.index(entry["verdict"]), entry["id"], entry["node"]))
    return {
        "schema": RECORD_SCHEMA,
        "kind": f"gb10.cluster.{kind}",
        "cluster": run["cluster"],
        "profile": profile,
        "time": run["time"],
        "verdict": table.worst(findings),
        "counts": table.tally(findings, judgement.matrix),
        "nodes": [node.name for node in judgement.nodes],
        "matrix": judgement.matrix,
        "findings": findings,
        "not_judged": judgement.not_judged,
        "tuned": judgement.tuned,
    }


# --- the fabric probe -------------------------------------------------------------------------------------------------------


def judge_probe(answers: dict[str, dict[str, t.Any]], results: list[dict[str, t.Any]], profile: dict[str, t.Any], run: dict[str, t.Any]) -> dict[str, t.Any]:
    """Judge the measurements of the links between the nodes, and return a record as :func:`judge` does, with the measurements under ``probe``.

    ``answers`` maps a node to ``info`` and ``settings``, ``results`` are those of ``fabric_probe``, as for :func:`probe_evidence.evidence`.
    """
    seen = probe_evidence.evidence(answers, results)
    if not results:
        for evidence in seen.values():
            evidence["errors"].append({"to": "another node", "error": "it takes two nodes"})
    with_probe = {
        name: {"info": {**answer["info"], PROBE: seen[name]}, "zombies": {"findings": []}, "settings": answer["settings"]}
        for name, answer in answers.items()
    }
    return {**judge(with_probe, profile, run, probing(), "fabric"), PROBE: seen}


# --- after a stage ------------------------------------------------------------------------------------------------------------


def judge_after_stage(
    ids: t.Collection[str], seen: dict[str, dict[str, t.Any]], needs: dict[str, t.Any], own: t.Mapping[str, dict[str, t.Any]] | None = None
) -> list[Finding]:
    """Judge by these rules of the preflight after the stage that repairs their violations: remaining ones count in full.

    ``seen`` maps a node to its evidence, ``needs`` are the requirements for every node, ``own`` further ones of a node. A rule that passed is also a finding.
    """
    rules = [dataclasses.replace(rule, repair=None) for rule in shipped() if rule.id in ids]
    needs_of = {name: {**NO_NEEDS, **needs, **(own or {}).get(name, {})} for name in seen}
    judgement = Judge([Node(name, {"errors": [], **tree}, {}, needs_of[name]) for name, tree in seen.items()], rules)
    judgement.run()
    passed = [
        finding(rule.id, name, "pass", f"{rule.title}.")
        for rule in rules
        for name, verdict in judgement.matrix[rule.id].items()
        if verdict == "pass" and CLUSTER not in judgement.matrix[rule.id]
    ]
    return [*judgement.findings, *passed]


#: Rules on whether companions fit their nodes, alone and next to an engine.
COMPANION_RULES = ("companion.claims", "companion.unit")
BESIDE_ENGINE = ("plan.fits",)


def judge_companions(answers: dict[str, dict[str, t.Any]], profile: dict[str, t.Any] | None, run: dict[str, t.Any]) -> list[Finding]:
    """Judge whether the companions of a mode fit their nodes, next to the engine of a profile if there is one.

    ``answers`` and ``run`` are those of :func:`judge`.
    """
    if profile is None:
        words = ("companions", "mode", "cluster", "ports", "rules", "silenced")
        own = {name: {word: answer["settings"][word] for word in words} for name, answer in answers.items()}
        findings = judge_after_stage(COMPANION_RULES, {name: answer["info"] for name, answer in answers.items()}, {}, own)
        return [entry for entry in findings if entry["verdict"] != "pass"]
    return judge(answers, profile, run, [rule for rule in shipped() if rule.id in (*COMPANION_RULES, *BESIDE_ENGINE)])["findings"]


def judge_cache(answers: dict[str, dict[str, t.Any]], profile: dict[str, t.Any]) -> tuple[planning.Pin | None, list[Finding]]:
    """Return the size of the KV cache that recorded starts confirm, None if it was not requested, and the findings about them.

    ``answers`` is that of :func:`judge`.
    """
    judgement = Judge(nodes_of(answers, profile, []), [rule for rule in shipped() if rule.id == "plan.recorded"])
    judgement.run()
    return judgement.nodes[0].needs["pin"], judgement.findings


# --- the doctor -------------------------------------------------------------------------------------------------------------

#: The requirements for a node without any settings: only those of every stack.
NO_NEEDS: dict[str, t.Any] = {
    "address": "",
    "cluster": "",
    "companions": [],
    "devices": [],
    "fabric_fallback": "none",
    "fabric_interfaces": [],
    "gpus_asked": True,
    "head": False,
    "hub_token": False,
    "mode": "",
    "offline": False,
    "peers": [],
    "ports": {},
    "profile_rules": {},
    "rdma_devices": [],
    "rules": {},
    "silenced": [],
    "stages": [],
}


def failure_of(answer: t.Mapping[str, t.Any]) -> str:
    """Return why a task returned no result, empty when it did. A missing or skipped task is the consequence of another failure."""
    if not answer or answer.get("skipped"):
        return "it was not asked"
    return str(answer.get("msg") or "no answer") if answer.get("failed") or answer.get("unreachable") else ""


def _evidence_of(answer: dict[str, t.Any]) -> tuple[str, dict[str, t.Any], dict[str, t.Any]]:
    """Return why a node could not be checked, the results of ``node_info`` and ``stack_info``, and that of ``cuda_zombie_check``."""
    info, stack, zombies = answer["info"], answer["stack"], answer["zombies"]
    why = answer.get("failure") or failure_of(info) or failure_of(stack)
    if why:
        return why, {"errors": []}, {}
    errors = [{**error, "section": f"stack.{error['section']}"} for error in stack["errors"]]
    tree = {**info, "stack": stack, "errors": [*info["errors"], *errors]}
    no_zombies = failure_of(zombies)
    if no_zombies:
        # The rules that need it become unknown; the others are still judged.
        tree["errors"].append({"section": "zombies", "verdict": "unknown", "error": no_zombies, "remedy": ""})
    return "", tree, {} if no_zombies else zombies


def judge_stacks(answers: dict[str, dict[str, t.Any]], run: dict[str, t.Any], rules: t.Sequence[Rule] | None = None) -> dict[str, t.Any]:
    """Judge all engines and stacks on all nodes, from this collection or not, and return the record that preflight.schema.json describes, with ``found``.

    ``answers`` maps a node to ``info``, ``stack`` and ``zombies`` (the results of the modules there, also when they failed or the node was not reached),
    ``failure`` (why the node could not be checked, empty or absent otherwise) with its ``remedy``, and ``settings`` (any of :data:`NO_NEEDS`). ``run`` has
    ``cluster`` and ``time``. ``found`` lists in lines what runs on each node.
    """
    nodes, beside = [], []
    for name, answer in answers.items():
        why, tree, zombies = _evidence_of(answer)
        why = " ".join(why.split())[:500].rstrip(".")
        remedy = answer.get("remedy") or SEE.format(node=name)
        nodes.append(Node(name, tree, zombies, {**NO_NEEDS, **answer.get("settings", {}), "failure": why, "remedy": remedy}))
        beside += strays(name, zombies) if zombies else []
    judgement = Judge(nodes, of_doctor() if rules is None else rules)
    judgement.run()
    return {**_record("doctor", judgement, beside, run, None), "found": [line for node in nodes for line in stack_checks.lines(node)]}
