# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of a change of the mode, before any node is reached. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding, problem_finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._lease import layouts, leasing
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.checks import CLUSTER
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.table import Finding

#: Ids of findings that are made here.
IDS = ("mode.declared", "mode.layout", "mode.names", "mode.profile")
#: The declared settings, before any profile is read. A wrong profile is reported when the inputs of its cluster are judged.
READS = {"one": "gb10_single", **layouts.READS, **leasing.DECLARED_READS}


def shared_names(answers: Answers) -> list[str]:
    """Return the names that more than one cluster of the inventory would have."""
    groups = {(service.name, *service.nodes) for service in layouts.every(answers) if 1 < len(service.nodes) < len(answers)}
    names = [list(answers.values())[0]["pair"], *(answer["single"] for answer in answers.values()), *(name for name, *_nodes in groups)]
    return sorted({name for name in names if names.count(name) > 1})


def wrong_settings(answers: Answers) -> t.Iterator[Finding]:
    """Yield a finding for each wrong setting."""
    first = list(answers.values())[0]
    wrong = functools.partial(finding, "mode.declared", CLUSTER, "block")
    known = layouts.known(first["layouts"])
    if first["mode"] not in known:
        yield wrong(
            f"gb10_mode is {first['mode'] or 'not set'}; expected one of {', '.join(known)}.",
            remedy="name one, such as -e gb10_mode=cluster; gb10_layouts in the inventory defines others",
        )
    if first["one"]:
        remedy = "leave gb10_single out; with serve it starts the service of one node"
        yield wrong(f"gb10_single is {first['one']}, but a mode is about all nodes.", remedy=remedy)
    problems = list(layouts.problems(first["layouts"], list(answers)))
    yield from (problem_finding(problem, CLUSTER) for problem in problems)
    for name in shared_names(answers) if not problems else ():
        yield finding(
            "mode.names",
            CLUSTER,
            "block",
            f"{name} is the name of more than one cluster, so their containers and directories would be the same.",
            remedy="give each host its own gb10_single_name, and the pair another gb10_cluster_name",
        )
    if first["mode"] == modes.SINGLES and not layouts.services(answers):
        yield finding(
            "mode.profile",
            CLUSTER,
            "block",
            "no host has a gb10_single_profile, so there is nothing to start.",
            remedy="set gb10_single_profile for each host that should serve its own model",
        )
    yield from leasing.wrong_settings(answers)


def judge(answers: Answers, run: Run) -> Outcome:
    """Judge the settings of a change before any node is reached. Returns the engines of the mode as :func:`layouts.turns` does."""
    findings = list(wrong_settings(answers))
    is_broken = any(entry["id"] == "mode.layout" for entry in findings)
    return Outcome("Mode", findings or None, returns=layouts.turns([] if is_broken else layouts.services(answers), answers))
