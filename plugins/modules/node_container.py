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
  - Starts, stops or removes one node's container for an engine that distributes its ranks over the nodes without Ray.
  - The container only runs a small program that waits. M(gb10.cluster.vllm_serve) starts this node's rank of the engine in it.
    When the container is stopped, that program first stops the rank gently.
  - The container is found by its labels, which are those of M(gb10.cluster.ray_cluster). A digest of the options below decides whether
    it is kept or recreated, and the diff shows every option that differs. A container that runs Ray counts as different.
  - A container with a live engine is not recreated unless O(allow_restart=true), because clients would wait for up to half an hour.
  - A container that has exited is replaced and never started again. The log of a replaced container is kept below O(log_dir), in
    C(CLUSTER/containers). The last five are kept.
  - Ready means that its program reported so. If the container exits first, the module fails at once with the last lines of its log.
requirements:
  - The Docker SDK for Python on the node (the distribution's C(python3-docker), 5.0.3 or newer).
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
      - In check mode, results of earlier tasks in the same run (the image, a secret file) may be missing.
  diff_mode:
    support: full
options:
  ports:
    description:
      - TCP ports that the engine will listen on at this node. They must be free before the container is created.
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
    - The container at the end, as M(gb10.cluster.node_container_info) returns it.
    - Empty in check mode if something would change.
  returned: success
  type: dict
  sample: {"exists": true, "running": true, "role": worker, "executor": native}
session:
  description:
    - Id of this run of the container. It changes when the container is started or recreated.
    - Empty if it does not run, V(not-started-yet) if check mode predicts a start.
  returned: success
  type: str
  sample: 5c0e0a6b1d7f4e21
changed_fields:
  description: The options in which a running container differed from the request. Entries of dictionaries are listed one by one.
  returned: always
  type: list
  elements: str
  sample: [env.NCCL_DEBUG, executor]
waiting_protections:
  description: Protections that a running container lacks because it was created before they existed. O(allow_restart=true) adds them.
  returned: always
  type: list
  elements: str
  version_added: 0.2.0
  sample: [no new privileges for its programs]
engine_live:
  description: Whether the container had a live engine, rank or other work before the module changed anything.
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
  returned: when the container ended, or was not ready in time
  type: str
  sample: "exec python3 failed: No such file or directory"
detail:
  description: Docker's error message.
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
