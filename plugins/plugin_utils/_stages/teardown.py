# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The check that a teardown left nothing. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._ladder import recorded
from ansible_collections.gb10.cluster.plugins.plugin_utils._report import units
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.tenant_checks import holder
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import companions, mode, protect, reach
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.table import Finding

#: Ids of findings that are made here.
IDS = ("teardown.containers", "teardown.ports", "teardown.seen", "teardown.unit")
READS = {"cluster": "gb10_cluster_name"}


def findings_of(info: dict[str, t.Any], node: str, cluster: str, memory: dict[str, t.Any], units_left: t.Sequence[str] = ()) -> list[Finding]:
    """Judge that nothing of ``cluster`` is left on a node: no container, no unit, no listener on its ports, no used memory.

    ``memory`` is the answer of ``node_samples_info``. ``units_left`` has the units that still exist.
    """
    errors = [error for error in info["errors"] if error["section"] in ("docker", "containers", "listeners")]
    if errors:
        return [finding("teardown.seen", node, "unknown", f"{error['section']}: {error['error']}", remedy="look at the node") for error in errors]
    left = [container["name"] for container in info["containers"] if container["cluster"] == cluster]
    held = "; ".join(f"port {listener['port']} is held by {holder(listener)}" for listener in info["listeners"])
    return [
        finding(
            "teardown.containers",
            node,
            "block" if left else "pass",
            f"left: {', '.join(left)}." if left else f"no container of {cluster}.",
            measured=left,
            needed=[],
            remedy="run teardown.yml again" if left else "",
        ),
        *(
            finding("teardown.unit", node, "block", f"the unit {name} is left, or its files are.", measured=name, remedy="run teardown.yml again")
            for name in units_left
        ),
        finding(
            "teardown.ports",
            node,
            "warn" if held else "pass",
            f"{held}." if held else "its ports are free.",
            remedy="stop it if it should not run: it is not part of this cluster" if held else "",
        ),
        # Unreleased memory only warns, so unknown memory only warns, too.
        *table.on_node([{**entry, "verdict": "warn"} if entry["verdict"] == "unknown" else entry for entry in memory["findings"]], node),
    ]


def judge(answers: Answers, run: Run) -> Outcome:
    """Judge that nothing is left. In check mode the engine still serves, so what would remain is not checked.

    ``settings`` has ``lost``, the nodes that could not be reached, and ``keeps_unit``, whether the units are to stay.
    """
    containers = {node: answer["kept"] for node, answer in answers.items() if answered(answer.get("kept"))}
    services = {node: container.get("services") or {} for node, container in containers.items()}
    kept = protect.remaining({node: container["protection"] for node, container in containers.items()})
    kept += units.remaining(services)
    kept += recorded.remaining({node: container.get("ladder") or {} for node, container in containers.items()})
    kept += companions.remaining({node: (answer.get("node") or {}).get("companions") or [] for node, answer in answers.items()})
    kept += mode.remaining({node: (answer.get("node") or {}).get("mode") or {} for node, answer in answers.items()}, next(iter(answers.values()))["cluster"])
    away = reach.left_alone(run.settings["lost"])
    if run.check_mode:
        return Outcome("Left (would be checked)", away, lines=kept)
    left = {} if boolean(run.settings.get("keeps_unit") or False) else {node: units.left(node_services) for node, node_services in services.items()}
    findings = [
        entry
        for node, answer in answers.items()
        for entry in findings_of(answer["node"], node, answer["cluster"], answer["memory"], left.get(node, ()))
    ]
    findings += away
    return Outcome("Left", findings, lines=kept, stats={"gb10_teardown": findings, "gb10_verdict": table.verdict(findings, run.silenced), "gb10_endpoint": ""})
