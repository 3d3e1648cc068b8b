# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The guard of each node. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.module_utils._guard.guard_files import text
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

#: Version of the returned statistics.
SCHEMA = 1
#: Only the answers that the task names.
READS: dict[str, str] = {}


def judge(answers: Answers, run: Run) -> Outcome:
    """Show the guard of each node, and return it. The answers are those of node_service."""
    results = {node: answer["guard"] for node, answer in answers.items()}
    lines = [f"{node}: {'; '.join(filter(None, (answer['msg'], '' if run.check_mode else text(answer['guard']))))}" for node, answer in results.items()]
    return Outcome(
        "Guard",
        lines=lines,
        stats={
            "gb10_guard_report": {
                "schema": SCHEMA,
                "nodes": {node: {"changed": answer["changed"], "actions": answer["actions"], **answer["guard"]} for node, answer in results.items()},
            },
            "gb10_verdict": "pass",
        },
    )
