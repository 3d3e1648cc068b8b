# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lost nodes of a teardown. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.table import Finding

#: Ids of findings that are made here.
IDS = ("teardown.lost",)
#: Only the answers that the task names.
READS: dict[str, str] = {}
#: The option that clears the nodes that answer, without the others.
WITHOUT_LOST = "-e gb10_allow=lost_node"


def lost(reached: dict[str, dict[str, t.Any]], ignore: bool) -> list[Finding]:
    """Judge which nodes cannot be reached, by Ansible's result of a first task on each. With ``ignore`` they only warn."""
    return [
        finding(
            "teardown.lost",
            node,
            "warn" if ignore else "block",
            f"it cannot be reached, so what runs there is unknown: {' '.join(str(answer.get('msg', '')).split())}",
            remedy="bring it back and run teardown again" if ignore else f"see that ssh answers there; to clear the other nodes without it: {WITHOUT_LOST}",
        )
        for node, answer in reached.items()
        if answer.get("unreachable")
    ]


def left_alone(nodes: t.Iterable[str]) -> list[Finding]:
    """Report at the end which nodes were never checked: a teardown without them is incomplete."""
    message = "it could not be reached, so its containers were left as they are"
    return [finding("teardown.lost", node, "block", f"{message}.", remedy="bring it back and run teardown again") for node in nodes]


def judge(answers: Answers, run: Run) -> Outcome:
    """Report which nodes are lost. ``settings`` has ``ignore``, whether the others are cleared without them."""
    findings = lost({node: answer["reached"] for node, answer in answers.items()}, boolean(run.settings["ignore"]))
    return Outcome("Lost nodes", findings, returns={"lost": [entry["node"] for entry in findings]})
