# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of each node as lines. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._engine import health
from ansible_collections.gb10.cluster.plugins.module_utils._engine.engine_state import WILDCARDS, base_url
from ansible_collections.gb10.cluster.plugins.module_utils._records import cold_starts
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
    "probe_seconds": "__gb10_status_seconds",
}


class Line(t.NamedTuple):
    """A fact about a node. ``wrong`` facts are shown first, ``detail`` facts only with -v. Without -v, ``short`` replaces the text."""

    text: str
    wrong: bool = False
    detail: bool = False
    short: str = ""


def api_url(engine: dict[str, t.Any], address: str) -> str:
    """Return the URL of a live engine's API. ``address`` is an address of the head, used if the API listens on all of them."""
    host = engine["api_address"]
    return base_url(address if host in WILDCARDS else host, engine["api_port"])


def _live(answer: dict[str, t.Any]) -> bool:
    """Return whether a node reports that its engine, or its rank of the engine, is live."""
    return answered(answer["engine"]) and answer["engine"]["engine"]["live"]


def dead_nodes(answers: Answers) -> list[str]:
    """Return the nodes without a live rank while another node has one. Such an engine cannot answer, and its head does not notice.

    With Ray, only the head is asked for an engine, and Ray watches its ranks.
    """
    native = [node for node, answer in answers.items() if answered(answer["container"]) and answer["container"]["executor"] == "native"]
    live = [node for node in native if _live(answers[node])]
    return [node for node in answers if node not in live] if live else []


def health_of(answers: Answers) -> health.Health | None:
    """Return the verdict on the live engine, None if there is none or the head was not reached."""
    head = answers[next(iter(answers.values()))["head"]]
    if not _live(head):
        return None
    processes = {node: answer["engine"]["processes"] for node, answer in answers.items() if answered(answer["engine"])}
    info = head["engine"]
    verdict = health.verdict(health.Probe(info["api"], bool(info["completion"]), **(info["progress"] or {})), processes)
    dead = dead_nodes(answers)
    if dead and verdict.state != health.HALTED:
        return health.Health(health.DEAD, "it has lost a rank", {node: ["no rank lives there"] for node in dead})
    silent = [node for node, answer in answers.items() if not answered(answer["engine"])]
    if silent and verdict.state != health.SERVING and not verdict.named:
        return health.Health(health.UNKNOWN, f"{verdict.why}, and {', '.join(silent)} did not answer", {})
    return verdict


def endpoint(answers: Answers) -> str:
    """Return the URL where the API answers or will answer, empty if no engine is live or it is not known to work."""
    head, verdict = answers[next(iter(answers.values()))["head"]], health_of(answers)
    works = verdict is not None and verdict.state in (health.SERVING, health.BUSY, health.STARTING)
    return f"{api_url(head['engine']['engine'], head['reached'])}/v1" if works else ""


def why_ended(answers: Answers) -> str:
    """Return which node failed first and why, from the log of an ended engine. The text is empty if the log does not show it."""
    nodes = list(answers)
    info = answers[nodes[0]]["engine"]
    deaths, diagnosis = events.Deaths(), Diagnosis()
    deaths.feed(info["last_lines"])
    diagnosis.feed(timed(info["last_lines"], nodes[0], info["now"], source="engine"))
    addresses = {answer["address"]: node for node, answer in answers.items()}
    first = events.first(diagnosis.findings(nodes[0]), deaths.told, addresses, events.ranks_of(nodes, len(nodes)))
    return events.text(first) if first else ""


def _serving(answers: Answers) -> Line:
    """Return the head's line about the engine."""
    answer, verdict = answers[next(iter(answers.values()))["head"]], health_of(answers)
    info = answer["engine"]
    if verdict is None:
        last = f"; the last one, {info['last_end']}" if info.get("last_end") else ""
        why = info.get("last_lines") and why_ended(answers)
        return Line(". ".join(text for text in (f"engine: none{last}", why) if text), wrong=bool(last and answer["container"]["exists"]))
    url, log = api_url(info["engine"], answer["reached"]), f"log {info['engine']['log_path']}"
    requests = "an unknown number of requests" if info["requests_running"] is None else f"{info['requests_running']} request(s)"
    if verdict.state == health.STARTING:
        stage = f"{info['stage']} {info['shards']}".strip()
        return Line(f"engine: {url} does not answer yet ({stage or 'starting'}), {log}")
    if verdict.state == health.SERVING:
        return Line(f"engine: {url}, a token in {info['completion']['seconds']} s, {requests} running or waiting, {log}")
    token = "" if info["completion"] else f" gave no token in {answer['probe_seconds']} s"
    again = ". Remedy: Run the play again; an engine that lacks a rank is started again without being asked" if verdict.state == health.DEAD else ""
    return Line(f"engine: {url}{token}, {requests} running or waiting: {verdict.text}, {log}{again}", wrong=verdict.state != health.BUSY)


def _start_text(start: dict[str, t.Any]) -> str:
    """Return one line about the newest recorded start, empty without one."""
    if not start:
        return ""
    if start["error"]:
        return f"recorded starts: {start['error']}"
    took, left = (start[word] / 1024 for word in ("took_mb", "left_mb"))
    return f"last proven start: {start['profile']} with {start['context']} tokens took {took:.1f} GiB and left {left:.1f}, {start['recorded_at'][:10]}"


def proof_of(answer: dict[str, t.Any]) -> tuple[str, str]:
    """Return whether the head's live engine was proven, and a text. States: ``proven``, ``unproven``, ``unknown``, and ``none`` without a live engine."""
    if not answered(answer["engine"]):
        return "unknown", ""
    if not _live(answer):
        return "none", ""
    run_id, last_proof = answer["engine"]["engine"]["run_id"], (answer["container"] or {}).get("last_proof") or {}
    again = "the tag proof of the bring-up asks it"
    if not answered(answer["container"]):
        return "unknown", "whether it was proven is unknown: its record was not read"
    if last_proof.get("error"):
        return "unknown", f"whether it was proven is unknown: {last_proof['error']}"
    if not last_proof or last_proof["run_id"] != run_id:
        return "unproven", f"unproven: there is no recorded proof of run {run_id}; {again}"
    if last_proof["failed"]:
        return "unproven", f"unproven: it failed {', '.join(last_proof['failed'])} at {last_proof['recorded_at']}; {again} again"
    return "proven", f"proven: {last_proof['recorded_at']}"


def _copy_lines(copy: dict[str, t.Any]) -> list[str]:
    """Return lines about the copy of a model to or from another node."""
    names = ", ".join(copy["running"])
    running = [f"serves a model to other nodes: {names}; this ends with the copy, or with the playbook teardown"] if names else []
    partial = [f"{size_text(size)} of an unfinished copy in {path}; the next copy continues it" for path, size in copy["partial"].items()]
    return [*running, *partial]


def _container_lines(node: str, answers: Answers) -> t.Iterator[Line]:
    """Yield lines about a node's container and its content: Ray, or the node's own rank."""
    answer = answers[node]
    info, container = answer["container"], answer["container"]["container"]
    text = (
        f"{container['name']} {container['state']} since {container['created']} from {container['image']}"
        if info["exists"]
        else f"no container of {answer['cluster']}"
    )
    yield Line(text, wrong=info["exists"] and container["state"] != "running")
    if info["executor"] == "native":
        run = answer["engine"]["engine"]
        ended = answer["engine"].get("last_end") or "none was started"
        state = f"live, run {run['run_id']}, log {run['log_path']}" if _live(answer) else f"not live; {ended}"
        yield Line(f"rank {list(answers).index(node)} of executor native: {state}")
    else:
        yield Line(f"Ray {info.get('ray_version') or 'none'}, Python {info.get('python_version') or 'none'}")
        if node == answer["head"]:
            yield Line(f"Ray nodes: {', '.join(ray_node['address'] for ray_node in info.get('nodes') or []) or 'none'}")


def _trouble_lines(node: str, answers: Answers) -> t.Iterator[Line]:
    """Yield lines about problems of a node's engine or fabric, and about directories that other accounts can enter."""
    engine, info = answers[node]["engine"], answers[node]["container"]
    if stopped := health.texts({node: engine["processes"]}, "stopped").get(node):
        yield Line(f"stopped by a signal or a debugger, so that the engine hangs: {'; '.join(stopped)}; kill -CONT PID lets it go on", wrong=True)
    if engine["fabric"] and (trouble := watches.fabric_trouble(node, engine["fabric"], {other["address"]: name for name, other in answers.items()})):
        yield Line(f"{trouble}. Remedy: {trouble.remedy}", wrong=True)
    for directory in info.get("open_directories") or []:
        text = f"{directory['path']} can be entered by other accounts (mode {directory['mode']}), and containers write there. Remedy: {directory['remedy']}"
        yield Line(text, wrong=True)


def _kept_lines(info: dict[str, t.Any]) -> t.Iterator[Line]:
    """Yield lines about the stored data of a node's engines, and about its units."""
    caches = [f"{size_text(cache['size_bytes'])} in {cache['path']}{'' if cache['in_use'] else ' (not in use)'}" for cache in info.get("caches") or []]
    if caches:
        yield Line(f"compiled for its images: {', '.join(caches)}", detail=True)
    for text, well in units.lines(info.get("services") or {}):
        yield Line(text, wrong=not well, short=text.partition(", ")[0])
    kept = {word: info.get(word) or {} for word in ("protection", "last_start", "ladder")}
    texts = [protect.text(kept["protection"])], [_start_text(kept["last_start"])], recorded.status_lines(kept["ladder"])
    yield from (Line(text, wrong=bool(record.get("error")), detail=True) for record, lines in zip(kept.values(), texts) for text in lines if text)


def _running_lines(answer: dict[str, t.Any]) -> t.Iterator[Line]:
    """Yield lines about the copies and companions of a node."""
    if answered(answer.get("copy")):
        yield from map(Line, _copy_lines(answer["copy"]))
    if answered(answer.get("image_copy")) and answer["image_copy"]["running"]:
        yield Line(f"serves an image to other nodes: {', '.join(answer['image_copy']['running'])}; this ends with the copy, or with the playbook teardown")
    if answered(answer.get("companions")):
        seen = answer["companions"]["companions"] or []
        yield from (Line(f"companion {line}") for line in companions.lines(answer.get("declared") or [], seen, answer.get("mode") or ""))


def _head_lines(node: str, answers: Answers) -> t.Iterator[Line]:
    """Yield the head's lines about the whole engine."""
    answer = answers[node]
    engine, (word, proven) = answer["engine"], proof_of(answer)
    if proven:
        yield Line(proven, wrong=word != "proven")
    if cold := engine.get("cold_start"):
        yield Line(cold_starts.text(cold), short=cold_starts.text(cold, own_stages=False, other_stages=False))
    yield _serving(answers)
    if engine.get("routes"):
        findings = proof.auth(node, engine["routes"], engine["engine"]["guarded"])
        yield from (Line(entry["message"], wrong=entry["verdict"] != "pass", detail=True) for entry in findings)
    dead = dead_nodes(answers)
    if dead and answer["container"]["executor"] == "native":
        yield Line(f"the engine is dead: no rank lives on {', '.join(dead)}. Run the play again: it starts all ranks again, without being asked.", wrong=True)


def node_lines(node: str, answers: Answers) -> list[Line]:
    """Return the lines about a node."""
    answer = answers[node]
    info, engine = answer["container"], answer["engine"] or {}
    if not answered(info) or engine.get("failed") or engine.get("unreachable"):
        return [Line(f"not reached: {engine['msg']}" if answered(info) and engine.get("msg") else "not reached", wrong=True)]
    about = [*_container_lines(node, answers), *_trouble_lines(node, answers), *_kept_lines(info), *_running_lines(answer)]
    return [*about, *(_head_lines(node, answers) if node == answer["head"] else ())]


def screen(by_node: t.Mapping[str, t.Sequence[Line]]) -> list[str]:
    """Return the lines that are shown without -v: first the problems, then the state of each node."""
    wrong = [f"{node}: {line.text}" for node, lines in by_node.items() for line in lines if line.wrong]
    texts = {node: [line.short or line.text for line in lines if not line.wrong and not line.detail] for node, lines in by_node.items()}
    packed = [table.packed([f"{node}: {about[0]}", *about[1:]]) for node, about in texts.items() if about]
    return [*wrong, *(line for first, *more in packed for line in (first, *(f"  {text}" for text in more)))]


def judge(answers: Answers, run: Run) -> Outcome:
    """Show the state of every node, and return it."""
    by_node = {node: node_lines(node, answers) for node in answers}
    texts = {node: [line.text for line in lines] for node, lines in by_node.items()}
    details = [line for node, about in texts.items() for line in (f"{node}:", *(f"  {text}" for text in table.packed(about)))]
    verdict = health_of(answers)
    stats = {"gb10_status": texts, "gb10_endpoint": endpoint(answers), "gb10_health": verdict.state if verdict else "none"}
    stats["gb10_proof"] = proof_of(answers[next(iter(answers.values()))["head"]])[0]
    return Outcome("Status", lines=screen(by_node), details=details, stats=stats)
