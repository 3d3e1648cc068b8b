# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which nodes are lost. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.table import Finding

#: Ids of findings that are made here.
IDS = ("teardown.lost",)
#: Nothing but what the task names.
READS: dict[str, str] = {}
#: How to clear the nodes that answer when others do not.
WITHOUT_LOST = "-e gb10_ignore_unreachable=true"


def lost(reached: dict[str, dict[str, t.Any]], ignore: bool) -> list[Finding]:
    """Judge which nodes cannot be reached, from what Ansible said of a first task on each; with ``ignore`` they stop nothing yet."""
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
    said = "it could not be reached, so its containers were left as they are"
    return [finding("teardown.lost", node, "block", f"{said}.", remedy="bring it back and run teardown again") for node in nodes]


def judge(answers: Answers, run: Run) -> Outcome:
    """Say which nodes are lost. ``settings`` has ``ignore``, whether the others are cleared without them."""
    found = lost({node: answer["reached"] for node, answer in answers.items()}, boolean(run.settings["ignore"]))
    return Outcome("Lost nodes", found, returns={"lost": [one["node"] for one in found]})
