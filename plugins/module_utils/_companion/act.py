# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From a declared companion to one that runs and answers, or has ended. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import socket
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._companion import container, unit
from ansible_collections.gb10.cluster.plugins.module_utils._companion.running import health, url
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._docker.sdk import Docker
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import gpu_access
from ansible_collections.gb10.cluster.plugins.module_utils._node import fields, obstacles, removal
from ansible_collections.gb10.cluster.plugins.module_utils._node import container as node_containers
from ansible_collections.gb10.cluster.plugins.module_utils._node.container import Action, ExistingContainer
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool
from ansible_collections.gb10.cluster.plugins.module_utils._unit import beside, unit_files
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

Params = dict[str, t.Any]

#: Seconds between two looks at one that is to be healthy, or to end, and those that one answer may take.
LOOK_SECONDS = 1.0
ASK_SECONDS = 10.0
#: Seconds that a killed one gets to be gone.
KILLED_SECONDS = 30
#: Lines of a unit's journal that a message about it has.
JOURNAL_LINES = 20

KILL = "-e gb10_kill_companions=true"


def plan_unit(state: str, name: str, found: unit.State) -> list[Action]:
    """Return what leads a unit to ``state`` (started, stopped or absent); nothing when it is there already, or on its way."""
    if state == "started":
        return [] if found.running or found.active == "activating" else [Action("start", name, f"unit is {found.active}")]
    return [Action("stop", name, f"state {state}")] if found.holds_processes else []


def check_port(api: EngineApi, params: Params, node: str, current: ExistingContainer | None) -> None:
    """Raise :class:`ClusterError` when somebody else listens on the companion's port."""
    taken = obstacles.foreign_on(api, [params["port"]], current)
    if taken:
        raise obstacles.ports_taken(f"the companion {params['name']}", node, taken, "port for it in gb10_companions")


def await_health(params: Params, node: str, alive: t.Callable[[], None]) -> str:
    """Wait until the companion answers; return what it said. ``alive`` raises when it has ended meanwhile.

    Raises :class:`WaitTimeout` when it does not answer in time.
    """
    said = ""
    for _elapsed in clock(params["health_timeout"], LOOK_SECONDS):
        alive()
        healthy, said = health(params["port"], params["health_path"], min(ASK_SECONDS, params["health_timeout"]))
        if healthy:
            return said
    raise WaitTimeout(
        f"companion {params['name']} on {node} is not healthy after {params['health_timeout']} s: GET {url(params['port'], params['health_path'])}: {said}",
        remedy="See its log; correct port and health_path in gb10_companions, or give it more time with health_timeout.",
        reason="not healthy",
        node=node,
    )


def ignores_stop(name: str, node: str, seconds: int, by_hand: str) -> ClusterError:
    """Return the error for a companion that does not end when it is asked to. It is left as it is."""
    return ClusterError(
        f"companion {name} on {node} was asked to end and still runs after {seconds} s; it was not killed",
        remedy=f"See what it does. To kill it: run again with {KILL}, or on the node: {by_hand}",
        reason="ignores stop",
        node=node,
    )


# -- a unit --------------------------------------------------------------------------------------------------------------


def journal(name: str, timeout: float) -> str:
    """Return the last lines of a unit's journal, empty when there are none to be had."""
    try:
        return run_tool(["journalctl", "--unit", name, "--lines", str(JOURNAL_LINES), "--no-pager", "--output", "cat"], timeout).stdout.strip()
    except ClusterError:
        return ""  # it is an addition to a message


def start_unit(params: Params) -> None:
    """Start a unit as its owner defined it. Raises :class:`ClusterError` with the end of its journal when systemd says that it failed."""
    try:
        unit.ask(params["unit"], "start", timeout=params["health_timeout"])
    except ClusterError as error:
        error.details.setdefault("log", journal(params["unit"], params["tool_timeout"]))
        raise


def stop_unit(params: Params, node: str) -> None:
    """Stop a unit as its owner defined it, and wait for its end."""
    name, limit = params["unit"], params["tool_timeout"]
    unit.ask(name, "stop", "--no-block", timeout=limit)
    for _elapsed in clock(params["stop_timeout"], LOOK_SECONDS):
        if not unit.state(name, limit).holds_processes:
            return
    if not params["kill"]:
        raise ignores_stop(params["name"], node, params["stop_timeout"], f"sudo systemctl kill --signal=SIGKILL {name}")
    unit.ask(name, "kill", "--signal=SIGKILL", timeout=limit)
    for _elapsed in clock(KILLED_SECONDS, LOOK_SECONDS):
        if not unit.state(name, limit).holds_processes:
            return
    raise ClusterError(f"{name} on {node} was killed and is still there", remedy=f"See on the node: systemctl status {name}", reason="unit")


def of_unit(module: AnsibleModule, params: Params, node: str) -> dict[str, t.Any]:
    """Bring a unit to its state, and return the module's result."""
    name = params["unit"]
    found = unit.state(name, params["tool_timeout"])
    if params["state"] == "started" or found.load == "not-found":
        unit.require(name, found, node)
    steps = plan_unit(params["state"], name, found)
    after = "active" if params["state"] == "started" else "inactive" if found.holds_processes else found.active
    common = {"actions": [str(step) for step in steps], "changed": bool(steps), "diff": {"before": {name: found.active}, "after": {name: after}}}

    def alive() -> None:
        now = unit.state(name, params["tool_timeout"])
        if not now.holds_processes:
            log = journal(name, params["tool_timeout"])
            raise ClusterError(f"{name} on {node} is {now.active} ({now.result})", remedy=f"journalctl -u {name}", reason="unit ended", node=node, log=log)

    try:
        if params["state"] == "started" and steps:
            check_port(EngineApi(params["docker_socket"], params["docker_timeout"]), params, node, None)
        if not module.check_mode:
            for step in steps:
                if step.verb == "start":
                    start_unit(params)
                else:
                    stop_unit(params, node)
        said = await_health(params, node, alive) if params["state"] == "started" and not (steps and module.check_mode) else ""
    except ClusterError as error:
        error.details = {**common, **error.details}
        raise
    return {**common, "health": said, "reason": steps[0].reason if steps else "as wanted"}


# -- a container ---------------------------------------------------------------------------------------------------------


class Actor(removal.Remover):
    """Carries the plan for a companion's container out with the Docker SDK."""

    def __init__(self, docker: Docker, params: Params, node: str) -> None:
        super().__init__(docker, os.path.join(params["log_dir"], container.LOGS), params["docker_timeout"], LOOK_SECONDS)
        self.params = params
        self.node = node

    def _holds(self) -> bool:
        found = container.find(self.docker, self.params["name"])
        return found is not None and node_containers.existing(found).holds_processes

    def stop(self, current: ExistingContainer) -> None:
        """Ask the companion to end, and wait for it. Raises :class:`ClusterError` when it does not, and may not be killed."""
        if current.status == "paused":
            self.docker.unpause(current.id)
        signal = self.docker.inspect(current.id)["Config"].get("StopSignal") or "SIGTERM"
        try:
            self.docker.signal(current.id, signal)
        except ClusterError:
            if self._holds():
                raise
        for _elapsed in clock(self.params["stop_timeout"], LOOK_SECONDS):
            if not self._holds():
                return
        if not self.params["kill"]:
            raise ignores_stop(self.params["name"], self.node, self.params["stop_timeout"], f"sudo docker kill {current.name}")
        self.docker.stop(current.id, 0)

    def carry_out(self, steps: list[Action], current: ExistingContainer | None, wanted: fields.Fields | None) -> None:
        """Do what the plan says. Nothing is stopped or removed before the devices of a container to come are there."""
        created, devices = "", []
        if wanted and any(step.verb == "create" for step in steps):
            devices = gpu_access.await_cdi_devices(self.docker, container.gpus(wanted), current is not None and current.by_cdi)
        for step in steps:
            if step.verb == "stop" and current:
                self.stop(current)
            elif step.verb == "remove" and current:
                if current.status != "created":
                    self.keep_log(current)
                self.remove(current.id)
            elif step.verb == "create" and wanted:
                created = self._refused(lambda: self.docker.create(container.payload(self.params["name"], wanted, devices)))
            elif step.verb == "start":
                self._refused(lambda: self.docker.start(created))

    def _refused(self, act: t.Callable[[], t.Any]) -> t.Any:
        """Do something with Docker, and turn its refusal into words with a remedy."""
        try:
            return act()
        except ClusterError as error:
            raise node_containers.refusal(f"starting the companion {self.params['name']} on {self.node}", self.params["image"], error) from error


def of_container(module: AnsibleModule, params: Params, node: str) -> dict[str, t.Any]:
    """Bring a container to its state, and return the module's result."""
    docker = Docker(params["docker_socket"], params["docker_timeout"])
    found = container.find(docker, params["name"])
    current, wanted = node_containers.existing(found) if found else None, None
    if params["state"] == "started":
        image = docker.image(params["image"])
        if image is None and not module.check_mode:
            raise ClusterError(
                f"image {params['image']} of the companion {params['name']} is not on {node}",
                remedy=f"Bring it there: docker pull {params['image']}, or docker load for one that no registry has.",
                reason="image missing",
            )
        wanted = container.wanted(params, image["Id"] if image else "")
    changed = fields.compare(current.fields, wanted, {}) if current and wanted and current.digest != container.digest(wanted) else {}
    steps = node_containers.plan(params["state"], container.name_for(params["name"]), current, changed)
    before = node_containers.snapshot(current.status, current.fields) if current else node_containers.snapshot("absent", {})
    ends = params["state"] != "started" and not params["comes_back"] and beside.listed(params["state_dir"], params["name"])
    actions = [str(step) for step in steps] + ([f"take {params['name']} out of {unit_files.COMPANIONS}"] if ends else [])
    common = {"actions": actions, "changed": bool(actions), "diff": {"before": before, "after": after(params["state"], current, wanted)}}
    try:
        if wanted and steps:
            check_port(docker, params, node, current)
        if ends and not module.check_mode:
            with removal.local_files():
                beside.leave_out(params["state_dir"], params["name"])
        if steps and not module.check_mode:
            actor = Actor(docker, params, node)
            actor.carry_out(steps, current, wanted)
            common["actions"] += actor.notes
        said = await_health(params, node, lambda: require_running(docker, params, node)) if wanted and not (steps and module.check_mode) else ""
    except ClusterError as error:
        error.details = {**common, **error.details}
        raise
    return {**common, "health": said, "reason": steps[0].reason if steps else f"state {params['state']}" if ends else "as wanted"}


def after(state: str, current: ExistingContainer | None, wanted: fields.Fields | None) -> dict[str, t.Any]:
    """Return the diff's other side."""
    if wanted:
        return node_containers.snapshot("running", wanted)
    if current is None or state == "absent":
        return node_containers.snapshot("absent", {})
    return node_containers.snapshot("exited" if current.holds_processes else current.status, current.fields)


def require_running(docker: Docker, params: Params, node: str) -> None:
    """Raise :class:`ClusterError` with the end of its log when the companion's container does not run."""
    found = container.find(docker, params["name"])
    if found is None:
        raise ClusterError(f"companion {params['name']} on {node} was removed while it was waited for", remedy="Find out who did: docker events.")
    current = node_containers.existing(found)
    if not current.running:
        raise node_containers.died(current, node, params["image"], docker.logs(current.id))


def apply(module: AnsibleModule) -> dict[str, t.Any]:
    """Bring a companion to its state, and return the module's result."""
    params, node = module.params, socket.gethostname()
    done = (of_unit if params["unit"] else of_container)(module, params, node)
    word = "would be" if done["changed"] and module.check_mode else "is"
    healthy = f", {url(params['port'], params['health_path'])} says {done['health']}" if done["health"] else ""
    return {**done, "name": params["name"], "msg": f"companion {params['name']} {word} {params['state']}{healthy}"}
