# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The logs of each node on the controller, and the last lines of its engine's log. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered

#: Only the answers that the task names.
READS: dict[str, str] = {}


def node_lines(node: str, answer: dict[str, t.Any]) -> list[str]:
    """Return the lines about a node."""
    logs = answer["logs"]
    if not answered(logs):
        return [f"{node}: no logs: {(logs or {}).get('msg') or 'not reached'}"]
    return [
        f"{node}: {len(logs['files'])} files in {logs['dest']}",
        *[f"  {error['source']}: {error['error']}" for error in logs["errors"]],
        *(f"  {line}" for line in answer["end"] or []),
    ]


def judge(answers: Answers, run: Run) -> Outcome:
    """Show where the logs of every node are. The answers are ``logs`` (node_logs) and ``end``, the last lines of its engine's log."""
    failure = "" if any(answered(answer["logs"]) for answer in answers.values()) else "no node sent its logs"
    lines = [line for node, answer in answers.items() for line in node_lines(node, answer)]
    return Outcome(
        "Logs", lines=lines, failure=failure, stats={"gb10_logs": {node: (answer["logs"] or {}).get("dest", "") for node, answer in answers.items()}}
    )
