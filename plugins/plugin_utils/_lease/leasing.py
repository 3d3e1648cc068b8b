# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A mode that is there for one command: what is refused, what comes back, and how the command ended. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import os
import shlex
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes, record
from ansible_collections.gb10.cluster.plugins.module_utils._lock.cluster_locks import BREAK
from ansible_collections.gb10.cluster.plugins.module_utils._lock.lock_holder import Place, why_ended
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._lease import command
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, answered

Finding = dict[str, t.Any]

#: Ids of findings that are made here.
IDS = ("mode.command", "mode.lease", "mode.leased")

#: What is asked for, before any node is reached.
DECLARED_READS = {"lease": "gb10_lease", "allow": "__gb10_allow", "unit": "gb10_unit"}
READS = {"lease": "gb10_lease", "break_lock": "gb10_break_lock"}


def is_asked(given: t.Any) -> bool:
    """Return whether a lease is wanted: an empty text is none, and an empty list a mistake."""
    return given is not None and given != ""


def words_of(given: t.Any) -> list[str]:
    """Return the words of the command, none where no lease is wanted or where they are wrong, which is said before any node is reached."""
    try:
        return command.words_of(given) if is_asked(given) else []
    except ValueError:
        return []


def wrong_settings(answers: Answers) -> t.Iterator[Finding]:
    """Yield what is wrong with a lease that is asked for."""
    first = list(answers.values())[0]
    if not is_asked(first["lease"]):
        return
    example = """-e gb10_lease=./judge.sh, or with words of its own -e '{"gb10_lease": ["./judge.sh", "--turns", "500"]}'"""
    try:
        words = command.words_of(first["lease"])
    except ValueError as error:
        yield finding("mode.lease", "cluster", "block", f"gb10_lease is no command: {error}.", remedy=f"name one: {example}")
        return
    if not words:
        yield finding("mode.lease", "cluster", "block", "gb10_lease is no command: it is blank.", remedy=f"name one: {example}")
    elif not command.program_of(words[0]):
        message = f"gb10_lease names {words[0]}, which is no program that can be run on this controller (seen from {os.getcwd()})."
        yield finding("mode.lease", "cluster", "block", message, remedy="correct its path, or make it executable: chmod +x FILE")
    if first["mode"] == modes.OFF:
        message = "gb10_mode is off, and a lease is about a mode that serves."
        yield finding("mode.lease", "cluster", "block", message, remedy=f"-e gb10_mode={modes.CLUSTER} or -e gb10_mode={modes.SINGLES}")
    if "forget" in first["allow"]:
        message = "gb10_allow has forget, which deletes the record of the declared mode, and a lease returns to that mode."
        yield finding("mode.lease", "cluster", "block", message, remedy="leave forget out of gb10_allow")
    if first["unit"] == "none":
        message = "gb10_unit is none, so the nodes could not end the lease by themselves when this controller is gone."
        yield finding("mode.lease", "cluster", "block", message, remedy="leave gb10_unit out, or set it to auto or present")


def refusals(answers: Answers, undeclared: bool, changes: bool, lost: t.Sequence[str]) -> t.Iterator[Finding]:
    """Yield what on the nodes speaks against a change because of a lease: another one that lives, or what could not be brought back after this one."""
    first = list(answers.values())[0]
    for node, answer in answers.items():
        found = answer["look"].get("lease") if answered(answer["look"]) else None
        if found and found["state"] == record.ENDING:
            message = f"it ends the lease of {record.of(found)} by itself at this moment: {found['reason']}."
            remedy = "run again when it is done: the playbook status with --tags glance says so"
            yield finding("mode.leased", node, "block", message, remedy=remedy)
        elif found and found["state"] == record.LIVE and not is_free(found, first["break_lock"]):
            message = f"it is leased by {record.of(found)}."
            remedy = (
                f"wait for the command to end. A caller that is gone does not renew it, and the node ends it by itself in {found['left_seconds']} s. "
                f"When you have made sure that it no longer runs, take it over: {BREAK}{found['id']}"
            )
            yield finding("mode.leased", node, "block", message, remedy=remedy)
    if words_of(first["lease"]) and lost:
        yield finding("mode.lease", ", ".join(lost), "block", "it could not be reached, and a lease needs all nodes.", remedy="bring it back first")
    if words_of(first["lease"]) and undeclared and changes:
        message = "what runs there was never declared as a mode, so it could not be brought back after the lease."
        yield finding("mode.lease", "cluster", "block", message, remedy="declare what is to come back first: run without gb10_lease, with its gb10_mode")


def is_free(lease: t.Mapping[str, t.Any], break_lock: str | None) -> bool:
    """Return whether a lease of an earlier run may be replaced: its run is known to have ended here, or a person named it."""
    return lease["id"] == break_lock or bool(why_ended(lease["holder"], Place.here()))


def planned(words: t.Sequence[str], before: modes.Record, mode: str, wanted: t.Mapping[str, t.Any], changes: bool) -> dict[str, t.Any]:
    """Return what the plays know of a lease, empty without one. ``wanted`` are the clusters of its mode, as recorded.

    ``keeps``: what it needs is there already, and stays. ``back`` is what comes back after it, ``restore`` by node which clusters of that the node itself can
    start again: one that the lease has with the same name is not what it was. ``whole`` says whether that is all of them.
    """
    if not words:
        return {}
    back = modes.former(before)
    keeps = not changes and (not before or (before["phase"], before["mode"], before["clusters"]) == (modes.SETTLED, mode, dict(wanted)))
    had = {name: one["nodes"] for name, one in back["clusters"].items()}
    nodes = {node for names in had.values() for node in names}
    return {
        "program": os.path.basename(words[0]),
        "words": list(words),
        "keeps": keeps,
        "back": {"mode": back["mode"], "clusters": back["clusters"]},
        "restore": {node: [name for name, where in had.items() if node in where and name not in wanted] for node in nodes},
        "whole": not set(had) & set(wanted),
    }


def plan_lines(lease: t.Mapping[str, t.Any]) -> list[str]:
    """Return a lease for people, as a part of the plan."""
    if not lease:
        return []
    after = "what serves stays as it is" if lease["keeps"] else f"then back to {lease['back']['mode']}"
    return [f"  lease: {shlex.join(lease['words'])} runs on this controller, {after}"]


def ended(answers: Answers) -> dict[str, t.Any]:
    """Return how the command ended (the result of lease_command on the node that ran it), empty when it did not run to an end."""
    results = [answer["leased"] for answer in answers.values() if answered(answer.get("leased")) and "exit_code" in answer["leased"]]
    return results[0] if results else {}


def said(answers: Answers) -> str:
    """Return how a command that ran failed, empty where it did not."""
    result = ended(answers)
    return result["msg"] if result and (result["exit_code"] != 0 or result["limited"]) else ""


def remedy_for(error: t.Mapping[str, str], otherwise: str, then: str) -> str:
    """Return what helps where a step failed: what its own task says, ``otherwise`` where that says nothing, and ``then`` what follows."""
    return f"{(error['remedy'] or otherwise).rstrip('.')}; {then}"


def findings(answers: Answers, errors: t.Mapping[str, t.Mapping[str, str]]) -> list[Finding]:
    """Return what went wrong with the command; ``errors`` say by node why it could not be run, or not to its end."""
    then = "the command did not run to its end"
    found = [finding("mode.lease", node, "block", one["said"], remedy=remedy_for(one, "see the failure above", then)) for node, one in errors.items()]
    result = ended(answers)
    if said(answers):
        needed = 0 if not result["limited"] else None
        remedy = "raise gb10_lease_seconds where it needs longer" if result["limited"] else "see what it printed"
        message = f"{result['msg']}; its log on the controller: {result['log']}."
        found.append(finding("mode.command", "controller", "block", message, measured=result["exit_code"], needed=needed, remedy=remedy))
    return found


def report(lease: t.Mapping[str, t.Any], answers: Answers, before: str, during: str, after: str) -> dict[str, t.Any]:
    """Return what is passed on of a lease, empty without one. ``exit_code`` and ``seconds`` are None when the command did not run to an end."""
    if not lease:
        return {}
    result = ended(answers)
    return {
        "command": lease["words"],
        "exit_code": result.get("exit_code"),
        "limited": result.get("limited", False),
        "seconds": result.get("seconds"),
        "log": result.get("log", ""),
        "before": before,
        "during": during,
        "after": after,
    }
