# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Everything that runs on the nodes, from this collection or not. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import judging, node_settings, reaching
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.node_settings import SETTINGS
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

READS = {word: SETTINGS[word] for word in ("cluster", "rules", "silenced")}


def evidence(answers: Answers) -> dict[str, dict[str, t.Any]]:
    """Return by node the input of the doctor's rules."""
    by_node = {}
    for node, answer in answers.items():
        settings = {"rules": answer["rules"] or {}, "silenced": answer["silenced"] or []}
        info = answer["info"] or {}
        zombies = info.get("zombies") or {}
        by_node[node] = {
            "info": info,
            "stack": answer["stack"] or {},
            "zombies": zombies,
            "settings": settings,
            **{"failure": answer["failure"] or "", **reaching.failure(answer.get("reach"))},
        }
    return by_node


def judge(answers: Answers, run: Run) -> Outcome:
    """Judge everything that runs on the nodes, from this collection or not. No setting has to be defined."""
    record = judging.judge_stacks(evidence(answers), node_settings.of_run(answers, run))
    return dataclasses.replace(node_settings.recorded("Doctor", "gb10_doctor", record, run), lines=record["found"])
