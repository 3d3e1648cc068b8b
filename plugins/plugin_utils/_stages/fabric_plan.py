# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pairs of nodes that probe each other. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import probe_evidence
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import fabric
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

READS = fabric.READS


def judge(answers: Answers, run: Run) -> Outcome:
    """Plan the rounds of the probe. Nothing is shown."""
    return Outcome(returns={"rounds": probe_evidence.plan(fabric.evidence(answers))})
