# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan that brings each node to the companions of its mode. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gb10.cluster.plugins.module_utils._companion import container, declared, running
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import judging, node_settings, tenant_checks
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.node_settings import SETTINGS
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import companions
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.groups import grouped
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.table import Finding

#: Ids of findings that are made here.
IDS = ("companion.container", "companion.image", "companion.port", "companion.seen")
READS = {
    **SETTINGS, "profile": "__companions_profile", "stop_grace": "gb10_stop_grace", "offline": "gb10_offline",
}  # fmt: skip


def unseen_companions(errors: t.Sequence[dict[str, t.Any]], node: str) -> list[Finding]:
    """Return findings for companions that could not be read. Such companions are not started, and do not count as ended."""
    relevant = [error for error in errors if error["section"].partition(".")[0] == "companions"]
    return [finding("companion.seen", node, "unknown", f"companions: {error['error']}", remedy=error["remedy"] or "look at the node") for error in relevant]


def in_the_way(node: str, answer: dict[str, t.Any], why: t.Mapping[str, str]) -> t.Iterator[Finding]:
    """Yield the obstacles to a start of companions on a node: a name or port that is taken, or an image that is missing and not pulled."""
    info = answer["info"]
    rows = {row["name"]: row for row in info["companions"] or [] if row["declared"]}
    for companion in declared.up_in(answer["companions"], answer["mode"]):
        name, row = container.name_for(companion["name"]), rows[companion["name"]]
        # docker_container looks only at the name, and would replace any container that has it.
        if row["state"] == running.FOREIGN or row["container"] not in ("", name):
            reason = (
                f"companion {companion['name']} already has the container {row['container']}"
                if row["container"]
                else "a container that is not ours has that name"
            )
            yield finding(
                "companion.container",
                node,
                "block",
                f"{name} cannot be created: {reason}",
                remedy=f"Rename or remove it: docker rename {row['container'] or name} OTHER",
            )
        pulled = "@" in companion["image"] and not boolean(answer["offline"])
        if companion["image"] and not pulled and (info["images"] or {companion["image"]: True}).get(companion["image"]) is None:
            yield finding(
                "companion.image",
                node,
                "block",
                f"image {companion['image']} of the companion {companion['name']} is not on {node}",
                remedy=f"Bring it there: docker pull {companion['image']}, or docker load for one that no registry has.",
            )
        listening = [entry for entry in info["listeners"] or [] if companion["name"] in why and entry["port"] == companion["port"]]
        for entry in (entry for entry in listening if not entry["container"] or entry["container"] != row["container"]):
            yield finding(
                "companion.port",
                node,
                "block",
                f"port {companion['port']} of the companion {companion['name']} is taken by {tenant_checks.holder(entry)}",
                remedy="Stop what listens there, or choose another port for it in gb10_companions.",
            )


def judge(answers: Answers, run: Run) -> Outcome:
    """Plan the way to the mode on each node, and judge whether it is possible. ``settings`` has ``up``, whether companions are to be started."""
    up, plans = boolean(run.settings["up"]), {}
    for node, answer in answers.items():
        # Check mode pulls nothing, and assumes that a pull succeeds.
        plans[node] = companions.plan(
            answer["companions"], answer["info"], companions.Wanted(answer["mode"], up, int(answer["stop_grace"]), "missing" if run.check_mode else "never")
        )
    # Companions that could not be read are reported once, not by each rule that needs them.
    findings = [entry for node, answer in answers.items() for entry in unseen_companions(answer["info"]["errors"], node)]
    if not findings and up and any(plan["up"] for plan in plans.values()):
        # Each engine with its own nodes; a node without an engine alone.
        for names in grouped(((answer["cluster"], "" if answer["profile"] else node), node) for node, answer in answers.items()).values():
            settings = node_settings.of_nodes({node: answers[node] for node in names}, ["api_port"])
            evidence = {node: {"info": answers[node]["info"], "zombies": {"findings": []}, "settings": settings[node]} for node in names}
            findings += judging.judge_companions(evidence, answers[names[0]]["profile"] or None, node_settings.of_run(answers, run))
        findings += [entry for node, answer in answers.items() for entry in in_the_way(node, answer, plans[node]["why"])]
    # Ansible prints the whole result of a failed task, so a plan that is not carried out is left out.
    stops = table.worst(table.silence(findings, run.silenced)) in table.STOPPING
    return Outcome("Companions", findings or None, returns={} if stops else {"nodes": plans})
