# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program of an engine's unit: starts what the specification says, watches it, and stops it. This module util is PRIVATE to the collection."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._arguments.serve_arguments import served_name
from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi, find_node_container
from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_state, interruption
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._files import private
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._memory import accounting, node_memory
from ansible_collections.gb10.cluster.plugins.module_utils._network import listeners
from ansible_collections.gb10.cluster.plugins.module_utils._node import ray
from ansible_collections.gb10.cluster.plugins.module_utils._records import starts
from ansible_collections.gb10.cluster.plugins.module_utils._unit import admission, glance, meeting, place, record, service, specification, steps, unit_files
from ansible_collections.gb10.cluster.plugins.module_utils._unit.journal import notify, say
from ansible_collections.gb10.cluster.plugins.module_utils._unit.lock import Lock
from ansible_collections.gb10.cluster.plugins.module_utils._unit.service import Service
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: Seconds between two looks at the engine, and between two questions to Ray or to a head that is not there yet.
LOOK_SECONDS, ASK_SECONDS = 2.0, 5.0
#: Seconds that the network of a node gets after its boot.
NETWORK_SECONDS = 120.0
#: Seconds for one answer of the API or of Docker, and for one of Ray.
ANSWER_SECONDS, RAY_SECONDS = 5.0, 60.0
#: Seconds that the memory of a part that was stopped gets to come back before the next start.
MEMORY_SECONDS = 300.0
#: Starts of the engine in one activation.
TRIES = 2
#: The steps whose modules make sure that the lock still is this unit's.
LOCKED = ("drain", "engine", "container")
#: Why a worker's container could not be started yet: its head is not there, or not ready.
HEAD_AWAITED = ("no head", "not ready in time")


class Seen(t.NamedTuple):
    """What a look found: ``asked`` says at whose request it ended, ``how`` how it ended by itself; both are empty while it lives.

    ``left`` are the nodes without whose ranks what is left here serves nobody.
    """

    asked: str = ""
    how: str = ""
    left: t.Sequence[str] = ()


def lacking(nodes: t.Iterable[t.Mapping[str, t.Any]], wanted: t.Mapping[str, str], gpus: int) -> list[str]:
    """Return the nodes (names of ``wanted``, with their addresses) that Ray does not list as alive with their GPUs."""
    alive = {node["address"]: node["gpus"] for node in nodes if node["alive"]}
    return [name for name, address in wanted.items() if alive.get(address) != gpus]


def incarnations(nodes: t.Iterable[t.Mapping[str, t.Any]]) -> dict[str, str]:
    """Return Ray's id of each living node by its address: a node that left and came back has another."""
    return {node["address"]: node["node_id"] for node in nodes if node["alive"]}


def did_not_come_up(how: str, engine: t.Mapping[str, t.Any]) -> ClusterError:
    """Return the error for an engine that ended before it served."""
    return ClusterError(f"the engine did not come up: {how or 'it is gone'}", remedy=f"See its log: {engine['log_path']}", reason="engine ended")


def ended(how: str) -> ClusterError:
    """Return the error for an engine or a container that ended by itself."""
    return ClusterError(how, remedy="See its log, and start the unit again when the cause is gone.", reason="engine ended")


class Supervisor(Service):
    """Runs one specification of an engine. ``run`` runs a module."""

    leaves = "engine and container run on"
    writer = "the bring-up"

    def __init__(self, given: specification.Specification, run: steps.Run) -> None:
        super().__init__(given, unit_files.of_engine(given["state_dir"], given["cluster"]), run)
        self.lock = Lock(given, self.unit, run)
        self.paths = engine_state.EnginePaths.of(given["state_dir"], given["log_dir"], given["cluster"])
        self.has_engine = specification.step(given, "start", "engine") is not None
        self.tries = 0
        self.run_id = ""
        self.token: dict[str, t.Any] = {}
        self.members: dict[str, str] = {}
        self.ranks = meeting.Ranks(given)
        #: Whether this node's part of an engine was found to lack another one.
        self.lacks = False

    # -- what others see ---------------------------------------------------------------------------------------------

    def write(self, state: str, reason: str) -> None:
        record.write(self.folder, self.boot, state, reason, self.run_id, self.tries)
        self.show(state, reason)

    def show(self, state: str, reason: str) -> None:
        """Let everybody see which model this is, how it is, and when it last gave a token. Raises OSError."""
        engine = (specification.step(self.given, "start", "engine") or {"arguments": {}})["arguments"]
        head = self.given["role"] == "head" and bool(engine)
        glance.write(
            self.given["state_dir"],
            {
                "cluster": self.given["cluster"],
                "role": self.given["role"],
                "state": state,
                "reason": reason,
                "boot_id": self.boot,
                "at": utc_text(),
                "model": served_name(engine["model"], engine["arguments"]) if head else "",
                "endpoint": f"{engine_state.base_url(engine['api_address'], engine['api_port'])}/v1" if head else "",
                "token": self.token if state == record.RUNNING else {},
            },
        )

    # -- start -------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Bring the engine up, or find it as wanted, and tell systemd that it serves."""
        super().begin()
        self.close()
        if not self.serves():
            self.require_noted()
            self.compare_place()
            with self.lock.held():
                self.bring_up(specification.START)
        self.note(record.RUNNING)
        notify("READY=1")
        say(f"{self.given['role']} of cluster {self.given['cluster']} runs{f', run {self.run_id}' if self.run_id else ''}")

    def close(self) -> None:
        """Have nobody else reach what the container writes. Where that fails, a container that is there runs on, and none is made."""
        for folder in filter(private.is_open, self.paths.closed):
            try:
                private.close(folder)
                say(f"closed {folder} to other accounts")
            except ClusterError as error:
                say(error.with_remedy())

    def serves(self) -> bool:
        """Return whether container and engine are as wanted already. Nothing is changed for that."""
        for name in ("container", "engine"):
            one = specification.step(self.given, "start", name)
            if one is None:
                continue
            found = self.run(one["module"], one["arguments"], one["timeout"], True)
            if found.get("failed") or found["actions"] or (name == "engine" and not found["engine_live"]):
                say(f"{name}: {found['msg']}{f' ({why})' if (why := found.get('reason')) else ''}")
                return False
            self.run_id = found["run_id"] if name == "engine" else self.run_id
        if specification.step(self.given, "start", "ray"):
            self.members = incarnations(self.ray_nodes())
        if not self.is_whole():
            return False
        if self.has_engine:
            self.await_token()
        say("container and engine are as wanted" if self.has_engine else "the container is as wanted")
        return True

    def compare_place(self) -> None:
        """Wait for the node's network. Raises :class:`ClusterError` when what the specification rests on is another than it was."""
        recorded = self.given.get("seen") or {}
        env = (specification.step(self.given, "start", "container") or {"arguments": {}})["arguments"].get("env") or {}
        differing: list[str] = []
        for _elapsed in clock(NETWORK_SECONDS, LOOK_SECONDS):
            self.check_asked()
            roots = self.given["roots"]
            differing = place.differences(recorded, place.seen(self.given["address"], env, roots["sysfs_root"], roots["proc_root"]))
            if not differing:
                return
        raise ClusterError(
            f"the node is not as it was when the unit was written: {'; '.join(differing)}",
            remedy="Bring the network back as it was, or run the bring-up again with the settings that hold now.",
            reason="place",
        )

    def step(self, part: str, name: str) -> steps.Result:
        """Run a step's module and return its result, empty where there is no such step. Raises its failure."""
        one = specification.step(self.given, part, name)
        if one is None:
            return {}
        notify(f"STATUS={part}: {name}")
        lock = {"lock_id": self.lock.id} if name in LOCKED else {}
        given = {**one["arguments"], **lock}
        if name == "drain":
            result = interruption.drain(
                given["drain_timeout"],
                self.given["cluster"],
                lambda seconds: self.run(one["module"], {**given, "drain_timeout": seconds}, one["timeout"], False),
                lambda text: say(f"drain: {text}"),
            )
        else:
            result = self.run(one["module"], given, one["timeout"], False)
        done = steps.require(name, result)
        say(f"{name}: {done['msg']}")
        return done

    def bring_up(self, names: t.Iterable[str]) -> None:
        """Take these steps of the start, of those that there are. Raises :class:`ClusterError` at the first that fails.

        A step that waited, and found that somebody else brought all of it up meanwhile, returns True and is the last one.
        """
        own: dict[str, t.Callable[[], bool | None]] = {
            "memory": self.admit, "container": self.start_container, "ray": self.await_nodes, "meet": self.meet, "engine": self.start_engine,
            "join": self.join, "token": self.await_token,
        }  # fmt: skip
        for name in names:
            if specification.step(self.given, "start", name):
                self.check_asked()
                if name in own:
                    if own[name]():
                        return
                else:
                    self.step("start", name)

    def admit(self) -> None:
        """Compare the memory that is available with what recorded starts took. Raises :class:`ClusterError` when it does not fit.

        What a start before this one held gets some time to come back.
        """
        asked, roots = self.given["memory"], self.given["roots"]
        known = starts.FILE.read(starts.FILE.path_of(self.given["state_dir"], self.given["cluster"]))
        container = specification.step(self.given, "start", "container")
        image = EngineApi(self.docker_socket, ANSWER_SECONDS).image(container["arguments"]["image"]) if container else None
        found = admission.taken(known, image["Id"] if image else "", asked["profile_digest"], asked["context"])
        for elapsed in clock(MEMORY_SECONDS, ASK_SECONDS):
            self.check_asked()
            available = accounting.available_mb(node_memory.read_meminfo(roots["proc_root"], roots.get("meminfo"))) / 1024
            try:
                say(f"memory: {admission.judge(found, available)}")
                return
            except ClusterError:
                if not self.tries or elapsed >= MEMORY_SECONDS:
                    raise

    @property
    def docker_socket(self) -> str:
        one = specification.step(self.given, "start", "container") or {"arguments": {}}
        return str(one["arguments"].get("docker_socket") or "/var/run/docker.sock")

    def await_others(self, step: str, missing: t.Callable[[], str], wanted: str, seconds: float) -> bool:
        """Wait until ``missing`` names nobody. Raises :class:`WaitTimeout` when those that it names did not do what is ``wanted``.

        Others may work on the cluster meanwhile: a lock that is held is given back, and taken again before this returns. Returns whether it was.
        """
        apart, told = self.lock.within and not self.lock.id, ""
        refused: ClusterError | None = None
        for _elapsed in clock(self.given["start_seconds"], seconds):
            self.check_asked()
            who, refused = missing(), None
            if who:
                self.lock.give_back()
                apart = self.lock.within
            else:
                refused = self.lock.refused() if self.lock.within else None
                if not refused:
                    if told:
                        self.note(record.STARTING)
                    return apart
            whom = who or str(refused)
            if whom != told:
                say(f"{step}: waits for {whom}")
                self.note(record.STARTING, f"waits for {whom}")
            told = whom
        raise refused or WaitTimeout(
            f"{told} did not {wanted} within {self.given['start_seconds']} s",
            remedy=f"See there why: systemctl status {self.unit}",
            reason="nodes missing",
        )

    def came_meanwhile(self) -> bool:
        """Return whether another run brought all of it up while the lock was given back. Raises :class:`ClusterError` when memory is short by now."""
        if self.serves():
            return True
        self.admit()
        return False

    def start_container(self) -> bool:
        """Run the node's container. A worker's waits for its head. Returns what :meth:`came_meanwhile` does."""
        told = False
        for elapsed in clock(self.given["start_seconds"], ASK_SECONDS):
            self.check_asked()
            if self.await_head():
                return True
            try:
                self.step("start", "container")
                return False
            except ClusterError as error:
                if self.given["role"] == "head" or error.reason not in HEAD_AWAITED or elapsed >= self.given["start_seconds"]:
                    raise
                if not told:
                    say(f"container: waits for the head: {error}")
                told = True
                self.lock.give_back()
        return False

    def await_head(self) -> bool:
        """Wait until somebody answers where a worker's Ray is to find its head. Returns what :meth:`came_meanwhile` does."""
        one = specification.step(self.given, "start", "container") or {"arguments": {}}
        address, port = one["arguments"].get("head_address"), one["arguments"].get("port")
        if self.given["role"] == "head" or not address or not port:
            return False
        head = ", ".join(name for name, its in self.given["nodes"].items() if its == address) or address
        apart = self.await_others("container", lambda: head if listeners.answers(address, port, ANSWER_SECONDS) else "", "start Ray", ASK_SECONDS)
        return apart and self.came_meanwhile()

    def ray_nodes(self) -> list[dict[str, t.Any]]:
        """Return what Ray's head says of its nodes; none when it does not answer."""
        one = specification.step(self.given, "start", "ray")
        found = self.run(one["module"], one["arguments"], RAY_SECONDS, False) if one else {}
        return [] if found.get("failed") else found.get("nodes") or []

    def await_nodes(self) -> bool:
        """Wait until all nodes are in Ray with their GPUs. Raises :class:`WaitTimeout` when they do not come. Returns what :meth:`came_meanwhile` does."""

        def missing() -> str:
            nodes = self.ray_nodes()
            self.members = incarnations(nodes)
            return ", ".join(lacking(nodes, self.given["nodes"], self.given["gpus"]))

        apart = self.await_others("ray", missing, "join Ray", ASK_SECONDS)
        say(f"ray: {', '.join(self.given['nodes'])}")
        return apart and self.came_meanwhile()

    def start_engine(self) -> None:
        done = self.step("start", "engine")
        self.tries += 1
        self.run_id = done["run_id"]
        self.note(record.STARTING)

    def await_token(self) -> None:
        """Wait until the engine gave a token. Raises :class:`ClusterError` when it ended, :class:`WaitTimeout` when the time is over."""
        one = specification.step(self.given, "start", "token")
        if one is None:
            return
        for _elapsed in clock(self.given["start_seconds"], LOOK_SECONDS):
            self.check_asked()
            found = steps.require("token", self.run(one["module"], one["arguments"], one["timeout"], False))
            if found["completion"]:
                say(f"token: after {found['completion']['seconds']} s, vLLM {found['engine_version']}")
                self.token = {"seconds": found["completion"]["seconds"], "at": utc_text()}
                return
            if not found["engine"]["live"]:
                raise did_not_come_up(found["last_end"], found["engine"])
            if left := self.ranks.left():
                self.step("stop", "engine")
                raise ClusterError(
                    f"the rank of {', '.join(left)} ended before the engine came up, and this node's was stopped",
                    remedy=f"See there why: systemctl status {self.unit}",
                    reason="engine ended",
                )
        raise WaitTimeout(
            f"the engine gave no token within {self.given['start_seconds']} s; it is left running",
            remedy=f"See its log: {engine_state.engine_state(self.paths, lenient=True)['log_path']}",
            reason="no token",
        )

    # -- ranks of several nodes without Ray --------------------------------------------------------------------------

    def is_whole(self) -> bool:
        """Return whether an engine of which a part lives here has its other parts. Raises :class:`UnknownState` when that is unknown."""
        missing = ", ".join(self.ranks.missing())
        if not missing:
            self.ranks.met()
            return True
        token = specification.step(self.given, "start", "token")
        if token and steps.require("token", self.run(token["module"], token["arguments"], token["timeout"], False))["completion"]:
            say(f"join: no connection from {missing} is seen, and a token came: that a rank there ends will be noticed when the engine ends")
            return True
        if self.given["role"] != "head" and self.ranks.head_listens():
            raise UnknownState(
                f"this node's rank is not connected to that of {missing}, which lives: whether they are one engine is unknown, and both were left as they are",
                remedy="See with the playbook status whether a token comes. If none does, run the bring-up again.",
                reason="ranks apart",
            )
        self.lacks = True
        say(f"engine: a part of it lives here, and none on {missing}")
        return False

    def meet(self) -> bool:
        """Stop what is left of an engine that lacks a rank. A worker waits until rank 0 listens.

        Raises :class:`WaitTimeout` when it does not. Returns what :meth:`came_meanwhile` does.
        """
        if self.lacks:
            self.step("stop", "engine")
            self.lacks = False
        if self.given["role"] == "head":
            return False
        rank = f"the rank of {self.ranks.names}"
        apart = self.await_others("meet", lambda: "" if self.ranks.head_listens() else rank, "join", ASK_SECONDS)
        say(f"meet: {self.ranks.names} listens")
        return apart and self.came_meanwhile()

    def join(self) -> None:
        """Wait until the ranks have met. Raises :class:`WaitTimeout` when they do not, after this node's was stopped, :class:`ClusterError` when it ended."""

        def missing() -> str:
            others = ", ".join(self.ranks.missing())
            engine = engine_state.engine_state(self.paths, lenient=True)
            if others and not engine["live"] and not engine["unreadable"]:
                if holder := self.other_holder():
                    return f"{holder}, who stopped it"
                raise did_not_come_up(f"it waited for the rank of {others}; {engine_state.last_end(engine)}", engine)
            return others and f"the rank of {others}"

        try:
            if self.await_others("join", missing, "join", LOOK_SECONDS):
                # A run that worked on the cluster meanwhile may have started it again.
                self.run_id = engine_state.engine_state(self.paths, lenient=True)["run_id"]
        except WaitTimeout:
            self.lock.take()
            self.step("stop", "engine")
            raise
        self.ranks.met()
        say(f"join: {self.ranks.names}")

    def left_with_it(self) -> list[str]:
        """Return the nodes that an engine which ended here may have ended with: a head whose rank listens no more, workers that give no answer at all."""
        if self.given["role"] != "head":
            return [] if self.ranks.head_listens() else list(self.ranks.others)
        for _elapsed in clock(ray.FORGET_SECONDS, ASK_SECONDS):
            self.check_asked()
            if silent := self.ranks.silent():
                return silent
        return []

    # -- watching ----------------------------------------------------------------------------------------------------

    def serve(self) -> int:
        """Look at the engine, or the worker's container, until it ends; return the exit code."""
        while True:
            self.check_asked()
            # Only where that failed when it was due.
            self.lock.give_back()
            self.catch_up()
            seen = self.seen_engine() if self.has_engine else self.seen_container()
            if seen == Seen() and (left := self.ranks.left()):
                seen = Seen(how=f"the rank of {', '.join(left)} is gone, and without it this one serves nobody", left=left)
            if seen.how and (holder := self.other_holder()):
                seen = Seen(f"{seen.how}, while {holder} worked on the cluster")
            if seen.asked:
                say(f"ended on request: {seen.asked}")
                self.note(record.STOPPED, seen.asked)
                return 0
            if seen.how:
                self.come_back(seen)
            time.sleep(LOOK_SECONDS)

    def seen_engine(self) -> Seen:
        """Return how the engine is. One of which that is unknown lives."""
        engine = engine_state.engine_state(self.paths, lenient=True)
        if engine["unreadable"] or (engine["live"] and engine["run_id"] == self.run_id):
            return Seen()
        if engine["ordered"] != self.run_id:
            return Seen(f"run {self.run_id} gave way to run {engine['ordered'] or '(none)'}")
        if engine["run_id"] != self.run_id:
            # A module of ours would have ordered it: what runs in the container wrote this.
            return Seen("", f"the note of run {self.run_id} is {'that of run ' + engine['run_id'] if engine['run_id'] else 'gone'}, which nobody ordered")
        how = engine_state.last_end(engine) or f"run {self.run_id} is gone"
        return Seen(how) if engine["stopped_by"] else Seen("", how)

    def seen_container(self) -> Seen:
        """Return how the worker's container is. One of which that is unknown runs."""
        try:
            found = find_node_container(EngineApi(self.docker_socket, ANSWER_SECONDS), self.given["cluster"], self.given["role"])
        except (ClusterError, OSError):
            return Seen()
        if found is None:
            return Seen("", "its container is gone")
        return Seen() if found["State"]["Running"] else Seen("", f"its container ended with code {found['State']['ExitCode']}")

    def other_holder(self) -> str:
        """Return who holds the cluster's lock on this node, empty when nobody does."""
        try:
            lock = cluster_locks.read(cluster_locks.path_of(self.given["state_dir"], self.given["cluster"]))
        except UnknownState:
            return ""
        return lock.describe() if lock else ""

    def come_back(self, seen: Seen) -> None:
        """Bring back what ended with another node, once. Raises :class:`ClusterError` for any other end, and for the second one."""
        if len(self.given["nodes"]) < 2:
            raise ended(seen.how)
        say(f"ended: {seen.how}")
        if seen.left:
            with self.lock.held():
                self.step("stop", "engine")
        self.tries = max(self.tries, 1)
        if self.tries >= TRIES:
            raise ClusterError(f"{seen.how}; that was try {self.tries} of {TRIES}", remedy="Find the cause, and start the unit again.", reason="tries")
        self.note(record.STARTING, seen.how)
        names = self.after_ranks_left(seen) if self.given["meeting"] else self.after_nodes_left(seen.how) if self.has_engine else ("container",)
        with self.lock.held():
            self.bring_up(names)
        self.tries = max(self.tries, TRIES)
        self.note(record.RUNNING)
        say(f"{self.given['role']} of cluster {self.given['cluster']} runs again{f', run {self.run_id}' if self.run_id else ''}")

    def after_nodes_left(self, how: str) -> tuple[str, ...]:
        """Return the steps of a second start, once another node left Ray and came back. Raises :class:`ClusterError` when none left or none came back."""
        left: list[str] = []
        for _elapsed in clock(ray.FORGET_SECONDS, ASK_SECONDS):
            self.check_asked()
            now = incarnations(self.ray_nodes())
            left = [name for name, address in self.given["nodes"].items() if now.get(address, "") != self.members.get(address, "")]
            if left and now:
                break
        if not left:
            raise ended(how)
        say(f"{', '.join(left)} left Ray, so the engine ended: waits for it, and starts the engine once more")
        self.await_nodes()
        return ("zombies", "memory", "ray", "engine", "token", "guard")

    def after_ranks_left(self, seen: Seen) -> tuple[str, ...]:
        """Return the steps of a second start, in which the ranks wait for each other. Raises :class:`ClusterError` when this node's ended alone."""
        left = seen.left or self.left_with_it()
        if not left:
            raise ended(seen.how)
        say(f"{', '.join(left)} left, so the engine is dead: waits for it, and starts the engine once more")
        return ("zombies", "memory", "container", "meet", "engine", "join", "token", "guard")

    # -- stop --------------------------------------------------------------------------------------------------------

    def stop(self) -> str:
        """Let requests be answered, and stop engine and container. Raises :class:`ClusterError` when that fails."""
        try:
            self.lock.take()
        except ClusterError as error:
            say(f"{error}; the unit stops all the same")
        try:
            self.drain()
            for name in specification.STOP[1:]:
                self.step("stop", name)
        except ClusterError as error:
            raise ClusterError(f"the stop failed: {error}", remedy=error.remedy) from error
        finally:
            self.lock.give_back()
        return ""

    def drain(self) -> None:
        """Stop the engine once its requests are answered. One that has some left then, or does not say, is the next step's."""
        try:
            self.step("stop", "drain")
        except ClusterError as error:
            say(f"drain: {error}; the engine is stopped all the same")


def main(argv: t.Sequence[str]) -> int:
    """Run the unit of an engine by the specification that the command line names, and return the exit code."""
    return service.run(argv, lambda path, run: Supervisor(specification.read(path), run))
