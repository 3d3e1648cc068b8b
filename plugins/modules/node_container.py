#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_container
short_description: Run one node's container for an engine with its own executor
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Starts, stops or removes the container of one node for an engine that spreads its ranks over the nodes by itself, without Ray.
  - The container holds nothing but a small program that waits. M(gb10.cluster.vllm_serve) starts the engine's rank of this node in it.
    When the container is stopped, that program stops the rank first, gently.
  - The container is found by its labels, which are those of M(gb10.cluster.ray_cluster). A digest over the options below decides whether
    it stays as it is or is recreated, and the diff names every option that differs. A container that runs Ray is one that differs.
  - A container that holds a live engine is not recreated unless O(allow_restart=true), since its users would wait for up to half an hour.
  - A container that has exited is replaced, never started again. The log of a replaced container is kept below O(log_dir), in
    C(CLUSTER/containers); the last five stay.
  - Ready means that the program in it said so. When the container exits meanwhile, the module fails at once with the last lines of its log.
requirements:
  - The Docker SDK for Python on the node (C(python3-docker) of the distribution, 5.0.3 or newer).
  - Docker Engine 20.10 or newer.
  - Python 3.10 or newer in the image.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._docker
  - gb10.cluster._node
attributes:
  check_mode:
    support: full
    details:
      - What another task of the same run would have brought (the image, a secret file) may be missing in check mode.
  diff_mode:
    support: full
options:
  ports:
    description:
      - TCP ports that the engine will listen on at this node. Before a container is made, nobody else may hold one of them.
    type: list
    elements: int
    default: []
seealso:
  - module: gb10.cluster.ray_cluster
  - module: gb10.cluster.vllm_serve
"""

EXAMPLES = r"""
- name: Run the head's container
  gb10.cluster.node_container:
    node_role: head
    image: nvcr.io/nvidia/vllm:26.05.post1-py3
    node_address: 192.168.100.11
    ports: [29501]
    secret_files:
      api_key: /etc/gb10/secrets/api_key
  become: true

- name: Run a worker's container
  gb10.cluster.node_container:
    node_role: worker
    image: nvcr.io/nvidia/vllm:26.05.post1-py3
    node_address: 192.168.100.12
  become: true

- name: Remove the worker's container
  gb10.cluster.node_container:
    node_role: worker
    state: absent
  become: true
"""

RETURN = r"""
info:
  description:
    - The container as the module leaves it, as M(gb10.cluster.node_container_info) returns it.
    - Empty in check mode when something would be done.
  returned: success
  type: dict
  sample: {"exists": true, "running": true, "role": worker, "executor": native}
session:
  description:
    - Id of this run of the container. A container that is started or recreated has another one.
    - Empty when it does not run, V(not-started-yet) when check mode predicts a start.
  returned: success
  type: str
  sample: 5c0e0a6b1d7f4e21
changed_fields:
  description: The options in which a running container differed from what was asked; entries of dictionaries one by one.
  returned: always
  type: list
  elements: str
  sample: [env.NCCL_DEBUG, executor]
waiting_protections:
  description: Protections that a running container lacks since they did not exist when it was created. O(allow_restart=true) brings them.
  returned: always
  type: list
  elements: str
  version_added: 0.2.0
  sample: [no new privileges for its programs]
engine_live:
  description: Whether the container held a live engine, rank or other work when the module looked, before it did anything.
  returned: always
  type: bool
  sample: false
engine_requests_running:
  description: How many requests that engine had, running or waiting; null when that is unknown, and on a worker.
  returned: always
  type: int
  sample: 0
exit_code:
  description: Exit code of a container that ended while it was waited for.
  returned: when the container ended
  type: int
  sample: 1
log:
  description: The last lines of the container's log.
  returned: when the container ended, or was not ready in time
  type: str
  sample: "exec python3 failed: No such file or directory"
detail:
  description: What Docker said, in its own words.
  returned: when Docker refused something
  type: str
  sample: 'could not select device driver "nvidia" with capabilities: [[gpu]]'
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._module import run
from ansible_collections.gb10.cluster.plugins.module_utils._node import fields, native
from ansible_collections.gb10.cluster.plugins.module_utils._node.apply import apply


def work(module: AnsibleModule) -> dict[str, t.Any]:
    return apply(module, native.EXECUTOR)


def main() -> None:
    module = AnsibleModule(
        argument_spec=fields.argument_spec(native.EXECUTOR),
        required_if=[("state", "started", ["image", "node_address"])],
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
