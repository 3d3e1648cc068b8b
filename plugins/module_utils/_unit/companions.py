# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit of a node's companions: starts the containers of the declared mode at boot, and stops them at shutdown.

This module util is PRIVATE to the collection.
The role companions creates the containers; the unit starts existing ones, in the order of the list. The other companions and the engine start even
when one companion fails.
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

#: Seconds between two checks of a companion, and of a stop request from systemd.
LOOK_SECONDS = 1.0
#: Seconds for one health answer, and for one Docker command.
ASK_SECONDS, DOCKER_SECONDS = 10.0, 60.0

#: Seconds that a start takes in addition to the wait for the health answer, most of them for the devices of the GPU.
START_SECONDS = 240

Companion = t.Mapping[str, t.Any]

#: The keys of the specification, and of each companion in it, with their types.
KEYS: dict[str, type] = {"companions": list, "state_dir": str, "roots": dict}
COMPANION_KEYS: dict[str, type] = {"name": str, "port": int, "health_path": str, "gpus": bool, "health_timeout": int, "stop_timeout": int}


def wrong(given: t.Any) -> str:
    """Return why a specification is invalid, empty when it is valid."""
    if problem := lacking(given, KEYS):
        return problem
    problems = (lacking(companion, COMPANION_KEYS) for companion in given["companions"])
    return next((f"companions: {problem}" for problem in problems if problem), "")


def seconds(companion: Companion) -> int:
    """Return the most seconds that the start or stop of a companion may take."""
    return companion["health_timeout"] + companion["stop_timeout"] + START_SECONDS


def docker(*words: str) -> None:
    """Run a Docker command. Raises :class:`ClusterError` with Docker's message when it fails."""
    answer = run_tool(["docker", *words], DOCKER_SECONDS)
    if answer.rc:
        raise ClusterError(f"docker {' '.join(words)} ended with {answer.rc}: {answer.raw[:300]}", remedy="journalctl -u docker")


def start(api: EngineApi, companion: Companion) -> str:
    """Start the container of a companion, wait until it is healthy, and return a log line. Raises :class:`ClusterError`."""
    name, port, path = companion["name"], companion["port"], companion["health_path"]
    current, answer, node = existing(container.find(api, name)), "", socket.gethostname()
    if not current.running:
        gpu_access.await_cdi_devices(api, "all" if companion["gpus"] else "none", current.by_cdi)
        if taken := obstacles.foreign_on(api, [port], current):
            raise obstacles.ports_taken(f"the companion {name}", node, taken, "port for it in gb10_companions")
        docker("start", current.id)
    for _elapsed in clock(companion["health_timeout"], LOOK_SECONDS):
        current = existing(container.find(api, name))
        if not current.running:
            raise died(current, node, current.fields.get("image", ""), api.logs(current.id))
        healthy, answer = running.health(port, path, min(ASK_SECONDS, companion["health_timeout"]))
        if healthy:
            return f"companion {name} is started; {running.url(port, path)} answers {answer}"
    raise WaitTimeout(running.unhealthy(companion, node, answer), remedy=f"docker logs {current.name}", reason="not healthy")


def stop(api: EngineApi, companion: Companion) -> str:
    """Send the stop signal to a companion's container, wait for its end, and return a log line. Raises :class:`ClusterError` when it does not end."""
    name = companion["name"]
    try:
        inspected = container.find(api, name)
        if existing(inspected).holds_processes:
            docker("kill", "--signal", inspected["Config"].get("StopSignal") or "SIGTERM", inspected["Id"])
        for _elapsed in clock(companion["stop_timeout"], LOOK_SECONDS):
            if not existing(container.find(api, name)).holds_processes:
                return f"companion {name} is stopped"
    except NotFound:
        return f"companion {name} was removed"
    raise ClusterError(running.ignores_stop(name, socket.gethostname(), companion["stop_timeout"]), reason="ignores stop")


class Companions(Service):
    """Runs the companions of one specification."""

    leaves = "the companions keep running"
    writer = "the playbook mode"

    def __init__(self, given: specification.Specification, run: steps.Run) -> None:
        super().__init__(given, unit_files.of_companions(given["state_dir"]), run)
        self.api = EngineApi()

    def begin(self) -> None:
        """Start the companions, and notify systemd once all were tried."""
        super().begin()
        self.require_noted()
        self.note(record.RUNNING, "; ".join(filter(None, (self.came_back, self.each(start, self.given["companions"])))))
        notify("READY=1")

    def serve(self) -> int:
        """Wait for systemd's stop request."""
        while True:
            self.check_asked()
            self.catch_up()
            time.sleep(LOOK_SECONDS)

    def each(self, act: t.Callable[[EngineApi, Companion], str], companions: t.Iterable[Companion]) -> str:
        """Start or stop companions, and return the failures. One failure does not stop the others."""
        failed = []
        for companion in companions:
            if self.asked and act is start:
                break
            notify(f"STATUS={act.__name__}: {companion['name']}")
            try:
                say(act(self.api, companion))
            except ClusterError as error:
                say(error.with_remedy())
                failed.append(f"{companion['name']}: {error}")
        return "; ".join(failed)

    def stop(self) -> str:
        """Stop the companions of the current specification in reverse order, and return the failures. A companion that left it meanwhile is not touched."""
        path = os.path.join(self.folder, specification.FILE)
        return self.each(stop, reversed(specification.read(path, wrong)["companions"] if os.path.lexists(path) else []))


def main(argv: t.Sequence[str]) -> int:
    """Run the companions' unit with the specification that the command line names, and return the exit code."""
    return service.run(argv, lambda path, run: Companions(specification.read(path, wrong), run))
