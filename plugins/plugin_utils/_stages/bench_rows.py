# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rows of a bench: kept, compared with earlier ones, and what became slower. This plugin util is PRIVATE to the collection."""

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
    found = []
    for one in results:
        if not answered(one):
            case = one.get("item") or {}
            name = rows.name_of(case) if case else "a case"
            verdict = one.get("verdict") if one.get("verdict") in ("block", "unknown") else "block"
            said = str(one.get("msg") or "the host was not reached").rstrip(".")
            found.append(finding("bench.case", client, verdict, f"{name}: {said}.", remedy=one.get("remedy") or "see the message, and repeat"))
    return found


def judge(answers: Answers, run: Run) -> Outcome:
    """Make a row of each case that was measured, append it to those in the directory ``path``, and compare it with them.

    The answer is ``samples`` (node_samples_info). ``settings`` has ``results`` (of a loop over engine_bench) and ``about``: what all rows have in common.
    """
    results, about = run.settings["results"], run.settings["about"]
    samples = {node: one["samples"] if answered(one["samples"]) and "samples" in one["samples"] else None for node, one in answers.items()}
    new = [rows.row(one, about, samples) for one in results if answered(one) and one.get("figures")]
    found, failure = failed_cases(results, about["client"]), ""
    try:
        kept = history.record(run.path, new, run.check_mode)
    except ClusterError as error:
        # What was measured is passed on also where it cannot be kept.
        kept, failure = history.Kept(new, [], []), error.with_remedy()
    found += kept.findings
    return Outcome(
        "Bench",
        found,
        lines=[*(rows.table(kept.rows) if new else []), *(f"written: {path}" for path in kept.files)],
        failure=failure,
        stats={"gb10_bench": {"schema": rows.SCHEMA, **kept._asdict(), "findings": found}, "gb10_verdict": "block" if failure else table.worst(found)},
    )
