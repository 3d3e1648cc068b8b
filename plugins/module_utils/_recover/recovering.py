# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program of a recovery's units: one look, and what follows from it; or one answer to another node. This module util is PRIVATE to the collection.

There are no orders between the nodes. Each acts on its own part only, once it has found the same incident three times, and sees by the signed answers that
all others hold their locks for the same incident. A recovery that is put off has stopped nothing. One that fails later leaves everything stopped; then a
node whose memory is back starts the engine that the mode names for that.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import boot_seconds, utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._files import files
from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.module_utils._records.recoveries import BACK, DOWN, FAULT, LOCKED, PHASES, SERVICE, STARTING, STOPPING, UP
from ansible_collections.gb10.cluster.plugins.module_utils._records.recoveries import problem
from ansible_collections.gb10.cluster.plugins.module_utils._recover import budget, keeping, looking
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import checks
from ansible_collections.gb10.cluster.plugins.module_utils._unit import journal, record, specification, steps, text, unit_files
from ansible_collections.gb10.cluster.plugins.module_utils._unit.lock import Lock
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: The environment variable with the factor by which tests shorten its times.
SCALE = "GB10_RECOVER_TIME_SCALE"
#: Seconds in which all nodes have to hold their locks, between two questions, beyond the limit of a unit's own steps, and for one known answer.
TOGETHER_SECONDS, POLL_SECONDS, MARGIN, ANSWER_SECONDS = 150.0, 2.0, 60.0, 600
#: How far a node is that has given up: it has stopped its part, and waits for a person.
GIVEN_UP = "given up"


class Recovery(looking.Node):
    """The recovery of one node. ``run`` runs a module of the program's archive."""

    def __init__(self, config: t.Mapping[str, t.Any], run: steps.Run, scale: float = 1.0) -> None:
        super().__init__(config, scale)
        self.run, self.unit = run, unit_files.of_engine(self.state_dir, self.cluster, self.config["roots"]["etc_root"])
        self.lock = Lock(self.given, f"{SERVICE}{self.cluster}.service", run)
        #: Seconds that a node may take to stop its part, and to have its memory back.
        self.seconds = text.stop_seconds(self.given) + self.config["memory"]["wait_timeout"] + MARGIN

    def main(self) -> int:
        """Look once, and act when it has to; return the exit code, which is 1 when there is a problem: then systemd starts the sweep, which sends alerts."""
        if self.state["boot_id"] == self.boot and self.state["phase"] not in ("", UP):
            with self.lock.held():
                self.end("it was interrupted. Run the doctor, then mode")
        if self.look():
            self.act()
        return 1 if problem(self.state) else 0

    def act(self) -> None:
        """Recover the engine together with the other nodes. With its budget used up, it is given up instead: a node may then serve alone."""
        used_up = budget.spent(self.state["history"], self.now)
        try:
            with self.lock.held():
                self.prepare()
                self.bring_down()
            if used_up:
                raise ClusterError(used_up)
            self.bring_up()
        except (ClusterError, OSError) as error:
            why, has_memory = checks.text_of(error), self.state["phase"] == BACK
            self.end(why)
            if has_memory and (said := self.serve_alone()):
                self.give_up(f"{why}; {said}")

    def note(self, outcome: str, phase: str, why: str = "") -> None:
        """Record a recovery that begins because of ``why``, or without it the outcome of the last one. Raises OSError."""
        *earlier, last = [*self.state["history"], *([{"why": why}] if why else [])]
        self.say(f"recovery: {outcome}")
        self.publish(
            phase=phase,
            text=f"recovery: {outcome}",
            history=[*earlier, {**last, "boot_id": self.boot, "at_s": boot_seconds(), "at": utc_text(), "outcome": outcome}],
        )

    def end(self, why: str) -> None:
        """Record why a recovery was put off, or why it left everything stopped. Raises OSError."""
        if self.state["phase"] in ("", LOCKED):
            self.say(f"put off: {why}")
            self.publish(phase="", text=f"put off: {why}")
        else:
            self.give_up(why)

    def give_up(self, why: str) -> None:
        """Record why everything is stopped, also for readers of the engine's unit. Raises OSError."""
        self.publish(stopped=why)
        self.note(f"stopped: {why}", "")
        record.write(self.unit.folder, self.boot, record.FAILED, f"recovery: {why}")

    def serve_alone(self) -> str:
        """Start the engine that the mode names for this node while the cluster is given up; return the outcome, empty where it names none.

        Its unit does not start at a boot, and only its memory was proven: that of the other nodes is not needed.
        """
        try:
            alone = modes.degraded(modes.read(self.state_dir), self.cluster).get(self.name)
            if not alone:
                return ""
            if held := checks.locks(self.state_dir):
                raise ClusterError(f"the lock {held[0]['name']} is held by {held[0]['who'] or held[0]['error']}")
            unit = unit_files.of_engine(self.state_dir, alone, self.config["roots"]["etc_root"])
            given = specification.read(os.path.join(unit.folder, specification.FILE))
            unit.systemctl(text.start_seconds(given) + MARGIN, "start", unit.name)
        except (ClusterError, OSError) as error:
            return f"{self.name} does not serve alone: {checks.text_of(error)}"
        return f"meanwhile {self.name} serves alone, until it reboots"

    # -- together with the other nodes -------------------------------------------------------------------------------

    def await_all(self, phases: t.Sequence[str], peers: t.Iterable[str], seconds: float) -> None:
        """Wait until these nodes are in one of ``phases`` with this incident. A node that does not answer may be on its way.

        Raises :class:`ClusterError` when one that held its lock gave it up, and :class:`WaitTimeout` when they are not there in time.
        """
        waiting: list[str] = []
        for _elapsed in clock(seconds, POLL_SECONDS):
            states = {peer: self.ask(peer) for peer in peers}
            reached = {peer: self.reached(state) for peer, state in states.items()}
            waiting = [peer for peer, phase in reached.items() if phase not in phases]
            if not waiting:
                return
            for peer in waiting:
                if reached[peer] in ("", GIVEN_UP) and LOCKED not in phases:
                    raise ClusterError(states[peer]["stopped"] or f"{peer} put it off")
        raise WaitTimeout(f"{', '.join(waiting)} did not get there within {seconds:.0f} s", remedy=f"See there: journalctl -u {self.unit.name}")

    def reached(self, state: t.Mapping[str, t.Any]) -> str | None:
        """Return how far another node is with this incident: None while it does not answer, empty when it has not begun, or has put it off."""
        if state["incident"] != self.state["incident"]:
            return ""
        return GIVEN_UP if state["phase"] == "" and state["stopped"] else state["phase"]

    def prepare(self) -> None:
        """Keep the evidence, and wait for the locks of all nodes. The head looks again, and stops its part first; the others wait for that.

        Raises :class:`ClusterError` where they do not get there, or the fault is over. Nothing was stopped then.
        """
        self.say(f"evidence: {keeping.keep(self.given, self.state['own'], self.run)}")
        self.publish(phase=LOCKED)
        self.await_all((*PHASES, GIVEN_UP), self.peers, TOGETHER_SECONDS)
        if self.name != self.head:
            self.await_all((DOWN, BACK, UP, GIVEN_UP), [self.head], self.seconds)
        else:
            (kind, why), incident, *_rest = self.judged()
            if (kind, incident) != (FAULT, self.state["incident"]):
                raise ClusterError(f"the engine is {kind} by now: {why}")

    def step(self, name: str, arguments: t.Mapping[str, t.Any], seconds: float, what: str = "") -> steps.Result:
        """Run a module, and return its result. Raises its failure."""
        done = steps.require(what or name, self.run(name, arguments, seconds, False))
        self.say(f"{what or name}: {done['msg']}")
        return done

    def bring_down(self) -> None:
        """Stop this node's engine, its unit and its container, prove its memory, and wait for that of the others. Raises :class:`ClusterError` and OSError.

        The engine is stopped before its unit, which would first wait for its requests: they get no answer.
        """
        self.note("began", STOPPING, self.state["text"])
        for name in ("engine", "unit", "container"):
            if found := specification.step(self.given, "stop", name):
                self.step(found["module"], {**found["arguments"], "lock_id": self.lock.id}, found["timeout"], name)
            if name == "unit":
                self.unit.systemctl(text.stop_seconds(self.given) + MARGIN, "stop", self.unit.name)
        self.publish(phase=DOWN)
        options = {"source": "memory", "cluster_name": self.cluster, "state_dir": self.state_dir, "roots": self.config["roots"], **self.config["memory"]}
        memory = self.step("node_samples_info", options, options["wait_timeout"] + MARGIN, "memory")
        if memory["verdict"] != "pass":
            lacks = f"lacks {(memory['noted_mb'] - memory['available_mb']) / 1024:.0f} GiB" if memory["noted_mb"] else "may lack memory"
            raise ClusterError(f"{self.name} {lacks}. Reboot {self.name}, then run mode")
        self.publish(phase=BACK)
        self.await_all((BACK, UP), self.peers, self.seconds)

    def bring_up(self) -> None:
        """Start the unit, which proves a token on the head, and ask for known answers. A start that fails may be tried again later. Raises OSError."""
        self.note("starts again", UP)
        checked = self.config["answers"] if self.name == self.head else []
        options = {
            "questions": "known_answers", "cluster_name": self.cluster, "state_dir": self.state_dir, "log_dir": self.given["log_dir"], "checks": checked,
            "model": self.config["model"], "api_key_file": specification.arguments(self.given, "token").get("api_key_file"), "timeout": ANSWER_SECONDS,
        }  # fmt: skip
        try:
            self.unit.systemctl(text.start_seconds(self.given) + MARGIN, "start", self.unit.name)
            results = self.step("engine_questions", options, ANSWER_SECONDS * len(checked) + MARGIN)["results"] if checked else []
            wrong = "; ".join(f"{result['check']}: {result['message']}" for result in results if result["verdict"] != "pass")
            self.note(f"runs again, but answers wrongly: {wrong}" if wrong else "runs again", UP)
            self.publish(kind=FAULT if wrong else STARTING)
        except ClusterError as error:
            self.note(f"failed: {checks.text_of(error)}", UP)


def main(argv: t.Sequence[str]) -> int:
    """Run a look, or answer the question on standard input, with the settings that the command line names; return the exit code.

    Standard output is the connection of an answer, so errors go to standard error.
    """
    try:
        command, path = argv
        config = json.loads(files.required_text(path))
        if command == "run":
            return Recovery(config, steps.runner(sys.argv[0]), max(1.0, float(os.environ.get(SCALE) or 1))).main()
        # With unread data the connection would be reset before the answer is read.
        line, *_headers = itertools.takewhile(bytes.strip, sys.stdin.buffer)
        sys.stdout.buffer.write(looking.answer(config, line))
    except (ClusterError, OSError, ValueError) as error:
        sys.stderr.write(f"{journal.clean(checks.text_of(error))}\n")
        return 1
    return 0
