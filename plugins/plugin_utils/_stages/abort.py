# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is stopped after a failed bring-up, and the report of it. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.plugin_utils._serve import events
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.run_board import ANOTHER_FAILED
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

#: Results of the tasks that make a container or start the engine: where one changed something, what served before has ended.
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

SEE_DOCKER = "Remedy: See that Docker answers there, then run again or tear down."
SEE_SSH = "Remedy: See that ssh answers there, then run again."


def failure_lines(results: dict[str, dict[str, t.Any]]) -> list[str]:
    """Return for each node what failed there and what to do, from the results of the failed tasks.

    A node that was lost has no result, and one that only ended because of another says nothing new: both are left out.
    """
    said = {node: result for node, result in results.items() if result.get("msg")}
    causes = {node: result for node, result in said.items() if result.get("reason") != ANOTHER_FAILED}
    return [f"{node}: {result['msg']}" + (f" Remedy: {result['remedy']}" if result.get("remedy") else "") for node, result in (causes or said).items()]


def _engine(result: dict[str, t.Any] | None) -> dict[str, t.Any]:
    """Return the engine of an answer of ``vllm_serve_info``, empty where that is unknown."""
    return (result or {}).get("engine") or {}


def _engines(answers: Answers) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    """Return the engine before the play, and the one now."""
    head = next(iter(answers.values()))["head"]
    return _engine(answers[head]["before"]), _engine(answers[head]["after"])


def is_kept(answers: Answers) -> bool:
    """Return whether nothing may be stopped: an engine that served before this play, and serves on for all that is known, is not this play's.

    What served before is asked before anything is started: without that answer nothing was.
    """
    before, now = _engines(answers)
    if not before or runs_on(answers):
        return True
    if not before["live"]:
        return False
    has_changed = any((answer[word] or {}).get("changed") for answer in answers.values() for word in STARTED)
    return bool(now["live"] and now["run_id"] == before["run_id"]) if now else not has_changed


def gave_token(answers: Answers) -> bool:
    """Return whether this play's proof had its token: whatever else it found, the engine answers."""
    found = [one for answer in answers.values() for one in (answer["proved"] or {}).get("findings") or []]
    return any(one["id"] == "proof.completion" and one["verdict"] == "pass" for one in found)


def is_only_lost(answers: Answers) -> bool:
    """Return whether the start of this play had its token, and what failed after it is that a node was not reached: such a node has no failed task."""
    started = any((answer["engine"] or {}).get("seconds_to_first_token") is not None for answer in answers.values())
    failed = [answer["failed"] for answer in answers.values()]
    return started and None in failed and not any(failed)


def runs_on(answers: Answers) -> bool:
    """Return whether the engine that this play started lives and either answers, or the reason why not is unknown: a false alarm can cost a reboot."""
    before, now = _engines(answers)
    ours = bool(now and now["live"]) and not (before.get("live") and before["run_id"] == now["run_id"])
    is_unexplained = any((answer["engine"] or {}).get("cause_known") is False for answer in answers.values())
    return ours and (gave_token(answers) or is_only_lost(answers) or is_unexplained)


def unready_runs(answers: Answers) -> list[str]:
    """Return the engine's runs that this play started and that gave no token: only what this play knows counts."""
    results = [answer["engine"] or {} for answer in answers.values()]
    return [result["started_run"] for result in results if result.get("failed") and result.get("started_run")]


def _end(answers: Answers, kept: bool, elsewhere: bool, check_mode: bool) -> str:
    """Return what became of engine and containers."""
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
            " to stop it run the playbook teardown with -e gb10_interrupt_requests=true."
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


def _failed(answer: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the result of the task that failed on a node; where the engine's start failed, a task after it only points to that."""
    engine = answer["engine"] or {}
    return engine if engine.get("failed") else answer["failed"] or {}


def _not_stopped(nodes: list[str], answers: Answers) -> list[str]:
    """Return what runs on, and why it was not stopped."""
    if not nodes:
        return []
    results = [(node, answers[node][word] or {}) for node in nodes for word in ("engine_stop", "stop")]
    why = {node: result for node, result in results if result.get("failed") and result.get("msg")}
    silent = [node for node in nodes if node not in why]
    return [f"Not stopped: what runs on {', '.join(nodes)}. {SEE_DOCKER if silent else ''}".rstrip(), *failure_lines(why)]


def judge(answers: Answers, run: Run) -> Outcome:
    """Say why the bring-up failed, what was stopped, what was not, and where the logs are."""
    kept = is_kept(answers)
    silent = [node for node, answer in answers.items() if "files" not in (answer["logs"] or {})]
    stopped = [node for node, answer in answers.items() if (answer["stop"] or {}).get("failed") is False]
    running = [] if kept else [node for node in answers if node not in (*silent, *stopped)]
    memory = {node: answer["memory"] for node, answer in answers.items() if (answer["memory"] or {}).get("verdict", "pass") != "pass"}
    first = next(iter(answers.values()))
    failure = f"The bring-up of cluster {first['cluster']} failed"
    earliest = next((found["first_failure"] for found in map(_failed, answers.values()) if found.get("first_failure")), None)
    lines = [
        f"{failure}.",
        *([events.text(earliest)] if earliest else []),
        *failure_lines({node: _failed(answer) for node, answer in answers.items()}),
        *([f"Not reached any more, so what runs there is unknown: {', '.join(silent)}. {SEE_SSH}"] if silent else []),
        *_not_stopped(running, answers),
        _end(answers, kept, bool(silent or running), run.check_mode),
        *([] if run.check_mode else failure_lines(memory)),
        f"Logs on this controller: {first['directory']}",
    ]
    return Outcome(lines=lines, failure=f"{failure}; see the lines above. Logs on this controller: {first['directory']}")
