#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rank_info
short_description: Read the actual environment and limits of the live ranks on a node
version_added: 0.1.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Finds the processes of an engine's ranks in a cluster's container on this node, and reads their current settings.
  - The environment is read from the process's memory, where the C library keeps it. C(/proc/PID/environ) would only show how the process
    was started, while Ray and the engine set most variables of a rank later.
  - It also reads the effective capability C(IPC_LOCK), the limit of locked memory, and the device nodes that the container sees.
  - For secrets it reports whether they exist, and with O(env_compare_key) whether two ranks have the same one, never their value.
  - It also counts the bytes that this node has sent, by device and interface, so that two calls show which path an engine's traffic took.
  - Reading another process's memory requires root. Nothing is stopped or changed.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
  - gb10.cluster._docker
  - gb10.cluster._look
options:
  cluster_name:
    description:
      - The cluster whose container is read.
    type: str
    default: gb10
  node_role:
    description:
      - The role of this node. Without it, the role for which this node has a container.
    type: str
    choices: [head, worker]
  env_names:
    description:
      - The variables whose values to return.
    type: list
    elements: str
    default: []
  env_absent_names:
    description:
      - The variables, such as secrets, for which only their existence is returned.
      - A name that is also in O(env_names) is treated as one of these.
    type: list
    elements: str
    default: []
  env_compare_key:
    description:
      - Return the whole environment of each rank, as RV(ranks[].environ). Secrets are replaced by a digest made with this key,
        so that ranks on several nodes can be compared if all nodes were given the same random key.
    type: str
    version_added: 0.2.0
  devices:
    description:
      - Device nodes, or directories of them, to search for inside the container.
    type: list
    elements: str
    default: [/dev/infiniband]
  state_dir:
    description:
      - Directory on the node for the state of the collection's clusters.
    type: path
    default: /var/lib/gb10
    version_added: 0.2.0
  log_dir:
    description:
      - Directory on the node for the logs of the collection's clusters.
    type: path
    default: /var/log/gb10
    version_added: 0.2.0
"""

EXAMPLES = r"""
- name: Read the environment of the ranks on this node
  gb10.cluster.rank_info:
    env_names: [NCCL_NET, NCCL_IB_HCA, VLLM_HOST_IP]
    env_absent_names: [VLLM_API_KEY, HF_TOKEN]
  become: true
  register: ranks
"""

RETURN = r"""
verdict:
  description:
    - V(pass) if there are ranks and all were read live, V(unknown) if one's memory could not be read, V(block) if there is none.
  returned: always
  type: str
  sample: pass
exists:
  description: Whether this node has a container of the cluster.
  returned: success
  type: bool
  sample: true
container:
  description:
    - The container. Its id is null if there is none.
    - The current settings are read from its process 1. They are missing unless it runs.
    - C(entrypoint_bypassed) shows whether its image has an entrypoint that sets something up, and the container was created without it.
    - C(libcuda) is the C(libcuda) in a container of its image when M(gb10.cluster.image_info) verified that the GPU is reached. Null
      if unknown.
    - C(hub_tokens) are the files with hub tokens that it can see. They are not read. C(hub_alone) shows that it was created with only the hub's models,
      and not with the whole cache.
  returned: success
  type: dict
  sample:
    id: 4b1d1b8e52b0f1c1
    name: gb10-gb10-head
    role: head
    running: true
    pid: 4100
    capabilities: [CHOWN, IPC_LOCK]
    memlock_bytes: -1
    devices: [/dev/infiniband]
    entrypoint_bypassed: false
    libcuda: [/usr/local/cuda/compat/lib.real/libcuda.so.595.45.04]
    hub_tokens: []
    hub_alone: true
ranks:
  description: The ranks on this node, by pid.
  returned: success
  type: list
  elements: dict
  contains:
    pid:
      description: Its pid on this node.
      type: int
      sample: 4711
    title:
      description: Its title or command line.
      type: str
      sample: ray::RayWorkerProc.run
    source:
      description: C(live) if the environment was read from memory, C(exec) if it is that of the start.
      type: str
      sample: live
    env:
      description: The values of O(env_names). Null for a variable that is not set.
      type: dict
      sample: {"NCCL_NET": IB, "VLLM_HOST_IP": 192.168.100.10}
    environ:
      description:
        - Its whole environment. Null without O(env_compare_key). A value that is or contains a secret is C(<secret DIGEST>).
      type: dict
      version_added: 0.2.0
      sample: {"HOME": /root, "NCCL_NET": IB, "WANDB_API_KEY": <secret 5f0c9a31b2e47d68>}
    present:
      description: Those of O(env_absent_names) that exist.
      type: list
      elements: str
      sample: []
    capabilities:
      description: The effective capabilities.
      type: list
      elements: str
      sample: [CHOWN, IPC_LOCK]
    memlock_bytes:
      description: The limit of locked memory in bytes, V(-1) for none.
      type: int
      sample: -1
    devices:
      description: Those of O(devices) that it sees.
      type: list
      elements: str
      sample: [/dev/infiniband]
    halted:
      description: Whether a signal or a debugger stopped it. It then exists and does nothing.
      type: bool
      version_added: 0.2.0
      sample: false
    libcuda:
      description: The driver's CUDA libraries in its memory, as paths in the container. Empty without a GPU.
      type: list
      elements: str
      sample: [/usr/local/cuda/compat/lib.real/libcuda.so.595.45.04]
traffic:
  description:
    - The bytes that this node had sent when the module began, and when it ended. The bytes sent in between are not the engine's.
  returned: success
  type: list
  elements: dict
  version_added: 0.2.0
  contains:
    at:
      description: When it was read, in seconds of a monotonic clock.
      type: float
      sample: 5310.25
    devices:
      description:
        - The RDMA devices by name, each with the interfaces on top of it (C(netdevs)) and the bytes that it has C(sent) by RDMA, which the kernel counts
          four at a time. Null if the device does not count them.
      type: dict
      sample: {"rocep1s0f0": {"netdevs": [enp1s0f0np0], "sent": 1536870912}}
    interfaces:
      description: The interfaces by name, each with its C(addresses) and the bytes that it has C(sent). Bytes sent by RDMA are not included.
      type: dict
      sample: {"enp1s0f0np0": {"addresses": [192.168.100.10], "sent": 40218}}
nccl_nets:
  description:
    - The networks that NCCL reports in this node's log of the engine, each with the line. Empty if it reports none, as without C(NCCL_DEBUG=INFO).
  returned: success
  type: dict
  version_added: 0.2.0
  sample: {"IB": "spark-a:72112:72112 [0] NCCL INFO NET/IB : Using [0]rocep1s0f1:1/RoCE [1]roceP2p1s0f1:1/RoCE [RO]; OOB enp1s0f1np1:169.254.207.1<0>"}
"""

import functools
import hashlib
import hmac
import os
import re
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import LABEL_ENTRYPOINT, LABEL_ROLE, EngineApi, find_node_container
from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_log, engine_state
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import gpu_access
from ansible_collections.gb10.cluster.plugins.module_utils._host.devices import has_device
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_contract
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.notes import read_side
from ansible_collections.gb10.cluster.plugins.module_utils._module import run
from ansible_collections.gb10.cluster.plugins.module_utils._network import traffic
from ansible_collections.gb10.cluster.plugins.module_utils._node.container import created_with
from ansible_collections.gb10.cluster.plugins.module_utils._node.fields import HF_HOME_TARGET
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify, process_table
from ansible_collections.gb10.cluster.plugins.module_utils._process.live_env import environment
from ansible_collections.gb10.cluster.plugins.module_utils._protect.limits import parse_memlock
from ansible_collections.gb10.cluster.plugins.module_utils._redact import HIDDEN_START, shown_value
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME

#: The kernel's capabilities by their bit.
CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT",
    "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE",
    "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ",
    "PERFMON", "BPF", "CHECKPOINT_RESTORE",
)  # fmt: skip

#: Characters of a title that are returned; a command line can be a whole program.
TITLE_LIMIT = 200

_CAPABILITIES = re.compile(r"^CapEff:\s*(?P<bits>[0-9a-f]+)$", re.MULTILINE)

#: Where the hub's client keeps tokens, in the directory that HF_HOME names.
TOKEN_FILES = ("token", "stored_tokens")

#: The values for a container that does not run or does not exist.
NOTHING: dict[str, t.Any] = {"capabilities": [], "memlock_bytes": 0, "devices": [], "hub_tokens": []}

#: Maximum bytes to read of a process's memory map. That of an engine with a thousand libraries has about one million.
MAPS_LIMIT = 16 * 1024 * 1024

#: Characters of the digest of a secret.
DIGEST_LENGTH = 16

#: Bytes of an engine's log that are searched for NCCL's lines, which it writes when the ranks connect.
NCCL_LIMIT = 1024 * 1024
#: ``Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0``, and NCCL's line before any channel: ``NET/IB : Using [0]rocep1s0f1:1/RoCE ...``.
_NCCL_NETS = (re.compile(r"NCCL INFO .*\bvia NET/(?P<net>\w+)"), re.compile(r"NCCL INFO NET/(?P<net>\w+) : Using\b"))

_LIBCUDA = re.compile(rb"^\S+ r\S+ \S+ \S+ [1-9]\d* +(?P<path>/.*/libcuda\.so[.0-9]*)$", re.MULTILINE)


def capabilities(status: str) -> list[str]:
    """Return the effective capabilities in a ``/proc/PID/status`` text, in the kernel's order."""
    match = _CAPABILITIES.search(status)
    if not match:
        raise UnknownState("the kernel does not tell a process's capabilities", raw=status[:2000])
    bits = int(match["bits"], 16)
    return [name for bit, name in enumerate(CAPABILITIES) if bits >> bit & 1]


def hub_tokens(pid: int, proc_root: str) -> list[str]:
    """Return the files with the hub's tokens that a process can see in its cache. Raises :class:`UnknownState` when that cannot be read."""
    home = HF_HOME_TARGET.lstrip("/")
    try:
        with untrusted.directory(os.path.join(proc_root, str(pid), "root"), home) as folder:
            return [os.path.join(HF_HOME_TARGET, name) for name in TOKEN_FILES if name in os.listdir(folder)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UnknownState(f"{HF_HOME_TARGET} of process {pid} cannot be looked at: {error.strerror}", remedy=BECOME, raw=str(error)) from error


def effective(pid: int, devices: t.Sequence[str], proc_root: str) -> dict[str, t.Any]:
    """Return a process's effective capabilities, memlock limit and visible devices. Raises :class:`UnknownState` when they cannot be read."""
    base = os.path.join(proc_root, str(pid))
    try:
        with open(os.path.join(base, "status"), encoding="utf-8", errors="replace") as stream:
            allowed = capabilities(stream.read())
        with open(os.path.join(base, "limits"), encoding="ascii", errors="replace") as stream:
            limit = parse_memlock(stream.read())
        seen = [path for path in devices if has_device(path, os.path.join(base, "root"))]
    except OSError as error:
        raise UnknownState(
            f"process {pid} cannot be looked at: {error.strerror} ({error.filename})", remedy="Run the task with become: true.", raw=str(error)
        ) from error
    return {"capabilities": allowed, "memlock_bytes": limit, "devices": seen}


def libcuda(pid: int, proc_root: str) -> list[str]:
    """Return the driver's CUDA libraries that a process has mapped. Raises :class:`UnknownState` when its map cannot be read."""
    try:
        maps = process_table.read_bytes(os.path.join(proc_root, str(pid), "maps"), MAPS_LIMIT)
    except OSError as error:
        raise UnknownState(f"the memory map of process {pid} cannot be read: {error.strerror}", remedy="Run the task with become: true.") from error
    return sorted({match["path"].decode(errors="replace") for match in _LIBCUDA.finditer(maps)})


def entrypoint_bypassed(image: dict[str, t.Any] | None, labels: t.Mapping[str, str]) -> bool:
    """Return whether an image has an entrypoint that may set something up, and a container with these labels was created without it."""
    own = image_contract.own_entrypoint(image) if image else []
    return bool(own) and not image_contract.is_program(own) and LABEL_ENTRYPOINT not in labels


def select(environ: t.Mapping[str, str], names: t.Iterable[str], absent_names: t.Collection[str]) -> dict[str, t.Any]:
    """Return only the values of ``names`` and the presence of ``absent_names`` from an environment."""
    return {
        "env": {name: environ.get(name) for name in names if name not in absent_names},
        "present": sorted(name for name in set(absent_names) if name in environ),
    }


def comparable(environ: t.Mapping[str, str], key: str) -> dict[str, str]:
    """Return an environment with digests instead of secrets. Equal secrets have the same digest under the same ``key``, and it does not reveal them."""
    variables = {}
    for name, value in sorted(environ.items()):
        shown = shown_value(name, value)
        digest = hmac.new(key.encode(), value.encode(errors="replace"), hashlib.sha256).hexdigest()[:DIGEST_LENGTH]
        variables[name] = shown if shown == value else f"{HIDDEN_START} {digest}>"
    return variables


def nccl_nets(lines: t.Sequence[str]) -> dict[str, str]:
    """Return the networks in NCCL's lines, each with the first line about it: those of its channels, or otherwise those that it found."""
    for pattern in _NCCL_NETS:
        nets: dict[str, str] = {}
        for line in lines:
            match = pattern.search(line)
            if match:
                nets.setdefault(match["net"], line[match.start():][:TITLE_LIMIT])
        if nets:
            return nets
    return {}


def logged_nets(params: dict[str, t.Any]) -> dict[str, str]:
    """Return the networks in NCCL's lines in the log of the last engine on this node, none when the log cannot be read."""
    paths = engine_state.EnginePaths.of(params["state_dir"], params["log_dir"], params["cluster_name"])
    run = read_side(os.path.join(paths.run, "run.json"))
    if not run.get("run_id"):
        return {}
    try:
        with engine_log.open_log(paths.log_of(run["run_id"])) as log:
            return nccl_nets(engine_log.plain_lines(log.read(NCCL_LIMIT).decode(errors="replace")))
    except (OSError, ClusterError):
        return {}


def ranks_among(processes: t.Mapping[int, process_table.Process]) -> dict[int, process_table.Process]:
    """Return the processes that are ranks, with any executor, sorted by pid."""
    parts = classify.parts(processes)
    return {pid: parts[pid].process for pid in sorted(parts) if parts[pid].kind == classify.RANK}


def find_container(api: EngineApi, cluster: str, role: str | None) -> dict[str, t.Any] | None:
    """Return this node's container of a cluster. Raises :class:`ClusterError` when there are two and ``role`` is not given."""
    roles = [role] if role else ["head", "worker"]
    containers = [container for container in (find_node_container(api, cluster, name) for name in roles) if container]
    if len(containers) > 1:
        raise ClusterError(f"this node has a head's and a worker's container of cluster {cluster}", remedy="Say which one is meant: node_role")
    return containers[0] if containers else None


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
    proc_root = params["roots"]["proc_root"]
    read_traffic = functools.partial(traffic.sample, params["roots"]["sysfs_root"], proc_root)
    began, key = read_traffic(), params["env_compare_key"]
    api = EngineApi(params["docker_socket"], params["docker_timeout"])
    container = find_container(api, params["cluster_name"], params["node_role"])
    if container is None:
        nowhere = {"id": None, "name": None, "role": None, "running": False, "pid": None, "entrypoint_bypassed": False, "libcuda": None, **NOTHING}
        verdict = verdict_of([], f"no container of cluster {params['cluster_name']} is here; this node")
        return {**verdict, "exists": False, "container": nowhere, "ranks": [], "traffic": [began, read_traffic()], "nccl_nets": {}}

    running, image = container["State"]["Running"], api.image(container["Image"])
    proof = gpu_access.read_proof(gpu_access.proof_path(params["state_dir"], image)) if image else None
    about = {
        "id": container["Id"],
        "name": container["Name"].lstrip("/"),
        "role": container["Config"]["Labels"][LABEL_ROLE],
        "running": running,
        "pid": container["State"]["Pid"] if running else None,
        "entrypoint_bypassed": entrypoint_bypassed(image, container["Config"]["Labels"]),
        "libcuda": proof and proof["libcuda"],
        "hub_alone": bool((created_with(container["Config"]["Labels"]) or {}).get("hf_home")),
        **(effective(container["State"]["Pid"], params["devices"], proc_root) if running else NOTHING),
        **({"hub_tokens": hub_tokens(container["State"]["Pid"], proc_root)} if running else {}),
    }
    seen = process_table.require_all_seen(process_table.scan(proc_root, api.top(container["Id"])), "a rank")
    ranks = []
    for pid, process in ranks_among(seen.processes).items():
        environ, source = environment(pid, proc_root)
        ranks.append(
            {
                "pid": pid,
                "title": process.shown_command[:TITLE_LIMIT],
                "source": source,
                **select(environ, params["env_names"], params["env_absent_names"]),
                "environ": comparable(environ, key) if key else None,
                **effective(pid, params["devices"], proc_root),
                "halted": process.condition == "stopped",
                "libcuda": libcuda(pid, proc_root),
            }
        )
    return {
        **verdict_of(ranks, f"container {about['name']}"),
        "exists": True,
        "container": about,
        "ranks": ranks,
        "nccl_nets": logged_nets(params),
        "traffic": [began, read_traffic()],
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "cluster_name": {"type": "str", "default": "gb10"},
            "node_role": {"type": "str", "choices": ["head", "worker"]},
            "env_names": {"type": "list", "elements": "str", "default": []},
            "env_absent_names": {"type": "list", "elements": "str", "default": []},
            "env_compare_key": {"type": "str", "no_log": True},
            "devices": {"type": "list", "elements": "str", "default": ["/dev/infiniband"]},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "log_dir": {"type": "path", "default": "/var/log/gb10"},
            "roots": ROOTS,
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
