# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings of the stages: what nodes answered goes in, judgements come out."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.plugin_utils import _findings, _init, _inputs, _probe, _rules, _table


class FilterModule:
    """Filters of the collection."""

    def filters(self):
        return {
            "api_url": _findings.api_url,
            "doctor_rules": _rules.judge_stacks,
            "fabric_findings": _rules.judge_probe,
            "fabric_lines": _probe.lines,
            "fabric_rounds": _probe.plan,
            "failure_lines": _findings.failure_lines,
            "findings_verdict": _table.verdict,
            "gate_findings": _findings.gate,
            "image_findings": _findings.images,
            "init_plan": _init.plan,
            "init_writes": _init.writes,
            "input_findings": _inputs.judge_cluster,
            "model_findings": _findings.models,
            "preflight_rules": _rules.judge,
            "proof_findings": _findings.proof,
            "stage_seconds": _findings.stage_seconds,
            "teardown_findings": _findings.teardown,
        }
