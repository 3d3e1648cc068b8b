#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_container_info
short_description: Return the state of a node's container and Ray's view of the cluster
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Searches for this node's container of a cluster (the head's, if it has both), no matter whether M(gb10.cluster.ray_cluster) or
    M(gb10.cluster.node_container) created it. If it runs Ray, the cluster's head is asked for its nodes from inside it.
  - The request registers no driver with Ray and starts nothing there. It works with token authentication and without the dashboard.
  - Fails only if the node's Docker engine cannot be asked. A head that does not answer is reported in RV(ray_error), with the verdict V(unknown).
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
  - gb10.cluster._docker
options:
  cluster_name:
    description:
      - Name of the cluster.
    type: str
    default: gb10
  connect_timeout:
    description:
      - Seconds to wait for the head's answer.
    type: int
    default: 5
  state_dir:
    description:
      - Directory on the node for the state of the collection's clusters. If set, it is searched for the engines' compiled files (RV(caches)),
        which needs root.
    type: path
seealso:
  - module: gb10.cluster.node_container
  - module: gb10.cluster.ray_cluster
"""

EXAMPLES = r"""
- name: Ask Ray for its nodes
  gb10.cluster.node_container_info:
  become: true
  register: ray

- name: Require two nodes with one GPU each
  ansible.builtin.assert:
    that:
      - ray.nodes | selectattr('alive') | map(attribute='address') | unique | length == 2
      - ray.gpus_total == 2
"""

RETURN = r"""
exists:
  description: Whether this node has a container of the cluster, running or not.
  returned: success
  type: bool
  sample: true
running:
  description: Whether that container runs.
  returned: success
  type: bool
  sample: true
role:
  description: Role of this node in the cluster, V(head) or V(worker). Empty without a container.
  returned: success
  type: str
  sample: head
executor:
  description: The program that distributes the engine's ranks, V(ray) or V(native). Empty without a container. A V(native) container does not run Ray.
  returned: success
  type: str
  sample: ray
container:
  description: The container. Empty without one.
  returned: success
  type: dict
  contains:
    id:
      description: Its full id.
      type: str
    name:
      description: Its name.
      type: str
    image:
      description: Reference of its image.
      type: str
    image_id:
      description: Id of its image.
      type: str
    created:
      description: When it was created.
      type: str
    state:
      description: Its state according to Docker.
      type: str
    exit_code:
      description: Exit code of its last end. Null while it runs.
      type: int
  sample:
    id: 3ff22d443798c21636793a5e7025a1f520d54523c949ae524996ca0f57dd860c
    name: gb10-gb10-head
    image: local/vllm-ray:26.05
    image_id: sha256:9b90461c920798883c48fbfaf740b9a0132b51ecce6c882a40facc76ef2b9a6e
    created: "2026-11-21T01:52:50.218403881Z"
    state: running
    exit_code: null
session:
  description: Id of this run of the container. Empty if it does not run.
  returned: success
  type: str
  sample: 5c0e0a6b1d7f4e21
address:
  description: Address of the cluster's head, C(HOST:PORT). Empty without a container that runs Ray.
  returned: success
  type: str
  sample: 192.168.100.11:6379
ray_version:
  description: Version of Ray in the container. Empty if it could not be asked.
  returned: success
  type: str
  sample: 2.60.0
python_version:
  description: Full version of the container's Python. Ray requires the same on all nodes.
  returned: success
  type: str
  sample: 3.12.3
nodes:
  description:
    - The nodes that the head knows, in the order in which they joined.
    - For a dead node only the last entry under its address is listed, and only if no living one has that address.
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
      description: Number of its GPUs in Ray.
      type: float
    resources:
      description: All of its resources in Ray.
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
gpus_total:
  description: Total GPUs of the living nodes.
  returned: success
  type: float
  sample: 2.0
ray_without_token:
  description: The result of the same request without the token, V(refused), V(answered), or why it is unknown. Empty if the head did not answer.
  returned: success
  type: str
  version_added: 0.2.0
  sample: refused
caches:
  description:
    - The directories on the node with the engines' compiled files, one for each image (its engine, its architecture, and a digest of
      its base and recipe). Empty unless O(state_dir) is set.
  returned: success
  type: list
  elements: dict
  contains:
    path:
      description: The directory.
      type: str
    size_bytes:
      description: Disk space of its files.
      type: int
    files:
      description: Number of its files.
      type: int
    in_use:
      description: Whether a container uses it that may have processes.
      type: bool
  sample:
    - path: /var/lib/gb10/gb10/cache/0.20.1-arm64-1f0c3f3d2b4a5968
      size_bytes: 1288490188
      files: 4711
      in_use: true
protection:
  description:
    - Summary of the changes by the playbook C(gb10.cluster.protect) on this node that were not reverted. Empty unless O(state_dir) is set.
  returned: success
  type: dict
  version_added: 0.2.0
  contains:
    path:
      description: Path of the journal with the changes.
      type: str
    measures:
      description: The measures that made changes.
      type: list
      elements: str
    changes:
      description: Number of changes, 0 without a journal. Null if it cannot be read.
      type: int
    error:
      description: Why it cannot be read. Empty otherwise.
      type: str
  sample:
    path: /var/lib/gb10/protection.json
    measures: [earlyoom, holds, journal, swap]
    changes: 12
    error: ""
services:
  description:
    - The state of each unit of this collection on this node, by its name. Each has at least C(name),
      C(installed), C(files), C(enabled), C(starting), C(active) and C(failed). The last four are null if systemd does not report them. Empty unless
      O(state_dir) is set.
  returned: success
  type: dict
  version_added: 0.2.0
  sample: {"lease": {"name": gb10-lease.service, "installed": false, "files": false, "enabled": false, "starting": false, "active": false, "failed": false}}
guard:
  description:
    - The state of the node guard on this node, as RV(gb10.cluster.node_service#module:guard). Empty unless O(state_dir) is set.
  returned: success
  type: dict
  version_added: 0.2.0
  sample:
    installed: true
    enabled: true
    starting: false
    active: true
    failed: false
    ring: /var/lib/gb10/guard/ring
    ring_bytes: 8734021
    older: false
    said: null
sweep:
  description:
    - The state of the health sweep on this node, as RV(gb10.cluster.node_service#module:sweep). Empty unless O(state_dir) is set.
  returned: success
  type: dict
  version_added: 0.2.0
  sample: {"installed": true, "active": true, "last_sweep": "2026-11-24T02:10:00Z", "problems": [], "last_alert": ""}
unit:
  description:
    - The state of the engine's systemd unit on this node, as RV(gb10.cluster.node_service#module:unit). Empty unless O(state_dir) is set.
  returned: success
  type: dict
  version_added: 0.2.0
  sample:
    name: gb10-engine-gb10.service
    installed: true
    files: true
    enabled: true
    starting: false
    active: true
    failed: false
    state: running
    reason: ""
    at: "2026-11-24T02:10:00Z"
    error: ""
companions_unit:
  description:
    - The state of the unit that starts companions at a boot, as RV(gb10.cluster.node_service#module:unit). Empty unless O(state_dir) is
      set.
  returned: success
  type: dict
  version_added: 0.2.0
  sample: {"name": gb10-companions.service, "installed": true, "enabled": true, "starting": false, "active": true, "state": running, "reason": ""}
open_directories:
  description:
    - Directories below O(state_dir) that contain files written by a cluster's containers, and that other accounts on the node may enter. A file that root in
      a container leaves there runs as the node's root for any account that can reach it. A bring-up or a teardown of that cluster closes its own. Empty
      unless O(state_dir) is set.
  returned: success
  type: list
  elements: dict
  version_added: 0.2.0
  contains:
    path:
      description: The directory.
      type: str
    mode:
      description: Its mode.
      type: str
    remedy:
      description: The command that closes it.
      type: str
  sample: []
last_proof:
  description:
    - The newest proof of the cluster recorded on this node, the head's, from M(gb10.cluster.cluster_record). Empty without one, and unless
      O(state_dir) is set.
  returned: success
  type: dict
  version_added: 0.2.0
  contains:
    run_id:
      description: The engine's run that was asked.
      type: str
    failed:
      description: Ids of the rules that it failed. Empty if it passed.
      type: list
      elements: str
    recorded_at:
      description: When, in UTC.
      type: str
    error:
      description: The problem with the file. The other keys are then missing.
      type: str
  sample: {"run_id": 20261123T140000Z-1, "failed": [], "recorded_at": "2026-11-23T14:05:00Z", "error": ""}
last_start:
  description:
    - Summary of the newest proven start of the cluster on this node, from M(gb10.cluster.cluster_record). Empty without one, and unless
      O(state_dir) is set.
  returned: success
  type: dict
  version_added: 0.2.0
  contains:
    profile:
      description: Id of the profile.
      type: str
    context:
      description: The context length in tokens.
      type: int
    took_mb:
      description: MiB that it used once the engine had answered.
      type: int
    left_mb:
      description: MiB that were available then.
      type: int
    recorded_at:
      description: When that was, in UTC.
      type: str
    error:
      description: Why the records cannot be read. The other keys are then missing.
      type: str
  sample:
    profile: nemotron_3_super_tp2
    context: 262144
    took_mb: 98000
    left_mb: 20800
    recorded_at: "2026-11-23T18:20:41Z"
    error: ""
ladder:
  description:
    - How far bench --tags ladder raised this cluster's context on this node (M(gb10.cluster.cluster_record)). Empty unless O(state_dir) is set.
  returned: success
  type: dict
  version_added: 0.2.0
  contains:
    path:
      description: Path of the record.
      type: str
    climbs:
      description: The climbs, the oldest first, without the memory curves.
      type: list
      elements: dict
    error:
      description: Why it could not be read. Empty if it was.
      type: str
  sample:
    path: /var/lib/gb10/gb10/ladder.json
    climbs: []
    error: ""
ray_error:
  description: Why the head did not answer. Empty if it did, or if there is no running container to ask from.
  returned: success
  type: str
  sample: ""
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi, find_node_container
from ansible_collections.gb10.cluster.plugins.module_utils._engine.engine_state import EnginePaths
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import private
from ansible_collections.gb10.cluster.plugins.module_utils._leftovers import caches
from ansible_collections.gb10.cluster.plugins.module_utils._module import run
from ansible_collections.gb10.cluster.plugins.module_utils._node import description, ray
from ansible_collections.gb10.cluster.plugins.module_utils._protect import protection
from ansible_collections.gb10.cluster.plugins.module_utils._records import climbs, proofs, starts
from ansible_collections.gb10.cluster.plugins.module_utils._service import table

ROLES = ("head", "worker")


def find(api: EngineApi, cluster: str) -> tuple[str, dict[str, t.Any]] | None:
    """Return (role, Docker's details) of this node's container of a cluster, preferably of one that runs."""
    containers = [(role, inspected) for role in ROLES if (inspected := find_node_container(api, cluster, role))]
    return next(iter(sorted(containers, key=lambda entry: not entry[1]["State"]["Running"])), None)


def caches_of(api: EngineApi, state_dir: str | None, cluster: str) -> list[dict[str, t.Any]]:
    """Return the directories of a cluster's caches, none when they are not requested."""
    directories = caches.directories(EnginePaths.of(state_dir, "", cluster).cache) if state_dir else []
    held = caches.mounted(api.containers({})) if directories else set()
    return [directory.view(held) for directory in directories]


def climbs_of(state_dir: str, cluster: str) -> dict[str, t.Any]:
    """Return the ladder's records of a cluster. A broken file does not prevent the other readings."""
    path = climbs.FILE.path_of(state_dir, cluster)
    try:
        return {"path": path, "climbs": [climbs.short(climb) for climb in climbs.FILE.read(path)], "error": ""}
    except ClusterError as error:
        return {"path": path, "climbs": [], "error": f"{error}. Remedy: {error.remedy}"}


#: Other records of the cluster and the node: by key of the result, the function that reads each from the state directory.
KEPT: dict[str, t.Callable[[str, str], dict[str, t.Any]]] = {
    "protection": lambda state_dir, _cluster: protection.summary(state_dir),
    "last_start": starts.last,
    "last_proof": proofs.FILE.last,
    "ladder": climbs_of,
}
#: Services that also have their own key in the result.
NAMED = {"guard": "guard", "sweep": "sweep", "unit": "engine", "companions_unit": "companions"}


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    api = EngineApi(params["docker_socket"], params["docker_timeout"])
    state_dir, cluster = params["state_dir"], params["cluster_name"]
    kept = {name: read(state_dir, cluster) if state_dir else {} for name, read in KEPT.items()}
    services = {service.key: service.look(service.unit(table.Where(state_dir, cluster))) if state_dir else {} for service in table.SERVICES}
    kept |= {"services": services, **{name: services[key] for name, key in NAMED.items()}}
    opened = private.opened(state_dir) if state_dir else []
    return {**look(api, params), "caches": caches_of(api, state_dir, cluster), "open_directories": opened, **kept}


def look(api: EngineApi, params: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the facts of the container, and Ray's answer."""
    container = find(api, params["cluster_name"])
    if container is None:
        return {**description.NOTHING, "msg": f"this node has no container of cluster {params['cluster_name']}"}
    result = description.described(*container)
    name = result["container"]["name"]
    if not result["running"]:
        return {**result, "msg": f"container {name} is {result['container']['state']}"}
    if result["executor"] != "ray":
        return {**result, "msg": f"{result['role']} of cluster {params['cluster_name']}, without Ray"}
    result.update(ray.answer(ray.ask(api, result["container"]["id"], result["address"], params["connect_timeout"])))
    if result["ray_error"]:
        return {**result, "verdict": "unknown", "msg": f"Ray's head at {result['address']} does not answer: {result['ray_error']}"}
    alive = sum(node["alive"] for node in result["nodes"])
    return {**result, "msg": f"{result['role']} of cluster {params['cluster_name']}: {alive} nodes alive, {result['gpus_total']:g} GPUs"}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "cluster_name": {"type": "str", "default": "gb10"},
            "connect_timeout": {"type": "int", "default": 5},
            "state_dir": {"type": "path"},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
