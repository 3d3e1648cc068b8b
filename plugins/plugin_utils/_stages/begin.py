# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cluster may change from here on. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

#: Nothing but what the task names.
READS: dict[str, str] = {}


def judge(answers: Answers, run: Run) -> Outcome:
    """Report that the cluster may change from here on, so that its verdict is unknown until the next check."""
    return Outcome(stats={"gb10_verdict": "unknown"})
