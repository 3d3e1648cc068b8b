# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What runs where, in lines. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._engine import health
from ansible_collections.gb10.cluster.plugins.module_utils._engine.engine_state import WILDCARDS, base_url
from ansible_collections.gb10.cluster.plugins.plugin_utils._ladder import recorded
from ansible_collections.gb10.cluster.plugins.plugin_utils._report import units
from ansible_collections.gb10.cluster.plugins.plugin_utils._report.leavings import size_text
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve import events, watches
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.failures import Diagnosis
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.log_lines import timed
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import companions, protect, proof
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered

READS = {
    "head": "gb10_head_host",
    "address": "gb10_fabric_address",
    "cluster": "gb10_cluster_name",
    "declared": "gb10_companions",
    "mode": "__gb10_mode",
    "reached": "__gb10_head_reached",
    "probe_seconds": "gb10_status_seconds",
}


def api_url(engine: dict[str, t.Any], address: str) -> str:
    """Return where others reach the API of a live engine; ``address`` is one of the head's, for an API that listens on all of them."""
    host = engine["api_address"]
    return base_url(address if host in WILDCARDS else host, engine["api_port"])


def _live(answer: dict[str, t.Any]) -> bool:
    """Return whether a node says that its engine, or its rank of one, lives."""
    return answered(answer["engine"]) and answer["engine"]["engine"]["live"]


def dead_nodes(answers: Answers) -> list[str]:
    """Return the nodes without a living rank while another one has one: such an engine cannot answer, and its head does not notice.

    With Ray the head alone is asked for an engine, and Ray watches its ranks.
    """
    native = [node for node, answer in answers.items() if answered(answer["container"]) and answer["container"]["executor"] == "native"]
    live = [node for node in native if _live(answers[node])]
    return [node for node in answers if node not in live] if live else []


def health_of(answers: Answers) -> health.Health | None:
    """Return the verdict on the live engine, None without one, or where the head was not reached."""
    head = answers[next(iter(answers.values()))["head"]]
    if not _live(head):
        return None
    processes = {node: answer["engine"]["processes"] for node, answer in answers.items() if answered(answer["engine"])}
    info = head["engine"]
    found = health.verdict(health.Probe(info["api"], bool(info["completion"]), **(info["progress"] or {})), processes)
    dead = dead_nodes(answers)
    if dead and found.state != health.HALTED:
        return health.Health(health.DEAD, "it has lost a rank", {node: ["no rank lives there"] for node in dead})
    silent = [node for node, answer in answers.items() if not answered(answer["engine"])]
    if silent and found.state != health.SERVING and not found.named:
        return health.Health(health.UNKNOWN, f"{found.why}, and {', '.join(silent)} did not answer", {})
    return found


def endpoint(answers: Answers) -> str:
    """Return where the API answers, or will; empty when no engine lives, or when nothing says that it works."""
    head, found = answers[next(iter(answers.values()))["head"]], health_of(answers)
    works = found is not None and found.state in (health.SERVING, health.BUSY, health.STARTING)
    return f"{api_url(head['engine']['engine'], head['reached'])}/v1" if works else ""


def why_ended(answers: Answers) -> str:
    """Return which node failed first, and why, by the log of an engine that ended; empty when the log does not show it."""
    nodes = list(answers)
    info = answers[nodes[0]]["engine"]
    deaths, said = events.Deaths(), Diagnosis()
    deaths.feed(info["last_lines"])
    said.feed(timed(info["last_lines"], nodes[0], info["now"], source="engine"))
    addresses = {answer["address"]: node for node, answer in answers.items()}
    first = events.first(said.findings(nodes[0]), deaths.told, addresses, events.ranks_of(nodes, len(nodes)))
    return events.text(first) if first else ""


def _serving(answers: Answers) -> str:
    """Return the head's line of the engine."""
    answer, found = answers[next(iter(answers.values()))["head"]], health_of(answers)
    info = answer["engine"]
    if found is None:
        last = f"; the last one, {info['last_end']}" if info.get("last_end") else ""
        return ". ".join(text for text in (f"engine: none{last}", info.get("last_lines") and why_ended(answers)) if text)
    url, log = api_url(info["engine"], answer["reached"]), f"log {info['engine']['log_path']}"
    requests = "an unknown number of requests" if info["requests_running"] is None else f"{info['requests_running']} request(s)"
    if found.state == health.STARTING:
        stage = f"{info['stage']} {info['shards']}".strip()
        return f"engine: {url} does not answer yet ({stage or 'starting'}), {log}"
    if found.state == health.SERVING:
        return f"engine: {url}, a token in {info['completion']['seconds']} s, {requests} running or waiting, {log}"
    token = "" if info["completion"] else f" gave no token in {answer['probe_seconds']} s"
    again = ". Remedy: Run the play again; an engine that lacks a rank is started again without being asked" if found.state == health.DEAD else ""
    return f"engine: {url}{token}, {requests} running or waiting: {found.text}, {log}{again}"


def _start_text(found: dict[str, t.Any]) -> str:
    """Return the newest recorded start in a line, empty without one."""
    if not found:
        return ""
    if found["error"]:
        return f"recorded starts: {found['error']}"
    took, left = (found[word] / 1024 for word in ("took_mb", "left_mb"))
    return f"last proven start: {found['profile']} with {found['context']} tokens took {took:.1f} GiB and left {left:.1f}, {found['recorded_at'][:10]}"


def proof_of(answer: dict[str, t.Any]) -> tuple[str, str]:
    """Return whether the head's live engine was proven (``proven``, ``unproven``, ``unknown``), and what to say of it; ``none`` where none lives."""
    if not answered(answer["engine"]):
        return "unknown", ""
    if not _live(answer):
        return "none", ""
    run_id, found = answer["engine"]["engine"]["run_id"], (answer["container"] or {}).get("last_proof") or {}
    again = "the tag proof of the bring-up asks it"
    if not answered(answer["container"]):
        return "unknown", "whether it was proven is unknown: its record was not read"
    if found.get("error"):
        return "unknown", f"whether it was proven is unknown: {found['error']}"
    if not found or found["run_id"] != run_id:
        return "unproven", f"unproven: there is no recorded proof of run {run_id}; {again}"
    if found["failed"]:
        return "unproven", f"unproven: it failed {', '.join(found['failed'])} at {found['recorded_at']}; {again} again"
    return "proven", f"proven: {found['recorded_at']}"


def _copy_lines(copy: dict[str, t.Any]) -> list[str]:
    """Return what there is of a model's copy to another node, or from one."""
    names = ", ".join(copy["running"])
    running = [f"serves a model to other nodes: {names}; this ends with the copy, or with the playbook teardown"] if names else []
    partial = [f"{size_text(size)} of an unfinished copy in {path}; the next copy continues it" for path, size in copy["partial"].items()]
    return [*running, *partial]


def node_lines(node: str, answers: Answers) -> list[str]:
    """Return what runs on a node."""
    answer = answers[node]
    info, engine, head = answer["container"], answer["engine"] or {}, node == answer["head"]
    if not answered(info) or engine.get("failed") or engine.get("unreachable"):
        return [f"not reached: {engine['msg']}" if answered(info) and engine.get("msg") else "not reached"]
    found = info["container"]
    lines = [f"{found['name']} {found['state']} since {found['created']} from {found['image']}" if info["exists"] else f"no container of {answer['cluster']}"]
    if info["executor"] == "native":
        run = engine["engine"]
        ended = engine.get("last_end") or "none was started"
        state = f"live, run {run['run_id']}, log {run['log_path']}" if _live(answer) else f"not live; {ended}"
        lines.append(f"rank {list(answers).index(node)} of executor native: {state}")
    else:
        lines.append(f"Ray {info.get('ray_version') or 'none'}, Python {info.get('python_version') or 'none'}")
        lines += [f"Ray nodes: {', '.join(one['address'] for one in info.get('nodes') or []) or 'none'}"] if head else []
    if stopped := health.texts({node: engine["processes"]}, "stopped").get(node):
        lines.append(f"stopped by a signal or a debugger, so that the engine hangs: {'; '.join(stopped)}; kill -CONT PID lets it go on")
    if engine["fabric"] and (trouble := watches.fabric_trouble(node, engine["fabric"], {other["address"]: name for name, other in answers.items()})):
        lines.append(f"{trouble}. Remedy: {trouble.remedy}")
    lines += [
        f"{one['path']} can be entered by other accounts (mode {one['mode']}), and containers write there. Remedy: {one['remedy']}"
        for one in info.get("open_directories") or []
    ]
    caches = [f"{size_text(one['size_bytes'])} in {one['path']}{'' if one['in_use'] else ' (not in use)'}" for one in info.get("caches") or []]
    lines += [f"compiled for its images: {', '.join(caches)}"] if caches else []
    lines += filter(None, [protect.text(info.get("protection") or {})])
    lines += units.lines(info.get("services") or {})
    lines += filter(None, [_start_text(info.get("last_start") or {})])
    lines += recorded.status_lines(info.get("ladder") or {})
    if answered(answer.get("copy")):
        lines += _copy_lines(answer["copy"])
    if answered(answer.get("image_copy")) and answer["image_copy"]["running"]:
        lines.append(f"serves an image to other nodes: {', '.join(answer['image_copy']['running'])}; this ends with the copy, or with the playbook teardown")
    if answered(answer.get("companions")):
        seen = answer["companions"]["companions"] or []
        lines += [f"companion {line}" for line in companions.lines(answer.get("declared") or [], seen, answer.get("mode") or "")]
    if head:
        lines += [*filter(None, [proof_of(answer)[1]]), _serving(answers)]
        if engine.get("routes"):
            lines += [finding["message"] for finding in proof.auth(node, engine["routes"], engine["engine"]["guarded"])]
        dead = dead_nodes(answers)
        if dead and info["executor"] == "native":
            lines.append(f"the engine is dead: no rank lives on {', '.join(dead)}. Run the play again: it starts all ranks again, without being asked.")
    return lines


def judge(answers: Answers, run: Run) -> Outcome:
    """Say what runs on every node, and pass it on."""
    said = {node: node_lines(node, answers) for node in answers}
    lines = [line for node, about in said.items() for line in (f"{node}:", *(f"  {one}" for one in table.packed(about)))]
    found = health_of(answers)
    stats = {"gb10_status": said, "gb10_endpoint": endpoint(answers), "gb10_health": found.state if found else "none"}
    stats["gb10_proof"] = proof_of(answers[next(iter(answers.values()))["head"]])[0]
    return Outcome("Status", lines=lines, stats=stats)
