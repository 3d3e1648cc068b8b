# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What sweeps the nodes. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._sweep import declared
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

#: Version of what is passed on.
SCHEMA = 1
ABSENT = "-e gb10_sweep=absent"
READS = {"minutes": "gb10_sweep_minutes", "alerts": "__sweep_alerts"}


def found_text(found: t.Mapping[str, t.Any]) -> str:
    """Return what the last sweep found, in words."""
    if found.get("error"):
        return str(found["error"])
    if not found["last_sweep"]:
        return "none was done yet"
    if found["quiet"]:
        return f"last {found['last_sweep']}: silent, {found['quiet']}"
    problems = "; ".join(f"{one['id']}: {one['text']}" for one in found["problems"])
    return f"last {found['last_sweep']}: {problems or 'all is well'}"


def text(found: t.Mapping[str, t.Any]) -> str:
    """Return what of the sweep is on a node in a line, empty where there is nothing."""
    if not found.get("installed"):
        return ""
    state = {True: "active", False: "not active", None: "state not known"}[found["active"]]
    undelivered = "; ".join(f"{name} did not take the last message: {why}" for name, why in found["undelivered"].items())
    ended = "" if undelivered or not found["failed"] else "the last one failed, see journalctl -u gb10-sweep"
    last = f"last alert {found['last_alert']}" if found["last_alert"] else "no alert yet"
    return f"sweep: {'; '.join(filter(None, (state, found_text(found), ended, undelivered, last)))}"


def stays(found: t.Mapping[str, t.Mapping[str, t.Any]]) -> list[str]:
    """Return in one line on which nodes the sweep stays after their cluster is gone, and how it is taken away; no line where there is none."""
    nodes = [node for node, one in found.items() if one.get("installed")]
    return [f"The sweep stays on {', '.join(nodes)}; ansible-playbook -i inventories/NAME gb10.cluster.sweep {ABSENT} takes it away."] if nodes else []


def judge(answers: Answers, run: Run) -> Outcome:
    """Show it, and pass it on; the answers are those of health_sweep."""
    found = {node: answer["sweep"] for node, answer in answers.items()}
    said = [f"{node}: {answer['msg']}" for node, answer in found.items()]
    first = next(iter(answers.values()))
    if any(answer["sweep"]["installed"] for answer in found.values()):
        nowhere = "nowhere: gb10_sweep_alerts is empty, so the journal and the playbook status alone have what is found"
        where = ", ".join(map(declared.name_of, first["alerts"])) or nowhere
        said.append(f"Every {first['minutes']} minutes; alerts go to {where}.")
    nodes = {node: {"changed": answer["changed"], "actions": answer["actions"], **answer["sweep"]} for node, answer in found.items()}
    return Outcome("Sweep", lines=said, stats={"gb10_sweep_report": {"schema": SCHEMA, "nodes": nodes}, "gb10_verdict": "pass"})
