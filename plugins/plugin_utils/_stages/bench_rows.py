# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rows of a bench: saved, compared with earlier rows, and checked for slowdowns. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._bench import history, rows
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered

READS: dict[str, str] = {}


def failed_cases(results: t.Iterable[dict[str, t.Any]], client: str) -> list[rows.Finding]:
    """Return a finding for each case that was not measured."""
    findings = []
    for result in results:
        if not answered(result):
            case = result.get("item") or {}
            name = rows.name_of(case) if case else "a case"
            verdict = result.get("verdict") if result.get("verdict") in ("block", "unknown") else "block"
            reason = str(result.get("msg") or "the host was not reached").rstrip(".")
            findings.append(finding("bench.case", client, verdict, f"{name}: {reason}.", remedy=result.get("remedy") or "see the message, and repeat"))
    return findings


def judge(answers: Answers, run: Run) -> Outcome:
    """Create a row for each measured case, append it to those in the directory ``path``, and compare it with them.

    The answer is ``samples`` (node_samples_info). ``settings`` has ``results`` (of a loop over engine_bench) and ``about``, the fields that all rows share.
    """
    results, about = run.settings["results"], run.settings["about"]
    samples = {node: answer["samples"] if answered(answer["samples"]) and "samples" in answer["samples"] else None for node, answer in answers.items()}
    new = [rows.row(result, about, samples) for result in results if answered(result) and result.get("figures")]
    findings, failure = failed_cases(results, about["client"]), ""
    try:
        kept = history.record(run.path, new, run.check_mode)
    except ClusterError as error:
        # The measurements are returned even if they cannot be saved.
        kept, failure = history.Kept(new, [], []), error.with_remedy()
    findings += kept.findings
    return Outcome(
        "Bench",
        findings,
        lines=[*(rows.table(kept.rows) if new else []), *(f"written: {path}" for path in kept.files)],
        failure=failure,
        stats={"gb10_bench": {"schema": rows.SCHEMA, **kept._asdict(), "findings": findings}, "gb10_verdict": "block" if failure else table.worst(findings)},
    )
