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
      - V(started) means that the container runs as described and is ready.
      - V(stopped) means that it does not run. It stays, with its log.
      - V(absent) means that there is none.
      - An engine in the container is stopped first, gently, by V(stopped) and V(absent).
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
      - Reference of the image. It must be on the node already.
      - When another image takes the reference over, the container is recreated; the diff then names C(image_id).
      - Required when O(state=started).
    type: str
  node_address:
    description:
      - Address of this node under which the other nodes reach it. It must be one of the node's own.
      - Required when O(state=started).
    type: str
  env:
    description:
      - Environment of the container. Never put secrets here, they would show in the container's configuration.
      - Values must be strings, numbers or booleans. V(true) becomes V(1) and V(false) becomes V(0); quote what the program expects in other words.
    type: dict
    default: {}
  secret_files:
    description:
      - Secrets as name and path of a file on the node that only its owner can read. Each is mounted at C(/run/secrets/gb10/NAME).
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
  capabilities:
    description:
      - Capabilities that the container gets beyond those that O(drop_capabilities) leaves it.
    type: list
    elements: str
    default: [IPC_LOCK]
  drop_capabilities:
    description:
      - Capabilities that are taken from Docker's default, V(ALL) for all of them.
      - In a simulated cluster of two nodes Ray and vLLM needed none.
      - A container that was created before this option existed is not recreated for it unless O(allow_restart=true); a warning says that it waits.
    type: list
    elements: str
    default: [ALL]
    version_added: 0.2.0
  no_new_privileges:
    description:
      - Whether programs in the container are kept from getting more privileges, as by a setuid program.
      - A container that was created before this option existed is not recreated for it unless O(allow_restart=true); a warning says that it waits.
    type: bool
    default: true
    version_added: 0.2.0
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
  hf_home:
    description:
      - Hub cache on the node. Its C(hub) alone is mounted, read-only, at C(/root/.cache/huggingface/hub). Tokens beside it stay outside.
      - A container that has the whole cache in O(mounts), as older versions of this collection's roles gave it, is not recreated for this unless
        O(allow_restart=true); a warning says that it waits.
    type: path
    version_added: 0.2.0
  state_dir:
    description:
      - Directory of the node below which the state of the cluster's engine lies, and in C(cache) what it compiles. There each image has a directory of its own,
        named by its engine, its architecture, and a digest of its base and recipe.
    type: path
    default: /var/lib/gb10
  log_dir:
    description:
      - Directory of the node below which logs lie.
    type: path
    default: /var/log/gb10
  allow_restart:
    description:
      - Whether a container with a live engine may be recreated. The engine is stopped first, gently.
    type: bool
    default: false
  interrupt_requests:
    description:
      - Whether a container may be recreated (with O(allow_restart=true)), stopped or removed although an engine in it has requests, running or waiting,
        or does not say how many, or although somebody started other work in it (C(docker exec)).
      - With V(false) that is refused. What is unknown counts as work, and so does a launcher in the container that gives no answer.
    type: bool
    default: false
    version_added: 0.2.0
  unready_runs:
    description:
      - Ids of the engine's runs that were started in this play and gave no token yet. Nobody can lose a request by their end, so they need no consent.
    type: list
    elements: str
    default: []
    version_added: 0.2.0
  lacks_rank:
    description:
      - Whether the engine is known to lack a rank, or the main process on the head, so that what is left of it answers nobody and needs no consent.
    type: bool
    default: false
    version_added: 0.2.0
  lock_id:
    description:
      - Id of the cluster's lock that this run took (RV(gb10.cluster.cluster_lock#module:lock)). Before it starts, stops or removes anything, the module makes
        sure that the lock on this node still is that one. With an empty one nothing is checked.
    type: str
    default: ""
    version_added: 0.2.0
  stop_timeout:
    description:
      - Seconds that the engine, and then the container, get to end before they are killed.
      - A killed engine is reported to leak memory on a GB10, so leave it generous.
    type: int
    default: 120
  connect_timeout:
    description:
      - Seconds that another node, and the engine's metrics, get for one answer.
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
      - Seconds between two looks.
    type: int
    default: 2
"""
