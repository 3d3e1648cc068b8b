# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report of a run. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import json
import shlex
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._model import model_files
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.module_utils._records import cold_starts
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import executors, repositories
from ansible_collections.gb10.cluster.plugins.plugin_utils._report import image_copies, model_copies
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages.status import api_url
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.table import Finding

#: Version of the report.
SCHEMA = 1
#: Ids of findings that are made here.
IDS = ("start.slow",)
#: What to do about a start that became slower, by the stage that explains it; empty for none.
REMEDIES = {
    "weights": "see that nothing else reads the disk while it loads (iostat -x 2), and compare the loaders in docs/profiles.md",
    "compile": "see that nothing else uses the processors, and that the compiled files stay (status -v names their directory)",
    "graphs": "see whether the GPU runs at full clocks: nvidia-smi -q -d CLOCK,PERFORMANCE",
    "warmup": "see whether the GPU runs at full clocks (nvidia-smi -q -d CLOCK,PERFORMANCE), and that the compiled files stay (status -v)",
    "first_token": "see what the engine's log says about kernels that it compiles during inference",
    "": "compare the engine's log (./gb10 logs) with an earlier one, on each node",
}

#: Steps that end before the first stage, and are not stages themselves.
BEFORE_STAGES = ("validate", "begin", "engine")
READS = {
    "ends": "__gb10_stage_ends",
    "head": "gb10_head_host",
    "cluster": "gb10_cluster_name",
    "reached": "__gb10_head_reached",
    "key": "gb10_api_key",
    "key_file": "__gb10_api_key_file",
    "profile": "__gb10_profile",
    "executor": "__gb10_executor_choice",
    "given": "__gb10_engine",
    "cache": "__gb10_cache",
    "arguments": "__gb10_serve_arguments",
    "rung": "__gb10_rung_judged",
    "pulled": "__image_pulled",
    "downloaded": "__model_download",
    "copied": "__model_copied",
    "image_copied": "__image_copied",
    "verified": "__model_verified",
}
#: The long steps within a stage, in order: the name of a step, and the answer that contains its time.
STEPS = {
    "image": {"pull": "pulled", "copy": "image_copied"},
    "model": {"download": "downloaded", "copy": "copied", "verify": "verified"},
}


#: The fields about Ray, from its head: they are the same for every node.
OF_RAY = ("ray_version", "python_version", "nodes", "gpus_total", "ray_error", "ray_without_token")
#: The fields about a node's container.
OF_CONTAINER = ("exists", "running", "role", "executor", "container", "session", "address")


def stage_seconds(ends: t.Mapping[str, t.Any]) -> dict[str, float]:
    """Return the seconds of each stage, from the end times (seconds since the epoch) of the stages. A stage begins when the one before it ends."""
    known = [(stage, float(end)) for stage, end in ends.items() if end is not None]
    return {stage: round(end - before, 1) for (_last, before), (stage, end) in zip(known, known[1:]) if stage not in BEFORE_STAGES}


def downloaded(result: dict[str, t.Any] | None) -> dict[str, t.Any] | None:
    """Return ``seconds`` and ``bytes`` of a node's download, None if there was none."""
    return {word: result[word] for word in ("seconds", "bytes")} if result and answered(result) and "bytes" in result else None


def _step_seconds(word: str, result: dict[str, t.Any] | None) -> float | None:
    """Return the seconds of a node's step, None if it had nothing to do."""
    if word == "downloaded":
        return (downloaded(result) or {}).get("seconds")
    if not result or not answered(result):
        return None
    return result["verified"]["seconds"] if word == "verified" else result.get("duration") if result.get("changed") else None


def critical_path(answers: Answers, seconds: t.Mapping[str, float]) -> list[dict[str, t.Any]]:
    """Return the stages that the run waited for, and within a stage each step with its slowest node.

    Stages run one after another, and so do the steps of a stage. A step on several nodes takes as long as the slowest node. A download starts while the
    image is copied, so its ``seconds`` can exceed the time that the run waited for it in its own stage. In that case ``overlapped`` is true.
    """
    path = []
    for stage, whole in seconds.items():
        steps = []
        for step, word in STEPS.get(stage, {}).items():
            took = {node: duration for node, answer in answers.items() if (duration := _step_seconds(word, answer.get(word))) is not None}
            if took:
                node = max(took, key=lambda name: took[name])
                steps.append({"step": step, "node": node, "seconds": round(took[node], 1), "overlapped": took[node] > whole})
        path.append({"stage": stage, "seconds": whole, "steps": steps})
    return path


def path_text(path: t.Iterable[dict[str, t.Any]]) -> str:
    """Return the three longest stages with their steps, the longest first."""
    texts = []
    for row in sorted(path, key=lambda row: -row["seconds"])[:3]:
        begun = {True: ", begun in an earlier stage", False: ""}
        steps = ", ".join(f"{step['step']} on {step['node']} {step['seconds']} s{begun[step['overlapped']]}" for step in row["steps"])
        texts.append(f"{row['stage']} {row['seconds']} s" + (f" ({steps})" if steps else ""))
    return ", ".join(texts)


def context(head: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the requested context length, the climb of the ladder that it comes from, and why a recorded climb is not used."""
    rung = head.get("rung") or {}
    climb = rung.get("climb_id", "") if rung.get("context") else ""
    return {"tokens": (head.get("arguments") or {}).get("max_model_len"), "ladder": climb, "not_used": rung.get("why_not", "")}


def context_text(info: dict[str, t.Any]) -> str:
    """Return one line about the context length."""
    not_used = f"; what the ladder recorded is not used: {info['not_used']}" if info["not_used"] else ""
    whose = f", from the ladder {info['ladder']}" if info["ladder"] else not_used
    return f"context: {info['tokens'] or 'left to the engine'}{whose}"


def content(answers: Answers, run: Run) -> dict[str, t.Any]:
    """Return the report as it is written and returned."""
    head = answers[next(iter(answers.values()))["head"]]
    native = head["executor"]["executor"] == "native"
    engine = head["engine"]["engine"]
    nodes = {node: {name: answer["container"][name] for name in OF_CONTAINER} for node, answer in answers.items()}
    seconds = stage_seconds(head["ends"])
    applied = (head["cache"] or {}).get("arguments", {})
    return {
        "schema": SCHEMA,
        "cluster": head["cluster"],
        "profile": head["profile"]["id"],
        "check_mode": run.check_mode,
        "images": images(answers),
        "endpoint": api_url(engine, head["reached"]) if engine["live"] else None,
        "served_names": head["profile"]["model"]["served_names"],
        "repositories": [
            {word: repository[word] for word in ("name", "repo", "revision", "purpose")} for repository in repositories.repositories(head["profile"])
        ],
        "executor": head["executor"]["executor"],
        "executor_reason": head["executor"]["reason"],
        "engine": engine,
        "context": context(head),
        "arguments_changed": (head["given"] or {}).get("steps", []),
        "kv_cache": {"bytes": applied.get("kv_cache_memory_bytes"), "why": (head["cache"] or {}).get("why", "")},
        "nodes": {node: {**about, **({"rank": answers[node]["engine"]["engine"]} if native else {})} for node, about in nodes.items()},
        "ray": None if native else {name: head["container"][name] for name in OF_RAY},
        "copies": {node: made for node, answer in answers.items() if (made := model_copies.reported(answer.get("copied")))},
        "image_copies": {node: made for node, answer in answers.items() if (made := model_copies.reported(answer.get("image_copied"), image_copies.OF_COPY))},
        "verified": {node: answer["verified"]["verified"] for node, answer in answers.items() if answered(answer.get("verified"))},
        "downloads": {node: made for node, answer in answers.items() if (made := downloaded(answer.get("downloaded")))},
        "stages": seconds,
        "critical_path": critical_path(answers, seconds),
        "proofs": (head["proof"] or {}).get("findings", []),
        "cold_start": head["engine"].get("cold_start"),
    }


def slow_start(node: str, cold: cold_starts.Cold) -> list[Finding]:
    """Return a finding about a start that took much longer than its last one, none otherwise."""
    if not (found := cold_starts.slow(cold)):
        return []
    times, stage = found
    now, last = cold["seconds"], cold["last"]["seconds"]
    what = f"the start took {now['ready']:.0f} s, {times:.1f} times the last one of the same image and profile ({last['ready']:.0f} s); "
    why = f"most of it: {stage.replace('_', ' ')}, {now[stage]:.0f} s after {last[stage]:.0f}" if stage else "no stage in its log explains it"
    return [finding("start.slow", node, "warn", f"{what}{why}.", measured=now["ready"], needed=last["ready"], remedy=REMEDIES[stage])]


def images(answers: Answers) -> dict[str, t.Any]:
    """Return by node its image, the base image and the packages that pip added. None: the node has no image."""
    node_images: dict[str, t.Any] = dict.fromkeys(answers)
    for node, answer in ((node, answer) for node, answer in answers.items() if answered(answer["image"]) and answer["image"]["exists"]):
        contract = answer["image"]
        built = contract["base"] or {}
        node_images[node] = {
            "tag": answer["profile"]["image"]["tag"],
            "id": contract["image_id"],
            "base": answer["profile"]["image"]["base"],
            "base_id": built.get("image_id") or contract["base_image_id"],
            "base_digest": contract["base_digest"],
            "added": built.get("lock", []),
            "ray_wanted": built.get("ray_wanted"),
            "mods": mods(contract["labels"]),
        }
    digests = {image["base_id"]: image["base_digest"] for image in node_images.values() if image and image["base_digest"]}
    # A Docker engine has digests only of images that it pulled itself. A copy from another node is the same image.
    return {node: image and {**image, "base_digest": image["base_digest"] or digests.get(image["base_id"])} for node, image in node_images.items()}


def mods(labels: dict[str, str] | None) -> dict[str, str]:
    """Return the digests of an image's changes by their names."""
    return t.cast("dict[str, str]", json.loads((labels or {}).get("io.gb10.mods") or "{}"))


def image_names(node_images: dict[str, t.Any]) -> str:
    """Return the image and the digest of its base. Without a fault they are the same on all nodes."""
    names = dict.fromkeys(
        image["tag"]
        + "".join(f" with {name}@{digest[:12]}" for name, digest in image["mods"].items())
        + (f" on {image['base_digest']}" if image["base_digest"] else ", no digest of a registry is known")
        for image in filter(None, node_images.values())
    )
    return "; ".join(names) or "none here"


def _repository_text(repository: dict[str, t.Any]) -> str:
    """Return a repository with its commit as text, and its purpose unless that is the model."""
    at = "" if model_files.is_directory(repository["repo"]) else f"@{(repository['revision'] or 'main')[:12]}"
    return f"{repository['repo']}{at}{'' if repository['purpose'] == 'model' else ' (' + repository['purpose'] + ')'}"


def request(report: dict[str, t.Any], head: dict[str, t.Any]) -> str:
    """Return a request that the user can copy. The key goes from its file to curl's standard input, so no command line contains it.

    The header is built in two steps, because a complete header would be redacted in the output.
    """
    body = json.dumps({"model": report["served_names"][0], "messages": [{"role": "user", "content": "Say hello."}]})
    send = shlex.join(["-H", "Content-Type: application/json", "-d", body, f"{report['endpoint']}/v1/chat/completions"])
    if head["key"] != "generate":
        return f"curl -s {send}"
    return f"{shlex.join(['ssh', head['reached'], 'sudo', 'cat', head['key_file']])} | sed 's/^/: Bearer /; s/^/Authorization/' | curl -s -H @- {send}"


def judge(answers: Answers, run: Run) -> Outcome:
    """Show the engine that serves and its proofs, write the report and return it."""
    report = content(answers, run)
    head = answers[next(iter(answers.values()))["head"]]
    cold = report["cold_start"]
    seconds = ", ".join(f"{stage} {seconds} s" for stage, seconds in report["stages"].items())
    lines = [
        f"{report['cluster']}: " + (f"serving {', '.join(report['served_names'])}" if report["engine"]["live"] else "no engine is serving"),
        f"endpoint: {report['endpoint'] or 'none'}",
        f"executor: {report['executor']} ({report['executor_reason']})",
        context_text(report["context"]),
        f"repositories: {', '.join(map(_repository_text, report['repositories']))}",
        f"image: {image_names(report['images'])}",
        *([executors.ray_words(head["profile"], head["image"])] if report["ray"] is not None and head["image"].get("exists") else []),
        "API key: " + (f"{head['key_file']} on {head['head']}" if head["key"] == "generate" else "none"),
        *(f"for this engine: {step}" for step in report["arguments_changed"]),
        *([f"KV cache: {report['kv_cache']['why']}"] if report["kv_cache"]["why"] else []),
        f"stages: {seconds or 'none of this run'}",
        *([cold_starts.text(cold)] if cold else []),
        *([f"longest: {path_text(report['critical_path'])}"] if report["critical_path"] else []),
        f"proven: {sum(proof['verdict'] == 'pass' for proof in report['proofs'])} of {len(report['proofs'])}",
        f"report: {run.path}",
        *([f"try it: {request(report, head)}"] if report["endpoint"] else []),
    ]
    return Outcome(
        "Report",
        (slow_start(head["head"], cold) if cold else []) or None,
        lines=lines,
        files={run.path: report},
        mode=0o644,
        stats={"gb10_report": report, "gb10_endpoint": f"{report['endpoint']}/v1" if report["endpoint"] else ""},
    )
