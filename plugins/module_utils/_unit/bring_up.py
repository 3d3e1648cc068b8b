# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The start of an engine's unit: its steps, and the waits for the other nodes. This module util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._arguments.serve_arguments import served_name
from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_state, interruption
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._files import private
from ansible_collections.gb10.cluster.plugins.module_utils._memory import accounting, node_memory
from ansible_collections.gb10.cluster.plugins.module_utils._network import listeners
from ansible_collections.gb10.cluster.plugins.module_utils._node import ray
from ansible_collections.gb10.cluster.plugins.module_utils._records import cold_starts, starts
from ansible_collections.gb10.cluster.plugins.module_utils._unit import admission, glance, meeting, place, record, specification, steps, unit_files
from ansible_collections.gb10.cluster.plugins.module_utils._unit.journal import notify, say
from ansible_collections.gb10.cluster.plugins.module_utils._unit.lock import Lock
from ansible_collections.gb10.cluster.plugins.module_utils._unit.service import Service
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: Seconds between two checks of the engine, and between two of Ray or of a head that does not answer yet.
LOOK_SECONDS, ASK_SECONDS = 2.0, 5.0
#: Seconds that a node's network may take after a boot.
NETWORK_SECONDS = 120.0
#: Seconds for one answer of the API or of Docker, and for one of Ray.
ANSWER_SECONDS, RAY_SECONDS = 5.0, 60.0
#: Seconds within which a stopped engine's memory has to be available again before the next start.
MEMORY_SECONDS = 300.0
#: The steps whose modules verify that this unit still holds the lock.
LOCKED = ("drain", "engine", "container")
#: Reasons of the errors for a worker's container that cannot start yet: its head does not answer, or is not ready.
HEAD_AWAITED = ("no head", "not ready in time")


def lacking(nodes: t.Iterable[t.Mapping[str, t.Any]], wanted: t.Mapping[str, str], gpus: int) -> list[str]:
    """Return the names in ``wanted`` (name to address) that Ray does not list as alive with their GPUs."""
    alive = {node["address"]: node["gpus"] for node in nodes if node["alive"]}
    return [name for name, address in wanted.items() if alive.get(address) != gpus]


def incarnations(nodes: t.Iterable[t.Mapping[str, t.Any]]) -> dict[str, str]:
    """Return Ray's id of each live node by its address: a node that left and rejoined has a new id."""
    return {node["address"]: node["node_id"] for node in nodes if node["alive"]}


def failed_to_start(how: str, engine: t.Mapping[str, t.Any]) -> ClusterError:
    """Return the error for an engine that ended before it served."""
    return ClusterError(f"the engine failed to start: {how or 'its process is gone'}", remedy=f"See its log: {engine['log_path']}", reason="engine ended")


class Start(Service):
    """Starts the engine of one specification. ``run`` runs a module."""

    leaves = "engine and container keep running"
    writer = "the bring-up"

    def __init__(self, given: specification.Specification, run: steps.Run) -> None:
        super().__init__(given, unit_files.of_engine(given["state_dir"], given["cluster"]), run)
        self.lock = Lock(given, self.unit, run)
        self.paths = engine_state.EnginePaths.of(given["state_dir"], given["log_dir"], given["cluster"])
        self.has_engine = specification.step(given, "start", "engine") is not None
        self.tries = 0
        self.run_id = ""
        self.token: dict[str, t.Any] = {}
        #: How long the engine's start took, as text.
        self.took = ""
        self.members: dict[str, str] = {}
        self.ranks = meeting.Ranks(given)
        #: Whether this node's rank runs without the ranks of the other nodes.
        self.incomplete = False

    def arguments(self, name: str) -> dict[str, t.Any]:
        """Return the arguments of a step of the start, empty when there is no such step."""
        return specification.arguments(self.given, name)

    def query(self, name: str, predict: bool = False, seconds: float = 0) -> steps.Result:
        """Run the module of a step of the start and return its result, also a failure; empty when there is no such step."""
        step = specification.step(self.given, "start", name)
        return self.run(step["module"], step["arguments"], seconds or step["timeout"], predict) if step else {}

    # -- published state ---------------------------------------------------------------------------------------------

    def write(self, state: str, reason: str) -> None:
        record.write(self.folder, self.boot, state, reason, self.run_id, self.tries)
        self.show(state, reason)

    def show(self, state: str, reason: str) -> None:
        """Publish the model, its state, and the time of its last token for all accounts of the node. Raises OSError."""
        engine = self.arguments("engine")
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
                "start": self.took if state == record.RUNNING else "",
            },
        )

    # -- start -------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the engine unless it already runs as requested, and notify systemd that it serves."""
        super().begin()
        self.close()
        if not self.serves():
            self.require_noted()
            self.compare_place()
            with self.lock.held():
                self.bring_up(specification.START)
        self.announce("runs")
        notify("READY=1")

    def announce(self, verb: str) -> None:
        """Record that the engine, or the worker's container, runs."""
        self.note(record.RUNNING, self.came_back)
        say(f"{self.given['role']} of cluster {self.given['cluster']} {verb}{f', run {self.run_id}' if self.run_id else ''}")

    def close(self) -> None:
        """Deny other accounts access to the directories that the container writes. After a failure an existing container keeps running; none is created."""
        for folder in filter(private.is_open, self.paths.closed):
            try:
                private.close(folder)
                say(f"closed {folder} to other accounts")
            except ClusterError as error:
                say(error.with_remedy())

    def serves(self) -> bool:
        """Return whether container and engine already run as requested. Changes nothing."""
        for name in ("container", "engine"):
            result = self.query(name, predict=True)
            if result and (result.get("failed") or result["actions"] or (name == "engine" and not result["engine_live"])):
                say(f"{name}: {result['msg']}{f' ({why})' if (why := result.get('reason')) else ''}")
                return False
            self.run_id = result["run_id"] if result and name == "engine" else self.run_id
        self.members = incarnations(self.ray_nodes())
        if not self.is_complete():
            return False
        self.await_token()
        say("container and engine already run as requested" if self.has_engine else "the container already runs as requested")
        return True

    def compare_place(self) -> None:
        """Wait for the node's network. Raises :class:`ClusterError` when it differs from the network that the specification was written for."""
        env, roots = self.arguments("container").get("env") or {}, self.given["roots"]
        differing: list[str] = []
        for _elapsed in clock(NETWORK_SECONDS, LOOK_SECONDS):
            self.check_asked()
            now = place.seen(self.given["address"], env, roots["sysfs_root"], roots["proc_root"])
            differing = place.differences(self.given.get("seen") or {}, now)
            if not differing:
                return
        raise ClusterError(
            f"the node's network changed since the unit was written: {'; '.join(differing)}",
            remedy="Restore the network, or run the bring-up again with the settings that are correct now.",
            reason="place",
        )

    def step(self, part: str, name: str) -> steps.Result:
        """Run a step's module and return its result, empty when there is no such step. Raises its failure."""
        step = specification.step(self.given, part, name)
        if step is None:
            return {}
        notify(f"STATUS={part}: {name}")
        given = {**step["arguments"], **({"lock_id": self.lock.id} if name in LOCKED else {})}

        def run(**changed: int) -> steps.Result:
            return self.run(step["module"], {**given, **changed}, step["timeout"], False)

        def drain() -> steps.Result:
            cluster = self.given["cluster"]
            return interruption.drain(given["drain_timeout"], cluster, lambda seconds: run(drain_timeout=seconds), lambda text: say(f"drain: {text}"))

        done = steps.require(name, drain() if name == "drain" else run())
        say(f"{name}: {done['msg']}")
        return done

    def bring_up(self, names: t.Iterable[str]) -> None:
        """Run those of these steps that the start has. Raises :class:`ClusterError` at the first that fails.

        A step that waited, and found that another run started everything meanwhile, returns True and is the last one.
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
        """Compare the available memory with the memory that recorded starts took. Raises :class:`ClusterError` when it does not fit.

        The memory of an earlier start in this activation may take some time to become available again.
        """
        memory, roots, container = self.given["memory"], self.given["roots"], self.arguments("container")
        known = starts.FILE.read(starts.FILE.path_of(self.given["state_dir"], self.given["cluster"]))
        image = EngineApi(self.docker_socket, ANSWER_SECONDS).image(container["image"]) if container else None
        peaks = admission.taken(known, image["Id"] if image else "", memory["profile_digest"], memory["context"])
        for elapsed in clock(MEMORY_SECONDS, ASK_SECONDS):
            self.check_asked()
            available = accounting.available_mb(node_memory.read_meminfo(roots["proc_root"], roots.get("meminfo"))) / 1024
            try:
                say(f"memory: {admission.judge(peaks, available)}")
                return
            except ClusterError:
                if not self.tries or elapsed >= MEMORY_SECONDS:
                    raise

    @property
    def docker_socket(self) -> str:
        return str(self.arguments("container").get("docker_socket") or "/var/run/docker.sock")

    def await_others(self, step: str, missing: t.Callable[[], str], action: str, seconds: float) -> bool:
        """Wait until ``missing`` returns no names. Raises :class:`WaitTimeout` when the named nodes did not perform ``action`` in time.

        Other runs may work on the cluster meanwhile: a lock that is held is released, and taken again before this returns. Returns whether it was.
        """
        released, reported = self.lock.within and not self.lock.id, ""
        refusal: ClusterError | None = None
        for _elapsed in clock(self.given["start_seconds"], seconds):
            self.check_asked()
            nodes, refusal = missing(), None
            if nodes:
                self.lock.release()
                released = self.lock.within
            else:
                refusal = self.lock.refused() if self.lock.within else None
                if not refusal:
                    if reported:
                        self.note(record.STARTING)
                    return released
            blocker = nodes or str(refusal)
            if blocker != reported:
                say(f"{step}: waits for {blocker}")
                self.note(record.STARTING, f"waits for {blocker}")
            reported = blocker
        raise refusal or WaitTimeout(
            f"{reported} did not {action} within {self.given['start_seconds']} s",
            remedy=f"Run there: systemctl status {self.unit}",
            reason="nodes missing",
        )

    def started_meanwhile(self) -> bool:
        """Return whether another run started everything while the lock was released. Raises :class:`ClusterError` when memory is short by now."""
        if self.serves():
            return True
        self.admit()
        return False

    def start_container(self) -> bool:
        """Start the node's container; a worker waits for its head first. Returns the result of :meth:`started_meanwhile`."""
        reported = False
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
                if not reported:
                    say(f"container: waits for the head: {error}")
                reported = True
                self.lock.release()
        return False

    def await_head(self) -> bool:
        """Wait until the address of a worker's Ray head answers. Returns the result of :meth:`started_meanwhile`."""
        address, port = map(self.arguments("container").get, ("head_address", "port"))
        if self.given["role"] == "head" or not address or not port:
            return False
        head = ", ".join(name for name, known in self.given["nodes"].items() if known == address) or address
        released = self.await_others("container", lambda: head if listeners.answers(address, port, ANSWER_SECONDS) else "", "start Ray", ASK_SECONDS)
        return released and self.started_meanwhile()

    def ray_nodes(self) -> list[dict[str, t.Any]]:
        """Return the nodes that Ray's head lists; none when it does not answer."""
        result = self.query("ray", seconds=RAY_SECONDS)
        return [] if result.get("failed") else result.get("nodes") or []

    def await_nodes(self) -> bool:
        """Wait until all nodes are in Ray with their GPUs. Raises :class:`WaitTimeout` when they are not in time. Returns as :meth:`started_meanwhile`."""

        def missing() -> str:
            nodes = self.ray_nodes()
            self.members = incarnations(nodes)
            return ", ".join(lacking(nodes, self.given["nodes"], self.given["gpus"]))

        released = self.await_others("ray", missing, "join Ray", ASK_SECONDS)
        say(f"ray: {', '.join(self.given['nodes'])}")
        return released and self.started_meanwhile()

    def start_engine(self) -> None:
        self.run_id = self.step("start", "engine")["run_id"]
        self.tries += 1
        self.note(record.STARTING)

    def await_token(self) -> None:
        """Wait for a token, where the start has that step. Raises :class:`ClusterError` for an engine that ended, :class:`WaitTimeout` when time is over."""
        if specification.step(self.given, "start", "token") is None:
            return
        for _elapsed in clock(self.given["start_seconds"], LOOK_SECONDS):
            self.check_asked()
            result = steps.require("token", self.query("token"))
            if result["completion"]:
                say(f"token: after {result['completion']['seconds']} s, vLLM {result['engine_version']}")
                seconds = result["completion"]["seconds"]
                self.token = {"seconds": seconds, "at": utc_text()}
                # Of an engine that ran before, only its record knows when it was ready.
                ready = result["engine"]["seconds"] if self.tries else None
                self.took = cold_starts.text(cold_starts.measured(result["cold_start"], ready, {"first_token": seconds}, {}), other_stages=False)
                return
            if not result["engine"]["live"]:
                raise failed_to_start(result["last_end"], result["engine"])
            if left := self.ranks.left():
                self.step("stop", "engine")
                raise ClusterError(
                    f"the rank of {', '.join(left)} ended before the engine started; this node's rank was stopped",
                    remedy=f"Run there: systemctl status {self.unit}",
                    reason="engine ended",
                )
        raise WaitTimeout(
            f"the engine returned no token within {self.given['start_seconds']} s; it keeps running",
            remedy=f"See its log: {engine_state.engine_state(self.paths, lenient=True)['log_path']}",
            reason="no token",
        )

    # -- ranks of several nodes without Ray --------------------------------------------------------------------------

    def is_complete(self) -> bool:
        """Return whether all ranks of an engine with a rank on this node run. Raises :class:`UnknownState` when that is unknown."""
        missing = ", ".join(self.ranks.missing())
        if not missing:
            self.ranks.met()
            return True
        token = self.query("token")
        if token and steps.require("token", token)["completion"]:
            say(f"join: no connection from {missing} is visible, but a token was returned: the end of a rank there will be noticed when the engine ends")
            return True
        if self.given["role"] != "head" and self.ranks.head_listens():
            raise UnknownState(
                f"this node's rank is not connected to the running rank of {missing}: whether they are one engine is unknown; both keep running",
                remedy="Run the playbook status. If it reports no token, run the bring-up again.",
                reason="ranks apart",
            )
        self.incomplete = True
        say(f"engine: this node runs its rank; {missing} does not")
        return False

    def meet(self) -> bool:
        """Stop this node's rank of an incomplete engine. A worker then waits until rank 0 listens.

        Raises :class:`WaitTimeout` when it does not. Returns the result of :meth:`started_meanwhile`.
        """
        if self.incomplete:
            self.step("stop", "engine")
            self.incomplete = False
        if self.given["role"] == "head":
            return False
        rank = f"the rank of {self.ranks.names}"
        released = self.await_others("meet", lambda: "" if self.ranks.head_listens() else rank, "join", ASK_SECONDS)
        say(f"meet: {self.ranks.names} listens")
        return released and self.started_meanwhile()

    def join(self) -> None:
        """Wait until the ranks are connected. Raises :class:`WaitTimeout` after this node's rank was stopped, :class:`ClusterError` when it ended."""

        def missing() -> str:
            others = ", ".join(self.ranks.missing())
            engine = engine_state.engine_state(self.paths, lenient=True)
            if others and not engine["live"] and not engine["unreadable"]:
                if holder := self.other_holder():
                    return f"{holder}, who stopped it"
                raise failed_to_start(f"it waited for the rank of {others}; {engine_state.last_end(engine)}", engine)
            return others and f"the rank of {others}"

        try:
            if self.await_others("join", missing, "join", LOOK_SECONDS):
                # A run that worked on the cluster meanwhile may have restarted it.
                self.run_id = engine_state.engine_state(self.paths, lenient=True)["run_id"]
        except WaitTimeout:
            self.lock.take()
            self.step("stop", "engine")
            raise
        self.ranks.met()
        say(f"join: {self.ranks.names}")

    def left_with_it(self) -> list[str]:
        """Return the nodes that may have ended the engine: a head whose rank no longer listens, or workers that do not answer at all."""
        if self.given["role"] != "head":
            return [] if self.ranks.head_listens() else list(self.ranks.others)
        for _elapsed in clock(ray.FORGET_SECONDS, ASK_SECONDS):
            self.check_asked()
            if silent := self.ranks.silent():
                return silent
        return []
