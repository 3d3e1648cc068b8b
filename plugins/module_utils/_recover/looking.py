# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One look of a node at an engine: its own evidence, the answers of the other nodes, and what they mean. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import boot_seconds, utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import files
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.notes import read_note
from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.module_utils._lease import record as leases
from ansible_collections.gb10.cluster.plugins.module_utils._memory import note
from ansible_collections.gb10.cluster.plugins.module_utils._records import recoveries
from ansible_collections.gb10.cluster.plugins.module_utils._records.recoveries import FAULT, STARTING, WELL
from ansible_collections.gb10.cluster.plugins.module_utils._recover import agreeing, budget, evidence, exchange, recover_files
from ansible_collections.gb10.cluster.plugins.module_utils._redact import cleaned, read_secret, secrets_of
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import checks
from ansible_collections.gb10.cluster.plugins.module_utils._unit import journal, specification, unit_files

#: The setting with which a recovery acts.
RESTART = "restart"


def key_of(config: t.Mapping[str, t.Any]) -> str:
    """Return the key of the cluster's answers. Raises OSError."""
    return read_secret(os.path.join(config["secrets_dir"], config["cluster"], recover_files.KEY))


class Node:
    """A node of a cluster, as its recovery sees it. ``config`` are the settings.

    ``scale`` is the factor by which tests shorten its times: the grace, pauses, budget and stall; not the limits for answers and for the steps of a unit.

    Raises :class:`ClusterError` when specification or state cannot be read: without its budget, nothing may be done.
    """

    def __init__(self, config: t.Mapping[str, t.Any], scale: float = 1.0) -> None:
        self.cluster, self.name, self.head, self.state_dir, self.scale = *(config[word] for word in ("cluster", "node", "head", "state_dir")), scale
        self.given = specification.read(os.path.join(unit_files.of_engine(self.state_dir, self.cluster).folder, specification.FILE))
        self.config = {**config, "roots": self.given["roots"], "token_s": evidence.TOKEN_SECONDS}
        self.peers = {name: address for name, address in self.given["nodes"].items() if name != self.name}
        self.boot, self.state = files.boot_id(self.given["roots"]["proc_root"]), recoveries.read(self.state_dir, self.cluster)

    @property
    def now(self) -> budget.Moment:
        return budget.Moment(self.boot, boot_seconds(), self.scale)

    def say(self, text: str) -> None:
        """Write a line to the journal."""
        journal.say(f"{f'(times divided by {self.scale:g}) ' if self.scale != 1 else ''}{text}")

    def publish(self, **changed: t.Any) -> None:
        """Change the state, and write it for the other nodes, status and the next look. Raises OSError."""
        self.state = {**self.state, **cleaned(changed, secrets_of({"secrets_dir": self.config["secrets_dir"]}))}
        recoveries.DOCUMENT.write(recoveries.path_of(self.state_dir, self.cluster), self.state)

    def ask(self, peer: str) -> dict[str, t.Any]:
        """Return the state of another node. Without a valid answer its ``phase`` is None.

        ``own`` is empty with an ``error``, also where its last look is old. A node that holds its lock for a recovery does not look meanwhile.
        """
        try:
            answer = exchange.ask(self.peers[peer], self.config["port"], key_of(self.config), self.cluster, peer)
        except (ClusterError, OSError) as error:
            return {"own": {}, "error": checks.text_of(error), "hold": "", "incident": self.state["incident"], "phase": None}
        is_old = answer["age_s"] > agreeing.FRESH_SECONDS and answer["state"]["phase"] != recoveries.LOCKED
        return {**answer["state"], **({"own": {}, "error": f"its last look was {answer['age_s']:.0f} s ago"} if is_old else {})}

    def judged(self) -> tuple[tuple[str, str], str, dict[str, str], dict[str, t.Any]]:
        """Look. Return the result with its reason, what identifies its incident, the other nodes that would not act with their reasons, and what changes."""
        changes = evidence.look(self.config, self.given, self.state, self.now)
        states = {peer: self.ask(peer) for peer in self.peers}
        nodes = {name: state["own"] or state["error"] for name, state in {self.name: changes, **states}.items()}
        holds = {peer: state["hold"] for peer, state in states.items() if state["hold"]}
        return agreeing.judge(nodes, self.head, self.scale), agreeing.incident(nodes), holds, changes

    def hold(self, own: t.Mapping[str, t.Any]) -> str:
        """Return why this node would not act now, empty when it would. Whatever cannot be read is a reason."""
        try:
            mode, lease, memory = modes.read(self.state_dir), leases.read(self.state_dir), read_note(note.path_of(self.state_dir, self.cluster))
            locks = checks.locks(self.state_dir)
        except (ClusterError, OSError) as error:
            return checks.text_of(error)
        rows = (
            budget.paused(self.config["pause"], self.now),
            # Its memory may be in use meanwhile.
            "a person has to start it" if self.state["stopped"] else "",
            *(lock["error"] or f"the lock {lock['name']} is held by {lock['who']}" for lock in locks),
            f"the mode is {mode['phase']}" if mode and mode["phase"] != modes.SETTLED else "",
            "the nodes are leased" if lease and lease["state"] != leases.ENDED else "",
            *(f"{line}. Reboot {self.name}, then run mode" for line in own.get("kernel", ()) if line.startswith(evidence.LOST)),
            "" if memory and memory.get("boot_id") == self.boot else "the memory before the start was not noted in this boot, so its return cannot be proven",
            # With its budget used up, a cluster for which the mode names another engine is taken down for that one.
            "" if modes.degraded(mode, self.cluster) and budget.spent(self.state["history"], self.now) else budget.why_not(self.state["history"], self.now),
            "" if self.config["act"] == RESTART else f"gb10_recover is {self.config['act']}",
        )
        return next(filter(None, rows), "")

    def look(self) -> bool:
        """Look once, and publish the result. Return whether all nodes have to act."""
        before, ((kind, why), incident, holds, changes) = self.state, self.judged()
        if hold := self.hold(changes["own"]):
            holds = {self.name: hold, **holds}
        count, at = agreeing.counted(kind, incident, before), utc_text()
        text = f"{why}; {agreeing.intent(count, holds)}" if kind == FAULT else why
        stopped = "" if kind in (WELL, STARTING) else before["stopped"]
        last = "".join(f"last recovery {entry['at']} ({entry['why']}): {entry['outcome']}" for entry in before["history"][-1:])
        line = (f"recovery: {self.config['act']}, {kind} at {at}", stopped or ("" if kind == WELL else text), last, budget.left(before["history"], self.now))
        self.publish(
            **{**changes, "kernel": (changes["kernel"] if kind == WELL else {}) or before["kernel"], "line": "; ".join(filter(None, line)), "stopped": stopped},
            **{"boot_id": self.boot, "at_s": boot_seconds(), "at": at, "seq": before["seq"] + 1, "shown": self.name == self.head, "kind": kind, "text": text},
            **{"hold": hold, "incident": incident, "count": count, "phase": before["phase"] if (kind, incident) == (FAULT, before["incident"]) else ""},
            # The last one stays: it is part of what identifies an incident.
            history=budget.recent(before["history"], self.now) or before["history"][-1:],
        )
        if WELL != kind or before["kind"] != WELL:
            self.say(f"look {self.state['seq']}: {kind}: {self.state['text']}")
        return count >= agreeing.LOOKS and not holds


def answer(config: t.Mapping[str, t.Any], line: bytes) -> bytes:
    """Return this node's signed answer to a question. Raises :class:`ClusterError` and OSError without one."""
    state = recoveries.read(config["state_dir"], config["cluster"])
    if state["boot_id"] != files.boot_id(config["proc_root"]):
        raise UnknownState("there was no look in this boot")
    shared = {"age_s": boot_seconds() - state["at_s"], "state": {name: state[name] for name in exchange.SHARED}}
    return exchange.answered(line, key_of(config), {"cluster": config["cluster"], "node": config["node"], **shared})
