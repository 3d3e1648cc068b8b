# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A mode for one command: its checks, the mode that follows it, and the result of the command. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import functools
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

#: Ids of the findings of this file.
IDS = ("mode.command", "mode.lease", "mode.leased")

#: The requested settings, before any node is contacted.
DECLARED_READS = {"lease": "gb10_lease", "allow": "__gb10_allow", "unit": "gb10_unit"}
READS = {"lease": "gb10_lease", "break_lock": "gb10_break_lock"}


def is_asked(given: t.Any) -> bool:
    """Return whether a lease is requested. Empty text requests none; an empty list is a mistake."""
    return given is not None and given != ""


def words_of(given: t.Any) -> list[str]:
    """Return the words of the command; none without a lease, or for an invalid command. That one is refused before any node is contacted."""
    with contextlib.suppress(ValueError):
        return command.words_of(given) if is_asked(given) else []
    return []


def wrong_settings(answers: Answers) -> t.Iterator[Finding]:
    """Yield a finding for each invalid setting of a requested lease."""
    first = list(answers.values())[0]
    if not is_asked(first["lease"]):
        return
    wrong = functools.partial(finding, "mode.lease", "cluster", "block")
    example = """-e gb10_lease=./judge.sh, or with arguments: -e '{"gb10_lease": ["./judge.sh", "--turns", "500"]}'"""
    try:
        words = command.words_of(first["lease"])
    except ValueError as error:
        yield wrong(f"gb10_lease is not a command: {error}.", remedy=example)
        return
    if not words:
        yield wrong("gb10_lease is not a command: it is blank.", remedy=example)
    elif not command.program_of(words[0]):
        message = f"gb10_lease names {words[0]}, which is not an executable program on this controller (seen from {os.getcwd()})."
        yield wrong(message, remedy="correct its path, or make it executable: chmod +x FILE")
    if first["mode"] == modes.OFF:
        yield wrong("gb10_mode is off, but a lease needs a mode that serves.", remedy=f"-e gb10_mode={modes.CLUSTER}, or another mode that has an engine")
    if "forget" in first["allow"]:
        yield wrong("gb10_allow contains forget, which removes the declared mode that a lease has to restore.", remedy="remove forget from gb10_allow")
    if first["unit"] == "none":
        message = "gb10_unit is none, so the nodes could not end the lease by themselves when this controller is gone."
        yield wrong(message, remedy="remove gb10_unit, or set it to enabled or present")


def refusals(answers: Answers, undeclared: bool, changes: bool, lost: t.Sequence[str]) -> t.Iterator[Finding]:
    """Yield the findings about leases that refuse a change: another live lease, or a mode that could not be restored after this one."""
    first = list(answers.values())[0]
    for node, answer in answers.items():
        lease = answer["look"].get("lease") if answered(answer["look"]) else None
        if lease and lease["state"] == record.ENDING:
            message = f"it is ending the lease of {record.of(lease)}: {lease['reason']}."
            remedy = "run again when it is done: the playbook status with --tags glance shows it"
            yield finding("mode.leased", node, "block", message, remedy=remedy)
        elif lease and lease["state"] == record.LIVE and not is_free(lease, first["break_lock"]):
            message = f"it is leased by {record.of(lease)}."
            remedy = (
                f"wait for the command to end. Without a renewal the node ends the lease in {lease['left_seconds']} s. "
                f"When you have made sure that it no longer runs, take it over: {BREAK}{lease['id']}"
            )
            yield finding("mode.leased", node, "block", message, remedy=remedy)
    if words_of(first["lease"]) and lost:
        yield finding("mode.lease", ", ".join(lost), "block", "it could not be reached, and a lease needs all nodes.", remedy="bring it back first")
    if words_of(first["lease"]) and undeclared and changes:
        message = "the running engines were never declared as a mode, so they could not be restored after the lease."
        yield finding("mode.lease", "cluster", "block", message, remedy="declare their mode first: run without gb10_lease, with that gb10_mode")


def is_free(lease: t.Mapping[str, t.Any], break_lock: str | None) -> bool:
    """Return whether an earlier run's lease may be replaced: the run is known to have ended, or a person named its id."""
    return lease["id"] == break_lock or bool(why_ended(lease["holder"], Place.here()))


def planned(words: t.Sequence[str], before: modes.Record, mode: str, wanted: t.Mapping[str, t.Any], changes: bool) -> dict[str, t.Any]:
    """Return a lease's plan for the plays, empty without a lease. ``wanted`` are the clusters of its mode, as recorded.

    ``keeps``: its mode already runs, and stays. ``back``: the mode after the lease. ``restore``: by node, the clusters of that mode that the node can restart
    itself, except those whose names the lease also uses. ``whole``: whether these are all clusters.
    """
    if not words:
        return {}
    back = modes.former(before)
    keeps = not changes and (not before or (before["phase"], before["mode"], before["clusters"]) == (modes.SETTLED, mode, dict(wanted)))
    had = {name: entry["nodes"] for name, entry in back["clusters"].items()}
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
    """Return the lines of a lease in the printed plan."""
    if not lease:
        return []
    after = "what serves stays as it is" if lease["keeps"] else f"then back to {lease['back']['mode']}"
    return [f"  lease: {shlex.join(lease['words'])} runs on this controller, {after}"]


def ended(answers: Answers) -> dict[str, t.Any]:
    """Return the command's result (from lease_command on the node that ran it), empty when it did not finish."""
    return next((answer["leased"] for answer in answers.values() if answered(answer.get("leased")) and "exit_code" in answer["leased"]), {})


def said(answers: Answers) -> str:
    """Return the failure of a command that ran, empty without one."""
    result = ended(answers)
    return result["msg"] if result and (result["exit_code"] != 0 or result["limited"]) else ""


def remedy_for(error: t.Mapping[str, str], otherwise: str, then: str) -> str:
    """Return the remedy for a failed step: its own or ``otherwise``, followed by ``then``."""
    return f"{(error['remedy'] or otherwise).rstrip('.')}; {then}"


def findings(answers: Answers, errors: t.Mapping[str, t.Mapping[str, str]]) -> list[Finding]:
    """Return the findings about the command's failures; ``errors`` has by node why it could not be started or finished."""
    then = "the command did not run to its end"
    failures = [finding("mode.lease", node, "block", error["said"], remedy=remedy_for(error, "see the failure above", then)) for node, error in errors.items()]
    result = ended(answers)
    if said(answers):
        needed, remedy = (None, "raise gb10_lease_seconds if it needs longer") if result["limited"] else (0, "see its output")
        message = f"{result['msg']}; its log on the controller: {result['log']}."
        failures.append(finding("mode.command", "controller", "block", message, measured=result["exit_code"], needed=needed, remedy=remedy))
    return failures


def report(lease: t.Mapping[str, t.Any], answers: Answers, before: str, during: str, after: str) -> dict[str, t.Any]:
    """Return a lease's part of the report, empty without one. ``exit_code`` and ``seconds`` are None when the command did not finish."""
    if not lease:
        return {}
    result = {"exit_code": None, "limited": False, "seconds": None, "log": "", **ended(answers)}
    shown = {word: result[word] for word in ("exit_code", "limited", "seconds", "log")}
    return {"command": lease["words"], **shown, "before": before, "during": during, "after": after}
