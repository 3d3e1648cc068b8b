# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pair with a recovery, and the faults of a live pair, each with its outcome. For test_recover.py and soak.py.

A drop-in shortens the times of the recovery by a factor, which each of its lines in the journal shows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
import typing as t

from .injecting import CORE, RANK, TO_SERVE, CableOut, Deadlock, Dropped, Injection, Stop, make_holdable, send
from .lab import HEAD, RUN, WORKER, Lab, Once, Play
from .making import HEAD_CONTAINER, WORKER_CONTAINER, boot, busy, cut_power, docker, full_state_disk, reboot, shut_down
from .test_unit import await_state, forget_boots, unit

CLUSTER = "gb10"
UNIT, RECOVER = unit(CLUSTER), "gb10-recover-gb10"
STATE = f"/var/lib/gb10/{CLUSTER}/recover/state.json"
KEPT = f"/var/log/gb10/{CLUSTER}/recover"
MEMORY = f"/var/lib/gb10/{CLUSTER}/memory.json"
#: The factor: two recoveries within 6 hours are two within 2 minutes, the 30 minutes after a start are 10 seconds. A look takes some seconds in any case.
SCALE = 180
#: The seconds between two looks.
PERIOD = 6
DROPS = {
    f"/etc/systemd/system/{RECOVER}.service.d": "[Service]\nEnvironment=GB10_RECOVER_TIME_SCALE={scale}\n",
    f"/etc/systemd/system/{RECOVER}.timer.d": "[Timer]\nOnUnitInactiveSec=\nOnBootSec=1\nOnUnitInactiveSec={period}\nAccuracySec=200ms\n",
}
#: The names of a rank, and of the front end, in the process table of a node.
RANKS = {"ray": RANK, "native": "^VLLM::Worker"}
FRONTS = {"ray": "vllm serve", "native": CORE}
CONTAINERS = {HEAD: HEAD_CONTAINER, WORKER: WORKER_CONTAINER}


class Pair:
    """The pair with a recovery, under one executor."""

    def __init__(self, lab: Lab, executor: str) -> None:
        self.lab, self.executor, self.scale = lab, executor, SCALE
        #: What a fault broke for a while.
        self.broken = contextlib.ExitStack()
        own = {"gb10_profile": "lab_tiny_native_tp2"} if executor == "native" else {}
        # The nodes of all labs share the machine's memory.
        shared = {"__gb10_shared_tolerance_mb": 16384}
        self.variables: dict[str, t.Any] = {"gb10_recover": "restart", "gb10_serve_timeout": 300, **own, **shared}

    def play(self, **more: t.Any) -> Play:
        played = self.lab.play("serve", **{**self.variables, **more})
        assert played.rc == 0, played.failures
        return played

    def begin(self) -> None:
        """Bring the pair up with ranks that can be held, and shorten the times of its recovery."""
        self.lab.clear()
        self.lengthen()
        forget_boots(self.lab, HEAD, WORKER)
        holdable = Once(TO_SERVE, lambda: make_holdable(self.lab))
        self.play(on_output=holdable)
        holdable.join()
        self.shorten()

    def shorten(self, scale: int = SCALE, period: int = PERIOD) -> None:
        """Shorten the times of the recovery on both nodes."""
        self.scale = scale
        for host in (HEAD, WORKER):
            for folder, text in DROPS.items():
                self.lab.run(host, "mkdir", "-p", folder)
                self.lab.write(host, f"{folder}/lab.conf", text.format(scale=scale, period=period))
            self.lab.run(host, "systemctl", "daemon-reload")
            self.lab.run(host, "systemctl", "restart", f"{RECOVER}.timer")

    def lengthen(self) -> None:
        """Let the times of the recovery be as they are for owners."""
        for host in (HEAD, WORKER):
            self.lab.run(host, "rm", "-rf", *DROPS)
            self.lab.run(host, "systemctl", "daemon-reload")

    def end(self) -> None:
        """Take the pair down; nothing of the recovery stays but its evidence."""
        self.lengthen()
        gone = self.lab.play("teardown", gb10_allow="interrupt", **self.variables)
        assert gone.rc == 0, gone.failures
        forget_boots(self.lab, HEAD, WORKER)
        for host in (HEAD, WORKER):
            left = f"ls -d /etc/systemd/system/{RECOVER}* /var/lib/gb10/{CLUSTER}/recover 2>/dev/null || echo none"
            assert self.lab.run(host, "sh", "-c", left).strip() == "none"

    def well(self, **more: t.Any) -> None:
        """Wait until the pair serves, its grace is over, and its budget is unused. A person brings it up where it is down."""
        if more or not self.all(lambda look: look.get("kind") == "well" and not look["stopped"]):
            self.play(gb10_allow="restart,interrupt", **more)
        for host in (HEAD, WORKER):
            self.lab.run(host, "systemctl", "stop", f"{RECOVER}.timer", f"{RECOVER}.service")
            self.lab.run(host, "rm", "-rf", STATE, KEPT)
            self.lab.run(host, "systemctl", "start", f"{RECOVER}.timer")
        self.rest()

    def rest(self) -> None:
        """Wait until the pair is well and its grace is over."""
        self.await_kind("well")
        time.sleep(1800 / self.scale)

    def mend(self) -> None:
        """Undo whatever a fault may have left, and bring the pair up."""
        self.broken.close()
        for host in (HEAD, WORKER):
            docker("unpause", f"gb10-lab-{host}", check=False)
            boot(host)
            for kind in (Dropped, CableOut):
                undoing(kind)(self, host)
            self.go_on(host)
        forget_boots(self.lab, HEAD, WORKER)
        self.well()

    def look(self, host: str) -> dict[str, t.Any]:
        """Return the state of a node's recovery, empty before its first look, or while the node is off."""
        return json.loads(self.lab.run(host, "cat", STATE, check=False) or "{}")

    def all(self, true: t.Callable[[dict[str, t.Any]], bool]) -> bool:
        return all(true(self.look(host)) for host in (HEAD, WORKER))

    def await_that(self, true: t.Callable[[str], bool], *hosts: str, seconds: float = 400) -> None:
        """Wait until something is true of each of these nodes, by default both."""
        for host in hosts or (HEAD, WORKER):
            await_state(self.lab, host, f"{RECOVER}.service", lambda host=host: true(host), seconds)

    def await_kind(self, kind: str, *hosts: str, seconds: float = 400) -> None:
        """Wait until the looks of these nodes have a result."""
        self.await_that(lambda host: self.look(host).get("kind") == kind, *hosts, seconds=seconds)

    def recoveries(self) -> set[str]:
        """The recoveries within a day: their nodes, times and outcomes."""
        return {f"{host} {entry['at']} {entry['outcome']}" for host in (HEAD, WORKER) for entry in self.look(host).get("history", [])}

    def seen(self) -> dict[str, int]:
        """How often each node has looked."""
        return {host: self.look(host).get("seq", 0) for host in (HEAD, WORKER)}

    def await_well(self, seen: dict[str, int]) -> None:
        """Wait until both nodes are well in looks that began later than ``seen``."""
        self.await_that(lambda host: (look := self.look(host)).get("kind") == "well" and look["phase"] in ("", "up") and look["seq"] > seen[host] + 1)

    def await_outcome(self, outcome: str, earlier: t.Collection[str] = (), seconds: float = 700) -> None:
        """Wait until both nodes have recorded this outcome of a recovery that is not among the earlier ones."""

        def there(host: str) -> bool:
            return any(entry.startswith(host) and f" {outcome}" in entry for entry in self.recoveries() - {*earlier})

        self.await_that(there, seconds=seconds)

    def await_text(self, text: str, host: str = HEAD) -> str:
        """Wait until a node's recovery says a text, and return all that it says."""
        self.await_that(lambda host: text in self.says(host), host)
        return self.says(host)

    def says(self, host: str) -> str:
        look = self.look(host)
        return look.get("text", "") + look.get("stopped", "")

    def serves(self) -> bool:
        played = self.lab.play("status", **self.variables)
        assert played.rc == 0, played.failures
        return played.stat("gb10_health") == "serving"

    def signal(self, host: str, name: str, process: str = "") -> None:
        send(self.lab, host, name, process or RANKS[self.executor])

    def go_on(self, host: str) -> None:
        """Let a stopped rank go on, where there is one."""
        Stop(host, "", RANKS[self.executor]).undo(self.lab)

    def journal(self, host: str) -> str:
        return self.lab.run(host, "journalctl", "--no-pager", "--output=cat", f"--unit={RECOVER}.service")

    def evidence(self, host: str) -> list[str]:
        return self.lab.run(host, "sh", "-c", f"ls {KEPT} 2>/dev/null || true").split()

    def quiet(self) -> None:
        """Nothing was recovered: no history, no evidence."""
        for host in (HEAD, WORKER):
            assert self.look(host)["history"] == [] and self.evidence(host) == []


#: The outcomes. EITHER is for what the units mend where they see why: they miss a reboot that takes seconds, as in the lab. After STOPPED both nodes are down
#: and say why.
RECOVERED, NOT_RECOVERED, EITHER, STOPPED = "recovered", "not recovered", "either", "stopped"


class Outcome(t.NamedTuple):
    """What the recovery said first about a fault, and the seconds from the fault to that and to the outcome."""

    named: str
    named_s: float
    seconds: float


@dataclasses.dataclass(frozen=True)
class Fault:
    """What happens to a node of a live pair, and the outcome. ``undo`` is what time or a person does after ``lasts`` seconds: nothing is recovered before it.

    ``said`` is part of what a node says before ``undo``, and of what both nodes say after STOPPED.
    """

    name: str
    outcome: str
    make: t.Callable[[Pair, str], object]
    hosts: tuple[str, ...] = (HEAD, WORKER)
    lasts: float = 0.0
    undo: t.Callable[[Pair, str], object] | None = None
    said: str = ""

    def run(self, pair: Pair, host: str) -> Outcome:
        """Let it happen to a well pair, and see its outcome. It ends with a well pair."""
        began, earlier, kept = time.monotonic(), pair.recoveries(), {node: {*pair.evidence(node)} for node in (HEAD, WORKER)}
        self.make(pair, host)
        made = pair.recoveries()
        seen = pair.seen()
        named = self.named(pair, began)
        if self.undo:
            time.sleep(max(0.0, began + self.lasts - time.monotonic()))
            pair.await_that(lambda _node: any(self.said in pair.says(node) for node in (HEAD, WORKER)), HEAD, seconds=120)
            assert pair.recoveries() <= made, pair.recoveries()
            self.undo(pair, host)
        if self.outcome in (RECOVERED, STOPPED):
            pair.await_outcome("runs again" if self.outcome == RECOVERED else "stopped: ", earlier=earlier)
        seconds = time.monotonic() - began
        if self.outcome == STOPPED:
            for node in (HEAD, WORKER):
                assert self.said in pair.says(node) and pair.lab.run(node, "docker", "ps", "--quiet").strip() == "", pair.says(node)
            pair.broken.close()
            pair.play()
        pair.await_well(seen)
        new = pair.recoveries() - earlier
        assert self.outcome != NOT_RECOVERED or not new, new
        for node in (HEAD, WORKER):
            assert len({*pair.evidence(node)} - kept[node]) >= sum(entry.startswith(node) for entry in new), "a restart without its evidence"
        return Outcome(*named, seconds)

    def named(self, pair: Pair, began: float) -> tuple[str, float]:
        """Wait until a look of a node is not well, as long as the fault lasts; return its text, and the seconds to it."""
        patience = 0.0 if self.outcome == NOT_RECOVERED else 90.0
        while True:
            for look in map(pair.look, (HEAD, WORKER)):
                if look and look["kind"] != "well":
                    return look["text"], time.monotonic() - began
            if time.monotonic() > began + max(self.lasts, patience):
                return "not seen", 0.0
            time.sleep(1)


def making(kind: type[Injection]) -> t.Callable[[Pair, str], None]:
    """Return what injects a failure."""
    return lambda pair, host: kind(host, "").make(pair.lab)


def undoing(kind: type[Injection]) -> t.Callable[[Pair, str], None]:
    """Return what undoes it."""
    return lambda pair, host: kind(host, "").undo(pair.lab)


def work(pair: Pair, _host: str) -> None:
    run = pair.lab.json(HEAD, RUN)
    pair.broken.enter_context(busy(pair.lab, f"http://{run['api_address']}:{run['api_port']}/v1", 8))


def mended(pair: Pair, _host: str) -> None:
    pair.broken.close()


def lack(pair: Pair, host: str) -> None:
    """Increase the note of the memory before the start by 64 GiB, so that this much seems to be missing, and stop a rank."""
    text = pair.lab.run(host, "cat", MEMORY)
    note = json.loads(text)
    pair.lab.write(host, MEMORY, json.dumps({**note, "available_mb": note["available_mb"] + 65536}))
    pair.broken.callback(pair.lab.write, host, MEMORY, text)
    pair.signal(host, "STOP")


def spend(pair: Pair) -> None:
    """Let the budget of both nodes be used up."""
    for host in (HEAD, WORKER):
        look = pair.look(host)
        # Later than now, so that the shortened times do not give it back meanwhile.
        past = {"boot_id": look["boot_id"], "at_s": look["at_s"] + 600.0, "at": look["at"], "why": "a test", "outcome": "runs again"}
        pair.lab.write(host, STATE, json.dumps({**look, "history": [past, past]}))


def thaw(_pair: Pair, host: str) -> None:
    docker("unpause", f"gb10-lab-{host}")


def start_after_it(pair: Pair, _host: str) -> None:
    """Start what stayed down, as a person does once the cause is known."""
    forget_boots(pair.lab, HEAD, WORKER)
    pair.play(gb10_allow="restart,interrupt")


def jump(pair: Pair) -> None:
    """The nodes share the machine's clock, so the jump is in the records: their times of the day are wrong by ten years."""
    for host in (HEAD, WORKER):
        pair.lab.write(host, STATE, json.dumps({**pair.look(host), "at": "2036-01-01T00:00:00Z"}))


def fill(pair: Pair, host: str) -> None:
    pair.broken.enter_context(full_state_disk(pair.lab, host))
    pair.signal(host, "STOP")


def lose_power(pair: Pair, host: str) -> None:
    forget_boots(pair.lab, HEAD, WORKER)
    cut_power(host)


def lose_power_twice(pair: Pair, host: str) -> None:
    lose_power(pair, host)
    pair.await_well(pair.seen())
    cut_power(host)
    await_state(pair.lab, host, UNIT, lambda: "second unclean boot" in pair.lab.run(host, "cat", f"/var/lib/gb10/{CLUSTER}/unit/state.json"))


FAULTS = (
    # Ranks can be held in the first containers only, so these two come first. A healthy prefill of a long prompt shows no progress either.
    Fault("a prefill of 1,300 s", NOT_RECOVERED, making(Deadlock), (WORKER,), lasts=1300 / SCALE, undo=undoing(Deadlock)),
    Fault("a rank waits in a loop", RECOVERED, making(Deadlock), (WORKER,)),
    Fault("a rank is killed", RECOVERED, lambda pair, host: pair.signal(host, "KILL")),
    Fault("a rank is stopped", RECOVERED, lambda pair, host: pair.signal(host, "STOP")),
    Fault("the front end is killed", RECOVERED, lambda pair, host: pair.signal(host, "KILL", FRONTS[pair.executor]), (HEAD,)),
    Fault("a container is removed", EITHER, lambda pair, host: pair.lab.run(host, "docker", "rm", "--force", CONTAINERS[host])),
    Fault("memory does not come back", STOPPED, lack, said="GiB. Reboot "),
    Fault("a node is frozen", NOT_RECOVERED, lambda _pair, host: docker("pause", f"gb10-lab-{host}"), lasts=30, undo=thaw, said="no answer from "),
    Fault("both nodes reboot", EITHER, lambda _pair, _host: reboot(HEAD, WORKER), (HEAD,)),
    Fault("a node reboots", EITHER, lambda _pair, host: reboot(host)),
    Fault("a node is off", EITHER, lambda _pair, host: shut_down(host), lasts=60, undo=lambda _pair, host: boot(host), said="no answer from "),
    Fault("a node loses its power", EITHER, lose_power),
    Fault("a node loses its power twice", EITHER, lose_power_twice, lasts=20, undo=start_after_it, said="second unclean boot"),
    Fault("the fabric drops all packets for 20 s", EITHER, making(Dropped), lasts=20, undo=undoing(Dropped)),
    Fault("the cable is out", EITHER, making(CableOut), lasts=90, undo=undoing(CableOut), said="no answer from "),
    Fault("a full batch for an hour", NOT_RECOVERED, work, (HEAD,), lasts=3600 / SCALE, undo=mended),
    Fault("the disk is full, and a rank is stopped", RECOVERED, fill, lasts=30, undo=mended),
    Fault("the clock jumps by ten years", NOT_RECOVERED, lambda pair, _host: jump(pair), (HEAD,), lasts=20),
)
