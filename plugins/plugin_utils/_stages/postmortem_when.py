# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The time that the nodes are asked about. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import postmortem
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

#: Only the answers that the task names.
READS: dict[str, str] = {}


def judge(answers: Answers, run: Run) -> Outcome:
    """Return the time that all nodes are asked about, as ``until`` (0: each node's own last minute)."""
    given = run.settings.get("at") or 0
    first = postmortem.first([postmortem.ends(node, answer["found"]) for node, answer in answers.items()])
    at = float(given) or first.at
    return Outcome(returns={"until": at + postmortem.AFTER if at else 0})
