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
#: What the head's progress lines call the stages in which ranks are there.
STAGES = ("joining ranks", "loading weights", "allocating KV cache")


@dataclasses.dataclass(frozen=True)
class Injection:
    """A signal to a process of a node, when the head says that it has come to a stage."""

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


def hit(lab: Lab, one: Injection, pids: list[str]) -> None:
    """Send the signal to the process, as soon as it is there."""
    find = 'until pgrep --oldest --full "$1"; do sleep 0.2; done'
    pids.append(lab.run(one.host, "timeout", "60", "sh", "-c", find, "sh", one.process).strip())
    lab.run(one.host, "kill", f"-{one.signal}", pids[0])


@contextlib.contextmanager
def injected(lab: Lab, one: Injection) -> t.Iterator[Injected]:
    """Bring the cluster up with an injection. What was stopped by a signal goes on at the end."""
    pids: list[str] = []
    during = Once(f"{HEAD}: {one.stage}", lambda: hit(lab, one, pids))
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
