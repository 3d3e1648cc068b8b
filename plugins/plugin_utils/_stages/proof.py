# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The proofs of the live engine. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import functools
import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._engine import health
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.protocol import GUARD_DIRECTORY, LAUNCH_TARGET
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify
from ansible_collections.gb10.cluster.plugins.module_utils._redact import HIDDEN, HIDDEN_START, shown_value
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import fabric_traffic, tuning
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.checks import CLUSTER, listed, named_like
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.node_settings import SETTINGS
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.stack_checks import NOT_SET
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.table import Finding

#: Ids of findings that are made here.
IDS = (
    "proof.auth",
    "proof.capability",
    "proof.completion",
    "proof.device",
    "proof.entrypoint",
    "proof.env",
    "proof.env_same",
    "proof.fabric",
    "proof.fabric_devices",
    "proof.fabric_nccl",
    "proof.halted",
    "proof.hub_token",
    "proof.libcuda",
    "proof.memlock",
    "proof.rank_hosts",
    "proof.secrets",
)
READS = {
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
#: The remedy for ranks on the wrong nodes, by the stage that creates the node containers.
SPREAD_REMEDIES = {
    "ray": "every node must run the same number of ranks: tear down and bring up again",
    "native": "every node must run the same number of ranks: run with --tags serve, which starts all of them again when one is missing",
}
#: The path of the API's guard in a container.
GUARD_PATH = f"{LAUNCH_TARGET}/{GUARD_DIRECTORY}"
#: Maximum characters of a variable's value in a finding.
VALUE_SHOWN = 300
#: Finding → the entry of a profile's ``checks`` that enables it.
PROOF_OF = {
    "proof.completion": "completion",
    "proof.rank_hosts": "rank_hosts",
    "proof.halted": "rank_hosts",
    "proof.env": "env_parity",
    "proof.env_same": "env_parity",
    "proof.device": "container_rights",
    "proof.capability": "container_rights",
    "proof.memlock": "container_rights",
    "proof.entrypoint": "container_rights",
    "proof.libcuda": "container_rights",
}


def findings_of(
    ranks: dict[str, dict[str, t.Any]],
    completion: dict[str, t.Any],
    expected_env: dict[str, dict[str, str]],
    needs: dict[str, t.Any],
) -> list[Finding]:
    """Judge a live engine: it produced a token, its ranks are on distinct hosts with the forwarded variables, and its containers have their rights.

    ``ranks`` maps a node to its answer of ``rank_info``. ``completion`` is the measurement of ``vllm_serve_info`` on the head, or, if there is none, the
    ``error`` with its ``verdict``. ``expected_env`` maps a node to its container's environment. ``needs`` has these keys: ``ranks`` (their number),
    ``secrets`` (names that no rank may carry), ``own_names`` (patterns of variables that may differ between ranks), ``head``, ``devices``,
    ``capabilities``, ``memlock`` (bytes, -1 for unlimited), ``stage`` (the one that creates the node containers, ``ray`` or ``native``), ``gpus`` (whether
    the containers request any), ``api_secrets`` (those of ``secrets`` that ranks on the head inherit from the API's process, their parent), ``checks`` (the
    enabled entries of ``_profile.PROOFS``; secrets and tokens are always checked).
    """
    tokens = completion.get("tokens") or 0
    findings = [
        finding(
            "proof.completion",
            needs["head"],
            "pass" if tokens >= 1 else completion.get("verdict", "block"),
            f"a completion of {tokens} token(s) in {completion.get('seconds')} s." if tokens else f"no completion: {completion.get('error', 'no answer')}",
            measured=tokens,
            needed=1,
            remedy="" if tokens else "run with --tags serve and look at the engine's log",
        )
    ]
    per_node = {node: len(answer["ranks"]) for node, answer in ranks.items()}
    spread = sum(per_node.values()) == needs["ranks"] and len(set(per_node.values())) == 1
    findings.append(
        finding(
            "proof.rank_hosts",
            CLUSTER,
            "pass" if spread else "block",
            f"{sum(per_node.values())} rank(s): " + ", ".join(f"{count} on {node}" for node, count in per_node.items()) + ".",
            measured=per_node,
            needed=needs["ranks"],
            remedy="" if spread else SPREAD_REMEDIES[needs["stage"]],
        )
    )
    for node, answer in ranks.items():
        pids = [rank["pid"] for rank in answer["ranks"] if rank["halted"]]
        named = ", ".join(map(str, pids))
        findings.append(
            finding(
                "proof.halted",
                node,
                "block" if pids else "pass",
                f"rank {named} was stopped by a signal or a debugger: the engine hangs." if pids else "every rank here runs on.",
                measured=pids,
                needed=[],
                remedy=f"find out who did it; kill -CONT {named} lets it go on" if pids else "",
            )
        )
    for node, answer in ranks.items():
        findings += _rank_env(node, answer["ranks"], expected_env[node], needs)
        findings += _rights(node, answer["container"], needs)
        findings += [_libcuda(node, rank, answer["container"], needs) for rank in answer["ranks"]] if needs["gpus"] else []
        findings.append(_hub_token(node, answer["container"], needs))
    findings += _env_same(ranks, needs)
    return [entry for entry in findings if PROOF_OF.get(entry["id"]) in (None, *needs["checks"])]


def _carries(name: str, have: str | None, wanted: str) -> bool:
    """Return whether a rank has a variable of its node's container. The launcher adds the guard's directory to Python's path.

    For a secret, only its presence is checked here. Digests show whether all ranks have the same value.
    """
    return have in (wanted, shown_value(name, wanted)) or (name == "PYTHONPATH" and have is not None and have.startswith(f"{wanted}:"))


def auth(node: str, routes: dict[str, t.Any] | None, guarded: bool) -> list[Finding]:
    """Judge that no route of the API answers without its key.

    ``routes`` is the result of ``vllm_serve_info``. ``guarded`` is true if the engine was started with the collection's guard.
    """
    if routes is None:
        return [finding("proof.auth", node, "unknown", "the API's routes were not checked without the key.", remedy="run with --tags proof")]
    routes_text, unknown = f"{routes['asked']} routes asked without the API's key", routes["unknown"]
    opened = f"{routes_text}, {len(routes['open'])} answer: {table.some(routes['open'])}."
    verdict, remedy, message = "pass", "", f"{routes_text}, none answers{'' if routes['listed'] else '; the engine does not list its own'}."
    if routes["open"] and not guarded:
        verdict, message = "warn", f"{opened} The engine was started before the collection guarded them."
        remedy = "restart it while it is idle: --tags serve -e gb10_allow=restart; until then keep gb10_api_port behind a firewall"
    elif routes["open"]:
        verdict, message = "block", opened
        remedy = "use another front end: this one ignores --middleware (VLLM_USE_RUST_FRONTEND?); or keep gb10_api_port behind a firewall"
    elif unknown:
        verdict, message = "unknown", f"{routes_text}, {len(unknown)} do not answer: {table.some(unknown)}."
        remedy = "run again; a route that hangs is the engine's"
    return [finding("proof.auth", node, verdict, message, measured=routes["open"] or unknown, needed=[], remedy=remedy)]


def _rank_env(node: str, ranks: list[dict[str, t.Any]], expected: dict[str, str], needs: dict[str, t.Any]) -> list[Finding]:
    """Compare the forwarded variables in each live rank with those of its node's container. Secrets may only be where they belong."""
    findings = []
    for rank in ranks:
        wrong = {name: rank["env"].get(name) for name, value in expected.items() if not _carries(name, rank["env"].get(name), value)}
        shown = {name: shown_value(name, expected[name]) for name in wrong}
        detail = ", ".join(f"{name}={have!r} instead of {shown[name]!r}" for name, have in wrong.items())
        own = needs["api_secrets"] if node == needs["head"] else []
        but_own = f" but {', '.join(own)} of its API" if own else ""
        leaked = sorted(name for name in needs["secrets"] if name in rank["present"] and name not in own)
        # The environment at the start can only prove that a secret is present.
        blind = rank["source"] != "live"
        findings.append(
            _blind("proof.env", node, rank)
            if blind
            else finding(
                "proof.env",
                node,
                "block" if wrong else "pass",
                f"rank {rank['pid']}: {detail}." if wrong else f"rank {rank['pid']} carries all {len(expected)} forwarded variables.",
                measured=wrong,
                needed=shown,
                remedy=f"recreate the node containers: --tags {needs['stage']},serve -e gb10_allow=restart" if wrong else "",
            )
        )
        findings.append(
            _blind("proof.secrets", node, rank)
            if blind and not leaked
            else finding(
                "proof.secrets",
                node,
                "block" if leaked else "pass",
                f"rank {rank['pid']} holds {', '.join(leaked)}." if leaked else f"rank {rank['pid']} holds no secret{but_own}.",
                measured=leaked,
                needed=[],
                remedy="the engine copied its environment: report this with the engine's version" if leaked else "",
            )
        )
    return findings


def _env_same(ranks: dict[str, dict[str, t.Any]], needs: dict[str, t.Any]) -> list[Finding]:
    """Judge that all live ranks have the same variables, except those that are expected to differ. Secrets are compared and not shown."""
    several = {node for node, answer in ranks.items() if len(answer["ranks"]) > 1}
    every = {f"{node} (pid {rank['pid']})" if node in several else node: rank for node, answer in ranks.items() for rank in answer["ranks"]}
    blind = [label for label, rank in every.items() if rank["source"] != "live" or rank["environ"] is None]
    if blind:
        return [
            finding(
                "proof.env_same",
                CLUSTER,
                "unknown",
                f"the whole live environment of the rank on {', '.join(blind)} is unknown.",
                remedy="see what keeps root from reading the memory of that process (ptrace_scope, seccomp)",
            )
        ]
    findings = []
    names = sorted({name for rank in every.values() for name in rank["environ"]})
    for name in [name for name in names if not named_like(name, needs["own_names"])]:
        values = {label: _comparable(name, rank["environ"].get(name)) for label, rank in every.items()}
        if len(set(values.values())) > 1:
            shown = {label: HIDDEN if value.startswith(HIDDEN_START) else value[:VALUE_SHOWN] for label, value in values.items()}
            message = f"{name} differs between the live ranks: {listed(shown)}."
            again = f"--tags {needs['stage']},serve -e gb10_allow=restart"
            findings.append(
                finding(
                    "proof.env_same",
                    CLUSTER,
                    "block",
                    message,
                    measured=shown,
                    needed="one value",
                    remedy=f"set it alike for every node (gb10_env; gb10_host_env where it must differ), then {again}",
                )
            )
    same = f"{len(every)} live rank(s) agree in all of {len(names)} variables but those that are expected to differ."
    return findings or [finding("proof.env_same", CLUSTER, "pass", same)]


def _comparable(name: str, value: str | None) -> str:
    """Return a variable's value for the comparison between ranks.

    If the API's process is the parent of a rank, the launcher added the guard's directory to Python's path.
    """
    if name == "PYTHONPATH" and value:
        value = os.pathsep.join(entry for entry in value.split(os.pathsep) if entry != GUARD_PATH) or None
    return NOT_SET if value is None else value


def _libcuda(node: str, rank: dict[str, t.Any], container: dict[str, t.Any], needs: dict[str, t.Any]) -> Finding:
    """A live rank must use the libcuda that was proven for containers of its image. NGC images bring a newer one than the driver's."""
    have, want = rank["libcuda"], container["libcuda"]
    held = f"rank {rank['pid']} holds {', '.join(have) or 'no libcuda'}"
    judged = functools.partial(finding, "proof.libcuda", node, measured=have, needed=want)
    if want is None:
        return judged("warn", f"{held}; which one belongs there is unknown.", remedy="run with --tags image, which proves it")
    if have == want:
        return judged("pass", f"{held}.")
    # A container that was created without the entrypoint only needs its restart, as proof.entrypoint reports.
    return judged(
        "warn" if container["entrypoint_bypassed"] else "block",
        f'{held} instead of {", ".join(want)}: kernels that are compiled on the node fail ("the provided PTX was compiled with an unsupported toolchain").',
        remedy=f"recreate the node containers: --tags {needs['stage']},serve -e gb10_allow=restart",
    )


def _hub_token(node: str, container: dict[str, t.Any], needs: dict[str, t.Any]) -> Finding:
    """The engine and the model's code must not be able to read a token of the hub."""
    seen = container["hub_tokens"]
    # A container that was created with the whole cache only needs its restart, as its stage reports.
    return finding(
        "proof.hub_token",
        node,
        "pass" if not seen else "block" if container["hub_alone"] else "warn",
        f"the container can read {', '.join(seen)}." if seen else "the container sees no token of the hub.",
        measured=seen,
        needed=[],
        remedy=f"recreate the node containers: --tags {needs['stage']},serve -e gb10_allow=restart; and revoke that token" if seen else "",
    )


def _blind(id: str, node: str, rank: dict[str, t.Any]) -> Finding:
    return finding(
        id,
        node,
        "unknown",
        f"rank {rank['pid']} does not tell its environment, only that of its start.",
        remedy="see what keeps root from reading the memory of that process (ptrace_scope, seccomp)",
    )


def _rights(node: str, container: dict[str, t.Any], needs: dict[str, t.Any]) -> list[Finding]:
    """Judge the effective devices, capabilities, entrypoint and memlock of a container."""
    again = f"the container was created without it: --tags {needs['stage']} -e gb10_allow=restart"
    bypassed, have, want = container["entrypoint_bypassed"], container["memlock_bytes"], needs["memlock"]
    fits = have == -1 or (want != -1 and have >= want)
    return [
        *_in_force(functools.partial(finding, "proof.device", node), needs["devices"], container["devices"], "in the container", again),
        *_in_force(functools.partial(finding, "proof.capability", node), needs["capabilities"], container["capabilities"], "in force in the container", again),
        finding(
            "proof.entrypoint",
            node,
            "warn" if bypassed else "pass",
            "the container runs without the image's own entrypoint, which may set up the CUDA that its kernels were compiled for."
            if bypassed
            else "the container runs under the image's own entrypoint, or needs none.",
            remedy=again if bypassed else "",
        ),
        finding(
            "proof.memlock",
            node,
            "pass" if fits else "block",
            f"memlock is {'unlimited' if have == -1 else f'{have} bytes'} in the container.",
            measured=have,
            needed=want,
            remedy="" if fits else "raise the Docker daemon's LimitMEMLOCK, or set gb10_memlock to what this machine allows",
        ),
    ]


def _in_force(judged: t.Callable[..., Finding], wanted: t.Iterable[str], have: t.Collection[str], where: str, remedy: str) -> list[Finding]:
    """Return a finding for each wanted device or capability."""
    there = {name: name in have for name in wanted}
    return [
        judged("pass" if fits else "block", f"{name} is {'' if fits else 'not '}{where}.", needed=name, remedy="" if fits else remedy)
        for name, fits in there.items()
    ]


def _no_completion(info: dict[str, t.Any], answers: Answers) -> dict[str, t.Any]:
    """Return why ``vllm_serve_info`` has no completion, and the verdict. A busy engine has proven nothing, but that is not a fault."""
    if not info["engine"]["live"]:
        return {"error": "no engine is live" + (f"; the last one, {info['last_end']}" if info["last_end"] else "")}
    ranks = {
        node: [
            {"text": f"{rank['title']} (pid {rank['pid']})", "kind": classify.RANK, "state": "stopped" if rank["halted"] else "alive", "cpu_percent": None}
            for rank in answer["ranks"]["ranks"]
        ]
        for node, answer in answers.items()
    }
    verdict = health.verdict(health.Probe(info["api"], False, **(info["progress"] or {})), ranks)
    return {"error": verdict.text, "verdict": "unknown" if verdict.state == health.BUSY else "block"}


def judge(answers: Answers, run: Run) -> Outcome:
    """Judge the live engine. Check mode proves nothing without a live engine, or if it predicts a restart."""
    first = next(iter(answers.values()))
    info = first["engine"]
    restarted = any((answer["started"] or {}).get("changed") for answer in answers.values())
    if run.check_mode and (restarted or not info["engine"]["live"]):
        return Outcome("Proof (would be checked)", [], stats={"gb10_verdict": "unknown"})
    parallel = first["profile"]["parallel"]
    # The doctor's rule has the table of names that belong to a host or a process. The inventory can add names.
    differing = tuning.limits_of("stack.env_same", (first["profile"]["rules"], first["rules"] or {}))
    needs = {
        "checks": first["profile"]["checks"],
        "own_names": [*differing["per_host"], *differing["per_process"], *(name for answer in answers.values() for name in answer["own_names"])],
        "stage": first["executor"],
        # Without Ray, the ranks on the head are children of the process that serves the API, and inherit its variables.
        "api_secrets": ["VLLM_API_KEY"] if first["executor"] == "native" else [],
        "head": first["head"],
        "ranks": parallel["tensor"] * parallel["pipeline"] * parallel["data"],
        "secrets": first["secrets"],
        "devices": first["devices"],
        "capabilities": ["IPC_LOCK"],
        "gpus": first["gpus"] not in ("none", []),
        "memlock": int(first["memlock"]),
    }
    findings = findings_of(
        {node: answer["ranks"] for node, answer in answers.items()},
        info["completion"] or _no_completion(info, answers),
        {node: answer["env"] for node, answer in answers.items()},
        needs,
    )
    # An engine without a token already has a finding. An engine without a key has nothing to check.
    if info["completion"] and "VLLM_API_KEY" in info["engine"]["secret_env"]:
        findings += auth(first["head"], info["routes"], info["engine"]["guarded"])
    if "fabric" in needs["checks"] and len(answers) > 1 and info["completion"]:
        findings += _fabric_of(answers)
    return Outcome("Proof", findings, stats={"gb10_verdict": table.verdict(findings, run.silenced)})


def _fabric_of(answers: Answers) -> list[table.Finding]:
    """Judge which links carried the traffic of the proof's long completion."""
    first = next(iter(answers.values()))
    evidence = {
        "facts": (first["model"] or {}).get("facts") or {},
        "dtype": first["arguments"].get("dtype", "auto"),
        "parallel": first["profile"]["parallel"],
        "completion": (first["asked"] or {}).get("completion") or {"error": "it was not asked for"},
    }
    return fabric_traffic.judge(
        {node: [(answer[word] or {}).get("traffic") for word in ("before", "ranks")] for node, answer in answers.items()},
        evidence,
        answers,
        {node: answer["ranks"]["nccl_nets"] for node, answer in answers.items()},
    )
