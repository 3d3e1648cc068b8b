#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_info
short_description: Read what a cluster needs to know about a node
version_added: 0.1.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Reads memory, kernel, Docker engine, our containers, network interfaces with their addresses, devices, listeners, disk space, RDMA devices
    and GPUs of a node, from the thing itself.
  - It also runs unprivileged. What it could not see is in RV(errors), each section for itself. A list that is empty because of that
    must not pass for "nothing there".
  - It needs Python's standard library alone. Neither iproute2 nor the Docker SDK has to be installed.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
  - gb10.cluster._docker
options:
  devices:
    description:
      - Device nodes, or directories of them, to look for.
    type: list
    elements: path
    default: [/dev/infiniband]
  ports:
    description:
      - TCP ports whose listeners to look for.
    type: list
    elements: int
    default: []
  paths:
    description:
      - Paths to tell the free disk space of. For one that does not exist yet, its nearest existing parent counts.
    type: list
    elements: path
    default: []
  nvidia_smi:
    description:
      - The NVIDIA driver's tool, as a path or as a name to be found on C(PATH).
    type: str
    default: nvidia-smi
  tool_timeout:
    description:
      - Seconds to wait for one answer of O(nvidia_smi).
    type: int
    default: 30
  proc_root:
    description:
      - Where the proc file system is mounted.
    type: path
    default: /proc
  sysfs_root:
    description:
      - Where the sys file system is mounted.
    type: path
    default: /sys
"""

EXAMPLES = r"""
- name: Read the nodes
  gb10.cluster.node_info:
    ports: [6379, 8000]
    paths: [/var/lib/gb10, /home/spark/.cache/huggingface]
  register: node

- name: Say what could not be seen
  ansible.builtin.debug:
    var: node.errors
"""

RETURN = r"""
memory:
  description: Memory figures in MiB, null when they could not be read.
  returned: always
  type: dict
  sample:
    {"total_mb": 122536, "free_mb": 9120, "available_mb": 108870, "cached_mb": 97204, "buffers_mb": 412, "slab_reclaimable_mb": 1290,
     "dirty_mb": 3, "mapped_mb": 611, "shmem_mb": 44, "swap_total_mb": 0, "swap_free_mb": 0}
kernel:
  description: The kernel's release, the architecture, and an id that changes at every boot.
  returned: always
  type: dict
  sample: {"release": 6.11.0-1016-nvidia, "arch": aarch64, "boot_id": 2a5dc1f5-3983-4f96-a958-ebff58fa47ab}
docker:
  description:
    - The Docker engine. RV(docker.reachable) tells whether it answered, the other keys of the engine are null when it did not.
    - RV(docker.python_docker) is the version of the Docker SDK that the node's Python would import, null when there is none.
  returned: always
  type: dict
  contains:
    reachable:
      description: Whether the engine answered.
      type: bool
      sample: true
    version:
      description: Its version.
      type: str
      sample: 28.3.3
    api_version:
      description: The newest API that it speaks.
      type: str
      sample: "1.51"
    min_api_version:
      description: The oldest API that it speaks.
      type: str
      sample: "1.24"
    cgroup_driver:
      description: How it makes control groups.
      type: str
      sample: systemd
    cgroup_version:
      description: The version of control groups.
      type: str
      sample: "2"
    runtimes:
      description: The container runtimes that it knows.
      type: list
      elements: str
      sample: [nvidia, runc]
    storage_driver:
      description: How it keeps images.
      type: str
      sample: overlay2
    root_dir:
      description: Where it keeps images and containers.
      type: str
      sample: /var/lib/docker
    root_free_bytes:
      description: The free disk space there, null when it cannot be told.
      type: int
      sample: 851479363584
    python_docker:
      description: The version of the Docker SDK for Python on this node.
      type: str
      sample: 5.0.3
containers:
  description: The containers of this collection on the node, of any cluster.
  returned: always
  type: list
  elements: dict
  contains:
    id:
      description: The container's id.
      type: str
      sample: 4b1d1b8e52b0f1c1
    name:
      description: Its name.
      type: str
      sample: gb10-gb10-head
    image:
      description: The image it was made of.
      type: str
      sample: gb10/engine:ray
    cluster:
      description: Its cluster.
      type: str
      sample: gb10
    role:
      description: Its role.
      type: str
      sample: head
    spec:
      description: The digest of what it was asked to be.
      type: str
      sample: "1:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    state:
      description: Its state.
      type: str
      sample: running
    status:
      description: Its state in the engine's words.
      type: str
      sample: Up 3 hours
interfaces:
  description: The network interfaces by name.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: The interface.
      type: str
      sample: enp1s0f0np0
    carrier:
      description: Whether the other end is there, null while the interface is down.
      type: bool
      sample: true
    operstate:
      description: Its state.
      type: str
      sample: up
    mtu:
      description: The largest packet in bytes.
      type: int
      sample: 9000
    mac:
      description: Its hardware address.
      type: str
      sample: 4c:bb:47:2c:00:01
    speed:
      description: Its speed in Mbit/s, null when it does not tell.
      type: int
      sample: 200000
    driver:
      description: Its driver, null for a virtual interface.
      type: str
      sample: mlx5_core
    addresses:
      description: Its addresses, IPv4 and IPv6.
      type: list
      elements: str
      sample: [192.168.100.10, "fe80::4ebb:47ff:fe2c:1"]
    networks:
      description: The same with what belongs to them.
      type: list
      elements: dict
      sample: [{"family": ipv4, "address": 192.168.100.10, "prefix": 24, "network": 192.168.100.0/24, "scope": global}]
devices:
  description: Whether each of O(devices) is there, null when that may not be seen.
  returned: always
  type: dict
  sample: {"/dev/infiniband": true}
listeners:
  description: Who listens on O(ports). The process is null or empty when it may not be seen, the container is the name of the one it runs in.
  returned: always
  type: list
  elements: dict
  sample:
    - port: 8000
      address: 0.0.0.0
      pid: 1822
      process: python3
      cmdline: python3 -m http.server 8000
      since: "2026-11-21T01:52:59Z"
      container: ""
disk:
  description: The disk space for each of O(paths), with the existing directory that was measured; null when that may not be seen.
  returned: always
  type: dict
  sample: {"/var/lib/gb10": {"measured_at": /var/lib, "total_bytes": 3936358408192, "free_bytes": 851479363584}}
rdma:
  description: The RDMA devices with the interfaces on top of them.
  returned: always
  type: list
  elements: dict
  sample:
    - name: rocep1s0f0
      netdevs: [enp1s0f0np0]
      ports: [{"port": 1, "state": ACTIVE, "physical_state": LinkUp, "link_layer": Ethernet, "rate": 200 Gb/sec (4X HDR)}]
gpus:
  description: The GPUs, with null for memory figures that the driver does not tell (GB10).
  returned: always
  type: list
  elements: dict
  sample:
    - index: 0
      name: NVIDIA GB10
      uuid: GPU-4f1c2d3e-0000-0000-0000-000000000000
      driver_version: 580.95.05
      memory_total_mb:
      memory_used_mb:
errors:
  description: What could not be seen, and why. Empty when all was seen.
  returned: always
  type: list
  elements: dict
  contains:
    section:
      description: The result that is empty or null, in whole or in part, because of it.
      type: str
      sample: gpus
    verdict:
      description: V(unknown) or V(block).
      type: str
      sample: unknown
    error:
      description: What went wrong.
      type: str
      sample: "nvidia-smi cannot be run: No such file or directory (nvidia-smi)"
    remedy:
      description: What to do about it.
      type: str
      sample: Install nvidia-smi on this node, or say where it is.
"""

import importlib.metadata
import os
import platform
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _gpu, _memory, _net
from ansible_collections.gb10.cluster.plugins.module_utils._devices import has_device
from ansible_collections.gb10.cluster.plugins.module_utils._docker import LABEL_CLUSTER, LABEL_OWNER, LABEL_ROLE, LABEL_SPEC, OWNER, EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._listeners import listeners
from ansible_collections.gb10.cluster.plugins.module_utils._module import run


def kernel(proc_root: str) -> dict[str, t.Any]:
    """Return the kernel's release, the architecture and the boot's id."""
    with open(os.path.join(proc_root, "sys/kernel/random/boot_id"), encoding="ascii") as stream:
        return {"release": platform.release(), "arch": platform.machine(), "boot_id": stream.read().strip()}


def sdk_version() -> str | None:
    """Return the version of the Docker SDK that this Python would import, None when there is none."""
    try:
        return importlib.metadata.version("docker")
    except importlib.metadata.PackageNotFoundError:
        return None


def nearest_existing(path: str) -> str:
    """Return the path itself, or its nearest parent that exists."""
    while not os.path.exists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def disk(path: str) -> dict[str, t.Any]:
    """Return the disk space for a path, existing or not; free is what an ordinary user may use."""
    place = nearest_existing(os.path.abspath(path))
    space = os.statvfs(place)
    return {
        "measured_at": place,
        "total_bytes": space.f_blocks * space.f_frsize,
        "free_bytes": space.f_bavail * space.f_frsize,
    }


#: What is known about the engine when it does not answer.
NO_ENGINE: dict[str, t.Any] = {
    "reachable": False,
    "version": None,
    "api_version": None,
    "min_api_version": None,
    "cgroup_driver": None,
    "cgroup_version": None,
    "runtimes": None,
    "storage_driver": None,
    "root_dir": None,
    "root_free_bytes": None,
}


def engine(version: dict[str, t.Any], info: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return what the engine's answers to ``/version`` and ``/info`` say. Raises :class:`UnknownState` when they lack what they must have."""
    try:
        return {
            **NO_ENGINE,
            "reachable": True,
            "version": version["Version"],
            "api_version": version["ApiVersion"],
            "min_api_version": version.get("MinAPIVersion"),
            "cgroup_driver": info.get("CgroupDriver"),
            "cgroup_version": info.get("CgroupVersion"),
            "runtimes": sorted(info.get("Runtimes") or {}),
            "storage_driver": info.get("Driver"),
            "root_dir": info["DockerRootDir"],
        }
    except (KeyError, TypeError) as error:
        raise UnknownState(f"the Docker engine does not tell {error}", raw=str({"version": version, "info": info})[:2000]) from error


def name_of(entry: dict[str, t.Any]) -> str:
    """Return the name of a container in the engine's list."""
    return entry["Names"][0].lstrip("/") if entry.get("Names") else ""


def ours(entries: t.Iterable[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Return this collection's containers of the engine's list, in our words and by name."""
    found = []
    for entry in entries:
        labels = entry["Labels"] or {}
        if labels.get(LABEL_OWNER) == OWNER:
            found.append(
                {
                    "id": entry["Id"],
                    "name": name_of(entry),
                    "image": entry["Image"],
                    "cluster": labels.get(LABEL_CLUSTER),
                    "role": labels.get(LABEL_ROLE),
                    "spec": labels.get(LABEL_SPEC),
                    "state": entry["State"],
                    "status": entry["Status"],
                }
            )
    return sorted(found, key=lambda container: container["name"])


def container_name(container_id: str, entries: t.Iterable[dict[str, t.Any]]) -> str:
    """Return the name that belongs to a container's id; the id itself when the engine does not list it."""
    return next((name_of(entry) for entry in entries if entry["Id"] == container_id), container_id)


def with_addresses(interface: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return an interface with its addresses alone beside its networks."""
    return {**interface, "addresses": [network["address"] for network in interface["networks"]]}


def require_seen(found: t.Iterable[dict[str, t.Any]]) -> None:
    """Raise :class:`UnknownState` when a listener's process may not be seen: it could be anybody's."""
    hidden = sorted({entry["port"] for entry in found if entry["pid"] is None})
    if hidden:
        raise UnknownState(f"nobody tells whose process listens on port {', '.join(map(str, hidden))}", remedy="Run the task with become: true.")


class Sections:
    """Reads one section after the other; one that fails is told in ``errors`` and does not keep the others from being read."""

    def __init__(self) -> None:
        self.errors: list[dict[str, str]] = []

    def read(self, section: str, reader: t.Callable[[], t.Any], otherwise: t.Any = None) -> t.Any:
        try:
            return reader()
        except ClusterError as error:
            self._note(section, error.verdict, str(error), error.remedy)
        except OSError as error:
            remedy = "Run the task with become: true." if isinstance(error, PermissionError) else ""
            self._note(section, "unknown", f"{error.filename or section}: {error.strerror or error}", remedy)
        return otherwise

    def _note(self, section: str, verdict: str, error: str, remedy: str) -> None:
        self.errors.append({"section": section, "verdict": verdict, "error": error, "remedy": remedy})


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    proc_root, sysfs_root = params["proc_root"], params["sysfs_root"]
    api = EngineApi(params["docker_socket"], params["docker_timeout"])
    sections = Sections()
    read = sections.read

    docker = read("docker", lambda: engine(api.get("/version"), api.get("/info")), NO_ENGINE)
    if docker["root_dir"]:
        # Docker's directory itself is root's; the file system is the one of the nearest parent that may be looked at.
        docker["root_free_bytes"] = read("docker", lambda: disk(docker["root_dir"])["free_bytes"])
    everything = read("containers", lambda: api.containers({}), []) if docker["reachable"] else []
    holders = read("listeners", lambda: listeners(params["ports"], proc_root), [])
    read("listeners", lambda: require_seen(holders))
    result = {
        "memory": read("memory", lambda: _memory.figures(_memory.read_meminfo(proc_root))),
        "kernel": read("kernel", lambda: kernel(proc_root)),
        "docker": {**docker, "python_docker": sdk_version()},
        "containers": ours(everything),
        "interfaces": [with_addresses(interface) for interface in read("interfaces", lambda: _net.interfaces(sysfs_root, proc_root), [])],
        "devices": {path: read("devices", lambda: has_device(path)) for path in params["devices"]},
        "listeners": [{**holder, "container": container_name(holder["container"], everything)} for holder in holders],
        "disk": {path: read("disk", lambda: disk(path)) for path in params["paths"]},
        "rdma": read("rdma", lambda: _net.rdma_devices(sysfs_root), []),
        "gpus": read("gpus", lambda: _gpu.query_gpus(params["nvidia_smi"], params["tool_timeout"]), []),
    }
    blind = ", ".join(sorted({entry["section"] for entry in sections.errors}))
    return {**result, "errors": sections.errors, "msg": f"could not see: {blind}" if blind else "all was seen"}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "devices": {"type": "list", "elements": "path", "default": ["/dev/infiniband"]},
            "ports": {"type": "list", "elements": "int", "default": []},
            "paths": {"type": "list", "elements": "path", "default": []},
            "nvidia_smi": {"type": "str", "default": "nvidia-smi"},
            "tool_timeout": {"type": "int", "default": 30},
            "proc_root": {"type": "path", "default": "/proc"},
            "sysfs_root": {"type": "path", "default": "/sys"},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
