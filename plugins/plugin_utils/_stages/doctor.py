# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What runs on the nodes, from this collection or not. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import judging, node_settings, reaching
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.node_settings import SETTINGS
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

READS = {word: SETTINGS[word] for word in ("cluster", "disk_gib", "rules", "silenced")}


def evidence(answers: Answers) -> dict[str, dict[str, t.Any]]:
    """Return by node what the rules of the doctor judge."""
    asked = {}
    for node, answer in answers.items():
        settings = {"rules": answer["rules"] or {}, "silenced": answer["silenced"] or [], "disk_gib": int(answer["disk_gib"] or 20)}
        info = answer["info"] or {}
        zombies = info.get("zombies") or {}
        asked[node] = {
            "info": info,
            "stack": answer["stack"] or {},
            "zombies": zombies,
            "settings": settings,
            **{"failure": answer["failure"] or "", **reaching.failure(answer.get("reach"))},
        }
    return asked


def judge(answers: Answers, run: Run) -> Outcome:
    """Judge what runs on the nodes, from this collection or not. No setting needs to be defined."""
    record = judging.judge_stacks(evidence(answers), node_settings.of_run(answers, run))
    return dataclasses.replace(node_settings.recorded("Doctor", "gb10_doctor", record, run), lines=record["found"])
