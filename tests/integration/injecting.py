# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures that are made in real starts of an engine and under live ones: what, on which node, when. For the tests and bench/failfast.py."""

from __future__ import annotations

import contextlib
import dataclasses
import time
import typing as t

from .lab import HEAD, WORKER, Lab, Once, Play, utc
from .making import HEAD_CONTAINER, WORKER_CONTAINER

#: The ranks as Ray calls them, and the core on the head, for pgrep.
RANK, CORE = "^ray::RayWorkerProc", "^VLLM::EngineCore"
#: The line of the engine's log by which a stage in which ranks are there has begun; as soon as there is a rank without one. Looks of the play may miss a stage.
STAGES = {"starting ranks": "", "loading model": "Starting to load model", "weights loaded": "Loading weights took"}
#: No stage of a start: the engine serves.
SERVING = "serving"
#: What a play prints when the containers are there and the engine is about to be started.
TO_SERVE = "vllm_server : Start the engine"
#: What every progress line holds: the engine has been started by the first one, and a play that waits for an injection goes on looking at it.
STARTED = "GiB available"
#: Waits until another log than the one given is the newest and has the line, and the process is there.
FIND = """
until log=$(ls -t /var/log/gb10/gb10/engine/*.log | head -1) && [ "$log" != "$1" ] && grep -q "$2" "$log"; do sleep 0.2; done
until pgrep --oldest --full "$3"; do sleep 0.2; done
"""
NEWEST = "ls -t /var/log/gb10/gb10/engine/*.log 2>/dev/null | head -1"

#: Where the engine's logs lie on a node.
LOGS = "/var/log/gb10/gb10"
#: In a container, while it is there: its rank enters no collective. And what shows that a rank waits for that.
HOLD, HELD = "/tmp/gb10-lab-hold", "/tmp/gb10-lab-held"
#: Added to the engine's own file in every container: a collective of all ranks before they warm up, and before each step. The lab's engine has none in its
#: warm-up, a GPU's has many. A rank waits there as NCCL does, in a loop.
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
#: Adds to the file of a package that is not imported for that. Arguments: the package, the file, the text.
ADD = """
import importlib.util, os, sys
package, name, text = sys.argv[1:]
with open(os.path.join(os.path.dirname(importlib.util.find_spec(package).origin), name), "a") as file:
    file.write(text)
"""


#: What lets no packet of the fabric through.
DROPS = (("INPUT", "-i", "eth1", "-j", "DROP"), ("OUTPUT", "-o", "eth1", "-j", "DROP"))


def in_container(lab: Lab, host: str, *argv: str, check: bool = True) -> str:
    """Run a command in the node's container; returns its output."""
    return lab.run(host, "docker", "exec", HEAD_CONTAINER if host == HEAD else WORKER_CONTAINER, *argv, check=check)


def make_holdable(lab: Lab) -> None:
    """Let the ranks that will be started in the nodes' containers meet before they work, each as soon as there is no :data:`HOLD` in its container."""
    for host in (HEAD, WORKER):
        in_container(lab, host, "python3", "-c", ADD, "vllm", "v1/worker/cpu_worker.py", HOLDER)


@dataclasses.dataclass(frozen=True)
class Injection:
    """A failure of a node, made when the engine has come to a stage. ``ids`` are those that the play may give it."""

    host: str
    stage: str

    what: t.ClassVar[str]
    ids: t.ClassVar[tuple[str, ...]]
    #: Nothing goes on by itself after it, so that the play stops the engine.
    known: t.ClassVar[bool] = True
    #: The engine stays until it is ended.
    lasts: t.ClassVar[bool] = True
    #: It shows by what does not come any more, so that it takes longer to notice.
    stalls: t.ClassVar[bool] = False
    #: The words of status for an engine that it happened to while it served, and what status says beside the node's name.
    healths: t.ClassVar[tuple[str, ...]] = ("serving", "busy", "unknown", "dead", "none")
    said: t.ClassVar[str] = ""
    #: Settings of the play, and the seconds without progress that it then allows.
    settings: t.ClassVar[dict[str, t.Any]] = {}
    still: t.ClassVar[float] = 0.0

    @property
    def id(self) -> str:
        return f"{self.what}-{self.host}-{self.stage.replace(' ', '-')}"

    def prepare(self, lab: Lab) -> None:
        """Do what has to be done between the containers and the engine."""

    def make(self, lab: Lab) -> None:
        """Let it happen."""
        raise NotImplementedError

    def undo(self, lab: Lab) -> None:
        """Give back what was taken. Its container may be gone."""


@dataclasses.dataclass(frozen=True)
class Signal(Injection):
    """A signal to a rank, or to the core."""

    process: str = RANK

    @property
    def id(self) -> str:
        return f"{self.what}-{'core' if self.process == CORE else 'rank'}-{self.host}-{self.stage.replace(' ', '-')}"

    def make(self, lab: Lab) -> None:
        pid = lab.run(self.host, "timeout", "30", "sh", "-c", 'until pgrep --oldest --full "$1"; do sleep 0.2; done', "sh", self.process).strip()
        lab.run(self.host, "kill", f"-{self.what}", pid)


class Kill(Signal):
    """As the kernel does when memory runs out."""

    what, ids, healths = "KILL", ("rank ended", "core ended", "rank-died", "ray-worker-gone"), ("dead", "none")
    said = "Remedy: "


class Stop(Signal):
    """It continues after SIGCONT."""

    what, ids, known, healths = "STOP", ("process stopped",), False, ("halted",)
    said = "kill -CONT PID lets it go on"

    def undo(self, lab: Lab) -> None:
        lab.run(self.host, "pkill", "-CONT", "--full", self.process, check=False)


class CableOut(Injection):
    """The link of the fabric goes down."""

    what, ids, said = "CABLE", ("fabric",), "which carries the fabric, is "

    def make(self, lab: Lab) -> None:
        lab.run(self.host, "ip", "link", "set", "eth1", "down")

    def undo(self, lab: Lab) -> None:
        lab.run(self.host, "ip", "link", "set", "eth1", "up")


class Dropped(Injection):
    """The link of the fabric is up, and no packet comes through. Ray takes the node for dead after a minute, so that the engine may end meanwhile."""

    what, ids, known, lasts, stalls = "DROP", ("fabric silent",), False, False, True
    said = "over interface eth1, which carries the fabric and is up"

    def make(self, lab: Lab) -> None:
        for rule in DROPS:
            lab.run(self.host, "iptables", "-w", "-I", *rule)

    def undo(self, lab: Lab) -> None:
        for rule in DROPS:
            lab.run(self.host, "iptables", "-w", "-D", *rule, check=False)


class Deadlock(Injection):
    """One rank never enters a collective in which the others wait for it. ``settings`` shorten the limit of progress, which is half an hour while they loop."""

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
        in_container(lab, self.host, "rm", "-f", HOLD, check=False)


#: Into starts.
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
#: Under live engines.
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
    """What came of it: ``first`` is the failure that the play named, ``seconds`` from the sign to its name."""

    play: Play
    at: float
    seconds: float
    first: dict[str, t.Any]
    known: bool

    def names(self, host: str) -> bool:
        """Return whether the failure is that node's. Which of two nodes is silent on a fabric is unknown: the cause names both."""
        return self.first["node"] == host or host in self.first["cause"]


def hit(lab: Lab, one: Injection, before: str) -> None:
    """Let it happen, as soon as the stage has come. ``before`` is the log of the engine before."""
    # The engine's log is on the head, the process perhaps on the other node.
    lab.run(HEAD, "timeout", "150", "sh", "-c", FIND, "sh", before, STAGES[one.stage], RANK)
    one.make(lab)


@contextlib.contextmanager
def injected(lab: Lab, one: Injection) -> t.Iterator[Injected]:
    """Bring the cluster up with an injection, which is undone at the end."""
    before = lab.run(HEAD, "sh", "-c", NEWEST).strip()
    during = Once(STARTED, lambda: hit(lab, one, before))
    seen = [Once(TO_SERVE, lambda: one.prepare(lab)), during]
    try:
        # The stages before it have tests of their own.
        played = lab.play(tags="ray,serve", on_output=lambda output, pid: [once(output, pid) for once in seen], **one.settings)
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
        yield Injected(played, during.at, at - during.at - one.still, result["first_failure"], result["cause_known"])
    finally:
        one.undo(lab)


@contextlib.contextmanager
def full_log_disk(lab: Lab, host: str) -> t.Iterator[Once]:
    """Yield what fills the disk of a node's logs when the engine is about to start; a file system of 64 MiB stands in for it, and is gone at the end."""
    lab.run(host, "mkdir", "-p", LOGS)
    lab.run(host, "mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", LOGS)
    try:
        yield Once(TO_SERVE, lambda: lab.run(host, "sh", "-c", 'cat /dev/zero > "$1" || true', "sh", f"{LOGS}/filled"))
    finally:
        # What is unmounted lazily goes with the container that still has it.
        lab.run(host, "umount", "--lazy", LOGS)


class Noticed(t.NamedTuple):
    """What status said of a live engine: its last play, and the seconds from the failure to the end of that."""

    play: Play
    seconds: float


def noticed(lab: Lab, one: Injection, looks: int = 6) -> Noticed:
    """Let it happen to a live engine, and look until its node is named."""
    began = time.time()
    one.make(lab)
    for _look in range(looks):
        played = lab.play("status", __gb10_status_seconds=5)
        # What the head says is about the whole engine, so it has to name the node.
        lines = [line if host == HEAD else f"{host}: {line}" for host, lines in played.stat("gb10_status").items() for line in lines]
        if any(one.said in line and one.host in line for line in lines):
            assert played.stat("gb10_health") in one.healths, played.stat("gb10_health")
            return Noticed(played, time.time() - began)
    raise AssertionError(f"{one.id} is not named in {looks} looks, the last one: {lines}")
