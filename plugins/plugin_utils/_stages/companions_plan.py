# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What leads each node to the companions of its mode. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import judging, node_settings
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.node_settings import SETTINGS
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import companions
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.table import Finding

#: Ids of findings that are made here.
IDS = ("companion.seen",)
READS = {**SETTINGS, "cluster": "__companions_cluster", "profile": "__companions_profile"}


def unseen_companions(errors: t.Sequence[dict[str, t.Any]], node: str) -> list[Finding]:
    """Say that companions could not be seen: what is not seen is neither started nor taken for ended."""
    found = [error for error in errors if error["section"].partition(".")[0] == "companions"]
    return [finding("companion.seen", node, "unknown", f"companions: {error['error']}", remedy=error["remedy"] or "look at the node") for error in found]


def judge(answers: Answers, run: Run) -> Outcome:
    """Say what leads each node to the mode, and judge whether it goes there. ``settings`` has ``up``, whether companions are to be started."""
    plans = {}
    for node, answer in answers.items():
        plans[node] = companions.plan(answer["companions"], answer["info"]["companions"] or [], answer["info"]["images"] or {}, answer["mode"])
    # What is not seen is said once, and not by each rule that asks for it.
    found = [one for node, answer in answers.items() for one in unseen_companions(answer["info"]["errors"], node)]
    if not found and boolean(run.settings["up"]) and any(plan["start"] for plan in plans.values()):
        settings = node_settings.of_nodes(answers, ["api_port"])
        asked = {node: {"info": answer["info"], "zombies": {"findings": []}, "settings": settings[node]} for node, answer in answers.items()}
        together = next(iter(answers.values()))["mode"] == "cluster"
        # A single is a cluster of one node, and the mode off has no profile.
        for names in [list(asked)] if together else [[node] for node in asked]:
            own = {node: asked[node] for node in names}
            if not together:
                own[names[0]]["settings"].update(head=True, peers=[], ports={SETTINGS["api_port"]: int(answers[names[0]]["api_port"])})
            found += judging.judge_companions(own, answers[names[0]]["profile"] or None, node_settings.of_run(answers, run))
    return Outcome("Companions", found or None, returns={"nodes": plans})
