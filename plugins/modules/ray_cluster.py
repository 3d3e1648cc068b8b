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
  - Ray runs on host network with fixed ports and without dashboard and usage statistics. With a secret file named C(ray_token) in
    O(secret_files), it asks every client for that token.
requirements:
  - The Docker SDK for Python on the node (C(python3-docker) of the distribution, 5.0.3 or newer).
  - Docker Engine 20.10 or newer.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._docker
  - gb10.cluster._node
attributes:
  check_mode:
    support: full
    details:
      - What another task of the same run would have brought (the image, a secret file, the head that a worker joins) may be missing in check mode.
  diff_mode:
    support: full
options:
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
  ray_gpus:
    description:
      - How many GPUs Ray is told this node has.
    type: int
    default: 1
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
  replace_stale:
    description:
      - Whether a Ray head of another run or of somebody else, which runs in a container and holds a port that this head needs, is stopped and removed.
      - One in which an engine or a rank is at work is so only with O(interrupt_requests=true).
    type: bool
    default: false
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
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._module import run
from ansible_collections.gb10.cluster.plugins.module_utils._network import listeners
from ansible_collections.gb10.cluster.plugins.module_utils._node import acting, ray_node
from ansible_collections.gb10.cluster.plugins.module_utils._node.acting import Changes, Params, Stale
from ansible_collections.gb10.cluster.plugins.module_utils._node.node_containers import Current, Unit
from ansible_collections.gb10.cluster.plugins.module_utils._process import at_work, classify
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: Options that are fields of the unit as they are, beside those of every node container.
PLAIN_FIELDS = ("port", "port_range", "ray_gpus", "object_store_memory", "ray_arguments")


# -- what is wanted --------------------------------------------------------------------------------------------------


def wanted_fields(params: Params, image_id: str, current: Current | None) -> dict[str, t.Any]:
    """Return the fields of the wanted unit. What was not asked of a worker (the head's session) stays as it is."""
    kept_session = current.fields.get("head_session", "") if current else ""
    head = params["node_role"] == "head"
    return {
        **acting.common_fields(params, image_id),
        **{name: params[name] for name in PLAIN_FIELDS},
        "head_address": params["node_address"] if head else params["head_address"],
        "head_session": "" if head else params["head_session"] or kept_session,
    }


def wanted_unit(params: Params, image_id: str, current: Current | None) -> Unit:
    """Return the wanted container. Raises :class:`ClusterError` for options that do not fit together."""
    if params["node_role"] == "worker" and not params["head_address"]:
        raise ClusterError("a worker needs head_address", remedy="Set head_address to the address of the head's node.", reason="input")
    return ray_node.ray_unit(params["cluster_name"], wanted_fields(params, image_id, current))


def orphaned(changed: Changes) -> bool:
    """Say whether a worker's ranks are what is left of an engine that ended with its head: that head began another session, or runs Ray by now."""
    joined, now = changed.get("head_session", ("", ""))
    was, _wanted = changed.get("executor", ("", ""))
    return bool(joined) or (was == "native" and bool(now))


# -- what stands in the way ------------------------------------------------------------------------------------------


def check_head(params: Params, node: str) -> None:
    """Raise :class:`ClusterError` unless somebody answers where the head should be."""
    address = ray_node.host_port(params["head_address"], params["port"])
    why = listeners.answers(params["head_address"], params["port"], params["connect_timeout"])
    if why:
        raise ClusterError(
            f"no Ray head answers at {address} from {node} ({why})",
            remedy="Start the head first (--tags ray), or correct head_address and port; a firewall on the way shows as a time-out.",
            reason="no head",
        )


def is_ray_head(inspected: dict[str, t.Any], listener: dict[str, t.Any]) -> bool:
    """Say whether a container runs a Ray head: by its command, or since the listening process is Ray's GCS."""
    return classify.is_gcs(listener["process"]) or classify.starts_ray_head([inspected["Path"], *inspected["Args"]])


def stale_heads(api: EngineApi, foreign: list[dict[str, t.Any]]) -> list[Stale]:
    """Return the containers among the foreign listeners that run a Ray head."""
    stale = {}
    for listener in foreign:
        if not listener["container"]:
            continue
        inspected = api.inspect(listener["container"])
        if is_ray_head(inspected, listener):
            stale[listener["container"]] = Stale(listener["container"], listener["container_name"], acting.container_text(inspected))
    return list(stale.values())


def check_unused(params: Params, node: str, stale: list[Stale]) -> None:
    """Raise :class:`ClusterError` when an engine or one of Ray's workers is at work in a container that would be removed: it may be answering somebody.

    How many requests it works on is not asked: nobody here knows where it listens, and who may.
    """
    if params["interrupt_requests"]:
        return
    found = at_work.within({entry.id for entry in stale})
    if found:
        raise ClusterError(
            f"the Ray head of another run on {node} would be removed, but it is at work: {'; '.join(found)}",
            remedy="End that work first, or have it cut off with -e gb10_interrupt_requests=true.",
            reason="stale head in use",
            node=node,
        )


def check_ports(api: EngineApi, params: Params, node: str, fields: dict[str, t.Any], current: Current | None) -> list[Stale]:
    """Return the stale heads that may be removed. Raises :class:`ClusterError` when anything else holds a port of ours."""
    foreign = acting.foreign_on(api, ray_node.needed_ports(fields), current)
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
        raise acting.ports_taken("Ray", node, others, "gb10_ray_port or gb10_ray_port_range")
    if stale:
        check_unused(params, node, stale)
    return stale


def obstacles(api: EngineApi, params: Params, node: str, unit: Unit, current: Current | None, check_mode: bool) -> list[Stale]:
    """Return the stale heads that have to go first. Raises :class:`ClusterError` for a taken port or a missing head; in check mode it may still come."""
    stale = check_ports(api, params, node, unit.fields, current)
    if params["node_role"] == "worker" and not check_mode:
        check_head(params, node)
    return stale


# -- waiting ---------------------------------------------------------------------------------------------------------


def milliseconds(timestamp: str) -> int:
    """Return Docker's ``2026-11-21T01:57:53.754100254Z`` in milliseconds since 1970, cut to the second."""
    return calendar.timegm(time.strptime(timestamp[:19], "%Y-%m-%dT%H:%M:%S")) * 1000


def wait_for_ray(api: EngineApi, params: Params, node: str, unit: Unit) -> dict[str, t.Any]:
    """Wait until Ray knows this node, and return its table of nodes for the result.

    Raises :class:`ClusterError` as soon as the container ends, :class:`WaitTimeout` when the time is over.
    """
    address = ray_node.host_port(unit.fields["head_address"], unit.fields["port"])
    last = "nothing was asked yet"
    for _elapsed in clock(params["wait_timeout"], params["wait_sleep"]):
        current = acting.running_container(api, node, unit)
        try:
            table = ray_node.ask(api, current.id, address, params["connect_timeout"])
        except ClusterError as error:
            # The container may have ended between the look at it and the question: the next look tells how.
            last = f"{error} {error.details.get('raw', '')}".strip()
            continue
        ray_node.check_hope(table, unit.fields["image"], address, node)
        if not table.error and ray_node.registered(table.nodes, unit.fields["node_address"], milliseconds(current.started_at), current.uptime()):
            return {"ray_nodes": table.nodes}
        last = table.error or f"the head knows {', '.join(entry['address'] for entry in table.nodes if entry['alive']) or 'no node'}"
    what = "the head" if unit.role == "head" else f"the worker {unit.fields['node_address']}"
    raise WaitTimeout(
        f"{what} was not ready at {address} within {params['wait_timeout']} s; last seen on {node}: {last}",
        remedy=f"Read the container's log: docker logs {unit.name}. A slow node needs a longer wait_timeout.",
        reason="not ready in time",
        node=node,
        log=acting.last_log(api, unit),
    )


# -- the module ------------------------------------------------------------------------------------------------------

KIND = acting.Kind(unit=wanted_unit, obstacles=obstacles, orphaned=orphaned, wait=wait_for_ray)


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    head = params["node_address"] if params["node_role"] == "head" else params["head_address"]
    address = ray_node.host_port(head, params["port"]) if params["state"] == "started" and head else ""
    return {"address": address, "ray_nodes": [], **acting.work(module, KIND)}


def argument_spec() -> dict[str, t.Any]:
    return {
        **acting.argument_spec(),
        "head_address": {"type": "str"},
        "head_session": {"type": "str"},
        "port": {"type": "int", "default": 6379},
        "port_range": {"type": "str", "default": "20100-20299"},
        "ray_gpus": {"type": "int", "default": 1},
        "object_store_memory": {"type": "int"},
        "ray_arguments": {"type": "list", "elements": "str", "default": []},
        "replace_stale": {"type": "bool", "default": False},
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
