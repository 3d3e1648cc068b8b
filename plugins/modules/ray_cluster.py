#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ray_cluster
short_description: Run Ray in one node's container
version_added: 0.1.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Starts, stops or removes the container in which one node runs Ray, as the head or as a worker of a cluster.
  - The container is found by its labels. A digest over the options below decides whether it stays as it is or is made anew, and the diff
    names every option that differs. A new version of the collection alone never makes a container anew.
  - A container that holds a live engine is not made anew unless O(allow_restart=true), since its users would wait for up to half an hour.
  - A container that has exited is replaced, never started again, since a Ray session cannot be taken up again. The log of a replaced
    container is kept below O(log_dir), in C(CLUSTER/containers); the last five stay.
  - Ready means that Ray itself answered. A head is ready when its GCS lists the head's own node as alive, a worker when the head lists the
    worker as alive under O(node_address). When the container exits meanwhile, the module fails at once with the last lines of its log.
  - Ray runs on host network with fixed ports and without dashboard and usage statistics. With a secret file named V(ray_token), it asks
    every client for that token.
requirements:
  - The Docker SDK for Python on the node (C(python3-docker) of the distribution, 5.0.3 or newer).
  - Docker Engine 20.10 or newer.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._docker
attributes:
  check_mode:
    support: full
    details:
      - What another task of the same run would have brought (the image, a secret file, the head that a worker joins) may be missing in check mode.
  diff_mode:
    support: full
options:
  state:
    description:
      - V(started) means that the container runs as described and that Ray answers.
      - V(stopped) means that it does not run. It stays, with its log.
      - V(absent) means that there is none.
      - An engine in the head's container is stopped first, gently, by V(stopped) and V(absent).
    type: str
    choices: [started, stopped, absent]
    default: started
  node_role:
    description:
      - What this node is in its cluster.
    type: str
    choices: [head, worker]
    required: true
  cluster_name:
    description:
      - Name of the cluster. It is part of the container's name and labels.
    type: str
    default: gb10
  image:
    description:
      - Reference of the image. It must be on the node already and hold Ray.
      - When another image takes the reference over, the container is made anew; the diff then names C(image_id).
      - Required when O(state=started).
    type: str
  node_address:
    description:
      - Address of this node that Ray uses and that the other nodes reach. It must be one of the node's own.
      - Required when O(state=started).
    type: str
  head_address:
    description:
      - Address of the head. Required for a worker when O(state=started); a head uses O(node_address).
    type: str
  head_session:
    description:
      - For a worker, the RV(session) that this module returned for the head. Another session than the one the worker joined makes the worker's container anew.
      - Without it a worker's container is kept whatever became of the head.
    type: str
  port:
    description:
      - Port of the head.
    type: int
    default: 6379
  port_range:
    description:
      - Further ports that Ray uses on this node, C(FIRST-LAST), at least 50. The first ten are for Ray's services, the others for its worker processes.
    type: str
    default: 20100-20299
  env:
    description:
      - Environment of the container. Never put secrets here, they would show in the container's configuration.
      - Values must be strings or numbers. Quote V("true") and the like as the program expects them.
    type: dict
    default: {}
  secret_files:
    description:
      - Secrets as name and path of a file on the node that only its owner can read. Each is mounted at C(/run/secrets/gb10/NAME).
      - V(ray_token) is special. Ray then demands this token of everybody.
    type: dict
    default: {}
  devices:
    description:
      - Device files, or directories of them, that the container gets.
    type: list
    elements: str
    default: [/dev/infiniband]
  gpus:
    description:
      - GPUs that the container gets from Docker's NVIDIA runtime. V(all), V(none), or a list of indexes or UUIDs.
    type: raw
    default: all
  ray_gpus:
    description:
      - How many GPUs Ray is told this node has.
    type: int
    default: 1
  capabilities:
    description:
      - Capabilities that the container gets beyond Docker's default.
    type: list
    elements: str
    default: [IPC_LOCK]
  ulimits:
    description:
      - Limits as name and number, soft and hard alike. V(-1) means unlimited.
    type: dict
    default: {memlock: -1, stack: 67108864}
  shm_size:
    description:
      - Size of the container's C(/dev/shm), such as V(10g).
      - Not used with O(ipc_host=true).
    type: str
    default: 10g
  ipc_host:
    description:
      - Whether the container shares the host's IPC namespace, C(/dev/shm) included.
    type: bool
    default: false
  mounts:
    description:
      - Directories or files of the node that are mounted into the container.
    type: list
    elements: dict
    default: []
    suboptions:
      source:
        description:
          - Path on the node. It must exist.
        type: path
        required: true
      target:
        description:
          - Path in the container.
        type: str
        required: true
      read_only:
        description:
          - Whether the container may only read it.
        type: bool
        default: false
  object_store_memory:
    description:
      - Bytes of Ray's object store. Ray's own default, 30 % of the memory, is far too much where the GPU needs it.
    type: int
  ray_arguments:
    description:
      - Further arguments of C(ray start).
    type: list
    elements: str
    default: []
  state_dir:
    description:
      - Directory of the node below which the state of the cluster's engine lies.
    type: path
    default: /var/lib/gb10
  log_dir:
    description:
      - Directory of the node below which logs lie.
    type: path
    default: /var/log/gb10
  allow_restart:
    description:
      - Whether a container with a live engine may be made anew. The engine is stopped first, gently.
    type: bool
    default: false
  replace_stale:
    description:
      - Whether a Ray head of another run or of somebody else, which runs in a container and holds a port that this head needs, is stopped and removed.
    type: bool
    default: false
  stop_timeout:
    description:
      - Seconds that the engine, and then the container, get to end before they are killed.
      - A killed engine leaks memory on this hardware, so leave it generous.
    type: int
    default: 120
  connect_timeout:
    description:
      - Seconds that the head, and the engine's metrics, get for one answer.
    type: int
    default: 5
  wait:
    description:
      - Whether to wait until Ray answers.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds to wait.
    type: int
    default: 180
  wait_sleep:
    description:
      - Seconds between two looks.
    type: int
    default: 2
seealso:
  - module: gb10.cluster.ray_cluster_info
  - module: gb10.cluster.vllm_serve
"""

EXAMPLES = r"""
- name: Start the head
  gb10.cluster.ray_cluster:
    node_role: head
    image: local/vllm-ray:26.05
    node_address: 192.168.100.11
    object_store_memory: 1073741824
    secret_files:
      ray_token: /etc/gb10/secrets/ray_token
  become: true
  register: head

- name: Let a worker join it
  gb10.cluster.ray_cluster:
    node_role: worker
    image: local/vllm-ray:26.05
    node_address: 192.168.100.12
    head_address: 192.168.100.11
    head_session: "{{ head.session }}"
    object_store_memory: 1073741824
    secret_files:
      ray_token: /etc/gb10/secrets/ray_token
  become: true

- name: Remove the worker's container
  gb10.cluster.ray_cluster:
    node_role: worker
    state: absent
  become: true
"""

RETURN = r"""
container_id:
  description: Full id of the container; empty when there is none (in check mode, none yet).
  returned: success
  type: str
  sample: 3ff22d443798c21636793a5e7025a1f520d54523c949ae524996ca0f57dd860c
session:
  description:
    - Id of this run of the container. A container that is started or made anew has another one.
    - Empty when it does not run, V(not-started-yet) when check mode predicts a start.
  returned: success
  type: str
  sample: 5c0e0a6b1d7f4e21
address:
  description: Where Ray's head is reached, C(HOST:PORT); empty unless O(state=started).
  returned: success
  type: str
  sample: 192.168.100.11:6379
changed_fields:
  description: The options in which a running container differed from what was asked; entries of dictionaries one by one.
  returned: always
  type: list
  elements: str
  sample: [env.NCCL_DEBUG, image_id]
engine_live:
  description: Whether the container held a live engine, rank or other work of Ray when the module looked, before it did anything.
  returned: always
  type: bool
  sample: false
engine_requests_running:
  description: How many requests that engine worked on; null when it does not say, or on a worker.
  returned: always
  type: int
  sample: 0
ray_nodes:
  description:
    - The head's table of nodes, when it was asked (O(wait=true)).
    - Of a dead node only the last entry under its address is listed, and only while no living one has that address.
  returned: success
  type: list
  elements: dict
  contains:
    address:
      description: Address of the node.
      type: str
    alive:
      description: Whether the head counts it as alive.
      type: bool
    head:
      description: Whether it is the head's own node.
      type: bool
    gpus:
      description: How many GPUs Ray counts on it.
      type: float
    resources:
      description: All that Ray counts on it.
      type: dict
    node_id:
      description: Ray's id of this incarnation of the node.
      type: str
    started_ms:
      description: When this incarnation began, in milliseconds since 1970, by the node's own clock.
      type: int
  sample:
    - address: 192.168.100.11
      alive: true
      head: true
      gpus: 1.0
      resources: {"CPU": 20.0, "GPU": 1.0, "node:192.168.100.11": 1.0}
      node_id: 3a823a14ebd79e876033b95566281d8698c5214acbc6e5edaa3bda4f
      started_ms: 1795225985686
exit_code:
  description: Exit code of a container that ended while it was waited for.
  returned: when the container ended
  type: int
  sample: 1
log:
  description: The last lines of the container's log.
  returned: when the container ended, or Ray did not answer in time
  type: str
  sample: "RuntimeError: Version mismatch: The cluster was started with Ray 2.60.0"
detail:
  description: What Docker said, in its own words.
  returned: when Docker refused something
  type: str
  sample: 'could not select device driver "nvidia" with capabilities: [[gpu]]'
"""

import calendar
import contextlib
import glob
import os
import socket
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _engine, _listeners, _net, _node_container, _ray
from ansible_collections.gb10.cluster.plugins.module_utils._docker import (
    LABEL_CLUSTER,
    LABEL_OWNER,
    LABEL_ROLE,
    EngineApi,
    NotFound,
    find_node_container,
    sdk_client,
    sdk_errors,
)
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._module import run
from ansible_collections.gb10.cluster.plugins.module_utils._node_container import Action, Current, Unit
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: What check mode returns as the session of a head that would be started: unlike any real one, so that workers predict to follow.
SESSION_TO_COME = "not-started-yet"

#: Ray's program that holds the head's port.
GCS_PROGRAM = "gcs_server"

#: Seconds beyond its grace that the launcher gets to kill what is left and to tell about it.
LAUNCHER_MARGIN = 30

#: Options that are fields of the unit as they are.
PLAIN_FIELDS = (
    "node_role", "node_address", "port", "port_range", "image", "secret_files", "devices", "gpus", "ray_gpus", "capabilities", "ulimits",
    "ipc_host", "mounts", "object_store_memory", "ray_arguments", "state_dir", "log_dir",
)  # fmt: skip

Params = dict[str, t.Any]


class Work(t.NamedTuple):
    """Live work in a container: ``how`` tells what was seen, ``requests`` is None when the engine does not say."""

    live: bool
    how: str
    requests: int | None
    launched: bool


NO_WORK = Work(False, "", None, False)


# -- what is wanted --------------------------------------------------------------------------------------------------


def wanted_fields(params: Params, image_id: str, current: Current | None) -> dict[str, t.Any]:
    """Return the fields of the wanted unit. What was not asked of a worker (the head's session) stays as it is."""
    fields = {name: params[name] for name in PLAIN_FIELDS}
    kept_session = current.fields.get("head_session", "") if current else ""
    head = params["node_role"] == "head"
    return {
        **fields,
        "image_id": image_id,
        "env": _node_container.environment(params["env"]),
        "shm_size": "" if params["ipc_host"] else params["shm_size"],
        "head_address": params["node_address"] if head else params["head_address"],
        "head_session": "" if head else params["head_session"] or kept_session,
    }


def wanted_image_id(api: EngineApi, params: Params, current: Current | None) -> str:
    """Return the id that the image's reference has now; that of the container when the reference is gone, empty without one."""
    image = api.image(params["image"])
    if image:
        return image["Id"]
    return current.fields.get("image_id", "") if current and current.fields.get("image") == params["image"] else ""


def check_inputs(params: Params) -> None:
    """Raise :class:`ClusterError` for values whose form the argument specification cannot check."""
    if params["node_role"] == "worker" and not params["head_address"]:
        raise ClusterError("a worker needs head_address", remedy="Set head_address to the address of the head's node.", reason="input")
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
    paths = _engine.EnginePaths.of(places["state_dir"], places["log_dir"], params["cluster_name"])
    engine: dict[str, t.Any] = _engine.engine_state(paths) if params["node_role"] == "head" else {"live": False}
    titles = [_listeners.command_line(pid) for pid in api.top(current.id)]
    seen = next((title for title in titles if _ray.is_work(title)), "")
    if not engine["live"] and not seen:
        return NO_WORK
    requests = None
    if engine["live"] and engine["api_address"] and engine["api_port"]:
        url = _engine.base_url(engine["api_address"], engine["api_port"])
        requests = _engine.requests_running(url, params["connect_timeout"])
    how = f"run {engine['run_id']}" if engine["live"] else seen[:80]
    return Work(True, how, requests, engine["live"])


def guard(params: Params, node: str, current: Current | None, changed: dict[str, tuple[t.Any, t.Any]], work: Work) -> None:
    """Raise :class:`ClusterError` when live work would be lost that nobody said may be.

    Ranks on a worker whose head has begun another session are what is left of an engine that ended with its head: they hold no work.
    """
    joined, _now = changed.get("head_session", ("", ""))
    if current is None or not work.live or params["allow_restart"] or joined:
        return
    why = _node_container.difference_text(changed) or _node_container.replacement_reason(current, changed)
    requests = "an unknown number of requests runs" if work.requests is None else f"{work.requests} requests run"
    raise ClusterError(
        f"container {current.name} on {node} would be made anew ({why}), but it holds live work ({work.how}; {requests})",
        remedy="Repeat with -e gb10_allow_restart=true to stop the engine and start it again, which takes as long as a first start.",
        reason="engine live",
        node=node,
        container=current.name,
    )


# -- what stands in the way ------------------------------------------------------------------------------------------


def check_node_address(address: str, node: str) -> None:
    """Raise :class:`ClusterError` unless the address is one of this node's own that others can reach (Ray replaces a loopback address)."""
    own = [entry for entry in _net.ipv4_addresses() + _net.ipv6_addresses() if entry["scope"] != "host"]
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
            _node_container.check_secret_file(name, path)


def check_name(api: EngineApi, unit: Unit) -> None:
    """Raise :class:`ClusterError` when a container that is not ours has the name that ours is to get."""
    try:
        holder = api.inspect(unit.name)
    except NotFound:
        return
    labels = holder["Config"].get("Labels") or {}
    if any(labels.get(key) != unit.labels[key] for key in (LABEL_OWNER, LABEL_CLUSTER, LABEL_ROLE)):
        raise ClusterError(
            f"a container that is not ours has the name of ours: {container_text(holder)}",
            remedy=f"Rename it (docker rename {unit.name} OTHER) or choose another gb10_cluster_name.",
            reason="name taken",
        )


def check_head(params: Params, node: str) -> None:
    """Raise :class:`ClusterError` unless somebody answers where the head should be."""
    address = _ray.host_port(params["head_address"], params["port"])
    why = _listeners.answers(params["head_address"], params["port"], params["connect_timeout"])
    if why:
        raise ClusterError(
            f"no Ray head answers at {address} from {node} ({why})",
            remedy="Start the head first (--tags ray), or correct head_address and port; a firewall on the way shows as a time-out.",
            reason="no head",
        )


def is_ray_head(inspected: dict[str, t.Any], listener: dict[str, t.Any]) -> bool:
    """Say whether a container runs a Ray head: by its command, or since the listening process is Ray's GCS."""
    command = " ".join([inspected["Path"], *inspected["Args"]])
    return listener["process"] == GCS_PROGRAM or ("ray start" in command and "--head" in command)


class Stale(t.NamedTuple):
    """A container that runs somebody else's Ray head on a port that ours needs."""

    id: str
    name: str
    description: str


def foreign_listeners(found: list[dict[str, t.Any]], names: dict[str, str], own_id: str) -> list[dict[str, t.Any]]:
    """Return the listeners that are not of our own container; ``names`` maps this engine's container ids to names.

    A container that this engine does not know is the one that the whole node runs in: its processes count as the host's.
    """
    known = [{**entry, "container": entry["container"] if entry["container"] in names else ""} for entry in found]
    return [{**entry, "container_name": names.get(entry["container"], "")} for entry in known if not own_id or entry["container"] != own_id]


def container_text(inspected: dict[str, t.Any]) -> str:
    """Return a container in words, with its times to the second, for a message."""
    created, started = inspected["Created"][:19], inspected["State"]["StartedAt"][:19]
    return f"container {inspected['Name'].lstrip('/')} (image {inspected['Config']['Image']}, created {created}Z, started {started}Z)"


def stale_heads(api: EngineApi, foreign: list[dict[str, t.Any]]) -> list[Stale]:
    """Return the containers among the foreign listeners that run a Ray head."""
    stale = {}
    for listener in foreign:
        if not listener["container"]:
            continue
        inspected = api.inspect(listener["container"])
        if is_ray_head(inspected, listener):
            stale[listener["container"]] = Stale(listener["container"], listener["container_name"], container_text(inspected))
    return list(stale.values())


def listener_text(listener: dict[str, t.Any]) -> str:
    """Return who listens in words, for a message."""
    if listener["pid"] is None:
        return f"port {listener['port']} on {listener['address']}: a process that only root can see"
    where = f" in container {listener['container_name']}" if listener["container"] else ""
    return f"port {listener['port']} on {listener['address']}: {listener['process']} (pid {listener['pid']}){where} since {listener['since']}"


def check_ports(api: EngineApi, params: Params, node: str, fields: dict[str, t.Any], current: Current | None) -> list[Stale]:
    """Return the stale heads that may be removed. Raises :class:`ClusterError` when anything else holds a port of ours."""
    found = _listeners.listeners(_ray.needed_ports(fields))
    names = {entry["Id"]: entry["Names"][0].lstrip("/") for entry in api.containers({})} if found else {}
    foreign = foreign_listeners(found, names, current.id if current else "")
    stale = stale_heads(api, foreign)
    others = [listener for listener in foreign if listener["container"] not in [entry.id for entry in stale]]
    if stale and not params["replace_stale"]:
        raise ClusterError(
            f"a Ray head of another run is on {node}: {'; '.join(entry.description for entry in stale)}",
            remedy="When that run is over, repeat with -e gb10_replace_stale=true to have it stopped and removed. "
            "To keep it, choose another gb10_ray_port and gb10_ray_port_range.",
            reason="stale head",
            node=node,
        )
    if others:
        raise ClusterError(
            f"ports that Ray needs are taken on {node}: {'; '.join(map(listener_text, others))}",
            remedy="Stop what listens there, or choose another gb10_ray_port or gb10_ray_port_range.",
            reason="port taken",
            node=node,
            listeners=others,
        )
    return stale


def before_creation(api: EngineApi, params: Params, node: str, unit: Unit, current: Current | None, check_mode: bool) -> list[Stale]:
    """Check all that a new container needs, and return the stale heads that have to go first.

    Raises :class:`ClusterError` for the first thing that is wrong. In check mode the image and the head may still be to come.
    """
    if not check_mode and not api.image(params["image"]):
        raise ClusterError(f"image {params['image']} is not on {node}", remedy="Bring it there: run the play with --tags image.", reason="image missing")
    check_node_address(params["node_address"], node)
    _node_container.check_devices(params["devices"])
    check_name(api, unit)
    stale = check_ports(api, params, node, unit.fields, current)
    if params["node_role"] == "worker" and not check_mode:
        check_head(params, node)
    return stale


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

    def stop_engine(self, container_id: str) -> None:
        """Stop the engine that the launcher started, gently, so that its memory comes back."""
        spec, launcher = f"{_engine.LAUNCH_TARGET}/engine.json", f"{_engine.LAUNCH_TARGET}/launcher.py"
        grace = self.params["stop_timeout"]
        argv = ["python3", launcher, "stop", "--spec", spec, "--grace", str(grace)]
        result = self.api.exec(container_id, argv, timeout=grace + LAUNCHER_MARGIN)
        if result.rc != 0:
            raise ClusterError(
                f"the engine on {self.node} did not end within {grace} s and could not be killed",
                remedy="Look at its processes: a process in state D hangs in the kernel, and only a reboot by you removes it.",
                reason="engine remains",
                raw=f"{result.stdout}\n{result.stderr}".strip(),
            )

    def stop(self, container_id: str) -> None:
        with sdk_errors(f"stopping container {container_id[:12]}"):
            self.sdk.containers.get(container_id).stop(timeout=self.params["stop_timeout"])

    def remove(self, container_id: str) -> None:
        with sdk_errors(f"removing container {container_id[:12]}"):
            self.sdk.containers.get(container_id).remove(v=True)

    def keep_log(self, current: Current) -> None:
        """Write the log of a container that is about to go below the log directory, and delete the oldest such logs."""
        folder = os.path.join(self.params["log_dir"], self.params["cluster_name"], "containers")
        path = os.path.join(folder, f"{current.name}-{current.id[:12]}.log")
        with local_files(), sdk_errors(f"reading the log of container {current.name}"):
            os.makedirs(folder, mode=0o750, exist_ok=True)
            with open(path, "wb") as handle:
                for part in self.sdk.containers.get(current.id).logs(stream=True, follow=False, timestamps=True):
                    handle.write(part)
            kept = [(os.path.getmtime(name), name) for name in glob.glob(os.path.join(glob.escape(folder), f"{glob.escape(current.name)}-*.log"))]
            for name in _node_container.surplus_logs(kept):
                os.remove(name)

    def create(self, unit: Unit) -> str:
        paths = _engine.EnginePaths.of(self.params["state_dir"], self.params["log_dir"], unit.cluster)
        with local_files():
            for folder, mode in ((paths.launch, 0o755), (paths.run, 0o755), (paths.log, 0o750)):
                os.makedirs(folder, mode=mode, exist_ok=True)
        doing = f"creating container {unit.name}"
        try:
            with sdk_errors(doing):
                return self.sdk.containers.create(**_node_container.create_arguments(unit)).id
        except ClusterError as error:
            raise _node_container.refusal(doing, unit, error) from error

    def start(self, unit: Unit, container_id: str) -> None:
        doing = f"starting container {unit.name}"
        try:
            with sdk_errors(doing):
                self.sdk.containers.get(container_id).start()
        except ClusterError as error:
            raise _node_container.refusal(doing, unit, error) from error

    def carry_out(self, steps: list[Action], current: Current | None, stale: list[Stale]) -> None:
        """Do what the plan says; stale heads go first."""
        for entry in stale:
            self.stop(entry.id)
            self.remove(entry.id)
        created = ""
        for step in steps:
            if step.verb == "stop" and current:
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


def milliseconds(timestamp: str) -> int:
    """Return Docker's ``2026-11-21T01:57:53.754100254Z`` in milliseconds since 1970, cut to the second."""
    return calendar.timegm(time.strptime(timestamp[:19], "%Y-%m-%dT%H:%M:%S")) * 1000


def wait_for_ray(api: EngineApi, params: Params, node: str, unit: Unit) -> list[dict[str, t.Any]]:
    """Wait until Ray knows this node, and return its table of nodes.

    Raises :class:`ClusterError` as soon as the container ends, :class:`WaitTimeout` when the time is over.
    """
    address = _ray.host_port(unit.fields["head_address"], unit.fields["port"])
    last = "nothing was asked yet"
    for _elapsed in clock(params["wait_timeout"], params["wait_sleep"]):
        current = running_container(api, params, node, unit)
        try:
            table = _ray.ask(api, current.id, address, params["connect_timeout"])
        except ClusterError as error:
            # The container may have ended between the look at it and the question: the next look tells how.
            last = f"{error} {error.details.get('raw', '')}".strip()
            continue
        _ray.check_hope(table, unit.fields["image"], address, node)
        if not table.error and _ray.registered(table.nodes, unit.fields["node_address"], milliseconds(current.started_at)):
            return table.nodes
        last = table.error or f"the head knows {', '.join(entry['address'] for entry in table.nodes if entry['alive']) or 'no node'}"
    what = "the head" if unit.role == "head" else f"the worker {unit.fields['node_address']}"
    raise WaitTimeout(
        f"{what} was not ready at {address} within {params['wait_timeout']} s; last seen on {node}: {last}",
        remedy=f"Read the container's log: docker logs {unit.name}. A slow node needs a longer wait_timeout.",
        reason="not ready in time",
        node=node,
        log=last_log(api, unit),
    )


def last_log(api: EngineApi, unit: Unit) -> str:
    """Return the last lines of our container's log, empty when it is gone."""
    inspected = find_node_container(api, unit.cluster, unit.role)
    return api.logs(inspected["Id"]) if inspected else ""


def running_container(api: EngineApi, params: Params, node: str, unit: Unit) -> Current:
    """Return our container as it is now. Raises :class:`ClusterError` with its last words when it does not run."""
    inspected = find_node_container(api, unit.cluster, unit.role)
    if inspected is None:
        raise ClusterError(f"container {unit.name} on {node} was removed while it was waited for", remedy="Find out who did: docker events.")
    current = _node_container.current_of(inspected)
    if not current.running:
        raise _node_container.died(current, node, unit.fields["image"], api.logs(current.id))
    return current


# -- the module ------------------------------------------------------------------------------------------------------


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params, node = module.params, socket.gethostname()
    api = EngineApi(params["docker_socket"], params["docker_timeout"])
    inspected = find_node_container(api, params["cluster_name"], params["node_role"])
    current = _node_container.current_of(inspected) if inspected else None
    unit = None
    if params["state"] == "started":
        check_inputs(params)
        unit = _ray.ray_unit(params["cluster_name"], wanted_fields(params, wanted_image_id(api, params, current), current))
        check_secrets(params, module.check_mode)

    changed = _node_container.changes(current, unit) if current and unit else {}
    name = f"gb10-{params['cluster_name']}-{params['node_role']}"
    steps = _node_container.plan(params["state"], name, current, changed)
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
            guard(params, node, current, changed, found)
            stale = before_creation(api, params, node, unit, current, module.check_mode)
        actions = [f"{verb} {entry.name} (stale head)" for entry in stale for verb in ("stop", "remove")] + [str(step) for step in steps]
        common.update(actions=actions, changed=bool(actions))
        if actions and not module.check_mode:
            Actor(api, params, node, unit, found).carry_out(steps, current, stale)
        nodes = wait_for_ray(api, params, node, unit) if unit and params["wait"] and not (actions and module.check_mode) else []
    except ClusterError as error:
        error.details = {**common, **error.details}
        raise
    return {**common, **outcome(api, params, unit, steps, module.check_mode), "ray_nodes": nodes}


def before(current: Current | None) -> dict[str, t.Any]:
    return _node_container.snapshot(current.status, current.fields) if current else _node_container.snapshot("absent", {})


def after(state: str, current: Current | None, unit: Unit | None) -> dict[str, t.Any]:
    if unit:
        return _node_container.snapshot("running", unit.fields)
    if current is None or state == "absent":
        return _node_container.snapshot("absent", {})
    return _node_container.snapshot("exited" if current.holds_processes else current.status, current.fields)


def outcome(api: EngineApi, params: Params, unit: Unit | None, steps: list[Action], check_mode: bool) -> dict[str, t.Any]:
    """Return the keys that describe the container as the module leaves it, or would leave it in check mode."""
    address = _ray.host_port(unit.fields["head_address"], unit.fields["port"]) if unit else ""
    reason = steps[0].reason if steps else "as wanted"
    what = f"{params['node_role']} of cluster {params['cluster_name']}"
    if steps and check_mode:
        session = SESSION_TO_COME if unit else ""
        return {"msg": f"{what} would be {params['state']}", "reason": reason, "container_id": "", "session": session, "address": address}
    inspected = find_node_container(api, params["cluster_name"], params["node_role"])
    running = bool(inspected and inspected["State"]["Running"])
    return {
        "msg": f"{what} is {params['state']}",
        "reason": reason,
        "container_id": inspected["Id"] if inspected else "",
        "session": _node_container.session(inspected["Id"], inspected["State"]["StartedAt"]) if inspected and running else "",
        "address": address,
    }


def argument_spec() -> dict[str, t.Any]:
    mount = {"source": {"type": "path", "required": True}, "target": {"type": "str", "required": True}, "read_only": {"type": "bool", "default": False}}
    return {
        "state": {"type": "str", "choices": ["started", "stopped", "absent"], "default": "started"},
        "node_role": {"type": "str", "choices": ["head", "worker"], "required": True},
        "cluster_name": {"type": "str", "default": "gb10"},
        "image": {"type": "str"},
        "node_address": {"type": "str"},
        "head_address": {"type": "str"},
        "head_session": {"type": "str"},
        "port": {"type": "int", "default": 6379},
        "port_range": {"type": "str", "default": "20100-20299"},
        "env": {"type": "dict", "default": {}},
        "secret_files": {"type": "dict", "default": {}, "no_log": False},
        "devices": {"type": "list", "elements": "str", "default": ["/dev/infiniband"]},
        "gpus": {"type": "raw", "default": "all"},
        "ray_gpus": {"type": "int", "default": 1},
        "capabilities": {"type": "list", "elements": "str", "default": ["IPC_LOCK"]},
        "ulimits": {"type": "dict", "default": {"memlock": -1, "stack": 67108864}},
        "shm_size": {"type": "str", "default": "10g"},
        "ipc_host": {"type": "bool", "default": False},
        "mounts": {"type": "list", "elements": "dict", "default": [], "options": mount},
        "object_store_memory": {"type": "int"},
        "ray_arguments": {"type": "list", "elements": "str", "default": []},
        "state_dir": {"type": "path", "default": "/var/lib/gb10"},
        "log_dir": {"type": "path", "default": "/var/log/gb10"},
        "allow_restart": {"type": "bool", "default": False},
        "replace_stale": {"type": "bool", "default": False},
        "stop_timeout": {"type": "int", "default": 120},
        "connect_timeout": {"type": "int", "default": 5},
        "wait": {"type": "bool", "default": True},
        "wait_timeout": {"type": "int", "default": 180},
        "wait_sleep": {"type": "int", "default": 2},
        "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
        "docker_timeout": {"type": "int", "default": 60},
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec=argument_spec(),
        required_if=[("state", "started", ["image", "node_address"])],
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
