# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the live engine may be measured, with which cases, and how to reach it. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._bench import history, rows
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import repositories
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import status
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered

READS = {
    "head": "gb10_head_host",
    "reached": "__gb10_head_reached",
    "cluster": "gb10_cluster_name",
    "profile": "__gb10_profile",
    "client": "gb10_bench_host",
    "suite": "gb10_bench_suite",
    "concurrency": "gb10_bench_concurrency",
    "tokens": "gb10_bench_tokens",
}


def word_after(argv: t.Sequence[str], flag: str) -> str:
    """Return the value of a command's flag, empty if the flag is absent."""
    return argv[argv.index(flag) + 1] if flag in argv[:-1] else ""


def tokenizer(argv: t.Sequence[str], profile: dict[str, t.Any]) -> str:
    """Return the tokenizer of a live engine as its container sees it: the one from its flag, or the model's."""
    model = profile["model"]
    return word_after(argv, "--tokenizer") or (repositories.snapshot_path(profile) if model["revision"] or model["path"] else model["repo"])


def numbers(text: t.Any) -> list[int]:
    """Return the whole numbers of a comma-separated text, or a single number."""
    return list(dict.fromkeys(int(part) for part in str(text).split(",") if part.strip()))


def refusals(info: dict[str, t.Any], head: str) -> list[rows.Finding]:
    """Return one finding about whether the engine can be measured now."""
    if not info["engine"]["live"] or not info["healthy"]:
        why = "its API does not answer" if info["engine"]["live"] else "no engine is live"
        return [finding("bench.engine", head, "block", f"{why}: there is nothing to measure.", remedy="bring it up (the playbook serve), then repeat")]
    count = info["requests_running"]
    if count == 0:
        return [finding("bench.idle", head, "pass", "the engine serves and has no request.", measured=0, needed=0)]
    what = "it does not say how many requests it has" if count is None else f"it has {count} request(s), running or waiting"
    message = f"{what}; a bench would slow that down, and measure it, too."
    verdict, remedy = ("unknown", "see whether the engine serves, then repeat") if count is None else ("block", "repeat while the engine is idle")
    return [finding("bench.idle", head, verdict, message, measured=count, needed=0, remedy=remedy)]


def client_findings(client: str, head: str, nodes: t.Collection[str]) -> list[rows.Finding]:
    """Return a finding about where the client runs."""
    if client and client not in nodes:
        return [finding("bench.client", client, "pass", f"the client runs on {client}, outside of the cluster.")]
    return [
        finding(
            "bench.client",
            client or head,
            "warn",
            f"the client runs on {client or head}, and takes part of what it measures; its rows are never compared with those of a client outside.",
            remedy="run the client on a host outside the cluster: -e gb10_bench_host=NAME",
        )
    ]


def length_findings(cases: t.Iterable[dict[str, t.Any]], context: int, head: str) -> list[rows.Finding]:
    """Return a finding if a case is longer than the engine's context."""
    most = max((case["input_len"] + case["output_len"] for case in cases), default=0)
    if not context or most <= context:
        return []
    message = f"{most} tokens of prompt and answer do not fit the context of {context}."
    return [finding("bench.length", head, "block", message, measured=most, needed=context, remedy="lower gb10_bench_tokens")]


def judge(answers: Answers, run: Run) -> Outcome:
    """Judge whether the engine may be measured, and return how to reach it. The directory of earlier rows is ``path``."""
    first = answers[next(iter(answers.values()))["head"]]
    info, head = first["engine"], first["head"]
    if not answered(info) or not answered(first["container"]):
        return Outcome("Bench", [finding("bench.engine", head, "unknown", "the state of the engine is unknown.", remedy="see why the head did not answer")])
    argv, client = info["engine"]["argv"], first["client"] or ""
    length = word_after(argv, "--max-model-len")
    context = int(length) if length.isdigit() else 0
    prompt, answer = map(int, first["tokens"].split("/"))
    cases = rows.cases({"context": context, "suite": first["suite"], "concurrency": numbers(first["concurrency"]), "input": prompt, "output": answer})
    findings = refusals(info, head)
    if all(entry["verdict"] == "pass" for entry in findings):
        findings += [*client_findings(client, head, answers), *length_findings(cases, context, head)]
    try:
        if run.path:
            history.load(run.path)
    except ClusterError as error:
        return Outcome("Bench", findings, failure=f"{error}. Remedy: {error.remedy}")
    outside = bool(client) and client not in answers
    image = first["container"]["container"]
    about = {
        "run": run.now.strftime("%Y%m%dT%H%M%SZ"),
        "time": run.time,
        "cluster": first["cluster"],
        "profile": first["profile"]["id"],
        "image": image.get("image_id", ""),
        "engine_version": info["engine_version"],
        "engine_digest": info["engine"]["digest"],
        "place": "outside" if outside else "head" if client in ("", head) else "worker",
        "client": client or head,
    }
    engine = {
        "url": status.api_url(info["engine"], first["reached"]) if info["engine"]["api_address"] else "",
        "model": first["profile"]["model"]["served_names"][0],
        "tokenizer": tokenizer(argv, first["profile"]),
        "trust_remote_code": "--trust-remote-code" in argv,
        "image": image.get("image", "") if outside or client not in ("", head) else image.get("image_id", ""),
    }
    return Outcome("Bench", findings, returns={"cases": cases, "about": about, "engine": engine, "client": client or head})
