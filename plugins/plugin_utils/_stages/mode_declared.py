# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of a change of the mode, before any node is reached. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._lease import leasing
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.table import Finding

#: Ids of findings that are made here.
IDS = ("mode.declared", "mode.names", "mode.profile")
#: The declared settings, before any profile is read. A wrong profile is reported when the inputs of its cluster are judged.
READS = {
    "mode": "gb10_mode",
    "pair": "gb10_cluster_name",
    "single": "gb10_single_name",
    "single_source": "gb10_single_profile",
    "one": "gb10_single",
    **leasing.DECLARED_READS,
}


def wrong_settings(answers: Answers, has_singles: bool) -> t.Iterator[Finding]:
    """Yield a finding for each wrong setting."""
    first = list(answers.values())[0]
    if not first["mode"]:
        yield finding(
            "mode.declared",
            "cluster",
            "block",
            "gb10_mode is not set; expected cluster, singles or off.",
            remedy=f"name one: -e gb10_mode={modes.CLUSTER}, -e gb10_mode={modes.SINGLES} or -e gb10_mode={modes.OFF}",
        )
    if first["one"]:
        yield finding(
            "mode.declared",
            "cluster",
            "block",
            f"gb10_single is {first['one']}, but a mode is about all nodes.",
            remedy="leave gb10_single out; with serve it starts the service of one node",
        )
    names = [answer["single"] for answer in answers.values()]
    for name in sorted({name for name in names if names.count(name) > 1 or name == first["pair"]}):
        yield finding(
            "mode.names",
            "cluster",
            "block",
            f"{name} is the name of more than one cluster, so their containers and directories would be the same.",
            remedy="give each host its own gb10_single_name, and the pair another gb10_cluster_name",
        )
    if first["mode"] == modes.SINGLES and not has_singles:
        yield finding(
            "mode.profile",
            "cluster",
            "block",
            "no host has a gb10_single_profile, so there is nothing to start.",
            remedy="set gb10_single_profile for each host that should serve its own model",
        )
    yield from leasing.wrong_settings(answers)


def judge(answers: Answers, run: Run) -> Outcome:
    """Judge the settings of a change before any node is reached. Returns ``singles``: by node, ``name``, ``head`` and ``profile`` of its service."""
    singles = {
        node: {"name": answer["single"], "head": node, "profile": answer["single_source"]}
        for node, answer in answers.items()
        if answer["mode"] == modes.SINGLES and answer["single_source"]
    }
    return Outcome("Mode", list(wrong_settings(answers, bool(singles))) or None, returns={"singles": singles})
