# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The changes that protect the nodes, or revert that. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gb10.cluster.plugins.plugin_utils._protect import measures, planned
from ansible_collections.gb10.cluster.plugins.plugin_utils._protect.facts import Facts
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

#: Ids of findings that are made here.
IDS = measures.IDS
READS = {"info": "__protect_info", "read": "__protect_read", "files": "__protect_files", "measures": "__protect_measures", "failed": "__protect_failed"}


def plans(answers: Answers, run: Run) -> dict[str, dict[str, planned.Plan]]:
    """Return by node the plan of each measure, in the order of execution. A revert of all that are on by default reverts the others, too."""
    revert, by_node = boolean(run.settings["revert"]), {}
    for node, answer in answers.items():
        facts, order = Facts(answer), reversed(measures.NAMES) if revert else measures.NAMES
        more = measures.costs() if revert and {*measures.NAMES} - {*measures.costs()} <= {*answer["measures"]} else []
        by_node[node] = {name: planned.plan(name, node, facts, revert=revert) for name in order if name in [*answer["measures"], *more]}
    return by_node


def judge(answers: Answers, run: Run) -> Outcome:
    """Plan the changes. Nothing is shown yet. ``settings`` has ``revert``."""
    by_node = plans(answers, run)
    return Outcome(
        "Protection",
        returns={
            "changes": {node: [{"measure": name, **plan._asdict()} for name, plan in by_name.items() if plan.before] for node, by_name in by_node.items()},
            "said": {node: [entry for plan in by_name.values() for entry in plan.findings] for node, by_name in by_node.items()},
            "records": {node: Facts(answer).recorded for node, answer in answers.items()},
        },
    )
