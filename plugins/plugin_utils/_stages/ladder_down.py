# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The check between two rungs: the cluster is down, and its memory is released. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import ladder
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered

#: Ids of findings that are made here.
IDS = ("ladder.return",)
READS = {**ladder.READS, "fault": "__ladder_fault"}


def no_length(answers: Answers) -> str:
    """Return why no context length is left to start: the last good rung did not start again, or no rung was good."""
    first = next(iter(answers.values()))["climb"]
    if first["rung"]:
        return f"the last good rung, {first['rung']}, did not start again: {ladder.error_of(answers, 'fault')}"
    return f"no rung was good: {first['reason']}"


def judge(answers: Answers, run: Run) -> Outcome:
    """Judge whether a stop took the cluster down and released its memory. Returns ``off``: why nothing may be started any more, or empty.

    The answer is ``memory`` (node_samples_info). Before the first rung there may be no earlier value to compare it with. ``settings`` has ``context``,
    the length to start next, 0 if there is none.
    """
    error, reasons = ladder.error_of(answers), []
    for node, answer in answers.items():
        memory = answer["memory"]
        tried = bool(answer["climb"]["rungs"])
        if not answered(memory) or memory is None:
            reasons += [f"{node}: whether memory was released is unknown"] if tried and not error else []
        elif memory["verdict"] != "pass" and (tried or memory["verdict"] != "unknown"):
            reasons.append(f"{node}: {memory['msg']}")
    down = "; ".join([*([f"the cluster could not be taken down: {error}"] if error else []), *reasons])
    findings = [finding("ladder.return", "cluster", "block", f"{down}.", remedy="see the doctor: it names what holds memory")] if down else None
    return Outcome("Ladder", findings, returns={"off": "; ".join([*([] if int(run.settings["context"]) else [no_length(answers)]), *filter(None, [down])])})
