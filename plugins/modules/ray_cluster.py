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
  - Starts, stops or removes the container in which one node runs Ray, as the head or a worker of a cluster.
  - The container is found by its labels. A digest of the options below decides whether it is kept or recreated, and the diff
    shows every option that differs. A new version of the collection alone never recreates a container. Protections that it lacks are added
    only with O(allow_restart=true), and a warning names each.
  - A container with a live engine is not recreated unless O(allow_restart=true), because clients would wait for up to half an hour.
  - A container that has exited is replaced and never started again, because a Ray session cannot be resumed. The log of a replaced
    container is kept below O(log_dir), in C(CLUSTER/containers). The last five are kept.
  - Ready means that Ray itself answered. A head is ready when its GCS lists the head's own node as alive, a worker when the head lists the
    worker as alive under O(node_address). If the container exits first, the module fails at once with the last lines of its log.
  - Ray runs on the host network with fixed ports, without dashboard and usage statistics. With a secret file named C(ray_token) in
    O(secret_files), it requires that token from every client.
requirements:
  - The Docker SDK for Python on the node (the distribution's C(python3-docker), 5.0.3 or newer).
  - Docker Engine 20.10 or newer.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._docker
  - gb10.cluster._node
attributes:
  check_mode:
    support: full
    details:
      - In check mode, results of earlier tasks in the same run (the image, a secret file, the head that a worker joins) may be missing.
  diff_mode:
    support: full
options:
  head_address:
    description:
      - Address of the head. Required for a worker when O(state=started); a head uses O(node_address).
    type: str
  head_session:
    description:
      - For a worker, the RV(session) that this module returned for the head. If the worker joined another session, its container is recreated.
      - Without it a worker's container is kept, even if the head was replaced.
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
      - Number of GPUs that Ray assigns to this node.
    type: int
    default: 1
  object_store_memory:
    description:
      - Size of Ray's object store in bytes. Ray's own default, 30 % of the memory, is far too much where the GPU needs it.
    type: int
  ray_arguments:
    description:
      - Further arguments of C(ray start).
    type: list
    elements: str
    default: []
  replace_stale:
    description:
      - Whether to stop and remove a Ray head from another run or another owner that runs in a container and uses a port that this head needs.
      - If an engine or a rank runs in it, this also requires O(interrupt_requests=true).
    type: bool
    default: false
  ray_nodes:
    description:
      - For a worker, the head's current table of nodes (C(nodes) in RV(info)). If this table lists the worker as ready, the module does not ask
        the head again.
    type: list
    elements: dict
    default: []
seealso:
  - module: gb10.cluster.node_container_info
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

- name: Join a worker to the head
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
info:
  description:
    - The container at the end, as M(gb10.cluster.node_container_info) returns it. C(nodes) is the head's table if it was asked (O(wait=true)).
    - Empty in check mode if something would change.
  returned: success
  type: dict
  sample: {"exists": true, "running": true, "role": head, "executor": ray}
session:
  description:
    - Id of this run of the container. It changes when the container is started or recreated.
    - Empty if it does not run, V(not-started-yet) if check mode predicts a start.
  returned: success
  type: str
  sample: 5c0e0a6b1d7f4e21
address:
  description: Address of Ray's head, C(HOST:PORT). Empty unless O(state=started).
  returned: success
  type: str
  sample: 192.168.100.11:6379
changed_fields:
  description: The options in which a running container differed from the request. Entries of dictionaries are listed one by one.
  returned: always
  type: list
  elements: str
  sample: [env.NCCL_DEBUG, image_id]
waiting_protections:
  description: Protections that a running container lacks because it was created before they existed. O(allow_restart=true) adds them.
  returned: always
  type: list
  elements: str
  version_added: 0.2.0
  sample: [no new privileges for its programs]
engine_live:
  description: Whether the container had a live engine, rank or other Ray work before the module changed anything.
  returned: always
  type: bool
  sample: false
engine_requests_running:
  description: Number of running and waiting requests of that engine. Null if unknown, and on a worker.
  returned: always
  type: int
  sample: 0
exit_code:
  description: Exit code of a container that ended during the wait.
  returned: when the container ended
  type: int
  sample: 1
log:
  description: The last lines of the container's log.
  returned: when the container ended, or Ray did not answer in time
  type: str
  sample: "RuntimeError: Version mismatch: The cluster was started with Ray 2.60.0"
detail:
  description: Docker's error message.
  returned: when Docker refused something
  type: str
  sample: 'could not select device driver "nvidia" with capabilities: [[gpu]]'
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._module import run
from ansible_collections.gb10.cluster.plugins.module_utils._node import fields, ray
from ansible_collections.gb10.cluster.plugins.module_utils._node.apply import apply


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    head = params["node_address"] if params["node_role"] == "head" else params["head_address"]
    address = ray.host_port(head, params["port"]) if params["state"] == "started" and head else ""
    return {"address": address, **apply(module, ray.EXECUTOR)}


def main() -> None:
    module = AnsibleModule(
        argument_spec=fields.argument_spec(ray.EXECUTOR),
        required_if=[("state", "started", ["image", "node_address"])],
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
