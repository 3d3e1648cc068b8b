# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures that are injected into real engine starts and live engines: what, on which node, when. For the tests and bench/failfast.py."""

from __future__ import annotations

import contextlib
import dataclasses
import time
import typing as t

from .lab import HEAD, WORKER, Lab, Once, Play, utc
from .making import HEAD_CONTAINER, WORKER_CONTAINER

#: Patterns for pgrep: Ray's name of a rank, and the engine core on the head.
RANK, CORE = "^ray::RayWorkerProc", "^VLLM::EngineCore"
#: The log line that marks the start of each stage with ranks. A stage without a line starts with the first rank. The play's looks may miss a stage.
STAGES = {"starting ranks": "", "loading model": "Starting to load model", "weights loaded": "Loading weights took"}
#: Not a stage of a start: the engine already serves.
SERVING = "serving"
#: Printed by a play when the containers exist and the engine is about to start.
TO_SERVE = "engine : Start the engine and wait"
#: Part of every progress line. At the first one the engine has started, and a play that waits for an injection continues to watch it.
STARTED = "GiB available"
#: Waits until the newest log is not the given one and contains the line, and until the process exists.
FIND = """
until log=$(ls -t /var/log/gb10/gb10/engine/*.log | head -1) && [ "$log" != "$1" ] && grep -q "$2" "$log"; do sleep 0.2; done
until pgrep --oldest --full "$3"; do sleep 0.2; done
"""
NEWEST = "ls -t /var/log/gb10/gb10/engine/*.log 2>/dev/null | head -1"

#: Directory of the engine's logs on a node.
LOGS = "/var/log/gb10/gb10"
#: While HOLD exists in a container, its rank enters no collective. HELD shows that a rank waits for that reason.
HOLD, HELD = "/tmp/gb10-lab-hold", "/tmp/gb10-lab-held"
#: Added to the engine's own file in every container: a collective of all ranks before the warm-up and before each step. The lab's engine has none in its
#: warm-up, an engine with GPUs has many. A rank waits there in a loop, as NCCL does.
HOLDER = f'''

def _met(do):
    import os
    import time

    import torch
    from vllm.distributed.parallel_state import get_world_group

    def meet(self, *args, **options):
        while os.path.exists("{HOLD}"):
            open("{HELD}", "a").close()
            time.sleep(0.2)
        work = torch.distributed.barrier(group=get_world_group().cpu_group, async_op=True)
        while not work.is_completed():
            pass
        return do(self, *args, **options)

    return meet


CPUWorker.compile_or_warm_up_model = _met(CPUWorker.compile_or_warm_up_model)
CPUWorker.execute_model = _met(CPUWorker.execute_model)
'''
#: Appends text to a file of a package without importing the package. Arguments: the package, the file, the text.
ADD = """
import importlib.util, os, sys
package, name, text = sys.argv[1:]
with open(os.path.join(os.path.dirname(importlib.util.find_spec(package).origin), name), "a") as file:
    file.write(text)
"""


#: iptables rules that drop all packets of the fabric.
DROPS = (("INPUT", "-i", "eth1", "-j", "DROP"), ("OUTPUT", "-o", "eth1", "-j", "DROP"))


def in_container(lab: Lab, host: str, *argv: str, check: bool = True) -> str:
    """Run a command in the node's container; returns its output."""
    return lab.run(host, "docker", "exec", HEAD_CONTAINER if host == HEAD else WORKER_CONTAINER, *argv, check=check)


def make_holdable(lab: Lab) -> None:
    """Make future ranks in the nodes' containers meet before they work. A rank joins as soon as its container has no :data:`HOLD`."""
    for host in (HEAD, WORKER):
        in_container(lab, host, "python3", "-c", ADD, "vllm", "v1/worker/cpu_worker.py", HOLDER)


@dataclasses.dataclass(frozen=True)
class Injection:
    """A failure of a node, injected when the engine reaches a stage. ``ids`` are the ids that the play may report for it."""

    host: str
    stage: str

    what: t.ClassVar[str]
    ids: t.ClassVar[tuple[str, ...]]
    #: The engine cannot recover by itself, so the play stops it.
    known: t.ClassVar[bool] = True
    #: The engine stays until something stops it.
    lasts: t.ClassVar[bool] = True
    #: Only missing progress shows it, so it takes longer to notice.
    stalls: t.ClassVar[bool] = False
    #: The health values that status may report after this failure of a live engine, and the text that it prints beside the node's name.
    healths: t.ClassVar[tuple[str, ...]] = ("serving", "busy", "unknown", "dead", "none")
    said: t.ClassVar[str] = ""
    #: The play's settings, and the seconds without progress that it then allows.
    settings: t.ClassVar[dict[str, t.Any]] = {}
    still: t.ClassVar[float] = 0.0

    @property
    def id(self) -> str:
        return f"{self.what}-{self.host}-{self.stage.replace(' ', '-')}"

    def prepare(self, lab: Lab) -> None:
        """Prepare after the containers were created and before the engine starts."""

    def make(self, lab: Lab) -> None:
        """Inject the failure."""
        raise NotImplementedError

    def undo(self, lab: Lab) -> None:
        """Undo the failure. Its container may be gone."""


def send(lab: Lab, host: str, name: str, process: str) -> None:
    """Send a signal to the oldest process of a node that matches a pattern, as soon as there is one."""
    pid = lab.run(host, "timeout", "30", "sh", "-c", 'until pgrep --oldest --full "$1"; do sleep 0.2; done', "sh", process).strip()
    lab.run(host, "kill", f"-{name}", pid)


@dataclasses.dataclass(frozen=True)
class Signal(Injection):
    """A signal to a rank, or to the core."""

    process: str = RANK

    @property
    def id(self) -> str:
        return f"{self.what}-{'core' if self.process == CORE else 'rank'}-{self.host}-{self.stage.replace(' ', '-')}"

    def make(self, lab: Lab) -> None:
        send(lab, self.host, self.what, self.process)


class Kill(Signal):
    """SIGKILL, which the kernel sends when memory runs out."""

    what, ids, healths = "KILL", ("rank ended", "core ended", "rank-died", "ray-worker-gone"), ("dead", "none")
    said = "Remedy: "


class Stop(Signal):
    """SIGSTOP. The process continues after SIGCONT."""

    what, ids, known, healths = "STOP", ("process stopped",), False, ("halted",)
    said = "kill -CONT PID lets it go on"

    def undo(self, lab: Lab) -> None:
        lab.run(self.host, "pkill", "-CONT", "--full", self.process, check=False)


class CableOut(Injection):
    """The fabric's link goes down."""

    what, ids, said = "CABLE", ("fabric",), "which carries the fabric, is "

    def make(self, lab: Lab) -> None:
        lab.run(self.host, "ip", "link", "set", "eth1", "down")

    def undo(self, lab: Lab) -> None:
        lab.run(self.host, "ip", "link", "set", "eth1", "up")


class Dropped(Injection):
    """The fabric's link is up, but no packet passes. Ray declares the node dead after a minute, so the engine may end meanwhile."""

    what, ids, known, lasts, stalls = "DROP", ("fabric silent",), False, False, True
    said = "over interface eth1, which carries the fabric and is up"

    def make(self, lab: Lab) -> None:
        for rule in DROPS:
            lab.run(self.host, "iptables", "-w", "-I", *rule)

    def undo(self, lab: Lab) -> None:
        for rule in DROPS:
            lab.run(self.host, "iptables", "-w", "-D", *rule, check=False)


class Deadlock(Injection):
    """One rank never enters a collective, and the others wait for it. ``settings`` shorten the limit without progress: half an hour while ranks loop."""

    what, ids, known, stalls, healths = "DEADLOCK", ("stalled",), False, True, ("unknown", "stalled")
    said = "uses almost no processor time while the others wait in a loop"
    settings: t.ClassVar[dict[str, t.Any]] = {"gb10_stall_seconds": 40}
    still = 120.0

    def prepare(self, lab: Lab) -> None:
        make_holdable(lab)
        self._hold(lab)

    def _hold(self, lab: Lab) -> None:
        in_container(lab, self.host, "touch", HOLD)

    def make(self, lab: Lab) -> None:
        self._hold(lab)
        if self.stage != SERVING:
            in_container(lab, self.host, "timeout", "120", "sh", "-c", f"until [ -e {HELD} ]; do sleep 0.2; done")

    def undo(self, lab: Lab) -> None:
        in_container(lab, self.host, "rm", "-f", HOLD, HELD, check=False)


#: Injections into starts.
INJECTIONS: tuple[Injection, ...] = (
    *(Kill(host, stage) for host in (WORKER, HEAD) for stage in STAGES),
    *(Stop(host, stage) for host in (WORKER, HEAD) for stage in STAGES),
    *(Kill(HEAD, stage, CORE) for stage in STAGES),
    CableOut(WORKER, "loading model"),
    CableOut(HEAD, "loading model"),
    Dropped(WORKER, "starting ranks"),
    Dropped(WORKER, "weights loaded"),
    Deadlock(WORKER, "weights loaded"),
)
#: Injections into live engines.
LIVE: tuple[Injection, ...] = (
    *(Stop(host, SERVING) for host in (WORKER, HEAD)),
    Deadlock(WORKER, SERVING),
    CableOut(WORKER, SERVING),
    Dropped(WORKER, SERVING),
    *(Kill(host, SERVING) for host in (WORKER, HEAD)),
    Kill(HEAD, SERVING, CORE),
)


@dataclasses.dataclass
class Injected:
    """The outcome. ``first`` is the failure that the play named, ``seconds`` the time from the first sign to its name."""

    play: Play
    at: float
    seconds: float
    first: dict[str, t.Any]
    known: bool

    def names(self, host: str) -> bool:
        """Return whether the failure is attributed to a node. When the fabric is silent either node may be at fault, so the cause names both."""
        return self.first["node"] == host or host in self.first["cause"]


def hit(lab: Lab, injection: Injection, before: str) -> None:
    """Inject the failure when the engine reaches the stage. ``before`` is the log of the previous engine."""
    # The engine's log is on the head, but the process may be on the other node.
    lab.run(HEAD, "timeout", "150", "sh", "-c", FIND, "sh", before, STAGES[injection.stage], RANK)
    injection.make(lab)


@contextlib.contextmanager
def injected(lab: Lab, injection: Injection) -> t.Iterator[Injected]:
    """Bring the cluster up with an injection, which is undone at the end."""
    before = lab.run(HEAD, "sh", "-c", NEWEST).strip()
    during = Once(STARTED, lambda: hit(lab, injection, before))
    seen = [Once(TO_SERVE, lambda: injection.prepare(lab)), during]
    try:
        # Other tests cover the earlier stages.
        played = lab.play(tags="ray,serve", on_output=lambda output, pid: [once(output, pid) for once in seen], **injection.settings)
        try:
            for once in seen:
                once.join()
        except AssertionError as error:
            raise AssertionError(f"{error}\n{played.failures}") from error
        results = [
            (utc(event["created"]), event["event_data"]["res"])
            for event in played.events
            if event["event"] == "runner_on_failed" and event["event_data"]["res"].get("first_failure")
        ]
        assert results, f"nothing failed, or no failure was named:\n{played.stdout}"
        at, result = results[0]
        yield Injected(played, during.at, at - during.at - injection.still, result["first_failure"], result["cause_known"])
    finally:
        injection.undo(lab)


@contextlib.contextmanager
def full_log_disk(lab: Lab, host: str) -> t.Iterator[Once]:
    """Yield an action that fills a node's log disk just before the engine starts. A temporary file system of 64 MiB replaces the disk."""
    lab.run(host, "mkdir", "-p", LOGS)
    lab.run(host, "mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", LOGS)
    try:
        yield Once(TO_SERVE, lambda: lab.run(host, "sh", "-c", 'cat /dev/zero > "$1" || true', "sh", f"{LOGS}/filled"))
    finally:
        # After a lazy unmount the file system disappears together with the container that still uses it.
        lab.run(host, "umount", "--lazy", LOGS)


class Noticed(t.NamedTuple):
    """The last status play on a live engine, and the seconds from the failure to the end of that play."""

    play: Play
    seconds: float


def noticed(lab: Lab, injection: Injection, looks: int = 6) -> Noticed:
    """Inject the failure into a live engine, and repeat status until it names the node."""
    began = time.time()
    injection.make(lab)
    for _look in range(looks):
        played = lab.play("status", __gb10_status_seconds=5)
        # The head's lines are about the whole engine, so they must name the node.
        lines = [line if host == HEAD else f"{host}: {line}" for host, lines in played.stat("gb10_status").items() for line in lines]
        if any(injection.said in line and injection.host in line for line in lines):
            assert played.stat("gb10_health") in injection.healths, played.stat("gb10_health")
            return Noticed(played, time.time() - began)
    raise AssertionError(f"{injection.id} is not named in {looks} looks, the last one: {lines}")
