# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures that are made in real starts of an engine: which process of which node, how, in which stage. For the tests and bench/failfast.py."""

from __future__ import annotations

import contextlib
import dataclasses
import typing as t

from .lab import HEAD, WORKER, Lab, Once, Play, utc

#: The ranks as Ray calls them, and the core on the head, for pgrep.
RANK, CORE = "^ray::RayWorkerProc", "^VLLM::EngineCore"
#: The line of the engine's log by which a stage in which ranks are there has begun; as soon as there is a rank without one. Looks of the play may miss a stage.
STAGES = {"starting ranks": "", "loading model": "Starting to load model", "weights loaded": "Loading weights took"}
#: What every progress line holds: the engine has been started by the first one, and a play that waits for an injection goes on looking at it.
STARTED = "GiB available"
#: Waits until another log than the one given is the newest and has the line, and the process is there; prints its number.
FIND = """
until log=$(ls -t /var/log/gb10/gb10/engine/*.log | head -1) && [ "$log" != "$1" ] && grep -q "$2" "$log"; do sleep 0.2; done
until pgrep --oldest --full "$3"; do sleep 0.2; done
"""
NEWEST = "ls -t /var/log/gb10/gb10/engine/*.log 2>/dev/null | head -1"


@dataclasses.dataclass(frozen=True)
class Injection:
    """A signal to a process of a node, when the engine has come to a stage."""

    host: str
    signal: str
    stage: str
    process: str = RANK

    @property
    def id(self) -> str:
        return f"{self.signal}-{'core' if self.process == CORE else 'rank'}-{self.host}-{self.stage.replace(' ', '-')}"


INJECTIONS = (
    *(Injection(host, "KILL", stage) for host in (WORKER, HEAD) for stage in STAGES),
    *(Injection(host, "STOP", stage) for host in (WORKER, HEAD) for stage in STAGES),
    *(Injection(HEAD, "KILL", stage, CORE) for stage in STAGES),
)


@dataclasses.dataclass
class Injected:
    """What came of it: ``first`` is the failure that the play named, ``seconds`` from the sign to its name."""

    play: Play
    at: float
    seconds: float
    first: dict[str, t.Any]
    known: bool


def hit(lab: Lab, one: Injection, before: str, pids: list[str]) -> None:
    """Send the signal to the process, as soon as the stage has come. ``before`` is the log of the engine before."""
    # The engine's log is on the head, the process perhaps on the other node.
    lab.run(HEAD, "timeout", "150", "sh", "-c", FIND, "sh", before, STAGES[one.stage], RANK)
    pids.append(lab.run(one.host, "timeout", "30", "sh", "-c", 'until pgrep --oldest --full "$1"; do sleep 0.2; done', "sh", one.process).strip())
    lab.run(one.host, "kill", f"-{one.signal}", pids[0])


@contextlib.contextmanager
def injected(lab: Lab, one: Injection) -> t.Iterator[Injected]:
    """Bring the cluster up with an injection. What was stopped by a signal goes on at the end."""
    pids: list[str] = []
    before = lab.run(HEAD, "sh", "-c", NEWEST).strip()
    during = Once(STARTED, lambda: hit(lab, one, before, pids))
    try:
        played = lab.play(on_output=during)
        during.join()
        results = [
            (utc(event["created"]), event["event_data"]["res"])
            for event in played.events
            if event["event"] == "runner_on_failed" and event["event_data"]["res"].get("first_failure")
        ]
        assert results, f"nothing failed, or no failure was named:\n{played.stdout}"
        at, result = results[0]
        yield Injected(played, during.at, at - during.at, result["first_failure"], result["cause_known"])
    finally:
        if one.signal == "STOP" and pids:
            lab.run(one.host, "kill", "-CONT", pids[0], check=False)
