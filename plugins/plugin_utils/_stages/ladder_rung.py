# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The check of one rung of a ladder: whether the context length is good. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.module_utils._records import climbs
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import ladder, postmortem
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.table import Finding

#: Ids of the findings of this file. ``ladder.prompt`` comes from the module engine_questions.
IDS = ("ladder.guard", "ladder.kernel", "ladder.memory", "ladder.reboot", "ladder.silence", "ladder.sshd", "ladder.start")
READS = ladder.READS
#: The length to start (``context``, 0 for none), and whether it is a rung to try (``climbing``). Empty at the end of a climb.
Step = dict[str, t.Any]
#: Kinds of kernel lines that are not about memory or GPU: cables and links.
UNJUDGED = ("mlx5", "removed", "pcie", "firmware")


def _memory(node: str, seen: dict[str, t.Any]) -> Finding:
    lowest = seen["lowest_mb"]
    if lowest is None:
        return finding(
            "ladder.memory",
            node,
            "unknown",
            "the guard recorded no memory figures for this rung.",
            needed=ladder.FLOOR_GIB,
            remedy="see the guard on the node: systemctl status gb10-guard",
        )
    message = f"{lowest / ladder.MIB_IN_GIB:.1f} GiB were available at the least, after {seen['lowest_after_s']:.0f} s"
    low = lowest < ladder.FLOOR_GIB * ladder.MIB_IN_GIB
    remedy = "use a shorter context, or free memory on this node" if low else ""
    return finding(
        "ladder.memory", node, "block" if low else "pass", f"{message}.", measured=round(lowest / ladder.MIB_IN_GIB, 1), needed=ladder.FLOOR_GIB, remedy=remedy
    )


def _sshd(node: str, sshd: dict[str, t.Any] | None, reached_prompt: bool) -> t.Iterator[Finding]:
    if not reached_prompt:
        return
    if not answered(sshd) or sshd is None or not sshd.get("samples_ms"):
        message = "; ".join((sshd or {}).get("errors") or []) or str((sshd or {}).get("msg") or "sshd was not checked")
        yield finding("ladder.sshd", node, "unknown", f"sshd's response time is unknown: {message}.", needed=ladder.SSHD_MS, remedy="see its load and its sshd")
        return
    worst, lost = sshd["worst_ms"], sshd["samples_ms"].count(None)
    slow = worst is None or worst > ladder.SSHD_MS
    message = f"{lost} of {len(sshd['samples_ms'])} greetings of sshd did not come" if worst is None else f"sshd greeted after {worst} ms at the longest"
    yield finding(
        "ladder.sshd",
        node,
        "block" if slow else "pass",
        f"{message}.",
        measured=worst,
        needed=ladder.SSHD_MS,
        remedy="use a shorter context: a node whose sshd does not answer cannot be reached" if slow else "",
    )


def node_findings(node: str, answer: dict[str, t.Any], reached_prompt: bool) -> t.Iterator[Finding]:
    """Yield the findings of one node about a rung. ``reached_prompt`` is true if the engine reached the prompt, during which sshd was measured."""
    look = answer["seen"]
    if not answered(look) or look is None:
        yield finding("ladder.guard", node, "unknown", "what the guard recorded could not be read.", remedy="see whether the node can be reached")
        return
    if look["boot_id"] != answer["climb"]["boot_id"]:
        yield finding("ladder.reboot", node, "block", "the node rebooted during this rung.", remedy="see status --tags postmortem for its last minute")
        return
    seen = look["seen"]
    yield _memory(node, seen)
    acts, active = seen["acts"], look["guard"]["active"]
    verdict, message = {
        True: ("pass", "the guard took no action"),
        False: ("block", "the guard has stopped"),
        None: ("unknown", "whether the guard runs is unknown"),
    }[active]
    yield finding(
        "ladder.guard",
        node,
        "block" if acts else verdict,
        f"the guard acted: {acts[0]}." if acts else f"{message}.",
        measured=acts or (None if active else []),
        remedy="" if acts or active else "systemctl status gb10-guard on the node, then repeat",
    )
    silence = seen["longest_silence_s"]
    if silence > postmortem.SILENT:
        message = f"the node recorded nothing for {silence:.0f} s, where it takes a sample each second"
        yield finding(
            "ladder.silence", node, "block", f"{message}.", measured=silence, needed=postmortem.SILENT, remedy="the node stalled; use a shorter context"
        )
    lines = [text for kind, text in seen["kernel"] if kind not in UNJUDGED]
    verdict, message = ("block", f"the kernel said: {'; '.join(lines[:3])}") if lines else ("pass", "the kernel said nothing of memory or GPU")
    yield finding("ladder.kernel", node, verdict, f"{message}.", measured=lines, remedy="the playbook explain knows such lines" if lines else "")
    yield from _sshd(node, answer["sshd"], reached_prompt)


def why(findings: t.Iterable[Finding], silenced: t.Collection[str] = ()) -> list[str]:
    """Return the reasons against a rung as text. Unknown findings count, and silenced ones do not."""
    against = [result for result in findings if result["verdict"] not in ("pass", "warn") and result["id"] not in silenced]
    return [f"{result['node']}: {result['message'].rstrip('.')}" for result in against]


def entry(node: str, answers: Answers, settings: t.Mapping[str, t.Any], reasons: list[str]) -> dict[str, t.Any]:
    """Return a rung as it is stored in a node's record."""
    answer = answers[node]
    head = answers[answer["head"]]
    seen = ((answer["seen"] or {}).get("seen") or {}) if answered(answer["seen"]) else {}
    prompt = head["prompt"] if answered(head["prompt"]) else {}
    sshd = answer["sshd"] if answered(answer["sshd"]) else {}
    return {
        "context": settings["step"]["context"],
        "good": not reasons,
        "reasons": reasons,
        "at_s": round(float(settings["at_s"]), 1),
        "seconds": round(float(settings["seconds"]), 1),
        "start_seconds": round(float(settings["start_seconds"]), 1),
        "prompt_tokens": (prompt or {}).get("prompt_tokens", 0),
        "prompt_seconds": (prompt or {}).get("seconds", 0.0),
        "lowest_mb": seen.get("lowest_mb"),
        "longest_silence_s": seen.get("longest_silence_s"),
        "sshd_ms": (sshd or {}).get("worst_ms"),
        "kernel": seen.get("kernel", []),
        "acts": seen.get("acts", []),
        "curve": seen.get("curve", []),
    }


def following(step: Step, good: bool, rungs: t.Sequence[int], last_good: int) -> Step:
    """Return the next step: the next rung, the last good one, no start (0), or empty at the end of a climb."""
    if not step["climbing"]:
        return {} if good else {"context": 0, "climbing": False}
    higher = [rung for rung in rungs if rung > step["context"]]
    if good:
        return {"context": higher[0], "climbing": True} if higher else {}
    return {"context": last_good, "climbing": False}


def judge(answers: Answers, run: Run) -> Outcome:
    """Judge one rung, or whether the last good one started again.

    Returns ``against`` (the reasons as text), ``climbs`` (by node, with this rung), the ``next`` step, and the ``outcome`` of the climb if no step follows.

    The answers are ``seen`` (node_samples_info since the rung began), ``prompt`` (long_prompt, of the head), ``questions`` (known_answers) and ``sshd``.
    Failures of the bring-up, the prompt or the questions are in each node's ``error``. ``settings`` has ``step``, ``rungs``, ``at_s`` (seconds since the
    climb began), ``seconds`` and ``start_seconds``.
    """
    settings, first = run.settings, next(iter(answers.values()))
    step, climb = settings["step"], first["climb"]
    if not step["climbing"]:
        kept = {node: {**answer["climb"], "trying": 0} for node, answer in answers.items()}
        return Outcome(
            "Ladder",
            returns={
                "against": climb["reason"],
                "climbs": kept,
                "next": following(step, not ladder.error_of(answers), settings["rungs"], climb["rung"]),
                "outcome": climbs.RETURNED,
            },
        )
    head = answers[first["head"]]
    reached_prompt = answered(head["prompt"])
    error, seconds = ladder.error_of(answers), float(settings["start_seconds"])
    findings = [
        finding("ladder.start", first["head"], "block", f"{error.rstrip('.')}.", remedy="see the failure of the bring-up above")
        if error
        else finding("ladder.start", first["head"], "pass", f"up and proven after {seconds:.0f} s.", measured=seconds)
    ]
    findings += [{**result, "node": first["head"]} for word in ("prompt", "questions") if answered(head[word]) for result in head[word]["findings"]]
    findings += [result for node, answer in answers.items() for result in node_findings(node, answer, reached_prompt)]
    reasons = why(findings, run.silenced)
    good, context = not reasons, step["context"]
    reason = f"{context}: {'; '.join(reasons)}" if reasons else ""
    records = {}
    for node, answer in answers.items():
        climb = answer["climb"]
        image = (answer["image"] or {}).get("image_id") if answered(answer["image"]) else ""
        records[node] = {
            **climb,
            # If the image was pulled, built or copied on the way to the first rung, its id has changed.
            "image_id": image or climb["image_id"],
            "rung": context if good else climb["rung"],
            "trying": 0,
            "reason": reason,
            "rungs": [*climb["rungs"], entry(node, answers, settings, reasons)],
        }
    return Outcome(
        f"Rung {context}",
        findings,
        returns={
            "against": reason,
            "climbs": records,
            "next": following(step, good, settings["rungs"], max(record["rung"] for record in records.values())),
            "outcome": climbs.TOP,
        },
    )
