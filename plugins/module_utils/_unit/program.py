# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program of an engine's unit: starts the engine of its specification, watches it, and stops it. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi, find_node_container
from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_state
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._node import ray
from ansible_collections.gb10.cluster.plugins.module_utils._records import recoveries
from ansible_collections.gb10.cluster.plugins.module_utils._unit import record, service, specification
from ansible_collections.gb10.cluster.plugins.module_utils._unit.journal import say
from ansible_collections.gb10.cluster.plugins.module_utils._unit.bring_up import ANSWER_SECONDS, ASK_SECONDS, LOOK_SECONDS, Start, incarnations
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: Starts of the engine in one activation.
TRIES = 2


class Seen(t.NamedTuple):
    """The result of one check: ``asked`` is who requested the end, ``how`` is how it ended without a request; both are empty while it runs.

    ``left`` are the nodes whose ranks are gone, so that this node's rank no longer serves.
    """

    asked: str = ""
    how: str = ""
    left: t.Sequence[str] = ()


def ended(how: str) -> ClusterError:
    """Return the error for an engine or a container that ended without a request."""
    return ClusterError(how, remedy="See its log, and start the unit again when the cause is gone.", reason="engine ended")


class Supervisor(Start):
    """Starts the engine of a specification, watches it, and stops it."""

    # -- watching ----------------------------------------------------------------------------------------------------

    def serve(self) -> int:
        """Watch the engine, or the worker's container, until it ends; return the exit code."""
        while True:
            self.check_asked()
            # Releases a lock only where an earlier release failed.
            self.lock.release()
            self.catch_up()
            seen = self.seen_engine() if self.has_engine else self.seen_container()
            if seen == Seen() and (left := self.ranks.left()):
                seen = Seen(how=f"the rank of {', '.join(left)} is gone, and this node's rank cannot serve without it", left=left)
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
        """Return the state of the engine. An engine of unknown state counts as running."""
        engine = engine_state.engine_state(self.paths, lenient=True)
        if engine["unreadable"] or (engine["live"] and engine["run_id"] == self.run_id):
            return Seen()
        if engine["ordered"] != self.run_id:
            return Seen(f"run {self.run_id} was replaced by run {engine['ordered'] or '(none)'}")
        if engine["run_id"] != self.run_id:
            # A module of this collection would have ordered it: a program in the container wrote this record.
            return Seen("", f"the record of run {self.run_id} is {'that of run ' + engine['run_id'] if engine['run_id'] else 'gone'}, which no module ordered")
        how = engine_state.last_end(engine) or f"run {self.run_id} is gone"
        return Seen(how) if engine["stopped_by"] else Seen("", how)

    def seen_container(self) -> Seen:
        """Return the state of the worker's container. A container of unknown state counts as running."""
        try:
            container = find_node_container(EngineApi(self.docker_socket, ANSWER_SECONDS), self.given["cluster"], self.given["role"])
        except (ClusterError, OSError):
            return Seen()
        if container is None:
            return Seen("", "its container is gone")
        return Seen() if container["State"]["Running"] else Seen("", f"its container ended with code {container['State']['ExitCode']}")

    def other_holder(self) -> str:
        """Return the holder of the cluster's lock on this node, empty when it is free or cannot be read.

        A recovery does not count: it requests the end of an engine, and holds its lock before that.
        """
        with contextlib.suppress(UnknownState):
            lock = cluster_locks.read(cluster_locks.path_of(self.given["state_dir"], self.given["cluster"]))
            if lock and not str(lock.holder.get("service", "")).startswith(recoveries.SERVICE):
                return lock.describe()
        return ""

    def come_back(self, seen: Seen) -> None:
        """Restart, once, what ended because of another node. Raises :class:`ClusterError` for any other end, and for the second one."""
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
        self.announce("runs again")

    def after_nodes_left(self, how: str) -> tuple[str, ...]:
        """Return the steps of a second start, once another node left Ray and rejoined. Raises :class:`ClusterError` when none left or none rejoined."""
        left: list[str] = []
        for _elapsed in clock(ray.FORGET_SECONDS, ASK_SECONDS):
            self.check_asked()
            now = incarnations(self.ray_nodes())
            left = [name for name, address in self.given["nodes"].items() if now.get(address, "") != self.members.get(address, "")]
            if left and now:
                break
        if not left:
            raise ended(how)
        say(f"{', '.join(left)} left Ray, so the engine ended: waits for it, then restarts the engine once")
        self.await_nodes()
        return ("zombies", "memory", "ray", "engine", "token", "guard")

    def after_ranks_left(self, seen: Seen) -> tuple[str, ...]:
        """Return the steps of a second start, in which the ranks wait for each other. Raises :class:`ClusterError` when this node's ended alone."""
        left = seen.left or self.left_with_it()
        if not left:
            raise ended(seen.how)
        say(f"{', '.join(left)} left, so the engine is dead: waits for it, then restarts the engine once")
        return ("zombies", "memory", "container", "meet", "engine", "join", "token", "guard")

    # -- stop --------------------------------------------------------------------------------------------------------

    def stop(self) -> str:
        """Drain requests, and stop engine and container. Raises :class:`ClusterError` when that fails."""
        try:
            self.lock.take()
        except ClusterError as error:
            say(f"{error}; the unit stops anyway")
        try:
            self.drain()
            for name in specification.STOP[1:]:
                self.step("stop", name)
        except ClusterError as error:
            raise ClusterError(f"the stop failed: {error}", remedy=error.remedy) from error
        finally:
            self.lock.release()
        return ""

    def drain(self) -> None:
        """Stop the engine once its requests are answered. The next step stops an engine with requests left, or one that does not answer."""
        try:
            self.step("stop", "drain")
        except ClusterError as error:
            say(f"drain: {error}; the engine is stopped anyway")


def main(argv: t.Sequence[str]) -> int:
    """Run an engine's unit with the specification that the command line names, and return the exit code."""
    return service.run(argv, lambda path, run: Supervisor(specification.read(path), run))
