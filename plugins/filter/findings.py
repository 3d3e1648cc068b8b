# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings of the stages: what nodes answered goes in, judgements come out."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.plugin_utils._init import inventory
from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs import cluster
from ansible_collections.gb10.cluster.plugins.plugin_utils._report import table
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import stage_findings


class FilterModule:
    """Filters of the collection."""

    def filters(self):
        return {
            "api_url": stage_findings.api_url,
            "failure_lines": stage_findings.failure_lines,
            "findings_verdict": table.verdict,
            "gate_findings": stage_findings.gate,
            "image_findings": stage_findings.images,
            "init_plan": inventory.plan,
            "init_writes": inventory.writes,
            "input_findings": cluster.judge_cluster,
            "model_findings": stage_findings.models,
            "proof_findings": stage_findings.proof,
            "stage_seconds": stage_findings.stage_seconds,
            "teardown_findings": stage_findings.teardown,
        }
