# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of the modules that run a node's container. This fragment is PRIVATE to the collection."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  state:
    description:
      - V(started) means that the container runs with these options and is ready.
      - V(stopped) means that it does not run. It is kept, with its log.
      - V(absent) means that it does not exist.
      - V(stopped) and V(absent) first stop an engine in the container gently.
    type: str
    choices: [started, stopped, absent]
    default: started
  node_role:
    description:
      - Role of this node in its cluster.
    type: str
    choices: [head, worker]
    required: true
  cluster_name:
    description:
      - Name of the cluster. The container's name and labels contain it.
    type: str
    default: gb10
  image:
    description:
      - Reference of the image. It must already be on the node.
      - If the reference points to another image, the container is recreated, and the diff shows C(image_id).
      - Required when O(state=started).
    type: str
  node_address:
    description:
      - Address at which the other nodes reach this node. It must be one of the node's own.
      - Required when O(state=started).
    type: str
  env:
    description:
      - Environment of the container. Never put secrets here, because they would be visible in the container's configuration.
      - Values must be strings, numbers or booleans. V(true) becomes V(1) and V(false) becomes V(0). Quote a value that the program expects in another form.
    type: dict
    default: {}
  secret_files:
    description:
      - Secrets, each a name with the path of a file on the node that only its owner can read. Each is mounted at C(/run/secrets/gb10/NAME).
    type: dict
    default: {}
  devices:
    description:
      - Device files, or directories of them, to pass to the container.
    type: list
    elements: str
    default: [/dev/infiniband]
  gpus:
    description:
      - GPUs to pass to the container through Docker's NVIDIA runtime. V(all), V(none), or a list of indexes or UUIDs.
    type: raw
    default: all
  capabilities:
    description:
      - Capabilities to add to those that remain after O(drop_capabilities).
    type: list
    elements: str
    default: [IPC_LOCK]
  drop_capabilities:
    description:
      - Capabilities to remove from Docker's default, V(ALL) for all of them.
      - In a simulated cluster of two nodes Ray and vLLM needed none.
      - A container that was created before this option existed is not recreated for it unless O(allow_restart=true). A warning reports this.
    type: list
    elements: str
    default: [ALL]
    version_added: 0.2.0
  no_new_privileges:
    description:
      - Whether to prevent programs in the container from gaining more privileges, as through a setuid program.
      - A container that was created before this option existed is not recreated for it unless O(allow_restart=true). A warning reports this.
    type: bool
    default: true
    version_added: 0.2.0
  ulimits:
    description:
      - Limits as name and number, for both soft and hard limit. V(-1) means unlimited.
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
      - Directories or files on the node to mount into the container.
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
  hf_home:
    description:
      - Hub cache on the node. Only its C(hub) is mounted, read-only, at C(/root/.cache/huggingface/hub). Tokens next to it are not mounted.
      - A container with the whole cache in O(mounts), as older versions of this collection's roles created it, is not recreated for this unless
        O(allow_restart=true). A warning reports this.
    type: path
    version_added: 0.2.0
  state_dir:
    description:
      - Directory on the node for the state of the cluster's engine and, in C(cache), its compiled kernels. Each image has its own directory there,
        named by its engine, its architecture, and a digest of its base and recipe.
    type: path
    default: /var/lib/gb10
  log_dir:
    description:
      - Directory on the node for logs.
    type: path
    default: /var/log/gb10
  allow_restart:
    description:
      - Whether a container with a live engine may be recreated. The engine is first stopped gently.
    type: bool
    default: false
  interrupt_requests:
    description:
      - Whether a container may be recreated (with O(allow_restart=true)), stopped or removed even if an engine in it has running or waiting requests,
        or does not report how many, or if other work was started in it (C(docker exec)).
      - With V(false) that is refused. Unknown work counts as work, and so does a launcher in the container that does not answer.
    type: bool
    default: false
    version_added: 0.2.0
  unready_runs:
    description:
      - Ids of the engine's runs that were started in this play and returned no token yet. Stopping them cannot lose a request, so they need no consent.
    type: list
    elements: str
    default: []
    version_added: 0.2.0
  lacks_rank:
    description:
      - Whether the engine is known to lack a rank, or its main process on the head. Its remaining processes cannot answer and need no consent.
    type: bool
    default: false
    version_added: 0.2.0
  lock_id:
    description:
      - Id of the cluster lock that this run acquired (RV(gb10.cluster.cluster_lock#module:lock)). Before it starts, stops or removes anything, the module
        verifies that the lock on this node still has this id. With an empty value nothing is checked.
    type: str
    default: ""
    version_added: 0.2.0
  stop_timeout:
    description:
      - Seconds for the engine, and then the container, to end before they are killed.
      - A killed engine is reported to leak memory on a GB10, so keep it generous.
    type: int
    default: 120
  connect_timeout:
    description:
      - Seconds to wait for one answer from another node or from the engine's metrics.
    type: int
    default: 5
  wait:
    description:
      - Whether to wait until the container is ready.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds to wait.
    type: int
    default: 180
  wait_sleep:
    description:
      - Seconds between two checks.
    type: int
    default: 2
"""
