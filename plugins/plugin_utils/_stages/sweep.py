# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The sweep of each node. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.module_utils._sweep import declared
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

#: Version of the returned statistics.
SCHEMA = 1
READS = {"minutes": "gb10_sweep_minutes", "alerts": "__protect_sweep_alerts"}


def judge(answers: Answers, run: Run) -> Outcome:
    """Show the sweep of each node, and return it. The answers are those of node_service."""
    results = {node: answer["sweep"] for node, answer in answers.items()}
    lines = [f"{node}: {answer['msg']}" for node, answer in results.items()]
    first = next(iter(answers.values()))
    if any(answer["sweep"]["installed"] for answer in results.values()):
        nowhere = "nowhere: gb10_sweep_alerts is empty, so the journal and the playbook status alone have what is found"
        where = ", ".join(map(declared.name_of, first["alerts"])) or nowhere
        lines.append(f"Every {first['minutes']} minutes; alerts go to {where}.")
    nodes = {node: {"changed": answer["changed"], "actions": answer["actions"], **answer["sweep"]} for node, answer in results.items()}
    return Outcome("Sweep", lines=lines, stats={"gb10_sweep_report": {"schema": SCHEMA, "nodes": nodes}, "gb10_verdict": "pass"})
