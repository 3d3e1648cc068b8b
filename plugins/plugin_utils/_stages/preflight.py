# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The preflight of the nodes. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import judging, node_settings
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.node_settings import SETTINGS
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered

READS = SETTINGS


def evidence(answers: Answers, executor: str) -> dict[str, dict[str, t.Any]]:
    """Return by node the input of the preflight's rules. ``executor`` is empty while it depends on the image, which is unknown."""
    # The port where the ranks meet. While the executor is unknown, the stage that creates the containers checks it.
    meeting = {"ray": ["ray_port"], "native": ["master_port"] if len(answers) > 1 else []}.get(executor, [])
    settings = node_settings.of_nodes(answers, ["api_port", *meeting])
    return {
        node: {"info": answer["info"], "zombies": answer["waited"] if answered(answer["waited"]) else answer["info"]["zombies"], "settings": settings[node]}
        for node, answer in answers.items()
    }


def judge(answers: Answers, run: Run) -> Outcome:
    """Judge by the rules of the preflight. ``settings`` has ``profile`` and ``executor`` (empty while it depends on an unknown image)."""
    return node_settings.recorded(
        "Preflight",
        "gb10_preflight",
        judging.judge(evidence(answers, run.settings["executor"]), run.settings["profile"], node_settings.of_run(answers, run)),
        run,
    )
