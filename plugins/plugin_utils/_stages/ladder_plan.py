# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of bench --tags ladder, and whether it may run. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._memory import plan
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.module_utils._records import climbs
from ansible_collections.gb10.cluster.plugins.plugin_utils._ladder import recorded
from ansible_collections.gb10.cluster.plugins.plugin_utils._plan import planning
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import ladder
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered

Finding = dict[str, t.Any]

#: Ids of findings that are made here.
IDS = ("ladder.arguments", "ladder.idle", "ladder.look", "ladder.no_guard", "ladder.plan", "ladder.rungs", "ladder.sshd_before")

READS = {
    **recorded.READS,
    "head": "gb10_head_host",
    "rungs": "gb10_ladder_rungs",
    "allow": "__gb10_allow",
    "prompt_s": "__bench_prompt_seconds",
    "start_s": "gb10_serve_timeout",
    "memory_s": "gb10_memory_wait_timeout",
    "grace_s": "gb10_stop_grace",
    "answer_s": "__gb10_answer_timeout",
}

#: Minutes of a start of a large model on two Sparks, from clean nodes to the first answer: about 15 (Qwen3-235B) and 18 (MiniMax-M2.7), each reported by
#: a user.
START_MINUTES = (15, 18)
#: Seconds of the prefill of a million tokens on two Sparks, reported by a user.
MILLION_SECONDS = 471
#: Length of a rung's prompt, in percent of the rung.
PERCENT = 90
_MIB_IN_GIB = 1024


def rungs_of(profile: t.Mapping[str, t.Any], serve: t.Mapping[str, t.Any], requested: t.Any) -> list[int]:
    """Return the lengths to try in ascending order: the requested ones, else the profile's ladder, else the length that it serves."""
    wanted = [int(part) for part in str(requested or "").split(",") if part.strip()] or list(profile["ladder"])
    own = {**profile["serve"], **serve}.get("max_model_len")
    return sorted(set(wanted)) or ([own] if isinstance(own, int) and not isinstance(own, bool) else [])


def lengths(profile: t.Mapping[str, t.Any], serve: t.Mapping[str, t.Any], rungs: t.Sequence[int], totals: t.Sequence[float]) -> dict[int, dict[str, t.Any]]:
    """Return the memory plan's row for each rung on nodes with these sizes (GiB), empty if there is no plan."""
    ranks = profile["parallel"]["tensor"] * profile["parallel"]["pipeline"] * profile["parallel"]["data"]
    try:
        memory_plan = planning.memory_plan(profile, list(totals) if len(totals) == ranks else None, serve, context=rungs[0], lengths=list(rungs))
    except ClusterError:
        return {}
    return {row["context"]: row for row in memory_plan["lengths"]}


def climbable(rungs: t.Sequence[int], rows: t.Mapping[int, dict[str, t.Any]], silenced: t.Collection[str]) -> list[int]:
    """Return the rungs below the first one that does not fit by the memory plan. If that rule is silenced, return all rungs."""
    if "plan.fits" in silenced:
        return list(rungs)
    stop = next((number for number, rung in enumerate(rungs) if rows.get(rung, {}).get("verdict") == plan.NO), len(rungs))
    return list(rungs[:stop])


def minutes(rungs: t.Sequence[int], earlier: climbs.Climb | None, limits: t.Mapping[str, int], questions: int) -> tuple[str, int]:
    """Return the expected duration as text, and the maximum in minutes. ``limits`` has start_s, memory_s, grace_s, prompt_s and answer_s."""
    starts = len(rungs) + 1
    most = starts * (limits["start_s"] + limits["memory_s"] + limits["grace_s"]) + len(rungs) * (limits["prompt_s"] + questions * limits["answer_s"])
    took = [rung["seconds"] for rung in (earlier or {}).get("rungs", []) if isinstance(rung.get("seconds"), (int, float))]
    if took:
        return f"about {max(1, round(starts * max(took) / 60))} minutes, by the slowest rung of the climb before", -(-most // 60)
    prompts = round(sum(rungs) * PERCENT / 100 / 1_000_000 * MILLION_SECONDS / 60)
    low, high = (starts * duration + prompts for duration in START_MINUTES)
    return f"{low} to {high} minutes, by what was reported of large models on two Sparks", -(-most // 60)


def refusals(answers: Answers, rungs: t.Sequence[int]) -> t.Iterator[Finding]:
    """Yield findings about the start of the ladder, both obstacles and passed checks."""
    first = list(answers.values())[0]
    head, info = first["head"], answers[first["head"]]["engine"]
    if recorded.fixed(first["serve_arguments"] or {}):
        what = "gb10_serve_arguments names max_model_len, which wins over every rung that is found, so nothing would use the record"
        yield finding("ladder.arguments", "cluster", "block", f"{what}.", remedy="take max_model_len out of gb10_serve_arguments")
    if not rungs:
        what = f"profile {first['profile']['id']} has neither a ladder nor a context length"
        yield finding("ladder.rungs", "cluster", "block", f"{what}.", remedy="put ladder into the profile, or name rungs: -e gb10_ladder_rungs=65536,131072")
    yield _idle_finding(head, info)
    for node, answer in answers.items():
        yield from _node_findings(node, answer)


def _idle_finding(head: str, info: dict[str, t.Any] | None) -> Finding:
    if not answered(info) or info is None:
        return finding("ladder.idle", head, "unknown", "whether an engine is live is unknown.", remedy="see why the head did not answer")
    if not info["engine"]["live"]:
        return finding("ladder.idle", head, "pass", "no engine is live.", measured=0, needed=0)
    count = info["requests_running"]
    if count == 0:
        return finding("ladder.idle", head, "pass", "the engine has no request; it is stopped first.", measured=0, needed=0)
    what = "the engine does not say how many requests it has" if count is None else f"the engine has {count} request(s), running or waiting"
    return finding(
        "ladder.idle",
        head,
        "unknown" if count is None else "block",
        f"{what}; the ladder stops it.",
        measured=count,
        needed=0,
        remedy="repeat while it is idle, or take it down first (the playbook teardown)",
    )


def _node_findings(node: str, answer: dict[str, t.Any]) -> t.Iterator[Finding]:
    """Yield findings about the guard, the record and the sshd of a node."""
    guard = (answer["seen"] or {}).get("guard") or {}
    if guard.get("active"):
        yield finding("ladder.no_guard", node, "pass", "the guard runs.", measured=True, needed=True)
    else:
        state = {False: "no guard runs", None: "whether a guard runs is unknown"}[guard.get("active")]
        what = f"{state}: a rung that takes all memory wedges the node, and nothing would be recorded of it"
        yield finding("ladder.no_guard", node, "block" if guard.get("active") is False else "unknown", f"{what}.", remedy="run protect --tags guard first")
    if not answered(answer["look"]):
        yield finding("ladder.look", node, "unknown", "the node could not be checked.", remedy="run the doctor")
    elif (answer["look"].get("ladder")) is None:
        reason = next((error["error"] for error in answer["look"]["errors"] if error["section"] == "ladder"), "it could not be read")
        yield finding("ladder.look", node, "block", f"the record of earlier climbs: {reason}.", remedy="remove that file: this climb writes it again")
    sshd, limit = answer["sshd"] or {}, ladder.SSHD_MS
    if not answered(answer["sshd"]) or not sshd.get("address"):
        reason = "; ".join(sshd.get("errors") or ["it was not asked"])
        yield finding(
            "ladder.sshd_before",
            node,
            "unknown",
            f"sshd cannot be asked on the node itself: {reason}.",
            needed=limit,
            remedy="set ansible_port for this host, if sshd listens on another port",
        )
    else:
        slow = sshd["worst_ms"] is None or sshd["worst_ms"] > limit
        what = "sshd does not greet" if sshd["worst_ms"] is None else f"sshd greets after {sshd['worst_ms']} ms"
        yield finding(
            "ladder.sshd_before",
            node,
            "block" if slow else "pass",
            f"{what} before anything was started." if slow else f"{what}.",
            measured=sshd["worst_ms"],
            needed=limit,
            remedy="check the node's load" if slow else "",
        )


def base_climb(run: Run, answer: dict[str, t.Any], digest: str) -> climbs.Climb:
    """Return the initial record of a node's climb."""
    profile, look = answer["profile"], answer["look"]
    now = recorded.now_of(look, profile["image"]["tag"])
    return {
        "climb_id": run.now.strftime("%Y%m%dT%H%M%SZ"),
        "began_at": run.time,
        "image_id": now.image_id,
        "profile": profile["id"],
        "profile_digest": digest,
        "driver": now.driver,
        "kernel": now.kernel,
        "boot_id": answer["seen"]["boot_id"],
        "total_mb": now.total_mb,
        # An unknown value counts as 0: the tenants of a later bring-up must not use more memory than was measured here.
        "tenants_mb": now.tenants_mb or 0,
        "tenants": [{"name": tenant["name"], "kind": tenant["kind"], "mb": recorded.tenants_mb([tenant])} for tenant in look["tenants"] if tenant["cuda"]],
        "outcome": climbs.CLIMBING,
        "reason": "",
        "rung": 0,
        "trying": 0,
        "rungs": [],
    }


def lines_of(answers: Answers, rungs: t.Sequence[int], left_out: t.Sequence[int], rows: t.Mapping[int, dict[str, t.Any]], times: tuple[str, int]) -> list[str]:
    """Return the plan as lines."""
    first = next(iter(answers.values()))
    profile, live = first["profile"], ((answers[first["head"]]["engine"] or {}).get("engine") or {}).get("live")
    out = [f"Ladder of {profile['id']} on {', '.join(answers)}: {', '.join(map(str, rungs)) or 'no rung'} tokens"]
    for rung in [*rungs, *left_out]:
        row = rows.get(rung)
        left = f", {row['available_gib']:.1f} GiB left" if row and row["available_gib"] is not None else ""
        text = f"the memory plan says {row['verdict']}{left}" if row else "no memory plan"
        out.append(f"  {rung}: {text}{'; not tried' if rung in left_out else f', a prompt of {rung * PERCENT // 100} tokens'}")
    out += [
        f"Starts: {len(rungs) + 1} at most, one a rung and one back to the last good one{'; the engine that serves now is stopped first' if live else ''}.",
        f"Time: {times[0]}; at most {times[1]} minutes.",
        "It stops at the first bad sign: a start that fails, a prompt or a question that is not answered, an act of the guard,"
        f" less than {ladder.FLOOR_GIB} GiB available, sshd slower than {ladder.SSHD_MS} ms, a line of kernel or driver."
        " Then the last good rung is started again.",
        "Risk: a context that does not fit can hang a node until you power-cycle it, and memory that is not released takes a reboot (both reported"
        " by owners). Stay near the node, or have a remote power switch.",
    ]
    before = next((climb for climb in reversed(recorded.records(first["look"] or {}, first["cluster"])) if climb["profile"] == profile["id"]), None)
    if before:
        out.append(f"Before: {recorded.text(before)}.")
    questions = ", ".join(profile["answers"]) or "none, the profile names none"
    out.append(f"Questions with known answers on each rung: {questions}.")
    return out


def judge(answers: Answers, run: Run) -> Outcome:
    """Show the plan of the ladder, and judge whether it may run.

    The answers are ``look`` (node_info), ``engine`` (vllm_serve_info, of the head), ``seen`` (node_samples_info) and ``sshd`` (node_samples_info).
    Returns ``rungs``, the first ``step``, and ``climbs``: by node, the initial record of its climb.
    """
    first = next(iter(answers.values()))
    profile, serve = first["profile"], dict(first["serve_arguments"] or {})
    wanted = rungs_of(profile, serve, first["rungs"])
    totals = [round(((answer["look"] or {}).get("memory") or {}).get("total_mb", 0) / _MIB_IN_GIB, 2) for answer in answers.values()]
    rows = lengths(profile, serve, wanted, totals) if wanted and all(totals) else {}
    rungs = climbable(wanted, rows, run.silenced)
    findings = list(refusals(answers, wanted))
    if wanted and not rungs:
        what = f"by the memory plan not even {wanted[0]} tokens fit"
        findings.append(finding("ladder.plan", "cluster", "block", f"{what}.", remedy="see the playbook plan; gb10_silenced: [plan.fits] climbs all the same"))
    digest = planning.digest(profile, serve)
    earlier = next((climb for climb in reversed(recorded.records(first["look"] or {}, first["cluster"])) if climb["profile_digest"] == digest), None)
    lines = lines_of(
        answers,
        rungs,
        [rung for rung in wanted if rung not in rungs],
        rows,
        minutes(rungs, earlier, {name: int(first[name]) for name in ("start_s", "memory_s", "grace_s", "prompt_s", "answer_s")}, len(profile["answers"])),
    )
    whole = all(answered(answer["look"]) and answered(answer["seen"]) for answer in answers.values())
    returns = {
        "rungs": rungs,
        "step": {"context": next(iter(rungs), 0), "climbing": True},
        "climbs": {node: base_climb(run, answer, digest) for node, answer in answers.items()} if whole else {},
        "began": run.now.timestamp(),
    }
    if run.path and os.path.lexists(run.path):
        return Outcome("Ladder", findings, lines=lines, failure=f"{run.path} exists on the controller, and is not replaced. Remedy: name another gb10_to.")
    if "ladder" not in first["allow"]:
        lines.append("To climb: -e gb10_allow=ladder")
    return Outcome("Ladder", findings, lines=lines, returns=returns)
