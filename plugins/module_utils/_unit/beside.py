# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit of a node's companions: starts at a boot the containers that the declared mode has, and stops them gently at a shutdown.

This module util is PRIVATE to the collection.
The role companions creates the containers; the unit starts those that are there, in the order of the list. A companion that does not come up keeps neither
the others nor the engine away.
"""

from __future__ import annotations

import os
import socket
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._companion import container, running
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi, NotFound
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._files.documents import lacking
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import gpu_access
from ansible_collections.gb10.cluster.plugins.module_utils._node import obstacles
from ansible_collections.gb10.cluster.plugins.module_utils._node.container import died, existing
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool
from ansible_collections.gb10.cluster.plugins.module_utils._unit import record, service, specification, steps, unit_files
from ansible_collections.gb10.cluster.plugins.module_utils._unit.journal import notify, say
from ansible_collections.gb10.cluster.plugins.module_utils._unit.service import Service
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: Seconds between two looks at a companion, and whether systemd wants an end.
LOOK_SECONDS = 1.0
#: Seconds that one answer about its health may take, and that one command of Docker's may.
ASK_SECONDS, DOCKER_SECONDS = 10.0, 60.0

#: Seconds that a start takes beside waiting for a companion to answer: most of them for the devices of the GPU to come.
START_SECONDS = 240

#: The form of the specification, and of each companion in it.
KEYS: dict[str, type] = {"companions": list, "state_dir": str, "roots": dict}
COMPANION_KEYS: dict[str, type] = {"name": str, "port": int, "health_path": str, "gpus": bool, "health_timeout": int, "stop_timeout": int}


def wrong(given: t.Any) -> str:
    """Return what is wrong with a specification, empty when nothing is."""
    if problem := lacking(given, KEYS):
        return problem
    problems = (lacking(one, COMPANION_KEYS) for one in given["companions"])
    return next((f"companions: {problem}" for problem in problems if problem), "")


def read(path: str) -> specification.Specification:
    """Return the specification in a file. Raises UnknownState when it holds none."""
    return specification.read(path, wrong)


def seconds(one: t.Mapping[str, t.Any]) -> int:
    """Return the most seconds that a companion may take to be started or stopped."""
    return one["health_timeout"] + one["stop_timeout"] + START_SECONDS


def docker(*words: str) -> None:
    """Have Docker's command line do something. Raises :class:`ClusterError` with its own words when it refuses."""
    answer = run_tool(["docker", *words], DOCKER_SECONDS)
    if answer.rc:
        raise ClusterError(f"docker {' '.join(words)} ended with {answer.rc}: {answer.raw[:300]}", remedy="See docker.service: journalctl -u docker")


def start(api: EngineApi, one: t.Mapping[str, t.Any]) -> str:
    """Start the container of a companion, and wait until it answers; return that in words. Raises :class:`ClusterError`."""
    current, said, node = existing(container.find(api, one["name"])), "", socket.gethostname()
    if not current.running:
        gpu_access.await_cdi_devices(api, "all" if one["gpus"] else "none", current.by_cdi)
        if taken := obstacles.foreign_on(api, [one["port"]], current):
            raise obstacles.ports_taken(f"the companion {one['name']}", node, taken, "port for it in gb10_companions")
        docker("start", current.id)
    for _elapsed in clock(one["health_timeout"], LOOK_SECONDS):
        current = existing(container.find(api, one["name"]))
        if not current.running:
            raise died(current, node, current.fields.get("image", ""), api.logs(current.id))
        healthy, said = running.health(one["port"], one["health_path"], min(ASK_SECONDS, one["health_timeout"]))
        if healthy:
            return f"companion {one['name']} is started, {running.url(one['port'], one['health_path'])} says {said}"
    raise WaitTimeout(running.unhealthy(one, node, said), remedy=f"docker logs {current.name}", reason="not healthy")


def stop(api: EngineApi, one: t.Mapping[str, t.Any]) -> str:
    """Ask the container of a companion to end, and wait for that; return it in words. Raises :class:`ClusterError` when it does not end."""
    try:
        found = container.find(api, one["name"])
        if existing(found).holds_processes:
            docker("kill", "--signal", found["Config"].get("StopSignal") or "SIGTERM", found["Id"])
        for _elapsed in clock(one["stop_timeout"], LOOK_SECONDS):
            if not existing(container.find(api, one["name"])).holds_processes:
                return f"companion {one['name']} is stopped"
    except NotFound:
        return f"companion {one['name']} was removed"
    raise ClusterError(running.ignores_stop(one["name"], socket.gethostname(), one["stop_timeout"]), reason="ignores stop")


class Companions(Service):
    """Runs one specification of companions."""

    leaves = "the companions run on"
    writer = "the playbook mode"

    def __init__(self, given: specification.Specification, run: steps.Run) -> None:
        super().__init__(given, unit_files.of_companions(given["state_dir"]), run)
        self.api = EngineApi()

    def begin(self) -> None:
        """Start the companions, and tell systemd that they are there, those that came up."""
        super().begin()
        self.require_noted()
        self.note(record.RUNNING, self.each(start, self.given["companions"]))
        notify("READY=1")

    def serve(self) -> int:
        """Wait until systemd wants an end."""
        while True:
            self.check_asked()
            self.catch_up()
            time.sleep(LOOK_SECONDS)

    def each(self, act: t.Callable[[EngineApi, t.Mapping[str, t.Any]], str], companions: t.Iterable[t.Mapping[str, t.Any]]) -> str:
        """Start or stop companions; return what failed. The others go on when one fails."""
        failed = []
        for one in companions:
            if self.asked and act is start:
                break
            notify(f"STATUS={act.__name__}: {one['name']}")
            try:
                say(act(self.api, one))
            except ClusterError as error:
                say(error.with_remedy())
                failed.append(f"{one['name']}: {error}")
        return "; ".join(failed)

    def stop(self) -> str:
        """Stop the companions, those that were started last first, and return what failed. Those that a person or a play took out since are theirs."""
        path = os.path.join(self.folder, specification.FILE)
        left = read(path)["companions"] if os.path.lexists(path) else []
        return self.each(stop, reversed(left))


def main(argv: t.Sequence[str]) -> int:
    """Run the unit of the companions by the specification that the command line names, and return the exit code."""
    return service.run(argv, lambda path, run: Companions(read(path), run))
