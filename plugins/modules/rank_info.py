#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rank_info
short_description: Read what the live ranks on a node really got
version_added: 0.1.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Finds the processes of an engine's ranks in a cluster's container on this node, and reads what holds for them now.
  - The environment comes out of the process's memory, where the C library keeps it. C(/proc/PID/environ) would only tell how the process
    was started, while Ray and the engine set most variables of a rank later.
  - Besides it reads the effective capability C(IPC_LOCK), the limit of locked memory, and the device nodes that the container sees.
  - Returns values of the asked variables alone. For secrets it tells whether they are there, never their value.
  - Reading another process's memory takes root. Nothing is stopped and nothing is changed.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
  - gb10.cluster._docker
options:
  cluster_name:
    description:
      - The cluster whose container to look into.
    type: str
    default: gb10
  node_role:
    description:
      - The role of this node. Without it, whichever of the two this node has a container for.
    type: str
    choices: [head, worker]
  rank_patterns:
    description:
      - Regular expressions for the beginning of the title or command line of a process that is a rank.
      - The first default is a rank under Ray, the second one of the engine's own executor.
    type: list
    elements: str
    default: ["ray::RayWorker", "VLLM::Worker"]
  env_names:
    description:
      - The variables whose values to return.
    type: list
    elements: str
    default: []
  env_absent_names:
    description:
      - The variables, such as secrets, of which to tell only whether they are there.
      - A name that is in O(env_names), too, is treated as one of these.
    type: list
    elements: str
    default: []
  devices:
    description:
      - Device nodes, or directories of them, to look for inside the container.
    type: list
    elements: str
    default: [/dev/infiniband]
  proc_root:
    description:
      - Where the proc file system of this node is mounted.
    type: path
    default: /proc
"""

EXAMPLES = r"""
- name: Read what the ranks on this node got
  gb10.cluster.rank_info:
    env_names: [NCCL_NET, NCCL_IB_HCA, VLLM_HOST_IP]
    env_absent_names: [VLLM_API_KEY, HF_TOKEN]
  become: true
  register: ranks
"""

RETURN = r"""
verdict:
  description:
    - V(pass) when there are ranks and all were read live, V(unknown) when the memory of one did not tell, V(block) when there is none.
  returned: always
  type: str
  sample: pass
exists:
  description: Whether this node has a container of the cluster.
  returned: success
  type: bool
  sample: true
container:
  description: The container, null when there is none. The facts about its process 1 are null unless it runs.
  returned: success
  type: dict
  sample:
    id: 4b1d1b8e52b0f1c1
    name: gb10-gb10-head
    role: head
    running: true
    pid: 4100
    cap_ipc_lock: true
    memlock_soft: unlimited
    memlock_hard: unlimited
    devices: [{"path": /dev/infiniband, "exists": true, "entries": [uverbs0]}]
ranks:
  description: The ranks on this node, by process number.
  returned: success
  type: list
  elements: dict
  contains:
    pid:
      description: Its number on this node.
      type: int
      sample: 4711
    title:
      description: Its title or command line.
      type: str
      sample: ray::RayWorkerProc.run
    source:
      description: C(live) when the environment was read from memory, C(exec) when it is that of the start.
      type: str
      sample: live
    env:
      description: The values of O(env_names), null for a variable that is not set.
      type: dict
      sample: {"NCCL_NET": IB, "VLLM_HOST_IP": 192.168.100.10}
    present:
      description: Whether the variables of O(env_absent_names) are there.
      type: dict
      sample: {"VLLM_API_KEY": false}
    cap_ipc_lock:
      description: Whether it effectively has the capability to lock memory.
      type: bool
      sample: true
    memlock_soft:
      description: The limit of locked memory in bytes, or C(unlimited).
      type: raw
      sample: unlimited
    memlock_hard:
      description: The limit up to which it may raise the other one.
      type: raw
      sample: unlimited
    devices:
      description: The device nodes that it sees, for each of O(devices).
      type: list
      elements: dict
      sample: [{"path": /dev/infiniband, "exists": true, "entries": [uverbs0]}]
"""

import os
import re
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._devices import device
from ansible_collections.gb10.cluster.plugins.module_utils._docker import LABEL_ROLE, EngineApi, find_node_container
from ansible_collections.gb10.cluster.plugins.module_utils._environ import environment
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._listeners import command_line
from ansible_collections.gb10.cluster.plugins.module_utils._module import run

CAP_IPC_LOCK = 14

_CAPABILITIES = re.compile(r"^CapEff:\s*(?P<bits>[0-9a-f]+)$", re.MULTILINE)
_MEMLOCK = re.compile(r"^Max locked memory\s+(?P<soft>unlimited|\d+)\s+(?P<hard>unlimited|\d+)\s", re.MULTILINE)


def has_ipc_lock(status: str) -> bool:
    """Tell from a ``/proc/PID/status`` text whether the process may lock memory."""
    match = _CAPABILITIES.search(status)
    if not match:
        raise UnknownState("the kernel does not tell a process's capabilities", raw=status[:2000])
    return bool(int(match["bits"], 16) >> CAP_IPC_LOCK & 1)


def memlock(limits: str) -> tuple[int | str, int | str]:
    """Return the soft and hard limit of locked memory of a ``/proc/PID/limits`` text: bytes, or ``unlimited``."""
    match = _MEMLOCK.search(limits)
    if not match:
        raise UnknownState("the kernel does not tell a process's limit of locked memory", raw=limits[:2000])
    soft, hard = (value if value == "unlimited" else int(value) for value in match.group("soft", "hard"))
    return soft, hard


def effective(pid: int, devices: t.Sequence[str], proc_root: str) -> dict[str, t.Any]:
    """Return what a process effectively may do and see. Raises :class:`UnknownState` when that cannot be read."""
    base = os.path.join(proc_root, str(pid))
    try:
        with open(os.path.join(base, "status"), encoding="utf-8", errors="replace") as stream:
            may_lock = has_ipc_lock(stream.read())
        with open(os.path.join(base, "limits"), encoding="ascii", errors="replace") as stream:
            soft, hard = memlock(stream.read())
        seen = [device(path, os.path.join(base, "root")) for path in devices]
    except OSError as error:
        raise UnknownState(
            f"process {pid} cannot be looked at: {error.strerror} ({error.filename})", remedy="Run the task with become: true.", raw=str(error)
        ) from error
    return {"cap_ipc_lock": may_lock, "memlock_soft": soft, "memlock_hard": hard, "devices": seen}


def select(environ: t.Mapping[str, str], names: t.Iterable[str], absent_names: t.Collection[str]) -> dict[str, dict[str, t.Any]]:
    """Return the values of ``names`` and the presence of ``absent_names``, and nothing else of an environment."""
    return {
        "env": {name: environ.get(name) for name in names if name not in absent_names},
        "present": {name: name in environ for name in absent_names},
    }


def rank_pids(titles: t.Mapping[int, str], patterns: t.Iterable[str]) -> list[int]:
    """Return the processes whose title begins like one of ``patterns``, sorted."""
    compiled = [re.compile(pattern) for pattern in patterns]
    return sorted(pid for pid, title in titles.items() if any(pattern.match(title) for pattern in compiled))


def find_container(api: EngineApi, cluster: str, role: str | None) -> dict[str, t.Any] | None:
    """Return this node's container of a cluster. Raises :class:`ClusterError` when it is not clear which one is meant."""
    roles = [role] if role else ["head", "worker"]
    found = [container for container in (find_node_container(api, cluster, name) for name in roles) if container]
    if len(found) > 1:
        raise ClusterError(f"this node has a head's and a worker's container of cluster {cluster}", remedy="Say which one is meant: node_role")
    return found[0] if found else None


def verdict_of(ranks: t.Sequence[dict[str, t.Any]], where: str) -> dict[str, str]:
    """Return verdict, message and remedy for the ranks that were found."""
    if not ranks:
        return {"verdict": "block", "msg": f"{where} has no rank", "remedy": "Start the engine: run the play with --tags serve"}
    blind = [str(rank["pid"]) for rank in ranks if rank["source"] != "live"]
    if blind:
        message = f"the memory of process {', '.join(blind)} does not tell its environment; what is shown is that of its start"
        return {"verdict": "unknown", "msg": message, "remedy": "Do not take what is shown as a proof."}
    return {"verdict": "pass", "msg": f"{where} has {len(ranks)} rank(s)", "remedy": ""}


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    proc_root = params["proc_root"]
    api = EngineApi(params["docker_socket"], params["docker_timeout"])
    container = find_container(api, params["cluster_name"], params["node_role"])
    if container is None:
        return {**verdict_of([], f"no container of cluster {params['cluster_name']} is here; this node"), "exists": False, "container": None, "ranks": []}

    running = container["State"]["Running"]
    about = {
        "id": container["Id"],
        "name": container["Name"].lstrip("/"),
        "role": container["Config"]["Labels"][LABEL_ROLE],
        "running": running,
        "pid": container["State"]["Pid"] if running else None,
        **(
            effective(container["State"]["Pid"], params["devices"], proc_root)
            if running
            else {"cap_ipc_lock": None, "memlock_soft": None, "memlock_hard": None, "devices": None}
        ),
    }
    titles = {pid: command_line(pid, proc_root) for pid in api.top(container["Id"])}
    ranks = []
    for pid in rank_pids(titles, params["rank_patterns"]):
        environ, source = environment(pid, proc_root)
        ranks.append(
            {
                "pid": pid,
                "title": titles[pid],
                "source": source,
                **select(environ, params["env_names"], params["env_absent_names"]),
                **effective(pid, params["devices"], proc_root),
            }
        )
    return {**verdict_of(ranks, f"container {about['name']}"), "exists": True, "container": about, "ranks": ranks}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "cluster_name": {"type": "str", "default": "gb10"},
            "node_role": {"type": "str", "choices": ["head", "worker"]},
            "rank_patterns": {"type": "list", "elements": "str", "default": ["ray::RayWorker", "VLLM::Worker"]},
            "env_names": {"type": "list", "elements": "str", "default": []},
            "env_absent_names": {"type": "list", "elements": "str", "default": []},
            "devices": {"type": "list", "elements": "str", "default": ["/dev/infiniband"]},
            "proc_root": {"type": "path", "default": "/proc"},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
