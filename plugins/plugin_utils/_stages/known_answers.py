# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The engine's answers to questions with known answers. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

READS = {"head": "gb10_head_host"}


def judge(answers: Answers, run: Run) -> Outcome:
    """Judge the engine's answers to questions with known answers. Check mode asks nothing, and shows the saved findings."""
    first = next(iter(answers.values()))
    findings = table.on_node(first["asked"]["findings"], first["head"])
    if not findings:
        return Outcome("Known answers (would be asked)", [])
    return Outcome("Known answers", findings, stats={"gb10_verdict": table.verdict(findings, run.silenced)})
