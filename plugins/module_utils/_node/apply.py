# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Brings a node's container to its wanted state: checks, refusals, actions and waits. This module util is PRIVATE to the collection.

The differences between a container with Ray and one with the engine's own executor are in ``ray.py`` and ``native.py``.
"""

from __future__ import annotations

import contextlib
import os
import socket
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import find_node_container, lookalikes, node_container_name
from ansible_collections.gb10.cluster.plugins.module_utils._docker.sdk import Docker
from ansible_collections.gb10.cluster.plugins.module_utils._engine import at_work, engine_state, interruption, launch, planted
from ansible_collections.gb10.cluster.plugins.module_utils._engine.interruption import Requests
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import files, private, untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import gpu_access
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_contract
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.protocol import ENGINE_LOGS, MADE_OF, ORDER
from ansible_collections.gb10.cluster.plugins.module_utils._leftovers import caches
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._node import container, description, native, obstacles, ray, removal
from ansible_collections.gb10.cluster.plugins.module_utils._node.container import Action, ExistingContainer, WantedContainer
from ansible_collections.gb10.cluster.plugins.module_utils._node.fields import Changes, Params
from ansible_collections.gb10.cluster.plugins.module_utils._node.obstacles import StaleHead

#: The session in check mode of a container that would be started: unlike any real one.
SESSION_TO_COME = "not-started-yet"

#: The same text on every node: Ansible shows it once.
WAITS = "The containers were created before they could have {0}: that waits for gb10_allow=restart, since it restarts the engine."

#: The warning about a container that has this collection's labels from its image, as docker commit of a node container makes it.
NOT_OURS = "Container {} has the labels of this cluster from its image alone: it is foreign and left alone."

#: The file with the functions of each executor.
BY_EXECUTOR = {ray.EXECUTOR: ray, native.EXECUTOR: native}


class Work(t.NamedTuple):
    """Live work in a container.

    ``how`` describes the detected engine or its ranks, empty without one; ``run_id`` is the engine's, empty for ranks of one that runs
    elsewhere. ``others`` are programs that were started in the container by other means. ``whole``: there is no sign that the engine lacks a rank.
    """

    how: str
    run_id: str
    requests: Requests
    launched: bool
    others: list[str]
    whole: bool = True

    @property
    def live(self) -> bool:
        return bool(self.how or self.others)

    @property
    def text(self) -> str:
        """Return it as text for a message."""
        return "; ".join([*([f"{self.how}, {self.requests.text}"] if self.how else []), *(f"{other}, not of this cluster's engine" for other in self.others)])


NO_WORK = Work("", "", Requests(None, "no engine lives"), False, [])


# -- the current state --------------------------------------------------------------------------------------------------


def find_own(docker: Docker, cluster: str, role: str) -> ExistingContainer | None:
    """Return our container of one cluster and role, None when there is none.

    It is found by its labels, or by its name when that container's labels show that it is ours and do not contradict.
    """
    inspected = find_node_container(docker, cluster, role) or obstacles.container_by_name(docker, node_container_name(cluster, role))
    return container.existing(inspected) if inspected and obstacles.is_ours(inspected, cluster, role) else None


def wanted_image_id(docker: Docker, params: Params, current: ExistingContainer | None) -> str:
    """Return the id that the image's reference has now; that of the container when the reference is gone, empty without one."""
    image = docker.image(params["image"])
    kept = current.fields.get("image_id", "") if current and current.fields.get("image") == params["image"] else ""
    return image["Id"] if image else kept


def live_work(docker: Docker, current: ExistingContainer | None, params: Params) -> Work:
    """Return the live work in the node's container: the engine that the launcher recorded, or any process that looks like a rank."""
    if current is None or not current.holds_processes:
        return NO_WORK
    places = {**params, **current.fields}
    paths = engine_state.EnginePaths.of(places["state_dir"], places["log_dir"], params["cluster_name"])
    engine = engine_state.engine_state(paths, lenient=True)
    # Whatever the container's records are: the launcher stops an engine that it may have started.
    ordered = os.path.exists(os.path.join(paths.launch, ORDER))
    seen = at_work.among(docker.top(current.id), engine["pid"])
    if not engine["live"] and not seen.parts:
        return NO_WORK._replace(others=seen.others, launched=bool(seen.others) and ordered)
    if not engine["live"]:
        return Work(seen.parts[0], "", Requests(None, "its main process is not in this container"), ordered, seen.others)
    requests = interruption.requests_of(engine, params["connect_timeout"], interruption.key_file(current.fields, engine))
    lacking = requests.count != 0 and ray.lacks_rank(docker, current, engine["argv"], params["connect_timeout"])
    return Work(f"run {engine['run_id']}", engine["run_id"], requests, True, seen.others, not lacking)


#: The participle of an action on a container, by the wanted state, for a message.
DONE_TO = {"started": "recreated", "stopped": "stopped", "absent": "removed"}


def guard(params: Params, node: str, current: ExistingContainer | None, changed: Changes, work: Work, engine_is_gone: bool) -> None:
    """Raise :class:`ClusterError` when live work would be lost without consent. ``engine_is_gone``: the ranks seen are leftovers."""
    if current is None or not work.live:
        return
    what = f"container {current.name} on {node} would be {DONE_TO[params['state']]}"
    if params["state"] == "started" and not params["allow_restart"] and not (engine_is_gone and not work.others):
        why = container.difference_text(changed) if current.running and current.readable else container.replacement_reason(current, changed)
        unpause = f"Let it go on: docker unpause {current.name}. Or repeat" if current.status == "paused" else "Repeat"
        raise ClusterError(
            f"{what} ({why}), but it holds live work ({work.text})",
            remedy=f"{unpause} with -e gb10_allow=restart to stop the engine and start it again, which takes as long as a first start.",
            reason="engine live",
            node=node,
            container=current.name,
        )
    # Ranks without a recorded run belong to the cluster's engine.
    unready = work.run_id in params["unready_runs"] if work.run_id else bool(params["unready_runs"])
    whole = work.whole and not (engine_is_gone or params["lacks_rank"])
    interruption.check(interruption.Situation(bool(work.how), whole, unready, work.requests), params["interrupt_requests"], f"{what} ({work.how})")
    for other in work.others:
        unasked = Requests(None, "it is not of this cluster's engine")
        interruption.check(interruption.Situation(True, True, False, unasked), params["interrupt_requests"], f"{what} ({other})")


# -- acting ----------------------------------------------------------------------------------------------------------


class Actor(removal.Remover):
    """Carries out a plan with the Docker SDK."""

    def __init__(self, docker: Docker, params: Params, wanted: WantedContainer | None, work: Work) -> None:
        super().__init__(docker, os.path.join(params["log_dir"], params["cluster_name"]), params["docker_timeout"], params["wait_sleep"])
        self.params, self.wanted, self.work = params, wanted, work
        self.paths = engine_state.EnginePaths.of(params["state_dir"], params["log_dir"], params["cluster_name"])

    def create(self, wanted: WantedContainer, devices: t.Collection[str]) -> str:
        image = self.docker.image(wanted.fields["image"])
        wrapper = image_contract.wrapper_of(self.docker, image, wanted.fields["image"], self.params["state_dir"], self.params["docker_timeout"])
        noted = image_contract.read_cache(image_contract.cache_path(self.params["state_dir"], image)) if image else None
        # Docker itself refuses an image that is gone.
        cache = caches.directory_name(self.docker, image, noted["versions"].get("vllm") if noted else None) if image else caches.UNKNOWN
        with removal.local_files():
            for folder in wanted.paths.closed:
                private.ensure(folder)
            for folder in (wanted.paths.launch, wanted.paths.run, wanted.paths.cache):
                os.makedirs(folder, mode=0o755, exist_ok=True)
            # A container of an older version could put a link there, and Docker would mount where that leads.
            for top, below in ((wanted.paths.log, ENGINE_LOGS), (wanted.paths.cache, cache)):
                with untrusted.directory(top, below, create=True):
                    pass
            # A container whose first process is the launcher needs it from its start.
            launch.ship(wanted.paths)
            made_of = {"image": wanted.fields["image"], "image_id": image["Id"] if image else ""}
            files.write_json(os.path.join(wanted.paths.launch, MADE_OF), made_of)
        with refusals(f"creating container {wanted.name}", wanted):
            return self.docker.create(container.creation_payload(wanted, os.path.join(wanted.paths.cache, cache), wrapper, devices))

    def start(self, wanted: WantedContainer, container_id: str) -> None:
        hf_home = wanted.fields.get("hf_home")
        with removal.local_files(), obstacles.hub_held(hf_home) as is_another:
            with refusals(f"starting container {wanted.name}", wanted):
                self.docker.start(container_id)
            if hf_home and is_another(self.docker.inspect(container_id)["State"].get("Pid", 0)):
                self.docker.stop(container_id, 0)
                self.remove(container_id)
                raise ClusterError(
                    f"{hf_home}/hub was replaced by another directory while {wanted.name} was started, which is removed again",
                    remedy=f"Find out who did that: ls -ld {hf_home} {hf_home}/hub. Then run again.",
                    reason="hub cache",
                )

    def carry_out(self, steps: list[Action], current: ExistingContainer | None, stale: list[StaleHead]) -> None:
        """Carry out the plan, stale containers first. Nothing is stopped or removed before the devices of a new container exist."""
        devices: list[str] = []
        if self.wanted and any(step.verb == "create" for step in steps):
            devices = gpu_access.await_cdi_devices(self.docker, self.wanted.fields["gpus"], current is not None and current.by_cdi)
        for entry in stale:
            self.docker.stop(entry.id, self.params["stop_timeout"])
            self.remove(entry.id)
        created = ""
        for step in steps:
            if step.verb == "stop" and current:
                if current.status == "paused":
                    self.docker.unpause(current.id)
                if self.work.launched:
                    grace, forced = self.params["stop_timeout"], self.params["interrupt_requests"]
                    stopped = launch.stop_engine(self.docker, current.id, self.paths, grace, "the node's container", forced)
                    self.notes += [f"stopped {current.name} as a whole: {stopped['instead']}"] if stopped["instead"] else []
                self.docker.stop(current.id, self.params["stop_timeout"])
            elif step.verb == "remove" and current:
                if current.status != "created":
                    self.keep_log(current)
                self.remove(current.id)
            elif step.verb == "create" and self.wanted:
                created = self.create(self.wanted, devices)
            elif step.verb == "start" and self.wanted:
                self.start(self.wanted, created)


@contextlib.contextmanager
def refusals(doing: str, wanted: WantedContainer) -> t.Iterator[None]:
    """Turn Docker's refusal of the container into an error with a remedy."""
    try:
        yield
    except ClusterError as error:
        raise container.refusal(doing, wanted.fields["image"], error) from error


# -- the whole ----------------------------------------------------------------------------------------------------------


def apply(module: AnsibleModule, executor: str) -> dict[str, t.Any]:
    """Bring this node's container for one executor to the wanted state, and return the module's result."""
    params, node, kind = module.params, socket.gethostname(), BY_EXECUTOR[executor]
    docker = Docker(params["docker_socket"], params["docker_timeout"])
    current = find_own(docker, params["cluster_name"], params["node_role"])
    wanted = None
    if params["state"] == "started":
        wanted = kind.wanted(params, wanted_image_id(docker, params, current), current)
        obstacles.check_secrets(params["secret_files"], module.check_mode)

    changed = container.changes(current, wanted, params["allow_restart"]) if current and wanted else {}
    steps = container.plan(params["state"], node_container_name(params["cluster_name"], params["node_role"]), current, changed)
    work = live_work(docker, current, params)
    for name in lookalikes(docker, params["cluster_name"], params["node_role"]) if params["state"] != "started" else []:
        module.warn(NOT_OURS.format(name))
    waiting = container.waiting_protections(current, wanted) if current and wanted and not changed else []
    for what in waiting:
        module.warn(WAITS.format(what))
    common = {
        "waiting_protections": waiting,
        "changed_fields": sorted(changed) if current and current.running else [],
        "engine_live": work.live,
        "engine_requests_running": work.requests.count,
        "diff": {
            "before": container.snapshot(current.status if current else "absent", current.fields if current else {}),
            "after": after(params["state"], current, wanted),
        },
    }
    stale: list[StaleHead] = []
    try:
        if steps:
            guard(params, node, current, changed, work, kind.engine_is_gone(changed))
        paths = engine_state.EnginePaths.of(params["state_dir"], params["log_dir"], params["cluster_name"])
        left = planted.found(paths) if params["state"] == "absent" else []
        if wanted and steps:
            with removal.local_files():
                for folder in paths.closed:
                    private.check(folder)
            planted.check(paths)
            obstacles.check_node(docker, params, node, module.check_mode)
            stale = kind.to_remove_first(docker, params, node, wanted, current, module.check_mode)
        actions = [f"{verb} {entry.name} (stale head)" for entry in stale for verb in ("stop", "remove")] + [str(step) for step in steps]
        actions += [f"remove {plant.whole} ({plant.what})" for plant in left]
        common.update(actions=actions, changed=bool(actions))
        if actions and not module.check_mode:
            cluster_locks.check_held(cluster_locks.path_of(params["state_dir"], params["cluster_name"]), params["lock_id"])
            actor = Actor(docker, params, wanted, work)
            actor.carry_out(steps, current, stale)
            if left:
                with removal.local_files():
                    planted.clear(paths)
            actions += actor.notes
        waited = kind.wait(docker, params, node, wanted) if wanted and params["wait"] and not (actions and module.check_mode) else {}
    except ClusterError as error:
        error.details = {**common, **error.details}
        raise
    return {**common, **outcome(docker, params, wanted, steps, module.check_mode, waited)}


def after(state: str, current: ExistingContainer | None, wanted: WantedContainer | None) -> dict[str, t.Any]:
    if wanted:
        return container.snapshot("running", wanted.fields)
    if current is None or state == "absent":
        return container.snapshot("absent", {})
    return container.snapshot("exited" if current.holds_processes else current.status, current.fields)


def outcome(
    docker: Docker, params: Params, wanted: WantedContainer | None, steps: list[Action], check_mode: bool, waited: dict[str, t.Any]
) -> dict[str, t.Any]:
    """Return the keys that describe the container as the module leaves it, or would leave it in check mode."""
    reason = steps[0].reason if steps else "as wanted"
    what = f"{params['node_role']} of cluster {params['cluster_name']}"
    if steps and check_mode:
        return {"msg": f"{what} would be {params['state']}", "reason": reason, "session": SESSION_TO_COME if wanted else "", "info": {}}
    inspected = find_node_container(docker, params["cluster_name"], params["node_role"])
    info = {**(description.described(params["node_role"], inspected) if inspected else description.NOTHING), **waited}
    return {"msg": f"{what} is {params['state']}", "reason": reason, "session": info["session"], "info": info}
