# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a rung was good, and how a climb ended. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.module_utils._records import climbs
from ansible_collections.gb10.cluster.plugins.plugin_utils._ladder import pictures
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import postmortem
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered

Finding = dict[str, t.Any]

#: Ids of findings that are made here; ``ladder.prompt`` comes from the module long_prompt.
IDS = ("ladder.end", "ladder.guard", "ladder.kernel", "ladder.memory", "ladder.reboot", "ladder.return", "ladder.silence", "ladder.sshd", "ladder.start")

#: Version of what is passed on and written.
SCHEMA = 1
READS = {
    "head": "gb10_head_host",
    "cluster": "gb10_cluster_name",
    "floor_gib": "gb10_ladder_floor_gib",
    "sshd_ms": "gb10_ladder_sshd_ms",
    "climb": "__ladder_climb",
    "error": "__ladder_error",
    "image": "__image_contract",
}
_MIB_IN_GIB = 1024
#: Kinds of the kernel's lines that say nothing of memory or GPU: cables and links.
UNJUDGED = ("mlx5", "removed", "pcie", "firmware")


def _memory(node: str, seen: dict[str, t.Any], floor_gib: int) -> Finding:
    lowest = seen["lowest_mb"]
    if lowest is None:
        remedy = "see the guard on the node: systemctl status gb10-guard"
        return finding("ladder.memory", node, "unknown", "the guard recorded no memory in this time.", needed=floor_gib, remedy=remedy)
    said = f"{lowest / _MIB_IN_GIB:.1f} GiB were available at the least, after {seen['lowest_after_s']:.0f} s"
    low = lowest < floor_gib * _MIB_IN_GIB
    remedy = "lower gb10_ladder_floor_gib only when you know why: an owner's ladder gave up at 4 GiB" if low else ""
    return finding("ladder.memory", node, "block" if low else "pass", f"{said}.", measured=round(lowest / _MIB_IN_GIB, 1), needed=floor_gib, remedy=remedy)


def _sshd(node: str, sshd: dict[str, t.Any] | None, limit: int, asked: bool) -> t.Iterator[Finding]:
    if not asked:
        return
    if not answered(sshd) or sshd is None or not sshd.get("samples_ms"):
        said = "; ".join((sshd or {}).get("errors") or []) or str((sshd or {}).get("msg") or "nobody could ask it")
        yield finding("ladder.sshd", node, "unknown", f"how long sshd takes is not known: {said}.", needed=limit, remedy="see the node's load and its sshd")
        return
    worst, lost = sshd["worst_ms"], sshd["samples_ms"].count(None)
    slow = worst is None or worst > limit
    said = f"{lost} of {len(sshd['samples_ms'])} greetings of sshd did not come" if worst is None else f"sshd greeted after {worst} ms at the longest"
    remedy = "a node whose sshd starves is one that nobody gets into: a shorter length" if slow else ""
    yield finding("ladder.sshd", node, "block" if slow else "pass", f"{said}.", measured=worst, needed=limit, remedy=remedy)


def node_findings(node: str, answer: dict[str, t.Any], asked: bool) -> t.Iterator[Finding]:
    """Yield what one node says of a rung. ``asked`` says whether the engine came as far as the prompt, beside which sshd was asked."""
    told = answer["seen"]
    if not answered(told) or told is None:
        yield finding("ladder.guard", node, "unknown", "what the guard recorded could not be read.", remedy="see whether the node can be reached")
        return
    if told["boot_id"] != answer["climb"]["boot_id"]:
        remedy = "see the playbook postmortem for its last minute"
        yield finding("ladder.reboot", node, "block", "the node was started again meanwhile.", remedy=remedy)
        return
    seen = told["seen"]
    yield _memory(node, seen, int(answer["floor_gib"]))
    acts, active = seen["acts"], told["guard"]["active"]
    if acts or not active:
        said = f"the guard acted: {acts[0]}" if acts else "the guard does not run any more" if active is False else "whether the guard runs is not known"
        remedy = "" if acts else "systemctl status gb10-guard on the node, then repeat"
        yield finding("ladder.guard", node, "unknown" if active is None and not acts else "block", f"{said}.", measured=acts, remedy=remedy)
    else:
        yield finding("ladder.guard", node, "pass", "the guard ran and had nothing to do.")
    silence = seen["longest_silence_s"]
    if silence > postmortem.SILENT:
        said = f"the node recorded nothing for {silence:.0f} s, where it takes a sample each second"
        yield finding("ladder.silence", node, "block", f"{said}.", measured=silence, needed=postmortem.SILENT, remedy="it stood still: a shorter length")
    lines = [text for kind, text in seen["kernel"] if kind not in UNJUDGED]
    verdict, said = ("block", f"the kernel said: {'; '.join(lines[:3])}") if lines else ("pass", "the kernel said nothing of memory or GPU")
    yield finding("ladder.kernel", node, verdict, f"{said}.", measured=lines, remedy="the playbook explain knows such lines" if lines else "")
    yield from _sshd(node, answer["sshd"], int(answer["sshd_ms"]), asked)


def start_finding(error: str, head: str, seconds: float) -> Finding:
    """Return whether the engine came up and was proven."""
    if error:
        return finding("ladder.start", head, "block", f"{error.rstrip('.')}.", remedy="see what the bring-up said above")
    return finding("ladder.start", head, "pass", f"up and proven after {seconds:.0f} s.", measured=seconds)


def error_of(answers: Answers) -> str:
    """Return what failed, by the nodes on which a task did; empty when none did."""
    return "; ".join(dict.fromkeys(str(answer["error"]).strip() for answer in answers.values() if answer["error"]))


def why(found: t.Iterable[Finding], silenced: t.Collection[str] = ()) -> list[str]:
    """Return in words what speaks against a rung: what is not known does, and what a user silenced does not."""
    against = [one for one in found if one["verdict"] not in ("pass", "warn") and one["id"] not in silenced]
    return [f"{one['node']}: {one['message'].rstrip('.')}" for one in against]


def entry(node: str, answers: Answers, settings: t.Mapping[str, t.Any], reasons: list[str]) -> dict[str, t.Any]:
    """Return a rung as it stands in a node's record."""
    answer = answers[node]
    head = answers[answer["head"]]
    seen = ((answer["seen"] or {}).get("seen") or {}) if answered(answer["seen"]) else {}
    prompt = head["prompt"] if answered(head["prompt"]) else {}
    sshd = answer["sshd"] if answered(answer["sshd"]) else {}
    return {
        "context": int(settings["context"]),
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


def rung(answers: Answers, run: Run) -> Outcome:
    """Judge one rung. Returns ``good``, ``against`` (in words), and ``climbs`` by node with it.

    The answers are ``seen`` (rung_info since it began), ``prompt`` (long_prompt, of the head), ``questions`` (known_answers) and ``sshd``; what failed of the
    bring-up or of asking is in each node's ``error``. ``settings`` has ``context``, ``at_s`` (seconds since the climb began), ``seconds`` and
    ``start_seconds``.
    """
    settings, first = run.settings, next(iter(answers.values()))
    head = answers[first["head"]]
    asked = answered(head["prompt"])
    found = [start_finding(error_of(answers), first["head"], float(settings["start_seconds"]))]
    for word in ("prompt", "questions"):
        if answered(head[word]):
            found += [{**one, "node": first["head"]} for one in head[word]["findings"]]
    found += [one for node, answer in answers.items() for one in node_findings(node, answer, asked)]
    reasons = why(found, run.silenced)
    good = not reasons
    context, reason = int(settings["context"]), f"{settings['context']}: {'; '.join(reasons)}" if reasons else ""
    records = {}
    for node, answer in answers.items():
        climb = answer["climb"]
        image = (answer["image"] or {}).get("image_id") if answered(answer["image"]) else ""
        records[node] = {
            **climb,
            # One that was pulled, built or copied on the way to the first rung is another one than before.
            "image_id": image or climb["image_id"],
            "rung": context if good else climb["rung"],
            "trying": 0,
            "reason": reason,
            "rungs": [*climb["rungs"], entry(node, answers, settings, reasons)],
        }
    last = max((one["rung"] for one in records.values()), default=0)
    return Outcome(f"Rung {context}", found, returns={"good": good, "against": reason, "climbs": records, "last_good": last})


def down(answers: Answers, run: Run) -> Outcome:
    """Judge whether the cluster is down with its memory back, after a stop. Returns ``off``: why nothing may be started any more, or nothing.

    The answer is ``memory`` (memory_watch). Before the first rung nothing may have been noted that it could be compared with.
    """
    error, reasons = error_of(answers), []
    for node, answer in answers.items():
        memory = answer["memory"]
        tried = bool(answer["climb"]["rungs"])
        if not answered(memory) or memory is None:
            reasons += [f"{node}: whether memory came back is not known"] if tried and not error else []
        elif memory["verdict"] != "pass" and (tried or memory["verdict"] != "unknown"):
            reasons.append(f"{node}: {memory['msg']}")
    off = "; ".join([*([f"the cluster could not be taken down: {error}"] if error else []), *reasons])
    found = [finding("ladder.return", "cluster", "block", f"{off}.", remedy="see the playbook preflight: it names what holds memory")] if off else None
    return Outcome("Ladder", found, returns={"off": off})


# --- the end --------------------------------------------------------------------------------------------------------------


def table(climb: climbs.Climb, nodes: t.Mapping[str, climbs.Climb]) -> list[str]:
    """Return the rungs of a climb, a line each."""
    out = []
    for number, one in enumerate(climb["rungs"]):
        found = {node: record["rungs"][number]["lowest_mb"] for node, record in nodes.items()}
        lows = [f"{node} {lowest / _MIB_IN_GIB:.1f}" for node, lowest in found.items() if lowest is not None]
        prompt = f"; up after {one['start_seconds']:.0f} s, {one['prompt_tokens']} tokens read in {one['prompt_seconds']:.0f} s" if one["prompt_tokens"] else ""
        said = "good" if one["good"] else f"not good: {'; '.join(one['reasons'])}"
        out.append(f"  {one['context']}: {said}{prompt}; GiB available at the least: {', '.join(lows) or 'not known'}")
    return out


def end(answers: Answers, run: Run) -> Outcome:
    """Say how a climb ended, pass it on, and write it with its picture to ``path``. ``settings`` has ``outcome`` and ``reason``."""
    outcome, reason = run.settings["outcome"], run.settings["reason"]
    records = {node: {**answer["climb"], "outcome": outcome, "reason": reason, "trying": 0} for node, answer in answers.items()}
    first = next(iter(records.values()))
    head = next(iter(answers.values()))["head"]
    ended = reason.rstrip(".")
    lost = "see the playbook doctor; memory that no process holds comes back only with a reboot"
    said = {
        climbs.TOP: ("pass", f"every rung was good; {first['rung']} tokens are served.", ""),
        climbs.RETURNED: ("warn", f"{first['rung']} tokens are served, the last good rung; it ended with {ended}.", "docs/ladder.md says what to do"),
        climbs.OFF: ("block", f"nothing is started: {ended}.", lost),
    }[outcome]
    found = [finding("ladder.end", head, said[0], said[1], measured=first["rung"], remedy=said[2])]
    record = {
        "schema": SCHEMA,
        "climb_id": first["climb_id"],
        "profile": first["profile"],
        "outcome": outcome,
        "reason": reason,
        "rung": first["rung"],
        "nodes": {node: climbs.short(one) for node, one in records.items()},
    }
    files: dict[str, t.Any] = {}
    if run.path:
        drawn = pictures.climb(records, int(next(iter(answers.values()))["floor_gib"]))
        files = {run.path: {**record, "nodes": records}, f"{run.path.removesuffix('.json')}.svg": drawn}
    verdict = {climbs.TOP: "pass", climbs.RETURNED: "warn", climbs.OFF: "block"}[outcome]
    lines = [f"Ladder of {first['profile']}, {first['climb_id']}:", *table(first, records), *(f"written: {path}" for path in files)]
    returns = {"climbs": records}
    return Outcome("Ladder", found, lines=lines, files=files, fresh=True, stats={"gb10_ladder_report": record, "gb10_verdict": verdict}, returns=returns)
