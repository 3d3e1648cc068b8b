# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The measured traffic of the links between the nodes. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import dataclasses

from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import judging, node_settings, probe_evidence
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.node_settings import SETTINGS
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

READS = SETTINGS


def evidence(answers: Answers) -> Answers:
    """Return by node the input of the fabric probe's rules, without the measurements."""
    settings = node_settings.of_nodes(answers)
    return {node: {"info": answer["info"], "settings": settings[node], "rdma": answer["ready"]["rdma"]} for node, answer in answers.items()}


def judge(answers: Answers, run: Run) -> Outcome:
    """Judge the measurements of the links. ``settings`` has ``profile``."""
    record = judging.judge_probe(
        evidence(answers),
        [result for answer in answers.values() for result in answer["measured"] or []],
        run.settings["profile"],
        node_settings.of_run(answers, run),
    )
    return dataclasses.replace(node_settings.recorded("Fabric", "gb10_fabric", record, run), lines=probe_evidence.lines(record["probe"]))
