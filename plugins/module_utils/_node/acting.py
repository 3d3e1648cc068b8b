# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From a wanted node container to the running one: looks, refusals, acting, waiting. This module util is PRIVATE to the collection.

What one kind of container (with Ray, or with the engine's own executor) adds is a :class:`Kind`; everything else is here, once.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import socket
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import (
    LABEL_OWNER,
    OWNER,
    EngineApi,
    NotFound,
    cluster_and_role,
    find_node_container,
    node_container_name,
)
from ansible_collections.gb10.cluster.plugins.module_utils._docker.sdk import sdk_client, sdk_errors
from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_state, launch
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._network import listeners, net_devices
from ansible_collections.gb10.cluster.plugins.module_utils._node import node_containers
from ansible_collections.gb10.cluster.plugins.module_utils._node.node_containers import Action, Current, Unit
from ansible_collections.gb10.cluster.plugins.module_utils._process import at_work
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: What check mode returns as the session of a container that would be started: unlike any real one.
SESSION_TO_COME = "not-started-yet"

#: Seconds beyond its grace that the launcher gets to kill what is left and to tell about it.
LAUNCHER_MARGIN = 30

#: Options that are fields of every kind of unit as they are.
PLAIN_FIELDS = (
    "node_role", "node_address", "image", "secret_files", "devices", "gpus", "capabilities", "ulimits", "ipc_host", "mounts", "state_dir", "log_dir",
)  # fmt: skip

Params = dict[str, t.Any]
Changes = dict[str, tuple[t.Any, t.Any]]


class Work(t.NamedTuple):
    """Live work in a container: ``how`` tells what was seen, ``requests`` is None when the engine does not say."""

    live: bool
    how: str
    requests: int | None
    launched: bool


NO_WORK = Work(False, "", None, False)


class Stale(t.NamedTuple):
    """A container of another run or of somebody else that has to go before ours can be made."""

    id: str
    name: str
    description: str


class Kind(t.NamedTuple):
    """What tells one kind of node container from another.

    ``unit`` returns the wanted container for options, image id and current container; it raises for options that do not fit.
    ``obstacles`` checks what this kind needs beyond every container, and returns the containers that have to go first.
    ``orphaned`` says of the fields that differ whether live work in the container is what is left of an engine that is gone.
    ``wait`` waits until the container is ready and returns what the result gains.
    """

    unit: t.Callable[[Params, str, Current | None], Unit]
    obstacles: t.Callable[[EngineApi, Params, str, Unit, Current | None, bool], list[Stale]]
    orphaned: t.Callable[[Changes], bool]
    wait: t.Callable[[EngineApi, Params, str, Unit], dict[str, t.Any]]


# -- what is wanted --------------------------------------------------------------------------------------------------


def argument_spec() -> dict[str, t.Any]:
    """Return the options that every kind of node container has."""
    mount = {"source": {"type": "path", "required": True}, "target": {"type": "str", "required": True}, "read_only": {"type": "bool", "default": False}}
    return {
        "state": {"type": "str", "choices": ["started", "stopped", "absent"], "default": "started"},
        "node_role": {"type": "str", "choices": ["head", "worker"], "required": True},
        "cluster_name": {"type": "str", "default": "gb10"},
        "image": {"type": "str"},
        "node_address": {"type": "str"},
        "env": {"type": "dict", "default": {}},
        "secret_files": {"type": "dict", "default": {}, "no_log": False},
        "devices": {"type": "list", "elements": "str", "default": ["/dev/infiniband"]},
        "gpus": {"type": "raw", "default": "all"},
        "capabilities": {"type": "list", "elements": "str", "default": ["IPC_LOCK"]},
        "ulimits": {"type": "dict", "default": {"memlock": -1, "stack": 67108864}},
        "shm_size": {"type": "str", "default": "10g"},
        "ipc_host": {"type": "bool", "default": False},
        "mounts": {"type": "list", "elements": "dict", "default": [], "options": mount},
        "state_dir": {"type": "path", "default": "/var/lib/gb10"},
        "log_dir": {"type": "path", "default": "/var/log/gb10"},
        "allow_restart": {"type": "bool", "default": False},
        "interrupt_requests": {"type": "bool", "default": True},
        "stop_timeout": {"type": "int", "default": 120},
        "connect_timeout": {"type": "int", "default": 5},
        "wait": {"type": "bool", "default": True},
        "wait_timeout": {"type": "int", "default": 180},
        "wait_sleep": {"type": "int", "default": 2},
        "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
        "docker_timeout": {"type": "int", "default": 60},
    }


def common_fields(params: Params, image_id: str) -> dict[str, t.Any]:
    """Return the fields that every kind of unit has."""
    return {
        **{name: params[name] for name in PLAIN_FIELDS},
        "image_id": image_id,
        "env": node_containers.environment(params["env"]),
        "shm_size": "" if params["ipc_host"] else params["shm_size"],
    }


def wanted_image_id(api: EngineApi, params: Params, current: Current | None) -> str:
    """Return the id that the image's reference has now; that of the container when the reference is gone, empty without one."""
    image = api.image(params["image"])
    if image:
        return image["Id"]
    return current.fields.get("image_id", "") if current and current.fields.get("image") == params["image"] else ""


def check_inputs(params: Params) -> None:
    """Raise :class:`ClusterError` for values whose form the argument specification cannot check."""
    gpus = params["gpus"]
    if gpus not in ("all", "none") and not (isinstance(gpus, list) and all(isinstance(gpu, (str, int)) for gpu in gpus)):
        raise ClusterError(f"gpus is {gpus!r}", remedy="Give all, none, or a list of GPU indexes or UUIDs.", reason="input")
    for name, limit in params["ulimits"].items():
        if isinstance(limit, bool) or not isinstance(limit, int):
            raise ClusterError(f"ulimits.{name} is {limit!r}, which is no number", remedy="Give a number; -1 means unlimited.", reason="input")


# -- what is there ---------------------------------------------------------------------------------------------------


def live_work(api: EngineApi, current: Current | None, params: Params) -> Work:
    """Return the live work in our container: the engine that the launcher noted, or any process that looks like a rank."""
    if current is None or not current.holds_processes:
        return NO_WORK
    places = {**params, **current.fields}
    paths = engine_state.EnginePaths.of(places["state_dir"], places["log_dir"], params["cluster_name"])
    try:
        engine, broken = engine_state.engine_state(paths), False
    except UnknownState:
        # The launcher finds what it started without its note too, and stops it.
        engine, broken = engine_state.engine_state(paths, lenient=True), True
    seen = at_work.among(api.top(current.id))
    if not engine["live"] and not seen:
        return NO_WORK
    requests = None
    if engine["live"] and engine["api_address"] and engine["api_port"]:
        url = engine_state.base_url(engine["api_address"], engine["api_port"])
        requests = engine_state.requests_running(url, params["connect_timeout"])
    how = f"run {engine['run_id']}" if engine["live"] else seen[0]
    return Work(True, how, requests, engine["live"] or broken)


def guard(params: Params, node: str, current: Current | None, changed: Changes, work: Work) -> None:
    """Raise :class:`ClusterError` when live work would be lost that nobody said may be."""
    if current is None or not work.live:
        return
    if params["allow_restart"]:
        engine_state.check_busy(work.requests, params["interrupt_requests"], f"container {current.name} on {node} would be made anew")
        return
    why = node_containers.difference_text(changed) if current.running and current.readable else node_containers.replacement_reason(current, changed)
    unpause = f"Let it go on: docker unpause {current.name}. Or repeat" if current.status == "paused" else "Repeat"
    requests = "an unknown number of requests runs" if work.requests is None else f"{work.requests} requests run"
    raise ClusterError(
        f"container {current.name} on {node} would be made anew ({why}), but it holds live work ({work.how}; {requests})",
        remedy=f"{unpause} with -e gb10_allow_restart=true to stop the engine and start it again, which takes as long as a first start.",
        reason="engine live",
        node=node,
        container=current.name,
    )


# -- what stands in the way ------------------------------------------------------------------------------------------


def check_node_address(address: str, node: str) -> None:
    """Raise :class:`ClusterError` unless the address is one of this node's own that others can reach (Ray replaces a loopback address)."""
    own = [entry for entry in net_devices.ipv4_addresses() + net_devices.ipv6_addresses() if entry["scope"] != "host"]
    if address not in (entry["address"] for entry in own):
        known = ", ".join(f"{entry['address']} ({entry['interface']})" for entry in own if entry["scope"] == "global") or "none"
        raise ClusterError(
            f"{address} is no address under which others reach {node}; it has {known}",
            remedy="Correct node_address (gb10_fabric_address).",
            reason="node address",
        )


def check_secrets(params: Params, check_mode: bool) -> None:
    """Check every secret file; in check mode one that is not there yet is taken to come."""
    for name, path in params["secret_files"].items():
        if not check_mode or os.path.exists(path):
            node_containers.check_secret_file(name, path)


def check_image(api: EngineApi, image: str, node: str) -> None:
    """Raise :class:`ClusterError` unless the node has the image."""
    if not api.image(image):
        raise ClusterError(f"image {image} is not on {node}", remedy="Bring it there: run the play with --tags image.", reason="image missing")


def find_own(api: EngineApi, cluster: str, role: str) -> dict[str, t.Any] | None:
    """Return what the engine knows about our container of one cluster and role, None when there is none.

    It is found by its labels, or by its name when that container's labels say that it is ours and nothing that contradicts.
    """
    found = find_node_container(api, cluster, role)
    if found:
        return found
    try:
        holder = api.inspect(node_container_name(cluster, role))
    except NotFound:
        return None
    return holder if is_own(holder, cluster, role) else None


def is_own(inspected: dict[str, t.Any], cluster: str, role: str) -> bool:
    """Say whether a container is ours, of this cluster and this role."""
    labels = inspected["Config"].get("Labels") or {}
    return labels.get(LABEL_OWNER) == OWNER and cluster_and_role(inspected["Name"].lstrip("/"), labels) == (cluster, role)


def check_name(api: EngineApi, unit: Unit) -> None:
    """Raise :class:`ClusterError` when a container that is not ours has the name that ours is to get."""
    try:
        holder = api.inspect(unit.name)
    except NotFound:
        return
    if not is_own(holder, unit.cluster, unit.role):
        raise ClusterError(
            f"a container that is not ours has the name of ours: {container_text(holder)}",
            remedy=f"Rename it (docker rename {unit.name} OTHER) or choose another gb10_cluster_name.",
            reason="name taken",
        )


def container_text(inspected: dict[str, t.Any]) -> str:
    """Return a container in words, with its times to the second, for a message."""
    created, started = inspected["Created"][:19], inspected["State"]["StartedAt"][:19]
    return f"container {inspected['Name'].lstrip('/')} (image {inspected['Config']['Image']}, created {created}Z, started {started}Z)"


def foreign_listeners(found: list[dict[str, t.Any]], names: dict[str, str], own_id: str) -> list[dict[str, t.Any]]:
    """Return the listeners that are not of our own container; ``names`` maps this engine's container ids to names.

    A container that this engine does not know is the one that the whole node runs in: its processes count as the host's.
    """
    known = [{**entry, "container": entry["container"] if entry["container"] in names else ""} for entry in found]
    return [{**entry, "container_name": names.get(entry["container"], "")} for entry in known if not own_id or entry["container"] != own_id]


def foreign_on(api: EngineApi, ports: list[int], current: Current | None) -> list[dict[str, t.Any]]:
    """Return who listens on these ports of the node, without our own container."""
    found = listeners.listeners(ports)
    names = {entry["Id"]: entry["Names"][0].lstrip("/") for entry in api.containers({})} if found else {}
    return foreign_listeners(found, names, current.id if current else "")


def listener_text(listener: dict[str, t.Any]) -> str:
    """Return who listens in words, for a message."""
    if listener["pid"] is None:
        return f"port {listener['port']} on {listener['address']}: a process that only root can see"
    where = f" in container {listener['container_name']}" if listener["container"] else ""
    return f"port {listener['port']} on {listener['address']}: {listener['process']} (pid {listener['pid']}){where} since {listener['since']}"


def ports_taken(whose: str, node: str, taken: list[dict[str, t.Any]], variables: str) -> ClusterError:
    """Return the refusal to share ports; ``whose`` says who needs them, ``variables`` which settings choose others."""
    return ClusterError(
        f"ports that {whose} needs are taken on {node}: {'; '.join(map(listener_text, taken))}",
        remedy=f"Stop what listens there, or choose another {variables}.",
        reason="port taken",
        node=node,
        listeners=taken,
    )


def before_creation(kind: Kind, api: EngineApi, params: Params, node: str, unit: Unit, current: Current | None, check_mode: bool) -> list[Stale]:
    """Check all that a new container needs, and return the containers that have to go first.

    Raises :class:`ClusterError` for the first thing that is wrong. In check mode the image may still be to come.
    """
    if not check_mode:
        check_image(api, params["image"], node)
    check_node_address(params["node_address"], node)
    node_containers.check_devices(params["devices"])
    check_name(api, unit)
    return kind.obstacles(api, params, node, unit, current, check_mode)


# -- acting ----------------------------------------------------------------------------------------------------------


class Actor:
    """Carries a plan out with the Docker SDK."""

    def __init__(self, api: EngineApi, params: Params, node: str, unit: Unit | None, work: Work) -> None:
        self.api = api
        self.params = params
        self.node = node
        self.unit = unit
        self.work = work
        self.sdk = sdk_client(params["docker_socket"], params["docker_timeout"])
        #: What was done beside the plan, or could not be done and is no reason to fail.
        self.notes: list[str] = []

    def stop_engine(self, container_id: str) -> None:
        """Stop the engine that the launcher started, gently, so that its memory comes back."""
        grace = self.params["stop_timeout"]
        launch.refresh(engine_state.EnginePaths.of(self.params["state_dir"], self.params["log_dir"], self.params["cluster_name"]))
        result = self.api.exec(container_id, launch.stop_argv(grace, "the node's container"), timeout=grace + LAUNCHER_MARGIN)
        if result.rc != 0:
            raise ClusterError(
                f"the engine on {self.node} did not end within {grace} s and could not be killed",
                remedy="Look at its processes: a process in state D hangs in the kernel, and only a reboot by you removes it.",
                reason="engine remains",
                raw=f"{result.stdout}\n{result.stderr}".strip(),
            )

    def unpause(self, container_id: str) -> None:
        """Let a paused container go on: only so can what runs in it end by itself."""
        with sdk_errors(f"unpausing container {container_id[:12]}"):
            self.sdk.containers.get(container_id).unpause()

    def stop(self, container_id: str) -> None:
        with sdk_errors(f"stopping container {container_id[:12]}"):
            self.sdk.containers.get(container_id).stop(timeout=self.params["stop_timeout"])

    def remove(self, container_id: str) -> None:
        """Remove a container, or wait until somebody else's removal of it is done. Raises :class:`ClusterError` when it stays."""
        doing = f"removing container {container_id[:12]}"
        try:
            with sdk_errors(doing):
                self.sdk.containers.get(container_id).remove(v=True)
            return
        except NotFound:
            return
        except ClusterError as error:
            if not node_containers.under_removal(error):
                raise
        for _elapsed in clock(self.params["docker_timeout"], self.params["wait_sleep"]):
            try:
                self.api.inspect(container_id)
            except NotFound:
                return
        raise ClusterError(
            f"{doing}: Docker began that and has not done it within {self.params['docker_timeout']} s",
            remedy="See what holds it: journalctl -u docker --since -10min",
            reason="container remains",
        )

    def keep_log(self, current: Current) -> None:
        """Write the log of a container that is about to go below the log directory, and delete the oldest such logs.

        A log that Docker cannot read any more, or a full disk, keeps no container: the log is left out, and that is told.
        """
        folder = os.path.join(self.params["log_dir"], self.params["cluster_name"], "containers")
        path = os.path.join(folder, f"{current.name}-{current.id[:12]}.log")
        with local_files():
            os.makedirs(folder, mode=0o750, exist_ok=True)
            try:
                with sdk_errors(f"reading the log of container {current.name}"), open(f"{path}.new", "wb") as handle:
                    for part in self.sdk.containers.get(current.id).logs(stream=True, follow=False, timestamps=True):
                        handle.write(part)
                os.replace(f"{path}.new", path)
            except ClusterError as error:
                self.notes.append(f"left the log of {current.name} out: {error}")
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                self.notes.append(f"left the log of {current.name} out: {folder}: {error.strerror}")
            finally:
                with contextlib.suppress(OSError):
                    os.remove(f"{path}.new")
            # The one just written stays even when a clock that was set back makes it the oldest.
            others = [name for name in glob.glob(os.path.join(glob.escape(folder), f"{glob.escape(current.name)}-*.log")) if name != path]
            for name in node_containers.surplus_logs([(os.path.getmtime(name), name) for name in others], node_containers.KEPT_LOGS - 1):
                os.remove(name)

    def create(self, unit: Unit) -> str:
        paths = engine_state.EnginePaths.of(self.params["state_dir"], self.params["log_dir"], unit.cluster)
        with local_files():
            for folder, mode in ((paths.launch, 0o755), (paths.run, 0o755), (paths.log, 0o750)):
                os.makedirs(folder, mode=mode, exist_ok=True)
            # A container whose first process is the launcher needs it from its start.
            launch.ship(paths)
        doing = f"creating container {unit.name}"
        try:
            with sdk_errors(doing):
                return self.sdk.containers.create(**node_containers.create_arguments(unit)).id
        except ClusterError as error:
            raise node_containers.refusal(doing, unit, error) from error

    def start(self, unit: Unit, container_id: str) -> None:
        doing = f"starting container {unit.name}"
        try:
            with sdk_errors(doing):
                self.sdk.containers.get(container_id).start()
        except ClusterError as error:
            raise node_containers.refusal(doing, unit, error) from error

    def carry_out(self, steps: list[Action], current: Current | None, stale: list[Stale]) -> None:
        """Do what the plan says; stale containers go first."""
        for entry in stale:
            self.stop(entry.id)
            self.remove(entry.id)
        created = ""
        for step in steps:
            if step.verb == "stop" and current:
                if current.status == "paused":
                    self.unpause(current.id)
                if self.work.launched:
                    self.stop_engine(current.id)
                self.stop(current.id)
            elif step.verb == "remove" and current:
                if current.status != "created":
                    self.keep_log(current)
                self.remove(current.id)
            elif step.verb == "create" and self.unit:
                created = self.create(self.unit)
            elif step.verb == "start" and self.unit:
                self.start(self.unit, created)


@contextlib.contextmanager
def local_files() -> t.Iterator[None]:
    """Turn trouble with files and directories of the node into the collection's error."""
    try:
        yield
    except OSError as error:
        raise ClusterError(
            f"{error.filename}: {error.strerror}", remedy="Run the task with become: true, or choose other directories (state_dir, log_dir)."
        ) from error


# -- waiting ---------------------------------------------------------------------------------------------------------


def last_log(api: EngineApi, unit: Unit) -> str:
    """Return the last lines of our container's log, empty when it is gone."""
    inspected = find_node_container(api, unit.cluster, unit.role)
    return api.logs(inspected["Id"]) if inspected else ""


def running_container(api: EngineApi, node: str, unit: Unit) -> Current:
    """Return our container as it is now. Raises :class:`ClusterError` with its last words when it does not run."""
    inspected = find_node_container(api, unit.cluster, unit.role)
    if inspected is None:
        raise ClusterError(f"container {unit.name} on {node} was removed while it was waited for", remedy="Find out who did: docker events.")
    current = node_containers.current_of(inspected)
    if not current.running:
        raise node_containers.died(current, node, unit.fields["image"], api.logs(current.id))
    return current


# -- the whole -------------------------------------------------------------------------------------------------------


def work(module: AnsibleModule, kind: Kind) -> dict[str, t.Any]:
    """Bring this node's container of one kind to the wanted state, and return the module's result."""
    params, node = module.params, socket.gethostname()
    api = EngineApi(params["docker_socket"], params["docker_timeout"])
    inspected = find_own(api, params["cluster_name"], params["node_role"])
    current = node_containers.current_of(inspected) if inspected else None
    unit = None
    if params["state"] == "started":
        check_inputs(params)
        unit = kind.unit(params, wanted_image_id(api, params, current), current)
        check_secrets(params, module.check_mode)

    changed = node_containers.changes(current, unit) if current and unit else {}
    name = node_container_name(params["cluster_name"], params["node_role"])
    steps = node_containers.plan(params["state"], name, current, changed)
    found = live_work(api, current, params)
    common = {
        "changed_fields": sorted(changed) if current and current.running else [],
        "engine_live": found.live,
        "engine_requests_running": found.requests,
        "diff": {"before": before(current), "after": after(params["state"], current, unit)},
    }
    stale: list[Stale] = []
    try:
        if unit and steps:
            if not kind.orphaned(changed):
                guard(params, node, current, changed, found)
            stale = before_creation(kind, api, params, node, unit, current, module.check_mode)
        actions = [f"{verb} {entry.name} (stale head)" for entry in stale for verb in ("stop", "remove")] + [str(step) for step in steps]
        common.update(actions=actions, changed=bool(actions))
        if actions and not module.check_mode:
            actor = Actor(api, params, node, unit, found)
            actor.carry_out(steps, current, stale)
            actions += actor.notes
        waited = kind.wait(api, params, node, unit) if unit and params["wait"] and not (actions and module.check_mode) else {}
    except ClusterError as error:
        error.details = {**common, **error.details}
        raise
    return {**common, **outcome(api, params, unit, steps, module.check_mode), **waited}


def before(current: Current | None) -> dict[str, t.Any]:
    return node_containers.snapshot(current.status, current.fields) if current else node_containers.snapshot("absent", {})


def after(state: str, current: Current | None, unit: Unit | None) -> dict[str, t.Any]:
    if unit:
        return node_containers.snapshot("running", unit.fields)
    if current is None or state == "absent":
        return node_containers.snapshot("absent", {})
    return node_containers.snapshot("exited" if current.holds_processes else current.status, current.fields)


def outcome(api: EngineApi, params: Params, unit: Unit | None, steps: list[Action], check_mode: bool) -> dict[str, t.Any]:
    """Return the keys that describe the container as the module leaves it, or would leave it in check mode."""
    reason = steps[0].reason if steps else "as wanted"
    what = f"{params['node_role']} of cluster {params['cluster_name']}"
    if steps and check_mode:
        return {"msg": f"{what} would be {params['state']}", "reason": reason, "container_id": "", "session": SESSION_TO_COME if unit else ""}
    inspected = find_node_container(api, params["cluster_name"], params["node_role"])
    running = bool(inspected and inspected["State"]["Running"])
    return {
        "msg": f"{what} is {params['state']}",
        "reason": reason,
        "container_id": inspected["Id"] if inspected else "",
        "session": node_containers.session(inspected["Id"], inspected["State"]["StartedAt"]) if inspected and running else "",
    }
