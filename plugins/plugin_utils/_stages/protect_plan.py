# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What has to be done to protect the nodes, or to take that back. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gb10.cluster.plugins.plugin_utils._protect import measures, planned
from ansible_collections.gb10.cluster.plugins.plugin_utils._protect.facts import Facts
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

#: Ids of findings that are made here.
IDS = measures.IDS
READS = {"info": "__protect_info", "read": "__protect_read", "files": "__protect_files", "measures": "__protect_measures", "failed": "__protect_failed"}


def plans(answers: Answers, run: Run) -> dict[str, dict[str, planned.Plan]]:
    """Return the plan of each measure by node, in the order in which they are carried out."""
    revert, found = boolean(run.settings["revert"]), {}
    for node, answer in answers.items():
        facts, order = Facts(answer), reversed(measures.NAMES) if revert else measures.NAMES
        found[node] = {name: planned.plan(name, node, facts, revert=revert) for name in order if name in answer["measures"]}
    return found


def judge(answers: Answers, run: Run) -> Outcome:
    """Plan, and show nothing yet. ``settings`` has ``revert``."""
    found = plans(answers, run)
    return Outcome(
        "Protection",
        returns={
            "changes": {node: [{"measure": name, **one._asdict()} for name, one in by.items() if one.before] for node, by in found.items()},
            "said": {node: [entry for one in by.values() for entry in one.findings] for node, by in found.items()},
            "records": {node: Facts(answer).recorded for node, answer in answers.items()},
        },
    )
