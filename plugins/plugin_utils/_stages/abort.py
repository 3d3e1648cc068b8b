# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stops after a failed bring-up, and the report of them. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.plugin_utils._serve import events
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.run_board import ANOTHER_FAILED
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

#: Results of the tasks that create a container or start the engine. If one of them changed something, the previous engine has ended.
STARTED = {
    "ray_head": "__ray_head_result",
    "ray_worker": "__ray_worker_result",
    "native_node": "__native_node_result",
    "engine": "__vllm_server_result",
}
READS = {
    **STARTED,
    "head": "gb10_head_host",
    "cluster": "gb10_cluster_name",
    "before": "__gb10_engine_before",
    "after": "__abort_after",
    "failed": "__abort_failed",
    "proved": "__proof_judged",
    "stop": "__abort_stop",
    "engine_stop": "__abort_engine",
    "memory": "__abort_memory",
    "logs": "__abort_logs",
    "directory": "__abort_dir",
}

#: The stops of a node, in their order.
STOPS = ("engine_stop", "stop")

SEE_DOCKER = "Remedy: See that Docker answers there, then run again or tear down."
SEE_SSH = "Remedy: See that ssh answers there, then run again."


def failure_lines(results: dict[str, dict[str, t.Any]]) -> list[str]:
    """Return each node's failure and its remedy, from the results of the failed tasks.

    Nodes without a result (lost) are left out, and so are nodes that only ended because another node failed.
    """
    reported = {node: result for node, result in results.items() if result.get("msg")}
    causes = {node: result for node, result in reported.items() if result.get("reason") != ANOTHER_FAILED}
    return [f"{node}: {result['msg']}" + (f" Remedy: {result['remedy']}" if result.get("remedy") else "") for node, result in (causes or reported).items()]


def _engine(result: dict[str, t.Any] | None) -> dict[str, t.Any]:
    """Return the engine from an answer of ``vllm_serve_info``, empty if it is unknown."""
    return (result or {}).get("engine") or {}


def _engines(answers: Answers) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    """Return the engine before the play, and the current one."""
    head = next(iter(answers.values()))["head"]
    return _engine(answers[head]["before"]), _engine(answers[head]["after"])


def is_kept(answers: Answers) -> bool:
    """Return whether nothing may be stopped. An engine that served before this play, and as far as is known still serves, does not belong to it.

    The engine's state is read before anything is started. If that answer is missing, nothing was started.
    """
    before, now = _engines(answers)
    if not before or runs_on(answers):
        return True
    if not before["live"]:
        return False
    has_changed = any((answer[word] or {}).get("changed") for answer in answers.values() for word in STARTED)
    return bool(now["live"] and now["run_id"] == before["run_id"]) if now else not has_changed


def gave_token(answers: Answers) -> bool:
    """Return whether the proof of this play got its token. If so, the engine answers, whatever else the proof found."""
    findings = [entry for answer in answers.values() for entry in (answer["proved"] or {}).get("findings") or []]
    return any(entry["id"] == "proof.completion" and entry["verdict"] == "pass" for entry in findings)


def is_only_lost(answers: Answers) -> bool:
    """Return whether the start in this play got its token and the only later failure is an unreachable node (a node without a failed task)."""
    started = any((answer["engine"] or {}).get("seconds_to_first_token") is not None for answer in answers.values())
    failed = [answer["failed"] for answer in answers.values()]
    return started and None in failed and not any(failed)


def runs_on(answers: Answers) -> bool:
    """Return whether this play's engine is alive, and it answers or the reason why it does not is unknown.

    Stopping it after a false alarm can cost a reboot.
    """
    before, now = _engines(answers)
    ours = bool(now and now["live"]) and not (before.get("live") and before["run_id"] == now["run_id"])
    is_unexplained = any((answer["engine"] or {}).get("cause_known") is False for answer in answers.values())
    return ours and (gave_token(answers) or is_only_lost(answers) or is_unexplained)


def unready_runs(answers: Answers) -> list[str]:
    """Return the engine runs that this play started and that produced no token. Only results of this play count."""
    results = [answer["engine"] or {} for answer in answers.values()]
    return [result["started_run"] for result in results if result.get("failed") and result.get("started_run")]


def _end_text(answers: Answers, kept: bool, elsewhere: bool, check_mode: bool) -> str:
    """Return the final state of engine and containers as text."""
    before, now = _engines(answers)
    if check_mode:
        return "Check mode started nothing, and stops nothing."
    if runs_on(answers) and gave_token(answers):
        return (
            "The engine gives tokens and runs on, unproven. After fixing the findings of the proof, run --tags proof;"
            " to stop it run the playbook teardown."
        )
    if runs_on(answers):
        return (
            "The engine runs on: nothing proves that it cannot serve, and one that is killed can keep memory that only a reboot brings back."
            " To go on waiting run the same play again, which takes it over;"
            " to stop it run the playbook teardown with -e gb10_allow=interrupt."
        )
    if not kept:
        return f"Engine and containers of this cluster are stopped{' on the other nodes' if elsewhere else ''}; the next run replaces them."
    if not before:
        return "Whether an engine served before this play is unknown, so nothing was stopped."
    if now:
        return "The engine that served before this play was left alone."
    head = next(iter(answers.values()))["head"]
    return (
        "Whether the engine that served before this play still serves is unknown, so nothing was stopped."
        f" Remedy: See that {head} and its Docker answer, then run the playbook status."
    )


def _failed_result(answer: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the result of the task that failed on a node. If the engine's start failed, that result: later tasks only refer to it."""
    engine = answer["engine"] or {}
    return engine if engine.get("failed") else answer["failed"] or {}


def _not_stopped(nodes: list[str], answers: Answers) -> list[str]:
    """Return the lines about nodes where something still runs, and why it was not stopped."""
    if not nodes:
        return []
    failed = {word: {node: result for node in nodes if (result := answers[node][word] or {}).get("failed") and result.get("msg")} for word in STOPS}
    silent = [node for node in nodes if not any(node in results for results in failed.values())]
    why = dict.fromkeys(line for results in failed.values() for line in failure_lines(results))
    return [f"Not stopped: what runs on {', '.join(nodes)}. {SEE_DOCKER if silent else ''}".rstrip(), *why]


def judge(answers: Answers, run: Run) -> Outcome:
    """Report why the bring-up failed, what was and was not stopped, and where the logs are."""
    kept = is_kept(answers)
    silent = [node for node, answer in answers.items() if "files" not in (answer["logs"] or {})]
    stopped = [node for node, answer in answers.items() if (answer["stop"] or {}).get("failed") is False]
    running = [] if kept else [node for node in answers if node not in (*silent, *stopped)]
    memory = {node: answer["memory"] for node, answer in answers.items() if (answer["memory"] or {}).get("verdict", "pass") != "pass"}
    first = next(iter(answers.values()))
    failure = f"The bring-up of cluster {first['cluster']} failed"
    # A node that is not reached has none.
    logs = f"Logs on this controller: {next((answer['directory'] for answer in answers.values() if answer['directory']), 'none')}"
    earliest = next((result["first_failure"] for result in map(_failed_result, answers.values()) if result.get("first_failure")), None)
    lines = [
        f"{failure}.",
        *([events.text(earliest)] if earliest else []),
        *failure_lines({node: _failed_result(answer) for node, answer in answers.items()}),
        *([f"Not reached any more, so what runs there is unknown: {', '.join(silent)}. {SEE_SSH}"] if silent else []),
        *_not_stopped(running, answers),
        _end_text(answers, kept, bool(silent or running), run.check_mode),
        *([] if run.check_mode else failure_lines(memory)),
        logs,
    ]
    return Outcome(lines=lines, failure=f"{failure}; see the lines above. {logs}")
