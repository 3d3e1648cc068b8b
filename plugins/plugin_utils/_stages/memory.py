# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The caches that were not dropped completely. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

#: Only the answers that the task names.
READS: dict[str, str] = {}


def judge(answers: Answers, run: Run) -> Outcome:
    """Show the caches that were not dropped completely. Nothing is shown if all were."""
    return Outcome(
        "Memory",
        [entry for node, answer in answers.items() for word in ("files", "caches") for entry in table.on_node(answer[word]["findings"], node)] or None,
    )
