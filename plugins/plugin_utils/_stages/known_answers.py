# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the engine answered to questions whose answers are known. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

READS = {"head": "gb10_head_host"}


def judge(answers: Answers, run: Run) -> Outcome:
    """Judge what the engine answered to questions whose answers are known. Check mode asks nothing, and shows what is kept."""
    first = next(iter(answers.values()))
    found = table.on_node(first["asked"]["findings"], first["head"])
    if not found:
        return Outcome("Known answers (would be asked)", [])
    return Outcome("Known answers", found, stats={"gb10_verdict": table.verdict(found, run.silenced)})
